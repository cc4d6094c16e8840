"""The effects a turn may ask for, and the two loops that carry them out.

Owns: the effect values, and the step from one event to the next, for plain and for async code.
Must never know: what a turn is, what a provider says, or how an effect is carried out.

A flow is a generator. It yields effects and is resumed with their answers. A failure is thrown into it at the
same place, so its ``finally`` blocks run::

    head = yield CallModel(request)     # ResponseHead, or BackendError
    chunk = yield ReadChunk()           # bytes, b"" at the end, or BackendError
    yield Emit(event)                   # handed to the reader, who iterates the turn

`Driver` and `AsyncDriver` differ in their awaits, and in how a step is ended from outside: from another
thread, or from another task. Everything else about a turn is written once for both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ..backends.base import ModelRequest
from ..base.again import once_more, once_more_async
from ..base.process import this_process
from ..base.values import Value
from ..types.events import Event

__all__ = [
    "AsyncDriver",
    "AsyncEdge",
    "AwaitTool",
    "BusyError",
    "CallModel",
    "CallTool",
    "Checkpoint",
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
    "ReadParts",
    "Sleep",
    "ToolDone",
    "ToolReport",
    "Unanswered",
    "computed",
]

ResultT = TypeVar("ResultT")


class CallModel(Value, frozen=True):
    """Post a request; the answer is a `ResponseHead`. A response that is still open is closed first.

    `backend`: one that `OpenBackend` answered with; None is the turn's own.
    """

    request: ModelRequest
    backend: Any = None


class OpenBackend(Value, frozen=True):
    """Ask for another backend than the turn's own. The answer is that backend: it has a `dialect`, a `model`
    and `max_retries`.

    `backend`: the backend itself, or a name such as "openai:MODEL".
    """

    backend: Any


class Invoke(Value, frozen=True):
    """Call a function of the caller's. The answer is what it returns, awaited if that is an awaitable.

    `until`: when the wait for the answer ends with `Unanswered`, on the clock of `Moment.monotonic`. The call
    itself goes on for a while: in a thread, or in a task. None: the flow waits as long as the call takes.
    """

    _unshown = frozenset({"args"})

    function: Callable[..., object]
    args: tuple[Any, ...] = ()
    until: float | None = None


class Checkpoint(Value, frozen=True):
    """Save a resumable blob before the turn goes on. It has no answer; a failure means that it was not saved.

    An edge calls `keep`, the caller's `on_checkpoint`, if there is one. A conversation in a store saves the
    blob first.

    `is_claim`: the blob announces tools that are about to start and that must not run twice. Only a store
    that other workers use, too, has to keep it.
    """

    _unshown = frozenset({"blob"})

    blob: bytes
    keep: Callable[[bytes], object] | None = None
    is_claim: bool = False


class Compute(Value, frozen=True):
    """Run a function that only computes, but so long that an event loop should not wait for it. The answer is
    what it returns."""

    function: Callable[[], object]


def computed(function: Callable[[], ResultT], *, is_long: bool = True) -> Flow[ResultT]:
    """What a function returns, computed beside the event loop if it may take more than some milliseconds."""
    if not is_long:
        return function()
    found: ResultT = yield Compute(function)
    return found


class ReadChunk(Value, frozen=True):
    """The next bytes of the open response; b"" at its end, which also closes it.

    `until`: when the wait ends with a `BackendError` that has ``timed_out`` set, on the clock of
    `Moment.monotonic`; None without a limit. It ends then even if single bytes keep coming.
    `timed`: True: the answer is a pair, the `Moment` before the read and the bytes. This costs less than a
    `Clock` of its own.
    """

    until: float | None = None
    timed: bool = False


class ReadParts(Value, frozen=True):
    """Ask for parts of the state that are kept elsewhere. The answer is a dict from the names that are there
    to the stored bytes. An edge has none; a conversation in a store reads them there.

    `names`: the digests of the parts.
    """

    names: tuple[bytes, ...]


class CallTool(Value, frozen=True, kw_only=True):
    """Start one tool call; no answer. `AwaitTool` tells when a call has finished.

    `timeout`: after how many seconds the call is left.
    `limit`: the words for the limit behind `timeout`, as it was given: the turn may have used a part of it.
    `is_heard`: somebody listens to the turn, so that reports of the tool are told.
    `keep`: called with the `ToolDone` of a call that has finished, but that was not awaited yet when the turn
    is given up.
    `around`: makes a context manager that is entered where the tool runs, in its thread or task. It gives a
    function that is called with the outcome.
    """

    _unshown = frozenset({"context", "arguments", "keep", "around"})

    index: int
    tool: Any
    context: Any
    arguments: dict[str, Any]
    timeout: float | None = None
    limit: str = ""
    is_heard: bool = False
    keep: Callable[[Any], object] | None = None
    around: Callable[[], Any] | None = None


class AwaitTool(Value, frozen=True):
    """Wait until one of the started calls has finished; the answer is its `ToolDone`. It may be a
    `ToolReport` first."""


class ToolReport(Value, frozen=True, kw_only=True):
    """How far a running call is, as its tool says."""

    _unshown = frozenset({"message"})

    index: int
    progress: float
    total: float | None = None
    message: str = ""


class ToolDone(Value, frozen=True, kw_only=True):
    """A finished call: its index, a `tools.CallOutcome`, and how long it ran."""

    _unshown = frozenset({"outcome"})

    index: int
    outcome: Any
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    reports: tuple[ToolReport, ...] = ()
    """What the tool has said before, of a call that ran where nothing could be told meanwhile."""


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
    """Hand an event to the reader.

    `then`: the effect that comes next, once the reader wants another event; its answer is this effect's. So
    the flow is not resumed only to yield that effect, which counts where a reply comes in a thousand pieces.
    """

    event: Event
    then: Effect | None = None


Effect: TypeAlias = (
    CallModel
    | OpenBackend
    | Invoke
    | Checkpoint
    | Compute
    | ReadChunk
    | ReadParts
    | CallTool
    | AwaitTool
    | Sleep
    | Clock
    | Emit
)
Flow: TypeAlias = Generator[Effect, Any, ResultT]


class Unanswered(Exception):  # noqa: N818 - a signal between an edge and a flow, never a caller's
    """An edge's `perform` raises this when the answer to an `Invoke` has not come until its time."""


class Interrupted(Exception):  # noqa: N818 - a signal between an edge and its driver, never a caller's
    """An edge's `perform` raises this when `interrupt` ended its wait."""


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
    "the turn began in another process, and this one is a fork of it: the turn goes on over there; here, go "
    "on with the conversation from turn.state"
)
_BUSY: Final = "the turn is being iterated in another thread or task already; one reader at a time"


class BusyError(RuntimeError):
    """A step raises this while another one runs. The turn goes on in that one."""


class _Seat:
    """The place of the one reader that may be in a step.

    To take it is one operation on a dict, and so is to leave it; Python cannot be interrupted inside either.
    Only the reader that has the seat can leave it. So after Ctrl-C at any line it is known who has the seat,
    and it never stays taken.
    """

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

    An exception out of a step ends the flow, at whatever line it came. A flow that ends is closed. If Ctrl-C
    or a lack of memory breaks in on the closing, that is done once more before the exception goes on.

    Attributes:
        done: True once the flow has ended, in any way.
        result: What it returned.
        error: What it raised. An exit such as Ctrl-C, or a cancellation, does not count as its error.
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

    @property
    def is_busy(self) -> bool:
        """True while a reader is in a step."""
        return bool(self._seat.held)

    def _refuse(self) -> None:
        """The answer in a child of the process that runs this: it can neither go on with it nor end it."""
        if not self.done:
            raise BusyError(_ELSEWHERE)

    def _resume(self, answer: Any, failure: BaseException | None) -> Effect | None:
        """Go on to the next effect; None at the end, or if the flow is given up.

        A flow that is to stop still gets an answer that has come: so the effect of a tool is noted. It does
        not get an ordinary failure, which may come from the interruption itself. An exit or a cancellation
        belongs to the reader of this step, and goes through.
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
    """Runs a flow in plain code, one event at a time.

    `_run` is a method of its own for one reason: where a ``try`` stands inside another one, an exception at
    the line of the inner one is caught by neither.
    """

    __slots__ = ("_edge",)

    def __init__(self, flow: Flow[ResultT], edge: Edge) -> None:
        super().__init__(flow)
        self._edge = edge

    def step(self) -> Event | None:
        """Run to the next event; None once the flow has ended (see `result`).

        Raises BusyError while another thread, or a caller further up, is in a step.
        """
        if self._process is not this_process():
            self._refuse()
            return None
        reader = object()
        try:
            if not self._seat.take(reader):
                if self._is_stopping:
                    return None
                raise BusyError(_BUSY)
            event = None if self.done else self._run()
            if self.done:
                self._end()
            self._seat.leave(reader)
            if self._is_stopping:  # `close` came too late for `_run` to see it, and found the seat taken
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
        """Give the flow up where it stands. If a step runs, that step gives it up as soon as it can."""
        if self._process is not this_process():
            return
        self._is_stopping = True
        once_more(self._close, object())

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
        if self._process is not this_process():
            self._refuse()
            return None
        reader = object()
        try:
            if not self._seat.take(reader):
                if self._is_stopping:
                    return None
                raise BusyError(_BUSY)
            event = None if self.done else await self._run()
            if self.done:
                await self._end()
            self._seat.leave(reader)
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
        """As `Driver.close`, awaited. A step that another task runs has ended when this returns."""
        if self._process is not this_process():
            return
        self._is_stopping = True
        await once_more_async(self._aclose, object())

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
