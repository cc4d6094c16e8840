"""Ends what lasts too long in blocking code: one thread for all of it.

Owns: that thread, and when it rings. Must never know: what is watched, or how it is ended.

The timeout of a socket counts anew for each read, and is fixed when a request begins; it cannot say "until
noon". So whoever reads sets a `Watch`, and if its time comes before it is closed, the thread calls what ends
the wait. The thread sleeps until the earliest time that it knows of.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final

from ..process import this_process

__all__ = ["Watch"]


class Watch:
    """Something that must be over in time.

    Args:
        end: Called once from another thread, when the time has come. It must not wait.

    Attributes:
        has_rung: True from the moment on in which `end` is called.
    """

    __slots__ = ("at", "end", "has_rung")

    def __init__(self, end: Callable[[], object]) -> None:
        self.end = end
        self.at = inf
        self.has_rung = False

    def set(self, seconds: float) -> None:
        """Begin to watch, or move the time: it comes so many seconds from now."""
        self.at = time.monotonic() + seconds
        _of_this_process().watch(self)

    def close(self) -> None:
        """It is over; `end` is not called after this returns."""
        _of_this_process().forget(self)


class _Dog:
    """The thread. It begins with the first watch, and stays."""

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
                except RuntimeError:  # none to be had: the wait ends by its socket's own timeout
                    return
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
                    with contextlib.suppress(Exception):  # the others have to be watched on
                        watch.end()
                self._next = min((watch.at for watch in self._watches), default=inf)


_dog = _Dog()
_dogs: Final = {_dog.process: _dog}


def _of_this_process() -> _Dog:
    """A forked process has none of its parent's threads, and its lock may be held by one of them."""
    global _dog
    if _dog.process is not this_process():
        _dog = _dogs.setdefault(this_process(), _Dog())
    return _dog
