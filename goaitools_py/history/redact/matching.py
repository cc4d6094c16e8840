"""Find a text in other text, also in an escaped form, and replace it.

Owns: the definition of a match, the views of a text without its escapes, and the replacement. Must never
know: a state, or an entry.

A text that holds JSON, or a block of this package, has the secret in an escaped form: ``Jos\\u00e9`` for
``José``. So a text is also searched without these escapes. A match is replaced in its place, and every other
character of the text stays.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from ...base.escaping import escaped

__all__ = ["ROUNDS", "Finder", "Match", "found_again", "quoted"]

Match: TypeAlias = "str | re.Pattern[str] | Callable[[str], Iterable[tuple[int, int]]]"
"""The pattern: a text; a compiled regular expression; or a function that takes a text and gives the places of
all matches in it, each as its start and its end."""

ROUNDS: Final = 8
"""How often a text is searched again after a replacement. The replacement may form a match with its
neighbours."""

_Span: TypeAlias = tuple[int, int]


class Finder:
    """Finds a match in texts and replaces it. `count` grows with each replacement.

    Attributes:
        suspects: Chooses from strings of JSON text, as they are written, each that has a match in any form,
            and few others; None if only a search tells.
    """

    def __init__(self, match: Match, replacement: str) -> None:
        if not isinstance(replacement, str):
            raise TypeError(f"with_ must be str, not {type(replacement).__name__}")
        if not replacement.strip():
            raise ValueError("with_ must have a visible character: a provider refuses a message without text")
        self._find = _finding(match)
        self._literal = match if isinstance(match, str) and not _overlaps_itself(match) else None
        self._search = match.search if isinstance(match, re.Pattern) else None
        self.suspects: Callable[[Iterable[str]], Iterable[str]] | None = None
        if self._literal is not None:
            self.suspects = partial(_suspected, _suspects(self._literal).search)
        elif self._search is not None:
            self.suspects = partial(_searched, self._search)
        self._given = replacement.encode("utf-8", "replace").decode()
        self.replacement = escaped(self._given)
        self._is_plain = (
            quoted(self.replacement) == self.replacement == self._given
            and _UNPLAIN.search(self.replacement) is None
        )
        self.count = 0
        if self.spans(self.replacement) or self.replaced(self.replacement) != self.replacement:
            raise ValueError("the match also matches with_, so the replacement would be found again")
        self.count = 0

    def is_plainly_absent(self, text: str) -> bool:
        """True if nothing in the text matches, and it has no escapes that could hide a match."""
        return "\\" not in text and "&" not in text and not self.spans(text)

    def is_surely_found(self, text: str) -> bool:
        """True if the text has a match without unescaping. False does not mean that it has no match."""
        if self._literal is not None:
            return self._literal in text
        return self._search is not None and (found := self._search(text)) is not None and bool(found[0])

    def spans(self, text: str) -> list[_Span]:
        """The places of all matches, in order; overlapping places are joined, empty places are left out."""
        if self._literal is not None and self._literal not in text:
            return []
        if self._search is not None and self._search(text) is None:
            return []
        return _joined(self._find(text)) if text else []

    def plainly_replaced(self, raws: Sequence[str]) -> list[str] | None:
        """JSON strings, as they are written, without the match. It is fast, for half a million strings.

        None if one of them needs a closer look: it has an escape, or may be JSON or a block.
        """
        literal, joined = self._literal, "".join(raws)
        if literal is None or not self._is_plain or '"' in literal or _UNPLAIN.search(joined):
            return None
        new = joined.replace(literal, self.replacement)
        if literal in new or joined[0] != '"' or new.count('"') != 2 * len(raws):
            return None
        self.count += joined.count(literal)
        return [f'"{one}"' for one in new[1:-1].split('""')]

    def replaced(self, text: str) -> str:
        """The text without the match, plain or escaped. The same object if nothing matches."""
        text = (
            self._without(text, ()) if self._literal is None else self._without_literal(text, self._literal)
        )
        if "\\" in text:
            for level in (1, 2):
                text = self._without(text, (_JSON,) * level)
        if "&" in text:
            text = self._without(text, (_ENTITIES,))
        return text

    def _without(self, text: str, escapes: Sequence[_Escape]) -> str:
        """The text without the matches that are seen when these escapes are undone, the first one first."""
        if not escapes and self._search is not None and self._search(text) is None:
            return text
        for _ in range(ROUNDS):
            read = text
            for escape in escapes:
                read = escape.undone(read)
            found = self.spans(read) if read != text or not escapes else []
            if not found:
                return text
            self.count += len(found)
            for layer in reversed(_layers(text, escapes)):
                found = [(layer.raw(start), layer.raw(end)) for start, end in found]
            text = self._spliced(text, found, escapes)
        raise found_again()

    def _without_literal(self, text: str, literal: str) -> str:
        """As `_without` without escapes: a state may have half a million texts that match."""
        for _ in range(ROUNDS):
            found = text.count(literal)
            if not found:
                return text
            self.count += found
            text = text.replace(literal, self._plain_replacement(text))
        raise found_again()

    def _plain_replacement(self, text: str) -> str:
        return _ENTITIES.write(self._given) if _BLOCK.search(text) else self.replacement

    def _spliced(self, text: str, found: Sequence[_Span], escapes: Sequence[_Escape]) -> str:
        new = self.replacement if escapes else self._plain_replacement(text)
        if _ENTITIES in escapes:
            new = self._given
        for escape in reversed(escapes):
            new = escape.write(new)
        pieces: list[str] = []
        done = 0
        for start, end in found:
            pieces += (text[done:start], new)
            done = end
        return "".join((*pieces, text[done:]))


def found_again() -> ValueError:
    """Make the error for a replacement that never ends."""
    return ValueError(
        "the match is found again after each replacement: with_ and the text beside it form a new match; "
        "choose another with_"
    )


# ------------------------------------------------------------------------------------------- matches


def _finding(match: Any) -> Callable[[str], Iterable[_Span]]:
    if isinstance(match, str):
        if not match:
            raise ValueError("match must not be empty")
        return lambda text: _places(text, match) if match in text else ()
    if isinstance(match, re.Pattern):
        if not isinstance(match.pattern, str):
            raise TypeError("match must be a regular expression for text, not for bytes")
        return lambda text: (found.span() for found in match.finditer(text))
    if not callable(match):
        raise TypeError(f"match must be str, a compiled re.Pattern or a function, not {type(match).__name__}")
    return lambda text: _given(match(text), len(text))


_LONGEST_LITERAL: Final = 256


def _overlaps_itself(text: str) -> bool:
    """True if two places of the text may overlap, or if that would take long to tell."""
    return len(text) > _LONGEST_LITERAL or any(text.startswith(text[at:]) for at in range(1, len(text)))


def _suspects(text: str) -> re.Pattern[str]:
    """A pattern for texts that may have a match: in plain form, escaped, in JSON, or as base64."""
    return re.compile(rf"{re.escape(text)}|{_hiding(len(text.encode('utf-8', 'replace')) * 4 // 3)}")


def _hiding(least: int) -> str:
    """A pattern for strings with escapes, JSON, data URLs, and base64 of at least so many letters."""
    letter = "[A-Za-z0-9+/]"
    base64 = rf"(?={letter}{{{least}}})(?:{letter}{{4}})*+(?:{letter}{{2}}==|{letter}{{3}}=)?"
    return rf'[\\&]|\A"?(?:[{{\[ \n]|data:|{base64}"?\Z)'


_MAY_HIDE: Final = re.compile(_hiding(2))
_UNPLAIN: Final = re.compile(r'[\\&<\x00-\x1f\ud800-\udfff]|"[{\[ ]')


def _suspected(search: Callable[[str], Any], raws: Iterable[str]) -> Iterable[str]:
    return [raw for raw in raws if search(raw)]  # not `filter`: other threads can run within this loop


def _searched(search: Callable[[str], Any], raws: Iterable[str]) -> Iterable[str]:
    """As `_suspects`, for an expression. A string without a backslash is written as it reads."""
    return [
        raw
        for raw in raws
        if search(raw[1:-1] if raw[0] == '"' else raw) or _MAY_HIDE.search(raw) is not None
    ]


def _places(text: str, wanted: str) -> Iterable[_Span]:
    at = text.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = text.find(wanted, at + 1)


def _given(spans: Iterable[Any], length: int) -> Iterable[_Span]:
    for span in spans:
        try:
            start, end = span
        except (TypeError, ValueError):
            start = end = None
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= length:
            raise ValueError(
                "the match function must give pairs (start, end) of whole numbers within the text"
            ) from None
        yield start, end


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    found: list[_Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


# ------------------------------------------------------------------------------------------- escapes


class _Escape(NamedTuple):
    """One way to escape a text: the pattern of an escape, its meaning, and how a whole text is read and
    written."""

    pattern: re.Pattern[str]
    read: Callable[[str], str]
    undone: Callable[[str], str]
    write: Callable[[str], str]


class _Layer(NamedTuple):
    """The place of each character of an unescaped text in the escaped text. At each break the distance
    changes."""

    starts: Sequence[int]
    raws: Sequence[int]

    def raw(self, at: int) -> int:
        known = bisect_right(self.starts, at) - 1
        return self.raws[known] + at - self.starts[known]


def _layers(text: str, escapes: Sequence[_Escape]) -> list[_Layer]:
    found: list[_Layer] = []
    for escape in escapes:
        text, layer = _layer(text, escape)
        found.append(layer)
    return found


def _layer(text: str, escape: _Escape) -> tuple[str, _Layer]:
    pieces: list[str] = []
    starts, raws = array("I", [0]), array("I", [0])
    done = length = 0
    for found in escape.pattern.finditer(text):
        meant = escape.read(found[0])
        pieces += (text[done : found.start()], meant)
        length += found.start() - done
        starts.append(length)
        raws.append(found.start())
        length += len(meant)
        done = found.end()
        starts.append(length)
        raws.append(done)
    return "".join((*pieces, text[done:])), _Layer(starts, raws)


def quoted(text: str) -> str:
    """The text as the inside of a JSON string. A lone surrogate is escaped: UTF-8 has no bytes for it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False)[1:-1])


_LONE: Final = re.compile(r"[\ud800-\udfff]")
_BLOCK: Final = re.compile(r"<app-(?:event|context|note|system)")

_UNIT: Final = r"\\u[0-9a-fA-F]{4}"
_PAIR: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SIMPLE: Final = {'"': '"', "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _without_json(text: str) -> str:
    """Undo all escapes of JSON. With a million of them, a function for each would take seconds."""
    if "\\" not in text:
        return text
    if _MARK in text:
        return _JSON.pattern.sub(lambda found: _JSON.read(found[0]), text)
    text = text.replace("\\\\", _MARK)
    for escape, meant in _SIMPLE.items():
        text = text.replace("\\" + escape, meant)
    if "\\u" in text:
        text = _UNITS.sub(lambda found: _unit(found[0]), text)
    return text.replace(_MARK, "\\")


@lru_cache(maxsize=1024)
def _unit(found: str) -> str:
    return str(json.loads(f'"{found}"'))


_MARK: Final = "\U0010ffff"
"""A placeholder for an escaped backslash until all other escapes are undone."""
_UNITS: Final = re.compile(rf"{_PAIR}|{_UNIT}")
_JSON: Final = _Escape(
    re.compile(rf'{_PAIR}|{_UNIT}|\\["\\/bfnrt]'), lambda found: _unit(found), _without_json, quoted
)

_MEANT: Final = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#10;": "\n", "&#13;": "\r"}


def _with_entities(text: str) -> str:
    for entity, meant in _MEANT.items():  # "&" comes first
        text = text.replace(meant, entity)
    return text


def _without_entities(text: str) -> str:
    for entity, meant in reversed(_MEANT.items()):  # "&" comes last
        text = text.replace(entity, meant)
    return text


_ENTITIES: Final = _Escape(
    re.compile("|".join(map(re.escape, _MEANT))),
    lambda found: _MEANT[found],
    _without_entities,
    _with_entities,
)
"""The escapes inside a block of this package; see `render`."""
