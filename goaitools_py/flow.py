"""The effects a turn may ask for, and the two loops that carry them out.

Owns: the effect values and the step from one event to the next, once per colour.
Must never know: what a turn is, what a provider says, or how an effect is carried out.

A flow is a generator. It yields effects and is resumed with their answers; a failure is thrown into it
at the same place, so its ``finally`` blocks run::

    head = yield CallModel(request)     # ResponseHead, or BackendError
    chunk = yield ReadChunk()           # bytes, b"" at the end
    yield Emit(event)                   # handed to whoever iterates the turn

`Driver` and `AsyncDriver` differ in their awaits, and in how a step is ended from beside: from another
thread here, from another task there. Everything else about a turn is written in no colour.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from .backends.base import ModelRequest
from .events import Event
from .values import Value

__all__ = [
    "AsyncDriver",
    "AsyncEdge",
    "AwaitTool",
    "CallModel",
    "CallTool",
    "Checkpoint",
    "Clock",
    "Driver",
    "Edge",
    "Effect",
    "Emit",
    "Flow",
    "Interrupted",
    "Moment",
    "ReadChunk",
    "Sleep",
    "ToolDone",
]

ResultT = TypeVar("ResultT")


class CallModel(Value, frozen=True):
    """Post a request; the answer is a `ResponseHead`. A response still open is closed first."""

    request: ModelRequest


class ReadChunk(Value, frozen=True):
    """The next bytes of the open response; b"" at its end, which also closes it."""


class CallTool(Value, frozen=True, kw_only=True):
    """Start one tool call; no answer. `AwaitTool` tells when one has finished."""

    unshown = frozenset({"context", "arguments"})

    index: int
    tool: Any
    context: Any
    arguments: dict[str, Any]
    timeout: float | None = None


class AwaitTool(Value, frozen=True):
    """Wait until any started call has finished; the answer is a `ToolDone`."""


class ToolDone(Value, frozen=True, kw_only=True):
    """A finished call: its index, a `tools.Outcome`, and how long it ran."""

    unshown = frozenset({"outcome"})

    index: int
    outcome: Any
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0


class Sleep(Value, frozen=True):
    """Wait before a retry."""

    seconds: float


class Clock(Value, frozen=True):
    """Ask for the time; the answer is a `Moment`."""


class Moment(Value, frozen=True):
    """`wall_ms`: milliseconds since the epoch; `monotonic`: seconds on a clock that never jumps."""

    wall_ms: int
    monotonic: float


class Emit(Value, frozen=True):
    """Hand an event to whoever listens."""

    event: Event


class Checkpoint(Value, frozen=True):
    """Hand a complete, resumable blob to `on_checkpoint`."""

    unshown = frozenset({"blob"})

    blob: bytes


Effect: TypeAlias = CallModel | ReadChunk | CallTool | AwaitTool | Sleep | Clock | Emit | Checkpoint
Flow: TypeAlias = Generator[Effect, Any, ResultT]


class Interrupted(Exception):  # noqa: N818 - a signal between an edge and its driver, never a caller's
    """Raised by an edge's `perform` when `interrupt` ended its wait."""


class Edge(Protocol):
    """Carries out effects in plain, blocking code."""

    def perform(self, effect: Effect) -> Any: ...

    def interrupt(self) -> None:
        """Called from another thread while `perform` runs: end its wait where that is safe."""
        ...

    def close(self) -> None: ...


class AsyncEdge(Protocol):
    """Carries out effects by awaiting."""

    async def perform(self, effect: Effect) -> Any: ...

    async def interrupt(self) -> None:
        """Called from another task while `perform` runs: end its wait, and return once `aclose` has run."""
        ...

    async def aclose(self) -> None: ...


_BUSY: Final = "the turn is being iterated in another thread or task already; one reader at a time"


class _Steps(Generic[ResultT]):
    """What both drivers share: resuming the flow, and how it ended.

    Attributes:
        done: True once the flow has ended, whichever way.
        result: What it returned.
        error: What it raised; an exit or a cancellation is none of its errors.
    """

    __slots__ = ("_flow", "_is_stopping", "done", "error", "result")

    def __init__(self, flow: Flow[ResultT]) -> None:
        self._flow = flow
        self._is_stopping = False
        self.done = False
        self.result: ResultT | None = None
        self.error: Exception | None = None

    def _resume(self, answer: Any, failure: BaseException | None) -> Effect | None:
        """Go on to the next effect; None at the end, or where the flow is given up.

        A flow that is to stop still gets an answer that is there, so that what a tool did is noted. A
        failure may come of the interruption itself and is not told; an exit or a cancellation of whoever
        takes this step is theirs, and passes through.
        """
        if self._is_stopping and isinstance(failure, Exception):
            self._give_up()
            return None
        try:
            effect = self._flow.throw(failure) if failure is not None else self._flow.send(answer)
        except StopIteration as stop:
            self.done, self.result = True, stop.value
            return None
        except BaseException as exc:
            self.done = True
            self.error = exc if isinstance(exc, Exception) else None
            raise
        if self._is_stopping:
            self._give_up()
            return None
        return effect

    def _give_up(self) -> None:
        self.done = True
        self._flow.close()


class Driver(_Steps[ResultT]):
    """Runs a flow in plain code, one event at a time."""

    __slots__ = ("_busy", "_edge")

    def __init__(self, flow: Flow[ResultT], edge: Edge) -> None:
        super().__init__(flow)
        self._edge = edge
        self._busy = threading.Lock()

    def step(self) -> Event | None:
        """Run to the next event; None once the flow has ended (see `result`).

        Raises RuntimeError while another thread, or a caller further up, is in a step.
        """
        if not self._busy.acquire(blocking=False):
            if self._is_stopping:
                return None
            raise RuntimeError(_BUSY)
        try:
            return None if self.done else self._run()
        finally:
            self._busy.release()
            if self._is_stopping:  # said so too late for this step to see it
                self.close()

    def _run(self) -> Event | None:
        answer: Any = None
        failure: BaseException | None = None
        try:
            while (effect := self._resume(answer, failure)) is not None:
                if type(effect) is Emit:
                    return effect.event
                answer = failure = None
                try:
                    answer = self._edge.perform(effect)
                except BaseException as exc:
                    failure = exc
            return None
        finally:
            if self.done:
                self._edge.close()

    def close(self) -> None:
        """Give the flow up where it stands; while a step runs, that step does so as soon as it can."""
        self._is_stopping = True
        if not self._busy.acquire(blocking=False):
            self._edge.interrupt()
            return
        try:
            if not self.done:
                try:
                    self._give_up()
                finally:
                    self._edge.close()
        finally:
            self._busy.release()


class AsyncDriver(_Steps[ResultT]):
    """Runs a flow on an event loop, one event at a time."""

    __slots__ = ("_edge", "_is_busy")

    def __init__(self, flow: Flow[ResultT], edge: AsyncEdge) -> None:
        super().__init__(flow)
        self._edge = edge
        self._is_busy = False

    async def step(self) -> Event | None:
        """As `Driver.step`, awaited."""
        if self._is_busy:
            raise RuntimeError(_BUSY)
        self._is_busy = True
        try:
            return None if self.done else await self._run()
        finally:
            self._is_busy = False

    async def _run(self) -> Event | None:
        answer: Any = None
        failure: BaseException | None = None
        try:
            while (effect := self._resume(answer, failure)) is not None:
                if type(effect) is Emit:
                    return effect.event
                answer = failure = None
                try:
                    answer = await self._edge.perform(effect)
                except BaseException as exc:
                    failure = exc
            return None
        finally:
            if self.done:
                await self._edge.aclose()

    async def aclose(self) -> None:
        """As `Driver.close`, awaited: a step that another task runs has ended when this returns."""
        self._is_stopping = True
        if self._is_busy:
            await self._edge.interrupt()
        elif not self.done:
            try:
                self._give_up()
            finally:
                await self._edge.aclose()
