"""One run of the race: many worker processes, each with connections of its own, on a few conversations.

It runs in a process of its own, so that it can fork. It is started with a JSON object as its argument. What
the store accepted stands in files, one for each worker, written after the store said that it saved: they are
the independent log.

    python -m tests.stores._racer '{"kind": "sqlite", "url": "states.db", …}'
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from goaitools_py import Chat, StateConflictError, event
from goaitools_py.states import state_messages

from ._places import Place, opened


class Race(NamedTuple):
    """What is run.

    Attributes:
        kind, url: The place of the store.
        folder: Where the logs go.
        workers: How many processes.
        turns: How many deliveries each has that nobody had before.
        keys: How many conversations they share.
        seed: Chooses the conversations, and the one delivery in ten that the next worker gets too.
        blind: The store takes any version for the expected one: the race has to notice.
    """

    kind: str
    url: str
    folder: str
    workers: int
    turns: int
    keys: int
    seed: int
    blind: bool = False

    def deliveries(self, worker: int) -> Iterator[tuple[str, str, bool]]:
        """A worker's deliveries: conversation, id, and whether the next worker gets it too."""
        random = Random(self.seed * 1_000 + worker)
        for turn in range(self.turns):
            yield f"chat-{random.randrange(self.keys)}", f"{worker}-{turn}", random.random() < 0.1


class Blind:
    """A store without its compare-and-swap."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.load = store.load

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        while True:
            stored = self._store.load(key)
            try:
                version: int = self._store.save(key, blob, expected=stored.version if stored else None)
            except StateConflictError:
                continue
            return version


def ids_in(blob: bytes | None) -> list[str]:
    """The ids of the deliveries that a conversation holds."""
    return [
        id
        for message in (state_messages(blob) if blob else [])
        for id in re.findall(r'<app-event id="([^"]+)">', message["content"])
    ]


def deliver(store: Any, chat: Chat, key: str, id: str) -> tuple[str, int]:
    """Take one delivery into its conversation: "accepted" or "duplicate", and how many conflicts it took."""
    conflicts = 0
    while True:
        stored = store.load(key)
        blob = stored.blob if stored else None
        if id in ids_in(blob):
            return "duplicate", conflicts
        grown = chat.append_to_state(blob, event(f"delivery {id}", id=id))
        try:
            store.save(key, grown, expected=stored.version if stored else None)
        except StateConflictError:
            conflicts += 1
            continue
        return "accepted", conflicts


def work(race: Race, worker: int, inbox: int, outbox: int) -> None:
    """All deliveries of one worker: its own, and those that the worker before it passes on."""
    chat = Chat("openai:MODEL")
    os.set_blocking(inbox, False)
    waiting = b""
    with (
        opened(Place(race.kind, race.url)) as store,
        (Path(race.folder) / f"worker-{worker}.log").open("w", encoding="utf-8") as log,
    ):
        used = Blind(store) if race.blind else store

        def take(key: str, id: str) -> None:
            outcome, conflicts = deliver(used, chat, key, id)
            log.write(f"{outcome} {key} {id} {conflicts}\n")

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


def run(race: Race) -> int:
    """Fork the workers, let them begin at the same time, and wait. Gives how many failed."""
    with opened(Place(race.kind, race.url)) as store:
        store.load("chat-0")  # so that a worker need not import the driver
    return fork_workers(race.workers, lambda *worker: work(race, *worker))


def fork_workers(workers: int, work: Callable[[int, int, int], None]) -> int:
    """Fork processes that begin at the same time; each gets its number, a pipe from the one before it, and
    one to the next. Gives how many failed."""
    pipes = [os.pipe() for _ in range(workers)]
    gate = os.pipe()
    children = []
    for worker in range(workers):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                inbox, outbox = pipes[worker][0], pipes[(worker + 1) % workers][1]
                for reading, writing in [*pipes, gate]:
                    if writing != outbox:
                        os.close(writing)
                    if reading not in (inbox, gate[0]):
                        os.close(reading)
                os.read(gate[0], 1)
                work(worker, inbox, outbox)
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    for reading, writing in [*pipes, gate]:
        os.close(reading)
        os.close(writing)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(run(Race(**json.loads(sys.argv[1]))))
