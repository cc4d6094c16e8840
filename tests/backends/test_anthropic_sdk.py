"""The edge over the `anthropic` SDK: what it takes, what it sends, what it makes of failures."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import anyio
import httpx
import httpx2
import pytest
from anthropic.lib.credentials import AccessToken, WorkloadIdentityError

from goaitools_py.backends import (
    AnthropicBackend,
    AsyncAnthropicBackend,
    AsyncBackend,
    Backend,
    BackendError,
)
from goaitools_py.backends.base import ModelRequest, ResponseHead
from goaitools_py.backends.dialects import endpoint_family

from ._http import Chunks, Colour, Handler, failing, loopback, mock_async_http, mock_http

PATH = "/v1/messages"
REQUEST = ModelRequest(path=PATH, body=b'{ "model":"m" }')
KEY = "sk-never-shown"
ENVIRONMENT = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_AWS_BASE_URL",
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    "ANTHROPIC_GOOGLE_CLOUD_BASE_URL",
)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where the SDK looks for profiles


def ask(
    colour: Colour, handler: Handler, request: ModelRequest = REQUEST, **options: Any
) -> tuple[ResponseHead, list[bytes]]:
    """Send a request through a backend over a mock transport; the head and the chunks of the answer."""
    transport = httpx2.MockTransport(handler)
    options = {"api_key": KEY, **options}
    if colour == "async":
        return asyncio.run(_ask_async(transport, request, options))
    with httpx2.Client(transport=transport) as http_client:
        exchange = AnthropicBackend("m", http_client=http_client, **options).send(request)
        with contextlib.closing(exchange):
            return exchange.head, list(iter(exchange.read, b""))


async def _ask_async(transport: Any, request: ModelRequest, options: Any) -> tuple[ResponseHead, list[bytes]]:
    async with httpx2.AsyncClient(transport=transport) as http_client:
        exchange = await AsyncAnthropicBackend("m", http_client=http_client, **options).asend(request)
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


def through(client: Any, request: ModelRequest = REQUEST, **options: Any) -> bytes:
    """Send a request through the caller's own client of either colour; the answer's body."""

    async def main() -> bytes:
        exchange = await AsyncAnthropicBackend("m", client=client, **options).asend(request)
        async with contextlib.aclosing(exchange):
            return await exchange.read()

    if isinstance(client, (anthropic.AsyncAnthropic, anthropic.AsyncAnthropicBedrockMantle)):
        return asyncio.run(main())
    with contextlib.closing(AnthropicBackend("m", client=client, **options).send(request)) as exchange:
        return exchange.read()


def failure(
    colour: Colour, handler: Handler, request: ModelRequest = REQUEST, **options: Any
) -> BackendError:
    with pytest.raises(BackendError) as caught:
        ask(colour, handler, request, **options)
    return caught.value


# ------------------------------------------------------------------------------------- what is sent


def test_body_is_posted_as_it_is(colour: Colour) -> None:
    """The bytes of a request go out unchanged, to Anthropic's URL, with its credentials, as JSON."""
    request = sent(colour)

    assert request.content == REQUEST.body
    assert str(request.url) == "https://api.anthropic.com/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers.get_list("content-type") == ["application/json"]


@pytest.mark.parametrize(("stream", "accept"), [(False, "application/json"), (True, "text/event-stream")])
def test_accept_says_what_is_expected(colour: Colour, stream: bool, accept: str) -> None:
    """A streamed request asks for events, a unary one for JSON."""
    request = sent(colour, ModelRequest(path=PATH, body=REQUEST.body, stream=stream))

    assert request.headers["accept"] == accept


def test_headers_of_the_request_win(colour: Colour) -> None:
    """Extra headers are added, and replace the edge's own whatever their case."""
    extra = {"accept": "text/plain", "X-Title": "game"}

    request = sent(colour, ModelRequest(path=PATH, body=REQUEST.body, headers=extra, stream=True))

    assert request.headers.get_list("accept") == ["text/plain"]
    assert request.headers["x-title"] == "game"


def test_deadline_bounds_every_phase(colour: Colour) -> None:
    """What is left of a turn bounds connect, read, write and pool; the SDK's 5 s for a connection stay."""
    request = sent(colour, ModelRequest(path=PATH, body=REQUEST.body, timeout=60.0))

    assert request.extensions["timeout"] == {"connect": 5.0, "read": 60.0, "write": 60.0, "pool": 60.0}


def test_max_retries_is_the_engines(colour: Colour) -> None:
    """The SDK tries once, however many retries the backend allows the engine."""
    calls: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        calls.append(request)
        return httpx2.Response(529, headers={"retry-after": "0"})

    with pytest.raises(BackendError):
        ask(colour, handler, max_retries=3)

    assert len(calls) == 1


@pytest.mark.parametrize(
    ("client", "betas", "request_", "expected"),
    [
        (None, (), None, None),
        (None, ("a", "b"), None, "a,b"),
        (None, (), "r", "r"),
        ("c", (), None, "c"),
        ("c", ("a",), "r", "c,a,r"),
        ("c, a", ("a", "r"), "r,c,,x ", "c,a,r,x"),
        (None, ("mcp-client-2025-04-04",), "mcp-client-2025-11-20,x", "mcp-client-2025-04-04,x"),
        ("compact-2026-09-04", (), "compact-2026-01-12", "compact-2026-09-04,compact-2026-01-12"),
    ],
)
def test_betas_are_merged(
    colour: Colour, client: str | None, betas: tuple[str, ...], request_: str | None, expected: str | None
) -> None:
    """The names of the client, the backend and the request go out as one list, each once."""
    headers = {"Anthropic-Beta": request_} if request_ else {}
    default = {"anthropic-BETA": client} if client else None

    request = sent(
        colour,
        ModelRequest(path=PATH, body=REQUEST.body, headers=headers),
        betas=betas,
        default_headers=default,
    )

    assert request.headers.get_list("anthropic-beta") == ([expected] if expected else [])


def test_betas_of_an_own_client_are_merged(colour: Colour) -> None:
    """Also what a caller's own client names by itself stays in the list."""
    seen: list[httpx2.Request] = []
    default = {"anthropic-beta": "c"}
    client: Any = (
        anthropic.Anthropic(api_key="k", http_client=mock_http(seen=seen), default_headers=default)
        if colour == "sync"
        else anthropic.AsyncAnthropic(
            api_key="k", http_client=mock_async_http(seen=seen), default_headers=default
        )
    )

    through(client, betas=["a"])

    assert seen[0].headers["anthropic-beta"] == "c,a"


def test_betas_are_no_text(colour: Colour) -> None:
    """A text where names are expected is refused, rather than taken apart into letters."""
    with pytest.raises(TypeError, match="betas= takes a sequence"):
        sent(colour, betas="a,b")


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        (None, None),
        ("https://api.anthropic.com", None),
        ("https://r.services.ai.azure.com/anthropic", None),
        ("https://bedrock-mantle.us-east-1.api.aws/anthropic", None),
        ("https://openrouter.ai/api", KEY),
        ("http://127.0.0.1:11434", KEY),
    ],
)
def test_other_servers_get_the_key_in_both_headers(
    colour: Colour, base_url: str | None, expected: str | None
) -> None:
    """Servers of others may know the older `x-api-key` only; Anthropic's own and the clouds' never get it."""
    request = sent(colour, base_url=base_url)

    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers.get("x-api-key") == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"api_key": None, "auth_token": "t"}, None),
        ({"default_headers": {"Authorization": "Bearer gateway"}}, None),
        ({"default_headers": {"X-Api-Key": "other"}}, "other"),
        ({"default_headers": {"x-api-key": anthropic.Omit()}}, None),
        ({"api_key": None, "default_headers": {"X-Api-Key": "other"}}, "other"),
    ],
)
def test_key_goes_nowhere_that_the_sdk_would_not_send_it(
    colour: Colour, options: dict[str, Any], expected: str | None
) -> None:
    """With a token, or headers of the caller's own for signing in, no key is added to them."""
    request = sent(colour, base_url="https://x.test", **options)

    assert request.headers.get("x-api-key") == expected


# ------------------------------------------------------------------------------------- what returns


def test_head_and_chunks(colour: Colour) -> None:
    """The head has status, lower-case headers and the request id; the chunks are those of the transport."""
    headers = {"Request-Id": "req-1", "anthropic-ratelimit-requests-remaining": "9"}

    head, chunks = ask(colour, lambda _: httpx2.Response(201, headers=headers, stream=Chunks(b"one", b"two")))

    assert (head.status, head.request_id) == (201, "req-1")
    assert head.headers["anthropic-ratelimit-requests-remaining"] == "9"
    assert chunks == [b"one", b"two"]


def test_missing_request_id_is_none(colour: Colour) -> None:
    """Servers that give no request id leave it None."""
    head, _ = ask(colour, lambda _: httpx2.Response(200))

    assert head.request_id is None


def test_middleware_of_an_own_client_runs() -> None:
    """A client's middleware sees the request, and the answer still arrives unread and as it is."""
    passed: list[object] = []

    def middleware(request: Any, call_next: Any) -> Any:
        passed.append(request)
        return call_next(request)

    client = anthropic.Anthropic(api_key="k", http_client=mock_http(b"mine"), middleware=[middleware])

    assert through(client) == b"mine"
    assert len(passed) == 1


# ---------------------------------------------------------------------------------------- failures


def test_error_answer(colour: Colour) -> None:
    """An error status keeps its headers, body and request id; only the SDK's exception quotes the body."""
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"about Harrogate"}}'
    answer = httpx2.Response(429, headers={"Request-Id": "r", "Retry-After": "3"}, content=body)

    error = failure(colour, lambda _: answer)

    assert (error.status, error.body, error.request_id) == (429, body, "r")
    assert error.headers["retry-after"] == "3"
    assert type(error.sdk_error) is anthropic.RateLimitError
    assert str(error) == "api.anthropic.com answered 429"
    assert "Harrogate" not in repr(error)


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
        (anthropic.RetryableError("x"), "unavailable", False),
        (anthropic.AnthropicError("x"), "auth", False),
        (anthropic.CredentialsError("x"), "auth", False),
        (WorkloadIdentityError("x", status_code=400), "auth", False),
        (WorkloadIdentityError("x", status_code=429), "unavailable", False),
        (WorkloadIdentityError("x", status_code=503), "unavailable", False),
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
    ("cause", "kind"), [(FileNotFoundError("x"), "auth"), (httpx2.ConnectError("x"), "unavailable")]
)
def test_why_credentials_failed_decides(colour: Colour, cause: Exception, kind: str) -> None:
    """A file of credentials that is not there is no lost connection; a token server out of reach is one."""
    error_class = anthropic.CredentialsError if kind == "auth" else WorkloadIdentityError

    def handler(_: httpx2.Request) -> httpx2.Response:
        raise error_class("x") from cause

    assert failure(colour, handler).kind == kind


@pytest.mark.parametrize(
    ("raised", "timed_out"),
    [
        (httpx2.ReadError("x"), False),
        (httpx2.ReadTimeout("x"), True),
        (httpx2.RemoteProtocolError("x"), False),
        (ConnectionResetError("x"), False),
        (TimeoutError("x"), True),
        (anyio.EndOfStream(), False),
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


def test_broken_error_answer_is_a_lost_connection(colour: Colour) -> None:
    """Of an error answer whose body breaks off the SDK hands out the break only, not the status."""
    body = Chunks(b'{"ty', error=httpx2.ReadError("x"))

    error = failure(colour, lambda _: httpx2.Response(503, stream=body))

    assert (error.kind, error.status) == ("unavailable", None)


def test_hook_that_raises_for_status_is_an_error_answer() -> None:
    """An event hook's `HTTPStatusError`, which the SDK takes for a lost connection, is the answer."""

    def hook(response: httpx2.Response) -> None:
        response.read()
        response.raise_for_status()

    transport = httpx2.MockTransport(lambda _: httpx2.Response(429, content=b"slow"))
    with httpx2.Client(transport=transport, event_hooks={"response": [hook]}) as http_client:
        backend = AnthropicBackend("m", http_client=http_client, api_key="k")
        with pytest.raises(BackendError) as caught:
            backend.send(REQUEST)

    assert (caught.value.status, caught.value.body) == (429, b"slow")


@pytest.mark.parametrize("raised", [ZeroDivisionError("x"), TypeError("x"), RuntimeError("x")], ids=repr)
def test_defects_are_not_dressed_up(colour: Colour, raised: Exception) -> None:
    """A defect passes unchanged, although the SDK takes it for a lost connection."""
    with pytest.raises(type(raised)) as caught:
        ask(colour, failing(raised))

    assert caught.value is raised


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_interrupts_pass_through(raised: BaseException) -> None:
    """Ctrl-C while a request is on its way is nobody's fault."""
    with pytest.raises(type(raised)) as caught:
        ask("sync", failing(raised))

    assert caught.value is raised


def test_token_that_was_refused_is_not_sent_again(colour: Colour) -> None:
    """After a 401 the next request asks the caller's provider for a fresh token, as the SDK's retry would."""
    asked: list[bool] = []
    tokens: list[str] = []

    def provide(*, force_refresh: bool = False) -> AccessToken:
        asked.append(force_refresh)
        return AccessToken(token=f"token-{len(asked)}", expires_at=None)

    def handler(request: httpx2.Request) -> httpx2.Response:
        tokens.append(request.headers["authorization"])
        return httpx2.Response(401 if len(tokens) == 1 else 200, content=b"{}")

    async def twice() -> None:
        transport = httpx2.MockTransport(handler)
        async with httpx2.AsyncClient(transport=transport) as http_client:
            backend = AsyncAnthropicBackend("m", http_client=http_client, credentials=provide)
            for _ in range(2):
                with contextlib.suppress(BackendError):
                    await (await backend.asend(REQUEST)).aclose()

    if colour == "async":
        asyncio.run(twice())
    else:
        http_client = httpx2.Client(transport=httpx2.MockTransport(handler))
        backend = AnthropicBackend("m", http_client=http_client, credentials=provide)
        for _ in range(2):
            with contextlib.suppress(BackendError):
                backend.send(REQUEST).close()

    assert tokens == ["Bearer token-1", "Bearer token-2"]
    assert asked == [False, True]


# --------------------------------------------------------------------------- what a backend is made of


def test_backends_have_the_engines_shape() -> None:
    """Both classes satisfy the engine's protocols, and carry what they were given."""
    sync = AnthropicBackend("m", api_key="k", context_window=8_000, max_retries=4)
    both = AsyncAnthropicBackend("m", api_key="k", context_window=8_000, max_retries=4)

    assert isinstance(sync, Backend)
    assert isinstance(both, AsyncBackend)
    for backend in (sync, both):
        assert (backend.model, backend.context_window, backend.max_retries) == ("m", 8_000, 4)
    sync.close()


@pytest.mark.parametrize("backend_class", [AnthropicBackend, AsyncAnthropicBackend])
@pytest.mark.parametrize("options", [{}, {"api_key": ""}])
def test_missing_key_shows_when_the_backend_is_made(
    backend_class: Callable[..., object], options: dict[str, Any]
) -> None:
    """Without credentials the constructor says which variable to set; the SDK would wait for a request."""
    with pytest.raises(ValueError, match="set ANTHROPIC_API_KEY"):
        backend_class("m", **options)


@pytest.mark.parametrize("backend_class", [AnthropicBackend, AsyncAnthropicBackend])
def test_broken_profile_shows_when_the_backend_is_made(
    backend_class: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials that the environment names but that are not there are the same failure, with its cause."""
    monkeypatch.setenv("ANTHROPIC_PROFILE", "nobody")

    with pytest.raises(ValueError, match="no usable credentials") as caught:
        backend_class("m")

    assert isinstance(caught.value.__cause__, anthropic.AnthropicError)


@pytest.mark.parametrize(
    "options",
    [
        {"auth_token": "t"},
        {"credentials": lambda **_: AccessToken(token="t", expires_at=None)},
        {"default_headers": {"authorization": "Bearer t"}},
        {"default_headers": {"X-Api-Key": "k"}},
        {"default_headers": {"Authorization": anthropic.Omit()}},
    ],
)
def test_other_credentials_will_do(colour: Colour, options: dict[str, Any]) -> None:
    """A token, a provider or a header of the caller's own is as good as a key."""
    assert sent(colour, api_key=None, **options).content == REQUEST.body


@pytest.mark.parametrize(
    "client_class", [anthropic.Anthropic, anthropic.AsyncAnthropic], ids=["sync", "async"]
)
def test_own_client_without_a_key_fails_as_a_refused_one(client_class: Any) -> None:
    """Where nobody could know before, a missing key is an "auth" failure of the request."""
    with pytest.raises(BackendError, match=r"no usable credentials for api\.anthropic\.com") as caught:
        through(client_class())

    assert caught.value.kind == "auth"
    assert isinstance(caught.value.sdk_error, TypeError)


def test_key_is_in_no_repr() -> None:
    """A backend's repr shows no key."""
    assert KEY not in repr(AnthropicBackend("m", api_key=KEY))


def test_environment_is_left_to_the_sdk(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset values come from the SDK's environment variables."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-env")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://env.test/anthropic")

    request = sent(colour, api_key=None)

    assert str(request.url) == "https://env.test/anthropic/v1/messages"
    assert request.headers["authorization"] == "Bearer from-env"


def test_client_options_reach_the_sdk(colour: Colour) -> None:
    """Whatever else the SDK's client takes can be set, such as an older version of the wire."""
    headers = {"anthropic-version": "2023-06-01"}

    request = sent(colour, timeout=17.0, default_headers=headers)

    assert request.headers.get_list("anthropic-version") == ["2023-06-01"]
    assert set(request.extensions["timeout"].values()) == {17.0}


def test_classic_http_client_is_bridged() -> None:
    """A classic `httpx` client, which the SDK itself refuses, carries the request with its own settings."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=b"classic")

    with httpx.Client(transport=httpx.MockTransport(handler), timeout=17.0) as http_client:
        exchange = AnthropicBackend("m", api_key="k", http_client=http_client).send(REQUEST)
        with contextlib.closing(exchange):
            received = exchange.read()

    assert received == b"classic"
    assert seen[0].content == REQUEST.body
    assert seen[0].extensions["timeout"]["read"] == 17.0


def test_classic_async_http_client_is_bridged() -> None:
    """As above, awaited."""

    async def main() -> bytes:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=b"classic"))
        async with httpx.AsyncClient(transport=transport) as http_client:
            backend = AsyncAnthropicBackend("m", api_key="k", http_client=http_client)
            async with contextlib.aclosing(await backend.asend(REQUEST)) as exchange:
                return await exchange.read()

    assert asyncio.run(main()) == b"classic"


@pytest.mark.parametrize(
    ("backend_class", "http_client"),
    [
        (AnthropicBackend, httpx2.AsyncClient()),
        (AnthropicBackend, httpx.AsyncClient()),
        (AsyncAnthropicBackend, httpx2.Client()),
        (AsyncAnthropicBackend, httpx.Client()),
    ],
    ids=["sync-httpx2", "sync-httpx", "async-httpx2", "async-httpx"],
)
def test_http_client_of_the_wrong_kind_is_refused(backend_class: Any, http_client: object) -> None:
    """An HTTP client of the other kind is refused by type."""
    with pytest.raises(TypeError, match="http_client= must be an httpx2"):
        backend_class("m", api_key="k", http_client=http_client)


# ------------------------------------------------------------------------------- clients of the caller's

TOKEN = "entra-token"
CLOUDS: list[tuple[str, dict[str, Any], str, str, dict[str, str]]] = [
    (
        "AnthropicFoundry",
        {"resource": "res", "api_key": KEY},
        "https://res.services.ai.azure.com/anthropic/v1/messages",
        "foundry",
        {"x-api-key": KEY, "api-key": KEY},
    ),
    (
        "AnthropicFoundry",
        {"resource": "res", "azure_ad_token_provider": lambda: TOKEN},
        "https://res.services.ai.azure.com/anthropic/v1/messages",
        "foundry",
        {"authorization": f"Bearer {TOKEN}"},
    ),
    (
        "AnthropicBedrockMantle",
        {"api_key": KEY, "aws_region": "eu-west-1"},
        "https://bedrock-mantle.eu-west-1.api.aws/anthropic/v1/messages",
        "aws",
        {"authorization": f"Bearer {KEY}"},
    ),
    (
        "AnthropicAWS",
        {"api_key": KEY, "aws_region": "eu-west-1", "workspace_id": "w"},
        "https://aws-external-anthropic.eu-west-1.api.aws/v1/messages",
        "aws",
        {"authorization": f"Bearer {KEY}", "anthropic-workspace-id": "w"},
    ),
    (
        "AnthropicGoogleCloud",
        {"project": "p", "workspace_id": "w", "token_provider": lambda: TOKEN},
        "https://claude.googleapis.com/v1/projects/p/locations/global/workspaces/w/invoke/v1/messages",
        "claude.googleapis.com",
        {"authorization": f"Bearer {TOKEN}"},
    ),
]


@pytest.mark.parametrize(
    ("name", "options", "url", "family", "auth"),
    CLOUDS,
    ids=[f"{row[0]}-{i}" for i, row in enumerate(CLOUDS)],
)
def test_clients_of_the_clouds_send_bytes(
    colour: Colour, name: str, options: dict[str, Any], url: str, family: str, auth: dict[str, str]
) -> None:
    """A client of each cloud takes bytes to its own URL with its own way to sign in, and no other."""
    seen: list[httpx2.Request] = []
    http = mock_http(b"ok", seen) if colour == "sync" else mock_async_http(b"ok", seen)
    client_class = getattr(anthropic, name if colour == "sync" else f"Async{name}")
    client = client_class(http_client=http, **options)
    backend_class: Any = AnthropicBackend if colour == "sync" else AsyncAnthropicBackend

    received = through(client, betas=["b"])

    assert received == b"ok"
    assert (str(seen[0].url), seen[0].content) == (url, REQUEST.body)
    named = ("authorization", "x-api-key", "api-key", "anthropic-workspace-id")
    assert {key: value for key, value in seen[0].headers.items() if key in named} == auth
    assert seen[0].headers["anthropic-beta"] == "b"
    assert backend_class("m", client=client).dialect.family == family


def test_google_project_found_later_is_no_other_family() -> None:
    """A Google client that learns its project with the first request is Google's from the start."""
    client = anthropic.AnthropicGoogleCloud(workspace_id="w", token_provider=lambda: "t")

    assert AnthropicBackend("m", client=client).dialect.family == "claude.googleapis.com"


def test_nothing_to_sign_with_is_an_auth_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AWS client that finds no credentials, and says so with a bare `RuntimeError`, fails as "auth"."""
    client = anthropic.AnthropicBedrockMantle(aws_region="eu-west-1", skip_auth=True, http_client=mock_http())

    def sign(_: object) -> None:
        raise RuntimeError("Could not resolve AWS credentials from session")

    monkeypatch.setattr(client, "_prepare_request", sign)

    with pytest.raises(BackendError, match="no usable credentials for bedrock-mantle") as caught:
        through(client)

    assert caught.value.kind == "auth"


@pytest.mark.parametrize("raised", [TypeError("a bug"), RuntimeError("a bug")], ids=repr)
def test_defects_beside_the_wire_are_not_dressed_up(raised: Exception) -> None:
    """An exception of the class that means "no credentials" is a defect if it does not say so."""

    def middleware(*_: object) -> Any:
        raise raised

    client = anthropic.Anthropic(api_key="k", http_client=mock_http(), middleware=[middleware])

    with pytest.raises(type(raised)) as caught:
        through(client)

    assert caught.value is raised


def test_failure_of_the_signing_library_is_an_auth_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library raises that signs requests for AWS is known without loading that library."""

    class BotoCoreError(Exception):
        pass

    library = types.ModuleType("botocore.exceptions")
    library.BotoCoreError = BotoCoreError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "botocore.exceptions", library)
    client = anthropic.AnthropicBedrockMantle(aws_region="eu-west-1", skip_auth=True, http_client=mock_http())

    def sign(_: object) -> None:
        raise BotoCoreError("the profile could not be found")

    monkeypatch.setattr(client, "_prepare_request", sign)

    with pytest.raises(BackendError) as caught:
        through(client)

    assert (caught.value.kind, type(caught.value.sdk_error)) == ("auth", BotoCoreError)


@pytest.mark.parametrize(
    ("client_class", "options", "instead"),
    [
        (anthropic.AnthropicBedrock, {"aws_region": "x"}, "AnthropicBedrockMantle"),
        (anthropic.AsyncAnthropicBedrock, {"aws_region": "x"}, "AsyncAnthropicBedrockMantle"),
        (
            anthropic.AnthropicVertex,
            {"region": "us", "project_id": "p", "access_token": "t"},
            "AnthropicGoogleCloud",
        ),
        (
            anthropic.AsyncAnthropicVertex,
            {"region": "us", "project_id": "p", "access_token": "t"},
            "AsyncAnthropicGoogleCloud",
        ),
    ],
)
def test_clients_that_rewrite_bodies_are_refused(client_class: Any, options: Any, instead: str) -> None:
    """A client that needs a JSON body to find its URL is refused with the class to use."""
    is_async = instead.startswith("Async")
    backend_class: Any = AsyncAnthropicBackend if is_async else AnthropicBackend

    with pytest.raises(TypeError, match=f"rewriting a JSON body.* use anthropic.{instead}$"):
        backend_class("m", client=client_class(**options))


@pytest.mark.parametrize(
    ("backend_class", "client"),
    [
        (AnthropicBackend, anthropic.AsyncAnthropic(api_key="k")),
        (AnthropicBackend, anthropic.AsyncAnthropicBedrockMantle(api_key="k", aws_region="eu-west-1")),
        (AsyncAnthropicBackend, anthropic.Anthropic(api_key="k")),
        (AsyncAnthropicBackend, anthropic.AnthropicBedrockMantle(api_key="k", aws_region="eu-west-1")),
        (AnthropicBackend, object()),
    ],
)
def test_client_of_the_wrong_kind_is_refused(backend_class: Any, client: object) -> None:
    """A sync client for an async backend, or the other way round, is refused with the class to use."""
    with pytest.raises(TypeError, match="AsyncAnthropic to AsyncAnthropicBackend"):
        backend_class("m", client=client)


@pytest.mark.parametrize(
    "extra", [{"api_key": "k"}, {"base_url": "https://x.test"}, {"http_client": mock_http()}, {"timeout": 3}]
)
def test_own_client_excludes_options(extra: dict[str, Any]) -> None:
    """Options beside `client=` would be ignored, so they are refused by name."""
    with pytest.raises(TypeError, match=next(iter(extra))):
        AnthropicBackend("m", client=anthropic.Anthropic(api_key="k"), **extra)


def test_own_client_stays_open() -> None:
    """A client and an HTTP client that were handed in are the caller's to close."""
    client, http_client = anthropic.Anthropic(api_key="k"), mock_http()

    AnthropicBackend("m", client=client).close()
    AnthropicBackend("m", api_key="k", http_client=http_client).close()

    assert not client.is_closed()
    assert not http_client.is_closed


@pytest.mark.parametrize(
    ("base_url", "family"),
    [
        (None, "anthropic"),
        ("https://api.anthropic.com", "anthropic"),
        ("https://r.services.ai.azure.com/anthropic/", "foundry"),
        ("https://bedrock-mantle.us-east-1.api.aws/anthropic", "aws"),
        ("https://aws-external-anthropic.us-east-1.api.aws", "aws"),
        ("http://127.0.0.1:11434", "local"),
        ("https://api.deepseek.com/anthropic", "api.deepseek.com"),
    ],
)
def test_endpoint_family(base_url: str | None, family: str) -> None:
    """A base URL names Anthropic, a cloud, this machine, or its host; the dialect knows it and the model."""
    backend = AnthropicBackend("m", api_key="k", base_url=base_url)

    assert endpoint_family(base_url, "anthropic") == family
    assert (backend.dialect.wire, backend.dialect.family) == ("anthropic", family)
    assert backend.dialect.model == "m"  # type: ignore[attr-defined]


# -------------------------------------------------------------------------- connections of our own


@pytest.fixture
def base_url() -> Iterator[str]:
    with loopback() as url:
        yield url


async def _read_all(backend: AsyncAnthropicBackend) -> bytes:
    async with contextlib.aclosing(await backend.asend(REQUEST)) as exchange:
        received = b""
        while chunk := await exchange.read():
            received += chunk
        return received


def test_loopback_needs_no_proxy(colour: Colour, base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not asked for a server on this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", base_url)

    async def main() -> bytes:
        async with contextlib.aclosing(AsyncAnthropicBackend("m", api_key="k")) as backend:
            return await _read_all(backend)

    if colour == "async":
        assert asyncio.run(main()) == b"{}"
    else:
        with contextlib.closing(AnthropicBackend("m", api_key="k")) as backend:
            assert backend.send(REQUEST).read() == b"{}"


def test_one_backend_serves_several_event_loops(base_url: str) -> None:
    """Loops that are open at the same time each get connections of their own."""
    backend = AsyncAnthropicBackend("m", base_url=base_url, api_key="k")
    loops = [asyncio.new_event_loop() for _ in range(2)]

    received = [loop.run_until_complete(_read_all(backend)) for loop in (*loops, *loops)]

    for loop in loops:
        loop.run_until_complete(backend.aclose())
        loop.close()
    assert received == [b"{}"] * 4


def test_backend_works_again_after_close(base_url: str) -> None:
    """As an async one: another chat may use the same backend. Closing twice does nothing more."""
    backend = AnthropicBackend("m", base_url=base_url, api_key="k")

    received = []
    for _ in range(3):
        received.append(backend.send(REQUEST).read())
        backend.close()
        backend.close()

    assert received == [b"{}"] * 3


def test_backend_works_again_after_aclose(base_url: str) -> None:
    """`aclose` ends the running loop's connections only; the next `asyncio.run` opens new ones."""
    backend = AsyncAnthropicBackend("m", base_url=base_url, api_key="k")

    async def main() -> bytes:
        async with contextlib.aclosing(backend):
            return await _read_all(backend)

    assert [asyncio.run(main()) for _ in range(2)] == [b"{}"] * 2
