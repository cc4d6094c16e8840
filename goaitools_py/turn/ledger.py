"""The books of a running turn: its state, its costs, its report to the caller, and its errors.

Owns: every act that changes more than one of these parts, so that they agree: booking a model call, undoing
a change, checkpoints, and the error of a turn that fails. Must never know: the order of a turn's steps.

The parts can be read alone::

    plan       the input and the options of the turn                     (frozen)
    timing     the newest reading of the clock, the deadline             snapshot: `Moment`
    turn_state the state now; messages of other threads; blobs           snapshot: `Snapshot`
    spending   tokens and money                                          snapshot: `Account`
    report     warnings, the tool log, actions                           snapshot: `ReportMark`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import msgspec

from ..backends.base import Dialect
from ..base.run_twice import run_twice
from ..base.values import Value, replace
from ..history.archive_keeping import Retention
from ..history.rewrite.rewritten import unsign
from ..open_turn import journal, steps
from ..open_turn.acts import Begun
from ..open_turn.meter import server_window
from ..state.records import Meta, turn_ref, usage_of, usage_row, with_cost
from ..state.state import ConversationState
from ..types.errors import (
    CheckpointError,
    DeadlineExceededError,
    StateSizeError,
    StateTooLargeError,
    TurnError,
)
from ..types.events import CheckpointReady
from ..types.messages import ToolRecord, Usage
from ..types.tokens import TokenCounter
from ..types.turn_warnings import WarningCode
from ..types.usage import Charge, nano_dollars
from .flow import Checkpoint, Emit, Flow, Look
from .plan import Plan
from .report import ReportBuilder, ReportMark, Spending, WarningCounter
from .turn_state import Snapshot, TurnState, status_of

__all__ = ["Ledger", "Plan", "ReturnPoint"]

_E = TypeVar("_E", bound=TurnError)
_T = TypeVar("_T")


class ReturnPoint(Value, frozen=True):
    """The parts of the books that a change of the history may touch, as they were before the change.

    See `Ledger.go_back`.
    """

    position: Snapshot
    report: ReportMark


class Tried:
    """Notes the acts that a turn does at most once, because a second time could not help.

    Attributes:
        cut_for_context: True once the history was cut because the provider refused its size.
        has_compacted: True once the compactor's trigger fired.
        compaction_cause: Why the newest compaction failed, if it did.
        compacted: The turn's positions behind its compactions, which may have paid for summaries.
        has_unsigned: True once requests go without the signed blocks of the closed turns, because the
            provider refused them.
        has_repaired: True once the history was searched for entries that a provider might refuse.
        has_asked_again: True once the turn has repeated a request because the reply was empty.
        views: The number of requests that were repeated in another form because a host refused the first.
        rules: The letters of the host's rules that the turn tries; "" without a try.
        has_told_left_out: True once the turn has warned that parts of the history are not sent.
    """

    cut_for_context = False
    has_compacted = False
    compaction_cause: Exception | None = None
    compacted: tuple[ReturnPoint, ...] = ()
    has_unsigned = False
    has_repaired = False
    has_asked_again = False
    views = 0
    rules = ""
    has_told_left_out = False


class Ledger(TurnState):
    """The books of one running turn: its position, its account, and its report to the caller.

    Attributes:
        spending: The account.
        report: The report for the end of the turn.
        listening: True if there are observers of events.
        event_ids: The fields that each event carries; see `identify`.
        iteration: The number in its turn of the newest model call; see `begin`.
        iterations_before: The number of model calls of the turn that an earlier process made.
        iterations_of_call: The number of model calls that closed turns of this call have made.
        context_window: Tokens that the model takes; None if that is unknown.
        has_acted: True once a model was asked or a tool started: from then on nothing may be lost.
        oversized: Why the state does not hold the newest reply; "" if it does. If set, the turn ends.
        first_given: The state that the turn began from, before any fallback.
        fell_back: The providers that were down, as "openai:MODEL", in order.
        overflow: Why the state has no room for a tool's result; "" if it has. If set, the turn ends.
        tried: The acts that the turn has done and does not repeat.
    """

    def __init__(self, plan: Plan, *, earlier: Ledger | None = None) -> None:
        """`earlier`: the books of the provider that was down. Its deadline holds, and its costs count."""
        super().__init__(plan)
        self._earlier = earlier
        self.report: ReportBuilder = ReportBuilder() if earlier is None else earlier.report
        self.spending: Spending = Spending(plan.options, self.report) if earlier is None else earlier.spending
        self.listening = plan.listening
        self.event_ids: dict[str, str] = (
            {"conversation_id": "", "turn_ref": ""} if earlier is None else earlier.event_ids
        )
        self.iteration: int = 0
        self.iterations_before: int = 0
        self.iterations_of_call: int = 0 if earlier is None else earlier.iterations_of_call
        self.first_given: ConversationState | None = None
        self.fell_back: tuple[str, ...] = () if earlier is None else earlier.fell_back
        self.context_window = plan.context_window
        self.has_acted: bool = earlier is not None and earlier.has_acted
        if earlier is not None:
            self.deadline, self.same_call = earlier.deadline, earlier.same_call
            self.has_edited = earlier.has_edited
            self._unedited = earlier._unedited if earlier.is_only_asked else None
            self._left_by_edit = earlier._left_by_edit
            if earlier.options.metadata is None:  # of a turn of later messages
                self.options = replace(self.options, metadata=None)
        self.oversized = ""
        self.overflow = ""
        self._kept = b""
        """The newest blob that a checkpoint gave out. An error uses it if its own state is too large."""
        self.tried = Tried()

    # -------------------------------------------------------------------------------- the beginning

    def begin(self, begun: Begun) -> None:
        """Begin the turn: note the given state, and the same state with this turn's messages.

        Before this call the turn has not begun. So every blob of the turn holds its messages.

        The results that an earlier process left in the journal enter this turn's log. If the provider refuses
        them now, the log has the only copy.
        """
        opened = begun.given.open
        self.iteration = self.iterations_of_call
        if opened is not None:
            # Continue the numbers of the earlier process: a call keeps the number of its reply.
            self.iteration += len(opened.iterations)
            self.iterations_before = self.iteration
            for index, call in enumerate(opened.calls):
                if call.state == "done":
                    self.record(index, journal.tool_record(call, iteration=self.iteration))
        if begun.state.meta.gauge[5:]:  # most servers do not cut the prompt
            self.see_window(server_window(begun.state.meta))
        earlier = self._earlier
        self.first_given = begun.given if earlier is None else earlier.first_given or begun.given
        if earlier is not None:
            self.iterations_before = earlier.iterations_before
        self.start_from(begun)

    def begin_later(self) -> None:
        """Begin a turn of messages that came behind the last reply. The caller's metadata is not theirs."""
        self.has_ended = True
        self.options = replace(self.options, metadata=None)
        self.tried = Tried()
        self.iterations_of_call = self.iteration
        self._begin_next()

    def begin_behind(self) -> None:
        """Begin the turn of this call behind one of another call, which a process had left unchecked."""
        self.iteration = self.iterations_before = self.iterations_of_call = 0
        self.first_given, self.same_call = self.state, None
        self._begin_next()

    def _begin_next(self) -> None:
        self.keep_edit()
        self.set_base(self.state)
        self.identify(self.state.meta, self.state.meta.processed + 1)

    def see_window(self, window: int) -> None:
        """Use the size at which the server cuts the prompt as the context window, if that is smaller."""
        self.context_window = min(window, self.plan.context_window or window)

    def identify(self, meta: Meta, number: int | None) -> None:
        """Note the conversation of the events, and the number of its turn, if it is known."""
        id = meta.id or self.options.conversation_id or ""
        self.event_ids = {"conversation_id": id, "turn_ref": "" if number is None else turn_ref(id, number)}

    # -------------------------------------------------------------------------------------- the report

    def warn(self, code: WarningCode, message: str) -> None:
        """Add a warning to the result."""
        self.report.warn(code, message)

    def record(self, index: int, record: ToolRecord) -> None:
        """Enter the result of the call with this index in its reply into the tool log."""
        self.report.record(index, record)

    def tell_repaired(self, given: ConversationState, now: ConversationState, log: Mapping[str, int]) -> None:
        """Warn that the closed history was repaired. `log`: the number of repairs of each kind."""
        done = ", ".join(f"{kind}: {count}" for kind, count in log.items())
        self.warn(
            "history_repaired",
            f"the provider would have refused the stored history; it was repaired ({done})",
        )
        if given.meta.signed and (now.meta.unbound or not now.meta.signed):
            self.tell_unsigned("earlier turns were repaired", now)

    def tell_unsigned(self, reason: str, state: ConversationState | None = None) -> None:
        """Warn that closed turns have lost their signed blocks, and that the open turn may lose its blocks.

        `state`: the conversation, if the turn has not begun.
        """
        self.warn(
            "thinking_removed", f"{reason}: the thinking of earlier turns was taken out of the stored history"
        )
        if (state or self.state).meta.unbound:
            self.warn(
                "thinking_unbound",
                f"{reason}: the running turn's thinking may no longer be valid. If the request has a setting "
                "for it, the provider is asked to drop what is not; else it is taken out after a refusal",
            )

    # -------------------------------------------------------------------------------- changes, undone

    def unsign(self, reason: str) -> None:
        """Take the signed blocks out of the closed turns.

        Those of an open turn stay: the provider is asked to drop them.
        """
        self.state = unsign(
            self.state, self.dialect, at=self.at_ms, retention=self.retention(self.retained_bytes)
        )
        self.tell_unsigned(reason)

    @property
    def retained_bytes(self) -> int:
        """The number of stored bytes that the compactor of this turn keeps in the archive. 0: no archive."""
        return int(getattr(self.options.compactor, "retained_bytes", 0))

    def retention(self, retain_bytes: int) -> Retention | None:
        """The rules by which the archive keeps turns that a change removes; None without an archive."""
        if not retain_bytes:
            return None
        return Retention(
            most_bytes=retain_bytes,
            codec=self.plan.codec,
            binding=self.options.binding,
            limits=self.room.soft,
        )

    def return_point(self) -> ReturnPoint:
        """Note the turn's position and its report at this instant, for `go_back`."""
        return ReturnPoint(self.position(), self.report.mark())

    def go_back(self, point: ReturnPoint) -> None:
        """Undo a change of the history. Its cost stays booked, and messages that arrived since stay."""
        self.step_back(point.position)
        self.report.go_back(point.report)

    def reject_results(self) -> None:
        """Replace the last exchange's results, which the provider refused, by flagged errors."""
        if self.state.open is not None and self.state.open.calls:
            self.state = journal.reject_results(self.state)

    # ------------------------------------------------------------------------------------- the account

    def entered(self, enter: Callable[..., _T], *args: Any) -> _T:
        """Make an entry in the books: call `enter` with these arguments, and return its result.

        An entry changes first the state, then the account. Ctrl-C in between must not lose a reply that is
        paid for, nor book it twice. So both are set back, and the whole entry is made again.
        """
        state, account, warnings = self.state, self.spending.account, len(self.report.warnings)

        def entry() -> _T:
            self.state, self.spending.account = state, account
            del self.report.warnings[warnings:]
            return enter(*args)

        return run_twice(entry)

    def book(
        self,
        usage: Usage,
        *,
        asked: str,
        answered: str = "",
        dialect: Dialect | None = None,
        cost_usd: Decimal | None = None,
    ) -> None:
        """Add a model call to the turn's account, and its cost to the conversation's.

        Args:
            usage: The tokens of the call.
            asked: The model's name in the request; "" if the name, and so the price, is unknown.
            answered: The model's name in the reply.
            dialect: The dialect of the backend, if it is not the turn's own.
            cost_usd: The price of the call in US dollars, if the provider names it.
        """
        charge = replace(self._charge(usage, answered or asked, dialect), cost_usd=cost_usd)
        cost = self.spending.book(charge, asked=asked)
        meta = self.state.meta
        if self.spending.prices is None and not meta.cost:
            return  # this conversation keeps no costs
        self.state = replace(self.state, meta=with_cost(meta, None if cost is None else nano_dollars(cost)))

    def book_aside(
        self,
        usage: Usage,
        *,
        asked: str,
        answered: str,
        dialect: Dialect,
        cost_usd: Decimal | None = None,
    ) -> None:
        """Add a model call beside the conversation, such as for a summary, to the totals; see `book`."""
        self.entered(self._book_aside, usage, asked, answered, dialect, cost_usd)

    def book_charge_aside(self, charge: Charge, *, asked: str) -> None:
        """Add a model call that a tool made to the totals; see `book`. `entered` is up to the caller."""
        cost = self.spending.book(charge, asked=asked)
        meta = self.state.meta
        total, aside = usage_of(meta.total) + charge.usage, usage_of(meta.aside) + charge.usage
        meta = msgspec.structs.replace(meta, total=usage_row(total), aside=usage_row(aside))
        if self.spending.prices is not None or meta.cost:
            meta = with_cost(meta, None if cost is None else nano_dollars(cost))
        self.state = replace(self.state, meta=meta)

    def book_broken(self, usage: Usage, *, asked: str) -> None:
        """Book the tokens that the provider has named for a reply that broke off; see `book`."""
        self.entered(self._book_broken, usage, asked)

    def _book_broken(self, usage: Usage, asked: str) -> None:
        self.book(usage, asked=asked)
        meta = self.state.meta
        total = usage_row(usage_of(meta.total) + usage)
        self.state = replace(self.state, meta=msgspec.structs.replace(meta, total=total))

    def _book_aside(
        self, usage: Usage, asked: str, answered: str, dialect: Dialect, cost_usd: Decimal | None
    ) -> None:
        self.book(usage, asked=asked, answered=answered, dialect=dialect, cost_usd=cost_usd)
        meta = self.state.meta
        total, aside = usage_of(meta.total) + usage, usage_of(meta.aside) + usage
        meta = msgspec.structs.replace(meta, total=usage_row(total), aside=usage_row(aside))
        self.state = replace(self.state, meta=meta)

    def _charge(self, usage: Usage, model: str, dialect: Dialect | None = None) -> Charge:
        dialect = dialect or self.dialect
        return Charge(
            model=model, usage=usage, wire=dialect.wire, family=dialect.family, at_ms=self.now.wall_ms
        )

    def knows_price(self, model: str) -> bool:
        """True if the price table has a price for a model of this name."""
        return self.spending.knows_price(lambda usage: self._charge(usage, model))

    @property
    def counter(self) -> TokenCounter | None:
        """The caller's token counter, with its failures turned into warnings.

        It is made anew each time, so that no reference cycle keeps the books alive.
        """
        counter = self.options.token_counter
        return None if counter is None else WarningCounter(counter, self.report)

    # ------------------------------------------------------------------------------------- checkpoints

    def checkpoint(
        self,
        result: bytes = b"",
        *,
        undo: Callable[[ConversationState], ConversationState] | None = None,
    ) -> Flow[None]:
        """Have a resumable blob kept, then tell the listeners. If that fails, the turn ends.

        Args:
            result: The turn's last blob, if the turn is over. Without it a blob of this instant is made.
            undo: Removes from the state the act that the blob announced, if the blob could not be kept.
        """
        keep, plan = self.options.on_checkpoint, self.plan
        is_kept = keep is not None or plan.checkpoints
        is_told = self.listening and (plan.stream or self.options.on_event is not None)
        if (not is_kept and not is_told) or self.is_only_asked:
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
        if is_kept:
            try:
                yield Checkpoint(blob, keep)
            except Exception as exc:
                failure = exc
        # Raise outside of the handler. Inside it the new error would get the first one as its context, and
        # the first error's text may quote the blob.
        if failure is not None:
            raise self._no_checkpoint("on_checkpoint raised", failure, undo)
        if is_told:
            yield Emit(CheckpointReady(blob, **self.event_ids))

    def claim(self, announced: ConversationState) -> Flow[None]:
        """Have a state kept that announces the tools about to start. If this raises, they must not start.

        Args:
            announced: The state of this instant with the calls marked as claimed. The turn itself keeps its
                own state. So a call that does not start later is not reported as started.
        """
        if not self.plan.claims:
            return
        state = self.with_appended(announced)
        try:
            blob = self.written(state, "in_progress", self.room.hard)
            yield Checkpoint(blob, is_claim=True)
        except StateTooLargeError as exc:
            raise self.error(StateSizeError, f"{exc}; no further tool was started") from exc
        except Exception as exc:
            what = "the conversation could not be claimed before a tool that is not idempotent"
            raise self._no_checkpoint(what, exc, None) from exc
        self._kept = blob

    def take_in(self, state: ConversationState | None = None) -> Flow[bool]:
        """Take in the messages that have come into the stored conversation. True if there are some. They are
        claimed there: if that fails, the turn ends.

        `state`: the turn's state before its end; None: the state of this instant.
        """
        try:
            came: bool = yield Look(partial(self.arrived, self.state if state is None else state))
        except Exception as exc:
            failure = exc
        else:
            return came
        what = "new messages could not be claimed before they were sent"
        raise self._no_checkpoint(what, failure, None)

    def _no_checkpoint(
        self, what: str, exc: Exception, undo: Callable[[ConversationState], ConversationState] | None
    ) -> CheckpointError:
        if undo is not None:
            self.state = undo(self.state)
        text = f"{what} ({type(exc).__name__}); nothing more was started"
        return self.error(CheckpointError, text, retryable=True).because_of(exc)

    # ------------------------------------------------------------------------------------------ errors

    def check_deadline(self) -> None:
        """Raise `DeadlineExceededError` once the deadline has passed."""
        if self.is_late:
            raise self.deadline_error()

    def deadline_error(self) -> DeadlineExceededError:
        """The error of a turn that has used up its time."""
        return self.error(
            DeadlineExceededError,
            f"the turn's timeout of {self.options.timeout:g} s passed; resume goes on",
            retryable=True,
        )

    def error(self, cls: type[_E], text: str, *, drop_input: bool = False, **known: Any) -> _E:
        """A `TurnError` with everything that a caller needs to go on.

        `drop_input`: take the messages that no model has accepted out of the state, and return them as
        `pending_input`. So a message that every provider refuses cannot block the conversation.
        """
        # The order matters: appended messages are a part of the input, the input leaves before the failure is
        # noted, and the state is written last.
        if self.has_begun:
            self.admit_appended()
        pending = self.drop_input() if drop_input else ()
        if not self.has_ended:  # else see `ending.or_ended`, which goes back to the claimed messages
            self.release()
        if self.is_as_given:
            blob = self.plan.blob
        else:
            self.state = steps.with_failure(self.state, cls.__name__, known.get("code", ""))
            try:
                status = status_of(self.state, "failed")
                blob = self.encode(status, limits=self.room.hard)
            except StateTooLargeError:
                # A larger blob could not be read again. So hand out the newest checkpoint. Without one, hand
                # out the given blob and the input; the error's other fields have the rest of the turn.
                blob, pending = (self._kept, ()) if self._kept else (self.plan.blob, self.plan.messages)
        report, account = self.report, self.spending.account
        return cls(
            text,
            state=blob,
            pending_input=pending,
            text=report.text,
            partial_text=self.partial_text,
            usage=account.usage,
            tool_log=report.tool_log,
            warnings=tuple(report.warnings),
            discarded=report.discarded,
            bill=account.bill,
            **known,
        )

    def broken_off(self, exc: Exception) -> TurnError:
        """The error of a turn that ended for another reason than a provider or a tool."""
        name = type(exc).__name__
        return self.error(TurnError, f"the turn broke off ({name}); err.state has all of it, for resume")

    def refresh(self, error: _E) -> _E:
        """Bring the error's state, tool log, usage, bill and warnings up to date."""
        later = self.error(type(error), "", code=error.code)
        error.state, error.tool_log = later.state, later.tool_log
        error.usage, error.bill, error.warnings = later.usage, later.bill, later.warnings
        return error
