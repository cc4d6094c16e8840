"""Campaigns: worker processes on the same conversations, killed at random moments, and started again.

A worker delivers messages, each with a turn id. What the library has answered stands in its log, synced. A
worker that is started again delivers once more what has no answer. `WORKERS` names three campaigns:

* "steer": conversations that steer. Of five deliveries two are events, and one is an event taken back.
* "results": a tool gives long results, which are kept whole, and which the model reads in pages.
* "edits": a third of the deliveries replace an earlier message, or ask for the newest reply again. The
  branches that are left are kept.

    python -m tests.durability._steered '{"work": "steer", "kind": "sqlite", "url": "states.db", …}'
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from goaitools_py import Chat, StateConflictError, ToolContext, TurnInProgressError, event, tool
from goaitools_py.states import EditError
from goaitools_py.testing import Calls, ScriptedBackend

from ..stores._places import Place, opened

__all__ = ["DELIVERY", "HOW", "WIRES", "Steered", "long_result", "said_in", "wire_of"]

DELIVERY = re.compile(r"delivery (\d+-\d+)\.")
WIRES = ("openai", "openai-responses", "anthropic")
HOW: dict[str, dict[str, Any]] = {
    "steer": {},
    "results": {"keep_results": "store", "max_tool_result_bytes": 1_000},
    "edits": {},
}
"""The options of the chats of each campaign."""
BLOCK = 12
"""So many deliveries of each worker go to the same three conversations."""
LEAST = 32
"""So many deliveries are answered at least."""
LONGEST = 0.2
"""Seconds that a worker lives at most before it may be killed."""


class Steered(NamedTuple):
    """What is run. `forgets`: a planted fault: messages come without turn ids, results are cut, or no branch
    is kept."""

    work: str
    kind: str
    url: str
    folder: str
    workers: int
    kills: int
    seed: int
    forgets: bool = False


def long_result(order: str) -> str:
    """The long result for an order."""
    return "".join(f"line {line} of {order} at {hash_of(order, line)}\n" for line in range(60))


def hash_of(order: str, line: int) -> str:
    """Some characters that only this line has."""
    return hashlib.sha256(f"{order} {line}".encode()).hexdigest()[:24]


def wire_of(key: str) -> str:
    """The provider API of a conversation."""
    return WIRES[int(key[-1]) % 3]


class Model(ScriptedBackend):
    """Calls a tool for a new message, reads the second page of a kept result, and answers. Notes what each
    request has."""

    def __init__(self, note: Any, **how: Any) -> None:
        super().__init__(**how)
        self._note = note

    def _next(self, request: Any) -> list[bytes]:
        self.requests.clear()
        self.then(self._answer)
        return super()._next(request)

    def _answer(self, request: Any) -> Any:
        body = request.body.decode()
        ids = DELIVERY.findall(body)
        self._note(" ".join(sorted(set(ids))))
        rest = body[body.rfind("delivery ") :]
        if "[page 2 of" not in rest and (kept := re.search(r"call recall with result (\w{8})", rest)):
            return Calls([("recall", {"result": kept[1], "page": 2})])
        # Behind an interrupted turn a redelivery is a reminder, and its tool is not to be called again.
        if f"{ids[-1]} is booked" in rest or "was delivered once more" in rest:
            return "Well."
        return Calls([("book", {"order": ids[-1]})])


class Worker:
    """One life of a worker."""

    wait = 0.005
    """Seconds that the tool takes."""

    def __init__(self, run: Steered, number: int, store: Any) -> None:
        self.run, self.number, self.store = run, number, store
        self.random = Random()
        folder = Path(run.folder)
        self.log = folder / f"worker-{number}.log"
        self.file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        asked = os.open(folder / f"asked-{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        effects = os.open(folder / f"effects-{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        @tool(idempotent=True)
        def book(ctx: ToolContext, order: str) -> str:
            """Book a seat. It takes a moment, in which others say something."""
            note(effects, f"{ctx.idempotency_key} {order}")
            time.sleep(self.wait)
            return f"{order} is booked{self.more(order)}"

        how = {} if run.forgets else HOW[run.work]
        self.chats = {
            wire: Chat(Model(partial(note, asked), wire=wire), tools=[book], tool_threads=False, **how)
            for wire in WIRES
        }

    def more(self, order: str) -> str:
        """The rest of a tool's result."""
        return ""

    def conversation(self, key: str, **how: Any) -> Any:
        """A handle of a conversation."""
        how = {"save": "checkpoint", "lease_ttl": 0.4, **how}
        return self.chats[wire_of(key)].conversation(self.store, key, **how)

    def tell(self, *words: str) -> None:
        note(self.file, " ".join(words))

    def go_on(self) -> None:
        """Deliver what has no answer, then new messages, until the file "stop" is there."""
        begun: dict[str, list[str]] = {}
        last = -1
        for line in self.log.read_text().splitlines():
            what, key, id, *more = line.split()
            last = max(last, int(id.partition("-")[2]))
            if what == "begin":
                begun[id] = [key, id, *more]
            elif what in ENDS:
                begun.pop(id, None)
        for words in begun.values():
            self.deliver(*words)
        while not (Path(self.run.folder) / "stop").exists():
            last += 1
            key, id = f"chat-{last // BLOCK}-{self.random.randrange(3)}", f"{self.number}-{last}"
            words = [key, id, *self.about(key, int(id.partition("-")[2]))]
            self.tell("begin", *words)
            self.deliver(*words)

    def about(self, key: str, number: int) -> list[str]:
        """What a new delivery is about, beside its conversation and its id."""
        return []

    def deliver(self, key: str, id: str) -> None:
        """One delivery: two in five are events, one in five an event that is taken back."""
        conversation, kind = self.conversation(key, gate="steer"), int(id.partition("-")[2]) % 5
        if kind in (1, 3, 4):
            (name,) = conversation.append(event(f"delivery {id}.", id=id))
            if kind == 4:
                self.tell("taking", key, id)
                self.tell("gone" if conversation.withdraw(name) else "kept", key, id)
                return
        else:
            self.send(conversation, id)
        self.tell("done", key, id)

    def send(self, conversation: Any, id: str, *, said: str = "", **how: Any) -> Any:
        """Deliver a message until it is answered. `said`: the id in its text, if it is another one."""
        has_id = not self.run.forgets or self.run.work != "steer"
        while True:
            try:
                text = f"delivery {said or id}."
                return conversation.send(text, turn_id=id if has_id else None, timeout=20, **how)
            except (TurnInProgressError, StateConflictError):
                continue


ENDS = ("done", "gone", "kept", "void")
"""What a log says of a delivery that has its answer."""


class Keeper(Worker):
    """Its tool gives long results. A row changes between its two layouts."""

    def more(self, order: str) -> str:
        return "\n" + long_result(order)

    def deliver(self, key: str, id: str) -> None:
        """One message. The worker that follows may keep results inline, or in the store."""
        self.send(self.conversation(key, parts=self.random.choice(["inline", "store"])), id)
        self.tell("done", key, id)


class Editor(Worker):
    """Edits, and asks again as `serve` does it: an edit with the same text."""

    def about(self, key: str, number: int) -> list[str]:
        """For one delivery in three: "edit" or "again", the name of a message of the newest turns, its id."""
        history = self.conversation(key).history() if number % 3 == 2 else None
        turns = [] if history is None else [(one, said_in(one)) for one in history.turns[-3:]]
        turns = [(turn, said) for turn, said in turns if said and turn.id]
        if not turns:
            return []
        if number % 2:
            turn, said = turns[-1]
            return ["again", f"{turn.id}u", said[0]]
        turn, said = self.random.choice(turns)
        return ["edit", self.random.choice([turn.id, f"{turn.id}u", said[0]]), said[0]]

    def deliver(self, key: str, id: str, what: str = "", target: str = "", said: str = "") -> None:
        """One message, an edit, or the newest message again. An edit may find that its message has left."""
        conversation = self.conversation(
            key, parts="store" if key[-1] == "1" else "inline", keep_branches=not self.run.forgets
        )
        if not what:
            self.send(conversation, id)
        else:
            try:
                result = self.send(conversation, id, said=said if what == "again" else "", edit=target)
            except EditError:
                self.tell("void", key, id)
                return
            for warning in result.warnings:
                if warning.code == "branch_kept":
                    self.tell("branch", key, id, *re.findall(r"\.branch\.\d+", warning.message), said)
        self.tell("done", key, id)


WORKERS = {"steer": Worker, "results": Keeper, "edits": Editor}


def said_in(turn: Any) -> list[str]:
    """The ids of the deliveries that the user has said in a turn."""
    return [id for one in turn.messages if one.role == "user" for id in DELIVERY.findall(one.text)]


def note(file: int, line: str) -> None:
    """Write a line, whole."""
    os.write(file, f"{line}\n".encode())
    os.fsync(file)


def live(run: Steered, number: int) -> None:
    """One life, to its end or its kill."""
    with opened(Place(run.kind, run.url)) as store:
        WORKERS[run.work](run, number, store).go_on()


def fork(run: Steered, number: int) -> int:
    """Start a life. Its end without a kill is an exit with 0."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        live(run, number)
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(code)


def main(run: Steered) -> None:
    """Kill and start workers until there were enough kills. Then let them finish."""
    with opened(Place(run.kind, run.url)) as store:
        for wire in range(3):  # load what a life loads
            chat = Chat(ScriptedBackend("Hi.", wire=WIRES[wire]))
            chat.conversation(store, "warm", gate="steer").reset()
            chat.conversation(store, "warm", gate="steer").send("Hi.")
    random = Random(run.seed)
    lives = {number: fork(run, number) for number in range(run.workers)}
    for _ in range(run.kills):
        time.sleep(random.uniform(0.0, LONGEST))
        number = random.randrange(run.workers)
        os.kill(lives[number], signal.SIGKILL)
        _, status = os.waitpid(lives[number], 0)
        assert os.WIFSIGNALED(status), f"worker {number} ended by itself with {status}"
        lives[number] = fork(run, number)
    # On a busy machine a life may be too short for an answer.
    logs = [Path(run.folder) / f"worker-{number}.log" for number in lives]
    while sum(log.read_text().count("\ndone ") for log in logs) < LEAST:
        time.sleep(0.01)
    (Path(run.folder) / "stop").touch()
    for number, pid in lives.items():
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"worker {number} ended with {status}"


if __name__ == "__main__":
    main(Steered(**json.loads(sys.argv[1])))
