"""Worker processes on kept conversations: what a turn costs worker and store, and what was lost or doubled.

    python benchmarks/load.py [--workers 16] [--conversations 20000] [--seconds 60] [--model-seconds 0]
        [--store PostgreSQL] [--into docs/operate.md]

Owns: the conversations, the deliveries, and the sizes that follow from what was measured. Must never know:
what a database counts as written.

Each store is on servers of its own, see `_written`. Conversations of 10 to 2,000 messages with the text of
recorded ones are put into it. Then each worker sends messages to conversations that the seed chooses. One
message in twenty also goes to the worker before, at about the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx2
from _conversations import corpus
from _report import Figure, Report, at_most, info, number, put_into
from _wires import WIRES
from _written import AbsentError, Cost, Database, database
from writes import Talk, history_of

from goaitools_py import Chat, GoAIToolsError
from goaitools_py.states import state_from_messages
from goaitools_py.stores import MemoryStore, PostgresStore, RedisStore, StoredHead

__all__ = ["run"]

STORES: dict[str, Any] = {"PostgreSQL": PostgresStore, "Redis Cluster": RedisStore}
_SERVERS = {"PostgreSQL": "PostgreSQL as installed"}
LENGTHS = tuple(round(10 * 200 ** (step / 11)) for step in range(12))
"""Messages of the conversations, each length equally often: 10, 16, 26, …, 2,000."""
TWICE = 20
"""One message in so many is delivered twice."""
SAMPLE = 100
"""The messages of so many conversations are read at the end. The turns of all are counted."""


class Load(NamedTuple):
    """A load. `messages`: a worker ends after so many, or after `seconds`."""

    store: str
    url: str
    folder: str
    workers: int
    conversations: int
    seconds: float
    messages: float
    model_seconds: float
    seed: int

    def opened(self) -> Any:
        """The store, with connections of its own."""
        return STORES[self.store].open(self.url, timeout=60.0)

    def conversation_of(self, worker: int, message: int) -> int:
        """The number of the conversation that a message goes to."""
        return Random(f"{self.seed}-{worker}-{message}").randrange(self.conversations)

    def deliveries(self, worker: int) -> Iterator[tuple[int, int]]:
        """A worker's messages, as owner and number, and those of the next worker that come to it as well."""
        following = (worker + 1) % self.workers
        for message in count():
            yield worker, message
            if message % TWICE == 0:
                yield following, message


def length_of(conversation: int) -> int:
    """How many messages a conversation begins with."""
    return LENGTHS[conversation % len(LENGTHS)]


@cache
def prepared(length: int) -> tuple[StoredHead, int]:
    """A conversation as a turn leaves it in a store: head and parts, and the number of its turns."""
    store = MemoryStore()
    store.save("it", state_from_messages("openai", history_of(length)), expected=None)
    talk = Talk(length)
    with Chat(WIRES["openai"].backend(talk)) as chat:
        chat.conversation(store, "it", parts="store").send(talk.question())
    head, (listed,) = store.load_head("it"), store.list().keys
    assert head is not None
    assert listed.facts is not None
    return head, listed.facts.turns or 0


class Model(Talk):
    """A model in the worker's process that takes some time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(0)
        self.calls = 0
        self._seconds = seconds

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.calls += 1
        if self._seconds:
            time.sleep(self._seconds)
        return super().handle_request(request)


# ---------------------------------------------------------------------------------------- the workers


def prepare(load: Load, worker: int, begun: Callable[[], None]) -> None:
    """Put a worker's share of the conversations into the store."""
    begun()
    with load.opened() as store:
        for conversation in range(worker, load.conversations, load.workers):
            head, _ = prepared(length_of(conversation))
            store.save_parts(f"chat-{conversation}", head.blob, head.parts, (), expected=None)


def work(load: Load, worker: int, begun: Callable[[], None]) -> dict[str, Any]:
    """Deliver messages. Gives what was accepted, and what it took."""
    model, accepted, took = Model(load.model_seconds), [], []
    duplicates = again = 0
    with load.opened() as store, Chat(WIRES["openai"].backend(model)) as chat:
        store.load("chat-0")
        chat.chat_with_state(None, user="Hello.")  # what only a first turn does
        model.calls = 0
        begun()
        end = time.monotonic() + load.seconds
        cpu = time.process_time()
        for done, (owner, message) in enumerate(load.deliveries(worker)):
            if done >= load.messages or time.monotonic() >= end:
                break
            conversation = load.conversation_of(owner, message)
            kept = chat.conversation(store, f"chat-{conversation}", parts="store")
            model.place, model.tokens = owner * 9_973 + message, length_of(conversation) * 60
            text, id = model.question(), f"m-{owner}-{message}"
            began = time.perf_counter()
            while True:
                try:
                    result = kept.send(f"{text}\n\n{id}", turn_id=id)
                    break
                except GoAIToolsError as error:
                    if not error.retryable:
                        raise
                    again += 1  # the platform delivers it again
            if result.duplicate:
                duplicates += 1
            else:
                took.append(time.perf_counter() - began)
            accepted.append((conversation, id))
        cpu = time.process_time() - cpu
    return {
        "accepted": accepted,
        "took": took,
        "duplicates": duplicates,
        "again": again,
        "calls": model.calls,
        "cpu": cpu,
    }


def fork_all(load: Load, task: Callable[..., Any], begin: Callable[[Callable[[], None]], None]) -> list[Any]:
    """Fork the workers. `begin` gets a function that lets them begin at the same time, and waits for all."""
    gate, ready, children = os.pipe(), os.pipe(), []
    for worker in range(load.workers):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(gate[1])

                def begun() -> None:
                    os.write(ready[1], b".")
                    os.read(gate[0], 1)

                answer = task(load, worker, begun)
                (Path(load.folder) / f"{worker}.json").write_text(json.dumps(answer))
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    os.close(ready[1])
    left = load.workers
    while left and (some := os.read(ready[0], left)):  # nothing: all workers that are not ready have failed
        left -= len(some)

    def let_go() -> None:
        os.close(gate[1])
        failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
        if failed:
            raise SystemExit(f"{failed} workers failed")

    begin(let_go)
    os.close(gate[0])
    os.close(ready[0])
    return [json.loads((Path(load.folder) / f"{n}.json").read_text()) for n in range(load.workers)]


def held_against(load: Load, answers: Sequence[Any]) -> tuple[int, int]:
    """How many accepted messages are lost, and how many turns or model calls are one too many."""
    wanted = {(int(at), id) for answer in answers for at, id in answer["accepted"]}
    more = Counter(at for at, _ in wanted)
    lost = doubled = 0
    touched = Random(load.seed).sample(sorted(more), min(SAMPLE, len(more)))
    with load.opened() as store, Chat("sim") as reader:
        cursor = None
        while True:
            page = store.list(prefix="chat-", cursor=cursor, limit=1_000)
            for listed in page.keys:
                at = int(listed.key.removeprefix("chat-"))
                if at in more:
                    missing = prepared(length_of(at))[1] + more.pop(at) - listed.facts.turns
                    lost, doubled = lost + max(0, missing), doubled + max(0, -missing)
            if (cursor := page.cursor) is None:
                break
        lost += more.total()
        for at in touched:
            messages = chat_of(reader, store, at)
            found = Counter(text.rpartition("\n\n")[2] for text in messages)
            lost += sum(found[id] == 0 for to, id in wanted if to == at)
            doubled += sum(found[id] > 1 for to, id in wanted if to == at)
    turns = sum(len(answer["took"]) for answer in answers)
    calls = sum(answer["calls"] for answer in answers)
    return lost, doubled + abs(turns - len(wanted)) + abs(calls - turns)


def chat_of(reader: Chat, store: Any, at: int) -> list[str]:
    """What the user said in a conversation."""
    history = reader.conversation(store, f"chat-{at}", parts="store").history()
    return [message.text for message in history.all_messages() if message.role == "user"]


# ------------------------------------------------------------------------------------ what was measured


class Machine(NamedTuple):
    """Seconds of all cores together since the machine's start."""

    busy: float
    idle: float
    waiting: float

    @classmethod
    def now(cls) -> Machine:
        """Read it, where Linux counts it; else zeros."""
        try:
            user, nice, system, idle, wait, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
        except OSError:
            return cls(0.0, 0.0, 0.0)
        tick = os.sysconf("SC_CLK_TCK")
        return cls((user + nice + system + sum(rest)) / tick, idle / tick, wait / tick)

    def since(self, before: Machine) -> Machine:
        """What came since then."""
        return Machine(*(now - then for now, then in zip(self, before, strict=True)))


class Found(NamedTuple):
    """What a load has cost. Per turn: CPU in milliseconds, `written` and `images` in bytes, `commands`.
    `stored`: bytes of a conversation."""

    turns: int
    seconds: float
    took: list[float]
    client: float
    server: float
    written: float
    images: float
    commands: float
    stored: float
    duplicates: int
    again: int
    lost: int
    doubled: int
    machine: Machine

    @property
    def limit(self) -> str:
        """What the workers waited for."""
        cores = os.cpu_count() or 1
        share = self.machine.idle / (cores * self.seconds)
        if share < 0.1:
            return "CPU"
        return "the disk" if self.machine.waiting > self.machine.idle else f"no resource: {share:.0%} idle"


def measured(load: Load, at: Database) -> Found:
    """Prepare the conversations, and run the load."""
    for length in LENGTHS:
        prepared(length)
    with load.opened() as store:
        store.save("first", b"it makes the tables", expected=None)
    empty = at.stored()
    fork_all(load, prepare, lambda let_go: let_go())
    stored = (at.stored() - empty) / load.conversations
    costs: list[Cost] = []
    seconds, machine, commands = 0.0, Machine(0, 0, 0), at.commands()

    def begin(let_go: Callable[[], None]) -> None:
        def timed() -> None:
            nonlocal seconds, machine
            began, then = time.perf_counter(), Machine.now()
            let_go()
            seconds, machine = time.perf_counter() - began, Machine.now().since(then)

        costs.append(at.cost(timed))

    answers = fork_all(load, work, begin)
    commands = at.commands() - commands
    lost, doubled = held_against(load, answers)
    took = sorted(seconds for answer in answers for seconds in answer["took"])
    (cost,), turns = costs, len(took)
    return Found(
        turns=turns,
        seconds=seconds,
        took=took,
        client=1_000 * sum(answer["cpu"] for answer in answers) / turns,
        server=cost.server / 1_000 / turns,
        written=cost.written / turns,
        images=cost.images / turns,
        commands=commands / turns,
        stored=stored,
        duplicates=sum(answer["duplicates"] for answer in answers),
        again=sum(answer["again"] for answer in answers),
        lost=lost,
        doubled=doubled,
        machine=machine,
    )


def figures_of(name: str, found: Found) -> Iterator[Figure]:
    """The figures of a store."""
    cuts = statistics.quantiles(found.took, n=20)
    own = (found.client + found.server) * found.turns / 1_000
    others = max(0.0, found.machine.busy - own) / found.seconds
    yield at_most(0, f"{name}: messages that are lost", found.lost, "", timed=False)
    yield at_most(0, f"{name}: turns and model calls that are doubled", found.doubled, "", timed=False)
    at = f"{found.turns:,} in {found.seconds:.1f} s; {found.duplicates} came twice, {found.again} anew"
    yield info(f"{name}: turns a second", found.turns / found.seconds, "/s", note=at)
    yield info(
        f"{name}: p50 of a turn", 1_000 * cuts[9], "ms", note=f"wall time; p95 {1_000 * cuts[18]:.0f} ms"
    )
    yield info(f"{name}: CPU of a worker, a turn", found.client, "ms")
    yield info(f"{name}: CPU of the servers, a turn", found.server, "ms")
    yield info(f"{name}: statements or scripts, a turn", found.commands, "")
    images = f"images of whole pages: {found.images / 1_000:.1f} KB" if found.images else ""
    yield info(f"{name}: written to the log, a turn", found.written / 1_000, "KB", note=images)
    yield info(f"{name}: stored, a conversation", found.stored / 1_000, "KB")
    note = f"limit: {found.limit}; other programs used {others:.1f} of {os.cpu_count()} cores"
    yield info(f"{name}: cores that workers and servers used", own / found.seconds, "", note=note)


# -------------------------------------------------------------------------------------------- sizes

DAILY, TURNS, PEAK, CALL = 0.1, 10, 5, 5
"""Assumed: the share of the conversations that is used on a day, the turns in each, how many times the mean
the peak is, and the seconds of a model call."""


def sizing(found: dict[str, Found]) -> str:
    """A table in Markdown: what was measured of a turn, and what follows from it."""
    all_of = list(found.values())
    rows: list[tuple[str, list[str]]] = [
        ("**measured**: CPU of a worker, a turn", [f"{number(one.client)} ms" for one in all_of]),
        ("CPU of the servers, a turn", [f"{number(one.server)} ms" for one in all_of]),
        ("statements or scripts, a turn", [f"{one.commands:.1f}" for one in all_of]),
        ("written to the log, a turn", [f"{number(one.written / 1e3)} KB" for one in all_of]),
        ("the part of it that is images of whole pages", [f"{number(one.images / 1e3)} KB" for one in all_of]),
        ("stored, a conversation", [f"{number(one.stored / 1e3)} KB" for one in all_of]),
        ("**computed**: turns a second on one core of workers", [f"{1e3 / one.client:,.0f}" for one in all_of]),
        ("turns a second on one core of the servers", [f"{1e3 / one.server:,.0f}" for one in all_of]),
    ]
    for millions in (1, 10):
        a_day = millions * 1e6 * DAILY * TURNS
        peak = PEAK * a_day / 86_400
        rows += [
            (f"**{millions} million conversations**: turns a second at the peak", [f"{peak:,.0f}"] * len(all_of)),
            ("stored", [f"{millions * one.stored / 1e3:,.0f} GB" for one in all_of]),
            ("cores of workers at the peak", [f"{peak * one.client / 1e3:.2f}" for one in all_of]),
            ("cores of the servers at the peak", [f"{peak * one.server / 1e3:.2f}" for one in all_of]),
            ("log at the peak", [f"{peak * one.written / 1e6:.1f} MB/s" for one in all_of]),
            ("log of a day", [f"{a_day * one.written / 1e9:,.0f} GB" for one in all_of]),
            ("model calls at a time, at the peak", [f"{peak * CALL:,.0f}"] * len(all_of)),
        ]
    lines = [("", list(found)), ("---", ["---"] * len(all_of)), *rows]
    return "\n".join(f"| {' | '.join((first, *rest))} |" for first, rest in lines)


# -------------------------------------------------------------------------------------- the command


def run_all(stores: Sequence[str], **settings: Any) -> tuple[Report, dict[str, Found]]:
    """Run the load on each store that can be had."""
    found: dict[str, Found] = {}
    away: list[str] = []
    for name in stores:
        with tempfile.TemporaryDirectory(prefix="goaitools-load-") as folder:
            try:
                with database(_SERVERS.get(name, name)) as at:
                    found[name] = measured(Load(store=name, url=at.url, folder=folder, **settings), at)
            except (AbsentError, ImportError) as error:
                away.append(f"{name} ({error})")
    load = Load(store="", url="", folder="", **settings)
    return Report(
        title=f"{load.workers} worker processes on {load.conversations:,} conversations of "
        f"{LENGTHS[0]} to {LENGTHS[-1]:,} messages",
        method=f'servers of their own: PostgreSQL with the settings that it comes with, after a checkpoint; '
        "Redis Cluster with three masters, without replicas, appendonly yes, synced each second; "
        f'parts="store", save="turn"; {corpus().source}; messages to conversations by chance, one in {TWICE} '
        f"twice, and its cost is in that of the turns; a model in the worker that takes {load.model_seconds:g} "
        "seconds, without a socket; CPU time of the workers from their first to their last message, of the "
        "servers with all their processes; the log by pg_current_wal_insert_lsn() and pg_waldump, and the "
        f"append-only files; up to {SAMPLE} conversations read at the end, the turns of all counted; workers "
        f"and servers share {os.cpu_count()} cores; seed {load.seed}"
        + (f"; not measured: {', '.join(away)}" if away else ""),
        figures=[figure for name, one in found.items() for figure in figures_of(name, one)],
    ), found


def run(*, short: bool = False) -> Report:
    """Run the load on each store. `short`: two workers with few messages."""
    few = {"workers": 2, "conversations": 48, "messages": 42, "seconds": 60.0}
    many = {"workers": 16, "conversations": 20_000, "messages": float("inf"), "seconds": 60.0}
    return run_all(tuple(STORES), **(few if short else many), model_seconds=0.0, seed=1)[0]


def main() -> None:
    """Run the load that was asked for, print, and put the table of sizes into a page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", action="append", choices=STORES, help="default: all")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--conversations", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load on each store")
    parser.add_argument("--messages", type=float, default=float("inf"), help="at most, for each worker")
    parser.add_argument("--model-seconds", type=float, default=0.0, help="of a model call")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table of sizes into this page")
    settings = vars(parser.parse_args())
    stores, page = settings.pop("store") or tuple(STORES), settings.pop("into")
    report, found = run_all(stores, **settings)
    print(report.table(), sizing(found), sep="\n\n")
    if page is not None:
        put_into(page, sizing(found))
    if not all(figure.ok for figure in report.figures):
        raise SystemExit("messages were lost or doubled")


if __name__ == "__main__":
    main()
