"""One run of the race for kept conversations: many worker processes, turns and appends, duplicates.

As `tests.stores._racer`, whose processes it uses: each delivery is a turn with an id, or an event with one,
taken in through `conversation.send` and `append`. The model is a fake that answers at once. What was accepted
stands in files, one for each worker, synced after the library said so; so does every call of the model.

    python -m tests.kept._racer '{"kind": "sqlite", "url": "states.db", …}'
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from goaitools_py import Chat, StateConflictError, event
from goaitools_py.state import apart
from goaitools_py.states import read_history
from goaitools_py.testing import ScriptedBackend

from ..stores._places import Place, opened
from ..stores._racer import Blind, fork_workers

DELIVERY = re.compile(r"delivery (\d+-\d+)")


class KeptRace(NamedTuple):
    """What is run; see `Race`.

    Attributes:
        leased: The store's leases are used.
        blind: The store takes any version for the expected one: the race has to notice.
        save: As for `Chat.conversation`.
        parts: As for `Chat.conversation`; "mixed": every second worker writes parts.
        gate: As for `Chat.conversation`.
    """

    kind: str
    url: str
    folder: str
    workers: int
    turns: int
    keys: int
    seed: int
    leased: bool = True
    blind: bool = False
    save: str = "turn"
    parts: str = "inline"
    gate: str = "queue"

    def deliveries(self, worker: int) -> Iterator[tuple[str, str, bool]]:
        """A worker's deliveries: conversation, id, and whether the next worker gets it too."""
        random = Random(self.seed * 1_000 + worker)
        for turn in range(self.turns):
            yield f"chat-{random.randrange(self.keys)}", f"{worker}-{turn}", random.random() < 0.1


def is_event(id: str) -> bool:
    """Two deliveries in five are events, which take no lease."""
    return int(id.partition("-")[2]) % 5 in (1, 3)


class Echo(ScriptedBackend):
    """A fake model that answers at once, and notes for whom."""

    def __init__(self, note: Any) -> None:
        super().__init__()
        self._note = note

    def _next(self, request: Any) -> list[bytes]:
        self.requests.clear()
        self.then(self._answer)
        return super()._next(request)

    def _answer(self, request: Any) -> str:
        last = json.loads(request.body)["messages"][-1]["content"]
        id = DELIVERY.findall(last)[-1]
        self._note(id)
        return f"Answer to {id}."


class Bare:
    """A store's `load` and `save` alone."""

    def __init__(self, store: Any) -> None:
        self.load = store.load
        self.save = store.save


class BlindLeasing(Blind):
    """A store without its compare-and-swap, with its leases."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.lease = store.lease


def texts_in(blob: bytes | None) -> list[str]:
    """The ids of the deliveries that a conversation holds, and nothing of its answers."""
    if not blob:
        return []
    messages = read_history(blob).all_messages()
    return [id for message in messages if message.role == "user" for id in DELIVERY.findall(message.text)]


def work(race: KeptRace, worker: int, inbox: int, outbox: int) -> None:
    """All deliveries of one worker: its own, and those that the worker before it passes on."""
    os.set_blocking(inbox, False)
    waiting = b""
    path = Path(race.folder)
    log = os.open(path / f"worker-{worker}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asked = os.open(path / f"asked-{worker}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(file: int, line: str) -> None:
        os.write(file, f"{line}\n".encode())
        os.fsync(file)

    with opened(Place(race.kind, race.url)) as store:
        used: Any = (BlindLeasing if race.leased else Blind)(store) if race.blind else store
        used = used if race.leased else Bare(used)
        chat = Chat(Echo(partial(note, asked)))
        apart.SMALL = 150  # so that a few turns are a part
        parts = "inline" if race.parts == "mixed" and worker % 2 else race.parts.replace("mixed", "store")

        def deliver(key: str, id: str) -> tuple[str, int]:
            conversation: Any = chat.conversation(
                used,
                key,
                save=race.save,  # type: ignore[arg-type]
                parts=parts,  # type: ignore[arg-type]
                gate=race.gate,  # type: ignore[arg-type]
            )
            if is_event(id):
                conversation.append(event(f"delivery {id}", id=id))
                return "event", 0
            conflicts = 0
            while True:
                try:
                    result = conversation.send(f"delivery {id}", turn_id=id)
                except StateConflictError:
                    conflicts += 1
                    continue
                # Overtaken: sent again, the turn that this chat holds is saved, or another worker's stands.
                late = "overtaken" if conflicts else "duplicate"
                return late if result.duplicate else "accepted", conflicts

        def take(key: str, id: str) -> None:
            outcome, conflicts = deliver(key, id)
            note(log, f"{outcome} {key} {id} {conflicts}")

        for key, id, is_doubled in race.deliveries(worker):
            if is_doubled:
                os.write(outbox, f"{key} {id}\n".encode())
            take(key, id)
            with suppress(BlockingIOError):
                waiting += os.read(inbox, 65_536)
            *lines, waiting = waiting.split(b"\n")
            for line in lines:
                take(*line.decode().split())
        os.close(outbox)
        os.set_blocking(inbox, True)
        while got := os.read(inbox, 65_536):
            waiting += got
        for line in waiting.splitlines():
            take(*line.decode().split())


def run(race: KeptRace) -> int:
    """Fork the workers and wait. Gives how many failed."""
    with opened(Place(race.kind, race.url)) as store:
        store.load("chat-0")  # so that a worker need not import the driver
    return fork_workers(race.workers, partial(work, race))


if __name__ == "__main__":
    sys.exit(run(KeptRace(**json.loads(sys.argv[1]))))
