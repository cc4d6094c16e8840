"""Changes to the sent copy of an Anthropic history. The stored history does not have them.

Owns: cache marks, the user's message before an assistant's message that would be the first, system messages
for models that do not take them at their position, and whether a running tool loop began without thinking.
Must never know: a request's other members, or where an entry came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ...types.render import system_block

__all__ = ["as_users", "began_unthinking", "marked", "marked_last", "opened", "placed"]

_MARK: Final = b',"cache_control":'
_USER: Final = b'{"role":"user","content":['

_OPENING: Final = b'{"role":"user","content":[{"type":"text","text":"(The conversation begins.)"}]}'
"""Sent before a greeting: "messages: first message must use the "user" role" (Anthropic's API, 400)."""

_RESULT: Final = b'"type":"tool_result"'
"""In a message that was written here."""

_THINKING: Final = frozenset({b'"thinking"', b'"redacted_thinking"'})

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


def began_unthinking(history: Sequence[bytes]) -> bool:
    """True if results of calls wait for a reply, and their answer does not begin with thinking. An answer
    goes on over all its calls, until a user's message.

    Only the end of the history is read, back to the beginning of that answer.
    """
    began: bytes | None = None
    has_results = False
    for entry in _backwards(history):
        is_users = entry.startswith(_USER)
        if is_users and _RESULT in entry:
            has_results = True
        elif is_users or _role(entry) != b'"assistant"':
            if began is not None:
                break
        elif has_results:
            began = entry
        else:
            return False
    return began is not None and not _begins_with_thinking(began)


def _backwards(history: Sequence[bytes]) -> Iterator[bytes]:
    """The entries from the last to the first. An entry is read only when it is asked for."""
    for piece in reversed(history):
        whole = bytes(piece)
        end = len(whole)
        while end > 0:
            at = whole.rfind(b",\n", 0, end)
            yield whole[at + 2 if at >= 0 else 0 : end]
            end = at


def _begins_with_thinking(entry: bytes) -> bool:
    content = rawjson.members(entry).get("content", b"")
    blocks = rawjson.items(content) if content.startswith(b"[") else []
    return bool(blocks) and rawjson.members(blocks[0]).get("type") in _THINKING


def placed(history: Sequence[bytes], *, natively: bool) -> Sequence[bytes]:
    """The history with each system message in a form that the model takes, at the same position.

    A model that takes system messages takes one directly after a user's message and before a reply or the
    end: "accepts role: system messages immediately after a user turn"; all recorded requests are like that.
    Others become a user's message with a block. The form of a message changes only once, and only if it was
    the last one and its reply left nothing in the history, for example a call that was cut off.

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
    blocks = content if isinstance(content, list) else []
    if all(isinstance(block, dict) and _has_text(block) for block in blocks):
        return as_users(entry) or entry
    return entry


def as_users(entry: bytes) -> bytes:
    """The text of a system message as a user's message with a block; b"" without text."""
    content: Any = rawjson.view(rawjson.members(entry).get("content", b"null"))
    if isinstance(content, str):
        texts = [content]
    else:
        blocks = content if isinstance(content, list) else []
        texts = [block["text"] for block in blocks if isinstance(block, dict) and _has_text(block)]
    if not texts:
        return b""
    written = [{"type": "text", "text": system_block("\n\n".join(texts))}]
    return rawjson.dumps({"role": "user", "content": written})


def _has_text(block: Mapping[str, Any]) -> bool:
    return isinstance(block.get("text"), str)
