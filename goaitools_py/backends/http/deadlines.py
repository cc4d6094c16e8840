"""A blocking HTTP client whose every wait ends when a post has to be over.

Owns: a post's deadline, and the network underneath a client that keeps it.
Must never know: an SDK, a provider.

The timeouts of an HTTP client count anew for each read: a server that sends one byte of its headers each
second is waited for as long as it likes, and so is a proxy. Here each connect, read and write is told what
is left of the post. A name lookup cannot be interrupted, so it runs in a thread, which is left behind if time
runs out.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import httpcore2
import httpx2

__all__ = ["DeadlineClient", "until"]

TIMEOUT: Final = httpx2.Timeout(600, connect=5.0)
LIMITS: Final = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
"""Both are the SDKs' defaults; seconds."""

_PIECE: Final = 16 * 1024
"""Bytes written at a time, so that a peer that reads slowly is not given the whole time for each packet."""

_KEPT_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5))
        if hasattr(socket, name)
    ),
]
"""As Anthropic's own client has it: a long answer without a byte is not taken for an idle connection."""

_running = threading.local()


@contextlib.contextmanager
def until(seconds: float | None) -> Iterator[None]:
    """What this thread sends over a `DeadlineClient` inside has to be over in so many seconds."""
    _running.end = None if seconds is None else time.monotonic() + seconds
    try:
        yield
    finally:
        _running.end = None


def _left(timeout: float | None, late: type[Exception]) -> float | None:
    """Seconds for one operation. Raises `late` if the post's time is over."""
    end: float | None = getattr(_running, "end", None)
    if end is None:
        return timeout
    left = end - time.monotonic()
    if left <= 0:
        raise late("the time for the whole request is over")
    return left if timeout is None or left < timeout else timeout


class _Stream(httpcore2.NetworkStream):
    """A connection whose operations know the deadline of the thread that uses it."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._inner.write(piece, _left(timeout, httpcore2.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        # One handshake is one operation with one deadline for Python's ssl module.
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._inner.close()


class _Network(httpcore2.NetworkBackend):
    """Opens such connections."""

    def __init__(self) -> None:
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        failure: Exception | None = None
        for address in _addresses(host, port, timeout):
            left = _left(timeout, httpcore2.ConnectTimeout)
            try:
                stream = self._inner.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return _Stream(stream)
        raise failure or httpcore2.ConnectError(f"{host} has no address")

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.NetworkStream:
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.connect_unix_socket(path, left, socket_options))

    def sleep(self, seconds: float) -> None:
        time.sleep(_left(seconds, httpcore2.ConnectTimeout) or 0.0)


def _addresses(host: str, port: int, timeout: float | None) -> list[str]:
    """The addresses of a host, in the order in which to try them."""
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    found: list[Any] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.append(error)
        finally:
            done.set()

    left = _left(timeout, httpcore2.ConnectTimeout)
    if left is None:
        look_up()
    else:
        threading.Thread(target=look_up, name="goaitools-lookup", daemon=True).start()
        if not done.wait(left):
            raise httpcore2.ConnectTimeout(f"the address of {host} was not found in time")
    if found and isinstance(found[-1], OSError):
        raise httpcore2.ConnectError(f"the address of {host} was not found ({type(found[-1]).__name__})")
    return list(dict.fromkeys(str(info[4][0]) for info in found))


# ------------------------------------------------------------------------------------------- the client


class DeadlineClient(httpx2.Client):
    """An `httpx2.Client` over that network, with the SDKs' timeouts and limits as defaults.

    Proxies, mounts and certificates are those of any `httpx2.Client`. It hooks in where the SDKs' own clients
    for aiohttp do.

    Attributes:
        is_exact: False if a wait of this client may be longer: TLS inside of TLS, as to an ``https://``
            proxy, counts each read anew.
    """

    is_exact = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": TIMEOUT, "limits": LIMITS, "follow_redirects": True, **options})

    def _init_transport(self, *args: Any, **options: Any) -> httpx2.BaseTransport:
        given: httpx2.BaseTransport | None = options.pop("transport", None)
        return given or self._made(None, options)

    def _init_proxy_transport(self, proxy: httpx2.Proxy, *args: Any, **options: Any) -> httpx2.BaseTransport:
        return self._made(proxy, options)

    def _made(self, proxy: httpx2.Proxy | None, options: dict[str, Any]) -> _Transport:
        made = _Transport(proxy=proxy, **options)
        if not made.is_exact or (proxy is not None and proxy.url.scheme == "https"):
            self.is_exact = False
        return made


class _Transport(httpx2.HTTPTransport):
    """An `httpx2.HTTPTransport` with another network underneath.

    What it sends over has no public name. Should that change, `is_exact` is False, and it is used as it is.
    """

    def __init__(
        self,
        *,
        proxy: httpx2.Proxy | None = None,
        limits: httpx2.Limits = LIMITS,
        http1: bool = True,
        http2: bool = False,
        **tls: Any,
    ) -> None:
        context = httpx2.create_ssl_context(**tls)
        super().__init__(verify=context, proxy=proxy, limits=limits, http1=http1, http2=http2)
        self.is_exact = isinstance(getattr(self, "_pool", None), httpcore2.ConnectionPool)
        given: dict[str, Any] = {
            "ssl_context": context,
            "max_connections": limits.max_connections,
            "max_keepalive_connections": limits.max_keepalive_connections,
            "keepalive_expiry": limits.keepalive_expiry,
            "http1": http1,
            "http2": http2,
            "network_backend": _Network(),
        }
        self._pool = _pool(proxy, given)


def _pool(proxy: httpx2.Proxy | None, given: dict[str, Any]) -> httpcore2.ConnectionPool:
    if proxy is None:
        return httpcore2.ConnectionPool(socket_options=_KEPT_ALIVE, **given)
    url = proxy.url
    given["proxy_url"] = httpcore2.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    given["proxy_auth"] = proxy.raw_auth
    if url.scheme in ("socks5", "socks5h"):
        return httpcore2.SOCKSProxy(**given)
    return httpcore2.HTTPProxy(
        proxy_headers=proxy.headers.raw,
        proxy_ssl_context=proxy.ssl_context,
        socket_options=_KEPT_ALIVE,
        **given,
    )
