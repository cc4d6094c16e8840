"""A post put together in one pass is the request that `httpx2` would have made, header by header."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends import async_http_client
from goaitools_py.backends.anthropic.sdk import HttpClient as AnthropicHttpClient
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http.async_pool import ShardedClient
from goaitools_py.backends.http.posts import PlainPosts, _plain_post, options_class, quicken
from goaitools_py.backends.http.sdk_edge import AsyncSdkEdge, ClientOptions, SdkEdge
from goaitools_py.backends.openai.sdk import HttpClient as OpenAIHttpClient

URL = "https://x.test/v1/chat/completions"
BODY = b'{"a":1}'


def answer(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, headers={"set-cookie": "seen=1"}, content=b"{}")


class Quick(PlainPosts, httpx2.Client):
    """Any client of `httpx2`, made quicker."""


def alike(quick: httpx2.Request, usual: httpx2.Request) -> None:
    """Both requests are one: bytes, headers in their order and spelling, timeouts."""
    assert (quick.method, str(quick.url), quick.content) == (usual.method, str(usual.url), usual.content)
    assert quick.headers.raw == usual.headers.raw
    assert quick.headers.multi_items() == usual.headers.multi_items()
    assert quick.extensions == usual.extensions
    assert b"".join(quick.stream) == b"".join(usual.stream)  # type: ignore[arg-type]


def both(method: str, url: Any, client: dict[str, Any] | None = None, **given: Any) -> bool:
    """Build it twice and compare. Returns True if it was put together in one pass."""
    made = {"transport": httpx2.MockTransport(answer), **(client or {})}
    quick, usual = Quick(**made), httpx2.Client(**made)
    alike(quick.build_request(method, url, **given), usual.build_request(method, url, **given))
    return _plain_post(quick, method, url, given) is not None


HEADERS = [
    ("Authorization", "Bearer k"),
    ("content-type", "application/json"),
    ("X-Twice", "1"),
    ("X-Twice", "2"),
]
PLAIN: dict[str, Any] = {"content": BODY, "headers": HEADERS, "timeout": httpx2.Timeout(9, connect=1)}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"timeout": 3.5},
        {"timeout": None},
        {"headers": [("User-Agent", "mine"), ("ACCEPT", "text/event-stream")]},
        {
            "headers": httpx2.Headers(
                {"user-agent": "mine", "X-Own": "é".encode().decode("latin-1")}, "latin-1"
            )
        },
        {"params": None, "files": None},
    ],
)
def test_a_plain_post_is_made_in_one_pass(changed: dict[str, Any]) -> None:
    """Whatever the SDKs say of a post: timeouts, headers that stand for the client's own."""
    assert both("post", URL, **{**PLAIN, **changed})
    assert both(
        "POST", httpx2.URL(URL), {"headers": {"X-Standing": "s", "X-Twice": "0"}}, **{**PLAIN, **changed}
    )


def test_without_a_timeout_it_is_the_clients() -> None:
    """As with `httpx2`."""
    assert both("post", URL, {"timeout": 7}, content=BODY, headers=HEADERS)


@pytest.mark.parametrize(
    ("method", "url", "client", "changed"),
    [
        ("get", URL, {}, {"content": None}),
        ("put", URL, {}, {}),
        ("post", "/v1/messages", {"base_url": "https://x.test/a"}, {}),
        ("post", URL, {}, {"content": b""}),
        ("post", URL, {}, {"content": None, "json": {"a": 1}}),
        ("post", URL, {}, {"params": {"q": "1"}}),
        ("post", URL, {"params": {"q": "1"}}, {}),
        ("post", URL, {}, {"headers": None}),
        ("post", URL, {}, {"headers": {"X": "1"}}),
        ("post", URL, {}, {"headers": [(b"X", b"1")]}),
        ("post", URL, {}, {"headers": [("host", "elsewhere.test")]}),
        ("post", URL, {}, {"headers": [("Content-Length", "7")]}),
        ("post", URL, {}, {"headers": [("Transfer-Encoding", "chunked")]}),
        ("post", URL, {}, {"extensions": {"sni_hostname": "y.test"}}),
        ("post", URL, {}, {"cookies": {"a": "1"}}),
    ],
)
def test_any_other_request_is_left_to_httpx2(
    method: str, url: str, client: dict[str, Any], changed: dict[str, Any]
) -> None:
    """What says more than a post of bytes, or less."""
    assert not both(method, url, client, **{**PLAIN, **changed})


TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCDEF-0123456789", min_size=1, max_size=8)
VALUE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12)
LISTED = st.lists(
    st.tuples(TOKEN | st.sampled_from(["Accept", "user-agent", "Host", "Cookie"]), VALUE), max_size=8
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(headers=LISTED, standing=st.dictionaries(TOKEN, VALUE, max_size=4), body=st.binary(max_size=40))
def test_any_headers(headers: list[tuple[str, str]], standing: dict[str, str], body: bytes) -> None:
    """Whichever headers the SDK and the client have, repeated and in any spelling."""
    both("post", URL, {"headers": standing}, headers=headers, content=body, timeout=None)


def test_cookies_that_a_server_set_go_along() -> None:
    """As providers' front ends set them; and only where they belong."""
    quick, usual = Quick(), httpx2.Client()
    for client in (quick, usual):
        client.cookies.set("__cf_bm", "c1", domain="x.test")
        client.cookies.set("other", "c2", domain="y.test")

    made = quick.build_request("post", URL, **PLAIN)

    assert made.headers["cookie"] == "__cf_bm=c1"
    assert sorted(made.headers.raw) == sorted(usual.build_request("post", URL, **PLAIN).headers.raw)


def test_letters_beyond_ascii_are_refused_as_by_httpx2() -> None:
    """A header of the caller's that cannot be sent is the same error."""
    for client in (Quick(), httpx2.Client()):
        with pytest.raises(UnicodeEncodeError):
            client.build_request("post", URL, **{**PLAIN, "headers": [("X-Name", "ä")]})


# ---------------------------------------------------------------------------------- through the SDKs


QUICK_ONES: list[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = [
    (openai.OpenAI, openai.DefaultHttpxClient, OpenAIHttpClient),
    (anthropic.Anthropic, anthropic.DefaultHttpxClient, AnthropicHttpClient),
    (openai.AsyncOpenAI, openai.DefaultAsyncHttpxClient, ShardedClient),
    (anthropic.AsyncAnthropic, anthropic.DefaultAsyncHttpxClient, ShardedClient),
]


@pytest.mark.parametrize(("sdk", "usual", "quick"), QUICK_ONES)
def test_the_sdks_posts_are_the_same_over_both_clients(
    sdk: Callable[..., Any], usual: Callable[..., Any], quick: Callable[..., Any]
) -> None:
    """What an SDK sends, first and again with a cookie, does not depend on who put it together."""
    sent: dict[Any, list[httpx2.Request]] = {usual: [], quick: []}

    def noting(requests: list[httpx2.Request]) -> Callable[[httpx2.Request], httpx2.Response]:
        def note(request: httpx2.Request) -> httpx2.Response:
            requests.append(request)
            return answer(request)

        return note

    async def post(http_class: Callable[..., Any]) -> None:
        transport = httpx2.MockTransport(noting(sent[http_class]))
        client = sdk(api_key="k", base_url="https://x.test/v1", http_client=http_class(transport=transport))
        for number in range(2):
            options = {"headers": {"X-Extra": str(number)}, "max_retries": 0, "timeout": 5.0 + number}
            found = client.post(URL, content=BODY, cast_to=httpx2.Response, options=options)
            if sdk in (openai.AsyncOpenAI, anthropic.AsyncAnthropic):
                await found

    async def run() -> None:
        await post(usual)
        await post(quick)

    asyncio.run(run())

    def told(request: httpx2.Request) -> list[tuple[bytes, bytes]]:
        return sorted(pair for pair in request.headers.raw if pair[0].lower() != b"idempotency-key")

    assert len(sent[quick]) == 2
    for one, other in zip(sent[quick], sent[usual], strict=True):
        assert told(one) == told(other)
        assert (str(one.url), one.content, one.extensions) == (
            str(other.url),
            other.content,
            other.extensions,
        )
    assert "seen=1" in sent[quick][1].headers["cookie"]


def _edges() -> list[Any]:
    from goaitools_py.backends.anthropic.sdk import anthropic_edge, async_anthropic_edge
    from goaitools_py.backends.openai.sdk import async_openai_edge, openai_edge

    return [
        lambda options: openai_edge(options, path="/chat/completions"),
        lambda options: async_openai_edge(options, path="/chat/completions"),
        lambda options: anthropic_edge(options, betas=()),
        lambda options: async_anthropic_edge(options, betas=()),
    ]


@pytest.mark.parametrize("edge", _edges(), ids=["openai", "openai-async", "anthropic", "anthropic-async"])
def test_a_backends_own_posts_are_plain_ones(
    edge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of an SDK or of `httpx2` that gives up the quick way, or the address, shows here."""
    built: list[bool] = []

    def note(client: Any, method: str, url: Any, given: Any) -> httpx2.Request | None:
        made = _plain_post(client, method, url, given)
        built.append(made is not None)
        return made

    monkeypatch.setattr("goaitools_py.backends.http.posts._plain_post", note)
    monkeypatch.setattr(
        httpx2.HTTPTransport,
        "handle_request",
        lambda _, request: httpx2.Response(200, content=b"{}", request=request),
    )

    async def handle(_: Any, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=b"{}", request=request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", handle)
    read: list[object] = []
    made = edge(ClientOptions(api_key="k", base_url="https://x.test/v1"))
    assert made._sdk.post_options.construct(method="post", url=URL).url == URL
    request = ModelRequest(path="/somewhere", body=BODY)
    for module in (openai._base_client, anthropic._base_client):
        monkeypatch.setattr(module, "URL", lambda url, read=read: read.append(url) or httpx2.URL(url))

    async def run() -> None:
        for _ in range(3):
            if isinstance(made, SdkEdge):
                made.send(request).close()
            else:
                assert isinstance(made, AsyncSdkEdge)
                await (await made.asend(request)).aclose()

    asyncio.run(run())

    assert built == [True] * 3
    assert read == []


@pytest.mark.parametrize(("sdk", "usual", "_quick"), QUICK_ONES)
@pytest.mark.parametrize(
    "options", [{}, {"timeout": httpx2.Timeout(3)}, {"headers": {"X": "1"}, "idempotency_key": ""}]
)
def test_quick_options_are_those_of_the_sdks_own_post(
    sdk: Callable[..., Any], usual: Callable[..., Any], _quick: Callable[..., Any], options: dict[str, Any]
) -> None:
    """The SDK's `request` is asked for the same, field by field, and nothing is left over of posts before."""
    client = sdk(api_key="k", http_client=usual())
    asked: list[Any] = []

    async def request(cast_to: type[Any], given: Any, **more: Any) -> None:
        told = {name: repr(value) for name, value in vars(given).items()}
        asked.append(
            (cast_to, more.get("stream", False), given.model_fields_set - {"json_data", "files"}, told)
        )

    client.request = request
    package = openai if isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)) else anthropic
    posts = [client.post]
    quicken(client, options_class(package))
    posts.append(client.post)

    async def run() -> None:
        for said in ({"headers": {"X": "0", "Y": "2"}, "max_retries": 3}, {**options, "max_retries": 0}):
            for post in posts:
                await post(URL, content=BODY, cast_to=httpx2.Response, options=said)

    asyncio.run(run())

    assert posts[0] != posts[1]
    assert asked[::2] == asked[1::2]


@pytest.mark.parametrize("edge", _edges(), ids=["openai", "openai-async", "anthropic", "anthropic-async"])
def test_a_client_that_nobody_has_is_gone_at_once(edge: Callable[..., Any]) -> None:
    """Its connections do not wait until somebody collects garbage."""
    made: list[weakref.ref[Any]] = []

    def note(client: Any, options: Any) -> None:
        quicken(client, options)
        made.extend((weakref.ref(client), weakref.ref(client._client)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("goaitools_py.backends.http.sdk_edge.quicken", note)
        gc.collect()
        gc.disable()
        try:
            edge(ClientOptions(api_key="k"))
            left = [ref() for ref in made]
        finally:
            gc.enable()

    assert left == [None, None]


def test_a_client_without_the_step_is_left_as_it_is() -> None:
    """A later SDK may find its addresses in another way."""

    class Later:
        pass

    later = Later()
    quicken(later, options_class(ModuleType("later")))

    assert vars(later) == {}


@pytest.mark.parametrize("sdk", [openai.OpenAI, anthropic.Anthropic])
def test_a_path_is_left_to_the_sdk(sdk: Callable[..., Any]) -> None:
    """Only whole addresses are answered for."""
    client = sdk(api_key="k", base_url="https://x.test/v1")
    quicken(client, None)

    assert str(client._prepare_url("/models")) == "https://x.test/v1/models"
    assert str(client._prepare_url(URL)) == URL


@pytest.mark.parametrize("present", [True, False])
def test_the_helpers_client_makes_plain_posts_too(present: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over aiohttp and over pools."""
    if present:
        pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    else:
        monkeypatch.setitem(__import__("sys").modules, "aiohttp", None)

    async def run() -> httpx2.AsyncClient:
        async with async_http_client(trust_env=False) as made:
            return made

    assert isinstance(asyncio.run(run()), PlainPosts)
