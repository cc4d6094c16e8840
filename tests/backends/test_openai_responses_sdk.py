"""The Responses backends: the same edge as Chat Completions, on another path and with fewer restrictions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx2
import openai
import pytest

from goaitools_py.backends import (
    AsyncBackend,
    AsyncOpenAIResponsesBackend,
    Backend,
    BackendError,
    OpenAIResponsesBackend,
)
from goaitools_py.backends.base import ModelRequest

from ._http import Colour, failing, mock_async_http, mock_http

REQUEST = ModelRequest(path="/responses", body=b'{ "model":"m","input":[] }')


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


class Sent:
    """Backends of one colour over a mock transport, and what leaves them."""

    def __init__(self, colour: Colour) -> None:
        self.is_async = colour == "async"
        self.seen: list[httpx2.Request] = []
        self.http: Any = (mock_async_http if self.is_async else mock_http)(b'{"id":"resp_1"}', self.seen)

    def client(self, name: str, **options: Any) -> Any:
        """An SDK client by its sync class's name."""
        return getattr(openai, f"Async{name}" if self.is_async else name)(http_client=self.http, **options)

    def backend(self, **options: Any) -> Any:
        return (AsyncOpenAIResponsesBackend if self.is_async else OpenAIResponsesBackend)("m", **options)

    def send(self, backend: Any, request: ModelRequest = REQUEST) -> bytes:
        async def main() -> bytes:
            async with contextlib.aclosing(await backend.asend(request)) as exchange:
                return await exchange.read()  # type: ignore[no-any-return]

        if self.is_async:
            return asyncio.run(main())
        with contextlib.closing(backend.send(request)) as exchange:
            return exchange.read()  # type: ignore[no-any-return]


@pytest.fixture
def net(colour: Colour) -> Sent:
    return Sent(colour)


def test_body_is_posted_as_it_is(net: Sent) -> None:
    """The bytes of a request go out unchanged to /v1/responses; the answer comes back as it is."""
    received = net.send(net.backend(api_key="k", http_client=net.http))

    assert received == b'{"id":"resp_1"}'
    assert net.seen[0].content == REQUEST.body
    assert str(net.seen[0].url) == "https://api.openai.com/v1/responses"
    assert net.seen[0].headers["authorization"] == "Bearer k"


def test_stream_is_asked_for(net: Sent) -> None:
    """A streamed request asks for events, and carries the headers of the request."""
    streamed = ModelRequest(path="/responses", body=b"{}", stream=True, headers={"X-Title": "game"})

    net.send(net.backend(api_key="k", http_client=net.http), streamed)

    assert net.seen[0].headers["accept"] == "text/event-stream"
    assert net.seen[0].headers["x-title"] == "game"


def test_backend_has_the_engines_shape(net: Sent) -> None:
    """The backend satisfies the engine's protocol, speaks its wire, and carries what it was given."""
    backend = net.backend(api_key="k", http_client=net.http, context_window=8_000, max_retries=4)

    assert isinstance(backend, AsyncBackend if net.is_async else Backend)
    assert (backend.model, backend.context_window, backend.max_retries) == ("m", 8_000, 4)
    assert (backend.dialect.wire, backend.dialect.family) == ("openai-responses", "openai")


@pytest.mark.parametrize(
    ("base_url", "family"),
    [
        ("https://r.openai.azure.com/openai/v1/", "azure"),
        ("https://bedrock-mantle.us-east-1.api.aws/openai/v1", "aws"),
        ("https://api.x.ai/v1", "api.x.ai"),
        ("http://127.0.0.1:11434/v1", "local"),
    ],
)
def test_family_is_that_of_the_base_url(net: Sent, base_url: str, family: str) -> None:
    """The dialect knows whose server it speaks to."""
    backend = net.backend(api_key="k", http_client=net.http, base_url=base_url)

    assert backend.dialect.family == family


@pytest.mark.parametrize("deployment", [{}, {"azure_deployment": "dep"}])
def test_azure_client_needs_no_deployment(net: Sent, deployment: dict[str, str]) -> None:
    """On this wire Azure's client reads nothing out of the body: its URL is the same either way."""
    client = net.client(
        "AzureOpenAI",
        api_key="k",
        api_version="2026-01-01",
        azure_endpoint="https://r.openai.azure.com",
        **deployment,
    )
    backend = net.backend(client=client)

    net.send(backend)

    assert net.seen[0].url.path == "/openai/responses"
    assert net.seen[0].content == REQUEST.body
    assert net.seen[0].headers["api-key"] == "k"
    assert backend.dialect.family == "azure"


def test_bedrock_client_is_taken(net: Sent) -> None:
    """A Bedrock client only adds credentials to the bytes."""
    client = net.client("BedrockOpenAI", api_key="k", aws_region="us-east-1")
    backend = net.backend(client=client)

    net.send(backend)

    assert str(net.seen[0].url) == "https://bedrock-mantle.us-east-1.api.aws/openai/v1/responses"
    assert net.seen[0].content == REQUEST.body
    assert backend.dialect.family == "aws"


def test_missing_key_shows_when_the_backend_is_made(net: Sent) -> None:
    """Without a key the constructor says which variable to set."""
    with pytest.raises(ValueError, match="set OPENAI_API_KEY"):
        net.backend()


def test_client_of_the_wrong_kind_is_refused(net: Sent) -> None:
    """A client of the other colour is refused with the classes that go together."""
    other: Any = openai.OpenAI if net.is_async else openai.AsyncOpenAI

    with pytest.raises(TypeError, match="AsyncOpenAIResponsesBackend and AsyncChat"):
        net.backend(client=other(api_key="k"))


def test_failure_names_the_host_and_no_content() -> None:
    """An error answer and a lost connection become the same findings as on the other wire."""
    answer = httpx2.Response(400, headers={"x-request-id": "r"}, content=b'{"error":{"message":"Harrogate"}}')
    refusing = httpx2.Client(transport=httpx2.MockTransport(lambda _: answer))
    silent = httpx2.Client(transport=httpx2.MockTransport(failing(httpx2.ConnectTimeout("x"))))

    with pytest.raises(BackendError) as refused:
        OpenAIResponsesBackend("m", api_key="k", http_client=refusing).send(REQUEST)
    with pytest.raises(BackendError) as lost:
        OpenAIResponsesBackend("m", api_key="k", http_client=silent).send(REQUEST)

    assert (refused.value.status, refused.value.request_id) == (400, "r")
    assert str(refused.value) == "api.openai.com answered 400"
    assert (lost.value.kind, lost.value.timed_out) == ("unavailable", True)
