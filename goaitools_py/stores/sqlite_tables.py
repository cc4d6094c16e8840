"""The tables of a store as SQLite's DDL.

Owns: the statements that make the tables of `layout`, and that add a column to an older one. Must never know:
a connection, or the contents of a blob.

A trigger drops the parts of a conversation with its row. SQLite enforces a foreign key only on connections
that ask for it, and a row may be deleted over any connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .layout import (
    LEASE_COLUMNS,
    PART_COLUMNS,
    STATE_COLUMNS,
    Column,
    lease_table_name,
    part_table_name,
)

__all__ = ["added_column", "lease_table", "part_tables", "quoted", "state_table"]

_TYPES: Final = {
    "key": "TEXT",
    "text": "TEXT",
    "integer": "INTEGER",
    "flag": "INTEGER",
    "bytes": "BLOB",
    "digest": "BLOB",
}


def quoted(name: str) -> str:
    """A table's name, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def state_table(table: str) -> str:
    """Makes the table of conversations."""
    return _table(table, STATE_COLUMNS, ("key",))


def lease_table(table: str) -> str:
    """Makes the table of leases beside a table of conversations."""
    return _table(lease_table_name(table), LEASE_COLUMNS, ("key",))


def part_tables(table: str) -> tuple[str, str]:
    """Make the table of parts beside a table of conversations, and its trigger.

    It has row ids: with them SQLite reads rows of more than a twentieth of a page faster.
    """
    parts = part_table_name(table)
    return (
        _table(parts, PART_COLUMNS, ("key", "name"), has_row_ids=True),
        f"CREATE TRIGGER IF NOT EXISTS {quoted(f'{parts}_gone')} AFTER DELETE ON {quoted(table)}"
        f" BEGIN DELETE FROM {quoted(parts)} WHERE key = OLD.key; END",
    )


def added_column(table: str, column: Column) -> str:
    """Adds a column to a table of an older layout."""
    return f"ALTER TABLE {quoted(table)} ADD COLUMN {_declared(column, column.when_added)}"


def _table(name: str, columns: Sequence[Column], primary: Sequence[str], *, has_row_ids: bool = False) -> str:
    lines = [*map(_declared, columns), f"PRIMARY KEY ({', '.join(primary)})"]
    body = ",\n    ".join(lines)
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(name)} (\n    {body}\n){'' if has_row_ids else ' WITHOUT ROWID'}"
    )


def _declared(column: Column, default: int | None = None) -> str:
    default = column.default if default is None else default
    return (
        f"{column.name} {_TYPES[column.kind]}"
        + (" NOT NULL" if column.is_required else "")
        + ("" if default is None else f" DEFAULT {default}")
    )
