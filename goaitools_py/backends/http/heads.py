"""Remembers the heads of posts: everything of a request except its bytes.

Owns: the heads, when one is sure enough to be used again, the post from which a head is learned, and when a
post may go straight to a transport.
Must never know: an SDK, a provider, how a request is sent, the meaning of the bytes.

An SDK merges layers of headers and parses the address for each post, but most posts differ only in their
bytes. So a head is kept if two posts in a row had the same head, and both were made from the same inputs
("wishes" in the code).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import timedelta
from types import FunctionType, MethodType
from typing import Any, Final, NamedTuple

import httpx2

__all__ = [
    "ClientDefaults",
    "Head",
    "Heads",
    "Limits",
    "NoTransport",
    "Post",
    "completed",
    "has_more",
    "head_of",
    "lone_transport",
    "recorded",
    "repeated",
    "running_post",
]

Limits = dict[str, float | None]
"""A request's timeouts: seconds by phase ("connect", "read", "write", "pool")."""

_FILLED_IN: Final = "(of each post)"

_KEPT: Final = 4
"""How many heads are kept. A chat has four kinds of posts: whole and streamed replies, summaries, counts."""


class Head(NamedTuple):
    """Everything of a post except its bytes, its timeouts and the cookies of the HTTP client."""

    limits: Limits
    """The timeouts of the request that it was taken from."""
    url: httpx2.URL
    headers: httpx2.Headers
    """The headers that differ from post to post have a place in here, and no value."""
    timed: tuple[str, ...]
    """The names of headers that tell how long the client waits for the next bytes."""
    extensions: dict[str, Any]
    """Options for the transport besides the timeouts."""
    how: dict[str, Any]
    """The arguments of the HTTP client's `send`."""

    def __repr__(self) -> str:
        return f"Head({self.url.host!r})"  # and no key

    def is_like(self, other: Head) -> bool:
        """True if both are the same, except for their timeouts."""
        return self[1:] == other[1:]

    def request(self, content: bytes, limits: Limits, cookies: httpx2.Cookies) -> httpx2.Request:
        """A request of these bytes with this head."""
        request = httpx2.Request(
            "POST",
            self.url,
            headers=self.headers,
            stream=httpx2.ByteStream(content),
            extensions={**self.extensions, "timeout": limits},
        )
        request.headers["Content-Length"] = str(len(content))
        for name in self.timed:
            request.headers[name] = str(limits["read"])
        request.read()
        if cookies:
            cookies.set_cookie_header(request)
        else:
            request.headers.encoding = self.headers.encoding  # otherwise it is looked for in each header
        return request


def head_of(
    request: httpx2.Request, content: bytes, cookies: httpx2.Cookies, how: Mapping[str, Any]
) -> Head | None:
    """The head of a request that is about to be sent; None if it is not a plain post of these bytes.

    Args:
        request: Made by an SDK. It is not changed, and may change later.
        content: The bytes that the SDK was called with.
        cookies: The HTTP client's cookies.
        how: The arguments of the HTTP client's `send`.
    """
    headers, extensions = httpx2.Headers(request.headers), dict(request.extensions)
    limits = extensions.pop("timeout", None)
    if (
        request.method != "POST"
        or "auth" in how  # this may be another one for each request
        or not isinstance(limits, dict)
        or headers.get("Content-Length") != str(len(content))
        or request.read() != content
    ):
        return None
    if "Cookie" in headers:
        bare = httpx2.Request("POST", request.url)
        cookies.set_cookie_header(bare)
        if headers["Cookie"] != bare.headers.get("Cookie"):
            return None
        del headers["Cookie"]
    time = str(limits["read"]).encode()
    timed = tuple(name.decode("latin-1") for name, value in headers.raw if value == time)
    for name in ("Content-Length", *timed):
        headers[name] = _FILLED_IN
    return Head(dict(limits), request.url, headers, timed, extensions, dict(how))


_PLAIN: Final = {"stream": True, "follow_redirects": False}
_LOG: Final = logging.getLogger("httpx2")


def _genuine(kind: type[Any]) -> Any:
    """The `send` of a class of `httpx2`; None if another package has replaced it, as tracers do."""
    send: Any = kind.__dict__.get("send")
    of = [getattr(getattr(one, "__code__", None), "co_filename", "") for one in (send, kind.build_request)]
    # A proxy, such as wrapt's, has each attribute of the function in it. Only its type is its own.
    return send if type(send) is FunctionType and of[0] == of[1] else None


_SENDS: Final = frozenset({_genuine(httpx2.Client), _genuine(httpx2.AsyncClient)} - {None})


def lone_transport(client: Any, head: Head) -> Any:
    """The transport of an HTTP client that would do nothing but hand a post with this head on to it.

    None if it would do more: call hooks, sign or log the request, or choose a proxy. Then the post has to go
    through its `send`. This also holds for a client that a caller made, and for a `send` that was replaced.
    """
    transport, send = getattr(client, "lone_transport", None), client.send
    if (
        transport is None
        or head.how != _PLAIN
        or client.is_closed
        or client.auth is not None
        or any(client.event_hooks.values())
        or _LOG.isEnabledFor(logging.INFO)
        or head.url.userinfo
        or type(send) is not MethodType  # a proxy has the `__func__` of the method in it; see `_genuine`
        or send.__func__ not in _SENDS
    ):
        return None
    return transport


def completed(
    client: Any, request: httpx2.Request, response: httpx2.Response, began: float
) -> httpx2.Response:
    """A transport's response, as the `send` of its client hands it out.

    `began`: the time of the request on the clock of `time.perf_counter`.
    """
    response.request = request
    if "set-cookie" in response.headers:
        client.cookies.extract_cookies(response)
    if not response.is_success:  # only then a caller may see it, behind an error
        response.elapsed = timedelta(seconds=time.perf_counter() - began)
    return response


def has_more(options: Mapping[str, Any]) -> bool:
    """True if an HTTP client with these options may have a second transport, or reads text in its own way."""
    mounts = options.get("mounts") or {}
    return any(one is not None for one in mounts.values()) or "default_encoding" in options


class _Known(NamedTuple):
    wishes: object
    head: Head
    is_sure: bool = False
    """True if two requests in a row had this head, so that nothing in it changes with each post."""
    takes_any_limits: bool = False
    """True if the two requests had different timeouts, and nothing else changed."""


class Heads:
    """The newest heads, by their wishes. Threads may share it."""

    def __init__(self) -> None:
        self._known: tuple[_Known, ...] = ()

    def __repr__(self) -> str:
        return f"Heads({[known.head for known in self._known]})"

    def find(self, wishes: object, limits: Limits) -> Head | None:
        """The head for a post with these wishes and timeouts; None if it is not sure."""
        known = self._find(wishes)
        if known is None or not known.is_sure:
            return None
        return known.head if known.takes_any_limits or known.head.limits == limits else None

    def learn(self, wishes: object, head: Head | None) -> None:
        """Note the head of a post with these wishes; None if it cannot be used again."""
        before = self._find(wishes)
        kept = [known for known in self._known if known is not before]
        if head is not None:
            if before is not None and before.head.is_like(head):
                kept.append(_Known(wishes, head, True, before.head.limits != head.limits))
            else:
                kept.append(_Known(wishes, head))
        self._known = tuple(kept[-_KEPT:])

    def _find(self, wishes: object) -> _Known | None:
        for known in self._known:
            if known.wishes == wishes:
                return known
        return None


class ClientDefaults(NamedTuple):
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


class Post:
    """One post of an SDK. A recording client sends it and notes its head, or repeats an earlier outcome."""

    __slots__ = ("content", "head", "outcome")

    def __init__(self, content: bytes, outcome: httpx2.Response | Exception | None = None) -> None:
        self.content = content
        self.outcome = outcome
        self.head: Head | None = None


running_post: ContextVar[Post | None] = ContextVar("goaitools_running_post", default=None)


@contextlib.contextmanager
def recorded(post: Post) -> Iterator[Post]:
    """A block in which the recording clients of this context see a post."""
    token = running_post.set(post)
    try:
        yield post
    finally:
        running_post.reset(token)
        post.outcome = None  # an exception would refer to itself by way of the frames that it went through


def repeated(outcome: httpx2.Response | Exception) -> httpx2.Response:
    """Return an outcome, or raise it."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class NoTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """The transport of a recording client itself. It is not used: without it `httpx2` would make a pool."""
