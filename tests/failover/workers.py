"""Workers that run turns on a store while its servers fail, each in a process of its own.

They are a caller of the library: a turn is sent with its `turn_id` again and again until there is an answer.
What they see stands in files, one for each worker, a JSON list on each line. Every third turn calls a tool
with an effect. Run as a program, it forks the workers of one `Load`, given as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from goaitools_py import Chat, GoAIToolsError, StateConflictError, ToolContext, TurnError, tool
from goaitools_py.state import apart
from goaitools_py.states import read_history
from goaitools_py.stores import PostgresStore, RedisStore
from goaitools_py.testing import Calls, ScriptedBackend

__all__ = ["Load", "deliveries_in", "opened"]

DELIVERY = re.compile(r"delivery (\d+-\d+)")
_NEVER = Event()


class Load(NamedTuple):
    """What is run.

    Attributes:
        url: The store.
        waits: For Redis: `wait_replicas` and `wait_seconds`.
        folder: Where the files go; the workers end when there is a file ``end``.
        parts: As for `Chat.conversation`.
        is_shared: All workers use all conversations. False: each conversation has one worker.
        commits: What a caller does with a `StoreCommitError`: True commits it, False sends the turn again.
        kill_every: Mean seconds between two kills (SIGKILL) of a worker; 0 kills none. The next process of
            this worker sends the turn again that had no answer.
    """

    url: str
    waits: dict[str, Any]
    folder: str
    parts: str
    seed: int = 1
    workers: int = 8
    keys: int = 16
    pause: float = 0.05
    save_timeout: float = 5.0
    is_shared: bool = True
    commits: bool = True
    kill_every: float = 0.0


@contextmanager
def opened(url: str, waits: dict[str, Any]) -> Iterator[Any]:
    """The store of a URL, as an application opens it."""
    if url.startswith("redis"):
        with RedisStore.open(url, timeout=5.0, **waits) as store:
            yield store
    else:
        with PostgresStore.open(url, max_connections=2, timeout=5.0) as store:
            yield store


def deliveries_in(blob: bytes) -> list[str]:
    """The ids of the turns in a state, in their order."""
    messages = read_history(blob).all_messages()
    return [id for message in messages if message.role == "user" for id in DELIVERY.findall(message.text)]


class Model(ScriptedBackend):
    """A model that answers at once, and asks for the tool in every third turn."""

    def __init__(self, note: Callable[..., None]) -> None:
        super().__init__()
        self._note = note

    def _next(self, request: Any) -> list[bytes]:
        self.requests.clear()
        self.then(self._answer)
        return super()._next(request)

    def _answer(self, request: Any) -> Any:
        messages = json.loads(request.body)["messages"]
        said = [message["content"] for message in messages if message["role"] == "user"]
        id = next(id for text in reversed(said) for id in DELIVERY.findall(text)[-1:])
        if messages[-1]["role"] == "user" and int(id.partition("-")[2]) % 3 == 0:
            self._note("asked", id, "tool")
            return Calls([("pay", {"id": id})])
        self._note("asked", id, "text")
        return f"Answer to {id}."


class _Next(NamedTuple):
    """The next turn of a worker. It has a key and a beginning if a killed process has sent it already."""

    number: int
    key: str = ""
    began: float = 0.0


def _next_of(file: Path, first: int) -> _Next:
    """Read a worker's file: a process before this one may have been killed."""
    found = _Next(first)
    for line in file.read_text().splitlines() if file.exists() else ():
        at, kind, *rest = json.loads(line)
        if kind == "began":
            found = _Next(int(rest[0].partition("-")[2]), rest[1], at)
        elif kind == "acknowledged":
            found = _Next(found.number + 1)
    return found


def work(load: Load, worker: int) -> None:
    """All turns of one worker."""
    folder, apart.SMALL = Path(load.folder), 150
    file = folder / f"worker-{worker}.log"
    next = _next_of(file, load.seed * 100_000)  # two loads on one store have different ids
    random = Random(f"{load.seed} {worker} {next.number}")
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*what: Any) -> None:
        os.write(log, json.dumps([monotonic(), *what]).encode() + b"\n")

    @tool
    def pay(ctx: ToolContext, id: str) -> str:
        """Pay."""
        note("effect", id, ctx.idempotency_key)
        return "Paid."

    with opened(load.url, load.waits) as store:
        chat = Chat(Model(note), tools=[pay])
        while folder.exists() and not (folder / "end").exists():
            number_of_key = random.randrange(load.keys)
            if not load.is_shared:
                number_of_key -= (number_of_key - worker) % load.workers
            key, id = next.key or f"chat-{number_of_key % load.keys}", f"{worker}-{next.number}"
            began, unsaved = next.began or monotonic(), None
            note("began", id, key)
            conversation = chat.conversation(
                store,
                key,
                parts=load.parts,
                lease_ttl=5.0,
                save_timeout=load.save_timeout,  # type: ignore[arg-type]
            )
            while folder.exists() and not (folder / "give-up").exists():
                try:
                    if unsaved is None or not load.commits:
                        conversation.send(f"delivery {id}", turn_id=id, timeout=60.0)
                    else:
                        conversation.commit(unsaved)
                except GoAIToolsError as error:
                    cause = getattr(error, "unsaved", None) or error.__cause__
                    note("error", id, type(error).__name__, type(cause).__name__ if cause else "", key)
                    if isinstance(error, StateConflictError):
                        unsaved = None
                    elif isinstance(error, TurnError) and error.unsaved is not None:
                        unsaved = error
                    _NEVER.wait(0.1)
                else:
                    note("acknowledged", id, key, monotonic() - began)
                    break
            next = _Next(next.number + 1)
            _NEVER.wait(load.pause)


def main(load: Load) -> int:
    """Fork the workers, kill one now and then, and wait. Gives how many failed."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # it tells each try to connect
    with suppress(Exception), opened(load.url, load.waits) as store:
        store.load("chat-0")  # so that a worker need not import the driver, nor make the tables
    folder, random = Path(load.folder), Random(load.seed)
    log = os.open(folder / "worker-kills.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    children = [_forked(load, worker) for worker in range(load.workers)]
    failed = 0
    while load.kill_every and folder.exists() and not (folder / "end").exists():
        _NEVER.wait(random.uniform(0.5, 1.5) * load.kill_every)
        worker = random.randrange(load.workers)
        os.kill(children[worker], signal.SIGKILL)
        status = os.waitpid(children[worker], 0)[1]
        failed += status not in (0, signal.SIGKILL)  # 0: it has ended, as the folder told it
        os.write(log, json.dumps([monotonic(), "killed", worker]).encode() + b"\n")
        children[worker] = _forked(load, worker)
    return failed + sum(os.waitpid(child, 0)[1] != 0 for child in children)


def _forked(load: Load, worker: int) -> int:
    """Start the process of one worker. Gives its id."""
    if (child := os.fork()) == 0:
        status = 1
        try:
            work(load, worker)
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


if __name__ == "__main__":
    sys.exit(main(Load(**json.loads(sys.argv[1]))))
