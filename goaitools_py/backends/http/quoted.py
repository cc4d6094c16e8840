"""The server's own words in the text of an error, without quotations.

Owns: where a quotation begins and ends. Must never know: the meaning of the words.

A server may quote the message that it refuses. A user who writes "prompt is too long" or "your account is
blocked" must not decide the kind of the error. So a quotation with a space in it is left out. Two kinds stay:
a name in quotation marks, such as a field or a model, and the words of a server behind a gateway, which stand
in a ``"message"`` of their own.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["own_words"]

_LONGEST: Final = 65_536
"""Characters of a text that are read."""

_MARK: Final = re.compile(r"(\\*)([\"'`“”«»])")
_CLOSING: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "«": "»"}
"""The mark that ends a quotation, by the mark that begins it."""

_ALSO_ALONE: Final = "'`"
"""Marks that may stand without a second mark, such as an apostrophe. A text after another single mark is cut
off."""

_SERVERS: Final = re.compile(r"\\*[\"'](?:message|detail|error|msg)\\*[\"']\s*:\s*$")
"""The beginning of the words of a server behind a gateway: the name of a member, in quotation marks."""

_SPACE: Final = re.compile(r"\s")


def own_words(text: str, *, depth: int = 3) -> str:
    """Leave out the quotations of a text. `depth`: how many errors inside of errors are read."""
    text = text[:_LONGEST].strip()
    marks = list(_MARK.finditer(text))
    alone: set[tuple[str, str]] = set()
    kept: list[str] = []
    at = index = 0
    while index < len(marks):
        mark = marks[index]
        kind = (mark[1], mark[2])
        index += 1
        if mark[2] not in _CLOSING or kind in alone or _is_letter(text, mark.start() - 1):
            continue
        wanted = (mark[1], _CLOSING[mark[2]])
        last = next((k for k in range(index, len(marks)) if _ends(text, marks[k], wanted)), None)
        if last is None and mark[2] in _ALSO_ALONE:
            alone.add(kind)  # so that a text of many marks is not read once for each
            continue
        start, end = mark.start(), len(text) if last is None else marks[last].end()
        inner = text[mark.end() : end if last is None else marks[last].start()]
        kept.append(text[at:start])
        if (start == 0 and end == len(text)) or _SERVERS.search(text[max(0, start - 32) : start]):
            kept.append(own_words(inner.replace('\\"', '"'), depth=depth - 1) if depth else "")
        elif not _SPACE.search(inner):
            kept.append(text[start:end])
        at = end
        index = len(marks) if last is None else last + 1
    return "".join((*kept, text[at:]))


def _ends(text: str, mark: re.Match[str], wanted: tuple[str, str]) -> bool:
    return (mark[1], mark[2]) == wanted and not _is_letter(text, mark.end())


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")
