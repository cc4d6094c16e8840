"""Blobs in PostgreSQL, MySQL, MariaDB or SQLite, over an engine of SQLAlchemy.

Owns: connections, and whether a save that broke was done. Must never know: SQL, or a blob's contents.

Needs the extra: ``pip install 'goaitools-py[sqlalchemy]'``, and a driver. Make the engine with
``pool_pre_ping=True``: otherwise the first call after a restart of the server finds a dead connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import DBAPIError

from ..base.late_calls import AsyncUndisturbed
from ..types.errors import StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredPage, StoredPart
from .sql_engine import (
    Preparing,
    Way,
    at_once,
    each_by_itself,
    engine_errors,
    forks_of,
    inner_engine,
    known_dialect,
    loses_its_place,
    waits_of,
    watched,
)
from .sql_lease import LastSave, LastSaveOfParts, LeaseRows, SQLLease
from .sql_parts import PartRows, SaveParts
from .sql_table import RowSave, StateRows, only_reads
from .taking import held_async, taking_async

if False:  # SYNC
    from .taking import taking

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

__all__ = ["AsyncSQLAlchemyLease", "AsyncSQLAlchemyStore"]

T = TypeVar("T")


class AsyncSQLAlchemyStore:
    """A store in a table of a database, for any number of tasks, processes and machines.

    Each call takes a connection out of the pool, sends one statement that is a transaction of its own, and
    gives the connection back. No connection is held while a model is called, not even under a lease. Where
    parts are saved, MySQL, MariaDB and SQLite need one short transaction. On SQLite the engine's own settings
    hold; `AsyncSQLiteStore` uses the same tables, and sets WAL and when to sync.

    Args:
        engine: It stays yours: dispose of it when you are done. It belongs to one event loop, and so does the
            store.
        table: The table's name. The first save makes it, the first lease ``<table>_lease``, the first save of
            parts ``<table>_part``; `goaitools store init` makes all three, and
            `goaitools_py.stores.sql_table`, `sql_lease` and `sql_parts` show their DDL.
        schema: The table's schema; by default the connection's.
        prepare: Whether PostgreSQL prepares statements. None: as the engine says; over psycopg not if a
            pooler, such as PgBouncer, is in between. Over asyncpg give False if there is one, before the
            engine has connections.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
    ) -> None:
        self._dialect = known_dialect(engine, "AsyncSQLAlchemyStore")
        inner = inner_engine(engine)
        self._forks = forks_of(inner, is_async=True)
        self._waits = waits_of(inner)
        self._preparing = Preparing(inner, prepare)
        self._engine = engine
        self._rows = StateRows(table, schema)
        self._parts = PartRows(self._rows)
        self._leases = LeaseRows(self._dialect, table, schema)

    @property
    def longest_wait(self) -> float:
        """Seconds after which a call has ended in any case; infinity if a driver may wait for ever."""
        return self._waits.longest

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        common.check_key(key)
        return await self._run(lambda connection: self._rows.load(connection, key))

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        If the connection breaks after the write was sent, the row is read once to see whether it was done.
        """
        return await self._written(RowSave(self._rows, key, blob, expected, facts))

    async def _written(self, save: RowSave) -> int:
        try:
            await self._run(save.write)
        except StoreUnavailableError:
            if not (save.was_sent and await self._run(save.is_stored)):
                raise
        return save.version

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
        """As `save`; in the same atomic step add parts and drop parts. See `Parted.save_parts`."""
        return await self._written_at_once(SaveParts(self._parts, key, head, new, gone, expected, facts))

    async def _written_at_once(self, save: SaveParts) -> int:
        if not save.is_ready:
            await self._run(save.make_tables)
        try:
            await self._run(save.write, at_once)
        except StoreUnavailableError:
            if not (save.was_sent and await self._run(save.is_stored)):
                raise
        return save.version

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one statement."""
        common.check_key(key)
        return await self._run(lambda connection: self._parts.load_head(connection, key, kinds))

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        common.check_key(key)
        return await self._run(lambda connection: self._parts.load_parts(connection, key, names))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        common.check_key(key)
        return await self._run(lambda connection: self._rows.set_stop(connection, key, is_wanted))

    async def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        common.check_key(key)
        return await self._run(lambda connection: self._rows.stop_requested(connection, key))

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        common.check_key(key)
        return await self._run(lambda connection: self._rows.delete(connection, key, expected))

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        common.check_page(prefix, limit, cursor)
        return await self._run(lambda connection: self._rows.list(connection, prefix, cursor, limit))

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncSQLAlchemyLease, Stored | None]:
        """Take a lease, and then load, on one connection. See `Combining.lease_and_load`."""
        lease = AsyncSQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        if True:  # ASYNC
            step = AsyncUndisturbed(
                lambda: self._run(lambda connection: lease.row.take_and_load(connection, self._rows))
            )
            async with taking_async(lease, step.rest):
                return lease, await step.call()
        else:
            with taking(lease):
                return lease, self._run(lambda connection: lease.row.take_and_load(connection, self._rows))

    async def save_and_release(
        self,
        lease: AsyncSQLAlchemyLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`, and the lease ends with it; on PostgreSQL in one statement. See `Combining`."""
        save = LastSave(lease.row, self._rows, key, blob, expected, facts)
        version = await self._written(save)
        lease.note_end()
        return version

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncSQLAlchemyLease, StoredHead | None]:
        """Take a lease, and then load the head, on one connection. See `CombiningParts`."""
        lease = AsyncSQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        if True:  # ASYNC
            step = AsyncUndisturbed(
                lambda: self._run(
                    lambda connection: lease.row.take_and_load_head(connection, self._parts, kinds)
                )
            )
            async with taking_async(lease, step.rest):
                return lease, await step.call()
        else:
            with taking(lease):
                return lease, self._run(
                    lambda connection: lease.row.take_and_load_head(connection, self._parts, kinds)
                )

    async def save_parts_and_release(
        self,
        lease: AsyncSQLAlchemyLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save_parts`; the same statement or transaction ends the lease. See `CombiningParts`."""
        save = LastSaveOfParts(lease.row, self._parts, key, head, new, gone, expected, facts)
        version = await self._written_at_once(save)
        lease.note_end()
        return version

    async def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        common.check_key(key)
        return await self._run(lambda connection: self._leases.is_held(connection, key))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncSQLAlchemyLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken.

        It is a row with a time, not a lock: nothing is open between the statements.
        """
        lease = AsyncSQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        async with held_async(lease, lambda: self._run(lease.row.take)):
            yield lease

    async def _run(self, step: Callable[[Connection], T], way: Way[T] = each_by_itself) -> T:
        with engine_errors(self._dialect), self._forks.step():
            connection = await self._engine.connect()
            try:
                if True:  # ASYNC
                    return await connection.run_sync(watched, way, step, self._preparing)
                return watched(connection, way, step, self._preparing)
            except DBAPIError as exc:
                if only_reads(exc):
                    await connection.invalidate()
                raise
            finally:
                await self._give_back(connection)

    async def _give_back(self, connection: AsyncConnection) -> None:
        try:
            if True:  # ASYNC
                await connection.__aexit__(None, None, None)  # unlike `close`, it cannot be cancelled
            else:
                connection.close()
        except BaseException as exc:
            if not loses_its_place(self._dialect):
                raise
            await self._engine.dispose()
            if not isinstance(exc, Exception):
                raise


class AsyncSQLAlchemyLease:
    """A lease that is held in a database."""

    def __init__(
        self, lease: SQLLease, run: Callable[[Callable[[Connection], bool]], Awaitable[bool]]
    ) -> None:
        self.row = lease
        self._run = run
        self._is_over = False

    @property
    def is_taken(self) -> bool:
        """True once the database has confirmed it."""
        return self.row.is_taken

    def note_end(self) -> None:
        """Note that a save has ended the lease."""
        self._is_over = True

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return await self._run(self.row.renew)

    async def release(self) -> None:
        """End the lease now. Raises `StoreUnavailableError`; may be called again."""
        if not self._is_over:
            await self._run(self.row.release)
            self._is_over = True
