"""Bodies that all front ends read and write alike: requests as JSON, and replies as server-sent events.

Owns: the checks of known members and of files as data URLs, the framing of events, how far a tool is, and the
state as a client carries it. Must never know: a front end's own members, or the content of a state.

The HTML standard defines the format of events, section "Server-sent events". JSON text has no line break, so
one ``data:`` line is enough.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from ..base import rawjson
from ..state.whole_blobs import state_to_text
from ..types.events import ToolProgress
from ..types.messages import Audio, Document, Image, Part
from ..types.render import file_block
from .front_end import AskError

__all__ = [
    "HEADERS",
    "KEEP_ALIVE",
    "MAX_ID_CHARACTERS",
    "changes",
    "frame",
    "items_at",
    "json_object",
    "media_of",
    "members_at",
    "numbered",
    "part_of",
    "progress_of",
    "span_at",
    "state_of",
    "text_of",
    "value_of",
]

MAX_ID_CHARACTERS = 256
"""The longest name of a conversation, a message or a call."""


def json_object(body: bytes) -> dict[str, Any]:
    """Read a body that is a JSON object."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            found = rawjson.view(body)  # it may have a number that no float can hold
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except (rawjson.RawJSONError, UnicodeEncodeError):
            raise AskError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise AskError(f"the body must be a JSON object, not {type(found).__name__}")
    return found


def items_at(body: bytes | None, name: str, count: int) -> Sequence[bytes | None]:
    """The bytes of each element of a member that is a list of `count`; None for each if they cannot be cut.

    A body is cut once for all elements: a cut for each element would cost the square of its length.
    """
    span = None if body is None else span_at(body, name)
    try:
        return [None] * count if span is None else rawjson.items(span)
    except rawjson.RawJSONError:
        return [None] * count


def members_at(body: bytes, name: str) -> Mapping[str, bytes]:
    """As `items_at`, for a member that is an object; {} if it cannot be cut."""
    span = span_at(body, name)
    try:
        return {} if span is None else rawjson.members(span)
    except rawjson.RawJSONError:
        return {}


def span_at(body: bytes, *path: str | int) -> bytes | None:
    """The bytes of a member of a body, as they were written; None if the body nests too deep to be cut."""
    try:
        for step in path:
            body = rawjson.members(body)[step] if isinstance(step, str) else rawjson.items(body)[step]
    except rawjson.RawJSONError:
        return None
    return body


def value_of(span: bytes | None, read: Any) -> Any:
    """Give a result, or arguments, from a member of a body, without a change.

    Numbers are exact. JSON that would change if it is read and written again, such as ``1.10``, ``1e999`` or
    an object with a repeated name, is given as its text. `read`: the value if there is no span.
    """
    if span is None or isinstance(read, str) or orjson.dumps(read) == span:
        return read
    text = span.decode()
    return text if changes(text) else json.loads(text)


def changes(text: str, *, by_value: bool = False) -> bool:
    """True if JSON text becomes other text when a program reads it and writes it again.

    `by_value`: for a reader in JavaScript. Its numbers are floats, and its objects begin with the names that
    are numbers. Then only another value or another order counts: ``1.10`` and ``1.1`` are the same.
    """
    found = False

    def note(is_changed: bool) -> None:
        nonlocal found
        found = found or is_changed

    def number(digits: str) -> None:
        read = float(digits)
        same = Decimal(digits) == Decimal(repr(read)) if by_value else repr(read) == digits
        note(math.isinf(read) or not same)

    def integer(digits: str) -> None:
        if by_value:
            note(len(digits) > _MOST_DIGITS or int(float(digits)) != int(digits))
        else:
            note(len(digits) > _MOST_DIGITS or digits == "-0")

    def members(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        is_moved = by_value and len(names) > 1 and any(map(str.isdecimal, names))
        note(is_moved or len(set(names)) < len(names))

    try:
        json.loads(text, parse_float=number, parse_int=integer, object_pairs_hook=members)
    except (ValueError, RecursionError):
        return True
    return found


_MOST_DIGITS = 300
"""More digits than a float can have. They are not converted."""


def text_of(found: dict[str, Any], name: str, *, most: int | None = MAX_ID_CHARACTERS) -> str:
    """Give a member that must be text with at least one character."""
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise AskError(f"{name} must be text with at least one character")
    if most is not None and len(value) > most:
        raise AskError(f"{name} must have at most {most} characters, got {len(value)}")
    return value


def media_of(url: str, media_type: str, name: str | None) -> Part:
    """Make a part of a file that a client sends as a data URL.

    Other URLs are refused: a client must not choose a URL that your provider fetches.
    """
    if not url.startswith("data:"):
        raise AskError("a file must be sent as a data URL")
    head, comma, payload = url[5:].partition(",")
    if not comma:
        raise AskError("a data URL has no comma")
    try:
        is_base64 = head.endswith(";base64")
        data = base64.b64decode(payload, validate=True) if is_base64 else unquote_to_bytes(payload)
    except ValueError:  # of binascii, or because it is not ASCII
        raise AskError("a data URL is not base64") from None
    return part_of(data, media_type, name)


def part_of(data: bytes, media_type: str, name: str | None) -> Part:
    """Make a part of a file that a client sends."""
    if not data:
        raise AskError("a file is empty")
    kind = media_type.partition("/")[0]
    if kind == "text":
        return file_block(data.decode("utf-8", "replace"), name=name or "", media_type=media_type)
    try:
        if kind == "image":
            return Image.from_bytes(data, media_type)
        if kind == "audio":
            return Audio.from_bytes(data, media_type)
        return Document.from_bytes(data, media_type, name=name)
    except ValueError:
        raise AskError("the media type of a file must be written as in image/png") from None


# ------------------------------------------------------------------------------------ server-sent events


KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment. It says nothing, and keeps proxies from closing an idle connection."""

HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
"""Headers of a response that streams events. The last one tells nginx not to collect them."""


def frame(data: Any, *, event: str = "") -> bytes:
    """Write one event. `data`: a JSON-able value, or bytes to send as they are. `event`: its type."""
    text = data if isinstance(data, bytes) else orjson.dumps(data)
    return b"event: %s\ndata: %s\n\n" % (event.encode(), text) if event else b"data: %s\n\n" % text


def numbered(event: bytes, id: str) -> bytes:
    """Give an event an id. A client that comes back names the last id that it has seen."""
    return b"id: %s\n%s" % (id.encode(), event)


def progress_of(event: ToolProgress) -> dict[str, Any]:
    """Write a report. A number that JSON does not have, such as infinity, is None."""
    return {
        "progress": _number(event.progress),
        "total": _number(event.total),
        "message": event.message,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def state_of(told: object) -> dict[str, str]:
    """Give the member ``state`` of a result, or of an error that carries the state so far; else nothing."""
    state = getattr(told, "state", None)
    return {"state": state_to_text(state)} if isinstance(state, bytes) and state else {}
