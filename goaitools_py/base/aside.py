"""Runs a blocking call in a thread, and leaves it there if it is late.

Owns: those threads, and what happens to an answer that comes too late. Must never know: what is called.

It is for calls that have no deadline of their own and that nothing can interrupt: a whole post of an SDK, a
call of a store over a driver that may wait for ever. The thread that watches times (`watch`) cannot help
here: it can tell that the time is over, but not end the call. So somebody has to stay behind in the call, and
that is this thread.

A thread that is done waits a moment for the next call, because a new one costs four times as much.
"""

from __future__ import annotations

import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

from .process import PerProcess

__all__ = ["within"]

T = TypeVar("T")

_Call: TypeAlias = tuple[Callable[[], object], Callable[[], object]]
"""What runs, and what tells that it has run. The second must not wait, and not refer to the first."""

IDLE_SECONDS = 2.0
"""How long a thread waits for its next call before it ends."""


class _Worker:
    """A thread that runs one call after another.

    Args:
        idle: The workers of this process that wait for a call.
    """

    def __init__(self, idle: list[_Worker]) -> None:
        self._idle = idle
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system has no more threads."""
        threading.Thread(target=self._work, name="goaitools-aside", daemon=True).start()

    def begin(self, call: _Call) -> None:
        """Give the thread its next call. Only one who took the worker from `idle`, or made it, may do so."""
        self._calls.put(call)

    def _work(self) -> None:
        while True:
            try:
                run, tell = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._has_retired():
                    return
                run, tell = self._calls.get()
            run()
            del run  # after `tell` nothing may refer to the call and its answer any more
            self._idle.append(self)  # before `tell`, so that the next call finds it
            tell()

    def _has_retired(self) -> bool:
        """True if no call can come any more; False if the worker was taken, so that one is about to come."""
        try:
            self._idle.remove(self)
        except ValueError:
            return False
        return True


_idle = PerProcess[list[_Worker]](lambda inherited: [])


def _begin(call: _Call) -> None:
    """Run a call in a thread that waits for one, or in a new one. Raises RuntimeError without a thread."""
    idle = _idle.get()
    try:
        worker = idle.pop()  # the one that came last: those that are needed less often come to their end
    except IndexError:
        worker = _Worker(idle)
        worker.start()
    worker.begin(call)


def within(seconds: float, call: Callable[[], T], discard: Callable[[T], object]) -> T:
    """Call, and wait for a while; what `call` returns or raises in that time.

    Args:
        seconds: How long to wait.
        call: What to call. It sees the context variables of this thread. If it is late, it runs on.
        discard: Called with what a late call returns, such as a response, to close it. A late exception is
            dropped.

    Raises:
        TimeoutError: It is late.
    """
    lock, done = threading.Lock(), threading.Lock()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            ended = {"value": call()}
        except BaseException as error:
            ended = {"error": error}  # type: ignore[dict-item]
        with lock:
            if "left" not in outcome:
                outcome.update(ended)
                return
        if "value" in ended:
            discard(ended["value"])

    if sys.is_finalizing():  # the process ends: other threads run no more
        return call()
    context = contextvars.copy_context()
    done.acquire()
    try:
        try:
            _begin((partial(context.run, run), done.release))
        except RuntimeError:  # the system has no more threads
            return call()
        is_done = done.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
    except BaseException:  # such as Ctrl-C
        _leave(lock, outcome, discard)
        raise
    if not is_done:
        _leave(lock, outcome, None)
    if "error" in outcome:
        raise outcome.pop("error")  # left in here, it would refer to itself by way of this frame
    if "value" in outcome:
        return outcome["value"]  # type: ignore[no-any-return]
    raise TimeoutError("the call took longer than it may")


def _leave(lock: threading.Lock, outcome: dict[str, Any], discard: Callable[[Any], object] | None) -> None:
    """Wait no longer. An answer that came at the last moment is kept, or discarded if `discard` is given."""
    with lock:
        if not outcome:
            outcome["left"] = True
    if discard is not None and "value" in outcome:
        discard(outcome["value"])
