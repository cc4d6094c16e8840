"""A store that is away for a moment, such as a full pool: no paid turn is lost, and no lease is left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from goaitools_py import AsyncChat, Chat, StoreCommitError, StoreError, StoreUnavailableError
from goaitools_py.states import state_messages
from goaitools_py.stores import AsyncSQLAlchemyStore, SQLAlchemyStore
from goaitools_py.testing import ScriptedBackend

from ..stores._places import mariadb_database, place_of
from .conftest import AwaitedLease, FaultyStore, LeasingStore, Threads, blob_in, said

SENDS = 300


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_a_paid_turn_waits_for_its_store(kept: Threads, store: FaultyStore, save: str, fault: str) -> None:
    """The last save fails many times over: it is tried again, looked for first, and stored once."""

    def answer(_: Any) -> str:
        store.faults = [fault] * 6
        return "Hello."

    conversation = kept(ScriptedBackend(answer), store, save=save, save_timeout=60.0)
    result = conversation.send("Hello?")

    assert said(blob_in(store)) == ["Hello?", "Hello."]
    assert blob_in(store) == result.state


def test_a_store_that_is_away_for_a_while(kept: Threads, store: FaultyStore) -> None:
    """Loads fail too, with which a save is looked for: they are tried again as well."""
    loads = 0

    class Away(FaultyStore):
        def _check(self) -> None:
            nonlocal loads
            if self.is_down:
                loads += 1
                self.is_down = loads < 6
                raise StoreUnavailableError("away")

    away = Away()

    def answer(_: Any) -> str:
        away.is_down = True
        return "Hello."

    result = kept(ScriptedBackend(answer), away, save_timeout=60.0).send("Hello?")

    assert loads == 6
    assert blob_in(away) == result.state


def test_what_was_not_paid_for_does_not_wait(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """Without its store a turn fails at once, before a model is asked."""
    backend = ScriptedBackend("Hello.")
    leasing.is_down = True
    with pytest.raises(StoreUnavailableError):
        kept(backend, leasing, save=save, save_timeout=3600.0).send("Hello?")
    assert backend.requests == []


def test_the_wait_for_a_store_ends(kept: Threads, store: FaultyStore) -> None:
    """After `save_timeout` seconds the answer is in the error."""
    store.faults = ["lost"] * 1_000
    with pytest.raises(StoreCommitError) as caught:
        kept(ScriptedBackend("Hello."), store, save_timeout=0.2).send("Hello?")

    assert caught.value.text == "Hello."
    assert 990 < len(store.faults) < 997  # two tries at once, then pauses of 10, 20, 40, 80 ms


class Reluctant(LeasingStore):
    """A lease that can be given back at the third try; the end of its block gives it up."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[Any]:
        with self.inner.lease(key, ttl) as held:
            release = held.release

            def reluctant() -> None:
                self.tries += 1
                if self.tries < 3:
                    raise StoreUnavailableError("the pool is full")
                release()

            held.release = reluctant  # type: ignore[method-assign]
            try:
                yield held
            finally:
                held.release = lambda: None  # type: ignore[method-assign]


class AwaitedReluctant(AwaitedLease):
    """The same, awaited."""

    async def release(self) -> None:
        self._lease.release()


def test_a_release_is_tried_again(kept: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that could not be given back would keep others out until it ends."""
    from . import conftest

    monkeypatch.setattr(conftest, "AwaitedLease", AwaitedReluctant)
    store = Reluctant()
    kept(ScriptedBackend("Hello."), store, save_timeout=60.0).send("Hello?")

    assert store.tries == 3
    assert store.inner._leases == {}


# ------------------------------------------------------------------------------------- a real pool


def _is_sound(url: str, outcomes: Counter[str], replies: dict[str, str]) -> None:
    """Every paid turn was returned and is stored; no lease is left; what failed cost nothing."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    store = SQLAlchemyStore(engine)
    assert outcomes["StoreCommitError"] == 0, outcomes
    assert outcomes["sent"] + outcomes["StoreUnavailableError"] == SENDS, outcomes
    assert outcomes["sent"] == outcomes["asked"] > 0
    for key, reply in replies.items():
        stored = store.load(key)
        assert stored is not None
        assert state_messages(stored.blob)[-1]["content"] == reply
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT count(*) FROM goaitools_state_lease")) == 0


@pytest.mark.parametrize("kind", ["sqlalchemy-sqlite", "postgresql"])
def test_a_full_pool(kind: str, tmp_path: Path) -> None:
    """Two connections for 300 sends at once, on threads."""
    outcomes: Counter[str] = Counter()
    replies: dict[str, str] = {}
    counting = threading.Lock()

    def note(outcome: str) -> None:
        with counting:
            outcomes[outcome] += 1

    def answer(_: Any) -> str:
        note("asked")
        return "Hello."

    with place_of(kind, tmp_path) as place:
        engine = sqlalchemy.create_engine(place.url, pool_size=2, max_overflow=0, pool_timeout=0.3)
        store = SQLAlchemyStore(engine)
        with store.lease("made", 1.0):
            store.save("made", b"", expected=None)
        chat = Chat(ScriptedBackend(*[answer] * SENDS))
        gate = threading.Barrier(SENDS)

        def send(number: int) -> None:
            conversation = chat.conversation(store, f"user-{number}", save_timeout=60.0)
            gate.wait()
            try:
                replies[f"user-{number}"] = conversation.send("Hello?").text
            except StoreError as error:
                note(type(error).__name__)
            else:
                note("sent")

        threads = [threading.Thread(target=send, args=(number,)) for number in range(SENDS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.dispose()
        _is_sound(place.url, outcomes, replies)


@pytest.mark.parametrize("kind", ["sqlalchemy-sqlite-async", "postgresql-asyncpg"])
def test_a_full_pool_on_a_loop(kind: str, tmp_path: Path) -> None:
    """The same, as tasks of one event loop."""
    outcomes: Counter[str] = Counter()
    replies: dict[str, str] = {}

    def answer(_: Any) -> str:
        outcomes["asked"] += 1
        return "Hello."

    async def family(url: str) -> None:
        engine = create_async_engine(url, pool_size=2, max_overflow=0, pool_timeout=0.3)
        store = AsyncSQLAlchemyStore(engine)
        async with store.lease("made", 1.0):
            await store.save("made", b"", expected=None)
        chat = AsyncChat(ScriptedBackend(*[answer] * SENDS))

        async def send(number: int) -> None:
            try:
                conversation = chat.conversation(store, f"user-{number}", save_timeout=60.0)
                replies[f"user-{number}"] = (await conversation.send("Hello?")).text
            except StoreError as error:
                outcomes[type(error).__name__] += 1
            else:
                outcomes["sent"] += 1

        await asyncio.gather(*map(send, range(SENDS)))
        await engine.dispose()

    with place_of(kind, tmp_path) as place:
        asyncio.run(family(place.url))
        plain = "sqlite" if "sqlite" in kind else "postgresql+psycopg"
        url = sqlalchemy.make_url(place.url).set(drivername=plain)
        _is_sound(url.render_as_string(hide_password=False), outcomes, replies)


def test_a_turn_waits_for_a_connection_no_longer_than_its_own_time() -> None:
    """Also over an engine whose driver has limits: the pool's own limit is none of them."""
    with mariadb_database() as url:
        limits = {"connect_timeout": 0.2, "read_timeout": 0.2}
        engine = sqlalchemy.create_engine(
            url, pool_size=1, max_overflow=0, pool_timeout=10.0, connect_args=limits
        )
        store = SQLAlchemyStore(engine)
        store.load("ada")  # the driver's limits are known from here on
        backend = ScriptedBackend()
        began = time.monotonic()

        with engine.connect(), pytest.raises(StoreUnavailableError):
            Chat(backend).conversation(store, "ada").send("Hello?", timeout=1.0)

        assert time.monotonic() - began < 8.0
        assert backend.requests == []
        engine.dispose()
