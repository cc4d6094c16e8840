"""The handle of a running turn, for tasks.

Owns: iteration, observers and cancellation of a turn. Must never know: the inside of a turn, or its options.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..base.advice import advised, own_names
from ..turn.edges.async_driver import AsyncDriver
from ..turn.flow import BusyError
from ..turn.observers import notify_async
from ..types.errors import GoAIToolsError
from ..types.events import Event, TextDelta
from ..types.result import ChatResult
from .handles import Handle, RunningTurn
from .logs import log_failure

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["AsyncTurn"]


@own_names
class AsyncTurn(Handle[T]):
    """A turn that runs as it is iterated, by one task at a time.

    ``async with chat.start(state, user="…") as turn: async for event in turn: …`` then
    ``await turn.result()``.
    """

    @advised("{0} is made by chat.start(state, user=…) or conversation.start(…)")
    def __init__(self, engine: RunningTurn, steps: AsyncDriver[ChatResult[T]], on_event: Any = None) -> None:
        if False:  # SYNC
            if on_event is not None:
                from ..turn.edges.sync_edge import refuse_async_callback

                refuse_async_callback("on_event", on_event)
        self._engine = engine
        self._steps: AsyncDriver[ChatResult[T]] = steps
        self._on_event = on_event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            try:
                event = await self._steps.step()
            except GoAIToolsError as error:
                log_failure(error, self._engine.event_ids)
                raise
            if event is None:
                return
            if self._on_event is not None:
                await notify_async(self._on_event, event)
            yield event

    async def text_deltas(self) -> AsyncIterator[str]:
        """Only the pieces of visible text, as they arrive."""
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    async def result(self) -> ChatResult[T]:
        """Run the rest of the turn and return its result.

        Raises:
            Exception: The error of the turn; each later call raises the same error.
            RuntimeError: The turn was cancelled before its end.
        """
        try:
            while (event := await self._steps.step()) is not None:
                if self._on_event is not None:
                    await notify_async(self._on_event, event)
        except BusyError:
            raise
        except BaseException as exc:  # such as a cancellation in `on_event`
            if isinstance(exc, GoAIToolsError):
                log_failure(exc, self._engine.event_ids)
            await self.cancel()
            raise
        return self._finished()

    async def cancel(self) -> None:
        """Cancel the turn at this point; `state` stays valid. After the turn's end nothing happens.

        Any task of the loop may call this, for example the task of a stop button. The iteration of a reader
        in another task ends at once. When this returns, the response is closed, and the running tools are
        cancelled: a coroutine stops at its `await`; a tool in a worker thread cannot be stopped, and runs on.
        """
        await self._steps.aclose()
