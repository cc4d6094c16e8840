"""The steps that bring the tables of a store to the present layout, and how they are done in SQLite.

Owns: the list of steps, their names, and the steps in a SQLite file without SQLAlchemy. Must never know: an
engine of SQLAlchemy.

A step makes a table or adds a column. It removes nothing, and reads or writes no row. The list leaves out
steps that were done before, so an interrupted migration is simply started again.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ..types.errors import StoreUnavailableError
from .layout import (
    LEASE_COLUMNS,
    PART_COLUMNS,
    STATE_COLUMNS,
    Column,
    lease_table_name,
    part_table_name,
)
from .sql_statements import added_column, sqlite_tables

__all__ = ["SQLiteTables", "Step", "Tables", "steps_of"]


class Step(NamedTuple):
    """One change of the tables.

    Attributes:
        role: Which of the three tables.
        table: Its name.
        column: The column to add; None to make the table.
    """

    role: str
    table: str
    column: Column | None = None

    def __str__(self) -> str:
        if self.column is None:
            return f"make table {self.table}"
        return f"add column {self.column.name} to table {self.table}"


class Tables(Protocol):
    """The tables of one database."""

    def columns(self, table: str) -> frozenset[str] | None:
        """The names of a table's columns; None if the table does not exist."""
        ...

    def do(self, step: Step) -> None:
        """Do a step."""
        ...

    def close(self) -> None:
        """Close the connection to the database."""
        ...


def steps_of(tables: Tables, table: str) -> list[Step]:
    """The steps from the present tables to the present layout, in order.

    Args:
        tables: The database.
        table: The name of the table of conversations.
    """
    layout = (
        ("state", table, STATE_COLUMNS),
        ("lease", lease_table_name(table), LEASE_COLUMNS),
        ("part", part_table_name(table), PART_COLUMNS),
    )
    steps: list[Step] = []
    for role, name, columns in layout:
        found = tables.columns(name)
        if found is None:
            steps.append(Step(role, name))
        else:
            steps += (Step(role, name, column) for column in columns if column.name not in found)
    return steps


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
            raise StoreUnavailableError(f"SQLite could not open {path!r}: {exc}; check the path") from None

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
            return (added_column(step.table, step.column),)
        made = sqlite_tables(step.role, self._table)
        return ("PRAGMA journal_mode=WAL", *made) if step.role == "state" else made

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _failed(exc: sqlite3.Error) -> StoreUnavailableError:
    return StoreUnavailableError(f"SQLite could not do it: {exc}")
