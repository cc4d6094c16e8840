"""Views of histories that are kept in memory, because a history grows, and its beginning is viewed already.

Owns: which kept view fits a history, and how many are kept. Must never know: the content of a view.

A chat sends its history with each request, a little longer each time. To view 200 messages takes as long as
the rest of a turn; to compare their bytes with the last request takes a hundredth of that.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["BETWEEN", "KeptViews"]

BETWEEN: Final = b",\n"
"""The bytes between two entries. No entry contains a raw line break."""

_HALF: Final = 4 * 2**20
_LARGEST: Final = 2**20
"""A longer view is not kept: it would push out too many others."""
_AT_ONE_KEY: Final = 4
_HEAD: Final = 256

_View = TypeVar("_View")


class KeptViews(Generic[_View]):
    """The views of the last histories, in two halves: when the younger one is full, the older one goes. So at
    most 9 MiB are kept.

    One conversation has several views: those of its last requests, and the first. A turn that is made again,
    and a strategy's question about older turns, go on from an earlier one than the newest.

    It has no lock, so that a fork cannot inherit a locked one. Another thread can only make a half a little
    larger, or have a view made once more.
    """

    __slots__ = ("_older", "_size", "_younger")

    def __init__(self) -> None:
        self._younger: dict[Hashable, tuple[tuple[bytes, _View], ...]] = {}
        self._older: dict[Hashable, tuple[tuple[bytes, _View], ...]] = {}
        self._size = 0

    def find(self, rules: Hashable, history: bytes) -> tuple[int, _View] | None:
        """The view of the longest kept beginning of a history, with the length of this beginning.

        `rules`: all that a view depends on, beside the history.
        """
        key = (rules, history[:_HEAD])
        best: tuple[int, _View] | None = None
        for half in (self._younger, self._older):
            for known, view in half.get(key, ()):
                end = len(known)
                if best is not None and end <= best[0]:
                    continue
                if history.startswith(known) and (end == len(history) or history.startswith(BETWEEN, end)):
                    best = (end, view)
        return best

    def keep(self, rules: Hashable, history: bytes, view: _View, size: int) -> None:
        """Keep the view of a history.

        `size`: the bytes of the view itself.
        """
        size += len(history)
        if len(history) < _HEAD or size > _LARGEST:
            return
        if self._size > _HALF:
            self._older, self._younger, self._size = self._younger, {}, 0
        key = (rules, history[:_HEAD])
        rows = [(history, view), *(row for row in self._younger.get(key, ()) if row[0] != history)]
        if len(rows) > _AT_ONE_KEY:
            del rows[_AT_ONE_KEY - 1 : -1]
        self._younger[key] = tuple(rows)
        self._size += size  # never less for a view that goes: threads could count that twice
