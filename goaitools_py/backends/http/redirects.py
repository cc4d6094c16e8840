"""Reads the target of a redirect, and decides whether a request may follow it.

Owns: statuses and origins of redirects. Must never know: an SDK, how a request is sent.

A request has a key and a conversation in it. If an HTTP client follows a redirect to another origin, it
removes only the `Authorization` header: `x-api-key`, `api-key` and the body are sent to the other server. So
no HTTP client follows redirects here. The edge looks at each one, and follows it only within the origin that
the request was made for.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import httpx2

from ..base import BackendError

__all__ = ["MAX_REDIRECTS", "Redirect", "redirect_of"]

MAX_REDIRECTS: Final = 20
"""How many redirects one request follows. HTTP clients have the same default."""

_KEEPS_METHOD: Final = frozenset({307, 308})
_STATUSES: Final = frozenset({301, 302, 303}) | _KEEPS_METHOD

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SHOWN: Final = 100
"""How many characters of a host name an error shows: the server chose that name."""


class Redirect(NamedTuple):
    """A redirect within one origin.

    Attributes:
        url: The whole address to ask next.
        is_post: True if the request is sent there as it is. Otherwise it becomes a GET without a body: 301,
            302 and 303 change the method (RFC 9110, section 15.4).
    """

    url: str
    is_post: bool


def redirect_of(response: Any) -> Redirect | None:
    """The target of a redirect; None if the answer is not a redirect.

    Args:
        response: A response of `httpx` or `httpx2` that was not followed.

    Raises:
        BackendError: It leads to another origin: scheme, host or port differ. `redirect` names both origins.
    """
    location = response.headers.get("location")
    if response.status_code not in _STATUSES or not location:
        return None
    asked = httpx2.URL(str(response.request.url))
    try:
        url = asked.join(location)
    except (httpx2.InvalidURL, ValueError):
        return None
    if _origin(asked) != _origin(url):
        here, there = _shown(asked), _shown(url)
        raise BackendError(
            f"{here} redirected the request to {there}, which is another origin; nothing was sent there",
            status=response.status_code,
            redirect=(here, there),
        )
    return Redirect(str(url), is_post=response.status_code in _KEEPS_METHOD)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


def _shown(url: httpx2.URL) -> str:
    """The origin as text. The port is left out if it is the scheme's own."""
    host = url.host[:_SHOWN]
    place = f"[{host}]" if ":" in host else host
    port = url.port
    return f"{url.scheme}://{place}" + ("" if port in (None, _DEFAULT_PORTS.get(url.scheme)) else f":{port}")
