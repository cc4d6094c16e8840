"""Blobs in one SQLite table.

Owns: the table, its compare-and-swap, SQLite's settings. Must never know: the contents of a blob.

``synchronous=FULL``: a saved turn has been paid for, and at one small write per turn the extra sync
costs less than the turn's own network round trip. In WAL mode the usual ``NORMAL`` may forget the last
commits when the power fails. WAL lets readers go on while a turn is saved.
Only a write makes a table: a program that opens the wrong file, or only reads, leaves it unchanged.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ..base.process import PerProcess
from ..types.errors import StoreUnavailableError
from . import common, sqlite_tables
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from .layout import PLAIN_COLUMNS, facts_of, lease_table_name, part_table_name, plain_values
from .sqlite_file import Database
from .taking import held, held_async, taking, taking_async

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["AsyncSQLiteStore", "SQLiteStore"]

T = TypeVar("T")

_TABLE: Final = "goaitools_state"
_PARTS: Final = part_table_name(_TABLE)
_PLAIN: Final = [column.name for column in PLAIN_COLUMNS]
_SAVED: Final = ["blob", "version", "updated_at", *_PLAIN]

# The stop flag is named so that a table of an older layout is found at the load, before a turn is paid for.
_LOAD: Final = f"SELECT blob, version, updated_at, stop_requested FROM {_TABLE} WHERE key = ?"
_INSERT: Final = (
    f"INSERT INTO {_TABLE} ({', '.join(_SAVED)}, key) VALUES ({', '.join('?' * len(_SAVED))}, ?)"
    " ON CONFLICT DO NOTHING"
)
_UPDATE: Final = (
    f"UPDATE {_TABLE} SET {', '.join(f'{name} = ?' for name in _SAVED)} WHERE key = ? AND version = ?"
)
_MAX_VARIABLES: Final = 500
"""How many names one statement holds; SQLite before 3.32 takes 999."""


class SQLiteStore:
    """A store in a SQLite file, for any number of threads and processes on one machine.

    A process that forks may go on with it, and so may its child: the file is closed before the fork, and
    each of the two opens it again at its next use.

    Args:
        path: The database file; it is made if missing. ":memory:" lives as long as the store.
        busy_timeout: Seconds to wait for another writer before `StoreUnavailableError`.
    """

    def __init__(self, path: str | Path, *, busy_timeout: float = 10.0) -> None:
        self._busy_timeout = busy_timeout
        self._databases = PerProcess(partial(_database, _checked(path), busy_timeout))
        database = self._databases.get()
        with database.connected() as connection:
            _find_table(database, connection)
        database.rest()  # a process that only makes the store and then forks has nothing open

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        common.check_key(key)
        with self._connected() as (database, connection):
            if not _find_table(database, connection):
                return None
            row = connection.execute(_LOAD, (key,)).fetchone()
        if row is None:
            return None
        return Stored(blob=bytes(row[0]), version=row[1], updated_at=common.as_time(row[2]))

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        common.check_key(key)
        with self._connected() as (database, connection):
            if not database.has_table:
                self._make_table(database, connection)
            return _write(connection, key, blob, expected, facts)

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
        """As `save`; in the same transaction add parts and drop parts. See `Parted.save_parts`."""
        return self._save_parts(key, head, new, gone, expected, facts)

    def _save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        expected: int | None,
        facts: RowFacts | None,
        lease: SQLiteLease | None = None,
    ) -> int:
        common.check_key(key)
        dropped = set(gone) - {part.name for part in new}
        with self._connected() as (database, connection):
            if not database.has_table:
                self._make_table(database, connection)
            self._make_part_table(database, connection)
            with _transaction(connection):
                version = _write(connection, key, head, expected, facts)
                connection.executemany(
                    f"DELETE FROM {_PARTS} WHERE key = ? AND name = ?", [(key, name) for name in dropped]
                )
                connection.executemany(
                    f"INSERT INTO {_PARTS} (key, name, kind, data) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT DO NOTHING",
                    [(key, part.name, part.kind, part.data) for part in new],
                )
                if lease is not None:
                    connection.execute(*lease.row.release())
        if lease is not None:
            lease.note_end()
        return version

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one transaction."""
        common.check_key(key)
        wanted, values = "key = ?", [key]
        if kinds is not None:
            wanted += f" AND kind IN ({', '.join(str(int(kind)) for kind in kinds)})"
        with self._connected() as (database, connection):
            if not _find_table(database, connection):
                return None
            with _transaction(connection, "BEGIN"):
                row = connection.execute(_LOAD, (key,)).fetchone()
                if row is None:
                    return None
                found = (
                    connection.execute(f"SELECT name, kind, data FROM {_PARTS} WHERE {wanted}", values)
                    if _find_part_table(database, connection)
                    else ()
                )
                parts = tuple(_part(*line) for line in found)
        return StoredHead(blob=bytes(row[0]), version=row[1], updated_at=common.as_time(row[2]), parts=parts)

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        common.check_key(key)
        asked = list(dict.fromkeys(names))
        parts: list[StoredPart] = []
        with self._connected() as (database, connection):
            if not _find_part_table(database, connection):
                return ()
            for start in range(0, len(asked), _MAX_VARIABLES):
                some = asked[start : start + _MAX_VARIABLES]
                rows = connection.execute(
                    f"SELECT name, kind, data FROM {_PARTS} WHERE key = ? AND name IN"
                    f" ({', '.join('?' * len(some))})",
                    (key, *some),
                )
                parts += (_part(*row) for row in rows)
        return tuple(parts)

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        common.check_key(key)
        with self._connected() as (database, connection):
            if not _find_table(database, connection):
                return False
            changed = connection.execute(
                f"UPDATE {_TABLE} SET stop_requested = ? WHERE key = ?", (int(is_wanted), key)
            ).rowcount
        return changed == 1

    def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        common.check_key(key)
        with self._connected() as (database, connection):
            if not _find_table(database, connection):
                return False
            row = connection.execute(f"SELECT stop_requested FROM {_TABLE} WHERE key = ?", (key,)).fetchone()
        return row is not None and bool(row[0])

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        common.check_key(key)
        with self._connected() as (database, connection):
            if not _find_table(database, connection):
                return False
            deleted = connection.execute(
                "DELETE FROM goaitools_state WHERE key = ? AND (version = ? OR ?)",
                (key, expected, expected is None),
            ).rowcount
        if not deleted and expected is not None and self.load(key) is not None:
            raise common.conflict(expected)
        return deleted == 1

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        common.check_page(prefix, limit, cursor)
        bounds = {"key >= ?": prefix, "key < ?": common.after_prefix(prefix), "key > ?": cursor}
        asked = {bound: value for bound, value in bounds.items() if value is not None}
        with self._connected() as (database, connection):
            rows = (
                connection.execute(
                    f"SELECT key, version, updated_at, {', '.join(_PLAIN)} FROM {_TABLE}"
                    f" WHERE {' AND '.join(asked)} ORDER BY key LIMIT ?",
                    (*asked.values(), limit + 1),
                ).fetchall()
                if _find_table(database, connection)
                else []
            )
        keys = tuple(
            StoredKey(key=key, version=version, updated_at=common.as_time(at), facts=facts_of(plain))
            for key, version, at, *plain in rows[:limit]
            if common.is_listed(key, prefix)
        )
        return StoredPage(keys=keys, cursor=rows[limit - 1][0] if len(rows) > limit else None)

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[SQLiteLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken.

        It is a row with a time, not a lock: nothing is open between the statements.
        """
        lease = self.make_lease(key, ttl)
        with held(lease, lease.take):
            yield lease

    def lease_and_load(self, key: str, ttl: float) -> tuple[SQLiteLease, Stored | None]:
        """Take a lease, and then load. See `Combining.lease_and_load`."""
        lease = self.make_lease(key, ttl)
        with taking(lease):
            lease.take()
            return lease, self.load(key)

    def save_and_release(
        self,
        lease: SQLiteLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`, with the end of the lease in the same transaction: one sync of the disk for both."""
        common.check_key(key)
        with self._connected() as (database, connection):
            if not database.has_table:
                self._make_table(database, connection)
            with _transaction(connection):
                version = _write(connection, key, blob, expected, facts)
                connection.execute(*lease.row.release())
        lease.note_end()
        return version

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[SQLiteLease, StoredHead | None]:
        """Take a lease, and then load the head. See `CombiningParts.lease_and_load_head`."""
        lease = self.make_lease(key, ttl)
        with taking(lease):
            lease.take()
            return lease, self.load_head(key, kinds=kinds)

    def save_parts_and_release(
        self,
        lease: SQLiteLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save_parts`, with the end of the lease in the same transaction."""
        return self._save_parts(key, head, new, gone, expected, facts, lease)

    def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        common.check_key(key)
        with self._connected() as (_, connection):
            if not _has_lease_table(connection):
                return False
            return connection.execute(*sqlite_tables.is_held(key)).fetchone() is not None

    def make_lease(self, key: str, ttl: float) -> SQLiteLease:
        """A lease that is not taken yet, for callers that cannot use a ``with`` block."""
        row = sqlite_tables.LeaseRow(common.check_key(key), ttl)
        with self._connected() as (_, connection):
            connection.execute(sqlite_tables.lease_table(_TABLE))
        return SQLiteLease(row, self._change_lease)

    def close(self) -> None:
        """Close the database."""
        self._databases.get().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _change_lease(self, statement: sqlite_tables.Statement) -> bool:
        with self._connected() as (_, connection):
            return connection.execute(*statement).rowcount > 0

    @property
    def _connection(self) -> sqlite3.Connection:
        """The connection between two steps, to look at its settings."""
        with self._connected() as (_, connection):
            return connection

    @contextmanager
    def _connected(self) -> Iterator[tuple[Database, sqlite3.Connection]]:
        database = self._databases.get()
        with database.connected() as connection:
            yield database, connection

    def _make_table(self, database: Database, connection: sqlite3.Connection) -> None:
        self._write_ahead(connection)
        connection.execute(sqlite_tables.state_table(_TABLE))
        database.has_table = True

    def _make_part_table(self, database: Database, connection: sqlite3.Connection) -> None:
        if not _find_part_table(database, connection):
            for statement in sqlite_tables.part_tables(_TABLE):
                connection.execute(statement)
            database.has_part_table = True

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Switch the file to WAL. Unlike other statements, this one does not wait for another writer."""
        until = time.monotonic() + self._busy_timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(0.005)


def _checked(path: object) -> str:
    """The path as text. Raises for other types, and for a URL, which SQLite would take for a folder."""
    if not isinstance(path, (str, Path)):
        raise TypeError(f"a SQLite store takes the path of a file, not {type(path).__name__}")
    if str(path).startswith("sqlite:"):
        file = str(path).removeprefix("sqlite:").removeprefix("///") or "chat.db"
        raise ValueError(f"a SQLite store takes the path of a file, not a URL: write {file!r}")
    if not str(path):
        raise ValueError(
            "a SQLite store takes the path of a file, and this one is empty: SQLite would delete such a "
            "database when it is closed; write a path, or ':memory:'"
        )
    return str(path)


def _database(path: str, busy_timeout: float, before: Database | None) -> Database:
    return Database(path, busy_timeout) if before is None else before.inherited()


def _find_table(database: Database, connection: sqlite3.Connection) -> bool:
    if not database.has_table:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'goaitools_state'")
        database.has_table = found.fetchone() is not None
    return database.has_table


def _find_part_table(database: Database, connection: sqlite3.Connection) -> bool:
    if not database.has_part_table:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{_PARTS}_gone",))
        database.has_part_table = found.fetchone() is not None
    return database.has_part_table


def _has_lease_table(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (lease_table_name(_TABLE),))
    return found.fetchone() is not None


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Several statements in one atomic step.

    A step that writes takes the write lock at its beginning. Otherwise two steps could both read first, and
    then neither could write.
    """
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write(
    connection: sqlite3.Connection, key: str, blob: bytes, expected: int | None, facts: RowFacts | None
) -> int:
    """Save the row of a conversation; gives the new version. StateConflictError if another version is
    stored."""
    version = common.new_version(expected)
    saved = (blob, version, common.as_ms(datetime.now(UTC)), *plain_values(facts).values(), key)
    if expected is None:
        changed = connection.execute(_INSERT, saved).rowcount
    else:
        changed = connection.execute(_UPDATE, (*saved, expected)).rowcount
    if changed != 1:
        raise common.conflict(expected)
    return version


def _part(name: bytes, kind: int, data: bytes) -> StoredPart:
    return StoredPart(name=bytes(name), kind=kind, data=bytes(data))


class SQLiteLease:
    """A lease that is held in a SQLite table."""

    def __init__(
        self, row: sqlite_tables.LeaseRow, change: Callable[[sqlite_tables.Statement], bool]
    ) -> None:
        self.row = row
        self._change = change
        self._is_over = False
        self.is_taken = False
        """True once the database has confirmed it."""

    def note_end(self) -> None:
        """Note that a save has ended the lease."""
        self._is_over = True

    def take(self) -> None:
        """Begin the lease. `LeaseHeldError` if another lease has not run out."""
        if not self._change(self.row.take()):
            raise common.held()
        self.is_taken = True

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return self._change(self.row.renew())

    def release(self) -> None:
        """End the lease, if this holder still has it. Raises `StoreUnavailableError`; may be called again."""
        if not self._is_over:
            self._change(self.row.release())
            self._is_over = True


class AsyncSQLiteStore:
    """`SQLiteStore` for async code. Its calls run on one thread of its own, and any event loop may make them.

    Args:
        path: The database file; it is made if missing. ":memory:" lives as long as the store.
        busy_timeout: Seconds to wait for another writer before `StoreUnavailableError`.
    """

    longest_wait = 0.0

    def __init__(self, path: str | Path, *, busy_timeout: float = 10.0) -> None:
        self._open = partial(SQLiteStore, _checked(path), busy_timeout=busy_timeout)
        self._store: SQLiteStore | None = None
        self._threads = PerProcess(_thread)
        self._is_closed = False

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return await self._run(lambda store: store.load(key))

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        return await self._run(lambda store: store.save(key, blob, expected=expected, facts=facts))

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
        """As `SQLiteStore.save_parts`, awaited."""
        return await self._run(
            lambda store: store.save_parts(key, head, new, gone, expected=expected, facts=facts)
        )

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `SQLiteStore.load_head`, awaited."""
        return await self._run(lambda store: store.load_head(key, kinds=kinds))

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `SQLiteStore.load_parts`, awaited."""
        return await self._run(lambda store: store.load_parts(key, names))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `SQLiteStore.set_stop`, awaited."""
        return await self._run(lambda store: store.set_stop(key, is_wanted))

    async def stop_requested(self, key: str) -> bool:
        """As `SQLiteStore.stop_requested`, awaited."""
        return await self._run(lambda store: store.stop_requested(key))

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        return await self._run(lambda store: store.delete(key, expected=expected))

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return await self._run(lambda store: store.list(prefix, cursor=cursor, limit=limit))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncSQLiteLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken.

        It is a row with a time, not a lock: nothing is open between the statements.
        """
        lease = AsyncSQLiteLease(self._run)
        async with held_async(lease, lambda: self._run(lambda store: lease.take(store, key, ttl))):
            yield lease

    async def is_held(self, key: str) -> bool:
        """As `SQLiteStore.is_held`, awaited."""
        return await self._run(lambda store: store.is_held(key))

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncSQLiteLease, Stored | None]:
        """As `SQLiteStore.lease_and_load`, awaited."""
        lease = AsyncSQLiteLease(self._run)

        def take(store: SQLiteStore) -> Stored | None:
            lease.take(store, key, ttl)
            return store.load(key)

        async with taking_async(lease):
            return lease, await self._run(take)

    async def save_and_release(
        self,
        lease: AsyncSQLiteLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `SQLiteStore.save_and_release`, awaited."""
        return await self._run(
            lambda store: store.save_and_release(lease.blocking, key, blob, expected=expected, facts=facts)
        )

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncSQLiteLease, StoredHead | None]:
        """As `SQLiteStore.lease_and_load_head`, awaited."""
        lease = AsyncSQLiteLease(self._run)

        def take(store: SQLiteStore) -> StoredHead | None:
            lease.take(store, key, ttl)
            return store.load_head(key, kinds=kinds)

        async with taking_async(lease):
            return lease, await self._run(take)

    async def save_parts_and_release(
        self,
        lease: AsyncSQLiteLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `SQLiteStore.save_parts_and_release`, awaited."""
        return await self._run(
            lambda store: store.save_parts_and_release(
                lease.blocking, key, head, new, gone, expected=expected, facts=facts
            )
        )

    async def aclose(self) -> None:
        """Close the database."""
        if not self._is_closed:
            if self._store is not None:
                await self._run(lambda store: store.close())
            self._is_closed = True
            self._threads.get().shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, call: Callable[[SQLiteStore], T]) -> T:
        import asyncio

        if self._is_closed:
            raise StoreUnavailableError("SQLite could not use the store: it is closed; open another one")
        return await asyncio.get_running_loop().run_in_executor(self._threads.get(), self._call, call)

    def _call(self, call: Callable[[SQLiteStore], T]) -> T:
        if self._store is None:
            self._store = self._open()
        return call(self._store)


def _thread(_: ThreadPoolExecutor | None) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="goaitools-sqlite")


class AsyncSQLiteLease:
    """`SQLiteLease` for async code. Its methods run in the store's thread, in order."""

    def __init__(self, run: Callable[[Callable[[SQLiteStore], Any]], Awaitable[Any]]) -> None:
        self._run = run
        self._made: SQLiteLease | None = None

    @property
    def blocking(self) -> SQLiteLease:
        """The lease, in the thread of the store."""
        assert self._made is not None, "it was not taken"
        return self._made

    @property
    def is_taken(self) -> bool:
        """True once the database has confirmed it."""
        return self._made is not None and self._made.is_taken

    def take(self, store: SQLiteStore, key: str, ttl: float) -> None:
        """Begin the lease, in the store's thread. `LeaseHeldError` if another lease has not run out."""
        self._made = store.make_lease(key, ttl)
        self._made.take()

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return bool(await self._run(lambda store: self.blocking.renew()))

    async def release(self) -> None:
        """As `SQLiteLease.release`, awaited."""
        await self._run(lambda store: self._made.release() if self._made is not None else None)
