"""What a backend sends and hands back is what the plain SDK sends and hands back, in random configurations.

Both sides get equal clients, the same posts, and the same answers of a server on the loopback. A seed that
fails is in the name of its case.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from goaitools_py import backends
from goaitools_py.backends import BackendError, async_http_client
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.http.async_transport import bridge_async
from goaitools_py.backends.http.exchange import bounded_timeout
from goaitools_py.backends.http.transport import bridge

from ._wire_world import Arrived, Configuration, Post, Wire, configuration, wire

SHORT = range(16)
LONG = range(200)

PATHS = {"openai": "/chat/completions", "openai-responses": "/responses", "anthropic": "/v1/messages"}
BACKENDS = {"openai": "OpenAIChat", "openai-responses": "OpenAIResponses", "anthropic": "Anthropic"}


@pytest.fixture(scope="module")
def world() -> Iterator[Wire]:
    with wire() as found:
        yield found


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


# ----------------------------------------------------------------------------------------- the two sides


class Side:
    """One set of clients in one configuration, and what it handed back."""

    def __init__(self, world: Wire, how: Configuration) -> None:
        self.world, self.how = world, how
        self.outcomes: list[object] = []
        self.keys = iter(f"turning-{number}" for number in range(1000))
        self.hooks: list[str] = []
        self.options = {name: _timeout(value) for name, value in how.options.items()}
        if "default_headers" in self.options:
            self.options["default_headers"] = dict(self.options["default_headers"])
        self.http: Any = None if how.kind in ("own", "client", "http") else self._http_client()
        host = f"127.0.0.1:{world.port}" if how.way == "direct" else "model.test"
        self.base_url = f"http://{host}{how.path}"
        self.count = 0

    def _http_client(self) -> Any:
        how, options = self.how, dict(self.how.http_options)
        module: Any = httpx if how.kind == "classic" else httpx2
        if how.way == "proxy":
            name = "" if how.kind == "aiohttp" else "user:pass@"  # there the SDKs use a deprecated class
            options["proxy"] = f"http://{name}127.0.0.1:{self.world.proxy_port}"
        hooks: dict[str, list[Any]] = {"request": [], "response": []}
        for word in how.hooks:
            hooks["response" if word == "response" else "request"].append(self._hook(word))
        options["event_hooks"] = hooks
        if how.auth:
            options["auth"] = ("user", "pass") if how.auth == "basic" else _signing(module)
        if how.kind == "aiohttp":
            return async_http_client(**options)
        return (module.AsyncClient if how.is_async else module.Client)(**options)

    def _hook(self, word: str) -> Any:
        def hook(message: Any) -> None:
            self.hooks.append(f"{word} {message.headers.get('content-type')}")
            if word == "counting":
                self.count += 1
                message.headers["X-Count"] = str(self.count) + message.headers.get("X-Count", "")
            elif word == "request":
                message.headers["X-Hook"] = "seen"

        async def awaited(message: Any) -> None:
            hook(message)

        return awaited if self.how.is_async else hook

    def key(self) -> Any:
        """The key, or the function that gives it."""
        if not self.how.has_turning_key:
            return None if "auth_token" in self.how.options else "key-1"
        if not self.how.is_async:
            return self.keys.__next__

        async def turning() -> str:
            return next(self.keys)

        return turning

    def client(self, http_client: Any) -> Any:
        """A client of the SDK; `http_client` is None for the SDK's own."""
        how = self.how
        package = anthropic if how.api == "anthropic" else openai
        name = "Anthropic" if how.api == "anthropic" else "OpenAI"
        given = {"base_url": self.base_url, **self.options}
        if (key := self.key()) is not None:
            given["api_key"] = key
        if http_client is not None:
            given["http_client"] = http_client
        return getattr(package, ("Async" if how.is_async else "") + name)(**given)

    def change(self, word: str) -> None:
        """Do what the owner of the clients may do between two posts."""
        http_client = self.http
        if word == "default header" and "default_headers" in self.options:
            self.options["default_headers"]["X-Tenant"] = "changed"
        if http_client is None:
            return
        if word == "http header":
            http_client.headers["X-Standing"] = "changed"
        elif word == "params":
            http_client.params = {"page": "3"}
        elif word == "cookie":
            http_client.cookies.set("late", "2")
        elif word == "no cookies":
            http_client.cookies.clear()
        elif word == "hook":
            http_client.event_hooks["request"].append(self._hook("request"))

    async def run(self) -> None:
        try:
            for post in self.how.posts:
                self.change(post.change)
                self.outcomes.append(await self.outcome(post))
        finally:
            await self.close()

    async def outcome(self, post: Post) -> object:
        raise NotImplementedError

    async def close(self) -> None:
        if self.http is not None:
            await _awaited(self.http.aclose() if self.how.is_async else self.http.close())


class Plain(Side):
    """The SDK by itself. It follows redirects with its HTTP client, and does not retry."""

    def __init__(self, world: Wire, how: Configuration) -> None:
        super().__init__(world, how)
        http_client = self.http
        if how.kind == "classic":
            http_client = (bridge_async if how.is_async else bridge)(self.http)
        if how.kind == "http":
            package: Any = anthropic if how.api == "anthropic" else openai
            http_client = package.DefaultAioHttpClient(trust_env=how.way == "environment")
        self.sdk = self.client(http_client)

    async def outcome(self, post: Post) -> object:
        accept = {"Accept": "text/event-stream"} if post.is_streamed else {}
        headers = {"Content-Type": "application/json", **accept, **dict(post.headers)}
        if self.how.api == "anthropic" and "auth_token" not in self.how.options:
            headers["x-api-key"] = "key-1"  # for servers that know only this header
        options: dict[str, Any] = {
            "headers": {**headers, "X-Stainless-Raw-Response": "stream"},
            "max_retries": 0,
            "follow_redirects": True,
        }
        if post.timeout is not None or self.how.kind != "client":
            options["timeout"] = bounded_timeout(self.sdk.timeout, post.timeout)
        try:
            response = await _awaited(
                self.sdk.post(
                    PATHS[self.how.api], content=post.body, cast_to=httpx2.Response, options=options
                )
            )
            body = response.aread() if self.how.is_async else response.read()
            return "answer", response.status_code, _stable(response.headers), await _awaited(body)
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            answer = error.response
            return "status", type(error), answer.status_code, _stable(answer.headers), answer.content
        except (openai.APIConnectionError, anthropic.APIConnectionError) as error:
            return "lost", type(error), type(error.__cause__)
        except (httpx2.HTTPError, httpx.HTTPError):
            return "broke off"

    async def close(self) -> None:
        await _awaited(self.sdk.close())
        await super().close()


class Ours(Side):
    """A backend of this package."""

    def __init__(self, world: Wire, how: Configuration) -> None:
        super().__init__(world, how)
        make = getattr(backends, ("Async" if how.is_async else "") + BACKENDS[how.api] + "Backend")
        self.sdk = self.client(None) if how.kind == "client" else None
        if self.sdk is not None:
            self.backend = make("m", client=self.sdk)
            return
        given = {"base_url": self.base_url, **self.options}
        if (key := self.key()) is not None:
            given["api_key"] = key
        http = "aiohttp" if how.kind == "http" else None
        self.backend = make("m", http_client=self.http, http=http, **given)

    async def outcome(self, post: Post) -> object:
        request = ModelRequest(
            path=PATHS[self.how.api],
            body=post.body,
            headers=dict(post.headers),
            stream=post.is_streamed,
            timeout=post.timeout,
        )
        body = b""
        try:
            if self.how.is_async:
                exchange: Any = await self.backend.asend(request)
            else:
                exchange = self.backend.send(request)
        except BackendError as error:
            return _meaning(error)
        try:
            while chunk := await _awaited(exchange.read()):
                body += chunk
        except BackendError:
            return "broke off"
        finally:
            await _awaited(exchange.aclose() if self.how.is_async else exchange.close())
        return "answer", exchange.head.status, _stable(exchange.head.headers), body

    async def close(self) -> None:
        await _awaited(self.backend.aclose() if self.how.is_async else self.backend.close())
        if self.sdk is not None:
            await _awaited(self.sdk.close())
        await super().close()


def _meaning(error: BackendError) -> object:
    """The outcome that a `BackendError` stands for."""
    found: Any = error.sdk_error
    if error.status is not None and isinstance(found, (openai.APIStatusError, anthropic.APIStatusError)):
        assert error.status == found.response.status_code
        return "status", type(found), error.status, _stable(error.headers), error.body
    if isinstance(found, (openai.APIConnectionError, anthropic.APIConnectionError)):
        return "lost", type(found), type(found.__cause__)
    return "broke off"


def _stable(headers: Any) -> list[tuple[str, str]]:
    return sorted((name.lower(), value) for name, value in headers.items())


def _timeout(value: Any) -> Any:
    return httpx2.Timeout(value[1], connect=value[2]) if isinstance(value, tuple) else value


def _signing(module: Any) -> Any:
    class Signing(module.Auth):  # type: ignore[misc]
        requires_request_body = True

        def auth_flow(self, request: Any) -> Any:
            request.headers["X-Signature"] = str(sum(request.content))
            yield request

    return Signing()


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


# ------------------------------------------------------------------------------------------- the tests


def compare(world: Wire, how: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both sides post, and compare what arrived and what they handed back."""
    print(f"{how}, {len(how.posts)} posts")
    for post in how.posts:
        print(post)
    if how.way == "environment":
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{world.proxy_port}")
    answers = [answer for post in how.posts for answer in post.answers]
    sides: list[Side] = []
    arrived = []
    make: Callable[..., Side]
    for make in (Plain, Ours):
        world.starts(answers)
        sides.append(make(world, how))
        asyncio.run(sides[-1].run())
        arrived.append([_comparable(request) for request in world.arrived])
    plain, ours = sides
    assert len(arrived[0]) == len(answers)
    for mine, theirs in zip(arrived[1], arrived[0], strict=True):
        assert mine["line"] == theirs["line"]
        only = [
            set(these["headers"]) - set(those["headers"]) for these, those in ((mine, theirs), (theirs, mine))
        ]
        assert only == [set(), set()]
        assert mine == theirs
    assert ours.outcomes == plain.outcomes
    assert ours.hooks == plain.hooks


def _comparable(request: Arrived) -> dict[str, Any]:
    body = (len(request.body), sum(request.body))  # a body of 70 KB would fill the screen
    return {
        "line": (request.at, request.method, request.target),
        "headers": sorted(header for header in request.headers if not _is_left_over(request, header[0])),
        "body": body,
    }


def _is_left_over(request: Arrived, name: str) -> bool:
    """True for the type of a body that is not there: `httpx2` leaves it in a redirected GET."""
    return request.method == "GET" and name.lower() == "content-type"


@pytest.mark.parametrize("seed", SHORT)
def test_the_wire_is_that_of_the_sdk(seed: int, world: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few configurations, for the edit loop."""
    compare(world, configuration(seed), monkeypatch)


@pytest.mark.parametrize("seed", LONG)
def test_the_wire_is_that_of_the_sdk_in_200_configurations(
    seed: int, world: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many: every kind of client with every option, some time."""
    compare(world, configuration(1000 + seed), monkeypatch)


@pytest.mark.parametrize("seed", SHORT)
def test_the_wire_over_aiohttp_is_that_of_the_sdk(
    seed: int, world: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(world, configuration(2000 + seed, over_aiohttp=True), monkeypatch)


@pytest.mark.parametrize("seed", LONG)
def test_the_wire_over_aiohttp_is_that_of_the_sdk_in_200_configurations(
    seed: int, world: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a client by `async_http_client`, and by ``http="aiohttp"``."""
    compare(world, configuration(3000 + seed, over_aiohttp=True), monkeypatch)
