"""A call of a store that goes on to its end, although its caller is cancelled.

Owns: the call, what it gave, and the task that it runs in. Must never know: a lease, or which store it is.

A cancelled statement may be done all the same, and nobody hears of it. If it takes a lease, the conversation
would be busy until that lease runs out. So the call that takes a lease is not cancelled with its caller: it
ends first, and then what it took is given back. The same holds for the end of a lease. What such a call gives
goes to its caller or, if the caller has left, to a function that gives it back: to one of the two, once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

__all__ = ["PATIENCE", "AsyncUndisturbed", "Undisturbed"]

PATIENCE: Final = 5.0
"""Seconds for which a call goes on without its caller if a store does not answer."""

_running: Final[set[asyncio.Task[Any]]] = set()
"""The calls that run. An event loop holds only weak references to its tasks, so they are kept here."""


class _Ended:
    """What a call gave: for its caller, or for `give_back` once the caller has left. Which of the two came
    first is one operation on a dict, so that neither Ctrl-C nor another thread comes between.
    """

    def __init__(self, function: Callable[[], Any], give_back: Callable[[Any], object] | None = None) -> None:
        """`give_back`: called with what the call gives after its caller has left, and awaited."""
        self._function = function
        self._give_back = give_back
        self._end: dict[str, tuple[Any, ...]] = {}

    def leave(self) -> Any:
        """Wait no longer. What the call has given so far, for the caller; None if it has given nothing."""
        given = self._end.setdefault("is", ())
        return given[0] if given else None

    def _ended(self, answer: Any) -> Callable[[Any], object] | None:
        """Note what the call gave. Gives `give_back` if the caller has left."""
        return None if self._end.setdefault("is", (answer,)) else self._give_back


class Undisturbed(_Ended):
    """A call in plain code. Nothing can keep Ctrl-C off it; what it gave before is kept."""

    def call(self) -> Any:
        """Call the function, and return what it returns."""
        answer = self._function()
        if (give_back := self._ended(answer)) is not None:
            give_back(answer)
        return answer

    def rest(self) -> Any:
        """As `leave`: a call in another thread is not waited for."""
        return self.leave()


class AsyncUndisturbed(_Ended):
    """A call on an event loop, in a task of its own."""

    _task: asyncio.Task[None] | None = None

    async def call(self) -> Any:
        """As `Undisturbed.call`, awaited. A cancellation ends the wait at once, the call after `PATIENCE`."""
        import asyncio

        loop = asyncio.get_running_loop()
        # `asyncio.shield` would need one more round of the loop, and a call may be a look into a dictionary.
        heard: asyncio.Future[Any] = loop.create_future()
        self._task = loop.create_task(self._run(heard))
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        try:
            return await heard
        except asyncio.CancelledError:
            if not loop.is_closed():  # a driver may wait for ever for a silent server
                loop.call_later(PATIENCE, self._task.cancel)
            raise

    async def rest(self) -> Any:
        """Wait for a call that is still under way, and return what it gave; None if it failed.

        A store that does not answer in `PATIENCE` seconds is not waited for: the call is cancelled.
        """
        import asyncio

        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=PATIENCE)
            self._task.cancel()
        return self.leave()

    async def _run(self, heard: asyncio.Future[Any]) -> None:
        try:
            answer = self._function()
            if inspect.isawaitable(answer):
                answer = await answer
            give_back = self._ended(answer)
            if not heard.done():
                heard.set_result(answer)
            if give_back is not None:
                with suppress(Exception):
                    given = give_back(answer)
                    if inspect.isawaitable(given):
                        await given
        except BaseException as exc:
            if not heard.done():  # an exit, too, comes out where the caller can clean up
                heard.set_exception(exc)
                heard.exception()  # asyncio would log an error that a caller does not wait for any more
            elif not isinstance(exc, Exception):
                raise
