"""An async HTTP client that stays cheap with hundreds of requests at the same time.

Owns: the choice of the connection pool for a request. Must never know: an SDK, a provider.

A pool of `httpx2` looks at all of its connections and requests whenever a request begins or ends. With 512 of
them that costs more than the rest of a turn. So there are many small pools, each made when it is needed.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx2

from .heads import has_more

__all__ = ["POOL_LIMITS", "TIMEOUT", "ShardedClient", "ShardedTransport"]

TIMEOUT: Final = httpx2.Timeout(600, connect=5.0)
"""Seconds. The default of both SDKs."""
POOL_LIMITS: Final = httpx2.Limits(max_connections=1000, max_keepalive_connections=1000, keepalive_expiry=5.0)
"""As many connections as the SDKs allow. All of them are kept open for five seconds, where the SDKs keep 100:
otherwise each burst of requests would begin with handshakes."""

_MAX_SHARDS: Final = 32
_BUSY: Final = 8
"""Requests in a pool. If each pool has as many, a further pool is made, up to 32."""


class ShardedTransport(httpx2.AsyncBaseTransport):
    """Sends each request over the pool with the fewest requests, of up to 32.

    Requests that come one after the other use one pool, and so one connection.

    Args:
        make: Makes a pool.
        max_shards: How many pools there may be.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncBaseTransport], max_shards: int = _MAX_SHARDS) -> None:
        self._make = make
        self._max_shards = max_shards
        self._shards = [make()]
        self._running = [0]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Its pool counts as busy until the response is closed."""
        place = self._place()
        self._running[place] += 1
        try:
            response = await self._shards[place].handle_async_request(request)
        except BaseException:
            self._running[place] -= 1
            raise
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _Counted(stream, self._running, place)
        return response

    def _place(self) -> int:
        least = min(self._running)
        if least >= _BUSY and len(self._shards) < self._max_shards:
            self._shards.append(self._make())
            self._running.append(0)
            return len(self._shards) - 1
        return self._running.index(least)

    async def aclose(self) -> None:
        """Close every pool."""
        for shard in self._shards:
            await shard.aclose()


class _Counted(httpx2.AsyncByteStream):
    """The body of a response. When it is closed, its pool has one request less."""

    def __init__(self, stream: httpx2.AsyncByteStream, running: list[int], place: int) -> None:
        self._stream = stream
        self._running = running
        self._place = place
        self._is_open = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._running[self._place] -= 1
        await self._stream.aclose()


class ShardedClient(httpx2.AsyncClient):
    """An `httpx2.AsyncClient` over sharded pools, with the SDKs' timeouts and limits as defaults.

    Proxies, mounts and certificates work as in any `httpx2.AsyncClient`. A `transport` of the caller's is
    used as it is. The class overrides the same methods as the SDKs' own clients for aiohttp.

    Attributes:
        lone_transport: See `DeadlineClient`.
    """

    lone_transport: httpx2.AsyncBaseTransport | None = None

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {"timeout": TIMEOUT, "limits": POOL_LIMITS, "follow_redirects": True}
        super().__init__(**{**defaults, **options})
        if has_more(options):
            self.lone_transport = None

    def _init_transport(self, *args: Any, **options: Any) -> httpx2.AsyncBaseTransport:
        transport: httpx2.AsyncBaseTransport | None = options.pop("transport", None)
        self.lone_transport = transport or _sharded(options)
        return self.lone_transport

    def _init_proxy_transport(
        self, proxy: httpx2.Proxy, *args: Any, **options: Any
    ) -> httpx2.AsyncBaseTransport:
        self.lone_transport = None  # the transports of proxies are made last
        return _sharded({**options, "proxy": proxy})


def _sharded(options: dict[str, Any]) -> ShardedTransport:
    if not isinstance(options.get("verify"), ssl.SSLContext):
        # Made once for all pools: to read the certificates takes longer than the rest of making a pool.
        names = {"verify", "cert", "trust_env"} & options.keys()
        options = {**options, "verify": httpx2.create_ssl_context(**{name: options[name] for name in names})}
        options.pop("cert", None)
    limits: httpx2.Limits = options.get("limits", POOL_LIMITS)
    part = httpx2.Limits(
        max_connections=_share(limits.max_connections),
        max_keepalive_connections=_share(limits.max_keepalive_connections),
        keepalive_expiry=limits.keepalive_expiry,
    )
    shards = _MAX_SHARDS if limits.max_connections is None else min(_MAX_SHARDS, limits.max_connections)
    return ShardedTransport(lambda: httpx2.AsyncHTTPTransport(**{**options, "limits": part}), max(1, shards))


def _share(limit: int | None) -> int | None:
    """One pool's part of a limit, rounded up, so that it is never 0."""
    return None if limit is None else -(-limit // _MAX_SHARDS)
