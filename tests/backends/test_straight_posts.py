"""When a post goes straight to the transport of an HTTP client, and in how many writes it goes out."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http import deadlines, heads
from goaitools_py.backends.http.async_pool import ShardedClient
from goaitools_py.backends.http.client import aiohttp_client
from goaitools_py.backends.http.deadlines import DeadlineClient
from goaitools_py.backends.http.sdk import ClientOptions
from goaitools_py.backends.openai.sdk import async_openai_edge, openai_edge

CLIENTS: dict[str, Callable[..., Any]] = {
    "plain code": DeadlineClient,
    "pools": ShardedClient,
    "aiohttp": aiohttp_client,
}
each_own = pytest.mark.parametrize("kind", CLIENTS)


class Straight:
    """A backend's own client over a transport that notes whether the client's `send` led to it."""

    def __init__(self, kind: str, *, base_url: str = "https://x.test/v1", **options: Any) -> None:
        self.by_send: list[bool] = []
        self.is_async = kind != "plain code"
        self.http: Any = CLIENTS[kind](transport=httpx2.MockTransport(self._noted), **options)
        given = ClientOptions(api_key="k", base_url=base_url, http_client=self.http)
        make = async_openai_edge if self.is_async else openai_edge
        self.edge: Any = make(given, path="/chat/completions")

    def _noted(self, request: httpx2.Request) -> httpx2.Response:
        frame, codes = sys._getframe(), set()
        while frame.f_back is not None:
            frame = frame.f_back
            codes.add(frame.f_code.co_qualname)
        self.by_send.append(bool(codes & {"Client.send", "AsyncClient.send"}))
        return httpx2.Response(200, headers={"set-cookie": "seen=1"}, stream=httpx2.ByteStream(b"{}"))

    def posts(self) -> list[bool]:
        """Of four posts: whether each went through the client's `send`. Two are built by the SDK."""

        async def run() -> None:
            for _ in range(4):
                request = ModelRequest(path="/somewhere", body=b"{}", timeout=60.0)
                exchange = await self.edge.asend(request) if self.is_async else self.edge.send(request)
                body = exchange.read()
                assert (await body if self.is_async else body) == b"{}"
                await exchange.aclose() if self.is_async else exchange.close()

        asyncio.run(run())
        assert self.http.cookies["seen"] == "1"
        return self.by_send


@each_own
def test_a_client_that_would_add_nothing_is_left_out(kind: str) -> None:
    """A proxy that the environment does not use is no mount."""
    assert Straight(kind, mounts={"http://": None}).posts() == [True, True, False, False]


def _hooked(straight: Straight) -> None:
    async def awaited(_: object) -> None:
        pass

    straight.http.event_hooks["response"].append(awaited if straight.is_async else lambda _: None)


def _replaced(straight: Straight) -> None:
    send = straight.http.send
    straight.http.send = lambda *args, **how: send(*args, **how)


@each_own
@pytest.mark.parametrize(
    "change",
    [_hooked, _replaced, lambda straight: setattr(straight.http, "auth", ("user", "pass"))],
    ids=["hook", "another send", "auth"],
)
def test_a_client_that_does_more_sends_each_post(kind: str, change: Callable[[Straight], None]) -> None:
    straight = Straight(kind)
    change(straight)
    assert straight.posts() == [True] * 4


@each_own
@pytest.mark.parametrize(
    "options",
    [
        {"mounts": {"http://other.test": httpx2.MockTransport(lambda _: httpx2.Response(500))}},
        {"proxy": "http://127.0.0.1:1", "mounts": {"https://x.test": None}},
        {"default_encoding": "latin-1"},
        {"base_url": "https://user:pass@x.test/v1"},
    ],
    ids=["mount", "proxy", "encoding", "user"],
)
def test_a_client_with_more_than_one_way_chooses_for_each_post(kind: str, options: dict[str, Any]) -> None:
    assert Straight(kind, **options).posts() == [True] * 4


@each_own
def test_a_client_that_logs_its_requests_sends_each(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """`httpx2` tells of each request at level INFO."""
    caplog.set_level(logging.INFO, logger="httpx2")
    assert Straight(kind).posts() == [True] * 4
    assert len(caplog.records) == 4


class Proxy:
    """What tracers put in the place of a method, as the package wrapt makes it: it looks like that method."""

    def __init__(self, wrapped: Any, calls: list[object]) -> None:
        self._wrapped = wrapped
        self._calls = calls

    def __get__(self, one: Any, kind: Any = None) -> Any:
        return Proxy(self._wrapped.__get__(one, kind), self._calls)

    def __call__(self, *args: Any, **how: Any) -> Any:
        self._calls.append(how)
        return self._wrapped(*args, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def __eq__(self, other: object) -> bool:
        return bool(self._wrapped == other)

    def __hash__(self) -> int:
        return hash(self._wrapped)


def _plain(send: Any, calls: list[object]) -> Any:
    def traced(*args: Any, **how: Any) -> Any:
        calls.append(how)
        return send(*args, **how)

    return traced


@each_own
@pytest.mark.parametrize("tracer", [_plain, Proxy], ids=["function", "proxy"])
def test_a_class_whose_send_another_package_has_replaced_is_used(
    kind: str, tracer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tracers do this before or after the import."""
    base: Any = httpx2.Client if kind == "plain code" else httpx2.AsyncClient
    calls: list[object] = []
    monkeypatch.setattr(base, "send", tracer(base.__dict__["send"], calls))
    assert heads._genuine(base) is None
    Straight(kind).posts()
    assert len(calls) == 4


@each_own
def test_a_client_whose_own_send_is_a_proxy_sends_each_post(kind: str) -> None:
    calls: list[object] = []
    straight = Straight(kind)
    straight.http.send = Proxy(straight.http.send, calls)
    straight.posts()
    assert len(calls) == 4


# ---------------------------------------------------------------------------------- one write for a post


HEAD = b"POST /v1 HTTP/1.1\r\nHost: x.test\r\nContent-Length: 4\r\n\r\n"
BODY = b"{ }\n"
CONNECT = b"CONNECT x.test:443 HTTP/1.1\r\n\r\n"
FRAME = b"\0\0\4\0\0\0\0\0\1\r\n\r\n"


class Inner:
    """A connection that notes what is done with it."""

    def __init__(self) -> None:
        self.acts: list[object] = []

    def write(self, buffer: bytes, timeout: float | None = None) -> Any:
        self.acts.append(buffer)

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        self.acts.append("read")

    def start_tls(self, *args: Any) -> Any:
        self.acts.append("tls")


@pytest.mark.parametrize("last", ["read", "tls"])
@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ([HEAD, BODY], [HEAD + BODY]),
        ([HEAD, BODY, b""], [HEAD + BODY]),
        ([HEAD, BODY, BODY], [HEAD + BODY, BODY]),
        ([HEAD], [HEAD]),
        ([HEAD, b""], [HEAD]),
        ([BODY, HEAD], [BODY, HEAD]),
        ([CONNECT], [CONNECT]),
        ([FRAME], [FRAME]),
    ],
)
def test_a_head_goes_out_with_its_body(last: str, writes: list[bytes], expected: list[bytes]) -> None:
    """Nothing is held back while an answer is read. Only the head of a post is held back at all."""
    inner: Any = Inner()
    stream = deadlines._Stream(inner)
    for number, buffer in enumerate(writes, 1):
        stream.write(buffer)
        if buffer in (CONNECT, FRAME):
            assert len(inner.acts) == number
    if last == "read":
        stream.read(10)
    else:
        stream.start_tls(ssl.create_default_context())

    assert [act for act in inner.acts if act != b""] == [*expected, last]


def test_the_connections_of_a_backend_hold_heads(sim: Any) -> None:
    """A later `httpx2` that has no place for them shows here."""
    with DeadlineClient(trust_env=False) as client:
        stream = client.get(f"{sim.base_url}/models").extensions["network_stream"]

    assert isinstance(stream, deadlines._Stream)
