"""The effects a turn may ask for, and the two loops that carry them out.

Owns: the effect values and the step from one event to the next, once per colour.
Must never know: what a turn is, what a provider says, or how an effect is carried out.

A flow is a generator. It yields effects and is resumed with their answers; a failure is thrown into it
at the same place, so its ``finally`` blocks run::

    head = yield CallModel(request)     # ResponseHead, or BackendError
    chunk = yield ReadChunk()           # bytes, b"" at the end, or BackendError
    yield Emit(event)                   # handed to whoever iterates the turn

`Driver` and `AsyncDriver` differ in their awaits, and in how a step is ended from beside: from another
thread here, from another task there. Everything else about a turn is written in no colour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ..backends.base import ModelRequest
from ..events import Event
from ..process import this_process
from ..values import Value

__all__ = [
    "AsyncDriver",
    "AsyncEdge",
    "AwaitTool",
    "BusyError",
    "CallModel",
    "CallTool",
    "Clock",
    "Compute",
    "Driver",
    "Edge",
    "Effect",
    "Emit",
    "Flow",
    "Interrupted",
    "Invoke",
    "Moment",
    "OpenBackend",
    "ReadChunk",
    "Sleep",
    "ToolDone",
]

ResultT = TypeVar("ResultT")


class CallModel(Value, frozen=True):
    """Post a request; the answer is a `ResponseHead`. A response still open is closed first.

    `backend`: one that `OpenBackend` answered with; None is the turn's own.
    """

    request: ModelRequest
    backend: Any = None


class OpenBackend(Value, frozen=True):
    """Ask for a backend beside the turn's own; the answer has its `dialect`, `model` and `max_retries`.

    `backend`: the thing itself, or a name such as "openai:MODEL".
    """

    backend: Any


class Invoke(Value, frozen=True):
    """Call a function of the caller's; what it returns is awaited if it can be, and is the answer."""

    unshown = frozenset({"args"})

    function: Callable[..., object]
    args: tuple[Any, ...] = ()


class Compute(Value, frozen=True):
    """Run a function that only computes, for so long that an event loop should not wait for it; what it
    returns is the answer."""

    function: Callable[[], object]


class ReadChunk(Value, frozen=True):
    """The next bytes of the open response; b"" at its end, which also closes it.

    `until`: when the wait ends with a `BackendError` that says ``timed_out``, on the clock of
    `Moment.monotonic` and however the bytes come in; None without a limit.
    `timed`: True for a pair as the answer, the `Moment` before the read and the bytes: `Clock`, but cheaper.
    """

    until: float | None = None
    timed: bool = False


class CallTool(Value, frozen=True, kw_only=True):
    """Start one tool call; no answer. `AwaitTool` tells when one has finished.

    `keep`: takes the `ToolDone` of a call that has finished and that nobody has awaited when the turn is
    given up.
    """

    unshown = frozenset({"context", "arguments", "keep"})

    index: int
    tool: Any
    context: Any
    arguments: dict[str, Any]
    timeout: float | None = None
    keep: Callable[[Any], object] | None = None


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
    """Hand an event to whoever listens.

    `then`: what is asked for next, once somebody wants another event; its answer is this effect's. It spares
    resuming the flow only to hear that, which counts where a reply comes in a thousand pieces.
    """

    event: Event
    then: Effect | None = None


Effect: TypeAlias = (
    CallModel | OpenBackend | Invoke | Compute | ReadChunk | CallTool | AwaitTool | Sleep | Clock | Emit
)
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

    def perform(self, effect: Effect) -> Awaitable[Any]: ...

    async def interrupt(self) -> None:
        """Called from another task while `perform` runs: end its wait, and return once `aclose` has run."""
        ...

    async def aclose(self) -> None: ...


_ELSEWHERE: Final = (
    "the turn began in another process, of which this one is a fork; that one goes on with it, and here the "
    "conversation goes on from turn.state"
)
_BUSY: Final = "the turn is being iterated in another thread or task already; one reader at a time"


class BusyError(RuntimeError):
    """Raised by a step while another one runs; the turn goes on in that."""


class _Seat:
    """Room for one reader. Each act is one operation on a dict, and undone only by whose it is: so an exit
    such as Ctrl-C leaves no reader behind that nobody can send away."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[str, object] = {}

    def take(self, reader: object) -> bool:
        """True if the seat is the reader's now, or was already."""
        return self.held.setdefault("by", reader) is reader

    def leave(self, reader: object) -> None:
        if self.held.get("by") is reader:
            self.held.clear()


class _Steps(Generic[ResultT]):
    """What both drivers share: resuming the flow, and how it ended.

    An exception out of a step ends the flow, wherever it came. What ends is closed; where an exit such as
    Ctrl-C, or a lack of memory, breaks in on the closing, it is done once more before the exception goes on.

    Attributes:
        done: True once the flow has ended, whichever way.
        result: What it returned.
        error: What it raised; an exit or a cancellation is none of its errors.
    """

    __slots__ = (
        "_flow",
        "_is_closed",
        "_is_stopping",
        "_process",
        "_seat",
        "_then",
        "done",
        "error",
        "result",
    )

    def __init__(self, flow: Flow[ResultT]) -> None:
        self._flow = flow
        self._process = this_process()
        self._then: Effect | None = None
        self._seat = _Seat()
        self._is_stopping = False
        self._is_closed = False
        self.done = False
        self.result: ResultT | None = None
        self.error: Exception | None = None

    def _is_elsewhere(self) -> bool:
        """True in a child of the process that runs this. It can neither go on with it nor end it."""
        if self._process is this_process():
            return False
        if not self.done:
            raise BusyError(_ELSEWHERE)
        return True

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

    def _begin(self) -> Effect | None:
        """A step's first effect: what was to follow the last event, or what the flow says now."""
        then, self._then = self._then, None
        return self._resume(None, None) if then is None else then

    def _give_up(self) -> None:
        self.done = True
        self._flow.close()


class Driver(_Steps[ResultT]):
    """Runs a flow in plain code, one event at a time.

    `_run` is apart from `step` because Python covers the line of a ``try`` inside of another one by neither.
    """

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: Edge) -> None:
        super().__init__(flow)
        self._edge = edge

    def step(self) -> Event | None:
        """Run to the next event; None once the flow has ended (see `result`).

        Raises BusyError while another thread, or a caller further up, is in a step.
        """
        if self._is_elsewhere():
            return None
        reader, held = object(), self._seat.held
        try:
            if held.setdefault("by", reader) is not reader:  # as `take`, without a call for each word
                if self._is_stopping:
                    return None
                raise BusyError(_BUSY)
            event = None if self.done else self._run()
            if self.done:
                self._end()
            held.clear()
            if self._is_stopping:  # said so too late for this step to see it
                self.close()
            return event
        except BusyError:
            raise  # the seat is another's, even if that has just left it
        except BaseException:
            if self._seat.take(reader):
                self._is_stopping = True
                try:
                    self._end()
                finally:
                    self._seat.leave(reader)
            raise

    def _run(self) -> Event | None:
        effect = self._begin()
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
        """Give the flow up where it stands; while a step runs, that step does so as soon as it can."""
        if self._process is not this_process():
            return
        self._is_stopping = True
        closer = object()
        try:
            self._close(closer)
        except BaseException:
            self._close(closer)
            raise

    def _close(self, closer: object) -> None:
        if not self._seat.take(closer):
            self._edge.interrupt()
            return
        try:
            self._end()
        finally:
            self._seat.leave(closer)

    def _end(self) -> None:
        """Give up a flow that has not ended, and close the edge. Whoever holds the seat may do so again."""
        if self._is_closed:
            return
        try:
            self._give_up()
        finally:
            self._edge.close()
            self._is_closed = True


class AsyncDriver(_Steps[ResultT]):
    """Runs a flow on an event loop, one event at a time."""

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: AsyncEdge) -> None:
        super().__init__(flow)
        self._edge = edge

    async def step(self) -> Event | None:
        """As `Driver.step`, awaited."""
        if self._is_elsewhere():
            return None
        reader, held = object(), self._seat.held
        try:
            if held.setdefault("by", reader) is not reader:  # as `take`, without a call for each word
                if self._is_stopping:
                    return None
                raise BusyError(_BUSY)
            event = None if self.done else await self._run()
            if self.done:
                await self._end()
            held.clear()
            return event
        except BusyError:
            raise  # the seat is another's, even if that has just left it
        except BaseException:
            if self._seat.take(reader):
                self._is_stopping = True
                try:
                    await self._end()
                finally:
                    self._seat.leave(reader)
            raise

    async def _run(self) -> Event | None:
        effect = self._begin()
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
        """As `Driver.close`, awaited: a step that another task runs has ended when this returns."""
        if self._process is not this_process():
            return
        self._is_stopping = True
        closer = object()
        try:
            await self._aclose(closer)
        except BaseException:
            await self._aclose(closer)
            raise

    async def _aclose(self, closer: object) -> None:
        if not self._seat.take(closer):
            await self._edge.interrupt()
            return
        try:
            await self._end()
        finally:
            self._seat.leave(closer)

    async def _end(self) -> None:
        """As `Driver._end`, awaited."""
        if self._is_closed:
            return
        try:
            self._give_up()
        finally:
            await self._edge.aclose()
            self._is_closed = True
