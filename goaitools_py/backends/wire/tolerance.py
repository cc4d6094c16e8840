"""Reads values of a wrong type: a number for a string, a list for an object, a count that is too large.

Owns: the value that each of them counts as. Nothing here raises. Must never know: a provider API, a message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...base import rawjson
from ...base.rawjson import RawJSONError, loads

__all__ = [
    "MAX_COUNT",
    "as_dict",
    "as_str",
    "count",
    "data_url",
    "decoded",
    "is_hollow",
    "is_name",
    "listed",
    "members_of",
    "object_of",
    "parsed",
]


def as_str(value: Any) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def is_hollow(value: Any) -> bool:
    """True for a placeholder: null, empty, zero, or an object with only hollow values."""
    return all(map(is_hollow, value.values())) if isinstance(value, dict) else not value


def members_of(raw: bytes | None) -> Mapping[str, bytes]:
    """The members of an object, by key; {} for anything else."""
    try:
        return rawjson.members(raw or b"{}")
    except rawjson.RawJSONError:
        return {}


def object_of(raw: bytes) -> dict[str, Any]:
    """An object as Python values; {} for anything else."""
    try:
        return as_dict(rawjson.view(raw))
    except rawjson.RawJSONError:
        return {}


MAX_COUNT: Final = 2**53 - 1
"""The largest count. Every JSON reader holds it exactly."""


def count(value: Any) -> int:
    """The value if it is a whole number, within bounds; a fraction, a string or anything else is 0."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    if type(value) is int or (type(value) is float and value.is_integer()):
        return min(max(int(value), 0), MAX_COUNT)
    return 0


def data_url(url: str, fallback: str) -> tuple[str, bytes | None]:
    """Media type and bytes of a ``data:`` URL; `fallback` and None for any other URL."""
    head, comma, encoded = url.partition(",")
    if not comma or not head.startswith("data:"):
        return fallback, None
    return head[5:].partition(";")[0] or fallback, decoded(encoded)


def decoded(encoded: str) -> bytes | None:
    """The bytes of base64 text; None if it is not base64."""
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return None


def parsed(entry: Mapping[str, Any] | bytes) -> object:
    """The entry's JSON value; None if it is not JSON."""
    if not isinstance(entry, bytes):
        return entry
    try:
        return loads(entry)
    except RawJSONError:
        return None


def is_name(value: object) -> bool:
    """True for text that is not empty."""
    return isinstance(value, str) and value != ""


def listed(ids: Iterable[str]) -> str:
    """The ids as a text for a sentence."""
    return ", ".join(sorted(map(repr, ids)))
