"""A response's body, read to its end: up to a size, and up to a time.

Owns: the way from an open response to its bytes. Must never know: what they say, or what their absence means.
"""

from __future__ import annotations

from ..backends.base import BackendError, ProtocolFault
from .deadlines import CallTimes
from .flow import Flow, ReadChunk
from .ledger import Ledger

__all__ = ["out_of_time", "read_chunks"]


def read_chunks(ledger: Ledger, times: CallTimes, chunks: list[bytes], *, max_bytes: int) -> Flow[None]:
    """Read what is left of the response that is open, and put it into `chunks`, piece by piece: what came
    before a failure is there.

    Raises:
        BackendError: The connection broke, or the time is up (`timed_out`).
        ProtocolFault: The body is larger than `max_bytes`.
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
            raise ProtocolFault(f"the reply is larger than {max_bytes} bytes")
        if times.passed(ledger.now.monotonic, begun=True):
            raise out_of_time()


def out_of_time() -> BackendError:
    """A reply went on, if only with pings, until its time was up."""
    return BackendError("the reply took too long", kind="interrupted", timed_out=True)
