"""Many requests at a time are spread over small pools; one after the other they share a connection."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

import goaitools_py
from goaitools_py import AsyncChat, backends
from goaitools_py.backends import AsyncOpenAIChatBackend, async_http_client
from goaitools_py.backends.http.async_pool import POOL_LIMITS, TIMEOUT, ShardedClient, ShardedTransport

URL = "http://sim.invalid/v1"


class Pool(httpx2.AsyncBaseTransport):
    """Notes what it was asked; answers once `gate` is set."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate
        self.asked = 0
        self.is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        await self.gate.wait()
        if "fail" in str(request.url):
            raise httpx2.ConnectError("down")
        return httpx2.Response(200, stream=Body())

    async def aclose(self) -> None:
        self.is_closed = True


class Body(httpx2.AsyncByteStream):
    """A body in two pieces."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"


class Pools:
    """Every pool that a sharded transport made, and a client over it."""

    def __init__(self, max_shards: int = 32) -> None:
        self.gate = asyncio.Event()
        self.made: list[Pool] = []
        self.transport = ShardedTransport(self._make, max_shards)
        self.client = httpx2.AsyncClient(transport=self.transport)

    def _make(self) -> Pool:
        self.made.append(Pool(self.gate))
        return self.made[-1]

    def asked(self) -> list[int]:
        return [pool.asked for pool in self.made]


def on_a_loop(body: Callable[[], Awaitable[None]]) -> None:
    """Run a test's body on an event loop of its own."""

    async def run() -> None:
        await body()

    asyncio.run(run())


def test_one_request_after_the_other_stays_on_one_pool() -> None:
    """Nothing is spread while nothing runs beside it: a kept connection is used again."""

    async def body() -> None:
        pools = Pools()
        pools.gate.set()
        for _ in range(20):
            assert (await pools.client.get(URL)).content == b"ab"
        assert pools.asked() == [20]

    on_a_loop(body)


@pytest.mark.parametrize(("requests", "expected"), [(8, [8]), (64, [8] * 8), (512, [16] * 32)])
def test_many_at_a_time_are_spread_evenly(requests: int, expected: list[int]) -> None:
    """A further pool is made when each of those there are has eight requests, up to 32 pools."""

    async def body() -> None:
        pools = Pools()
        running = [asyncio.create_task(pools.client.get(URL)) for _ in range(requests)]
        await asyncio.sleep(0)
        while sum(pools.asked()) < requests:
            await asyncio.sleep(0)

        assert pools.asked() == expected
        pools.gate.set()
        await asyncio.gather(*running)

    on_a_loop(body)


def test_a_pool_is_busy_until_its_response_is_closed() -> None:
    """An open stream counts; a failed, cancelled or closed one does not."""

    async def body() -> None:
        pools = Pools(max_shards=2)
        pools.gate.set()
        running = pools.transport._running
        async with pools.client.stream("GET", URL) as response:
            assert running == [1]
            assert await response.aread() == b"ab"
        await response.aclose()
        assert running == [0]
        with pytest.raises(httpx2.ConnectError):
            await pools.client.get(f"{URL}/fail")
        assert running == [0]
        pools.gate.clear()
        given_up = asyncio.create_task(pools.client.get(URL))
        while running == [0]:
            await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert running == [0]

    on_a_loop(body)


def test_closing_closes_every_pool() -> None:
    """`aclose` reaches all that were made."""

    async def body() -> None:
        pools = Pools()
        running = [asyncio.create_task(pools.client.get(URL)) for _ in range(20)]
        while sum(pools.asked()) < 20:
            await asyncio.sleep(0)
        pools.gate.set()
        await asyncio.gather(*running)
        await pools.client.aclose()

        assert len(pools.made) == 3
        assert all(pool.is_closed for pool in pools.made)

    on_a_loop(body)


def test_the_defaults_are_those_of_the_sdks() -> None:
    """Timeouts and limits, redirects, and all certificates read once for all pools."""
    for made in (openai.DefaultAsyncHttpxClient(), anthropic.DefaultAsyncHttpxClient()):
        assert made.timeout == TIMEOUT
        assert made.follow_redirects == ShardedClient().follow_redirects
    assert POOL_LIMITS.max_connections == 1000
    client: Any = ShardedClient()
    first, second = (client._transport._make() for _ in range(2))

    assert isinstance(first._pool._ssl_context, ssl.SSLContext)
    assert first._pool._ssl_context is second._pool._ssl_context
    assert (first._pool._max_connections, first._pool._max_keepalive_connections) == (32, 32)


def test_proxies_of_the_environment_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy gets pools of its own; ``trust_env=False`` and a transport of the caller's leave it out."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    with_proxy: Any = ShardedClient()
    without: Any = ShardedClient(trust_env=False)
    own = httpx2.MockTransport(lambda _: httpx2.Response(200))

    (proxied,) = (mount for mount in with_proxy._mounts.values() if mount is not None)
    assert isinstance(proxied, ShardedTransport)
    assert type(proxied._make()._pool).__name__ == "AsyncHTTPProxy"  # type: ignore[attr-defined]
    assert without._mounts == {}
    assert ShardedClient(transport=own)._transport is own


@pytest.fixture(params=["aiohttp", "pools"])
def _with_or_without_aiohttp(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as it is with aiohttp, once as it is without."""
    if request.param == "pools":
        monkeypatch.setitem(sys.modules, "aiohttp", None)
    else:
        pytest.importorskip("aiohttp", reason="aiohttp is not installed")


@pytest.mark.usefixtures("_with_or_without_aiohttp")
@pytest.mark.parametrize("sdk", [openai.AsyncOpenAI, anthropic.AsyncAnthropic])
def test_the_helper_serves_either_sdk(sdk: Callable[..., Any], sim: Any) -> None:
    """An SDK client over it speaks to a real server, and closes it."""

    async def body() -> None:
        http_client = async_http_client(trust_env=False)
        if sdk is openai.AsyncOpenAI:
            client = sdk(api_key="sim", base_url=sim.base_url, http_client=http_client)
            messages = [{"role": "user", "content": "My name is Ada."}]
            answer = await client.chat.completions.create(model="sim", messages=messages)
            said = answer.choices[0].message.content
        else:
            client = sdk(api_key="sim", base_url=sim.base_url_for("anthropic"), http_client=http_client)
            messages = [{"role": "user", "content": "My name is Ada."}]
            said = (
                (await client.messages.create(model="sim", max_tokens=100, messages=messages)).content[0].text
            )
        await client.close()

        assert "Ada" in said
        assert http_client.is_closed

    on_a_loop(body)


@pytest.mark.usefixtures("_with_or_without_aiohttp")
def test_a_chat_over_the_helper(sim: Any) -> None:
    """A backend takes it as `http_client`, streamed or not, many at a time."""

    async def body() -> None:
        async with async_http_client(trust_env=False) as http_client:
            chat = AsyncChat(
                AsyncOpenAIChatBackend("sim", base_url=sim.base_url, api_key="sim", http_client=http_client)
            )
            turns = [chat.start(None, user=f"My name is Ada{number}.").result() for number in range(40)]
            results = await asyncio.gather(*turns)

        assert [f"Ada{number}" in result.text for number, result in enumerate(results)] == [True] * 40

    on_a_loop(body)
    assert sim.problems == []


def test_connections_are_shared_over_a_real_socket(sim: Any) -> None:
    """Ten requests, one after the other, go over one connection."""
    connections: Counter[Any] = Counter()

    async def body() -> None:
        async def note(response: httpx2.Response) -> None:
            connections[response.extensions["network_stream"].get_extra_info("client_addr")] += 1

        async with ShardedClient(trust_env=False, event_hooks={"response": [note]}) as client:
            for _ in range(10):
                assert (await client.get(f"{sim.base_url}/models")).status_code == 200

    on_a_loop(body)

    assert list(connections.values()) == [10]


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_a_chat_makes_and_closes_clients_over_aiohttp(
    wire: str, sim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each event loop, for every backend that is given by name."""
    aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    made: list[Any] = []
    begin = aiohttp.ClientSession.__init__

    def noted(session: Any, *args: Any, **given: Any) -> None:
        made.append(session)
        begin(session, *args, **given)

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", noted)
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "sim")
        monkeypatch.setenv(f"{name}_BASE_URL", sim.base_url_for(wire))
    chat = AsyncChat(f"{wire}:sim", http="aiohttp")

    async def body() -> None:
        await chat.warm_up()
        warm = len(made)
        results = await asyncio.gather(*(chat.chat(user=f"My name is Ada{n}.") for n in range(20)))
        assert all(f"Ada{n}" in result.text for n, result in enumerate(results))
        assert len(made) == warm + 1
        await chat.aclose()

    for _ in range(2):
        on_a_loop(body)
    assert all(session.closed for session in made)
    assert sim.problems == []


@pytest.mark.parametrize(
    ("error", "words", "name", "given"),
    [
        (TypeError, "is for AsyncChat", "Chat", {}),
        (ValueError, "'aiohttp' or None", "AsyncChat", {"http": "requests"}),
        (TypeError, "http_client=", "AsyncChat", {"http": httpx2.AsyncClient()}),
        (TypeError, "is for AsyncChat", "OpenAIChatBackend", {}),
        (TypeError, "is for AsyncChat", "AnthropicBackend", {}),
        (TypeError, "not both", "AsyncOpenAIChatBackend", {"http_client": httpx2.AsyncClient()}),
        (TypeError, "not both", "AsyncAnthropicBackend", {"http_client": httpx2.AsyncClient()}),
        (
            TypeError,
            "set http on that client",
            "AsyncOpenAIResponsesBackend",
            {"client": openai.AsyncOpenAI(api_key="k")},
        ),
    ],
)
def test_where_aiohttp_cannot_be_asked_for(
    error: type[Exception], words: str, name: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, "k")
    make: Any = getattr(goaitools_py, name, None) or getattr(backends, name)
    with pytest.raises(error, match=words):
        make("openai:m", **{"http": "aiohttp", **given})


def test_a_backend_object_takes_http_itself() -> None:
    make: Any = AsyncChat
    with pytest.raises(TypeError, match="http of a chat is for a backend by name"):
        make(AsyncOpenAIChatBackend("m", api_key="k"), http="aiohttp")


def test_aiohttp_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the chat is made, and not with its first turn."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ImportError, match=r"goaitools-py\[aiohttp\]"):
        AsyncChat("openai:m", http="aiohttp")
