"""A parent that uses something, forks children that use it too, and goes on: run in a process of its own.

    python -m tests.forks._families sqlite '{"url": "states.sqlite3", "children": 8, "calls": 500}'

What the store accepted stands in one file for each process, written after the store said that it saved.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.errors import LeaseHeldError
from goaitools_py.stores import (
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    AsyncSQLiteStore,
    MemoryStore,
    SQLAlchemyStore,
    SQLiteStore,
)

from ..stores._places import Place, opened


def fork(children: int, work: Callable[[int], None]) -> list[int]:
    """Fork children that each carry `work` out and exit with status 0; their process ids."""
    pids = []
    for child in range(children):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(child)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        pids.append(pid)
    return pids


def join(pids: list[int]) -> int:
    """Wait for children; how many failed."""
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)


def saves(store: Any, name: str, calls: int, folder: Path) -> None:
    """Save under keys of this process, and count up under one that all share; note what was accepted."""
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        for call in range(calls):
            key = f"{name}/{call}"
            store.save(key, key.encode(), expected=None)
            log.write(f"{key}\n")
            while call % 5 == 0:
                found = store.load("shared")
                count = int(found.blob) if found else 0
                with suppress(StateConflictError):
                    store.save("shared", b"%d" % (count + 1), expected=found.version if found else None)
                    log.write("shared\n")
                    break


def run_saves(kind: str, url: str, children: int, calls: int, folder: str) -> int:
    """A store is used, forked while another thread uses it, used by all, and closed by the parent first."""
    place, where = Place(kind, url), Path(folder)
    with opened(place) as store:
        store.save("before", b"before", expected=None)
        busy = threading.Thread(target=saves, args=(store, "thread", calls, where))
        busy.start()
        pids = fork(children, lambda child: saves(store, f"child-{child}", calls, where))
        saves(store, "parent", calls // 4, where)
        busy.join()
    return join(pids)


def run_leases(kind: str, url: str, children: int, calls: int, folder: str) -> int:
    """A lease of the parent holds against its children, who take others, and outlives their end."""

    def contend(child: int) -> None:
        for call in range(calls):
            with store.lease(f"{child}/{call}", 60.0) as own:
                assert own.renew()
            try:
                with store.lease("held", 60.0):
                    raise AssertionError("the child took its parent's lease")
            except LeaseHeldError:
                pass

    with opened(Place(kind, url)) as store, store.lease("held", 60.0) as held:
        failed = join(fork(children, contend))
        assert held.renew()
    return failed


def run_async(url: str, children: int, calls: int, folder: str) -> int:
    """An async store is used on a loop; each child uses it on a loop of its own."""
    store = AsyncSQLiteStore(url)

    async def use(name: str) -> None:
        with (Path(folder) / f"{name}.log").open("w", encoding="utf-8") as log:
            for call in range(calls):
                key = f"{name}/{call}"
                await store.save(key, key.encode(), expected=None)
                log.write(f"{key}\n")

    asyncio.run(use("before"))
    pids = fork(children, lambda child: asyncio.run(use(f"child-{child}")))
    asyncio.run(use("parent"))
    asyncio.run(store.aclose())
    return join(pids)


def run_pooled(url: str, null_pool: bool) -> int:
    """An engine over a SQLite file is used before a fork: refused in the child, but for a `NullPool`."""
    import sqlalchemy

    pool = {"poolclass": sqlalchemy.NullPool} if null_pool else {}
    engine = sqlalchemy.create_engine(url, **pool)
    used, unused = SQLAlchemyStore(engine), SQLAlchemyStore(sqlalchemy.create_engine(url))
    used.save("before", b"before", expected=None)

    def child(_: int) -> None:
        unused.save("unused", b"unused", expected=None)
        if null_pool:
            used.save("child", b"child", expected=None)
        else:
            with pytest.raises(StoreUnavailableError, match="poolclass=NullPool"):
                used.load("before")

    failed = join(fork(1, child))
    used.save("parent", b"parent", expected=None)
    return failed


def run_async_engine(url: str, is_refused: bool) -> int:
    """An async engine is used on a loop, and in a child on the child's loop."""
    from sqlalchemy.ext.asyncio import create_async_engine

    store = AsyncSQLAlchemyStore(create_async_engine(url, pool_size=2))

    async def use(key: str) -> None:
        await store.save(key, key.encode(), expected=None)

    async def refused() -> None:
        with pytest.raises(StoreUnavailableError, match="make the engine in each process"):
            await use("child")

    async def family() -> int:
        await use("before")
        loop = asyncio.get_running_loop()
        pids = await loop.run_in_executor(None, fork, 3, child)
        await use("parent")
        failed = await loop.run_in_executor(None, join, pids)
        await use("after")
        return failed

    def child(number: int) -> None:
        asyncio.run(refused() if is_refused else use(f"child-{number}"))

    return asyncio.run(family())


def run_async_redis(url: str) -> int:
    """A client of `redis.asyncio` is refused in a child if it was used before."""
    import redis.asyncio

    url, _, prefix = url.partition("#")
    clients = [redis.asyncio.Redis.from_url(url) for _ in range(2)]
    used, unused = (AsyncRedisStore(client, prefix=prefix) for client in clients)

    async def refused() -> None:
        for act in (used.load("before"), used.list()):
            with pytest.raises(StoreUnavailableError, match="make the client and the store in each process"):
                await act
        await unused.save(f"child-{os.getpid()}", b"child", expected=None)

    async def family() -> int:
        await used.save("before", b"before", expected=None)
        loop = asyncio.get_running_loop()
        pids = await loop.run_in_executor(None, fork, 3, lambda _: asyncio.run(refused()))
        failed = await loop.run_in_executor(None, join, pids)
        await used.save("after", b"after", expected=None)
        await clients[0].aclose()
        return failed

    return asyncio.run(family())


def run_untold(url: str, children: int, calls: int, folder: str) -> int:
    """A server forks without telling Python: an unused store works, one that had the file open refuses."""
    made, used = SQLiteStore(url), SQLiteStore(url)
    used.save("before", b"before", expected=None)
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        status = 1
        try:
            made.save("child/0", b"child/0", expected=None)
            with pytest.raises(StoreUnavailableError, match="py-call-uwsgi-fork-hooks"):
                used.load("before")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    failed = join([pid])
    used.save("parent/0", b"parent/0", expected=None)
    return failed


def run_memory(children: int, calls: int) -> int:
    """The lock of a memory store is held by another thread at each fork; a `:memory:` file is copied."""
    store, file = MemoryStore(), SQLiteStore(":memory:")
    file.save("ada", b"blob", expected=None)
    over = threading.Event()

    def busy() -> None:
        while not over.is_set():
            with store.lease("ada", 60.0):
                store.list()

    def child(_: int) -> None:
        with store.lease("ada", 60.0):
            store.save("ada", b"blob", expected=None)
            assert store.list().keys
        assert file.load("ada") is not None

    threads = [threading.Thread(target=busy)]
    for thread in threads:
        thread.start()
    failed = 0
    for _ in range(calls):
        failed += join(fork(children, child))
    over.set()
    return failed


RUNS = {
    "saves": run_saves,
    "leases": run_leases,
    "async": run_async,
    "pooled": run_pooled,
    "async_engine": run_async_engine,
    "async_redis": run_async_redis,
    "untold": run_untold,
    "memory": run_memory,
}

if __name__ == "__main__":
    sys.exit(RUNS[sys.argv[1]](**json.loads(sys.argv[2])))
