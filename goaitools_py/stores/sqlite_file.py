"""One SQLite connection for each process, opened when it is needed and closed before a fork.

Owns: when the connection is opened, and its fate when the process forks. Must never know: a table.

SQLite keeps in the process's memory which locks the process holds on a file. A child inherits that memory,
but not the locks. A connection that the child opens would rely on locks that no process holds, as long as
one of its parent's connections to the file is inherited: saves get lost and the file gets corrupt
(<https://www.sqlite.org/howtocorrupt.html>, section 2.6). So before a fork the connections are closed, and
parent and child each open one when they need it. No handle is inherited, and the child closes no handle.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..types.errors import StoreUnavailableError
from . import sql_errors

__all__ = ["Database"]


class Database:
    """The connection of one process to a file. It is used by one thread at a time.

    Args:
        path: The file; ":memory:" and "" are databases that live as long as this object, and that a fork
            copies.
        busy_timeout: Seconds to wait for another writer.
    """

    def __init__(self, path: str, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._is_file = path not in ("", ":memory:")
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        self._is_refused = False
        _watch(self)

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one step. Turns SQLite's exceptions into `StoreUnavailableError`."""
        # The lock inside: if a `try` is the first line of a `with`, neither of both is left in order by an
        # exit at that line.
        try:
            with self._lock:
                yield self._connection or self._open()
        except sqlite3.Error as exc:
            failed = self.problem(exc)
            raise failed from failed.__cause__

    def problem(self, error: sqlite3.Error) -> Exception:
        """Translate an error of SQLite for a step."""
        breaks_rule = isinstance(error, sqlite3.IntegrityError)
        return sql_errors.problem(error, self._unavailable, "", breaks_rule=breaks_rule)

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"SQLite could not use the store: {type(error).__name__}: {error}{self._advice(error)}"
        ).because_of(error)

    def _advice(self, exc: Exception) -> str:
        if "unable to open" in str(exc):
            return (
                f"; check the path {str(self._path)!r}: its folder must exist, "
                "and this process needs the right to write there"
            )
        if "not a database" in str(exc):
            return f"; {str(self._path)!r} is another file: name a new one"
        return "; this store was closed: make another one" if self._is_closed else ""

    def rest(self) -> None:
        """Close the connection until it is needed again."""
        with self._lock:
            self._disconnect()

    def close(self) -> None:
        """Close the connection for good."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._is_refused:
            raise StoreUnavailableError(
                "the SQLite file was open while this process was forked, and Python was not told: "
                "its connection cannot be used here without losing saves. Make the store in each process "
                "(after the fork), or let the server tell Python of its forks (uWSGI: "
                "py-call-uwsgi-fork-hooks = true, or lazy-apps = true)"
            )
        if self._is_closed:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        if self._is_file and self._connection is not None:
            self._connection.close()
            self._connection = None

    # ---------------------------------------------------------------------------------------- forks

    def begin_fork(self) -> bool:
        """Close the file and keep it closed until `end_fork`. False if a step did not end in time."""
        if not self._lock.acquire(timeout=self._busy_timeout + 1.0):
            return False
        self._disconnect()
        return True

    def end_fork(self) -> None:
        """The fork is done, here or in the child."""
        self._lock.release()

    def inherited(self) -> Database:
        """The database object of a child: this object if nothing was open, else one that refuses its use."""
        if self._lock.acquire(blocking=False):
            is_idle = self._connection is None or not self._is_file
            self._lock.release()
            if is_idle:
                return self
        heir = Database(self._path, self._busy_timeout)
        heir._is_refused = True
        return heir


_watched: Final[dict[int, weakref.ref[Database]]] = {}
_forking: Final[dict[int, list[Database]]] = {}
"""By the number of a thread that forks: the databases that it keeps closed."""


def _watch(database: Database) -> None:
    number = id(database)
    _watched[number] = weakref.ref(database, lambda _: _watched.pop(number, None))


def _before() -> None:
    found = [database for reference in list(_watched.values()) if (database := reference()) is not None]
    _forking[threading.get_ident()] = [database for database in found if database.begin_fork()]


def _after() -> None:
    for database in _forking.pop(threading.get_ident(), ()):
        database.end_fork()


def _after_in_child() -> None:
    _after()
    _forking.clear()  # these belong to the parent's other threads, which do not run in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
