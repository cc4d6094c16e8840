"""The names under which browsers may reach the server.

Owns: the checks of ``Host`` and ``Origin``. Must never know: the routes.

A page of another name can have that name point to this server (DNS rebinding). The browser then takes page
and server for one origin, and ``Host`` has the foreign name. A page of another origin that does not do so has
its name in ``Origin``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from .http import problem_response

__all__ = ["AllowedHosts", "checked_hosts", "host_check", "is_own_page"]

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
        """Answer 421 for a foreign host, 403 for a foreign origin, or pass the request on."""
        status = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
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
