"""The output of commands in 80 columns: safe characters, facts, new states, and a progress bar.

Owns: `--json`, `--out`, the form of a report, and the layout of text on a terminal. Must never know: the
meaning of the facts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from .source import Source

__all__ = [
    "WIDTH",
    "Progress",
    "add_json",
    "add_out",
    "columns",
    "counted",
    "printable",
    "put",
    "refuse_existing",
    "show_json",
    "tell",
]

WIDTH = 80
_LINES_OF_A_WORD: Final = 50
"""After how many lines a longer word is wrapped as another one."""
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with visible escapes for control characters, because a message must not control the terminal.

    Line breaks and tabs stay. Marks that reverse the reading direction and lone surrogates do not.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def columns(label: str, text: str, *, width: int, indent: int = 2) -> Iterator[str]:
    """Lines with `label` in a left column of `width` characters and the wrapped text beside it."""
    left = " " * indent + label.ljust(width)
    room = WIDTH - indent - width
    # `textwrap` copies the rest of a long word for each line of it: a word of a megabyte would take a minute.
    long_word = re.compile(rf"\S{{{_LINES_OF_A_WORD * room}}}(?=\S)")
    for paragraph in printable(text).split("\n"):
        for piece in long_word.sub("\\g<0>\0", paragraph).split("\0"):
            for line in textwrap.wrap(piece, room, break_on_hyphens=False) or [""]:
                yield (left + line).rstrip()
                left = " " * (indent + width)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 message", "1,204 messages"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_LABEL_WIDTH: Final = 21


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for machine-readable output."""
    parser.add_argument("--json", action="store_true", help="machine-readable")


def add_out(parser: argparse.ArgumentParser, *, otherwise: str) -> None:
    """Add the option that names the file for a result. `otherwise`: where it goes without it."""
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help=f"write it to this file; - for standard output (default: {otherwise})",
    )


def show_json(value: Any) -> None:
    """Print JSON-able values."""
    print(json.dumps(value, indent=2))


def tell(args: argparse.Namespace, facts: Mapping[str, Any], *, aside: bool = False) -> None:
    """Print a report. JSON has the names of facts as they are; a line shows them with spaces.

    `aside`: print to standard error, because standard output has the result itself.
    """
    stream = sys.stderr if aside else sys.stdout
    if args.json:
        print(json.dumps(dict(facts), indent=2), file=stream)
        return
    for name, value in facts.items():
        if value is None or value == "":
            continue
        for line in columns(name.replace("_", " "), shown(value), width=_LABEL_WIDTH):
            print(line, file=stream)


def shown(value: Any) -> str:
    """A fact as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    return str(value)


def put(args: argparse.Namespace, source: Source, new: bytes) -> str:
    """Write a new state to `--out`, or in the place of the old one. Gives the name of that place."""
    from .source import write_file

    if args.out is None:
        source.replace(new)
        return source.place
    write_file(args.out, new)
    return "standard output" if args.out == "-" else str(args.out)


def refuse_existing(path: str) -> None:
    """Raise `GoAIToolsError` if there is a file: a command makes a new one and does not know the old one. A
    device or a pipe is allowed: nothing in it is lost."""
    from ..types.errors import GoAIToolsError

    if path != "-" and (os.path.isfile(path) or os.path.isdir(path)):
        raise GoAIToolsError(f"{path} is there already; name a new file, or move it away")


_WIDTH: Final = 30
_PAUSE: Final = 0.1
"""Seconds between two drawings of the line."""


class Progress:
    """One line that is drawn again and again. If standard error is no terminal, it draws nothing.

    Use it in a ``with`` block: the line goes when the block ends.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._done = 0
        self._next = 0.0
        self._drawn = 0

    def __enter__(self) -> Progress:
        self._draw("")
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            print("\r" + " " * self._drawn, end="\r", file=self._stream, flush=True)

    def step(self, note: str = "") -> None:
        """Count one more. `note` stands behind the numbers."""
        self._done += 1
        if self._done >= self._total or time.monotonic() >= self._next:
            self._draw(note)

    def _draw(self, note: str) -> None:
        if not self._is_shown:
            return
        self._next = time.monotonic() + _PAUSE
        part = min(1.0, self._done / self._total) if self._total else 1.0
        bar = ("#" * int(part * _WIDTH)).ljust(_WIDTH, ".")
        line = f"[{bar}] {part:4.0%}  {self._done:,} of {self._total:,}{note and '  '}{note}"[:79]
        print("\r" + line.ljust(self._drawn), end="", file=self._stream, flush=True)
        self._drawn = len(line)
