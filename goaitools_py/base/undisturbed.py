"""A call of a store that runs to its end, although its caller is cancelled.

Owns: the call, its result, and its task. Must never know: a lease, or the kind of store.

A database may carry out a cancelled statement all the same. If the statement takes a lease, the conversation
would be busy until the lease runs out. So the call that takes a lease is not cancelled with its caller: it
ends first, and then the lease is given back. The same holds for the end of a lease. The result of the call
goes to the caller. If the caller has left, it goes to a function that gives it back. Exactly one of the two
gets it.
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
"""The running calls. They are kept here, because an event loop holds its tasks weakly."""


class _Ended:
    """The result of a call, for its caller, or for `give_back` once the caller has left.

    One operation on a dict decides between the two, so that neither Ctrl-C nor another thread can interrupt
    the decision.
    """

    def __init__(self, function: Callable[[], Any], give_back: Callable[[Any], object] | None = None) -> None:
        """`give_back`: called with the result, and awaited, if the caller has left before the call ended."""
        self._function = function
        self._give_back = give_back
        self._end: dict[str, tuple[Any, ...]] = {}

    def leave(self) -> Any:
        """Stop waiting, and return the result of the call; None if the call has not ended."""
        given = self._end.setdefault("is", ())
        return given[0] if given else None

    def _ended(self, answer: Any) -> Callable[[Any], object] | None:
        """Note the result of the call. Returns `give_back` if the caller has left."""
        return None if self._end.setdefault("is", (answer,)) else self._give_back


class Undisturbed(_Ended):
    """A call in plain code. Ctrl-C can interrupt it; a result that it returned before is kept."""

    def call(self) -> Any:
        """Call the function, and return its result."""
        answer = self._function()
        if (give_back := self._ended(answer)) is not None:
            give_back(answer)
        return answer

    def rest(self) -> Any:
        """As `leave`: do not wait for a call in another thread."""
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
            if not loop.is_closed():  # a driver may wait for ever for a server that does not answer
                loop.call_later(PATIENCE, self._task.cancel)
            raise

    async def rest(self) -> Any:
        """Wait for a call that still runs, and return its result; None if it failed.

        If the store does not answer in `PATIENCE` seconds, the call is cancelled.
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
            if not heard.done():  # raise exits, too, in the caller, which can clean up
                heard.set_exception(exc)
                heard.exception()  # fetch it: asyncio would log it if the caller no longer waits
            elif not isinstance(exc, Exception):
                raise
