"""Shows texts from outside to a person: rows of a conversation, and URLs without their secrets.

Owns: how rows are written as plain text and as HTML so that no text in them has an effect, and the reading of
a URL, which may be malformed. Must never know: a message, a state, or who connects to a URL.

`print(result)` and a log show no content. `show()` and a notebook's cell do, because a person asks for it.

A password that was not percent-encoded moves the borders between the parts of a URL: Python's parser reads
the host "" and the port "pass" in ``redis://:pass?word@host``. So a part that does not look like a host is
not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TextIO

from .values import Value

__all__ = [
    "HIDDEN",
    "ShownText",
    "as_html",
    "as_text",
    "is_clear",
    "print_rows",
    "shown_address",
    "shown_host",
]

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


_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that could control a terminal or reverse a text, and halves of characters."""


class ShownText(Value, frozen=True):
    """One labelled text. Without a `text` it is a heading."""

    _unshown = frozenset({"text"})

    label: str
    text: str = ""


def as_text(rows: Iterable[ShownText]) -> str:
    """The rows as plain text. Each further line of a row is indented, so that no text looks like a label."""
    lines = []
    for row in rows:
        text = _harmless(row.text).replace("\n", "\n    ")
        lines.append(f"{_harmless(row.label)}: {text}" if row.text else _harmless(row.label))
    return "\n".join(lines)


def as_html(rows: Iterable[ShownText]) -> str:
    """The rows as a piece of HTML, without scripts, links or classes."""
    import html  # its table of entities takes a millisecond

    made = []
    for row in rows:
        label = html.escape(_harmless(row.label))
        if not row.text:
            made.append(f'<div style="margin-top:.6em"><b>{label}</b></div>')
            continue
        text = html.escape(_harmless(row.text))
        made.append(f'<div style="white-space:pre-wrap"><b>{label}</b>: {text}</div>')
    return f'<div style="text-align:left">{"".join(made)}</div>'


def print_rows(rows: Iterable[ShownText], file: TextIO | None) -> None:
    """Print the rows as plain text; to standard output if `file` is None."""
    print(as_text(rows), file=file)


def _harmless(text: str) -> str:
    return re.sub(_CONTROL, "\ufffd", text.replace("\r\n", "\n"))
