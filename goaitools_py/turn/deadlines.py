"""The time limits of a model call: the next limit, and the limit that has passed.

Owns: arithmetic on seconds. Must never know: a clock, or the content of a call.
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal

from ..base.values import Value

__all__ = ["SHORTEST_WAIT", "CallTimes", "Passed"]

Passed = Literal["timeout", "call_timeout", "first_delta_timeout", ""]
"""The option that set the passed time limit; "" if no limit has passed."""

SHORTEST_WAIT: Final = 0.001
"""Seconds. It replaces 0, because some clients read 0 as no limit."""


class CallTimes(Value, frozen=True, kw_only=True):
    """The ends of one model call, in seconds on the clock of `Moment.monotonic`; infinity without a limit.

    Attributes:
        turn: The end of the whole turn.
        call: The end of this call, its body included.
        first: The time by which the reply must have begun. Headers and pings do not count as a beginning.
    """

    turn: float = inf
    call: float = inf
    first: float = inf

    @classmethod
    def begin(cls, now: float, *, turn: float | None, call: float | None, first: float | None) -> CallTimes:
        """The times of a call that begins now.

        Args:
            now: Seconds on the clock of `Moment.monotonic`, as are the results.
            turn: The end of the turn on that clock.
            call: Seconds that the call may take.
            first: Seconds until the reply must have begun.
        """
        return cls(
            turn=inf if turn is None else turn,
            call=inf if call is None else now + call,
            first=inf if first is None else now + first,
        )

    def end(self, *, begun: bool) -> float | None:
        """The time at which a wait has to end; None without a limit. `begun`: True if the reply has begun."""
        end = min(self.turn, self.call) if begun else min(self.turn, self.call, self.first)
        return None if end == inf else end

    def left(self, now: float, *, begun: bool) -> float | None:
        """Seconds that a wait may take, never 0; None without a limit."""
        end = self.end(begun=begun)
        return None if end is None else max(SHORTEST_WAIT, end - now)

    def passed(self, now: float, *, begun: bool) -> Passed:
        """The option of the passed time limit; "timeout" if the turn's limit is among the passed ones."""
        if now >= self.turn:
            return "timeout"
        if now >= self.call:
            return "call_timeout"
        return "first_delta_timeout" if not begun and now >= self.first else ""
