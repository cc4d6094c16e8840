# generated from chat/async_turn.py by tests/make_sync.py; edit chat/async_turn.py
"""The handle of a running turn, in plain code.

Owns: iteration, observers and cancellation of a turn. Must never know: the inside of a turn, or its options.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..base.advice import advised, own_names
from ..turn.edges.driver import Driver
from ..turn.flow import BusyError
from ..turn.observers import notify
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

__all__ = ["Turn"]


@own_names
class Turn(Handle[T]):
    """A turn that runs as it is iterated, by one reader at a time.

    ``with chat.start(state, user="…") as turn: for event in turn: …`` then ``turn.result()``.
    """

    @advised("{0} is made by chat.start(state, user=…) or conversation.start(…)")
    def __init__(self, engine: RunningTurn, steps: Driver[ChatResult[T]], on_event: Any = None) -> None:
        if on_event is not None:
            from ..turn.edges.sync_edge import refuse_async_callback

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
