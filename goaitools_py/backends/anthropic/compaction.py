"""Anthropic's own compaction of a history: what its answer means, and where it stands.

Owns: reading the block and its bill. Must never know: when a history is compacted.

Asked for with the member ``compaction`` (beta ``compact-2026-09-04``), the answer is one assistant message
that holds one block. That message goes first in later requests, in the place of what it was made of, and
every such request names the beta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ... import rawjson
from ...rawjson import RawJSONError
from ...values import replace
from ..base import ProtocolFault, Reply
from . import reply as reading

__all__ = ["CARRIED", "COMPACTION_BETA", "begins_compacted", "compacted", "is_boundary"]

CARRIED: Final = reading.COMPACTED
"""What a reply carries that holds a compaction of the provider's own accord."""

COMPACTION_BETA: Final = "compact-2026-09-04"

_MARK: Final = b"compaction"


def compacted(body: bytes) -> Reply:
    """The message that stands for the history from now on.

    Raises:
        ProtocolFault: There is none: its content is null where the provider could not make one.
    """
    answer = reading.read_body(body)
    reply = reading.reply_of(answer)
    usage = reading.compaction_usage(answer.usage) or reply.usage
    if len(reply.entries) != 1 or not _has_content(reply.entries[0]):
        raise ProtocolFault("the answer holds no compaction of the history", usage=usage)
    return replace(reply, usage=usage, aside=None, signed=True)


def is_boundary(entry: bytes) -> bool:
    """True if the entry is a message with a block that stands for all before it."""
    return _MARK in entry and any(_is_block(block) for block in _blocks(entry))


def begins_compacted(history: Sequence[bytes]) -> bool:
    """True if the first entry of a request's history is such a message. Nothing is read if it is a user's."""
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
