"""A run: the acts of a schedule, carried out by workers in one thread, in an order that a seed chooses.

Owns: time, whose step comes next, and the end of a run. Must never know: what an act does, or what a promise
says.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from goaitools_py import StoreCommitError, TurnError
from goaitools_py.chat.kept.parts import LOADED
from goaitools_py.chat.kept.turn import KeptTurn
from goaitools_py.state.records import digest8
from goaitools_py.state.state import load_state
from goaitools_py.turn.flow import CallModel, CallTool, Clock, Invoke, ReadChunk, Sleep

from ._acts import Desk
from ._bank import Bank
from ._promises import Promises, ids_in, inner_id
from ._provider import Provider
from ._schedule import Act, Fault, Schedule
from ._store import CombiningPort, LeasingPort, Port, Rows, Save
from ._worker import Renewal, Worker

__all__ = ["Run", "run"]

MAX_STEPS = 5_000
PAUSES = (0.0, 0.0, 0.001, 0.02)
"""Seconds between two steps, drawn."""
DURATIONS = (0.0, 0.01, 0.1, 0.5)
"""Seconds that something takes, drawn."""
INNER_FAULTS = ("fail", "unanswered", "late", "pause")
"""What may hit the other conversation of a hand-off."""
REST = 100.0
"""Seconds after which nothing is on its way any more, and no lease is held."""


class Run:
    """One run of a schedule. `trace` has a line for each step if one was asked for."""

    def __init__(self, schedule: Schedule, *, traced: bool = False) -> None:
        self.schedule = schedule
        self.random = Random(schedule.seed)
        self._below = self.random._randbelow  # type: ignore[attr-defined] # as `choice`, in half the time
        self.now = 0.0
        self.wall = 1_800_000_000_000.0
        self.trace: list[str] | None = [] if traced else None
        self._providers: dict[str, Provider] = {}
        self._down_until = -1.0
        self.rows = Rows(self, self._saved)
        self._workers: dict[str, Worker] = {}
        self._running: list[Worker] = []
        self._late: list[tuple[float, Callable[[], None]]] = []
        self._steps = 0
        wall = lambda: int(self.wall + self.now * 1000)  # noqa: E731
        self.bank = Bank(lambda id: self.promises.may_repeat(id), self.broken)
        self.desk = Desk(schedule, self.bank, wall, self._cancel)
        self.promises = Promises(schedule, self.desk.chat(Act("", 0))._codec)
        self._is_calm = False
        self._handed: dict[str, int] = {}
        self._finished: set[str] = set()
        """The workers that have saved their message as answered."""

    # ------------------------------------------------------------------------------------ the whole run

    def play(self) -> str:
        """Carry the schedule out. The first promise that was broken; "" for none."""
        queue = list(reversed(self.schedule.acts))
        while (queue or self._running) and not self.promises.problem:
            has_room = queue and len(self._running) < self.schedule.crowd
            if has_room and (not self._running or self.random.random() < 0.25):
                self._begin(queue.pop())
            else:
                self._step()
        if not self.promises.problem:
            self._check_branches()
            self._come_to_rest()
        return self.promises.problem

    def _check_branches(self) -> None:
        for key in list(self.rows.rows):
            branches = (one for one in self.rows.rows if one.startswith(f"{key}.branch."))
            self.promises.check_branches(key, [self.rows.whole(one) for one in branches])

    def _come_to_rest(self) -> None:
        """No more faults: what was not answered is delivered again, and each conversation answers.

        The newest message that was answered comes once more, too: nothing may be done for it.
        """
        self.schedule = self.schedule._replace(crowd=1)
        self._is_calm = True
        self._advance(self.now + REST)
        self.rows.away_until = self._down_until = -1.0
        keys = dict.fromkeys([*(act.key for act in self.schedule.acts), *self.rows.rows])
        for number, key in enumerate(keys):
            left = [act for act in self.promises.undelivered.values() if act.key == key]
            for act in left:
                self._alone(act._replace(kind="final", faults=()))
            newest = self.promises.answered.get(key)
            if newest is not None and newest not in left:
                self._alone(newest._replace(kind="final", faults=()))
            last = Act(kind="final", id=900 + number, key=key, has_id=False)
            self._alone(last)
            if not self.promises.problem:
                self.promises.check(key, self.rows.whole(key))

    def _alone(self, act: Act) -> None:
        """One act without faults, which has to succeed."""
        if self.promises.problem:
            return
        worker = self._begin(act)
        while self._running and not self.promises.problem:
            self._step()
        if worker.failure is not None:
            self.broken(f"m{act.id} is not answered at the end: {worker.failure!r}")

    # -------------------------------------------------------------------------------------- the workers

    def _begin(self, act: Act, make: Callable[[Worker], Any] | None = None, name: str = "") -> Worker:
        if act.kind == "again":
            said = next(one for one in self.schedule.acts if one.id == act.target)
            act = act._replace(id=said.id, rounds=said.rounds, has_id=True, wire=said.wire)
        if act.kind == "fallback":
            self._down_until = max(self._down_until, self.now + 3 * act.choice)
        worker = self._hire(act, name or f"w{len(self._workers) + 1}")
        self.tell(worker, f"--- {act.kind} {act.id} key={act.key} save={act.save} {act.rounds or ''}")
        self.promises.begun(act, self._blob(act.key))
        worker.begin(make or self.desk.work)
        return worker

    def _hire(self, act: Act, name: str) -> Worker:
        leasing = CombiningPort if self.schedule.combines else LeasingPort
        port = (leasing if self.schedule.leases else Port)(self.rows, name)
        worker = Worker(self, act, name, port)
        self._workers[name] = worker
        self._running.append(worker)
        return worker

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            self.broken("the run does not end")
            return
        running, now = self._running, self.now
        if len(running) == 1:
            worker = running[0]
            if worker.wake > now:
                self._advance(worker.wake)
                return
        else:
            ready = [worker for worker in running if worker.wake <= now]
            if not ready:
                self._advance(min([worker.wake for worker in running]))
                return
            worker = ready[0] if len(ready) == 1 else ready[self._below(len(ready))]
        worker.step()
        if worker.is_over:  # and with it those that it has ended
            self._running = [one for one in self._running if not one.is_over]
        if pause := PAUSES[self._below(4)]:
            self._advance(self.now + pause)

    def _advance(self, until: float) -> None:
        """Let time go by: leases are renewed by workers that do not stand still, late saves take place."""
        for worker in self._running:
            if not worker.is_frozen:
                for renewal in worker.renewals:
                    self._renew(renewal, until)
        if self._late:
            due = [late for late in self._late if late[0] <= until]
            for late in sorted(due, key=lambda late: late[0]):
                self._late.remove(late)
                self.now = max(self.now, late[0])
                late[1]()
        self.now = max(self.now, until)

    def _renew(self, renewal: Renewal, until: float) -> None:
        now = self.now
        while renewal.due <= until:
            self.now = max(now, renewal.due)
            renewal.lease.renew()
            renewal.due += renewal.pause
        self.now = now

    # --------------------------------------------------------------------------- what workers ask for

    def seconds(self) -> float:
        """How long something takes."""
        return DURATIONS[self._below(4)]

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen after some time."""
        self._late.append((self.now + seconds, act))

    def away(self, seconds: float) -> None:
        """Let the store be away for everybody."""
        self.rows.away_until = self.now + seconds

    def provider(self, act: Act, backend: Any) -> Provider:
        """The provider that a worker asks: that of its chat, or another one."""
        wire = backend.wire if backend is not None else act.wire or self.schedule.wire
        found = self._providers.get(wire)
        if found is None:
            found = self._providers[wire] = Provider(wire)
        return found

    def is_down(self, backend: Any) -> bool:
        """True while the own provider of all chats is down; the second one never is."""
        return backend is None and self.now < self._down_until

    def _cancel(self, by: Worker) -> None:
        """Cancel a worker that runs in the same conversation."""
        others = [
            one
            for one in self._running
            if one is not by and one.act.key == by.act.key and not one.is_settling and not one.is_over
        ]
        if others:
            other = others[self._below(len(others))]
            self.tell(other, "*** is cancelled")
            other.leave(0.2 + 2 * by.act.choice)

    def hand_off(self, worker: Worker, effect: CallTool) -> Worker:
        """Let another worker have the conversation that a call asks: it says the call's message there."""
        context = effect.context
        number = self._handed.setdefault(context.idempotency_key, len(self._handed))
        id = inner_id(effect.arguments["message"], number)
        faults: tuple[Fault, ...] = ()
        if not self._is_calm and self._below(2):
            faults = (Fault(self._below(12), INNER_FAULTS[self._below(len(INNER_FAULTS))], 0.7),)
        act = Act(
            kind="inner",
            id=id,
            key=f"{context.conversation_id}/{effect.tool.name}",
            save=worker.act.save,
            rounds=(("pay",),) if id % 3 else (),
            choice=self.random.random(),
            faults=faults,
        )
        name = f"{worker.name}.{id}"
        while name in self._workers:
            name += "'"
        key = context.idempotency_key
        return self._begin(act, lambda inner: self.desk.inner(inner, key), name)

    @property
    def is_traced(self) -> bool:
        """True if each step is told."""
        return self.trace is not None

    def tell(self, worker: Worker, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:8.3f}  {worker.name:5} {what}")

    def broken(self, what: str) -> None:
        """Note that a promise does not hold."""
        self.promises.broken(what)

    def may_copy(self, worker: Worker) -> bool:
        """Whether a process may be forked here.

        Once it has claimed a call, or a save is on its way, both copies have the same right to go on. Without
        a turn id both say the message.
        """
        effect = worker.pending
        if worker.has_started_tools or type(effect) not in (Clock, Sleep, CallModel, ReadChunk, Invoke):
            return False
        if isinstance(effect, Invoke) and getattr(effect.function, "__name__", "") != "_load":
            return False
        if self.schedule.fallback:  # which providers rest is known to a process, and not to its flow
            return False
        return not worker.has_claimed and (worker.act.has_id or not worker.act.says)

    def copy(self, worker: Worker) -> None:
        """Fork a worker's process. Each copy has its own name, which the ids that it draws are made of."""
        name = f"{worker.name}'"
        while name in self._workers:
            name += "'"
        twin = self._hire(worker.act._replace(faults=()), name)
        self.promises.copied(worker.act)
        twin.replay(worker)
        twin.wake = worker.wake
        self.tell(twin, f"is a copy of {worker.name}")

    def ended(self, worker: Worker, result: Any, failure: BaseException | None) -> None:
        """Take the end of a worker's act."""
        worker.result, worker.failure = result, failure
        shown = f"{type(failure).__name__}: {failure}" if failure else getattr(result, "status", "")
        self.tell(worker, f"=== {shown}")
        self.promises.ended(worker.act, result, failure, self._blob(worker.act.key))
        is_saved = isinstance(failure, TurnError) and not failure.unsaved
        is_own = not getattr(result, "duplicate", False) or worker.name in self._finished
        if worker.heard and (is_saved or (failure is None and is_own)):
            self._check_heard(worker)
        if isinstance(failure, StoreCommitError) and worker.act.choice < 0.5:
            is_message = worker.act.says
            act = worker.act._replace(kind="commit", faults=(), target=worker.act.id if is_message else 0)
            self._begin(act, lambda committer: self.desk.commit(failure, committer), f"{worker.name}c")
        elif worker.act.kind == "commit" and failure is None and worker.act.target:
            self.promises.stored(worker.act)

    def given_up(self, worker: Worker) -> None:
        """Take the end of a worker that was killed or cancelled: nobody heard anything."""
        self.tell(worker, "=== given up")
        if not worker.is_settling:
            self.promises.killed(worker.act)

    def settled(self, worker: Worker) -> None:
        """Take the end of a worker that was cancelled: what it came to is saved."""
        self.given_up(worker)
        if isinstance(worker.work, KeptTurn) and worker.work.unsaved is None and worker.has_asked:
            if worker.act.says:
                self.promises.cancelled(worker.act, self._blob(worker.act.key))
            if not (worker.act.says and worker.act.has_id):  # another worker may have finished that turn
                self._check_heard(worker)

    def _check_heard(self, worker: Worker) -> None:
        if not self.promises.problem:
            self.promises.heard(worker.act, worker.heard, self._blob(worker.act.key))

    def _blob(self, key: str) -> bytes:
        return self.rows.whole(key, kinds=LOADED) if key in self.rows.rows else b""

    def _saved(self, save: Save) -> None:
        if self.trace is not None:
            held = ids_in(save.after, self.promises.codec)
            shown = ", ".join(id if count == 1 else f"{count} times {id}" for id, count in held.items())
            self.trace.append(
                f"{self.now:8.3f}  {save.by:5} saved {save.key}: {len(save.after)} bytes, {shown}"
            )
        act = self._workers[save.by].act
        self.promises.saved(save, act)
        if self.schedule.steers and act.says and act.has_id and save.after:
            meta = load_state(save.after, codec=self.promises.codec).meta
            if digest8(f"t{act.id}") in {row.id for row in meta.ring}:
                self._finished.add(save.by)


def run(schedule: Schedule) -> str:
    """Carry a schedule out. The first promise that was broken; "" for none."""
    return Run(schedule).play()
