"""Request bodies: JSON objects, together with the bytes of their members.

Owns: reading an untrusted body and keeping its bytes. Must never know: the meaning of a member.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

__all__ = ["Body", "BodyError", "dump", "read_body"]

_SPACE = " \t\r\n"


class BodyError(ValueError):
    """The body is not one JSON object."""


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object: its values, the bytes of each value, and the request's headers."""

    values: dict[str, Any] = field(repr=False)
    spans: dict[str, bytes] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_body(content: bytes, headers: Mapping[str, str] | None = None) -> Body:
    """Parse a request body. The last of repeated members counts. Raises `BodyError`.

    Args:
        headers: The request's, names in lower case.
    """
    try:
        return _read(content.decode("utf-8"), headers or {})
    except (ValueError, IndexError, RecursionError) as error:
        raise BodyError("the request body is not a JSON object") from error


def _read(text: str, headers: Mapping[str, str]) -> Body:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    values: dict[str, Any] = {}
    spans: dict[str, bytes] = {}
    at = _expect(text, 0, "{")
    more = text[_skip(text, at)] != "}"
    while more:
        key, at = decoder.raw_decode(text, _skip(text, at))
        if not isinstance(key, str):
            raise ValueError("a member name is not a string")
        start = _skip(text, _expect(text, at, ":"))
        values[key], at = decoder.raw_decode(text, start)
        spans[key] = text[start:at].encode("utf-8")
        more = text[_skip(text, at)] == ","
        if more:
            at = _expect(text, at, ",")
    if text[_expect(text, at, "}") :].strip(_SPACE):
        raise ValueError("something follows the object")
    return Body(values, spans, headers)


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, char: str) -> int:
    at = _skip(text, at)
    if text[at] != char:
        raise ValueError("the object is not well-formed")
    return at + 1


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def dump(value: Any) -> bytes:
    """Compact JSON. Lone surrogates, which orjson refuses, are written as escapes."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
