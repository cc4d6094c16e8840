"""PgBouncer before 1.21 between a store and PostgreSQL: it does not keep prepared statements.

With several connections to the server it sends a statement to one that does not know it, or, worse, knows
another one by that name. The test holds its servers in turns, so that each statement meets another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from goaitools_py import AsyncChat, Chat, StoreUnavailableError
from goaitools_py.stores import (
    AsyncPostgresStore,
    AsyncSQLAlchemyStore,
    PostgresStore,
    SQLAlchemyStore,
)
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered
from goaitools_py.types.errors import StoreError

from ._places import postgres_database
from ._private import private_pgbouncer

SERVERS, TURNS = 3, 9


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_database() as url, PostgresStore.open(_plain(url)) as store:
        store.make_tables()
        yield url


def _plain(url: str) -> str:
    return url.replace("+psycopg", "")


class Held:
    """A pooled database whose servers change: of all but one, another client is in a transaction."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        engine = sqlalchemy.create_engine(
            url, poolclass=sqlalchemy.NullPool, connect_args={"prepare_threshold": None}
        )
        self._clients = [stack.enter_context(engine.connect()) for _ in range(SERVERS)]
        self._next = 0
        for client in self._clients[1:]:
            client.execute(sqlalchemy.text("SELECT 1"))

    def change(self) -> None:
        """Take the free server, and free another one."""
        self._clients[self._next].execute(sqlalchemy.text("SELECT 1"))
        self._next = (self._next + 1) % SERVERS
        self._clients[self._next].rollback()


@contextmanager
def held(url: str, mode: str = "transaction") -> Iterator[Held]:
    with private_pgbouncer(url, mode, SERVERS) as via, ExitStack() as stack:
        yield Held(via, stack)


def stores_of(kind: str, url: str, **how: Any) -> Callable[[], Any]:
    """What opens a store by way of PgBouncer."""
    if kind == "postgres":
        return lambda: PostgresStore.open(_plain(url), max_connections=1, **how)
    if kind == "postgres-async":

        @asynccontextmanager
        async def begun() -> AsyncIterator[Any]:
            async with AsyncPostgresStore.open(_plain(url), max_connections=1, **how) as store:
                yield store

        return begun
    if kind == "postgres-pool-async":

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            import asyncpg  # type: ignore[import-untyped]

            async with asyncpg.create_pool(_plain(url), min_size=1, max_size=1) as pool:
                yield AsyncPostgresStore(pool, **how)

        return opened
    if "async" not in kind:

        @contextmanager
        def made() -> Iterator[Any]:
            engine = sqlalchemy.create_engine(url, pool_size=1, max_overflow=0)
            yield SQLAlchemyStore(engine, **how)
            engine.dispose()

        return made

    @asynccontextmanager
    async def amade() -> AsyncIterator[Any]:
        at = url.replace("psycopg", "asyncpg") if kind == "postgresql-asyncpg" else url
        engine = create_async_engine(at, pool_size=1, max_overflow=0)
        yield AsyncSQLAlchemyStore(engine, **how)
        await engine.dispose()

    return amade


def turns(pooled: Held, made: Callable[[], Any], is_async: bool, parts: str) -> list[str]:
    """Have turns. The servers change between the load of a turn and its save, and after that."""

    def answer(_: Any) -> str:
        pooled.change()
        return "Hello."

    found: list[str] = []
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = stack.enter_context(entered(made, loop))
        chat: Any = (AsyncChat if is_async else Chat)(ScriptedBackend(*[answer] * TURNS))
        kept = chat.conversation(store, f"ada-{parts}", parts=parts)
        for number in range(TURNS):
            done = kept.send(f"{number}?")
            found.append((loop.run(done) if is_async else done).text)
            pooled.change()
    return found


OPENED = ("postgres", "postgres-async")
ALONE = (*OPENED, "postgres-pool-async", "postgresql", "postgresql-async")


@pytest.mark.parametrize("parts", ["store", "inline"])
@pytest.mark.parametrize("kind", ALONE)
def test_a_store_sees_the_pooler_by_itself(kind: str, parts: str, database: str) -> None:
    """No option is given, and all turns are had."""
    with held(database) as pooled:
        found = turns(pooled, stores_of(kind, pooled.url), "async" in kind, parts)
    assert found == ["Hello."] * TURNS


@pytest.mark.parametrize("kind", [*OPENED, "postgresql", "postgresql-async", "postgresql-asyncpg"])
def test_prepare_false(kind: str, database: str) -> None:
    """The application says so. It is the only way for SQLAlchemy over asyncpg."""
    with held(database) as pooled:
        found = turns(pooled, stores_of(kind, pooled.url, prepare=False), "async" in kind, "store")
    assert found == ["Hello."] * TURNS


def first_refusal(pooled: Held, made: Callable[[], Any]) -> Exception:
    """Load again and again, each time from another server; what the store says of it."""
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = Face(stack.enter_context(entered(made, loop)), loop)
        for _ in range(30):
            try:
                store.load("ada")
            except Exception as error:
                return error
            pooled.change()
    raise AssertionError("no load was refused")


@pytest.mark.parametrize(
    ("kind", "prepare"),
    [
        ("postgres", True), ("postgres-async", True), ("postgres-pool-async", True), ("postgresql", True),
        ("postgresql-async", True), ("postgresql-asyncpg", None), ("postgresql-asyncpg", True),
    ],
)  # fmt: skip
def test_statements_that_are_prepared_all_the_same(kind: str, prepare: bool | None, database: str) -> None:
    """The error says what is in between, and what to do. Waiting would not help."""
    with held(database) as pooled:
        error = first_refusal(pooled, stores_of(kind, pooled.url, prepare=prepare))
    assert isinstance(error, StoreError)
    assert not isinstance(error, StoreUnavailableError)
    assert not error.retryable
    assert "PgBouncer" in str(error)
    assert "prepare=False" in str(error)
    assert "later" not in str(error)


@pytest.mark.parametrize("kind", ["postgres", "postgres-async"])
def test_single_statements_are_pooled(kind: str, database: str) -> None:
    """A PostgresStore needs no transaction."""
    with private_pgbouncer(database, "statement") as url, ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = Face(stack.enter_context(entered(stores_of(kind, url), loop)), loop)
        version = store.save_parts(f"bob-{kind}", b"1", (), (), expected=None)
        assert store.save(f"bob-{kind}", b"2", expected=version) == version + 1
        with store.lease(f"bob-{kind}", 10.0):
            assert store.is_held(f"bob-{kind}")


@pytest.mark.parametrize(
    "kind", ["postgres-pool-async", "postgresql", "postgresql-async", "postgresql-asyncpg"]
)
def test_single_statements_where_a_transaction_is_needed(kind: str, database: str) -> None:
    """It is said at the first call, before a model is paid."""
    with private_pgbouncer(database, "statement") as url, ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = Face(stack.enter_context(entered(stores_of(kind, url), loop)), loop)
        with pytest.raises(StoreError, match="set pool_mode to transaction") as caught:
            store.load("ada")
    assert not isinstance(caught.value, StoreUnavailableError)


def test_without_a_pooler_statements_are_prepared(database: str) -> None:
    """The look does not turn them off where they save something."""
    with PostgresStore.open(_plain(database), max_connections=1) as store:
        for _ in range(8):
            store.load("ada")
        with store._pool.connection() as connection:
            names = connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
    assert names


def test_many_stores_over_an_engine_listen_to_it_once() -> None:
    """An application may make a store for each request; what an engine is told stays with it."""
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1/none")
    listeners = set()

    for _ in range(3):
        AsyncSQLAlchemyStore(engine, prepare=False)
        listeners.add(len(engine.sync_engine.dialect.dispatch.do_connect))

    assert len(listeners) == 1
