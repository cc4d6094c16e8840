"""The stores that speak to PostgreSQL through a driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from goaitools_py import AsyncChat, Chat, StoreUnavailableError
from goaitools_py.stores import AsyncPostgresStore, PostgresStore, SQLAlchemyStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.errors import StoreError

from ._places import place_of

pytestmark = pytest.mark.service


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    with place_of("postgres", tmp_path) as place:
        yield place.url


def _columns(engine: Any, table: str) -> list[tuple[Any, ...]]:
    found = sqlalchemy.inspect(engine)
    columns = [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in found.get_columns(table)]
    return [
        *columns,
        *found.get_pk_constraint(table)["constrained_columns"],
        *map(str, found.get_foreign_keys(table)),
    ]


def test_the_tables_are_those_of_the_other_store(url: str) -> None:
    """A store over a driver and a store over SQLAlchemy share a conversation, whoever made the tables."""
    engine = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    try:
        theirs = SQLAlchemyStore(engine, table="theirs")
        with PostgresStore.open(url, table="ours") as ours, PostgresStore.open(url, table="theirs") as shared:
            ours.make_tables()
            theirs.save("ada", b"1", expected=None)
            theirs.save_parts("ada", b"2", (), (), expected=theirs.load("ada").version)  # type: ignore[union-attr]
            with theirs.lease("ada", 5.0):
                pass
            for end in ("", "_lease", "_part"):
                made = [str(row).replace("ours", "theirs") for row in _columns(engine, f"ours{end}")]
                assert made == [str(row) for row in _columns(engine, f"theirs{end}")]
            found = shared.load("ada")
            assert found is not None
            assert found.blob == b"2"
            shared.save("ada", b"3", expected=found.version)
            assert theirs.load("ada").blob == b"3"  # type: ignore[union-attr]
    finally:
        engine.dispose()


def test_a_database_without_a_table_of_parts(url: str) -> None:
    """Another store has made the table of conversations alone: its rows are heads without parts."""
    engine = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    try:
        version = SQLAlchemyStore(engine).save("ada", b"1", expected=None)
        with PostgresStore.open(url) as store:
            found = store.load_head("ada")
            assert found is not None
            assert (found.blob, found.version, found.parts) == (b"1", version, ())
            assert store.load_head("bob") is None
            assert store.save_parts("ada", b"2", (), (), expected=version) == version + 1
    finally:
        engine.dispose()


def test_a_table_with_an_odd_name(url: str) -> None:
    """Signs that begin a parameter, or end a name, are part of the name."""
    with PostgresStore.open(url, table='a:key $1 %s "b"') as store:
        version = store.save("ada", b"1", expected=None)
        with store.lease("ada", 60.0):
            assert store.is_held("ada")
        assert [entry.version for entry in store.list("a").keys] == [version]


@pytest.mark.parametrize("prepare", [True, False])
def test_a_conversation(url: str, prepare: bool) -> None:
    """Turns over either colour; with and without prepared statements."""
    with PostgresStore.open(url, prepare=prepare) as store:
        chat = Chat(ScriptedBackend(*["Yes."] * 8))
        for _ in range(8):  # psycopg prepares a statement when it is used for the sixth time
            assert chat.conversation(store, "ada").send("Hello?").text == "Yes."

    async def talk() -> int:
        async with AsyncPostgresStore.open(url, prepare=prepare) as astore:
            achat = AsyncChat(ScriptedBackend(*["No."] * 3))
            await asyncio.gather(*(achat.conversation(astore, f"bob{n}").send("Hello?") for n in range(3)))
            return len((await astore.list("bob")).keys)

    assert asyncio.run(talk()) == 3


def test_a_pool_of_ones_own(url: str) -> None:
    """It is not closed with the store, and it has to be in autocommit mode."""
    from psycopg_pool import ConnectionPool

    with ConnectionPool(url, min_size=1, max_size=2, kwargs={"autocommit": True}) as pool:
        with PostgresStore(pool) as store:
            store.save("ada", b"1", expected=None)
        assert not pool.closed
    with (
        ConnectionPool(url, min_size=1, max_size=1) as pool,
        pytest.raises(StoreError, match="autocommit"),
    ):
        PostgresStore(pool).load("ada")


def test_a_pool_closes_though_a_connection_never_comes_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a loop that has cancelled the task in which asyncpg gives it back."""
    monkeypatch.setattr("goaitools_py.stores.postgres.OPENED", 0.1)

    async def close() -> None:
        store = AsyncPostgresStore.open(url)
        await store.make_tables()
        await store._pool.acquire()
        async with asyncio.timeout(20):
            await store.aclose()
        assert store._pool.get_size() == 0

    asyncio.run(close())


def test_after_a_fork(url: str) -> None:
    """A pool that was used is refused in the child; one that was not works there."""
    with PostgresStore.open(url) as used, PostgresStore.open(url) as fresh:
        used.save("ada", b"1", expected=None)
        child = os.fork()
        if not child:
            code = 1
            try:
                try:
                    used.load("ada")
                except StoreUnavailableError as refused:
                    found = fresh.load("ada")
                    code = 0 if "forked" in str(refused) and found is not None and found.blob == b"1" else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert used.load("ada") is not None


def test_a_connection_that_breaks(url: str) -> None:
    """A connection that the server ended costs one refused call at most; the pool gets another one."""
    with PostgresStore.open(url, max_connections=1) as store:
        version = store.save("ada", b"1", expected=None)
        engine = sqlalchemy.create_engine(
            url.replace("postgresql", "postgresql+psycopg"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(
                sqlalchemy.text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        engine.dispose()
        # The write did not arrive, and the look at the row has a connection of its own.
        with pytest.raises(StoreUnavailableError) as caught:
            store.save("ada", b"2", expected=version)
        assert "ada" not in str(caught.value)
        assert store.save("ada", b"2", expected=version) == version + 1


def test_nothing_answers() -> None:
    """A server that is away is a StoreUnavailableError, of both colours, without the key."""
    with PostgresStore.open("postgresql://nobody@127.0.0.1:1/none", timeout=0.2) as store:
        with pytest.raises(StoreUnavailableError) as caught:
            store.load("secret-key")
        assert "secret" not in str(caught.value)

    async def load() -> None:
        async with AsyncPostgresStore.open("postgresql://nobody@127.0.0.1:1/none", timeout=0.2) as astore:
            await astore.load("secret-key")

    with pytest.raises(StoreUnavailableError):
        asyncio.run(load())
