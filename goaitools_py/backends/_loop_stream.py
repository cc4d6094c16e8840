"""One TCP stream, straight on the event loop of `asyncio`.

Owns: connecting, TLS, reading and writing, each within its time, and their failures as `httpx2` errors.
Must never know: HTTP, a pool.

The streams of `httpx2` go through `anyio`, which makes a detour of the loop for each read and each write: a
quarter of what one request of many costs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpx2

from ._loop_connect import connected_socket

__all__ = ["LoopStream", "connect"]

_FULL_BYTES: Final = 256 * 1024
"""A stream that holds so much unread data stops receiving until it is read."""
_INFO: Final = {"client_addr": "sockname", "server_addr": "peername"}


async def connect(
    host: str, port: int, *, timeout: float | None = None, socket_options: Iterable[Any] = ()
) -> LoopStream:
    """Open a connection within `timeout` seconds. Raises `httpx2.ConnectError` and `ConnectTimeout`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            connected = await connected_socket(host, port)
            try:
                for option in socket_options:
                    connected.setsockopt(*option)
            except BaseException:
                connected.close()
                raise
            _, stream = await loop.create_connection(LoopStream, sock=connected)
    except TimeoutError as error:
        raise httpx2.ConnectTimeout("no connection in time") from error
    except OSError as error:
        raise httpx2.ConnectError(str(error)) from error
    return stream


class LoopStream(asyncio.Protocol):
    """An open connection. The loop fills it; one reader and one writer at a time may wait on it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._is_held = False
        self._is_ended = False
        self._is_closed = False
        self._is_full = False
        self._fault: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    # --------------------------------------------------------------------------- for its user

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes, b"" at the end. Raises `httpx2.ReadError` and `ReadTimeout`."""
        received = self._received
        if not received and not self._is_ended:
            self._reader = _waiting(timeout, httpx2.ReadTimeout)
            try:
                await self._reader
            finally:
                self._reader = None
        if self._is_closed:
            raise httpx2.ReadError("the connection was closed")
        if not received and self._fault is not None:
            raise httpx2.ReadError(str(self._fault)) from self._fault
        data = bytes(received[:max_bytes])
        del received[:max_bytes]
        if self._is_held and not received:
            self._is_held = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes, timeout: float | None = None) -> None:
        """Send all of it. Raises `httpx2.WriteError` and `WriteTimeout`."""
        if self._is_ended:
            raise httpx2.WriteError("the connection was closed")
        self._transport.write(data)
        if self._is_full:
            self._writer = _waiting(timeout, httpx2.WriteTimeout)
            try:
                await self._writer
            finally:
                self._writer = None
            if self._is_ended:
                raise httpx2.WriteError("the connection was closed") from self._fault

    async def start_tls(
        self, context: ssl.SSLContext, server_hostname: str, timeout: float | None = None
    ) -> None:
        """Go on encrypted. Raises `httpx2.ConnectError` and `ConnectTimeout`; it is closed then."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                encrypted = await loop.start_tls(
                    self._transport, self, context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            self.close()
            raise httpx2.ConnectTimeout("no TLS handshake in time") from error
        except OSError as error:  # what `ssl` raises is one, too
            self.close()
            raise httpx2.ConnectError(str(error)) from error
        except BaseException:
            self.close()
            raise
        if encrypted is None:
            raise httpx2.ConnectError("the connection was closed during the TLS handshake")
        self._transport = encrypted

    def is_readable(self) -> bool:
        """True if a read would not wait. An idle connection of HTTP/1.1 is of no more use then."""
        return self._is_ended or bool(self._received)

    def close(self) -> None:
        """Close at once: what is not sent or read by now is of no use to anybody."""
        self._is_closed = self._is_ended = True
        self._transport.abort()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def get_extra_info(self, info: str) -> Any:
        """What users of the extension "network_stream" ask for: "socket", "ssl_object", the addresses."""
        if info == "is_readable":
            return self.is_readable()
        return self._transport.get_extra_info(_INFO.get(info, info))

    # --------------------------------------------------------------------------- for the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._received += data
        if len(self._received) > _FULL_BYTES and not self._is_held:
            self._is_held = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        """The other side says no more; the loop closes the socket after that."""
        self._is_ended = True
        _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever side."""
        self._is_ended = True
        self._fault = exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        """The other side takes in less than it is sent."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The other side has caught up."""
        self._is_full = False
        _wake(self._writer)


def _waiting(seconds: float | None, error: type[Exception]) -> asyncio.Future[None]:
    """A future that fails with `error` when its time is up, unless it is woken or cancelled before."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    if seconds is not None:
        timer = loop.call_later(seconds, _fail, future, error)
        future.add_done_callback(lambda _: timer.cancel())
    return future


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: type[Exception]) -> None:
    if not future.done():
        future.set_exception(error("no time is left"))
