"""Where the tests keep blobs: databases and key prefixes of their own on real servers, dropped afterwards.

The servers' addresses come from the environment; `GOAITOOLS_TEST_POSTGRES` and `GOAITOOLS_TEST_MARIADB` are
URLs of SQLAlchemy, `GOAITOOLS_TEST_REDIS` is one of Redis. A store is named by a kind and a URL, so that
another process can open the same one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from goaitools_py import stores  # which imports a kind of store when it is used

POSTGRES = (
    os.environ.get("GOAITOOLS_TEST_POSTGRES") or "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"
)
MARIADB = os.environ.get("GOAITOOLS_TEST_MARIADB") or "mysql+pymysql://root@127.0.0.1:3306/"
REDIS = os.environ.get("GOAITOOLS_TEST_REDIS") or "redis://127.0.0.1:6379/0"

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgresql-async": "postgresql+psycopg",
    "postgresql-asyncpg": "postgresql+asyncpg",
    "mariadb": "mysql+pymysql",
    "mariadb-async": "mysql+asyncmy",
    "sqlalchemy-sqlite": "sqlite",
    "sqlalchemy-sqlite-async": "sqlite+aiosqlite",
}
KINDS = (
    "memory", "memory-async", "sqlite", "sqlite-async", "callable", "callable-async",
    *DRIVERS, "postgres", "postgres-async", "redis", "redis-async", "redis-decoding",
)  # fmt: skip
SHARED = ("sqlite", "sqlalchemy-sqlite", "postgresql", "postgres", "mariadb", "redis")
"""The kinds that several processes can use at once, each engine once."""


class Place(NamedTuple):
    """A store's kind, and where it keeps its blobs."""

    kind: str
    url: str


# ------------------------------------------------------------------------------------------ databases


def _missing(name: str, variable: str, error: Exception) -> None:
    import pytest  # not above: the processes that tests start need none

    pytest.skip(f"no {name} ({type(error).__name__}): start one, or set {variable}")


@contextmanager
def postgres_database(how: str = "") -> Iterator[str]:
    """The URL of an empty PostgreSQL database. `how`: what the statement that makes it says besides."""
    import sqlalchemy

    url = sqlalchemy.make_url(POSTGRES)
    name = f"goaitools_test_{secrets.token_hex(6)}"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f"CREATE DATABASE {name} {how}"))
    except sqlalchemy.exc.OperationalError as error:
        _missing("PostgreSQL", "GOAITOOLS_TEST_POSTGRES", error)
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f"DROP DATABASE {name} WITH (FORCE)"))


@contextmanager
def mariadb_database() -> Iterator[str]:
    """The URL of an empty MariaDB database."""
    import sqlalchemy

    url = sqlalchemy.make_url(MARIADB)
    name = f"goaitools_test_{secrets.token_hex(6)}"
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    except sqlalchemy.exc.OperationalError as error:
        _missing("MariaDB", "GOAITOOLS_TEST_MARIADB", error)
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f"DROP DATABASE {name}"))


@contextmanager
def redis_prefix() -> Iterator[str]:
    """A Redis URL, with a prefix of key names behind a `#`."""
    import redis

    prefix = f"goaitools-test-{secrets.token_hex(6)}"
    with redis.Redis.from_url(REDIS) as client:
        try:
            client.ping()
        except redis.ConnectionError as error:
            _missing("Redis", "GOAITOOLS_TEST_REDIS", error)
        yield f"{REDIS}#{prefix}"
        for name in client.scan_iter(f"{prefix}:*", count=1_000):
            client.delete(name)


@contextmanager
def place_of(kind: str, folder: Path) -> Iterator[Place]:
    """An empty place for a store of a kind."""
    if kind.startswith("postgres"):
        with postgres_database() as url:
            yield Place(kind, _with_driver(kind, url))
    elif kind.startswith("mariadb"):
        with mariadb_database() as url:
            yield Place(kind, _with_driver(kind, url))
    elif kind.startswith("redis"):
        with redis_prefix() as url:
            yield Place(kind, url)
    elif kind.startswith("sqlalchemy-sqlite"):
        yield Place(kind, f"{DRIVERS[kind]}:///{folder / 'states.sqlite3'}")
    else:
        yield Place(kind, str(folder / "states.sqlite3"))


def _with_driver(kind: str, url: str) -> str:
    import sqlalchemy

    driver = DRIVERS.get(kind, "postgresql")
    return sqlalchemy.make_url(url).set(drivername=driver).render_as_string(hide_password=False)


# --------------------------------------------------------------------------------------------- stores


@contextmanager
def opened(place: Place, ttl: float | None = None) -> Iterator[Any]:
    """A blocking store at a place, with connections of its own."""
    if place.kind == "sqlite":
        with stores.SQLiteStore(place.url, busy_timeout=60.0, ttl=ttl) as store:
            yield store
    elif place.kind == "postgres":
        with stores.PostgresStore.open(place.url, ttl=ttl) as store:
            yield store
    elif place.kind.startswith("redis"):
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        url, _, prefix = place.url.partition("#")
        options = {"decode_responses": place.kind == "redis-decoding", "retry": Retry(NoBackoff(), 2)}
        with redis.Redis.from_url(url, **options) as client:
            yield stores.RedisStore(client, ttl=ttl, prefix=prefix, recent=place.kind == "redis-decoding")
    else:
        import sqlalchemy

        engine = sqlalchemy.create_engine(place.url, connect_args=_patience(place))
        try:
            yield stores.SQLAlchemyStore(engine, ttl=ttl)
        finally:
            engine.dispose()


def _patience(place: Place) -> dict[str, float]:
    """How long a driver waits: for another writer, or for an answer."""
    if place.url.startswith("sqlite"):
        return {"timeout": 60.0}
    return {"read_timeout": 60} if place.url.startswith("mysql") else {}


@asynccontextmanager
async def async_opened(place: Place, ttl: float | None = None) -> AsyncIterator[Any]:
    """An async store at a place, with connections of its own."""
    if place.kind == "sqlite-async":
        async with stores.AsyncSQLiteStore(place.url, busy_timeout=60.0, ttl=ttl) as store:
            yield store
    elif place.kind == "postgres-async":
        async with stores.AsyncPostgresStore.open(place.url, ttl=ttl) as store:
            yield store
    elif place.kind == "redis-async":
        import redis.asyncio
        from redis.asyncio.retry import Retry as AsyncRetry
        from redis.backoff import NoBackoff

        url, _, prefix = place.url.partition("#")
        async with redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 2)) as client:
            yield stores.AsyncRedisStore(client, ttl=ttl, prefix=prefix, recent=True)
    else:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(place.url, connect_args=_patience(place))
        try:
            yield stores.AsyncSQLAlchemyStore(engine, ttl=ttl)
        finally:
            await engine.dispose()


def maker(place: Place, ttl: float | None = None) -> Callable[[], Any]:
    """What `store_contract` takes, for a store of any kind. `ttl`: for a kind that may forget."""
    made: Any
    match place.kind:
        case "memory":
            made = stores.MemoryStore()
        case "memory-async":
            made = stores.AsyncMemoryStore()
        case "callable":
            kept = stores.MemoryStore()
            made = stores.CallableStore(
                kept.load, lambda key, blob, expected: kept.save(key, blob, expected=expected)
            )
        case "callable-async":
            akept = stores.AsyncMemoryStore()
            made = stores.AsyncCallableStore(
                akept.load, lambda key, blob, expected: akept.save(key, blob, expected=expected)
            )
        case kind if "async" in kind:
            return lambda: async_opened(place, ttl)
        case _:
            return lambda: opened(place, ttl)
    return lambda: made
