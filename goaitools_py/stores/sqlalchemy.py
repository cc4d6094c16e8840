"""Blobs in PostgreSQL, MySQL, MariaDB or SQLite, over an engine of SQLAlchemy.

Owns: connections, and the errors made of the engine's errors. Must never know: SQL, or a blob's contents.

Needs the extra: ``pip install 'goaitools-py[sqlalchemy]'``, and a driver. Make the engine with
``pool_pre_ping=True``: otherwise the first call after a restart of the server finds a dead connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, StatementError

from ..base.undisturbed import AsyncUndisturbed
from ..types.errors import StoreError, StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredPage, StoredPart
from .clients import Silence
from .sql_engine import Preparing, forks_of, refused_by_pooler, waits_of
from .sql_lease import LastSave, LastSaveOfParts, LeaseRows, SQLLease
from .sql_parts import PartRows, SaveParts
from .sql_table import RowSave, StateRows, lacks_a_column, only_reads
from .taking import held, held_async, taking, taking_async

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

__all__ = ["AsyncSQLAlchemyStore", "SQLAlchemyStore"]

T = TypeVar("T")
_Way: TypeAlias = Callable[[Connection, Callable[[Connection], T]], T]

_KNOWN = ("postgresql", "mysql", "mariadb", "sqlite")

# The isolation level of the transactions that save parts. It is always named: an application's engine may be
# in autocommit mode, and then there would be no transaction. PostgreSQL needs no transaction: it saves parts
# with one statement.
_ATOMIC = {
    "postgresql": "AUTOCOMMIT",
    "mysql": "REPEATABLE READ",
    "mariadb": "REPEATABLE READ",
    "sqlite": "SERIALIZABLE",
}


def _each_by_itself(connection: Connection, step: Callable[[Connection], T]) -> T:
    """Do a step in autocommit mode.

    The level is set on the connection and not on the engine. On MySQL that is a statement, and if it fails
    inside of `connect`, the connection stays out of the pool for as long as the caller keeps the error.
    """
    return step(connection.execution_options(isolation_level="AUTOCOMMIT"))


def _at_once(connection: Connection, step: Callable[[Connection], T]) -> T:
    """Do a step in one transaction."""
    connection.execution_options(isolation_level=_ATOMIC[connection.dialect.name])
    with connection.begin():
        return step(connection)


def _watched(
    connection: Connection, way: _Way[T], step: Callable[[Connection], T], preparing: Preparing
) -> T:
    """Do a step, and end the connection if the server falls silent."""

    def prepared(connection: Connection) -> T:
        preparing.begin(connection)
        return step(connection)

    with Silence(connection.connection.driver_connection):
        return way(connection, prepared)


class SQLAlchemyStore:
    """A store in a table of a database, for any number of threads, processes and machines.

    Each call takes a connection out of the pool, sends one statement that is a transaction of its own, and
    gives the connection back. No connection is held while a model is called, not even under a lease. Where
    parts are saved, MySQL, MariaDB and SQLite need one short transaction. On SQLite the engine's own settings
    hold; `SQLiteStore` uses the same tables, and sets WAL and when to sync.

    Args:
        engine: It stays yours: dispose of it when you are done. In a child of a fork its pool begins anew;
            one over a SQLite file must be made there, or have ``poolclass=NullPool``.
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
        engine: Engine,
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
    ) -> None:
        self._dialect = _known(engine, "SQLAlchemyStore")
        self._forks = forks_of(engine)
        self._waits = waits_of(engine)
        self._preparing = Preparing(engine, prepare)
        self._engine = engine
        self._rows = StateRows(table, schema)
        self._parts = PartRows(self._rows)
        self._leases = LeaseRows(self._dialect, table, schema)

    @property
    def longest_wait(self) -> float:
        """Seconds after which a call has ended in any case; infinity if a driver may wait for ever."""
        return self._waits.longest

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        common.check_key(key)
        return self._run(lambda connection: self._rows.load(connection, key))

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        If the connection breaks after the write was sent, the row is read once to see whether it was done.
        """
        return self._written(RowSave(self._rows, key, blob, expected, facts))

    def _written(self, save: RowSave) -> int:
        try:
            self._run(save.write)
        except StoreUnavailableError:
            if not (save.was_sent and self._run(save.is_stored)):
                raise
        return save.version

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
        """As `save`; in the same atomic step add parts and drop parts. See `Parted.save_parts`."""
        return self._written_at_once(SaveParts(self._parts, key, head, new, gone, expected, facts))

    def _written_at_once(self, save: SaveParts) -> int:
        if not save.is_ready:
            self._run(save.make_tables)
        try:
            self._run(save.write, _at_once)
        except StoreUnavailableError:
            if not (save.was_sent and self._run(save.is_stored)):
                raise
        return save.version

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one statement."""
        common.check_key(key)
        return self._run(lambda connection: self._parts.load_head(connection, key, kinds))

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        common.check_key(key)
        return self._run(lambda connection: self._parts.load_parts(connection, key, names))

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        common.check_key(key)
        return self._run(lambda connection: self._rows.set_stop(connection, key, is_wanted))

    def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        common.check_key(key)
        return self._run(lambda connection: self._rows.stop_requested(connection, key))

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        common.check_key(key)
        return self._run(lambda connection: self._rows.delete(connection, key, expected))

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        common.check_page(prefix, limit, cursor)
        return self._run(lambda connection: self._rows.list(connection, prefix, cursor, limit))

    def lease_and_load(self, key: str, ttl: float) -> tuple[SQLAlchemyLease, Stored | None]:
        """Take a lease, and then load, on one connection. See `Combining.lease_and_load`."""
        lease = SQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        with taking(lease):
            return lease, self._run(lambda connection: lease.row.take_and_load(connection, self._rows))

    def save_and_release(
        self,
        lease: SQLAlchemyLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`, and the lease ends with it; on PostgreSQL in one statement. See `Combining`."""
        save = LastSave(lease.row, self._rows, key, blob, expected, facts)
        version = self._written(save)
        lease.note_end()
        return version

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[SQLAlchemyLease, StoredHead | None]:
        """Take a lease, and then load the head, on one connection. See `CombiningParts`."""
        lease = SQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        with taking(lease):
            return lease, self._run(
                lambda connection: lease.row.take_and_load_head(connection, self._parts, kinds)
            )

    def save_parts_and_release(
        self,
        lease: SQLAlchemyLease,
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
        version = self._written_at_once(save)
        lease.note_end()
        return version

    def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        common.check_key(key)
        return self._run(lambda connection: self._leases.is_held(connection, key))

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[SQLAlchemyLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken.

        It is a row with a time, not a lock: nothing is open between the statements.
        """
        lease = SQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        with held(lease, lambda: self._run(lease.row.take)):
            yield lease

    def _run(self, step: Callable[[Connection], T], way: _Way[T] = _each_by_itself) -> T:
        with _errors(self._dialect), self._forks.step():
            connection = self._engine.connect()
            try:
                return _watched(connection, way, step, self._preparing)
            except DBAPIError as exc:
                if only_reads(exc):
                    connection.invalidate()
                raise
            finally:
                self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        try:
            connection.close()
        except BaseException as exc:
            if not _loses_its_place(self._dialect):
                raise
            self._engine.dispose()
            if not isinstance(exc, Exception):
                raise


class SQLAlchemyLease:
    """A lease that is held in a database."""

    def __init__(self, lease: SQLLease, run: Callable[[Callable[[Connection], bool]], bool]) -> None:
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

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return self._run(self.row.renew)

    def release(self) -> None:
        """End the lease now. Raises `StoreUnavailableError`; may be called again."""
        if not self._is_over:
            self._run(self.row.release)
            self._is_over = True


class AsyncSQLAlchemyStore:
    """`SQLAlchemyStore` over an `AsyncEngine`.

    Args:
        engine: It stays yours: dispose of it when you are done. It belongs to one event loop, and so does
            the store.
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
        self._dialect = _known(engine, "AsyncSQLAlchemyStore")
        self._forks = forks_of(engine.sync_engine, is_async=True)
        self._waits = waits_of(engine.sync_engine)
        self._preparing = Preparing(engine.sync_engine, prepare)
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
            await self._run(save.write, _at_once)
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
        """As `SQLAlchemyStore.lease_and_load`, awaited."""
        lease = AsyncSQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        step = AsyncUndisturbed(
            lambda: self._run(lambda connection: lease.row.take_and_load(connection, self._rows))
        )
        async with taking_async(lease, step.rest):
            return lease, await step.call()

    async def save_and_release(
        self,
        lease: AsyncSQLAlchemyLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `SQLAlchemyStore.save_and_release`, awaited."""
        save = LastSave(lease.row, self._rows, key, blob, expected, facts)
        version = await self._written(save)
        lease.note_end()
        return version

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncSQLAlchemyLease, StoredHead | None]:
        """As `SQLAlchemyStore.lease_and_load_head`, awaited."""
        lease = AsyncSQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        step = AsyncUndisturbed(
            lambda: self._run(lambda connection: lease.row.take_and_load_head(connection, self._parts, kinds))
        )
        async with taking_async(lease, step.rest):
            return lease, await step.call()

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
        """As `SQLAlchemyStore.save_parts_and_release`, awaited."""
        save = LastSaveOfParts(lease.row, self._parts, key, head, new, gone, expected, facts)
        version = await self._written_at_once(save)
        lease.note_end()
        return version

    async def is_held(self, key: str) -> bool:
        """As `SQLAlchemyStore.is_held`, awaited."""
        common.check_key(key)
        return await self._run(lambda connection: self._leases.is_held(connection, key))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncSQLAlchemyLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it; see `SQLAlchemyStore.lease`."""
        lease = AsyncSQLAlchemyLease(SQLLease(self._leases, key, ttl), self._run)
        async with held_async(lease, lambda: self._run(lease.row.take)):
            yield lease

    async def _run(self, step: Callable[[Connection], T], way: _Way[T] = _each_by_itself) -> T:
        with _errors(self._dialect), self._forks.step():
            connection = await self._engine.connect()
            try:
                return await connection.run_sync(_watched, way, step, self._preparing)
            except DBAPIError as exc:
                if only_reads(exc):
                    await connection.invalidate()
                raise
            finally:
                await self._give_back(connection)

    async def _give_back(self, connection: AsyncConnection) -> None:
        try:
            await connection.__aexit__(None, None, None)  # a cancellation does not reach it, unlike `close`
        except BaseException as exc:
            if not _loses_its_place(self._dialect):
                raise
            await self._engine.dispose()
            if not isinstance(exc, Exception):
                raise


class AsyncSQLAlchemyLease:
    """`SQLAlchemyLease` for async code."""

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
        """As `SQLAlchemyLease.release`, awaited."""
        if not self._is_over:
            await self._run(self.row.release)
            self._is_over = True


def _loses_its_place(dialect: str) -> bool:
    """Whether a connection that breaks on its way back occupies a place of the pool for ever.

    SQLAlchemy then sets the isolation level back. On MySQL and MariaDB that is a statement. If it fails,
    SQLAlchemy does not count the connection as given back. Only a new pool has all its places.
    """
    return dialect in ("mysql", "mariadb")


def _known(engine: Engine | AsyncEngine, kind: str) -> str:
    is_async = kind == "AsyncSQLAlchemyStore"
    inner = getattr(engine, "sync_engine", None)  # an AsyncEngine contains an Engine
    if not isinstance(inner if is_async else engine, Engine):
        made = "create_async_engine(url)" if is_async else "create_engine(url)"
        found = type(engine).__name__
        if isinstance(engine, Engine) or isinstance(inner, Engine):
            found += f", which is for {'SQLAlchemyStore' if is_async else 'AsyncSQLAlchemyStore'}"
        raise TypeError(f"{kind} takes an engine, not {found}: {kind}({made})")
    name = engine.dialect.name
    if name not in _KNOWN:
        raise ValueError(
            f"the engine speaks {name!r}, the store knows {', '.join(_KNOWN)}; for another database write a "
            "store of your own, and prove it with goaitools_py.testing.store_contract"
        )
    return name


@contextmanager
def _errors(dialect: str) -> Iterator[None]:
    """Catch everything: drivers have no common class for the errors while they connect."""
    try:
        yield
    except Exception as exc:
        # A UnicodeError, a ValueError of the driver, means that the connection cannot write a text (a key).
        if isinstance(exc, (StoreError, TypeError, ValueError)) and not isinstance(exc, UnicodeError):
            raise
        if isinstance(exc, StatementError):
            exc.params = None  # the parameters are the key and the blob, and would be printed
        if isinstance(exc, DBAPIError) and lacks_a_column(exc):
            older = common.older_layout("a table").because_of(exc)
            raise older from older.__cause__
        if isinstance(exc, DBAPIError) and (pooled := refused_by_pooler(exc)) is not None:
            pooled = pooled.because_of(exc)
            raise pooled from pooled.__cause__
        failed = common.unavailable(dialect, exc)
        raise failed from failed.__cause__
