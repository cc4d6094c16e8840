"""Anthropic's own compaction of a history.

Owns: reading the compaction block and its usage. Must never know: when a history is compacted.

A request asks for it with the member ``compaction`` (beta ``compact-2026-09-04``). The answer is one
assistant message with one block. Later requests send that message first, instead of the messages that it
summarises, and name the beta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...base import rawjson
from ...base.rawjson import RawJSONError
from ...base.values import replace
from ...types.messages import Usage
from ..base import ProtocolFault, Reply
from . import reply as reading

__all__ = ["COMPACTION_BETA", "begins_compacted", "compacted", "is_boundary"]

COMPACTION_BETA: Final = "compact-2026-09-04"

_MARK: Final = b"compaction"


def compacted(body: bytes) -> Reply:
    """The message that replaces the history from now on.

    Raises:
        ProtocolFault: There is no compaction; its content is null if the provider could not compact.
    """
    answer = reading.read_body(body)
    reply = reading.reply_of(answer)
    usage = _consumed(reply)
    if len(reply.entries) != 1 or not _has_content(reply.entries[0]):
        raise ProtocolFault("the answer holds no compaction of the history", usage=usage)
    return replace(reply, usage=usage, asides={}, context=None, signed=True)


def _consumed(reply: Reply) -> Usage:
    """The consumption of the compaction. The totals count a reply; here they repeat the `asides` or are 0."""
    asides = sum(reply.asides.values(), start=Usage())
    return replace(asides, requests=1) if asides.total_tokens else reply.usage


def is_boundary(entry: bytes) -> bool:
    """True if the entry is a message with a block that replaces everything before it."""
    return _MARK in entry and any(_is_block(block) for block in _blocks(entry))


def begins_compacted(history: Sequence[bytes]) -> bool:
    """True if the first entry of a request's history is a compaction. A user's message is not parsed."""
    first = next((piece for piece in history if piece), b"")
    start = bytes(first[:4096])
    if start.startswith(b'{"role":"user"') or _MARK not in start:
        return False
    try:
        return is_boundary(bytes(first).partition(b",\n")[0])
    except RawJSONError:
        return False


def _blocks(entry: bytes) -> list[Any]:
    message = rawjson.view(entry)
    content = message.get("content") if isinstance(message, dict) and message.get("role") != "user" else None
    return content if isinstance(content, list) else []


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "compaction"


def _has_content(entry: bytes) -> bool:
    return any(
        _is_block(block) and (block.get("content") or block.get("encrypted_content"))
        for block in _blocks(entry)
    )
