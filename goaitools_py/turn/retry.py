"""Post, retry, back off: the one flow in which a request that failed is sent again.

Owns: what a failed request is (`Failure`), whether it is sent again, and how long the pause before that is.
Must never know: what was asked, or what a failure means to the turn.

Three requests use it: a model call, a strategy's question while a history is compacted, and a token count.
They differ in what one attempt is, in what may be changed before the next one, and in the error at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..backends.base import REDIRECTED, BackendError, Dialect, Fault, ModelRequest
from ..base.values import replace
from ..types.events import Retried
from .body import ReplyTooLarge, read_chunks
from .deadlines import CallTimes, Passed
from .flow import CallModel, Emit, Flow, Sleep
from .ledger import Ledger

__all__ = ["Failure", "failure_of", "fetch", "with_retries"]

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.5
"""The pause before the first retry. It doubles with each further one."""

MAX_BACKOFF_SECONDS: Final = 8.0
"""The longest pause that the flow makes of its own accord."""

MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""The longest pause that a provider may ask for. If it asks for more, the request is not sent again, and the
error says how long the provider asked to wait."""

_MAY_PASS: Final = frozenset({"unavailable", "interrupted", "rate_limit", "protocol"})
"""Kinds of faults without an error status that may be gone at another time."""


class Failure(Exception):  # noqa: N818 - internal, becomes the caller's error
    """One request failed.

    Attributes:
        fault: What that means on this provider API.
        cause: The exception behind it: a `BackendError`, a `ProtocolFault`, or whatever a backend raised.
        shown: True if a listener has seen a part of the reply, or if the turn keeps the text of it that
            came. Such a request is not sent again.
        passed: The option that has set the time limit, if that was reached; else "".
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
        attempt: Sends the request once. It raises `Failure` for whatever another attempt may change.
        error: Makes the error to raise once no further attempt is made.
        remedy: Changes what the next attempt sends. If it returns True, that one follows without a pause, and
            does not count as a retry. A remedy must run out, or the flow does not end.
        max_wait: Seconds. A provider that asks for a longer pause gets no further request.

    Raises:
        Exception: What `error` made, or what `attempt` raised beside `Failure`.
    """
    retries = 0
    while True:
        try:
            return (yield from attempt())
        except Failure as exc:
            failure = exc
        # The `except` block ends here. An error raised inside it would have the failure, with the server's
        # own words in it, as its `__context__`, and a traceback would print them.
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
    """Send a request once, and read its answer to the end; the answer's body.

    Args:
        ledger: The books of the turn. Its clock has just been read.
        request: What to send. It gets the time that is left.
        times: When the answer has to be there.
        max_bytes: How large the body may be.
        dialect: Says what an error answer means.
        backend: Another backend than the turn's own, as `OpenBackend` answered it.

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
    """What a backend's error means.

    Args:
        exc: The error.
        dialect: Says what an error answer means.
        times: When the call had to be over.
        now: Seconds on the clock of `times`, read after the error came.
        is_streamed: True if a stream was asked for.
        begun: True if the reply had begun, so that it can no longer be late with that.
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
        # Nobody has seen a part of a body that broke off: it is as if no answer had come.
        fault = Fault(kind="unavailable", code="interrupted", retryable=True)
    else:
        fault = Fault(kind=exc.kind, retryable=exc.kind in _MAY_PASS)
    return Failure(fault, exc, shown=shown, passed=passed)


def _retried(ledger: Ledger, failure: Failure, retries: int, pause: float) -> Retried:
    kind = failure.fault.kind
    return Retried(retries, pause, kind, failure.status, failure.request_id, **ledger.of)


def _pause(ledger: Ledger, failure: Failure, retries: int, max_wait: float) -> float | None:
    """Seconds until the next attempt; None if there is to be none."""
    fault = failure.fault
    if failure.shown:
        return None  # a second reply would be told behind the beginning of the first
    if not fault.retryable or retries >= ledger.plan.max_retries:
        return None
    if fault.kind == "protocol":
        return None  # the server has answered, and may want to be paid for that: the caller decides
    pause = fault.retry_after
    if pause is None:
        # Conversations that fail together must not come back together. Their ids differ, and so do their
        # pauses; a random source would make a turn that cannot be repeated.
        seed = hashlib.sha256(f"{ledger.state.meta.id}/{retries}".encode()).digest()[0] / 255
        pause = min(FIRST_PAUSE_SECONDS * 2.0**retries, MAX_BACKOFF_SECONDS) * (1 - 0.25 * seed)
    elif pause > max_wait:
        return None
    left = ledger.left()
    return pause if left is None or pause < left else None
