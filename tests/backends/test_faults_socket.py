"""Provider faults through a real loopback socket and the real SDK, in both colours."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import openai
import pytest

from goaitools_py.backends import AsyncOpenAIChatBackend, BackendError, OpenAIChatBackend
from goaitools_py.backends.base import ModelRequest, ResponseHead

Colour = Literal["sync", "async"]
Script = Callable[["Line"], None]

KEY = "sk-never-shown"
SECRET = b"never shown either"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = 10.0
"""Seconds that no test waits for; a safety net only."""


class Line:
    """One accepted connection, its request already read, and the test's signal to go on."""

    def __init__(self, conn: socket.socket, go_on: threading.Event) -> None:
        self.conn = conn
        self.go_on = go_on

    def send(self, data: bytes) -> None:
        self.conn.sendall(data)

    def reset(self) -> None:
        self.conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.conn.close()


class Server:
    """A raw TCP server that plays one script for each connection and counts them."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.go_on = threading.Event()
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self.listener.accept()
                self.connections += 1
                with conn, contextlib.suppress(OSError):
                    read_request(conn)
                    self.script(Line(conn, self.go_on))

    def close(self) -> None:
        self.go_on.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(LONG)


def read_request(conn: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += conn.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += conn.recv(65536)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture
def serve() -> Iterator[Callable[[Script], Server]]:
    servers: list[Server] = []

    def start(script: Script) -> Server:
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class Answer:
    """What was received, also when the exchange failed."""

    head: ResponseHead
    chunks: tuple[bytes, ...] = ()


def ask(colour: Colour, server: Server, answer: Answer | None = None, *, timeout: float = LONG) -> Answer:
    """Post a request and read the answer to its end; the server goes on after the first chunk."""
    answer = answer or Answer()
    request = ModelRequest(path="/chat/completions", body=b'{"say": "never shown either"}', timeout=timeout)
    if colour == "async":
        asyncio.run(_ask_async(server, request, answer))
        return answer
    backend = OpenAIChatBackend("m", base_url=server.base_url, api_key=KEY)
    with contextlib.closing(backend), contextlib.closing(backend.send(request)) as exchange:
        answer.head = exchange.head
        while chunk := exchange.read():
            answer.chunks += (chunk,)
            server.go_on.set()
    return answer


async def _ask_async(server: Server, request: ModelRequest, answer: Answer) -> None:
    backend = AsyncOpenAIChatBackend("m", base_url=server.base_url, api_key=KEY)
    async with contextlib.aclosing(backend):
        exchange = await backend.asend(request)
        async with contextlib.aclosing(exchange):
            answer.head = exchange.head
            while chunk := await exchange.read():
                answer.chunks += (chunk,)
                server.go_on.set()


def failure(
    colour: Colour, server: Server, answer: Answer | None = None, *, timeout: float = LONG
) -> BackendError:
    with pytest.raises(BackendError) as caught:
        ask(colour, server, answer, timeout=timeout)
    return caught.value


def http(status: str, body: bytes, *headers: str) -> Script:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return lambda line: line.send(data)


# ----------------------------------------------------------------------------------------- no answer


@pytest.mark.parametrize("script", [Line.reset, lambda line: line.conn.close()], ids=["RST", "EOF"])
def test_connection_lost_before_the_headers(
    colour: Colour, serve: Callable[[Script], Server], script: Script
) -> None:
    """A connection that ends before the headers is "unavailable", and is tried once."""
    server = serve(script)

    error = failure(colour, server)

    assert (error.kind, error.status, error.timed_out) == ("unavailable", None, False)
    assert type(error.sdk_error) is openai.APIConnectionError
    assert server.connections == 1


def test_connection_refused(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A port that nobody listens on is "unavailable"."""
    server = serve(Line.reset)
    server.close()

    error = failure(colour, server)

    assert (error.kind, error.status, error.timed_out) == ("unavailable", None, False)


def test_stall_before_the_headers(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A server that never answers is "unavailable" after the request's timeout, and marked as timed out."""
    server = serve(lambda line: line.go_on.wait(LONG) and None)

    error = failure(colour, server, timeout=0.05)

    assert (error.kind, error.status, error.timed_out) == ("unavailable", None, True)
    assert type(error.sdk_error) is openai.APITimeoutError


# -------------------------------------------------------------------------------------- error answers


@pytest.mark.parametrize(
    ("status", "error_class", "body"),
    [
        ("401 Unauthorized", openai.AuthenticationError, b'{"error":{"code":"invalid_api_key"}}'),
        ("413 Content Too Large", openai.APIStatusError, b""),
        ("429 Too Many Requests", openai.RateLimitError, b'{"error":{"code":"rate_limit_exceeded"}}'),
        ("500 Internal Server Error", openai.InternalServerError, b'{"error":{"message":"x"}}'),
        ("502 Bad Gateway", openai.InternalServerError, b"<html>bad gateway</html>"),
    ],
)
def test_error_answer(
    colour: Colour,
    serve: Callable[[Script], Server],
    status: str,
    error_class: type[openai.APIStatusError],
    body: bytes,
) -> None:
    """An error status comes with its headers, body and request id, untouched, after one request."""
    server = serve(http(status, body, "Retry-After: 7", "X-Request-Id: req-9"))

    error = failure(colour, server)

    assert (error.status, error.body, error.request_id) == (int(status[:3]), body, "req-9")
    assert error.headers["retry-after"] == "7"
    assert type(error.sdk_error) is error_class
    assert server.connections == 1


def test_error_answer_that_breaks_off(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """When the body of an error answer breaks off, its status and headers still count."""
    server = serve(
        lambda line: line.send(b"HTTP/1.1 429 Slow\r\nContent-Length: 99\r\nRetry-After: 7\r\n\r\n{")
    )

    error = failure(colour, server)

    assert (error.status, error.body, error.headers["retry-after"]) == (429, b"", "7")


# ----------------------------------------------------------------------------------- broken-off bodies


def test_short_body(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A body shorter than its Content-Length is "interrupted"; what came was handed out before."""
    server = serve(lambda line: line.send(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"id":'))
    answer = Answer()

    error = failure(colour, server, answer)

    assert (error.kind, error.status, error.timed_out) == ("interrupted", None, False)
    assert b"".join(answer.chunks) == b'{"id":'


def test_reset_in_the_body(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A connection reset in the body is "interrupted"; chunks before it were handed out as they came."""

    def script(line: Line) -> None:
        line.send(CHUNKED + b"5\r\nfirst\r\n")
        assert line.go_on.wait(LONG)
        line.reset()

    answer = Answer()

    error = failure(colour, serve(script), answer)

    assert (error.kind, error.timed_out) == ("interrupted", False)
    assert answer.chunks == (b"first",)


def test_chunked_body_without_its_terminator(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A chunked body without its last chunk is "interrupted", although the socket closed cleanly."""
    answer = Answer()

    error = failure(colour, serve(lambda line: line.send(CHUNKED + b"5\r\nfirst\r\n")), answer)

    assert (error.kind, error.timed_out) == ("interrupted", False)
    assert answer.chunks == (b"first",)


def test_stall_in_the_body(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A body that stops coming is "interrupted" and marked as timed out."""

    def script(line: Line) -> None:
        line.send(CHUNKED + b"5\r\nfirst\r\n")
        released.wait(LONG)

    released = threading.Event()
    answer = Answer()

    error = failure(colour, serve(script), answer, timeout=0.5)
    released.set()

    assert (error.kind, error.timed_out) == ("interrupted", True)
    assert answer.chunks == (b"first",)


# --------------------------------------------------------------------------------------- good answers


def test_chunks_are_handed_out_before_the_body_is_complete(
    colour: Colour, serve: Callable[[Script], Server]
) -> None:
    """Nothing is collected: the server sends the second chunk only after the first was read."""

    def script(line: Line) -> None:
        line.send(CHUNKED + b"5\r\nfirst\r\n")
        assert line.go_on.wait(LONG)
        line.send(b"6\r\nsecond\r\n0\r\n\r\n")

    answer = ask(colour, serve(script))

    assert answer.chunks == (b"first", b"second")


def test_body_that_ends_with_the_connection(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """Without length or chunks a closed socket is the end; whether the reply is whole is the dialect's."""
    answer = ask(colour, serve(lambda line: line.send(b"HTTP/1.0 200 OK\r\n\r\ndata: 1\n\n")))

    assert b"".join(answer.chunks) == b"data: 1\n\n"


def test_html_with_status_200(colour: Colour, serve: Callable[[Script], Server]) -> None:
    """A 200 with HTML is handed out as it is; judging it is the dialect's."""
    answer = ask(colour, serve(http("200 OK", b"<html>", "Content-Type: text/html", "X-Request-Id: req-1")))

    assert answer.head.status == 200
    assert answer.head.headers["content-type"] == "text/html"
    assert answer.head.request_id == "req-1"
    assert answer.chunks == (b"<html>",)


# ------------------------------------------------------------------------------------ what texts show


@pytest.mark.parametrize(
    "script",
    [
        Line.reset,
        http("401 Unauthorized", b'{"error":{"message":"bad key sk-never-shown, ' + SECRET + b'"}}'),
        lambda line: line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + SECRET),
    ],
    ids=["no answer", "error answer", "short body"],
)
def test_no_text_shows_content_or_key(
    colour: Colour, serve: Callable[[Script], Server], script: Script
) -> None:
    """A failure's text names the host and the class of failure, never the body or the key."""
    error = failure(colour, serve(script))

    shown = str(error) + repr(error)
    assert "127.0.0.1" in shown
    assert KEY not in shown
    assert SECRET.decode() not in shown
