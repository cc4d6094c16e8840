"""Joins the pieces of a streamed value.

Owns: which strings, lists, objects and calls are continued, and which are repeated. Must never know: an
event, the names in a delta, the stored form of a message.

The rule, for every member of a message, a part, a call or an object in them:

1. null adds nothing. An empty string after another value adds nothing.
2. Strings that come in pieces are joined: text, reasoning, arguments.
3. A name, an id, a type, a signature and the like (`ONCE`) come whole: the last value counts.
4. For every other member all pieces are compared. If they are equal, the value was repeated and is kept once.
   Different strings are pieces of one string and are joined. Lists are joined, and typed parts in them are
   continued like the parts of a message. Objects are joined member by member, by this rule. Of numbers,
   booleans and values of different kinds the last one counts.

So a stream that is cut at other places gives the same message. There is one exception: an unknown string
with equal pieces ("ha", "ha") looks like a repeated one, and is kept once.

LiteLLM streams one signed block as parts ``{"type":"thinking","thinking":"…","signature":""}`` and a last one
with the signature (its stream_chunk_builder joins them so; seen 2026-11); Mistral's reasoning models send
content as lists of thinking and text parts (docs.mistral.ai/capabilities/reasoning, seen 2026-11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ...base import rawjson
from ...types.render import valid_text
from .envelope import REFUSALS

__all__ = [
    "EMPTY",
    "NULL",
    "Calls",
    "Grown",
    "Object",
    "Parts",
    "joined",
    "listed",
    "object_of",
    "objects_of",
    "with_members",
    "written",
]

Object = dict[str, msgspec.Raw]
NULL: Final = msgspec.Raw(b"null")
EMPTY: Final = msgspec.Raw(b'""')

ONCE: Final = frozenset(
    {"finish_reason", "format", "id", "index", "model", "name", "object", "phase", "role"}
    | {"signature", "status", "tool_call_id", "type"}
)
"""Members that come whole, in every kind of object."""

_PART_TEXTS: Final = frozenset({"text", "thinking", "summary", "data"})
"""The strings of a typed part that come in pieces: of content, and of OpenRouter's reasoning details."""

_ARGUMENTS: Final = frozenset({"arguments", "input"})
"""The strings of a tool call that come in pieces: a function's, a custom tool's."""

_GROWING_PARTS: Final = frozenset({b'"text"', b'"thinking"', b'"reasoning.text"', b'"reasoning.summary"'})
"""Types of parts that a piece without an index continues. A piece of another type begins a new part."""


# --------------------------------------------------------------------------------------- unknown values


def joined(key: str, pieces: Sequence[bytes]) -> bytes:
    """Join the JSON values of a member into one; see the rule above.

    Raises:
        RawJSONError: A piece is not JSON.
    """
    said = [piece for piece in pieces if piece not in (b"null", b'""')]
    if not said:
        return b'""' if b'""' in pieces else b"null"
    last = said[-1]
    if len(said) == 1 or key in ONCE:
        return last
    kinds = {piece[:1] for piece in said}
    if kinds == {b"["}:
        return _joined_lists(said)
    if all(piece == last for piece in said):
        return last
    if kinds == {b'"'}:
        return written("".join(rawjson.string(piece) or "" for piece in said))
    if kinds == {b"{"}:
        grown = Grown(frozenset())
        for piece in said:
            for name, raw in rawjson.members(piece).items():
                grown.grow(name, msgspec.Raw(raw))
        return with_members(grown.members())
    return last


def _joined_lists(lists: Sequence[bytes]) -> bytes:
    items = [item for one in lists for item in rawjson.items(one)]
    if all(item.startswith(b"{") for item in items):
        objects = [object_of(msgspec.Raw(item)) for item in items]
        if any(map(_is_piece, objects)):
            parts = Parts()
            parts.add(objects)
            return parts.raw()
    return lists[-1] if all(one == lists[-1] for one in lists) else listed(items)


def _is_piece(part: Object) -> bool:
    """True if a typed part may be a piece of a larger part."""
    if "type" in part and bytes(part["type"]) in _GROWING_PARTS:
        return True
    return "index" in part and not _PART_TEXTS.isdisjoint(part)


class Grown:
    """A JSON object in pieces."""

    __slots__ = ("_growing", "_pieces", "_texts")

    def __init__(self, growing: frozenset[str]) -> None:
        self._growing = growing
        self._pieces: dict[str, list[bytes]] = {}
        self._texts: dict[str, list[str]] = {}

    def grow(self, key: str, raw: msgspec.Raw) -> str:
        """Take one member of a piece; return the text that it added."""
        if key in self._growing and (text := text_of(raw)) is not None:
            self.add(key, text)
            return text
        value = bytes(raw)
        if value == b"null":
            return ""
        pieces = self._pieces.get(key)
        if pieces is None:
            self._pieces[key] = [value]
        elif key in ONCE:
            if value != b'""':
                pieces[:] = [value]
        else:
            pieces.append(pieces[-1] if pieces and pieces[-1] == value else value)
        return ""

    def add(self, key: str, text: str) -> None:
        """Add text to a string member."""
        pieces = self._texts.get(key)
        if pieces is None:
            self._texts[key] = [text]
            self._pieces.setdefault(key, [])  # keeps the order of members
        else:
            pieces.append(text)

    def get(self, key: str) -> bytes | None:
        """The last piece of a member."""
        pieces = self._pieces.get(key)
        return pieces[-1] if pieces else None

    def text(self, key: str) -> str:
        return "".join(self._texts.get(key, ()))

    def texts(self, key: str) -> Sequence[str]:
        """The pieces of a string member."""
        return self._texts.get(key, ())

    def pop_text(self, key: str) -> str | None:
        if key not in self._texts:
            return None
        del self._pieces[key]
        return "".join(self._texts.pop(key))

    def members(self) -> dict[str, bytes]:
        """All members, joined. Raises `RawJSONError` if a piece is not JSON."""
        return {
            key: written(self.text(key)) if key in self._texts else joined(key, pieces)
            for key, pieces in self._pieces.items()
        }


class Parts:
    """A list of typed parts in pieces."""

    __slots__ = ("_newest", "_parts")

    def __init__(self) -> None:
        self._parts: list[Grown] = []
        self._newest: dict[tuple[bytes | None, bytes | None], Grown] = {}  # by type and index

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, pieces: Iterable[Object]) -> str:
        """Take pieces; return the readable text (no encrypted data) that they added."""
        words = []
        for piece in pieces:
            part = self._continued_by(piece)
            if part is None:
                part = Grown(_PART_TEXTS)
                self._parts.append(part)
            for key, raw in piece.items():
                text = part.grow(key, raw)
                if key != "data":
                    words.append(text)
            self._newest[part.get("type"), part.get("index")] = part
        return "".join(words)

    def _continued_by(self, piece: Object) -> Grown | None:
        """The newest part of the same type and index. Without an index only the last part can match."""
        kind, index, id = (bytes(piece[key]) if key in piece else None for key in ("type", "index", "id"))
        part = self._newest.get((kind, index))
        if part is None or (index is None and part is not self._parts[-1]):
            return None
        is_other = id not in (None, b"null") and part.get("id") not in (None, id)
        can_grow = kind in _GROWING_PARTS or (index is not None and _is_piece_of_any(piece))
        return part if can_grow and not is_other and not _is_complete(part, piece) else None

    def text(self, kind: str) -> str:
        wanted = rawjson.dumps(kind)
        return "".join(part.text("text") for part in self._parts if part.get("type") == wanted)

    def raw(self) -> bytes:
        return listed(with_members(part.members()) for part in self._parts)


def _is_piece_of_any(piece: Object) -> bool:
    return "signature" in piece or not _PART_TEXTS.isdisjoint(piece)


def _is_complete(part: Grown, piece: Object) -> bool:
    """True if the part has a signature. A piece with text or another signature then begins a new part."""
    signed = part.get("signature")
    if signed in (None, b'""'):
        return False
    given = bytes(piece.get("signature", NULL))
    return given not in (b"null", b'""', signed) or not _PART_TEXTS.isdisjoint(piece)


# ----------------------------------------------------------------------------------------------- calls


class _Call:
    """One tool call in pieces."""

    __slots__ = ("_objects", "bodies", "rest")

    def __init__(self) -> None:
        self.rest = Grown(frozenset())
        self.bodies: dict[str, Grown] = {}
        self._objects: dict[str, _OneObject] = {}

    def grow(self, delta: Object, bodies: Mapping[str, Object]) -> None:
        for key, raw in delta.items():
            if key in bodies:
                body = self.bodies.setdefault(key, Grown(_ARGUMENTS))
                for name, value in bodies[key].items():
                    body.grow(name, value)
            elif key != "index":  # its place in the stream
                self.rest.grow(key, raw)

    def is_other(self, kind: str, body: Object) -> bool:
        """True if a piece with a name begins a call behind this one: it has another name, or this call has
        whole arguments and the piece has some."""
        own = self.bodies.get(kind)
        known = None if own is None else own.get("name")
        if own is None or known is None:
            return False
        if known != bytes(body["name"]):
            return True
        more = text_of(body.get("arguments", NULL)) or ""
        return bool(more.strip()) and self._objects.setdefault(kind, _OneObject()).is_in(
            own.texts("arguments")
        )

    def raw(self) -> bytes:
        bodies = {key: with_members(body.members()) for key, body in self.bodies.items()}
        return with_members(self.rest.members() | bodies)


class _OneObject:
    """Tells whether the pieces of a text make one JSON object. It reads each piece once, also if it is asked
    often: some servers repeat a call's name with each piece, and each name is a question."""

    __slots__ = ("_depth", "_found", "_in_string", "_is_escaped", "_read")

    def __init__(self) -> None:
        self._read = self._depth = 0
        self._in_string = self._is_escaped = False
        self._found: bool | None = None  # None before the end of the object

    def is_in(self, pieces: Sequence[str]) -> bool:
        """`pieces`: all of them, those that were read before too."""
        while self._read < len(pieces):
            piece = pieces[self._read]
            self._read += 1
            if self._found is not None:
                rest = piece
            elif (end := self._end_in(piece)) is not None:
                self._found = _is_object("".join(pieces[: self._read - 1]) + piece[:end])
                rest = piece[end:]
            else:
                continue
            self._found = self._found and not rest.strip(" \t\n\r")
        return bool(self._found)

    def _end_in(self, piece: str) -> int | None:
        """Where the object ends, if it ends in this piece."""
        at = 0
        while at < len(piece):
            if self._is_escaped:
                self._is_escaped, at = False, at + 1
                continue
            mark = (_IN_STRING if self._in_string else _OUTSIDE).search(piece, at)
            if mark is None:
                return None
            at = mark.end()
            if mark[0] == '"':
                self._in_string = not self._in_string
            elif mark[0] == "\\":
                self._is_escaped = True
            else:
                self._depth += 1 if mark[0] == "{" else -1
                if self._depth <= 0:
                    return at
        return None


_IN_STRING: Final = re.compile(r'["\\]')
_OUTSIDE: Final = re.compile(r'["{}]')


def _is_object(text: str) -> bool:
    try:
        rawjson.members(valid_text(text).encode())
    except rawjson.RawJSONError:
        return False
    return True


class Calls:
    """The tool calls, in the order in which they began."""

    __slots__ = ("_at", "_by_id", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self._by_id: dict[bytes, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, deltas: Iterable[Object]) -> None:
        for delta in deltas:
            bodies: dict[str, Object] = {}
            begins = False
            for kind in ("function", "custom"):
                if kind in delta and delta[kind] != NULL:
                    bodies[kind] = body = object_of(delta[kind])
                    begins = begins or bool("name" in body and text_of(body["name"]))
            call = self._meant_by(delta, bodies, begins=begins)
            before = call.rest.get("id")
            call.grow(delta, bodies)
            if (id := call.rest.get("id")) != before:
                if before is not None and self._by_id.get(before) is call:
                    del self._by_id[before]
                if id is not None:
                    self._by_id.setdefault(id, call)

    def _meant_by(self, delta: Object, bodies: Mapping[str, Object], *, begins: bool) -> _Call:
        """The call that a piece belongs to.

        A piece names its call by index. But Gemini's endpoint gives all parallel calls the index 0, and some
        servers send no index. So a name with another id begins another call, whatever its index. So does a
        name without an id, if the call at its index has no id either, and whole arguments or another name. A
        piece without an index belongs to the call with its id, or else to the last call.
        """
        index = _number(delta["index"]) if "index" in delta else None
        id = bytes(delta["id"]) if "id" in delta and delta["id"] not in (NULL, EMPTY) else None
        if index is not None:
            call = self._at.get(index)
        elif id is not None:
            call = self._by_id.get(id)
        else:
            call = self._calls[-1] if self._calls and not begins else None
        is_other = False
        if begins and call is not None:
            known = call.rest.get("id")
            if id is not None:
                is_other = known not in (None, id)
            elif known in (None, b"null", b'""'):
                is_other = any(call.is_other(kind, body) for kind, body in bodies.items())
        if call is None or is_other:
            call = _Call()
            self._calls.append(call)
        if index is not None:
            self._at[index] = call
        return call

    def raw(self) -> bytes:
        return listed(call.raw() for call in self._calls)


# --------------------------------------------------------------------------------- JSON in pieces

_TEXT: Final = msgspec.json.Decoder(str)
_NUMBER: Final = msgspec.json.Decoder(int)
_OBJECT: Final = msgspec.json.Decoder(Object)
_OBJECTS: Final = msgspec.json.Decoder(list[Object])


def text_of(raw: msgspec.Raw) -> str | None:
    """The string in a span; None if the span holds another value."""
    try:
        return _TEXT.decode(raw)
    except REFUSALS:
        return rawjson.string(bytes(raw))


def _number(raw: msgspec.Raw) -> int | None:
    try:
        return _NUMBER.decode(raw)
    except REFUSALS:
        return None


def object_of(raw: msgspec.Raw) -> Object:
    """The members of an object. Raises `RawJSONError` for anything else."""
    try:
        return _OBJECT.decode(raw)
    except REFUSALS:
        return {key: msgspec.Raw(value) for key, value in rawjson.members(bytes(raw)).items()}


def objects_of(raw: msgspec.Raw) -> list[Object]:
    """The objects of a list. Raises `RawJSONError` for anything else."""
    try:
        return _OBJECTS.decode(raw)
    except REFUSALS:
        return [object_of(msgspec.Raw(item)) for item in rawjson.items(bytes(raw))]


def written(text: str) -> bytes:
    """A string as JSON, exactly: a lone surrogate stays escaped, where `rawjson.dumps` would replace it."""
    return rawjson.dumps(text) if valid_text(text) is text else json.dumps(text).encode()


def with_members(members: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    """An object of these members."""
    return b"{" + b",".join(rawjson.dumps(key) + b":" + bytes(value) for key, value in members.items()) + b"}"


def listed(values: Iterable[bytes]) -> bytes:
    """A list of these values."""
    return b"[" + b",".join(values) + b"]"
