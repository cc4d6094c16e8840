"""Limits the requests to a provider: one queue for all chats of a backend and key, and a backend behind it.

Owns: the queue, the time at which the gate opens, the wait of a thread and of a task, and a response that
holds its place until it is closed. Must never know: which provider it is, the content of a request, how it is
sent.

Threads and tasks of any event loop wait in one queue, in the order in which they came. A caller asks with
its `Ticket`. The answer is the time to wait before it asks again.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any, Final, overload

from ..base.process import PerProcess, this_process
from ..base.values import replace
from .base import (
    AsyncBackend,
    AsyncExchange,
    Backend,
    BackendError,
    Dialect,
    Exchange,
    ModelRequest,
    ResponseHead,
)

__all__ = ["Gate", "Gating", "Ticket", "checked_limit", "gate_of", "gated", "gating", "group_of"]

FIRST_HOLD_SECONDS: Final = 0.5
"""Seconds that the gate is closed after a refusal without a time. It doubles with each refusal in a row."""

MAX_HOLD_SECONDS: Final = 8.0
"""The longest time in seconds that the gate is closed if the provider names no time."""

JITTER: Final = 0.1
"""Each process waits longer by its part of the time, up to this. So processes with one key spread out."""


class Ticket:
    """One request's place in the queue, then behind the gate.

    Attributes:
        limit: The request is let in while fewer requests than this are behind the gate.
        wake: Called, from any thread, when it is worth to ask again.
        is_in: True while the request is behind the gate.
    """

    __slots__ = ("is_in", "limit", "wake")

    def __init__(self, limit: int, wake: Callable[[], object]) -> None:
        self.limit = limit
        self.wake = wake
        self.is_in = False


class Gate:
    """A queue of tickets, and the number of requests behind the gate.

    After a refusal (429) the gate stays closed for the time that the provider named. Then it opens for half
    as many requests as were in, and for one more after each success. So a limit is approached from below.
    """

    def __init__(self) -> None:
        # A ticket may be given back by the garbage collector, in the middle of any of these methods.
        self._lock = threading.RLock()
        self._queue: dict[Ticket, None] = {}
        self._inside = 0
        self._width = inf
        self._opens_at = 0.0
        self._refusals = 0

    def ask(self, ticket: Ticket) -> float:
        """0.0 if the ticket is in now. Else it is in the queue, and the answer is the number of seconds after
        which to ask again; infinity: when it is woken."""
        with self._lock:
            if ticket.is_in:
                return 0.0
            self._queue.setdefault(ticket)
            if next(iter(self._queue)) is not ticket or self._inside >= min(ticket.limit, self._width):
                return inf
            if (wait := self.held_for()) > 0.0:
                return wait
            del self._queue[ticket]
            ticket.is_in = True
            self._inside += 1
        self._wake_first()
        return 0.0

    def held_for(self) -> float:
        """Seconds until the gate opens. 0 or less: it is open."""
        return self._opens_at - time.monotonic()

    def leave(self, ticket: Ticket) -> None:
        """Give a ticket back, from the queue or from behind the gate. A second call does nothing."""
        with self._lock:
            if ticket.is_in:
                ticket.is_in = False
                self._inside -= 1
            else:
                self._queue.pop(ticket, None)
        self._wake_first()

    def refused(self, seconds: float | None) -> None:
        """The provider refused a request. `seconds`: how long it asked to wait; None if it did not say."""
        with self._lock:
            if self.held_for() <= 0.0:  # the first refusal of the requests that were in together
                self._refusals += 1
                self._width = max(1, min(self._width, self._inside) // 2)
            if seconds is None:
                seconds = min(FIRST_HOLD_SECONDS * 2.0 ** (self._refusals - 1), MAX_HOLD_SECONDS)
            seed = hashlib.sha256(f"{this_process().pid}/{self._refusals}".encode()).digest()[0] / 255
            self._opens_at = max(self._opens_at, time.monotonic() + seconds * (1.0 + JITTER * seed))

    def passed(self) -> None:
        """The provider took a request."""
        if self._refusals or self._width is not inf:
            with self._lock:
                self._refusals = 0
                self._width += 1
            self._wake_first()

    def _wake_first(self) -> None:
        while True:
            with self._lock:
                first = next(iter(self._queue), None)
            if first is None:
                return
            try:
                first.wake()
            except RuntimeError:  # its event loop is closed, and the task will never ask again
                with self._lock:
                    self._queue.pop(first, None)
            else:
                return


_gates: Final = PerProcess[weakref.WeakValueDictionary[Hashable, Gate]](
    lambda _: weakref.WeakValueDictionary()
)
"""The gates of this process. A fork begins with open gates: it does not have its parent's requests."""


def gate_of(group: Hashable) -> Gate:
    """The gate that all callers with this `group` share. It lives as long as a caller holds it."""
    gates = _gates.get()
    return gates.setdefault(group, Gate())


LONGEST_WAIT_SECONDS: Final = 60.0
"""If the provider asked for a longer pause, a request fails at once, and the error says how long to wait."""


class Gating:
    """The gate of one backend: who shares it, and how many requests this backend lets in.

    Args:
        limit: The largest number of requests at a time.
        group: Backends with an equal value share the gate.
    """

    def __init__(self, limit: int, group: Hashable) -> None:
        self._limit = checked_limit(limit)
        self._gate: PerProcess[Gate] = PerProcess(lambda _: gate_of(group))

    def send(
        self, dialect: Dialect, send: Callable[[ModelRequest], Exchange], request: ModelRequest
    ) -> Exchange:
        """Wait for a place, and send. The place is free again when the response is closed."""
        gate, began, woken = self._gate.get(), time.monotonic(), threading.Event()
        ticket = Ticket(self._limit, woken.set)
        try:
            while wait := gate.ask(ticket):
                wait = _checked(gate, wait, _left(request, began))
                woken.wait(None if wait == inf else min(wait, threading.TIMEOUT_MAX))
                woken.clear()
            with _judged(gate, dialect):
                return _HeldExchange(send(_shortened(request, began)), gate, ticket)
        except BaseException:
            gate.leave(ticket)
            raise

    async def asend(
        self,
        dialect: Dialect,
        asend: Callable[[ModelRequest], Awaitable[AsyncExchange]],
        request: ModelRequest,
    ) -> AsyncExchange:
        """As `send`, awaited."""
        import asyncio  # not at the top: a Chat does not need it

        gate, began, woken = self._gate.get(), time.monotonic(), asyncio.Event()
        loop = asyncio.get_running_loop()
        ticket = Ticket(self._limit, partial(loop.call_soon_threadsafe, woken.set))
        try:
            while wait := gate.ask(ticket):
                wait = _checked(gate, wait, _left(request, began))
                timer = None if wait == inf else loop.call_later(wait, woken.set)
                try:
                    await woken.wait()
                finally:
                    if timer is not None:
                        timer.cancel()
                woken.clear()
            with _judged(gate, dialect):
                return _HeldAsyncExchange(await asend(_shortened(request, began)), gate, ticket)
        except BaseException:
            gate.leave(ticket)
            raise


def _left(request: ModelRequest, began: float) -> float:
    """Seconds until the headers must be there; infinity without a limit."""
    limits = [limit for limit in (request.timeout, request.head_timeout) if limit is not None]
    return min(limits) - (time.monotonic() - began) if limits else inf


def _checked(gate: Gate, wait: float, left: float) -> float:
    """How long to wait now. Raises BackendError if it cannot come to a request in time."""
    if (held := gate.held_for()) > min(left, LONGEST_WAIT_SECONDS):
        raise BackendError(
            "the provider asked to wait, and the request was not sent",
            status=429,
            headers={"retry-after": f"{held:.3f}"},
        )
    if left <= 0.0:
        raise BackendError("no place for the request came free in time", timed_out=True)
    return min(wait, left)


def _shortened(request: ModelRequest, began: float) -> ModelRequest:
    """The request with the time that is left after the wait."""
    if request.timeout is None and request.head_timeout is None:
        return request
    waited = time.monotonic() - began
    whole, head = (
        None if limit is None else max(0.001, limit - waited)
        for limit in (request.timeout, request.head_timeout)
    )
    return replace(request, timeout=whole, head_timeout=head)


@contextmanager
def _judged(gate: Gate, dialect: Dialect) -> Iterator[None]:
    """Close the gate for a while if the answer says that too many requests came."""
    try:
        yield
    except BackendError as exc:
        if exc.status is not None:
            fault = dialect.fault(exc.status, exc.headers, exc.body)
            if fault.retryable and (fault.kind == "rate_limit" or fault.retry_after is not None):
                gate.refused(fault.retry_after)
        raise


# -------------------------------------------------------------------------------------- open responses


class _Held:
    """An open response that has a place behind the gate: the base of both kinds."""

    def __init__(self, inner: Any, gate: Gate, ticket: Ticket) -> None:
        self._inner = inner
        self._gate = gate
        self._ticket = ticket
        gate.passed()

    @property
    def head(self) -> ResponseHead:
        head: ResponseHead = self._inner.head
        return head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # `interrupt`, where the backend's own has it

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Ctrl-C may come before anybody holds this. A place must not be taken for ever. When Python ends, a
        # thread that it has stopped may hold the lock of the gate.
        if not is_ending():
            with suppress(AttributeError):
                self._gate.leave(self._ticket)


class _HeldExchange(_Held):
    def read(self) -> bytes:
        chunk: bytes = self._inner.read()
        return chunk

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._gate.leave(self._ticket)


class _HeldAsyncExchange(_Held):
    async def read(self) -> bytes:
        chunk: bytes = await self._inner.read()
        return chunk

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._gate.leave(self._ticket)


# -------------------------------------------------------------------------------------- who shares a gate


def group_of(
    vendor: str, model: str | None, base_url: str | None, api_key: object, client: object
) -> Hashable:
    """Equal for backends that a provider counts together: one server, one key, one model.

    A key is kept as a digest.
    """
    if client is not None:
        return "client", id(client), model
    key = hashlib.sha256(api_key.encode()).digest() if isinstance(api_key, str) else id(api_key)
    return vendor, model, (base_url or "").rstrip("/"), key if api_key is not None else None


def checked_limit(limit: Any) -> int:
    """Check `max_concurrent_calls`. Raises TypeError if it is not an int, ValueError if it is below 1."""
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"max_concurrent_calls must be an int or None, not {type(limit).__name__}")
    if limit < 1:
        raise ValueError(f"max_concurrent_calls must be 1 or more, got {limit}; None is no limit")
    return limit


def gating(limit: int | None, *group: Any) -> Gating | None:
    """The gate of a backend with these options (see `group_of`); None without a limit."""
    return None if limit is None else Gating(limit, group_of(*group))


# ------------------------------------------------------------------------------- a backend of your own


@overload
def gated(backend: Backend, *, max_concurrent_calls: int, group: Hashable = None) -> Backend: ...
@overload
def gated(backend: AsyncBackend, *, max_concurrent_calls: int, group: Hashable = None) -> AsyncBackend: ...
def gated(backend: Any, *, max_concurrent_calls: int, group: Hashable = None) -> Any:
    """Put a backend of your own behind a gate, as `max_concurrent_calls` does for this package's backends.

    Args:
        backend: A backend for `Chat`, for `AsyncChat`, or for both.
        max_concurrent_calls: Most requests at a time; the others wait in the order in which they came.
        group: Backends with an equal value share their gate, such as a tenant's name; None: this one alone.

    Raises:
        TypeError: `max_concurrent_calls` is not an int.
        ValueError: It is below 1.
    """
    shared = ("backend", id(backend)) if group is None else ("own", group)
    return _Gated(backend, Gating(max_concurrent_calls, shared))


class _Gated:
    """Another backend, behind a gate."""

    def __init__(self, inner: Any, gating: Gating) -> None:
        self._inner = inner
        self._gating = gating

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("send", "asend"):
            return found
        return partial(getattr(self._gating, name), self._inner.dialect, found)
