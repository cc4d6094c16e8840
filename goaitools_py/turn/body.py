"""Reads the body of a response, up to a size and up to a time.

Owns: the way from an open response to its bytes. Must never know: the meaning of the bytes, or the effect of
a failure on the turn.
"""

from __future__ import annotations

from typing import Final

from ..backends.base import BackendError, ProtocolFault
from .deadlines import CallTimes
from .flow import Flow, ReadChunk
from .ledger import Ledger

__all__ = [
    "MAX_REPLY_BYTES",
    "NO_STREAM",
    "ReplyTooLarge",
    "is_event_stream",
    "out_of_time",
    "read_chunks",
    "read_opening",
]

MAX_REPLY_BYTES: Final = 32 * 2**20
"""The most bytes of a body. If the hard limits of the state are larger, they hold instead. A body may be
larger than a stored reply, because it repeats a part of the request."""

NO_STREAM: Final = ("application/json", "text/html")
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
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise ReplyTooLarge(max_bytes)
        if times.passed(ledger.now.monotonic, begun=True):
            raise out_of_time()


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
            return opening, not content_type.startswith(NO_STREAM)
        if len(opening) > max_bytes:
            raise ProtocolFault(f"the reply is larger than {max_bytes} bytes")
        if times.passed(ledger.now.monotonic, begun=False):
            raise out_of_time()


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


def out_of_time() -> BackendError:
    """The error of a reply that still sent bytes, or only pings, when its time was up."""
    return BackendError("the reply took too long", kind="interrupted", timed_out=True)
