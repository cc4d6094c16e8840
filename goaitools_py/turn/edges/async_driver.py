"""The loop that carries out the effects of a flow, for tasks.

Owns: the step from one event to the next. Must never know: a turn, or how an effect is carried out.
"""

from __future__ import annotations

from typing import TypeVar

from ...base.process import this_process
from ...base.run_twice import run_twice_async
from ...types.events import Event
from ..flow import BUSY, AsyncEdge, BusyError, Emit, Flow, Steps

__all__ = ["AsyncDriver"]

ResultT = TypeVar("ResultT")


class AsyncDriver(Steps[ResultT]):
    """Runs a flow on an event loop, one event at a time.

    `_run` is a separate method for one reason: if a ``try`` stands inside another ``try``, neither of them
    catches an exception at the line of the inner ``try``.
    """

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: AsyncEdge) -> None:
        super().__init__(flow)
        self._edge = edge

    async def step(self) -> Event | None:
        """Run to the next event; None once the flow has ended (see `result`).

        Raises BusyError while another task, or an outer call of this task, is in a step.
        """
        if self._process is not this_process():
            self._refuse()
            return None
        reader = object()
        try:
            if not self._seat.take(reader):
                if self._is_stopping:
                    return None
                raise BusyError(BUSY)
            event = None if self.done else await self._run()
            if self.done:
                await self._end()
            self._seat.leave(reader)
            if False:  # SYNC
                if self._is_stopping:  # `close` ran after the last look of `_run`, and found the seat taken
                    self.close()
            return event
        except BusyError:
            raise  # another reader has the seat, or had it a moment ago
        except BaseException:
            if self._seat.take(reader):
                self._is_stopping = True
                try:
                    await self._end()
                finally:
                    self._seat.leave(reader)
            raise

    async def _run(self) -> Event | None:
        # An event and the effect behind it come in one `Emit`. The effect waits until the reader asks for
        # more.
        effect = self._resume(None, None) if self._then is None else self._then
        while effect is not None:
            if type(effect) is Emit:
                self._then = effect.then
                return effect.event
            answer = failure = None
            try:
                answer = await self._edge.perform(effect)
            except BaseException as exc:
                failure = exc
            effect = self._resume(answer, failure)
        return None

    async def aclose(self) -> None:
        """Give the flow up at its current effect.

        A step that another task runs has ended when this returns.
        """
        if self._process is not this_process():
            return
        self._is_stopping = True
        await run_twice_async(self._aclose, object())

    async def _aclose(self, closer: object) -> None:
        if not self._seat.take(closer):
            await self._edge.interrupt()
            return
        try:
            await self._end()
        finally:
            self._seat.leave(closer)

    async def _end(self) -> None:
        """Give up a flow that has not ended, and close the edge. The reader in the seat may do so twice."""
        if self._is_closed:
            return
        # The edge is closed even if the flow refuses to end: it holds a connection and threads.
        try:
            self._give_up()
        finally:
            await self._edge.aclose()
            self._is_closed = True
