"""A pool, engine or client that cannot lend: the store says what to do, and not to try again later."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from goaitools_py.stores import (
    AsyncCallableStore,
    AsyncPostgresStore,
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    CallableStore,
    PostgresStore,
    RedisStore,
    SQLAlchemyStore,
    Stored,
    common,
)
from goaitools_py.types.errors import StoreError, StoreUnavailableError

NOWHERE = "postgresql://ada:secret@127.0.0.1:1/none"
KEPT = {"autocommit": True}


def misused(call: Callable[[], object]) -> str:
    """The text of the error of a store that is used wrongly: waiting would not help."""
    with pytest.raises(StoreError) as caught:
        call()
    assert not isinstance(caught.value, StoreUnavailableError)
    text = str(caught.value)
    assert "later" not in text
    assert "secret" not in text
    assert caught.value.sdk_error is not None
    return text


def every_call(store: Any) -> list[Callable[[], Any]]:
    """What a turn of a kept conversation asks of a store."""
    return [
        lambda: store.load("ada"),
        lambda: store.save("ada", b"x", expected=None),
        lambda: store.save("ada", b"x", expected=1),
        lambda: store.lease_and_load("ada", 60),
        lambda: store.delete("ada"),
        lambda: store.is_held("ada"),
        lambda: store.list(),
    ]


# ------------------------------------------------------------------------------------------ psycopg


def test_a_pool_of_psycopg_that_was_not_opened() -> None:
    """`open=False` is the advice of psycopg, and to forget the opening is easy."""
    store = PostgresStore(ConnectionPool(NOWHERE, kwargs=KEPT, open=False))

    for call in every_call(store):
        assert "is not open: call pool.open() before the first use" in misused(call)


def test_a_pool_of_psycopg_that_was_closed() -> None:
    """It does not open again."""
    pool = ConnectionPool(NOWHERE, kwargs=KEPT, min_size=0, max_size=1, open=True)
    store = PostgresStore(pool)
    pool.close()

    assert "does not open again, so make another one" in misused(lambda: store.load("ada"))


def test_a_store_with_a_pool_of_its_own_that_was_closed() -> None:
    """The store is what its user knows, and not the pool."""
    with PostgresStore.open(NOWHERE, timeout=0.1) as store, pytest.raises(StoreUnavailableError):
        store.load("ada")  # no server is there, which waiting may mend

    assert "this PostgresStore was closed: make another one" in misused(lambda: store.load("ada"))


# ------------------------------------------------------------------------------------------ asyncpg


def test_a_pool_of_asyncpg_that_was_not_awaited() -> None:
    """`create_pool(url)` gives a pool, and `await create_pool(url)` one that works."""

    async def run() -> list[str]:
        found = []
        for index in range(len(every_call(None))):
            store = AsyncPostgresStore(asyncpg.create_pool(NOWHERE, min_size=0))
            found.append(await _misused(every_call(store)[index]))
        return found

    for text in asyncio.run(run()):
        assert "is not open: write `pool = await asyncpg.create_pool(url)`, with await" in text


@pytest.mark.parametrize("own", [False, True])
def test_a_pool_of_asyncpg_that_was_closed(own: bool) -> None:
    """Whoever made it."""

    async def run() -> str:
        if own:
            store = AsyncPostgresStore.open(NOWHERE, timeout=0.1)
            with pytest.raises(StoreUnavailableError):
                await store.load("ada")
            await store.aclose()
        else:
            pool = await asyncpg.create_pool(NOWHERE, min_size=0)
            store = AsyncPostgresStore(pool)
            await pool.close()
        return await _misused(lambda: store.load("ada"))

    assert "was closed: make another pool" in asyncio.run(run())


def test_a_pool_of_asyncpg_of_another_event_loop() -> None:
    """A pool at the top of a module, and `asyncio.run` twice."""
    made: list[Any] = []

    async def make() -> None:
        made.append(await asyncpg.create_pool(NOWHERE, min_size=0))

    async def use() -> str:
        return await _misused(lambda: AsyncPostgresStore(made[0]).load("ada"))

    asyncio.run(make())

    assert "belong to another event loop" in asyncio.run(use())


async def _misused(call: Callable[[], Any]) -> str:
    """As `misused`, awaited."""
    try:
        await call()
    except StoreError as error:
        return misused(_raising(error))
    raise AssertionError("nothing was raised")


def _raising(error: Exception) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


# --------------------------------------------------------------------------------------- the colours


def _redis(is_async: bool) -> Any:
    import redis
    import redis.asyncio

    return (redis.asyncio if is_async else redis).Redis(port=1)


def _asyncpg_pool() -> Any:
    async def make() -> Any:
        return asyncpg.create_pool(NOWHERE, min_size=0)

    return asyncio.run(make())


def _async_psycopg_pool() -> Any:
    return AsyncConnectionPool(NOWHERE, open=False)


WRONG: dict[str, tuple[Callable[[], object], list[str]]] = {
    "asyncpg, sync": (
        lambda: PostgresStore(_asyncpg_pool()),
        ["a psycopg_pool.ConnectionPool, not Pool of asyncpg", "AsyncPostgresStore takes a pool of asyncpg"],
    ),
    "async psycopg, sync": (
        lambda: PostgresStore(_async_psycopg_pool()),
        ["not AsyncConnectionPool of psycopg", "AsyncPostgresStore takes a pool of asyncpg"],
    ),
    "psycopg, async": (
        lambda: AsyncPostgresStore(ConnectionPool(NOWHERE, open=False)),
        ["a pool of asyncpg, not ConnectionPool of psycopg", "PostgresStore takes a psycopg_pool"],
    ),
    "async psycopg, async": (
        lambda: AsyncPostgresStore(_async_psycopg_pool()),
        ["a pool of asyncpg, not AsyncConnectionPool of psycopg", "AsyncPostgresStore.open(url) makes one"],
    ),
    "a sync engine, async": (
        lambda: AsyncSQLAlchemyStore(create_engine("sqlite://")),  # type: ignore[arg-type]
        ["not Engine, which is for SQLAlchemyStore", "create_async_engine(url)"],
    ),
    "an async engine, sync": (
        lambda: SQLAlchemyStore(create_async_engine("sqlite+aiosqlite://")),  # type: ignore[arg-type]
        ["not AsyncEngine, which is for AsyncSQLAlchemyStore", "create_engine(url)"],
    ),
    "a sync client, async": (lambda: AsyncRedisStore(_redis(False)), ["not one of redis:", "redis.asyncio"]),
    "an async client, sync": (lambda: RedisStore(_redis(True)), ["not one of redis.asyncio"]),
    "async functions, sync": (
        lambda: CallableStore(_aload, _asave),  # type: ignore[arg-type]
        ["the given function is async", "AsyncCallableStore takes async functions"],
    ),
}


async def _aload(key: str) -> Stored | None:
    return None


async def _asave(key: str, blob: bytes, expected: int | None) -> int | None:
    return 1


@pytest.mark.parametrize("name", WRONG)
def test_one_of_the_other_colour_is_refused_where_it_is_given(name: str) -> None:
    """The text names what is wanted, what was found, and who takes that."""
    call, parts = WRONG[name]

    with pytest.raises(TypeError) as caught:
        call()

    for part in parts:
        assert part in str(caught.value)


def test_functions_that_are_not_async_are_named_at_their_first_call() -> None:
    """A function may give an awaitable without being async, so that nothing can be said before."""
    store = AsyncCallableStore(lambda key: None, lambda key, blob, expected: 1)  # type: ignore[arg-type,return-value]

    with pytest.raises(TypeError, match="load function of an AsyncCallableStore must be async"):
        asyncio.run(store.load("ada"))
    works = AsyncCallableStore(
        lambda key: _aload(key), lambda key, blob, expected: _asave(key, blob, expected)
    )
    assert asyncio.run(works.load("ada")) is None


@pytest.mark.parametrize(
    "text",
    [
        "Task <x> got Future <y> attached to a different loop",
        "<asyncio.locks.Event> is bound to a different event loop",
        "Event loop is closed",
    ],
)
def test_a_connection_of_another_loop_is_no_outage(text: str) -> None:
    """Whatever the engine: the drivers tell of it by Python's own errors."""
    error = common.unavailable("Redis", RuntimeError(text))

    assert not isinstance(error, StoreUnavailableError)
    assert "in the event loop that uses them" in str(error)
    assert isinstance(common.unavailable("Redis", RuntimeError("no")), StoreUnavailableError)
    assert isinstance(common.unavailable("Redis", OSError(text)), StoreUnavailableError)


def test_a_redis_client_of_another_loop_is_told(monkeypatch: Any) -> None:
    """redis-py passes the error of asyncio on."""
    client = _redis(True)

    async def fails(*args: Any, **given: Any) -> Any:
        raise RuntimeError("Event loop is closed")

    monkeypatch.setattr(client, "execute_command", fails)
    assert inspect.iscoroutinefunction(client.execute_command)

    text = asyncio.run(_misused(lambda: AsyncRedisStore(client).load("ada")))

    assert "the connections to Redis belong to another event loop" in text
