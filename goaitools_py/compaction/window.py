"""A compactor in the words of a context window: how large the history may be, and which turns go first.

Owns: `ContextWindow`, which makes a `Compactor` of a limit and a policy.
Must never know: how a turn is stored.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from ..types.request_parts import ContextEdit
from .base import (
    BeforeCut,
    CompactionRequest,
    Kept,
    NoChange,
    OwnStrategy,
    Strategy,
    Trigger,
    Turns,
    check_strategy,
    edits_of,
    name_of,
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
    recent_from,
    token_size,
)
from .summary import Summarize
from .triggers import MessageLimit, TokenLimit, any_of
from .turn_views import TurnView, placed, with_pinned

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
        preserve_system: Keep the system messages of turns that are dropped, with every strategy. False: they
            go with their turns. Messages with ``pinned=True`` stay all the same. (The preamble, `system=`, is
            not part of the history and is never dropped.)
        min_recent_turns: This number of newest turns always stays, with every strategy.
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
        check_strategy(strategy)
        own = _WindowOf(strategy=strategy, preserve_system=preserve_system, min_recent_turns=min_recent_turns)
        return Compactor(any_of(*limits), own, before_cut, retain, retain_bytes, recall)
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
            kept = self._fitting(turns)
        assert not isinstance(kept, (Kept, NoChange))
        reason = self._unreached(with_pinned(turns, kept, keeps_systems=self.preserve_system))
        return Kept(kept, reason) if reason else kept

    def _fitting(self, turns: Sequence[TurnView], beside: Sequence[TurnView] = ()) -> Sequence[TurnView]:
        least, keeps = self.min_recent_turns, self.preserve_system
        return fitting(turns, self._targets(), least, beside, keeps_systems=keeps)

    def _middle_out(self, request: CompactionRequest) -> Sequence[TurnView]:
        turns = request.turns
        head = next((at + 1 for at, turn in enumerate(turns) if turn.is_turn), len(turns))
        tail = self._fitting(turns[head:], turns[:head])
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


class _WindowOf(OwnStrategy, frozen=True, kw_only=True):
    """A strategy of its own in a window: the newest turns that it drops stay."""

    strategy: Strategy
    preserve_system: bool
    min_recent_turns: int

    @property
    def report_name(self) -> str:
        return name_of(self.strategy)

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        return edits_of(self.strategy)

    def __call__(self, request: CompactionRequest) -> Turns | Generator[Any, Any, Turns]:
        answer = self.strategy(request)
        return self._later(request, answer) if isinstance(answer, Generator) else self._of(request, answer)

    def _later(
        self, request: CompactionRequest, asks: Generator[Any, Any, Turns]
    ) -> Generator[Any, Any, Turns]:
        return self._of(request, (yield from asks))

    def _of(self, request: CompactionRequest, answer: Turns) -> Turns:
        if isinstance(answer, NoChange):
            return answer
        if isinstance(answer, Kept):
            return Kept(self._with_recent(request, answer.turns), answer.reason)
        return self._with_recent(request, answer)

    def _with_recent(self, request: CompactionRequest, kept: Sequence[TurnView]) -> Sequence[TurnView]:
        kept = tuple(kept)
        if not all(isinstance(turn, TurnView) for turn in kept):
            return kept  # `checked_turns` reports the mistake
        stays = {turn.position for turn in kept}
        recent = request.turns[recent_from(request.turns, self.min_recent_turns) :]
        return placed(kept, [turn for turn in recent if turn.position not in stays])
