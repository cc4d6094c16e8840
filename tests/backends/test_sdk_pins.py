"""What `backends/_openai_sdk.py` counts on in the `openai` SDK: an upgrade that changes it fails here."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest

PATH = "/chat/completions"
UNREAD = {"X-Stainless-Raw-Response": "stream"}
BODY = '{ "b":1.0,"a":[1e5,18446744073709551616],\n"x_unknown":"\\ud800 é" }'.encode()

Handler = Callable[[httpx2.Request], httpx2.Response]


class Body(httpx2.SyncByteStream):
    """A response body that remembers whether anybody began to read it."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.read = False

    def __iter__(self) -> Any:
        self.read = True
        yield from self.chunks


def client(handler: Handler, **options: Any) -> openai.OpenAI:
    http = httpx2.Client(transport=httpx2.MockTransport(handler))
    return openai.OpenAI(**{"api_key": "k-1", "base_url": "https://x.test/v1", **options}, http_client=http)


def post(client: openai.OpenAI, body: bytes = BODY, **options: Any) -> httpx2.Response:
    return client.post(PATH, content=body, cast_to=httpx2.Response, options={"max_retries": 0, **options})


def sent(**options: Any) -> httpx2.Request:
    """What leaves the SDK for one post."""
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=b"{}")

    post(client(handler), **options)
    return seen[0]


def test_content_bytes_go_out_unchanged() -> None:
    """`content=` sends the very bytes, whitespace, big numbers and lone surrogates included."""
    request = sent()

    assert request.content == BODY
    assert request.headers["content-length"] == str(len(BODY))


def test_path_is_appended_to_the_base_url() -> None:
    """A path with a leading slash stays under the base URL's own path."""
    assert str(sent().url) == "https://x.test/v1/chat/completions"


def test_credentials_are_added() -> None:
    """A raw post carries the key as a bearer token."""
    assert sent().headers["authorization"] == "Bearer k-1"


def test_content_type_is_json() -> None:
    """Bytes are labelled as JSON when the caller says so, once."""
    request = sent(headers={"Content-Type": "application/json"})

    assert request.headers.get_list("content-type") == ["application/json"]


def test_own_headers_win_whatever_their_case() -> None:
    """A header given per request replaces the SDK's default, not doubles it."""
    request = sent(headers={"accept": "text/event-stream"})

    assert request.headers.get_list("accept") == ["text/event-stream"]


def test_raw_header_is_the_one_the_sdk_itself_uses() -> None:
    """`with_streaming_response` still asks for an unread body by X-Stainless-Raw-Response: stream."""
    from openai import _response
    from openai._constants import RAW_RESPONSE_HEADER

    assert RAW_RESPONSE_HEADER == "X-Stainless-Raw-Response"
    assert 'extra_headers[RAW_RESPONSE_HEADER] = "stream"' in inspect.getsource(
        _response.to_streamed_response_wrapper
    )


def test_raw_header_leaves_the_body_unread() -> None:
    """With the header, post returns a plain `httpx2.Response` before a byte of the body is read."""
    body = Body(b"one", b"two")

    response = post(client(lambda _: httpx2.Response(200, stream=body)), headers=UNREAD)

    assert type(response) is httpx2.Response
    assert not body.read
    assert list(response.iter_bytes()) == [b"one", b"two"]


def test_without_the_raw_header_the_body_is_read() -> None:
    """Without the header the whole body is there at once, so the header is what makes the difference."""
    body = Body(b"one")

    post(client(lambda _: httpx2.Response(200, stream=body)))

    assert body.read


@pytest.mark.parametrize("content", [b"<html>busy</html>", b"null", b"", b'{"error":{}}', b"{"])
def test_any_200_body_comes_back_as_it_is(content: bytes) -> None:
    """The SDK neither parses nor judges the body of a 2xx; the dialect has to."""
    response = post(client(lambda _: httpx2.Response(200, content=content)), headers=UNREAD)

    assert response.content == content


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (408, openai.APIStatusError),
        (409, openai.ConflictError),
        (413, openai.APIStatusError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
        (529, openai.InternalServerError),
    ],
)
def test_error_statuses_have_their_classes(status: int, error_class: type[openai.APIStatusError]) -> None:
    """An error status raises its class, with the body readable although it was asked for unread."""
    stream = Body(b'{"error":{"message":"no"}}')
    answer = httpx2.Response(status, headers={"x-request-id": "req-1"}, stream=stream)

    with pytest.raises(error_class) as caught:
        post(client(lambda _: answer), headers=UNREAD)

    assert type(caught.value) is error_class
    assert caught.value.response.content == b'{"error":{"message":"no"}}'
    assert caught.value.request_id == "req-1"


@pytest.mark.parametrize("status", [408, 409, 429, 500])
def test_max_retries_zero_means_one_request(status: int) -> None:
    """`max_retries: 0` per request switches retries off, whatever the client and the server say."""
    requests: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(status, headers={"x-should-retry": "true", "retry-after": "0"})

    with pytest.raises(openai.APIStatusError):
        post(client(handler, max_retries=5))

    assert len(requests) == 1


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (httpx2.ReadTimeout, openai.APITimeoutError),
        (httpx2.ConnectTimeout, openai.APITimeoutError),
        (httpx2.ConnectError, openai.APIConnectionError),
        (httpx2.RemoteProtocolError, openai.APIConnectionError),
    ],
)
def test_transport_errors_are_wrapped(
    raised: type[httpx2.TransportError], error_class: type[Exception]
) -> None:
    """A failed send raises the SDK's class with the transport's exception as its cause."""

    def handler(request: httpx2.Request) -> httpx2.Response:
        raise raised("cut", request=request)

    with pytest.raises(error_class) as caught:
        post(client(handler))

    assert type(caught.value) is error_class
    assert type(caught.value.__cause__) is raised


def test_timeout_of_a_request_reaches_the_transport() -> None:
    """A per-request `httpx2.Timeout` arrives phase by phase."""
    request = sent(timeout=httpx2.Timeout(connect=1, read=2, write=3, pool=4))

    assert request.extensions["timeout"] == {"connect": 1, "read": 2, "write": 3, "pool": 4}


def test_default_timeout_connects_within_five_seconds() -> None:
    """The SDK's default waits 5 s for a connection and 600 s for an answer; ours only ever shortens it."""
    timeout = openai.OpenAI(api_key="k").timeout

    assert isinstance(timeout, httpx2.Timeout)
    assert (timeout.connect, timeout.read) == (5.0, 600)


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


def test_sdk_does_not_load_classic_httpx() -> None:
    """The SDK's own responses and errors are those of `httpx2`."""
    assert openai.APIConnectionError.__init__.__annotations__["request"] in ("httpx2.Request", httpx2.Request)
    assert issubclass(openai.DefaultHttpxClient, httpx2.Client)
    assert issubclass(openai.DefaultAsyncHttpxClient, httpx2.AsyncClient)
