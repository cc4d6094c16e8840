"""Reads JSON text strictly, and names the byte of an error.

Owns: the grammar of JSON (RFC 8259), the depth of a text, the number of its values, and the positions of the
values of its first level. Must never know: a fast reader, or the use of the pieces.

The scanner is one loop without recursion. Below the first level it uses the standard library's reader.
It accepts one thing that msgspec refuses: an escaped surrogate without its other half (``"\\ud800"``). Models
send such escapes, and JSON's grammar allows them. The time is linear in the length of the input. No error
text quotes the input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Final, NamedTuple, NoReturn

import msgspec

__all__ = [
    "CLOSING",
    "MAX_DEPTH",
    "SCANNED_BYTES",
    "SPACE",
    "STRING",
    "TOO_DEEP",
    "RawJSONError",
    "Span",
    "check",
    "check_text",
    "count_values",
    "exact_values",
    "is_shallow",
    "most_values",
    "outside_strings",
    "pattern",
    "refuse_far_error",
    "scan",
    "separators",
]

MAX_DEPTH = 64
"""The deepest nesting; the outermost container counts as 1. Recorded replies of three provider APIs reach
12."""
TOO_DEEP = f"JSON nested deeper than {MAX_DEPTH} levels"


class RawJSONError(ValueError):
    """The bytes are not the expected JSON. `offset` is the first byte that shows it."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem, offset)
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.args[0]} (at byte {self.offset})"


class Span(NamedTuple):
    """The position of one member of an object, or of one element of an array, in its text.

    ``data[start:end]`` is the value and ``data[key_start:key_end]`` the key as it was written, quotes
    included. An element has no key: `key` is None, and its key's span is empty.
    """

    key: str | None
    key_start: int
    key_end: int
    start: int
    end: int


# -------------------------------------------------------------------------------- depth and number of values


def count_values(text: bytes, *, most: int) -> int:
    """Count the JSON values in a text: the commas and the opening brackets outside of strings.

    A value takes up to two hundred bytes of memory, and may be two bytes of text. So count them before a
    parser runs. The values are not read, and the time is linear.

    A result up to `most` is an upper bound, which is found fast. Beyond `most` counting stops. For text that
    is not JSON, any result is possible. But up to the first error, this counts the values that a parser sees.
    """
    if (bound := most_values(len(text))) <= most or (bound := separators(text)) <= most:
        return bound
    return exact_values(text, most)


def exact_values(text: bytes, most: int) -> int:
    """As `count_values`, and exact up to `most`."""
    found = 0
    for outside in outside_strings(text, _SEPARATORS):
        found += len(outside)
        if found > most:
            break
    return found


def most_values(length: int) -> int:
    """The most values that a JSON text of this length in bytes can have: ``[],`` counts as two."""
    return 2 * length // 3 + 2


def separators(text: bytes) -> int:
    """Count commas and opening brackets, also those in strings."""
    return sum(map(text.count, _SEPARATORS))


_SEPARATORS: Final = b",[{"


def check_text(text: str) -> None:
    """Refuse JSON that is too deep or too large for a value that programs can show and copy.

    The arguments of a call may have any depth and size. Raises ValueError if the text nests deeper than
    `MAX_TEXT_DEPTH`, or has more than `MAX_TEXT_VALUES` values.
    """
    data = text.encode("utf-8", "surrogatepass")
    if not is_shallow(data, MAX_TEXT_DEPTH):
        raise ValueError(f"JSON nested deeper than {MAX_TEXT_DEPTH} levels")
    if count_values(data, most=MAX_TEXT_VALUES) > MAX_TEXT_VALUES:
        raise ValueError(f"JSON of more than {MAX_TEXT_VALUES:,} values")


MAX_TEXT_DEPTH: Final = 100
"""Python's `copy` and `json` need two or three nested calls for a level. Python allows a thousand, and the
program needs some of them."""
MAX_TEXT_VALUES: Final = 1_000_000


def is_shallow(data: bytes, most: int = MAX_DEPTH) -> bool:
    """True if containers nest no deeper than `most`. For text that is not JSON, any result is possible.

    But up to the first error, this sees the depth that a parser sees. The check is necessary: msgspec goes as
    deep as Python's recursion limit, and a caller may have raised the limit beyond the size of the C stack.
    """
    if len(data) < 1024:
        if data.count(b"{") + data.count(b"[") <= most:
            return True
    elif _few(b"{[", data, most):
        return True
    depth = 0
    for brackets in outside_strings(data, b"[]{}"):
        depths = list(accumulate(map(_STEP.__getitem__, brackets), initial=depth))
        if max(depths) > most:
            return False
        depth = depths[-1]
    return True


def _few(characters: bytes, data: bytes, left: int) -> bool:
    """True if the text has at most `left` of these characters, inside and outside of strings."""
    for character in characters:
        at = data.find(character)  # find is a memchr; on a long text, bytes.count takes ten times as long
        while at >= 0:
            if not left:
                return False
            left -= 1
            at = data.find(character, at + 1)
    return True


def outside_strings(data: bytes, characters: bytes) -> Iterator[bytes]:
    """Yield the given characters that stand outside of strings, in pieces.

    In pieces, because many quotation marks in a short text must not become many objects at once.
    """
    others = _all_but(characters + b'"')
    is_inside = False
    at = 0
    while at < len(data):
        piece = data[at : at + _PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and at + len(piece) < len(data):
            piece = piece[:-1]  # the last backslash escapes the next character: keep the two together
        at += len(piece)
        marks = piece.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, others).split(b'"')
        yield b"".join(marks[is_inside::2])
        is_inside ^= len(marks) % 2 == 0


@cache
def _all_but(characters: bytes) -> bytes:
    return bytes(set(range(256)).difference(characters))


_PIECE_BYTES: Final = 64 * 2**10
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


# ----------------------------------------------------------------------------------------------- the scanner

# Possessive quantifiers (``*+``) never backtrack, so every pattern takes linear time.
SPACE = rb"[ \t\n\r]*+"
STRING = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_EMPTY = rb"\[" + SPACE + rb"\]|\{" + SPACE + rb"\}"


def pattern(*parts: bytes) -> re.Pattern[bytes]:
    return re.compile(SPACE + SPACE.join(parts))


_VALUE = pattern(rb"(" + rb"|".join((STRING, _NUMBER, rb"true|false|null", _EMPTY, rb"[\[{]")) + rb")")
_KEY = pattern(rb"(" + STRING + rb")", rb":")
_AFTER_VALUE = pattern(rb"([,\]}])")
_END = pattern(rb"\Z")
_COMMA, _OBJECT_START, _OBJECT_END, _ARRAY_START, _ARRAY_END = b",{}[]"
CLOSING = {_OBJECT_START: _OBJECT_END, _ARRAY_START: _ARRAY_END}


def check(data: bytes) -> None:
    """Refuse bytes that are not exactly one JSON text."""
    _check_utf8(data)
    text, start = _walkable(data), len(data) - len(data.lstrip(b" \t\n\r"))
    end = None if text is None else _walked(text, start)
    if end is None or not _END.match(data, end):
        scan(data)


def scan(data: bytes, kinds: str = "") -> list[Span]:
    """Read one JSON text strictly and return the spans of its first level; `()` for a scalar.

    Args:
        data: The text.
        kinds: The characters it may begin with: "{" for an object, "[" for an array; "" for any value.
    """
    _check_utf8(data)
    text = _walkable(data)
    found: list[Span] = []
    closing: list[int] = []  # the closing brackets that are expected, innermost last
    key_span = (0, 0)
    value_start = end = 0
    while True:
        if closing and closing[-1] == _OBJECT_END:
            match = _expect(_KEY, data, end, "a key")
            end = match.end()
            if len(closing) == 1:
                key_span = match.span(1)
        start, end = _expect(_VALUE, data, end, "a value").span(1)
        if len(closing) <= 1:
            if not closing and kinds and chr(data[start]) not in kinds:
                raise RawJSONError(f"expected JSON that begins with {' or '.join(kinds)}", start)
            value_start = start
        if data[start] in CLOSING:
            if len(closing) == MAX_DEPTH:
                raise RawJSONError(TOO_DEEP, start)
            if end - start == 1:  # an empty container is one token
                inner = None if text is None or not closing else _walked(text, start)
                if inner is None:
                    closing.append(CLOSING[data[start]])
                    continue
                end = inner
        while True:
            if len(closing) == 1:
                found.append(_span(data, closing[0], key_span, value_start, end))
            if not closing:
                _expect(_END, data, end, "nothing more")
                return found
            start, end = _expect(_AFTER_VALUE, data, end, "a comma or the end of a container").span(1)
            if data[start] == _COMMA:
                break
            if data[start] != closing.pop():
                raise RawJSONError("a closing bracket of the wrong kind", start)


def _span(data: bytes, closing: int, key_span: tuple[int, int], start: int, end: int) -> Span:
    if closing == _ARRAY_END:
        return Span(None, start, start, start, end)
    # json, unlike the others, decodes a lone surrogate.
    key: str = json.loads(data[slice(*key_span)].decode())
    return Span(key, *key_span, start, end)


def _expect(pattern: re.Pattern[bytes], data: bytes, at: int, what: str) -> re.Match[bytes]:
    match = pattern.match(data, at)
    if match is None:
        raise RawJSONError(f"not JSON: expected {what}", len(data) - len(data[at:].lstrip(b" \t\n\r")))
    return match


def _check_utf8(data: bytes) -> None:
    try:
        data.decode()
        return
    except UnicodeDecodeError as error:
        offset = error.start
    raise RawJSONError("not UTF-8", offset)  # outside the handler: the error's context would hold the text


# ------------------------------------------------------------------------------------------------ the walker


def refuse_far_error(data: bytes) -> None:
    """Refuse a long text with an error far behind its beginning, without making values of the text.

    The text must be shallow, and longer than `SCANNED_BYTES`. Raises `RawJSONError`. A text that passes may
    still have a number that cannot be read.
    """
    at = _error_of_skipper(data)
    if at is not None:
        # The error may be a lone surrogate, which is valid JSON. So replace each surrogate and look again:
        # other errors stay, also where these bytes are an escaped backslash and a letter.
        at = _error_of_skipper(data.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0"))
    if at is not None and at > SCANNED_BYTES:
        raise RawJSONError("not JSON", at)


def _error_of_skipper(data: bytes) -> int | None:
    """The byte at which msgspec finds an error; None without an error."""
    try:
        _SKIPPER.decode(data)
    except msgspec.DecodeError as error:
        found = _OFFSET.search(str(error))
        return int(found[1]) if found else len(data)
    return None


_SKIPPER: Final = msgspec.json.Decoder(msgspec.Raw)
_OFFSET: Final = re.compile(r"\(byte (\d+)\)")


def _walkable(data: bytes) -> str | None:
    """The text with one character for each byte, so that positions in it are byte positions.

    None if it may nest too deep. A long text is refused then: it nests too deep, or is not JSON.
    """
    if is_shallow(data):
        if len(data) > SCANNED_BYTES:
            refuse_far_error(data)
        return data.decode("latin-1")
    if len(data) > SCANNED_BYTES:
        raise RawJSONError(TOO_DEEP, 0)
    return None


def _walked(text: str, start: int) -> int | None:
    """The end of a value, found by the standard library's reader.

    That reader is written in C. The scanner takes a microsecond for each value, and a few compressed
    kilobytes may hold millions of values.

    None: the scanner has to find the error. If the error is far away, this raises `RawJSONError` instead.
    """
    try:
        return _WALKER.raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        at = error.pos
    except _ConstantError:
        at = len(text)
    if at - start > SCANNED_BYTES:
        raise RawJSONError("not JSON", start)
    return None


class _ConstantError(Exception):
    """JSON has no NaN and no Infinity."""


def _no_constant(name: str) -> NoReturn:
    raise _ConstantError


_WALKER: Final = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_no_constant)
"""Does not convert numbers: that takes long for many digits, and fails for some."""
SCANNED_BYTES: Final = 64 * 2**10
"""The scanner looks for an error in this many bytes from the beginning of a text."""
