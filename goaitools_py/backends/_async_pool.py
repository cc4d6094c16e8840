"""Which connection a request goes over, for very many requests at a time.

Owns: the free connections, the limits on their number, who waits for one.
Must never know: how a connection is made or what is said on it.

The pools of `httpx2` look at all connections and all requests whenever a request begins or ends. Here the
free connections lie on a stack: one look finds the warmest, however many are open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import anyio
import httpcore2
import httpx2

__all__ = ["Connection", "ConnectionStack"]


class Connection(Protocol):
    """What is asked of a connection: a part of `httpcore2.AsyncConnectionInterface`."""

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        """True if it leads to `origin`."""
        ...

    def has_expired(self) -> bool:
        """True if it was free for too long, or the other side has closed it."""
        ...

    def is_idle(self) -> bool:
        """True if another request may follow the last."""
        ...

    async def aclose(self) -> None:
        """Close the socket."""
        ...


_C = TypeVar("_C", bound=Connection)


class ConnectionStack(Generic[_C]):
    """Connections that carry one request at a time. Those that are free are stacked, the warmest on top.

    Args:
        make: A new connection to a server, not opened yet.
        max_open: How many there may be; a request beyond that waits.
        max_free: How many of them are kept while no request is on them.
    """

    def __init__(self, make: Callable[[httpcore2.Origin], _C], *, max_open: int, max_free: int) -> None:
        self._make = make
        self._max_open = max_open
        self._max_free = max_free
        self._open: set[_C] = set()
        self._free: deque[_C] = deque()  # the coldest first
        self._waiting: deque[_Waiter[_C]] = deque()

    async def take(self, origin: httpcore2.Origin, timeout: float | None = None) -> _C:
        """A connection to `origin` for the caller alone, until it is given back.

        Raises:
            httpx2.PoolTimeout: None became free within `timeout` seconds.
            httpx2.ConnectError: All were closed by `aclose` before one became free.
        """
        stale: list[_C] = []
        connection = self._find(origin, stale)
        try:
            await _close(stale)
        except BaseException:
            if connection is not None:
                await self.give_back(connection)
            raise
        return connection or await self._wait(origin, timeout)

    async def give_back(self, connection: _C) -> None:
        """The request is over. All that others count on is done before anything is awaited."""
        stale: list[_C] = []
        if connection in self._open and connection.is_idle():
            self._free.append(connection)
            if len(self._free) > self._max_free and not self._waiting:
                stale.append(self._drop_coldest())
        else:
            self._open.discard(connection)
            stale.append(connection)
        self._serve_waiting(stale)
        await _close(stale)

    async def aclose(self) -> None:
        """Close all of them. Requests that wait for one fail."""
        closing = list(self._open)
        self._open.clear()
        self._free.clear()
        while self._waiting:
            self._waiting.popleft().woken.set()
        await _close(closing)

    def _find(self, origin: httpcore2.Origin, stale: list[_C]) -> _C | None:
        """A free connection or a new one, None at the limit. `stale` gets what the caller is to close."""
        free = self._free
        while free and free[0].has_expired():
            stale.append(self._drop_coldest())
        for at in reversed(range(len(free))):
            connection = free[at]
            if connection.can_handle_request(origin):
                del free[at]
                if not connection.has_expired():
                    return connection
                self._open.discard(connection)
                stale.append(connection)
        if len(self._open) >= self._max_open:
            if not free:
                return None
            stale.append(self._drop_coldest())  # it leads to another server
        connection = self._make(origin)
        self._open.add(connection)
        return connection

    def _drop_coldest(self) -> _C:
        connection = self._free.popleft()
        self._open.discard(connection)
        return connection

    def _serve_waiting(self, stale: list[_C]) -> None:
        while self._waiting:
            connection = self._find(self._waiting[0].origin, stale)
            if connection is None:
                return
            waiter = self._waiting.popleft()
            waiter.connection = connection
            waiter.woken.set()

    async def _wait(self, origin: httpcore2.Origin, timeout: float | None) -> _C:
        waiter = _Waiter[_C](origin)
        self._waiting.append(waiter)
        try:
            with anyio.fail_after(timeout):
                await waiter.woken.wait()
        except BaseException as error:
            if waiter.connection is not None:  # it came in the same moment
                await self.give_back(waiter.connection)
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            if isinstance(error, TimeoutError):
                raise httpx2.PoolTimeout("no connection became free in time") from None
            raise
        if waiter.connection is None:
            raise httpx2.ConnectError("the client was closed")
        return waiter.connection


class _Waiter(Generic[_C]):
    """A request for which there is no connection yet."""

    def __init__(self, origin: httpcore2.Origin) -> None:
        self.origin = origin
        self.woken = anyio.Event()
        self.connection: _C | None = None


async def _close(connections: list[_C]) -> None:
    if connections:
        with anyio.CancelScope(shield=True):
            for connection in connections:
                await connection.aclose()
