"""Blobs in a SQLite file.

Owns: SQLite's settings, and how a step's statements are done. Must never know: a statement of a step, or a
blob's contents.

``synchronous=FULL``: a saved turn has been paid for, and at one small write per turn the extra sync
costs less than the turn's own network round trip. In WAL mode the usual ``NORMAL`` may forget the last
commits when the power fails. WAL lets readers go on while a turn is saved.
Only a write makes a table: a program that opens the wrong file, or only reads, leaves it unchanged.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from ..base.advice import own_names
from ..base.process import PerProcess
from ..types.errors import StoreUnavailableError
from .async_sql_store import AsyncSQLStore
from .layout import lease_table_name, part_table_name
from .sql_statements import Statements, quoted, sqlite_tables
from .sql_steps import DONE, Command, Rows, Running, SQLSteps, Step
from .sql_store import SQLStore
from .sqlite_file import Database

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["AsyncSQLiteStore", "SQLiteStore"]

T = TypeVar("T")

_TABLE: Final = "goaitools_state"
_WRITE_AHEAD: Final = "PRAGMA journal_mode=WAL"


def _steps(ttl: float | None) -> SQLSteps:
    names = [quoted(name) for name in (_TABLE, lease_table_name(_TABLE), part_table_name(_TABLE))]
    tables = {role: [sqlite_tables(role, _TABLE)] for role in ("state", "lease", "part")}
    tables["state"].insert(0, (_WRITE_AHEAD,))
    return SQLSteps(Statements("sqlite", *names, forgets=ttl is not None), tables, ttl)


@own_names
class SQLiteStore(SQLStore):
    """A store in a SQLite file, for any number of threads and processes on one machine.

    A process that forks may go on with it, and so may its child: the file is closed before the fork, and
    each of the two opens it again at its next use.

    Args:
        path: The database file; it is made if missing. ":memory:" lives as long as the store.
        busy_timeout: Seconds to wait for another writer before `StoreUnavailableError`.
        ttl: Seconds after its last save until the store forgets a conversation; None: never. The clock of
            this process tells. The row stays in the table, see `goaitools store prune`.
    """

    def __init__(self, path: str | Path, *, busy_timeout: float = 10.0, ttl: float | None = None) -> None:
        self._steps = _steps(ttl)
        self._busy_timeout = busy_timeout
        self._databases: PerProcess[Database] = PerProcess(partial(_database, _checked(path), busy_timeout))
        database = self._databases.get()
        with database.connected() as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # it refuses another kind of file
        database.rest()  # a process that only makes the store and then forks has nothing open

    def close(self) -> None:
        """Close the database."""
        self._databases.get().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        """The connection between two steps, to look at its settings."""
        with self._databases.get().connected() as connection:
            return connection

    def _run(self, step: Step[T]) -> T:
        """Do the commands of a step, without another thread's between them."""
        running = Running(step)
        database = self._databases.get()
        with database.connected() as connection:
            while not running.is_over:
                rows: Rows = ()
                failed: Exception | None = None
                try:
                    rows = self._done(connection, running.commands)
                except sqlite3.Error as exc:
                    failed = database.problem(exc)
                if failed is None:
                    running.answer(rows)
                else:
                    running.fail(failed)
        return running.result

    def _done(self, connection: sqlite3.Connection, commands: Sequence[Command]) -> Rows:
        if len(commands) > 1:
            return _at_once(connection, commands)
        if commands[0][0] is _WRITE_AHEAD:
            return self._write_ahead(connection)
        return _answer(connection, *commands[0])

    def _write_ahead(self, connection: sqlite3.Connection) -> Rows:
        """Switch the file to WAL. Unlike other statements, this one does not wait for another writer."""
        until = time.monotonic() + self._busy_timeout
        while True:
            try:
                return connection.execute(_WRITE_AHEAD).fetchall()
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(0.005)


def _answer(connection: sqlite3.Connection, statement: str, values: object) -> Rows:
    if isinstance(values, list):
        connection.executemany(statement, values)
        return DONE
    cursor = connection.execute(statement, values)  # type: ignore[arg-type]
    if cursor.description is not None:
        return cursor.fetchall()
    return DONE if cursor.rowcount else ()


def _at_once(connection: sqlite3.Connection, commands: Sequence[Command]) -> Rows:
    """Do the commands in one transaction.

    It takes the write lock at its beginning. Otherwise two of them could both read first, and then neither
    could write.
    """
    first, *rest = commands
    try:
        connection.execute("BEGIN IMMEDIATE")
        rows = _answer(connection, *first)
        if rows:
            for command in rest:
                _answer(connection, *command)
        connection.execute("COMMIT" if rows else "ROLLBACK")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return rows


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


@own_names
class AsyncSQLiteStore(AsyncSQLStore):
    """`SQLiteStore` for async code. Its calls run on one thread of its own, and any event loop may make them.

    Args:
        path: The database file; it is made if missing. ":memory:" lives as long as the store.
        busy_timeout: Seconds to wait for another writer before `StoreUnavailableError`.
        ttl: Seconds after its last save until the store forgets a conversation; None: never. The clock of
            this process tells. The row stays in the table, see `goaitools store prune`.
    """

    longest_wait = 0.0

    def __init__(self, path: str | Path, *, busy_timeout: float = 10.0, ttl: float | None = None) -> None:
        self._steps = _steps(ttl)
        self._open = partial(SQLiteStore, _checked(path), busy_timeout=busy_timeout)
        self._store: SQLiteStore | None = None
        self._threads = PerProcess(_thread)
        self._is_closed = False

    async def aclose(self) -> None:
        """Close the database."""
        if not self._is_closed:
            if self._store is not None:
                await self._in_thread(self._store.close)
            self._is_closed = True
            self._threads.get().shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, step: Step[T]) -> T:
        return await self._in_thread(partial(self._done, step))

    def _done(self, step: Step[T]) -> T:
        """Do a step, in the store's thread."""
        if self._store is None:
            self._store = self._open()
        return self._store._run(step)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        import asyncio

        if self._is_closed:
            raise StoreUnavailableError("SQLite could not use the store: it is closed; open another one")
        return await asyncio.get_running_loop().run_in_executor(self._threads.get(), call)


def _thread(_: ThreadPoolExecutor | None) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="goaitools-sqlite")
