"""Shows a URL without user name, password and parameters.

Owns: this reading of a URL, which may be malformed. Must never know: who connects to it.

A password that was not percent-encoded moves the borders between the parts of a URL: Python's parser reads
the host "" and the port "pass" in ``redis://:pass?word@host``. So a part that does not look like a host is
not shown.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HIDDEN", "is_clear", "shown_address", "shown_host"]

HIDDEN: Final = "…"
"""Replaces text that may be a part of a password."""

_HOST: Final = r"(?:\[[0-9A-Za-z:.%]+\]|[A-Za-z0-9_.%-]+)?(?::[0-9]{0,5})?"
_PLACE: Final = re.compile(rf"(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<path>(?:/[^@?#]*)?)")


def is_clear(url: str) -> bool:
    """True if all parsers find the same host in a URL. If not, a part of the password may be sent as a host
    name."""
    rest = url.partition("://")[2]
    before = _before(rest)
    signs = before.count("@")
    return _place(rest) is not None and signs <= 1 and before.partition("/")[0].count("@") == signs


def shown_address(url: str) -> str:
    """Give a URL without user name, password and parameters: scheme, host, port and path."""
    scheme, found, rest = url.partition("://")
    if not found:
        return HIDDEN
    place = _place(rest)
    return f"{scheme}://{HIDDEN if place is None else place[0]}"


def shown_host(url: str) -> str:
    """Give the host of a URL, and its port; "" if no host may be shown."""
    place = _place(url.partition("://")[2])
    return "" if place is None else place["hosts"]


def _place(rest: str) -> re.Match[str] | None:
    """Find host, port and path in the text after the scheme. None if they may hold a part of a password."""
    before = _before(rest)
    if "@" in rest and "@" not in before:
        return None
    return _PLACE.fullmatch(before.rpartition("@")[2])


def _before(rest: str) -> str:
    """Give the text before the parameters."""
    return re.split(r"[?#]", rest, maxsplit=1)[0]
