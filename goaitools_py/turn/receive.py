"""From an open response to a reply: read as a stream or as a body, whole or broken off.

Owns: in which order a reply is decoded, told to a listener, and noted if it breaks off. Must never know: what
a failure means, whether the request is sent again, or what stands in the books.

Three rules hold wherever a reply is read:

- Text that was told, or that stands in a body beside an error, is noted in the open turn *before* the error
  goes on. Whoever handles the error makes a
  blob of the state, and a text that is noted later is not in it.
- A reply that is whole is paid for. An ordinary exception behind its last byte, such as a lost connection,
  changes nothing: the reply is returned.
- An exit behind its last byte, such as Ctrl-C or a cancellation, ends the turn, but not before the reply is
  in the books: the next process would pay for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..backends.base import BackendError, Delta, Dialect, ModelRequest, ProtocolFault, Reply, StreamDecoder
from ..open_turn.inbox import Others
from ..state.state import ConversationState
from ..types.errors import TurnError
from ..types.events import ReasoningDelta, TextDelta
from ..types.messages import Usage
from .body import (
    MAX_REPLY_BYTES,
    NO_STREAM,
    ReplyTooLarge,
    is_event_stream,
    out_of_time,
    read_chunks,
    read_opening,
)
from .deadlines import CallTimes
from .flow import Effect, Emit, Flow, Moment, ReadChunk
from .ledger import Ledger

__all__ = ["Call", "receive"]

STREAM_OVERHEAD: Final = 16
"""How many times larger than a body a stream may be: each of its events says little more than one word. The
text in a stream may be as large as a body."""


class Call:
    """One model call under way. It changes while the reply comes in.

    Attributes:
        before: The state before the provider took the request.
        others: What of its inbox the request does not carry; None for nothing.
        began: When it began.
        asked_ms: The same, in milliseconds after the conversation began.
        request: What is sent.
        times: When the call has to be over.
        model: The model's name in the request.
        is_stream: True once the answer turned out to be an event stream.
        has_begun: True once anything of the reply has come. Headers and pings are nothing of it.
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
        before: ConversationState,
        began: Moment,
        request: ModelRequest,
        times: CallTimes,
        model: str,
        others: Others | None,
        *,
        edits_context: bool = False,
    ) -> None:
        self.before = before
        self.others = others
        self.began = began
        self.asked_ms = max(0, began.wall_ms - before.meta.created)
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
    """Find out what the open response is; the flow that reads the reply in it.

    That flow is handed back and not run here, so that a long stream passes one generator less at each read.
    Its reply is not in the books yet.

    Args:
        ledger: The books of the turn.
        call: The call; its response is open.
        content_type: What the response says that it is.
        book: Enters a whole reply into the books. It is called here only if an exit ends the turn.

    Raises (both flows):
        BackendError: The connection broke, or the time is up.
        ProtocolFault: The answer is no reply.
        ReplyTooLarge: It is larger than what may be read.
    """
    opening: bytes | None = None
    if call.request.stream:
        decoder = ledger.dialect.decoder()
        is_stream = not content_type.startswith(NO_STREAM)
        if getattr(decoder, "reads_events", False):
            opening, is_stream = yield from read_opening(
                ledger, call.times, content_type, max_bytes=_most_bytes(ledger)
            )
        if is_stream:
            call.is_stream = True
            return _stream(ledger, call, decoder, opening, book)
    call.has_begun = True  # a body has no first delta that could be late
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
    """Read a stream to its end, and tell each delta as it comes; the reply in it.

    `opening`: what of it was read already, None if nothing was.

    The loop runs once for each read, a thousand times for a long reply. So it is in no generator of its own,
    and the flow is resumed once for each read and not twice: an event goes out together with what is wanted
    after it (`Emit.then`).
    """
    ledger.streamed = lambda: decoder.partial_text
    most_text = _most_bytes(ledger)
    most_bytes = STREAM_OVERHEAD * most_text
    conversation, turn, iteration = ledger.of["conversation_id"], ledger.of["turn_ref"], ledger.iteration
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
            found = decoder.feed(chunk)  # a generator does its work only while it is read, so at once
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
                raise out_of_time()
            if is_over:
                break  # only pings may follow the last event, and there is no need to wait for them
        yield from ledger.tick()
        return decoder.finish()
    except BaseException as exc:
        reply = _despite(ledger, call, decoder, exc, book)
        if reply is None:
            raise
        return reply


def _last_deltas(decoder: StreamDecoder) -> Sequence[Delta]:
    """What the end of a stream completes, if the decoder knows of such."""
    end: Callable[[], Sequence[Delta]] | None = getattr(decoder, "end", None)
    return () if end is None else tuple(end())


def _despite(
    ledger: Ledger, call: Call, decoder: StreamDecoder, exc: BaseException, book: Callable[[Reply], object]
) -> Reply | None:
    """The reply that is there despite an exception; None if there is none, or if the turn is given up.

    Before the exception goes on, what came is kept: a part of a reply in the open turn, a whole one in the
    books.
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
    """The reply of a stream in which an error came after its last word; None if there is none, or nothing is
    said in it. It is whole and paid for: the error changes nothing."""
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
    """Keep what came of a stream that broke off: its text in the open turn, flagged, and if `books` its cost,
    as far as the provider had said. `text`: that of the last event, if it did not come in pieces."""
    _note_text(ledger, decoder.partial_text or text)
    usage: Usage | None = getattr(decoder, "usage_so_far", None)
    if books and usage is not None:
        ledger.book_broken(usage, asked=model)


def _note_text(ledger: Ledger, text: str) -> None:
    ledger.partial_text, ledger.streamed = text, None
    if text:
        ledger.state = ledger.with_partial(ledger.state, text)


# ------------------------------------------------------------------------------------------ a body


def _body(ledger: Ledger, call: Call, opening: bytes, book: Callable[[Reply], object]) -> Flow[Reply]:
    """The reply in a body that is no stream. `opening`: what of it was read already."""
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
    # A server may send a whole body and then not end it. What came is looked at before the time counts.
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
