# generated from turn/edges/async_driver.py by tests/make_sync.py; edit turn/edges/async_driver.py
"""The loop that carries out the effects of a flow, in plain code.

Owns: the step from one event to the next. Must never know: a turn, or how an effect is carried out.
"""

from __future__ import annotations

from typing import TypeVar

from ...base.process import this_process
from ...base.run_twice import run_twice
from ...types.events import Event
from ..flow import BUSY, BusyError, Edge, Emit, Flow, Steps

__all__ = ["Driver"]

ResultT = TypeVar("ResultT")


class Driver(Steps[ResultT]):
    """Runs a flow in plain code, one event at a time.

    `_run` is a separate method for one reason: if a ``try`` stands inside another ``try``, neither of them
    catches an exception at the line of the inner ``try``.
    """

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: Edge) -> None:
        super().__init__(flow)
        self._edge = edge

    def step(self) -> Event | None:
        """Run to the next event; None once the flow has ended (see `result`).

        Raises BusyError while another thread, or an outer call of this thread, is in a step.
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
            event = None if self.done else self._run()
            if self.done:
                self._end()
            self._seat.leave(reader)
            if self._is_stopping:  # `close` ran after the last look of `_run`, and found the seat taken
                self.close()
            return event
        except BusyError:
            raise  # another reader has the seat, or had it a moment ago
        except BaseException:
            if self._seat.take(reader):
                self._is_stopping = True
                try:
                    self._end()
                finally:
                    self._seat.leave(reader)
            raise

    def _run(self) -> Event | None:
        # An event and the effect behind it come in one `Emit`. The effect waits until the reader asks for
        # more.
        effect = self._resume(None, None) if self._then is None else self._then
        while effect is not None:
            if type(effect) is Emit:
                self._then = effect.then
                return effect.event
            answer = failure = None
            try:
                answer = self._edge.perform(effect)
            except BaseException as exc:
                failure = exc
            effect = self._resume(answer, failure)
        return None

    def close(self) -> None:
        """Give the flow up at its current effect.

        If a step runs, the step gives it up as soon as it can.
        """
        if self._process is not this_process():
            return
        self._is_stopping = True
        run_twice(self._close, object())

    def _close(self, closer: object) -> None:
        if not self._seat.take(closer):
            self._edge.interrupt()
            return
        try:
            self._end()
        finally:
            self._seat.leave(closer)

    def _end(self) -> None:
        """Give up a flow that has not ended, and close the edge. The reader in the seat may do so twice."""
        if self._is_closed:
            return
        # The edge is closed even if the flow refuses to end: it holds a connection and threads.
        try:
            self._give_up()
        finally:
            self._edge.close()
            self._is_closed = True
