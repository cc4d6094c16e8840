"""The requests that follow a turn: how many there may be, and how many reports of a tool's progress they get.

Owns: their number, and the pace of reports, so that a busy tool cannot fill a stream. Must never know: HTTP,
or the answer to a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Final

from ..types.errors import GoAIToolsError
from ..types.events import ToolProgress
from .serve_limits import ServeLimits

__all__ = ["Listeners", "Pace", "Seat", "TooManyListenersError"]


class TooManyListenersError(GoAIToolsError):
    """No more requests may follow a turn now.

    `status`: 429 if the owner has too many, else 503.
    """

    retryable = True
    retry_after = 1.0

    def __init__(self, status: int) -> None:
        super().__init__("too many requests follow a turn at a time")
        self.status = status


class Seat:
    """The place of one listener. A response that outlives its handler keeps it, and frees it at its end."""

    def __init__(self, owners: Counter[str], owner: str) -> None:
        self._owners = owners
        self._owner = owner
        self._is_free = False
        self.is_kept = False

    def free(self) -> None:
        """Give the place back. May be called again."""
        if not self._is_free:
            self._is_free = True
            self._owners[self._owner] -= 1
            if not self._owners[self._owner]:
                del self._owners[self._owner]


class Listeners:
    """Counts listeners by owner. `limits`: how many there may be."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._owners: Counter[str] = Counter()

    @contextmanager
    def seat(self, owner: str) -> Iterator[Seat]:
        """Take a place for a request. At the end of the block it is given back, unless a response keeps it.

        Raises `TooManyListenersError`.
        """
        if self._owners.total() >= self._limits.listeners:
            raise TooManyListenersError(503)
        if self._owners[owner] >= self._limits.listeners_per_owner:
            raise TooManyListenersError(429)
        self._owners[owner] += 1
        seat = Seat(self._owners, owner)
        try:
            yield seat
        except BaseException:
            seat.free()
            raise
        if not seat.is_kept:
            seat.free()


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
        self._calls: dict[str, _CallPace] = {}

    def tells(self, event: ToolProgress) -> bool:
        """True if listeners get this report."""
        return self._calls.setdefault(event.call_id, _CallPace()).tells(event.progress, event.total)


class _CallPace:
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
