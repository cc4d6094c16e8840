"""A short way from a post's bytes to the HTTP client, with the request that the SDK would have made.

Owns: when the short way is taken, and the outcome that the SDK sees afterwards.
Must never know: which SDK it is, a provider, the meaning of the bytes.

An SDK's own work for each post takes an eighth of a short turn. Here the SDK's client gets a `Tap` as its
HTTP client. The tap sees each request just before it is sent. Once its head is known (`heads`), new bytes are
put behind that head, and the real HTTP client sends them: with its own cookies, hooks, authentication,
proxies and transport. A change of a header, a key, a timeout, an address or a cookie takes effect at once:
with other wishes the SDK makes the head again.

The SDK still interprets the answer. If there is no answer, or its status is not 2xx, the SDK posts
once more. Then the tap sends nothing, and returns the first outcome. So the exception is the SDK's.

All names of an SDK or of `httpx2` that are used here are public.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import httpx2

from .heads import Head, Heads, head_of

__all__ = ["AsyncLane", "AsyncTap", "Lane", "Standing", "Tap"]


# ------------------------------------------------------------------------------------------- the taps


class _Post:
    """One post of an SDK in a tap. The tap sends it and notes its head, or repeats an earlier outcome."""

    __slots__ = ("content", "head", "outcome")

    def __init__(self, content: bytes, outcome: httpx2.Response | Exception | None = None) -> None:
        self.content = content
        self.outcome = outcome
        self.head: Head | None = None


_running: ContextVar[_Post | None] = ContextVar("goaitools_running_post", default=None)


@contextlib.contextmanager
def _tapped(post: _Post) -> Iterator[_Post]:
    token = _running.set(post)
    try:
        yield post
    finally:
        _running.reset(token)
        post.outcome = None  # an exception would refer to itself by way of the frames that it went through


def _told(outcome: httpx2.Response | Exception) -> httpx2.Response:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class _Nowhere(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """The transport of a tap itself. It is not used: without it `httpx2` would make a pool."""


class Tap(httpx2.Client):
    """An HTTP client for an SDK. It sees each request, and another client does the work.

    Args:
        http_client: The client that does the work.
    """

    def __init__(self, http_client: httpx2.Client) -> None:
        super().__init__(transport=_Nowhere(), timeout=http_client.timeout, trust_env=False)
        self._behind = http_client

    def build_request(self, *args: Any, **given: Any) -> httpx2.Request:
        """Built by the other client, with its headers, cookies and parameters."""
        return self._behind.build_request(*args, **given)

    def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Sent by the other client, unless an outcome is there already."""
        if (post := _running.get()) is not None:
            if post.outcome is not None:
                return _told(post.outcome)
            post.head = head_of(request, post.content, self._behind.cookies, how)
        return self._behind.send(request, **how)

    def close(self) -> None:
        """Close the other client, too."""
        self._behind.close()
        super().close()


class AsyncTap(httpx2.AsyncClient):
    """As `Tap`, awaited."""

    def __init__(self, http_client: httpx2.AsyncClient) -> None:
        super().__init__(transport=_Nowhere(), timeout=http_client.timeout, trust_env=False)
        self._behind = http_client

    def build_request(self, *args: Any, **given: Any) -> httpx2.Request:
        """As `Tap.build_request`."""
        return self._behind.build_request(*args, **given)

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """As `Tap.send`, awaited."""
        if (post := _running.get()) is not None:
            if post.outcome is not None:
                return _told(post.outcome)
            post.head = head_of(request, post.content, self._behind.cookies, how)
        return await self._behind.send(request, **how)

    async def aclose(self) -> None:
        """Close the other client, too."""
        await self._behind.aclose()
        await super().aclose()


# ------------------------------------------------------------------------------------------ the lanes


class Standing(NamedTuple):
    """Values that an SDK's client adds to each post. Its caller may change them."""

    headers: Mapping[str, Any] | None
    query: Mapping[str, Any] | None
    log: logging.Logger
    """The SDK's logger. At level DEBUG it logs each request, so the SDK must make each one itself."""

    def wishes(self, path: str, options: Mapping[str, Any], http_client: Any) -> object | None:
        """All inputs of a head that may change; None if the SDK has to make this post."""
        if self.log.isEnabledFor(logging.DEBUG):
            return None
        return (
            path,
            # Copies, because the owners of the mappings may write to them.
            {**options, "timeout": None, "headers": dict(options["headers"])},
            None if self.headers is None else dict(self.headers),
            None if self.query is None else copy.deepcopy(dict(self.query)),
            http_client.headers.raw,
            http_client.params,
        )


class Lane:
    """The `post` of an SDK's client, made cheaper.

    Args:
        client: The SDK's client, over a `Tap` of `http_client`.
        http_client: It builds requests as `httpx2` does.
        standing: The values that the client adds to each post.
    """

    def __init__(self, client: Any, http_client: httpx2.Client, standing: Standing) -> None:
        self._client = client
        self._http_client = http_client
        self._standing = standing
        self._heads = Heads()

    def post(self, path: str, *, content: bytes, cast_to: Any, options: Mapping[str, Any]) -> Any:
        """As the client's `post`, with a whole address as `path`, and an `httpx2.Timeout` in the options."""
        http_client, limits = self._http_client, options["timeout"].as_dict()
        wishes = self._standing.wishes(path, options, http_client)
        if wishes is None:
            return self._client.post(path, content=content, cast_to=cast_to, options=options)
        head = self._heads.find(wishes, limits)
        if head is None:
            with _tapped(_Post(content)) as post:
                try:
                    return self._client.post(path, content=content, cast_to=cast_to, options=options)
                finally:
                    self._heads.learn(wishes, post.head)
        request = head.request(content, limits, http_client.cookies)
        try:
            outcome: httpx2.Response | Exception = http_client.send(request, **head.how)
        except Exception as error:
            outcome = error
        if isinstance(outcome, httpx2.Response) and outcome.is_success:
            return outcome
        try:
            with _tapped(_Post(content, outcome)):
                return self._client.post(path, content=content, cast_to=cast_to, options=options)
        finally:
            del outcome


class AsyncLane:
    """As `Lane`, awaited; over an `AsyncTap`."""

    def __init__(self, client: Any, http_client: httpx2.AsyncClient, standing: Standing) -> None:
        self._client = client
        self._http_client = http_client
        self._standing = standing
        self._heads = Heads()

    async def post(self, path: str, *, content: bytes, cast_to: Any, options: Mapping[str, Any]) -> Any:
        """As `Lane.post`, awaited."""
        http_client, limits = self._http_client, options["timeout"].as_dict()
        wishes = self._standing.wishes(path, options, http_client)
        if wishes is None:
            return await self._client.post(path, content=content, cast_to=cast_to, options=options)
        head = self._heads.find(wishes, limits)
        if head is None:
            with _tapped(_Post(content)) as post:
                try:
                    return await self._client.post(path, content=content, cast_to=cast_to, options=options)
                finally:
                    self._heads.learn(wishes, post.head)
        request = head.request(content, limits, http_client.cookies)
        try:
            outcome: httpx2.Response | Exception = await http_client.send(request, **head.how)
        except Exception as error:
            outcome = error
        if isinstance(outcome, httpx2.Response) and outcome.is_success:
            return outcome
        try:
            with _tapped(_Post(content, outcome)):
                return await self._client.post(path, content=content, cast_to=cast_to, options=options)
        finally:
            del outcome
