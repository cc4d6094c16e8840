"""Changes to the sent copy of an Anthropic history. The stored history does not have them.

Owns: cache marks, the user's message before an assistant's message that would be the first, and system
messages for models that take none at their position.
Must never know: a request's other members, or where an entry came from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ... import rawjson
from ...render import system_block

__all__ = ["marked", "marked_last", "opened", "placed"]

_MARK: Final = b',"cache_control":'
_USER: Final = b'{"role":"user","content":['

_OPENING: Final = b'{"role":"user","content":[{"type":"text","text":"(The conversation begins.)"}]}'
"""Sent before a greeting: "messages: first message must use the "user" role" (Anthropic's API, 400)."""

_SYSTEM: Final = re.compile(rb'"role":"system"')
"""Quotes inside a string are escaped, so this is a member's name. It may also be one in a call's input."""


def marked_last(blocks: bytes, mark: bytes) -> bytes:
    """The list of blocks with `mark` on the last one."""
    return blocks[:-2] + _MARK + mark + b"}]" if blocks.endswith(b"}]") else blocks


def marked(history: Sequence[bytes], mark: bytes) -> Sequence[bytes]:
    """The history with `mark` on the last block of its last message, if that is a user's without a mark."""
    for at in reversed(range(len(history))):
        if piece := bytes(history[at]):
            last = piece[piece.rfind(b"\n") + 1 :]  # entries have no raw newlines, and one between them
            if not last.startswith(_USER) or not last.endswith(b"}]}") or b'"cache_control"' in last:
                break
            return [*history[:at], piece[:-3] + _MARK + mark + b"}]}", *history[at + 1 :]]
    return history


def opened(history: Sequence[bytes]) -> Sequence[bytes]:
    """The history with a user's message before it, if its first message is the assistant's."""
    first = next((piece for piece in history if piece), b"")
    if first[: len(_USER)] == _USER or not first:
        return history
    try:
        is_assistant = _role(bytes(first).partition(b",\n")[0]) == b'"assistant"'
    except rawjson.RawJSONError:
        return history
    return [_OPENING, *history] if is_assistant else history


def placed(history: Sequence[bytes], *, natively: bool) -> Sequence[bytes]:
    """The history with each system message in a form that the model takes, at the same position.

    A model that takes system messages takes one directly after a user's message and before a reply or the
    end: "accepts role: system messages immediately after a user turn"; all recorded requests are like that.
    Any other becomes a user's message with a block. The form of a message does not change when the history
    grows.

    Args:
        history: Pieces of entries joined by ``,\\n``, unread.
        natively: True if the model takes system messages.
    """
    if not any(_SYSTEM.search(piece) for piece in history):
        return history
    entries = [entry for piece in history for entry in bytes(piece).split(b",\n") if entry]
    sent = list(entries)
    for at, entry in enumerate(entries):
        if _SYSTEM.search(entry) and _role(entry) == b'"system"':
            follows_user = at > 0 and _role(entries[at - 1]) == b'"user"'
            precedes_answer = at + 1 == len(entries) or _role(entries[at + 1]) == b'"assistant"'
            if not (natively and follows_user and precedes_answer):
                sent[at] = _as_block(entry)
    return sent


def _role(entry: bytes) -> bytes:
    return rawjson.members(entry).get("role", b"")


def _as_block(entry: bytes) -> bytes:
    """A system message as a user's message; unchanged if it holds more than text."""
    content: Any = rawjson.loads(rawjson.members(entry).get("content", b"null"))
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    for block in blocks if isinstance(blocks, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if not isinstance(text, str):
            return entry
        texts.append(text)
    if not texts:
        return entry
    content = [{"type": "text", "text": system_block("\n\n".join(texts))}]
    return rawjson.dumps({"role": "user", "content": content})
