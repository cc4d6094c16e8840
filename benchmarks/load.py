"""Worker processes on kept conversations: what a turn costs worker and store, and what was lost or doubled.

    python benchmarks/load.py [--workers 16] [--conversations 20000] [--seconds 60] [--model-seconds 0]
        [--store PostgreSQL] [--into docs/capacity.md]

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx2
from _conversations import corpus
from _report import Figure, Report, at_most, info, put_into
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
FIRST = 100
"""About so many messages follow a checkpoint, before the others. They find pages that no turn has
changed since, as turns in a large table do, and PostgreSQL logs these pages whole."""
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
    again = 0
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
            text, id = model.question(), f"m-{load.seed}-{owner}-{message}"
            began = time.perf_counter()
            while True:
                try:
                    result = kept.send(f"{text}\n\n{id}", turn_id=id)
                    break
                except GoAIToolsError as error:
                    if not error.retryable:
                        raise
                    again += 1  # the platform delivers it again
            if not result.duplicate:
                took.append(time.perf_counter() - began)
            accepted.append((conversation, id))
        cpu = time.process_time() - cpu
    return {"accepted": accepted, "took": took, "again": again, "calls": model.calls, "cpu": cpu}


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
    read = set(Random(load.seed).sample(sorted(more), min(SAMPLE, len(more))))
    turns = sum(len(answer["took"]) for answer in answers)
    calls = sum(answer["calls"] for answer in answers)
    lost, doubled = 0, abs(turns - len(wanted)) + abs(calls - turns)
    with load.opened() as store, Chat("sim") as reader:
        cursor, is_last = None, False
        while not is_last:
            page = store.list(prefix="chat-", cursor=cursor, limit=1_000)
            for listed in page.keys:
                at = int(listed.key.removeprefix("chat-"))
                if at in more:
                    missing = prepared(length_of(at))[1] + more.pop(at) - listed.facts.turns
                    lost, doubled = lost + max(0, missing), doubled + max(0, -missing)
            cursor, is_last = page.cursor, page.cursor is None
        said: Counter[tuple[int, str]] = Counter()
        for at in read:
            history = reader.conversation(store, f"chat-{at}", parts="store").history()
            said.update((at, message.text.rpartition("\n\n")[2]) for message in history.all_messages())
    sample = [said[one] for one in wanted if one[0] in read]
    return max(lost + more.total(), sample.count(0)), max(doubled, sum(many > 1 for many in sample))


# ------------------------------------------------------------------------------------ what was measured


def machine() -> tuple[float, float, float]:
    """Seconds of all cores since the machine's start: busy, idle, and waiting for a disk. Zeros if it is not
    Linux."""
    try:
        told = [int(each) / os.sysconf("SC_CLK_TCK") for each in Path("/proc/stat").read_text().split()[1:9]]
    except OSError:
        return 0.0, 0.0, 0.0
    return sum(told) - told[3] - told[4], told[3], told[4]


class Part(NamedTuple):
    """A part of a load: what the workers did, what it cost, and the seconds of `machine` meanwhile."""

    answers: list[Any]
    cost: Cost
    commands: int
    seconds: float
    busy: float
    idle: float
    waiting: float

    @property
    def turns(self) -> int:
        return sum(len(answer["took"]) for answer in self.answers)


class Found(NamedTuple):
    """What a load has cost. Per turn: CPU in milliseconds, `written` and `first` in bytes, `commands`.
    `first`: of the turns after a checkpoint. `stored`: bytes of a conversation."""

    client: float
    server: float
    written: float
    first: float
    commands: float
    stored: float


def measured(load: Load, at: Database) -> tuple[Found, Part, tuple[int, int]]:
    """Prepare the conversations, and run the load. Gives also what was lost and doubled."""
    for length in LENGTHS:
        prepared(length)
    with load.opened() as store:
        store.save("first", b"it makes the tables", expected=None)
    empty = at.stored()
    fork_all(load, prepare, lambda let_go: let_go())
    stored = (at.stored() - empty) / load.conversations
    few = min(load.messages, max(1, FIRST // load.workers))
    first = part_of(load._replace(messages=few, seed=~load.seed), at)
    part = part_of(load, at)
    found = Found(
        client=1_000 * sum(answer["cpu"] for answer in part.answers) / part.turns,
        server=part.cost.server / 1_000 / part.turns,
        written=part.cost.written / part.turns,
        first=first.cost.written / first.turns,
        commands=part.commands / part.turns,
        stored=stored,
    )
    return found, part, held_against(load, [*first.answers, *part.answers])


def part_of(load: Load, at: Database) -> Part:
    """Run the workers once."""
    times: list[float] = []
    costs: list[Cost] = []

    def begin(let_go: Callable[[], None]) -> None:
        def timed() -> None:
            before = (time.perf_counter(), *machine())
            let_go()
            times.extend(
                now - then for now, then in zip((time.perf_counter(), *machine()), before, strict=True)
            )

        costs.append(at.cost(timed))

    before = at.commands()
    answers = fork_all(load, work, begin)
    return Part(answers, costs[0], at.commands() - before, *times)


def limit_of(part: Part) -> str:
    """What the workers waited for."""
    share = part.idle / ((os.cpu_count() or 1) * part.seconds)
    if share < 0.1:
        return "CPU"
    return "the disk" if part.waiting > part.idle else f"no resource: {share:.0%} idle"


def figures_of(name: str, found: Found, part: Part, lost: int, doubled: int) -> Iterator[Figure]:
    """The figures of a store."""
    took = [seconds for answer in part.answers for seconds in answer["took"]]
    cuts = [1_000 * each for each in statistics.quantiles(took, n=20)]
    own = (found.client + found.server) * part.turns / 1_000
    others = max(0.0, part.busy - own) / part.seconds
    twice = sum(len(answer["accepted"]) for answer in part.answers) - part.turns
    anew = sum(answer["again"] for answer in part.answers)
    yield at_most(0, f"{name}: messages that are lost", lost, "", timed=False)
    yield at_most(0, f"{name}: turns and model calls that are doubled", doubled, "", timed=False)
    note = f"{part.turns:,} in {part.seconds:.1f} s; {twice} came twice, {anew} anew"
    yield info(f"{name}: turns a second", part.turns / part.seconds, "/s", note=note)
    yield info(f"{name}: p50 of a turn", cuts[9], "ms", note=f"wall time; p95 {cuts[18]:.0f} ms")
    yield info(f"{name}: CPU of a worker, a turn", found.client, "ms")
    yield info(f"{name}: CPU of the servers, a turn", found.server, "ms")
    yield info(f"{name}: statements or scripts, a turn", found.commands, "")
    images = part.cost.images / part.turns / 1_000
    note = f"of it images of whole pages {images:.1f} KB" if images else ""
    yield info(f"{name}: written to the log, a turn", found.written / 1_000, "KB", note=note)
    yield info(f"{name}: the same, first turns after a checkpoint", found.first / 1_000, "KB")
    yield info(f"{name}: stored, a conversation", found.stored / 1_000, "KB")
    note = f"limit: {limit_of(part)}; other programs used {others:.1f} of {os.cpu_count()} cores"
    yield info(f"{name}: cores that workers and servers used", own / part.seconds, "", note=note)


# -------------------------------------------------------------------------------------------- sizes

DAILY, TURNS, PEAK, CALL = 0.1, 10, 5, 5
"""Assumed: the share of the conversations that is used on a day, the turns in each, how many times the mean
the peak is, and the seconds of a model call."""


def sizing(found: dict[str, Found]) -> str:
    """A table in Markdown: what was measured of a turn, and what follows from it."""
    of = list(found.values())

    def row(name: str, values: Iterable[float], unit: str = "", places: int = 0) -> str:
        return f"| {' | '.join((name, *(f'{each:,.{places}f} {unit}'.rstrip() for each in values)))} |"

    lines = [
        f"| | {' | '.join(found)} |",
        "|---" * (1 + len(found)) + "|",
        row("**measured, a turn**: CPU of a worker", (one.client for one in of), "ms", 2),
        row("CPU of the servers", (one.server for one in of), "ms", 2),
        row("statements or scripts", (one.commands for one in of), "", 1),
        row("written to the log", (one.written / 1e3 for one in of), "KB", 1),
        row("the same, first turns after a checkpoint", (one.first / 1e3 for one in of), "KB", 1),
        row("**measured, a conversation**: stored", (one.stored / 1e3 for one in of), "KB", 1),
        row("**computed, turns a second**: one core of workers", (1e3 / one.client for one in of)),
        row("one core of the servers", (1e3 / one.server for one in of)),
    ]
    for millions in (1, 10):
        day = millions * 1e6 * DAILY * TURNS
        peak = PEAK * day / 86_400
        what = f"**computed, {millions} million conversations**: turns a second, peak"
        lines += [
            row(what, [peak] * len(of)),
            row("cores of workers, peak", (peak * one.client / 1e3 for one in of), "", 2),
            row("cores of the servers, peak", (peak * one.server / 1e3 for one in of), "", 2),
            row("log, peak", (peak * one.first / 1e6 for one in of), "MB/s", 1),
            row("log of a day", (day * one.first / 1e9 for one in of), "GB"),
            row("stored", (millions * one.stored / 1e3 for one in of), "GB"),
            row("model calls at a time, peak", [peak * CALL] * len(of)),
        ]
    return "\n".join(lines)


# -------------------------------------------------------------------------------------- the command


def run_all(stores: Sequence[str], **settings: Any) -> tuple[Report, dict[str, Found]]:
    """Run the load on each store that can be had."""
    found: dict[str, Found] = {}
    figures: list[Figure] = []
    away: list[str] = []
    for name in stores:
        with tempfile.TemporaryDirectory(prefix="goaitools-load-") as folder:
            try:
                with database(_SERVERS.get(name, name)) as at:
                    load = Load(store=name, url=at.url, folder=folder, **settings)
                    found[name], part, missed = measured(load, at)
                    figures += figures_of(name, found[name], part, *missed)
            except (AbsentError, ImportError) as error:
                away.append(f"{name} ({error})")
    return Report(
        title=f"{settings['workers']} worker processes on {settings['conversations']:,} conversations of "
        f"{LENGTHS[0]} to {LENGTHS[-1]:,} messages",
        method="servers of their own: PostgreSQL as it is installed; Redis Cluster of three masters, its log "
        f'synced each second; parts="store", save="turn"; {corpus().source}; conversations by chance, one '
        f"message in {TWICE} twice, which is in the cost of the turns; a model in the worker that takes "
        f"{settings['model_seconds']:g} s, without a socket; CPU of the workers while they send, of "
        "the servers with all processes; the log by pg_current_wal_insert_lsn() and pg_waldump, and the "
        f"append-only files; {SAMPLE} conversations read at the end, the turns of all counted; workers and "
        f"servers share {os.cpu_count()} cores" + (f"; not measured: {', '.join(away)}" if away else ""),
        figures=figures,
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
