"""Runs a blocking call in a thread, and leaves it there if it is late.

Owns: these threads, and the handling of late results. Must never know: the call's work.

It is for calls without a deadline that cannot be interrupted: a whole post of an SDK, or a call of a store
over a driver that may wait for ever. The thread that watches times (`watch`) cannot help here: it notices the
end of the time, but cannot end the call. So the call runs in a thread of its own, and a late call stays
there.

A thread that has finished waits a moment for the next call, because a new thread costs four times as much.
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

__all__ = ["call_with_timeout"]

T = TypeVar("T")

_Call: TypeAlias = tuple[Callable[[], object], Callable[[], object]]
"""The function to run, and the function that reports its end. The second must not wait, and must not refer to
the first."""

IDLE_SECONDS = 2.0
"""A thread waits so long for its next call before it ends."""


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
        """Give the thread its next call. Only the code that took it from `idle`, or made it, may do so."""
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
            del run  # after `tell` this thread must not refer to the call and its result any more
            self._idle.append(self)  # before `tell`, so that the caller's next call finds this worker
            tell()

    def _has_retired(self) -> bool:
        """True if no call can come any more; False if other code took the worker, and a call will come."""
        try:
            self._idle.remove(self)
        except ValueError:
            return False
        return True


_idle = PerProcess[list[_Worker]](lambda inherited: [])


def _begin(call: _Call) -> None:
    """Run a call in an idle thread, or in a new one. Raises RuntimeError if no thread can be started."""
    idle = _idle.get()
    try:
        worker = idle.pop()  # take the newest, so that the threads which are not needed time out
    except IndexError:
        worker = _Worker(idle)
        worker.start()
    worker.begin(call)


def call_with_timeout(seconds: float, call: Callable[[], T], discard: Callable[[T], object]) -> T:
    """Call a function in a thread, wait for a limited time, and return or raise its result.

    Args:
        seconds: The longest wait.
        call: The function. It sees the context variables of this thread. If it is late, it runs on.
        discard: Called with the result of a late call, such as a response, to close it. A late exception is
            dropped.

    Raises:
        TimeoutError: The call is late.
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

    if sys.is_finalizing():  # the process ends, and other threads no longer run
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
        raise outcome.pop("error")  # take it out: the error refers to this frame, and this would be a cycle
    if "value" in outcome:
        return outcome["value"]  # type: ignore[no-any-return]
    raise TimeoutError("the call took longer than it may")


def _leave(lock: threading.Lock, outcome: dict[str, Any], discard: Callable[[Any], object] | None) -> None:
    """Stop waiting. A result that came at the last moment is kept, or discarded if `discard` is given."""
    with lock:
        if not outcome:
            outcome["left"] = True
    if discard is not None and "value" in outcome:
        discard(outcome["value"])
