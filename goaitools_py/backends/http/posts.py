"""What an SDK's client that was made here is spared of each post, with the same request as the result.

Owns: the heads of posts, as the SDK made them before; a post's options, which are copied.
Must never know: which SDK it is, a provider, what the bytes mean.

For each post an SDK merges layers of headers and reads the address, and hands both to `httpx2`, which does so
once more: an eighth of a turn. But one post differs from the next in little but its bytes. So a head that the
SDK made twice in a row of the same wishes is kept, and the bytes are put behind it. Whoever changes a key, a
header, a timeout, an address or a cookie is heard at once: other wishes are the SDK's to fulfil.
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
    """The class of what an SDK's clients take for a request. It has no public name; None if it is gone."""
    return getattr(getattr(sdk, "_models", None), "FinalRequestOptions", None)


def quicken(client: Any, http_client: Any, post_options: Any) -> None:
    """Spare an SDK's client that was made here what it would do anew for each post.

    What a post's head was is remembered, and a post's options are copied instead of finding the default of
    each. Neither step has a public name. A client that lacks one is left as it is.

    Args:
        client: Sync or async. Nobody else may have it: a post's `content` is all that it can send.
        http_client: What it sends over. One that builds requests in a way of its own is asked for each.
        post_options: The SDK's `options_class`.
    """
    # What hangs on the client must not hold it: its connections would stay open until garbage is collected.
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
    """All of a request but its bytes, and the wishes that it was made of."""

    wishes: tuple[Any, ...]
    limits: dict[str, float | None]
    """The timeouts that it was made with."""
    url: httpx2.URL
    headers: httpx2.Headers
    """Without what goes with the bytes and the moment: their number, the time left, a server's cookies."""
    timed: tuple[str, ...]
    """The headers that say how long is waited for the next bytes."""
    is_sure: bool = False
    """It came out twice, so nothing in it is another with each post."""
    takes_any_limits: bool = False
    """It came out with other limits, and nothing else was another then."""

    def __repr__(self) -> str:
        return f"_Head({self.url.host!r}, is_sure={self.is_sure})"  # and no key

    def fits(self, limits: dict[str, float | None]) -> bool:
        """True if the request with these timeouts is known."""
        return self.is_sure and (self.takes_any_limits or self.limits == limits)

    def confirmed_by(self, made: _Head) -> bool:
        """True if the next one of the same wishes came out alike."""
        return (self.url, self.headers) == (made.url, made.headers)


_FILLED_IN: Final = "(of each post)"

_HEADS_KEPT: Final = 4
"""A chat posts whole and streamed, for a summary and for a count of tokens."""


class _Requests:
    """Stands for `_build_request` of an SDK's client."""

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
            request.headers.encoding = head.headers.encoding  # or it is found out anew, header by header
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
    """Whatever the head of a request is made of and may be another for the next post, but its timeouts."""
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
    """Whoever gave the headers may write to them."""
    return dict(headers) if isinstance(headers, Mapping) else headers


def _head(
    request: httpx2.Request,
    http_client: Any,
    options: Any,
    wishes: tuple[Any, ...],
    limits: dict[str, float | None],
) -> _Head | None:
    """What can be kept of a request; None if it is not a post of bytes to the address that was named."""
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
