"""A call of a store that goes on to its end, although its caller is cancelled.

Owns: the call, what it gave, and the task that it runs in. Must never know: a lease, or which store it is.

A cancelled statement may be done all the same, and nobody hears of it. If it takes a lease, the conversation
would be busy until that lease runs out. So the call that takes a lease is not cancelled with its caller: it
ends first, and then what it took is given back. The same holds for the end of a lease.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncUndisturbed", "Undisturbed"]

PATIENCE: Final = 5.0
"""Seconds for which a call goes on without its caller if a store does not answer."""

_running: Final[set[asyncio.Task[Any]]] = set()
"""The calls that run. An event loop holds only weak references to its tasks, so they are kept here."""


class Undisturbed:
    """A call in plain code. Nothing can keep Ctrl-C off it; what it gave before is kept."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._given: Any = None

    def call(self) -> Any:
        """Call the function, and return what it returns."""
        self._given = self._function()
        return self._given

    def rest(self) -> Any:
        """What a call gave whose caller was interrupted; None if it gave nothing."""
        return self._given


class AsyncUndisturbed:
    """A call on an event loop, in a task of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._task: asyncio.Task[None] | None = None
        self._given: Any = None

    async def call(self) -> Any:
        """As `Undisturbed.call`, awaited. A cancellation ends the wait at once, the call after `PATIENCE`."""
        import asyncio

        loop = asyncio.get_running_loop()
        # `asyncio.shield` would need one more round of the loop, and a call may be a look into a dictionary.
        heard: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._run(heard))
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        try:
            await heard
        except asyncio.CancelledError:
            loop.call_later(PATIENCE, self._task.cancel)  # a driver may wait for ever for a silent server
            raise
        return self._given

    async def rest(self) -> Any:
        """Wait for a call that is still under way, and return what it gave; None if it failed.

        A store that does not answer in `PATIENCE` seconds is not waited for: the call is cancelled.
        """
        import asyncio

        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=PATIENCE)
            self._task.cancel()
        return self._given

    async def _run(self, heard: asyncio.Future[None]) -> None:
        try:
            answer = self._function()
            self._given = await answer if inspect.isawaitable(answer) else answer
            if not heard.done():
                heard.set_result(None)
        except BaseException as exc:
            if not heard.done():  # an exit, too, comes out where the caller can clean up
                heard.set_exception(exc)
                heard.exception()  # asyncio would log an error that a caller does not wait for any more
            elif not isinstance(exc, Exception):
                raise
