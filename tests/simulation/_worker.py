"""A worker: one flow of the package, carried out effect by effect, with the faults that hit it.

Owns: the step from one effect to the next, and what each effect does in a run. It stands for a driver and its
edge. Must never know: what the flow is for, or which promises are checked.

A worker that dies is never resumed again. One that is cancelled is closed, and its work is settled, as a
driver of kept turns does: at once, or some time later if its reader has just gone away. One that is copied,
as a fork of its process, is run again from the beginning with the answers that it got: from there on both go
on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from goaitools_py.backends.base import BackendError, ResponseHead
from goaitools_py.tools.call import run_call
from goaitools_py.turn.flow import (
    AwaitTool,
    CallModel,
    CallTool,
    Clock,
    Compute,
    Effect,
    Emit,
    Flow,
    Invoke,
    Moment,
    ReadChunk,
    Sleep,
    ToolDone,
)

from ._bank import HANDED, OTHER
from ._provider import REFUSED, outage, refusal
from ._schedule import Act, Fault
from ._store import Port

__all__ = ["LEASE_SECONDS", "Renewal", "Run", "Worker", "Workload"]

LEASE_SECONDS: Final = 1.0

JSON: Final = {"content-type": "application/json"}

STRIKES: Final[dict[str, tuple[type, ...]]] = {
    "fail": (Invoke, CallModel, ReadChunk, AwaitTool),
    "unanswered": (Invoke, CallModel, AwaitTool),
    "late": (Invoke,),
}
"""Faults of what an effect reaches, and the effects that they can hit. Not every `Invoke` reaches the store:
a fault that did not strike waits for the next one."""


class Workload(Protocol):
    """What a worker does: a kept turn, a compaction, or a flow that leaves nothing to settle."""

    is_settled: bool

    def run(self) -> Flow[Any]: ...

    def settle(self) -> Flow[None]: ...


class Run(Protocol):
    """What a worker needs of the run that it is in."""

    now: float
    wall: float
    random: Any

    def provider(self, act: Act, backend: Any) -> Any: ...

    def is_down(self, backend: Any) -> bool: ...

    def hand_off(self, worker: Worker, effect: CallTool) -> Worker: ...

    def seconds(self) -> float: ...

    def later(self, seconds: float, act: Callable[[], None]) -> None: ...

    @property
    def is_traced(self) -> bool: ...

    def tell(self, worker: Worker, what: str) -> None: ...

    def broken(self, what: str) -> None: ...

    def ended(self, worker: Worker, result: Any, failure: BaseException | None) -> None: ...

    def given_up(self, worker: Worker) -> None: ...

    def settled(self, worker: Worker) -> None: ...

    def copy(self, worker: Worker) -> None: ...

    def may_copy(self, worker: Worker) -> bool: ...

    def away(self, seconds: float) -> None: ...


class Renewal:
    """Stands for the thread that keeps a lease alive: the run renews unless the worker stands still."""

    def __init__(self, worker: Worker, lease: Any, ttl: float) -> None:
        self._worker = worker
        self.lease = lease
        self.pause = ttl / 3
        self.due = 0.0

    def start(self) -> None:
        """Begin."""
        self.due = self._worker.run.now + self.pause
        self._worker.renewals.append(self)

    def end(self) -> None:
        """Stop."""
        if self in self._worker.renewals:
            self._worker.renewals.remove(self)


class Worker:
    """One act that is carried out. `name` tells copies of one worker apart."""

    def __init__(self, run: Run, act: Act, name: str, port: Port) -> None:
        self.run = run
        self.act = act
        self.name = name
        self.port = port
        self.work: Workload | None = None
        self.make: Callable[[Worker], Workload] | None = None
        self.faults: deque[Fault] = deque(act.faults)
        self.wake = 0.0
        self.is_frozen = False
        self.is_over = False
        self.is_settling = False
        self.renewals: list[Renewal] = []
        self.answers: list[tuple[Any, BaseException | None]] = []
        self.times: list[Any] = []
        """What it has read from the clock in between."""
        self.result: Any = None
        self.failure: BaseException | None = None
        self.has_asked = False
        """True once the provider has taken a request of it."""
        self.heard: list[str] = []
        """What the replies that it has got whole are known by in a state."""
        self.given: Any = None
        """The answers that it gave, if it gave some."""
        self._ids = 0
        self._times: deque[Any] = deque()
        self._flow: Flow[Any] | None = None
        self._pending: Effect | None = None
        self._chunks: deque[Any] = deque()
        self._hears = ""
        self._tools: list[CallTool] = []
        self._inner: dict[int, Worker] = {}
        self._is_left = False
        self._is_early = not hasattr(port, "lease")
        self._strikes = ""
        self._amount = 0.0

    # ------------------------------------------------------------------------------ beginning, copying

    def begin(self, make: Callable[[Worker], Workload]) -> None:
        """Take the work on, up to its first effect."""
        self.make = make
        self.work = make(self)
        self._flow = self.work.run()
        self._advance(None, None)

    def new_id(self) -> str:
        """Stands for the random ids of a process: a copy draws others from where it was made on."""
        self._ids += 1
        return f"{self.name}-{self._ids}"

    def replay(self, other: Worker) -> None:
        """Go through all that another worker went through, up to its present effect."""
        self.name, name = other.name, self.name
        self.port.name = other.port.name
        self.given = other.given
        self.times, self._times = list(other.times), deque(other.times)  # a copy has read the same clock
        assert other.make is not None
        self.begin(other.make)
        for answer, failure in list(other.answers):
            effect = self._pending
            if isinstance(effect, Invoke) and getattr(effect.function, "__func__", None) is Renewal.start:
                effect.function()
            elif isinstance(effect, Invoke) and getattr(effect.function, "__name__", "").startswith("_save"):
                self.port.fault = "fail"  # what the row notes of its save, without the save
                with suppress(Exception):
                    effect.function(*effect.args)
                self.port.fault = ""
            self._resume(answer, failure)
        self.name = self.port.name = name
        self._chunks, self._hears = deque(other._chunks), other._hears
        self.has_asked, self.heard = other.has_asked, list(other.heard)

    @property
    def pending(self) -> Effect | None:
        """What is asked for next."""
        return self._pending

    @property
    def has_claimed(self) -> bool:
        """True once this process has drawn an id for a claim."""
        return self._ids > 0

    @property
    def has_started_tools(self) -> bool:
        """True while a call runs."""
        return bool(self._tools)

    # ------------------------------------------------------------------------------------------ a step

    def step(self) -> None:
        """Carry the next effect out, or let a fault hit it."""
        if self._is_left:
            self._is_left = False
            self._advance(None, None)
            return
        effect = self._pending
        assert effect is not None
        self.is_frozen = False
        waits = bool(self._inner) and type(effect) is AwaitTool and not self._ready()
        if waits and not self.faults:
            self.wake = self.run.now + 0.02
            return
        if not self.faults:
            failure: BaseException | None = None
            answer = None
            try:
                answer = self._perform(effect)
            except Exception as exc:
                failure = exc
            self._resume(answer, failure)
            return
        kind, amount = self._fault(effect)
        if kind:
            self.run.tell(self, f"*** {kind} {amount:g}")
        if kind == "pause":
            self.is_frozen, self.wake = True, self.run.now + amount
            return
        if kind == "kill":
            self._die()
            return
        if kind == "cancel":
            self._cancel()
            return
        if kind == "jump":
            self.run.wall += amount * 1000 if amount < 1 else -amount * 1000
        elif kind == "away":
            self.run.away(amount)
        elif kind == "copy":
            self.run.copy(self)
        if waits:
            self.wake = self.run.now + 0.02
            return
        if kind in STRIKES:
            self._strikes, self._amount = kind, amount
            self.port.fault, self.port.amount = kind, amount
        answer, failure = None, None
        try:
            answer = self._perform(effect)
        except Exception as exc:
            failure = exc
        if kind in STRIKES and type(effect) is Invoke and self.port.fault:  # it did not reach the store
            self.faults.appendleft(Fault(0, kind, amount))
        self._strikes = self.port.fault = ""
        if kind == "kill_after":
            self._die()
            return
        self._resume(answer, failure)

    def _fault(self, effect: Effect) -> tuple[str, float]:
        """The fault that hits this effect; "" for none."""
        if not self.faults or self.faults[0].at > len(self.answers) or not self._can(self.faults[0], effect):
            return "", 0.0
        fault = self.faults.popleft()
        return fault.kind, fault.amount

    def _can(self, fault: Fault, effect: Effect) -> bool:
        if fault.kind == "copy":
            return not self.is_settling and self.run.may_copy(self)
        if fault.kind == "cancel":
            return not self.is_settling
        if type(effect) is AwaitTool and self._inner:
            return fault.kind not in STRIKES and (fault.kind != "kill_after" or bool(self._ready()))
        if fault.kind in STRIKES:
            return type(effect) in STRIKES[fault.kind]
        return True

    def _die(self) -> None:
        self.is_over = True
        for inner in self._inner.values():  # it runs in the same process
            inner.is_over = True
        self.run.given_up(self)

    def _cancel(self) -> None:
        self._end_run()
        self._settle()

    def leave(self, seconds: float) -> None:
        """Cancel it from outside. Its work is settled some time later, and the first save of that is late."""
        self._end_run()
        self.faults = deque([Fault(0, "late", seconds)])
        self._settle(after=seconds)

    def _end_run(self) -> None:
        assert self._flow is not None
        self._flow.close()
        for effect in self._tools:
            # A thread cannot be stopped: what it does comes later. Another conversation goes on by itself.
            if effect.index not in self._inner and self.run.random.random() < 0.5:
                self.run.later(0.5, lambda effect=effect: self._run_tool(effect))  # type: ignore[misc]
        self._tools = []
        self._inner.clear()

    def _settle(self, after: float = 0.0) -> None:
        assert self.work is not None
        self.is_settling = True
        if self.work.is_settled:
            self.is_over = True
            self.run.given_up(self)
            return
        self._flow, self._pending = self.work.settle(), None
        if after:
            self._is_left, self.wake = True, self.run.now + after
        else:
            self._advance(None, None)

    def _resume(self, answer: Any, failure: BaseException | None) -> None:
        self.answers.append((answer, failure))
        self._advance(answer, failure)

    def _advance(self, answer: Any, failure: BaseException | None) -> None:
        flow = self._flow
        assert flow is not None
        try:
            effect = flow.throw(failure) if failure is not None else flow.send(answer)
            while True:
                if (
                    type(effect) is Emit
                ):  # nobody listens; a turn that can be stopped is a stream all the same
                    effect = effect.then if effect.then is not None else flow.send(None)
                elif type(effect) is Clock and self._is_early:
                    # A turn reads the clock before it waits for a lease. Where there are none this is no step
                    # of its own: what was recorded before turns did so would have other steps.
                    if not self._times:
                        self.times.append(self._perform(effect))
                        self._times.append(self.times[-1])
                    effect = flow.send(self._times.popleft())
                elif type(effect) is Compute:  # it is pure, so it is no step that others could come between
                    try:
                        value = effect.function()
                    except Exception as exc:
                        effect = flow.throw(exc)
                    else:
                        effect = flow.send(value)
                else:
                    break
            self._pending = effect
            if type(effect) is Invoke and getattr(effect.function, "__name__", "").startswith("_load"):
                self._is_early = False
        except StopIteration as stop:
            self._pending, self.is_over = None, True
            if self.is_settling:
                self.run.settled(self)
            else:
                self.run.ended(self, stop.value, None)
        except Exception as exc:
            self._pending, self.is_over = None, True
            self.run.ended(self, None, exc)

    # -------------------------------------------------------------------------------------- the effects

    def _perform(self, effect: Effect) -> Any:
        run, kind = self.run, type(effect)
        if kind is Clock:
            return Moment(int(run.wall + run.now * 1000), run.now)
        if isinstance(effect, Invoke):
            answer = effect.function(*effect.args)
            if run.is_traced:
                run.tell(self, _shown(effect))
            return answer
        if isinstance(effect, Sleep):
            self.wake = run.now + effect.seconds
            return None
        if isinstance(effect, CallModel):
            return self._ask(effect)
        if isinstance(effect, ReadChunk):
            return self._read(effect)
        if isinstance(effect, CallTool):
            self._tools.append(effect)
            run.tell(self, f"start {effect.tool.name} {_named(effect)}")
            if effect.tool is OTHER:
                self._inner[effect.index] = run.hand_off(self, effect)
            return None
        if isinstance(effect, AwaitTool):
            return self._await_tool()
        raise AssertionError(f"a run has no {kind.__name__}")

    def _ask(self, effect: CallModel) -> ResponseHead:
        run = self.run
        self._chunks.clear()
        run.tell(self, "ask the model")
        provider = run.provider(self.act, effect.backend)
        if problems := provider.problems(effect.request):
            run.broken(f"{self.name} sent a history that is refused: {problems[0]}")
        if self._strikes == "fail":
            raise outage(self._amount)
        if run.is_down(effect.backend):
            raise outage(0.0)
        if REFUSED.encode() in effect.request.body:
            raise refusal()
        run.promises.sent(self.act.key, effect.request.body)
        self.wake, self.has_asked = run.now + run.seconds(), True
        body, self._hears = provider.reply(effect.request)
        if self._strikes == "unanswered":
            self._chunks.extend([body[:20], BackendError("the answer broke off", kind="interrupted")])
        else:
            self._chunks.extend([body, b""])
        return ResponseHead(status=200, headers=JSON)

    def _read(self, effect: ReadChunk) -> Any:
        if self._strikes == "fail":
            self._chunks.clear()
            raise BackendError("the answer broke off", kind="interrupted")
        chunk = self._chunks.popleft() if self._chunks else b""
        if isinstance(chunk, Exception):
            raise chunk
        if not chunk and self._hears:
            self.heard.append(self._hears)
            self._hears = ""
        return (self._perform(Clock()), chunk) if effect.timed else chunk

    def _ready(self) -> list[CallTool]:
        """The calls that have an end: all but those whose other conversation still runs."""
        inner = self._inner
        return [effect for effect in self._tools if effect.index not in inner or inner[effect.index].is_over]

    def _await_tool(self) -> ToolDone:
        if self._inner:
            effect = self.run.random.choice(self._ready())
            self._tools.remove(effect)
        else:
            at = self.run.random.randrange(len(self._tools)) if len(self._tools) > 1 else 0
            effect = self._tools.pop(at)
        self.wake = self.run.now + self.run.seconds()
        return ToolDone(index=effect.index, outcome=self._run_tool(effect), started=self.run.now, seconds=0.1)

    def _run_tool(self, effect: CallTool) -> Any:
        bank = effect.context.deps.bank
        bank.fault = {"fail": "before", "unanswered": "after"}.get(self._strikes, "")
        if (inner := self._inner.pop(effect.index, None)) is not None:
            HANDED.result, HANDED.failure = inner.result, inner.failure
        self.run.tell(self, f"run {effect.tool.name} {_named(effect)} {bank.fault}")
        return run_call(effect.tool, effect.context, effect.arguments)


def _named(effect: CallTool) -> Any:
    return next(iter(effect.arguments.values()), "")


def _shown(effect: Invoke) -> str:
    name = getattr(effect.function, "__name__", type(effect.function).__name__)
    if name == "_save":
        return f"save over {effect.args[1]}"
    return name.strip("_")
