"""Turns the return value of a tool into parts of a message.

Owns: `ToolReturn`, how values are written as text, and the size limits. Must never know: which tool ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..types.answers import ToolReturn
from ..types.messages import Audio, Document, Image, Part, Text
from ..types.render import plain

__all__ = ["MAX_RESULT_BYTES", "MAX_RESULT_MEDIA_BYTES", "result_parts", "text_parts"]

MAX_RESULT_BYTES = 256 * 1024
"""The longest text of one result, in UTF-8 bytes, with the note about the removed text. The option
`max_tool_result_bytes` changes it."""

MAX_RESULT_MEDIA_BYTES = 1024 * 1024
"""The largest total of all pictures, documents and sounds of one result: bytes before base64, and URLs.

Media stay in the history: every later request and every saved state holds them again.
"""

_NOTE = "\n[{} characters removed]"
_NOTE_BYTES = 64
_PARTS = (Text, Image, Document, Audio)


def result_parts(value: Any, max_bytes: int = MAX_RESULT_BYTES) -> tuple[tuple[Part, ...], bool]:
    """Write a tool's return value as parts, and say whether it is an error.

    A `str` is text. A part (`Image`, …) is a part. A list or tuple with at least one part in it is a list of
    parts, in which a `str` is text. Anything else becomes JSON text: None is ``null``; dates, Decimal, UUID,
    Enum, sets, dataclasses and pydantic models are written as pydantic writes them; bytes must be UTF-8. A
    value that JSON cannot express becomes an error result, which names the type and never the content.

    Text longer than `max_bytes` is cut off, and a note counts the removed characters. A picture, document or
    sound that does not fit `MAX_RESULT_MEDIA_BYTES` is replaced by a note with its kind and size.
    """
    if isinstance(value, ToolReturn):
        parts, is_error = result_parts(value.value, max_bytes)
        return parts, is_error or value.is_error
    try:
        return _limited(_parts(value), max_bytes), False
    except _NotJSONError as error:
        text = f"The tool returned a value of type {error}, which cannot be written as JSON."
        return text_parts(text, max_bytes), True


def text_parts(text: str, max_bytes: int = MAX_RESULT_BYTES) -> tuple[Part, ...]:
    """Text within the limits of a result."""
    return _limited((Text(text),), max_bytes)


class _NotJSONError(Exception):
    """JSON cannot express the value. The text is the name of its type."""


def _parts(value: Any) -> tuple[Part, ...]:
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        return tuple(item if isinstance(item, _PARTS) else Text(_text(item)) for item in value)
    return (Text(_text(value)),)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    from pydantic_core import to_json  # on first need: it takes a while to load

    unknown: list[str] = []

    def refuse(item: Any) -> Any:
        unknown.append(type(item).__name__)
        raise TypeError

    try:
        return to_json(value, fallback=refuse).decode()
    except (ValueError, TypeError, RecursionError) as error:  # unknown type, cycle, too deep, no UTF-8
        raise _NotJSONError(unknown[0] if unknown else type(value).__name__) from error


def _limited_media(parts: Sequence[Part]) -> list[Part]:
    room = MAX_RESULT_MEDIA_BYTES
    kept: list[Part] = []
    for part in parts:
        # A URL counts like data, because a data: URL holds the whole picture.
        size = 0 if isinstance(part, Text) else len(part.data or b"") + len(part.url or "")
        if size > room:
            kept.append(Text(f"[{type(part).__name__.lower()} of {size} bytes left out: too large]"))
        else:
            room -= size
            kept.append(part)
    return kept


def _limited(parts: Sequence[Part], max_bytes: int) -> tuple[Part, ...]:
    """The parts within both limits, with text that is valid UTF-8."""
    parts = _limited_media(parts)
    clean = [Text(plain(part.text)) if isinstance(part, Text) else part for part in parts]
    if sum(len(part.text.encode()) for part in clean if isinstance(part, Text)) <= max_bytes:
        return tuple(clean)
    room = max_bytes - _NOTE_BYTES
    removed = 0
    kept: list[Part] = []
    for part in clean:
        if not isinstance(part, Text):
            kept.append(part)
            continue
        head = part.text.encode()[:room].decode("utf-8", "ignore")
        # No text follows the cut, even if a shorter part would fit.
        room = room - len(head.encode()) if head == part.text else 0
        removed += len(part.text) - len(head)
        if head:
            kept.append(Text(head))
    last = max(index for index, part in enumerate(kept) if isinstance(part, Text))
    kept[last] = Text(_as_text(kept[last]) + _NOTE.format(removed))
    return tuple(kept)


def _as_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""
