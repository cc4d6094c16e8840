"""One model call: sending, reading, retrying, and what a failure means.

Owns: the way from the state to a reply in its open turn. Must never know: tools, or what comes next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ..backends.base import (
    REDIRECTED,
    BackendError,
    Delta,
    Dialect,
    Fault,
    ModelRequest,
    ProtocolFault,
    Reply,
    RequestParts,
    StreamDecoder,
)
from ..errors import (
    AuthenticationError,
    ContextTooLongError,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    StateInvalidError,
    StateSizeError,
    StreamInterruptedError,
    TurnError,
)
from ..events import ModelRequested, ReasoningDelta, TextDelta
from ..messages import Usage
from ..rawjson import MAX_DEPTH
from ..state.state import hard_limits
from ..values import replace
from . import journal
from .admission import reply_problem
from .bodies import NO_STREAM, ReplyTooLarge, is_event_stream, out_of_time, read_chunks, read_opening
from .deadlines import CallTimes, Passed
from .flow import CallModel, Effect, Emit, Flow, ReadChunk, Sleep
from .ledger import Base, Ledger
from .repair import repaired
from .voice import Voice

__all__ = ["ask", "fetch", "request_parts"]

MAX_REPLY_BYTES: Final = 32 * 2**20
"""A body that is no stream may have so many bytes, or as many as the hard limits of the state if these are
larger: it repeats a part of the request, which is not stored."""

STREAM_OVERHEAD: Final = 16
"""How many times larger a stream may be: its events say little more than a word each. The text in it may be
as large as a body."""

MAX_BACKOFF_SECONDS: Final = 8.0
MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""A provider that asks for a longer wait than this is not waited for: the error says how long it asked."""

_TOO_LARGE: Final = 413
"""Blames the request's size: the history's if a cut helps, else that of what is new."""

_POISON: Final = frozenset({400, 413, 422, None})
"""Statuses that blame the request's content: what no model has accepted leaves the state. None: the
provider said so inside a 200."""

_BLAMES_HISTORY: Final = ("rejected", "signature")
"""Faults whose reason may be a history that was forged, or damaged by whoever wrote it."""


class _Failure(Exception):  # noqa: N818 - internal, becomes a TurnError
    """One request failed: what that means, and whether a listener has seen a part of its reply.

    `passed`: the option whose time was up, if that is why.
    """

    def __init__(self, fault: Fault, cause: BaseException, *, shown: bool, passed: Passed = "") -> None:
        super().__init__(fault.kind)
        self.fault = fault
        self.cause = cause
        self.shown = shown
        self.passed = passed
        self.status: int | None = getattr(cause, "status", None)
        self.request_id: str | None = getattr(cause, "request_id", None)


def ask(
    ledger: Ledger,
    voice: Voice,
    *,
    shrink: Callable[[], Flow[bool]],
    booked: Callable[[Reply], Reply],
    forbid_tools: bool = False,
) -> Flow[Reply]:
    """Ask the model; the answer is in the open turn when this returns.

    Args:
        ledger: The turn's books.
        voice: What to say beside the history.
        shrink: Called when the history does not fit into the model's context; True if it fits better now.
        booked: Called as soon as the reply is in the open turn, before anybody can look; what it returns is
            the answer.
        forbid_tools: Let the model call none.

    Raises:
        TurnError: No reply, with everything needed to go on.
    """
    ledger.iteration += 1
    attempt = 0
    uncut: Base | None = None
    while True:
        try:
            return (yield from _attempt(ledger, voice, booked, forbid_tools))
        except _Failure as exc:
            failure = exc
        # No longer while it is handled: the error would have it, and the server's words, as its context.
        yield from ledger.tick()
        if uncut is not None and (failure.status == _TOO_LARGE or _blames_input(ledger, failure)):
            ledger.go_back(uncut)  # the history was not what is too large
        base = ledger.base()
        if (failure.fault.kind == "context" or failure.status == _TOO_LARGE) and (yield from shrink()):
            uncut = base
            continue
        if failure.fault.kind == "signature" and _unsign(ledger):
            continue
        if failure.fault.kind in _BLAMES_HISTORY and failure.status in _POISON and _repair(ledger):
            continue
        wait = _wait_before_retry(ledger, failure, attempt)
        if wait is None:
            raise _turn_error(ledger, failure)
        attempt += 1
        yield Sleep(wait)


def _blames_input(ledger: Ledger, failure: _Failure) -> bool:
    """True if the context is too small for what is new rather than for the history: that is the larger."""
    waiting = sum(len(item.entry) for item in ledger.state.inbox)
    return failure.fault.kind == "context" and waiting > ledger.state.history_bytes()


def _attempt(
    ledger: Ledger, voice: Voice, booked: Callable[[Reply], Reply], forbid_tools: bool
) -> Flow[Reply]:
    """Send once. Raises `_Failure`; the state is as before unless the provider took the request."""
    yield from ledger.tick()
    ledger.check_deadline()
    ledger.admit_appended()
    _settle(ledger)
    before, began, dialect = ledger.state, ledger.now, ledger.dialect
    ledger.partial_text, ledger.streamed = "", None
    parts = request_parts(ledger, voice, forbid_tools=forbid_tools)
    times = ledger.call_times(is_streamed=ledger.plan.stream)
    request = _timed(dialect.request(parts), times, began.monotonic)
    if ledger.listening:
        yield Emit(ModelRequested(ledger.iteration, len(request.body), **ledger.of))
    asked = max(0, began.wall_ms - before.meta.created)
    shown, begun, unsaid = False, False, ""
    conversation, turn = ledger.of["conversation_id"], ledger.of["turn_ref"]

    def book(reply: Reply) -> Reply:
        # Without another look at the clock: whatever comes between a reply and the books can lose it.
        ledger.streamed = None
        ledger.reply_seconds = ledger.now.monotonic - began.monotonic
        ms = round(ledger.reply_seconds * 1000)
        return _book(ledger, reply, voice.model, booked, asked=asked, ms=ms)

    try:
        ledger.has_acted = True
        head = yield CallModel(request)
        ledger.request_id = head.request_id or ""
        if head.request_id:
            ledger.request_ids.append(head.request_id)
        ledger.state = journal.accept(
            ledger.state, before.inbox, dialect, at=asked, metadata=ledger.options.metadata
        )
        opening: bytes | None = None
        stream = dialect.decoder() if request.stream else None
        if stream is not None:
            named = head.headers.get("content-type", "")
            is_stream = not named.startswith(NO_STREAM)
            if getattr(stream, "reads_events", False):
                opening, is_stream = yield from read_opening(
                    ledger, times, named, max_bytes=_most_bytes(ledger)
                )
            stream = stream if is_stream else None
        if stream is None:
            begun = True
            reply = yield from _read_body(ledger, times, book, opening or b"")
            unsaid = reply.text if request.stream else ""
        else:
            decoder = stream
            ledger.streamed = lambda: decoder.partial_text
            size = said = 0
            most_text = _most_bytes(ledger)
            most_bytes = STREAM_OVERHEAD * most_text
            next_chunk = ReadChunk(times.end(begun=False), timed=True)
            following: Effect = next_chunk
            try:
                while True:
                    if opening is None:
                        ledger.now, chunk = yield following
                    else:
                        chunk, opening = opening, None
                    if not chunk:
                        break
                    size += len(chunk)
                    if size > most_bytes or said > most_text:
                        raise ReplyTooLarge(most_text if said > most_text else most_bytes)
                    deltas = _told(decoder, chunk)
                    if not begun and (deltas or getattr(decoder, "has_begun", False)):
                        begun = True
                        next_chunk = ReadChunk(times.end(begun=True), timed=True)
                    is_late = next_chunk.until is not None and ledger.now.monotonic >= next_chunk.until
                    is_over = is_late or decoder.is_done
                    following, left = next_chunk, len(deltas)
                    for delta in deltas:
                        shown, left, said = True, left - 1, said + len(delta.text)
                        made = TextDelta if delta.kind == "text" else ReasoningDelta
                        event = made(
                            delta.text, ledger.iteration, conversation_id=conversation, turn_ref=turn
                        )
                        if left or is_over:
                            yield Emit(event)
                        else:
                            following = Emit(event, next_chunk)
                    if is_late and not _is_whole(decoder):
                        raise out_of_time()
                    if is_over:
                        break  # what is still to come, if only pings, is not waited for
                yield from ledger.tick()
                reply = decoder.finish()
            except ProtocolFault as exc:
                _note_partial(ledger, decoder, voice.model, books=exc.usage is None)
                raise
            except (TurnError, AssertionError, ReplyTooLarge):
                _note_partial(ledger, decoder, voice.model)
                raise
            except Exception:
                # What breaks after the reply has ended takes nothing with it.
                if not _is_whole(decoder):
                    _note_partial(ledger, decoder, voice.model)
                    raise
                reply = decoder.finish()
            except BaseException:
                if _is_whole(decoder):
                    book(decoder.finish())  # the turn is given up, and its answer is paid for
                else:
                    _note_partial(ledger, decoder, voice.model)
                raise
    except BackendError as exc:
        yield from ledger.tick()
        passed = times.passed(ledger.now.monotonic, begun=begun) if exc.timed_out else ""
        fault = _fault_of(ledger, exc, request.stream)
        if passed:
            fault = Fault(kind="interrupted" if shown else "unavailable", retryable=True)
        raise _Failure(fault, exc, shown=shown, passed=passed) from exc
    except ReplyTooLarge as exc:
        raise _oversized(ledger, str(exc)) from None
    except ProtocolFault as exc:
        if exc.usage is not None:
            ledger.book_broken(exc.usage, asked=voice.model)
        if exc.fault.kind != "interrupted" and not shown:
            # Nothing of a reply came (but a proxy's page, say), so nothing has been accepted.
            ledger.state = journal.not_accepted(ledger.state, before)
        raise _Failure(exc.fault, exc, shown=shown) from exc
    except (TurnError, AssertionError):
        raise  # an assertion is a test's word, not a provider's
    except Exception as exc:
        # A backend that fails in its own way: the turn keeps its state all the same.
        fault = Fault(kind="unavailable", code=type(exc).__name__)
        raise _Failure(fault, exc, shown=shown) from exc
    reply = book(reply)
    if ledger.oversized:
        raise _oversized(ledger, ledger.oversized)
    if unsaid:
        yield Emit(TextDelta(unsaid, ledger.iteration, **ledger.of))
    return reply


def _oversized(ledger: Ledger, problem: str) -> StateSizeError:
    """The error of a turn whose reply is larger than what its state can hold."""
    return ledger.error(
        StateSizeError,
        f"{problem}; its text is in err.text or err.partial_text, err.state goes on without it: ask for "
        "less, or give the codec larger limits=BlobLimits(…)",
    )


def _most_bytes(ledger: Ledger) -> int:
    return max(MAX_REPLY_BYTES, hard_limits(ledger.plan.codec).max_decoded_bytes)


def request_parts(ledger: Ledger, voice: Voice, *, forbid_tools: bool = False) -> RequestParts:
    """What the next request says: the history, what is open, and all that waits."""
    state = ledger.state
    return RequestParts(
        model=voice.model,
        history=_pieces(ledger),
        preamble=voice.preamble,
        tools=voice.tools,
        settings=voice.settings,
        stream=ledger.plan.stream,
        cache_key=state.meta.id or None,
        forbid_tools=forbid_tools,
        carried={
            name: value
            for name, (value, until) in state.meta.carry.items()
            if not until or until > ledger.now.wall_ms
        },
        has_system=state.meta.systems or any(item.letter == "s" for item in state.inbox),
        cache_marks=ledger.has_acted or not ledger.is_cold,
        drop_signed=state.meta.unbound,
    )


def fetch(ledger: Ledger, request: ModelRequest) -> Flow[bytes]:
    """Post a request that asks no model, such as for a count; its answer's body.

    Raises:
        TurnError: There is none; the error's state is the ledger's.
    """
    attempt = 0
    while True:
        try:
            return (yield from _fetched(ledger, replace(request, timeout=ledger.left())))
        except BackendError as exc:
            failed = exc
        yield from ledger.tick()
        failure = _Failure(_fault_of(ledger, failed, False), failed, shown=False)
        wait = _wait_before_retry(ledger, failure, attempt)
        if wait is None:
            raise _turn_error(ledger, failure)
        attempt += 1
        yield Sleep(wait)


def _fetched(ledger: Ledger, request: ModelRequest) -> Flow[bytes]:
    yield from ledger.tick()
    ledger.check_deadline()
    yield CallModel(request)
    chunks: list[bytes] = []
    times = CallTimes.begin(ledger.now.monotonic, turn=ledger.deadline, call=None, first=None)
    try:
        yield from read_chunks(ledger, times, chunks, max_bytes=MAX_REPLY_BYTES)
    except ReplyTooLarge as exc:
        raise BackendError(str(exc), kind="protocol") from None
    return b"".join(chunks)


def _timed(request: ModelRequest, times: CallTimes, now: float) -> ModelRequest:
    """The request with its times: the whole answer's, and the headers' if they have less."""
    whole, head = times.left(now, begun=True), times.left(now, begun=False)
    return replace(request, timeout=whole, head_timeout=None if head == whole else head)


def _settle(ledger: Ledger) -> None:
    """Cut out what a paused reply left open, if new messages come before its continuation."""
    settled = journal.settle(ledger.state, ledger.dialect)
    if settled is not ledger.state:
        ledger.state = settled
        ledger.warn(
            "calls_dropped", "a new message followed a paused reply; its unanswered calls were cut out"
        )


def _is_whole(decoder: StreamDecoder) -> bool:
    try:
        decoder.finish()
    except ProtocolFault:
        return False
    return True


def _pieces(ledger: Ledger) -> list[Any]:
    state = ledger.state
    pieces: list[Any] = state.history()
    if state.open is not None:
        pieces.extend(state.open.entries)
    pieces.extend(journal.waiting_entries(state, ledger.dialect))
    return pieces


def _read_body(
    ledger: Ledger, times: CallTimes, book: Callable[[Reply], Reply], opening: bytes = b""
) -> Flow[Reply]:
    chunks: list[bytes] = [opening] if opening else []
    late: BackendError | None = None
    try:
        yield from read_chunks(ledger, times, chunks, max_bytes=_most_bytes(ledger) - len(opening))
    except BackendError as exc:
        if not exc.timed_out:
            raise
        late = exc
    except (TurnError, AssertionError, ProtocolFault, ReplyTooLarge):
        raise
    except BaseException as exc:
        # As with a stream: what breaks in after the reply has ended takes nothing with it.
        try:
            reply = _whole_reply(ledger.dialect, b"".join(chunks))
        except ProtocolFault:
            raise exc from None
        if isinstance(exc, Exception):
            return reply
        book(reply)
        raise
    body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    try:
        return _whole_reply(ledger.dialect, body)
    except ProtocolFault:
        if late is not None:  # an answer that came whole at the last moment is paid for, and kept
            raise late from None
        raise


def _whole_reply(dialect: Dialect, body: bytes) -> Reply:
    """The reply in a body that was read to its end: some gateways send an event stream to whoever asks."""
    if is_event_stream(body) and getattr(decoder := dialect.decoder(), "reads_events", False):
        _told(decoder, body)
        return decoder.finish()
    return dialect.reply(body)


def _told(decoder: StreamDecoder, chunk: bytes) -> Sequence[Delta]:
    """What a decoder makes of the next bytes, whole: one that is a generator does its work only here."""
    found = decoder.feed(chunk)
    return found if isinstance(found, (list, tuple)) else tuple(found)


def _note_partial(ledger: Ledger, decoder: StreamDecoder, model: str, *, books: bool = True) -> None:
    """Keep text of a reply that broke off in the open turn, flagged, for whoever looks; and what it has cost,
    as far as the provider had said, if this `books` it."""
    text = decoder.partial_text
    ledger.partial_text, ledger.streamed = text, None
    if text:
        ledger.state = ledger.with_partial(ledger.state, text)
    usage: Usage | None = getattr(decoder, "usage_so_far", None)
    if books and usage is not None:
        ledger.book_broken(usage, asked=model)


def _book(
    ledger: Ledger, reply: Reply, model: str, booked: Callable[[Reply], Reply], *, asked: int, ms: int
) -> Reply:
    """Enter a complete reply into the books."""
    return ledger.entered(lambda: booked(_take(ledger, reply, model, asked=asked, ms=ms)))


def _take(ledger: Ledger, reply: Reply, model: str, *, asked: int, ms: int) -> Reply:
    """Put a complete reply into the open turn. Calls that may not run are cut out of what is stored."""
    kept = reply
    if reply.calls and not reply.run_calls:
        ledger.warn("calls_dropped", "the reply stopped before its tool calls were whole; they were not run")
        kept = ledger.dialect.without_calls(reply)
    elif reply.calls:
        kept = _with_fresh_ids(ledger, reply)
    if reply.cut:
        ledger.warn(
            "reply_cut", f"parts of the reply nest deeper than {MAX_DEPTH} levels; they were not stored"
        )
    if reply.dropped:
        reasons = ", ".join(sorted(set(reply.dropped)))
        ledger.warn(
            "input_dropped", f"the provider left {len(reply.dropped)} parts of the history out ({reasons})"
        )
    ledger.book(reply.usage, asked=model, answered=reply.model)
    if reply.aside is not None:
        ledger.book_aside(reply.aside, asked=model, answered=reply.model, dialect=ledger.dialect)
    ledger.text = reply.text or ledger.text
    with_reply = journal.add_reply(
        ledger.state, kept, ledger.dialect, asked=asked, ms=ms, counter=ledger.counter
    )
    ledger.oversized = reply_problem(ledger.room, with_reply, kept)
    if ledger.oversized:
        # What was said stays as the text of a reply that broke off; what was paid stays on the books.
        meta = msgspec.structs.replace(
            ledger.state.meta, total=with_reply.meta.total, usage=with_reply.meta.usage
        )
        ledger.state = ledger.with_partial(replace(ledger.state, meta=meta), reply.text)
    else:
        ledger.state = with_reply
    return kept


def _unsign(ledger: Ledger) -> bool:
    """The provider refuses signed blocks: take them out, once in a turn. False if there are none."""
    state = ledger.state
    if ledger.has_unsigned or not state.meta.signed:
        return False
    ledger.has_unsigned = True
    ledger.unsign("the provider refused the history's signed thinking")
    ledger.set_base(ledger.state)  # whatever comes next: the refused blocks do not come back
    return True


def _repair(ledger: Ledger) -> bool:
    """The provider refuses the request: mend the closed history if that is why, looked at once in a turn.
    False if it is not."""
    if ledger.has_repaired:
        return False
    ledger.has_repaired = True
    given = ledger.state
    try:
        state, log = repaired(given, ledger.dialect)
    except StateInvalidError:
        return False
    if not log:
        return False
    ledger.set_base(state)  # whatever comes next: what was refused does not come back
    ledger.tell_repaired(given, state, log)
    return True


def _with_fresh_ids(ledger: Ledger, reply: Reply) -> Reply:
    """Replace call ids that the conversation already has; a history with both could not be answered."""
    state = ledger.state
    pieces: list[bytes] = [segment.raw() for segment in state.segments]
    if state.open is not None:
        pieces.extend(state.open.entries)
    used = {
        call.id
        for call in reply.calls
        if any(b'"%s"' % call.id.encode("utf-8", "replace") in p for p in pieces)
    }
    if not used:
        return reply
    ledger.warn("call_ids_rewritten", f"{len(used)} tool call ids had been used before and were rewritten")
    asked = len(state.open.iterations) if state.open is not None else 0
    seed = f"{state.meta.id}/{state.meta.processed}/{asked}"
    ids = [
        f"call_{hashlib.sha256(f'{seed}/{n}'.encode()).hexdigest()[:24]}" if call.id in used else call.id
        for n, call in enumerate(reply.calls)
    ]
    return ledger.dialect.with_call_ids(reply, ids)


# ----------------------------------------------------------------------------------------- failures


_MAY_PASS: Final = frozenset({"unavailable", "interrupted", "rate_limit", "protocol"})
"""Kinds of faults that another try may not meet."""


def _fault_of(ledger: Ledger, exc: BackendError, stream: bool) -> Fault:
    if exc.redirect is not None:
        return REDIRECTED
    if exc.status is not None:
        return ledger.dialect.fault(exc.status, exc.headers, exc.body)
    if exc.kind == "interrupted" and not stream:
        return Fault(kind="unavailable", code="interrupted", retryable=True)
    return Fault(kind=exc.kind, retryable=exc.kind in _MAY_PASS)


def _wait_before_retry(ledger: Ledger, failure: _Failure, attempt: int) -> float | None:
    """Seconds until the next try; None to give up. Nothing is retried once a part of it was shown."""
    fault = failure.fault
    if not fault.retryable or fault.kind == "protocol" or failure.shown:
        return None
    if attempt >= ledger.plan.max_retries:
        return None
    wait = fault.retry_after
    if wait is None:
        # Spread the herd without a random source: conversations differ, so their waits do.
        seed = hashlib.sha256(f"{ledger.state.meta.id}/{attempt}".encode()).digest()[0] / 255
        wait = min(0.5 * 2.0**attempt, MAX_BACKOFF_SECONDS) * (1 - 0.25 * seed)
    elif wait > MAX_RETRY_AFTER_SECONDS:
        return None
    left = ledger.left()
    return wait if left is None or wait < left else None


_ERRORS: Final[dict[str, tuple[type[TurnError], str, str]]] = {
    "unavailable": (
        ProviderUnavailableError,
        "the provider could not be reached or is failing",
        "try resume(err.state) later",
    ),
    "rate_limit": (
        RateLimitError,
        "the provider limits the request rate",
        "try resume(err.state) after err.retry_after seconds",
    ),
    "auth": (
        AuthenticationError,
        "the provider refused the credentials",
        "check the API key, then resume(err.state)",
    ),
    "rejected": (
        ProviderRejectedError,
        "the provider refused the request",
        "see err.sdk_error for its words; err.state goes on without err.pending_input",
    ),
    "context": (
        ContextTooLongError,
        "the history does not fit into the model's context",
        "use a compactor, or send less; err.state goes on without err.pending_input",
    ),
    "protocol": (
        ProviderProtocolError,
        "the provider answered 200 with something that is not a reply",
        "check base_url and proxies; resume(err.state) tries again",
    ),
    "signature": (
        ProviderRejectedError,
        "the provider refused signed thinking in the history",
        "see err.sdk_error for its words; err.state goes on without err.pending_input",
    ),
    "interrupted": (
        StreamInterruptedError,
        "the reply broke off before its end",
        "resume(err.state) asks again",
    ),
    "forked": (
        ProviderUnavailableError,
        "the client that the backend was given was used before this process was forked, and two processes on "
        "one connection read each other's replies",
        "make the client and the backend in each process (after the fork), or let the backend make its own "
        "client, then resume(err.state)",
    ),
}


_WAITED: Final[Mapping[str, str]] = {
    "call_timeout": "the model's reply did not end within",
    "first_delta_timeout": "the model's reply did not begin within",
}
"""What did not come in the time that an option gives."""


def _turn_error(ledger: Ledger, failure: _Failure) -> TurnError:
    """The error of a turn that gets no reply. It has its cause already."""
    error = _error_of(ledger, failure)
    cause = failure.cause
    if isinstance(cause, BackendError):
        error.sdk_error = cause.sdk_error or cause.__cause__
        error.__cause__ = cause.bare()
    elif isinstance(cause, ProtocolFault):
        error.__cause__ = ProtocolFault(str(cause), cause.fault)
    else:
        error.because_of(cause)
    return error


def _error_of(ledger: Ledger, failure: _Failure) -> TurnError:
    if ledger.is_late:
        return ledger.deadline_error()
    fault = failure.fault
    cls, reason, advice = _ERRORS[fault.kind]
    if fault.kind == "auth" and failure.status is None:
        reason = "there are no credentials for the provider, so it was not asked"
        advice = "set its environment variable (see err.sdk_error) or pass api_key=, then resume(err.state)"
    redirect = getattr(failure.cause, "redirect", None)
    if redirect is not None:
        here, there = redirect
        reason = f"{here} redirected the request to {there}, another origin, and nothing was sent there"
        advice = "if the other server is the right one, set base_url= to it, then resume(err.state)"
    if failure.passed in _WAITED:
        seconds = getattr(ledger.options, failure.passed)
        reason = f"{_WAITED[failure.passed]} {failure.passed}={seconds:g} s"
        advice = f"resume(err.state) asks again; a larger {failure.passed} leaves the model more time"
    known = (
        f"status {failure.status}" if failure.status else "",
        f"code {fault.code!r}" if fault.code else "",
        f"request id {failure.request_id}" if failure.request_id else "",
    )
    detail = ", ".join(part for part in known if part)
    blames_content = fault.kind == "rejected" and failure.status in _POISON
    poison = blames_content or fault.kind in ("context", "signature")
    if poison:
        ledger.reject_results()
    return ledger.error(
        cls,
        f"{reason}{f' ({detail})' if detail else ''}; {advice}",
        drop_input=poison,
        retryable=fault.retryable,
        retry_after=fault.retry_after,
        status_code=failure.status,
        request_id=failure.request_id,
        code=fault.code or "",
    )
