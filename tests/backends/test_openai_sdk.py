"""The edge over the `openai` SDK: what it takes, what it sends, what it makes of failures."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import httpx
import httpx2
import openai
import pytest

from goaitools_py.backends import (
    AsyncBackend,
    AsyncOpenAIChatBackend,
    Backend,
    BackendError,
    OpenAIChatBackend,
)
from goaitools_py.backends.base import ModelRequest, ResponseHead
from goaitools_py.backends.dialects import endpoint_family
from goaitools_py.backends.http.exchange import bounded_timeout
from goaitools_py.backends.http.sdk import ClientOptions
from goaitools_py.backends.openai.sdk import async_openai_edge, openai_edge

from ._http import Chunks, Colour, Handler, failing, loopback, mock_http

REQUEST = ModelRequest(path="/chat/completions", body=b'{ "model":"m" }')


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


def ask(
    colour: Colour, handler: Handler, request: ModelRequest = REQUEST, **options: Any
) -> tuple[ResponseHead, list[bytes]]:
    """Send a request through a backend over a mock transport; the head and the chunks of the answer."""
    transport = httpx2.MockTransport(handler)
    options = {"api_key": "sk-never-shown", **options}
    if colour == "async":
        return asyncio.run(_ask_async(transport, request, options))
    with httpx2.Client(transport=transport) as http_client:
        exchange = OpenAIChatBackend("m", http_client=http_client, **options).send(request)
        with contextlib.closing(exchange):
            return exchange.head, list(iter(exchange.read, b""))


async def _ask_async(transport: Any, request: ModelRequest, options: Any) -> tuple[ResponseHead, list[bytes]]:
    async with httpx2.AsyncClient(transport=transport) as http_client:
        exchange = await AsyncOpenAIChatBackend("m", http_client=http_client, **options).asend(request)
        async with contextlib.aclosing(exchange):
            chunks = []
            while chunk := await exchange.read():
                chunks.append(chunk)
            return exchange.head, chunks


def sent(colour: Colour, request: ModelRequest = REQUEST, **options: Any) -> httpx2.Request:
    """What leaves the edge for a request."""
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=b"{}")

    ask(colour, handler, request, **options)
    return seen[0]


def failure(colour: Colour, handler: Handler, request: ModelRequest = REQUEST) -> BackendError:
    with pytest.raises(BackendError) as caught:
        ask(colour, handler, request)
    return caught.value


# ------------------------------------------------------------------------------------- what is sent


def test_body_is_posted_as_it_is(colour: Colour) -> None:
    """The bytes of a request go out unchanged, to the SDK's base URL, with its credentials, as JSON."""
    request = sent(colour)

    assert request.content == REQUEST.body
    assert str(request.url) == "https://api.openai.com/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-never-shown"
    assert request.headers["content-type"] == "application/json"


def test_body_is_labelled_as_json_whatever_the_client_says(colour: Colour) -> None:
    """A default content type of the client's does not mislabel the body."""
    request = sent(colour, default_headers={"Content-Type": "text/plain"})

    assert request.headers.get_list("content-type") == ["application/json"]


@pytest.mark.parametrize(("stream", "accept"), [(False, "application/json"), (True, "text/event-stream")])
def test_accept_says_what_is_expected(colour: Colour, stream: bool, accept: str) -> None:
    """A streamed request asks for events, a unary one for JSON."""
    request = sent(colour, ModelRequest(path=REQUEST.path, body=REQUEST.body, stream=stream))

    assert request.headers["accept"] == accept


def test_headers_of_the_request_win(colour: Colour) -> None:
    """Extra headers are added, and replace the edge's own whatever their case."""
    extra = {"accept": "text/plain", "X-Title": "game"}

    request = sent(colour, ModelRequest(path=REQUEST.path, body=REQUEST.body, headers=extra, stream=True))

    assert request.headers.get_list("accept") == ["text/plain"]
    assert request.headers["x-title"] == "game"


def test_deadline_bounds_every_phase(colour: Colour) -> None:
    """What is left of a turn bounds connect, read, write and pool; the SDK's 5 s for a connection stay."""
    request = sent(colour, ModelRequest(path=REQUEST.path, body=REQUEST.body, timeout=60.0))

    assert request.extensions["timeout"] == {"connect": 5.0, "read": 60.0, "write": 60.0, "pool": 60.0}


def test_without_a_deadline_the_clients_timeouts_hold(colour: Colour) -> None:
    """No deadline leaves the client's own timeouts in force."""
    assert set(sent(colour, timeout=17.0).extensions["timeout"].values()) == {17.0}


@pytest.mark.parametrize(
    ("own", "left", "expected"),
    [
        (None, 3.0, (3.0, 3.0)),
        (2.0, 3.0, (2.0, 2.0)),
        (10, 3.0, (3.0, 3.0)),
        (httpx2.Timeout(600, connect=5.0), 3.0, (3.0, 3.0)),
        (httpx2.Timeout(None, connect=1.0), 3.0, (1.0, 3.0)),
        (httpx.Timeout(2.0, connect=1.0), 3.0, (1.0, 2.0)),
        (600.0, 0.0, (0.001, 0.001)),
        (600.0, -1.0, (0.001, 0.001)),
        (httpx2.Timeout(2.0, connect=1.0), None, (1.0, 2.0)),
        (httpx.Timeout(2.0, connect=1.0), None, (1.0, 2.0)),
    ],
)
def test_timeouts_only_get_shorter(own: Any, left: float | None, expected: tuple[float, float]) -> None:
    """Each phase is the client's own timeout or what is left, the smaller; never zero, which is "no wait"."""
    timeout = bounded_timeout(own, left)

    assert type(timeout) is httpx2.Timeout
    assert (timeout.connect, timeout.read) == expected


def test_max_retries_is_the_engines(colour: Colour) -> None:
    """The SDK tries once, however many retries the backend allows the engine."""
    calls: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        calls.append(request)
        return httpx2.Response(500)

    with pytest.raises(BackendError):
        ask(colour, handler, max_retries=3)

    assert len(calls) == 1


# ------------------------------------------------------------------------------------- what returns


def test_head_and_chunks(colour: Colour) -> None:
    """The head has status, lower-case headers and the request id; the chunks are those of the transport."""
    headers = {"X-Request-Id": "req-1", "X-RateLimit-Remaining": "9"}

    head, chunks = ask(colour, lambda _: httpx2.Response(201, headers=headers, stream=Chunks(b"one", b"two")))

    assert (head.status, head.request_id) == (201, "req-1")
    assert head.headers["x-ratelimit-remaining"] == "9"
    assert chunks == [b"one", b"two"]


def test_missing_request_id_is_none(colour: Colour) -> None:
    """Servers that give no request id leave it None."""
    head, _ = ask(colour, lambda _: httpx2.Response(200))

    assert head.request_id is None


def test_close_is_idempotent_and_closes_the_response() -> None:
    """Closing twice is fine, and gives the connection back although nothing was read."""
    body = Chunks(b"one")
    http_client = httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, stream=body)))

    with http_client:
        exchange = OpenAIChatBackend("m", http_client=http_client, api_key="k").send(REQUEST)
        exchange.close()
        exchange.close()

    assert body.closed


def test_close_is_idempotent_and_closes_the_response_async() -> None:
    """As above, awaited."""
    body = Chunks(b"one")

    async def main() -> None:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=body))
        async with httpx2.AsyncClient(transport=transport) as http_client:
            exchange = await AsyncOpenAIChatBackend("m", http_client=http_client, api_key="k").asend(REQUEST)
            await exchange.aclose()
            await exchange.aclose()

    asyncio.run(main())

    assert body.closed


# ---------------------------------------------------------------------------------------- failures


def test_error_answer(colour: Colour) -> None:
    """An error status keeps its headers, body and request id; the SDK's exception is the cause."""
    answer = httpx2.Response(429, headers={"X-Request-Id": "r", "Retry-After": "3"}, content=b'{"error":{}}')

    error = failure(colour, lambda _: answer)

    assert (error.status, error.body, error.request_id) == (429, b'{"error":{}}', "r")
    assert error.headers["retry-after"] == "3"
    assert type(error.sdk_error) is openai.RateLimitError
    assert str(error) == "api.openai.com answered 429"


@pytest.mark.parametrize(
    ("raised", "kind", "timed_out"),
    [
        (httpx2.ConnectError("x"), "unavailable", False),
        (httpx2.ConnectTimeout("x"), "unavailable", True),
        (httpx2.ReadTimeout("x"), "unavailable", True),
        (httpx2.PoolTimeout("x"), "unavailable", True),
        (httpx2.ReadError("x"), "unavailable", False),
        (httpx2.RemoteProtocolError("x"), "unavailable", False),
        (httpx2.ProxyError("x"), "unavailable", False),
        (ssl.SSLError("x"), "unavailable", False),
        (ConnectionResetError("x"), "unavailable", False),
        (TimeoutError("x"), "unavailable", True),
        (anyio.ClosedResourceError(), "unavailable", False),
        (openai.OpenAIError("no token"), "auth", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_failure_to_send(colour: Colour, raised: Exception, kind: str, timed_out: bool) -> None:
    """Whatever keeps a request from an answer becomes one `BackendError` with the original in its chain."""
    error = failure(colour, failing(raised))

    assert (error.kind, error.timed_out, error.status) == (kind, timed_out, None)
    assert raised in (error.sdk_error, error.sdk_error and error.sdk_error.__cause__)
    assert type(raised).__name__ in str(error)


@pytest.mark.parametrize(
    ("raised", "timed_out"),
    [
        (httpx2.ReadError("x"), False),
        (httpx2.ReadTimeout("x"), True),
        (httpx2.RemoteProtocolError("x"), False),
        (httpx2.DecodingError("x"), False),
        (ssl.SSLError("x"), False),
        (ConnectionResetError("x"), False),
        (TimeoutError("x"), True),
        (anyio.EndOfStream(), False),
        (anyio.BrokenResourceError(), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_failure_in_the_body(colour: Colour, raised: Exception, timed_out: bool) -> None:
    """Whatever breaks an open body is "interrupted", with the original as cause, and closes the response."""
    body = Chunks(b"one", error=raised)

    error = failure(colour, lambda _: httpx2.Response(200, stream=body))

    assert (error.kind, error.timed_out, error.status) == ("interrupted", timed_out, None)
    assert error.sdk_error is raised
    assert body.closed


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), asyncio.CancelledError(), SystemExit(3)], ids=repr)
def test_interrupts_pass_through_a_body(raised: BaseException) -> None:
    """Ctrl-C and cancellation are nobody's fault: they pass unchanged, after the response was closed."""
    body = Chunks(error=raised)
    http_client = httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, stream=body)))

    with http_client:
        exchange = OpenAIChatBackend("m", http_client=http_client, api_key="k").send(REQUEST)
        with pytest.raises(type(raised)) as caught:
            exchange.read()

    assert caught.value is raised
    assert body.closed


def test_cancelling_a_read_closes_the_response() -> None:
    """A task cancelled while it waits for the next chunk leaves no open response behind."""

    class Silent(Chunks):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            waiting.set()
            await asyncio.Event().wait()
            yield b"never"

    body = Silent()
    waiting = asyncio.Event()

    async def main() -> None:
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=body))
        async with httpx2.AsyncClient(transport=transport) as http_client:
            exchange = await AsyncOpenAIChatBackend("m", http_client=http_client, api_key="k").asend(REQUEST)
            reading = asyncio.ensure_future(exchange.read())
            await waiting.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    asyncio.run(main())

    assert body.closed


def test_broken_error_answer_keeps_its_status(colour: Colour) -> None:
    """An error answer whose body breaks off is still that answer, with an empty body."""
    body = Chunks(b'{"er', error=httpx2.ReadError("x"))

    error = failure(colour, lambda _: httpx2.Response(503, headers={"Retry-After": "9"}, stream=body))

    assert (error.status, error.body, error.headers["retry-after"]) == (503, b"", "9")


def test_earlier_answer_does_not_colour_a_later_failure(colour: Colour) -> None:
    """A transport error raised while an earlier error answer is being handled is its own failure."""
    try:
        ask(colour, lambda _: httpx2.Response(429, content=b"slow"))
    except BackendError:
        error = failure(colour, failing(ConnectionResetError("x")))

    assert (error.kind, error.status) == ("unavailable", None)


def test_hook_that_raises_for_status_is_an_error_answer() -> None:
    """An event hook's `HTTPStatusError`, which the SDK lets through, is the answer that it is about."""

    def hook(response: httpx2.Response) -> None:
        response.read()
        response.raise_for_status()

    transport = httpx2.MockTransport(lambda _: httpx2.Response(429, content=b"slow"))
    with httpx2.Client(transport=transport, event_hooks={"response": [hook]}) as http_client:
        backend = OpenAIChatBackend("m", http_client=http_client, api_key="k")
        with pytest.raises(BackendError) as caught:
            backend.send(REQUEST)

    assert (caught.value.status, caught.value.body) == (429, b"slow")


def test_defects_are_not_dressed_up(colour: Colour) -> None:
    """An exception that is no failure of the network is a defect, and passes unchanged."""
    with pytest.raises(ZeroDivisionError):
        ask(colour, failing(ZeroDivisionError()))


# --------------------------------------------------------------------------- what a backend is made of


def test_backends_have_the_engines_shape() -> None:
    """Both classes satisfy the engine's protocols, and carry what they were given."""
    sync = OpenAIChatBackend("m", api_key="k", context_window=8_000, max_retries=4)
    both = AsyncOpenAIChatBackend("m", api_key="k", context_window=8_000, max_retries=4)

    assert isinstance(sync, Backend)
    assert isinstance(both, AsyncBackend)
    for backend in (sync, both):
        assert (backend.model, backend.context_window, backend.max_retries) == ("m", 8_000, 4)
    sync.close()


@pytest.mark.parametrize("backend_class", [OpenAIChatBackend, AsyncOpenAIChatBackend])
def test_missing_key_shows_when_the_backend_is_made(backend_class: Callable[..., object]) -> None:
    """Without a key the constructor says which variable to set; the SDK's own error is the cause."""
    with pytest.raises(ValueError, match="set OPENAI_API_KEY") as caught:
        backend_class("m")

    assert isinstance(caught.value.__cause__, openai.OpenAIError)


def test_key_is_in_no_repr() -> None:
    """Neither the backend nor what it is made from shows the key."""
    options = ClientOptions(
        api_key="sk-never-shown", client_options={"default_headers": {"X": "sk-never-shown"}}
    )

    assert "sk-never-shown" not in repr(options) + repr(OpenAIChatBackend("m", api_key="sk-never-shown"))


def test_client_options_reach_the_sdk(colour: Colour) -> None:
    """Whatever else the SDK's client takes can be set."""
    request = sent(colour, organization="org-1", base_url="https://x.test/v9", default_headers={"X-App": "a"})

    assert str(request.url) == "https://x.test/v9/chat/completions"
    assert (request.headers["openai-organization"], request.headers["x-app"]) == ("org-1", "a")


def test_environment_is_left_to_the_sdk(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset values come from the SDK's environment variables."""
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://env.test/v1")

    request = sent(colour, api_key=None)

    assert str(request.url) == "https://env.test/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer from-env"


def test_own_client_is_used_as_it_is_and_stays_open() -> None:
    """A caller's client, of any subclass, serves the requests and is not closed."""

    class Traced(openai.OpenAI):
        pass

    client = Traced(api_key="k", http_client=mock_http(b"mine"))
    backend = OpenAIChatBackend("m", client=client)

    with contextlib.closing(backend.send(REQUEST)) as exchange:
        received = exchange.read()
    backend.close()

    assert received == b"mine"
    assert not client.is_closed()


def test_own_client_is_given_a_path_and_may_move() -> None:
    """A caller's client puts the address together itself, so a new base URL holds from then on."""
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, content=b"{}")

    class Routed(openai.OpenAI):
        def post(self, path: str, **rest: Any) -> Any:
            seen.append(path)
            return super().post(path, **rest)

    client = Routed(
        api_key="k",
        base_url="https://old.test/v1",
        http_client=httpx2.Client(transport=httpx2.MockTransport(handler)),
    )
    backend = OpenAIChatBackend("m", client=client)
    client.base_url = "https://new.test/v1"
    backend.send(REQUEST).close()

    assert seen == ["/chat/completions", "https://new.test/v1/chat/completions"]


def test_own_http_client_stays_open() -> None:
    """An HTTP client that was handed in is the caller's to close."""
    http_client = mock_http()

    OpenAIChatBackend("m", api_key="k", http_client=http_client).close()

    assert not http_client.is_closed


def test_own_client_on_classic_httpx_works() -> None:
    """An SDK client that still runs on classic `httpx` is served too, its errors included."""

    def broken() -> Iterator[bytes]:
        yield b"one"
        raise httpx.ReadTimeout("x")

    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=broken()))
    client = openai.OpenAI(api_key="k", http_client=httpx.Client(transport=transport))  # type: ignore[arg-type]
    exchange = OpenAIChatBackend("m", client=client).send(REQUEST)

    first = exchange.read()
    with pytest.raises(BackendError) as caught:
        exchange.read()

    assert first == b"one"
    assert (caught.value.kind, caught.value.timed_out) == ("interrupted", True)


@pytest.mark.parametrize(
    ("backend_class", "client_class"),
    [(OpenAIChatBackend, openai.AsyncOpenAI), (AsyncOpenAIChatBackend, openai.OpenAI)],
)
def test_client_of_the_wrong_kind_is_refused(backend_class: Any, client_class: Any) -> None:
    """A sync client for an async backend, or the other way round, is refused with the class to use."""
    with pytest.raises(TypeError, match=r"AsyncOpenAI to AsyncOpenAIChatBackend"):
        backend_class("m", client=client_class(api_key="k"))


@pytest.mark.parametrize(
    ("backend_class", "http_client"),
    [
        (OpenAIChatBackend, httpx2.AsyncClient()),
        (OpenAIChatBackend, httpx.AsyncClient()),
        (AsyncOpenAIChatBackend, httpx2.Client()),
        (AsyncOpenAIChatBackend, httpx.Client()),
    ],
    ids=["sync-httpx2", "sync-httpx", "async-httpx2", "async-httpx"],
)
def test_http_client_of_the_wrong_kind_is_refused(backend_class: Any, http_client: object) -> None:
    """An HTTP client of the other kind is refused by type."""
    with pytest.raises(TypeError, match="http_client= must be an httpx2"):
        backend_class("m", api_key="k", http_client=http_client)


@pytest.mark.parametrize(
    "extra", [{"api_key": "k"}, {"base_url": "https://x.test"}, {"http_client": mock_http()}, {"timeout": 3}]
)
def test_own_client_excludes_options(extra: dict[str, Any]) -> None:
    """Options beside `client=` would be ignored, so they are refused by name."""
    with pytest.raises(TypeError, match=next(iter(extra))):
        OpenAIChatBackend("m", client=openai.OpenAI(api_key="k"), **extra)


@pytest.mark.parametrize(
    ("edge", "client_class"),
    [(openai_edge, openai.AzureOpenAI), (async_openai_edge, openai.AsyncAzureOpenAI)],
)
@pytest.mark.parametrize(
    ("where", "path", "refused"),
    [
        ({"azure_endpoint": "https://r.openai.azure.com"}, "/chat/completions", True),
        ({"base_url": "https://r.openai.azure.com/openai/v1"}, "/chat/completions", True),
        ({"azure_endpoint": "https://r.openai.azure.com"}, "/responses", False),
        (
            {"azure_endpoint": "https://r.openai.azure.com", "azure_deployment": "d"},
            "/chat/completions",
            False,
        ),
    ],
)
def test_azure_client_that_rewrites_bodies_is_refused(
    edge: Any, client_class: Any, where: dict[str, str], path: str, refused: bool
) -> None:
    """An Azure client that would read its URL out of the JSON body is refused with what to use instead."""
    options = ClientOptions(client=client_class(api_key="k", api_version="2026-01-01", **where))

    if refused:
        with pytest.raises(TypeError, match=r"https://RESOURCE\.openai\.azure\.com/openai/v1/"):
            edge(options, path=path)
    else:
        assert edge(options, path=path).family == "azure"


def test_bedrock_client_is_taken() -> None:
    """A Bedrock client only adds credentials to the bytes, so it is used."""
    client = openai.BedrockOpenAI(api_key="k", aws_region="us-east-1", http_client=mock_http(b"ok"))

    with contextlib.closing(OpenAIChatBackend("m", client=client).send(REQUEST)) as exchange:
        assert exchange.read() == b"ok"


@pytest.mark.parametrize(
    ("base_url", "family"),
    [
        (None, "openai"),
        ("", "openai"),
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1/", "openai"),
        ("https://r.openai.azure.com/openai/v1/", "azure"),
        ("https://r.services.ai.azure.com/openai/v1/", "azure"),
        ("https://r.cognitiveservices.azure.com/openai/v1/", "azure"),
        ("https://bedrock-mantle.us-east-1.api.aws/openai/v1", "aws"),
        ("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", "aws"),
        ("https://my-server.us-east-1.elb.amazonaws.com/v1", "my-server.us-east-1.elb.amazonaws.com"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("http://127.0.0.1:11434/v1", "local"),
        ("http://localhost:8000/v1", "local"),
        ("http://[::1]:8000/v1", "local"),
        ("https://openrouter.ai/api/v1", "openrouter.ai"),
        ("https://user:secret@LLM.example.com:8443/v1", "llm.example.com"),
        ("https://api.openai.com.example.org/v1", "api.openai.com.example.org"),
    ],
)
def test_endpoint_family(base_url: str | None, family: str) -> None:
    """A base URL names OpenAI, Azure, this machine, or its host."""
    assert endpoint_family(base_url) == family


def test_dialect_knows_the_family() -> None:
    """The backend tells its dialect whose server it speaks to."""
    assert (
        OpenAIChatBackend("m", api_key="k", base_url="https://openrouter.ai/api/v1").dialect.family
        == "openrouter.ai"
    )


# -------------------------------------------------------------------------- connections of our own


@pytest.fixture
def base_url() -> Iterator[str]:
    with loopback() as url:
        yield f"{url}/v1"


async def _read_all(backend: AsyncOpenAIChatBackend) -> bytes:
    exchange = await backend.asend(REQUEST)
    async with contextlib.aclosing(exchange):
        received = b""
        while chunk := await exchange.read():
            received += chunk
        return received


def test_loopback_needs_no_proxy(colour: Colour, base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not asked for a server on this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def main() -> bytes:
        async with contextlib.aclosing(
            AsyncOpenAIChatBackend("m", base_url=base_url, api_key="k")
        ) as backend:
            return await _read_all(backend)

    if colour == "async":
        assert asyncio.run(main()) == b"{}"
    else:
        with contextlib.closing(OpenAIChatBackend("m", base_url=base_url, api_key="k")) as backend:
            assert backend.send(REQUEST).read() == b"{}"


def test_one_backend_serves_several_event_loops(base_url: str) -> None:
    """Loops that are open at the same time each get connections of their own."""
    backend = AsyncOpenAIChatBackend("m", base_url=base_url, api_key="k")
    loops = [asyncio.new_event_loop() for _ in range(2)]

    received = [loop.run_until_complete(_read_all(backend)) for loop in (*loops, *loops)]

    for loop in loops:
        loop.run_until_complete(backend.aclose())
        loop.close()
    assert received == [b"{}"] * 4


def test_backend_works_again_after_close(base_url: str) -> None:
    """As an async one: another chat may use the same backend. Closing twice does nothing more."""
    backend = OpenAIChatBackend("m", base_url=base_url, api_key="k")

    received = []
    for _ in range(3):
        received.append(backend.send(REQUEST).read())
        backend.close()
        backend.close()

    assert received == [b"{}"] * 3


def test_backend_works_again_after_aclose(base_url: str) -> None:
    """`aclose` ends the running loop's connections only; the next `asyncio.run` opens new ones."""
    backend = AsyncOpenAIChatBackend("m", base_url=base_url, api_key="k")

    async def main() -> bytes:
        async with contextlib.aclosing(backend):
            return await _read_all(backend)

    assert [asyncio.run(main()) for _ in range(2)] == [b"{}"] * 2


def test_closed_event_loops_are_forgotten(base_url: str) -> None:
    """A backend that served many `asyncio.run` calls holds none of their loops."""
    backend = AsyncOpenAIChatBackend(
        "m", base_url=base_url, api_key="k", default_headers={"Connection": "close"}
    )
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await _read_all(backend)

    for _ in range(3):
        asyncio.run(main())
    gc.collect()

    assert [loop() is None for loop in loops[:2]] == [True, True]
