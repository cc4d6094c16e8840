"""The input and the answer of a compaction.

Owns: `CompactionRequest`, the protocol of a compactor, the requests of a strategy, and the check of its
answer. Must never know: how a state is encoded, or a provider API.

A *trigger* is any callable from a request to bool. A *strategy* is any callable from a request to the turns
that stay, in order. These may be turns of ``request.turns``, rewritten turns (`TurnView.with_pieces`), and
notes (``request.note``). A strategy that needs a model is a generator: it yields an `AskModel`, receives a
`ModelAnswer`, and returns the turns. No strategy has to keep pinned messages: `checked_turns` puts those back
that it dropped.

The request is frozen. Its costly parts are computed when they are first read, so a trigger that does not
fire costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias

from ..base.values import Given, Value, field, replace
from ..types.messages import Usage
from ..types.request_parts import ContextEdit
from .turn_views import TurnView, with_pinned

__all__ = [
    "NO_COMPACTION",
    "AskFailed",
    "AskModel",
    "AskProvider",
    "BeforeCut",
    "CompactionRequest",
    "CompactorLike",
    "HasLimit",
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
    "check_function",
    "check_strategy",
    "check_trigger",
    "checked_turns",
    "edits_of",
    "first_of",
    "name_of",
    "of_turns",
]


def _never(compactor: Any) -> bool:
    return False


class CompactionRequest(Value, frozen=True, kw_only=True, dict=True):
    """The input of a trigger or strategy. The counts include everything that the next request would send.

    Attributes:
        message_count: Neutral messages: one per role message, one per tool result.
        turn_count: Closed turns in the history.
        pending_count: Messages that were appended or just said, and that no model has seen.
        token_count: The last request's real usage, plus an estimate of the changes since.
        history_bytes: Size of the stored entries, uncompressed.
        most_blob_bytes: An upper limit of `blob_bytes`, known without encoding anything.
        usage: The usage of the last model call.
        context_window: The model's context window, in tokens; None if it is not known.
        server_window: The tokens at which the server has been seen to cut the prompt without an error, or
            None. `Compactor` fires above it, even if its trigger does not fire.
        idle_seconds: How long the conversation had been silent when this turn began.
        is_cold: True if that is longer than `ChatOptions.cold_after`. The provider's cache has then expired.
        rests: Says of a compactor whether it rests, because its last cut has left more than its limit and
            another one would too. `Compactor` asks it; a compactor of your own may.
        load_turns: Loads the turns; read `turns` instead.
        load_blob_bytes: Computes the size of the blob; read `blob_bytes` instead.
        write_note: Writes a note; call `note` instead.
    """

    _unshown = frozenset({"load_turns", "load_blob_bytes", "write_note", "rests"})

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
    server_window: int | None = None
    idle_seconds: float = 0.0
    is_cold: bool = False
    rests: Callable[[Any], bool] = _never

    @property
    def is_cut_by_server(self) -> bool:
        """True if the server would cut the next request, as it has cut an earlier one."""
        return self.server_window is not None and self.token_count > self.server_window

    @cached_property
    def turns(self) -> tuple[TurnView, ...]:
        """The closed turns, oldest first. They are parsed when this is first read."""
        return self.load_turns()

    @cached_property
    def blob_bytes(self) -> int:
        """The size of the state as a blob. The state is encoded when this is first read."""
        return self.load_blob_bytes()

    def note(self, text: str, *, kind: str = "summary") -> TurnView:
        """Make a turn that is a note to the model: a delimited block that a user cannot imitate."""
        return self.write_note(text, kind)


def of_turns(
    request: CompactionRequest,
    turns: Sequence[TurnView],
    *,
    beside: int = 0,
    blob_bytes: Callable[[], int] = int,
) -> CompactionRequest:
    """Make the request of a conversation that has only these turns, and no running turn. `beside`: the tokens
    of tools and `system=`. `blob_bytes`: computes the size of its blob."""
    return CompactionRequest(
        message_count=sum(turn.message_count for turn in turns),
        turn_count=len(turns),
        token_count=beside + sum(turn.tokens for turn in turns),
        history_bytes=sum(turn.entry_bytes for turn in turns),
        usage=request.usage,
        load_turns=lambda: tuple(turns),
        load_blob_bytes=blob_bytes,
        write_note=request.write_note,
        pending_count=request.pending_count,
        context_window=request.context_window,
        server_window=request.server_window,
        idle_seconds=request.idle_seconds,
        is_cold=request.is_cold,
    )


# -------------------------------------------------------------------------- the requests of a strategy


class AskModel(Value, frozen=True, kw_only=True):
    """A strategy asks a model: these turns, and then `instruction`.

    Attributes:
        turns: The first turns of ``request.turns``. They are sent unchanged after the preamble and the
            tools, because the provider has that prefix in its cache. Another `backend` gets a transcript.
        instruction: The user message after the turns.
        backend: Another model: a backend, or a name such as "openai:MODEL". None: the model of the turn.
        max_output_tokens: The longest answer, in tokens.
    """

    _unshown = frozenset({"turns", "instruction"})

    turns: Sequence[TurnView]
    instruction: str
    backend: Any = None
    max_output_tokens: int | None = None


class AskProvider(Value, frozen=True, kw_only=True):
    """A strategy asks the provider to compact these turns itself.

    The answer is a `TurnView` that replaces them, or None if the provider API has no compaction.
    """

    _unshown = frozenset({"turns", "instructions"})

    turns: Sequence[TurnView]
    """The first turns of ``request.turns``."""
    instructions: str = ""
    """Tells the provider which facts to keep, if it takes instructions (Anthropic)."""


class ModelAnswer(Value, frozen=True, kw_only=True):
    """The model's answer to an `AskModel`. `stop` is "end", "length", "refusal" or "pause"."""

    _unshown = frozenset({"text"})

    text: str
    stop: str = "end"
    usage: Usage = field(default_factory=Usage)
    model: str = ""


class NoChange(Value, frozen=True):
    """A strategy returns this if a change is not worth it. `reason` says why, without message content."""

    reason: str


class Kept(Value, frozen=True):
    """Turns that stay. `reason` says why they are more than the target; the report quotes it."""

    turns: Sequence[TurnView]
    reason: str = ""


class AskFailed(Exception):  # noqa: N818 - thrown into a strategy, which may have a fallback
    """The strategy's question got no answer; the text says why. The strategy may still return turns.

    Attributes:
        sdk_error: The exception of the provider's SDK, if that is the reason. Its text may quote content.
    """

    def __init__(self, message: str = "", *, sdk_error: BaseException | None = None) -> None:
        super().__init__(message)
        self.sdk_error = sdk_error


Turns: TypeAlias = Sequence[TurnView] | Kept | NoChange
Trigger: TypeAlias = Callable[[CompactionRequest], bool]
Strategy: TypeAlias = Callable[[CompactionRequest], Turns | Generator[Any, Any, Turns]]
BeforeCut: TypeAlias = Callable[[tuple[TurnView, ...]], object]


# ------------------------------------------------------------------------------------------ compactors


class Planned(Value, frozen=True, kw_only=True):
    """The plan of a compactor.

    Attributes:
        by: The name of the strategy, for the report.
        turns: The turns that stay, or a generator that returns them or another plan.
        before_cut: Called with the turns that are removed.
        retain_bytes: How many stored bytes of changed or removed turns stay in the archive. 0: the cut
            keeps no turns.
        failures: The errors of the compactors that were asked before this one. Without content.
        unchanged: Why compactors before this one, which may have asked a model, changed nothing. Without
            content.
        compactor: The `Compactor` that made the plan. It is asked after the cut whether its limit is reached.
            None: it is not known, and the plan never rests.
        has_next: True if another compactor of a `first_of` acts where this one leaves too much.
        preserve_system: False: system messages go with their turns, unless they are pinned by a mark of
            their own. `Compactor` takes it from an attribute of this name of its strategy.
    """

    _unshown = frozenset({"turns"})

    by: str
    turns: Turns | Generator[Any, Any, Turns]
    before_cut: BeforeCut | None = None
    retain_bytes: int = 0
    failures: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    compactor: HasLimit | None = None
    has_next: bool = False
    preserve_system: bool = True


class HasLimit(Protocol):
    """A compactor that can say whether a history is above its limit."""

    def is_above(self, request: CompactionRequest) -> bool:
        """True if the trigger fires because of a size."""
        ...


class CompactorLike(Protocol):
    """Anything with a `plan` method. `plan` returns None if there is nothing to do.

    With `force` the provider has refused the history, and the trigger is not asked.

    A compactor may also have ``context_management``: the edits of the context that every request of the
    conversation asks the provider for. `Compactor` and `first_of` take it from their strategies.
    """

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None: ...


def edits_of(part: object) -> Sequence[ContextEdit]:
    """Give the context edits that a strategy or compactor asks the provider for; () without edits."""
    found: Sequence[ContextEdit] = getattr(part, "context_management", ())
    return found


class OwnTrigger(Given, frozen=True):
    """A trigger of this package. The class exists to refuse a trigger in a strategy's place; a trigger of
    your own needs no base class."""


class OwnStrategy(Given, frozen=True):
    """A strategy of this package. The class exists to refuse a strategy in a trigger's place; a strategy of
    your own needs no base class."""

    @property
    def report_name(self) -> str:
        """How reports name the strategy."""
        return type(self).__name__


def check_trigger(value: Any) -> None:
    """Raise TypeError for a class that was not called, and for a strategy of this package."""
    if isinstance(value, OwnStrategy):
        raise TypeError(f"{name_of(value)} is a strategy, and stands in a trigger's place; {_ORDER}")
    check_function("a trigger such as MessageLimit(40)", value)


def check_strategy(value: Any) -> None:
    """Raise TypeError for a class that was not called, and for a trigger of this package."""
    if isinstance(value, OwnTrigger):
        raise TypeError(f"{name_of(value)} is a trigger, and stands in a strategy's place; {_ORDER}")
    check_function("a strategy such as KeepRecentTurns(6)", value)


_ORDER: Final = (
    "a Compactor takes the trigger, which says when, before the strategy, which says how: "
    "Compactor(MessageLimit(40), KeepRecentTurns(6))"
)


def check_function(expected: str, value: Any) -> None:
    if isinstance(value, type):
        raise TypeError(f"expected {expected}, got the class {value.__name__}: call it with its limits")
    if not callable(value):
        raise TypeError(f"expected {expected}, got {type(value).__name__}")


class _FirstOf(Value, frozen=True):
    compactors: tuple[CompactorLike, ...]

    @property
    def before_cut(self) -> BeforeCut | None:
        """The callback for an emergency cut, which no compactor planned: the first one that is set."""
        return next((found for one in self.compactors if (found := getattr(one, "before_cut", None))), None)

    @property
    def retained_bytes(self) -> int:
        """The archive's bytes for an emergency cut, which no compactor planned: the first that are set."""
        return next((found for one in self.compactors if (found := getattr(one, "retained_bytes", 0))), 0)

    @property
    def recalled_tokens(self) -> int:
        """How many tokens an answer of the tool ``recall`` may have: the fewest that are set; 0 without."""
        found = [getattr(one, "recalled_tokens", 0) for one in self.compactors]
        return min(filter(None, found), default=0)

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        """The edits of all compactors, in order. A request holds one edit of each kind: the first."""
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
                # The model is told that it can search the removed turns. So each cut must keep them.
                least = self.retained_bytes if self.recalled_tokens else 0
                planned = replace(
                    planned,
                    retain_bytes=planned.retain_bytes or least,
                    has_next=planned.has_next or at + 1 < len(self.compactors),
                )
                if isinstance(planned.turns, Generator):
                    others = _FirstOf(self.compactors[at + 1 :])
                    asks = _or_else(planned, planned.turns, request, others, force, failure, least)
                    return replace(planned, turns=asks, failures=(*failures, *planned.failures))
                is_idle = _keeps_all(request, planned.turns, planned.preserve_system)
            except Exception as exc:  # the next compactor gets its chance; the report tells the failure
                failure = failure or exc
                failures = (*failures, _failed(_name_in(compactor), exc))
                continue
            if not is_idle:
                return replace(planned, failures=(*failures, *planned.failures))
            idle = idle or planned
        if failure is not None:
            raise failure
        return idle  # the report then gives the first one's reason


def _or_else(
    planned: Planned,
    asks: Generator[Any, Any, Any],
    request: CompactionRequest,
    others: _FirstOf,
    force: bool,
    earlier: Exception | None,
    least: int,
) -> Generator[Any, Any, Any]:
    """Return the generator's turns. If it changes nothing or raises, return the plan of the other
    compactors. If they have no plan either, raise the first failure."""
    failure: Exception | None = None
    turns: Any = NoChange("")
    try:
        turns = yield from asks
        if not _keeps_all(request, turns, planned.preserve_system):
            return turns
    except Exception as exc:
        failure = exc
    failures = () if failure is None else (_failed(planned.by, failure),)
    unchanged = (f"{planned.by}: {turns.reason}",) if isinstance(turns, NoChange) and turns.reason else ()
    try:
        other = others.plan(request, force=force)
        if other is not None and not _keeps_all(request, other.turns, other.preserve_system):
            return replace(
                other,
                retain_bytes=other.retain_bytes or least,
                failures=(*failures, *other.failures),
                unchanged=(*unchanged, *other.unchanged),
            )
    except Exception as exc:
        failure = failure or exc
    # Not raised with `from`: the failure may have a cause of its own, and the report shows that one.
    if (first := earlier or failure) is not None:
        raise first
    return turns


def _name_in(compactor: CompactorLike) -> str:
    return name_of(getattr(compactor, "strategy", compactor))


def _failed(by: str, failure: Exception) -> str:
    """Name the part that failed, and the class of its error, without content."""
    if isinstance(failure, AskFailed):
        return f"{by} got no answer: {failure}"
    if isinstance(failure, TriggerFailed):
        return f"{failure.by} raised {type(failure.__cause__ or failure).__name__}"
    return f"{by} raised {type(failure).__name__}"


def _keeps_all(request: CompactionRequest, turns: Any, preserve_system: bool) -> bool:
    """True if these turns change nothing; then the next compactor is asked."""
    if isinstance(turns, (NoChange, Planned, Generator)):
        return isinstance(turns, NoChange)
    try:
        return (
            checked_turns("", turns.turns if isinstance(turns, Kept) else turns, request, preserve_system)
            is None
        )
    except InvalidPlan:  # whoever carries the plan out reports it
        return False


def _is(one: object, other: object) -> bool:
    return one is other


def first_of(*compactors: CompactorLike) -> CompactorLike:
    """Use the first compactor with a trigger that fires and a strategy that changes something.

    The next one is also asked if a strategy got no answer from its model, or if a trigger or strategy raised.
    A warning names the exception, whatever the next compactor does.

    Raises TypeError for no arguments, and for an argument that is not a compactor.
    """
    for compactor in compactors or (None,):
        if isinstance(compactor, type) or not callable(getattr(compactor, "plan", None)):
            got = "nothing" if not compactors else type(compactor).__name__
            raise TypeError(f"first_of takes compactors such as Compactor(trigger, strategy); got {got}")
    return _FirstOf(compactors)


class _NoCompaction(Enum):
    """An enum, because its member stays the same object in every copy."""

    NO_COMPACTION = "never"

    def plan(self, request: CompactionRequest, *, force: bool = False) -> None:
        return None

    def __repr__(self) -> str:
        return "NO_COMPACTION"


NO_COMPACTION: Final = _NoCompaction.NO_COMPACTION
"""Never compact, not even when the provider or a size limit refuses the history."""


def name_of(strategy: Any) -> str:
    """How reports name a strategy: by its class, or by the function's own name."""
    if isinstance(strategy, OwnStrategy):
        return strategy.report_name
    return getattr(strategy, "__name__", None) or type(strategy).__name__


# -------------------------------------------------------------------------------------- checked answers


class TriggerFailed(Exception):  # noqa: N818 - becomes an outcome
    """A trigger raised; `__cause__` is its exception. `by` is the trigger's name."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class InvalidPlan(Exception):  # noqa: N818 - becomes a warning or a CompactionError
    """A strategy returned turns that cannot be used; the text says why."""


def checked_turns(
    by: str, turns: Any, request: CompactionRequest, preserve_system: bool = True
) -> tuple[TurnView, ...] | None:
    """Check the turns that a strategy keeps, and add the pinned messages that they lack; None if every turn
    stays unchanged. `preserve_system`: as in `Planned`.

    Raises:
        InvalidPlan: There are no turns, they are out of order, or some are not from the request.
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
    kept = with_pinned(offered, kept, keeps_systems=preserve_system)
    if len(kept) == len(offered) and all(map(_is, kept, offered)):
        return None
    return kept


def _comes_from(turn: TurnView, offered: TurnView) -> bool:
    """True for the offered turn itself, and for a turn made from it: both share one `facts` object."""
    return turn is offered or turn.facts is offered.facts
