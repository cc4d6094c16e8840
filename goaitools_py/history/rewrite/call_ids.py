"""Unique ids of calls where turns are put behind turns that they have not grown from.

Owns: the new ids, in the entries and in the facts of a turn. Must never know: why the turns are put together,
or how an entry holds an id (that is the dialect's).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from ...backends.base import Dialect
from ...backends.protocols import EntryView, ViewsHistory
from ...base.values import replace
from ...state.closed_turns import ClosedTurn

__all__ = ["with_unique_calls"]


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
