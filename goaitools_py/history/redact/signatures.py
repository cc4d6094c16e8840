"""Take out the signed blocks behind a change.

Owns: which turns are behind the first change, and these turns without their signed blocks. Must never know:
the cause of a change.

A provider signs a block together with its prefix. So a change in an entry makes all signed blocks behind it
invalid, and they leave. Blocks before it stay valid, and stay. Turns of the history and of the archive are
compared by their numbers: an undone cut puts them back in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ...backends.base import Dialect
from ...base.values import Value, replace
from ...state.closed_turns import ClosedTurn, Iteration
from ...state.records import OpenTurn

__all__ = ["Changed", "first_change", "open_unsigned", "unsigned_behind"]


class Changed(Value, frozen=True):
    """A turn with its number, before and after a change of its entries. A note has the number 0."""

    number: int
    old: Sequence[bytes]
    new: Sequence[bytes]
    iterations: Sequence[Iteration]

    @property
    def iteration(self) -> int | None:
        """The first iteration with another entry; None without one."""
        ends = list(accumulate(len(one.roles) for one in self.iterations))
        for place, (old, new) in enumerate(zip(self.old, self.new, strict=True)):
            if old is not new:
                return next((at for at, end in enumerate(ends) if place < end), len(ends))
        return None


def first_change(histories: Sequence[Sequence[Changed]]) -> tuple[int, int] | None:
    """The number of the first changed turn, and its first changed iteration; None without a change.

    `histories`: turns in order, of the history and of each record of the archive. A changed note counts as a
    change at the beginning of the turn behind it.
    """
    found: list[tuple[int, int]] = []
    for turns in histories:
        for place, turn in enumerate(turns):
            if (iteration := turn.iteration) is None:
                continue
            if turn.number:
                found.append((turn.number, iteration))
            else:
                found.append((next((one.number for one in turns[place:] if one.number), 0), 0))
    return min(found, default=None)


def unsigned_behind(
    turn: ClosedTurn, number: int, first: tuple[int, int] | None, dialect: Dialect | None
) -> tuple[ClosedTurn, int]:
    """The turn without its signed blocks behind the first change, and how many entries had signed blocks. The
    same object if there are no blocks to take out."""
    at = _begin(number, turn.record.iterations, first)
    if at is None or dialect is None:
        return turn, 0
    behind = turn.entries[at:]
    left = dialect.unsigned(behind)
    lost = sum(new is not old for new, old in zip(left, behind, strict=True))
    return turn.with_entries([*turn.entries[:at], *left]), lost


def open_unsigned(
    turn: OpenTurn, number: int, first: tuple[int, int] | None, dialect: Dialect
) -> tuple[OpenTurn, int]:
    """As `unsigned_behind`, for the unfinished turn."""
    closed = turn.closed()
    left, lost = unsigned_behind(closed, number, first, dialect)
    if left is closed:
        return turn, 0
    count = len(turn.iterations)
    known, rest = left.record.iterations[:count], left.record.iterations[count:]
    changed = replace(
        turn,
        entries=left.entries,
        iterations=known,
        letters="".join(one.roles for one in rest),
        messages=left.record.messages,
    )
    return changed, lost


def _begin(number: int, iterations: Sequence[Iteration], first: tuple[int, int] | None) -> int | None:
    """The place of the first entry of a turn behind the first change; None if all are before it."""
    if first is None or number < first[0]:
        return None
    if number > first[0]:
        return 0
    return sum(len(one.roles) for one in iterations[: first[1]])
