"""The bridge from `httpx2` to a caller's classic `httpx` client, in both colours."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import httpx
import httpx2
import pytest
import respx

from goaitools_py.backends import AsyncOpenAIChatBackend, OpenAIChatBackend
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http.async_transport import bridge_async
from goaitools_py.backends.http.transport import bridge

Colour = Literal["sync", "async"]
Handler = Callable[[httpx.Request], httpx.Response]

URL = "https://x.test/v1/chat"


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that counts what was taken from it and whether it was closed, and may break at the end."""

    def __init__(self, *chunks: bytes, error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.taken = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.taken += 1
            yield chunk
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def fetch(
    colour: Colour,
    handler: Handler | None = None,
    *,
    body: bytes = b"{}",
    headers: dict[str, str] | None = None,
    timeout: Any = httpx2.USE_CLIENT_DEFAULT,
    **client_options: Any,
) -> httpx2.Response:
    """Post once through a bridge over a classic client, and read the answer to its end."""
    if handler is not None:
        client_options["transport"] = httpx.MockTransport(handler)
    if colour == "async":
        return asyncio.run(_fetch_async(body, headers, timeout, client_options))
    with httpx.Client(**client_options) as classic, bridge(classic) as client:
        return client.post(URL, content=body, headers=headers, timeout=timeout)


async def _fetch_async(
    body: bytes, headers: Any, timeout: Any, client_options: dict[str, Any]
) -> httpx2.Response:
    async with httpx.AsyncClient(**client_options) as classic, bridge_async(classic) as client:
        return await client.post(URL, content=body, headers=headers, timeout=timeout)


def hook(colour: Colour, function: Callable[[httpx.Response], Any]) -> dict[str, list[Any]]:
    """A response hook in the colour that the client wants."""

    async def awaited(response: httpx.Response) -> None:
        await response.aread()
        function(response)

    def called(response: httpx.Response) -> None:
        response.read()
        function(response)

    return {"response": [called if colour == "sync" else awaited]}


# ------------------------------------------------------------------------------------ there and back


def test_request_arrives_unchanged(colour: Colour) -> None:
    """Method, URL, headers, body and timeouts reach the classic client as they were sent."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    timeout = httpx2.Timeout(connect=1, read=2, write=3, pool=4)
    fetch(
        colour,
        handler,
        body=b'{ "a": 1e5 }',
        headers={"X-One": "1", "Authorization": "Bearer k"},
        timeout=timeout,
    )

    (request,) = seen
    assert (request.method, str(request.url), request.content) == ("POST", URL, b'{ "a": 1e5 }')
    assert (request.headers["x-one"], request.headers["authorization"]) == ("1", "Bearer k")
    assert request.headers.get_list("content-length") == ["12"]
    assert request.extensions["timeout"] == {"connect": 1, "read": 2, "write": 3, "pool": 4}


def test_response_returns_unchanged(colour: Colour) -> None:
    """Status, repeated headers and body come back as the classic client got them."""
    headers = [("X-Request-Id", "r"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]

    response = fetch(colour, lambda _: httpx.Response(418, headers=headers, content=b"\x00\xff"))

    assert (response.status_code, response.content) == (418, b"\x00\xff")
    assert response.headers["x-request-id"] == "r"
    assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]


@pytest.mark.parametrize("read_by_a_hook", [False, True])
def test_compressed_body_is_decoded_once(colour: Colour, read_by_a_hook: bool) -> None:
    """A gzip body arrives decoded, whether or not a hook of the classic client read it first."""
    options = {"event_hooks": hook(colour, lambda _: None)} if read_by_a_hook else {}
    packed = Chunks(gzip.compress(b"plain"))

    response = fetch(
        colour, lambda _: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=packed), **options
    )

    assert response.content == b"plain"


# ------------------------------------------------------------------------- the classic client's set-up


def test_client_defaults_are_added(colour: Colour) -> None:
    """Headers, cookies and query parameters of the classic client go along."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    fetch(colour, handler, headers={"X-Two": "request"}, cookies={"c": "1"}, params={"v": "1"})

    assert seen[0].headers["cookie"] == "c=1"
    assert seen[0].url.params["v"] == "1"
    assert seen[0].headers["x-two"] == "request"


def test_authentication_is_the_classic_clients(colour: Colour) -> None:
    """`auth=` of the classic client is applied."""
    response = fetch(
        colour, lambda r: httpx.Response(200, text=r.headers["authorization"]), auth=httpx.BasicAuth("u", "p")
    )

    assert response.text.startswith("Basic ")


def test_mounts_are_the_classic_clients(colour: Colour) -> None:
    """A transport (or proxy) that the classic client mounted for a host serves it."""
    mounted = httpx.MockTransport(lambda _: httpx.Response(200, text="mounted"))

    response = fetch(colour, mounts={"https://x.test": mounted})

    assert response.text == "mounted"


def test_event_hooks_run(colour: Colour) -> None:
    """A response hook of the classic client sees the response."""
    seen: list[int] = []

    fetch(
        colour, lambda _: httpx.Response(204), event_hooks=hook(colour, lambda r: seen.append(r.status_code))
    )

    assert seen == [204]


def test_hook_that_raises_for_status_is_an_error_answer(colour: Colour) -> None:
    """A hook's `HTTPStatusError` comes back as the response that it is about."""
    response = fetch(
        colour,
        lambda _: httpx.Response(429, headers={"Retry-After": "7"}, text="slow"),
        event_hooks=hook(colour, httpx.Response.raise_for_status),
    )

    assert (response.status_code, response.headers["retry-after"], response.text) == (429, "7", "slow")


def test_hook_that_closed_the_body_leaves_status_and_headers(colour: Colour) -> None:
    """When a hook refuses a response before its body was read, the body is empty, the status is not lost."""

    async def awaited(response: httpx.Response) -> None:
        response.raise_for_status()

    hooks = {"response": [httpx.Response.raise_for_status if colour == "sync" else awaited]}

    response = fetch(colour, lambda _: httpx.Response(503, stream=Chunks(b"gone")), event_hooks=hooks)

    assert (response.status_code, response.content) == (503, b"")


def test_timeouts_of_the_classic_client_show_outside() -> None:
    """The SDKs read a client's default timeouts off it, so the bridge shows those of the classic one."""
    classic = httpx.Client(timeout=httpx.Timeout(7, connect=3))

    with classic, bridge(classic) as client:
        assert client.timeout.as_dict() == classic.timeout.as_dict()


# ----------------------------------------------------------------------------------------- the stream


def test_body_is_streamed() -> None:
    """No more than the chunk that was asked for is taken from the classic response."""
    body = Chunks(b"one", b"two")
    classic = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body)))

    with classic, bridge(classic) as client, client.stream("POST", URL) as response:
        chunks = response.iter_bytes()
        first = next(chunks)

        assert (first, body.taken) == (b"one", 1)


def test_body_is_streamed_async() -> None:
    """As above, awaited."""
    body = Chunks(b"one", b"two")

    async def main() -> tuple[bytes, int]:
        classic = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body)))
        async with (
            classic,
            bridge_async(classic) as client,
            client.stream("POST", URL) as response,
            contextlib.aclosing(response.aiter_bytes()) as chunks,
        ):
            return await anext(chunks), body.taken

    assert asyncio.run(main()) == (b"one", 1)


def test_closing_half_way_closes_the_classic_response() -> None:
    """A response that is closed before its end gives the classic connection back."""
    body = Chunks(b"one", b"two")
    classic = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body)))

    with classic, bridge(classic) as client, client.stream("POST", URL):
        pass

    assert body.closed
    assert body.taken == 0


def test_closing_half_way_closes_the_classic_response_async() -> None:
    """As above, awaited."""
    body = Chunks(b"one", b"two")

    async def main() -> None:
        classic = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body)))
        async with classic, bridge_async(classic) as client, client.stream("POST", URL):
            pass

    asyncio.run(main())

    assert body.closed
    assert body.taken == 0


def test_closing_the_bridge_leaves_the_classic_client_open(colour: Colour) -> None:
    """The classic client is the caller's, and stays usable."""

    async def close_async() -> bool:
        async with httpx.AsyncClient() as classic:
            await bridge_async(classic).aclose()
            return classic.is_closed

    if colour == "async":
        assert not asyncio.run(close_async())
    else:
        with httpx.Client() as classic:
            bridge(classic).close()
            assert not classic.is_closed


# ----------------------------------------------------------------------------------------- the errors


def _subclasses(base: type[Any]) -> list[type[Any]]:
    return [base, *(below for direct in base.__subclasses__() for below in _subclasses(direct))]


@pytest.mark.parametrize("classic", sorted(_subclasses(httpx.RequestError), key=lambda cls: cls.__name__))
@pytest.mark.parametrize("where", ["send", "body"])
def test_each_error_has_its_twin(colour: Colour, classic: type[httpx.RequestError], where: str) -> None:
    """Every request error of `httpx` surfaces as its `httpx2` namesake, the original as cause."""
    error = classic("cut")

    def handler(_: httpx.Request) -> httpx.Response:
        if where == "send":
            raise error
        return httpx.Response(200, stream=Chunks(b"one", error=error))

    with pytest.raises(httpx2.RequestError) as caught:
        fetch(colour, handler)

    assert type(caught.value) is getattr(httpx2, classic.__name__)
    assert caught.value.__cause__ is error


def test_own_error_class_becomes_its_nearest_base(colour: Colour) -> None:
    """A subclass from a third-party transport keeps its meaning."""

    class TunnelTimeout(httpx.ConnectTimeout):
        pass

    def handler(_: httpx.Request) -> httpx.Response:
        raise TunnelTimeout("cut")

    with pytest.raises(httpx2.ConnectTimeout):
        fetch(colour, handler)


@pytest.mark.parametrize("given", ["https://x.test", httpx.AsyncClient, httpx2.Client])
def test_other_things_are_refused(given: object) -> None:
    """What is no classic sync client is refused by type."""
    with pytest.raises(TypeError, match=r"must be an httpx2\.Client or httpx\.Client, not "):
        bridge(given)


# ---------------------------------------------------------------------------- respx and the real SDK


@respx.mock(assert_all_called=True)
def test_respx_serves_a_chat_completion(respx_mock: respx.MockRouter) -> None:
    """With a classic client handed in, `respx` answers what the OpenAI SDK posts."""
    route = respx_mock.post("https://api.openai.com/v1/chat/completions")
    route.respond(content=b'{"choices":[]}', headers={"x-request-id": "r-1"})
    request = ModelRequest(path="/chat/completions", body=b'{"model":"m"}')

    with httpx.Client() as classic:
        exchange = OpenAIChatBackend("m", http_client=classic, api_key="k").send(request)
        received = exchange.read()
        exchange.close()

    assert (exchange.head.request_id, received) == ("r-1", b'{"choices":[]}')
    assert route.calls.last.request.content == b'{"model":"m"}'


@respx.mock(assert_all_called=True)
def test_respx_serves_a_chat_completion_async(respx_mock: respx.MockRouter) -> None:
    """As above, awaited."""
    route = respx_mock.post("https://api.openai.com/v1/chat/completions")
    route.respond(content=b'{"choices":[]}', headers={"x-request-id": "r-1"})

    async def main() -> tuple[str | None, bytes]:
        async with httpx.AsyncClient() as classic:
            backend = AsyncOpenAIChatBackend("m", http_client=classic, api_key="k")
            exchange = await backend.asend(ModelRequest(path="/chat/completions", body=b'{"model":"m"}'))
            received = await exchange.read()
            await exchange.aclose()
            return exchange.head.request_id, received

    assert asyncio.run(main()) == ("r-1", b'{"choices":[]}')
    assert route.calls.last.request.content == b'{"model":"m"}'
