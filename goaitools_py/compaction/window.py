"""A compactor in the words of a context window: how large the history may be, and which turns go first.

Owns: `ContextWindow`, which makes a `Compactor` of a limit and a policy.
Must never know: how a turn is stored.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from ..state.letters import SYSTEM
from .base import (
    BeforeCut,
    CompactionRequest,
    Kept,
    NoChange,
    OwnStrategy,
    Strategy,
    Trigger,
    Turns,
)
from .compactor import RETAIN_BYTES, Compactor
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
from .turn_views import TurnView

__all__ = ["ContextWindow"]

LOW_MARK: Final = 0.4
"""A cut leaves this part of the window. The next cut is then many turns away."""

WindowStrategy: TypeAlias = Literal["oldest_first", "middle_out", "recent_turns_only", "summary"]
_NAMES: Final = get_args(WindowStrategy)


def ContextWindow(  # noqa: N802 - it reads like the compactors and strategies that it stands beside
    *,
    max_tokens: int | None = None,
    max_messages: int | None = None,
    preserve_system: bool = True,
    min_recent_turns: int = 3,
    strategy: WindowStrategy | Strategy = "oldest_first",
    before_cut: BeforeCut | None = None,
    retain: bool = False,
    retain_bytes: int = RETAIN_BYTES,
    recall: bool = False,
) -> Compactor:
    """Make a `Compactor` that acts above `max_tokens` or `max_messages`, and cuts to 40 % of that limit.

    Args:
        max_tokens: Estimated tokens of the history.
        max_messages: Neutral messages: one per role message, one per tool result. Give at least one of the
            two limits.
        preserve_system: Keep the system messages of turns that are dropped. (The preamble, `system=`, is not
            part of the history and is never dropped.)
        min_recent_turns: This number of newest turns always stays.
        strategy: The turns to drop. "oldest_first": the oldest turns. "middle_out": the turns after the first
            one. "recent_turns_only": everything but the last `min_recent_turns` turns. "summary": the same
            turns, and a summary that the model writes takes their place. Or a strategy, such as
            ``DropOldest(target_tokens=…)``, or a function of your own.
        before_cut: As in `Compactor`.
        retain: As in `Compactor`: keep removed and changed turns in the state's archive.
        retain_bytes: How many bytes of the blob the archive may take, as stored.
        recall: As in `Compactor`: the model gets a tool that searches the archive.

    Raises:
        ValueError: No limit was given, a number is too small, or the name of the strategy is unknown.
        TypeError: `strategy` is a trigger.
    """
    if max_tokens is None and max_messages is None:
        raise ValueError("ContextWindow takes max_tokens, max_messages or both")
    counts = {"max_tokens": max_tokens, "max_messages": max_messages, "min_recent_turns": min_recent_turns}
    for name, value in counts.items():
        if value is not None:
            check_count(name, value, 1)
    limits: list[Trigger] = [
        *([TokenLimit(max_tokens)] if max_tokens is not None else []),
        *([MessageLimit(max_messages)] if max_messages is not None else []),
    ]
    if callable(strategy):
        return Compactor(any_of(*limits), strategy, before_cut, retain, retain_bytes, recall)
    if strategy not in _NAMES:
        raise ValueError(
            f"strategy is one of {', '.join(_NAMES)}, or a strategy of your own, not {strategy!r}"
        )
    cut = _WindowCut(
        policy=strategy,
        max_tokens=max_tokens,
        max_messages=max_messages,
        preserve_system=preserve_system,
        min_recent_turns=min_recent_turns,
    )
    return Compactor(any_of(*limits), cut, before_cut, retain, retain_bytes, recall)


class _WindowCut(OwnStrategy, frozen=True, kw_only=True):
    """The strategy behind the names that `ContextWindow` takes."""

    policy: WindowStrategy
    max_tokens: int | None
    max_messages: int | None
    preserve_system: bool
    min_recent_turns: int

    @property
    def report_name(self) -> str:
        return f"ContextWindow:{self.policy}"

    def __call__(self, request: CompactionRequest) -> Turns | Generator[Any, Any, Turns]:
        turns = request.turns
        if self.policy == "summary":
            return Summarize(keep_turns=self.min_recent_turns)(request)
        if self.policy == "recent_turns_only":
            kept = KeepRecentTurns(self.min_recent_turns)(request)
        elif self.policy == "middle_out":
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
            if (total := sum(map(size, turns))) > target and self.policy != "recent_turns_only":
                return f"what always stays takes {total} {unit}, and a cut should leave {target}"
        return ""

    def _units(self) -> list[str]:
        given = (("tokens", self.max_tokens), ("messages", self.max_messages))
        return [unit for unit, most in given if most is not None]


def _with_systems(turns: Sequence[TurnView], kept: Sequence[TurnView]) -> Sequence[TurnView]:
    """The kept turns, and the system messages of every dropped turn, in the order of the history."""
    stays = {turn.position for turn in kept}
    gone = [turn for turn in turns if turn.position not in stays and SYSTEM in "".join(turn.roles)]
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
