"""HTTP for very many requests at a time: an `httpx2` client whose cost does not grow with their number.

Owns: what is exchanged under a client, and its two ways to a server. Must never know: an SDK, a provider.

The client stays the caller's or the SDK's own: limits, timeouts, redirects, TLS, proxies, socket options.
Only what lies under it is another. What is rare goes the way that it always went: HTTP/2, web sockets, unix
sockets, an event loop that is not `asyncio`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import httpcore2
import httpx2

from ._async_pool import ConnectionStack
from ._h11_connection import Http11Connection

__all__ = ["LIMITS", "TIMEOUT", "made_for_many", "new_client"]

TIMEOUT: Final = httpx2.Timeout(600, connect=5.0)
"""Seconds. The default of both SDKs."""
LIMITS: Final = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
"""The default of both SDKs."""

_PORTS: Final = {"http": 80, "https": 443}


def new_client(**options: Any) -> httpx2.AsyncClient:
    """A client with the SDKs' defaults. `options` are those of `httpx2.AsyncClient`."""
    defaults: dict[str, Any] = {"timeout": TIMEOUT, "limits": LIMITS, "follow_redirects": True}
    return made_for_many(httpx2.AsyncClient(**defaults | options), socket_options=_keep_alive())


def made_for_many(
    client: httpx2.AsyncClient, *, socket_options: Iterable[tuple[int, int, int]] = ()
) -> httpx2.AsyncClient:
    """The same client, with other pools under it. It must not have been used yet.

    Transports that are not `httpx2`'s own stay as they are, and so do those for HTTP/2. `socket_options` are
    for direct connections, where the client has none itself.
    """
    # All of this is private to `httpx2`: a release that keeps it elsewhere gets its own pools.
    with contextlib.suppress(AttributeError):
        client._transport = _for_many(client._transport, socket_options)
        client._mounts = {
            pattern: mounted and _for_many(mounted, socket_options)
            for pattern, mounted in client._mounts.items()
        }
    return client


def _keep_alive() -> list[tuple[int, int, int]]:
    """As the anthropic SDK: no router forgets a connection while a model thinks for minutes."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5), ("TCP_KEEPIDLE", 60)):
        if hasattr(socket, name):  # seconds, probes, seconds; not every system has them all
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _for_many(
    transport: httpx2.AsyncBaseTransport, socket_options: Iterable[tuple[int, int, int]]
) -> httpx2.AsyncBaseTransport:
    if type(transport) is not httpx2.AsyncHTTPTransport:
        return transport
    pool = transport._pool
    if not isinstance(pool, httpcore2.AsyncConnectionPool) or pool._http2 or not pool._http1:
        return transport
    is_plain = type(pool) is httpcore2.AsyncConnectionPool and not pool._proxy  # not one of its proxy classes
    if not is_plain or pool._uds or pool._local_address or pool._retries:
        transport._pool = _StackedPool(pool)  # type: ignore[assignment]
        return transport
    return _DirectTransport(transport, pool, socket_options)


# ----------------------------------------------------------------------- connections of `httpcore2`


class _StackedPool:
    """Stands where an `httpcore2` pool stood, and lets that make the connections, as through a proxy."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self._pool = pool
        self._stack = ConnectionStack(
            pool.create_connection,
            max_open=pool._max_connections,
            max_free=pool._max_keepalive_connections,
        )

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request; return when the head of its answer is there."""
        if request.url.scheme not in (b"http", b"https"):
            return await self._pool.handle_async_request(request)
        timeout = request.extensions.get("timeout", {}).get("pool")
        connection = await self._stack.take(request.url.origin, timeout)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self._stack.give_back(connection)
            raise
        response.stream = _StackedBody(response.stream, connection, self._stack)
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        await self._stack.aclose()
        await self._pool.aclose()

    async def __aenter__(self) -> _StackedPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _StackedBody:
    def __init__(
        self,
        stream: Any,
        connection: httpcore2.AsyncConnectionInterface,
        stack: ConnectionStack[httpcore2.AsyncConnectionInterface],
    ) -> None:
        self._stream = stream
        self._connection = connection
        self._stack = stack
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.__aiter__()  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            try:
                await self._stream.aclose()
            finally:
                await self._stack.give_back(self._connection)


# ----------------------------------------------------------------------------- connections of our own


class _DirectTransport(httpx2.AsyncBaseTransport):
    """Sends straight to the server. `other` has the settings, and takes what is out of the ordinary."""

    def __init__(
        self,
        other: httpx2.AsyncHTTPTransport,
        pool: httpcore2.AsyncConnectionPool,
        socket_options: Iterable[tuple[int, int, int]],
    ) -> None:
        self._other = other
        self._ssl_context = pool._ssl_context or httpx2.create_ssl_context()
        self._socket_options = tuple(pool._socket_options or socket_options)
        self._keepalive_seconds = pool._keepalive_expiry
        self._stack = ConnectionStack(
            self._make, max_open=pool._max_connections, max_free=pool._max_keepalive_connections
        )

    def _make(self, origin: httpcore2.Origin) -> Http11Connection:
        return Http11Connection(origin, self._ssl_context, self._socket_options, self._keepalive_seconds)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return when the head of its answer is there. Raises `httpx2` errors."""
        if not _is_ordinary(request):
            return await self._other.handle_async_request(request)
        timeouts = request.extensions.get("timeout") or {}
        url = request.url
        origin = httpcore2.Origin(url.raw_scheme, url.raw_host, url.port or _PORTS[url.scheme])
        connection = await self._stack.take(origin, timeouts.get("pool"))
        try:
            head = await connection.send(request, timeouts)
        except BaseException:
            connection.close()
            await self._stack.give_back(connection)
            raise
        return httpx2.Response(
            status_code=head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(connection, self._stack, timeouts.get("read")),
            extensions={
                "http_version": b"HTTP/" + head.http_version,
                "reason_phrase": head.reason,
                "network_stream": connection.stream,
            },
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._stack.aclose()
        await self._other.aclose()


def _is_ordinary(request: httpx2.Request) -> bool:
    if request.url.scheme not in _PORTS or request.extensions.keys() - {"timeout"}:
        return False
    if request.method == "CONNECT" or "upgrade" in request.headers:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, whose connection is free again when it is closed."""

    def __init__(
        self, connection: Http11Connection, stack: ConnectionStack[Http11Connection], timeout: float | None
    ) -> None:
        self._connection = connection
        self._stack = stack
        self._timeout = timeout
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._is_closed:
            raise StopAsyncIteration
        try:
            data = await self._connection.receive(self._timeout)
        except BaseException:
            await self.aclose()
            raise
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Give the connection back; if not all was read, it is closed."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.finish()
            await self._stack.give_back(self._connection)
