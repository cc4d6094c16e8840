"""The effects a turn may ask for, and the two loops that carry them out.

Owns: the effect values and the step from one event to the next, once per colour.
Must never know: what a turn is, what a provider says, or how an effect is carried out.

A flow is a generator. It yields effects and is resumed with their answers; a failure is thrown into it
at the same place, so its ``finally`` blocks run::

    head = yield CallModel(request)     # ResponseHead, or BackendError
    chunk = yield ReadChunk()           # bytes, b"" at the end
    yield Emit(event)                   # handed to whoever iterates the turn

`Driver` and `AsyncDriver` differ by one ``await``; everything else about a turn is written in no colour.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

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


class Edge(Protocol):
    """Carries out effects in plain, blocking code."""

    def perform(self, effect: Effect) -> Any: ...

    def close(self) -> None: ...


class AsyncEdge(Protocol):
    """Carries out effects by awaiting."""

    async def perform(self, effect: Effect) -> Any: ...

    async def aclose(self) -> None: ...


class _Steps(Generic[ResultT]):
    """What both drivers share: resuming the flow, and its result once it has ended."""

    __slots__ = ("_flow", "done", "result")

    def __init__(self, flow: Flow[ResultT]) -> None:
        self._flow = flow
        self.done = False
        self.result: ResultT | None = None

    def _advance(self, answer: Any, failure: BaseException | None) -> Effect | None:
        try:
            return self._flow.throw(failure) if failure is not None else self._flow.send(answer)
        except StopIteration as stop:
            self.done, self.result = True, stop.value
            return None
        except BaseException:
            self.done = True
            raise


class Driver(_Steps[ResultT]):
    """Runs a flow in plain code, one event at a time."""

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: Edge) -> None:
        super().__init__(flow)
        self._edge = edge

    def step(self) -> Event | None:
        """Run to the next event; None once the flow has ended (see `result`)."""
        answer: Any = None
        failure: BaseException | None = None
        try:
            while not self.done:
                effect = self._advance(answer, failure)
                answer = failure = None
                if type(effect) is Emit:
                    return effect.event
                if effect is not None:
                    try:
                        answer = self._edge.perform(effect)
                    except BaseException as exc:
                        failure = exc
        finally:
            if self.done:
                self._edge.close()
        return None

    def close(self) -> None:
        """Give the flow up where it stands."""
        self.done = True
        self._flow.close()
        self._edge.close()


class AsyncDriver(_Steps[ResultT]):
    """Runs a flow on an event loop, one event at a time."""

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: AsyncEdge) -> None:
        super().__init__(flow)
        self._edge = edge

    async def step(self) -> Event | None:
        """As `Driver.step`, awaited."""
        answer: Any = None
        failure: BaseException | None = None
        try:
            while not self.done:
                effect = self._advance(answer, failure)
                answer = failure = None
                if type(effect) is Emit:
                    return effect.event
                if effect is not None:
                    try:
                        answer = await self._edge.perform(effect)
                    except BaseException as exc:
                        failure = exc
        finally:
            if self.done:
                await self._edge.aclose()
        return None

    async def aclose(self) -> None:
        """As `Driver.close`, awaited."""
        self.done = True
        self._flow.close()
        await self._edge.aclose()
