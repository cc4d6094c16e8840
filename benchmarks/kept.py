"""What a turn costs when its conversation is kept in a store: the client's own CPU time.

Owns: the same turns over each store that is at hand. Must never know: how time is taken.

The servers are those of the tests: PostgreSQL on 127.0.0.1:5432, MariaDB on 3306, Redis on 6379. A store
whose server does not answer is left out, and the report says so.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from _report import Figure, Report, at_most, info
from _timing import interleaved

from goaitools_py import AsyncChat, Chat
from goaitools_py.stores import (
    AsyncPostgresStore,
    AsyncSQLAlchemyStore,
    MemoryStore,
    PostgresStore,
    RedisStore,
    SQLAlchemyStore,
    SQLiteStore,
)
from goaitools_py.testing import ScriptedBackend

__all__ = ["run"]

QUESTION = "And is my second bag still on the reservation?"
TURNS = 10
"""Turns of each conversation; then the next one begins. So a turn finds 9 messages in the mean."""

POSTGRES = "postgresql://postgres@127.0.0.1:5432/postgres"
MARIADB = "mysql+pymysql://root@127.0.0.1:3306/test"
REDIS = "redis://127.0.0.1:6379/0"
TABLE = f"goaitools_bench_{secrets.token_hex(4)}"

AIMS = {"PostgresStore": 2.3, "AsyncPostgresStore": 2.3, "RedisStore": 1.1, "SQLiteStore": 1.6}
"""Milliseconds of the client."""


def run(*, short: bool = False) -> Report:
    """Measure a turn over each store."""
    with ExitStack() as stack:
        sides, away = _sides(stack)
        # The whole process: a paid turn may be saved in a thread.
        found = interleaved(sides, short=short, rounds_of=TURNS, clock=time.process_time_ns)
    figures: list[Figure] = []
    for name, blocks in found.items():
        ms = blocks.median / 1000
        figures.append(at_most(AIMS[name], name, ms, "ms") if name in AIMS else info(name, ms, "ms"))
    return Report(
        title="A turn of a kept conversation, by store: milliseconds of CPU in the client",
        method=f"conversations of {TURNS} turns, scripted replies, save='turn'; CPU time of the process, all "
        "threads; lease, load, save and release included"
        + (f"; no answer from {', '.join(away)}" if away else ""),
        figures=figures,
    )


def _sides(stack: ExitStack) -> tuple[dict[str, Callable[[], object]], list[str]]:
    replies = ["Yes, both bags are on the reservation."] * 100_000
    chat, achat = Chat(ScriptedBackend(*replies)), AsyncChat(ScriptedBackend(*replies))
    loop = stack.enter_context(_loop())
    sides: dict[str, Callable[[], object]] = {}
    away: list[str] = []
    for name, opened in _OPENED.items():
        try:
            store = stack.enter_context(opened(loop))
            found = store.load("probe")
            if asyncio.iscoroutine(found):
                loop.run_until_complete(found)
        except Exception:
            away.append(name)
            continue
        if name.startswith("Async"):
            sides[name] = _async_side(achat, store, loop)
        else:
            sides[name] = _side(chat, store)
    return sides, away


def _keys() -> Iterator[str]:
    number = 0
    while True:
        key = f"bench-{secrets.token_hex(4)}-{number}"
        number += 1
        for _ in range(TURNS):
            yield key


def _side(chat: Chat, store: Any) -> Callable[[], object]:
    keys = _keys()
    return lambda: chat.conversation(store, next(keys)).send(QUESTION)


def _async_side(chat: AsyncChat, store: Any, loop: asyncio.AbstractEventLoop) -> Callable[[], object]:
    keys = _keys()
    return lambda: loop.run_until_complete(chat.conversation(store, next(keys)).send(QUESTION))


# ------------------------------------------------------------------------------------------------ stores


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


@contextmanager
def _memory(_: Any) -> Iterator[Any]:
    yield MemoryStore()


@contextmanager
def _sqlite(_: Any) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, SQLiteStore(Path(folder) / "states.sqlite3") as store:
        yield store


@contextmanager
def _redis(_: Any) -> Iterator[Any]:
    import redis

    with redis.Redis.from_url(REDIS) as client:
        yield RedisStore(client, prefix=TABLE)
        for name in client.scan_iter(f"{TABLE}:*"):
            client.delete(name)


@contextmanager
def _postgres(_: Any) -> Iterator[Any]:
    with PostgresStore.open(POSTGRES, table=TABLE, timeout=3.0) as store:
        yield store


@contextmanager
def _apostgres(loop: Any) -> Iterator[Any]:
    async def opened() -> AsyncPostgresStore:
        return AsyncPostgresStore.open(POSTGRES, table=TABLE, timeout=3.0)

    store = loop.run_until_complete(opened())
    yield store
    loop.run_until_complete(store.aclose())


def _sqlalchemy(url: str) -> Any:
    @contextmanager
    def opened(_: Any) -> Iterator[Any]:
        import sqlalchemy

        engine = sqlalchemy.create_engine(url)
        yield SQLAlchemyStore(engine, table=TABLE)
        with suppress(Exception), engine.begin() as connection:
            for end in ("_part", "_lease", ""):
                connection.execute(sqlalchemy.text(f"DROP TABLE IF EXISTS {TABLE}{end}"))
        engine.dispose()

    return opened


@contextmanager
def _asqlalchemy(loop: Any) -> Iterator[Any]:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(POSTGRES.replace("postgresql", "postgresql+asyncpg"))
    yield AsyncSQLAlchemyStore(engine, table=TABLE)
    loop.run_until_complete(engine.dispose())


# The engine that drops the tables of PostgreSQL is opened first, so that it is closed last.
_OPENED: dict[str, Any] = {
    "MemoryStore": _memory,
    "SQLiteStore": _sqlite,
    "RedisStore": _redis,
    "SQLAlchemyStore, psycopg": _sqlalchemy(POSTGRES.replace("postgresql", "postgresql+psycopg")),
    "PostgresStore": _postgres,
    "AsyncSQLAlchemyStore, asyncpg": _asqlalchemy,
    "AsyncPostgresStore": _apostgres,
    "SQLAlchemyStore, MariaDB": _sqlalchemy(MARIADB),
}
