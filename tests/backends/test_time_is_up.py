"""A turn's times hold whatever its request waits for: headers that drip, a handshake, a proxy, a name.

Nothing here is waited for longer than some tenths of a second, unless a rule is broken.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from goaitools_py import DeadlineExceededError, ProviderUnavailableError, Timeouts, TurnError
from goaitools_py.backends.http.deadlines import SDK_LIMITS, DeadlineClient, until
from goaitools_py.base import late_calls

from ._clients import CLIENTS, backend_over, close_client

PATIENCE = 40.0
"""Seconds after which a server gives up, so that a broken rule fails a test instead of hanging it."""
MOST = 2.5
"""Seconds that a turn may take whose time is `TIME`: a busy machine is slow."""
TIME = 0.15
STEP = 0.02
"""Seconds between two bytes: several come in `TIME`, so that a wait for each byte would never end."""

Script = Callable[[socket.socket, threading.Event], None]
"""What a connection gets, until the server is closed."""


class Server:
    """A raw TCP server that plays one script for each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._play, args=(connection,), daemon=True).start()

    def _play(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._script(connection, self._closed)

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def drip(begin: bytes, *, ask_first: bool = True) -> Script:
    """Send `begin` at once, and then a byte each `STEP` seconds."""

    def play(connection: socket.socket, closed: threading.Event) -> None:
        if ask_first:
            connection.recv(65536)
        connection.sendall(begin)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not closed.wait(STEP):
            connection.sendall(b"a")

    return play


HEADERS = drip(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Slow: ")
ERROR_BODY = drip(b"HTTP/1.1 503 Busy\r\nContent-Length: 99999\r\n\r\n{")
BODY = drip(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n{")
CHUNK = drip(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0")
REDIRECT = drip(b"HTTP/1.1 307 Moved\r\nLocation: /again\r\nContent-Length: 99999\r\n\r\n")
HANDSHAKE = drip(b"\x16\x03\x03\x40\x00", ask_first=False)
PROXY = drip(b"HTTP/1.1 200 Connection established\r\nX-Slow: ")

ANSWERS = {
    "headers": HEADERS,
    "error body": ERROR_BODY,
    "body": BODY,
    "chunk": CHUNK,
    "redirect": REDIRECT,
}


@pytest.fixture(autouse=True)
def _threads_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_calls, "IDLE_SECONDS", 0.02)


def _wait_for_those_left() -> None:
    """Calls that were left in their threads end with their connections."""
    for thread in threading.enumerate():
        if thread.name == "goaitools-aside":
            thread.join(2 * PATIENCE)


@pytest.fixture
def serve() -> Iterator[Callable[[Script], Server]]:
    with contextlib.ExitStack() as opened:
        opened.callback(_wait_for_those_left)

        def start(script: Script) -> Server:
            server = Server(script)
            opened.callback(server.close)
            return server

        yield start


@pytest.fixture
def chat_at(face: Any) -> Iterator[Callable[..., Any]]:
    """Makes a chat over a kind of client at a root address."""
    opened: list[Any] = []

    def make(kind: str, wire: str, root: str, **options: Any) -> Any:
        kind = kind if face.is_async or kind != "aiohttp" else "own"
        made = backend_over(kind, wire, root, is_async=face.is_async, api_key="k", opened=opened)
        return face.chat(made, **options)

    yield make
    for client in opened:
        close_client(client, getattr(face, "run", None))


def late(chat: Any, *, streamed: bool = False, **fields: Any) -> TurnError:
    """The error of a turn, which has to come in time."""
    began = time.monotonic()
    with pytest.raises(TurnError) as caught:
        chat.chat(user="Hello.", on_event=[].append if streamed else None, **fields)
    seconds = time.monotonic() - began
    assert seconds < MOST, f"it took {seconds:.1f} s"
    return caught.value


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", CLIENTS)
def test_the_turns_time_holds_whatever_drips(
    chat_at: Callable[..., Any], serve: Callable[[Script], Server], kind: str, answer: str
) -> None:
    """One byte now and then is no answer, and does not begin the wait anew."""
    chat = chat_at(kind, "openai", f"http://127.0.0.1:{serve(ANSWERS[answer]).port}")

    error = late(chat, timeout=TIME)

    assert type(error) is DeadlineExceededError
    assert error.state


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
@pytest.mark.parametrize("name", ["turn", "call", "first_delta"])
@pytest.mark.parametrize("kind", ["own", "client"])
def test_each_time_holds_on_each_wire(
    chat_at: Callable[..., Any], serve: Callable[[Script], Server], kind: str, wire: str, name: str
) -> None:
    """The error names the limit that has passed."""
    chat = chat_at(kind, wire, f"http://127.0.0.1:{serve(HEADERS).port}")

    error = late(chat, streamed=True, timeout=Timeouts(**{name: TIME}))

    assert type(error) is (DeadlineExceededError if name == "turn" else ProviderUnavailableError)
    assert ("timeout of" if name == "turn" else f"Timeouts({name}=") in str(error)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["own", "http_client", "client"])
def test_a_handshake_that_drips_is_left(
    chat_at: Callable[..., Any], serve: Callable[[Script], Server], kind: str
) -> None:
    """The server's part of a TLS handshake comes byte by byte."""
    chat = chat_at(kind, "openai", f"https://127.0.0.1:{serve(HANDSHAKE).port}")

    assert type(late(chat, timeout=TIME)) is DeadlineExceededError
    # An async HTTP client leaves the socket of a handshake that was cancelled to the garbage collector.
    gc.collect()


@pytest.mark.parametrize("kind", ["own", "client"])
def test_a_proxy_that_drips_is_left(
    face: Any,
    chat_at: Callable[..., Any],
    serve: Callable[[Script], Server],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes its time with the answer to CONNECT."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{serve(PROXY).port}")
    chat = chat_at(kind, "openai", "https://api.invalid")

    assert type(late(chat, timeout=TIME)) is DeadlineExceededError


@pytest.mark.parametrize("kind", ["own", "client"])
def test_a_port_that_does_not_answer_is_left(chat_at: Callable[..., Any], kind: str) -> None:
    """A connection that is not taken: the queue of the listener is full."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        chat = chat_at(kind, "openai", f"http://127.0.0.1:{listener.getsockname()[1]}")

        assert type(late(chat, timeout=TIME)) is DeadlineExceededError


@pytest.mark.parametrize("kind", ["own", "http_client", "client"])
def test_a_name_that_is_not_found_in_time_is_left(
    chat_at: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup cannot be interrupted; it goes on in its own thread."""
    released = threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        released.wait(PATIENCE)
        raise socket.gaierror("not found")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    chat = chat_at(kind, "openai", "http://slow.test")

    error = late(chat, timeout=TIME)
    released.set()

    assert type(error) is DeadlineExceededError


def test_a_name_that_does_not_exist_is_no_connection(
    face: Any, chat_at: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the lookup is told as such, and may pass."""

    def look_up(*_: Any, **__: Any) -> Any:
        raise socket.gaierror("not found")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    error = late(chat_at("own", "openai", "http://nowhere.test"), timeout=5)

    assert type(error) is ProviderUnavailableError
    assert error.retryable


def test_every_address_of_a_name_is_tried(
    face: Any, serve: Callable[[Script], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one refuses; all of them together have the request's time."""

    def play(connection: socket.socket, _: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    port = serve(play).port
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    real = socket.create_connection
    tried: list[str] = []

    def connect(address: Any, *args: Any, **kwargs: Any) -> Any:
        tried.append(address[0])
        if address[0] == "127.0.0.2":
            raise ConnectionRefusedError
        monkeypatch.undo()
        return real(address, *args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", connect)
    with DeadlineClient(trust_env=False) as client, until(5.0):
        answer = client.post(f"http://two.test:{port}/", content=b"{}")

    assert (answer.status_code, tried) == (200, ["127.0.0.2", "127.0.0.1"])


def test_a_peer_that_does_not_read_is_left(serve: Callable[[Script], Server]) -> None:
    """A body larger than what the system buffers is written for so long and no longer."""
    began = time.monotonic()
    server = serve(lambda _, closed: closed.wait(PATIENCE) and None)

    with DeadlineClient(trust_env=False) as client, until(TIME), pytest.raises(httpx2.TimeoutException):
        client.post(f"http://127.0.0.1:{server.port}/", content=b"x" * 30_000_000)

    assert time.monotonic() - began < MOST


# ------------------------------------------------------------------------------------ which client it is


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_a_client_made_here_keeps_time_in_the_callers_thread(wire: str) -> None:
    """An upgrade of `httpx2` that takes the way to its network away shows here. Of a caller's client, or of
    a key that a function fetches, nobody knows what it waits for."""
    opened: list[Any] = []

    def keeps_time(kind: str, api_key: Any = "k") -> bool:
        root = "http://127.0.0.1:1"
        made = backend_over(kind, wire, root, is_async=False, api_key=api_key, opened=opened)
        opened.append(made)
        return bool(made._edge._keeps_time)

    assert keeps_time("own")
    assert [keeps_time(kind) for kind in ("http_client", "classic", "client", "cloud")] == [False] * 4
    if wire != "anthropic":
        assert not keeps_time("own", lambda: "k")
    for client in opened:
        close_client(client, None)


def test_the_clients_defaults_are_the_sdks() -> None:
    """Timeouts, limits, and proxies from the environment."""
    with (
        DeadlineClient() as made,
        anthropic.DefaultHttpxClient() as theirs,
        openai.DefaultHttpxClient() as other,
    ):
        assert made.timeout == theirs.timeout == other.timeout
        assert made.follow_redirects == theirs.follow_redirects
        assert SDK_LIMITS == anthropic.DEFAULT_CONNECTION_LIMITS


def test_a_proxy_in_tls_is_not_exact() -> None:
    """TLS inside of TLS reads the packets by itself: such a client's posts run in a thread."""
    with (
        DeadlineClient(trust_env=False, proxy="http://127.0.0.1:1") as plain,
        DeadlineClient(trust_env=False, proxy="https://127.0.0.1:1") as secure,
    ):
        assert (plain.is_exact, secure.is_exact) == (True, False)
