"""The steps that bring the tables of a store to the present layout.

Owns: the list of steps, and their names. Must never know: an engine, or how a step is done.

A step makes a table or adds a column. It removes nothing, and reads or writes no row. The list leaves out
steps that were done before, so an interrupted migration is simply started again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .layout import (
    LEASE_COLUMNS,
    PART_COLUMNS,
    STATE_COLUMNS,
    Column,
    lease_table_name,
    part_table_name,
)

__all__ = ["Step", "Tables", "steps_of"]


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
