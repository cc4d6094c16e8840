"""Turns content of an impossible shape into content that servers accept in a history.

Owns: the replacement for a content that is neither text nor a list of parts. Must never know: messages,
roles or items.

No provider documents these replies, but gateways and servers under development send them. Every later request
with one of them would be refused, so the content is changed, always in the same way:

================================= =========================================================
received                          stored
================================= =========================================================
a number, a boolean, an object    its JSON as text
a list with strings in it         a text part for each of them
an object without a type          a text part of its ``text``, or of its JSON
a text part without text          the same part with the JSON of its ``text``, or ``""``
null in a list                    nothing
================================= =========================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...base import rawjson

__all__ = ["has_odd_content", "mended_content"]

_WORDS: Final = {"text": "text", "output_text": "text", "refusal": "refusal"}
"""The member that holds the text of a part, by the part's type."""


def has_odd_content(content: Any) -> bool:
    """True for content that is not null, text, or a list of typed parts."""
    if content is None or isinstance(content, str):
        return False
    return not isinstance(content, list) or any(map(_is_odd, content))


def mended_content(raw: bytes, *, text_type: str) -> bytes:
    """The content that replaces an odd one. `text_type`: the type of text parts on this provider API.

    Raises:
        RawJSONError: The content is not JSON.
    """
    if not raw.startswith(b"["):
        return rawjson.dumps(raw.decode())
    parts = [_mended(part, rawjson.view(part), text_type) for part in rawjson.items(raw)]
    return _list(part for part in parts if part)


def _is_odd(part: Any) -> bool:
    if not isinstance(part, dict):
        return True
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        return True
    return kind in _WORDS and not isinstance(part.get(_WORDS[kind]), str)


def _mended(raw: bytes, part: Any, text_type: str) -> bytes:
    if part is None or not _is_odd(part):
        return b"" if part is None else raw
    if not isinstance(part, dict):
        return _text_part(raw if isinstance(part, str) else rawjson.dumps(raw.decode()), text_type)
    members = rawjson.members(raw)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _WORDS:
        words = members.get(_WORDS[kind], b'""')
        text = words if words == b'""' or rawjson.is_null(words) else rawjson.dumps(words.decode())
        return rawjson.replaced(raw, {_WORDS[kind]: b'""' if rawjson.is_null(text) else text})
    text = members["text"] if isinstance(part.get("text"), str) else rawjson.dumps(raw.decode())
    return _text_part(text, text_type)


def _text_part(text: bytes, text_type: str) -> bytes:
    return b'{"type":%s,"text":%s}' % (rawjson.dumps(text_type), text)


def _list(parts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"
