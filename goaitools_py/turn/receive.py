"""Reads a reply from an open response: a stream or a body, complete or broken off.

Owns: the way from an open response to its bytes, up to a size and a time, and the order in which a reply is
decoded, told to a listener, and noted if it breaks off. Must never know: the meaning of a failure, whether
the request is sent again, or the contents of the books.

Three rules hold wherever a reply is read:

- Text that a listener has seen, or that a body has beside an error, is noted in the open turn *before* the
  error goes on. The handler of the error writes the state into a blob, and later notes are not in it.
- A complete reply is paid for. An ordinary exception after its last byte, such as a lost connection,
  changes nothing: the reply is returned.
- An exit after its last byte, such as Ctrl-C or a cancellation, ends the turn. But first the reply enters the
  books, or the next process would pay for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..backends.base import BackendError, Delta, Dialect, ModelRequest, ProtocolFault, Reply, StreamDecoder
from ..types.errors import TurnError
from ..types.events import ReasoningDelta, TextDelta
from ..types.messages import Usage
from .flow import Effect, Emit, Flow, ReadChunk
from .ledger import Ledger
from .timing import CallTimes

__all__ = [
    "MAX_REPLY_BYTES",
    "Call",
    "ReplyTooLarge",
    "is_event_stream",
    "read_chunks",
    "read_opening",
    "receive",
]

MAX_REPLY_BYTES: Final = 32 * 2**20
"""The most bytes of a body. If the hard limits of the state are larger, they hold instead. A body may be
larger than a stored reply, because it repeats a part of the request."""

_NO_STREAM: Final = ("application/json", "text/html")
"""Content types of answers that are not a stream, although one was requested: errors, a proxy's page."""

_FIELDS: Final = (b"data", b"event", b"id", b"retry")
_BOM: Final = b"\xef\xbb\xbf"


class ReplyTooLarge(Exception):  # noqa: N818 - internal, becomes a StateSizeError
    """The reply is larger than the limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the reply was not read to its end: it has more than {max_bytes:,} bytes")


def read_chunks(ledger: Ledger, times: CallTimes, chunks: list[bytes], *, max_bytes: int) -> Flow[None]:
    """Read the rest of the open response, and put it into `chunks` piece by piece.

    So after a failure `chunks` has the pieces that came before it.

    Raises:
        BackendError: The connection broke, or the time is up (`timed_out`).
        ReplyTooLarge: The body is larger than `max_bytes`.
    """
    size = 0
    next_chunk = ReadChunk(times.end(begun=True), timed=True)
    while True:
        ledger.now, chunk = yield next_chunk
        if not chunk:
            return
        # Before the checks: the caller of a body that is late or too large still sees what came.
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise ReplyTooLarge(max_bytes)
        if times.passed(ledger.now.monotonic, begun=True):
            raise _out_of_time()


def read_opening(
    ledger: Ledger, times: CallTimes, content_type: str, *, max_bytes: int
) -> Flow[tuple[bytes, bool]]:
    """Read until the bytes show whether the response is an event stream.

    Returns the bytes that were read (b"" if the response ended at once), and True if it is a stream.

    The content type does not tell: servers send event streams as ``application/json`` or ``text/plain``, and
    errors as ``text/event-stream``; the providers' own SDKs do not look at it. So the first bytes decide. The
    content type decides only if those are neither a field of an event nor JSON nor HTML.

    Raises:
        BackendError: The connection broke, or the time is up (`timed_out`).
        ProtocolFault: `max_bytes` bytes came, all of them white space.
    """
    opening = b""
    next_chunk = ReadChunk(times.end(begun=False), timed=True)
    while True:
        ledger.now, chunk = yield next_chunk
        opening += chunk
        if (found := is_event_stream(opening)) is not None:
            return opening, found
        if not chunk or not _is_undecided(opening):
            return opening, not content_type.startswith(_NO_STREAM)
        if len(opening) > max_bytes:
            raise ProtocolFault(f"the reply is larger than {max_bytes} bytes")
        if times.passed(ledger.now.monotonic, begun=False):
            raise _out_of_time()


def is_event_stream(opening: bytes) -> bool | None:
    """True if these bytes begin an event stream, False if they begin JSON or HTML.

    None for other bytes, and if there are too few bytes.
    """
    start = opening.removeprefix(_BOM).lstrip(b" \t\r\n")[:6]
    if start[:1] in (b"{", b"[", b"<"):
        return False
    name, colon, _ = start.partition(b":")
    return True if colon and name in (b"", *_FIELDS) else None


def _is_undecided(opening: bytes) -> bool:
    """True if more bytes may show an event stream, JSON or HTML."""
    start = opening.removeprefix(_BOM).lstrip(b" \t\r\n")
    return any(word.startswith(start) for word in (_BOM, *_FIELDS))


def _out_of_time() -> BackendError:
    """The error of a reply that still sent bytes, or only pings, when its time was up."""
    return BackendError("the reply took too long", kind="interrupted", timed_out=True)


STREAM_OVERHEAD: Final = 16
"""A stream may be this many times larger than a body, because each of its events holds about one word. The
text in a stream may be as large as a body."""


class Call:
    """One model call under way. It changes while the reply comes in.

    Attributes:
        before: The state before the provider took the request.
        others: The messages of the inbox that the request leaves out; None if it carries all of them.
        began: The instant at which the call began.
        asked_ms: The same instant, in milliseconds after the conversation began.
        request: The request.
        times: The time limits of the call.
        model: The model's name in the request.
        is_stream: True once the answer turned out to be an event stream.
        has_begun: True once a part of the reply has come. Headers and pings are no part of it.
        was_shown: True once a listener has seen a part of the reply.
        edits_context: True if the provider was asked to edit the context.
    """

    __slots__ = (
        "asked_ms",
        "before",
        "began",
        "edits_context",
        "has_begun",
        "is_stream",
        "model",
        "others",
        "request",
        "times",
        "was_shown",
    )

    def __init__(
        self,
        ledger: Ledger,
        request: ModelRequest,
        times: CallTimes,
        model: str,
        *,
        edits_context: bool = False,
    ) -> None:
        # The state is frozen, so this is a copy of the instant to which a refused request goes back.
        self.before = ledger.state
        self.others = ledger.left_waiting
        self.began = ledger.now
        self.asked_ms = max(0, self.began.wall_ms - self.before.meta.created)
        self.request = request
        self.times = times
        self.model = model
        self.edits_context = edits_context
        self.is_stream = False
        self.has_begun = False
        self.was_shown = False


def receive(
    ledger: Ledger, call: Call, content_type: str, book: Callable[[Reply], object]
) -> Flow[Flow[Reply]]:
    """Find out the form of the open response, and return the flow that reads the reply in it.

    The flow is returned and not run here, so that each read of a long stream passes one generator less.
    The flow does not enter the reply into the books.

    Args:
        ledger: The books of the turn.
        call: The call; its response is open.
        content_type: The response's `Content-Type` header.
        book: Enters a complete reply into the books. The flow calls it only if an exit ends the turn.

    Raises (both flows):
        BackendError: The connection broke, or the time is up.
        ProtocolFault: The answer is not a reply.
        ReplyTooLarge: The answer is larger than the limit.
    """
    opening: bytes | None = None
    if call.request.stream:
        decoder = ledger.dialect.decoder()
        is_stream = not content_type.startswith(_NO_STREAM)
        if getattr(decoder, "reads_events", False):
            opening, is_stream = yield from read_opening(
                ledger, call.times, content_type, max_bytes=_most_bytes(ledger)
            )
        if is_stream:
            call.is_stream = True
            return _stream(ledger, call, decoder, opening, book)
    call.has_begun = True  # a body has no first delta, so the limit for it does not apply
    return _body(ledger, call, opening or b"", book)


def _most_bytes(ledger: Ledger) -> int:
    return max(MAX_REPLY_BYTES, ledger.room.hard.max_decoded_bytes)


# ---------------------------------------------------------------------------------------- a stream


def _stream(
    ledger: Ledger,
    call: Call,
    decoder: StreamDecoder,
    opening: bytes | None,
    book: Callable[[Reply], object],
) -> Flow[Reply]:
    """Read a stream to its end, tell each delta as it comes, and return the reply.

    `opening`: the bytes of the stream that were read already; None if nothing was read.

    The loop runs once for each read, a thousand times for a long reply. So it has no generator of its own,
    and each read resumes the flow once, not twice: an event goes out together with the next effect
    (`Emit.then`).
    """
    ledger.streamed = lambda: decoder.partial_text
    most_text = _most_bytes(ledger)
    most_bytes = STREAM_OVERHEAD * most_text
    conversation, turn, iteration = (
        ledger.event_ids["conversation_id"],
        ledger.event_ids["turn_ref"],
        ledger.iteration,
    )
    size = said = 0
    next_chunk = ReadChunk(call.times.end(begun=False), timed=True)
    following: Effect = next_chunk
    try:
        while True:
            if opening is None:
                ledger.now, chunk = yield following
            else:
                chunk, opening = opening, None
            if not chunk:
                for delta in _last_deltas(decoder):
                    call.was_shown = call.has_begun = True
                    made = TextDelta if delta.kind == "text" else ReasoningDelta
                    yield Emit(made(delta.text, iteration, conversation_id=conversation, turn_ref=turn))
                break
            size += len(chunk)
            if size > most_bytes or said > most_text:
                raise ReplyTooLarge(most_text if said > most_text else most_bytes)
            found = decoder.feed(chunk)  # may be a generator: exhaust it now, or it decodes nothing
            deltas = found if isinstance(found, (list, tuple)) else tuple(found)
            if not call.has_begun and (deltas or getattr(decoder, "has_begun", False)):
                call.has_begun = True
                next_chunk = ReadChunk(call.times.end(begun=True), timed=True)
            is_late = next_chunk.until is not None and ledger.now.monotonic >= next_chunk.until
            is_over = is_late or decoder.is_done
            following, left = next_chunk, len(deltas)
            for delta in deltas:
                call.was_shown, left, said = True, left - 1, said + len(delta.text)
                made = TextDelta if delta.kind == "text" else ReasoningDelta
                event = made(delta.text, iteration, conversation_id=conversation, turn_ref=turn)
                if left or is_over:
                    yield Emit(event)
                else:
                    following = Emit(event, next_chunk)
            if is_late and not _is_whole(decoder):
                raise _out_of_time()
            if is_over:
                break  # only pings may follow the last event: do not wait for them
        yield from ledger.tick()
        return decoder.finish()
    except BaseException as exc:
        reply = _despite(ledger, call, decoder, exc, book)
        if reply is None:
            raise
        return reply


def _last_deltas(decoder: StreamDecoder) -> Sequence[Delta]:
    """The deltas that the end of a stream completes, if the decoder has the method `end`."""
    end: Callable[[], Sequence[Delta]] | None = getattr(decoder, "end", None)
    return () if end is None else tuple(end())


def _despite(
    ledger: Ledger, call: Call, decoder: StreamDecoder, exc: BaseException, book: Callable[[Reply], object]
) -> Reply | None:
    """The complete reply that came before an exception; None if it is incomplete, or if the turn is given up.

    Before the exception goes on, the received text is kept: a partial reply in the open turn, a complete one
    in the books.
    """
    if isinstance(exc, ProtocolFault):
        if (reply := _ended(decoder)) is not None:
            return reply
        # If a fault gives the usage of the answer, its handler books that usage.
        _note_partial(ledger, decoder, call.model, books=exc.usage is None, text=exc.partial_text)
    elif isinstance(exc, (TurnError, AssertionError, ReplyTooLarge)) or not _is_whole(decoder):
        _note_partial(ledger, decoder, call.model)
    elif isinstance(exc, Exception):
        return decoder.finish()
    else:
        book(decoder.finish())
    return None


def _ended(decoder: StreamDecoder) -> Reply | None:
    """The reply of a stream that sent an error after its last word; None if it is incomplete or empty.

    The reply is complete and paid for, so the error changes nothing.
    """
    try:
        reply = decoder.finish()
    except ProtocolFault:
        return None
    return reply if reply.text or reply.calls else None


def _is_whole(decoder: StreamDecoder) -> bool:
    try:
        decoder.finish()
    except ProtocolFault:
        return False
    return True


def _note_partial(
    ledger: Ledger, decoder: StreamDecoder, model: str, *, books: bool = True, text: str = ""
) -> None:
    """Keep the text of a stream that broke off in the open turn, flagged as partial.

    If `books`, book the tokens that the provider has named so far. `text`: the text of the last event, if it
    did not come in deltas.
    """
    _note_text(ledger, decoder.partial_text or text)
    usage: Usage | None = getattr(decoder, "usage_so_far", None)
    if books and usage is not None:
        ledger.book_broken(usage, asked=model)


def _note_text(ledger: Ledger, text: str) -> None:
    # Before the state has the text: a snapshot in between lacks the text, and never has it twice.
    ledger.partial_text, ledger.streamed = text, None
    if text:
        ledger.state = ledger.room.with_partial(ledger.state, text)


# ------------------------------------------------------------------------------------------ a body


def _body(ledger: Ledger, call: Call, opening: bytes, book: Callable[[Reply], object]) -> Flow[Reply]:
    """Read the reply in a body. `opening`: the bytes of it that were read already."""
    chunks: list[bytes] = [opening] if opening else []
    try:
        yield from read_chunks(ledger, call.times, chunks, max_bytes=_most_bytes(ledger) - len(opening))
        return _whole_reply(ledger.dialect, b"".join(chunks))
    except BackendError as exc:
        if not exc.timed_out:
            raise
        late = exc
    except ProtocolFault as fault:
        _note_text(ledger, fault.partial_text)
        raise
    except (TurnError, AssertionError, ReplyTooLarge):
        raise
    except BaseException as exc:
        try:
            reply = _whole_reply(ledger.dialect, b"".join(chunks))
        except Exception:
            raise exc from None
        if isinstance(exc, Exception):
            return reply
        book(reply)
        raise
    # A server may send a complete body and then not end it. So try to read the body before the time counts.
    try:
        return _whole_reply(ledger.dialect, b"".join(chunks))
    except ProtocolFault:
        raise late from None


def _whole_reply(dialect: Dialect, body: bytes) -> Reply:
    """The reply in a body that was read to its end. Some gateways always send an event stream."""
    if is_event_stream(body) and getattr(decoder := dialect.decoder(), "reads_events", False):
        try:
            tuple(decoder.feed(body))
            return decoder.finish()
        except ProtocolFault as fault:
            if (reply := _ended(decoder)) is not None:
                return reply
            fault.partial_text = fault.partial_text or decoder.partial_text
            raise
    return dialect.reply(body)
