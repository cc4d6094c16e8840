"""Limits the requests to a provider: one queue for all chats of a backend and key.

Owns: the queue, its places, and the time at which the gate opens. Must never know: a request, a socket,
an event loop, how a caller waits.

Threads and tasks of any event loop wait in one queue, in the order in which they came. A caller asks with
its `Ticket`. The answer is the time to wait before it asks again.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from math import inf
from typing import Final

from ..base.process import PerProcess, this_process

__all__ = ["Gate", "Ticket", "gate_of"]

FIRST_HOLD_SECONDS: Final = 0.5
"""Seconds that the gate is closed after a refusal without a time. It doubles with each refusal in a row."""

MAX_HOLD_SECONDS: Final = 8.0
"""The longest time in seconds that the gate is closed if the provider names no time."""

JITTER: Final = 0.1
"""Each process waits longer by its part of the time, up to this. So processes with one key spread out."""


class Ticket:
    """One request's place in the queue, then behind the gate.

    Attributes:
        limit: The request is let in while fewer requests than this are behind the gate.
        wake: Called, from any thread, when it is worth to ask again.
        is_in: True while the request is behind the gate.
    """

    __slots__ = ("is_in", "limit", "wake")

    def __init__(self, limit: int, wake: Callable[[], object]) -> None:
        self.limit = limit
        self.wake = wake
        self.is_in = False


class Gate:
    """A queue of tickets, and the number of requests behind the gate.

    After a refusal (429) the gate stays closed for the time that the provider named. Then it opens for half
    as many requests as were in, and for one more after each success. So a limit is approached from below.
    """

    def __init__(self) -> None:
        # A ticket may be given back by the garbage collector, in the middle of any of these methods.
        self._lock = threading.RLock()
        self._queue: dict[Ticket, None] = {}
        self._inside = 0
        self._width = inf
        self._opens_at = 0.0
        self._refusals = 0

    def ask(self, ticket: Ticket) -> float:
        """0.0 if the ticket is in now. Else it is in the queue, and the answer is the number of seconds after
        which to ask again; infinity: when it is woken."""
        with self._lock:
            if ticket.is_in:
                return 0.0
            self._queue.setdefault(ticket)
            if next(iter(self._queue)) is not ticket or self._inside >= min(ticket.limit, self._width):
                return inf
            if (wait := self.held_for()) > 0.0:
                return wait
            del self._queue[ticket]
            ticket.is_in = True
            self._inside += 1
        self._wake_first()
        return 0.0

    def held_for(self) -> float:
        """Seconds until the gate opens. 0 or less: it is open."""
        return self._opens_at - time.monotonic()

    def leave(self, ticket: Ticket) -> None:
        """Give a ticket back, from the queue or from behind the gate. A second call does nothing."""
        with self._lock:
            if ticket.is_in:
                ticket.is_in = False
                self._inside -= 1
            else:
                self._queue.pop(ticket, None)
        self._wake_first()

    def refused(self, seconds: float | None) -> None:
        """The provider refused a request. `seconds`: how long it asked to wait; None if it did not say."""
        with self._lock:
            if self.held_for() <= 0.0:  # the first refusal of the requests that were in together
                self._refusals += 1
                self._width = max(1, min(self._width, self._inside) // 2)
            if seconds is None:
                seconds = min(FIRST_HOLD_SECONDS * 2.0 ** (self._refusals - 1), MAX_HOLD_SECONDS)
            seed = hashlib.sha256(f"{this_process().pid}/{self._refusals}".encode()).digest()[0] / 255
            self._opens_at = max(self._opens_at, time.monotonic() + seconds * (1.0 + JITTER * seed))

    def passed(self) -> None:
        """The provider took a request."""
        if self._refusals or self._width is not inf:
            with self._lock:
                self._refusals = 0
                self._width += 1
            self._wake_first()

    def _wake_first(self) -> None:
        while True:
            with self._lock:
                first = next(iter(self._queue), None)
            if first is None:
                return
            try:
                first.wake()
            except RuntimeError:  # its event loop is closed, and the task will never ask again
                with self._lock:
                    self._queue.pop(first, None)
            else:
                return


_gates: Final = PerProcess[weakref.WeakValueDictionary[Hashable, Gate]](
    lambda _: weakref.WeakValueDictionary()
)
"""The gates of this process. A fork begins with open gates: it does not have its parent's requests."""


def gate_of(group: Hashable) -> Gate:
    """The gate that all callers with this `group` share. It lives as long as a caller holds it."""
    gates = _gates.get()
    return gates.setdefault(group, Gate())
