"""Escapes text from outside, so that it cannot look like this library's own blocks, or like other text.

Owns: the escaping rule and its reversal; the list of invisible characters. Must never know: a message, or the
content of a block.

The ``<`` of ``<app-event``, ``</app-event`` and the like becomes ``&lt;``. This also happens if the text ends
inside of one of these words, because a model reads the parts of a message as one text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

__all__ = ["as_written", "escaped", "visible"]

_NAMES: Final = ("event", "context", "note", "system", "speaker", "file")
_WORDS: Final = tuple(f"{slash}app-{name}" for slash in ("", "/") for name in _NAMES)
_BEGINNINGS: Final = sorted(
    {word[:end] for word in _WORDS for end in range(len(word))}, key=len, reverse=True
)


@cache
def _before_word(mark: str) -> re.Pattern[str]:
    # Compile on first use: few texts have this mark, and compiling takes a fiftieth of the import time.
    return re.compile(rf"{mark}(?={'|'.join(_WORDS)}|(?:{'|'.join(_BEGINNINGS)})\Z)", re.IGNORECASE)


def escaped(text: str) -> str:
    """Escape the text so that it cannot open or close a block. The same object if nothing changes."""
    return _before_word("<").sub("&lt;", text) if "<" in text else text


def as_written(text: str) -> str:
    """The text as its author wrote it, before `escaped`."""
    return _before_word("&lt;").sub("<", text) if "&lt;" in text else text


def visible(text: str) -> str:
    r"""The text for a person who has to judge it.

    Invisible characters, and characters that change the direction of text, become escapes of JSON, such as
    ``\u202e``. Line breaks and tabs stay. So do the joiners of emoji and of Persian, which change no order.

    JSON text can have these characters only inside of strings, so valid JSON keeps its meaning.
    """
    return text if text.isascii() and text.isprintable() else _unseen().sub(_as_escape, text)


@cache
def _unseen() -> re.Pattern[str]:
    return re.compile(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
        "\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
    )


def _as_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))
