"""Message content for the person who asks for it: as plain text, and as HTML for a notebook.

Owns: `Row`, and how rows are written so that no text in them has an effect. Must never know: a state, a turn.

`print(result)` and a log show no content. `show()` and a notebook's cell do, because a person asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

from ..base.values import Value
from .messages import Message, Text

__all__ = ["Row", "as_html", "as_text", "message_rows", "print_rows"]

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that could control a terminal or reverse a text, and halves of characters."""


class Row(Value, frozen=True):
    """One labelled text. Without a `text` it is a heading."""

    _unshown = frozenset({"text"})

    label: str
    text: str = ""


def message_rows(message: Message) -> Iterator[Row]:
    """A message: its text, its other parts by type and size, its calls. Results stand with their calls, and
    are not among these rows."""
    if message.role != "tool":
        name = "event" if message.is_event else message.role
        label = f"{name} ({message.speaker})" if message.speaker else name
        parts = [
            f"[{type(part).__name__.lower()}, {part.media_type}"
            + ("" if part.data is None else f", {len(part.data)} bytes")
            + "]"
            for part in message.parts
            if not isinstance(part, Text)
        ]
        if shown := "\n".join(filter(None, (message.said, *parts))):
            yield Row(label, shown)


def as_text(rows: Iterable[Row]) -> str:
    """The rows as plain text. Each further line of a row is indented, so that no text looks like a label."""
    lines = []
    for row in rows:
        text = _harmless(row.text).replace("\n", "\n    ")
        lines.append(f"{_harmless(row.label)}: {text}" if row.text else _harmless(row.label))
    return "\n".join(lines)


def as_html(rows: Iterable[Row]) -> str:
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


def print_rows(rows: Iterable[Row], file: TextIO | None) -> None:
    """Print the rows as plain text; to standard output if `file` is None."""
    print(as_text(rows), file=file)


def _harmless(text: str) -> str:
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))
