"""The turn, written once: a generator that yields effects.

Owns: the order of things in a turn. Must never know: a socket, a thread, a loop, a clock, or a wire's JSON.

::

    load -> close what was left open -> take messages and answers in -> check budget and size
      ask:        history + open turn + inbox -> CallModel -> ReadChunk… -> reply     (asking)
      run calls:  journal -> Checkpoint -> CallTool -> AwaitTool -> journal … -> ask  (calling)
    close the turn -> compact (shrink) -> encode -> ChatResult

`TurnEngine.snapshot` is a complete, resumable blob at every instant: each step replaces one frozen state
in the turn's books (`ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from ..backends.base import Reply
from ..backends.capabilities import capabilities
from ..citations import Citation, shifted
from ..errors import (
    BudgetExceededError,
    LimitExceededError,
    NothingToResumeError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateInvalidError,
    StateProviderError,
    StateSizeError,
    StateTooLargeError,
    ToolPendingError,
    TurnConflictError,
    TurnError,
)
from ..events import (
    ContextWarning,
    Filled,
    ModelReplied,
    StateDiscarded,
    TextDelta,
    TurnCompleted,
    TurnStarted,
)
from ..messages import Message
from ..result import ChatResult, Status, WarningCode
from ..state.records import dollars_of, usage_of
from ..state.state import (
    ConversationState,
    check_revision,
    closed_turns,
    hard_limits,
    load_state,
    new_state,
    newest_number,
)
from ..values import replace
from . import inbox, journal, limits, meter, shrink, turn_ids
from .answered import late_answers
from .asking import ask
from .calling import refuse_calls, run_calls, with_answers
from .fitting import Fitting
from .flow import Emit, Flow
from .ledger import Ledger, Plan
from .repair import checked
from .room import CALL_BYTES, RESULTS, stored_size
from .turn_ids import StoredReply
from .voice import STICKY, Tools, Voice, voice_of

__all__ = ["Plan", "TurnEngine"]

INVALID_REPLIES_IN_A_ROW: Final = 3
MAX_PAUSES: Final = 8
"""How often a reply that the provider paused is asked to go on."""

_DIGIT_BITS: Final = 4
_DIGIT: Final = 15
"""`Meta.warned` has four bits for each of what a history fills: how many marks were told of."""

_SHRINK: Final = "a compactor would shrink it; without one, old turns are dropped at the limit"
_FILLED: Final[Mapping[Filled, tuple[str, str]]] = {
    "tokens": ("the model's {} tokens", "a compactor would shrink it"),
    "blob_bytes": ("the state's max_blob_bytes={}", _SHRINK),
    "decoded_bytes": ("the state's max_decoded_bytes={}", _SHRINK),
    "entries": ("the state's max_entries={}", _SHRINK),
}

_NOT_STORED: Final = frozenset({"extra_body", "extra_headers"})
_DAMAGED: Final = (StateFormatError, StateCorruptError, StateInvalidError)
"""What `on_bad_state=None` answers with a fresh conversation; a newer or an unauthentic blob raises."""


class TurnEngine:
    """One turn. `run` is its flow; `snapshot` its state at this instant."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ledger = Ledger(plan)
        self._tools: Tools = {}
        self._resumes = plan.resume
        self._messages = plan.messages
        self._answers = plan.answers
        self._denies = False
        self._key: turn_ids.TurnKey | None = None
        self._result: ChatResult | None = None

    def run(self) -> Flow[ChatResult]:
        """The turn's flow: yields effects, returns the result, raises typed errors."""
        ledger = self._ledger
        self._plan.codec.check(ledger.options.binding)
        yield from ledger.tick()
        if ledger.options.timeout is not None:
            ledger.deadline = ledger.now.monotonic + ledger.options.timeout
        state = self._load()
        if ledger.discarded is not None and ledger.listening:
            ledger.identify(state.meta, state.meta.processed + 1)
            yield Emit(StateDiscarded(ledger.discarded, **ledger.of))
        self._recognise(state)
        if self._key is not None and turn_ids.is_finished(state.meta, self._key):
            stored = turn_ids.stored_reply(state, self._key, self._plan.dialect)
            return (yield from self._repeat(state, stored))
        if self._answers and (again := self._answered_before(state)) is not None:
            return (yield from self._repeat(state, again))
        if journal.is_waiting(state) and not self._resumes:
            pending = journal.pending(state)
            if ledger.options.on_pending == "raise":
                raise ToolPendingError(
                    f"the state waits for answers to {len(pending)} tool calls: give them to resume, or say "
                    "what a new message does with on_pending='deny' or 'queue'",
                    pending,
                )
            if ledger.options.on_pending == "queue":
                queued = journal.with_metadata(self._admitted(state), ledger.options.metadata)
                ledger.begin(state, queued, has_grown=False)
                ledger.identify(state.meta, state.meta.processed + 1)
                yield from self._check_queue(state)
                return (yield from self._finish(None, self._open_reply(), "awaiting_tools"))
            state, self._denies = journal.deny_waiting(state), True
        voice = self._admit(state)
        self._check_budget(voice.model)
        yield from self._check_size()
        if ledger.listening:
            yield Emit(TurnStarted(**ledger.of))
        try:
            reply, status = yield from self._exchanges(voice)
            return (yield from self._finish(voice, reply, status))
        except TurnError as exc:
            if ledger.close():  # said since the error was made
                ledger.refresh(exc)
            raise
        except AssertionError:
            raise
        except Exception as exc:
            if not ledger.has_acted:
                raise  # the given state is as good as before
            failure = exc
        ledger.close()
        raise ledger.broken_off(failure).because_of(failure)

    def snapshot(self) -> bytes:
        """A complete blob of this instant; `resume` goes on from it."""
        return self._result.state if self._result is not None else self._ledger.snapshot()

    @property
    def discarded(self) -> StateError | None:
        """Why the given state could not be read, if a fresh conversation was begun."""
        return self._ledger.discarded

    @property
    def of(self) -> dict[str, str]:
        """What each event of this turn carries."""
        return self._ledger.of

    @property
    def has_acted(self) -> bool:
        """True once a model was asked or a tool started."""
        return self._ledger.has_acted

    @property
    def is_over(self) -> bool:
        """True once there is a result."""
        return self._result is not None

    def append(self, *messages: Message) -> None:
        """Put messages into the inbox of the running turn; its next model call takes them along.

        RuntimeError once the turn is over: the result's state would not have them.
        """
        self._ledger.append(messages)

    # ----------------------------------------------------------------------------------- the beginning

    def _load(self) -> ConversationState:
        plan, ledger = self._plan, self._ledger
        if not plan.blob:
            fresh = self._fresh()
            check_revision(fresh, ledger.options.min_revision)
            return fresh
        try:
            state = load_state(
                plan.blob,
                wire=plan.dialect.wire,
                codec=plan.codec,
                binding=ledger.options.binding,
                min_revision=ledger.options.min_revision,
            )
            journal.check_journal(state, plan.dialect)
            return self._checked(state)
        except StateError as exc:
            exc.blob = exc.blob or plan.blob
            if plan.resume or not self._discards(exc):
                raise
            ledger.discarded = exc
            ledger.warn("state_discarded", f"the given state could not be used, a fresh one began: {exc}")
            return self._fresh()

    def _discards(self, exc: StateError) -> bool:
        """Whether a fresh conversation begins in place of a state that cannot be used."""
        options = self._ledger.options
        if isinstance(exc, StateProviderError):
            # The state is whole, and the chat is configured for another provider API: only who asks for it
            # loses sight of the conversation.
            return options.on_foreign_state == "fresh"
        if options.on_bad_state == "raise":
            return False
        if options.on_bad_state is None and not isinstance(exc, _DAMAGED):
            return False
        _log_damage(exc)
        return True

    def _fresh(self) -> ConversationState:
        identity = self._ledger.options.conversation_id or self._plan.new_id()
        return new_state(self._plan.dialect.wire, id=identity, created=self._ledger.now.wall_ms)

    def _checked(self, state: ConversationState) -> ConversationState:
        """The state with a closed history that the provider takes. Nothing is read if its writer saw to
        that; else what had to be mended is a warning."""
        sound, log = checked(state, self._plan.dialect)
        if log:
            self._ledger.tell_repaired(state, sound, log)
        return sound

    def _admit(self, state: ConversationState) -> Voice:
        """Close what an earlier turn left open, take messages and answers in, and note what changed."""
        plan, ledger, dialect = self._plan, self._ledger, self._plan.dialect
        left_open = state.open is not None and not self._resumes
        if left_open:
            # A turn that its user denied is over. One that failed is answered if its message comes again.
            status = "truncated" if self._denies else turn_ids.UNANSWERED
            state = self._checked(journal.close_turn(state, dialect, status=status))
            ledger.warn(
                "turn_closed", "the state held an unfinished turn; it was closed, and a new one began"
            )
        unfailed = journal.without_failure(state)
        has_changed, state = left_open or unfailed is not state, unfailed
        is_new = inbox.has_unseen(state, self._messages) or ledger.has_appended
        if not (is_new or state.inbox or state.open is not None):
            raise _nothing_to_do(resume=plan.resume, left_open=left_open)
        voice, self._tools = voice_of(plan, state.meta)
        fitting = Fitting(ledger)
        answered = with_answers(
            state,
            self._tools,
            self._answers,
            ledger.options.deps,
            dialect,
            max_bytes=ledger.options.max_tool_result_bytes,
            fitted=fitting,
        )
        if fitting.problem:
            ledger.begin(state, state, has_grown=has_changed)
            raise ledger.error(
                StateSizeError, f"{fitting.problem}; nothing was sent, the calls still wait: answer with less"
            )
        admitted = self._admitted(answered)
        ledger.context_window = plan.context_window or capabilities(voice.model).context_window
        ledger.begin(answered, admitted, has_grown=has_changed or answered is not state)
        ledger.state = self._marked(admitted, voice)
        ledger.identify(ledger.state.meta, ledger.state.meta.processed + 1)
        return voice

    def _recognise(self, state: ConversationState) -> None:
        """Note by its id whether this turn was begun before; then it goes on with what is in the state.

        Raises `TurnConflictError` if something else was said under the id.
        """
        plan, turn_id = self._plan, self._ledger.options.turn_id
        if turn_id is None or plan.resume:
            return
        self._key = turn_ids.key_of(turn_id, plan.dialect.entries(plan.messages))
        said = turn_ids.said_under(state.meta, self._key)
        if said is None:
            return
        if said != self._key.said:
            raise TurnConflictError("this turn_id was used for other messages; give each message its own")
        self._resumes, self._messages = True, ()
        if turn_ids.is_unanswered(state.meta, self._key):
            self._messages = self._asked_again(state, self._key)

    def _asked_again(self, state: ConversationState, key: turn_ids.TurnKey) -> tuple[Message, ...]:
        """What takes up a turn that failed, and that a newer message closed. Its messages stand in the
        history once, and what its tools did stands behind them: a reminder is enough. Where they are not in
        the history any more, they are said again."""
        for _, record in closed_turns(state):
            if key.id in record.facts.get(turn_ids.FACT, ()):
                return (inbox.reminder(self._plan.messages),)
        return self._plan.messages

    def _admitted(self, state: ConversationState) -> ConversationState:
        """The state with this turn's messages, their context and its id."""
        dialect, messages = self._plan.dialect, self._messages
        is_redelivered = self._resumes and not self._plan.resume
        if self._ledger.options.context is not None and not is_redelivered:
            state, found = inbox.with_new_context(state, messages, self._ledger.options.context)
            messages = tuple(found)
        state = inbox.admit(state, messages, dialect)
        metadata = self._ledger.options.metadata
        if metadata and state.inbox:  # kept with what waits: whoever resumes need not give it again
            said = {**state.meta.said, **metadata}
            state = replace(state, meta=msgspec.structs.replace(state.meta, said=said))
        if self._key is not None:
            state = replace(state, meta=turn_ids.begun(state.meta, self._key))
        return state

    def _answered_before(self, state: ConversationState) -> StoredReply | None:
        """Leave out answers to calls that have a result: the first answer holds. If no other is left, the
        reply that the first led to; None if there is something to go on with."""
        most = self._ledger.options.max_tool_result_bytes
        late = late_answers(state, self._answers, self._plan.dialect, max_bytes=most)
        if late is None:
            return None
        if late.other:
            self._ledger.warn(
                "answer_ignored",
                f"{late.other} answers came for calls that had other results already; the first ones hold",
            )
        self._answers = {id: answer for id, answer in self._answers.items() if id not in late.ids}
        if self._answers:
            return None
        if late.reply is not None and not late.in_open_turn:
            return late.reply
        if journal.is_waiting(state):
            return StoredReply(
                text=journal.reply_text(state, self._plan.dialect),
                status="awaiting_tools",
                number=newest_number(state),
            )
        if state.open is None and not state.inbox:
            return StoredReply(text="", status="truncated")
        return None

    def _repeat(self, state: ConversationState, stored: StoredReply) -> Flow[ChatResult]:
        """What was done came again: its reply once more, and nothing else happens."""
        status: Any = stored.status
        blob, ledger = self._plan.blob, self._ledger
        if ledger.close():
            ledger.begin(state, state, has_grown=False)
            blob = ledger.encode(state.meta.status, limits=hard_limits(self._plan.codec))
        self._result = ChatResult(
            text=stored.text,
            state=blob,
            status=status,
            finish_reason=stored.finish_reason,
            pending=journal.pending(state) if status == "awaiting_tools" else (),
            total_usage=usage_of(state.meta.total),
            aside_usage=usage_of(state.meta.aside),
            total_cost_usd=dollars_of(state.meta),
            context_used=state.meta.tokens,
            warnings=tuple(ledger.warnings),
            duplicate=True,
            model=state.meta.model,
        )
        ledger.identify(state.meta, stored.number)
        if ledger.listening:
            if stored.text:
                yield Emit(TextDelta(stored.text, 0, **ledger.of))
            yield Emit(TurnCompleted(self._result, **ledger.of))
        return self._result

    def _open_reply(self) -> Reply:
        """The last reply of the open turn, as far as a result shows it."""
        opened = self._ledger.state.open
        word = opened.iterations[-1].finish_reason if opened is not None and opened.iterations else ""
        return Reply(
            entries=(), text=journal.reply_text(self._ledger.state, self._plan.dialect), finish_reason=word
        )

    def _marked(self, state: ConversationState, voice: Voice) -> ConversationState:
        """The state with digests of what is not stored. A difference to the last request is a warning, and
        the end of thinking that was signed over the old prefix."""
        ledger, meta = self._ledger, state.meta
        marks = {
            # A blob without an id, which another writer made, gets one: two of them would share their keys.
            "id": ledger.options.conversation_id or meta.id or self._plan.new_id(),
            "family": self._plan.dialect.family,
            **voice.marks,
        }
        changed: list[str] = []
        if meta.model and (meta.processed or state.open is not None):
            changed = [name for name in _CHANGES if getattr(meta, name) != marks[name]]
        for name in changed:
            if name == "preamble" and not marks[name]:
                ledger.warn("preamble_missing", "earlier turns had a preamble, this one has none")
            else:
                ledger.warn(*_CHANGES[name])
        own = {k: v for k, v in ledger.options.settings.items() if k in STICKY}
        sticky = {k: v for k, v in {**meta.sticky, **own}.items() if v is not None}
        counted = meter.unanchored(meta) if changed else meta
        ledger.state = replace(state, meta=msgspec.structs.replace(counted, **marks, sticky=sticky))
        if meta.signed and (changed or (meta.unbound and state.open is None)):
            reason = f"the {' and '.join(changed)} changed" if changed else "what stands before it changed"
            ledger.unsign(reason)
        return ledger.state

    def _check_budget(self, model: str) -> None:
        """Raise `BudgetExceededError` before anything is paid for that the conversation must not cost."""
        ledger = self._ledger
        most_allowed = ledger.options.limits
        if most_allowed is None:
            return
        meta = ledger.state.meta
        spent, most = usage_of(meta.total).total_tokens, most_allowed.conversation_max_tokens
        if most is not None and spent >= most:
            raise self._over_budget(f"this conversation has used {spent} tokens of its {most}")
        if not most_allowed.limits_cost:
            return
        if not ledger.knows_price(model):
            raise self._over_budget(
                "there is a limit on costs, and no price is known for the model: pass prices=, install "
                "goaitools-py[prices], or leave the limit out"
            )
        dollars = most_allowed.conversation_max_cost_usd
        if dollars is None:
            return
        cost = dollars_of(meta)
        if cost is None:
            raise self._over_budget(
                "there is a limit on the conversation's cost, and what it has cost so far is not known: some "
                "calls were made without prices="
            )
        if cost >= dollars:
            raise self._over_budget(f"this conversation has cost {cost} US dollars of its {dollars}")

    def _over_budget(self, text: str) -> BudgetExceededError:
        return self._ledger.error(BudgetExceededError, f"{text}; nothing was sent", drop_input=True)

    def _check_size(self) -> Flow[None]:
        """Make sure, before anything is paid for, that the new state will fit. An open turn goes on up to
        the hard limits."""
        ledger, room = self._ledger, self._ledger.room
        more = self._facts_bytes()
        problem = room.soft_problem(ledger.state, more=more)
        if problem is None:
            return
        is_open = ledger.state.open is not None
        if is_open and (problem := room.problem(ledger.state, RESULTS, more=more)) is None:
            return

        def fits(state: ConversationState) -> bool:
            found = (
                room.problem(state, RESULTS, more=more) if is_open else room.soft_problem(state, more=more)
            )
            return found is None

        if (yield from shrink.cut_to_limits(ledger, problem, fits, least=0)):
            return
        raise ledger.error(StateSizeError, f"{problem}; nothing was sent", drop_input=True) from problem

    def _check_queue(self, before: ConversationState) -> Flow[None]:
        """Make sure that the messages behind a waiting turn leave room for its end. If not, the new one is
        handed back, and those that waited before stay."""
        ledger, room = self._ledger, self._ledger.room
        more = journal.unfinished(ledger.state) * CALL_BYTES
        problem = room.problem_alone(ledger.state, more=more)
        if problem is None and (problem := room.soft_problem(ledger.state)) is not None:

            def fits(state: ConversationState) -> bool:
                return room.soft_problem(state) is None

            if (yield from shrink.cut_to_limits(ledger, problem, fits, least=0)):
                return
        if problem is None:
            return
        ledger.begin(before, before, has_grown=False)
        error = ledger.error(StateSizeError, f"{problem}; the message was not queued, nothing was sent")
        error.pending_input = self._messages
        raise error from problem

    def _facts_bytes(self) -> int:
        """The most bytes of what the turn will record beside its messages."""
        options = self._ledger.options
        stored = {name: value for name, value in options.settings.items() if name not in _NOT_STORED}
        return 6 * sum(len(str(known)) for known in (options.metadata, stored) if known)

    def _fit(self, status: str) -> Flow[bytes | StateTooLargeError]:
        """The state as a blob within the soft limits, after one cut if need be. The newest turn stays.

        If a cut does not help either, everything is as it was, and the answer is what is wrong.
        """
        ledger = self._ledger
        try:
            return ledger.encode(status)
        except StateTooLargeError as exc:
            problem = exc

        def fits(state: ConversationState) -> bool:
            return ledger.room.soft_problem(state) is None

        least = 0 if ledger.state.open is not None else 1
        if (yield from shrink.cut_to_limits(ledger, problem, fits, least=least)):
            return ledger.encode(status)
        return problem

    # ------------------------------------------------------------------------------------- the exchanges

    def _exchanges(self, voice: Voice) -> Flow[tuple[Reply, Status]]:
        """Ask, run tools, ask again, until a reply needs nothing more."""
        ledger = self._ledger
        limit: str | None = None
        invalid_in_a_row = pauses = 0
        cited: tuple[Citation, ...] = ()
        said = journal.paused_text(ledger.state, self._plan.dialect)
        if self._answers or not journal.ready(ledger.state):
            yield from run_calls(
                ledger, self._tools, allowed=limits.calls_left(ledger), answers=self._answers
            )
            if journal.is_waiting(ledger.state):
                return self._open_reply(), "awaiting_tools"
            limit = self._limit_reached()
        elif ledger.has_asked and ledger.options.on_limit == "answer":
            limit = self._limit_reached()  # the last call is still due; one that raised is asked to go on
        while True:
            yield from shrink.compact_before_request(ledger, lambda: voice)
            reply = yield from ask(
                ledger,
                voice.after_first() if ledger.has_asked else voice,
                shrink=lambda: shrink.shrink_for_context(ledger, lambda: voice),
                booked=partial(
                    self._booked, voice, said, cited, is_last=limit is not None, may_pause=pauses < MAX_PAUSES
                ),
                forbid_tools=limit is not None,
            )
            opened = ledger.state.open
            if opened is not None:
                yield from ledger.checkpoint()  # kept before anybody is told, and before anything runs
            yield from self._tell_reply(reply, voice.model)
            if opened is None:
                if reply.stop == "pause":
                    ledger.warn("limit_reached", f"the provider paused its reply {pauses + 1} times")
                return reply, _status(reply, limited=limit is not None)
            said, cited = "", ()
            if reply.stop == "pause" and pauses < MAX_PAUSES:
                pauses += 1
                said, cited = reply.text, reply.citations
                continue
            if limit is not None:
                yield from refuse_calls(ledger)
                return reply, self._close(voice, "limited")
            valid = yield from run_calls(ledger, self._tools, allowed=limits.calls_left(ledger))
            if journal.is_waiting(ledger.state):
                return reply, "awaiting_tools"
            invalid_in_a_row = 0 if valid else invalid_in_a_row + 1
            limit = self._limit_reached(invalid_in_a_row)

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
        """A reply that has just come, behind what was `said`, and `cited`, before a pause.

        The turn's last one closes it, before anybody can look: a complete answer is never asked for again.
        """
        ledger = self._ledger
        if ledger.oversized:
            return reply
        if said:
            sources = (*cited, *shifted(reply.citations, len(said)))
            reply = replace(reply, text=said + reply.text, citations=sources)
            ledger.text = reply.text
        opened = ledger.state.open
        pauses = reply.stop == "pause" and may_pause
        if opened is not None and not opened.calls and not pauses:
            self._close(voice, _status(reply, limited=is_last))
        return reply

    def _tell_reply(self, reply: Reply, model: str) -> Flow[None]:
        if self._ledger.listening:
            state = self._ledger.state
            count = state.meta.messages + (state.open.messages if state.open is not None else 0)
            yield Emit(
                ModelReplied(
                    reply.usage,
                    count,
                    self._ledger.iteration,
                    reply.model or model,
                    self._ledger.reply_seconds,
                    reply.finish_reason,
                    self._ledger.request_id,
                    **self._ledger.of,
                )
            )

    def _close(self, voice: Voice, status: Status) -> Status:
        """Make the open turn a part of the history, with what is recorded of it."""
        ledger = self._ledger
        facts: dict[str, Any] = {}
        if status != "complete":
            facts["status"] = status
        if settings := {k: v for k, v in voice.recorded.items() if k not in _NOT_STORED}:
            facts["settings"] = settings
        ledger.state = journal.close_turn(ledger.state, self._plan.dialect, facts=facts, status=status)
        return status

    def _limit_reached(self, invalid_in_a_row: int = 0) -> str | None:
        """The limit that ends the turn, in words and with a warning; None if none is reached."""
        ledger = self._ledger
        code: WarningCode = "limit_reached"
        if invalid_in_a_row >= INVALID_REPLIES_IN_A_ROW:
            code = "invalid_tool_calls"
            limit: str | None = f"{invalid_in_a_row} replies in a row held only invalid tool calls"
        else:
            limit = limits.reached(ledger)
        if limit is None:
            return None
        ledger.warn(code, limit)
        if ledger.options.on_limit == "raise":
            advice = "resume(err.state) goes on by one more reply and its calls, or up to a larger limit"
            raise ledger.error(LimitExceededError, f"{limit}; {advice}")
        return limit

    # ------------------------------------------------------------------------------------------ the end

    def _passed_marks(self) -> list[ContextWarning]:
        """Warn once for each mark that the history has grown beyond, of the context window and of the state's
        limits; the state keeps which. A history that has shrunk below a mark is told of again."""
        ledger = self._ledger
        marks, meta = ledger.options.context_marks, ledger.state.meta
        told = meta.warned
        if not told and self._is_far_below(marks[0]):
            return []
        found: list[ContextWarning] = []
        for at, (of, used, limit) in enumerate(self._fillings()):
            if limit is None:
                continue
            passed = min(_DIGIT, sum(used >= mark * limit for mark in marks))
            known = meta.warned >> _DIGIT_BITS * at & _DIGIT
            told += passed - known << _DIGIT_BITS * at
            if passed > known:
                unit, advice = _FILLED[of]
                ledger.warn(
                    "context_mark",
                    f"the history takes about {used} of {unit.format(limit)}, which is beyond the mark of "
                    f"{marks[passed - 1]:.0%}; {advice}",
                )
                level: Literal["approaching", "at_limit"] = (
                    "at_limit" if passed == len(marks) else "approaching"
                )
                found.append(ContextWarning(level, used, limit, of, **ledger.of))
        if told != meta.warned:
            ledger.state = replace(ledger.state, meta=msgspec.structs.replace(meta, warned=told))
        return found

    def _is_far_below(self, mark: float) -> bool:
        """True if nothing can have reached a mark, as is told by what costs least to know."""
        ledger = self._ledger
        state, soft, window = ledger.state, ledger.room.soft, ledger.context_window
        return (
            (not window or state.meta.tokens < mark * window)
            and not state.inbox
            and state.history_bytes() < mark * min(soft.max_blob_bytes, soft.max_decoded_bytes)
            and sum([segment.entries for segment in state.segments]) < mark * soft.max_entries
        )

    def _fillings(self) -> tuple[tuple[Filled, int, int | None], ...]:
        """What the history takes of all that it could take."""
        ledger = self._ledger
        size, soft = stored_size(ledger.state, self._plan.codec), ledger.room.soft
        return (
            ("tokens", ledger.state.meta.tokens, ledger.context_window),
            ("blob_bytes", size.blob, soft.max_blob_bytes),
            ("decoded_bytes", size.decoded, soft.max_decoded_bytes),
            ("entries", size.entries, soft.max_entries),
        )

    def _finish(self, voice: Voice | None, reply: Reply, status: Status) -> Flow[ChatResult]:
        """Compact and encode. A paid reply is always encoded. A turn that waits is not compacted."""
        ledger = self._ledger
        waits = status == "awaiting_tools"
        if voice is not None and not waits:
            yield from shrink.compact(ledger, lambda: voice)
        for warning in self._passed_marks() if ledger.options.context_marks else ():
            if ledger.listening:
                yield Emit(warning)
        ledger.close()
        blob = yield from self._fit("awaiting_tools" if waits else "complete")
        if isinstance(blob, StateTooLargeError):
            raise ledger.error(
                StateSizeError, f"{blob}; the reply is in err.text, the whole turn in err.state"
            ) from blob
        meta, window = ledger.state.meta, ledger.context_window
        self._result = ChatResult(
            text=reply.text,
            state=blob,
            status=status,
            finish_reason=reply.finish_reason,
            pending=journal.pending(ledger.state) if waits else (),
            usage=ledger.usage,
            total_usage=usage_of(meta.total),
            aside_usage=usage_of(meta.aside),
            total_cost_usd=dollars_of(meta),
            iterations=ledger.iteration,
            actions=tuple(ledger.actions),
            tool_log=ledger.tool_log,
            compaction=ledger.report,
            context_used=meta.tokens,
            context_fraction=meta.tokens / window if window else None,
            warnings=tuple(ledger.warnings),
            discarded=ledger.discarded,
            model=reply.model or (voice.model if voice is not None else meta.model),
            request_ids=tuple(ledger.request_ids),
            citations=reply.citations,
            bill=ledger.bill,
        )
        yield from ledger.checkpoint(blob)
        if ledger.listening:
            yield Emit(TurnCompleted(self._result, **ledger.of))
        return self._result


def _log_damage(exc: StateError) -> None:
    import logging  # not at the top: most turns log nothing

    logging.getLogger("goaitools_py").error(
        "a stored conversation cannot be used, and a fresh one begins (%s, %d bytes): %s",
        type(exc).__name__,
        len(exc.blob),
        exc,
    )


def _nothing_to_do(*, resume: bool, left_open: bool) -> ValueError:
    if resume:
        return NothingToResumeError(
            "there is nothing to resume: nothing in the state is unfinished or waits for an answer; use "
            "chat_with_state with a message"
        )
    if left_open:
        return ValueError(
            "there is no new message, and the state holds an unfinished turn: finish it with resume"
        )
    return ValueError(
        "there is nothing new to answer: pass user=… or messages=…, or append to the state first"
    )


def _status(reply: Reply, *, limited: bool) -> Status:
    if reply.stop == "length":
        return "truncated"
    if reply.stop == "refusal":
        return "refused"
    return "limited" if limited or reply.stop == "pause" else "complete"


_CHANGES: Final[Mapping[str, tuple[WarningCode, str]]] = {
    "preamble": (
        "preamble_changed",
        "the system preamble differs from the last turn's; use context= for what changes",
    ),
    "tools": ("tools_changed", "the tools differ from the last turn's: the prompt cache starts over"),
    "model": ("model_changed", "the model differs from the last turn's"),
    "family": ("endpoint_changed", "the endpoint differs from the last turn's"),
}
