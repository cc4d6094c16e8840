"""The turn, written once: a generator that yields effects.

Owns: the order of a turn's steps. Must never know: a socket, a thread, a loop, a clock, or a provider API's
JSON.

::

    load -> recognise -> take messages and answers in                     (beginning)
      -> check budget and size                                            (limits)
      ask:        history + open turn + inbox -> CallModel -> reply       (model_call, receive)
      run calls:  journal -> Checkpoint -> CallTool -> AwaitTool -> ask   (tool_calls)
    close the turn -> compact (shrink) -> encode -> ChatResult

The phases change the state by the acts of `open_turn.acts`. `TurnEngine.snapshot` is a complete, resumable
blob at every instant: each step replaces one frozen state in the turn's books (`ledger`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ..backends.base import Reply
from ..base.values import replace
from ..open_turn import acts, attempts, inbox, journal, steps
from ..open_turn.turn_ids import SAME_CALL, TURN_IDS_FACT, StoredReply
from ..state.blob_header import may_take_long
from ..state.records import IDS_KEPT, Meta, counts_of, dollars_of, usage_of
from ..state.state import ConversationState
from ..types.citations import Citation, shifted
from ..types.errors import (
    StateError,
    StateSizeError,
    StateTooLargeError,
    ToolPendingError,
    TurnError,
    TurnStoppedError,
)
from ..types.events import ModelReplied, StateConverted, StateDiscarded, TextDelta, TurnCompleted, TurnStarted
from ..types.messages import Message
from ..types.result import ChatResult, Status
from . import ending, limits, shrink
from .answer import TypedAnswer, counted, with_partials
from .beginning import Beginning
from .flow import Emit, Flow, computed
from .ledger import Ledger
from .limits import NOT_STORED, check_budget, check_queue, check_size, context_warnings, written
from .model_call import ask
from .plan import Plan
from .request import Voice, words_of
from .tool_calls import refuse_calls, run_calls, tell_pending

__all__ = ["TurnEngine"]

MAX_PAUSES: Final = 8
"""The number of times that the turn asks the provider to continue a paused reply."""


class TurnEngine:
    """One turn. `run` is its flow; `snapshot` is its state at this instant."""

    def __init__(self, plan: Plan, *, ledger: Ledger | None = None) -> None:
        self._plan = plan
        self._ledger = Ledger(plan) if ledger is None else ledger
        self._beginning = Beginning(self._ledger)
        self._result: ChatResult[Any] | None = None
        self._answer = None if plan.output is None else TypedAnswer(self._ledger, plan.output)

    def run(self) -> Flow[ChatResult[Any]]:
        """The turn's flow: yields effects, returns the result, raises typed errors."""
        ledger, beginning = self._ledger, self._beginning
        # First of all: a chat that lacks the binding of its codec is told so before a byte is read.
        self._plan.codec.check(ledger.options.binding)
        yield from ledger.start_clock(waited=self._plan.waited)
        yield from computed(beginning.load, is_long=may_take_long(self._plan.blob))
        state = beginning.state
        if ledger.report.discarded is not None and ledger.listening:
            ledger.identify(state.meta, state.meta.processed + 1)
            yield Emit(StateDiscarded(ledger.report.discarded, **ledger.event_ids))
        converted = beginning.converted
        if converted is not None and ledger.listening:
            ledger.identify(state.meta, state.meta.processed + 1)
            yield Emit(StateConverted(converted.found, converted.to, converted.lost, **ledger.event_ids))
        if (stored := beginning.came_before()) is not None:
            return (yield from self._repeat(state, stored))
        state = beginning.state  # an edit has replaced it
        if journal.is_waiting(state) and not beginning.resumes:
            pending = journal.pending(state)
            if ledger.options.on_pending == "raise":
                raise ToolPendingError(
                    f"the state waits for answers to {counted(len(pending), 'tool call')}, see "
                    "err.pending: give them to resume, or say what a new message does with on_pending='deny' "
                    "or 'queue'",
                    pending,
                )
            if ledger.options.on_pending == "queue":
                beginning.queue()
                yield from check_queue(ledger, state, beginning.messages)
                return (yield from self._finish(None, self._open_reply(ledger.state), "awaiting_tools"))
            beginning.deny()
        voice = beginning.admit()
        opened = ledger.state.open
        if opened is None or not attempts.ends_with_answer(opened):  # else see `stored_answer`
            check_budget(ledger, voice.model)
        yield from check_size(ledger)
        try:
            left = yield from self._stored(voice)
            if ledger.listening:
                yield Emit(TurnStarted(**ledger.event_ids))
            if left is None:
                reply, status = yield from self._exchanges(voice)
            else:
                reply, status = (yield from self._told(left)), "complete"
            return (yield from self._finish(voice, reply, status))
        except TurnError as exc:
            if ledger.close():  # a message was appended after the error was made
                ledger.refresh(exc)
            raise
        except AssertionError:
            raise
        except Exception as exc:
            if not ledger.has_acted:
                raise  # no model was asked and no tool ran: the given state is still right
            failure = exc
        # Raise outside of the handler. Inside it the error would get `exc`, which may quote content, as its
        # context.
        ledger.close()
        raise ledger.broken_off(failure).because_of(failure)

    def successor(self, plan: Plan) -> TurnEngine:
        """The engine that goes on with this turn under another plan.

        It continues the books of this engine: the costs, the report, the tool log, and the deadline.
        """
        return TurnEngine(plan, ledger=Ledger(plan, earlier=self._ledger))

    def begun_anew(self, plan: Plan) -> TurnEngine:
        """The engine that begins this turn once more under another plan.

        Nothing of this engine's books counts, except the deadline: the caller waits since the first begin.
        """
        ledger = Ledger(plan)
        ledger.deadline = self._ledger.deadline
        return TurnEngine(plan, ledger=ledger)

    def fell_back(self, failed: str, to: str, reason: str, status_code: int | None) -> None:
        """Note that a provider was down, and that the turn goes on here."""
        self._ledger.fell_back = (*self._ledger.fell_back, failed)
        status = f", status {status_code}" if status_code else ""
        self._ledger.warn("fell_back", f"{failed} was down ({reason}{status}); the turn went on with {to}")

    @property
    def asked_model(self) -> str | None:
        """The model that this engine asks."""
        model: str | None = self._plan.options.settings.get("model") or self._plan.model
        return model

    def meta_of(self, blob: bytes) -> Meta | None:
        """The meta data of a blob, if it is the newest one that this turn made; nothing is decoded."""
        return self._ledger.meta_of(blob)

    def snapshot(self) -> bytes:
        """A complete blob of this instant, for `resume`."""
        return self._result.state if self._result is not None else self._ledger.snapshot()

    @property
    def has_edited(self) -> bool:
        """True if the turn replaces a message, and the provider has not refused that."""
        return self._ledger.has_edited

    @property
    def is_only_asked(self) -> bool:
        """True while a turn that edits has no answer of the provider: the stored state stays."""
        return self._ledger.is_only_asked

    def stopped(self) -> TurnStoppedError:
        """The error of a turn that is stopped now, with the work so far."""
        return self._ledger.error(TurnStoppedError, "the turn was stopped; resume goes on with it")

    def release(self) -> None:
        """Give back the claims of a turn that is abandoned before a model has accepted a message."""
        if self._result is None and self._ledger.has_begun:
            self._ledger.release()

    @property
    def discarded(self) -> StateError | None:
        """The error of the given state, if a fresh conversation was begun in its place."""
        return self._ledger.report.discarded

    @property
    def event_ids(self) -> dict[str, str]:
        """The fields that each event of this turn carries."""
        return self._ledger.event_ids

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of the conversation now, for an event; see `counts_of`."""
        state = self._ledger.state
        return counts_of(state.meta, state.open)

    @property
    def has_acted(self) -> bool:
        """True once a model was asked or a tool started."""
        return self._ledger.has_acted

    @property
    def is_over(self) -> bool:
        """True once there is a result."""
        return self._result is not None

    @property
    def has_claimed(self) -> bool:
        """True if messages wait that the turn has marked as its own: they cannot be withdrawn."""
        return any(item.is_taken for item in self._ledger.state.inbox)

    @property
    def taken_ids(self) -> tuple[str, ...]:
        """The digests of the turn ids of all messages that the provider has taken in this turn. Empty before
        the first reply, and once the turn is over."""
        opened = self._ledger.state.open
        return () if opened is None else tuple(opened.facts.get(TURN_IDS_FACT, ()))

    @property
    def follows_turn(self) -> bool:
        """True if the open turn is one of messages that came at the end of another turn of the same call."""
        opened = self._ledger.state.open
        return opened is not None and SAME_CALL in opened.facts

    @property
    def has_calls(self) -> bool:
        """True if calls of the turn's last reply have no result yet."""
        return not journal.ready(self._ledger.state)

    def append(self, *messages: Message) -> None:
        """Put messages into the inbox of the running turn. Its next model call sends them.

        RuntimeError once the turn is over: the result's state would not have them.
        """
        self._ledger.append(messages)

    def join(self, messages: Sequence[Message], error: TurnError) -> None:
        """Add messages to the error of this turn. A successor had taken them, and could not begin."""
        self._ledger.take_over(messages)
        self._ledger.refresh(error)

    def _repeat(self, state: ConversationState, stored: StoredReply) -> Flow[ChatResult[Any]]:
        """Return the stored reply of a turn that was finished before. Neither a model nor a tool runs."""
        status: Any = stored.status
        blob, ledger = self._plan.blob, self._ledger
        # A message was appended while the turn looked: the caller was told that it is kept, so the blob must
        # have it.
        if ledger.close():
            ledger.begin(acts.begun(state, state))
            blob = ledger.encode(state.meta.status, limits=ledger.room.hard)
        result = self._result = ChatResult(
            text=stored.text,
            state=blob,
            status=status,
            finish_reason=stored.finish_reason,
            pending=journal.pending(state) if status == "awaiting_tools" else (),
            total_usage=usage_of(state.meta.total),
            aside_usage=usage_of(state.meta.aside),
            total_cost_usd=dollars_of(state.meta),
            context_used=state.meta.tokens,
            warnings=tuple(ledger.report.warnings),
            duplicate=True,
            model=state.meta.model,
            output=None if self._answer is None else self._answer.stored(state, stored, self._beginning.key),
        )
        ledger.identify(state.meta, stored.number)
        if ledger.listening:
            if stored.text:
                yield Emit(TextDelta(stored.text, 1, **ledger.event_ids))
            yield Emit(TurnCompleted(result, self.counts["message_count"], **ledger.event_ids))
        return result

    def _open_reply(self, state: ConversationState) -> Reply:
        """The last reply of the open turn, with the fields that a result shows."""
        opened = state.open
        word = opened.iterations[-1].finish_reason if opened is not None and opened.iterations else ""
        return Reply(entries=(), text=steps.reply_text(state, self._plan.dialect), finish_reason=word)

    # ------------------------------------------------------------------------------------- the exchanges

    def _exchanges(self, voice: Voice) -> Flow[tuple[Reply, Status]]:
        """Ask the model and run tools, until a reply ends the turn."""
        ledger, state = self._ledger, self._ledger.state
        tools, answers = self._beginning.tools, self._beginning.answers
        one_step = self._plan.one_step
        limit: str | None = None
        invalid_in_a_row = pauses = 0
        cited: tuple[Citation, ...] = ()
        said = steps.paused_text(state, self._plan.dialect)
        looks = False
        ended: ending.LastReply | None = None
        if answers or not journal.ready(state):
            yield from run_calls(ledger, tools, allowed=limits.calls_left(ledger), answers=answers)
            state = ledger.state
            if journal.is_waiting(state):
                yield from tell_pending(ledger)
                return self._open_reply(state), "awaiting_tools"
            if one_step:
                return self._open_reply(state), "in_progress"
            limit = limits.stop_at_limit(ledger)
            looks = self._plan.steers
        elif ledger.has_asked and (one_step or ledger.options.on_limit == "answer"):
            # With on_limit="answer" the last model call is still due. With "raise", resuming means to go on,
            # so the limit is not checked before one more reply, unless the turn goes step by step.
            limit = limits.stop_at_limit(ledger)
        output = self._plan.output
        if self._answer is not None and self._answer.is_called(is_new=False):
            answered = self._open_reply(ledger.state)
            if not self._takes_stored(voice, answered):
                return (yield from self._told(answered)), "complete"
            limit = None
        while True:
            if looks:
                yield from ledger.take_in()
            looks = False
            if ledger.options.compactor is not None:
                yield from shrink.compact_before_request(ledger, lambda: voice)
            if ended is not None and (words := words_of(self._plan, voice)):
                ending.with_type(ledger, words)
            asking = ask(
                ledger,
                voice.after_first() if ledger.has_asked or ended is not None else voice,
                shrink=lambda: shrink.shrink_for_context(ledger, lambda: voice),
                booked=partial(
                    self._booked, voice, said, cited, is_last=limit is not None, may_pause=pauses < MAX_PAUSES
                ),
                forbid_tools=limit is not None,
            )
            if output is not None and ledger.plan.stream:
                asking = with_partials(asking, output, said)
            if ended is not None:
                asking = ending.or_ended(ledger, asking, ended)
            reply = yield from asking
            if ended is not None and reply is ended.reply:  # the provider did not take the new messages
                return reply, "complete"
            ended, state = None, ledger.state
            is_open = state.open is not None
            if is_open:
                # Keep the reply before a listener hears of it, and before its first tool runs. After a crash
                # the next process then goes on from this reply, and does not pay for it again.
                yield from ledger.checkpoint()
            if ledger.listening:
                yield Emit(self._replied(state, reply, voice.model))
            if not is_open:
                if reply.stop == "pause":
                    ledger.warn("limit_reached", f"the provider paused its reply {pauses + 1} times")
                status = _status(reply, limited=limit is not None)
                if status == "complete":
                    ended = yield from self._goes_on(voice, reply)
                if ended is None:
                    return reply, status
                said, cited, invalid_in_a_row, pauses = "", (), 0, 0
                continue
            if output is not None and not reply.calls and reply.stop != "pause":
                if (yield from self._is_answered(voice, reply)):
                    ended = yield from self._goes_on(voice, reply)
                    if ended is None:
                        return reply, "complete"
                    said, cited, invalid_in_a_row, pauses = "", (), 0, 0
                    continue
                if one_step:
                    return reply, "in_progress"
                said, cited, limit = "", (), limits.stop_at_limit(ledger)
                continue
            if one_step and limit is None:
                return reply, "in_progress"
            said, cited = "", ()
            if reply.stop == "pause" and pauses < MAX_PAUSES:
                pauses += 1
                said, cited = reply.text, reply.citations
                continue
            if limit is not None:
                yield from refuse_calls(ledger)
                return reply, self._close(voice, "limited")
            valid = yield from run_calls(ledger, tools, allowed=limits.calls_left(ledger))
            if self._answer is not None and self._answer.is_called(is_new=True):
                self._close(voice, "complete")
                ended = yield from self._goes_on(voice, reply)
                if ended is None:
                    return reply, "complete"
                said, cited, invalid_in_a_row, pauses = "", (), 0, 0
                continue
            if journal.is_waiting(ledger.state):
                yield from tell_pending(ledger)
                return reply, "awaiting_tools"
            invalid_in_a_row = 0 if valid else invalid_in_a_row + 1
            limit = limits.stop_at_limit(ledger, invalid_in_a_row)
            looks = self._plan.steers

    def _goes_on(self, voice: Voice, reply: Reply) -> Flow[ending.LastReply | None]:
        """Begin a turn of messages that came meanwhile; see `ending.goes_on`. None: the call is over."""
        if not self._plan.steers:
            return None
        ended = yield from ending.goes_on(self._ledger, voice, reply)
        if ended is not None and self._answer is not None:
            self._answer.begin_later()
        return ended

    def _stored(self, voice: Voice) -> Flow[Reply | None]:
        """The answer that an earlier process left at the end of the open turn, if it is the answer of this
        call."""
        opened = self._ledger.state.open
        if opened is None or not attempts.ends_with_answer(opened):
            return None
        stored = yield from ending.stored_answer(self._ledger, self._answer, voice)
        return None if stored is None or self._takes_stored(voice, stored) else stored

    def _told(self, stored: Reply) -> Flow[Reply]:
        """Tell the text of a stored answer."""
        ledger = self._ledger
        if ledger.listening and stored.text:
            yield Emit(TextDelta(stored.text, ledger.iteration, **ledger.event_ids))
        return stored

    def _takes_stored(self, voice: Voice, reply: Reply) -> bool:
        """Close the turn with an answer that an earlier process got. True if messages of this call are left
        to send: they get a turn of their own."""
        ledger = self._ledger
        if is_left := ledger.has_own_waiting:
            check_budget(ledger, voice.model)
        else:
            ledger.drop_words()
            ledger.state = steps.with_metadata(ledger.state, ledger.options.metadata)
        self._close(voice, "complete")
        if is_left:
            ledger.begin_behind()
        return is_left

    def _booked(
        self,
        voice: Voice,
        said: str,
        cited: tuple[Citation, ...],
        reply: Reply,
        *,
        is_last: bool,
        may_pause: bool,
    ) -> Reply:
        """Join a new reply to the text and citations before a pause (`said`, `cited`), and close a last turn.

        The last reply of a turn closes it here, in the same entry of the books. A snapshot between the two
        steps would have a complete answer in an open turn, and `resume` would pay for it again.
        """
        ledger = self._ledger
        # The turn stays open: its end would need room that the reply did not find.
        if ledger.oversized:
            return reply
        if said:
            sources = (*cited, *shifted(reply.citations, len(said)))
            reply = replace(reply, text=said + reply.text, citations=sources)
            ledger.report.text = reply.text
        opened = ledger.state.open
        pauses = reply.stop == "pause" and may_pause
        if opened is None or opened.calls or pauses:
            return reply
        wanted = self._plan.output
        if wanted is not None and _status(reply, limited=is_last) == "complete":
            ledger.state = attempts.marked(ledger.state, keep_earlier=wanted.asked.keep_attempts)
        else:
            self._close(voice, _status(reply, limited=is_last), is_unsent=reply.blocks)
        return reply

    def _is_answered(self, voice: Voice, reply: Reply) -> Flow[bool]:
        """Check whether an answer fits the requested type. If it fits, close the turn."""
        if self._answer is not None and not (yield from self._answer.fits(reply.text, is_new=True)):
            return False
        self._close(voice, "complete")
        return True

    def _replied(self, state: ConversationState, reply: Reply, model: str) -> ModelReplied:
        """The event of a reply. `model`: the model of the request, used if the reply does not name one."""
        ledger = self._ledger
        return ModelReplied(
            reply.usage,
            self.counts["message_count"],
            ledger.iteration,
            reply.model or model,
            ledger.report.reply_seconds,
            reply.finish_reason,
            ledger.report.request_id,
            reply.calls,
            reply.text,
            reply.id,
            **ledger.event_ids,
        )

    def _close(self, voice: Voice, status: Status, *, is_unsent: bool = False) -> Status:
        """Make the open turn a part of the history, with its record.

        `is_unsent`: the provider would refuse each later request that has the turn.
        """
        ledger = self._ledger
        if is_unsent:
            ledger.warn(
                "turn_not_sent",
                "the provider refused the turn, and goes on only without it: it stays in the history, and "
                "later requests do not have it",
            )
        settings: dict[str, Any] = {}
        if voice.settings:
            settings = {name: value for name, value in voice.recorded.items() if name not in NOT_STORED}
        opened = ledger.state.open
        if self._plan.steers and opened is not None:
            ids = (opened.facts.get(name, ()) for name in (SAME_CALL, TURN_IDS_FACT))
            ledger.same_call = tuple(id for some in ids for id in some)[-IDS_KEPT:]
        if self._plan.claim:
            ledger.state = inbox.released(ledger.state)
        ledger.state = acts.close(
            ledger.state,
            self._plan.dialect,
            status=status,
            now=ledger.now.wall_ms,
            settings=settings,
            fallback=ledger.fell_back,
            is_unsent=is_unsent,
        )
        return status

    # ------------------------------------------------------------------------------------------ the end

    def _finish(self, voice: Voice | None, reply: Reply, status: Status) -> Flow[ChatResult[Any]]:
        """Compact, encode, and return the result. A paid reply is always encoded.

        A waiting turn is not compacted.
        """
        ledger = self._ledger
        waits = status == "awaiting_tools"
        if waits and self._plan.claim:  # for days, perhaps
            ledger.state = inbox.released(ledger.state)
        is_open = waits or status == "in_progress"
        if voice is not None and not is_open and ledger.options.compactor is not None:
            yield from shrink.compact(ledger, lambda: voice)
        passed = context_warnings(ledger, ledger.state) if ledger.options.context_marks else ()
        if ledger.listening:
            for warning in passed:
                yield Emit(warning)
        # Close before the blob is written: the result's state would lack a message that is appended later.
        ledger.close()
        blob = yield from written(ledger, status if is_open else "complete")
        if isinstance(blob, StateTooLargeError):
            raise ledger.error(
                StateSizeError, f"{blob}; the reply is in err.text, the whole turn in err.state"
            ) from blob
        state, window = ledger.state, ledger.context_window
        meta, report, account = state.meta, ledger.report, ledger.spending.account
        result = self._result = ChatResult(
            text=reply.text,
            state=blob,
            status=status,
            finish_reason=reply.finish_reason,
            pending=journal.pending(state) if waits else (),
            usage=account.usage,
            total_usage=usage_of(meta.total),
            aside_usage=usage_of(meta.aside),
            total_cost_usd=dollars_of(meta),
            iterations=ledger.iteration - ledger.iterations_before,
            actions=tuple(report.actions),
            recall=report.recall,
            tool_log=report.tool_log,
            compaction=report.compaction,
            context_used=meta.tokens,
            context_fraction=meta.tokens / window if window else None,
            warnings=tuple(report.warnings),
            discarded=report.discarded,
            model=reply.model or (voice.model if voice is not None else meta.model),
            request_ids=tuple(report.request_ids),
            citations=reply.citations,
            bill=account.bill,
            # The answer may be of a turn before the last one.
            output=None if self._answer is None or status != "complete" else self._answer.value,
        )
        # After `self._result`: if the checkpoint fails, `snapshot` still has the final blob.
        yield from ledger.checkpoint(blob)
        if ledger.listening and status != "in_progress":
            yield Emit(TurnCompleted(result, self.counts["message_count"], **ledger.event_ids))
        return result


def _status(reply: Reply, *, limited: bool) -> Status:
    if reply.stop == "length":
        return "truncated"
    if reply.stop == "refusal":
        return "refused"
    return "limited" if limited or reply.stop == "pause" else "complete"
