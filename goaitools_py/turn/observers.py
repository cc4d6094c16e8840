"""Calls observers. If an observer raises, its exception is logged, and the turn goes on.

Owns: the call of `on_event`, for plain and for async code, and the log line. Must never know: which events
there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..types.events import Event

__all__ = ["notify", "notify_async", "notify_soon"]

_running: set[Any] = set()
"""Tasks of `notify_soon`. They are kept here, because an event loop holds its tasks weakly."""


def _log(exc: Exception, event: Event) -> None:
    """Log the class of an observer's exception. Its text may hold content, so it is left out."""
    import logging  # not at the top: it takes a tenth of the package's import time

    error, told = type(exc).__name__, type(event).__name__
    facts = {"event": "observer.failed", "error": error, "told": told, "turn_ref": event.turn_ref}
    logging.getLogger("goaitools_py.turn").warning("on_event raised %s for %s", error, told, extra=facts)


def notify(on_event: Callable[[Any], object] | None, event: Event) -> None:
    """Tell an observer in plain code."""
    if on_event is None:
        return
    try:
        answer = on_event(event)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # otherwise Python warns that it was never awaited
            raise TypeError("on_event returned an awaitable, and a Chat runs no event loop: use AsyncChat")
    except Exception as exc:
        _log(exc, event)


async def notify_async(on_event: Callable[[Any], object] | None, event: Event) -> None:
    """Tell an observer, and await its result if that is an awaitable."""
    if on_event is None:
        return
    try:
        answer = on_event(event)
        if inspect.isawaitable(answer):
            await answer
    except Exception as exc:
        _log(exc, event)


def notify_soon(on_event: Callable[[Any], object] | None, event: Event) -> None:
    """Tell an observer from a plain method of an async object.

    An async observer runs in a task of the running loop. Without a loop it does not run, and that is logged.
    """
    if on_event is None:
        return
    if not any(map(inspect.iscoroutinefunction, (on_event, type(on_event).__call__))):
        notify(on_event, event)
        return
    import asyncio

    told = notify_async(on_event, event)
    try:
        task = asyncio.get_running_loop().create_task(told)
    except RuntimeError as exc:
        told.close()
        _log(exc, event)
        return
    _running.add(task)
    task.add_done_callback(_running.discard)
