"""A redirect: followed within its origin, refused beyond it, whatever client sends the request."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from goaitools_py import ProviderRejectedError
from goaitools_py.backends import BackendError
from goaitools_py.backends.http.failures import redirect_of
from goaitools_py.base import rawjson
from goaitools_py.compaction import Compactor, MessageLimit, Summarize

from ..turn._stalling import Words
from ._clients import CLIENTS, backend_over, close_client

KEY = "sk-canary-key"
STATUSES = (301, 302, 303, 307, 308)
WIRES = ("openai", "openai-responses", "anthropic")

Answer = Callable[["Request"], tuple[int, dict[str, str], bytes]]


class Request:
    """One request as a server got it."""

    def __init__(self, handler: Any) -> None:
        self.method: str = handler.command
        self.path: str = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body: bytes = handler.rfile.read(int(handler.headers.get("content-length") or 0))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def _answer(self) -> None:
        request = Request(self)
        self.server.owner.requests.append(request)
        status, headers, body = self.server.owner.answer(request)
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET = do_HEAD = _answer

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


class Server:
    """A loopback server with one answer for all requests, which it keeps."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True).start()
        self.root = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    with contextlib.ExitStack() as opened:

        def start(answer: Answer) -> Server:
            server = Server(answer)
            opened.callback(server.close)
            return server

        yield start


def redirecting(status: int, location: str) -> Answer:
    """A server that sends everybody elsewhere."""
    return lambda _: (status, {"location": location}, b"<html>moved</html>")


def replying(wire: str) -> Answer:
    """A server of a wire that always says the same."""
    words = Words(wire, "Hello, Ada.")

    def answer(request: Request) -> tuple[int, dict[str, str], bytes]:
        stream = b'"stream":true' in request.body
        kind = "text/event-stream" if stream else "application/json"
        return 200, {"content-type": kind}, words.whole(stream=stream)

    return answer


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest, face: Any) -> str:
    # aiohttp is for async clients only: there the sync face takes one of its own once more.
    return str(request.param) if face.is_async or request.param != "aiohttp" else "own"


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chat_at(face: Any, kind: str, wire: str) -> Iterator[Callable[..., Any]]:
    """Makes a chat over the kind of client at a root address."""
    opened: list[Any] = []

    def make(root: str, **options: Any) -> Any:
        made = backend_over(kind, wire, root, is_async=face.is_async, api_key=KEY, opened=opened)
        return face.chat(made, **options)

    yield make
    for client in opened:
        close_client(client, getattr(face, "run", None))


@pytest.mark.parametrize(
    ("status", "streamed"), [*((status, False) for status in STATUSES), (307, True), (302, True)]
)
def test_nothing_goes_to_another_origin(
    chat_at: Callable[..., Any], serve: Callable[[Answer], Server], status: int, streamed: bool
) -> None:
    """No request, and so no key, header, cookie or message. The error names both origins and is not tried
    again; the conversation goes on once it is sent to the right server."""
    other = serve(lambda _: (200, {}, b"{}"))
    asked = serve(redirecting(status, f"{other.root}/v1/canary-path?canary=query"))
    chat = chat_at(asked.root)

    def ask() -> Any:
        return chat.start(None, user="canary-user").result() if streamed else chat.chat(user="canary-user")

    with pytest.raises(ProviderRejectedError) as caught:
        ask()
    err = caught.value

    assert other.requests == []
    assert len(asked.requests) == 1
    assert asked.root in str(err)
    assert other.root in str(err)
    assert "base_url" in str(err)
    assert "canary" not in str(err)
    assert (err.status_code, err.retryable, err.pending_input) == (status, False, ())


def test_a_refused_conversation_goes_on_at_the_right_server(
    face: Any, wire: str, serve: Callable[[Answer], Server]
) -> None:
    """The message is in the error's state, and `resume` sends it where the caller has said."""
    right = serve(replying(wire))
    wrong = serve(redirecting(308, right.root + "/elsewhere"))

    with pytest.raises(ProviderRejectedError) as caught:
        over(wire, wrong.root, face).chat(user="Hello.")
    result = over(wire, right.root, face).resume(caught.value.state)

    assert result.text == "Hello, Ada."
    assert b"Hello." in right.requests[0].body


def over(wire: str, root: str, face: Any, **options: Any) -> Any:
    """A chat over a client that the backend makes, and closes."""
    made = backend_over("own", wire, root, is_async=face.is_async, api_key=KEY, opened=[])
    return face.chat(made, **options)


@pytest.mark.parametrize("status", [302, 308])
def test_a_redirect_within_the_origin_is_followed(
    chat_at: Callable[..., Any], serve: Callable[[Answer], Server], wire: str, status: int
) -> None:
    """307 and 308 send the same request again, credentials included; the others ask with a GET, without a
    body. So HTTP clients do it."""
    say = replying(wire)

    def answer(request: Request) -> tuple[int, dict[str, str], bytes]:
        if request.path.startswith("/moved"):
            return say(request)
        return status, {"location": "/moved/here"}, b"moved"

    server = serve(answer)

    result = chat_at(server.root).chat(user="canary-user")
    first, second = server.requests

    assert result.text == "Hello, Ada."
    assert second.method == ("POST" if status in (307, 308) else "GET")
    assert second.body == (first.body if status in (307, 308) else b"")
    credentials = ("authorization", "x-api-key", "api-key", "openai-organization", "anthropic-version")
    assert {name: first.headers.get(name) for name in credentials} == {
        name: second.headers.get(name) for name in credentials
    }
    assert any(KEY in value for value in second.headers.values())


def test_a_chain_that_leaves_its_origin_ends_there(face: Any, serve: Callable[[Answer], Server]) -> None:
    """The second redirect is looked at as the first was."""
    other = serve(lambda _: (200, {}, b"{}"))

    def answer(request: Request) -> tuple[int, dict[str, str], bytes]:
        away = other.root if request.path.startswith("/again") else ""
        return 307, {"location": f"{away}/again"}, b""

    server = serve(answer)

    with pytest.raises(ProviderRejectedError, match="another origin"):
        over("openai", server.root, face).chat(user="Hello.")

    assert (len(server.requests), other.requests) == (2, [])


def test_a_redirect_without_end_is_an_error(face: Any, serve: Callable[[Answer], Server]) -> None:
    """After twenty the answer is taken for what it is."""
    server = serve(redirecting(307, "/again"))

    with pytest.raises(ProviderRejectedError) as caught:
        over("openai", server.root, face).chat(user="Hello.")

    assert len(server.requests) == 21
    assert caught.value.status_code == 307


def test_a_compactors_question_does_not_leave_its_origin_either(
    face: Any, wire: str, serve: Callable[[Answer], Server]
) -> None:
    """A summary is asked for by the same rule: the turn goes on with a warning, and nothing was sent away."""
    other = serve(lambda _: (200, {}, b"{}"))
    say = replying(wire)

    def answer(request: Request) -> tuple[int, dict[str, str], bytes]:
        if b"Summarise it." in request.body:
            return 307, {"location": other.root}, b""
        return say(request)

    server = serve(answer)
    compactor = Compactor(MessageLimit(3), Summarize(keep_turns=1, instruction="Summarise it."))
    chat = over(wire, server.root, face, compactor=compactor)

    result = chat.run_turns(None, ["One.", "Two.", "Three."])

    assert other.requests == []
    assert [warning.code for warning in result.warnings] == ["compaction_failed"]


# ------------------------------------------------------------------------------------------ the rule


def response(url: str, location: str | None, status: int = 307) -> httpx2.Response:
    headers = {} if location is None else {"location": location}
    return httpx2.Response(status, headers=headers, request=httpx2.Request("POST", url))


@pytest.mark.parametrize(
    ("url", "location", "expected"),
    [
        ("https://a.test/v1/chat", "/v2/chat", "https://a.test/v2/chat"),
        ("https://a.test/v1/chat", "chat/", "https://a.test/v1/chat/"),
        ("https://a.test/v1/chat", "https://A.test:443/x", "https://a.test/x"),
        ("http://a.test:80/v1", "http://a.test/x?y=1", "http://a.test/x?y=1"),
    ],
)
def test_within_the_origin(url: str, location: str, expected: str) -> None:
    """Case and a scheme's own port make no other origin; a relative address stays in it."""
    found = redirect_of(response(url, location))

    assert found is not None
    assert httpx2.URL(found.url) == httpx2.URL(expected)


@pytest.mark.parametrize(
    ("url", "location", "shown"),
    [
        ("https://a.test/v1", "https://b.test/v1", ("https://a.test", "https://b.test")),
        ("https://a.test/v1", "//b.test/v1", ("https://a.test", "https://b.test")),
        ("https://a.test/v1", "http://a.test/v1", ("https://a.test", "http://a.test")),
        ("http://a.test/v1", "https://a.test/v1", ("http://a.test", "https://a.test")),
        ("https://a.test/v1", "https://a.test:8443/v1", ("https://a.test", "https://a.test:8443")),
        ("http://localhost:1/v1", "http://127.0.0.1:1/v1", ("http://localhost:1", "http://127.0.0.1:1")),
        ("http://[::1]:1/v1", "http://[::2]:1/v1", ("http://[::1]:1", "http://[::2]:1")),
        ("https://a.test/v1", "https://a.test@b.test/v1", ("https://a.test", "https://b.test")),
        ("https://" + "a" * 60 + "." + "b" * 60, "https://" + "a" * 60 + "." + "b" * 59 + "c", None),
    ],
)
def test_another_origin(url: str, location: str, shown: tuple[str, str] | None) -> None:
    """Another scheme, host or port is another origin, also an upgrade to https."""
    with pytest.raises(BackendError) as caught:
        redirect_of(response(url, location))

    assert caught.value.redirect is not None
    assert shown in (None, caught.value.redirect)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("status", "location"),
    [(307, None), (300, "/x"), (304, "/x"), (200, "/x"), (307, "https://a.test:port/")],
)
def test_no_redirect(status: int, location: str | None) -> None:
    """An answer that names no address, or none that can be read, is an error answer like any other."""
    assert redirect_of(response("https://a.test/v1", location, status)) is None


def test_the_reply_is_one_of_its_wire(wire: str) -> None:
    """The servers of this module say what the wire's reader takes."""
    assert rawjson.loads(Words(wire, "Hello, Ada.").body)
