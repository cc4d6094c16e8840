"""The books of a running turn: its state at this instant, and what a caller is told when it ends badly.

Owns: the turn's plan, clock reading, log, usage and warnings; blobs and errors made of them.
Must never know: in which order a turn does things.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from ..backends.base import Dialect
from ..errors import (
    CheckpointError,
    DeadlineExceededError,
    StateError,
    StateSizeError,
    StateTooLargeError,
    TurnError,
)
from ..events import CheckpointReady
from ..messages import Message, ToolRecord, Usage
from ..options import Resolved
from ..prices import Charge, Prices, genai_price, nano_dollars, priced
from ..result import Bill, CompactionReport, TurnWarning, WarningCode
from ..state.codec import BlobLimits, Codec
from ..state.records import Meta, digest8, turn_ref, usage_of, usage_row, with_cost
from ..state.state import ConversationState, dump_state, hard_limits, soft_limits
from ..tokens import TokenCounter
from ..values import Value, field, replace
from . import inbox, journal
from .answers import Answers
from .deadlines import CallTimes
from .flow import Clock, Emit, Flow, Invoke, Moment
from .meter import BelowZeroError, checked_count
from .room import CALL_BYTES, RESULTS, Room
from .unsign import unsign

__all__ = ["Base", "Ledger", "Plan"]

_E = TypeVar("_E", bound=TurnError)
_T = TypeVar("_T")
_KEPT: Final = frozenset({"price_unknown", "token_counter_failed", "tool_failed"})
"""Codes of warnings that still hold when a change of the history is undone."""

Base: TypeAlias = tuple[
    ConversationState | None, ConversationState | None, bool, CompactionReport | None, int
]


class Plan(Value, frozen=True, kw_only=True):
    """Everything a turn needs that is not the state: what the facade resolved from its options."""

    unshown = frozenset({"blob", "answers"})

    dialect: Dialect
    options: Resolved
    codec: Codec
    new_id: Callable[[], str]
    """Makes a random id: of a conversation that begins, and of a worker that claims tool calls."""
    blob: bytes = b""
    model: str | None = None
    max_retries: int = 2
    context_window: int | None = None
    stream: bool = False
    listening: bool = False
    resume: bool = False
    answers: Answers = field(default_factory=dict)
    preamble: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()
    tools: tuple[Any, ...] = ()
    usual_compactor: Any = None
    """Of a compaction by another compactor than the chat's: that one. What it has the provider do by itself
    is a part of every request of the conversation, and stays one."""
    is_shared: bool = False
    """Other workers may go on with this conversation: a call that must not run twice is claimed first."""
    claim: Callable[[bytes], object] | None = None
    """Keeps a claim, and raises if another worker went on with the conversation meanwhile. None where
    `on_checkpoint` keeps each start."""


class Ledger:
    """What one running turn has come to. Every change replaces one frozen `state`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dialect = plan.dialect
        self.options = plan.options
        self.listening = plan.listening
        self.of: dict[str, str] = {"conversation_id": "", "turn_ref": ""}
        """What each event carries; see `identify`."""
        self.reply_seconds = 0.0
        self.request_id = ""
        """Of the newest reply."""
        self.now = Moment(0, 0.0)
        self.deadline: float | None = None
        self.iteration = 0
        self.usage = Usage()
        limits = plan.options.limits
        asks_prices = limits is not None and limits.limits_cost
        self.prices = plan.options.prices or (genai_price if asks_prices else None)
        self.bill = Bill(booked=() if self.prices is not None else None)
        self.text = ""
        self.partial_text = ""
        self.streamed: Callable[[], str] | None = None
        """What has come so far of a reply that is still on its way."""
        self.actions: list[Any] = []
        self.request_ids: list[str] = []
        self.warnings: list[TurnWarning] = []
        self.report: CompactionReport | None = None
        self.discarded: StateError | None = None
        self.cut_for_context = False
        self.has_compacted = False
        """True once the compactor's trigger fired in this turn."""
        self.compaction_cause: Exception | None = None
        self.context_window = plan.context_window
        self.idle_seconds = 0.0
        self.given: ConversationState | None = None
        self.has_unsigned = False
        self.has_repaired = False
        """True once the history was searched for what a provider might refuse, found or not."""
        self.overflow: str = ""
        """Which result of a tool the state has no room for, and why; the turn ends then."""
        self.oversized: str = ""
        """Why the last reply is not in the state; the turn ends then."""
        self.room = Room(plan.codec, plan.dialect)
        self.has_acted = False
        """True once a model was asked or a tool started: from then on, nothing may be lost."""
        self._lock = threading.Lock()
        self._appended: list[Message] = []
        self._is_closed = False
        self._records: dict[tuple[int, int], ToolRecord] = {}
        self._state: ConversationState | None = None
        self._without_input: ConversationState | None = None
        self._blob_is_that = False
        self._kept = b""

    # ------------------------------------------------------------------------------------- the state

    @property
    def state(self) -> ConversationState:
        """The conversation at this instant."""
        if self._state is None:
            raise RuntimeError("the turn has not begun; iterate it first")
        return self._state

    @state.setter
    def state(self, state: ConversationState) -> None:
        self._state = state

    def begin(self, state: ConversationState, admitted: ConversationState, *, has_grown: bool) -> None:
        """Note the state as it was given, and the one that this turn's messages have entered.

        `has_grown`: True if the first is not the given blob's: a turn was closed, or calls were answered.

        Until this is done the turn has not begun: nobody sees a state that lacks the messages. Results that
        an earlier process left in the journal are lines of this turn's log: if the provider refuses them
        now, they are nowhere else.
        """
        for index, call in enumerate(state.open.calls if state.open is not None else ()):
            if call.state == "done":
                self.record(index, journal.tool_record(call, iteration=self.iteration))
        self.given = state
        meta = state.meta
        if meta.processed or state.open is not None:
            self.idle_seconds = max(0.0, (self.now.wall_ms - meta.created - meta.updated) / 1000)
        self.set_base(state, now=admitted)
        self._blob_is_that = not state.inbox and not has_grown and self.discarded is None

    def identify(self, meta: Meta, number: int | None) -> None:
        """Note whose events these are: the conversation's, and its turn of this number, if it is known."""
        id = self.options.conversation_id or meta.id
        self.of = {"conversation_id": id, "turn_ref": "" if number is None else turn_ref(id, number)}

    def set_base(self, state: ConversationState, *, now: ConversationState | None = None) -> None:
        """Note what stays of `state` if the provider refuses all that no model has accepted yet.

        `now`: the state at this instant, if it is another.
        """
        self._without_input = inbox.without_inbox(state)
        self._blob_is_that = False
        self._state = state if now is None else now

    def unsign(self, reason: str) -> None:
        """Take signed blocks out of the closed turns; those of an open one have to be dropped on the way."""
        self.state = unsign(self.state, self.dialect, at=self.at_ms)
        self.tell_unsigned(reason)

    def tell_repaired(self, given: ConversationState, now: ConversationState, log: Mapping[str, int]) -> None:
        """Warn that the closed history was mended, and what was done how often."""
        done = ", ".join(f"{kind}: {count}" for kind, count in log.items())
        self.warn(
            "history_repaired",
            f"the provider would have refused the stored history; it was repaired ({done})",
        )
        if given.meta.signed:
            self.tell_unsigned("earlier turns were repaired", now)

    def tell_unsigned(self, reason: str, state: ConversationState | None = None) -> None:
        """Warn that signed blocks of closed turns are gone, and what that means for an open one.

        `state`: the conversation, if the turn has not begun.
        """
        self.warn(
            "thinking_removed", f"{reason}: the thinking of earlier turns was taken out of the stored history"
        )
        if (state or self.state).meta.unbound:
            self.warn(
                "thinking_unbound",
                f"{reason}: the provider is asked to drop the running turn's thinking where it does not fit",
            )

    def book(self, usage: Usage, *, asked: str, answered: str = "", dialect: Dialect | None = None) -> None:
        """Add a model call to the turn's usage and bill, and its cost to the conversation's.

        Args:
            usage: What the call consumed.
            asked: The model's name in the request; "" if it is not known, and then its price is not either.
            answered: The model's name in the reply.
            dialect: The dialect of another backend than the turn's own.
        """
        self.usage = self.usage + usage
        dialect = dialect or self.dialect
        charge = Charge(
            model=answered or asked,
            usage=usage,
            wire=dialect.wire,
            family=dialect.family,
            at_ms=self.now.wall_ms,
        )
        charges, booked = (*self.bill.charges, (asked, charge)), self.bill.booked
        cost = None
        if self.prices is not None:
            cost = self._price_of(self.prices, charge, asked)
            booked = (*(booked or ()), cost)
        self.bill = Bill(charges=charges, booked=booked)
        meta = self.state.meta
        if self.prices is None and not meta.cost:
            return  # nobody has kept costs so far
        self.state = replace(self.state, meta=with_cost(meta, None if cost is None else nano_dollars(cost)))

    def _price_of(self, prices: Prices, charge: Charge, asked: str) -> Decimal | None:
        try:
            found = priced(prices, charge, asked)
            if found is not None and found >= 0:
                return found
        except Exception as exc:  # the reply is paid for; only its price is not known
            why = f"prices raised {type(exc).__name__}"
        else:
            why = "prices does not know the model"
        if not any(warning.code == "price_unknown" for warning in self.warnings):
            self.warn("price_unknown", f"what a model call cost is unknown: {why}")
        return None

    def price_of_earlier(self, usage: Usage) -> Decimal | None:
        """What a call cost that this turn made before this process, at today's price; None if unknown."""
        meta = self.state.meta if self.given is None else self.given.meta
        charge = Charge(
            model=meta.model,
            usage=usage,
            wire=self.dialect.wire,
            family=meta.family,
            at_ms=self.now.wall_ms,
        )
        return None if self.prices is None else self._price_of(self.prices, charge, meta.model)

    def knows_price(self, model: str) -> bool:
        """True if there is a price for the model, as far as its name tells."""
        trial = Charge(
            model=model,
            usage=Usage(input_tokens=1_000, output_tokens=1_000, requests=1),
            wire=self.dialect.wire,
            family=self.dialect.family,
            at_ms=self.now.wall_ms,
        )
        return self.prices is not None and self.prices(trial) is not None

    def book_aside(self, usage: Usage, *, asked: str, answered: str, dialect: Dialect) -> None:
        """Add what was consumed beside the conversation, such as for a summary, to the totals; see `book`."""
        self.entered(lambda: self._book_aside(usage, asked, answered, dialect))

    def book_broken(self, usage: Usage, *, asked: str) -> None:
        """Add what a call is known to have consumed whose reply broke off; see `book`."""
        self.entered(lambda: self._book_broken(usage, asked))

    def entered(self, enter: Callable[[], _T]) -> _T:
        """Make an entry in the books, and nowhere else. What breaks in on that, such as Ctrl-C, does not
        lose it: it is done once more, from the beginning."""
        before, warned = (self._state, self.usage, self.bill), len(self.warnings)
        try:
            return enter()
        except BaseException:
            self._state, self.usage, self.bill = before
            del self.warnings[warned:]
            enter()
            raise

    def _book_broken(self, usage: Usage, asked: str) -> None:
        self.book(usage, asked=asked)
        meta = self.state.meta
        total = usage_row(usage_of(meta.total) + usage)
        self.state = replace(self.state, meta=msgspec.structs.replace(meta, total=total))

    def _book_aside(self, usage: Usage, asked: str, answered: str, dialect: Dialect) -> None:
        self.book(usage, asked=asked, answered=answered, dialect=dialect)
        meta = self.state.meta
        total, aside = usage_of(meta.total) + usage, usage_of(meta.aside) + usage
        meta = msgspec.structs.replace(meta, total=usage_row(total), aside=usage_row(aside))
        self.state = replace(self.state, meta=meta)

    @property
    def counter(self) -> TokenCounter | None:
        """The caller's token counter, whose failures are warnings. Made anew, so that no cycle holds this."""
        counter = self.options.token_counter
        return None if counter is None else _Counter(counter, self)

    @property
    def is_cold(self) -> bool:
        """True if the conversation had been silent for so long that no provider's cache has it any more."""
        after = self.options.cold_after
        return after is not None and self.idle_seconds > after

    def append(self, messages: Sequence[Message]) -> None:
        """Take messages in from any thread; they enter the inbox before the next request.

        Raises:
            RuntimeError: The books are closed.
            StateTooLargeError: The state has no room for them beside what the turn still needs.
        """
        self.dialect.entries(messages)  # what cannot be said is refused here, where its author stands
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the turn is over; use append_to_state on its state")
            if self._state is not None:
                grown = inbox.admit(self._state, [*self._appended, *messages], self.dialect)
                problem = self.room.problem(grown, RESULTS, more=journal.unfinished(grown) * CALL_BYTES)
                if problem is not None:
                    raise problem
            self._appended.extend(messages)

    def close(self) -> bool:
        """Take no more messages. True if some wait that have not entered the inbox."""
        with self._lock:
            self._is_closed = True
            return bool(self._appended)

    @property
    def has_appended(self) -> bool:
        """True if messages wait that have not entered the inbox."""
        return bool(self._appended)

    def admit_appended(self) -> None:
        """Let what was appended meanwhile enter the inbox."""
        if self._appended:
            with self._lock:
                self.state = inbox.admit(self.state, self._appended, self.dialect)
                self._appended = []

    def base(self) -> Base:
        """Where the turn stands, to `go_back` to."""
        return self._state, self._without_input, self._blob_is_that, self.report, len(self.warnings)

    def go_back(self, base: Base) -> None:
        """Undo every change since `base` was taken, but what came into the inbox and what was spent.

        What was accepted since waits again: a message that is in no turn is nowhere else.
        """
        now = self.state
        state, self._without_input, self._blob_is_that, self.report, warnings = base
        if state is not None and state.inbox != now.inbox:
            meta = msgspec.structs.replace(state.meta, events=now.meta.events)
            state = replace(state, inbox=inbox.merged(state.inbox, now.inbox), meta=meta)
        self._state = _with_spent(state, now.meta) if state is not None else None
        self.warnings[warnings:] = [one for one in self.warnings[warnings:] if one.code in _KEPT]

    def encode(self, status: str, *, limits: BlobLimits | None = None) -> bytes:
        """The state as a blob, one revision after the given one. Soft limits unless others are named."""
        with self._lock:
            state = inbox.admit(self.state, self._appended, self.dialect)
        return self._encoded(state, status, limits or soft_limits(self.plan.codec))

    def _encoded(self, state: ConversationState, status: str, limits: BlobLimits) -> bytes:
        plan = self.plan
        meta = msgspec.structs.replace(
            state.meta,
            rev=state.meta.rev + 1,
            parent=digest8(plan.blob[:112]) if plan.blob and self.discarded is None else "",
            updated=max(0, self.now.wall_ms - state.meta.created),
            status=status,
        )
        return dump_state(
            replace(state, meta=meta),
            codec=plan.codec,
            binding=self.options.binding,
            limits=limits,
        )

    def snapshot(self) -> bytes:
        """A complete blob of this instant, for any thread; the given one before the turn has begun."""
        with self._lock:
            if self._state is None:
                return self.plan.blob
            state = inbox.admit(self._state, self._appended, self.dialect)
        streamed = self.streamed  # after the state: of a reply that comes now there is the text, or all of it
        if streamed is not None:
            state = self.with_partial(state, streamed())
        return self._encoded(state, self._stands("in_progress", state), hard_limits(self.plan.codec))

    def with_partial(self, state: ConversationState, text: str) -> ConversationState:
        """The state with the text of a reply that broke off, as much of it as there is room for."""
        if state.open is None:
            return state
        opened = replace(state.open, partial="")
        kept = self.room.capped(text, replace(state, open=opened))
        return replace(state, open=replace(opened, partial=kept))

    def _stands(self, unfinished: str, state: ConversationState) -> str:
        """The status of a state: complete if nothing of it waits for a reply, or for an answer."""
        if journal.is_waiting(state):
            return "awaiting_tools"
        return unfinished if state.open is not None or state.inbox else "complete"

    def checkpoint(
        self,
        result: bytes = b"",
        *,
        undo: Callable[[ConversationState], ConversationState] | None = None,
    ) -> Flow[None]:
        """Hand a resumable blob to whoever wants one; nothing goes on if `on_checkpoint` fails.

        Args:
            result: The turn's last blob, if it is over; else one is made of this instant.
            undo: Takes back what the blob announced, and what does not happen if nobody kept it.
        """
        keep = self.options.on_checkpoint
        if keep is None and not self.listening:
            return
        try:
            blob = result or self.snapshot()
        except StateTooLargeError as exc:
            raise self.error(
                StateSizeError,
                f"{exc}; err.state is the last state that fitted, what came since is in err.tool_log and "
                "err.text",
            ) from exc
        except Exception as exc:
            failed = self._no_checkpoint("the state could not be written", exc, undo)
            raise failed from failed.__cause__
        self._kept = blob
        failure: Exception | None = None
        if keep is not None:
            try:
                yield Invoke(keep, (blob,))
            except Exception as exc:
                failure = exc
        if failure is not None:  # no longer while it is handled: a driver's text may quote the blob
            raise self._no_checkpoint("on_checkpoint raised", failure, undo)
        if self.listening:
            yield Emit(CheckpointReady(blob, **self.of))

    def claim(self, announced: ConversationState) -> Flow[None]:
        """Have a state kept that announces the tools about to start. They must not start if this raises.

        Args:
            announced: The state of this instant with the calls marked as claimed. The turn itself goes on
                from its own state, so a call that does not start after all is not told as one that did.
        """
        keep = self.plan.claim
        if keep is None:
            return
        with self._lock:
            state = inbox.admit(announced, self._appended, self.dialect)
        try:
            blob = self._encoded(state, "in_progress", hard_limits(self.plan.codec))
            yield Invoke(keep, (blob,))
        except StateTooLargeError as exc:
            raise self.error(StateSizeError, f"{exc}; no further tool was started") from exc
        except Exception as exc:
            what = "the conversation could not be claimed before a tool that is not idempotent"
            raise self._no_checkpoint(what, exc, None) from exc
        self._kept = blob

    def _no_checkpoint(
        self, what: str, exc: Exception, undo: Callable[[ConversationState], ConversationState] | None
    ) -> CheckpointError:
        if undo is not None:
            self.state = undo(self.state)
        text = f"{what} ({type(exc).__name__}); nothing more was started"
        return self.error(CheckpointError, text, retryable=True).because_of(exc)

    @property
    def has_asked(self) -> bool:
        """True if the open turn has a reply already, in this process or before a `resume`."""
        return self.state.open is not None and bool(self.state.open.iterations)

    # -------------------------------------------------------------------------------------- the clock

    def tick(self) -> Flow[None]:
        """Read the clock."""
        self.now = yield Clock()

    @property
    def at_ms(self) -> int:
        """Now, in milliseconds after the conversation began."""
        return max(0, self.now.wall_ms - self.state.meta.created)

    def left(self) -> float | None:
        """Seconds until the deadline, None without one; never quite 0, which some clients take for none."""
        return None if self.deadline is None else max(0.001, self.deadline - self.now.monotonic)

    def call_times(self, *, is_streamed: bool) -> CallTimes:
        """When a model call that begins now has to be over. Only a stream has a first delta."""
        options = self.options
        return CallTimes.begin(
            self.now.monotonic,
            turn=self.deadline,
            call=options.call_timeout,
            first=options.first_delta_timeout if is_streamed else None,
        )

    @property
    def is_late(self) -> bool:
        """True once the deadline has passed."""
        return self.deadline is not None and self.now.monotonic >= self.deadline

    def check_deadline(self) -> None:
        """Raise `DeadlineExceededError` once the deadline has passed."""
        if self.is_late:
            raise self.deadline_error()

    def deadline_error(self) -> DeadlineExceededError:
        """The error of a turn whose time is up."""
        return self.error(
            DeadlineExceededError,
            f"the turn's timeout of {self.options.timeout:g} s passed; resume(err.state) goes on",
            retryable=True,
        )

    # ----------------------------------------------------------------------------- the log, the errors

    def warn(self, code: WarningCode, message: str) -> None:
        """Add a warning to the result."""
        self.warnings.append(TurnWarning(code, message))

    def record(self, index: int, record: ToolRecord) -> None:
        """Enter a call's result; the log is in call order, whatever order the tools finished in."""
        self._records[record.iteration, index] = record

    @property
    def tool_log(self) -> tuple[ToolRecord, ...]:
        """Every tool call so far."""
        return tuple(self._records[key] for key in sorted(self._records))

    def error(self, cls: type[_E], text: str, *, drop_input: bool = False, **known: Any) -> _E:
        """A `TurnError` with everything a caller needs to go on.

        `drop_input` takes out of the state what no model has accepted, and hands it back as
        `pending_input`: so a poisonous message cannot wedge the conversation.
        """
        if self._state is not None:
            self.admit_appended()
        pending = self._drop_input() if drop_input else ()
        if self._blob_is_that and self.state is self._without_input:
            blob = self.plan.blob
        else:
            self.state = journal.with_failure(self.state, cls.__name__, known.get("code", ""))
            try:
                blob = self.encode(self._stands("failed", self.state), limits=hard_limits(self.plan.codec))
            except StateTooLargeError:
                # Nobody could read it again. The last checkpoint has what was done up to then. Without one
                # the turn is in the error's other fields, its input too.
                blob, pending = (self._kept, ()) if self._kept else (self.plan.blob, self.plan.messages)
        return cls(
            text,
            state=blob,
            pending_input=pending,
            text=self.text,
            partial_text=self.partial_text,
            usage=self.usage,
            tool_log=self.tool_log,
            warnings=tuple(self.warnings),
            discarded=self.discarded,
            bill=self.bill,
            **known,
        )

    def broken_off(self, exc: Exception) -> TurnError:
        """The error of a turn that something else than a provider or a tool broke off."""
        name = type(exc).__name__
        return self.error(TurnError, f"the turn broke off ({name}); err.state has all of it, for resume")

    def refresh(self, error: _E) -> _E:
        """The error with what has happened since it was made."""
        later = self.error(type(error), "", code=error.code)
        error.state, error.tool_log = later.state, later.tool_log
        error.usage, error.bill, error.warnings = later.usage, later.bill, later.warnings
        return error

    def reject_results(self) -> None:
        """The provider refused the last exchange's results: flagged errors take their place."""
        if self.state.open is not None and self.state.open.calls:
            self.state = journal.reject_results(self.state)

    def _drop_input(self) -> tuple[Message, ...]:
        state = self.state
        pending = inbox.inbox_messages(state, self.dialect)
        if state.open is None and self._without_input is not None:
            self.state = _with_spent(self._without_input, state.meta)
        else:
            self.state = inbox.without_inbox(state)
        return pending


class _Counter(Value, frozen=True):
    """The caller's token counter. What it raises, or a number that no message has, is a warning; the message
    is then estimated (`meter`)."""

    counter: TokenCounter
    ledger: Ledger

    def count(self, message: Message, /) -> int:
        """What the caller's counter says. Raises what that raises, and ValueError for a number below 0."""
        try:
            return checked_count(self.counter, message)
        except Exception as exc:
            if not any(warning.code == "token_counter_failed" for warning in self.ledger.warnings):
                why = "gave a number below 0" if isinstance(exc, BelowZeroError) else type(exc).__name__
                self.ledger.warn(
                    "token_counter_failed",
                    f"token_counter failed ({why}): what it should have counted is estimated",
                )
            raise


def _with_spent(state: ConversationState, meta: Meta) -> ConversationState:
    """An earlier state with all that has been spent by now; the very object if nothing was since."""
    known = {name: getattr(meta, name) for name in ("total", "aside", "cost", "ask_failed")}
    if all(getattr(state.meta, name) == row for name, row in known.items()):
        return state
    return replace(state, meta=msgspec.structs.replace(state.meta, **known))
