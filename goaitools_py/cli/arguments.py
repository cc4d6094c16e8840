"""The arguments of a call as a terminal shows them to the person who decides.

Owns: this form. Must never know: a screen, or why a call is shown.
"""

from __future__ import annotations

import json
import re
from typing import Final

from ..base import rawjson
from ..base.escaping import visible

__all__ = ["pretty"]


def pretty(arguments: str) -> str:
    """The arguments of a call for people: "place: Theatre, code: 1815" of a JSON object, else the text.

    Numbers, repeated names and the order stay as in the text.
    """
    try:
        data = arguments.encode()
        found = rawjson.spans(data)
    except ValueError:  # no JSON, nested too deep, or with half a character
        return visible(arguments)
    if not found or found[0].key is None:
        return visible(arguments)
    return ", ".join(f"{_bare(span.key or '')}: {_value(data[span.start : span.end])}" for span in found)


def _value(data: bytes) -> str:
    text = rawjson.string(data)
    return visible(data.decode()) if text is None else _bare(text)


def _bare(text: str) -> str:
    """A string without its quotation marks, if it cannot be taken for a number or for several values."""
    is_plain = _PLAIN.fullmatch(text) and text not in _LITERALS and visible(text) == text
    return text if is_plain else visible(json.dumps(text, ensure_ascii=False))


_PLAIN: Final = re.compile(r"[^\W\d](?:[\w .'/@!?-]*[\w.!?])?")
_LITERALS: Final = frozenset({"true", "false", "null"})
