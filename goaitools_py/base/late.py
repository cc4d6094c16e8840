"""Awaits a call that may get no answer, for a limited time.

Owns: the task of such a call, and what becomes of the task when nobody waits for it any more. Must never
know: what is called.

It is the twin of `aside` for event loops. `asyncio.timeout` is not enough: it cancels the call and waits
until the call has cleaned up. A driver whose server is silent may clean up for ever.
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
"""How long a call that is late may go on before it is cancelled. A lease lasts as long by default."""

CLEANING_SECONDS: Final = 1.0
"""How long a cancelled call may clean up. Then it is cancelled again: a driver may swallow a cancellation."""

_TRIES: Final = 5

_left: Final[set[asyncio.Task[Any]]] = set()
"""An event loop holds its tasks weakly."""


async def await_within(seconds: float, call: Awaitable[T]) -> T:
    """Await a call for a while; what it gives or raises in that time.

    If this is cancelled, so is the call, and it gets a moment to clean up.

    Args:
        seconds: How long to wait.
        call: What to await. If it is late, it goes on for at most 10 more seconds.

    Raises:
        TimeoutError: It is late.
    """
    exits: list[BaseException] = []
    loop = asyncio.get_running_loop()
    task = loop.create_task(_without_exits(call, exits))
    over = loop.create_future()  # `asyncio.wait` costs half as much again
    timer = loop.call_later(max(0.0, seconds), _end, over)
    task.add_done_callback(lambda _: _end(over))
    if inspect.iscoroutine(call):
        task.add_done_callback(lambda _: call.close())  # a task that is cancelled before it began leaves it
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
    """Await a call. Ctrl-C and the like in a task end the event loop before anybody else sees them; so they
    are kept for the task that waits."""
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as exc:
        exits.append(exc)
        raise asyncio.CancelledError from None


def _leave(task: asyncio.Task[Any], exits: list[BaseException], seconds: float) -> None:
    """Wait for a task no longer. It is cancelled after so many seconds, and its answer is dropped."""
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
        task.exception()  # fetched, or asyncio would log that it never was
