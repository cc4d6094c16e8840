"""Escapes text from outside, so that it cannot look like one of this library's own blocks.

Owns: the escaping rule and its reversal. Must never know: a message, or what a block says.

The ``<`` of ``<app-event``, ``</app-event`` and the like becomes ``&lt;``. This also happens if the text ends
in the middle of such a word, because a model reads the parts of a message as one text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

__all__ = ["as_written", "escaped"]

_NAMES: Final = ("event", "context", "note", "system", "speaker")
_WORDS: Final = tuple(f"{slash}app-{name}" for slash in ("", "/") for name in _NAMES)
_BEGINNINGS: Final = sorted(
    {word[:end] for word in _WORDS for end in range(len(word))}, key=len, reverse=True
)


@cache
def _before_word(mark: str) -> re.Pattern[str]:
    # Compiled on first use: few texts have such a mark, and at import it would take a fiftieth of its time.
    return re.compile(rf"{mark}(?={'|'.join(_WORDS)}|(?:{'|'.join(_BEGINNINGS)})\Z)", re.IGNORECASE)


def escaped(text: str) -> str:
    """Escape the text so that it cannot open or close a block. The same object if nothing changes."""
    return _before_word("<").sub("&lt;", text) if "<" in text else text


def as_written(text: str) -> str:
    """The text as its author wrote it, before `escaped`."""
    return _before_word("&lt;").sub("<", text) if "&lt;" in text else text
