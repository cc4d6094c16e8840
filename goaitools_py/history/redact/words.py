"""Which strings of an entry are content, and which are words of the provider API.

Owns: these lists. Must never know: how an entry is rewritten, or the pattern of a search.

A word of the provider API, such as ``role`` or ``"user"``, is public, and an entry without it could not be
sent. So it stays. An id or the name of a tool is content, but it has to keep its shape.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "CALLERS_OWN",
    "SEALED",
    "TEXT_PARTS",
    "is_id",
    "is_media_text",
    "is_word",
    "is_words_key",
    "placeholder_type",
]

_WORD: Final = re.compile(r"[a-z][a-z0-9_./+-]{0,63}")
_KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

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

SEALED: Final = frozenset(
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
    return _KEY.fullmatch(key) is not None


def is_word(key: str, value: str, kind: str) -> bool:
    """True for a value that the provider API chooses. `kind`: the type of the object that has it."""
    if key == "name":
        return kind == "server_tool_use" and _WORD.fullmatch(value) is not None
    return key in _ENUMERATED and _WORD.fullmatch(value) is not None


def is_id(key: str) -> bool:
    """True for a member that holds an id."""
    return key == "id" or key.endswith("_id")


def is_media_text(key: str, value: str, kind: str) -> bool:
    """True for a medium as base64. `kind`: the type of the object that has it."""
    if key not in _MEDIA:
        return False
    return value.startswith("data:") or (key in ("data", "file_data") and kind != "text")


def placeholder_type(kind: str) -> str | None:
    """The type of a text that may replace a part of this type; None for other types."""
    return _PLACEHOLDERS.get(kind)
