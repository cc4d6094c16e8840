"""JSON text as a tree of places, so that single strings of it can be replaced.

Owns: where each value of a JSON text stands, and the text with other strings in some of these places. Must
never know: what a string says.

All that is not replaced stays character for character: white space, escapes, the digits of numbers, members
that stand there twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from ... import rawjson

__all__ = ["Edits", "Node", "parsed"]


class Node(NamedTuple):
    """One value. `start` and `end`: its place in the text, the quotation marks of a string included.

    `keys`: for an object the place of each key as a node of kind "string". `items`: its values.
    """

    kind: Literal["object", "array", "string", "literal"]
    start: int
    end: int
    keys: Sequence[Node] = ()
    items: Sequence[Node] = ()

    def raw(self, text: str) -> str:
        """Its own text."""
        return text[self.start : self.end]

    def said(self, text: str) -> str:
        """The decoded text of a string."""
        inside = text[self.start + 1 : self.end - 1]
        return str(_DECODER.decode(f'"{inside}"')) if "\\" in inside else inside

    def members(self, text: str) -> Mapping[str, Node]:
        """The values of an object by key; of several with one key the last."""
        return {key.said(text): item for key, item in zip(self.keys, self.items, strict=True)}


_DECODER: Final = json.JSONDecoder(strict=False)


class Edits:
    """Replacements in a text, collected and then made at once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._made: list[tuple[int, int, str]] = []

    def put(self, node: Node, raw: str) -> None:
        """Put JSON text into the place of a node."""
        self._made.append((node.start, node.end, raw))

    def done(self) -> str:
        """The text with all replacements. The same object if there are none."""
        if not self._made:
            return self._text
        pieces: list[str] = []
        at = 0
        for start, end, raw in sorted(self._made):
            pieces += (self._text[at:start], raw)
            at = end
        return "".join((*pieces, self._text[at:]))


_TOKEN: Final = re.compile(
    r'[ \t\n\r]*+(?:("[^"\\]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\]*+)*+")'
    r"|([-0-9][-+.0-9eE]*+|true|false|null)|([\[\]{},:]))"
)


def parsed(text: str) -> Node | None:
    """The tree of a JSON text; None for a text that is not JSON, or nests deeper than `rawjson.MAX_DEPTH`."""
    tokens = list(_tokens(text))
    try:
        node, at = _value(tokens, 0, 1)
    except (_NotJSONError, IndexError):
        return None
    return node if at == len(tokens) - 1 else None


class _NotJSONError(Exception):
    """The text is not JSON."""


class _Token(NamedTuple):
    kind: str
    start: int
    end: int


def _tokens(text: str) -> Iterable[_Token]:
    at = 0
    while (found := _TOKEN.match(text, at)) is not None:
        group = found.lastindex or 0
        start, at = found.span(group)
        yield _Token({1: "string", 2: "literal"}.get(group, found[group]), start, at)
    # The end stands for the missing token of a text that is cut off, or that has more behind its value.
    yield _Token("end" if not text[at:].strip(" \t\n\r") else "?", at, at)


def _value(tokens: Sequence[_Token], at: int, depth: int) -> tuple[Node, int]:
    kind, start, end = tokens[at]
    if kind == "string" or kind == "literal":
        return Node(kind, start, end), at + 1  # type: ignore[arg-type]
    if kind not in ("{", "[") or depth > rawjson.MAX_DEPTH:
        raise _NotJSONError
    closing = "}" if kind == "{" else "]"
    keys: list[Node] = []
    items: list[Node] = []
    at += 1
    while tokens[at].kind != closing:
        if items:
            _expect(tokens[at], ",")
            at += 1
        if kind == "{":
            _expect(tokens[at], "string")
            keys.append(Node("string", tokens[at].start, tokens[at].end))
            _expect(tokens[at + 1], ":")
            at += 2
        item, at = _value(tokens, at, depth + 1)
        items.append(item)
    name: Literal["object", "array"] = "object" if kind == "{" else "array"
    return Node(name, start, tokens[at].end, tuple(keys), tuple(items)), at + 1


def _expect(token: _Token, kind: str) -> None:
    if token.kind != kind:
        raise _NotJSONError
