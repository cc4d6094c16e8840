"""The effects that a turn may ask for, and the common part of the two loops that carry them out.

Owns: the effect values, how a flow is resumed, and how it ends.
Must never know: a turn, a provider's answer, or how an effect is carried out.

A flow is a generator. It yields effects and is resumed with their answers. A failure is thrown into it at the
same place, so its ``finally`` blocks run::

    head = yield CallModel(request)     # ResponseHead, or BackendError
    chunk = yield ReadChunk()           # bytes, b"" at the end, or BackendError
    yield Emit(event)                   # goes to the reader, who iterates the turn

`edges.driver` and `edges.async_driver` have the loops. They differ in their awaits, and in how a step is
stopped from outside: from another thread, or from another task. All other code of a turn is written once for
both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ..backends.base import ModelRequest
from ..base.process import this_process
from ..base.values import Value
from ..types.events import Event

__all__ = [
    "BUSY",
    "AsyncEdge",
    "AwaitTool",
    "BusyError",
    "CallModel",
    "CallTool",
    "Checkpoint",
    "Clock",
    "Compute",
    "Edge",
    "Effect",
    "Emit",
    "Flow",
    "Interrupted",
    "Invoke",
    "Look",
    "Moment",
    "OpenBackend",
    "ReadChunk",
    "ReadParts",
    "Sleep",
    "Steps",
    "ToolDone",
    "ToolReport",
    "Unanswered",
    "computed",
]

ResultT = TypeVar("ResultT")


class CallModel(Value, frozen=True):
    """Post a request; the answer is a `ResponseHead`. A response that is still open is closed first.

    `backend`: a backend that `OpenBackend` returned; None for the turn's own.
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
    """Call a function of the caller. The answer is its result; an awaitable result is awaited.

    `until`: the time on the clock of `Moment.monotonic` at which the wait ends with `Unanswered`. The call
    itself goes on for a while, in a thread or in a task. None: the flow waits as long as the call takes.
    """

    _unshown = frozenset({"args"})

    function: Callable[..., object]
    args: tuple[Any, ...] = ()
    until: float | None = None


class Checkpoint(Value, frozen=True):
    """Save a resumable blob before the turn goes on. No answer; a failure means that the blob was not saved.

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
    """Run a long computation without blocking the event loop. The answer is the function's result."""

    function: Callable[[], object]


def computed(function: Callable[[], ResultT], *, is_long: bool = True) -> Flow[ResultT]:
    """Call a function, and return its result. If `is_long`, it runs beside the event loop."""
    if not is_long:
        return function()
    found: ResultT = yield Compute(function)
    return found


class ReadChunk(Value, frozen=True):
    """Read the next bytes of the open response. The answer is b"" at its end; the response is then closed.

    `until`: the time on the clock of `Moment.monotonic` at which the wait ends with a `BackendError` that has
    ``timed_out`` set, even if single bytes keep coming; None without a limit.
    `timed`: True: the answer is a pair of the `Moment` before the read and the bytes. This costs less than an
    extra `Clock`.
    """

    until: float | None = None
    timed: bool = False


class Look(Value, frozen=True):
    """Look for messages that came into the stored conversation, and claim them before they are sent. The
    answer is True if the turn has taken messages in. A failure means that the claim may not be saved. Only a
    turn of a conversation in a store with ``gate="steer"`` asks.

    `claim`: takes the state from which the turn's own has grown, and the stored one. Gives an `Arrival`; None
    if no message came.
    """

    claim: Callable[[bytes, bytes], Any]


class ReadParts(Value, frozen=True):
    """Ask for parts of the state that are kept elsewhere. The answer is a dict from names to stored bytes,
    without missing parts. An edge has no parts; a conversation in a store reads them from the store.

    `names`: the digests of the parts.
    """

    names: tuple[bytes, ...]


class CallTool(Value, frozen=True, kw_only=True):
    """Start one tool call; no answer. `AwaitTool` tells when a call has finished.

    `timeout`: seconds after which the turn stops waiting for the call.
    `limit`: the words for the option behind `timeout`: the turn may have used a part of its time.
    `is_heard`: True if the turn has listeners, so that reports of the tool are told.
    `keep`: called with the `ToolDone` of a finished call that was not awaited when the turn is given up.
    `around`: makes a context manager that is entered in the tool's thread or task. It gives a function that
    is called with the outcome.
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
    """Wait until a started call has finished. The answer is its `ToolDone`, or before that a `ToolReport`."""


class ToolReport(Value, frozen=True, kw_only=True):
    """The progress of a running call, as its tool reports it."""

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
    """The reports of a call that ran in the turn's own thread, where they could not be told earlier."""


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
    """Give an event to the reader.

    `then`: the next effect, performed when the reader wants another event. Its answer is the answer of this
    effect. So the flow is not resumed only to yield it. That saves time where a reply has a thousand pieces.
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
    | Look
    | CallTool
    | AwaitTool
    | Sleep
    | Clock
    | Emit
)
Flow: TypeAlias = Generator[Effect, Any, ResultT]


class Unanswered(Exception):  # noqa: N818 - a signal between an edge and a flow, never a caller's
    """An edge's `perform` raises this when an `Invoke` has no answer in time."""


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
BUSY: Final = "the turn is being iterated in another thread or task already; one reader at a time"


class BusyError(RuntimeError):
    """A step raises this while another one runs. The turn goes on in that one."""


class _Seat:
    """The place of the one reader that may be in a step.

    Taking it is one operation on a dict, and so is leaving it. Python cannot be interrupted inside such an
    operation. Only the reader that has the seat can leave it. So after Ctrl-C at any line the seat is in a
    known state, and it never stays taken.
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


class Steps(Generic[ResultT]):
    """The common part of both drivers: it resumes the flow, and notes how it ended.

    An exception out of a step, at any line, ends the flow. A flow that ends is closed. If Ctrl-C or a lack of
    memory interrupts the closing, it is done once more before the exception goes on.

    Attributes:
        done: True once the flow has ended, in any way.
        result: The flow's result.
        error: The flow's exception. An exit, for example Ctrl-C, or a cancellation does not count.
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
        """Raise `BusyError`: a fork of the flow's process can neither go on with the flow nor end it."""
        if not self.done:
            raise BusyError(_ELSEWHERE)

    def _resume(self, answer: Any, failure: BaseException | None) -> Effect | None:
        """Go on to the next effect; None at the end, or if the flow is given up.

        A flow that is to stop still gets an answer that has arrived, so that it can note a tool's result. It
        does not get an ordinary failure, because the interruption itself may have caused it. An exit or a
        cancellation belongs to the reader of this step, and goes through.
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
        # The flow has had its answer, and noted it. It must not begin another effect.
        if self._is_stopping:
            self._give_up()
            return None
        return effect

    def _give_up(self) -> None:
        self.done = True
        self._flow.close()
