"""Ends what a task awaits from outside: when its time has come, or because somebody interrupts it.

Owns: the timer, and whose a cancellation is. Must never know: what is awaited, or what its end means.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import Any, Final, Literal, TypeAlias

from ..turn.deadlines import SHORTEST_WAIT

__all__ = ["Ended", "Wait"]

Ended: TypeAlias = Literal["late", "interrupted"]

_AGAIN_SECONDS: Final = 0.02


class Wait:
    """What a task waits for, one thing after another, each between `begin` and `over`.

    It is ended as by `asyncio.timeout`, which costs ten times as much: the task is cancelled, and that is
    taken back where the wait is over. Here all waits until the same time share a timer.

    Attributes:
        task: The task that waits; None if none does.
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
        """The running task begins to wait, until `end` on the monotonic clock at most."""
        task = self.task = asyncio.current_task()
        self._asked_before = task.cancelling() if task is not None else 0
        self._is_limited = end is not None
        if end is not None and (end != self._end or self._timer is None):
            self._set(end)

    def limit(self, end: float) -> None:
        """Say when the wait that has begun has to end."""
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
        # Somebody else ends it already: a second cancellation would hide that from those who tell theirs by
        # its message, as the scopes of anyio do. If the wait goes on all the same, its time is over soon.
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._ring)

    def interrupt(self) -> None:
        """End the wait, also one that is tidying up after its time was over. Nothing happens if there is
        none, or if it was interrupted before."""
        if self._ended != "interrupted":
            self._cancel("interrupted")

    def _cancel(self, why: Ended) -> None:
        if self.task is not None:
            self._ended = why
            self._asked += 1
            self.task.cancel()

    def ended(self) -> Ended | None:
        """What the wait was cancelled for; None if that was somebody else, or somebody else too."""
        if self.task is None or self.task.cancelling() > self._asked_before + self._asked:
            return None
        return self._ended

    def over(self) -> None:
        """The wait is over, whichever way."""
        task, self.task = self.task, None
        self._ended = None
        while self._asked:
            self._asked -= 1
            if task is not None:
                task.uncancel()

    def forget(self) -> None:
        """No wait until the same time follows: let go of the timer."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
