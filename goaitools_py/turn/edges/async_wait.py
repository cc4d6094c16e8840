"""Ends the wait of a task from outside: when its time is over, or when it is interrupted.

Owns: the timer, and the decision who has cancelled: the timer, or the caller. Must never know: the awaited
work, or the meaning of its end.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import Any, Final, Literal, TypeAlias

from ..timing import SHORTEST_WAIT

__all__ = ["Ended", "Wait"]

Ended: TypeAlias = Literal["late", "interrupted"]

_AGAIN_SECONDS: Final = 0.02
"""The pause before the next look at a wait that has not ended in time."""


class Wait:
    """The waits of one task, one after another, each between `begin` and `over`.

    A wait ends as in `asyncio.timeout`: the task is cancelled, and the cancellation is taken back when the
    wait is over. `asyncio.timeout` costs ten times as much, because each one has its own timer. Here all
    waits until the same time share one timer.

    Attributes:
        task: The task that waits; None if it does not wait.
    """

    __slots__ = ("_asked", "_asked_before", "_end", "_ended", "_is_limited", "_timer", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self._asked = self._asked_before = 0
        self._ended: Ended | None = None
        self._is_limited = False
        self._end = inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, end: float | None = None) -> None:
        """Begin a wait of the running task, at most until `end` on the monotonic clock."""
        task = self.task = asyncio.current_task()
        self._asked_before = task.cancelling() if task is not None else 0
        self._is_limited = end is not None
        if end is not None and (end != self._end or self._timer is None):
            self._set(end)

    def limit(self, end: float) -> None:
        """Set the end of a wait that has begun already."""
        self._is_limited = True
        self._set(end)

    def _set(self, end: float) -> None:
        self.forget()
        seconds = max(SHORTEST_WAIT, end - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)
        self._end = end

    def _ring(self) -> None:
        self._timer = None
        if not self._is_limited or self.task is None:
            return
        if self.task.cancelling() == self._asked_before:
            self._cancel("late")
            return
        # Other code has cancelled the task already. It may recognise its cancellation by the message, as the
        # scopes of anyio do, and a second cancellation would replace that message. So look again a moment
        # later, and end the wait then if it still goes on.
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._ring)

    def interrupt(self) -> None:
        """End the wait, also one that is cleaning up after its time was over.

        Without a wait, or after an earlier interruption, nothing happens.
        """
        if self._ended != "interrupted":
            self._cancel("interrupted")

    def _cancel(self, why: Ended) -> None:
        if self.task is not None:
            self._ended = why
            self._asked += 1
            self.task.cancel()

    def ended(self) -> Ended | None:
        """Why this object cancelled the wait; None if it did not, or if other code cancelled it, too."""
        if self.task is None or self.task.cancelling() > self._asked_before + self._asked:
            return None
        return self._ended

    def over(self) -> None:
        """End the wait, and take back the cancellations that this object has asked for."""
        task, self.task = self.task, None
        self._ended = None
        while self._asked:
            self._asked -= 1
            if task is not None:
                task.uncancel()

    def forget(self) -> None:
        """Stop the timer: no further wait ends at the same time."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
