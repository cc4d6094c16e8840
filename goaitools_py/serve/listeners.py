"""The requests that follow a turn: how many there may be.

Owns: their number. Must never know: HTTP, or the answer to a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..types.errors import GoAIToolsError
from .limits import ServeLimits

__all__ = ["Listeners", "Seat", "TooManyListenersError"]


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
