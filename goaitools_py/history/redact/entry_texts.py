"""Stored entries without a text, still valid for their provider API.

Owns: the way through an entry, and the new ids of calls. Must never know: a state, or which entries there
are.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, unquote

from ...backends.read_entries import (
    CALLERS_OWN,
    TEXT_PARTS,
    is_id,
    is_media_text,
    is_sealed,
    is_word,
    is_words_key,
    placeholder_type,
)
from ...base import json_scan, rawjson
from . import json_tree
from .json_tree import Edits, Member, Node
from .matching import ROUNDS, Finder, found_again, quoted

__all__ = ["Redactor"]

_DEEPEST: Final = 6
"""How deep JSON in strings of JSON is read as JSON. Deeper JSON is read as text."""

_MOST_INNER: Final = 2_000_000
"""How many JSON values the strings of JSON may have that are read as JSON in one pass. A string is read twice
if something in it matches."""

_BEGINNINGS: Final = ("{", "[", " ", "\n")
"""How JSON in a string begins."""

_SHORT: Final = 64
_LARGE: Final = 4096
_MOST_ABSENT: Final = 2**16
"""How many short texts without a match are remembered: a state may repeat one of them a million times."""
_MOST_CHANGED: Final = 2**12
"""How many short texts with a match, and how many elements of arrays, are remembered."""
_ELEMENT: Final = 512
"""Characters. Longer elements of an array are not remembered."""

_SAFE: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_IDS: Final = re.compile(rb'"(?:id|\w{1,40}_id)"[ ]*:[ ]*"([^"\\]{1,128})"')
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_SMALL_PART: Final = 4096
_LONGEST_ID: Final = 56
_FEW_TRIES, _TRIES = 8, 200
_MOST_NUMBER: Final = 10**7 - 1
_LETTERS: Final = str.maketrans("0123456789", "ghjkmpqxyz")


class Redactor:
    """Takes a match out of entries and texts. `finder.count` grows with each replacement.

    Attributes:
        finder: Finds the matches, and has the replacement.
        kept: How many matches were words of a provider API. They stay.
        ids: The new id or tool's name for each match. It is the same everywhere, so that results find their
            calls.
    """

    def __init__(self, finder: Finder) -> None:
        self.finder = finder
        self.kept = 0
        self.ids: dict[str, str] = {}
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._clean: set[bytes] = set()
        self._absent: set[str] = set()
        self._words: dict[str, int] = {}
        self._changed: dict[str, tuple[str, int]] = {}
        self._elements: dict[tuple[str, str, str], tuple[str, int, int] | None] = {}
        self._depth = 0
        self._left = _MOST_INNER

    def begin(self) -> None:
        """Begin a pass. JSON in strings may be read anew. Entries without a match are still without one."""
        self._left = _MOST_INNER

    def learn_ids(self, entries: Iterable[bytes]) -> None:
        """Note the ids in these entries: no new id becomes equal to one of them."""
        for entry in entries:
            self._taken.update(id.decode("utf-8", "replace") for id in _IDS.findall(entry))

    def entry(self, entry: bytes) -> bytes:
        """The entry without the match. The same object if nothing in it matches."""
        if entry in self._clean:
            return entry
        text = entry.decode()
        new = self.item(text)
        if new == text:
            self._clean.add(entry)
            return entry
        return new.encode()

    def item(self, text: str) -> str:
        """As `entry`, for the text of an entry."""
        tree = json_tree.parsed(text, self._is_hit, self.finder.suspects)
        if tree is None:
            return self.text(text)
        edits = Edits(text)
        if tree.has_hits or tree.may_have_runs:
            self._structure(tree, "", "", edits)
        return edits.done()

    def text(self, value: str) -> str:
        """A text without the match, also where it is JSON. The same object if nothing matches."""
        if value in self._absent:
            return value
        if (known := self._changed.get(value)) is not None:
            self.finder.count += known[1]
            return known[0]
        before, new = self.finder.count, value
        if value[:1] in _BEGINNINGS and self._depth < _DEEPEST:
            self._depth += 1
            try:
                tree = self._inner(value)
                if tree is not None and tree.has_hits:
                    edits = Edits(value)
                    self._content(tree, edits)
                    new = edits.done()
            finally:
                self._depth -= 1
        new = self.finder.replaced(new)
        if len(value) < _SHORT:
            if new == value:
                if len(self._absent) < _MOST_ABSENT:
                    self._absent.add(value)
            elif value[:1] not in _BEGINNINGS and len(self._changed) < _MOST_CHANGED:
                self._changed[value] = new, self.finder.count - before
        return new

    def is_absent_in(self, value: Any) -> bool:
        """True if no text in a large JSON-able value matches. False is not certain.

        Each different text in it is looked at once, also if it has a million.
        """
        with suppress(ValueError, TypeError):
            text = rawjson.dumps(value).decode()
            if len(text) > _LARGE and "\ufffd" not in text:  # it may stand for a lone surrogate
                tree = json_tree.parsed(text, self._is_hit, self.finder.suspects)
                return tree is not None and not tree.has_hits
        return False

    def _inner(self, value: str) -> Node | None:
        """The tree of JSON inside a string; None for other text.

        JSON of more values than may still be read in this pass is searched as text.
        """
        values = json_scan.separators(value.encode("utf-8", "surrogatepass"))
        if values > self._left:
            return None
        self._left -= values
        tree = json_tree.parsed(value, self._is_hit, self.finder.suspects)
        return tree if tree is not None and tree.kind in ("object", "array") else None

    def _is_hit(self, value: str) -> bool:
        """True if a string, or the digits of a number, may have to change. Nothing is counted."""
        if self.finder.is_surely_found(value) or ("\\" not in value and self.finder.spans(value)):
            return True
        before, is_medium = self.finder.count, _may_be_medium(value)
        may_hide = value[:1] in _BEGINNINGS or not self.finder.is_plainly_absent(value)
        is_changed = (may_hide and self.text(value) != value) or (is_medium and self._medium(value) != value)
        self.finder.count = before
        return is_changed

    def arguments(self, value: str) -> str:
        """The arguments of a call without the match. A JSON object stays a JSON object, also if the match
        includes its braces."""
        if value == "{}":  # nothing is left in it, though its braces may match
            return value
        new = self.text(value)
        if new == value or (old := json_tree.parsed(value)) is None:
            return new
        tree = json_tree.parsed(new)
        return new if tree is not None and tree.kind == old.kind else "{}"

    def id(self, id: str) -> str:
        """The id of a call, or the name of a tool, without the match."""
        if id in self.ids:
            return self.ids[id]
        spans = self.finder.spans(id)
        if not spans:
            return id if _SAFE.fullmatch(id) else self.text(id)
        new = self._new_id(id, spans)
        if new is None:
            self.kept += len(spans)
            return id
        self.finder.count += len(spans)
        self.ids[id] = new
        self._taken.add(new)
        return new

    def _new_id(self, id: str, spans: Sequence[tuple[int, int]]) -> str | None:
        """An id without the match that no other call has; None if each fits the match."""
        word = _UNSAFE.sub("", self.finder.replacement)[:32] or "redacted"
        pieces, done = [], 0
        for start, end in spans:
            pieces += [id[done:start], word]
            done = end
        base = "".join((*pieces, id[done:]))[:_LONGEST_ID]
        return self._free(base, _FEW_TRIES) or self._free(word, _TRIES) or self._free("x", _TRIES)

    def _free(self, stem: str, tries: int) -> str | None:
        """A free id that begins with `stem`; None if so many in a row fit the match.

        A state may have a hundred thousand ids that become the same. So the search goes on from the last
        number, and no stem is tried again that has failed.
        """
        number, refused = self._numbers.get(stem, 1), 0
        while refused < tries:
            tail = "" if number == 1 else f"_{number}"
            for new in {stem + tail: None, stem + tail.translate(_LETTERS): None}:
                if new in self._taken:
                    continue
                if not self.finder.spans(new):
                    if number > 1:
                        self._numbers[stem] = number
                    return new
                refused += 1
            number += 1
            if number > _MOST_NUMBER:
                break
        if tries == _TRIES:
            self._numbers[stem] = _MOST_NUMBER
        return None

    # ------------------------------------------------------------------------------ inside an entry

    def _structure(self, node: Node, key: str, kind: str, edits: Edits) -> None:
        """Redact a value with a shape that the provider API sets. Words and ids of the API keep their shape.

        `key`: the member that holds the node. `kind`: the type of the object that has this member.
        """
        if node.kind == "string":
            self._string(node, edits, lambda said: self._member(key, said, kind))
        elif node.kind == "array":
            if node.may_have_runs:
                self._parts(node, key, kind, edits)
                return
            for item in node.items_with_hits():
                self._element(item, key, kind, edits)
        elif node.kind == "object":
            members = [*node.members()] if node.size < _SMALL_PART else None
            kind = _said(json_tree.picked(members, "type")[0] if members else node.member("type"))
            if self._is_named_medium(node, kind):
                text = quoted(self.finder.replacement)
                edits.put(node.start, node.end, f'{{"type":"{placeholder_type(kind)}","text":"{text}"}}')
                return
            for name, place, item in members or node.changing():
                if place is not None:
                    self._key(name, place, edits)
                self._value(item, name, kind, edits)

    def _element(self, item: Node, key: str, kind: str, edits: Edits) -> None:
        """As `_structure`, for an element of an array. A state may repeat one a hundred thousand times.

        The first one may give an id a new name, which counts as a replacement. So the second is remembered.
        """
        place = (key, kind, item.raw) if item.size <= _ELEMENT and item.kind != "string" else None
        if place is None or (place not in self._elements and len(self._elements) >= _MOST_CHANGED):
            self._structure(item, key, kind, edits)
            return
        known = self._elements.get(place)
        if known is None:
            count, kept, own = self.finder.count, self.kept, Edits(edits.text)
            self._structure(item, key, kind, own)
            known = own.done(item.start, item.end), self.finder.count - count, self.kept - kept
            self._elements[place] = known if place in self._elements else None
        else:
            self.finder.count += known[1]
            self.kept += known[2]
        if known[0] != place[2]:
            edits.put(item.start, item.end, known[0])

    def _value(self, item: Node, key: str, kind: str, edits: Edits) -> None:
        if not item.has_hits and (item.kind in ("string", "literal") or not item.may_have_runs):
            return
        if key in CALLERS_OWN and item.kind in ("object", "array"):
            self._content(item, edits)
        else:
            self._structure(item, key, kind, edits)

    def _parts(self, node: Node, key: str, kind: str, edits: Edits) -> None:
        """An array. Texts of parts side by side are also searched as one text."""
        run: list[Node] = []
        for item in node.plain_texts(TEXT_PARTS):
            if isinstance(item, list):
                run += item
                continue
            said = members = None
            if item.kind == "object" and item.may_name("text"):
                members = [*item.members()] if item.size < _SMALL_PART else None
                said = _text_of_part(members or item.members())
            if said is None:
                self._run(run, edits)
                run = []
                if item.has_hits or item.may_have_runs:
                    self._element(item, key, kind, edits)
                continue
            run.append(said)
            if item.has_hits_beside(said) or item.may_have_runs:
                for name, place, value in members or item.members():
                    if place is not None:
                        self._key(name, place, edits)
                    if value.start != said.start:
                        self._value(value, name, "text", edits)
        self._run(run, edits)

    def _run(self, run: Sequence[Node], edits: Edits) -> None:
        if len(run) < 2:
            for node in run:
                self._string(node, edits, self.text)
            return
        alone = said = [node.said for node in run]
        if run[0].has_hits_up_to(run[-1]):
            alone = [self.text(own) if node.has_hits else own for node, own in zip(run, said, strict=True)]
        for node, old, new in zip(run, said, self.across(alone), strict=True):
            if new != old:
                edits.put(node.start, node.end, f'"{quoted(new)}"')

    def across(self, texts: Sequence[str]) -> list[str]:
        """The texts without the matches that begin in one of them and end in another."""
        found = list(texts)
        for _ in range(ROUNDS):
            spans = self.finder.spans("".join(found))
            if not spans:
                return found
            self.finder.count += len(spans)
            found = _cut(found, spans, self.finder.replacement)
        raise found_again()

    def _string(self, node: Node, edits: Edits, change: Callable[[str], str]) -> None:
        said = node.said
        new = change(said)
        if new != said:
            edits.put(node.start, node.end, f'"{quoted(new)}"')

    def _key(self, said: str, place: tuple[int, int], edits: Edits) -> None:
        if (count := self._words.get(said)) is not None:
            self.kept += count
            return
        count = len(self.finder.spans(said))
        if not count:
            return
        if is_words_key(said):
            self.kept += count
            if len(self._words) < _MOST_CHANGED:
                self._words[said] = count
        elif (new := self.text(said)) != said:
            edits.put(*place, f'"{quoted(new)}"')

    def _member(self, key: str, said: str, kind: str) -> str:
        """A string in the place of a member."""
        if is_word(key, said, kind):
            if (count := self._words.get(said)) is None:
                count = len(self.finder.spans(said))
            self.kept += count
            return said
        if is_id(key) or (key == "name" and _SAFE.fullmatch(said)):
            return self.id(said)
        if is_sealed(key, kind):
            return said
        if is_media_text(key, said, kind):
            return self._medium(said)
        if key == "arguments":
            return self.arguments(said)
        return self.text(said)

    def _medium(self, said: str) -> str:
        """A medium as base64 or as a data URL. Bytes that are text are searched; a picture is not.

        The parameters of a data URL, such as a file's name, leave with a match.
        """
        if not said.startswith("data:"):
            return self._decoded(said)
        head, comma, data = said.partition(",")
        kind, *parameters = head.split(";")
        left = [one for one in parameters if not self._leaves(one)]
        if "base64" in left:
            data = self._decoded(data)
        else:  # text with percent signs, see RFC 2397
            read = unquote(data)
            new = self.text(read)
            data = data if new == read else quote(new.encode("utf-8", "replace"))
        return ";".join((kind, *left)) + comma + data

    def _decoded(self, data: str) -> str:
        with suppress(binascii.Error, UnicodeDecodeError, ValueError):
            read = binascii.a2b_base64(data, strict_mode=True).decode()
            new = self.text(read)
            if new != read:
                return base64.b64encode(new.encode("utf-8", "replace")).decode()
        return data

    def _leaves(self, parameter: str) -> bool:
        if parameter == "base64":
            return False
        found = len(self.finder.spans(unquote(parameter)))
        self.finder.count += found
        return found > 0

    def _is_named_medium(self, node: Node, kind: str) -> bool:
        """True for a medium that is only an address, if the address matches. Another address would not
        lead anywhere, and the provider would refuse the request."""
        if placeholder_type(kind) is None:
            return False
        found = [
            said
            for said in _addresses(node)
            if not said.startswith("data:") and self.finder.replaced(said) != said
        ]
        return bool(found)

    def _content(self, node: Node, edits: Edits) -> None:
        """JSON of the caller's or the model's own: keys, strings and numbers are content."""
        for starts, ends, raws in node.hits():
            if (new := self.finder.plainly_replaced(raws)) is not None:
                edits.put_all(starts, ends, new)
                continue
            for start, end, raw in zip(starts, ends, raws, strict=True):
                if raw[0] == '"':
                    said = json_tree.decoded(raw)
                    if (text := self.text(said)) != said:
                        edits.put(start, end, f'"{quoted(text)}"')
                elif self.finder.spans(raw):
                    self.finder.count += 1
                    edits.put(start, end, f'"{quoted(self.finder.replacement)}"')


def _said(node: Node | None) -> str:
    return node.said if node is not None and node.kind == "string" else ""


def _may_be_medium(value: str) -> bool:
    return (len(value) % 4 == 0 and _BASE64.fullmatch(value) is not None) or value.startswith("data:")


def _text_of_part(members: Iterable[Member]) -> Node | None:
    """The string of a part that is text; None for another part."""
    said, kind = json_tree.picked(members, "text", "type")
    is_text = said is not None and said.kind == "string" and _said(kind) in TEXT_PARTS
    return said if is_text else None


def _addresses(node: Node) -> Iterable[str]:
    for key, _, item in node.members():
        if key in ("file_url", "image_url", "url") and item.kind == "string":
            yield item.said
        elif key in ("image_url", "source", "video_url") and item.kind == "object":
            yield from _addresses(item)


def _cut(texts: Sequence[str], spans: Sequence[tuple[int, int]], replacement: str) -> list[str]:
    """Cut these places out of the texts; they count in the joined text. The replacement is put where a place
    begins, and into each text that would be empty."""
    found: list[str] = []
    begin = at = 0
    for text in texts:
        pieces: list[str] = []
        done, stop = 0, begin + len(text)
        while at < len(spans) and spans[at][0] < stop:
            start, end = spans[at]
            pieces.append(text[done : max(start - begin, 0)])
            if start >= begin:
                pieces.append(replacement)
            done = min(end, stop) - begin
            if end > stop:
                break  # the rest of this place is in the next text
            at += 1
        new = "".join((*pieces, text[done:]))
        found.append(new or (replacement if text else new))
        begin = stop
    return found
