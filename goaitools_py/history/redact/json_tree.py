"""JSON text as a tree of places, so that single strings of it can be replaced.

Owns: the places of the values in a JSON text that may have to change, and the text with new values there.
Must never know: the new text of a string, the pattern of a search, or a member of a provider API.

All other text stays character for character: white space, escapes, the digits of numbers, repeated members.

A text may have a million values, and a tree of them all would take gigabytes. So a node is made when the
caller asks for it. The caller asks only for nodes that hold a *hit*: a string or a number to change.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, Literal, NoReturn, TypeAlias

from ...base import json_scan

__all__ = [
    "Edits",
    "Node",
    "parsed",
    "picked",
]

_Kind: TypeAlias = Literal["object", "array", "string", "literal"]


class Node:
    """One value. `start` and `end`: its place in the text, the quotation marks of a string included."""

    __slots__ = ("_tree", "end", "kind", "start")

    def __init__(self, tree: _Tree, start: int, end: int) -> None:
        self._tree, self.start, self.end = tree, start, end
        self.kind: _Kind = _KINDS.get(tree.text[start], "literal")

    @property
    def raw(self) -> str:
        """Its own text."""
        return self._tree.text[self.start : self.end]

    @property
    def said(self) -> str:
        """The decoded text of a string."""
        return _decoded(self.raw)

    @property
    def has_hits(self) -> bool:
        """True if it is a hit, or holds one."""
        return self._tree.has_hits(self.start, self.end)

    def hits(self) -> Iterator[Node]:
        """The hits in it, or itself, in order."""
        return self._tree.hits(self.start, self.end)

    def plain_texts(self, kinds: frozenset[str]) -> Iterator[Node | list[Node]]:
        """The elements of an array. Parts side by side come as a list of their texts, if each has only a type
        of these kinds and a text, in the usual form, and no hit outside the text."""
        return self._tree.plain_texts(self, kinds)

    def has_hits_beside(self, inner: Node) -> bool:
        """True if it holds a hit outside of a node in it."""
        return self._tree.has_hits(self.start, inner.start) or self._tree.has_hits(inner.end, self.end)

    def has_hits_up_to(self, last: Node) -> bool:
        """True if it, a node behind it or anything between them holds a hit."""
        return self._tree.has_hits(self.start, last.end)

    @property
    def may_have_runs(self) -> bool:
        """True if it may hold several parts with text. False is certain."""
        first = self._tree.text.find('"text"', self.start, self.end)
        return first >= 0 and self._tree.text.find('"text"', first + 1, self.end) >= 0

    def members(self) -> Iterator[tuple[Node, Node]]:
        """The key and the value of each member of an object."""
        return self._tree.members(self)

    def items(self) -> Iterator[Node]:
        """The elements of an array."""
        return self._tree.items(self)

    def member(self, name: str) -> Node | None:
        """The value of a member; of several with one key the last."""
        return picked(self.members(), name)[0] if self._tree.may_name(self, name) else None


def picked(members: Iterable[tuple[Node, Node]], *names: str) -> list[Node | None]:
    """The values of some members; of several with one key the last."""
    found: list[Node | None] = [None] * len(names)
    for key, item in members:
        if (said := key.said) in names:
            found[names.index(said)] = item
    return found


_KINDS: Final[dict[str, _Kind]] = {"{": "object", "[": "array", '"': "string"}


class Edits:
    """Replacements in a text, collected and then made at once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._made: list[tuple[int, int, str]] = []

    def put(self, node: Node, raw: str) -> None:
        """Put JSON text into the place of a node."""
        self._made.append((node.start, node.end, raw))

    def done(self) -> str:
        """The text with all replacements. The same object without a replacement."""
        if not self._made:
            return self._text
        pieces: list[str] = []
        at = 0
        for start, end, raw in sorted(self._made):
            pieces += (self._text[at:start], raw)
            at = end
        return "".join((*pieces, self._text[at:]))


def parsed(
    text: str, is_hit: Callable[[str], bool] = lambda _: False, suspects: re.Pattern[str] | None = None
) -> Node | None:
    """The outermost value of a JSON text; None for a text that is not JSON, or nests deeper than
    `json_scan.MAX_DEPTH`.

    `is_hit`: tells of a string, or of the digits of a number, whether it may have to change.
    `suspects`: finds something in the text of each string or number for which this may be true.
    """
    if not json_scan.is_shallow(text.encode("utf-8", "surrogatepass")):
        return None
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        _, end = _READER.raw_decode(text, start)
    except (ValueError, _BadConstantError):
        return None
    return Node(_Tree(text, is_hit, suspects), start, end) if not text[end:].strip(_SPACE) else None


class _BadConstantError(Exception):
    """JSON has no NaN and no Infinity."""


def _no_constant(name: str) -> NoReturn:
    raise _BadConstantError


_SPACE: Final = " \t\n\r"
_READER: Final = json.JSONDecoder(strict=False, parse_float=len, parse_int=len, parse_constant=_no_constant)
"""Models write line breaks into strings. No number is read as one: that takes long for many digits."""
_DECODER: Final = json.JSONDecoder(strict=False)

_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBER: Final = r"-?[0-9][-+.0-9eE]*+"
_VALUE: Final = rf"({_STRING}|{_NUMBER}|true|false|null|[\[{{])"
_SCALARS: Final = re.compile(rf"{_STRING}|{_NUMBER}", re.DOTALL)
_BRACKETS: Final = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+([\[\]{{}}])', re.DOTALL)
_ITEM: Final = re.compile(rf"[ \t\n\r,]*+{_VALUE}", re.DOTALL)
_MEMBER: Final = re.compile(rf"[ \t\n\r,]*+({_STRING})[ \t\n\r]*+:[ \t\n\r]*+{_VALUE}", re.DOTALL)


@cache
def _text_parts(kinds: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A part with a text, and as many of them side by side as there are."""
    kind = "|".join(map(re.escape, sorted(kinds)))
    part = rf'{{"type": ?"(?:{kind})", ?"text": ?({_STRING})}}'
    return re.compile(part, re.DOTALL), re.compile(rf"(?:[ \t\n\r,]*+{part})++", re.DOTALL)


def _decoded(raw: str) -> str:
    inside = raw[1:-1]
    return str(_DECODER.decode(raw)) if "\\" in inside else inside


class _Tree:
    """The places in a text that is known to be JSON."""

    def __init__(self, text: str, is_hit: Callable[[str], bool], suspects: re.Pattern[str] | None) -> None:
        self.text = text
        self._suspects = suspects
        self._is_hit = is_hit
        self._hits: array[int] | None = None
        self._ends: array[int] = array("I")
        self._wanted: set[str] = set()
        self._opened: array[int] | None = None
        self._closed: array[int] = array("I")

    def has_hits(self, start: int, end: int) -> bool:
        hits = self._hits if self._hits is not None else self._searched()
        at = bisect_left(hits, start)
        return at < len(hits) and hits[at] < end

    def hits(self, start: int, end: int) -> Iterator[Node]:
        hits = self._hits if self._hits is not None else self._searched()
        for at in range(bisect_left(hits, start), bisect_left(hits, end)):
            yield Node(self, hits[at], self._ends[at])

    def _searched(self) -> array[int]:
        """Search the text. Each different string is looked at once."""
        text, is_hit = self.text, self._is_hit
        every: Iterable[str] = set(_SCALARS.findall(text))
        if self._suspects is not None:
            every = filter(self._suspects.search, every)
        self._wanted = {raw for raw in every if is_hit(_decoded(raw) if raw[0] == '"' else raw)}
        self._hits = hits = array("I")
        if self._wanted:
            for found in _SCALARS.finditer(text):
                if found[0] in self._wanted:
                    hits.append(found.start())
                    self._ends.append(found.end())
        return hits

    def may_name(self, node: Node, name: str) -> bool:
        """True if a key may be in an object. False is certain."""
        written = self.text.find(f'"{name}"', node.start, node.end)
        return written >= 0 or self.text.find("\\", node.start, node.end) >= 0

    def plain_texts(self, node: Node, kinds: frozenset[str]) -> Iterator[Node | list[Node]]:
        if self._hits is None:
            self._searched()
        part, parts = _text_parts(kinds)
        around = {'"type"', '"text"', *(f'"{kind}"' for kind in kinds)}
        at = node.start + 1
        while True:
            if self._wanted.isdisjoint(around) and (run := parts.match(self.text, at)) is not None:
                yield [Node(self, *found.span(1)) for found in part.finditer(self.text, at, run.end())]
                at = run.end()
            if (item := _ITEM.match(self.text, at)) is None:
                return
            other = self._node(*item.span(1))
            yield other
            at = other.end

    def members(self, node: Node) -> Iterator[tuple[Node, Node]]:
        at = node.start + 1
        while (found := _MEMBER.match(self.text, at)) is not None:
            item = self._node(*found.span(2))
            yield Node(self, *found.span(1)), item
            at = item.end

    def items(self, node: Node) -> Iterator[Node]:
        at = node.start + 1
        while (found := _ITEM.match(self.text, at)) is not None:
            item = self._node(*found.span(1))
            yield item
            at = item.end

    def _node(self, start: int, end: int) -> Node:
        return Node(self, start, self._end(start) if self.text[start] in "[{" else end)

    def _end(self, start: int) -> int:
        """Where the container ends that begins at `start`."""
        if self._opened is None:
            self._opened, self._closed = _containers(self.text)
        return self._closed[bisect_left(self._opened, start)]


def _containers(text: str) -> tuple[array[int], array[int]]:
    """Where the containers begin, in order, and where each of them ends."""
    opened, closed = array("I"), array("I")
    inside: list[int] = []
    for found in _BRACKETS.finditer(text):
        if found[1] in "[{":
            inside.append(len(opened))
            opened.append(found.start(1))
            closed.append(0)
        else:
            closed[inside.pop()] = found.end()
    return opened, closed
