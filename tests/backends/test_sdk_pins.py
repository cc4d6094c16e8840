"""What the edges count on in the `openai` and `anthropic` SDKs: an upgrade that changes it fails here."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import anthropic
import anthropic._base_client
import anthropic._constants
import anthropic._response
import httpx
import httpx2
import openai
import openai._constants
import openai._response
import pytest
from anthropic.lib.credentials import AccessToken

PATH = "/chat/completions"
UNREAD = {"X-Stainless-Raw-Response": "stream"}
BODY = '{ "b":1.0,"a":[1e5,18446744073709551616],\n"x_unknown":"\\ud800 é" }'.encode()

Handler = Callable[[httpx2.Request], httpx2.Response]


class Body(httpx2.SyncByteStream):
    """A response body that remembers whether anybody began to read it."""

    def __init__(self, *chunks: bytes, error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.read = False

    def __iter__(self) -> Any:
        self.read = True
        yield from self.chunks
        if self.error is not None:
            raise self.error


class Sdk:
    """One of the two SDKs, and the names that differ between them."""

    def __init__(self, module: ModuleType) -> None:
        self.module: Any = module
        self.is_openai = module is openai
        self.client_class: Any = openai.OpenAI if self.is_openai else anthropic.Anthropic
        self.path = PATH if self.is_openai else "/v1/messages"
        self.base_url = "https://x.test/v1" if self.is_openai else "https://x.test"
        self.base_error: Any = openai.OpenAIError if self.is_openai else anthropic.AnthropicError
        self.request_id = "x-request-id" if self.is_openai else "request-id"

    def client(self, handler: Handler, **options: Any) -> Any:
        http = httpx2.Client(transport=httpx2.MockTransport(handler))
        return self.client_class(**{"api_key": "k-1", "base_url": self.base_url, **options}, http_client=http)

    def post(self, handler: Handler, client: dict[str, Any] | None = None, **options: Any) -> httpx2.Response:
        made = self.client(handler, **(client or {}))
        options = {"max_retries": 0, **options}
        return made.post(self.path, content=BODY, cast_to=httpx2.Response, options=options)  # type: ignore[no-any-return]

    def sent(self, client: dict[str, Any] | None = None, **options: Any) -> httpx2.Request:
        """What leaves the SDK for one post."""
        seen: list[httpx2.Request] = []

        def handler(request: httpx2.Request) -> httpx2.Response:
            seen.append(request)
            return httpx2.Response(200, content=b"{}")

        self.post(handler, client, **options)
        return seen[0]


@pytest.fixture(params=[openai, anthropic], ids=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return Sdk(request.param)


# ------------------------------------------------------------------------------------------- both SDKs


def test_content_bytes_go_out_unchanged(sdk: Sdk) -> None:
    """`content=` sends the very bytes, whitespace, big numbers and lone surrogates included."""
    request = sdk.sent()

    assert request.content == BODY
    assert request.headers["content-length"] == str(len(BODY))


def test_path_is_appended_to_the_base_url(sdk: Sdk) -> None:
    """A path with a leading slash stays under the base URL's own path, and nothing is added to it."""
    request = sdk.sent({"base_url": "https://x.test/a/b"})

    assert str(request.url) == "https://x.test/a/b" + sdk.path


@pytest.mark.parametrize("base_url", ["https://x.test/a/b/", "http://x.test:8080", "https://x.test/ä"])
def test_a_whole_address_is_posted_to_like_its_path(sdk: Sdk, base_url: str) -> None:
    """The base URL and the path in one string make the same request, credentials included."""
    by_path = sdk.sent({"base_url": base_url})
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=b"{}")

    client = sdk.client(handler, base_url=base_url)
    address = str(client.base_url).rstrip("/") + sdk.path
    client.post(address, content=BODY, cast_to=httpx2.Response, options={"max_retries": 0})

    assert seen[0].url == by_path.url
    assert seen[0].headers == by_path.headers
    assert "k-1" in seen[0].headers["authorization"]


def test_credentials_are_added(sdk: Sdk) -> None:
    """A raw post carries the key as a bearer token, and in no other header."""
    request = sdk.sent()

    assert request.headers["authorization"] == "Bearer k-1"
    assert [name for name, value in request.headers.items() if "k-1" in value] == ["authorization"]


def test_an_empty_idempotency_key_is_no_header(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one the SDK makes no key of its own, and sends what it would have sent without."""
    expected = sdk.sent().headers
    monkeypatch.setattr(sdk.client_class, "_idempotency_key", lambda _: pytest.fail("a key was made"))

    assert sdk.sent(idempotency_key="").headers == expected


def test_content_type_is_json(sdk: Sdk) -> None:
    """Bytes are labelled as JSON when the caller says so, once."""
    request = sdk.sent(headers={"Content-Type": "application/json"})

    assert request.headers.get_list("content-type") == ["application/json"]


def test_own_headers_win_whatever_their_case(sdk: Sdk) -> None:
    """A header given per request replaces the SDK's default, not doubles it; of two the later wins."""
    request = sdk.sent(headers={"Accept": "text/plain", "accept": "text/event-stream"})

    assert request.headers.get_list("accept") == ["text/event-stream"]


def test_raw_header_is_the_one_the_sdk_itself_uses(sdk: Sdk) -> None:
    """`with_streaming_response` still asks for an unread body by X-Stainless-Raw-Response: stream."""
    wrapper = sdk.module._response.to_streamed_response_wrapper

    assert sdk.module._constants.RAW_RESPONSE_HEADER == "X-Stainless-Raw-Response"
    assert 'extra_headers[RAW_RESPONSE_HEADER] = "stream"' in inspect.getsource(wrapper)


def test_raw_header_leaves_the_body_unread(sdk: Sdk) -> None:
    """With the header, post returns a plain `httpx2.Response` before a byte of the body is read."""
    body = Body(b"one", b"two")

    response = sdk.post(lambda _: httpx2.Response(200, stream=body), headers=UNREAD)

    assert type(response) is httpx2.Response
    assert not body.read
    assert list(response.iter_bytes()) == [b"one", b"two"]


def test_without_the_raw_header_the_body_is_read(sdk: Sdk) -> None:
    """Without the header the whole body is there at once, so the header is what makes the difference."""
    body = Body(b"one")

    sdk.post(lambda _: httpx2.Response(200, stream=body))

    assert body.read


@pytest.mark.parametrize("content", [b"<html>busy</html>", b"null", b"", b'{"error":{}}', b"{"])
def test_any_200_body_comes_back_as_it_is(sdk: Sdk, content: bytes) -> None:
    """The SDK neither parses nor judges the body of a 2xx; the dialect has to."""
    response = sdk.post(lambda _: httpx2.Response(200, content=content), headers=UNREAD)

    assert response.content == content


ERRORS: Sequence[tuple[int, str, str]] = [
    (400, "BadRequestError", "BadRequestError"),
    (401, "AuthenticationError", "AuthenticationError"),
    (403, "PermissionDeniedError", "PermissionDeniedError"),
    (404, "NotFoundError", "NotFoundError"),
    (408, "APIStatusError", "RequestTimeoutError"),
    (409, "ConflictError", "ConflictError"),
    (413, "APIStatusError", "ContentTooLargeError"),
    (422, "UnprocessableEntityError", "UnprocessableEntityError"),
    (429, "RateLimitError", "RateLimitError"),
    (500, "InternalServerError", "InternalServerError"),
    (503, "InternalServerError", "ServiceUnavailableError"),
    (529, "InternalServerError", "OverloadedError"),
]


@pytest.mark.parametrize(("status", "of_openai", "of_anthropic"), ERRORS)
def test_error_statuses_have_their_classes(sdk: Sdk, status: int, of_openai: str, of_anthropic: str) -> None:
    """An error status raises its class, with the body readable although it was asked for unread."""
    stream = Body(b'{"error":{"message":"no"}}')
    answer = httpx2.Response(status, headers={sdk.request_id: "req-1"}, stream=stream)

    with pytest.raises(sdk.module.APIStatusError) as caught:
        sdk.post(lambda _: answer, headers=UNREAD)

    assert type(caught.value).__name__ == (of_openai if sdk.is_openai else of_anthropic)
    assert caught.value.response.content == b'{"error":{"message":"no"}}'
    assert caught.value.request_id == "req-1"


@pytest.mark.parametrize("status", [408, 409, 429, 500])
def test_max_retries_zero_means_one_request(sdk: Sdk, status: int) -> None:
    """`max_retries: 0` per request switches retries off, whatever the client and the server say."""
    requests: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(status, headers={"x-should-retry": "true", "retry-after": "0"})

    with pytest.raises(sdk.module.APIStatusError):
        sdk.post(handler, {"max_retries": 5})

    assert len(requests) == 1


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (httpx2.ReadTimeout, "APITimeoutError"),
        (httpx2.ConnectTimeout, "APITimeoutError"),
        (httpx2.ConnectError, "APIConnectionError"),
        (httpx2.RemoteProtocolError, "APIConnectionError"),
    ],
)
def test_transport_errors_are_wrapped(
    sdk: Sdk, raised: type[httpx2.TransportError], error_class: str
) -> None:
    """A failed send raises the SDK's class with the transport's exception as its cause."""

    def handler(request: httpx2.Request) -> httpx2.Response:
        raise raised("cut", request=request)

    with pytest.raises(sdk.base_error) as caught:
        sdk.post(handler)

    assert type(caught.value).__name__ == error_class
    assert type(caught.value.__cause__) is raised


def test_open_bodies_leak_errors_of_the_transport(sdk: Sdk) -> None:
    """What breaks a body that is read after the post is a bare `httpx2` error, never the SDK's."""
    body = Body(b"one", error=httpx2.ReadError("cut"))
    response = sdk.post(lambda _: httpx2.Response(200, stream=body), headers=UNREAD)

    with pytest.raises(httpx2.ReadError):
        list(response.iter_bytes())


def test_timeout_of_a_request_reaches_the_transport(sdk: Sdk) -> None:
    """A per-request `httpx2.Timeout` arrives phase by phase."""
    request = sdk.sent(timeout=httpx2.Timeout(connect=1, read=2, write=3, pool=4))

    assert request.extensions["timeout"] == {"connect": 1, "read": 2, "write": 3, "pool": 4}


def test_default_timeout_connects_within_five_seconds(sdk: Sdk) -> None:
    """The SDK's default waits 5 s for a connection and 600 s for an answer; ours only ever shortens it."""
    timeout = sdk.client_class(api_key="k").timeout

    assert isinstance(timeout, httpx2.Timeout)
    assert (timeout.connect, timeout.read) == (5.0, 600)


def test_sdk_does_not_load_classic_httpx(sdk: Sdk) -> None:
    """The SDK's own HTTP clients are those of `httpx2`, and take the mounts that lead past a proxy."""
    way_out: dict[str, Any] = {"trust_env": False, "mounts": {"http://": None}}

    assert isinstance(sdk.module.DefaultHttpxClient(**way_out), httpx2.Client)
    assert isinstance(sdk.module.DefaultAsyncHttpxClient(**way_out), httpx2.AsyncClient)


def test_base_url_has_a_host_and_a_path(sdk: Sdk) -> None:
    """A client's `base_url` is an `httpx2.URL`."""
    client = sdk.client(lambda _: httpx2.Response(200))

    assert isinstance(client.base_url, httpx2.URL)
    assert client.base_url.host == "x.test"


# ---------------------------------------------------------------------------------------------- openai


def post(client: openai.OpenAI, body: bytes = BODY, **options: Any) -> httpx2.Response:
    return client.post(PATH, content=body, cast_to=httpx2.Response, options={"max_retries": 0, **options})


def test_missing_key_raises_in_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any credentials the client cannot be made, and the SDK says so with a bare `OpenAIError`."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(openai.OpenAIError) as caught:
        openai.OpenAI()

    assert type(caught.value) is openai.OpenAIError


def azure(paths: list[str], **options: Any) -> openai.AzureOpenAI:
    def handler(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        return httpx2.Response(200, content=b"{}")

    return openai.AzureOpenAI(
        api_key="k",
        api_version="2026-01-01",
        http_client=httpx2.Client(transport=httpx2.MockTransport(handler)),
        **options,
    )


@pytest.mark.parametrize(
    "where",
    [
        {"azure_endpoint": "https://r.openai.azure.com"},
        {"base_url": "https://r.openai.azure.com/openai/v1/"},
    ],
)
def test_azure_finds_its_deployment_in_json_only(where: dict[str, str]) -> None:
    """Without `azure_deployment` the deployment is read out of a JSON body, and left out for bytes."""
    paths: list[str] = []
    client = azure(paths, **where)
    body = {"model": "dep"}

    client.post(PATH, body=body, cast_to=httpx2.Response)
    client.post(PATH, content=json.dumps(body).encode(), cast_to=httpx2.Response)

    assert "/deployments/dep/chat/completions" in paths[0]
    assert "/deployments" not in paths[1]


def test_azure_with_a_deployment_needs_no_look_at_the_body() -> None:
    """With `azure_deployment` JSON and bytes go to the same URL."""
    paths: list[str] = []
    client = azure(paths, azure_endpoint="https://r.openai.azure.com", azure_deployment="dep")
    body = {"model": "other"}

    client.post(PATH, body=body, cast_to=httpx2.Response)
    client.post(PATH, content=json.dumps(body).encode(), cast_to=httpx2.Response)

    assert paths == ["/openai/deployments/dep/chat/completions"] * 2


def test_bedrock_leaves_body_and_path_alone() -> None:
    """`BedrockOpenAI` signs or labels a request, but sends bytes to the path that was asked for."""
    requests: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, content=b"{}")

    http = httpx2.Client(transport=httpx2.MockTransport(handler))
    bedrock = openai.BedrockOpenAI(api_key="k", aws_region="us-east-1", http_client=http)

    post(bedrock)

    assert requests[0].content == BODY
    assert requests[0].url.path == "/openai/v1/chat/completions"


@pytest.mark.parametrize("where", [{}, {"azure_deployment": "dep"}])
def test_azure_looks_into_no_body_on_the_responses_path(where: dict[str, str]) -> None:
    """On /responses JSON and bytes go to the same URL, with a deployment or without."""
    paths: list[str] = []
    client = azure(paths, azure_endpoint="https://r.openai.azure.com", **where)
    body = {"model": "dep"}

    client.post("/responses", body=body, cast_to=httpx2.Response)
    client.post("/responses", content=json.dumps(body).encode(), cast_to=httpx2.Response)

    assert paths == ["/openai/responses"] * 2


# ------------------------------------------------------------------------------------------- anthropic


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """An environment in which the SDK finds nothing to sign in with."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("no_credentials")
def test_anthropic_misses_its_key_at_the_first_request_only() -> None:
    """Without credentials the client is made, has none, and raises a `TypeError` that begins as we know."""
    client = anthropic.Anthropic(base_url="https://x.test")

    with pytest.raises(TypeError, match=r'^"?Could not resolve authentication method'):
        client.post("/v1/messages", content=BODY, cast_to=httpx2.Response)

    assert (client.api_key, client.auth_token, client.credentials) == (None, None, None)
    assert {"authorization", "x-api-key"} & {name.lower() for name in client.default_headers} == set()


def test_anthropic_names_the_version_of_the_wire() -> None:
    """The SDK says which version of the wire it speaks."""
    assert Sdk(anthropic).sent().headers["anthropic-version"] == "2026-10-21"


def test_anthropic_refuses_classic_clients() -> None:
    """The SDK itself takes no `httpx.Client`, so a bridge is needed."""
    client: Any = httpx.Client()

    with pytest.raises(TypeError, match="this SDK uses `httpx2`"):
        anthropic.Anthropic(api_key="k", http_client=client)


def test_anthropic_takes_any_exception_for_a_lost_connection() -> None:
    """Whatever comes out of the HTTP client is wrapped, defects included, with itself as the cause."""

    def handler(_: httpx2.Request) -> httpx2.Response:
        raise ZeroDivisionError

    with pytest.raises(anthropic.APIConnectionError) as caught:
        Sdk(anthropic).post(handler)

    assert type(caught.value.__cause__) is ZeroDivisionError


def test_anthropic_quotes_the_whole_body() -> None:
    """The text of an error holds the whole answer, which is why ours does not repeat it."""
    with pytest.raises(anthropic.BadRequestError, match="about Harrogate"):
        Sdk(anthropic).post(
            lambda _: httpx2.Response(400, content=b'{"error":{"message":"about Harrogate"}}')
        )


def test_anthropic_loses_the_status_of_an_answer_that_breaks_off() -> None:
    """An error answer whose body breaks is a bare transport error with no answer in its chain."""
    body = Body(b"{", error=httpx2.ReadError("cut"))

    with pytest.raises(httpx2.ReadError) as caught:
        Sdk(anthropic).post(lambda _: httpx2.Response(503, stream=body), headers=UNREAD)

    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_anthropic_adds_its_own_beta_to_ours() -> None:
    """The beta that a token needs is added to the list that a request carries."""
    credentials = {"api_key": None, "credentials": lambda **_: AccessToken(token="t", expires_at=None)}

    request = Sdk(anthropic).sent(credentials, headers={"anthropic-beta": "a,b"})

    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["anthropic-beta"] == "a,b,oauth-2025-04-20"


def test_anthropic_forgets_a_token_only_when_it_tries_again() -> None:
    """Without retries a refused token stays in the client's cache, until `invalidate` is called."""
    asked: list[bool] = []

    def provide(*, force_refresh: bool = False) -> AccessToken:
        asked.append(force_refresh)
        return AccessToken(token="t", expires_at=None)

    client = Sdk(anthropic).client(lambda _: httpx2.Response(401), api_key=None, credentials=provide)
    for _ in range(2):
        with pytest.raises(anthropic.AuthenticationError):
            client.post("/v1/messages", content=BODY, cast_to=httpx2.Response, options={"max_retries": 0})
    before = list(asked)
    client._token_cache.invalidate()
    with pytest.raises(anthropic.AuthenticationError):
        client.post("/v1/messages", content=BODY, cast_to=httpx2.Response, options={"max_retries": 0})

    assert (before, asked) == ([False], [False, True])


def test_anthropic_adds_no_trace_to_a_raw_post() -> None:
    """It traces its typed methods only. A head that is kept would otherwise repeat an old trace."""
    trace, sdk = pytest.importorskip("opentelemetry.trace"), pytest.importorskip("opentelemetry.sdk.trace")
    sent: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json={})

    provider = sdk.TracerProvider()
    client = Sdk(anthropic).client(handler, open_telemetry={"tracer_provider": provider})
    with trace.use_span(provider.get_tracer("t").start_span("outer")):
        client.post("/v1/messages", content=BODY, cast_to=httpx2.Response)

    assert "traceparent" not in sent[0].headers


def test_only_a_mount_stands_before_the_proxies_that_anthropic_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before 2.14 the SDK reads proxies of the environment by itself, whatever `trust_env` says."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    url = httpx2.URL("http://127.0.0.1:1/")
    mounted = anthropic.DefaultHttpxClient(trust_env=False, mounts={"http://": None})
    plain = anthropic.DefaultHttpxClient(trust_env=False)

    assert mounted._transport_for_url(url) is mounted._transport
    asks_itself = tuple(map(int, anthropic.__version__.split(".")[:2])) < (2, 14)
    assert (plain._transport_for_url(url) is not plain._transport) is asks_itself


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AnthropicBedrock", {"api_key": "k", "aws_region": "eu-west-1"}),
        ("AnthropicVertex", {"region": "us", "project_id": "p", "access_token": "t"}),
    ],
)
def test_old_cloud_clients_refuse_bytes(name: str, options: dict[str, Any]) -> None:
    """The two older clients find their URL in a JSON object, and raise for bytes in both colours."""
    client = getattr(anthropic, name)(**options)
    async_client = getattr(anthropic, f"Async{name}")(**options)

    with pytest.raises(RuntimeError, match="dictionary"):
        client.post("/v1/messages", content=BODY, cast_to=httpx2.Response)
    with pytest.raises(RuntimeError, match="dictionary"):
        asyncio.run(async_client.post("/v1/messages", content=BODY, cast_to=httpx2.Response))


def test_which_clients_are_relatives() -> None:
    """All newer clients are `Anthropic` clients, but for Bedrock Mantle's; the older ones are not."""
    relatives = {"Foundry": True, "AWS": True, "GoogleCloud": True, "BedrockMantle": False}
    relatives |= {"Bedrock": False, "Vertex": False}

    for name, expected in relatives.items():
        sync = getattr(anthropic, f"Anthropic{name}")
        both = getattr(anthropic, f"AsyncAnthropic{name}")
        assert issubclass(sync, anthropic.Anthropic) is expected
        assert issubclass(both, anthropic.AsyncAnthropic) is expected


def test_google_client_may_have_no_host_yet() -> None:
    """A Google client without a project has an empty base URL until its first request."""
    client = anthropic.AnthropicGoogleCloud(workspace_id="w", token_provider=lambda: "t")

    assert client.base_url.host == ""


def test_missing_aws_credentials_begin_as_we_know() -> None:
    """The signer of the AWS clients says "no credentials" with a text that begins as we know."""
    from anthropic.lib.aws import _auth

    assert 'raise RuntimeError("Could not resolve AWS credentials' in inspect.getsource(_auth)
