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
from typing import Final
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
from ...base import json_scan
from . import json_tree
from .json_tree import Edits, Node
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
_MOST_ABSENT: Final = 2**16
"""How many short texts without a match are remembered: a state may repeat one of them a million times."""

_SAFE: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_IDS: Final = re.compile(rb'"(?:id|\w{1,40}_id)"[ ]*:[ ]*"([^"\\]{1,128})"')
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_SMALL_PART: Final = 4096
_LONGEST_ID: Final = 56
_TRIES: Final = 100


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
        self._clean: set[bytes] = set()
        self._absent: set[str] = set()
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
        new = value
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
        if new == value and len(value) < _SHORT and len(self._absent) < _MOST_ABSENT:
            self._absent.add(value)
        return new

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
        if value[:1] not in _BEGINNINGS:
            if self.finder.is_surely_found(value):
                return True
            if not _may_be_medium(value) and self.finder.is_plainly_absent(value):
                return False
        before = self.finder.count
        is_changed = self.text(value) != value or (_may_be_medium(value) and self._medium(value) != value)
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
        for stem in (base, word, "x"):
            for number in (None, *range(2, _TRIES)):
                for tail in ("",) if number is None else (f"_{number}", "_" + "z" * number):
                    new = stem + tail[: 64 - len(stem)]
                    if new not in self._taken and not self.finder.spans(new):
                        return new
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
            for item in node.items():
                if item.has_hits:
                    self._structure(item, key, kind, edits)
        elif node.kind == "object":
            kind = _said(node.member("type"))
            if self._is_named_medium(node, kind):
                text = quoted(self.finder.replacement)
                edits.put(node, f'{{"type":"{placeholder_type(kind)}","text":"{text}"}}')
                return
            for name, item in node.members():
                self._key(name, edits)
                self._value(item, name, kind, edits)

    def _value(self, item: Node, name: Node, kind: str, edits: Edits) -> None:
        if not item.has_hits and not item.may_have_runs:
            return
        key = name.said
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
            is_small = item.end - item.start < _SMALL_PART
            members = [*item.members()] if is_small and item.kind == "object" else None
            said = _text_of_part(members or item.members()) if item.kind == "object" else None
            if said is None:
                self._run(run, edits)
                run = []
                if item.has_hits or item.may_have_runs:
                    self._structure(item, key, kind, edits)
                continue
            run.append(said)
            if item.has_hits_beside(said) or item.may_have_runs:
                for name, value in members or item.members():
                    self._key(name, edits)
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
                edits.put(node, f'"{quoted(new)}"')

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
            edits.put(node, f'"{quoted(new)}"')

    def _key(self, node: Node, edits: Edits) -> None:
        if not node.has_hits:
            return
        said = node.said
        spans = self.finder.spans(said)
        if spans and is_words_key(said):
            self.kept += len(spans)
        elif spans:
            self._string(node, edits, self.text)

    def _member(self, key: str, said: str, kind: str) -> str:
        """A string in the place of a member."""
        if is_word(key, said, kind):
            self.kept += len(self.finder.spans(said))
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
            read = base64.b64decode(data, validate=True).decode()
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
        for hit in node.hits():
            if hit.kind == "string":
                self._string(hit, edits, self.text)
            elif self.finder.spans(hit.raw):
                self.finder.count += 1
                edits.put(hit, f'"{quoted(self.finder.replacement)}"')


def _said(node: Node | None) -> str:
    return node.said if node is not None and node.kind == "string" else ""


def _may_be_medium(value: str) -> bool:
    return (len(value) % 4 == 0 and _BASE64.fullmatch(value) is not None) or value.startswith("data:")


def _text_of_part(members: Iterable[tuple[Node, Node]]) -> Node | None:
    """The string of a part that is text; None for another part."""
    said, kind = json_tree.picked(members, "text", "type")
    is_text = said is not None and said.kind == "string" and _said(kind) in TEXT_PARTS
    return said if is_text else None


def _addresses(node: Node) -> Iterable[str]:
    for name, item in node.members():
        key = name.said
        if key in ("file_url", "image_url", "url") and item.kind == "string":
            yield item.said
        elif key in ("image_url", "source", "video_url") and item.kind == "object":
            yield from _addresses(item)


def _cut(texts: Sequence[str], spans: Sequence[tuple[int, int]], replacement: str) -> list[str]:
    """Cut these places out of the texts; they count in the joined text. The replacement is put where a place
    begins, and into each text that would be empty."""
    found: list[str] = []
    begin = 0
    for text in texts:
        pieces: list[str] = []
        done = 0
        for start, end in spans:
            first, last = max(start - begin, 0), min(end - begin, len(text))
            if first >= last:
                continue
            pieces.append(text[done:first])
            if start >= begin:
                pieces.append(replacement)
            done = last
        new = "".join((*pieces, text[done:]))
        found.append(new or (replacement if text else new))
        begin += len(text)
    return found
