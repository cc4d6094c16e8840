"""A progress bar on standard error, if that is a terminal.

Owns: the line and how often it is drawn. Must never know: the counted things.
"""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

__all__ = ["Progress"]

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
