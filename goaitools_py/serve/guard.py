"""Decides which requests a server accepts: hosts, origins, and for the page a token and read-only mode.

Owns: these checks, and the headers that protect the page in the browser. Must never know: the routes.

A page of another name can have that name point to this server (DNS rebinding). The browser then takes page
and server for one origin, and ``Host`` has the foreign name. A page of another origin that does not do so has
its name in ``Origin``, and can make a browser send requests to this server. So each request must name a host
of ours, and a request that changes something must come from our origin.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .http import ALIVE, READY, problem_response

__all__ = [
    "COOKIE",
    "SCRIPTS",
    "AllowedHosts",
    "Guard",
    "checked_hosts",
    "cookie_of",
    "host_check",
    "is_host",
    "is_loopback",
    "is_own_page",
]

_NAME: Final = re.compile(r"\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_HOST: Final = re.compile(rf"({_NAME.pattern})\.?(:[0-9]{{1,5}})?")
_ORIGIN: Final = re.compile(r"https?://(.+)")


def checked_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Check names of hosts. TypeError or ValueError for a value that is not a host's name."""
    if isinstance(hosts, str):
        raise TypeError("allowed_hosts must be a list of names, not one text")
    names = frozenset(hosts)
    for name in names:
        if not isinstance(name, str) or _NAME.fullmatch(name.lower()) is None:
            raise ValueError(
                "allowed_hosts holds a value that is no name: give names without scheme, port and path, such "
                "as chat.example.org, or an IPv6 address in brackets"
            )
    if not names:
        raise ValueError("allowed_hosts is empty, so every request would be refused; None checks no hosts")
    return frozenset(name.lower() for name in names)


def host_check(hosts: frozenset[str] | None) -> list[Middleware]:
    """The check as a list of one middleware; empty if `hosts` is None."""
    return [] if hosts is None else [Middleware(AllowedHosts, hosts=hosts)]


def is_own_page(headers: Headers) -> bool:
    """True unless a browser says that the request comes from another origin, or not from a page. Other
    programs send no headers about it."""
    if set(headers.getlist("sec-fetch-site")) - {"same-origin"}:
        return False
    found = [_ORIGIN.fullmatch(origin.lower()) for origin in headers.getlist("origin")]
    host = headers.get("host", "").lower()
    return all(one is not None and one[1] == host for one in found)


class AllowedHosts:
    """Accepts a request with exactly one `Host` that is in the list, if `Origin` is missing or in the list.

    Args:
        app: Gets the accepted requests.
        hosts: Names in lower case, without ports.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421 for a foreign host, 403 for a foreign origin, or pass the request on.

        Probes pass: they come to the address of a machine.
        """
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        is_checked = scope["type"] == "http" and path not in (ALIVE, READY)
        status = self._refusal(Headers(scope=scope)) if is_checked else None
        app = self._app if status is None else problem_response(HTTPException(status))
        await app(scope, receive, send)

    def _refusal(self, headers: Headers) -> int | None:
        named = headers.getlist("host")
        if len(named) != 1 or not self._is_ours(named[0]):
            return 421
        for origin in headers.getlist("origin"):
            found = _ORIGIN.fullmatch(origin.lower())
            if found is None or not self._is_ours(found[1]):
                return 403
        return None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        return found is not None and found[1] in self._hosts


# ---------------------------------------------------------------------------------------------- the page


COOKIE: Final = "goaitools_page"
_SAFE: Final = frozenset({"GET", "HEAD"})
SCRIPTS: Final = ("markdown.js", "values.js", "cards.js", "inspector.js", "page.js")
"""The page's scripts, in the order in which the page loads them."""

_OPEN: Final = frozenset({"/", "/login", ALIVE, READY, *(f"/{name}" for name in SCRIPTS)})
"""Paths that need no token: the page itself, which has no content of a conversation, and the login."""

_OWN_SITE: Final = frozenset({"same-origin", "none"})
_PAGE_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


def is_host(name: str) -> bool:
    """True for a name or an address that a ``Host`` may have, without a port."""
    found = _PAGE_HOST.fullmatch(name.lower())
    return found is not None and found[2] is None


def is_loopback(host: str) -> bool:
    """True for an address, or a name, that only this machine reaches."""
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def cookie_of(token: str) -> str:
    """The cookie of a browser that has shown the token. The token cannot be found from it."""
    return hmac.digest(token.encode(), b"goaitools page", hashlib.sha256).hex()


class Guard:
    """The checks before an ASGI application.

    Args:
        app: The application.
        hosts: Names that a request may have in ``Host``, beside localhost and addresses.
        only_loopback: The server listens on the loopback, so a request must name it.
        token: Each request must show it: as ``Authorization: Bearer``, or in the cookie of the login. None:
            no token is needed.
        read_only: Refuse all that changes a conversation, or asks a model.
        policy: The page's ``Content-Security-Policy``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str] = (),
        only_loopback: bool = True,
        token: str | None = None,
        read_only: bool = False,
        policy: str,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._only_loopback = only_loopback
        self._token = token
        self._read_only = read_only
        self._headers = {**_HEADERS, "content-security-policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        status = self._refusal(scope)
        app = self._app if status is None else problem_response(HTTPException(status))
        await app(scope, receive, protected)

    def _refusal(self, scope: Scope) -> int | None:
        """The status of a refusal; None for a request that may pass."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return 421
        if (method not in _SAFE or path not in _OPEN) and not _is_same_origin(headers, hosts[0]):
            return 403
        if path in _OPEN:
            return None
        if self._token is not None and not self._shows_token(headers, self._token):
            return 401
        return 403 if self._read_only and method not in _SAFE else None

    def _is_ours(self, host: str) -> bool:
        found = _PAGE_HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1]
        if name in self._hosts or is_loopback(name):
            return True
        return not self._only_loopback and _address(name) is not None

    @staticmethod
    def _shows_token(headers: Headers, token: str) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), token.encode())
        wanted = f"{COOKIE}={cookie_of(token)}".encode()
        return any(hmac.compare_digest(one.encode(), wanted) for one in _cookies(headers))


def _cookies(headers: Headers) -> Iterator[str]:
    """The cookies of a request, each as ``name=value``.

    Programs on other ports of the same host set cookies, too. Python's own reader ends at the first cookie
    that it does not understand, and before Python 3.13 it takes seconds for a cookie of many backslashes.
    """
    for line in headers.getlist("cookie"):
        for one in line.split(";"):
            if (cookie := one.strip()).startswith(COOKIE):
                yield cookie


def _is_same_origin(headers: Headers, host: str) -> bool:
    """True unless a browser says that another origin asks. A program that is no browser says nothing."""
    if not _OWN_SITE.issuperset(headers.getlist("sec-fetch-site")):
        return False
    ours = (f"http://{host.lower()}", f"https://{host.lower()}")
    return all(origin.lower() in ours for origin in headers.getlist("origin"))
