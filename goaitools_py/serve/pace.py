"""Which reports of a tool's progress listeners get, so that a busy tool cannot fill a stream.

Owns: how many reports of a call pass. Must never know: a stream, or who listens.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from ..types.events import ToolProgress

__all__ = ["Pace"]

_MOST: Final = 200
"""The most reports of one call that listeners get."""
_GROWTH: Final = 1.25
"""Without a total: a report passes if its number is at least this many times the number of the last one."""


class Pace:
    """The reports of one turn.

    With a total, a report passes if it is another whole percent than the last one. Without a total, the
    first few pass, and later ones more and more rarely: about 60 of a million.
    """

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}

    def tells(self, event: ToolProgress) -> bool:
        """True if listeners get this report."""
        return self._calls.setdefault(event.call_id, _Call()).tells(event.progress, event.total)


class _Call:
    __slots__ = ("_came", "_next", "_percent", "_told")

    def __init__(self) -> None:
        self._came = self._told = 0
        self._next = 1.0
        self._percent: int | None = None

    def tells(self, progress: float, total: float | None) -> bool:
        if self._told >= _MOST:
            return False
        self._came += 1
        if total is not None and total > 0 and isfinite(part := progress / total):
            if (percent := int(100 * part)) == self._percent:
                return False
            self._percent = percent
        elif self._came < self._next:
            return False
        else:
            self._next = max(self._came + 1, self._came * _GROWTH)
        self._told += 1
        return True
