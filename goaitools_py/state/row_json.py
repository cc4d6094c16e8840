"""Write rows of a state as compact JSON, and decode them with strict types.

Owns: how a value becomes JSON, lone surrogates included, and the check of depth before a decoder runs. Must
never know: which rows there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import msgspec

from ..base import rawjson
from ..base.rawjson import RawJSONError
from ..types.errors import StateError
from ..types.render import plain_bytes

__all__ = ["REFUSALS", "as_json", "decoded", "decoder_of"]

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Make the strict decoder of a type, once. It is for rows that few states have."""
    return msgspec.json.Decoder(kind)


def as_json(value: Any) -> bytes:
    """Write compact JSON. Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _without_surrogates(value)


def _without_surrogates(value: Any) -> bytes:
    """As `as_json`, for a value with lone surrogates. Marks stand for raw members until the last step."""
    mark = os.urandom(16).hex()
    aside: list[bytes] = []

    def put_aside(raw: object) -> str:
        if not isinstance(raw, msgspec.Raw):
            raise TypeError(f"a state cannot hold {type(raw).__name__}")
        aside.append(bytes(raw))
        return f"{mark}-{len(aside) - 1}-"

    text = rawjson.dumps(msgspec.to_builtins(value, enc_hook=put_aside))
    for number, raw in enumerate(aside):
        text = text.replace(f'"{mark}-{number}-"'.encode(), raw)
    return text


REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RawJSONError)


def decoded(decoder: msgspec.json.Decoder[_T], data: bytes, refused: Callable[[bytes], StateError]) -> _T:
    """Decode with strict types. The error is raised outside the handler: the inner error holds the data."""
    with suppress(*REFUSALS):
        # First check the depth, at most `MAX_DEPTH`: C reads deeper values than Python can write again.
        (rawjson.items if data[:1] == b"[" else rawjson.members)(data)
        try:
            return decoder.decode(data)
        except msgspec.DecodeError:
            if (plain := plain_bytes(data)) is data:
                raise
            return decoder.decode(plain)  # another writer may escape a lone surrogate, which C refuses
    raise refused(data)
