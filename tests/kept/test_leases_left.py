"""No lease is left by whoever is interrupted while it is taken, used or given back.

Ctrl-C at each line of the modules of stores and conversations, a cancellation in each await, an event loop
that ends; of stores, and of turns on them.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import os
import sys
import time
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import goaitools_py
from goaitools_py import AsyncChat, Chat, StoreUnavailableError
from goaitools_py.stores import MemoryStore, SQLiteStore
from goaitools_py.testing import ScriptedBackend

from .._threads import in_own_thread
from ..stores._places import Place, async_opened, opened, place_of
from .conftest import Awaited, LeasingStore

HOME = Path(goaitools_py.__file__).parent
SYNC = ("memory", "sqlite", "sqlalchemy-sqlite", "postgresql", "mariadb", "postgres", "redis")
ASYNC = (
    "sqlite-async", "postgresql-async", "postgresql-asyncpg", "mariadb-async", "postgres-async",
    "redis-async",
)  # fmt: skip
"""Without aiosqlite: a statement of it that is cancelled may keep the file locked, whatever it was for. In a
turn the one that takes a lease is not cancelled; see `test_cancels`."""

MOMENTS = int(os.environ.get("GOAITOOLS_LEASE_MOMENTS", "16"))
"""At how many moments a task is cancelled. The long form takes 40."""
LINES, ENDS = MOMENTS * 3 // 2, MOMENTS * 3 // 10
"""At how many lines of a call Ctrl-C comes, and at how many moments an event loop ends."""


# ------------------------------------------------------------------------------------------- Ctrl-C


def lines_of(call: Callable[[], Any], at: int | None = None) -> int:
    """Count the lines of stores and conversations that a call executes, or raise Ctrl-C at one of them.

    The line of a ``with`` is left out: a trace function runs there also between the block and its end, where
    Python itself looks for no signal.
    """
    count = 0

    def line(frame: types.FrameType, what: str, _: Any) -> Any:
        nonlocal count
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if what == "line" and not text.lstrip().startswith("with "):
            count += 1
            if count == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return line

    def enter(frame: types.FrameType, what: str, _: Any) -> Any:
        folder = Path(frame.f_code.co_filename).parent
        return line if folder in (HOME / "stores", HOME / "chat" / "kept") else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def some(count: int) -> list[int]:
    return sorted({1 + count * number // LINES for number in range(LINES)})


@pytest.mark.parametrize("kind", SYNC)
@in_own_thread
def test_ctrl_c_in_a_turn_leaves_no_lease(kind: str, tmp_path: Path) -> None:
    """At any line. It comes out, and the next turn begins at once."""
    left: list[int] = []
    with place_of(kind, tmp_path) as place, opened_store(place) as store:
        chat = Chat(ScriptedBackend(*["Hello."] * 500))
        conversation = chat.conversation(store, "ada", gate="reject")
        for _ in range(6):  # psycopg prepares a statement when it is used for the sixth time
            conversation.send("Hello?")
        count = lines_of(lambda: conversation.send("Hello?"))
        for at in some(count):
            with pytest.raises(KeyboardInterrupt):
                lines_of(lambda: conversation.send("Hello?"), at)
            gc.collect()
            if store.is_held("ada"):
                left.append(at)
                chat.conversation(store, "ada").send("Hello?")
        assert conversation.send("Hello?").text == "Hello."
    print(f"{kind}: Ctrl-C at {len(some(count))} of {count} lines")
    assert left == []


def opened_store(place: Place) -> AbstractContextManager[Any]:
    if place.kind == "memory":
        return nullcontext(MemoryStore())
    return opened(place)


# --------------------------------------------------------------------------------------- cancellations


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncmy, if it is cancelled as it connects
@pytest.mark.parametrize("kind", ASYNC)
def test_a_cancellation_while_a_lease_is_taken(kind: str, tmp_path: Path) -> None:
    """Of the store's own methods, without a conversation around them."""
    left: list[str] = []

    async def family(place: Place) -> None:
        async with async_opened(place) as store:

            async def block() -> None:
                async with store.lease("ada", 60.0):
                    await asyncio.sleep(0)

            async def both() -> None:
                lease, _ = await store.lease_and_load("ada", 60.0)
                await asyncio.shield(asyncio.create_task(lease.release()))

            for step in (block, both):
                for _ in range(2):
                    began = time.monotonic()
                    await step()
                    seconds = time.monotonic() - began
                for number in range(MOMENTS):
                    task = asyncio.create_task(step())
                    await asyncio.sleep(seconds * number / MOMENTS)
                    task.cancel()
                    await asyncio.wait([task])
                    await _until_free(store, f"{step.__name__} at {number}", left)

    with place_of(kind, tmp_path) as place:
        asyncio.run(family(place))
        gc.collect()
    assert left == []


async def _until_free(store: Any, what: str, left: list[str]) -> None:
    """A release that a cancellation met is on its way: the lease ends soon, and not after a minute."""
    end = time.monotonic() + 5.0
    while await store.is_held("ada"):
        if time.monotonic() > end:
            left.append(what)
            return
        await asyncio.sleep(0.001)


# The pools learn of the end of the loop when it is too late to give a connection back.
@pytest.mark.filterwarnings("ignore:The garbage collector is trying", "ignore::ResourceWarning")
@pytest.mark.parametrize("kind", ASYNC)
def test_an_event_loop_that_ends(kind: str, tmp_path: Path) -> None:
    """`asyncio.run` cancels all tasks when its coroutine returns: also the one that takes the lease."""
    left: list[int] = []
    chat = AsyncChat(ScriptedBackend(*["Hello."] * 200))

    async def talk(place: Place, share: float | None) -> float:
        async with async_opened(place) as store:
            await store.load("ada")  # the connection is there
            began = time.monotonic()
            task = asyncio.create_task(chat.conversation(store, "ada").send("Hello?"))
            if share is None:
                await task
                return time.monotonic() - began
            await asyncio.sleep(share)
            for other in asyncio.all_tasks() - {asyncio.current_task()}:
                other.cancel()
            await asyncio.wait([task])
            return 0.0

    async def is_held(place: Place) -> bool:
        async with async_opened(place) as store:
            return bool(await store.is_held("ada"))

    with place_of(kind, tmp_path) as place:
        seconds = min(asyncio.run(talk(place, None)) for _ in range(2))
        for number in range(ENDS):
            asyncio.run(talk(place, seconds * number / ENDS))
            gc.collect()
            if asyncio.run(is_held(place)):
                left.append(number)
                break
    assert left == []


class SlowContext:
    """A lease of an application's own: a class, and no generator with a ``finally``. It has no `release`."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    async def __aenter__(self) -> Any:
        await _rounds()
        held = self._lease.__enter__()
        await _rounds()
        return _Renewable(held)

    async def __aexit__(self, *_: Any) -> None:
        await _rounds()
        self._lease.__exit__(None, None, None)
        await _rounds()


class _Renewable:
    def __init__(self, lease: Any) -> None:
        self._lease = lease

    async def renew(self) -> bool:
        return bool(self._lease.renew())


class SlowStore(Awaited):
    """A store of an application's own, with such leases. It cannot be asked who has one."""

    def lease(self, key: str, ttl: float) -> SlowContext:
        return SlowContext(self._store.lease(key, ttl))


async def _rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("act", ["send", "stop", "redact", "compact", "is_running"])
def test_a_lease_of_ones_own(leasing: LeasingStore, act: str) -> None:
    """It is given back wherever the cancellation comes: in its beginning, in its end, or between."""

    async def family() -> int:
        store = SlowStore(leasing)
        chat = AsyncChat(ScriptedBackend(*["Hello."] * 200))
        await chat.conversation(store, "ada").send("Hello?")
        for at in range(100):
            conversation = chat.conversation(store, "ada", gate="reject")
            if act == "stop":
                turn = conversation.start("Hello?")
                task = asyncio.create_task(turn.result())
            else:
                given = {"send": ("Hello?",), "redact": ("nothing",)}.get(act, ())
                task = asyncio.create_task(getattr(conversation, act)(*given))
            for _ in range(at):
                await asyncio.sleep(0)
            is_over = task.done()
            if act == "stop":
                await turn.cancel()
            task.cancel()
            await asyncio.wait([task])
            if act == "is_running":
                for _ in range(20):  # the look goes on, and ends by itself
                    await asyncio.sleep(0)
            assert not leasing.is_held("ada"), at
            if is_over:
                return at
        raise AssertionError("it does not end")

    assert asyncio.run(family()) > 10


def test_a_load_that_fails_behind_the_lease(tmp_path: Path) -> None:
    """The combined step takes the lease first. If it fails then, the caller has nothing to give back."""
    with SQLiteStore(tmp_path / "states.sqlite3") as store:
        Chat(ScriptedBackend("Hello.")).conversation(store, "ada").send("Hello?")
        store._steps.load = store._steps.load_head = _fails  # type: ignore[method-assign]
        for step in (store.lease_and_load, store.lease_and_load_head):
            with pytest.raises(StoreUnavailableError):
                step("ada", 60.0)
            assert not store.is_held("ada")


def _fails(*_: Any, **__: Any) -> Any:
    raise StoreUnavailableError("away")
