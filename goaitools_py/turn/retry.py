"""Post, retry, back off: the one flow in which a request that failed is sent again.

Owns: the form of a failed request (`Failure`), whether it is sent again, and the length of the pause before.
Must never know: the content of a request, or the meaning of a failure for the turn.

Three requests use it: a model call, a strategy's question while a history is compacted, and a token count.
They differ in the attempt, in the changes before the next attempt, and in the error at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..backends.base import REDIRECTED, BackendError, Dialect, Fault, ModelRequest
from ..base.values import replace
from ..types.events import Retried
from .flow import CallModel, Emit, Flow, Sleep
from .ledger import Ledger
from .receive import ReplyTooLarge, read_chunks
from .timing import CallTimes, Passed

__all__ = ["Failure", "failure_of", "fetch", "with_retries"]

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.5
"""The pause before the first retry. It doubles with each further one."""

MAX_BACKOFF_SECONDS: Final = 8.0
"""The longest pause that the flow makes of its own accord."""

MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""The longest pause that a provider may ask for. If it asks for more, the request is not sent again, and the
error names the pause."""

_MAY_PASS: Final = frozenset({"unavailable", "interrupted", "rate_limit", "protocol"})
"""Kinds of faults without an error status that may pass with time."""


class Failure(Exception):  # noqa: N818 - internal, becomes the caller's error
    """One request failed.

    Attributes:
        fault: The meaning of the failure on this provider API.
        cause: The exception behind it: a `BackendError`, a `ProtocolFault`, or another one of a backend.
        shown: True if a listener has seen a part of the reply, or if the turn keeps the received text. The
            request is then not sent again.
        passed: The option that has set the time limit, if the limit was reached; else "".
        status: The HTTP status, None if there was no answer.
        request_id: The provider's name for the request, if it gave one.
    """

    def __init__(
        self, fault: Fault, cause: BaseException, *, shown: bool = False, passed: Passed = ""
    ) -> None:
        super().__init__(fault.kind)
        self.fault = fault
        self.cause = cause
        self.shown = shown
        self.passed = passed
        self.status: int | None = getattr(cause, "status", None)
        self.request_id: str | None = getattr(cause, "request_id", None)


def with_retries(
    ledger: Ledger,
    attempt: Callable[[], Flow[T]],
    *,
    error: Callable[[Failure], Exception],
    remedy: Callable[[Failure], Flow[bool]] | None = None,
    max_wait: float = MAX_RETRY_AFTER_SECONDS,
) -> Flow[T]:
    """Run an attempt until it succeeds, or until another one would not help.

    Args:
        ledger: The books of the turn: its clock, its deadline, its number of retries.
        attempt: Sends the request once. Raises `Failure` for a problem that another attempt may not have.
        error: Makes the error to raise after the last attempt.
        remedy: Changes the next request. If it returns True, the next attempt follows without a pause, and
            does not count as a retry. It must return False at some time, or the flow does not end.
        max_wait: Seconds. A provider that asks for a longer pause gets no further request.

    Raises:
        Exception: The error that `error` made, or an exception of `attempt` other than `Failure`.
    """
    retries = 0
    while True:
        try:
            return (yield from attempt())
        except Failure as exc:
            failure = exc
        # The `except` block ends here. An error raised inside it would have the failure as its `__context__`,
        # and a traceback would print the server's own words.
        yield from ledger.tick()
        if remedy is not None and (yield from remedy(failure)):
            continue
        pause = _pause(ledger, failure, retries, max_wait)
        if pause is None:
            raise error(failure)
        retries += 1
        if ledger.listening:
            yield Emit(_retried(ledger, failure, retries, pause))
        yield Sleep(pause)


def fetch(
    ledger: Ledger,
    request: ModelRequest,
    times: CallTimes,
    *,
    max_bytes: int,
    dialect: Dialect,
    backend: Any = None,
) -> Flow[bytes]:
    """Send a request once, read its answer to the end, and return the answer's body.

    Args:
        ledger: The books of the turn. Its clock has just been read.
        request: The request. Its timeout becomes the time that is left.
        times: The time limits of the answer.
        max_bytes: The largest body, in bytes.
        dialect: Interprets an error answer.
        backend: A backend that `OpenBackend` returned; None for the turn's own.

    Raises:
        Failure: There is no answer, or it is an error, or it is too large.
    """
    chunks: list[bytes] = []
    left = times.left(ledger.now.monotonic, begun=True)
    try:
        yield CallModel(replace(request, timeout=left), backend)
        yield from read_chunks(ledger, times, chunks, max_bytes=max_bytes)
    except BackendError as exc:
        yield from ledger.tick()
        raise failure_of(exc, dialect, times, now=ledger.now.monotonic) from exc
    except ReplyTooLarge as exc:
        cause = BackendError(str(exc), kind="protocol")
        raise failure_of(cause, dialect, times, now=ledger.now.monotonic) from None
    return b"".join(chunks)


def failure_of(
    exc: BackendError,
    dialect: Dialect,
    times: CallTimes,
    *,
    now: float,
    is_streamed: bool = False,
    begun: bool = True,
    shown: bool = False,
) -> Failure:
    """Turn a backend's error into a `Failure`.

    Args:
        exc: The error.
        dialect: Interprets an error answer.
        times: The time limits of the call.
        now: Seconds on the clock of `times`, read after the error came.
        is_streamed: True if the request asked for a stream.
        begun: True if the reply had begun: then the limit for its beginning does not apply.
        shown: True if a listener has seen a part of the reply.
    """
    passed = times.passed(now, begun=begun) if exc.timed_out else ""
    if passed:
        fault = Fault(kind="interrupted" if shown else "unavailable", retryable=True)
    elif exc.redirect is not None:
        fault = REDIRECTED
    elif exc.status is not None:
        fault = dialect.fault(exc.status, exc.headers, exc.body)
    elif exc.kind == "interrupted" and not is_streamed:
        # No listener sees a part of a body. So a body that broke off counts as no answer.
        fault = Fault(kind="unavailable", code="interrupted", retryable=True)
    else:
        fault = Fault(kind=exc.kind, retryable=exc.kind in _MAY_PASS)
    return Failure(fault, exc, shown=shown, passed=passed)


def _retried(ledger: Ledger, failure: Failure, retries: int, pause: float) -> Retried:
    kind = failure.fault.kind
    return Retried(retries, pause, kind, failure.status, failure.request_id, **ledger.event_ids)


def _pause(ledger: Ledger, failure: Failure, retries: int, max_wait: float) -> float | None:
    """Seconds until the next attempt; None if the request is not sent again."""
    fault = failure.fault
    if failure.shown:
        return None  # listeners would see a second reply after the beginning of the first
    if not fault.retryable or retries >= ledger.plan.max_retries:
        return None
    if fault.kind == "protocol" and failure.status is None:
        return None  # the server has answered with 200, and may charge for it: the caller decides
    pause = fault.retry_after
    if pause is None:
        # Conversations that fail together must not retry together. So the pause depends on the id. A random
        # pause would make a turn that cannot be reproduced.
        seed = hashlib.sha256(f"{ledger.state.meta.id}/{retries}".encode()).digest()[0] / 255
        pause = min(FIRST_PAUSE_SECONDS * 2.0**retries, MAX_BACKOFF_SECONDS) * (1 - 0.25 * seed)
    elif pause > max_wait:
        return None
    # A pause beyond the deadline would end in the same error, only later.
    left = ledger.left()
    return pause if left is None or pause < left else None
