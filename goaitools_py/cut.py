"""Cutting a state's history: what a compactor sees of it, and the state that follows.

Owns: the way from `ConversationState` to `CompactionRequest` and back. Must never know: when to cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from .backends.base import Dialect
from .compaction.base import CompactionRequest, TurnView
from .compaction.strategies import drop_to
from .reading import read_entries
from .records import usage_of, with_cut
from .result import CompactionReport
from .state import ConversationState, closed_turns, rebuild
from .turn_ids import with_texts
from .unsign import Turn, is_signed, unsigned_turns
from .values import replace

__all__ = ["compaction_request", "cut_to", "emergency_turns"]


def _views(state: ConversationState, dialect: Dialect) -> tuple[TurnView, ...]:
    turns = closed_turns(state)
    total = sum(len(entry) for entries, _ in turns for entry in entries) or 1
    per_byte = state.meta.tokens / total if state.meta.tokens else 0.25
    views: list[TurnView] = []
    for position, (entries, record) in enumerate(turns):
        size = sum(len(entry) for entry in entries)
        views.append(
            TurnView(
                position=position,
                message_count=record.messages,
                entry_bytes=size,
                tokens=round(size * per_byte),
                entries=entries,
                read=partial(read_entries, dialect),
            )
        )
    return tuple(views)


def compaction_request(state: ConversationState, dialect: Dialect) -> CompactionRequest:
    """What a compactor may look at. Nothing is parsed before it asks for the turns."""
    waiting = sum(len(item.entry) for item in state.inbox)
    size = state.history_bytes()
    return CompactionRequest(
        message_count=state.meta.messages,
        turn_count=state.meta.turns,
        token_count=(state.meta.tokens or size // 4) + waiting // 4,
        history_bytes=size,
        usage=usage_of(state.meta.usage),
        load_turns=partial(_views, state, dialect),
    )


def cut_to(
    state: ConversationState,
    request: CompactionRequest,
    kept: Sequence[TurnView],
    dialect: Dialect,
    *,
    by: str,
    at: int,
) -> tuple[ConversationState, CompactionReport]:
    """The state with only the `kept` turns, and what that changed.

    What was signed over the turns that go is taken out of those that stay. An open turn is not touched;
    if it holds signed blocks, they do not fit any more, and its state says so (`Meta.unbound`).

    `at`: milliseconds after the conversation began; it goes into the state's journal of cuts.
    """
    turns = closed_turns(state)
    before = request.turns
    rest: list[Turn] = [turns[view.position] for view in kept]
    still = False
    if state.meta.signed:
        rest = unsigned_turns(rest, dialect)
        still = state.open is not None and is_signed(state.open.entries, dialect)
    rebuilt = rebuild(state, rest)
    stays = {view.position for view in kept}
    removed = [turn for position, turn in enumerate(turns) if position not in stays]
    messages = sum(record.messages for _, record in rest)
    tokens = sum(view.tokens for view in kept)
    size = sum(len(entry) for entries, _ in rest for entry in entries)
    report = CompactionReport(
        outcome="compacted",
        by=by,
        removed_turns=len(before) - len(kept),
        removed_messages=state.meta.messages - messages,
        messages_before=state.meta.messages,
        messages_after=messages,
        bytes_before=sum(view.entry_bytes for view in before),
        bytes_after=size,
        tokens_before=sum(view.tokens for view in before),
        tokens_after=tokens,
    )
    meta = msgspec.structs.replace(
        with_texts(state.meta, removed, dialect),
        messages=messages,
        turns=len(kept),
        tokens=tokens,
        context="",  # the turn that carried it may be gone: say it again
        signed=still,
        unbound=still,
        cuts=with_cut(state.meta, at, by, report.removed_turns, report.removed_messages),
    )
    return replace(rebuilt, meta=meta), report


def emergency_turns(request: CompactionRequest) -> Sequence[TurnView]:
    """The newest turns that make up at most half of the history's bytes, never fewer than one."""
    turns = request.turns
    return drop_to(turns, sum(turn.entry_bytes for turn in turns) // 2, lambda turn: turn.entry_bytes)
