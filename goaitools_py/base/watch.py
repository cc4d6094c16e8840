"""Calls a function at a set time: one thread watches all times of the process.

Owns: this thread, and the times of its calls. Must never know: the watched work, or the act of the function.

Two parts of the package use it. A blocking read has to end at a certain time: the timeout of a socket starts
again with each read, and is fixed when a request begins. And a lease of a conversation has to be renewed.

Other threads of the package run calls that have no time limit: `late_calls` (a whole post, a call of a
store), `backends.http.deadlines` (a name lookup). This thread cannot do their work: it must never wait, and
these calls wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final

from .process import this_process

__all__ = ["Watch"]


class Watch:
    """A time, and the function to call at this time.

    Args:
        end: Called once, from another thread, when the time has come. It must not wait.

    Attributes:
        has_rung: True once `end` has been called, or is about to be.
    """

    __slots__ = ("at", "end", "has_rung")

    def __init__(self, end: Callable[[], object]) -> None:
        self.end = end
        self.at = inf
        self.has_rung = False

    def set(self, seconds: float) -> None:
        """Begin to watch, or move the time. It comes so many seconds from now."""
        self.at = time.monotonic() + seconds
        _of_this_process().watch(self)

    def close(self) -> None:
        """Stop watching. `end` is not called after this returns."""
        _of_this_process().forget(self)


class _Dog:
    """The thread. It starts with the first watch, and stays. It sleeps until the earliest watched time."""

    def __init__(self) -> None:
        self.process = this_process()
        self._changed = threading.Condition(threading.Lock())
        self._watches: set[Watch] = set()
        self._next = inf
        self._thread: threading.Thread | None = None

    def watch(self, watch: Watch) -> None:
        with self._changed:
            if watch.has_rung:
                return
            self._watches.add(watch)
            if watch.at >= self._next:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="goaitools-watch", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return  # the system has no more threads: a socket's timeout ends a read, a lease runs out
                self._thread = thread
            self._next = watch.at
            self._changed.notify()

    def forget(self, watch: Watch) -> None:
        with self._changed:
            self._watches.discard(watch)

    def _run(self) -> None:
        with self._changed:
            while True:
                wait = self._next - time.monotonic()
                if wait > 0:
                    self._changed.wait(None if wait == inf else min(wait, threading.TIMEOUT_MAX))
                now = time.monotonic()
                for watch in [watch for watch in self._watches if watch.at <= now]:
                    self._watches.discard(watch)
                    watch.has_rung = True
                    with contextlib.suppress(Exception):  # the other watches must go on
                        watch.end()
                self._next = min((watch.at for watch in self._watches), default=inf)


_dog = _Dog()
_dogs: Final = {_dog.process: _dog}


def _of_this_process() -> _Dog:
    """The thread of the running process. A fork does not have its parent's threads, and a lock that such a
    thread held stays locked."""
    global _dog
    if _dog.process is not this_process():
        _dog = _dogs.setdefault(this_process(), _Dog())
    return _dog
