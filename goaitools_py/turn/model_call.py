"""One model call: it sends the request, stores the reply, and changes the request before a repetition.

Owns: the way from the state to a reply in its open turn. Must never know: tools, or the turn's next step.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import inf
from typing import Final

import msgspec

from ..backends.base import BackendError, Fault, ModelRequest, ProtocolFault, Reply, RequestParts
from ..backends.host_rules import GUESSES, joined_rules, known_letters, rule_names
from ..backends.protocols import HostRules, ViewsHistory
from ..base.rawjson import MAX_DEPTH
from ..base.values import replace
from ..history.rewrite.repair import repaired
from ..history.rewrite.rewritten import unsign, unsign_open
from ..open_turn import acts, steps
from ..open_turn.meter import server_window
from ..state.records import host_row, with_host
from ..state.state import ConversationState
from ..types.errors import StateInvalidError, TurnError
from ..types.events import ModelRequested, Retried, TextDelta
from .flow import CallModel, Emit, Flow
from .ledger import Ledger, ReturnPoint
from .model_failures import REFUSES_FORMS, blames_content, oversized, turn_error
from .receive import Call, ReplyTooLarge, receive
from .request import Voice, host_mark, request_parts, settled
from .retry import Failure, failure_of, with_retries
from .timing import CallTimes
from .turn_state import Rewrite

__all__ = ["ask"]

_TOO_LARGE: Final = 413
"""The request is too large: because of the history if a cut helps, else because of the new messages."""

_BLAMES_HISTORY: Final = ("rejected", "signature")
"""Kinds of faults that a forged or damaged history may cause."""


def ask(
    ledger: Ledger,
    voice: Voice,
    *,
    shrink: Callable[[], Flow[bool]],
    booked: Callable[[Reply], Reply],
    forbid_tools: bool = False,
) -> Flow[Reply]:
    """Ask the model. When this returns, the answer is in the open turn.

    Args:
        ledger: The books of the turn.
        voice: The other parts of the request: model, preamble, tools, settings.
        shrink: Called when the history does not fit into the model's context. Returns True if it is smaller
            now.
        booked: Called as soon as the reply is in the open turn, before other code can see the state. Its
            result is the answer.
        forbid_tools: True: the model may call no tool.

    Raises:
        TurnError: There is no reply. The error has everything needed to go on.
    """
    ledger.iteration += 1
    ledger.rewrites = ()  # the reply before has put them into the state
    # Return the flow without a generator around it: each read of a long stream passes every open generator.
    remedies = _Remedies(ledger, shrink, partial(request_parts, ledger, voice, forbid_tools=forbid_tools))
    return with_retries(
        ledger,
        partial(_attempt, ledger, voice, booked, forbid_tools),
        remedy=remedies.apply,
        error=remedies.error,
    )


# ------------------------------------------------------------------------------------- one attempt


def _attempt(
    ledger: Ledger, voice: Voice, booked: Callable[[Reply], Reply], forbid_tools: bool
) -> Flow[Reply]:
    """Send once. Raises `Failure`; the state is as before unless the provider took the request."""
    call = yield from _prepared(ledger, voice, forbid_tools)
    book: Callable[[Reply], Reply] = partial(ledger.entered, _take_and_book, ledger, call, booked)
    try:
        content_type = yield from _sent(ledger, call)
        read = yield from receive(ledger, call, content_type, book)
        came = yield from read
    except (TurnError, AssertionError):
        raise  # an assertion comes from a test, not from a provider
    except ReplyTooLarge as exc:
        raise oversized(ledger, str(exc)) from None
    except Exception as exc:
        raise (yield from _failed(ledger, call, exc)) from exc
    if not came.entries and _is_asked_again(ledger, call, came):
        raise _nothing_said(ledger, call, came)
    # The reply is paid for, and no state holds it before the next line is done. An exit before that line
    # would lose it. So every check and every event of the reply comes after it, and the clock is not read.
    reply = book(came)
    if ledger.oversized:
        raise oversized(ledger, ledger.oversized)
    if call.request.stream and not call.is_stream and came.text:
        # The server answered a streaming request with a body: its listeners have seen no text yet.
        yield Emit(TextDelta(came.text, ledger.iteration, **ledger.event_ids))
    return reply


def _prepared(ledger: Ledger, voice: Voice, forbid_tools: bool) -> Flow[Call]:
    """Prepare the call. The provider has not seen it yet, so the state can still go back."""
    if ledger.has_acted or ledger.listening or ledger.options.compactor is not None:
        # Otherwise this is the turn's first request, and no callback, compactor or tool has run since the
        # turn read the clock.
        yield from ledger.tick()
        ledger.check_deadline()
    ledger.admit_appended()
    ledger.partial_text, ledger.streamed = "", None
    times = ledger.call_times(is_streamed=ledger.plan.stream)
    parts = request_parts(ledger, voice, forbid_tools=forbid_tools)
    if parts.left_out and not ledger.tried.has_told_left_out:
        _tell_left_out(ledger, parts)
    request = _timed(ledger.dialect.request(parts), times, ledger.now.monotonic)
    edits = "context_management" in parts.settings
    call = Call(ledger, request, times, voice.model, edits_context=edits)
    if ledger.listening:
        yield Emit(ModelRequested(ledger.iteration, len(request.body), request.body, **ledger.event_ids))
    return call


def _tell_left_out(ledger: Ledger, parts: RequestParts) -> None:
    """Warn that the request goes without parts of the history that a model could read."""
    ledger.tried.has_told_left_out = True
    told = ", ".join(f"{kind}: {number}" for kind, number in parts.left_out.items())
    ledger.warn(
        "view_changed",
        f"the request goes without older parts of the history: the server takes only so many ({told}). The "
        "stored history has not changed",
    )


def _timed(request: ModelRequest, times: CallTimes, now: float) -> ModelRequest:
    """The request with its timeouts: for the whole answer, and for the headers if that one is shorter."""
    whole = times.left(now, begun=True)
    head = whole if times.first == inf else times.left(now, begun=False)
    return replace(request, timeout=whole, head_timeout=None if head == whole else head)


def _sent(ledger: Ledger, call: Call) -> Flow[str]:
    """Send the request, note that the provider took it, and return the content type of its answer.

    When the headers arrive, the messages move from the inbox into the open turn, before a byte of the reply
    is read. So a turn that breaks off now knows that its question was asked, and a part of the reply can be
    noted in the open turn.
    """
    ledger.has_acted = True  # before the call: an exit inside it may come after the provider took the request
    head = yield CallModel(call.request)
    ledger.report.request_id = head.request_id or ""
    if head.request_id:
        ledger.report.request_ids.append(head.request_id)
    state = ledger.state
    if state.open is not None and (state := settled(ledger, state)) is not ledger.state:
        ledger.warn(
            "calls_dropped", "a new message followed a paused reply; its unanswered calls were cut out"
        )
    ledger.state = steps.accept(
        state,
        call.before.inbox if call.others is None else call.others.besides(call.before.inbox),
        ledger.dialect,
        at=call.asked_ms,
        metadata=ledger.options.metadata,
        unsent=call.others.turn_ids if call.others is not None else (),
        same_call=ledger.same_call,
    )
    content_type: str = head.headers.get("content-type", "")
    return content_type


def _failed(ledger: Ledger, call: Call, exc: Exception) -> Flow[Failure]:
    """Turn an exception on the way to a reply into a `Failure`.

    The state goes back if the provider accepted nothing.
    """
    shown = call.was_shown
    if isinstance(exc, BackendError):
        yield from ledger.tick()  # the clock tells which time limit has passed, if one has
        failure = failure_of(
            exc,
            ledger.dialect,
            call.times,
            now=ledger.now.monotonic,
            is_streamed=call.request.stream,
            begun=call.has_begun,
            shown=shown,
        )
        if failure.fault.kind == "protocol":
            ledger.partial_text = exc.refused_text  # for the error only: it is no part of the history
        return failure
    if isinstance(exc, ProtocolFault):
        if exc.usage is not None:
            ledger.book_broken(exc.usage, asked=call.model)
        shown = shown or bool(exc.partial_text)  # the text is paid for, and the open turn keeps it
        if exc.fault.kind != "interrupted" and not shown:
            # The answer holds no part of a reply, for example a proxy's page: the model accepted nothing.
            ledger.state = steps.not_accepted(ledger.state, call.before)
        return Failure(exc.fault, exc, shown=shown)
    # The backend raised an unknown exception. The turn keeps its state all the same.
    return Failure(Fault(kind="unavailable", code=type(exc).__name__), exc, shown=shown)


# ------------------------------------------------------------------------------------ an empty reply

_EMPTY: Final = Fault(kind="protocol", code="empty_reply", retryable=True)
"""The fault of an empty reply whose request is repeated. It is compared by identity: a server's own error may
have the same code."""


def _is_empty(reply: Reply) -> bool:
    """True for a reply that ended by itself or at a limit, without text and without a tool call."""
    return not reply.entries and not reply.calls and reply.stop in ("end", "length")


def _is_asked_again(ledger: Ledger, call: Call, reply: Reply) -> bool:
    """True if the request of an empty reply is to be repeated: once in a turn, if the plan allows retries.

    The reply must have no output tokens, and no listener may have seen a part of it.
    """
    return (
        _is_empty(reply)
        and reply.stop == "end"
        and not (reply.text or reply.reasoning or reply.usage.output_tokens or call.was_shown)
        and not ledger.tried.has_asked_again
        and ledger.plan.max_retries > 0
    )


def _nothing_said(ledger: Ledger, call: Call, reply: Reply) -> Failure:
    """The failure for an empty reply whose request is repeated. Books its input, and sets the state back."""
    ledger.tried.has_asked_again = True
    ledger.book_broken(reply.usage, asked=call.model)
    ledger.state = steps.not_accepted(ledger.state, call.before)
    return Failure(_EMPTY, ProtocolFault("the reply is empty", _EMPTY))


# ---------------------------------------------------------------------------- a reply in the open turn


def _take_and_book(ledger: Ledger, call: Call, booked: Callable[[Reply], Reply], reply: Reply) -> Reply:
    return booked(_take(ledger, call, reply))


def _take(ledger: Ledger, call: Call, reply: Reply) -> Reply:
    """Put a complete reply into the open turn, without the calls that may not run.

    This may run twice, from the beginning: see `Ledger.entered`.
    """
    ledger.streamed = None  # clear it before the reply enters the state: a snapshot would have its text twice
    if ledger.tried.rules:
        _learn(ledger)
    if ledger.rewrites:
        ledger.enter_rewrites()
    ledger.report.reply_seconds = ledger.now.monotonic - call.began.monotonic
    kept = reply
    if reply.calls and not reply.run_calls:
        ledger.warn("calls_dropped", "the reply stopped before its tool calls were whole; they were not run")
        kept = ledger.dialect.without_calls(reply)
    elif reply.calls:
        kept, rewritten = acts.with_fresh_ids(ledger.state, reply, ledger.dialect)
        if rewritten:
            ledger.warn(
                "call_ids_rewritten", f"{rewritten} tool call ids had been used before and were rewritten"
            )
    elif not reply.entries and _is_empty(reply):
        ledger.warn("empty_reply", "the model's reply holds no text and no call; nothing of it was stored")
    if reply.cut:
        ledger.warn(
            "reply_cut", f"parts of the reply nest deeper than {MAX_DEPTH} levels; they were not stored"
        )
    if reply.dropped:
        reasons = ", ".join(sorted(set(reply.dropped)))
        ledger.warn(
            "input_dropped", f"the provider left {len(reply.dropped)} parts of the history out ({reasons})"
        )
    ledger.book(reply.usage, asked=call.model, answered=reply.model, cost_usd=reply.cost_usd)
    for model, usage in reply.asides.items():
        ledger.book_aside(
            usage,
            asked=model or call.model,
            answered=model or reply.model,
            dialect=ledger.dialect,
            cost_usd=None if reply.cost_usd is None else Decimal(0),  # `reply.cost_usd` contains it
        )
    ledger.report.text = reply.text or ledger.report.text
    taken = acts.take_reply(
        ledger.state,
        kept,
        ledger.dialect,
        ledger.room,
        text=reply.text,
        asked=call.asked_ms,
        ms=round(ledger.report.reply_seconds * 1000),
        counter=None if ledger.options.token_counter is None else ledger.counter,
        calibrates=ledger.options.compactor is not None,  # only its trigger asks for estimates
        request_id=ledger.report.request_id if ledger.options.record_ids else "",
        watches=not (call.edits_context or reply.asides or reply.dropped),
    )
    if taken.window:
        _tell_window(ledger, taken.window)
    ledger.oversized, ledger.state = taken.problem, taken.state
    return kept


def _tell_window(ledger: Ledger, window: int) -> None:
    """Warn once that the server cuts the prompt, and use the size of the cut as the context window."""
    if not server_window(ledger.state.meta):
        ledger.warn(
            "context_cut_by_server",
            f"the server has counted {window} tokens of a longer history and has cut the rest, without an "
            "error; that is taken for its context window. A compactor shrinks the history to that size, or "
            "give the server a larger window (Ollama: num_ctx)",
        )
    ledger.see_window(window)


# -------------------------------------------------------------------------- before it is sent again


class _Remedies:
    """Changes that may make a provider accept the request that it has just refused.

    Each change comes to an end: a cut must make the history smaller, a turn sends at most three requests in
    the form of another host, and the other changes run once in a turn.

    After any failure the stored history is as it was before the first change: only a reply shows that a
    change was right. Rules of hosts and rewrites enter the state with the reply. An emergency cut is undone,
    unless the provider goes on to blame the size.

    Args:
        ledger: The books of the turn.
        shrink: See `ask`.
        parts: Writes the next request as it is now.
    """

    __slots__ = ("_guesses", "_ledger", "_named", "_parts", "_shrink", "_uncut")

    def __init__(
        self, ledger: Ledger, shrink: Callable[[], Flow[bool]], parts: Callable[[], RequestParts]
    ) -> None:
        self._ledger = ledger
        self._shrink = shrink
        self._parts = parts
        self._uncut: ReturnPoint | None = None
        """The turn's position before the history was cut."""
        self._guesses: list[str] | None = None
        self._named = ""

    def apply(self, failure: Failure) -> Flow[bool]:
        """Change the next request. True if it has changed, and may be sent at once."""
        ledger, fault, status = self._ledger, failure.fault, failure.status
        if fault is _EMPTY:
            if ledger.listening:
                yield Emit(Retried(1, 0.0, fault.kind, None, None, **ledger.event_ids))
            return True
        if self._uncut is not None and (status == _TOO_LARGE or _blames_input(ledger, failure)):
            # The request is refused again after a cut: the history is not too large. So undo the cut first:
            # the turn ends here, or it goes on with its whole history.
            ledger.go_back(self._uncut)
        if fault.kind == "context" or status == _TOO_LARGE:
            uncut = ledger.return_point()
            if (yield from self._shrink()):
                self._uncut = uncut
                return True
        if fault.kind == "signature" and _unsign(ledger):
            return True
        refuses_form = fault.kind in _BLAMES_HISTORY and status in REFUSES_FORMS
        # The rules that the server's words name come first: they leave the stored history as it is.
        if refuses_form and self._view(known_letters(fault.rules), on=ledger.tried.rules):
            return True
        if refuses_form and _repair(ledger):
            return True
        if not blames_content(failure):
            return False
        if _leave_waiting(ledger):
            return True
        if refuses_form and self._guess():
            return True
        # The request was refused in each form: the forms were not the cause.
        ledger.tried.rules, ledger.rewrites = "", ()
        return False

    def error(self, failure: Failure) -> TurnError:
        """The error of a turn that gets no reply."""
        ledger, uncut = self._ledger, self._uncut
        blames_size = failure.fault.kind == "context" or failure.status == _TOO_LARGE
        # A compactor's cut was asked for, and its summary may be paid for: it stays.
        is_emergency = any(warning.code == "emergency_cut" for warning in ledger.report.warnings)
        if uncut is None or blames_size or not is_emergency:
            return turn_error(ledger, failure)
        if ledger.state.open is uncut.position.state.open:  # no request with the cut was accepted
            ledger.go_back(uncut)
        return turn_error(ledger, failure)

    def _guess(self) -> bool:
        """Change a form that the server may have refused without saying so. False if nothing is left to try.

        Each guess is tried once, on the rules that the server's words have named, not on an earlier guess.
        """
        ledger = self._ledger
        is_own = not getattr(ledger.dialect, "host", "")
        if self._guesses is None:
            # The provider's own host is the strictest. Servers that need more want it beside calls of tools.
            most = 1 if is_own else len(GUESSES) if self._has_calls() else 2
            self._guesses, self._named = [GUESSES[0], _NO_SIGNED, *GUESSES[1:most]], ledger.tried.rules
        while self._guesses:
            guess = self._guesses.pop(0)
            if guess == _NO_SIGNED:
                # Servers check signatures of each other's thinking, and not all say so.
                if not ledger.tried.has_unsigned and _unsign(ledger):
                    if not is_own:  # only the provider's own host drops thinking of the open turn by itself
                        _unsign(ledger)
                    return True
            elif self._view(guess, on=self._named):
                return True
        return False

    def _has_calls(self) -> bool:
        """True if the request offers tools, or if its history has calls of tools."""
        parts, dialect = self._parts(), self._ledger.dialect
        return bool(parts.tools) or (
            isinstance(dialect, ViewsHistory)
            and dialect.request_view(parts, HostRules(letters="t")) is not parts
        )

    def _view(self, letters: str, *, on: str) -> bool:
        """Let the next request have the form of a host with more rules. False if that changes nothing.

        The server has refused a request that the common rules of its API allow. The stored history stays as
        it is, because another server may need the form that this one refuses.

        Args:
            letters: The rules to try.
            on: The letters that are tried already.
        """
        tried, seen = self._ledger.tried, self._ledger.tried.rules
        if not letters or tried.views >= _MOST_VIEWS:
            return False
        given = self._parts()
        tried.rules = joined_rules(on, letters)
        if self._parts() != given:
            tried.views += 1
            return True
        tried.rules = seen
        return False


_NO_SIGNED: Final = ""
"""Stands among the guesses for a request without signed thinking."""

_MOST_VIEWS: Final = 3
"""The most requests of a turn that are repeated in another form."""


def _learn(ledger: Ledger) -> None:
    """Note the rules of this host that the turn has tried: a request in their form was answered."""
    tried, meta = ledger.tried, ledger.state.meta
    host = host_mark(ledger.dialect)
    row = host_row(meta.hosts, host)
    known = row.rules if row is not None else ""
    rules = joined_rules(known, tried.rules)
    if rules == known:
        return  # an earlier request of this turn was answered in this form
    ledger.state = replace(
        ledger.state, meta=msgspec.structs.replace(meta, hosts=with_host(meta.hosts, host, rules))
    )
    ledger.warn(
        "view_changed",
        "the server refused the form of the request; it and later ones are sent to this server in another "
        f"form ({rule_names(tried.rules)}). The stored history has not changed",
    )


def _blames_input(ledger: Ledger, failure: Failure) -> bool:
    """True if the context is too small because of the new messages: they are larger than the history."""
    state = ledger.state
    waiting = sum(len(item.entry) for item in state.inbox)
    return failure.fault.kind == "context" and waiting > state.history_bytes()


def _leave_waiting(ledger: Ledger) -> bool:
    """Go on without the messages of others in a shared conversation, once in a turn.

    False if that changes nothing. If the provider refuses the request again, those messages are not the
    cause, and stay in the conversation too.
    """
    if not ledger.leave_waiting():
        return False
    ledger.warn(
        "left_waiting",
        "the provider refused the request; the turn went on without the messages that had waited in the "
        "conversation: they wait on, and go along with the next turn",
    )
    return True


def _unsign(ledger: Ledger) -> bool:
    """Leave out signed blocks that the provider refuses. False if the history has no signed blocks.

    The first time the closed turns go without them. The second time the open turn does, because the provider
    may be unable to drop them itself.
    """
    reason = "the provider refused the history's signed thinking"
    state, dialect = ledger.tried_state, ledger.dialect
    if not state.meta.signed:
        return False
    if not ledger.tried.has_unsigned:
        ledger.tried.has_unsigned = True
        at, retention = ledger.at_ms, ledger.retention(ledger.retained_bytes)
        _try(
            ledger,
            lambda now: unsign(now, dialect, at=at, retention=retention) if now.meta.signed else now,
            lambda _, now: ledger.tell_unsigned(reason, now),
        )
        return True
    if unsign_open(state, dialect) is state:
        return False
    words = f"{reason}: the thinking of the running turn was taken out, too"
    _try(ledger, lambda now: unsign_open(now, dialect), lambda *_: ledger.warn("thinking_removed", words))
    return True


def _repair(ledger: Ledger) -> bool:
    """Repair the closed history after a refusal, once in a turn. False if it needs no repair."""
    if ledger.tried.has_repaired:
        return False
    ledger.tried.has_repaired = True
    given, dialect = ledger.tried_state, ledger.dialect
    retention = ledger.retention(ledger.retained_bytes)
    try:
        state, log = repaired(given, dialect, retention=retention)
    except StateInvalidError:
        return False
    if not log:
        return False
    _try(
        ledger,
        # A large history takes long, so the next request has this very repair of it.
        lambda now: state if now is given else repaired(now, dialect, retention=retention)[0],
        lambda before, now: ledger.tell_repaired(before, now, log),
    )
    return True


def _try(
    ledger: Ledger,
    made: Callable[[ConversationState], ConversationState],
    told: Callable[[ConversationState, ConversationState], None],
) -> None:
    """Let the next requests have a change of the stored history; see `Rewrite`."""
    ledger.rewrites = (*ledger.rewrites, Rewrite(made, told))
