# generated from stores/async_sqlalchemy.py by tests/make_sync.py; edit stores/async_sqlalchemy.py
"""Blobs in PostgreSQL, MySQL, MariaDB or SQLite, over an engine of SQLAlchemy.

Owns: connections, and whether a save that broke was done. Must never know: SQL, or a blob's contents.

Needs the extra: ``pip install 'goaitools-py[sqlalchemy]'``, and a driver. Make the engine with
``pool_pre_ping=True``: otherwise the first call after a restart of the server finds a dead connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import DBAPIError

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
from .taking import held, taking

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["SQLAlchemyLease", "SQLAlchemyStore"]

T = TypeVar("T")


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
        self._dialect = known_dialect(engine, "SQLAlchemyStore")
        inner = inner_engine(engine)
        self._forks = forks_of(inner, is_async=False)
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
            self._run(save.write, at_once)
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

    def _run(self, step: Callable[[Connection], T], way: Way[T] = each_by_itself) -> T:
        with engine_errors(self._dialect), self._forks.step():
            connection = self._engine.connect()
            try:
                return watched(connection, way, step, self._preparing)
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
            if not loses_its_place(self._dialect):
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
