"""Cuts pieces out of JSON text without changing a byte of them.

Owns: where a member or an element of a JSON document begins and ends, and reading a document as Python
values. Must never know: what a document means, or where it comes from.

There are two readers. msgspec's C parser reads almost everything. What it refuses goes to the scanner below,
which reads RFC 8259 strictly, in one loop without recursion. Only the scanner decides that text is refused,
and at which byte. It accepts one thing that msgspec refuses: an escaped surrogate without its other half
(``"\\ud800"``). Models send such escapes, and JSON's grammar allows them.

Both refuse text that is not UTF-8, and containers that nest deeper than `MAX_DEPTH`. The time is linear in
the length of the input. No error text quotes the input.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec
import orjson

__all__ = [
    "MAX_DEPTH",
    "RawJSONError",
    "Span",
    "dumps",
    "has_few_values",
    "is_null",
    "items",
    "loads",
    "members",
    "names",
    "one_line",
    "pruned",
    "replaced",
    "shorn",
    "spans",
    "string",
    "view",
    "without",
]

MAX_DEPTH = 64
"""The deepest nesting; the outermost container counts as 1. Recorded replies of three provider APIs reach
12."""

_T = TypeVar("_T")


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


# ------------------------------------------------------------------------------------ cutting spans out


def members(data: bytes) -> dict[str, bytes]:
    """Cut an object's values out, by decoded key.

    Of several members with one key the last wins, at the place of the first, as in `json.loads`.

    Raises:
        RawJSONError: `data` is not one JSON object.
    """
    found = _accepted(_OBJECT, data)
    if found is not None:
        return {key: bytes(value) for key, value in found.items()}
    return {span.key: data[span.start : span.end] for span in _scan(data, "{") if span.key is not None}


def names(data: bytes) -> frozenset[str]:
    """The keys of an object, decoded.

    Raises:
        RawJSONError: `data` is not one JSON object.
    """
    found = _accepted(_OBJECT, data)
    return frozenset(members(data) if found is None else found)


def items(data: bytes) -> list[bytes]:
    """Cut an array's elements out.

    Raises:
        RawJSONError: `data` is not one JSON array.
    """
    found = _accepted(_ARRAY, data)
    if found is not None:
        return [bytes(value) for value in found]
    return [data[span.start : span.end] for span in _scan(data, "[")]


def spans(data: bytes) -> list[Span]:
    """Find the positions of the members of an object, or of the elements of an array, one level deep.

    Between the spans there is nothing but white space and ``{ } [ ] , :``. Repeated keys are all listed.

    Raises:
        RawJSONError: `data` is neither one JSON object nor one JSON array.
    """
    opening = _OPENING.match(data)
    if opening is None:
        return _scan(data, "{[")
    return _object_spans(data) if opening[1] == b"{" else _array_spans(data)


def without(data: bytes, keys: Collection[str]) -> bytes:
    """Cut members out of an object, each with its comma; every other byte stays.

    A missing key is no error; a repeated key is cut each time. Returns `data` itself if
    nothing was cut.

    Raises:
        RawJSONError: `data` is not one JSON object.
    """
    found = _object_spans(data)
    if not any(span.key in keys for span in found):
        return data
    kept: list[bytes] = []
    previous_end = found[0].key_start
    for span in found:
        if span.key not in keys:
            kept.append(data[previous_end if kept else span.key_start : span.end])
        previous_end = span.end
    return b"".join((data[: found[0].key_start], *kept, data[previous_end:]))


def shorn(data: bytes, keys: Collection[str]) -> bytes:
    """As `without`, for text that is known to be one JSON object. Faster if the members are the last ones and
    are empty, because providers end a message with such members.
    """
    left, kept = set(keys), data
    while left and (last := _LAST_AND_EMPTY.match(kept, max(0, kept.rfind(b",")))):
        key = last[1].decode()
        if key not in left:
            break
        left.remove(key)
        # A string cannot hold an unescaped quotation mark. So this comma stands between members, and the
        # match ends the object.
        kept = kept[: last.start()].rstrip(b" \t\n\r") + kept[last.end(2) :]
    if b"\\u00" in kept or any(b'"%s"' % key.encode() in kept for key in keys):
        return without(kept, keys)  # a key is not at the end, is there twice, or is escaped
    return kept


def replaced(data: bytes, replacements: Mapping[str, bytes]) -> bytes:
    """Put other values into an object, appending members it lacks; every other byte stays.

    Args:
        data: One JSON object.
        replacements: A JSON value for each key. It is inserted without being read. A repeated key gets it
            each time, so that no parser finds the old value.

    Raises:
        RawJSONError: `data` is not one JSON object.
    """
    found = _object_spans(data)
    pieces: list[bytes] = []
    done = 0
    for span in found:
        if span.key is not None and span.key in replacements:
            pieces += (data[done : span.start], replacements[span.key])
            done = span.end
    tail = found[-1].end if found else data.index(b"{") + 1
    pieces.append(data[done:tail])
    comma = b"," if found else b""
    present = {span.key for span in found}
    for key, value in replacements.items():
        if key not in present:
            pieces += (comma, dumps(key), b":", value)
            comma = b","
    pieces.append(data[tail:])
    return b"".join(pieces)


def one_line(data: bytes) -> bytes:
    """Make a JSON text one line: newlines become spaces, and white space around the text is removed.

    A JSON string cannot hold a raw newline, so in valid JSON only white space between tokens changes.
    Returns `data` itself if there is nothing to do.
    """
    return data.strip(b" \t\r\n").replace(b"\n", b" ")


def string(data: bytes) -> str | None:
    """Read a span that is a JSON string; None if it is anything else.

    Raises:
        RawJSONError: It begins like a string, and is not one.
    """
    if not data.startswith(b'"'):
        return None
    text: str = loads(data)
    return text


def has_few_values(data: bytes, most: int) -> bool:
    """True if JSON text has at most about so many values. It is not read as values for that, and the time is
    linear. A value takes up to a hundred bytes of memory, and may be two bytes of text.

    A short text costs nothing: `most` values have at least twice as many bytes. For text that is not JSON,
    any result is possible; up to the first error in it, though, this sees the text as a parser does.
    """
    if len(data) <= 2 * most or _few(b",[{", data):
        return True
    pieces = (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))
    if sum(len(piece.translate(None, _all_but(b",[{"))) for piece in pieces) <= most:
        return True
    for found in _outside_strings(data, b",[{"):
        most -= len(found)
        if most < 0:
            return False
    return True


def is_null(data: bytes) -> bool:
    """True if a span is JSON's null."""
    return data == b"null"


def pruned(data: bytes, *, as_text: Collection[str] = ()) -> bytes:
    """Replace each container that nests deeper than `MAX_DEPTH` by null.

    Every other byte stays. Returns `data` itself if nothing nests too deep, and if it is not JSON, which the
    readers refuse. The replaced part is not parsed. The time is linear, and there is no recursion.

    Args:
        data: One JSON text.
        as_text: Names of members. Where such a member holds an object with a container that is too deep,
            the whole object becomes a JSON string of its own text, so that nothing of it is lost.
    """
    if _is_shallow(data):
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    # `plain` has the length of `data`, and each quotation mark in it begins or ends a string.
    plain = data.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    outside = b"".join(_outside_strings(data, b"{[]}"))
    if outside.count(b"{") != outside.count(b"}") or outside.count(b"[") != outside.count(b"]"):
        return data
    names = b"|".join(re.escape(name.encode()) for name in as_text) or rb"(?!)"
    kept = bytearray()
    done = depth = cut_at = text_at = text_depth = 0
    is_cut = False  # whether a container was cut out of the object that may become text
    for match in re.finditer(_NAMED_OBJECT % names + rb'|"[^"]*+"?+|[\[{]|[\]}]', plain):
        at = match.end() - 1
        if plain[at] in _CLOSING:
            depth += 1
            if depth == MAX_DEPTH + 1:
                cut_at = at
            elif depth <= MAX_DEPTH and not text_depth and at != match.start():
                text_at, text_depth, is_cut = at, depth, False
        elif plain[at] in _CLOSING.values():
            depth -= 1
            if depth == MAX_DEPTH:
                is_cut = True
                if not text_depth:
                    kept += data[done:cut_at] + b"null"
                    done = at + 1
            elif text_depth and depth == text_depth - 1:
                if is_cut:
                    kept += data[done:text_at] + json.dumps(data[text_at : at + 1].decode()).encode()
                    done = at + 1
                text_depth = 0
    kept += data[done:]
    return bytes(kept)


# ---------------------------------------------------------------------------------------------- views


def loads(data: bytes) -> Any:
    """Read JSON as Python values. Never store or send these values: use the bytes.

    Integers of any size are exact and a lone surrogate stays one. orjson would be a little faster, but
    makes an integer beyond 64 bits a float without a word.

    Raises:
        RawJSONError: Not JSON (``NaN`` and ``Infinity`` are not), nested too deep, or with a number that
            no float or `int` can hold, such as ``1e999``.
    """
    found = _read(data, _finite_float, int)
    if found is _TOO_LARGE:
        raise RawJSONError("JSON with a number that is too large to read", 0)
    return found


def view(data: bytes) -> Any:
    """As `loads`, for reading only: a number that is too large becomes the largest float.

    With it everything that a provider wrote can be read.

    Raises:
        RawJSONError: Not JSON, or nested too deep.
    """
    return _read(data, _clamped_float, _clamped_int)


_TOO_LARGE: Final = object()


def _read(data: bytes, parse_float: Callable[[str], Any], parse_int: Callable[[str], Any]) -> Any:
    if _is_shallow(data):
        try:
            return _ANY.decode(data)
        except _REFUSALS:
            pass  # it is no JSON, or has a surrogate that is alone, or a number beyond all limits
    _check(data)
    text = data.decode()
    for read_int in (int, parse_int):  # a function of ours takes ten times as long, and is seldom needed
        try:
            return json.loads(text, parse_float=parse_float, parse_int=read_int)
        except ValueError:
            continue  # what is returned then is raised later: the context of the error would hold the text
    return _TOO_LARGE


def dumps(value: Any) -> bytes:
    """Write a JSON value compactly, as one line that `loads` reads.

    Surrogates that make a pair, as a stream cut inside an emoji leaves them, become their character; one
    that is alone becomes U+FFFD, since UTF-8 has no bytes for it.

    Args:
        value: dict with str keys, list, tuple, str, int, float, bool or None.

    Raises:
        ValueError: A float that is not finite (JSON has no such number), an integer of more than 4,300
            digits, or containers nested too deep (a cycle is).
        TypeError: Something that is not a JSON value.
    """
    try:
        text = orjson.dumps(value, option=_ONLY_JSON_VALUES)
    except TypeError:  # what orjson cannot write, such as large integers and surrogates
        text = json.dumps(_plain(value, 0), ensure_ascii=False, separators=(",", ":")).encode()
    if not _is_shallow(text):
        raise ValueError(_TOO_DEEP)
    if b"null" in text and not _all_finite(value):  # orjson writes null for NaN and the infinities
        raise ValueError(_NOT_FINITE)
    return text


_ONLY_JSON_VALUES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NOT_FINITE = "JSON has no NaN and no infinity"
_TOO_DEEP = f"JSON nested deeper than {MAX_DEPTH} levels"


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("beyond the range of a float")
    return number


def _clamped_float(digits: str) -> float:
    return max(-sys.float_info.max, min(float(digits), sys.float_info.max))


def _clamped_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else _clamped_float(digits)


_MOST_DIGITS: Final = 4_300
"""The number of digits that Python's `int` reads by default."""


def _all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_all_finite, value))
    return True


def _plain(value: Any, depth: int) -> Any:
    """Check that the value is JSON, and remove surrogates, so that the standard library can write it."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(_NOT_FINITE)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth == MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, (list, tuple)):
        return [_plain(element, depth + 1) for element in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a key of a JSON object must be str")
        return {_plain(key, depth + 1): _plain(member, depth + 1) for key, member in value.items()}
    raise TypeError(f"not a JSON value: {type(value).__name__}")


# ------------------------------------------------------------------------------------ the fast reader

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _accepted(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T | None:
    """The value that msgspec reads; None if the scanner has to decide."""
    if not _is_shallow(data):
        return None
    try:
        data.decode()  # msgspec does not check the strings inside of raw values
        return decoder.decode(data)
    except _REFUSALS:
        return None


def _is_shallow(data: bytes) -> bool:
    """True if containers nest no deeper than `MAX_DEPTH`. For text that is not JSON, any result is possible.

    msgspec goes as deep as Python's recursion limit lets it, which a caller may have raised beyond what
    the C stack holds; up to the first error in it, though, this sees the text as a parser does.
    """
    if len(data) < 1024:
        if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
            return True
    elif _few(b"{[", data):
        return True
    depth = 0
    for brackets in _outside_strings(data, b"[]{}"):
        depths = list(accumulate(map(_STEP.__getitem__, brackets), initial=depth))
        if max(depths) > MAX_DEPTH:
            return False
        depth = depths[-1]
    return True


def _few(characters: bytes, data: bytes) -> bool:
    """True if the text has at most `MAX_DEPTH` of these characters, also counting those in strings."""
    left = MAX_DEPTH
    for character in characters:
        at = data.find(character)  # find is a memchr; on a long text, bytes.count takes ten times as long
        while at >= 0:
            if not left:
                return False
            left -= 1
            at = data.find(character, at + 1)
    return True


def _outside_strings(data: bytes, characters: bytes) -> Iterator[bytes]:
    """Give those of the characters that stand outside of strings, in pieces: many quotation marks in a short
    text must not become as many objects at once."""
    others = _all_but(characters + b'"')
    is_inside = False
    at = 0
    while at < len(data):
        piece = data[at : at + _PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and at + len(piece) < len(data):
            piece = piece[:-1]  # the last backslash belongs to the character behind it
        at += len(piece)
        marks = piece.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, others).split(b'"')
        yield b"".join(marks[is_inside::2])
        is_inside ^= len(marks) % 2 == 0


@cache
def _all_but(characters: bytes) -> bytes:
    return bytes(set(range(256)).difference(characters))


_PIECE_BYTES: Final = 64 * 2**10
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _object_spans(data: bytes) -> list[Span]:
    found = _accepted(_OBJECT, data)
    located = _located(data, found.items(), _TO_MEMBER) if found is not None else None
    return located if located is not None else _scan(data, "{")


def _array_spans(data: bytes) -> list[Span]:
    found = _accepted(_ARRAY, data)
    located = _located(data, ((None, value) for value in found), _TO_ELEMENT) if found is not None else None
    return located if located is not None else _scan(data, "[")


def _located(
    data: bytes, found: Iterable[tuple[str | None, msgspec.Raw]], lead: re.Pattern[bytes]
) -> list[Span] | None:
    """Find the positions of msgspec's pieces; None if a repeated key made it leave some out."""
    located: list[Span] = []
    end = 0
    for key, raw in found:
        value = bytes(raw)
        match = lead.match(data, end)
        if match is None or not data.startswith(value, match.end()):
            return None
        end = match.end() + len(value)
        located.append(Span(key, *match.span(1), match.end(), end))
    return located if _TO_END.match(data, end) else None


# -------------------------------------------------------------------------------------- the scanner

# Possessive quantifiers (``*+``) never give back what they took: every pattern is linear.
_SPACE = rb"[ \t\n\r]*+"
_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_EMPTY = rb"\[" + _SPACE + rb"\]|\{" + _SPACE + rb"\}"


def _pattern(*parts: bytes) -> re.Pattern[bytes]:
    return re.compile(_SPACE + _SPACE.join(parts))


_VALUE = _pattern(rb"(" + rb"|".join((_STRING, _NUMBER, rb"true|false|null", _EMPTY, rb"[\[{]")) + rb")")
_KEY = _pattern(rb"(" + _STRING + rb")", rb":")
_AFTER_VALUE = _pattern(rb"([,\]}])")
_END = _pattern(rb"\Z")

# For text that is known to be JSON, from one value to the next.
_OPENING = _pattern(rb"([\[{])")
_TO_MEMBER = _pattern(rb"[{,]", rb"(" + _STRING + rb")", rb":", rb"")
_TO_ELEMENT = _pattern(rb"[\[,]", rb"()")
_TO_END = _pattern(rb"[{\[]?+", rb"[}\]]", rb"\Z")

_NAMED_OBJECT = rb'"(?:%s)"' + _SPACE + rb":" + _SPACE + rb"\{"
"""A member of one of these names, up to the beginning of the object that it holds."""

_LAST_AND_EMPTY = _pattern(rb",", rb'"(\w++)"', rb":", rb'(null|\[\]|\{\}|"")', rb"\}", rb"\Z")

_COMMA, _OBJECT_START, _OBJECT_END, _ARRAY_START, _ARRAY_END = b",{}[]"
_CLOSING = {_OBJECT_START: _OBJECT_END, _ARRAY_START: _ARRAY_END}


def _check(data: bytes) -> None:
    """Refuse what is not one JSON text."""
    _check_utf8(data)
    text, start = _walkable(data), len(data) - len(data.lstrip(b" \t\n\r"))
    end = None if text is None else _walked(text, start)
    if end is None or not _END.match(data, end):
        _scan(data)


def _walkable(data: bytes) -> str | None:
    """The text with a character for each byte, so that positions are those of the bytes; None if it may nest
    too deep. A long text is refused then: it does, or it is no JSON."""
    if _is_shallow(data):
        return data.decode("latin-1")
    if len(data) > _SCANNED_BYTES:
        raise RawJSONError(_TOO_DEEP, 0)
    return None


def _walked(text: str, start: int) -> int | None:
    """Where a value ends, found by the standard library's reader, which is written in C: a few kilobytes may
    inflate to millions of values, and the scanner takes a microsecond for each.

    None: the scanner has to look for the error. It is not asked if the error is far away.
    """
    try:
        return _WALKER.raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        at = error.pos
    except _ConstantError:
        at = len(text)
    if at - start > _SCANNED_BYTES:
        raise RawJSONError("not JSON", start)
    return None


class _ConstantError(Exception):
    """JSON has no NaN and no Infinity."""


def _no_constant(name: str) -> NoReturn:
    raise _ConstantError


_WALKER: Final = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_no_constant)
"""No number is read as one: that takes long for many digits, and fails for some."""
_SCANNED_BYTES: Final = 64 * 2**10


def _scan(data: bytes, kinds: str = "") -> list[Span]:
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
        if data[start] in _CLOSING:
            if len(closing) == MAX_DEPTH:
                raise RawJSONError(_TOO_DEEP, start)
            if end - start == 1:  # an empty container is one token
                inner = None if text is None or not closing else _walked(text, start)
                if inner is None:
                    closing.append(_CLOSING[data[start]])
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
