"""Reads stored entries as neutral messages.

Owns: the one place where a stored entry is parsed, and the error for an unreadable entry.
Must never know: the use of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ..base import rawjson
from ..base.rawjson import RawJSONError
from ..base.values import replace
from ..types.errors import StateInvalidError
from ..types.messages import Message, Text
from ..types.render import valid_text
from .base import Dialect

__all__ = ["parse_entries", "read_entries"]

_UNREADABLE = "an entry of the state is not JSON that a provider could have written; the state cannot be used"


def read_entries(dialect: Dialect, entries: Iterable[bytes]) -> tuple[Message, ...]:
    """The entries as messages. Raises `StateInvalidError` for one that cannot be read."""
    found = tuple(entries)
    messages: tuple[Message, ...] | None = None
    try:
        messages = dialect.view(found)
        for entry in found:
            if b"\\ud" in entry or b"\\uD" in entry:  # there may be a surrogate
                return tuple(map(_plain, messages))
    except ValueError:
        messages = None
    if messages is None:  # outside of the handler: the context's text may quote the entry
        raise StateInvalidError(_UNREADABLE)
    return messages


def _plain(message: Message) -> Message:
    """The message with texts that can be encoded; see `render.valid_text`."""
    parts = tuple(
        replace(part, text=valid_text(part.text)) if isinstance(part, Text) else part
        for part in message.parts
    )
    return replace(message, parts=parts, reasoning=valid_text(message.reasoning))


def parse_entries(entries: Iterable[bytes]) -> list[object]:
    """The entries as plain JSON values. Raises `StateInvalidError` for one that cannot be read."""
    with suppress(RawJSONError):
        return [rawjson.loads(entry) for entry in entries]
    raise StateInvalidError(_UNREADABLE)
