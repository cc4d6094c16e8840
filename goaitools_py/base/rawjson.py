"""Cuts pieces out of JSON text without changing a byte of them.

Owns: the positions of the members and elements of a JSON document, and reading a document as Python values.
Must never know: the meaning of a document, or its source.

There are two readers. msgspec's C parser reads almost everything. Text that it refuses goes to `json_scan`,
which alone decides whether text is refused, and at which byte.

Both refuse text that is not UTF-8, and containers that nest deeper than `MAX_DEPTH`. The time is linear in
the length of the input. No error text quotes the input.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import orjson

from .json_scan import (
    CLOSING,
    MAX_DEPTH,
    SCANNED_BYTES,
    SPACE,
    STRING,
    TOO_DEEP,
    RawJSONError,
    Span,
    check,
    count_values,
    is_shallow,
    outside_strings,
    pattern,
    refuse_far_error,
    scan,
)

__all__ = [
    "MAX_DEPTH",
    "RawJSONError",
    "Span",
    "count_values",
    "dumps",
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
    "view_or_none",
    "without",
]


_T = TypeVar("_T")


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
    return {span.key: data[span.start : span.end] for span in scan(data, "{") if span.key is not None}


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
    return [data[span.start : span.end] for span in scan(data, "[")]


def spans(data: bytes) -> list[Span]:
    """Find the positions of the members of an object, or of the elements of an array, one level deep.

    Between the spans there are only white space and ``{ } [ ] , :``. Repeated keys are all listed.

    Raises:
        RawJSONError: `data` is neither one JSON object nor one JSON array.
    """
    opening = _OPENING.match(data)
    if opening is None:
        return scan(data, "{[")
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
    """As `without`, for text that is known to be one JSON object.

    It is faster if the members are the last ones and are empty: providers often end a message with empty
    members.
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
        return without(kept, keys)  # a key is not at the end, is repeated, or is escaped
    return kept


def replaced(data: bytes, replacements: Mapping[str, bytes]) -> bytes:
    """Replace values in an object, and append missing members; every other byte stays.

    Args:
        data: One JSON object.
        replacements: A JSON value for each key, inserted without a check. A repeated key gets it each time,
            so that no parser finds the old value.

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
        RawJSONError: The span begins with a quotation mark, and is not a string.
    """
    if not data.startswith(b'"'):
        return None
    text: str = loads(data)
    return text


def is_null(data: bytes) -> bool:
    """True if a span is JSON's null."""
    return data == b"null"


def pruned(data: bytes, *, as_text: Collection[str] = ()) -> bytes:
    """Replace each container that nests deeper than `MAX_DEPTH` by null.

    Every other byte stays. Returns `data` itself if nothing nests too deep, or if it is not JSON, which the
    readers refuse later. The replaced part is not parsed. The time is linear, and there is no recursion.

    Args:
        data: One JSON text.
        as_text: Names of members. If the object in a named member has a container that is too deep, the whole
            object becomes a JSON string of its own text. So no text of it is lost.
    """
    if is_shallow(data):
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    # `plain` has the length of `data`, and each quotation mark in it begins or ends a string.
    plain = data.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    outside = b"".join(outside_strings(data, b"{[]}"))
    if outside.count(b"{") != outside.count(b"}") or outside.count(b"[") != outside.count(b"]"):
        return data
    names = b"|".join(re.escape(name.encode()) for name in as_text) or rb"(?!)"
    kept = bytearray()
    done = depth = cut_at = text_at = text_depth = 0
    is_cut = False  # True if the object that may become text has a container that is too deep
    for match in re.finditer(_NAMED_OBJECT % names + rb'|"[^"]*+"?+|[\[{]|[\]}]', plain):
        at = match.end() - 1
        if plain[at] in CLOSING:
            depth += 1
            if depth == MAX_DEPTH + 1:
                cut_at = at
            elif depth <= MAX_DEPTH and not text_depth and at != match.start():
                text_at, text_depth, is_cut = at, depth, False
        elif plain[at] in CLOSING.values():
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

    Integers of any size are exact, and a lone surrogate is kept. orjson would be a little faster, but
    silently makes a float of an integer beyond 64 bits.

    Raises:
        RawJSONError: Not JSON (``NaN`` and ``Infinity`` are not JSON), nested too deep, or with a number that
            no float or `int` can hold, such as ``1e999``.
    """
    found = _read(data, _finite_float, int)
    if found is _TOO_LARGE:
        raise RawJSONError("JSON with a number that is too large to read", 0)
    return found


def view(data: bytes) -> Any:
    """As `loads`, for reading only: a number that is too large becomes the largest float.

    So every JSON text of a provider can be read.

    Raises:
        RawJSONError: Not JSON, or nested too deep.
    """
    return _read(data, _clamped_float, _clamped_int)


def view_or_none(data: bytes) -> Any:
    """As `view`; None for text that is not JSON, or nested too deep."""
    try:
        return view(data)
    except RawJSONError:
        return None


_TOO_LARGE: Final = object()


def _read(data: bytes, parse_float: Callable[[str], Any], parse_int: Callable[[str], Any]) -> Any:
    if is_shallow(data):
        if len(data) > SCANNED_BYTES:
            refuse_far_error(data)
        try:
            return _ANY.decode(data)
        except _REFUSALS:
            pass  # not JSON, or a lone surrogate, or a number beyond all limits
    check(data)
    text = data.decode()
    for read_int in (int, parse_int):  # `int` first: a Python function takes ten times as long
        try:
            return json.loads(text, parse_float=parse_float, parse_int=read_int)
        except ValueError:
            continue  # do not raise here: the context of the error would hold the text
    return _TOO_LARGE


def dumps(value: Any) -> bytes:
    """Write a JSON value compactly, as one line that `loads` reads.

    A pair of surrogates, which a stream can leave that was cut inside an emoji, becomes its character. A lone
    surrogate becomes U+FFFD, because UTF-8 has no bytes for it.

    Args:
        value: dict with str keys, list, tuple, str, int, float, bool or None.

    Raises:
        ValueError: A float that is not finite (JSON cannot write it), an integer of more than 4,300 digits,
            or containers nested too deep, for example in a cycle.
        TypeError: The value is not a JSON value.
    """
    try:
        text = orjson.dumps(value, option=_ONLY_JSON_VALUES)
    except TypeError:  # orjson cannot write it: a large integer or a surrogate, for example
        text = json.dumps(_plain(value, 0), ensure_ascii=False, separators=(",", ":")).encode()
    if not is_shallow(text):
        raise ValueError(TOO_DEEP)
    if b"null" in text and not _all_finite(value):  # orjson writes null for NaN and the infinities
        raise ValueError(_NOT_FINITE)
    return text


_ONLY_JSON_VALUES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NOT_FINITE = "JSON has no NaN and no infinity"


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
        raise ValueError(TOO_DEEP)
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
    if not is_shallow(data):
        return None
    try:
        data.decode()  # msgspec does not check the strings inside of raw values
        return decoder.decode(data)
    except _REFUSALS:
        return None


def _object_spans(data: bytes) -> list[Span]:
    found = _accepted(_OBJECT, data)
    located = _located(data, found.items(), _TO_MEMBER) if found is not None else None
    return located if located is not None else scan(data, "{")


def _array_spans(data: bytes) -> list[Span]:
    found = _accepted(_ARRAY, data)
    located = _located(data, ((None, value) for value in found), _TO_ELEMENT) if found is not None else None
    return located if located is not None else scan(data, "[")


def _located(
    data: bytes, found: Iterable[tuple[str | None, msgspec.Raw]], lead: re.Pattern[bytes]
) -> list[Span] | None:
    """Find the positions of msgspec's pieces; None if msgspec left members out because of a repeated key."""
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


# For text that is known to be JSON, from one value to the next.
_OPENING = pattern(rb"([\[{])")
_TO_MEMBER = pattern(rb"[{,]", rb"(" + STRING + rb")", rb":", rb"")
_TO_ELEMENT = pattern(rb"[\[,]", rb"()")
_TO_END = pattern(rb"[{\[]?+", rb"[}\]]", rb"\Z")

_NAMED_OBJECT = rb'"(?:%s)"' + SPACE + rb":" + SPACE + rb"\{"
"""Matches a member with one of these names, up to the opening bracket of its object."""

_LAST_AND_EMPTY = pattern(rb",", rb'"(\w++)"', rb":", rb'(null|\[\]|\{\}|"")', rb"\}", rb"\Z")
