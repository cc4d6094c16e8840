"""A server that is killed and started again in the middle of the load: it is told, and nothing is lost.

Both servers are the test's own. They keep what they have answered for: PostgreSQL always, Redis because it
writes and syncs its log before each answer.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from goaitools_py import Chat, StateConflictError, StoreUnavailableError, event
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered

from ._places import DRIVERS, Place, maker
from ._private import Server, private_postgres, private_redis, wait_for
from ._racer import ids_in

WORKERS, TURNS, DEATHS = 4, 30, 2
KEYS = ("chat-0", "chat-1")
TRIES = 2_000

T = TypeVar("T")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Redis keeps its log."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server; making one takes seconds, so that the tests share it."""
    with private_postgres() as server:
        yield server


def takes_queries(address: str) -> bool:
    """Whether a PostgreSQL server is ready: it listens before it is."""
    try:
        psycopg.connect(f"postgresql://{address}/postgres").close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def served(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Server, Place]]:
    """A server of the test's own, and an empty place in it for the kind of store that the test names."""
    kind: str = request.param
    if kind.startswith("redis"):
        with private_redis(folder) as server:
            yield server, Place(kind, f"redis://127.0.0.1:{server.port}/0#mine")
    else:
        server = request.getfixturevalue("postgres")
        address, name = f"postgres@127.0.0.1:{server.port}", f"mine_{kind.replace('-', '_')}"
        wait_for(lambda: takes_queries(address), "the server has started")
        with closing(psycopg.connect(f"postgresql://{address}/postgres", autocommit=True)) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name}")
        yield server, Place(kind, f"{DRIVERS[kind]}://{address}/{name}")


class Load:
    """Workers that take deliveries into conversations, whatever happens to the server."""

    def __init__(self, stores: list[Face]) -> None:
        self.accepted: Counter[tuple[str, str]] = Counter()
        self.errors: list[BaseException] = []
        self.refused = [threading.Event() for _ in stores]
        self._changed = threading.Condition()
        self._chat = Chat("openai:MODEL")
        self.threads = [
            threading.Thread(target=self._work, args=(number, store)) for number, store in enumerate(stores)
        ]

    def wait_for_accepted(self, count: int) -> None:
        """Wait until this many deliveries were accepted."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.accepted.total() >= count or self.errors, 120.0)

    def all_were_refused(self) -> bool:
        """Whether each worker that is not done was refused, and at least one was."""
        pairs = list(zip(self.refused, self.threads, strict=True))
        return all(e.is_set() or not t.is_alive() for e, t in pairs) and any(e.is_set() for e, _ in pairs)

    def _work(self, worker: int, store: Face) -> None:
        try:
            for turn in range(TURNS):
                self._take(worker, store, KEYS[turn % len(KEYS)], f"{worker}-{turn}")
        except BaseException as error:
            self.errors.append(error)

    def _take(self, worker: int, store: Face, key: str, id: str) -> None:
        """One delivery, until it is stored. What was grown is saved again, not made again."""
        while True:
            stored = self._until_it_answers(worker, lambda: store.load(key))
            blob = stored.blob if stored else None
            if id in ids_in(blob):
                break  # a save that landed although nobody could say so
            grown = self._chat.append_to_state(blob, event(f"delivery {id}", id=id))
            expected = stored.version if stored else None
            try:
                self._until_it_answers(
                    worker, lambda grown=grown, expected=expected: store.save(key, grown, expected=expected)
                )
                break
            except StateConflictError:
                continue
        with self._changed:
            self.accepted[key, id] += 1
            self._changed.notify_all()

    def _until_it_answers(self, worker: int, call: Callable[[], T]) -> T:
        pause = threading.Event()
        for _ in range(TRIES):
            try:
                return call()
            except StoreUnavailableError:
                self.refused[worker].set()
                pause.wait(0.03)
        raise AssertionError("the server did not come back")


@pytest.mark.parametrize(
    "served", ["postgresql", "postgresql-async", "postgresql-asyncpg", "redis", "redis-async"], indirect=True
)
def test_a_server_that_dies_costs_nothing(served: tuple[Server, Place]) -> None:
    """Killed twice under load: workers meet `StoreUnavailableError`, save later, and all is there once."""
    server, place = served
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        stores = [Face(stack.enter_context(entered(maker(place), loop)), loop) for _ in range(WORKERS)]
        load = Load(stores)
        for thread in load.threads:
            thread.start()

        for death in range(1, DEATHS + 1):
            load.wait_for_accepted(WORKERS * TURNS * death // (DEATHS + 2))
            server.kill()
            for refused in load.refused:
                refused.clear()
            wait_for(load.all_were_refused, "every worker has met the dead server")
            server.start()
        for thread in load.threads:
            thread.join(180.0)

        assert load.errors == []
        wanted = {
            (KEYS[turn % len(KEYS)], f"{worker}-{turn}") for worker in range(WORKERS) for turn in range(TURNS)
        }
        assert load.accepted == Counter(wanted)
        last = load._until_it_answers
        kept = [(key, id) for key in KEYS for id in ids_in(last(0, lambda key=key: stores[0].load(key)).blob)]
        assert Counter(kept) == Counter(wanted)


@pytest.mark.parametrize("served", ["postgresql", "redis"], indirect=True)
def test_a_server_that_is_away_is_told(served: tuple[Server, Place]) -> None:
    """Each method raises the store's error over the driver's, and works when the server is back."""
    server, place = served
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = Face(stack.enter_context(entered(maker(place), loop)), loop)
        version = store.save("ada", b"blob", expected=None)
        with store.lease("ada", 60.0) as renew:
            server.kill()
            calls: dict[str, Callable[[], object]] = {
                "load": lambda: store.load("ada"),
                "save": lambda: store.save("ada", b"more", expected=version),
                "delete": lambda: store.delete("ada"),
                "list": lambda: store.list(),
                "lease": lambda: store.lease("bob", 60.0).__enter__(),
                "renew": renew,
            }
            for name, call in calls.items():
                with pytest.raises(StoreUnavailableError, match=r"err\.sdk_error") as caught:
                    call()
                assert caught.value.__cause__ is not None, name

        server.start()

        stored = Load([store])._until_it_answers(0, lambda: store.load("ada"))
        assert stored is not None
        assert (stored.blob, stored.version) == (b"blob", version)
        assert store.save("ada", b"more", expected=version) == version + 1
