"""The tables of a store in SQLite: their DDL, and the row of a lease.

Owns: the statements that make the tables of `layout`, that add a column to an older one, and those on a
lease's row. Must never know: a connection, or the contents of a blob.

A trigger drops the parts of a conversation with its row. SQLite enforces a foreign key only on connections
that ask for it, and a row may be deleted over any connection.

A lease is a row, because SQLite's own locks would block all other writers while a model is called. All
writers are on one machine, so a clock of the machine says when a lease has ended: the clock that counts from
the machine's start. All processes read the same time on it, and a program cannot set it. After a restart it
begins again at 0, and the holder of an older lease is gone. An older lease then ends later than a new one
could, so it counts as ended. In the worst case it holds for its length once more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Final

from . import common
from .layout import (
    LEASE_COLUMNS,
    PART_COLUMNS,
    STATE_COLUMNS,
    Column,
    lease_table_name,
    part_table_name,
)

__all__ = [
    "LeaseRow",
    "added_column",
    "is_held",
    "lease_table",
    "now_ms",
    "part_tables",
    "quoted",
    "state_table",
]

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


_IS_OVER = "(ends_at <= ? OR ends_at > ? + 2 * ttl_ms)"
_TAKE = f"""
INSERT INTO goaitools_state_lease AS held (key, token, ends_at, ttl_ms) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET token = excluded.token, ends_at = excluded.ends_at, ttl_ms = excluded.ttl_ms
WHERE {_IS_OVER.replace("ends_at", "held.ends_at").replace("ttl_ms", "held.ttl_ms")}
"""
_RENEW = f"UPDATE goaitools_state_lease SET ends_at = ? WHERE key = ? AND token = ? AND NOT {_IS_OVER}"
_RELEASE = f"DELETE FROM goaitools_state_lease WHERE key = ? AND token = ? OR {_IS_OVER}"
_IS_HELD = f"SELECT 1 FROM goaitools_state_lease WHERE key = ? AND NOT {_IS_OVER}"

Statement = tuple[str, tuple[str | int, ...]]


class LeaseRow:
    """One holder's lease. Each statement changes one row if it succeeds, otherwise 0 rows."""

    def __init__(self, key: str, ttl: float) -> None:
        self._key = key
        self._ttl_ms = max(1, round(common.check_ttl(ttl) * 1000))
        self._token = secrets.token_hex(16)

    def take(self) -> Statement:
        """Begin the lease, unless another lease has not run out."""
        now = now_ms()
        return _TAKE, (self._key, self._token, now + self._ttl_ms, self._ttl_ms, now, now)

    def renew(self) -> Statement:
        """Begin the `ttl` anew, unless the lease ran out."""
        now = now_ms()
        return _RENEW, (now + self._ttl_ms, self._key, self._token, now, now)

    def release(self) -> Statement:
        """End the lease, and delete the rows of all leases that have ended."""
        now = now_ms()
        return _RELEASE, (self._key, self._token, now, now)


def is_held(key: str) -> Statement:
    """Ask whether the key is leased. The answer has one row if it is, otherwise 0 rows."""
    now = now_ms()
    return _IS_HELD, (key, now, now)


def now_ms() -> int:
    """Milliseconds since the machine was started. Since Python 3.5 all its processes read the same value."""
    return time.monotonic_ns() // 1_000_000
