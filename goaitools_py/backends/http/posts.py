"""Makes posts cheaper than an SDK does, with the same request as the result.

Owns: the heads of posts, kept as the SDK made them; the options of a post, copied from earlier ones.
Must never know: which SDK it is, a provider, what the bytes mean.

For each post an SDK merges layers of headers and parses the address. It hands both to `httpx2`, which does
the same again. This takes an eighth of a turn. But posts differ in little except their bytes. So a head is
kept if the SDK made it twice in a row from the same inputs ("wishes" in the code), and new bytes are put
behind it. A change of a key, a header, a timeout, an address or a cookie takes effect at once: with other
wishes the SDK makes the head again.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple

import httpx2

__all__ = ["options_class", "quicken"]


def options_class(sdk: ModuleType) -> Any:
    """The class of the options that an SDK's clients take for a request. It has no public name; None if a
    later SDK has none under this name."""
    return getattr(getattr(sdk, "_models", None), "FinalRequestOptions", None)


def quicken(client: Any, http_client: Any, post_options: Any) -> None:
    """Make the posts of an SDK's client cheaper. The client must have been made by this package.

    Two steps are replaced: a post's head is remembered, and a post's options are copied, so that the default
    of each is not looked up again. The SDK has no public names for these steps. A client that lacks one of
    them is left as it is.

    Args:
        client: Sync or async. No other code may use it: afterwards it can only post a `content`.
        http_client: The HTTP client under it. If that builds requests in a way of its own, it builds each.
        post_options: The SDK's `options_class`.
    """
    # The client must not refer to itself: its connections would stay open until the garbage collector runs.
    me = weakref.ref(client)
    if post_options is not None:
        bare = post_options.construct(method="post", url="")

        def post(path: str, *, content: bytes, cast_to: type[Any], options: Mapping[str, Any]) -> Any:
            sender: Any = me()
            given = {"url": path, "content": content, **options}
            return sender.request(cast_to, bare.model_copy(update=given))

        client.post = post
    build = getattr(type(client), "_build_request", None)
    if build is not None and _is_httpx2s(getattr(http_client, "build_request", None)):
        client._build_request = _Requests(me, build, http_client)


def _is_httpx2s(method: object) -> bool:
    return getattr(method, "__func__", None) is httpx2.Client.build_request


class _Head(NamedTuple):
    """Everything of a request except its bytes, and the wishes that it was made from."""

    wishes: tuple[Any, ...]
    limits: dict[str, float | None]
    """The timeouts that it was made with, in seconds."""
    url: httpx2.URL
    headers: httpx2.Headers
    """Without the headers that differ from post to post: the number of bytes, the time left, cookies."""
    timed: tuple[str, ...]
    """The names of headers that tell how long the client waits for the next bytes."""
    is_sure: bool = False
    """True if the SDK made it twice, so that nothing in it changes with each post."""
    takes_any_limits: bool = False
    """True if the SDK made it with other timeouts, and nothing else changed."""

    def __repr__(self) -> str:
        return f"_Head({self.url.host!r}, is_sure={self.is_sure})"  # and no key

    def fits(self, limits: dict[str, float | None]) -> bool:
        """True if the head for a request with these timeouts is known."""
        return self.is_sure and (self.takes_any_limits or self.limits == limits)

    def confirmed_by(self, made: _Head) -> bool:
        """True if the next head from the same wishes is the same."""
        return (self.url, self.headers) == (made.url, made.headers)


_FILLED_IN: Final = "(of each post)"

_HEADS_KEPT: Final = 4
"""How many heads are kept. A chat has four kinds of posts: whole and streamed replies, summaries, counts."""


class _Requests:
    """Takes the place of `_build_request` of an SDK's client."""

    def __init__(
        self, client: Callable[[], Any], build: Callable[..., httpx2.Request], http_client: Any
    ) -> None:
        self._client = client
        self._build = build
        self._http_client = http_client
        self._heads: tuple[_Head, ...] = ()
        self._log = logging.getLogger(build.__module__)

    def __call__(self, options: Any, **more: Any) -> httpx2.Request:
        """The request for the SDK's options, as the SDK would build it."""
        client, http_client = self._client(), self._http_client
        content, timeout = options.content, options.timeout
        if not isinstance(timeout, httpx2.Timeout) or self._log.isEnabledFor(logging.DEBUG):
            return self._build(client, options, **more)
        limits, wishes = timeout.as_dict(), _wishes(client, http_client, options, more)
        head = self._known(wishes)
        if head is None or not head.fits(limits):
            request = self._build(client, options, **more)
            self._learn(head, _head(request, http_client, options, wishes, limits))
            return request
        request = httpx2.Request(
            "POST",
            head.url,
            headers=head.headers,
            stream=httpx2.ByteStream(content),
            extensions={"timeout": limits},
        )
        request.headers["Content-Length"] = str(len(content))
        for name in head.timed:
            request.headers[name] = str(timeout.read)
        request.read()
        if http_client.cookies:
            http_client.cookies.set_cookie_header(request)
        else:
            request.headers.encoding = head.headers.encoding  # otherwise it is looked for in each header
        return request

    def _known(self, wishes: tuple[Any, ...]) -> _Head | None:
        for head in self._heads:
            if head.wishes == wishes:
                return head
        return None

    def _learn(self, known: _Head | None, made: _Head | None) -> None:
        heads = [head for head in self._heads if head is not known]
        if made is not None and known is not None and known.confirmed_by(made):
            made = made._replace(is_sure=True, takes_any_limits=known.limits != made.limits)
        if made is not None:
            heads.append(made)
        self._heads = tuple(heads[-_HEADS_KEPT:])


def _wishes(client: Any, http_client: Any, options: Any, more: Mapping[str, Any]) -> tuple[Any, ...]:
    """Everything that the head of a request is made from and that may change, except the timeouts."""
    fields = dict(vars(options))
    del fields["content"], fields["timeout"]
    return (
        {**fields, "headers": _copied(fields.get("headers"))},
        more,
        client.auth_headers,
        _copied(getattr(client, "_custom_headers", None)),
        http_client.headers.raw,
        http_client.params,
    )


def _copied(headers: object) -> object:
    """A copy, because the owner of the headers may write to them."""
    return dict(headers) if isinstance(headers, Mapping) else headers


def _head(
    request: httpx2.Request,
    http_client: Any,
    options: Any,
    wishes: tuple[Any, ...],
    limits: dict[str, float | None],
) -> _Head | None:
    """The part of a request that can be kept; None if it is no post of bytes to the address that was
    named."""
    headers, content = httpx2.Headers(request.headers), options.content
    if (
        request.method != "POST"
        or str(request.url) != options.url
        or not isinstance(content, bytes)
        or headers.get("Content-Length") != str(len(content))
        or request.extensions != {"timeout": limits}
    ):
        return None
    if "Cookie" in headers:
        bare = httpx2.Request("POST", request.url)
        http_client.cookies.set_cookie_header(bare)
        if headers["Cookie"] != bare.headers.get("Cookie"):
            return None
        del headers["Cookie"]
    time = str(limits["read"]).encode()
    timed = tuple(name.decode("latin-1") for name, value in headers.raw if value == time)
    for name in ("Content-Length", *timed):
        headers[name] = _FILLED_IN
    return _Head(wishes, limits, request.url, headers, timed)
