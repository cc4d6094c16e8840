"""Joins the pieces in which a streamed value came.

Owns: which strings, lists, objects and calls go on, and which are repeated. Must never know: an event, a
delta's names, what of a message is stored.

The rule, for every member of a message, a part, a call or an object in them:

1. null and, after anything else, the empty string say nothing.
2. Strings that are known to come in pieces are joined: text, reasoning, arguments.
3. Of a name, an id, a type, a signature and the like (`ONCE`) the last value holds: they come whole.
4. Of any other member the pieces are looked at together. If all are equal, the value was repeated: it is
   kept once. Strings that differ are pieces of one: they are joined. Lists are joined; typed parts in
   them go on with each other as a message's parts do. Objects are joined member by member, by this rule.
   Of numbers, booleans and values of different kinds the last holds.

So a stream that is cut at other points gives the same message. The exception: an unknown string whose pieces
happen to be all equal ("ha", "ha") cannot be told from a repeated one, and is kept once.

LiteLLM streams one signed block as parts ``{"type":"thinking","thinking":"…","signature":""}`` and a last one
with the signature (its stream_chunk_builder joins them so; seen 2026-11); Mistral's reasoning models send
content as lists of thinking and text parts (docs.mistral.ai/capabilities/reasoning, seen 2026-11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ... import rawjson
from ...render import plain

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
"""Members that come whole, whatever holds them."""

_PART_TEXTS: Final = frozenset({"text", "thinking", "summary", "data"})
"""The strings of a typed part that come in pieces: of content, and of OpenRouter's reasoning details."""

_ARGUMENTS: Final = frozenset({"arguments", "input"})
"""The strings of a tool call that come in pieces: a function's, a custom tool's."""

_GROWING_PARTS: Final = frozenset({b'"text"', b'"thinking"', b'"reasoning.text"', b'"reasoning.summary"'})
"""Types of parts that a piece without an index goes on with; any other begins a new one."""


# --------------------------------------------------------------------------------------- unknown values


def joined(key: str, pieces: Sequence[bytes]) -> bytes:
    """The value of a member that came as these JSON values; see the rule above.

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
    """Whether a typed part may be a piece of one."""
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
        """Let one string grow."""
        pieces = self._texts.get(key)
        if pieces is None:
            self._texts[key] = [text]
            self._pieces.setdefault(key, [])  # holds its place
        else:
            pieces.append(text)

    def get(self, key: str) -> bytes | None:
        """The last piece of a member."""
        pieces = self._pieces.get(key)
        return pieces[-1] if pieces else None

    def text(self, key: str) -> str:
        return "".join(self._texts.get(key, ()))

    def pop_text(self, key: str) -> str | None:
        if key not in self._texts:
            return None
        del self._pieces[key]
        return "".join(self._texts.pop(key))

    def members(self) -> dict[str, bytes]:
        """Each member, whole. Raises `RawJSONError` if a piece is not JSON."""
        return {
            key: written(self.text(key)) if key in self._texts else joined(key, pieces)
            for key, pieces in self._pieces.items()
        }


class Parts:
    """A list of typed parts in pieces."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[Grown] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, pieces: Iterable[Object]) -> str:
        """Take pieces; return the words (no encrypted data) that they added."""
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
        return "".join(words)

    def _continued_by(self, piece: Object) -> Grown | None:
        """The latest part of the same type and index; without an index only the very last can be meant."""
        kind, index, id = (bytes(piece[key]) if key in piece else None for key in ("type", "index", "id"))
        for part in reversed(self._parts if index is not None else self._parts[-1:]):
            if part.get("type") == kind and part.get("index") == index:
                is_other = id not in (None, b"null") and part.get("id") not in (None, id)
                can_grow = kind in _GROWING_PARTS or (index is not None and _is_piece_of_any(piece))
                return part if can_grow and not is_other and not _is_complete(part, piece) else None
        return None

    def text(self, kind: str) -> str:
        wanted = rawjson.dumps(kind)
        return "".join(part.text("text") for part in self._parts if part.get("type") == wanted)

    def raw(self) -> bytes:
        return listed(with_members(part.members()) for part in self._parts)


def _is_piece_of_any(piece: Object) -> bool:
    return "signature" in piece or not _PART_TEXTS.isdisjoint(piece)


def _is_complete(part: Grown, piece: Object) -> bool:
    """Whether a part is signed, so that a piece with words, or another signature, begins a new one."""
    signed = part.get("signature")
    if signed in (None, b'""'):
        return False
    given = bytes(piece.get("signature", NULL))
    return given not in (b"null", b'""', signed) or not _PART_TEXTS.isdisjoint(piece)


# ----------------------------------------------------------------------------------------------- calls


class _Call:
    """One tool call in pieces."""

    __slots__ = ("bodies", "rest")

    def __init__(self) -> None:
        self.rest = Grown(frozenset())
        self.bodies: dict[str, Grown] = {}

    def grow(self, delta: Object, bodies: Mapping[str, Object]) -> None:
        for key, raw in delta.items():
            if key in bodies:
                body = self.bodies.setdefault(key, Grown(_ARGUMENTS))
                for name, value in bodies[key].items():
                    body.grow(name, value)
            elif key != "index":  # its place in the stream
                self.rest.grow(key, raw)

    def raw(self) -> bytes:
        bodies = {key: with_members(body.members()) for key, body in self.bodies.items()}
        return with_members(self.rest.members() | bodies)


class Calls:
    """The tool calls, in the order in which they began."""

    __slots__ = ("_at", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

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
            self._meant_by(delta, begins=begins).grow(delta, bodies)

    def _meant_by(self, delta: Object, *, begins: bool) -> _Call:
        """The call that a piece belongs to.

        A piece names its call by index. But Gemini's endpoint numbers parallel calls all 0, and some
        servers send no index: so a name with another id begins another call whatever its index, and
        without an index a piece belongs to the call of its id, or else to the last one.
        """
        index = _number(delta["index"]) if "index" in delta else None
        id = bytes(delta["id"]) if "id" in delta and delta["id"] not in (NULL, EMPTY) else None
        if index is not None:
            call = self._at.get(index)
        elif id is not None:
            call = next((call for call in self._calls if call.rest.get("id") == id), None)
        else:
            call = self._calls[-1] if self._calls and not begins else None
        if call is None or (begins and id is not None and call.rest.get("id") not in (None, id)):
            call = _Call()
            self._calls.append(call)
        if index is not None:
            self._at[index] = call
        return call

    def raw(self) -> bytes:
        return listed(call.raw() for call in self._calls)


# --------------------------------------------------------------------------------- JSON in pieces

_REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TEXT: Final = msgspec.json.Decoder(str)
_NUMBER: Final = msgspec.json.Decoder(int)
_OBJECT: Final = msgspec.json.Decoder(Object)
_OBJECTS: Final = msgspec.json.Decoder(list[Object])


def text_of(raw: msgspec.Raw) -> str | None:
    """The string that a span is, None if it is something else."""
    try:
        return _TEXT.decode(raw)
    except _REFUSALS:
        return rawjson.string(bytes(raw))


def _number(raw: msgspec.Raw) -> int | None:
    try:
        return _NUMBER.decode(raw)
    except _REFUSALS:
        return None


def object_of(raw: msgspec.Raw) -> Object:
    """The members of an object. Raises `RawJSONError` for anything else."""
    try:
        return _OBJECT.decode(raw)
    except _REFUSALS:
        return {key: msgspec.Raw(value) for key, value in rawjson.members(bytes(raw)).items()}


def objects_of(raw: msgspec.Raw) -> list[Object]:
    """The objects of a list. Raises `RawJSONError` for anything else."""
    try:
        return _OBJECTS.decode(raw)
    except _REFUSALS:
        return [object_of(msgspec.Raw(item)) for item in rawjson.items(bytes(raw))]


def written(text: str) -> bytes:
    """A string as JSON, exactly: half an emoji stays escaped, where `rawjson.dumps` would replace it."""
    return rawjson.dumps(text) if plain(text) is text else json.dumps(text).encode()


def with_members(members: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    """An object of these members."""
    return b"{" + b",".join(rawjson.dumps(key) + b":" + bytes(value) for key, value in members.items()) + b"}"


def listed(values: Iterable[bytes]) -> bytes:
    """A list of these values."""
    return b"[" + b",".join(values) + b"]"
