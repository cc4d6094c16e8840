"""HTTP as values: request bodies with the bytes of their members, and responses with the pieces they are sent
in.

Owns: reading an untrusted body and keeping its bytes; the description of a response, valid or damaged, and
how its sending ends. Must never know: a socket, or the meaning of a member or of the bytes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

__all__ = [
    "EVENT_STREAM",
    "JSON",
    "Body",
    "BodyError",
    "Ending",
    "Headers",
    "Hold",
    "Response",
    "dump",
    "read_body",
]

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


Headers = tuple[tuple[str, str], ...]
JSON: Headers = (("content-type", "application/json"),)
EVENT_STREAM: Headers = (("content-type", "text/event-stream; charset=utf-8"),)

Ending = Literal[
    "complete",  # valid HTTP; the connection stays open
    "eof",  # the connection closes after the pieces, whatever Content-Length says
    "reset",  # the same, with a TCP reset
    "pings",  # keep-alive bytes after the pieces, until the client disconnects
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A wait after this number of pieces (None: before the headers).

    It lasts until `gate` is set, if there is one, and `seconds` more.
    """

    after: int | None = None
    gate: threading.Event | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response. A streamed one goes out in HTTP chunks, one per piece; others with their length.

    Attributes:
        status: The HTTP status; 0 if the connection breaks before there is one.
        missing: Content-Length is larger than the body by this number of bytes.
    """

    status: int = 200
    headers: Headers = ()
    pieces: tuple[bytes, ...] = field(default=(), repr=False)
    streamed: bool = False
    hold: Hold | None = None
    missing: int = 0
    ending: Ending = "complete"

    @property
    def body(self) -> bytes:
        """All pieces together."""
        return b"".join(self.pieces)
