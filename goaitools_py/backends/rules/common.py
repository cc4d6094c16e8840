"""What every wire's sequence rules are made of.

Owns: the frame in which a history is checked, and small questions to its JSON.
Must never know: a particular wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...rawjson import RawJSONError, loads

__all__ = ["Frame", "is_name", "listed", "parsed"]


class Frame(NamedTuple):
    """What holds around the entries: the options of `rules.check_history`, for every wire's rules."""

    open_calls: Sequence[str]
    open_end: bool
    unique_ids: bool


def parsed(entry: Mapping[str, Any] | bytes) -> object:
    """The entry's JSON value; None if it is none."""
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
    """Ids for a sentence."""
    return ", ".join(sorted(map(repr, ids)))
