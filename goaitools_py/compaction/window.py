"""A compactor in the words of a context window: how much there may be, and what goes first.

Owns: `ContextWindow`, which puts a trigger and a strategy together. Must never know: how a turn is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, get_args

from ..context_management import ContextEdit
from ..values import Value
from .base import (
    Archive,
    CompactionRequest,
    Compactor,
    Kept,
    NoChange,
    Planned,
    Strategy,
    Trigger,
    Turns,
    check_strategy,
    edits_of,
)
from .strategies import (
    GAP,
    KeepRecentTurns,
    Target,
    check_count,
    fitting,
    gap_between,
    message_size,
    token_size,
)
from .summary import Summarize
from .triggers import MessageLimit, TokenLimit, any_of
from .turns import TurnView

__all__ = ["ContextWindow"]

LOW_MARK: Final = 0.4
"""A cut goes down to this part of the window, so that the next one is far away."""

WindowStrategy: TypeAlias = Literal["oldest_first", "middle_out", "recent_turns_only", "summary"]
_NAMES: Final = get_args(WindowStrategy)


class ContextWindow(Value, frozen=True, kw_only=True):
    """Keep the history within a window: above `max_tokens` or `max_messages`, cut it to 40 % of that.

    Args:
        max_tokens: Estimated tokens of the history.
        max_messages: Neutral messages: one per role message, one per tool result. One of both is given.
        preserve_system: System messages in the history outlive their turns. (The preamble, `system=`, is not
            in the history, and is never touched.)
        min_recent_turns: So many of the last turns always stay.
        strategy: What goes: "oldest_first"; "middle_out", which keeps the first turn; "recent_turns_only",
            which keeps `min_recent_turns` and nothing else; "summary", which has the model summarise all but
            those; or a strategy of its own, such as ``DropOldest(target_tokens=…)`` or any function.
        archive: As in `Compactor`.
    """

    max_tokens: int | None = None
    max_messages: int | None = None
    preserve_system: bool = True
    min_recent_turns: int = 3
    strategy: WindowStrategy | Strategy = "oldest_first"
    archive: Archive | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is None and self.max_messages is None:
            raise ValueError("ContextWindow takes max_tokens, max_messages or both")
        for name in ("max_tokens", "max_messages", "min_recent_turns"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, 1)
        if callable(self.strategy):
            check_strategy(self.strategy)
        elif self.strategy not in _NAMES:
            raise ValueError(
                f"strategy is one of {', '.join(_NAMES)}, or a strategy of your own, not {self.strategy!r}"
            )

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None:
        """What stays, or None while the history is within the window."""
        limits: list[Trigger] = [
            *([TokenLimit(self.max_tokens)] if self.max_tokens is not None else []),
            *([MessageLimit(self.max_messages)] if self.max_messages is not None else []),
        ]
        planned = Compactor(any_of(*limits), self._strategy(), self.archive).plan(request, force=force)
        if planned is None or callable(self.strategy):
            return planned
        return Planned(by=f"ContextWindow:{self.strategy}", turns=planned.turns, archive=planned.archive)

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        """What a strategy of its own has the provider do by itself, with each request."""
        return edits_of(self.strategy)

    def _strategy(self) -> Strategy:
        if callable(self.strategy):
            return self.strategy
        if self.strategy == "summary":
            return Summarize(keep_turns=self.min_recent_turns)
        return self._dropped

    def _dropped(self, request: CompactionRequest) -> Turns:
        turns = request.turns
        if self.strategy == "recent_turns_only":
            kept = KeepRecentTurns(self.min_recent_turns)(request)
        elif self.strategy == "middle_out":
            kept = self._middle_out(request)
        else:
            kept = fitting(turns, self._targets(), self.min_recent_turns)
        assert not isinstance(kept, (Kept, NoChange))
        reason = self._unreached(kept)
        if self.preserve_system:
            kept = _with_systems(turns, kept)
        return Kept(kept, reason) if reason else kept

    def _middle_out(self, request: CompactionRequest) -> Sequence[TurnView]:
        turns = request.turns
        head = next((at + 1 for at, turn in enumerate(turns) if not turn.note), len(turns))
        tail = fitting(turns[head:], self._targets(), self.min_recent_turns, beside=turns[:head])
        start = next((turn.position for turn in tail if turn.note != "summary"), len(turns))
        kept = gap_between(request, head, max(head, start), GAP)
        assert not isinstance(kept, (Kept, NoChange))
        return kept

    def _targets(self) -> list[Target]:
        given = ((token_size, self.max_tokens), (message_size, self.max_messages))
        return [(size, int(most * LOW_MARK)) for size, most in given if most is not None]

    def _unreached(self, kept: Iterable[TurnView]) -> str:
        turns = tuple(kept)
        for (size, target), unit in zip(self._targets(), self._units(), strict=True):
            if (total := sum(map(size, turns))) > target and self.strategy != "recent_turns_only":
                return f"what always stays takes {total} {unit}, and a cut should leave {target}"
        return ""

    def _units(self) -> list[str]:
        given = (("tokens", self.max_tokens), ("messages", self.max_messages))
        return [unit for unit, most in given if most is not None]


def _with_systems(turns: Sequence[TurnView], kept: Sequence[TurnView]) -> Sequence[TurnView]:
    """What stays, and of every turn that goes its system messages, in order."""
    stays = {turn.position for turn in kept}
    gone = [turn for turn in turns if turn.position not in stays and "s" in "".join(turn.roles)]
    found: list[TurnView] = []
    for turn in kept:
        while turn.position >= 0 and gone and gone[0].position < turn.position:
            found.append(_systems(gone.pop(0)))
        found.append(turn)
    return tuple(found)


def _systems(turn: TurnView) -> TurnView:
    pieces = turn.pieces
    systems = [piece for piece in pieces if piece.role == "system"]
    return turn if len(systems) == len(pieces) else turn.with_pieces(systems)
