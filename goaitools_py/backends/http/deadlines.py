"""A blocking HTTP client with a deadline for the whole post.

Owns: a post's deadline, and the network under a client that keeps it. Must never know: an SDK, a provider.

The timeouts of an HTTP client start again with each read. A server, or a proxy, that sends one byte of its
headers each second can make a client wait for ever. Here each connect, read and write gets the time that is
left of the post. A name lookup cannot be interrupted, so it runs in a thread, and that thread is left behind
if time runs out.
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

from .heads import has_more

__all__ = ["DeadlineClient", "until"]

TIMEOUT: Final = httpx2.Timeout(600, connect=5.0)
SDK_LIMITS: Final = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
"""Both are the SDKs' defaults. Times are in seconds."""

_PIECE: Final = 16 * 1024
"""Bytes in one write. After each piece the time is looked at: a peer that reads slowly cannot make one write
last for ever."""

_KEPT_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5))
        if hasattr(socket, name)
    ),
]
"""As in Anthropic's own client: a connection that waits long for an answer is not taken for an idle one."""

_running = threading.local()


@contextlib.contextmanager
def until(seconds: float | None) -> Iterator[None]:
    """Inside, this thread's requests over a `DeadlineClient` must end after so many seconds."""
    _running.end = None if seconds is None else time.monotonic() + seconds
    try:
        yield
    finally:
        _running.end = None


def _left(timeout: float | None, late: type[Exception]) -> float | None:
    """Seconds for one operation. Raises `late` if the time of the post is over."""
    end: float | None = getattr(_running, "end", None)
    if end is None:
        return timeout
    left = end - time.monotonic()
    if left <= 0:
        raise late("the time for the whole request is over")
    return left if timeout is None or left < timeout else timeout


def _is_head(buffer: bytes) -> bool:
    """True for the head of a post in HTTP/1.1. The HTTP client writes its body next, or reads the answer.

    Frames of HTTP/2 begin with their length, and so never in this way.
    """
    return buffer.startswith(b"POST ") and buffer.endswith(b"\r\n\r\n")


class _Stream(httpcore2.NetworkStream):
    """A connection. Its operations keep the deadline of the thread that uses it.

    The head of a post goes out together with the beginning of its body: a write to a socket takes as long as
    a third of the other work for a post.
    """

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner
        self._held = b""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:
            self.write(b"", timeout)
        return self._inner.read(max_bytes, _left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._held:
            buffer, self._held = self._held + buffer, b""
        elif _is_head(buffer):
            self._held = buffer
            return
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._inner.write(piece, _left(timeout, httpcore2.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        if self._held:
            self.write(b"", timeout)
        # Python's ssl module takes one deadline for the whole handshake.
        left = _left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        self._inner.close()


class _Network(httpcore2.NetworkBackend):
    """Opens connections of the class `_Stream`."""

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
    """The addresses of a host, in the order in which they are tried."""
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

    Proxies, mounts and certificates work as in any `httpx2.Client`. The class overrides the same methods as
    the SDKs' own clients for aiohttp.

    Attributes:
        is_exact: False if a wait of this client may be longer than its deadline: with TLS inside of TLS, as
            to an ``https://`` proxy, the time starts again with each read.
        lone_transport: The transport of every request; None if a proxy or a mount has some of them.
    """

    is_exact = True
    lone_transport: httpx2.BaseTransport | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": TIMEOUT, "limits": SDK_LIMITS, "follow_redirects": True, **options})
        if has_more(options):
            self.lone_transport = None

    def _init_transport(self, *args: Any, **options: Any) -> httpx2.BaseTransport:
        given: httpx2.BaseTransport | None = options.pop("transport", None)
        self.lone_transport = given or self._made(None, options)
        return self.lone_transport

    def _init_proxy_transport(self, proxy: httpx2.Proxy, *args: Any, **options: Any) -> httpx2.BaseTransport:
        self.lone_transport = None  # the transports of proxies are made last
        return self._made(proxy, options)

    def _made(self, proxy: httpx2.Proxy | None, options: dict[str, Any]) -> _Transport:
        made = _Transport(proxy=proxy, **options)
        if not made.is_exact or (proxy is not None and proxy.url.scheme == "https"):
            self.is_exact = False
        return made


class _Transport(httpx2.HTTPTransport):
    """An `httpx2.HTTPTransport` over `_Network`.

    The pool of a transport has no public name. If a later `httpx2` does not have it under this name,
    `is_exact` is False, and the transport works without deadlines.
    """

    def __init__(
        self,
        *,
        proxy: httpx2.Proxy | None = None,
        limits: httpx2.Limits = SDK_LIMITS,
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
