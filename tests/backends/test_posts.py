"""A post put together from what is known of those before is the one that the SDK would have made."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import itertools
import logging
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

from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http.async_pool import ShardedClient
from goaitools_py.backends.http.posts import options_class, quicken
from goaitools_py.backends.http.sdk_edge import AsyncSdkEdge, ClientOptions, SdkEdge

URL = "https://x.test/v1/chat/completions"
BODY = b'{"a":1}'
WIRES = ["openai", "openai-async", "anthropic", "anthropic-async"]
SDKS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (openai.OpenAI, openai.DefaultHttpxClient),
    (openai.AsyncOpenAI, ShardedClient),
    (anthropic.Anthropic, anthropic.DefaultHttpxClient),
    (anthropic.AsyncAnthropic, ShardedClient),
]


class Wire:
    """An SDK's client twice, as it is and quickened, over transports that note what they are to send."""

    def __init__(self, sdk: Callable[..., Any], http: Callable[..., Any], **options: Any) -> None:
        self.sent: dict[str, list[httpx2.Request]] = {"usual": [], "quick": []}
        self.built = 0
        self.clients: dict[str, Any] = {}
        for name, requests in self.sent.items():
            http_client = http(transport=httpx2.MockTransport(self._noting(requests)))
            given = {"api_key": "k", "base_url": "https://x.test/v1", **options}
            self.clients[name] = sdk(http_client=http_client, **given)
        quick = self.clients["quick"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(quick), "_build_request", self._counting(type(quick)._build_request))
            quicken(quick, quick._client, options_class(openai if "penAI" in sdk.__name__ else anthropic))

    @staticmethod
    def _noting(requests: list[httpx2.Request]) -> Callable[[httpx2.Request], httpx2.Response]:
        def note(request: httpx2.Request) -> httpx2.Response:
            requests.append(request)
            cookie = {"set-cookie": f"seen={len(requests)}"}
            return httpx2.Response(200, headers=cookie, content=b"{}", request=request)

        return note

    def _counting(self, build: Callable[..., httpx2.Request]) -> Callable[..., httpx2.Request]:
        @functools.wraps(build)
        def counted(*args: Any, **more: Any) -> httpx2.Request:
            self.built += 1
            return build(*args, **more)

        return counted

    def change(self, how: Callable[[Any], object]) -> None:
        """Do something to both clients."""
        for client in self.clients.values():
            how(client)

    def post(self, *, url: str = URL, content: bytes = BODY, **options: Any) -> None:
        """Post by both, and compare what was sent."""

        async def run() -> None:
            for client in self.clients.values():
                said = {"max_retries": 0, "idempotency_key": "", "timeout": httpx2.Timeout(5), **options}
                found = client.post(url, content=content, cast_to=httpx2.Response, options=said)
                if inspect.isawaitable(found):
                    await found

        asyncio.run(run())
        alike(self.sent["quick"][-1], self.sent["usual"][-1])


def alike(quick: httpx2.Request, usual: httpx2.Request) -> None:
    """Both requests are one: bytes, headers and their spelling, timeouts."""
    assert (quick.method, str(quick.url), quick.content) == (usual.method, str(usual.url), usual.content)
    assert sorted(quick.headers.raw) == sorted(usual.headers.raw)
    assert quick.extensions == usual.extensions


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_posts_alike_are_built_twice_and_then_put_together(
    sdk: Callable[..., Any], http: Callable[..., Any]
) -> None:
    """The same request as the SDK's own, whatever its bytes, with the cookies that a server set meanwhile."""
    wire = Wire(sdk, http)
    for number in range(5):
        wire.post(content=b"x" * 10**number)

    assert wire.built == 2
    assert [request.headers.get("cookie") for request in wire.sent["quick"]] == [
        None,
        "seen=1",
        "seen=2",
        "seen=3",
        "seen=4",
    ]


@pytest.mark.parametrize(("sdk", "http"), SDKS)
@pytest.mark.parametrize(
    "change",
    [
        lambda client: setattr(client, "api_key", "other"),
        lambda client: client._custom_headers.update({"X-Tenant": "b"}),
        lambda client: client._client.headers.update({"X-Standing": "mine"}),
        lambda client: setattr(client._client, "params", {"q": "1"}),
        lambda client: client._client.cookies.set("own", "1"),
        lambda client: client._client.cookies.clear(),
    ],
    ids=["key", "header", "http-header", "params", "cookie", "no-cookies"],
)
def test_a_client_that_changes_is_heard(
    sdk: Callable[..., Any], http: Callable[..., Any], change: Callable[[Any], object]
) -> None:
    """A rotated key, another tenant: nothing of before goes out."""
    wire = Wire(sdk, http, default_headers={"X-Tenant": "a"})
    for _ in range(3):
        wire.post()
    wire.change(change)
    for _ in range(3):
        wire.post()

    before, after = wire.sent["usual"][2], wire.sent["usual"][3]
    assert before.headers != after.headers or before.url != after.url or before.extensions != after.extensions


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_headers_that_are_written_to_are_other_headers(
    sdk: Callable[..., Any], http: Callable[..., Any]
) -> None:
    """One mapping for all posts, the caller's."""
    wire, headers = Wire(sdk, http), {"X-Own": "1"}
    for _ in range(3):
        wire.post(headers=headers)
    headers["X-Own"] = "2"
    wire.post(headers=headers)

    assert wire.sent["quick"][-1].headers["x-own"] == "2"


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_a_cookie_of_the_callers_stays(sdk: Callable[..., Any], http: Callable[..., Any]) -> None:
    """The server's do not take its place."""
    wire = Wire(sdk, http)
    for _ in range(4):
        wire.post(headers={"Cookie": "mine=1"})

    assert {request.headers["cookie"] for request in wire.sent["quick"]} == {"mine=1"}


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_each_request_has_timeouts_of_its_own(sdk: Callable[..., Any], http: Callable[..., Any]) -> None:
    """They are changed once the headers are there."""
    wire = Wire(sdk, http)
    for _ in range(4):
        wire.post()
        for requests in wire.sent.values():
            requests[-1].extensions["timeout"]["read"] = 99.0


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_what_says_more_than_a_whole_address_is_left_to_the_sdk(
    sdk: Callable[..., Any], http: Callable[..., Any]
) -> None:
    """A path of a base that moves, and a number of tries."""
    wire = Wire(sdk, http)
    module = openai if "penAI" in sdk.__name__ else anthropic
    options = options_class(module).construct(
        method="post", url="/models", content=BODY, idempotency_key="", timeout=httpx2.Timeout(5)
    )
    for tries, base in ((0, "a"), (0, "a"), (0, "b"), (1, "b"), (0, "b")):
        made = []
        for client in wire.clients.values():
            client.base_url = f"https://{base}.test/v1"
            made.append(client._build_request(options, retries_taken=tries))
        alike(*made)
    options = options.model_copy(update={"url": URL})
    for tries in (0, 0, 0, 1, 0):
        alike(*(client._build_request(options, retries_taken=tries) for client in wire.clients.values()))


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_less_time_left_needs_no_other_head(sdk: Callable[..., Any], http: Callable[..., Any]) -> None:
    """A turn of many calls has a little less left for each; the SDKs tell the server."""
    wire = Wire(sdk, http)
    for number in range(20):
        wire.post(timeout=httpx2.Timeout(300 - number / 7, connect=5))

    assert wire.built == 2
    assert wire.sent["quick"][-1].headers["x-stainless-read-timeout"] == str(300 - 19 / 7)


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_a_number_that_happens_to_be_the_time_stays(
    sdk: Callable[..., Any], http: Callable[..., Any]
) -> None:
    """What else says "5.0" does not follow the time."""
    wire = Wire(sdk, http)
    for left in (5.0, 5.0, 5.0, 4.0, 3.0, 2.0, 5.0, 1.0):
        wire.post(timeout=httpx2.Timeout(left), headers={"X-Version": "5.0"})

    assert {request.headers["x-version"] for request in wire.sent["quick"]} == {"5.0"}
    assert wire.built < 8


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_what_a_transport_is_told_is_told_again(sdk: Callable[..., Any], http: Callable[..., Any]) -> None:
    """One SDK names a host with an underscore to TLS in another way."""
    wire = Wire(sdk, http)
    for _ in range(4):
        wire.post(url="https://my_host.test/v1/messages")


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_heads_are_few_and_show_no_key(sdk: Callable[..., Any], http: Callable[..., Any]) -> None:
    """However many kinds of posts there are."""
    wire = Wire(sdk, http)
    for number in range(20):
        wire.post(headers={"X-Own": str(number // 2)})

    heads = wire.clients["quick"]._build_request._heads
    assert len(heads) == 4
    assert "Bearer" not in repr(heads)
    assert "'k'" not in repr(heads)


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_any_other_timeout_is_the_sdks(sdk: Callable[..., Any], http: Callable[..., Any]) -> None:
    """A number, none, or what the client has."""
    wire = Wire(sdk, http)
    given = openai.NOT_GIVEN if "penAI" in sdk.__name__ else anthropic.NOT_GIVEN
    for timeout in (2.0, 2.0, 2.0, None, None, None, given, given, given):
        wire.post(timeout=timeout)

    assert wire.built == 9


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "timeout": st.sampled_from(
            [5.0, httpx2.Timeout(5), httpx2.Timeout(9, connect=1), httpx2.Timeout(0.25), httpx2.Timeout(None)]
        ),
        "headers": st.dictionaries(
            st.sampled_from(["Accept", "X-Own", "user-agent", "Cookie", "Content-Type"]),
            st.sampled_from(["a", "application/json", "text/event-stream", "5.0", "0.25", "None"]),
        ),
        "idempotency_key": st.sampled_from(["", "i1"]),
        "params": st.just({"q": "1"}),
    },
)


@pytest.mark.parametrize(("sdk", "http"), SDKS[::2])
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(kinds=st.lists(OPTIONS, min_size=1, max_size=6), order=st.lists(st.integers(0, 5), max_size=24))
def test_any_posts_in_any_order(
    sdk: Callable[..., Any], http: Callable[..., Any], kinds: list[dict[str, Any]], order: list[int]
) -> None:
    """Posts that differ do not take each other's heads, however many there are."""
    wire = Wire(sdk, http)
    for number in order:
        wire.post(**kinds[number % len(kinds)])


def test_the_key_that_a_callable_gives_is_asked_for_each_post() -> None:
    """It may be another each time."""
    keys = {"usual": iter("aabcaa"), "quick": iter("aabcaa")}
    wire = Wire(openai.OpenAI, openai.DefaultHttpxClient, api_key=lambda: "none")
    for name, client in wire.clients.items():
        client._api_key_provider = keys[name].__next__
    for _ in range(6):
        wire.post()

    assert [request.headers["authorization"][-1] for request in wire.sent["quick"]] == list("aabcaa")


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_what_is_new_in_each_head_is_never_kept(
    sdk: Callable[..., Any], http: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later SDK may number its requests."""
    wire = Wire(sdk, http)
    quick, numbers = wire.clients["quick"], itertools.count()
    build = quick._build_request._build

    def numbered(*args: Any, **more: Any) -> httpx2.Request:
        request: httpx2.Request = build(*args, **more)
        request.headers["X-Number"] = str(next(numbers))
        return request

    monkeypatch.setattr(quick._build_request, "_build", numbered)
    options = {"max_retries": 0, "timeout": httpx2.Timeout(5), "idempotency_key": ""}

    async def run() -> None:
        for _ in range(4):
            found = quick.post(URL, content=BODY, cast_to=httpx2.Response, options=options)
            if inspect.isawaitable(found):
                await found

    asyncio.run(run())

    assert [request.headers["x-number"] for request in wire.sent["quick"]] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_whoever_listens_hears_the_sdk_build_each(
    sdk: Callable[..., Any], http: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """At level DEBUG the SDKs tell of each request."""
    wire = Wire(sdk, http)
    caplog.set_level(logging.DEBUG, logger="openai" if "penAI" in sdk.__name__ else "anthropic")
    for _ in range(4):
        wire.post()

    assert wire.built == 4


@pytest.mark.parametrize(("sdk", "http"), SDKS)
def test_an_http_client_with_requests_of_its_own_builds_each(
    sdk: Callable[..., Any], http: Callable[..., Any]
) -> None:
    """Such as one that signs what it sends."""

    build: Callable[..., httpx2.Request] = httpx2.Client.build_request

    def signed(client: Any, *args: Any, **given: Any) -> httpx2.Request:
        request = build(client, *args, **given)
        request.headers["X-Signature"] = str(sum(request.content))
        return request

    assert isinstance(http, type)
    wire = Wire(sdk, type("Signing", (http,), {"build_request": signed}))
    for number in (1, 1, 2):
        wire.post(content=b"%d" % number)

    assert len({request.headers["x-signature"] for request in wire.sent["quick"]}) == 2


# ----------------------------------------------------------------------------- as backends have them


def _edges() -> list[Any]:
    from goaitools_py.backends.anthropic.sdk import anthropic_edge, async_anthropic_edge
    from goaitools_py.backends.openai.sdk import async_openai_edge, openai_edge

    return [
        lambda options: openai_edge(options, path="/chat/completions"),
        lambda options: async_openai_edge(options, path="/chat/completions"),
        lambda options: anthropic_edge(options, betas=()),
        lambda options: async_anthropic_edge(options, betas=()),
    ]


@pytest.mark.parametrize("edge", _edges(), ids=WIRES)
def test_a_backends_own_posts_are_put_together(
    edge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of an SDK or of `httpx2` that gives up the quick way shows here."""

    async def handle(_: Any, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=b"{}", request=request)

    monkeypatch.setattr(
        httpx2.HTTPTransport,
        "handle_request",
        lambda _, request: httpx2.Response(200, content=b"{}", request=request),
    )
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", handle)
    built: list[object] = []
    for module in (openai._base_client, anthropic._base_client):
        build = module.BaseClient._build_request

        def noted(*args: Any, build: Callable[..., Any] = build, **more: Any) -> Any:
            built.append(args)
            return build(*args, **more)

        monkeypatch.setattr(module.BaseClient, "_build_request", noted)
    made = edge(ClientOptions(api_key="k", base_url="https://x.test/v1"))
    assert made._sdk.post_options.construct(method="post", url=URL).url == URL

    async def run() -> None:
        for left in (299.99931, 299.99927, 299.99935, 299.99929):
            request = ModelRequest(path="/somewhere", body=BODY, timeout=left)
            if isinstance(made, SdkEdge):
                made.send(request).close()
            else:
                assert isinstance(made, AsyncSdkEdge)
                await (await made.asend(request)).aclose()

    asyncio.run(run())

    assert len(built) == 2


@pytest.mark.parametrize(("sdk", "http"), SDKS)
@pytest.mark.parametrize(
    "options", [{}, {"timeout": httpx2.Timeout(3)}, {"headers": {"X": "1"}, "idempotency_key": ""}]
)
def test_quick_options_are_those_of_the_sdks_own_post(
    sdk: Callable[..., Any], http: Callable[..., Any], options: dict[str, Any]
) -> None:
    """The SDK's `request` is asked for the same, field by field, and nothing is left over of posts before."""
    client = sdk(api_key="k", http_client=http())
    asked: list[Any] = []

    async def request(cast_to: type[Any], given: Any, **more: Any) -> None:
        told = {name: repr(value) for name, value in vars(given).items()}
        asked.append(
            (cast_to, more.get("stream", False), given.model_fields_set - {"json_data", "files"}, told)
        )

    client.request = request
    package = openai if isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)) else anthropic
    posts = [client.post]
    quicken(client, client._client, options_class(package))
    posts.append(client.post)

    async def run() -> None:
        for said in ({"headers": {"X": "0", "Y": "2"}, "max_retries": 3}, {**options, "max_retries": 0}):
            for post in posts:
                await post(URL, content=BODY, cast_to=httpx2.Response, options=said)

    asyncio.run(run())

    assert posts[0] != posts[1]
    assert asked[::2] == asked[1::2]


@pytest.mark.parametrize("edge", _edges(), ids=WIRES)
def test_a_client_that_nobody_has_is_gone_at_once(edge: Callable[..., Any]) -> None:
    """Its connections do not wait until somebody collects garbage."""
    made: list[weakref.ref[Any]] = []

    def note(client: Any, http_client: Any, options: Any) -> None:
        quicken(client, http_client, options)
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


def test_a_client_without_the_steps_is_left_as_it_is() -> None:
    """A later SDK may build its requests in another way."""

    class Later:
        pass

    later = Later()
    quicken(later, httpx2.Client(), options_class(ModuleType("later")))

    assert vars(later) == {}
