"""Anthropic's own changes of a history: context edits inside a reply, and the compaction on request.

Owns: the member ``context_management`` and the betas that it needs, and reading the compaction block and its
usage. Must never know: when a history is edited or compacted.

Sources of the edits: anthropic 2.12, types/beta (``clear_thinking_20251015``, ``clear_tool_uses_20250919``,
``compact_20260112``); recorded requests. Clearing of thinking comes first: platform.claude.com, context
editing; docs.rs/adk-anthropic. It needs thinking: the 400 in anthropics/claude-code#11971.

A request asks for a compaction with the member ``compaction`` (beta ``compact-2026-09-04``). The answer is
one assistant message with one block. Later requests send that message first, instead of the messages that it
summarises, and name the beta.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...base import rawjson
from ...base.rawjson import RawJSONError
from ...base.values import replace
from ...types.messages import Usage
from ...types.request_parts import ContextEdit, ServerCompaction, ServerThinkingClearing
from ..base import ProtocolFault, Reply
from . import reply as reading

__all__ = [
    "COMPACTION_BETA",
    "anthropic_edits",
    "begins_compacted",
    "compacted",
    "is_boundary",
    "usable_at_anthropic",
]

COMPACTION_BETA: Final = "compact-2026-09-04"

_MARK: Final = b"compaction"

_IN_REPLY_BETA: Final = "compact-2026-01-12"
"""The beta of every request whose history holds a compaction that was made inside a reply."""

_CLEARING_BETA: Final = "context-management-2025-06-27"


# ------------------------------------------------------------------------------- edits inside a reply


def anthropic_edits(wanted: Sequence[ContextEdit]) -> tuple[dict[str, Any], list[str]]:
    """Anthropic's member, with the clearing of thinking first, and the names of its betas."""
    betas = {_IN_REPLY_BETA if isinstance(one, ServerCompaction) else _CLEARING_BETA for one in wanted}
    ordered = sorted(wanted, key=lambda one: not isinstance(one, ServerThinkingClearing))
    return {"edits": [_edit(one) for one in ordered]}, sorted(betas)


def usable_at_anthropic(wanted: Sequence[ContextEdit], *, thinks: bool) -> tuple[ContextEdit, ...]:
    """The edits that a request may ask for. Without thinking, its clearing would be answered with 400."""
    return tuple(one for one in wanted if thinks or not isinstance(one, ServerThinkingClearing))


def _edit(wanted: ContextEdit) -> dict[str, Any]:
    if isinstance(wanted, ServerCompaction):
        edit: dict[str, Any] = {"type": "compact_20260112", "trigger": _tokens(wanted.above_tokens)}
        return edit | ({"instructions": wanted.instructions} if wanted.instructions else {})
    if isinstance(wanted, ServerThinkingClearing):
        if wanted.keep is None:
            return {"type": "clear_thinking_20251015"}
        keep = wanted.keep if wanted.keep == "all" else {"type": "thinking_turns", "value": wanted.keep}
        return {"type": "clear_thinking_20251015", "keep": keep}
    edit = {"type": "clear_tool_uses_20250919"}
    if wanted.above_tokens is not None:
        edit["trigger"] = _tokens(wanted.above_tokens)
    if wanted.keep is not None:
        edit["keep"] = {"type": "tool_uses", "value": wanted.keep}
    if wanted.at_least_tokens is not None:
        edit["clear_at_least"] = _tokens(wanted.at_least_tokens)
    if wanted.clear_inputs:
        edit["clear_tool_inputs"] = True
    if wanted.keep_tools:
        edit["exclude_tools"] = list(wanted.keep_tools)
    return edit


def _tokens(count: int) -> dict[str, Any]:
    return {"type": "input_tokens", "value": count}


# ------------------------------------------------------------------------- the compaction on request


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
