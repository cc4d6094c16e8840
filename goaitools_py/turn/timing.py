"""The time of a running turn: its newest reading of the clock, and its deadline.

Owns: the newest `Moment`, the deadline, and how long the conversation was silent. Must never know: a clock
(the effect `Clock` asks for one), or the use of the time.
"""

from __future__ import annotations

from ..types.options import Resolved
from .deadlines import SHORTEST_WAIT, CallTimes
from .flow import Clock, Flow, Moment

__all__ = ["Timing"]


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
