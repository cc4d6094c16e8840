"""Runs a blocking call that cannot be told a deadline in a thread, and leaves it there if it is late.

Owns: the thread, and what becomes of an answer that comes too late. Must never know: what is called.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["within"]

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T], discard: Callable[[T], object]) -> T:
    """What `call` returns or raises, if that is in time.

    Args:
        seconds: How long to wait.
        call: It sees this thread's context variables, and runs on if it is late.
        discard: Takes what a late call returns, such as a response to be closed. A late failure is dropped.

    Raises:
        TimeoutError: It is late.
    """
    lock, done = threading.Lock(), threading.Event()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            ended = {"value": call()}
        except BaseException as error:
            ended = {"error": error}  # type: ignore[dict-item]
        with lock:
            if "left" not in outcome:
                outcome.update(ended)
                done.set()
                return
        if "value" in ended:
            discard(ended["value"])

    context = contextvars.copy_context()
    try:
        threading.Thread(target=context.run, args=(run,), name="goaitools-send", daemon=True).start()
    except RuntimeError:  # the system has no more threads
        return call()
    try:
        done.wait(seconds)
    except BaseException:  # such as Ctrl-C
        _leave(lock, outcome, discard)
        raise
    if not done.is_set():
        _leave(lock, outcome, None)
    if "error" in outcome:
        raise outcome.pop("error")  # or the error would hold itself, by way of this frame
    if "value" in outcome:
        return outcome["value"]  # type: ignore[no-any-return]
    raise TimeoutError("the call took longer than it may")


def _leave(lock: threading.Lock, outcome: dict[str, Any], discard: Callable[[Any], object] | None) -> None:
    """Nobody waits any longer. What came at the last moment is kept, or discarded."""
    with lock:
        if not outcome:
            outcome["left"] = True
    if discard is not None and "value" in outcome:
        discard(outcome["value"])
