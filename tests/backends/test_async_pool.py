"""The pool for many requests at a time, against a loopback server that counts its connections.

`way` runs a test over connections of our own ("direct") and over those that `httpcore2` makes ("stacked", as
behind a proxy).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import anthropic
import anthropic._constants
import httpx2
import openai
import openai._constants
import pytest

from goaitools_py.backends import AsyncAnthropicBackend, AsyncOpenAIChatBackend, _async_http
from goaitools_py.backends._loop_stream import LoopStream
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http_client import async_http_client

Way = Literal["direct", "stacked"]
T = TypeVar("T")

LONG = 10.0
"""Seconds that no test waits for; a safety net only."""
SOON = 0.02
"""Seconds after which something that cannot happen is given up."""
PEM = Path(__file__).with_name("loopback.pem")
"""A certificate for localhost and its key, made for these tests; nothing else trusts it."""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=["direct", "stacked"])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


def client_of(way: Way, **options: Any) -> httpx2.AsyncClient:
    """A client over one of the two kinds of connections, never by a proxy of this machine's environment."""
    limits = httpx2.Limits(
        **{"max_connections": 1000, "max_keepalive_connections": 100, **options.pop("limits", {})}
    )
    transport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False, retries=int(way == "stacked"))
    made = _async_http.made_for_many(httpx2.AsyncClient(transport=transport, timeout=LONG, **options))
    assert (made._transport is transport) == (way == "stacked")
    return made


class Server:
    """Answers each request with `reply`, once `gate` is open. `served` has a count for each connection."""

    def __init__(
        self, reply: bytes | Callable[[bytes], bytes] = OK, context: ssl.SSLContext | None = None
    ) -> None:
        self.reply = reply
        self.served: list[int] = []
        self.requests: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.open = 0
        self.changed = asyncio.Condition()
        self._context = context
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context, backlog=200)
        host = "localhost" if self._context else "127.0.0.1"
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._context else ''}://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.gate.set()
        await self.hang_up()

    async def hang_up(self) -> None:
        """Close every connection from this side, and see them closed."""
        for writer in self._writers:
            writer.close()
        await self.until(lambda: self.open == 0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the server has seen something come true."""
        async with asyncio.timeout(LONG), self.changed:
            await self.changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = len(self.served)
        self.served.append(0)
        self.open += 1
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                self.requests.append(head + body)
                self.served[at] += 1
                await self._notify()
                await self.gate.wait()
                writer.write(self.reply if isinstance(self.reply, bytes) else self.reply(head + body))
                await writer.drain()
        self._writers.discard(writer)
        writer.close()
        self.open -= 1
        await self._notify()


def run(test: Callable[[Server], Awaitable[T]], *args: Any, **kwargs: Any) -> T:
    """Run a test's coroutine beside a server, within a time that no test takes."""

    async def main() -> T:
        async with asyncio.timeout(LONG), Server(*args, **kwargs) as server:
            return await test(server)

    return asyncio.run(main())


async def post(client: httpx2.AsyncClient, server: Server, **options: Any) -> bytes:
    response = await client.post(f"{server.url}/v1/x", content=b"{}", **options)
    assert response.status_code == 200
    return response.content


# -------------------------------------------------------------------------------------------- sharing


def test_requests_after_each_other_share_one_connection(way: Way) -> None:
    """Keep-alive is as good as ever: five requests in a row, one connection."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            for _ in range(5):
                assert await post(client, server) == b"{}"

        assert server.served == [5]

    run(test)


def test_requests_at_a_time_have_a_connection_each_and_come_back_to_them(way: Way) -> None:
    """64 requests at a time are spread evenly over 64 connections, and so are the 64 after them."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            for burst in (1, 2):
                server.gate.clear()
                posts = [asyncio.create_task(post(client, server)) for _ in range(64)]
                await server.until(lambda burst=burst: sum(server.served) == 64 * burst)
                server.gate.set()
                assert await asyncio.gather(*posts) == [b"{}"] * 64

        assert server.served == [2] * 64

    run(test)


def test_the_warmest_connection_goes_first(way: Way) -> None:
    """After a burst, requests in a row all take the connection that was used last."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            server.gate.clear()
            posts = [asyncio.create_task(post(client, server)) for _ in range(4)]
            await server.until(lambda: sum(server.served) == 4)
            server.gate.set()
            await asyncio.gather(*posts)
            for _ in range(5):
                await post(client, server)

        assert sorted(server.served) == [1, 1, 1, 6]

    run(test)


def test_free_connections_beyond_the_limit_are_closed(way: Way) -> None:
    """Of ten connections that a burst leaves behind, no more stay open than `max_keepalive_connections`."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_keepalive_connections": 3}) as client:
            server.gate.clear()
            posts = [asyncio.create_task(post(client, server)) for _ in range(10)]
            await server.until(lambda: len(server.served) == 10)
            server.gate.set()
            await asyncio.gather(*posts)

            await server.until(lambda: server.open == 3)

    run(test)


def test_a_request_beyond_the_limit_waits_its_turn(way: Way) -> None:
    """With two connections allowed, six requests use two, and are answered in the order they came."""
    answered: list[int] = []

    async def test(server: Server) -> None:
        async def one(number: int) -> None:
            await post(client, server)
            answered.append(number)

        async with client_of(way, limits={"max_connections": 2}) as client:
            await asyncio.gather(*(one(number) for number in range(6)))

        assert server.served == [3, 3]
        assert answered == sorted(answered)

    run(test)


def test_no_free_connection_in_time_is_a_pool_timeout(way: Way) -> None:
    """Waiting ends with the pool timeout, and the one that waited takes nothing from those after it."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 1}) as client:
            server.gate.clear()
            first = asyncio.create_task(post(client, server))
            await server.until(lambda: server.served == [1])
            with pytest.raises(httpx2.PoolTimeout):
                await post(client, server, timeout=httpx2.Timeout(LONG, pool=SOON))
            server.gate.set()
            await first

            assert await post(client, server) == b"{}"

        assert server.served == [2]

    run(test)


def test_another_server_takes_the_place_of_a_free_connection(way: Way) -> None:
    """At the limit, a free connection to one server is closed for one to another."""

    async def test(server: Server) -> None:
        async with Server() as other, client_of(way, limits={"max_connections": 1}) as client:
            for each in (server, other, server):
                assert await post(client, each) == b"{}"

            assert (server.served, other.served) == ([1, 1], [1])

    run(test)


# ------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("moment", ["answer", "body", "pool"])
def test_a_cancelled_request_frees_its_place(way: Way, moment: str) -> None:
    """Cancelled while it waits for the answer, the body or a connection, a request leaves a whole pool."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 1}) as client:
            holder = None
            server.gate.clear()
            if moment == "body":
                server.reply = OK.replace(b"Length: 2", b"Length: 9")
                server.gate.set()
            if moment == "pool":
                holder = asyncio.create_task(post(client, server))
                await server.until(lambda: server.served == [1])
            cancelled = asyncio.create_task(post(client, server))
            if moment != "pool":
                await server.until(lambda: server.served == [1])
            for _ in range(20):
                await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            server.reply = OK
            server.gate.set()
            if holder is not None:
                await holder

            assert await post(client, server) == b"{}"

        assert server.served == ([2] if moment == "pool" else [1, 1])

    run(test)


def test_a_place_given_to_a_request_that_is_cancelled_goes_on_to_the_next(way: Way) -> None:
    """The first in the queue is cancelled in the very moment in which a connection becomes its own."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 1}) as client:
            request = client.build_request("POST", f"{server.url}/v1/x", content=b"{}")
            held = await client.send(request, stream=True)
            queue = [asyncio.create_task(post(client, server)) for _ in range(2)]
            for _ in range(20):
                await asyncio.sleep(0)
            await held.aread()  # hands its connection to the first in the queue, which has not run since
            queue[0].cancel()

            assert await queue[1] == b"{}"
            with pytest.raises(asyncio.CancelledError):
                await queue[0]

    run(test)


def test_many_cancelled_requests_leave_nothing_behind(way: Way) -> None:
    """Requests cancelled at every step of their way leave a pool in which all places are free."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 2}) as client:
            for steps in range(40):
                tasks = [asyncio.create_task(post(client, server)) for _ in range(3)]
                for _ in range(steps):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

            server.gate.clear()
            before = sum(server.served)
            posts = [asyncio.create_task(post(client, server)) for _ in range(2)]
            await server.until(lambda: sum(server.served) >= before + 2)
            server.gate.set()
            assert await asyncio.gather(*posts) == [b"{}"] * 2
        await server.until(lambda: server.open == 0)

    run(test)


def test_an_answer_that_does_not_come_is_a_read_timeout(way: Way) -> None:
    """The read timeout holds, and the place of the request is free after it."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 1}) as client:
            server.gate.clear()
            with pytest.raises(httpx2.ReadTimeout):
                await post(client, server, timeout=httpx2.Timeout(LONG, read=SOON))
            server.gate.set()

            assert await post(client, server) == b"{}"

        assert server.served == [1, 1]

    run(test)


def test_a_server_that_takes_nothing_in_is_a_write_timeout(way: Way) -> None:
    """The write timeout holds for a body that is larger than all buffers on its way."""

    async def test(server: Server) -> None:
        async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()
            writer.close()

        done = asyncio.Event()
        listening = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        async with client_of(way) as client:
            with pytest.raises(httpx2.WriteTimeout):
                await client.post(url, content=b"x" * 30_000_000, timeout=httpx2.Timeout(LONG, write=SOON))
        done.set()
        listening.close()

    run(test)


def test_nobody_listening_is_a_connect_error(way: Way) -> None:
    """A refused connection is named so, and does not count as an open one afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}/"

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 1}) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.post(closed, content=b"")

            assert await post(client, server) == b"{}"

    run(test)


def test_a_connection_that_the_server_closed_is_not_used_again(way: Way) -> None:
    """The next request after an idle connection was closed opens a new one, and does not fail."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            await post(client, server)
            await server.hang_up()

            assert await post(client, server) == b"{}"

        assert server.served == [1, 1]

    run(test)


def test_an_expired_connection_is_not_used_again(way: Way) -> None:
    """`keepalive_expiry` (seconds) holds."""

    async def test(server: Server) -> None:
        async with client_of(way, limits={"keepalive_expiry": 0.0}) as client:
            await post(client, server)
            await post(client, server)

        assert server.served == [1, 1]

    run(test)


def test_a_request_closes_what_has_expired_below_it() -> None:
    """The cold end of the stack does not stay open for ever, though requests take the warm one."""

    async def test(server: Server) -> None:
        async with client_of("direct") as client:
            server.gate.clear()
            posts = [asyncio.create_task(post(client, server)) for _ in range(3)]
            await server.until(lambda: sum(server.served) == 3)
            server.gate.set()
            await asyncio.gather(*posts)
            stack = client._transport._stack  # type: ignore[attr-defined]
            for cold in list(stack._free)[:2]:
                cold._free_until = 0.0

            await post(client, server)

            await server.until(lambda: server.open == 1)
            assert sorted(server.served) == [1, 1, 2]

    run(test)


def test_an_answer_that_was_not_read_closes_its_connection(way: Way) -> None:
    """What is left of one answer must not be taken for the next."""
    reply = OK.replace(b"Length: 2", b"Length: 9")

    async def test(server: Server) -> None:
        async with client_of(way, limits={"max_connections": 1}) as client:
            async with client.stream("POST", f"{server.url}/v1/x", content=b"{}"):
                pass
            server.reply = OK

            assert await post(client, server) == b"{}"

        assert server.served == [1, 1]

    run(test, reply)


def test_bytes_behind_an_answer_do_not_answer_the_next_request() -> None:
    """A server that says more than was asked for loses its connection."""

    async def test(server: Server) -> None:
        async with client_of("direct") as client:
            await post(client, server)
            server.reply = OK

            assert await post(client, server) == b"{}"

        assert server.served == [1, 1]

    run(test, OK + OK.replace(b"{}", b"[]"))


def test_a_connection_that_the_answer_ends_is_not_used_again(way: Way) -> None:
    """`Connection: close` is heeded."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            await post(client, server)
            await post(client, server)

        assert server.served == [1, 1]

    run(test, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        OK[:17] + b"x: y\r\n" * 30_000,
    ],
    ids=["no HTTP", "switched", "endless head"],
)
def test_an_answer_that_is_none_is_a_protocol_error(reply: bytes) -> None:
    """Nonsense, a switch that nobody asked for, a head without end: an `httpx2` error, and a free place."""

    async def test(server: Server) -> None:
        async with client_of("direct", limits={"max_connections": 1}) as client:
            with pytest.raises(httpx2.RemoteProtocolError):
                await post(client, server)
            server.reply = OK

            assert await post(client, server) == b"{}"

    run(test, reply)


def test_a_header_that_cannot_be_sent_is_a_protocol_error(way: Way) -> None:
    """A line break in a header goes nowhere."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            with pytest.raises(httpx2.LocalProtocolError):
                await post(client, server, headers={"x-a": "b\r\nc: d"})

        assert server.requests == []

    run(test)


def test_an_answer_that_breaks_off_is_an_error(way: Way) -> None:
    """A connection that ends in the middle of a body is no end of the body."""

    async def test(server: Server) -> None:
        async with (
            client_of(way) as client,
            client.stream("POST", f"{server.url}/v1/x", content=b"{}") as response,
        ):
            chunks = response.aiter_raw()
            assert await anext(chunks) == b"{}"
            await server.hang_up()
            with pytest.raises(httpx2.RemoteProtocolError):
                await anext(chunks)

    run(test, OK.replace(b"Length: 2", b"Length: 9"))


# ------------------------------------------------------------------------------------------- the bytes


def test_large_bodies_arrive_whole(way: Way) -> None:
    """Five megabytes up and down, more than any buffer on the way holds."""
    body = bytes(range(256)) * 20_000

    def echo(request: bytes) -> bytes:
        content = request.partition(b"\r\n\r\n")[2]
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            response = await client.post(server.url, content=body)

        assert response.content == body

    run(test, echo)


def test_a_slow_reader_holds_the_server_up_and_gets_everything() -> None:
    """A stream takes in no more than a few hundred kilobytes ahead, and goes on when they are read."""
    body = bytes(range(256)) * 80_000
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def test(server: Server) -> None:
        async with (
            client_of("direct") as client,
            client.stream("POST", f"{server.url}/v1/x", content=b"{}") as response,
        ):
            stream = response.extensions["network_stream"]
            while not stream._is_held:
                await asyncio.sleep(0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(stream._received) < 2_000_000

            assert await response.aread() == body

    run(test, reply)


def test_a_body_is_read_as_it_comes(way: Way) -> None:
    """Each chunk of a streamed answer is there before the next one is sent."""

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            async with client.stream("POST", f"{server.url}/v1/x", content=b"{}") as response:
                chunks = response.aiter_raw()
                assert await anext(chunks) == b"one"
                (writer,) = server._writers
                writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
                assert [chunk async for chunk in chunks] == [b"two"]
            await post(client, server)

        assert server.served == [2]

    async def then_whole(server: Server) -> None:
        replies = itertools.chain(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"], itertools.repeat(OK)
        )
        server.reply = lambda _: next(replies)
        await test(server)

    run(then_whole)


def test_a_body_of_unknown_length_is_sent_in_chunks(way: Way) -> None:
    """An upload that comes bit by bit goes out as it comes."""

    async def bits() -> AsyncIterator[bytes]:
        for bit in (b"one", b"two"):
            yield bit

    async def test(server: Server) -> None:
        async with client_of(way) as client:
            response = await client.post(server.url, content=bits())

        assert response.status_code == 200
        assert b"transfer-encoding: chunked" in server.requests[0].lower()

    run(test)


# -------------------------------------------------------------------------------------------- closing


def test_closing_closes_every_connection(way: Way) -> None:
    """`aclose` leaves none open; what was under way or waited fails at once."""

    async def test(server: Server) -> None:
        client = client_of(way, limits={"max_connections": 3})
        await asyncio.gather(*(post(client, server) for _ in range(3)))
        server.gate.clear()
        posts = [asyncio.create_task(post(client, server)) for _ in range(4)]
        await server.until(lambda: sum(server.served) == 6)

        await client.aclose()

        ended = await asyncio.gather(*posts, return_exceptions=True)
        assert [isinstance(error, httpx2.TransportError) for error in ended] == [True] * 4
        server.gate.set()
        await server.until(lambda: server.open == 0)

    run(test)


# ----------------------------------------------------------------------------- what is a client's own


def test_tls_is_checked_as_the_client_says() -> None:
    """A server is reached whose certificate is trusted; one that is not is a connection that failed."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(PEM)
    trusting = ssl.create_default_context(cafile=str(PEM))

    async def test(server: Server) -> None:
        async with async_http_client(verify=trusting, trust_env=False) as client:
            for _ in range(2):
                assert await post(client, server) == b"{}"
        assert server.served == [2]
        async with async_http_client(trust_env=False) as client:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await post(client, server)

    run(test, context=server_context)


def test_a_handshake_that_does_not_end_is_a_connect_timeout() -> None:
    """The time to connect holds for TLS, too, and the place is free after it."""

    async def test(server: Server) -> None:
        limits = httpx2.Limits(max_connections=1)
        async with async_http_client(limits=limits, trust_env=False) as client:
            with pytest.raises(httpx2.ConnectTimeout):
                await client.post(
                    server.url.replace("http", "https"), timeout=httpx2.Timeout(LONG, connect=SOON)
                )

            assert await post(client, server) == b"{}"

    run(test)


def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go through it, many over a few connections; `trust_env=False` and `NO_PROXY` leave it out."""

    async def test(server: Server) -> None:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        async with async_http_client() as client:
            for _ in range(3):
                assert (await client.post("http://x.test/v1", content=b"")).content == b"{}"
            await post(client, server)
        async with async_http_client(trust_env=False) as client:
            await post(client, server)

        targets = [request.split()[1] for request in server.requests]
        assert targets == [b"http://x.test/v1"] * 3 + [b"/v1/x"] * 2
        assert server.served == [3, 1, 1]

    run(test)


def _defaults(client: httpx2.AsyncClient) -> tuple[object, ...]:
    return client.timeout, client.follow_redirects, client.trust_env, client.max_redirects


@pytest.mark.parametrize("sdk", [openai, anthropic], ids=["openai", "anthropic"])
def test_the_defaults_are_those_of_both_sdks(sdk: Any) -> None:
    """Timeouts, redirects and limits of `async_http_client` are what an SDK's own client has."""
    ours, theirs = async_http_client(), sdk.DefaultAsyncHttpxClient()

    assert _defaults(ours) == _defaults(theirs)
    assert sdk._constants.DEFAULT_CONNECTION_LIMITS == _async_http.LIMITS
    assert sdk._constants.DEFAULT_TIMEOUT == _async_http.TIMEOUT


@pytest.mark.parametrize("sdk", [openai, anthropic], ids=["openai", "anthropic"])
def test_the_pools_of_an_sdks_client_are_exchanged_whole(sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a release of `httpx2` keeps elsewhere shows here: limits, expiry, TLS, proxies move along."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client = sdk.DefaultAsyncHttpxClient()
    before = client._transport
    pool, context = before._pool, before._pool._ssl_context

    _async_http.made_for_many(client)

    direct = client._transport
    assert isinstance(direct, _async_http._DirectTransport)
    assert (direct._stack._max_open, direct._stack._max_free) == (1000, 100)
    assert (direct._ssl_context, direct._keepalive_seconds) == (context, pool._keepalive_expiry)
    assert direct._socket_options == tuple(pool._socket_options or ())
    assert bool(direct._socket_options) == (sdk is anthropic)
    proxied = [transport for transport in client._mounts.values() if transport is not None]
    assert [type(transport._pool) for transport in proxied] == [_async_http._StackedPool]


def test_transports_of_others_and_http2_stay_as_they_are() -> None:
    """A transport that the caller made, and a pool whose connections carry many requests, are left alone."""
    mock = httpx2.MockTransport(lambda _: httpx2.Response(200))
    http2 = httpx2.AsyncHTTPTransport(http2=True)
    pool = http2._pool

    clients = [_async_http.made_for_many(httpx2.AsyncClient(transport=each)) for each in (mock, http2)]

    assert [client._transport for client in clients] == [mock, http2]
    assert http2._pool is pool


def test_another_release_of_httpx2_keeps_its_own_pools() -> None:
    """A client that keeps its settings elsewhere works as it would without us."""

    async def test(server: Server) -> None:
        client = httpx2.AsyncClient(trust_env=False)
        del client._transport._pool._keepalive_expiry  # type: ignore[attr-defined]
        transport = client._transport

        _async_http.made_for_many(client)

        assert client._transport is transport
        await client.aclose()

    run(test)


@pytest.mark.parametrize(
    ("header", "extensions"),
    [({"Upgrade": "x"}, {}), ({}, {"trace": lambda *_: _nothing()})],
    ids=["upgrade", "trace"],
)
def test_what_is_rare_goes_the_usual_way(header: dict[str, str], extensions: dict[str, Any]) -> None:
    """Requests that want more than a plain exchange are left to `httpx2`."""

    async def test(server: Server) -> None:
        async with client_of("direct") as client:
            url = f"{server.url}/v1/x"
            response = await client.post(url, content=b"{}", headers=header, extensions=extensions)

            assert response.content == b"{}"
            assert not isinstance(response.extensions["network_stream"], LoopStream)

    run(test)


async def _nothing() -> None:
    pass


# --------------------------------------------------------------------------------------------- the SDKs

COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
ASKED: list[Any] = [{"role": "user", "content": "Hello."}]


def _json(value: object, head: bytes = b"HTTP/1.1 200 OK") -> bytes:
    body = json.dumps(value).encode()
    return head + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def _ask_openai(url: str, **options: Any) -> str | None:
    http_client = async_http_client(trust_env=False)
    async with openai.AsyncOpenAI(api_key="k", base_url=url, http_client=http_client, **options) as client:
        completion = await client.chat.completions.create(model="m", messages=ASKED)
    assert http_client.is_closed
    return completion.choices[0].message.content


async def _ask_anthropic(url: str, **options: Any) -> str | None:
    http_client = async_http_client(trust_env=False)
    async with anthropic.AsyncAnthropic(
        api_key="k", base_url=url, http_client=http_client, **options
    ) as client:
        message = await client.messages.create(model="m", messages=ASKED, max_tokens=9)
    assert http_client.is_closed
    return message.content[0].text  # type: ignore[union-attr]


ASKS: list[Any] = [
    pytest.param(_ask_openai, COMPLETION, openai.APITimeoutError, id="openai"),
    pytest.param(_ask_anthropic, MESSAGE, anthropic.APITimeoutError, id="anthropic"),
]


@pytest.mark.parametrize(("ask", "answer", "_error"), ASKS)
def test_an_sdk_client_works_over_it(ask: Any, answer: Any, _error: Any) -> None:
    """Both SDKs take the client, use it for a typed call, try again after a 503, and close it."""
    replies = iter([_json({}, b"HTTP/1.1 503 X\r\nretry-after-ms: 1"), _json(answer)])

    async def test(server: Server) -> None:
        assert await ask(server.url, max_retries=1) == "Hi."

        assert server.served == [2]

    run(test, lambda _: next(replies))


@pytest.mark.parametrize(("ask", "_answer", "error"), ASKS)
def test_an_sdks_timeout_holds(ask: Any, _answer: Any, error: type[Exception]) -> None:
    """The `timeout` of an SDK client ends a request as the SDK's own error."""

    async def test(server: Server) -> None:
        server.gate.clear()
        with pytest.raises(error):
            await ask(server.url, max_retries=0, timeout=SOON)

    run(test)


@pytest.mark.parametrize(
    ("make", "path"),
    [(AsyncOpenAIChatBackend, "/chat/completions"), (AsyncAnthropicBackend, "/v1/messages")],
    ids=["openai", "anthropic"],
)
def test_the_backends_use_it_by_default(make: Any, path: str) -> None:
    """Without a client of the caller's, requests go over connections of our own, each event loop its own."""

    async def test(server: Server) -> None:
        backend = make("m", base_url=server.url, api_key="k")
        async with contextlib.aclosing(backend):
            exchange = await backend.asend(ModelRequest(path=path, body=b"{}"))
            async with contextlib.aclosing(exchange):
                assert await exchange.read() == b"{}"
            assert isinstance(exchange._response.extensions["network_stream"], LoopStream)
        await server.until(lambda: server.open == 0)

    for _ in range(2):
        run(test)


def test_many_chats_do_not_open_more_connections_than_they_need() -> None:
    """64 requests at a time through one backend use 64 connections, three times over."""

    async def test(server: Server) -> None:
        async def one() -> None:
            exchange = await backend.asend(ModelRequest(path="/chat/completions", body=b"{}"))
            async with contextlib.aclosing(exchange):
                while await exchange.read():
                    pass

        async with contextlib.aclosing(
            AsyncOpenAIChatBackend("m", base_url=server.url, api_key="k")
        ) as backend:
            for _ in range(3):
                await asyncio.gather(*(one() for _ in range(64)))

        assert sum(server.served) == 3 * 64
        assert len(server.served) <= 64

    run(test)
