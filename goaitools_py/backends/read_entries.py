"""Reads stored entries: as neutral messages, as JSON values, and which strings in them a provider API chose.

Owns: the one place where a stored entry is parsed, the error for an unreadable entry, and the members of all
built-in provider APIs whose strings are not content. Must never know: the use of the messages or strings.

A word of the provider API, such as ``role`` or ``"user"``, is public, and an entry without it could not be
sent. An id or the name of a tool is content, but it has to keep its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from ..base import rawjson
from ..base.rawjson import RawJSONError
from ..base.values import replace
from ..types.errors import StateInvalidError
from ..types.messages import Message, Text
from ..types.render import valid_text
from .base import Dialect

__all__ = [
    "CALLERS_OWN",
    "TEXT_PARTS",
    "is_id",
    "is_media_text",
    "is_sealed",
    "is_word",
    "is_words_key",
    "parse_entries",
    "placeholder_type",
    "read_entries",
]

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


# ------------------------------------------------------------------------------------ words of a provider

_WORD: Final = r"[a-z][a-z0-9_./+-]{0,63}"
_KEY: Final = r"[a-z][a-z0-9_]{0,63}"

_ENUMERATED: Final = frozenset(
    {
        "detail",
        "effort",
        "execution",
        "format",
        "media_type",
        "mime_type",
        "object",
        "phase",
        "role",
        "status",
        "type",
    }
)
"""Members with a value that the provider API chooses from a list."""

CALLERS_OWN: Final = frozenset({"arguments", "attributes", "input", "metadata"})
"""Members that hold an object of the caller's or the model's own: all keys and values in it are content."""

_SEALED: Final = frozenset(
    {"encrypted_content", "encrypted_index", "encrypted_stdout", "signature", "thought_signature"}
)
"""Members that only the provider can read. Each stays whole, or leaves with its block."""

TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text"})
"""The types of text parts that are read as one text, if they stand side by side."""

_PLACEHOLDERS: Final = {
    "document": "text",
    "file": "text",
    "image": "text",
    "image_url": "text",
    "input_file": "input_text",
    "input_image": "input_text",
    "video_url": "text",
}

_MEDIA: Final = frozenset({"data", "file_data", "file_url", "image_url", "url"})


def is_words_key(key: str) -> bool:
    """True for a key that a provider API may have chosen."""
    return re.fullmatch(_KEY, key) is not None


def is_word(key: str, value: str, kind: str) -> bool:
    """True for a value that the provider API chooses. `kind`: the type of the object that has it."""
    if key == "name":
        return kind == "server_tool_use" and re.fullmatch(_WORD, value) is not None
    return key in _ENUMERATED and re.fullmatch(_WORD, value) is not None


def is_id(key: str) -> bool:
    """True for a member that holds an id."""
    return key == "id" or key.endswith("_id")


def is_sealed(key: str, kind: str) -> bool:
    """True for a member that only the provider can read. `kind`: the type of the object that has it."""
    return key in _SEALED or (key == "data" and kind == "redacted_thinking")


def is_media_text(key: str, value: str, kind: str) -> bool:
    """True for a medium as base64. `kind`: the type of the object that has it."""
    if key not in _MEDIA:
        return False
    return value.startswith("data:") or (key in ("data", "file_data") and kind != "text")


def placeholder_type(kind: str) -> str | None:
    """The type of a text that may replace a part of this type; None for other types."""
    return _PLACEHOLDERS.get(kind)
