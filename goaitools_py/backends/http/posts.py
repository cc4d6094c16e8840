"""What clients of this package's own making are spared of each post, with the same request as the result.

Owns: the request of a plain post, made in one pass; addresses that were read once; options that are copied.
Must never know: which SDK it is, a provider, what the bytes mean.

An SDK hands its HTTP client all that a request needs: the whole address, the headers, the body as bytes. For
any case that there could be, `httpx2` then reads the address again and merges the headers name by name. Of a
turn that costs a tenth, so what is nothing but such a post is put together here. What an SDK itself does anew
for each post is another tenth: see `quicken`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import httpx2

__all__ = ["PlainPosts", "options_class", "quicken"]

_GIVEN: Final = frozenset(("content", "files", "headers", "params", "timeout"))
_FRAMING: Final = frozenset((b"host", b"content-length", b"transfer-encoding"))


@lru_cache(maxsize=256)
def _known(url: str) -> httpx2.URL:
    """The address, read once: each wire of a client has one. Nobody can change an `httpx2.URL`."""
    return httpx2.URL(url)


def options_class(sdk: ModuleType) -> Any:
    """The class of what an SDK's clients take for a request. It has no public name; None if it is gone."""
    return getattr(getattr(sdk, "_models", None), "FinalRequestOptions", None)


def quicken(client: Any, post_options: Any) -> None:
    """Spare an SDK's client that was made here what it would do anew for each post.

    It reads a whole address once, and a post's options are copied instead of finding the default of each.
    Neither step has a public name. A client that lacks one is left as it is.

    Args:
        client: Sync or async. Nobody else may have it: a post's `content` is all that it can send.
        post_options: The SDK's `options_class`.
    """
    # What hangs on the client must not hold it: its connections would stay open until garbage is collected.
    me = weakref.ref(client)
    read: Callable[[Any, str], httpx2.URL] | None = getattr(type(client), "_prepare_url", None)
    if read is not None:
        client._prepare_url = lambda url: read(me(), url) if _known(url).is_relative_url else _known(url)
    if post_options is not None:
        bare = post_options.construct(method="post", url="")

        def post(path: str, *, content: bytes, cast_to: type[Any], options: Mapping[str, Any]) -> Any:
            sender: Any = me()
            given = {"url": path, "content": content, **options}
            return sender.request(cast_to, bare.model_copy(update=given))

        client.post = post


class PlainPosts:
    """Before an HTTP client among the bases of a class: such a client makes plain posts in one pass."""

    def build_request(self, method: str, url: httpx2.URL | str, **given: Any) -> httpx2.Request:
        """As any client's."""
        request = _plain_post(self, method, url, given)  # type: ignore[arg-type]
        return super().build_request(method, url, **given) if request is None else request  # type: ignore[misc]


def _plain_post(
    client: httpx2.Client | httpx2.AsyncClient, method: str, url: httpx2.URL | str, given: Mapping[str, Any]
) -> httpx2.Request | None:
    """What `httpx2` makes of a post of bytes to a whole address, its body read; None for anything else."""
    content, headers = given.get("content"), _pairs(given.get("headers"))
    address = _known(url) if isinstance(url, str) else url
    if (
        method.upper() != "POST"
        or not content
        or not isinstance(content, bytes)
        or not headers
        or not given.keys() <= _GIVEN
        or given.get("files")
        or given.get("params")
        or client.params
        or address.is_relative_url
    ):
        return None
    names = {name.lower() for name, _ in headers}
    if not names.isdisjoint(_FRAMING):
        return None
    standing = [(name, value) for name, value in client.headers.raw if name.lower() not in names]
    request = httpx2.Request(
        "POST",
        address,
        headers=[
            (b"Host", address.netloc),
            *standing,
            *headers,
            (b"Content-Length", str(len(content)).encode()),
        ],
        stream=httpx2.ByteStream(content),
        extensions={"timeout": _timeout(client, given).as_dict()},
    )
    request.read()
    if client.cookies:
        client.cookies.set_cookie_header(request)
    return request


def _pairs(headers: object) -> list[tuple[bytes, bytes]]:
    """The headers of either SDK: one lists them, one has them as `httpx2.Headers`. None of any other."""
    if isinstance(headers, httpx2.Headers):
        return headers.raw
    if isinstance(headers, list) and headers and isinstance(headers[0][0], str):
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
    return []


def _timeout(client: httpx2.Client | httpx2.AsyncClient, given: Mapping[str, Any]) -> httpx2.Timeout:
    if "timeout" not in given:
        return client.timeout
    timeout = given["timeout"]
    return timeout if isinstance(timeout, httpx2.Timeout) else httpx2.Timeout(timeout)
