"""Blobs in PostgreSQL, straight over a driver: psycopg 3 for sync code, asyncpg for async code.

Owns: how a pool lends, and how a step's statements are sent. Must never know: a statement, or a blob's
contents.

Needs an extra: ``pip install 'goaitools-py[psycopg]'`` or ``'goaitools-py[asyncpg]'``. `SQLAlchemyStore` uses
the same tables, so both may share a database. A turn of a kept conversation is three statements: take the
lease, load, and save with the release. No connection is held while the model is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil, inf
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from ..base.advice import missing_extra_error, own_names
from ..base.watch import Watch
from ..types.errors import StoreError
from . import common
from .async_sql_store import AsyncSQLStore
from .clients import OPENED, SILENCE, hang_up
from .layout import lease_table_name, part_table_name
from .postgres_pools import (
    ASK_PID,
    OneProcess,
    asyncpg_misused,
    check_pool,
    check_url,
    has_several_hosts,
    is_unprepared,
    named_in,
    psycopg_not_open,
)
from .sql_errors import only_reads, problem
from .sql_statements import Statements, numbered, postgres_tables, quoted
from .sql_steps import Rows, Running, SQLSteps, Step
from .sql_store import SQLStore

if TYPE_CHECKING:
    import asyncpg  # type: ignore[import-untyped]
    from psycopg_pool import ConnectionPool

__all__ = ["AsyncPostgresStore", "PostgresStore"]

T = TypeVar("T")
Lent: TypeAlias = list[Any]
"""The connection of a step, in a list; the list is empty if the step has no connection."""
Watches: TypeAlias = list[Watch]

_REMEDY: Final = (
    "make the store with prepare=False, and a pool of your own of asyncpg with statement_cache_size=0"
)


def _steps_of(table: str, schema: str | None, ttl: float | None) -> SQLSteps:
    """The steps of a store. The first write makes all of its tables."""
    names = [quoted(name, schema) for name in (table, lease_table_name(table), part_table_name(table))]
    made = postgres_tables(names[0], names[1], names[2])
    statements = Statements("postgresql", *names, forgets=ttl is not None)
    return SQLSteps(statements, {"all": [[one] for one in made]}, ttl)


def _problem(error: Exception) -> Exception:
    return problem(error, partial(common.unavailable, "PostgreSQL"), _REMEDY, breaks_rule=False)


@own_names
class PostgresStore(SQLStore):
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
        ttl: Seconds after its last save until the store forgets a conversation; None: never. The clock of
            this process tells. The row stays in the table, see `goaitools store prune`.
    """

    def __init__(
        self,
        pool: ConnectionPool[Any],
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
        ttl: float | None = None,
    ) -> None:
        check_pool(pool, "getconn", "PostgresStore")
        self._pool = pool
        self._owned = False
        self._steps = _steps_of(table, schema, ttl)
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
        ttl: float | None = None,
    ) -> Self:
        """A store with a pool of its own, which `close` closes.

        Args:
            url: A URL or text that psycopg accepts, such as ``postgresql://user@host/database``. Of several
                hosts, ``postgresql://user@one:5432,two:5432/database``, the one that takes writes is used.
            max_connections: The size of the pool.
            timeout: Seconds to wait for a connection, and for an answer, before `StoreUnavailableError`.
            table: As for the class.
            schema: As for the class.
            prepare: As for the class.
            ttl: As for the class.
        """
        check_url(url, "PostgresStore")
        try:
            from psycopg_pool import ConnectionPool
        except ModuleNotFoundError as error:
            raise missing_extra_error(error, "PostgresStore", "psycopg") from None
        options: dict[str, Any] = {"autocommit": True, "client_encoding": "UTF8"}
        named = named_in(url)
        if "connect_timeout" not in named:
            options["connect_timeout"] = max(2, ceil(timeout))
        if has_several_hosts(url) and "target_session_attrs" not in named:
            options["target_session_attrs"] = "read-write"
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
        store = cls(pool, table=table, schema=schema, prepare=prepare, ttl=ttl)
        store._owned, store._timeout = True, timeout
        return store

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
        running = Running(step)
        while not running.is_over:
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
                rows = self._sent(lent[-1], running)
            except Exception as exc:
                failed = _problem(exc)
                if only_reads(exc):
                    lent[-1].close()
            if failed is None:
                running.answer(rows)
            else:
                running.fail(failed)
        return running.result

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

    def _sent(self, connection: Any, running: Running[Any]) -> Rows:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        cursor = RawCursor(connection, row_factory=tuple_row)
        if self._prepare is None:
            found = cursor.execute(ASK_PID, prepare=False).fetchone()
            self._prepare = found is not None and found[0] == connection.info.backend_pid
        # None: psycopg prepares a statement that comes again and again.
        prepare = None if self._prepare else False
        statement, values = _command(running)
        cursor.execute(statement.encode(), values, prepare=prepare, binary=True)
        return cursor.fetchall() if cursor.description else ()


def _command(running: Running[Any]) -> tuple[str, list[Any]]:
    """The command of a step: each step on PostgreSQL is a single statement after another."""
    ((statement, values),) = running.commands
    text, names = numbered(statement)
    return text, [values[name] for name in names]


def _hang_up(lent: Lent) -> None:
    """End a connection from another thread: the thread that waits for its answer gets an error."""
    for connection in lent:
        hang_up(connection)


@own_names
class AsyncPostgresStore(AsyncSQLStore):
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
        ttl: As for `PostgresStore`.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
        ttl: float | None = None,
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
        self._steps = _steps_of(table, schema, ttl)
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
        ttl: float | None = None,
    ) -> Self:
        """A store with a pool of its own, which `aclose` closes. Call it while the event loop runs.

        Args:
            url: A URL that asyncpg accepts, such as ``postgresql://user@host/database``, or with several
                hosts, as for `PostgresStore.open`.
            max_connections: The size of the pool.
            timeout: Seconds to wait for a connection, and for an answer, before `StoreUnavailableError`.
            table: As for the class.
            schema: As for the class.
            prepare: As for `PostgresStore`. None: the store makes one more connection once, to look.
            ttl: As for the class.
        """
        check_url(url, "AsyncPostgresStore")
        try:
            import asyncpg
        except ModuleNotFoundError as error:
            raise missing_extra_error(error, "AsyncPostgresStore", "asyncpg") from None
        is_fixed = not has_several_hosts(url) or "target_session_attrs" in url
        make = partial(
            asyncpg.create_pool,
            url,
            min_size=0,
            max_size=max_connections,
            timeout=timeout,
            command_timeout=timeout,
            reset=_leave_as_it_is,
            **({} if is_fixed else {"target_session_attrs": "read-write"}),
        )
        pool = make() if prepare else make(statement_cache_size=0)
        store = cls(pool, table=table, schema=schema, prepare=bool(prepare), ttl=ttl)
        store._owned, store._timeout = True, timeout
        if prepare is None:
            from asyncio import Lock

            store._prepared, store._look = make, Lock()
        return store

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
        running = Running(step)
        self._process.check()
        connection: Any = None
        is_sound = False
        try:
            while not running.is_over:
                rows: Rows = ()
                failed: Exception | None = None
                try:
                    is_sound = False
                    if connection is not None and connection.is_closed():
                        broken, connection = connection, None
                        await self._give_back(broken)
                    if connection is None:
                        connection = await self._lent()
                    found = await self._fetched(connection, *_command(running))
                    rows = [tuple(row) for row in found]
                    is_sound = True
                except Exception as exc:
                    failed = _problem(exc)
                    if connection is not None and only_reads(exc):
                        connection.terminate()
                if failed is None:
                    running.answer(rows)
                else:
                    running.fail(failed)
            return running.result
        finally:
            if connection is not None:
                await self._give_back(connection, is_sound)

    async def _fetched(self, connection: Any, statement: str, values: Sequence[Any]) -> Any:
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


async def _leave_as_it_is(connection: Any) -> None:
    """The reset of a connection that comes back to the pool: it does nothing."""


async def _fetched_at_once(connection: Any, statement: str, values: Sequence[Any]) -> Any:
    """Prepare a statement, run it and drop it in one transaction: a pooler does all of it in one server."""
    name = f"goaitools_{token_hex(8)}"
    async with connection.transaction():
        prepared = await connection.prepare(statement, name=name)
        rows = await prepared.fetch(*values)
        await connection.execute(f"DEALLOCATE {name}")
    return rows
