"""The times of a turn: its newest reading of the clock, its deadline, and the time limits of a model call.

Owns: arithmetic on seconds, the newest `Moment`, the deadline, and how long the conversation was silent. Must
never know: a clock (the effect `Clock` asks for one), or the content of a call.

The edges wait, and end a wait in time: `edges/sync_edge.py`, and `edges/async_edge.py` with
`edges/async_wait.py`. In plain code `backends/http/deadlines.py` ends a post that waits for its headers.
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal

from ..base.values import Value
from ..types.options import Resolved
from .flow import Clock, Flow, Moment

__all__ = ["SHORTEST_WAIT", "CallTimes", "Passed", "Timing"]

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


class Timing:
    """The times of one turn. The frozen value of an instant is a `Moment`.

    Attributes:
        options: The turn's options.
        now: The newest reading of the clock. Code that reads a response updates it, too.
        deadline: The end of the turn on the clock of `Moment.monotonic`; None without a limit.
        idle_seconds: The seconds for which the conversation was silent before this turn.
    """

    options: Resolved
    now = Moment(0, 0.0)
    deadline: float | None = None
    idle_seconds = 0.0

    def tick(self) -> Flow[None]:
        """Read the clock."""
        self.now = yield Clock()

    def start_clock(self, *, waited: float = 0.0) -> Flow[None]:
        """Read the clock for the first time. The turn's `timeout` counts from `waited` seconds before.

        A deadline that is set already stays.
        """
        self.now = yield Clock()
        # A turn that goes on at a fallback has its deadline already: the caller waits once, not once for
        # each.
        if self.deadline is None and self.options.timeout is not None:
            self.deadline = self.now.monotonic + max(SHORTEST_WAIT, self.options.timeout - waited)

    def left(self) -> float | None:
        """Seconds until the deadline, None without one. Never 0, which some clients take for no limit."""
        return None if self.deadline is None else max(SHORTEST_WAIT, self.deadline - self.now.monotonic)

    def call_times(self, *, is_streamed: bool) -> CallTimes:
        """The time limits of a model call that begins now. Only a stream has a first delta."""
        return CallTimes.begin(
            self.now.monotonic,
            turn=self.deadline,
            call=self.options.call_timeout,
            first=self.options.first_delta_timeout if is_streamed else None,
        )

    @property
    def is_late(self) -> bool:
        """True once the deadline has passed."""
        return self.deadline is not None and self.now.monotonic >= self.deadline

    @property
    def is_cold(self) -> bool:
        """True if the conversation was silent for longer than `cold_after`: no provider still caches it."""
        after = self.options.cold_after
        return after is not None and self.idle_seconds > after
