"""An open HTTP response, read chunk by chunk, and its failures.

Owns: the two exchanges, a request's timeouts, failures of the network as `BackendError`.
Must never know: an SDK, a provider API, the meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import anyio
import httpx2

from ...base.process import Process, this_process
from ..base import BackendError, ResponseHead

__all__ = [
    "HttpAsyncExchange",
    "HttpExchange",
    "body_of",
    "bounded_timeout",
    "is_timeout",
    "let_body_take",
    "status_errors",
    "wire_errors",
]

_SHORTEST_WAIT = 0.001
"""Seconds. It stands for 0: to the operating system a socket timeout of 0 means "do not block"."""


def wire_errors() -> tuple[type[Exception], ...]:
    """The exceptions that a request or an open body may raise because of the network.

    Errors of `ssl` and `anyio` are not always mapped (<https://github.com/pydantic/httpx2/issues/854>).
    """
    return (
        *_either("HTTPError"),
        *_either("StreamError"),
        OSError,
        anyio.EndOfStream,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
    )


def status_errors() -> tuple[type[httpx2.HTTPStatusError], ...]:
    """The exceptions that `raise_for_status` raises."""
    return _either("HTTPStatusError")


def is_timeout(error: BaseException) -> bool:
    """True if `error` says that time ran out."""
    return isinstance(error, (TimeoutError, *_either("TimeoutException")))


def body_of(response: httpx2.Response) -> bytes | None:
    """The body of a response; None if it was not read to its end."""
    try:
        return response.content
    except _either("ResponseNotRead"):
        return None


def _either(name: str) -> tuple[type[Any], ...]:
    # A caller's own SDK client may run on classic httpx. Its classes count only if it is imported.
    modules = (httpx2, sys.modules.get("httpx"))
    return tuple(getattr(module, name) for module in modules if module is not None)


def bounded_timeout(own: float | httpx2.Timeout | None, seconds: float | None) -> httpx2.Timeout:
    """The client's own timeouts, each at most `seconds`.

    Args:
        own: A number of seconds, None for no limit, or a `Timeout` of either httpx generation.
        seconds: The time left for the call, or None without a limit.
    """
    limits = httpx2.Timeout(own) if own is None or isinstance(own, (int, float)) else own
    phases = limits.as_dict()
    if seconds is not None:
        left = max(seconds, _SHORTEST_WAIT)
        phases = {phase: left if limit is None or limit > left else limit for phase, limit in phases.items()}
    return httpx2.Timeout(**phases)


def let_body_take(response: httpx2.Response, timeout: httpx2.Timeout) -> None:
    """Set how long each read of the body may wait. The body must not have been read from yet.

    A transport looks the timeout up for the headers, and again for the body. So the body may have more time.
    """
    limits = response.request.extensions.get("timeout")
    if isinstance(limits, dict):
        limits["read"] = timeout.read


def _head(response: httpx2.Response, request_id_header: str) -> ResponseHead:
    headers = response.headers
    return ResponseHead(
        status=response.status_code, headers=headers, request_id=headers.get(request_id_header)
    )


def _is_plain(response: httpx2.Response) -> bool:
    """True if the raw bytes can be handed out: not compressed, and not read before, as by an event hook.

    They are then read from the stream itself. The iterators of a response would add three calls to each read.
    """
    return not response.is_stream_consumed and "content-encoding" not in response.headers


def _interruption(response: httpx2.Response, error: Exception) -> BackendError:
    timed_out = is_timeout(error)
    if isinstance(error, httpx2.RequestError):
        error.request = response.request
    what = "stalled" if timed_out else "broke off"
    return BackendError(
        f"the answer of {response.url.host} {what} ({type(error).__name__})",
        kind="interrupted",
        timed_out=timed_out,
        sdk_error=error,
    )


def _nothing_left() -> Iterator[bytes]:
    raise httpx2.StreamClosed
    yield b""


async def _nothing_left_async() -> AsyncIterator[bytes]:
    raise httpx2.StreamClosed
    yield b""


class _OfProcess:
    """A response belongs to the process that sent the request. A fork leaves its connection alone."""

    _process: Process
    _is_over = False
    """True once a read has found the end of the body, or failed. Later reads return b""."""

    def _check_process(self) -> None:
        if self._process is not this_process():
            raise BackendError("the request was sent before this process was forked", kind="interrupted")


class HttpExchange(_OfProcess):
    """A response: its headers have come, its body is not read yet.

    The response is closed at the end of its body, if that breaks off, and if its reader is interrupted or
    cancelled. In every other case the owner of the exchange closes it.
    """

    def __init__(self, response: httpx2.Response, request_id_header: str) -> None:
        self.head = _head(response, request_id_header)
        self._process = this_process()
        self._response = response
        self._chunks: Iterator[bytes]
        self._chunks = iter(cast(Any, response.stream)) if _is_plain(response) else response.iter_bytes()

    def read(self) -> bytes:
        """The next bytes, decompressed, and cut as they came; b"" at the end. Raises `BackendError`."""
        self._check_process()
        try:
            for chunk in self._chunks:
                if chunk:
                    return chunk
            self._is_over = True
            self._response.close()
        except BaseException as error:
            self._is_over = True
            self._end()
            if isinstance(error, wire_errors()):
                raise _interruption(self._response, error) from None
            raise
        return b""

    def interrupt(self) -> None:
        """End a `read` that waits in another thread: it fails, or returns the bytes that have come.

        The socket is shut down and not closed: closing does not wake the reader, and another file may get
        its number a moment later. Over HTTP/2 other requests share the socket, so it is left alone. There
        the read ends with the next bytes, or when its time is over.
        """
        stream = self._response.extensions.get("network_stream")
        if self._process is not this_process():
            return  # the connection is the parent's
        if stream is None or self._response.is_closed or self._response.http_version == "HTTP/2":
            return
        connection = stream.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):  # the other side was faster
                # Not the method of the SSL socket: that also drops the session which the reader is using.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back. Unread bytes are lost. It may be called twice."""
        if self._process is not this_process():
            return
        self._end()
        if not self._is_over:
            self._chunks = _nothing_left()

    def _end(self) -> None:
        try:
            self._response.close()
        except wire_errors():
            pass


class HttpAsyncExchange(_OfProcess):
    """As `HttpExchange`, awaited."""

    def __init__(self, response: httpx2.Response, request_id_header: str) -> None:
        self.head = _head(response, request_id_header)
        self._process = this_process()
        self._response = response
        self._chunks: AsyncIterator[bytes]
        self._chunks = aiter(cast(Any, response.stream)) if _is_plain(response) else response.aiter_bytes()

    async def read(self) -> bytes:
        """As `HttpExchange.read`, awaited."""
        self._check_process()
        try:
            async for chunk in self._chunks:
                if chunk:
                    return chunk
            self._is_over = True
            await self._response.aclose()
        except GeneratorExit:
            raise  # the event loop is gone, so nothing can be awaited
        except BaseException as error:
            self._is_over = True
            await self._end()
            if isinstance(error, wire_errors()):
                raise _interruption(self._response, error) from None
            raise
        return b""

    async def aclose(self) -> None:
        """As `HttpExchange.close`, awaited."""
        if self._process is not this_process():
            return
        await self._end()
        if not self._is_over:
            self._chunks = _nothing_left_async()

    async def _end(self) -> None:
        try:
            # First the generator: one that is left behind is closed by the event loop, some time later.
            if (end := getattr(self._chunks, "aclose", None)) is not None:
                await end()
            await self._response.aclose()
        except wire_errors():
            pass
