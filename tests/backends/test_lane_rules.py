"""When a post takes the short way, and what the SDK makes and decides all the same.

`test_lane.py` compares what goes over a socket, in random configurations. Here each rule has its own test.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends import BackendError
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http import heads as post_heads
from goaitools_py.backends.http import sdk as _sdk
from goaitools_py.backends.http.async_fast_post import AsyncFastPost, AsyncRecordingClient
from goaitools_py.backends.http.async_pool import ShardedClient
from goaitools_py.backends.http.deadlines import DeadlineClient
from goaitools_py.backends.http.fast_post import FastPost, RecordingClient
from goaitools_py.backends.http.heads import ClientDefaults
from goaitools_py.backends.http.sdk import ClientOptions
from goaitools_py.backends.http.sdk_edge import AsyncSdkEdge, SdkEdge

URL = "https://x.test/v1/chat/completions"
BODY = b'{"a":1}'
SDKS = [openai.OpenAI, openai.AsyncOpenAI, anthropic.Anthropic, anthropic.AsyncAnthropic]
Answer = Callable[[httpx2.Request], httpx2.Response]


def each_sdk(test: Callable[..., Any]) -> Any:
    """With each SDK, over clients of `httpx2` and over those that backends make."""
    over = pytest.mark.usefixtures("_http_clients")(test)
    return pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.__name__)(over)


@pytest.fixture(params=["httpx2", "own"])
def _http_clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "own":
        monkeypatch.setattr(Wire, "classes", (DeadlineClient, ShardedClient))


class Wire:
    """An SDK's client twice, as it is and with a lane, over transports that note what they are to send."""

    classes: tuple[type[Any], type[Any]] = (httpx2.Client, httpx2.AsyncClient)

    def __init__(self, sdk: Any, answer: Answer | None = None, **options: Any) -> None:
        self.is_async = "Async" in sdk.__name__
        self.answer = answer
        self.sent: dict[str, list[httpx2.Request]] = {"usual": [], "quick": []}
        self.http: dict[str, Any] = {}
        http_class = self.classes[self.is_async]
        for name, requests in self.sent.items():
            self.http[name] = http_class(transport=httpx2.MockTransport(self._noting(requests)))
        self.built = 0
        given = {"api_key": "k", "base_url": "https://x.test/v1", **options}
        tap, lane_class = (_CountingAsyncTap, AsyncFastPost) if self.is_async else (_CountingTap, FastPost)
        quick = sdk(http_client=tap(self.http["quick"], self), **given)
        package = sdk.__module__.partition(".")[0]
        standing = ClientDefaults(
            options.get("default_headers"), options.get("default_query"), logging.getLogger(package)
        )
        self.lane: Any = lane_class(quick, self.http["quick"], standing)
        self.clients: dict[str, Any] = {"usual": sdk(http_client=self.http["usual"], **given), "quick": quick}
        self.posts = {"usual": self.clients["usual"].post, "quick": self.lane.post}

    def _noting(self, requests: list[httpx2.Request]) -> Answer:
        def note(request: httpx2.Request) -> httpx2.Response:
            requests.append(request)
            if self.answer is not None:
                return self.answer(request)
            return httpx2.Response(200, headers={"set-cookie": f"seen={len(requests)}"}, content=b"{}")

        return note

    def change(self, how: Callable[[Any], object]) -> None:
        """Do something to both HTTP clients."""
        for http_client in self.http.values():
            how(http_client)

    def post(self, *, url: str = URL, content: bytes = BODY, **options: Any) -> list[Any]:
        """Post by both, and compare what was sent; what both returned or raised."""
        said = {
            "max_retries": 0,
            "idempotency_key": "",
            "follow_redirects": False,
            "timeout": httpx2.Timeout(5),
            **options,
            "headers": {"X-Stainless-Raw-Response": "stream", **options.get("headers", {})},
        }
        found: list[Any] = []

        async def run() -> None:
            for post in self.posts.values():
                try:
                    answer = post(url, content=content, cast_to=httpx2.Response, options=said)
                    found.append(await answer if inspect.isawaitable(answer) else answer)
                except Exception as error:
                    found.append(error)

        asyncio.run(run())
        assert len(self.sent["quick"]) == len(self.sent["usual"])
        alike(self.sent["quick"][-1], self.sent["usual"][-1])
        return found


class _CountingTap(RecordingClient):
    def __init__(self, http_client: Any, wire: Wire) -> None:
        super().__init__(http_client)
        self._wire = wire

    def build_request(self, *args: Any, **given: Any) -> httpx2.Request:
        self._wire.built += 1
        return super().build_request(*args, **given)


class _CountingAsyncTap(AsyncRecordingClient):
    def __init__(self, http_client: Any, wire: Wire) -> None:
        super().__init__(http_client)
        self._wire = wire

    def build_request(self, *args: Any, **given: Any) -> httpx2.Request:
        self._wire.built += 1
        return super().build_request(*args, **given)


def alike(quick: httpx2.Request, usual: httpx2.Request) -> None:
    """Both requests are one: bytes, headers and their spelling, timeouts."""
    assert (quick.method, str(quick.url), quick.content) == (usual.method, str(usual.url), usual.content)
    assert sorted(quick.headers.raw) == sorted(usual.headers.raw)
    assert quick.extensions == usual.extensions


# ------------------------------------------------------------------------------------- the same request


@each_sdk
def test_posts_alike_are_built_twice_and_then_put_together(sdk: Any) -> None:
    """The same request as the SDK's own, whatever its bytes, with the cookies that a server set meanwhile."""
    wire = Wire(sdk)
    for number in range(5):
        wire.post(content=b"x" * 10**number)

    assert wire.built == 2
    cookies = [request.headers.get("cookie") for request in wire.sent["quick"]]
    assert cookies == [None, "seen=1", "seen=2", "seen=3", "seen=4"]


@each_sdk
@pytest.mark.parametrize(
    "change",
    [
        lambda http: http.headers.update({"X-Standing": "mine"}),
        lambda http: setattr(http, "params", {"q": "1"}),
        lambda http: http.cookies.set("own", "1"),
        lambda http: http.cookies.clear(),
    ],
    ids=["header", "params", "cookie", "no-cookies"],
)
def test_an_http_client_that_changes_is_heard(sdk: Any, change: Callable[[Any], object]) -> None:
    """Nothing of before goes out."""
    wire = Wire(sdk)
    for _ in range(3):
        wire.post()
    wire.change(change)
    for _ in range(3):
        wire.post()

    before, after = wire.sent["usual"][2], wire.sent["usual"][3]
    assert before.headers != after.headers or before.url != after.url


@each_sdk
@pytest.mark.parametrize("which", ["default_headers", "default_query", "headers"])
def test_mappings_that_are_written_to_are_others(sdk: Any, which: str) -> None:
    """The caller keeps the headers and the query of all posts, and may change them."""
    given: dict[str, Any] = {
        "default_headers": {"X-Tenant": "a"},
        "default_query": {"list": ["a"]},
        "headers": {"X-Own": "a"},
    }
    headers = given.pop("headers")
    wire = Wire(sdk, **given)
    for _ in range(3):
        wire.post(headers=headers)
    if which == "default_query":
        given[which]["list"].append("changed")
    else:
        mapping = headers if which == "headers" else given[which]
        mapping[next(iter(mapping))] = "changed"
    wire.post(headers=headers)

    last = wire.sent["quick"][-1]
    assert "changed" in f"{last.url} {last.headers}"


@each_sdk
def test_a_cookie_of_the_callers_stays(sdk: Any) -> None:
    """The server's do not take its place."""
    wire = Wire(sdk)
    for _ in range(4):
        wire.post(headers={"Cookie": "mine=1"})

    assert {request.headers["cookie"] for request in wire.sent["quick"]} == {"mine=1"}


@each_sdk
def test_each_request_has_timeouts_of_its_own(sdk: Any) -> None:
    """They are changed once the headers of the answer are there."""
    wire = Wire(sdk)
    for _ in range(4):
        wire.post()
        for requests in wire.sent.values():
            requests[-1].extensions["timeout"]["read"] = 99.0


@each_sdk
def test_less_time_left_needs_no_other_head(sdk: Any) -> None:
    """A turn of many calls has a little less left for each; the SDKs tell the server."""
    wire = Wire(sdk)
    for number in range(20):
        wire.post(timeout=httpx2.Timeout(300 - number / 7, connect=5))

    assert wire.built == 2
    assert wire.sent["quick"][-1].headers["x-stainless-read-timeout"] == str(300 - 19 / 7)


@each_sdk
def test_a_number_that_happens_to_be_the_time_stays(sdk: Any) -> None:
    """What else says "5.0" does not follow the time."""
    wire = Wire(sdk)
    for left in (5.0, 5.0, 5.0, 4.0, 3.0, 2.0, 5.0, 1.0):
        wire.post(timeout=httpx2.Timeout(left), headers={"X-Version": "5.0"})

    assert {request.headers["x-version"] for request in wire.sent["quick"]} == {"5.0"}
    assert wire.built < 8


@each_sdk
def test_what_a_transport_is_told_is_told_again(sdk: Any) -> None:
    """One SDK names a host with an underscore to TLS in another way."""
    wire = Wire(sdk)
    for _ in range(4):
        wire.post(url="https://my_host.test/v1/messages")

    assert wire.built == 2


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "timeout": st.sampled_from(
            [httpx2.Timeout(5), httpx2.Timeout(9, connect=1), httpx2.Timeout(0.25), httpx2.Timeout(None)]
        ),
        "headers": st.dictionaries(
            st.sampled_from(["Accept", "X-Own", "user-agent", "Cookie", "Content-Type"]),
            st.sampled_from(["a", "application/json", "text/event-stream", "5.0", "0.25", "None"]),
        ),
        "idempotency_key": st.sampled_from(["", "i1"]),
        "params": st.just({"q": "1"}),
    },
)


@pytest.mark.parametrize("sdk", SDKS[::2], ids=lambda sdk: sdk.__name__)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(kinds=st.lists(OPTIONS, min_size=1, max_size=6), order=st.lists(st.integers(0, 5), max_size=24))
def test_any_posts_in_any_order(sdk: Any, kinds: list[dict[str, Any]], order: list[int]) -> None:
    """Posts that differ do not take each other's heads, however many there are."""
    wire = Wire(sdk)
    for number in order:
        wire.post(**kinds[number % len(kinds)])


@each_sdk
def test_hooks_and_authentication_run_for_each_post(sdk: Any) -> None:
    """They work on a request of their own, and what they did to one is not in the next."""
    wire, numbers = Wire(sdk), itertools.count()

    def hook(request: httpx2.Request) -> None:
        request.headers["X-Number"] = str(next(numbers) // 2) + request.headers.get("X-Number", "")

    async def awaited(request: httpx2.Request) -> None:
        hook(request)

    for http_client in wire.http.values():
        http_client.event_hooks["request"].append(awaited if wire.is_async else hook)
        http_client.auth = httpx2.BasicAuth("user", "pass")
    for _ in range(4):
        wire.post()

    assert wire.built == 2
    assert [request.headers["x-number"] for request in wire.sent["quick"]] == ["0", "1", "2", "3"]


# ------------------------------------------------------------------------------- what the SDK decides


@each_sdk
@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 504, 529])
def test_an_error_is_the_one_that_the_sdk_raises(sdk: Any, status: int) -> None:
    """Its class, text, status and body; its request and its answer are those that went over the wire."""
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"no"}}'
    statuses = itertools.chain([200] * 4, itertools.repeat(status))
    wire = Wire(sdk, lambda _: httpx2.Response(next(statuses), headers={"x-request-id": "r"}, content=body))
    for _ in range(2):
        wire.post()
    usual, quick = wire.post()

    assert type(quick) is type(usual)
    assert (str(quick), quick.status_code, quick.body) == (str(usual), status, usual.body)
    assert (quick.response.content, quick.request_id) == (body, usual.request_id)
    assert quick.response.request is wire.sent["quick"][-1]


@each_sdk
@pytest.mark.parametrize(
    "failure",
    [httpx2.ConnectError("no"), httpx2.ReadTimeout("late"), httpx2.PoolTimeout("full"), KeyError(1)],
)
def test_a_post_without_an_answer_fails_as_by_the_sdk(sdk: Any, failure: Exception) -> None:
    """The exception of the network is its cause, and a defect stays one."""
    tries = itertools.count()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if next(tries) < 4:
            return httpx2.Response(200, content=b"{}")
        raise failure

    wire = Wire(sdk, answer)
    for _ in range(2):
        wire.post()
    usual, quick = wire.post()

    assert (type(quick), str(quick)) == (type(usual), str(usual))
    assert quick.__cause__ is usual.__cause__
    assert failure in (quick, quick.__cause__)


@each_sdk
def test_what_is_new_in_each_head_is_never_kept(sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later SDK may number its requests."""
    wire, numbers = Wire(sdk), itertools.count()
    tap = type(wire.clients["quick"]._client)
    build = tap.build_request

    def numbered(*args: Any, **more: Any) -> httpx2.Request:
        request: httpx2.Request = build(*args, **more)
        request.headers["X-Number"] = str(next(numbers))
        return request

    monkeypatch.setattr(tap, "build_request", numbered)

    async def run() -> None:
        for _ in range(4):
            options = {"max_retries": 0, "timeout": httpx2.Timeout(5), "headers": {}}
            found = wire.lane.post(URL, content=BODY, cast_to=httpx2.Response, options=options)
            if inspect.isawaitable(found):
                await found

    asyncio.run(run())
    assert [request.headers["x-number"] for request in wire.sent["quick"]] == ["0", "1", "2", "3"]


@each_sdk
def test_whoever_listens_hears_the_sdk_build_each(sdk: Any, caplog: pytest.LogCaptureFixture) -> None:
    """At level DEBUG the SDKs tell of each request."""
    wire = Wire(sdk)
    caplog.set_level(logging.DEBUG, logger=sdk.__module__.partition(".")[0])
    for _ in range(4):
        wire.post()

    assert wire.built == 4


@each_sdk
def test_an_authentication_of_the_sdks_is_never_kept(sdk: Any) -> None:
    """It may have another token for the next request."""
    heads = post_heads.head_of(
        httpx2.Request("POST", URL, content=BODY, extensions={"timeout": {"read": 5.0}}),
        BODY,
        httpx2.Cookies(),
        {"auth": httpx2.BasicAuth("u", "p")},
    )
    assert heads is None


@each_sdk
def test_heads_are_few_and_show_no_key(sdk: Any) -> None:
    """However many kinds of posts there are."""
    wire = Wire(sdk)
    for number in range(20):
        wire.post(headers={"X-Own": str(number // 2)})

    shown = repr(wire.lane._heads)
    assert shown.count("Head(") == 4
    assert "Bearer" not in shown
    assert "'k'" not in shown


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


each_edge = pytest.mark.parametrize("edge", _edges(), ids=[sdk.__name__ for sdk in SDKS])


class Counted:
    """Counts the requests that SDKs build, and those that are sent. Nothing is on the network."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built = 0
        self.sent: list[httpx2.Request] = []
        build: Any = httpx2.Client.build_request

        async def handle(_: Any, request: httpx2.Request) -> httpx2.Response:
            return self._answer(request)

        def counted(client: Any, *args: Any, **given: Any) -> httpx2.Request:
            self.built += 1
            return build(client, *args, **given)  # type: ignore[no-any-return]

        for tap in (RecordingClient, AsyncRecordingClient):
            monkeypatch.setattr(
                tap, "build_request", lambda tap, *args, **given: counted(tap._behind, *args, **given)
            )
        monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", lambda _, request: self._answer(request))
        monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", handle)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        return httpx2.Response(200, content=b"{}")

    def posts(self, edge: Any, count: int = 4) -> None:
        async def run() -> None:
            for number in range(count):
                request = ModelRequest(path="/somewhere", body=BODY, timeout=299.99931 - number / 1000)
                if isinstance(edge, SdkEdge):
                    edge.send(request).close()
                else:
                    assert isinstance(edge, AsyncSdkEdge)
                    await (await edge.asend(request)).aclose()

        asyncio.run(run())


@each_edge
@pytest.mark.parametrize(
    "options", [{}, {"timeout": 30.0}, {"default_headers": {"X": "1"}, "default_query": {"q": 1}}]
)
def test_a_backends_own_posts_take_the_lane(
    edge: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of an SDK or of `httpx2` that gives up the short way shows here."""
    counted = Counted(monkeypatch)
    counted.posts(edge(ClientOptions(api_key="k", base_url="https://x.test/v1", client_options=options)))

    assert (counted.built, len(counted.sent)) == (2, 4)


class _Signing(httpx2.Client):
    """Signs what it builds."""

    def build_request(self, *args: Any, **given: Any) -> httpx2.Request:
        request = super().build_request(*args, **given)
        request.headers["X-Signature"] = str(sum(request.read()))
        return request


def test_an_http_client_that_builds_requests_in_its_own_way_builds_each() -> None:
    """Such as one that signs."""
    sent: list[httpx2.Request] = []

    def note(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, content=b"{}")

    options = ClientOptions(api_key="k", http_client=_Signing(transport=httpx2.MockTransport(note)))
    for edge in (_edges()[0](options), _edges()[2](options)):
        for body in (b"1", b"1", b"1", b"2"):
            edge.send(ModelRequest(path="/somewhere", body=body)).close()

    assert [request.headers["x-signature"] for request in sent] == [str(ord(n)) for n in "11121112"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_key_that_a_function_gives_is_asked_for_each_post(is_async: bool) -> None:
    """It may be another each time."""
    keys, sent = iter("aaabca"), []

    async def awaited() -> str:
        return next(keys)

    def note(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["authorization"][-1])
        return httpx2.Response(200, content=b"{}")

    transport = httpx2.MockTransport(note)
    http_client = httpx2.AsyncClient(transport=transport) if is_async else httpx2.Client(transport=transport)
    edge = _edges()[is_async](
        ClientOptions(api_key=awaited if is_async else keys.__next__, http_client=http_client)
    )

    async def run() -> None:
        for _ in range(6):
            exchange = edge.asend if is_async else edge.send
            found = exchange(ModelRequest(path="/somewhere", body=BODY))
            await found if inspect.isawaitable(found) else found

    asyncio.run(run())
    assert "".join(sent) == "aaabca"


def test_an_option_that_is_not_known_is_left_to_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as middleware, which may change each request."""
    seen: list[str] = []

    def middleware(request: Any, call_next: Any) -> Any:
        seen.append("seen")
        return call_next(request)

    counted = Counted(monkeypatch)
    edge = _edges()[2](ClientOptions(api_key="k", client_options={"middleware": [middleware]}))
    counted.posts(edge)

    assert (len(seen), len(counted.sent), counted.built) == (4, 4, 0)


def test_threads_share_a_lane_and_each_gets_its_own_answer() -> None:
    """What one thread is told about its post is not told to another."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        number = int(request.content)
        return httpx2.Response(500 if number % 3 == 0 else 200, content=request.content)

    http_client = httpx2.Client(transport=httpx2.MockTransport(answer))
    edge = _edges()[0](ClientOptions(api_key="k", http_client=http_client))
    wrong: list[object] = []

    def work(start: int) -> None:
        for number in range(start, start + 60):
            try:
                found = edge.send(ModelRequest(path="/x", body=b"%d" % number)).read()
                status = 200
            except BackendError as error:
                found, status = error.body, error.status
            if (found, status) != (b"%d" % number, 500 if number % 3 == 0 else 200):
                wrong.append((number, found, status))

    threads = [threading.Thread(target=work, args=(1000 * start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@each_sdk
def test_a_tap_has_the_timeouts_of_the_client_behind_it_and_closes_it(sdk: Any) -> None:
    """The SDKs take their own timeouts from their HTTP client."""
    is_async = "Async" in sdk.__name__
    http_client: Any = (httpx2.AsyncClient if is_async else httpx2.Client)(timeout=7.0)
    client = sdk(
        api_key="k", http_client=(AsyncRecordingClient if is_async else RecordingClient)(http_client)
    )

    assert client.timeout == httpx2.Timeout(7.0)
    if is_async:
        asyncio.run(client.close())
    else:
        client.close()
    assert http_client.is_closed
    assert client.is_closed()


@each_edge
def test_a_client_that_nobody_has_is_gone_at_once(edge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections do not wait until somebody collects garbage."""
    made: list[weakref.ref[Any]] = []
    counted = Counted(monkeypatch)
    make = _sdk._made

    def noted(sdk: Any, options: Any, http_client: Any) -> Any:
        client = make(sdk, options, http_client)
        made.extend((weakref.ref(client), weakref.ref(http_client), weakref.ref(http_client._behind)))
        return client

    monkeypatch.setattr(_sdk, "_made", noted)
    gc.collect()
    gc.disable()
    try:
        backend = edge(ClientOptions(api_key="k"))
        counted.posts(backend)
        del backend
        left = [ref() for ref in made]
    finally:
        gc.enable()

    assert (len(counted.sent), left) == (4, [None] * 3)
