"""Awaits a call that may get no answer, for a limited time.

Owns: the task of the call, and the end of the task after its caller has left. Must never know: the call's
work.

It does for event loops the work of `aside`. `asyncio.timeout` is not enough: it cancels the call and waits
until the call has cleaned up. A driver may clean up for ever if its server does not answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final, TypeVar

__all__ = ["await_within"]

T = TypeVar("T")

LEFT_SECONDS: Final = 10.0
"""A late call may go on for so many seconds before it is cancelled. A lease lasts as long by default."""

CLEANING_SECONDS: Final = 1.0
"""A cancelled call may clean up for so many seconds. Then it is cancelled again: a driver may swallow a
cancellation."""

_TRIES: Final = 5

_left: Final[set[asyncio.Task[Any]]] = set()
"""The tasks of late calls. They are kept here, because an event loop holds its tasks weakly."""


async def await_within(seconds: float, call: Awaitable[T]) -> T:
    """Await a call for a limited time, and return or raise its result.

    A cancellation of this coroutine cancels the call, too, which gets a moment to clean up.

    Args:
        seconds: The longest wait.
        call: The awaitable. If it is late, it goes on for at most 10 more seconds.

    Raises:
        TimeoutError: The call is late.
    """
    exits: list[BaseException] = []
    loop = asyncio.get_running_loop()
    task = loop.create_task(_without_exits(call, exits))
    over = loop.create_future()  # `asyncio.wait` costs half as much again
    timer = loop.call_later(max(0.0, seconds), _end, over)
    task.add_done_callback(lambda _: _end(over))
    if inspect.iscoroutine(call):
        # A task that is cancelled before it began never awaits the coroutine, and Python would warn of that.
        task.add_done_callback(lambda _: call.close())
    try:
        await over
    except asyncio.CancelledError:
        task.cancel()
        _leave(task, exits, CLEANING_SECONDS)
        await asyncio.wait((task,), timeout=CLEANING_SECONDS)
        raise
    finally:
        timer.cancel()
    if exits:
        raise exits.pop()
    if task.done():
        return task.result()
    _leave(task, exits, LEFT_SECONDS)
    raise TimeoutError("the call took longer than it may")


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


async def _without_exits(call: Awaitable[T], exits: list[BaseException]) -> T:
    """Await a call, and put Ctrl-C and SystemExit into `exits`, for the task that waits.

    If a task raises them, they end the event loop before other code sees them.
    """
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as exc:
        exits.append(exc)
        raise asyncio.CancelledError from None


def _leave(task: asyncio.Task[Any], exits: list[BaseException], seconds: float) -> None:
    """Stop waiting for a task. It is cancelled after so many seconds, and its result is dropped."""
    seeing_off = asyncio.ensure_future(_see_off(task, exits, seconds))
    _left.add(seeing_off)
    seeing_off.add_done_callback(_left.discard)


async def _see_off(task: asyncio.Task[Any], exits: list[BaseException], seconds: float) -> None:
    for _ in range(_TRIES):
        with suppress(asyncio.CancelledError):  # the loop is about to close: the call must end before that
            await asyncio.wait((task,), timeout=seconds)
        if task.done():
            break
        task.cancel()
        seconds = CLEANING_SECONDS
    if exits:
        raise exits.pop()
    if task.done() and not task.cancelled():
        task.exception()  # fetch it, or asyncio would log that it was never retrieved
