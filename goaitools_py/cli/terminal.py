"""Text for a terminal: safe characters, aligned columns, readable numbers.

Owns: the layout of text in 80 columns. Must never know: the meaning of the text.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

__all__ = ["WIDTH", "columns", "counted", "printable"]

WIDTH = 80
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with visible escapes for control characters, because a message must not control the terminal.

    Line breaks and tabs stay. Marks that reverse the reading direction and lone surrogates do not.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def columns(label: str, text: str, *, width: int, indent: int = 2) -> Iterator[str]:
    """Lines with `label` in a left column of `width` characters and the wrapped text beside it."""
    left = " " * indent + label.ljust(width)
    for paragraph in printable(text).split("\n"):
        for line in textwrap.wrap(paragraph, WIDTH - indent - width, break_on_hyphens=False) or [""]:
            yield (left + line).rstrip()
            left = " " * (indent + width)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 message", "1,204 messages"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
