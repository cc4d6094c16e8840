"""Blobs in PostgreSQL, straight over a driver: psycopg 3 for sync code, asyncpg for async code.

Owns: how a pool lends, and how a step's statements are sent. Must never know: SQL, or a blob's contents.

Needs an extra: ``pip install 'goaitools-py[psycopg]'`` or ``'goaitools-py[asyncpg]'``. `SQLAlchemyStore` uses
the same tables, so both may share a database. A turn of a kept conversation is three statements: take the
lease, load, and save with the release. No connection is held while the model is called.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from math import ceil, inf
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

from ..base.advice import missing_extra_error
from ..base.watch import Watch
from ..types.errors import StoreError
from .base import RowFacts, Stored, StoredHead, StoredPage, StoredPart
from .clients import OPENED, SILENCE, hang_up
from .postgres_pools import (
    ASK_PID,
    OneProcess,
    asyncpg_misused,
    check_pool,
    check_url,
    is_unprepared,
    named_in,
    psycopg_not_open,
)
from .postgres_steps import LeaseToken, PostgresSteps, Step, only_reads, problem
from .taking import held, held_async, taking, taking_async

if TYPE_CHECKING:
    import asyncpg  # type: ignore[import-untyped]
    from psycopg_pool import ConnectionPool

__all__ = ["AsyncPostgresStore", "PostgresStore"]

T = TypeVar("T")
Rows: TypeAlias = Sequence[Sequence[Any]]
Lent: TypeAlias = list[Any]
"""The connection of a step, in a list; the list is empty if the step has no connection."""
Watches: TypeAlias = list[Watch]


class PostgresStore:
    """A store in PostgreSQL over a pool of psycopg 3, for any number of threads, processes and machines.

    No connection is held while a model is called, not even under a lease.

    ::

        with PostgresStore.open("postgresql://…") as store:
            conversation = chat.conversation(store, "ada")

    Args:
        pool: A `psycopg_pool.ConnectionPool`. It stays yours: close it when you are done. Its
            connections are in autocommit mode: ``kwargs={"autocommit": True}``.
        table: The table's name. The first save makes it, and ``<table>_lease`` and ``<table>_part`` with it.
        schema: The table's schema; by default the connection's.
        prepare: Whether statements are prepared in the server. None: not if a pooler, such as PgBouncer, is
            in between; the store looks once. In transaction mode PgBouncer takes them from 1.21 on, with
            ``max_prepared_statements``: then True saves a little.
    """

    def __init__(
        self,
        pool: ConnectionPool[Any],
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
    ) -> None:
        check_pool(pool, "getconn", "PostgresStore")
        self._pool = pool
        self._owned = False
        self._steps = PostgresSteps(table, schema)
        self._prepare = prepare
        self._timeout = SILENCE
        self._process = OneProcess()

    @property
    def longest_wait(self) -> float:
        """Seconds after which a call has ended in any case: it waits for a connection, for an answer, and for
        both again where it looks whether a save was done."""
        return 4 * self._timeout

    @classmethod
    def open(
        cls,
        url: str,
        *,
        max_connections: int = 10,
        timeout: float = 10.0,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
    ) -> Self:
        """A store with a pool of its own, which `close` closes.

        Args:
            url: A URL or text that psycopg accepts, such as ``postgresql://user@host/database``.
            max_connections: The size of the pool.
            timeout: Seconds to wait for a connection, and for an answer, before `StoreUnavailableError`.
            table: As for the class.
            schema: As for the class.
            prepare: As for the class.
        """
        check_url(url, "PostgresStore")
        try:
            from psycopg_pool import ConnectionPool
        except ModuleNotFoundError as error:
            raise missing_extra_error(error, "PostgresStore", "psycopg") from None
        options: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}
        if "connect_timeout" not in named_in(url):
            options["connect_timeout"] = max(2, ceil(timeout))
        pool = ConnectionPool(
            url,
            min_size=1,
            max_size=max_connections,
            timeout=timeout,
            # A pool waits longer and longer between two tries. After an outage it begins anew with the next
            # call, and not after minutes.
            reconnect_timeout=timeout,
            kwargs=options,
            open=False,
        )
        store = cls(pool, table=table, schema=schema, prepare=prepare)
        store._owned, store._timeout = True, timeout
        return store

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._run(self._steps.load(key))

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        If the connection breaks after the write was sent, the row is read once to see whether it was done.
        """
        return self._run(self._steps.save(key, blob, expected, facts))

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; in the same statement add parts and drop parts. See `Parted.save_parts`."""
        return self._run(self._steps.save_parts(key, head, new, gone, expected, facts))

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one statement."""
        return self._run(self._steps.load_head(key, kinds))

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        return self._run(self._steps.load_parts(key, names))

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        return self._run(self._steps.set_stop(key, is_wanted))

    def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        return self._run(self._steps.stop_requested(key))

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        return self._run(self._steps.delete(key, expected))

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return self._run(self._steps.list(prefix, cursor, limit))

    def lease_and_load(self, key: str, ttl: float) -> tuple[PostgresLease, Stored | None]:
        """Take a lease, and then load. See `Combining.lease_and_load`."""
        lease = PostgresLease(self, LeaseToken(key, ttl))
        with taking(lease):
            return lease, self._run(self._steps.take_and_load(lease.token))

    def save_and_release(
        self,
        lease: PostgresLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; the same statement ends the lease. See `Combining.save_and_release`."""
        version = self._run(self._steps.save(key, blob, expected, facts, lease.token))
        lease.is_over = True
        return version

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[PostgresLease, StoredHead | None]:
        """Take a lease, and then load the head. See `CombiningParts.lease_and_load_head`."""
        lease = PostgresLease(self, LeaseToken(key, ttl))
        with taking(lease):
            return lease, self._run(self._steps.take_and_load_head(lease.token, kinds))

    def save_parts_and_release(
        self,
        lease: PostgresLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save_parts`; the same statement ends the lease."""
        version = self._run(self._steps.save_parts(key, head, new, gone, expected, facts, lease.token))
        lease.is_over = True
        return version

    def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        return self._run(self._steps.is_held(key))

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[PostgresLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken.

        It is a row with a time, not a lock: nothing is open between the statements.
        """
        lease = PostgresLease(self, LeaseToken(key, ttl))
        with held(lease, lambda: self._run(self._steps.take(lease.token))):
            yield lease

    def make_tables(self) -> None:
        """Make the tables that are missing, for a program that must not make them later."""
        self._run(self._steps.make_tables())

    def close(self) -> None:
        """Close the pool, if `open` made it."""
        if self._owned:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, step: Step[T]) -> T:
        """Do a step on one connection. If an error has broken the connection, use another one."""
        self._process.check()
        lent: Lent = []
        watches: Watches = []
        try:
            try:
                return self._done(step, lent, watches)
            finally:
                self._leave(lent, watches)
        finally:  # once more, if Ctrl-C came in the line above
            self._leave(lent, watches)

    def _done(self, step: Step[T], lent: Lent, watches: Watches) -> T:
        statement, values = next(step)
        while True:
            rows: Rows = ()
            failed: Exception | None = None
            try:
                if lent and lent[-1].broken:
                    self._give_back(lent)
                if not lent:
                    self._lend(lent)
                if not watches or watches[-1].has_rung:
                    watches.append(Watch(lambda: _hang_up(lent)))
                watches[-1].set(self._timeout)
                rows = self._sent(lent[-1], statement, values)
            except Exception as exc:
                failed = problem(exc)
                if only_reads(exc):
                    lent[-1].close()
            try:
                statement, values = step.send(rows) if failed is None else step.throw(failed)
            except StopIteration as end:
                return cast("T", end.value)

    def _lend(self, lent: Lent) -> None:
        """Put a connection of the pool into `lent`. The caller gives back every connection in `lent`."""
        try:
            if self._owned and self._pool.closed:
                self._pool.open()
            lent.append(self._pool.getconn())
        except Exception as exc:
            if not lent and getattr(self._pool, "closed", False):
                raise psycopg_not_open(self._owned, exc) from None
            raise
        if not lent[-1].autocommit:
            raise StoreError(
                "the pool's connections are not in autocommit mode: make it with "
                "ConnectionPool(…, kwargs={'autocommit': True}), or use PostgresStore.open"
            )

    def _leave(self, lent: Lent, watches: Watches) -> None:
        for watch in watches:
            watch.close()  # before another thread has the connection
        self._give_back(lent)

    def _give_back(self, lent: Lent) -> None:
        """Give the connections in `lent` back, each once: the pool replaces a broken one each time."""
        while lent:
            self._pool.putconn(lent.pop())

    def _sent(self, connection: Any, statement: str, values: tuple[Any, ...]) -> Rows:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        cursor = RawCursor(connection, row_factory=tuple_row)
        if self._prepare is None:
            found = cursor.execute(ASK_PID, prepare=False).fetchone()
            self._prepare = found is not None and found[0] == connection.info.backend_pid
        # None: psycopg prepares a statement that comes again and again.
        prepare = None if self._prepare else False
        cursor.execute(statement.encode(), values, prepare=prepare, binary=True)
        return cursor.fetchall() if cursor.description else ()


def _hang_up(lent: Lent) -> None:
    """End a connection from another thread: the thread that waits for its answer gets an error."""
    for connection in lent:
        hang_up(connection)


class PostgresLease:
    """A lease that is held in PostgreSQL."""

    def __init__(self, store: PostgresStore, token: LeaseToken) -> None:
        self._store = store
        self.token = token
        self.is_over = False

    @property
    def is_taken(self) -> bool:
        """True once the server has confirmed it."""
        return self.token.is_taken

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return self._store._run(self._store._steps.renew(self.token))

    def release(self) -> None:
        """End the lease now. Raises `StoreUnavailableError`; may be called again."""
        if not self.is_over:
            self._store._run(self._store._steps.release(self.token))
            self.is_over = True


class AsyncPostgresStore:
    """`PostgresStore` over a pool of asyncpg, for one event loop.

    ::

        async with AsyncPostgresStore.open("postgresql://…") as store:
            conversation = chat.conversation(store, "ada")

    Args:
        pool: An `asyncpg.Pool`. It stays yours: close it when you are done. asyncpg resets a connection each
            time it goes back, which costs a statement. `open` makes a pool without this reset: the store's
            statements leave no state in a session.
        table: As for `PostgresStore`.
        schema: As for `PostgresStore`.
        prepare: None: if a pooler, such as PgBouncer, is in between, each statement gets a transaction, so
            that it runs where it was prepared; the store looks once. That takes five round trips in place of
            one. A pool that was made with ``statement_cache_size=0`` does not need it: then give False. True:
            the pooler keeps prepared statements.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
    ) -> None:
        check_pool(pool, "acquire", "AsyncPostgresStore")
        self._pool = pool
        self._owned = self._is_open = False
        self._timeout: float | None = None
        self._is_pooled = None if prepare is None else False
        """Whether each statement needs a transaction. None: it is not known yet."""
        self._prepared: Callable[[], asyncpg.Pool[Any]] | None = None
        """Makes a pool with prepared statements. None if the store need not look for a pooler any more."""
        self._look: Any = None
        self._steps = PostgresSteps(table, schema)
        self._process = OneProcess()

    @property
    def longest_wait(self) -> float:
        """Seconds after which a call has ended in any case: it waits for a connection, for an answer, and for
        both again where it looks whether a save was done."""
        return inf if self._timeout is None else 4 * self._timeout

    @classmethod
    def open(
        cls,
        url: str,
        *,
        max_connections: int = 10,
        timeout: float = 10.0,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
    ) -> Self:
        """A store with a pool of its own, which `aclose` closes. Call it while the event loop runs.

        Args:
            url: A URL that asyncpg accepts, such as ``postgresql://user@host/database``.
            max_connections: The size of the pool.
            timeout: Seconds to wait for a connection, and for an answer, before `StoreUnavailableError`.
            table: As for the class.
            schema: As for the class.
            prepare: As for `PostgresStore`. None: the store makes one more connection once, to look.
        """
        check_url(url, "AsyncPostgresStore")
        try:
            import asyncpg
        except ModuleNotFoundError as error:
            raise missing_extra_error(error, "AsyncPostgresStore", "asyncpg") from None
        make = partial(
            asyncpg.create_pool,
            url,
            min_size=0,
            max_size=max_connections,
            timeout=timeout,
            command_timeout=timeout,
            reset=_leave_as_it_is,
        )
        pool = make() if prepare else make(statement_cache_size=0)
        store = cls(pool, table=table, schema=schema, prepare=bool(prepare))
        store._owned, store._timeout = True, timeout
        if prepare is None:
            from asyncio import Lock

            store._prepared, store._look = make, Lock()
        return store

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return await self._run(self._steps.load(key))

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """As `PostgresStore.save`, awaited."""
        return await self._run(self._steps.save(key, blob, expected, facts))

    async def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `PostgresStore.save_parts`, awaited."""
        return await self._run(self._steps.save_parts(key, head, new, gone, expected, facts))

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `PostgresStore.load_head`, awaited."""
        return await self._run(self._steps.load_head(key, kinds))

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `PostgresStore.load_parts`, awaited."""
        return await self._run(self._steps.load_parts(key, names))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `PostgresStore.set_stop`, awaited."""
        return await self._run(self._steps.set_stop(key, is_wanted))

    async def stop_requested(self, key: str) -> bool:
        """As `PostgresStore.stop_requested`, awaited."""
        return await self._run(self._steps.stop_requested(key))

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `PostgresStore.delete`, awaited."""
        return await self._run(self._steps.delete(key, expected))

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """As `PostgresStore.list`, awaited."""
        return await self._run(self._steps.list(prefix, cursor, limit))

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncPostgresLease, Stored | None]:
        """As `PostgresStore.lease_and_load`, awaited."""
        lease = AsyncPostgresLease(self, LeaseToken(key, ttl))
        async with taking_async(lease):
            return lease, await self._run(self._steps.take_and_load(lease.token))

    async def save_and_release(
        self,
        lease: AsyncPostgresLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `PostgresStore.save_and_release`, awaited."""
        version = await self._run(self._steps.save(key, blob, expected, facts, lease.token))
        lease.is_over = True
        return version

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncPostgresLease, StoredHead | None]:
        """As `PostgresStore.lease_and_load_head`, awaited."""
        lease = AsyncPostgresLease(self, LeaseToken(key, ttl))
        async with taking_async(lease):
            return lease, await self._run(self._steps.take_and_load_head(lease.token, kinds))

    async def save_parts_and_release(
        self,
        lease: AsyncPostgresLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `PostgresStore.save_parts_and_release`, awaited."""
        version = await self._run(self._steps.save_parts(key, head, new, gone, expected, facts, lease.token))
        lease.is_over = True
        return version

    async def is_held(self, key: str) -> bool:
        """As `PostgresStore.is_held`, awaited."""
        return await self._run(self._steps.is_held(key))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncPostgresLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it; see `PostgresStore.lease`."""
        lease = AsyncPostgresLease(self, LeaseToken(key, ttl))
        async with held_async(lease, lambda: self._run(self._steps.take(lease.token))):
            yield lease

    async def make_tables(self) -> None:
        """As `PostgresStore.make_tables`, awaited."""
        await self._run(self._steps.make_tables())

    async def aclose(self) -> None:
        """Close the pool, if `open` made it. It waits for calls that run, at most 10 seconds."""
        if self._is_open:
            import asyncio  # only for the async store

            # If the loop cancels a task of asyncpg's that gives a connection back, the connection never comes
            # back, and the pool would wait for it for ever. A cancelled `close` ends all connections.
            with suppress(TimeoutError):
                async with asyncio.timeout(OPENED):
                    await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, step: Step[T]) -> T:
        """As `PostgresStore._run`, awaited."""
        statement, values = next(step)
        self._process.check()
        connection: Any = None
        is_sound = False
        try:
            while True:
                rows: Rows = ()
                failed: Exception | None = None
                try:
                    is_sound = False
                    if connection is not None and connection.is_closed():
                        broken, connection = connection, None
                        await self._give_back(broken)
                    if connection is None:
                        connection = await self._lent()
                    rows = [tuple(row) for row in await self._fetched(connection, statement, values)]
                    is_sound = True
                except Exception as exc:
                    failed = problem(exc)
                    if connection is not None and only_reads(exc):
                        connection.terminate()
                try:
                    statement, values = step.send(rows) if failed is None else step.throw(failed)
                except StopIteration as end:
                    return cast("T", end.value)
        finally:
            if connection is not None:
                await self._give_back(connection, is_sound)

    async def _fetched(self, connection: Any, statement: str, values: tuple[Any, ...]) -> Any:
        if self._is_pooled is None:
            (asked,) = await _fetched_at_once(connection, ASK_PID, ())
            self._is_pooled = asked[0] != connection.get_server_pid()
        if self._is_pooled:
            try:
                return await _fetched_at_once(connection, statement, values)
            except Exception as exc:
                if not is_unprepared(exc):
                    raise
                # asyncpg asks for a new type with statements of its own, which another server has prepared.
                await connection.reload_schema_state()
                return await _fetched_at_once(connection, statement, values)
        return await connection.fetch(statement, *values)

    async def _lent(self) -> Any:
        try:
            return await self._acquired()
        except Exception as exc:
            if (misused := asyncpg_misused(self._pool, self._owned, exc)) is not None:
                raise misused from None
            raise

    async def _look_for_pooler(self) -> None:
        """Take a pool with prepared statements if no pooler is in between. Other calls wait meanwhile."""
        async with self._look:
            if self._prepared is None:
                return
            pool = self._pool
            async with pool.acquire() as connection:
                is_pooled = await connection.fetchval(ASK_PID) != connection.get_server_pid()
            if not is_pooled:
                self._pool = await self._prepared()
                await pool.close()
            self._prepared = None

    async def _acquired(self) -> Any:
        if self._owned:
            await self._pool  # opens it; does nothing later
            self._is_open = True
            if self._prepared is not None:
                await self._look_for_pooler()
        pool = self._pool
        if self._owned and not pool.get_idle_size() and pool.get_size() == pool.get_max_size():
            return await pool.acquire(timeout=self._timeout)
        return await pool.acquire()  # costs less than one with a timeout

    async def _give_back(self, connection: Any, is_sound: bool = False) -> None:
        """Give a connection back.

        A connection with a cancelled or timed out statement asks the server to end the statement, and waits.
        If no answer comes in time, the pool ends the connection and makes another one. Errors of this are
        dropped: they tell nothing about the step.
        """
        with suppress(Exception):
            await self._pool.release(connection, timeout=None if is_sound else self._timeout or OPENED)


class AsyncPostgresLease:
    """`PostgresLease` for async code."""

    def __init__(self, store: AsyncPostgresStore, token: LeaseToken) -> None:
        self._store = store
        self.token = token
        self.is_over = False

    @property
    def is_taken(self) -> bool:
        """True once the server has confirmed it."""
        return self.token.is_taken

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return await self._store._run(self._store._steps.renew(self.token))

    async def release(self) -> None:
        """As `PostgresLease.release`, awaited."""
        if not self.is_over:
            await self._store._run(self._store._steps.release(self.token))
            self.is_over = True


async def _leave_as_it_is(connection: Any) -> None:
    """The reset of a connection that comes back to the pool: it does nothing."""


async def _fetched_at_once(connection: Any, statement: str, values: tuple[Any, ...]) -> Any:
    """Prepare a statement, run it and drop it in one transaction: a pooler does all of it in one server."""
    name = f"goaitools_{token_hex(8)}"
    async with connection.transaction():
        prepared = await connection.prepare(statement, name=name)
        rows = await prepared.fetch(*values)
        await connection.execute(f"DEALLOCATE {name}")
    return rows
