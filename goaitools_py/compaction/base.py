"""What a compaction sees and what it answers.

Owns: `CompactionRequest`, `Compactor`, what a strategy may ask, and how its answer is checked.
Must never know: how a state is encoded or how a provider speaks.

A *trigger* is any callable from request to bool. A *strategy* is any callable from request to the turns
that stay, in order: some of ``request.turns``, rewritten ones (`TurnView.with_pieces`), and notes
(``request.note``). One that needs a model is a generator: it yields an `AskModel`, receives a
`ModelAnswer`, and returns the turns. Both read a frozen request whose parts are computed only when they
are asked for, so that a trigger which says no costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from ..context_management import ContextEdit
from ..messages import Usage
from ..values import Value, field, replace
from .turns import TurnView

__all__ = [
    "NO_COMPACTION",
    "Archive",
    "AskFailed",
    "AskModel",
    "AskProvider",
    "CompactionRequest",
    "Compactor",
    "CompactorLike",
    "InvalidPlan",
    "Kept",
    "ModelAnswer",
    "NoChange",
    "OwnStrategy",
    "OwnTrigger",
    "Planned",
    "Strategy",
    "Trigger",
    "TriggerFailed",
    "Turns",
    "check_strategy",
    "check_trigger",
    "checked_turns",
    "edits_of",
    "first_of",
    "name_of",
]


class CompactionRequest(Value, frozen=True, kw_only=True, dict=True):
    """What a trigger or strategy may look at. Counts are of all that the next request would send.

    Attributes:
        message_count: Neutral messages: one per role message, one per tool result.
        turn_count: Closed turns in the history.
        pending_count: Messages that were appended and no model has seen.
        token_count: The last request's real usage, plus an estimate of what changed since.
        history_bytes: Size of the stored entries, uncompressed.
        most_blob_bytes: More than this `blob_bytes` cannot be; known without encoding anything.
        usage: What the last model call consumed.
        context_window: The model's, in tokens; None if it is not known.
        idle_seconds: How long the conversation had been silent when this turn began.
        is_cold: True if that is longer than `ChatOptions.cold_after`: the provider's cache is gone.
        load_turns: Gives the turns; use `turns`.
        load_blob_bytes: Gives the size of the state as a blob; use `blob_bytes`.
        write_note: Writes a turn that is a note; use `note`.
    """

    unshown = frozenset({"load_turns", "load_blob_bytes", "write_note"})

    message_count: int
    turn_count: int
    token_count: int
    history_bytes: int
    usage: Usage
    load_turns: Callable[[], tuple[TurnView, ...]]
    load_blob_bytes: Callable[[], int]
    write_note: Callable[[str, str], TurnView]
    pending_count: int = 0
    most_blob_bytes: int = 2**63
    context_window: int | None = None
    idle_seconds: float = 0.0
    is_cold: bool = False

    @cached_property
    def turns(self) -> tuple[TurnView, ...]:
        """The closed turns, oldest first. Parsed from the state the first time it is asked for."""
        return self.load_turns()

    @cached_property
    def blob_bytes(self) -> int:
        """The size of the state as a blob. It is encoded for that the first time it is asked for."""
        return self.load_blob_bytes()

    def note(self, text: str, *, kind: str = "summary") -> TurnView:
        """A turn that is a note of ours to the model, in a delimited block that no user can imitate."""
        return self.write_note(text, kind)


# ------------------------------------------------------------------------------ what a strategy may ask


class AskModel(Value, frozen=True, kw_only=True):
    """A strategy's question: what a model says to `instruction` after these turns.

    Attributes:
        turns: A leading part of ``request.turns``. They are sent as they stand, behind the preamble and the
            tools, so that the provider has them in its cache already; to another `backend` a transcript.
        instruction: What a user would say after them.
        backend: Another model for this: a backend, or a name such as "openai:MODEL". None: the turn's own.
        max_output_tokens: A limit of the answer's length.
    """

    unshown = frozenset({"turns", "instruction"})

    turns: Sequence[TurnView]
    instruction: str
    backend: Any = None
    max_output_tokens: int | None = None


class AskProvider(Value, frozen=True, kw_only=True):
    """A strategy's wish that the provider compacts these turns by its own means.

    The answer is a `TurnView` that stands for them; None if the wire has no such thing.
    """

    unshown = frozenset({"turns", "instructions"})

    turns: Sequence[TurnView]
    """A leading part of ``request.turns``."""
    instructions: str = ""
    """What to keep, for a provider that takes such words."""


class ModelAnswer(Value, frozen=True, kw_only=True):
    """What a model answered. `stop` is "end", "length", "refusal" or "pause"."""

    unshown = frozenset({"text"})

    text: str
    stop: str = "end"
    usage: Usage = field(default_factory=Usage)
    model: str = ""


class NoChange(Value, frozen=True):
    """What a strategy returns that finds nothing worth doing; `reason` says why, without content."""

    reason: str


class Kept(Value, frozen=True):
    """Turns that stay, and why these are more than was asked for; `reason` is part of the report."""

    turns: Sequence[TurnView]
    reason: str = ""


class AskFailed(Exception):  # noqa: N818 - thrown into a strategy, which may have another idea
    """No answer came, for the reason in its text; the strategy may return turns all the same.

    Attributes:
        sdk_error: The exception of the provider's SDK, if that is the reason. Its text may quote content.
    """

    def __init__(self, message: str = "", *, sdk_error: BaseException | None = None) -> None:
        super().__init__(message)
        self.sdk_error = sdk_error


Turns: TypeAlias = Sequence[TurnView] | Kept | NoChange
Trigger: TypeAlias = Callable[[CompactionRequest], bool]
Strategy: TypeAlias = Callable[[CompactionRequest], Turns | Generator[Any, Any, Turns]]
Archive: TypeAlias = Callable[[tuple[TurnView, ...]], object]


# ------------------------------------------------------------------------------------------ compactors


class Planned(Value, frozen=True, kw_only=True):
    """What a compactor wants done: the name of what runs, the turns that stay (or a generator that will
    return them, or another plan), and who is to have what goes.

    `failures`: what other compactors, asked before this one, failed with. `unchanged`: why others, which may
    have asked a model, found nothing to do. Neither has content.
    """

    unshown = frozenset({"turns"})

    by: str
    turns: Turns | Generator[Any, Any, Turns]
    archive: Archive | None = None
    failures: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


class CompactorLike(Protocol):
    """Anything with `plan`: None when there is nothing to do.

    `force`: the provider has refused the history; the trigger is not asked.

    It may also have a ``context_management``: what the provider is asked for with each request of the
    conversation. `Compactor`, `first_of` and `ContextWindow` have that of their strategies.
    """

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None: ...


class Compactor(Value, frozen=True):
    """When `trigger` says so, keep what `strategy` keeps.

    ``Compactor(any_of(TokenLimit(8_000), MessageLimit(40)), KeepRecentTurns(6))``

    `archive` is called with the turns that go, or are rewritten, as they were; on an `AsyncChat` it may be
    async. If it raises, nothing goes. It is called *before* they go, for from then on any state that somebody
    saves may lack them; so it may see turns that stay all the same, after a crash, or where the provider
    refuses what was cut too and the cut is undone. Those come again: keep each under its `TurnView.id`, and
    what comes twice is kept once. A turn that was rewritten, and goes later, has another id then.
    """

    trigger: Trigger
    strategy: Strategy
    archive: Archive | None = None

    def __post_init__(self) -> None:
        check_trigger(self.trigger)
        check_strategy(self.strategy)
        if self.archive is not None:
            _check_function("a function for archive=", self.archive)

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None:
        """What stays, or None if the trigger does not fire."""
        if not force and not self._fires(request):
            return None
        return Planned(by=name_of(self.strategy), turns=self.strategy(request), archive=self.archive)

    def _fires(self, request: CompactionRequest) -> bool:
        try:
            return self.trigger(request)
        except Exception as exc:
            raise TriggerFailed(name_of(self.trigger)) from exc

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        """What the strategy has the provider do by itself, with each request."""
        return edits_of(self.strategy)


def edits_of(part: object) -> Sequence[ContextEdit]:
    """What a strategy, or a compactor, has the provider do by itself; () for one that has no such wish."""
    found: Sequence[ContextEdit] = getattr(part, "context_management", ())
    return found


class OwnTrigger(Value, frozen=True):
    """A trigger of this package: what nobody meant as a strategy. Triggers of others need no base class."""


class OwnStrategy(Value, frozen=True):
    """A strategy of this package: what nobody meant as a trigger. Strategies of others need no base class."""


def check_trigger(value: Any) -> None:
    """TypeError for what cannot say when: a class that nobody called, or a strategy of this package."""
    if isinstance(value, OwnStrategy):
        raise TypeError(f"{name_of(value)} is a strategy, and stands in a trigger's place; {_ORDER}")
    _check_function("a trigger such as MessageLimit(40)", value)


def check_strategy(value: Any) -> None:
    """TypeError for what cannot say how: a class that nobody called, or a trigger of this package."""
    if isinstance(value, OwnTrigger):
        raise TypeError(f"{name_of(value)} is a trigger, and stands in a strategy's place; {_ORDER}")
    _check_function("a strategy such as KeepRecentTurns(6)", value)


_ORDER: Final = (
    "a Compactor takes the trigger, which says when, before the strategy, which says how: "
    "Compactor(MessageLimit(40), KeepRecentTurns(6))"
)


def _check_function(expected: str, value: Any) -> None:
    if isinstance(value, type):
        raise TypeError(f"expected {expected}, got the class {value.__name__}: call it with its limits")
    if not callable(value):
        raise TypeError(f"expected {expected}, got {type(value).__name__}")


class _FirstOf(Value, frozen=True):
    compactors: tuple[CompactorLike, ...]

    @property
    def archive(self) -> Archive | None:
        """Who is to have what goes in an emergency, which is nobody's plan."""
        return next((found for one in self.compactors if (found := getattr(one, "archive", None))), None)

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        """The wishes of all, in order; of each kind the first, for a request can hold one."""
        found: dict[type, ContextEdit] = {}
        for compactor in self.compactors:
            for edit in edits_of(compactor):
                found.setdefault(type(edit), edit)
        return tuple(found.values())

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None:
        idle: Planned | None = None
        failure: Exception | None = None
        failures: tuple[str, ...] = ()
        for at, compactor in enumerate(self.compactors):
            try:
                planned = compactor.plan(request, force=force)
                if planned is None:
                    continue
                if isinstance(planned.turns, Generator):
                    others = _FirstOf(self.compactors[at + 1 :])
                    asks = _or_else(planned, planned.turns, request, others, force, failure)
                    return replace(planned, turns=asks, failures=(*failures, *planned.failures))
                is_idle = _keeps_all(request, planned.turns)
            except Exception as exc:  # the next one has its chance; the failure is told in any case
                failure = failure or exc
                failures = (*failures, _failed(_name_in(compactor), exc))
                continue
            if not is_idle:
                return replace(planned, failures=(*failures, *planned.failures))
            idle = idle or planned
        if failure is not None:
            raise failure
        return idle  # so that the reason of the first is told


def _or_else(
    planned: Planned,
    asks: Generator[Any, Any, Any],
    request: CompactionRequest,
    others: _FirstOf,
    force: bool,
    earlier: Exception | None,
) -> Generator[Any, Any, Any]:
    """What the generator returns; or what others want, if it comes to nothing, raises, or its model is
    silent. If nobody wants anything, the first failure is raised."""
    failure: Exception | None = None
    turns: Any = NoChange("")
    try:
        turns = yield from asks
        if not _keeps_all(request, turns):
            return turns
    except Exception as exc:
        failure = exc
    failures = () if failure is None else (_failed(planned.by, failure),)
    unchanged = (f"{planned.by}: {turns.reason}",) if isinstance(turns, NoChange) and turns.reason else ()
    try:
        other = others.plan(request, force=force)
        if other is not None and not _keeps_all(request, other.turns):
            return replace(
                other, failures=(*failures, *other.failures), unchanged=(*unchanged, *other.unchanged)
            )
    except Exception as exc:
        failure = failure or exc
    # Not raised with `from`: the failure may have a cause already, which a report shows.
    if (first := earlier or failure) is not None:
        raise first
    return turns


def _name_in(compactor: CompactorLike) -> str:
    return name_of(getattr(compactor, "strategy", compactor))


def _failed(by: str, failure: Exception) -> str:
    """What failed, and with what, in words without content."""
    if isinstance(failure, AskFailed):
        return f"{by} got no answer: {failure}"
    if isinstance(failure, TriggerFailed):
        return f"{failure.by} raised {type(failure.__cause__ or failure).__name__}"
    return f"{by} raised {type(failure).__name__}"


def _keeps_all(request: CompactionRequest, turns: Any) -> bool:
    """True if this changes nothing, so that the next compactor has its chance."""
    if isinstance(turns, (NoChange, Planned, Generator)):
        return isinstance(turns, NoChange)
    kept, offered = tuple(turns.turns if isinstance(turns, Kept) else turns), request.turns
    return len(kept) == len(offered) and all(map(_is, kept, offered))


def _is(one: object, other: object) -> bool:
    return one is other


def first_of(*compactors: CompactorLike) -> CompactorLike:
    """The first of several compactors whose trigger fires and whose strategy finds something to do.

    A strategy that asks a model in vain, or gets no answer, gives way to the next one too. So does a trigger
    or a strategy that raises: a warning tells that, whatever the next one does.

    Raises TypeError for none at all, and for what is no compactor.
    """
    for compactor in compactors or (None,):
        if isinstance(compactor, type) or not callable(getattr(compactor, "plan", None)):
            got = "nothing" if not compactors else type(compactor).__name__
            raise TypeError(f"first_of takes compactors such as Compactor(trigger, strategy); got {got}")
    return _FirstOf(compactors)


class _NoCompaction(Enum):
    """It is known by its identity, which an enum keeps through copies."""

    NO_COMPACTION = "never"

    def plan(self, request: CompactionRequest, *, force: bool = False) -> None:
        return None

    def __repr__(self) -> str:
        return "NO_COMPACTION"


NO_COMPACTION: Final = _NoCompaction.NO_COMPACTION
"""Never compact, not even when the provider or a size limit refuses the history."""


def name_of(strategy: Any) -> str:
    """A strategy's name for reports: its class, or the function's own name."""
    return getattr(strategy, "__name__", None) or type(strategy).__name__


# -------------------------------------------------------------------------------------- checked answers


class TriggerFailed(Exception):  # noqa: N818 - becomes an outcome
    """A trigger raised, which is the cause. `by`: its name."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class InvalidPlan(Exception):  # noqa: N818 - a finding, turned into a warning or CompactionError
    """A strategy's answer that cannot be used; the text says why."""


def checked_turns(by: str, turns: Any, request: CompactionRequest) -> tuple[TurnView, ...] | None:
    """The turns that a strategy wants to keep; None if they are all that there were, unchanged.

    Raises:
        InvalidPlan: The answer is empty, out of order, or holds turns that were not offered.
    """
    kept = tuple(turns)
    offered = request.turns
    if not kept and offered:
        raise InvalidPlan(f"{by} kept no turn at all; a history is never emptied")
    last = -1
    for turn in kept:
        if not isinstance(turn, TurnView):
            raise InvalidPlan(f"{by} must return turns of request.turns, not {type(turn).__name__}")
        if turn.position == -1 and turn.note:
            continue
        if not last < turn.position < len(offered) or not _comes_from(turn, offered[turn.position]):
            raise InvalidPlan(f"{by} must return turns of request.turns in their order, each at most once")
        last = turn.position
    if len(kept) == len(offered) and all(map(_is, kept, offered)):
        return None
    return kept


def _comes_from(turn: TurnView, offered: TurnView) -> bool:
    """True for an offered turn, and for one that was made of it: that has its very facts."""
    return turn is offered or turn.facts is offered.facts
