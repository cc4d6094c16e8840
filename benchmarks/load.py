"""Worker processes on kept conversations: turns, events and duplicates, and what was lost or doubled.

    python benchmarks/load.py [--store postgresql|redis|sqlite] [--short] [--no-lease] [--json]

The model is a fake that answers at once: the library, the driver and the store are measured.
PostgreSQL is found at `GOAITOOLS_TEST_POSTGRES` (a URL of SQLAlchemy), Redis at `GOAITOOLS_TEST_REDIS`; each
run has a table or a key prefix of its own, which is dropped afterwards. What the workers are told to do
follows from `--seed`. What was accepted stands in a file of each worker, and is held against the store.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from _report import Figure, Report, at_most, info

from goaitools_py import Chat, StateConflictError, event
from goaitools_py.states import read_history
from goaitools_py.stores import RedisStore, SQLAlchemyStore, SQLiteStore
from goaitools_py.testing import ScriptedBackend

POSTGRES = (
    os.environ.get("GOAITOOLS_TEST_POSTGRES") or "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"
)
REDIS = os.environ.get("GOAITOOLS_TEST_REDIS") or "redis://127.0.0.1:6379/0"
ENGINES = ("postgresql", "redis", "sqlite")
DELIVERY = re.compile(r"delivery (\d+-\d+)")


class Load(NamedTuple):
    """What is run. `turns`: deliveries of each worker, those not counted that it gets a second time."""

    engine: str
    url: str
    name: str
    folder: str
    workers: int
    conversations: int
    turns: int
    seed: int
    leased: bool

    def own(self, worker: int) -> list[tuple[str, str]]:
        """A worker's deliveries, as conversation and id."""
        random = Random(self.seed * 1_000 + worker)
        return [(f"chat-{random.randrange(self.conversations)}", f"{worker}-{n}") for n in range(self.turns)]

    def deliveries(self, worker: int) -> list[tuple[str, str]]:
        """All that it gets: its own, and one in ten of the next worker's, at about the same time."""
        random = Random(self.seed * 1_000 + 500 + worker)
        mixed = [(n + 0.0, one) for n, one in enumerate(self.own(worker))]
        for n, one in enumerate(self.own((worker + 1) % self.workers)):
            if random.random() < 0.1:
                mixed.append((n + random.uniform(-3, 3), one))
        return [one for _, one in sorted(mixed)]


def is_event(id: str) -> bool:
    """Every fifth delivery is an event, which takes no lease."""
    return int(id.partition("-")[2]) % 5 == 4


# ------------------------------------------------------------------------------------------ the store


@contextmanager
def opened(load: Load) -> Iterator[Any]:
    """The store, with connections of its own."""
    if load.engine == "sqlite":
        with SQLiteStore(load.url, busy_timeout=60.0) as store:
            yield store
    elif load.engine == "redis":
        import redis

        with redis.Redis.from_url(load.url) as client:
            yield RedisStore(client, prefix=load.name)
    else:
        import sqlalchemy

        engine = sqlalchemy.create_engine(load.url)
        try:
            yield SQLAlchemyStore(engine, table=load.name)
        finally:
            engine.dispose()


def drop(load: Load) -> None:
    """Take away what the run made."""
    if load.engine == "redis":
        import redis

        with redis.Redis.from_url(load.url) as client:
            for name in client.scan_iter(f"{load.name}:*", count=1_000):
                client.delete(name)
    elif load.engine == "postgresql":
        import sqlalchemy

        engine = sqlalchemy.create_engine(load.url)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP TABLE IF EXISTS {load.name}, {load.name}_lease"))
        engine.dispose()


class Counting:
    """A store that counts the saves that came too late, and how long it was asked for things."""

    def __init__(self, store: Any, *, leased: bool) -> None:
        self._store = store
        self.conflicts = 0
        self.seconds = 0.0
        if leased:
            self.lease = store.lease

    def load(self, key: str) -> Any:
        began = time.perf_counter()
        try:
            return self._store.load(key)
        finally:
            self.seconds += time.perf_counter() - began

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        began = time.perf_counter()
        try:
            version: int = self._store.save(key, blob, expected=expected)
        except StateConflictError:
            self.conflicts += 1
            raise
        finally:
            self.seconds += time.perf_counter() - began
        return version


# ---------------------------------------------------------------------------------------- the workers


class Fake(ScriptedBackend):
    """A fake model that answers at once."""

    def _next(self, request: Any) -> list[bytes]:
        self.requests.clear()
        self.then("Noted.")
        return super()._next(request)


def work(load: Load, worker: int) -> dict[str, Any]:
    """One worker's deliveries. Gives its times, and writes down what was accepted."""
    took: dict[str, list[float]] = {"turn": [], "event": [], "duplicate": []}
    redone = 0
    log = os.open(Path(load.folder) / f"{worker}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with opened(load) as inner, Chat(Fake()) as chat:
        store = Counting(inner, leased=load.leased)
        inner.load("chat-0")
        cpu = time.process_time()
        for key, id in load.deliveries(worker):
            conversation = chat.conversation(store, key)
            began = time.perf_counter()
            kind = "event" if is_event(id) else "turn"
            if kind == "event":
                conversation.append(event(f"delivery {id}", id=id))
            else:
                while True:
                    try:
                        result = conversation.send(f"delivery {id}", turn_id=id)
                    except StateConflictError:
                        redone += 1
                        continue
                    kind = "duplicate" if result.duplicate else "turn"
                    break
            took[kind].append(time.perf_counter() - began)
            os.write(log, f"{kind} {key} {id}\n".encode())
            os.fsync(log)
        cpu = time.process_time() - cpu
    return {
        "took": took,
        "conflicts": store.conflicts,
        "redone": redone,
        "cpu": cpu,
        "store": store.seconds,
    }


def run_workers(load: Load) -> tuple[float, list[dict[str, Any]]]:
    """Fork the workers, let them begin at the same time, and wait."""
    gate, children = os.pipe(), []
    for worker in range(load.workers):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(gate[1])
                os.read(gate[0], 1)
                answer = work(load, worker)
                (Path(load.folder) / f"{worker}.json").write_text(json.dumps(answer))
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    began = time.perf_counter()
    os.close(gate[1])
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    seconds = time.perf_counter() - began
    os.close(gate[0])
    if failed:
        raise SystemExit(f"{failed} workers failed")
    answers = [json.loads((Path(load.folder) / f"{n}.json").read_text()) for n in range(load.workers)]
    return seconds, answers


def held_against(load: Load) -> tuple[int, int]:
    """How many deliveries are lost, and how many are there or were accepted more than once."""
    wanted = Counter(one for worker in range(load.workers) for one in load.own(worker))
    accepted: Counter[tuple[str, str]] = Counter()
    for worker in range(load.workers):
        for line in (Path(load.folder) / f"{worker}.log").read_text().splitlines():
            kind, key, id = line.split()
            if kind == "turn":
                accepted[key, id] += 1
    stored: Counter[tuple[str, str]] = Counter()
    with opened(load) as store:
        for key in {key for key, _ in wanted}:
            found = store.load(key)
            messages = read_history(found.blob).all_messages() if found is not None else ()
            stored.update(
                (key, id) for said in messages if said.role == "user" for id in DELIVERY.findall(said.text)
            )
    lost = len(wanted - stored)
    turns = Counter(one for one in wanted if not is_event(one[1]))
    doubled = (stored - wanted).total() + (accepted - turns).total() + (turns - accepted).total()
    return lost, doubled


# ----------------------------------------------------------------------------------------- the report


def run(engine: str, *, short: bool, leased: bool, workers: int, conversations: int, seed: int) -> Report:
    """One run of the load on one engine."""
    with tempfile.TemporaryDirectory(prefix="goaitools-load-") as folder:
        urls = {"postgresql": POSTGRES, "redis": REDIS, "sqlite": f"{folder}/states.sqlite3"}
        load = Load(
            engine=engine,
            url=urls[engine],
            name=f"goaitools_load_{secrets.token_hex(4)}",
            folder=folder,
            workers=workers,
            conversations=min(conversations, 60) if short else conversations,
            turns=40 if short else 1_500,
            seed=seed,
            leased=leased,
        )
        try:
            seconds, answers = run_workers(load)
            lost, doubled = held_against(load)
        finally:
            drop(load)
    figures = [
        at_most(0, "deliveries that are lost", lost, "", timed=False),
        at_most(0, "deliveries that are doubled", doubled, "", timed=False),
        *_times(load, seconds, answers),
    ]
    return Report(
        title=f"{workers} worker processes, {load.conversations:,} conversations on {engine}",
        method=f"{load.turns:,} deliveries for each worker, a fifth of them events, and a tenth of the next "
        f"worker's a second time; leases {'on' if leased else 'off'}; the model is a fake that answers at "
        "once; wall time of `send` and `append` in the workers, who share the machine's "
        f"{os.cpu_count()} cores with the store's server; seed {seed}",
        figures=figures,
    )


def _times(load: Load, seconds: float, answers: list[dict[str, Any]]) -> list[Figure]:
    took = {
        kind: sorted(t for a in answers for t in a["took"][kind]) for kind in ("turn", "event", "duplicate")
    }
    done = sum(map(len, took.values()))
    cpu = sum(answer["cpu"] for answer in answers)
    in_store = sum(answer["store"] for answer in answers)
    busy = sum(map(sum, took.values()))
    figures = [
        info("turns and events a second", done / seconds, "/s", note=f"{done:,} in {seconds:.1f} s"),
        info("CPU of the workers for each", 1_000 * cpu / done, "ms"),
        info("cores that the workers used", cpu / seconds, "", note=f"of {os.cpu_count()}"),
        info(
            "part of the time in load and save",
            100 * in_store / busy,
            "%",
            note="waiting for a core included",
        ),
    ]
    for kind, times in took.items():
        if len(times) < 2:
            continue
        cuts = statistics.quantiles(times, n=20)
        figures.append(
            info(f"{kind}: p50", 1_000 * cuts[9], "ms", note=f"{len(times):,}; p95 {1_000 * cuts[18]:.1f} ms")
        )
    saves = sum(answer["conflicts"] for answer in answers)
    redone = sum(answer["redone"] for answer in answers)
    figures.append(info("saves that came too late", saves, "", note=f"{redone} turns had anew"))
    return figures


def main() -> None:
    """Run the load on each engine that was asked for, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="append", choices=ENGINES, help="default: postgresql and redis")
    parser.add_argument("--short", action="store_true", help="a few seconds, as in the tests")
    parser.add_argument("--no-lease", action="store_true", help="compare-and-swap alone")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--conversations", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    reports = {
        engine: run(
            engine,
            short=args.short,
            leased=not args.no_lease,
            workers=args.workers,
            conversations=args.conversations,
            seed=args.seed,
        )
        for engine in args.store or ("postgresql", "redis")
    }
    if args.json:
        print(json.dumps({engine: report.as_json() for engine, report in reports.items()}))
    else:
        for report in reports.values():
            print(report.table(), end="\n\n")
    if any(not figure.ok for report in reports.values() for figure in report.figures):
        raise SystemExit("deliveries were lost or doubled")


if __name__ == "__main__":
    main()
