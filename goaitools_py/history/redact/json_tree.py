"""JSON text as a tree of places, so that single strings of it can be replaced.

Owns: the places of the values in a JSON text that may have to change, and the text with new values there.
Must never know: the new text of a string, the pattern of a search, or a member of a provider API.

All other text stays character for character: white space, escapes, the digits of numbers, repeated members.

A text may have a million values, and a tree of them all would take gigabytes. So a node is made when the
caller asks for it. The caller asks only for nodes that hold a *hit*: a string or a number to change.
"""

from __future__ import annotations

import io
import json
import operator
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Final, Literal, NoReturn, TypeAlias

import msgspec

from ...base import json_scan

__all__ = [
    "Edits",
    "Hits",
    "Member",
    "Node",
    "decoded",
    "parsed",
    "picked",
]

_Kind: TypeAlias = Literal["object", "array", "string", "literal"]
Member: TypeAlias = "tuple[str, tuple[int, int] | None, Node]"
"""The key, its place in the text if it is a hit, and the value."""
Hits: TypeAlias = tuple["array[int]", "array[int]", list[str]]
"""Some thousands of hits in order: where they start, where they end, and the text of each."""


class Node:
    """One value. `start` and `end`: its place in the text, the quotation marks of a string included."""

    __slots__ = ("_tree", "end", "kind", "start")

    def __init__(self, tree: _Tree, start: int, end: int) -> None:
        self._tree, self.start, self.end = tree, start, end
        self.kind: _Kind = _KINDS.get(tree.text[start], "literal")

    @property
    def size(self) -> int:
        """The number of its characters."""
        return self.end - self.start

    @property
    def raw(self) -> str:
        """Its own text."""
        return self._tree.text[self.start : self.end]

    @property
    def said(self) -> str:
        """The decoded text of a string."""
        return decoded(self.raw)

    @property
    def has_hits(self) -> bool:
        """True if it is a hit, or holds one."""
        tree = self._tree
        if self.kind in ("string", "literal") and tree.is_searched:
            return tree.text[self.start : self.end] in tree.wanted
        return tree.has_hits(self.start, self.end)

    def hits(self) -> Iterator[Hits]:
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

    def may_name(self, name: str) -> bool:
        """True if it may be an object with this key, or hold one. False is certain."""
        return self._tree.may_name(self, name)

    def members(self) -> Iterator[Member]:
        """The members of an object."""
        return self._tree.members(self)

    def changing(self) -> Iterator[Member]:
        """The members of an object that may have to change, for an object with many others."""
        return self._tree.changing(self)

    def items(self) -> Iterator[Node]:
        """The elements of an array."""
        return self._tree.items(self)

    def items_with_hits(self) -> Iterator[Node]:
        """The elements of an array that are hits, or hold one."""
        return self._tree.items_with_hits(self)

    def member(self, name: str) -> Node | None:
        """The value of a member; of several with one key the last."""
        return picked(self.members(), name)[0] if self.may_name(name) else None


def picked(members: Iterable[Member], *names: str) -> list[Node | None]:
    """The values of some members; of several with one key the last."""
    found: list[Node | None] = [None] * len(names)
    for key, _, item in members:
        if key in names:
            found[names.index(key)] = item
    return found


_PIECE: Final = 2**12
_whole = operator.itemgetter(0)
_KINDS: Final[dict[str, _Kind]] = {"{": "object", "[": "array", '"': "string"}


class Edits:
    """Replacements in a text, collected and then made at once. There may be half a million of them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts, self._ends = array("I"), array("I")
        self._raws: list[str] = []

    def put(self, start: int, end: int, raw: str) -> None:
        """Put JSON text into the place of a value."""
        self._starts.append(start)
        self._ends.append(end)
        self._raws.append(raw)

    def put_all(self, starts: array[int], ends: array[int], raws: list[str]) -> None:
        """As `put`, for many values."""
        self._starts += starts
        self._ends += ends
        self._raws += raws

    def done(self, begin: int = 0, end: int | None = None) -> str:
        """The text with all replacements, or a piece of it. The same object without a replacement."""
        text = self.text if begin == 0 and end is None else self.text[begin:end]
        if not self._raws:
            return text
        made: Iterable[tuple[int, int, str]] = zip(self._starts, self._ends, self._raws, strict=True)
        if any(map(operator.gt, self._starts, islice(self._starts, 1, None))):
            made = sorted(made)
        out = io.StringIO()
        write, given, at = out.write, self.text, begin
        for start, stop, raw in made:
            write(given[at:start])
            write(raw)
            at = stop
        write(given[at:end])
        return out.getvalue()


def parsed(
    text: str, is_hit: Callable[[str], bool] = lambda _: False, suspects: Suspects | None = None
) -> Node | None:
    """The outermost value of a JSON text; None for a text that is not JSON, or nests deeper than
    `json_scan.MAX_DEPTH`.

    `is_hit`: tells of a string, or of the digits of a number, whether it may have to change.
    `suspects`: chooses the strings and numbers for which this may be true, as they are written.
    """
    data = text.encode("utf-8", "surrogatepass")
    if not json_scan.is_shallow(data):
        return None
    start, end = len(text) - len(text.lstrip(_SPACE)), len(text.rstrip(_SPACE))
    try:
        _SKIPPER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # it is stricter, see `_READER`
        try:
            if _READER.raw_decode(text, start)[1] != end:
                return None
        except (ValueError, _BadConstantError):
            return None
    return Node(_Tree(text, is_hit, suspects), start, end)


Suspects: TypeAlias = Callable[[Iterable[str]], Iterable[str]]
_SKIPPER: Final = msgspec.json.Decoder(msgspec.Raw)
"""Makes no value of the text: a million values would take a tenth of a second, and a hundred megabytes."""


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
_BRACKETS: Final = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+[\[\]{{}}]', re.DOTALL)
_ITEM: Final = re.compile(rf"[ \t\n\r,]*+{_VALUE}", re.DOTALL)
_MEMBER: Final = re.compile(rf"[ \t\n\r,]*+({_STRING})[ \t\n\r]*+:[ \t\n\r]*+{_VALUE}", re.DOTALL)


@cache
def _text_parts(kinds: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A part with a text, and as many of them side by side as there are."""
    kind = "|".join(map(re.escape, sorted(kinds)))
    part = rf'{{"type": ?"(?:{kind})", ?"text": ?({_STRING})}}'
    return re.compile(part, re.DOTALL), re.compile(rf"(?:[ \t\n\r,]*+{part})++", re.DOTALL)


def decoded(raw: str) -> str:
    """The text of a JSON string."""
    inside = raw[1:-1]
    return str(_DECODER.decode(raw)) if "\\" in inside else inside


class _Tree:
    """The places in a text that is known to be JSON."""

    def __init__(self, text: str, is_hit: Callable[[str], bool], suspects: Suspects | None) -> None:
        self.text = text
        self._suspects = suspects
        self._is_hit = is_hit
        self._hits: array[int] | None = None
        self._ends: array[int] = array("I")
        self.wanted: set[str] = set()
        self._opened: array[int] | None = None
        self._closed: array[int] = array("I")

    @property
    def is_searched(self) -> bool:
        return self._hits is not None

    def has_hits(self, start: int, end: int) -> bool:
        hits = self._hits if self._hits is not None else self._searched()
        at = bisect_left(hits, start)
        return at < len(hits) and hits[at] < end

    def hits(self, start: int, end: int) -> Iterator[Hits]:
        hits = self._hits if self._hits is not None else self._searched()
        last = bisect_left(hits, end)
        for at in range(bisect_left(hits, start), last, _PIECE):
            starts, ends = hits[at : min(at + _PIECE, last)], self._ends[at : min(at + _PIECE, last)]
            yield starts, ends, list(map(self.text.__getitem__, map(slice, starts, ends)))

    def _searched(self) -> array[int]:
        """Search the text. Each different string is looked at once."""
        text, is_hit = self.text, self._is_hit
        every: set[str] = set()
        found = map(_whole, _SCALARS.finditer(text))
        while some := [*islice(found, _PIECE)]:  # in pieces: other threads can run between them
            every.update(some)
        suspects: Iterable[str] = every if self._suspects is None else self._suspects(every)
        self.wanted = {raw for raw in suspects if is_hit(decoded(raw) if raw[0] == '"' else raw)}
        self._hits = hits = array("I")
        if self.wanted:
            wanted = self.wanted
            for one in _SCALARS.finditer(text):
                if one[0] in wanted:
                    hits.append(one.start())
                    self._ends.append(one.end())
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
            if self.wanted.isdisjoint(around) and (run := parts.match(self.text, at)) is not None:
                yield [Node(self, *found.span(1)) for found in part.finditer(self.text, at, run.end())]
                at = run.end()
            if (item := _ITEM.match(self.text, at)) is None:
                return
            other = self._node(*item.span(1))
            yield other
            at = other.end

    def members(self, node: Node) -> Iterator[Member]:
        if self._hits is None:
            self._searched()
        text, wanted, match, at = self.text, self.wanted, _MEMBER.match, node.start + 1
        while (found := match(text, at)) is not None:
            raw, (start, end) = found[1], found.span(2)
            item = Node(self, start, self._end(start) if text[start] in "[{" else end)
            yield decoded(raw), found.span(1) if raw in wanted else None, item
            at = item.end

    def changing(self, node: Node) -> Iterator[Member]:
        if self._hits is None:
            self._searched()
        text, wanted, match, at = self.text, self.wanted, _MEMBER.match, node.start + 1
        while (found := match(text, at)) is not None:
            raw, value = found.group(1, 2)
            if value in ("[", "{"):
                item = self._node(*found.span(2))
                at, may_change = item.end, raw in wanted or item.has_hits or item.may_have_runs
            else:
                at, may_change = found.end(), raw in wanted or value in wanted
            if may_change:
                yield decoded(raw), found.span(1) if raw in wanted else None, self._node(*found.span(2))

    def items(self, node: Node) -> Iterator[Node]:
        at = node.start + 1
        while (found := _ITEM.match(self.text, at)) is not None:
            item = self._node(*found.span(1))
            yield item
            at = item.end

    def items_with_hits(self, node: Node) -> Iterator[Node]:
        hits = self._hits if self._hits is not None else self._searched()
        at, place = node.start + 1, bisect_left(hits, node.start)
        while place < len(hits) and hits[place] < node.end:
            start, end = _ITEM.match(self.text, at).span(1)  # type: ignore[union-attr]
            at = self._end(start) if self.text[start] in "[{" else end
            if hits[place] < at:
                yield Node(self, start, at)
                place = bisect_left(hits, at, place)

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
    end = 0
    for found in map(_whole, _BRACKETS.finditer(text)):  # each begins where the one before it ends
        end += len(found)
        if found[-1] in "[{":
            inside.append(len(opened))
            opened.append(end - 1)
            closed.append(0)
        else:
            closed[inside.pop()] = end
    return opened, closed
