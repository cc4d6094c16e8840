"""Which providers of a chat did not answer lately, so that the next turns do not wait for them again.

Owns: the times, on a clock that never jumps. Must never know: a provider, a turn, or the clock itself.

A provider that could not be reached rests for some seconds. The first turn after that asks it again, and the
others leave it alone meanwhile. It is a note of one process, shared by its threads and tasks. Two turns that
read it at the same instant may both ask; that costs time only.
"""

from __future__ import annotations

__all__ = ["Outages"]


class Outages:
    """The places in a chat's list of providers that rest; 0 is its own, 1 the first of the fallbacks.

    Args:
        seconds: How long a provider rests; 0 for never.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: dict[int, float] = {}

    def __bool__(self) -> bool:
        """True if a provider may rest."""
        return bool(self._until)

    def note(self, place: int, now: float) -> None:
        """A provider could not be reached."""
        if self.seconds:
            self._until[place] = now + self.seconds

    def clear(self, place: int) -> None:
        """A provider has answered."""
        self._until.pop(place, None)

    def rests(self, place: int, now: float) -> bool:
        """True while a provider rests. The first answer after that is False, and the rest begins anew: the
        one that was told so asks the provider."""
        until = self._until.get(place)
        if until is None:
            return False
        if now < until:
            return True
        self._until[place] = now + self.seconds
        return False
