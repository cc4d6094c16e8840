"""The handle of a running turn, in both colours.

Owns: iteration, observers, appended messages and cancellation of a turn. Must never know: the inside of a
turn, or its options.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self

from ..base.advice import advised, own_names
from ..turn.edges.sync_edge import refuse_async_callback
from ..turn.flow import AsyncDriver, BusyError, Driver
from ..turn.observers import notify, notify_async
from ..types.errors import GoAIToolsError, TurnError
from ..types.events import Event, TextDelta
from ..types.messages import Message
from ..types.result import ChatResult
from .logs import log_failure

__all__ = ["AsyncTurn", "RunningTurn", "Turn", "checked_message"]


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class RunningTurn(Protocol):
    """The work that a handle drives: a turn, or a turn of a kept conversation."""

    def snapshot(self) -> bytes: ...

    def append(self, *messages: Message) -> None: ...

    @property
    def event_ids(self) -> dict[str, str]: ...


class _Handle(Generic[T]):
    """The base of both turn handles: the state at this instant, and the result after the end."""

    _engine: RunningTurn
    _steps: Driver[ChatResult[T]] | AsyncDriver[ChatResult[T]]

    @property
    def state(self) -> bytes:
        """A complete blob of this instant; the chat's `resume` goes on from it. After the turn failed, it is
        the state of its error."""
        error = self._steps.error
        return error.state if isinstance(error, TurnError) else self._engine.snapshot()

    def append(self, *messages: Message) -> None:
        """Add messages to the running turn, from any thread; its next model call sees them.

        Raises:
            RuntimeError: The turn is over; use `append_to_state` on its state.
            StateTooLargeError: The messages that wait for the next model call are beyond the limits of the
                codec.
        """
        if self._steps.done:
            raise RuntimeError("the turn is over; use append_to_state on its state")
        self._engine.append(*(checked_message(message) for message in messages))

    def _finished(self) -> ChatResult[T]:
        steps = self._steps
        if steps.error is not None:
            raise steps.error
        if steps.result is None:
            raise RuntimeError("the turn was given up before its end; turn.state holds what there is")
        return steps.result


@own_names
class Turn(_Handle[T]):
    """A turn that runs as it is iterated, by one reader at a time.

    ``with chat.start(state, user="…") as turn: for event in turn: …`` then ``turn.result()``.
    """

    @advised("{0} is made by chat.start(state, user=…) or conversation.start(…)")
    def __init__(self, engine: RunningTurn, steps: Driver[ChatResult[T]], on_event: Any = None) -> None:
        if on_event is not None:
            refuse_async_callback("on_event", on_event)
        self._engine = engine
        self._steps: Driver[ChatResult[T]] = steps
        self._on_event = on_event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                event = self._steps.step()
            except GoAIToolsError as error:
                log_failure(error, self._engine.event_ids)
                raise
            if event is None:
                return
            if self._on_event is not None:
                notify(self._on_event, event)
            yield event

    def text_deltas(self) -> Iterator[str]:
        """Only the pieces of visible text, as they arrive."""
        for event in self:
            if isinstance(event, TextDelta):
                yield event.text

    def result(self) -> ChatResult[T]:
        """Run the rest of the turn and return its result.

        Raises:
            Exception: The error of the turn; each later call raises the same error.
            RuntimeError: The turn was cancelled before its end.
        """
        try:
            while (event := self._steps.step()) is not None:
                if self._on_event is not None:
                    notify(self._on_event, event)
        except BusyError:
            raise
        except BaseException as exc:  # such as an exit out of `on_event`
            if isinstance(exc, GoAIToolsError):
                log_failure(exc, self._engine.event_ids)
            self.cancel()
            raise
        return self._finished()

    def cancel(self) -> None:
        """Cancel the turn at this point; `state` stays valid. After the turn's end nothing happens.

        Any thread may call this, for example the thread of a stop button. The reader's iteration then ends:
        at once if it waits for more of a reply or for tools in worker threads. If it waits for the reply's
        beginning, a retry's pause, or a tool in its own thread, it ends when that wait is over.
        """
        self._steps.close()


@own_names
class AsyncTurn(_Handle[T]):
    """A turn that runs as it is iterated, by one task at a time.

    ``async with chat.start(state, user="…") as turn: async for event in turn: …`` then
    ``await turn.result()``.
    """

    @advised("{0} is made by chat.start(state, user=…) or conversation.start(…)")
    def __init__(self, engine: RunningTurn, steps: AsyncDriver[ChatResult[T]], on_event: Any = None) -> None:
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


def checked_message(value: Any) -> Message:
    """The value, if it is a message; else TypeError."""
    if not isinstance(value, Message):
        advice = "; states.state_from_messages makes a state of a provider's messages"
        raise TypeError(
            f"messages must be made with user(), system(), assistant() or event(), not "
            f"{type(value).__name__}{advice if isinstance(value, dict) else ''}"
        )
    return value
