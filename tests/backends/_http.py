"""Made-up servers for the tests of the edges: in memory, and on the loopback.

Owns: bodies that break, transports that fail, a server that keeps connections. Must never know: an SDK.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import httpx2

Colour = Literal["sync", "async"]
Handler = Callable[[httpx2.Request], httpx2.Response]


class Chunks(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that remembers being closed, and may break at the end."""

    def __init__(self, *chunks: bytes, error: BaseException | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def failing(error: BaseException) -> Handler:
    """A server that is never reached."""

    def handler(_: httpx2.Request) -> httpx2.Response:
        raise error

    return handler


def mock_http(answer: bytes = b"{}", seen: list[httpx2.Request] | None = None) -> httpx2.Client:
    """An HTTP client whose every answer is the same; the requests are added to `seen`."""
    return httpx2.Client(transport=httpx2.MockTransport(_answering(answer, seen)))


def mock_async_http(answer: bytes = b"{}", seen: list[httpx2.Request] | None = None) -> httpx2.AsyncClient:
    """As `mock_http`, awaited."""
    return httpx2.AsyncClient(transport=httpx2.MockTransport(_answering(answer, seen)))


def _answering(answer: bytes, seen: list[httpx2.Request] | None) -> Handler:
    def handler(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(request)
        return httpx2.Response(200, content=answer)

    return handler


class _Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def loopback() -> Iterator[str]:
    """The address of a loopback server that answers ``{}`` and keeps its connections open."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
