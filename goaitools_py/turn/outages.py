"""Notes the providers of a chat that did not answer lately, so that the next turns do not wait for them.

Owns: the times, on a clock that never jumps. Must never know: a provider, a turn, or the clock itself.

A provider that could not be reached rests for some seconds. The first turn after the rest asks it again, and
meanwhile the other turns do not. The threads and tasks of one process share these notes. Two turns that read
them at the same instant may both ask the provider; that costs only time.
"""

from __future__ import annotations

__all__ = ["Outages"]


class Outages:
    """The resting places in a chat's list of providers: 0 is its own, 1 the first of the fallbacks.

    Args:
        seconds: The length of a rest; 0 for no rest.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: dict[int, float] = {}

    def __bool__(self) -> bool:
        """True if a provider may be resting."""
        return bool(self._until)

    def note(self, place: int, now: float) -> None:
        """Note that a provider could not be reached."""
        if self.seconds:
            self._until[place] = now + self.seconds

    def clear(self, place: int) -> None:
        """Note that a provider has answered."""
        self._until.pop(place, None)

    def rests(self, place: int, now: float) -> bool:
        """True while a provider rests. The first call after the rest returns False and begins a new rest.

        So only the turn that got False asks the provider.
        """
        until = self._until.get(place)
        if until is None:
            return False
        if now < until:
            return True
        self._until[place] = now + self.seconds
        return False
