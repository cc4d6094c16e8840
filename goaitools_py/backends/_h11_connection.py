"""One HTTP/1.1 connection: a request, its answer, the next request.

Owns: the order of writing and reading; the protocol itself is `h11`'s.
Must never know: a pool, an SDK, what the bytes mean.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Iterable
from typing import Any, Final

import h11
import httpcore2
import httpx2

from ._loop_stream import LoopStream, connect

__all__ = ["Http11Connection"]

_READ_BYTES: Final = 64 * 1024
_MAX_HEAD_BYTES: Final = 100 * 1024
"""What `httpcore2` allows for the head of an answer, too."""


class Http11Connection:
    """One request after the other, by the rules of `h11`."""

    def __init__(
        self,
        origin: httpcore2.Origin,
        ssl_context: ssl.SSLContext,
        socket_options: Iterable[Any],
        keepalive_seconds: float | None,
    ) -> None:
        self.stream: LoopStream | None = None
        self._origin = origin
        self._ssl_context = ssl_context
        self._socket_options = socket_options
        self._keepalive_seconds = keepalive_seconds
        self._free_until: float | None = None
        self._is_idle = False
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    # ------------------------------------------------------------------------------ for the pool

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        return origin == self._origin

    def has_expired(self) -> bool:
        is_over = self._free_until is not None and time.monotonic() > self._free_until
        return is_over or self.stream is None or self.stream.is_readable()

    def is_idle(self) -> bool:
        return self._is_idle

    def close(self) -> None:
        self._is_idle = False
        if self.stream is not None:
            self.stream.close()

    async def aclose(self) -> None:
        self.close()

    # -------------------------------------------------------------------------------- one exchange

    async def send(self, request: httpx2.Request, timeouts: dict[str, Any]) -> h11.Response:
        """Open the connection if it is new, send all of a request, and wait for the head of the answer."""
        self._is_idle = False
        if self.stream is None:
            self.stream = await self._opened(timeouts.get("connect"))
        try:
            with contextlib.suppress(httpx2.WriteError):  # a server may answer before it has read all
                await self._write(self.stream, request, timeouts.get("write"))
            while True:
                event = await self._next_event(timeouts.get("read"))
                if isinstance(event, h11.Response):
                    return event
                if not isinstance(event, h11.InformationalResponse):
                    raise httpx2.RemoteProtocolError("the server did not answer with a response")
        except h11.ProtocolError as error:
            raise _as_httpx2(error) from error

    async def receive(self, timeout: float | None) -> bytes:
        """The next piece of the body, b"" at its end."""
        try:
            while True:
                event = await self._next_event(timeout)
                if not isinstance(event, h11.Data):
                    return b""
                if event.data:
                    return bytes(event.data)
        except h11.ProtocolError as error:
            raise _as_httpx2(error) from error

    def finish(self) -> None:
        """Get ready for the next request; close if there cannot be another."""
        protocol = self._protocol
        # What nobody has asked for must not pass for the answer to the next request.
        is_clean = not protocol.trailing_data[0]
        if is_clean and protocol.our_state is h11.DONE and protocol.their_state is h11.DONE:
            protocol.start_next_cycle()
            self._is_idle = True
            if self._keepalive_seconds is not None:
                self._free_until = time.monotonic() + self._keepalive_seconds
        else:
            self.close()

    async def _opened(self, timeout: float | None) -> LoopStream:
        host = self._origin.host.decode("ascii")
        stream = await connect(host, self._origin.port, timeout=timeout, socket_options=self._socket_options)
        if self._origin.scheme == b"https":
            self._ssl_context.set_alpn_protocols(["http/1.1"])
            await stream.start_tls(self._ssl_context, host, timeout)
        return stream

    async def _write(self, stream: LoopStream, request: httpx2.Request, timeout: float | None) -> None:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        send = self._protocol.send
        target, headers = request.url.raw_path, request.headers.raw
        unsent = send(h11.Request(method=request.method, target=target, headers=headers)) or b""
        async for chunk in request.stream:
            unsent += send(h11.Data(data=chunk)) or b""
            if len(unsent) >= _READ_BYTES:
                await stream.write(unsent, timeout)
                unsent = b""
        unsent += send(h11.EndOfMessage()) or b""
        if unsent:
            await stream.write(unsent, timeout)

    async def _next_event(self, timeout: float | None) -> object:
        assert self.stream is not None
        protocol = self._protocol
        while True:
            event = protocol.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = await self.stream.read(_READ_BYTES, timeout)
            if not data and protocol.their_state is h11.SEND_RESPONSE:
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
            protocol.receive_data(data)


def _as_httpx2(error: h11.ProtocolError) -> httpx2.ProtocolError:
    is_ours = isinstance(error, h11.LocalProtocolError)
    return (httpx2.LocalProtocolError if is_ours else httpx2.RemoteProtocolError)(str(error))
