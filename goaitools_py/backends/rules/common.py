"""The shared parts of the sequence rules.

Owns: the options of a check, and small functions on JSON. Must never know: a particular provider API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.rawjson import RawJSONError, loads

__all__ = ["Frame", "is_name", "listed", "parsed"]


class Frame(NamedTuple):
    """The options of `rules.check_history`, for the rules of every provider API."""

    open_calls: Sequence[str]
    open_end: bool
    unique_ids: bool


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
