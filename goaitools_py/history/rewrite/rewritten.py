"""A state after a rewrite of its closed turns: its meta data, its list of cuts, the record in the archive,
and the signed blocks that go.

Owns: the common steps of every rewrite of entries, the rewrite that takes out signed thinking and reasoning,
the mark of the blocks that stay, and other ids for calls whose ids stand in earlier turns. Must never know:
why entries or a prefix changed, or which blocks a provider signs (that is the dialect's).

Some providers sign a block together with its prefix: everything before it. Behind another prefix they refuse
or drop this block and all signed blocks after it. So signed blocks are taken out of the whole closed history
at once, never out of its middle only. An open turn keeps its signed blocks: its next request asks the
provider to drop the blocks that do not fit. They are taken out only if the provider refuses that, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from ...backends.base import Dialect
from ...backends.protocols import EntryView, ViewsHistory
from ...base.values import replace
from ...open_turn.turn_ids import with_texts
from ...state.closed_turns import ClosedTurn, has_gap, with_numbers
from ...state.records import with_cut
from ...state.state import ConversationState, closed_turns, rebuild
from ..archive_keeping import Retention, marked, with_record

__all__ = [
    "REPAIRED",
    "UNSIGNED",
    "is_signed",
    "rewritten",
    "unsign",
    "unsign_open",
    "unsigned_turns",
    "with_unique_calls",
]

UNSIGNED: Final = "unsigned"
"""The name in the list of cuts, in the place of a strategy."""


def is_signed(entries: Sequence[bytes], dialect: Dialect) -> bool:
    """True if these entries have signed blocks."""
    return any(new is not old for new, old in zip(dialect.unsigned(entries), entries, strict=True))


def unsigned_turns(turns: Sequence[ClosedTurn], dialect: Dialect) -> list[ClosedTurn]:
    """The turns without their signed blocks. An entry without any content left is taken out."""
    return [turn.with_entries(dialect.unsigned(turn.entries)) for turn in turns]


def unsign_open(state: ConversationState, dialect: Dialect) -> ConversationState:
    """The state without the signed blocks of its open turn. The same object if the turn has no signed
    blocks."""
    turn = state.open
    if turn is None or not is_signed(turn.entries, dialect):
        return state
    # The entries behind the last reply are not from a model, and closing would give them an iteration.
    end = len(turn.entries) - len(turn.letters)
    answered = replace(turn, entries=turn.entries[:end], letters="").closed()
    left = answered.with_entries(dialect.unsigned(answered.entries))
    unsigned = replace(
        turn,
        entries=(*left.entries, *turn.entries[end:]),
        iterations=left.record.iterations,
        messages=left.record.messages,
    )
    meta = msgspec.structs.replace(state.meta, signed=False, unbound=False)
    return replace(state, open=unsigned, meta=meta)


def unsign(
    state: ConversationState, dialect: Dialect, *, at: int, retention: Retention | None = None
) -> ConversationState:
    """The state without the signed blocks of its closed turns, and with a row in its list of cuts.

    `at`: now, in milliseconds after the conversation began.
    `retention`: the limits for the record of the change in the archive; None: keep no record.
    """
    old = with_numbers(closed_turns(state))
    turns = unsigned_turns(old, dialect)
    if retention is not None:
        turns = marked(old, turns)
    still = state.open is not None and is_signed(state.open.entries, dialect)
    meta = msgspec.structs.replace(
        state.meta,
        messages=sum(turn.record.messages for turn in turns),
        signed=still,
        unbound=still,
        cuts=with_cut(state.meta, at, UNSIGNED, 0, 0),
    )
    unsigned = replace(rebuild(state, turns), meta=meta)
    if retention is None:
        return unsigned
    return with_record(unsigned, state, old, turns, retention, at=at)


# ----------------------------------------------------------------------------------------- every rewrite


REPAIRED: Final = "repaired"
"""The name in the list of cuts for a repair, in the place of a strategy."""


def rewritten(
    state: ConversationState,
    turns: Sequence[ClosedTurn],
    kept: Sequence[ClosedTurn],
    gone: Sequence[ClosedTurn],
    dialect: Dialect,
    *,
    is_unsigned: bool,
    retention: Retention | None,
) -> ConversationState:
    """The state with other closed turns, and with a row in its list of cuts.

    Args:
        state: The conversation.
        turns: Its closed turns, each with its number; see `with_numbers`.
        kept: The turns that take their place.
        gone: The turns that were dropped as a whole.
        dialect: Reads the entries.
        is_unsigned: True: `kept` have no signed blocks, because their prefix has changed.
        retention: The limits for the record of the change in the archive; None: keep no record.
    """
    if retention is not None:
        kept = marked(turns, kept)
    messages = sum(turn.record.messages for turn in kept)
    meta = msgspec.structs.replace(
        with_texts(state.meta, [turn for turn in gone if _is_readable(turn.entries, dialect)], dialect),
        messages=messages,
        turns=len(kept),
        context="",  # its message may be gone, so the context is sent again
        # A repair has no clock, so the row has the time of the last write.
        cuts=with_cut(
            state.meta,
            state.meta.updated,
            REPAIRED,
            len(turns) - len(kept),
            max(0, state.meta.messages - messages),
            removed=gone,
        ),
        gap=has_gap(kept, state.meta.processed),
    )
    if is_unsigned:
        still = state.open is not None and is_signed(state.open.entries, dialect)
        meta = msgspec.structs.replace(meta, signed=still, unbound=still)
    made = replace(rebuild(state, kept), meta=meta)
    if retention is not None:
        made = with_record(made, state, turns, kept, retention, at=state.meta.updated)
    return made


def _is_readable(entries: Sequence[bytes], dialect: Dialect) -> bool:
    with suppress(ValueError):
        dialect.view(entries)
        return True
    return False


def with_unique_calls(
    turns: Sequence[ClosedTurn], before: Sequence[ClosedTurn], dialect: Dialect
) -> list[ClosedTurn]:
    """The turns, to be put behind `before`: a call with the id of an earlier call gets another id, and so
    does its result.

    A turn gives new ids only to calls of its own history. Servers that count their calls give the same ids in
    two turns that do not know each other. `before` stays as it is. Nothing changes for a dialect without
    `ViewsHistory`. The signed blocks of the turns must be gone, because their prefix changes.
    """
    if not isinstance(dialect, ViewsHistory):
        return list(turns)
    entries = [entry for turn in (*before, *turns) for entry in turn.entries]
    own = sum(len(turn.entries) for turn in turns)
    views = dialect.unique_calls(entries)[len(entries) - own :]
    ends = accumulate((len(turn.entries) for turn in turns), initial=0)
    return [
        _renamed(turn, views[start:end]) for turn, (start, end) in zip(turns, pairwise(ends), strict=True)
    ]


def _renamed(turn: ClosedTurn, views: Sequence[EntryView]) -> ClosedTurn:
    ids = {old: new for view in views for old, new in view.ids.items()}
    if not ids:
        return turn
    record = turn.record
    if flags := record.facts.get("flags"):
        named = {ids.get(id, id): flag for id, flag in flags.items()}
        record = replace(record, facts={**record.facts, "flags": named})
    return replace(turn, entries=tuple(view.entry for view in views), record=record)
