"""Runs a blocking call in a thread, and leaves it there if it is late.

Owns: the thread, and what happens to an answer that comes too late. Must never know: what is called.

It is for calls that have no deadline of their own and that nothing can interrupt. The thread that watches
times (`edges.watch`) cannot help here: it can tell that the time is over, but not end the call. So somebody
has to stay behind in the call, and that is this thread.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["within"]

T = TypeVar("T")


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
