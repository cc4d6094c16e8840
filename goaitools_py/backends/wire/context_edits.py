"""Writes context edits for the two provider APIs that have them.

Owns: the member ``context_management``, and the betas that it needs. Must never know: a history, a reply.

Sources: anthropic 2.12, types/beta (``clear_thinking_20251015``, ``clear_tool_uses_20250919``,
``compact_20260112``), openai 3.54, types/responses/response_create_params.py; recorded requests of both.
Clearing of thinking comes first: platform.claude.com, context editing; docs.rs/adk-anthropic. It
needs thinking: the 400 in anthropics/claude-code#11971.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ...base.values import replace
from ...types.request_parts import ContextEdit, ServerCompaction, ServerThinkingClearing, ServerToolClearing

__all__ = [
    "IN_REPLY_BETA",
    "anthropic_edits",
    "check_host",
    "responses_edits",
    "usable_at_anthropic",
    "usable_on_responses",
]

IN_REPLY_BETA: Final = "compact-2026-01-12"
"""The beta of every request whose history holds a compaction that was made inside a reply."""

_CLEARING_BETA: Final = "context-management-2025-06-27"


def check_host(family: str, known: Collection[str]) -> None:
    """Raise `ValueError` for a host that is not known to edit contexts; most would ignore the request."""
    if family not in known:
        raise ValueError(
            f"the server {family!r} is not known to have context_management; leave the setting out and use a "
            "compactor, or, if the server has it, send its own member by extra_body"
        )


def anthropic_edits(wanted: Sequence[ContextEdit]) -> tuple[dict[str, Any], list[str]]:
    """Anthropic's member, with the clearing of thinking first, and the names of its betas."""
    betas = {IN_REPLY_BETA if isinstance(one, ServerCompaction) else _CLEARING_BETA for one in wanted}
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


def responses_edits(wanted: Sequence[ContextEdit]) -> list[dict[str, Any]]:
    """OpenAI's member on the Responses API. Raises `ValueError` for an edit that it does not have."""
    return [{"type": "compaction", "compact_threshold": _threshold(one)} for one in wanted]


def usable_on_responses(wanted: Sequence[ContextEdit]) -> tuple[ContextEdit, ...]:
    """The edits that this provider API has: compactions, without instructions."""
    return tuple(replace(one, instructions="") for one in wanted if isinstance(one, ServerCompaction))


def _threshold(wanted: ContextEdit) -> int:
    if isinstance(wanted, ServerThinkingClearing):
        raise ValueError("the provider API 'openai-responses' clears no reasoning by itself; leave it out")
    if isinstance(wanted, ServerToolClearing):
        raise ValueError(
            "the provider API 'openai-responses' clears no tool results by itself; use "
            "Compactor(trigger, ClearToolResults(…))"
        )
    if wanted.instructions:
        raise ValueError(
            "the provider API 'openai-responses' takes no instructions for a compaction; leave them out"
        )
    return wanted.above_tokens
