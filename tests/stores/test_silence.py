"""Clients that wait for ever: they are named once, and a store ends what it can end itself."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import sqlalchemy
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy.ext.asyncio import create_async_engine

from goaitools_py import StoreUnavailableError
from goaitools_py.stores import (
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    RedisStore,
    SQLAlchemyStore,
    clients,
    taking,
)
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered

from ._places import DRIVERS, MARIADB, POSTGRES, Place, maker, mariadb_database
from ._wire import Cut, wire_to


@pytest.mark.parametrize("place", ["postgresql", "postgresql-async"], indirect=True)
def test_a_driver_without_a_setting_does_not_wait_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg has none. The store ends the connection, also in a call that no turn has made."""
    monkeypatch.setattr(clients, "SILENCE", 0.3)
    with ExitStack() as stack:
        wire, detour = stack.enter_context(wire_to(place))
        loop = stack.enter_context(closing(Loop()))
        store = Face(stack.enter_context(entered(maker(detour), loop)), loop)
        version = store.save("ada", b"1", expected=None)
        wire.arm(Cut("answer", 0, "stall"))
        began = time.monotonic()

        with pytest.raises(StoreUnavailableError):
            store.load("ada")

        assert time.monotonic() - began < 10.0
        assert not wire.has_run_out
        assert store.save("ada", b"2", expected=version) == version + 1


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found: Any = [one for one in caplog.records if getattr(one, "event", "") == "store.no_timeout"]
    assert all(one.levelno == logging.WARNING and one.setting in one.getMessage() for one in found)
    return [(one.driver, one.setting) for one in found]


@pytest.mark.parametrize(
    ("given", "told"), [({}, [("pymysql", "read_timeout")]), ({"read_timeout": 7, "connect_timeout": 3}, [])]
)
def test_an_engine_without_a_limit_is_named_once(
    given: dict[str, int], told: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """However many stores are over it, and however many connections it makes."""
    with mariadb_database() as url:
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, connect_args=given)
        stores = [SQLAlchemyStore(engine), SQLAlchemyStore(engine)]
        for store in stores:
            store.load("ada")
            store.load("bob")
            assert store.longest_wait == (17.0 if given else inf)
    assert warnings_in(caplog) == told


@pytest.mark.parametrize(
    ("url", "setting"), [(POSTGRES, ""), (MARIADB.replace("pymysql", "asyncmy"), "read_timeout")]
)
def test_an_async_engine_without_a_limit_is_named(
    url: str, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    """That of psycopg needs no setting."""
    if setting:
        with mariadb_database() as made:
            _load_once(made.replace("pymysql", "asyncmy"))
    else:
        _load_once(url)
    assert [found for _, found in warnings_in(caplog)] == ([setting] if setting else [])


def _load_once(url: str) -> None:
    with closing(Loop()) as loop:
        engine = create_async_engine(url, poolclass=sqlalchemy.NullPool)
        loop.run(AsyncSQLAlchemyStore(engine).load("ada"))
        loop.run(engine.dispose())


def test_a_client_of_redis_without_a_limit_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """For one with a limit it is known when a call has ended: tries, and the pauses between them."""
    endless: Any = redis.Redis(socket_timeout=None)
    limited = redis.Redis(socket_timeout=2, socket_connect_timeout=1, retry=Retry(NoBackoff(), 1))
    awaited: Any = redis.asyncio.Redis(socket_timeout=None)

    assert RedisStore(endless).longest_wait == RedisStore(endless).longest_wait == inf
    assert RedisStore(limited).longest_wait == 2 * 3 + 10
    assert AsyncRedisStore(awaited).longest_wait == inf

    assert warnings_in(caplog) == [("redis-py", "socket_timeout")] * 2


def test_stores_on_this_machine_need_no_limit(tmp_path: Path) -> None:
    """Their calls stay in the thread of the caller."""
    engine = sqlalchemy.create_engine(f"{DRIVERS['sqlalchemy-sqlite']}:///{tmp_path / 'states.db'}")
    assert SQLAlchemyStore(engine).longest_wait == 0.0


def test_a_lease_that_cannot_be_given_back_does_not_hold_a_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server answers neither to the lease nor to its end."""
    monkeypatch.setattr(taking, "PATIENCE", 0.1)

    class Silent:
        is_taken = False

        async def release(self) -> None:
            await asyncio.Event().wait()

    async def take() -> None:
        async with taking.taking_async(Silent()):
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(take())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5.0)
        is_over = task.cancelled()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert is_over

    asyncio.run(main())
