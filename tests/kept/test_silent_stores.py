"""A store that falls silent: its connections stay open, and nothing answers any more.

Each kind of store that speaks to a server gets a proxy in between, which keeps back all that it is sent. The
clients are made as an application makes them that thinks of no timeout.
"""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from typing import Any

import pytest
import sqlalchemy

from goaitools_py import AsyncChat, Chat, StoreCommitError, StoreUnavailableError, tool
from goaitools_py.chat.kept import row_calls
from goaitools_py.states import state_messages
from goaitools_py.stores import (
    AsyncCallableStore,
    AsyncMemoryStore,
    AsyncPostgresStore,
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    MemoryStore,
    PostgresStore,
    RedisStore,
    SQLAlchemyStore,
)
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered

from ..stores._places import Place, maker, place_of
from ..stores._private import wait_for
from ..stores._wire import Cut, Wire, wire_to

OPENED = ("postgres", "postgres-async")
MADE = (
    "postgres-pool", "postgres-pool-async", "postgresql", "postgresql-async", "postgresql-asyncpg",
    "mariadb", "mariadb-async", "redis", "redis-async",
)  # fmt: skip
SERVED = (*OPENED, *MADE)
SOME = ("postgres", "mariadb", "redis-async")

TIMEOUT, SAVE_TIMEOUT = 1.0, 1.0
SLACK = 4.0
"""Seconds for the moments that follow a silence: a look whether the save was done, the release of the lease,
and a busy machine. Without a limit of ours the proxy would end the wait after 20."""

QUESTION = Cut("question", 0, "hold", is_lasting=True)
ANSWER = Cut("answer", 0, "hold", is_lasting=True)


@contextmanager
def plain(place: Place) -> Iterator[Any]:
    """A store over a client of the application's."""
    if place.kind == "postgres-pool":
        from psycopg_pool import ConnectionPool

        with ConnectionPool(place.url, kwargs={"autocommit": True}, min_size=1) as pool:
            yield PostgresStore(pool)
    elif place.kind.startswith("redis"):
        import redis

        url, _, prefix = place.url.partition("#")
        with redis.Redis.from_url(url, socket_timeout=None) as client:
            yield RedisStore(client, prefix=prefix)
    elif place.kind == "postgres":
        with PostgresStore.open(place.url) as store:
            yield store
    else:
        engine = sqlalchemy.create_engine(place.url, pool_pre_ping=True)
        try:
            yield SQLAlchemyStore(engine)
        finally:
            engine.dispose()


@asynccontextmanager
async def aplain(place: Place) -> AsyncIterator[Any]:
    """As `plain`, awaited."""
    if place.kind == "postgres-pool-async":
        import asyncpg  # type: ignore[import-untyped]

        async with asyncpg.create_pool(place.url, min_size=1) as pool:
            yield AsyncPostgresStore(pool)
    elif place.kind.startswith("redis"):
        import redis.asyncio

        url, _, prefix = place.url.partition("#")
        async with redis.asyncio.Redis.from_url(url, socket_timeout=None) as client:
            yield AsyncRedisStore(client, prefix=prefix)
    elif place.kind == "postgres-async":
        async with AsyncPostgresStore.open(place.url) as store:
            yield store
    else:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(place.url, pool_pre_ping=True)
        try:
            yield AsyncSQLAlchemyStore(engine)
        finally:
            await engine.dispose()


class World:
    """A chat over a store by way of a proxy, and the same store past it."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.wire: Wire
        self.wire, detour = stack.enter_context(wire_to(place))
        self.is_async = "async" in place.kind
        self.loop = stack.enter_context(closing(Loop()))
        direct = Place(place.kind.replace("-pool", ""), place.url)
        self.direct = Face(stack.enter_context(entered(maker(direct), self.loop)), self.loop)
        self.direct.save_parts("made", b"", expected=None)
        with self.direct.lease("made", 60.0):
            pass
        made = aplain if self.is_async else plain
        self.store = stack.enter_context(entered(lambda: made(detour), self.loop))
        stack.callback(self.wire.arm, None)  # first of all: so that what is late ends
        self.asked = 0
        self.on_ask: Callable[[], object] = int

    def do(self, act: str, *given: Any, parts: str = "store", save: str = "turn", **how: Any) -> Any:
        """Something with a conversation, by way of the proxy."""
        chat: Any = (AsyncChat if self.is_async else Chat)(ScriptedBackend(self._answer))
        kept = chat.conversation(
            self.store, "ada", lease_ttl=600.0, save_timeout=SAVE_TIMEOUT, parts=parts, save=save
        )
        made = getattr(kept, act)(*given, **how)
        return self.loop.run(made) if self.is_async else made

    def _answer(self, _: Any) -> str:
        self.asked += 1
        self.on_ask()
        return "Hello."

    def said(self) -> list[str]:
        """What is stored."""
        head = self.direct.load_head("ada")
        return [] if head is None else [message["content"] for message in state_messages(head.blob)]

    def waits(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait, with a loop that runs on: what is late lands there."""
        import asyncio

        def turn() -> bool:
            if self.is_async:
                self.loop.run(asyncio.sleep(0.01))
            return is_so()

        wait_for(turn, what)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[World]:
    kind: str = request.param
    with place_of(kind.replace("-pool", ""), tmp_path) as place, ExitStack() as stack:
        yield World(Place(kind, place.url), stack)
    with warnings.catch_warnings():  # a driver gives up a silent connection; here, and not in a later test
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def took(call: Callable[[], Any], expected: type[Exception]) -> tuple[float, Any]:
    began = time.monotonic()
    with pytest.raises(expected) as caught:
        call()
    return time.monotonic() - began, caught.value


@pytest.mark.parametrize(
    ("world", "parts"),
    [*((kind, "store") for kind in SERVED), *((kind, "inline") for kind in SOME)],
    indirect=["world"],
)
def test_silence_before_the_turn(world: World, parts: str) -> None:
    """It ends with the turn's own time, and no model is asked. A lease that is granted after that is given
    back; the next turn need not wait until it runs out."""
    world.do("send", "Hi?", parts=parts)
    world.asked = 0
    world.wire.arm(ANSWER)  # the lease is granted, and nobody is told

    seconds, error = took(
        lambda: world.do("send", "Hello?", timeout=TIMEOUT, parts=parts), StoreUnavailableError
    )

    assert world.asked == 0
    assert seconds < TIMEOUT + SLACK, seconds
    assert not world.wire.has_run_out
    assert "ada" not in str(error)
    world.wire.arm(None)
    world.waits(lambda: not world.direct.is_held("ada"), "the late lease is given back")
    assert world.do("send", "Hello?", timeout=10.0, parts=parts).text == "Hello."


@pytest.mark.parametrize(
    ("world", "save"),
    [*((kind, "turn") for kind in SERVED), *((kind, "checkpoint") for kind in SOME)],
    indirect=["world"],
)
def test_silence_after_the_model_has_answered(world: World, save: str) -> None:
    """The error has the reply and the state. The save that lands late neither doubles nor overwrites."""
    world.do("send", "Hi?")
    world.on_ask = lambda: world.wire.arm(QUESTION)

    seconds, error = took(
        lambda: world.do("send", "Hello?", timeout=30.0, save=save), (StoreCommitError, Exception)
    )

    assert seconds < 2 * SAVE_TIMEOUT + SLACK, seconds
    assert not world.wire.has_run_out
    if save == "turn":
        assert isinstance(error, StoreCommitError)
        assert error.text == "Hello."
    assert [message["content"] for message in state_messages(error.state)][-2:] == ["Hello?", "Hello."]
    world.on_ask = int
    world.wire.arm(None)  # what was held is forwarded: the late save, if it was sent
    world.do("commit", error)
    assert world.said() == ["Hi?", "Hello.", "Hello?", "Hello."]
    assert world.asked == 2


@pytest.mark.parametrize("world", SERVED, indirect=True)
def test_a_late_save_does_not_overwrite_a_newer_one(world: World) -> None:
    """Another worker saves while a save is on its way. That save is refused when it lands."""
    world.do("send", "Hi?")
    world.on_ask = lambda: world.wire.arm(QUESTION)
    _, error = took(lambda: world.do("send", "Hello?", timeout=30.0), StoreCommitError)
    found = world.direct.load_head("ada")
    assert found is not None
    newer = world.direct.save("ada", found.blob, expected=found.version)

    world.on_ask = int
    world.wire.arm(None)
    world.do("send", "Again?", timeout=30.0)  # over the same client, behind what was held

    assert error.state
    now = world.direct.load_head("ada")
    assert now is not None
    assert now.version > newer
    assert world.said() == ["Hi?", "Hello.", "Again?", "Hello."]


@pytest.mark.parametrize(
    "world", ["postgres", "postgresql", "postgresql-asyncpg", "redis-async"], indirect=True
)
def test_silence_at_a_renewal_does_not_hold_the_turn(world: World) -> None:
    """The lease is renewed while a tool runs. A renewal without an answer is not awaited for long."""

    @tool(idempotent=True)
    def wait() -> str:
        """Wait until a renewal is silent."""
        world.wire.arm(QUESTION._replace(is_lasting=False))
        wait_for(lambda: world.wire.has_struck, "a renewal")
        return "done"

    chat: Any = (AsyncChat if world.is_async else Chat)(
        ScriptedBackend(Calls([("wait", {})]), "Hello."), tools=[wait]
    )
    kept = chat.conversation(world.store, "ada", lease_ttl=0.6, save_timeout=SAVE_TIMEOUT)
    began = time.monotonic()
    made = kept.send("Hello?")
    result = world.loop.run(made) if world.is_async else made

    assert result.text == "Hello."
    assert time.monotonic() - began < SLACK
    assert world.direct.load("ada").blob == result.state


# ------------------------------------------------------------------------------- a store of your own


def test_an_async_function_of_yours_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load ends with the turn's time, the save with `save_timeout`."""
    monkeypatch.setattr(row_calls, "LEAST_ANSWER", 0.1)

    async def main() -> None:
        rows: dict[str, Any] = {}
        silent = asyncio.Event()

        async def load(key: str) -> Any:
            if silent.is_set():
                await asyncio.Event().wait()
            return rows.get(key)

        async def save(key: str, blob: bytes, expected: int | None) -> int:
            await asyncio.Event().wait()
            raise AssertionError

        kept = AsyncChat(ScriptedBackend("Hello.")).conversation(
            AsyncCallableStore(load, save), "ada", save_timeout=0.0
        )
        with pytest.raises(StoreCommitError) as caught:
            await asyncio.wait_for(kept.send("Hello?"), 20.0)
        assert caught.value.text == "Hello."
        silent.set()
        with pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(kept.send("Hello?", timeout=0.1), 20.0)

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_stop_flag_without_an_answer_holds_a_reply_once(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn can do without the flag: it does not wait for it again at each piece of the reply."""
    monkeypatch.setattr(row_calls, "LEAST_ANSWER", 0.1)
    over = threading.Event()
    looks: list[str] = []

    class SilentFlag(MemoryStore):
        longest_wait = math.inf

        def stop_requested(self, key: str) -> bool:
            looks.append(key)
            if len(looks) > 1:
                over.wait(20.0)
            return False

    class AsyncSilentFlag(AsyncMemoryStore):
        longest_wait = math.inf

        async def stop_requested(self, key: str) -> bool:
            looks.append(key)
            if len(looks) > 1:
                await asyncio.sleep(20.0)
            return False

    how: Any = {"stop_every": 1e-9, "save_timeout": 0.1}
    backend = ScriptedBackend("Word by word, a long reply is read in many pieces.")
    if is_async:
        text = asyncio.run(AsyncChat(backend).conversation(AsyncSilentFlag(), "ada", **how).send("Hi")).text
    else:
        text = Chat(backend).conversation(SilentFlag(), "ada", **how).send("Hi").text
        over.set()
    assert text.endswith("pieces.")
    assert len(looks) == 2
