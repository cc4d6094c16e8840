"""One campaign: worker processes on conversations that steer, killed at random moments, and started again.

A worker delivers messages, each with a turn id, and events, and takes some events back. What the library has
answered stands in its log, synced. A worker that is started again delivers once more what has no answer.

    python -m tests.durability._steered '{"kind": "sqlite", "url": "states.db", …}'
"""

from __future__ import annotations

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

from goaitools_py import Chat, ToolContext, TurnInProgressError, event, tool
from goaitools_py.testing import Calls, ScriptedBackend

from ..stores._places import Place, opened

__all__ = ["DELIVERY", "WIRES", "Steered", "wire_of"]

DELIVERY = re.compile(r"delivery (\d+-\d+)\.")
WIRES = ("openai", "openai-responses", "anthropic")
BLOCK = 12
"""So many deliveries of each worker go to the same three conversations."""
LONGEST = 0.2
"""Seconds that a worker lives at most before it may be killed."""


class Steered(NamedTuple):
    """What is run. `forgets`: a planted fault: messages come without turn ids."""

    kind: str
    url: str
    folder: str
    workers: int
    kills: int
    seed: int
    forgets: bool = False


def wire_of(key: str) -> str:
    """The provider API of a conversation."""
    return WIRES[int(key[-1]) % 3]


class Model(ScriptedBackend):
    """Calls a tool for a new message, and answers behind its result. Notes what each request has."""

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
        if body.rfind("is booked") > body.rfind("delivery "):
            return "Well."
        return Calls([("book", {"order": ids[-1]})])


class Worker:
    """One life of a worker."""

    def __init__(self, run: Steered, number: int, store: Any) -> None:
        self.run, self.number, self.store = run, number, store
        self.random = Random()
        folder = Path(run.folder)
        self.log = folder / f"worker-{number}.log"
        self.file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        asked = os.open(folder / f"asked-{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        @tool(idempotent=True)
        def book(ctx: ToolContext, order: str) -> str:
            """Book a seat. It takes a moment, in which others say something."""
            time.sleep(0.005)
            return f"{order} is booked"

        self.chats = {
            wire: Chat(Model(partial(note, asked), wire=wire), tools=[book], tool_threads=False)
            for wire in WIRES
        }

    def tell(self, *words: str) -> None:
        note(self.file, " ".join(words))

    def go_on(self) -> None:
        """Deliver what has no answer, then new messages, until the file "stop" is there."""
        begun: dict[str, str] = {}
        last = -1
        for line in self.log.read_text().splitlines():
            what, key, id = line.split()[:3]
            last = max(last, int(id.partition("-")[2]))
            if what == "begin":
                begun[id] = key
            elif what in ("done", "gone", "kept"):
                begun.pop(id, None)
        for id, key in begun.items():
            self.deliver(key, id)
        while not (Path(self.run.folder) / "stop").exists():
            last += 1
            self.deliver(f"chat-{last // BLOCK}-{self.random.randrange(3)}", f"{self.number}-{last}")

    def deliver(self, key: str, id: str) -> None:
        """One delivery: two in five are events, one in five an event that is taken back."""
        self.tell("begin", key, id)
        conversation: Any = self.chats[wire_of(key)].conversation(
            self.store, key, gate="steer", save="checkpoint", lease_ttl=0.4
        )
        text, kind = f"delivery {id}.", int(id.partition("-")[2]) % 5
        if kind in (1, 3, 4):
            (name,) = conversation.append(event(text, id=id))
            if kind == 4:
                self.tell("taking", key, id)
                self.tell("gone" if conversation.withdraw(name) else "kept", key, id)
                return
        else:
            while True:
                try:
                    conversation.send(text, turn_id=None if self.run.forgets else id, timeout=20)
                    break
                except TurnInProgressError:
                    continue
        self.tell("done", key, id)


def note(file: int, line: str) -> None:
    """Write a line, whole."""
    os.write(file, f"{line}\n".encode())
    os.fsync(file)


def live(run: Steered, number: int) -> None:
    """One life, to its end or its kill."""
    with opened(Place(run.kind, run.url)) as store:
        Worker(run, number, store).go_on()


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
    (Path(run.folder) / "stop").touch()
    for number, pid in lives.items():
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"worker {number} ended with {status}"


if __name__ == "__main__":
    main(Steered(**json.loads(sys.argv[1])))
