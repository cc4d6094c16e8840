"""A worker: one flow of the package, carried out effect by effect, with the faults that hit it.

Owns: the step from one effect to the next, and what each effect does in a run. It stands for a driver and its
edge. Must never know: what the flow is for, or which promises are checked.

A worker that dies is never resumed again. One that is cancelled is closed, and its work is settled, as a
driver of kept turns does. One that is copied, as a fork of its process, is run again from the beginning with
the answers that it got: from there on both go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from goaitools_py.backends.base import BackendError, ResponseHead
from goaitools_py.tools.call import run_call
from goaitools_py.turn.flow import (
    AwaitTool,
    CallModel,
    CallTool,
    Clock,
    Effect,
    Emit,
    Flow,
    Invoke,
    Moment,
    ReadChunk,
    Sleep,
    ToolDone,
)

from ._provider import outage
from ._schedule import Act, Fault
from ._store import Port

__all__ = ["LEASE_SECONDS", "Renewal", "Run", "Worker", "Workload"]

LEASE_SECONDS: Final = 1.0

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
    provider: Any
    random: Any

    def seconds(self) -> float: ...

    def later(self, seconds: float, act: Callable[[], None]) -> None: ...

    @property
    def is_traced(self) -> bool: ...

    def tell(self, worker: Worker, what: str) -> None: ...

    def broken(self, what: str) -> None: ...

    def ended(self, worker: Worker, result: Any, failure: BaseException | None) -> None: ...

    def given_up(self, worker: Worker) -> None: ...

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
        self.failure: BaseException | None = None
        self.given: Any = None
        """The answers that it gave, if it gave some."""
        self._ids = 0
        self._flow: Flow[Any] | None = None
        self._pending: Effect | None = None
        self._chunks: deque[Any] = deque()
        self._tools: list[CallTool] = []
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
        assert other.make is not None
        self.begin(other.make)
        for answer, failure in list(other.answers):
            effect = self._pending
            if isinstance(effect, Invoke) and getattr(effect.function, "__func__", None) is Renewal.start:
                effect.function()
            self._resume(answer, failure)
        self.name = self.port.name = name
        self._chunks = deque(other._chunks)

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
        effect = self._pending
        assert effect is not None
        self.is_frozen = False
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
        elif kind in STRIKES:
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
        if fault.kind in STRIKES:
            return type(effect) in STRIKES[fault.kind]
        return True

    def _die(self) -> None:
        self.is_over = True
        self.run.given_up(self)

    def _cancel(self) -> None:
        assert self._flow is not None
        assert self.work is not None
        self._flow.close()
        for effect in self._tools:
            if self.run.random.random() < 0.5:  # a thread cannot be stopped: what it does comes later
                self.run.later(0.5, lambda effect=effect: self._run_tool(effect))  # type: ignore[misc]
        self._tools = []
        self._settle()

    def _settle(self) -> None:
        assert self.work is not None
        self.is_settling = True
        if self.work.is_settled:
            self.is_over = True
            self.run.given_up(self)
            return
        self._flow = self.work.settle()
        self._advance(None, None)

    def _resume(self, answer: Any, failure: BaseException | None) -> None:
        self.answers.append((answer, failure))
        self._advance(answer, failure)

    def _advance(self, answer: Any, failure: BaseException | None) -> None:
        flow = self._flow
        assert flow is not None
        try:
            self._pending = flow.throw(failure) if failure is not None else flow.send(answer)
        except StopIteration as stop:
            self._pending, self.is_over = None, True
            if self.is_settling:
                self.run.given_up(self)
            else:
                self.run.ended(self, stop.value, None)
        except Exception as exc:
            self._pending, self.is_over = None, True
            self.run.ended(self, None, exc)
        else:
            if type(self._pending) is Emit:
                raise AssertionError("a run listens to no event")

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
            run.tell(self, f"start {effect.tool.name} {effect.arguments.get('id')}")
            return None
        if isinstance(effect, AwaitTool):
            return self._await_tool()
        raise AssertionError(f"a run has no {kind.__name__}")

    def _ask(self, effect: CallModel) -> ResponseHead:
        run = self.run
        self._chunks.clear()
        run.tell(self, "ask the model")
        if problems := run.provider.problems(effect.request):
            run.broken(f"{self.name} sent a history that is refused: {problems[0]}")
        if self._strikes == "fail":
            raise outage(self._amount)
        self.wake = run.now + run.seconds()
        body = run.provider.reply(effect.request)
        if self._strikes == "unanswered":
            self._chunks.extend([body[:20], BackendError("the answer broke off", kind="interrupted")])
        else:
            self._chunks.extend([body, b""])
        return ResponseHead(status=200)

    def _read(self, effect: ReadChunk) -> Any:
        if self._strikes == "fail":
            self._chunks.clear()
            raise BackendError("the answer broke off", kind="interrupted")
        chunk = self._chunks.popleft() if self._chunks else b""
        if isinstance(chunk, Exception):
            raise chunk
        return (self._perform(Clock()), chunk) if effect.timed else chunk

    def _await_tool(self) -> ToolDone:
        effect = self._tools.pop(self.run.random.randrange(len(self._tools)) if len(self._tools) > 1 else 0)
        self.wake = self.run.now + self.run.seconds()
        return ToolDone(index=effect.index, outcome=self._run_tool(effect), started=self.run.now, seconds=0.1)

    def _run_tool(self, effect: CallTool) -> Any:
        bank = effect.context.deps.bank
        bank.fault = {"fail": "before", "unanswered": "after"}.get(self._strikes, "")
        self.run.tell(self, f"run {effect.tool.name} {effect.arguments.get('id')} {bank.fault}")
        return run_call(effect.tool, effect.context, effect.arguments)


def _shown(effect: Invoke) -> str:
    name = getattr(effect.function, "__name__", type(effect.function).__name__)
    if name == "_save":
        return f"save over {effect.args[1]}"
    return name.strip("_")
