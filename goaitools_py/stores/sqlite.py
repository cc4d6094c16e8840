"""Blobs in one SQLite table.

Owns: the table, its compare-and-swap, SQLite's settings. Must never know: what is in a blob.

``synchronous=FULL``: a saved turn has been paid for, and at one small write per turn the extra sync
costs less than the turn's own network round trip. WAL lets readers go on while a turn is saved.
Only `save` writes: whoever opens the wrong file, or only looks, leaves it as it was.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import StateConflictError, StoreUnavailableError
from .base import Stored

__all__ = ["SQLiteStore"]

_TABLE = """
CREATE TABLE IF NOT EXISTS goaitools_state (
    key TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    blob BLOB NOT NULL
) WITHOUT ROWID
"""


class SQLiteStore:
    """A store in a SQLite file, for any number of threads and processes on one machine.

    Args:
        path: The database file; it is made if missing. ":memory:" lives as long as the store.
        busy_timeout: Seconds to wait for another writer before `StoreUnavailableError`.
    """

    def __init__(self, path: str | Path, *, busy_timeout: float = 10.0) -> None:
        self._path = str(path)
        self._lock = threading.Lock()
        with self._errors():
            self._connection = sqlite3.connect(
                self._path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA synchronous=FULL")
                self._has_table = self._find_table()
            except sqlite3.Error:
                self._connection.close()
                raise

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        with self._lock, self._errors():
            self._has_table = self._has_table or self._find_table()
            if not self._has_table:
                return None
            row = self._connection.execute(
                "SELECT blob, version, updated_at FROM goaitools_state WHERE key = ?", (key,)
            ).fetchone()
        if row is None:
            return None
        return Stored(
            blob=bytes(row[0]), version=row[1], updated_at=datetime.fromtimestamp(row[2] / 1000, UTC)
        )

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        now = round(datetime.now(UTC).timestamp() * 1000)
        with self._lock, self._errors():
            if not self._has_table:
                self._make_table()
            if expected is None:
                changed = self._connection.execute(
                    "INSERT INTO goaitools_state VALUES (?, 1, ?, ?) ON CONFLICT DO NOTHING", (key, now, blob)
                ).rowcount
            else:
                changed = self._connection.execute(
                    "UPDATE goaitools_state SET blob = ?, version = version + 1, updated_at = ?"
                    " WHERE key = ? AND version = ?",
                    (blob, now, key, expected),
                ).rowcount
        if changed != 1:
            wanted = "no stored state" if expected is None else f"version {expected}"
            raise StateConflictError(
                f"the store does not hold {wanted} under this key any more; load again and redo the turn"
            )
        return 1 if expected is None else expected + 1

    def _find_table(self) -> bool:
        found = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'goaitools_state'")
        return found.fetchone() is not None

    def _make_table(self) -> None:
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(_TABLE)
        self._has_table = True

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise StoreUnavailableError(
                f"SQLite could not use the store: {type(exc).__name__}: {exc}"
            ) from exc
