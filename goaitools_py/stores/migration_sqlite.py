"""The steps of a migration in a SQLite file, without SQLAlchemy.

Owns: how a step is done there. Must never know: the list of steps.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal

from ..types.errors import StoreUnavailableError
from . import sqlite_tables
from .migration import Step

__all__ = ["SQLiteTables"]


class SQLiteTables:
    """The tables of a SQLite file.

    Args:
        path: The file.
        mode: "ro" only reads; "rw" refuses a file that is not there; "rwc" makes it.
        table: The name of the table of conversations.
    """

    def __init__(self, path: str, mode: Literal["ro", "rw", "rwc"], table: str) -> None:
        self._table = table
        try:
            self._connection = sqlite3.connect(
                f"{Path(path).absolute().as_uri()}?mode={mode}", uri=True, timeout=60.0, isolation_level=None
            )
        except sqlite3.Error as exc:
            raise _failed(exc) from None

    def columns(self, table: str) -> frozenset[str] | None:
        """The names of a table's columns; None if the table does not exist."""
        try:
            rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        except sqlite3.Error as exc:
            raise _failed(exc) from None
        return frozenset(row[0] for row in rows) or None

    def do(self, step: Step) -> None:
        """Do a step."""
        try:
            for statement in self._statements(step):
                self._connection.execute(statement)
        except sqlite3.Error as exc:
            raise _failed(exc) from None

    def _statements(self, step: Step) -> tuple[str, ...]:
        if step.column is not None:
            return (sqlite_tables.added_column(step.table, step.column),)
        match step.role:
            case "state":
                return "PRAGMA journal_mode=WAL", sqlite_tables.state_table(self._table)
            case "lease":
                return (sqlite_tables.lease_table(self._table),)
            case _:
                return sqlite_tables.part_tables(self._table)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _failed(exc: sqlite3.Error) -> StoreUnavailableError:
    return StoreUnavailableError(f"SQLite could not do it: {exc}")
