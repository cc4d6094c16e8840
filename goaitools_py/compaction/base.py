"""What a compaction sees and what it answers.

Owns: `CompactionRequest`, `TurnView`, `Compactor` and how a compactor is run safely.
Must never know: how a state is encoded or how a provider speaks.

A *trigger* is any callable from request to bool; a *strategy* any callable from request to the turns
that stay (some of ``request.turns``, in order). Both read a frozen request whose parts are computed
only when they are asked for, so that a trigger which says no costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from ..messages import Message, Usage
from ..values import Value

__all__ = [
    "NO_COMPACTION",
    "CompactionRequest",
    "Compactor",
    "Strategy",
    "Trigger",
    "TurnView",
    "apply_compactor",
    "first_of",
    "name_of",
]


class TurnView(Value, frozen=True, kw_only=True):
    """One closed turn of the history: the user's input, the model's replies, the tools' results.

    `tokens` is an estimate; `entry_bytes` is exact. `position` counts from 0, oldest first.
    """

    unshown = frozenset({"entries", "read"})

    position: int
    message_count: int
    entry_bytes: int
    tokens: int
    entries: tuple[bytes, ...]
    read: Callable[[Sequence[bytes]], tuple[Message, ...]]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn's messages in neutral words; parsed when asked for."""
        return self.read(self.entries)


class CompactionRequest(Value, frozen=True, kw_only=True, dict=True):
    """What a trigger or strategy may look at.

    Attributes:
        message_count: Neutral messages in the history: one per role message, one per tool result.
        turn_count: Closed turns in the history.
        token_count: The last request's real usage, plus an estimate of what changed since.
        history_bytes: Size of the stored entries, uncompressed.
        usage: What the last model call consumed.
        load_turns: Gives the turns; use `turns`.
    """

    unshown = frozenset({"load_turns"})

    message_count: int
    turn_count: int
    token_count: int
    history_bytes: int
    usage: Usage
    load_turns: Callable[[], tuple[TurnView, ...]]

    @cached_property
    def turns(self) -> tuple[TurnView, ...]:
        """The closed turns, oldest first. Parsed from the state the first time it is asked for."""
        return self.load_turns()


Trigger: TypeAlias = Callable[[CompactionRequest], bool]
Strategy: TypeAlias = Callable[[CompactionRequest], Sequence[TurnView]]


class CompactorLike(Protocol):
    """Anything with `plan`: None when there is nothing to do, else the name of what ran and what stays.

    `force`: the provider has refused the history; the trigger is not asked.
    """

    def plan(
        self, request: CompactionRequest, *, force: bool = False
    ) -> tuple[str, Sequence[TurnView]] | None: ...


class Compactor(Value, frozen=True):
    """When `trigger` says so, keep what `strategy` keeps.

    ``Compactor(any_of(TokenLimit(8_000), MessageLimit(40)), KeepRecentTurns(6))``
    """

    trigger: Trigger
    strategy: Strategy

    def plan(
        self, request: CompactionRequest, *, force: bool = False
    ) -> tuple[str, Sequence[TurnView]] | None:
        """The turns that stay, or None if the trigger does not fire."""
        if not force and not self.trigger(request):
            return None
        return name_of(self.strategy), self.strategy(request)


class _FirstOf(Value, frozen=True):
    compactors: tuple[CompactorLike, ...]

    def plan(
        self, request: CompactionRequest, *, force: bool = False
    ) -> tuple[str, Sequence[TurnView]] | None:
        for compactor in self.compactors:
            planned = compactor.plan(request, force=force)
            if planned is not None:
                return planned
        return None


def first_of(*compactors: CompactorLike) -> CompactorLike:
    """The first of several compactors whose trigger fires."""
    return _FirstOf(compactors)


class _NoCompaction(Value, frozen=True):
    def plan(self, request: CompactionRequest, *, force: bool = False) -> None:
        return None

    def __repr__(self) -> str:
        return "NO_COMPACTION"


NO_COMPACTION: Final = _NoCompaction()
"""Never compact, not even when the provider or a size limit refuses the history."""


def name_of(strategy: Any) -> str:
    """A strategy's name for reports: its class, or the function's own name."""
    return getattr(strategy, "__name__", None) or type(strategy).__name__


class InvalidPlan(Exception):  # noqa: N818 - a finding, turned into a warning or CompactionError
    """A strategy's answer that cannot be used; the text says why."""


def apply_compactor(
    compactor: CompactorLike, request: CompactionRequest, *, force: bool = False
) -> tuple[str, tuple[TurnView, ...]] | None:
    """Run a compactor and check its answer. None: nothing to do.

    Raises:
        InvalidPlan: The answer is empty, out of order, or holds turns that were not offered.
    """
    planned = compactor.plan(request, force=force)
    if planned is None:
        return None
    name, kept = planned[0], tuple(planned[1])
    offered = request.turns
    if not kept and offered:
        raise InvalidPlan(f"{name} kept no turn at all; a history is never emptied")
    last = -1
    for turn in kept:
        if not isinstance(turn, TurnView) or not (
            last < turn.position < len(offered) and offered[turn.position] is turn
        ):
            raise InvalidPlan(f"{name} must return turns of request.turns in their order, each at most once")
        last = turn.position
    if len(kept) == len(offered):
        return None
    return name, kept
