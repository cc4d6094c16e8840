"""A parent that uses something, forks children that use it too, and goes on: run in a process of its own.

    python -m tests.forks._families sqlite '{"url": "states.sqlite3", "children": 8, "calls": 500}'

What the store accepted stands in one file for each process, written after the store said that it saved.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
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

from goaitools_py import (
    AsyncChat,
    Chat,
    ChatResult,
    ProviderUnavailableError,
    StateConflictError,
    StoreUnavailableError,
    backends,  # it and `stores` import what a family uses, and no more
    stores,
)
from goaitools_py.types.errors import LeaseHeldError

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
    store = stores.AsyncSQLiteStore(url)

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
    used, unused = stores.SQLAlchemyStore(engine), stores.SQLAlchemyStore(sqlalchemy.create_engine(url))
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

    store = stores.AsyncSQLAlchemyStore(create_async_engine(url, pool_size=2))

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
    used, unused = (stores.AsyncRedisStore(client, prefix=prefix) for client in clients)

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
    made, used = stores.SQLiteStore(url), stores.SQLiteStore(url)
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


def _backend(wire: str, is_async: bool, made: str) -> Any:
    """What a chat is made of: a name, a backend with a client of its own, or with one that is handed in."""
    if made == "name":
        return f"{wire}:m"
    prefix = "Async" if is_async else ""
    class_name = {"openai": "OpenAIChat", "openai-responses": "OpenAIResponses", "anthropic": "Anthropic"}
    backend = getattr(backends, f"{prefix}{class_name[wire]}Backend")
    if made == "backend":
        return backend("m")
    if made == "http":
        return backend("m", http_client=getattr(importlib.import_module("httpx2"), f"{prefix}Client")())
    name = "Anthropic" if wire == "anthropic" else "OpenAI"
    return backend("m", client=getattr(importlib.import_module(name.lower()), f"{prefix}{name}")())


def _is_reply(result: ChatResult, said: str) -> None:
    assert result.text == f"[simulated] {said}", f"{result.text!r} is not the reply to {said!r}"


def run_chat(wire: str, made: str, children: int, calls: int) -> int:
    """A chat is used, and forked while another thread uses it; every process gets its own replies."""
    chat = Chat(_backend(wire, False, made))

    def use(name: str) -> None:
        state = None
        for call in range(calls):
            said = f"{name}: {call}"
            result = chat.chat_with_state(state if call % 5 else None, user=said)
            _is_reply(result, said)
            state = result.state

    use("before")
    busy = threading.Thread(target=use, args=("thread",))
    busy.start()
    pids = fork(children, lambda child: use(f"child {child}"))
    use("parent")
    busy.join()
    failed = join(pids)
    use("after")
    return failed


def run_async_chat(wire: str, made: str, children: int, calls: int) -> int:
    """As `run_chat`, on event loops; the fork happens while the parent's loop runs."""
    chat = AsyncChat(_backend(wire, True, made))

    async def use(name: str) -> None:
        async def one(call: int) -> None:
            said = f"{name}: {call}"
            _is_reply(await chat.chat(user=said), said)

        for call in range(0, calls, 5):
            await asyncio.gather(*(one(call + beside) for beside in range(5)))

    async def family() -> int:
        await use("before")
        loop, busy = asyncio.get_running_loop(), asyncio.create_task(use("task"))
        await asyncio.sleep(0)
        pids = await loop.run_in_executor(None, fork, children, child)
        await use("parent")
        await busy
        failed = await loop.run_in_executor(None, join, pids)
        await use("after")
        return failed

    def child(number: int) -> None:
        asyncio.run(use(f"child {number}"))

    return asyncio.run(family())


def run_handed_in(wire: str, made: str, is_async: bool) -> int:
    """A client that was handed in: used before the fork it is refused, and sends nothing; unused it works."""
    chats = [(AsyncChat if is_async else Chat)(_backend(wire, is_async, made)) for _ in range(2)]

    def ask(chat: Any, said: str) -> None:
        if is_async:
            _is_reply(asyncio.run(chat.chat(user=said)), said)
        else:
            _is_reply(chat.chat(user=said), said)

    def child(number: int) -> None:
        with pytest.raises(ProviderUnavailableError, match="used before this process was forked") as caught:
            ask(chats[0], "refused")
        assert not caught.value.retryable
        ask(chats[1], f"child {number}")

    ask(chats[0], "before")
    failed = join(fork(2, child))
    if not is_async:  # whose client belongs to the loop of the first call
        ask(chats[0], "after")
    return failed


def run_stream(wire: str) -> int:
    """A fork in the middle of a stream: the child can neither read nor end it, and the parent reads on."""
    chat = Chat(f"{wire}:m")
    said = "a rather long text " * 40
    with chat.start(None, user=said) as turn:
        next(turn.text_deltas())

        def child(_: int) -> None:
            with pytest.raises(RuntimeError, match="another process"):
                turn.result()
            turn.cancel()

        failed = join(fork(2, child))
        _is_reply(turn.result(), said)
    return failed


def run_kept(url: str, leave: str) -> int:
    """A fork in the middle of a kept turn: a child that leaves it neither saves it nor ends its lease."""
    store = stores.SQLiteStore(url)
    conversation = Chat("openai:m").conversation(store, "ada")
    said = "a rather long text " * 40
    with conversation.start(said) as turn:
        next(turn.text_deltas())

        def child(_: int) -> None:
            if leave == "close":
                turn.__exit__(None, None, None)
            else:
                turn.cancel()
            with pytest.raises(LeaseHeldError), store.lease("ada", 1.0):
                pass

        failed = join(fork(2, child))
        assert store.load("ada") is None
        _is_reply(turn.result(), said)
    return failed


def run_sim() -> int:
    """A chat with the simulator runs its own one in each process."""
    chat = Chat("sim")
    chat.chat(user="Hello?")
    pids = fork(2, lambda _: _hello(chat))
    chat.close()
    return join(pids)


def _hello(chat: Chat) -> None:
    assert chat.chat(user="Hello?").text.startswith("[simulated]")
    chat.close()


def run_memory(children: int, calls: int) -> int:
    """The lock of a memory store is held by another thread at each fork; a `:memory:` file is copied."""
    store, file = stores.MemoryStore(), stores.SQLiteStore(":memory:")
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
    "chat": run_chat,
    "async_chat": run_async_chat,
    "handed_in": run_handed_in,
    "stream": run_stream,
    "kept": run_kept,
    "sim": run_sim,
}

if __name__ == "__main__":
    sys.exit(RUNS[sys.argv[1]](**json.loads(sys.argv[2])))
