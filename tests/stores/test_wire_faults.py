"""A network that breaks or falls silent at any byte, under turns and under the steps of a store.

Each kind of store that speaks to a server gets a proxy in between. A few points of a turn are cut; with
``GOAITOOLS_WIRE_FAULTS=1`` it is every byte in both directions. The points are counted, not drawn.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
import types
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from goaitools_py import (
    AsyncChat,
    Chat,
    StateConflictError,
    StoreCommitError,
    StoreUnavailableError,
    TurnInProgressError,
)
from goaitools_py.states import state_messages
from goaitools_py.stores import (
    AsyncPostgresStore,
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    PostgresStore,
    RedisStore,
    SQLAlchemyStore,
)
from goaitools_py.stores import postgres as postgres_store
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered

from ._places import Place, maker
from ._private import private_redis
from ._wire import Cut, Wire, wire_to

SERVED = (
    "postgres", "postgres-async", "postgresql", "postgresql-async", "postgresql-asyncpg",
    "mariadb", "mariadb-async", "redis", "redis-async",
)  # fmt: skip
TIMED = ("postgres", "postgres-async", "redis", "redis-async")
"""The kinds that wait for an answer only so long, as they are made here."""

POINTS = 4
"""Cuts in each direction of the short form."""

CONNECTIONS = 2
PATIENT, IMPATIENT = 30.0, 1.0
"""Seconds that a store waits for a connection and an answer: where nothing is silent, and else."""

TRIES = 12


@contextmanager
def small(place: Place, connections: int = CONNECTIONS, seconds: float = PATIENT) -> Iterator[Any]:
    """A store with few connections, which waits for an answer only so long where it can."""
    if place.kind == "postgres":
        with PostgresStore.open(place.url, max_connections=connections, timeout=seconds) as store:
            yield store
    elif place.kind == "redis":
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        url, _, prefix = place.url.partition("#")
        with redis.Redis.from_url(
            url, retry=Retry(NoBackoff(), 1), max_connections=connections, socket_timeout=seconds
        ) as client:
            yield RedisStore(client, prefix=prefix)
    else:
        engine = sqlalchemy.create_engine(
            place.url, pool_size=connections, max_overflow=0, pool_timeout=seconds
        )
        try:
            yield SQLAlchemyStore(engine)
        finally:
            engine.dispose()


@asynccontextmanager
async def async_small(
    place: Place, connections: int = CONNECTIONS, seconds: float = PATIENT
) -> AsyncIterator[Any]:
    """As `small`, awaited."""
    if place.kind == "postgres-async":
        async with AsyncPostgresStore.open(place.url, max_connections=connections, timeout=seconds) as store:
            yield store
    elif place.kind == "redis-async":
        import redis.asyncio
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        url, _, prefix = place.url.partition("#")
        async with redis.asyncio.Redis.from_url(
            url, retry=Retry(NoBackoff(), 1), max_connections=connections, socket_timeout=seconds
        ) as client:
            yield AsyncRedisStore(client, prefix=prefix)
    else:
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(place.url, pool_size=connections, max_overflow=0, pool_timeout=seconds)
        try:
            yield AsyncSQLAlchemyStore(engine)
        finally:
            await engine.dispose()


def small_maker(place: Place, connections: int = CONNECTIONS, seconds: float = PATIENT) -> Callable[[], Any]:
    return lambda: (async_small if "async" in place.kind else small)(place, connections, seconds)


class World:
    """A chat over a store by way of a proxy, and the same store past it."""

    def __init__(self, place: Place, stack: ExitStack, seconds: float) -> None:
        self.wire: Wire
        self.wire, detour = stack.enter_context(wire_to(place))
        self.loop = stack.enter_context(closing(Loop()))
        self.direct = Face(stack.enter_context(entered(maker(place), self.loop)), self.loop)
        self.direct.save_parts("made", b"", expected=None)  # the tables are made with patience
        with self.direct.lease("made", 60.0):
            pass
        self.store = stack.enter_context(entered(small_maker(detour, seconds=seconds), self.loop))
        self.face = Face(self.store, self.loop)
        self.asked = 0
        self._is_async = self.face.is_async

    def do(self, key: str, act: str, *given: Any, **how: Any) -> Any:
        """Something with a conversation."""
        chat: Any = (AsyncChat if self._is_async else Chat)(ScriptedBackend(self._answer))
        kept = chat.conversation(self.store, key, lease_ttl=0.1, parts="store", save_timeout=1.0)
        made = getattr(kept, act)(*given, **how)
        return self.loop.run(made) if self._is_async else made

    def _answer(self, _: Any) -> str:
        self.asked += 1
        return "Hello."

    def refresh(self) -> None:
        """Let the store find out which of its connections are dead, so that each cut meets a sound one; and
        see that its pool has lost none.

        A call that met a silence can outlive its turn, as the renewal of a lease does. It has a connection
        until the client's time limit, so this waits longer than that.
        """
        deadline = time.monotonic() + PATIENT
        while lost := [one for one in self.all_connections() if isinstance(one, Exception)]:
            if time.monotonic() > deadline:
                raise AssertionError(f"the pool does not recover: {lost}")
            threading.Event().wait(0.01)

    def all_connections(self) -> list[Any]:
        """What comes of as many loads as the pool has connections, and of taking all connections at once."""
        found: list[Any] = self.loop.run(self._loaded()) if self._is_async else loaded(self.store)
        try:
            self.loop.run(lent_async(self.store)) if self._is_async else lent(self.store)
        except Exception as error:
            found.append(error)
        return found

    async def _loaded(self) -> list[Any]:
        made = (self.store.load("refresh") for _ in range(CONNECTIONS))
        return await asyncio.gather(*made, return_exceptions=True)


def loaded(store: Any) -> list[Any]:
    """The answers of loads in threads."""
    found: list[Any] = []

    def load() -> None:
        try:
            found.append(store.load("refresh"))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=load) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def lent(store: Any) -> None:
    """Take all connections of a pool at once, and give them back. Raises if one is lost."""
    with ExitStack() as taken:
        for _ in range(CONNECTIONS):
            if isinstance(store, SQLAlchemyStore):
                taken.enter_context(store._engine.connect())
            elif isinstance(store, PostgresStore):
                taken.callback(store._pool.putconn, store._pool.getconn())
            else:
                pool = store._client.connection_pool
                taken.callback(pool.release, pool.get_connection())


async def lent_async(store: Any) -> None:
    """As `lent`, awaited."""
    async with AsyncExitStack() as taken:
        for _ in range(CONNECTIONS):
            if isinstance(store, AsyncSQLAlchemyStore):
                await taken.enter_async_context(store._engine.connect())
            elif isinstance(store, AsyncPostgresStore):
                await taken.enter_async_context(store._pool.acquire(timeout=PATIENT))
            else:
                pool = store._client.connection_pool
                taken.push_async_callback(pool.release, await pool.get_connection())


def points(size: int) -> list[int]:
    """Where to cut so many bytes: in the short form at the first, the last, and some between."""
    if os.environ.get("GOAITOOLS_WIRE_FAULTS"):
        return list(range(size))
    return sorted({0, size - 1, *(size * n // POINTS for n in range(1, POINTS))})


CASES = [
    *((kind, how, False) for kind in SERVED for how in ("reset", "close")),
    *((kind, "reset", True) for kind in SERVED),
    *((kind, "stall", False) for kind in TIMED),
]


@pytest.mark.parametrize(("place", "how", "is_lasting"), CASES, indirect=["place"])
def test_a_turn_survives_a_cut_at_any_byte(place: Place, how: Any, is_lasting: bool) -> None:
    """Only documented errors come, without a key in their texts. One cut costs no paid answer. After the
    message was delivered again it is said and answered once. The pool has all its connections."""
    problems: list[str] = []
    with ExitStack() as stack:
        world = World(place, stack, IMPATIENT if is_lasting or how == "stall" else PATIENT)
        for number in range(7):  # psycopg prepares a statement when it is used for the sixth time
            world.do("warm", "send", f"{number}?")
        world.wire.arm(None)
        world.do("size", "send", "Hello?", turn_id="t")
        sizes = dict(world.wire.counts)
        cuts = [Cut(way, at, how, is_lasting) for way, size in sizes.items() for at in points(size)]
        for number, cut in enumerate(cuts):
            key = f"ada-{number}@example.org"
            world.refresh()
            asked = world.asked
            world.wire.arm(cut)
            failed: Exception | None = None
            try:
                world.do(key, "send", "Hello?", turn_id="t")
            except Exception as error:
                failed = error
            world.wire.arm(None)
            problems += (f"{cut}: {problem}" for problem in judged(world, key, failed, asked, is_lasting))
    print(f"{place.kind}, {how}, lasting {is_lasting}: {len(cuts)} cuts of {sizes}")
    assert problems == [], "\n".join(problems)


def judged(world: World, key: str, failed: Exception | None, asked: int, is_lasting: bool) -> Iterator[str]:
    """What is wrong after a cut, and after the turn was delivered again."""
    if failed is not None:
        if not isinstance(failed, (StoreUnavailableError, StoreCommitError)):
            yield f"raised {failed!r}"
        told = "".join(traceback.format_exception(failed))
        if key in told:
            yield "the key is in the error"
        if not is_lasting and world.asked > asked:
            yield f"one cut cost a paid answer: {failed!r}"
    again: Exception | None = None
    for _ in range(TRIES):
        try:
            if isinstance(failed, StoreCommitError):
                world.do(key, "commit", failed)
            world.do(key, "send", "Hello?", turn_id="t")
        except (StoreUnavailableError, TurnInProgressError) as error:
            again = error
        else:
            break
    else:
        yield f"the turn is refused for ever: {again!r}"
        return
    head = world.direct.load_head(key)
    assert head is not None
    said = [message["content"] for message in state_messages(head.blob)]
    if said != ["Hello?", "Hello."]:
        yield f"stored: {said}"
    if world.asked - asked != 1:
        yield f"asked {world.asked - asked} times"
    try:
        world.refresh()
    except AssertionError as error:
        yield str(error)


# --------------------------------------------------------------------------------- silence


@pytest.mark.parametrize("place", ["postgres", "postgres-async"], indirect=True)
def test_silence_twice_in_a_row(place: Place) -> None:
    """After a save without an answer the look at the row is silent, too: it ends as the save did."""
    with ExitStack() as stack:
        world = World(place, stack, IMPATIENT)
        version = world.face.save("ada", b"1", expected=None)
        world.refresh()  # all connections are there, so that the look does not fail in making one
        world.wire.arm(Cut("answer", 0, "stall", is_lasting=True))

        with pytest.raises(StoreUnavailableError):
            world.face.save("ada", b"2", expected=version)

        assert not world.wire.has_run_out  # the store has hung up, and not the proxy
        world.wire.arm(None)
        world.refresh()
        found = world.direct.load("ada")
        assert found is not None
        assert (found.blob, found.version) in ((b"1", version), (b"2", version + 1))


# --------------------------------------------------------------------------------- the pool of psycopg


class Connection:
    """A connection that breaks with its first statement."""

    autocommit = True
    broken = False

    def close(self) -> None:
        self.broken = True


class Pool:
    """Lends one connection, and is empty then."""

    def __init__(self) -> None:
        self.left = [Connection()]
        self.back: list[Connection] = []

    def connection(self) -> None:
        raise AssertionError

    def getconn(self) -> Connection:
        if not self.left:
            raise TimeoutError("the pool is empty")
        return self.left.pop()

    def putconn(self, connection: Connection) -> None:
        self.back.append(connection)


def test_a_broken_connection_goes_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool makes a new connection for each broken one that comes back: twice would be one too many."""
    pool = Pool()
    store = PostgresStore(pool)  # type: ignore[arg-type]

    def breaks(connection: Connection, *_: Any) -> Any:
        connection.broken = True
        raise OSError("the line is dead")

    monkeypatch.setattr(store, "_sent", breaks)
    with pytest.raises(StoreUnavailableError):
        store.save("ada", b"1", expected=None)

    assert len(pool.back) == 1


def test_a_pool_begins_anew_soon_after_an_outage() -> None:
    """It gives up after the store's timeout, and the next call begins anew. By default it would wait for
    minutes between two tries."""
    with PostgresStore.open("postgresql://nobody@127.0.0.1:1/none", timeout=3.0) as store:
        assert store._pool.reconnect_timeout == 3.0
        assert store._pool.kwargs["connect_timeout"] == 3


def test_a_url_that_cannot_be_read_is_refused_without_its_password() -> None:
    """psycopg's own error quotes what it cannot read."""
    with pytest.raises(ValueError, match="cannot read this one") as caught:
        PostgresStore.open("postgresql://ada:pass%zzword@127.0.0.1/none")

    assert "zz" not in str(caught.value)
    assert caught.value.__context__ is None


# --------------------------------------------------------------------------------- failover


@pytest.mark.parametrize(
    "place", ["postgres", "postgres-async", "postgresql", "postgresql-asyncpg"], indirect=True
)
def test_a_connection_to_a_server_that_only_reads_is_closed(place: Place) -> None:
    """The former primary refuses writes on a connection that works. The next call gets another one."""
    name = place.url.rpartition("/")[2]
    admin = sqlalchemy.create_engine(
        sqlalchemy.make_url(place.url).set(drivername="postgresql+psycopg"),
        isolation_level="AUTOCOMMIT",
        poolclass=sqlalchemy.NullPool,
    )

    def alter(how: str) -> None:
        with admin.connect() as connection:
            connection.exec_driver_sql("SET default_transaction_read_only = off")  # in its own connection
            connection.exec_driver_sql(f"ALTER DATABASE {name} {how}")

    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        with closing(Loop()) as other, entered(maker(place), other) as made:
            version = Face(made, other).save("ada", b"1", expected=None)
        alter("SET default_transaction_read_only = on")
        store = Face(stack.enter_context(entered(small_maker(place, 1), loop)), loop)
        assert store.load("ada") is not None
        alter("RESET default_transaction_read_only")  # new connections find the new primary

        # The write is refused, and the look at the row has a new connection.
        with pytest.raises(StoreUnavailableError):
            store.save("ada", b"2", expected=version)

        assert store.save("ada", b"2", expected=version) == version + 1


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_a_connection_to_a_mariadb_that_only_reads_is_closed(place: Place) -> None:
    """The same: the first connection of the pool leads to a server that refuses writes."""
    engine = sqlalchemy.create_engine(place.url, pool_size=1, max_overflow=0)
    store = SQLAlchemyStore(engine)
    version = store.save("ada", b"1", expected=None)
    engine.dispose()
    made: list[Any] = []

    @sqlalchemy.event.listens_for(engine, "connect")
    def first(connection: Any, _: Any) -> None:
        made.append(connection)
        if len(made) == 1:
            connection.cursor().execute("SET SESSION TRANSACTION READ ONLY")

    with pytest.raises(StoreUnavailableError):
        store.save("ada", b"2", expected=version)

    assert store.save("ada", b"2", expected=version) == version + 1
    assert len(made) == 2
    engine.dispose()


@pytest.mark.parametrize("kind", ["redis", "redis-async"])
def test_a_connection_to_a_redis_that_only_reads_is_closed(kind: str, tmp_path: Path) -> None:
    """A server that has become a replica refuses the save; the next command has another connection."""
    with private_redis(tmp_path) as server, ExitStack() as stack:
        import redis

        place = Place(kind, f"redis://127.0.0.1:{server.port}/0#mine")
        loop = stack.enter_context(closing(Loop()))
        made = stack.enter_context(entered(small_maker(place), loop))
        store = Face(made, loop)
        version = store.save("ada", b"1", expected=None)

        def number() -> int:
            asked = made._client.execute_command("CLIENT", "ID")
            found: int = loop.run(asked) if store.is_async else asked
            return found

        before = number()
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("REPLICAOF", "127.0.0.1", "1")

            with pytest.raises(StoreUnavailableError):
                store.save("ada", b"2", expected=version)

            assert number() != before
            admin.execute_command("REPLICAOF", "NO", "ONE")
        assert store.save("ada", b"2", expected=version) == version + 1


# --------------------------------------------------------------------------------- interruptions


@types.coroutine
def cancelled_at(work: Any, at: int) -> Any:
    """Await something, and be cancelled where it waits for the `at`-th time. True if it came so far."""
    failure: BaseException | None = None
    for number in range(1, 10_000):
        try:
            waited = work.throw(failure) if failure is not None else work.send(None)
        except StopIteration:
            return number > at
        failure = None
        if number == at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        try:
            yield waited
        except BaseException as error:
            failure = error
    raise AssertionError("it does not end")


ASYNC = [kind for kind in SERVED if "async" in kind]


@pytest.mark.parametrize("place", ASYNC, indirect=True)
def test_a_cancellation_in_each_await(place: Place) -> None:
    """The save is done or not, the one connection is there for the next call, and is in no transaction."""

    async def family() -> int:
        async with async_small(place, 1) as store:
            version, wanted = await store.save("ada", b"0", expected=None), b"0"
            await store.load("ada")
            for at in range(1, 400):
                new = b"%d" % at
                save = store.save_parts("ada", new, (), (), expected=version)
                task = asyncio.get_running_loop().create_task(_run(cancelled_at(save, at)))
                try:
                    is_cut = await task
                except asyncio.CancelledError:
                    is_cut = True
                found = await asyncio.wait_for(_patiently(lambda: store.load("ada")), 60.0)
                if not is_cut:
                    return at
                assert found.blob in (wanted, new), at
                if found.blob == wanted:  # not too late: the cancelled save is over
                    assert found.version == version, at
                version, wanted = found.version, found.blob
        raise AssertionError("it was cancelled each time")

    awaits = asyncio.run(family())
    print(f"{place.kind}: {awaits} awaits")
    assert awaits > 1


async def _run(work: Any) -> Any:
    return await work


async def _patiently(call: Callable[[], Any]) -> Any:
    """One refusal may be the dead connection that the cancellation has left."""
    try:
        return await call()
    except StoreUnavailableError:
        return await call()


def lines_of(call: Callable[[], Any], at: int | None = None) -> int:
    """Count the lines of the store that a call executes, or raise Ctrl-C at one of them."""
    path, count = postgres_store.__file__, 0

    def line(frame: types.FrameType, what: str, _: Any) -> Any:
        nonlocal count
        if what == "line":
            count += 1
            if count == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, what, _: line if frame.f_code.co_filename == path else None)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_ctrl_c_at_each_line(place: Place) -> None:
    """Whatever line it interrupts, the one connection of the pool is there for the next call."""
    with small(place, 1) as store:
        version = store.save("ada", b"0", expected=None)
        count = lines_of(lambda: store.load("ada"))

        for at in range(1, count + 1):
            with pytest.raises(KeyboardInterrupt):
                lines_of(lambda: store.load("ada"), at)
            gc.collect()
            assert store.load("ada") is not None, at

        assert count > 15
        with pytest.raises(StateConflictError):
            store.save("ada", b"1", expected=version + 1)
