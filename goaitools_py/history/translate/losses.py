"""The losses of a conversion: values without content, counted by turn and kind.

Owns: `Loss`, and the books in which a conversion counts. Must never know: an entry, or a provider API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...backends.wire.reply_pieces import LossKind
from ...base.values import Value

__all__ = ["Books", "Loss", "LossKind", "summary"]


class Loss(Value, frozen=True):
    """Something that did not go along to the other provider API.

    Attributes:
        turn: The number of the turn, as in `HistoryTurn.number`. 0: it belongs to no turn, or to a note of a
            compaction.
        kind: The kind of the lost value; the page on conversion explains each word.
        count: How many there were in this turn.
    """

    turn: int
    kind: LossKind
    count: int


class Books:
    """Counts losses. `turn` is the number of the turn that is being converted."""

    def __init__(self) -> None:
        self.turn = 0
        self._counts: Counter[tuple[int, LossKind]] = Counter()

    def lose(self, kind: LossKind, count: int = 1) -> None:
        """Count something of the present turn."""
        if count:
            self._counts[self.turn, kind] += count

    def losses(self) -> tuple[Loss, ...]:
        """Everything that was counted, by turn and kind."""
        return tuple(Loss(turn, kind, count) for (turn, kind), count in sorted(self._counts.items()))


def summary(losses: Iterable[Loss]) -> dict[str, int]:
    """The losses of a whole conversation: how many of each kind, sorted by kind."""
    found: Counter[str] = Counter()
    for loss in losses:
        found[loss.kind] += loss.count
    return dict(sorted(found.items()))
