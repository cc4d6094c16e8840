"""The statements of the stores in SQL, as texts with named parameters, and the tables that they are about.

Owns: SQL. Must never know: a driver, or the meaning of an answer.

A parameter is written ``:key``, as SQLite and SQLAlchemy take it; `numbered` writes it for PostgreSQL's own
drivers. The three engines differ in a few places: PostgreSQL does each step in one statement, which returns a
row if it has changed one. SQLite has PostgreSQL's ``ON CONFLICT``, and no clock to rely on. MySQL and MariaDB
have neither ``ON CONFLICT`` nor ``RETURNING``.

A lease is a row with an end time, because a lock of the database would keep other writers out while a model
is called. The server's clock says when a lease has ended. It can be set: forward, and leases end early; back,
and a lease would last as much longer. So a lease that ends more than twice its length ahead counts as ended.
A living holder renews its lease three times in its length, so in most cases only a dead holder's is taken
over. On SQLite all writers are on one machine, and the clock is the one that counts from the machine's start
(`now_ms`): all processes read the same time on it, and a program cannot set it. After a restart it begins
again at 0, and the holder of an older lease is gone. An older lease then ends later than a new one could, so
it counts as ended. In the worst case it holds for its length once more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from .layout import (
    LEASE_COLUMNS,
    PART_COLUMNS,
    PLAIN_COLUMNS,
    STATE_COLUMNS,
    Column,
    lease_table_name,
    part_table_name,
)

__all__ = [
    "Statements",
    "added_column",
    "now_ms",
    "numbered",
    "postgres_tables",
    "quoted",
    "sqlite_tables",
]

_PLAIN: Final = [column.name for column in PLAIN_COLUMNS]
_SAVED: Final = ("blob", "version", "updated_at", *_PLAIN)
"""The columns that a save sets, which are also the names of its parameters."""

_MYSQL_NOW: Final = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"
_NOW: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": _MYSQL_NOW,
    "mariadb": _MYSQL_NOW,
    "sqlite": ":now",
}
"""Milliseconds: since 1970, by the server's clock; on SQLite `now_ms`."""


class Statements:
    """The statements on the tables of one store.

    With `forgets`, a row that was last saved at the time ``:oldest`` or before is as if it were not there.

    Attributes:
        forgets: Whether the store has a `ttl`.
        is_single: Each step is one statement: it compares, saves, changes parts and ends a lease.
        is_local: The engine is a file, and an error tells that a statement was not done.
        has_clock: The server's clock is used.
        take_over: Takes a lease that has ended; "" if `take` does so.
        find_parts: Fails if there is no table of parts; "" if each save of parts fails then.
        drop_all_parts: Drops the parts of a conversation, where `replace` does not.
        evict: Deletes a row that is forgotten, and those of its bytes that were set aside.
    """

    def __init__(self, engine: str, state: str, lease: str, part: str, *, forgets: bool = False) -> None:
        """`engine`: as SQLAlchemy names it. The tables: their names, quoted."""
        self.forgets = forgets
        self._is_kept = is_kept = " AND updated_at > :oldest" if forgets else ""
        self.is_single = engine == "postgresql"
        self.is_local = engine == "sqlite"
        self.is_mysql = engine in ("mysql", "mariadb")
        self.has_clock = not self.is_local
        self._state, self._part = state, part
        key, blob = ("`key`", "`blob`") if self.is_mysql else ("key", "blob")
        self._key = key
        returned = f" RETURNING {key}" if self.is_single else ""
        self._returned = returned

        # The stop flag is named so that a table of an older layout is found here, before a turn is paid for.
        self._row = f"{blob}, version, updated_at, stop_requested"
        self.load = f"SELECT {self._row} FROM {state} WHERE {key} = :key{is_kept}"
        columns = [blob, *_SAVED[1:]]
        ignored = "" if self.is_mysql else " ON CONFLICT DO NOTHING"
        insert = (
            f"INSERT INTO {state} ({key}, {', '.join(columns)})"
            f" VALUES (:key, {', '.join(f':{name}' for name in _SAVED)}){ignored}{returned}"
        )
        sets = ", ".join(f"{column} = :{name}" for column, name in zip(columns, _SAVED, strict=True))
        update = f"UPDATE {state} SET {sets} WHERE {key} = :key AND version = :expected{is_kept}{returned}"
        self._saves = {True: insert, False: update}
        is_old = f"{key} = :key AND updated_at <= :oldest"
        self._replace = f"UPDATE {state} SET {sets}, stop_requested = 0 WHERE {is_old}{returned}"
        its_own = f"({key} = :key OR {key} >= :aside AND {key} < :end)"
        self.evict = f"DELETE FROM {state} WHERE {its_own} AND updated_at <= :oldest{returned}"
        self.drop_all_parts = f"DELETE FROM {part} WHERE {key} = :key"
        self.set_stop = f"UPDATE {state} SET stop_requested = :flag WHERE {key} = :key{is_kept}{returned}"
        self.stop_requested = f"SELECT stop_requested FROM {state} WHERE {key} = :key{is_kept}"
        has_row = f" AND EXISTS (SELECT 1 FROM {state} WHERE {key} = :key{is_kept})"
        self._has_kept_row = has_row if forgets else ""

        self.find_parts = "" if self.is_single else f"SELECT 1 FROM {part} WHERE 1 = 0"
        # Not INSERT IGNORE, which would also keep silent about a row that is refused for another reason.
        same = " ON DUPLICATE KEY UPDATE kind = kind" if self.is_mysql else ignored
        self.add_part = (
            f"INSERT INTO {part} ({key}, name, kind, data) VALUES (:key, :name, :kind, :data){same}"
        )

        now = _NOW[engine]
        # PostgreSQL logs a lease, so that a standby that takes over has it. It does not wait for the log.
        quick = " RETURNING set_config('synchronous_commit', 'off', true)" if self.is_single else returned
        is_over = f"(held.ends_at <= {now} OR held.ends_at > {now} + 2 * held.ttl_ms)"
        its_own = f"{key} = :key AND token = :token"
        row = f"({key}, token, ends_at, ttl_ms) VALUES (:key, :token, {now} + :ttl, :ttl)"
        if self.is_mysql:
            self.take = f"INSERT INTO {lease} {row}"
            self.take_over = (
                f"UPDATE {lease} AS held SET token = :token, ends_at = {now} + :ttl, ttl_ms = :ttl"
                f" WHERE {key} = :key AND {is_over}"
            )
        else:
            self.take = (
                f"INSERT INTO {lease} AS held {row} ON CONFLICT (key) DO UPDATE SET token = excluded.token,"
                f" ends_at = excluded.ends_at, ttl_ms = excluded.ttl_ms WHERE {is_over}{quick}"
            )
            self.take_over = ""
        self.renew = (
            f"UPDATE {lease} AS held SET ends_at = {now} + :ttl, ttl_ms = :ttl"
            f" WHERE {its_own} AND NOT {is_over}{quick}"
        )
        self.is_held = f"SELECT 1 FROM {lease} AS held WHERE {key} = :key AND NOT {is_over}"
        # SQLite: with the rows of all leases that have ended.
        self.release = f"DELETE FROM {lease} WHERE {its_own}{quick}"
        if self.is_local:
            self.release = f"DELETE FROM {lease} AS held WHERE {its_own} OR {is_over}"
        self._ended = (
            f"ended AS (DELETE FROM {lease} WHERE key IN (SELECT key FROM saved) AND token = :token)"
        )
        self._chosen: dict[tuple[bool, bool, bool], str] = {}

    def save(self, *, is_new: bool, has_parts: bool = False, ends_lease: bool = False) -> str:
        """The statement that compares and saves. It changes one row, or 0 rows.

        `has_parts`, `ends_lease`: for an engine that does it in the same statement. The parts and the lease
        change only if the row of the conversation did.
        """
        which = (is_new, has_parts, ends_lease)
        found = self._chosen.get(which)
        if found is None:
            found = self._chosen[which] = self._saving(*which)
        return found

    def replace(self, *, has_parts: bool, ends_lease: bool, drops: bool) -> str:
        """The statement that saves in the place of a row that is forgotten. It changes one row, or 0 rows.

        `has_parts`, `ends_lease`: as for `save`. `drops`: for an engine that drops the old parts in the same
        statement. A new part may have an old one's name. That one stays, since it is not added again.
        """
        gone = "NOT name = ANY(CAST(:names AS BYTEA[]))" if drops else ""
        return self._in_one(self._replace, gone, has_parts, ends_lease)

    def _saving(self, is_new: bool, has_parts: bool, ends_lease: bool) -> str:
        gone = "name = ANY(CAST(:gone AS BYTEA[]))" if has_parts else ""
        return self._in_one(self._saves[is_new], gone, has_parts, ends_lease)

    def _in_one(self, save: str, gone: str, has_parts: bool, ends_lease: bool) -> str:
        """A save with the other changes of its step, where one statement does them. `gone`: the parts to
        drop."""
        part = self._part
        if not self.is_single or not (gone or has_parts or ends_lease):
            return save
        steps = [f"saved AS ({save})"]
        # The parts as they were when the statement began. They cannot be out of date: a save that has
        # changed them since has changed the row too, and then this statement changes nothing.
        if gone:
            steps.append(f"dropped AS (DELETE FROM {part} WHERE key IN (SELECT key FROM saved) AND {gone})")
        if has_parts:
            steps.append(
                f"added AS (INSERT INTO {part} (key, name, kind, data)"
                " SELECT saved.key, given.name, given.kind, given.data FROM saved,"
                " unnest(CAST(:names AS BYTEA[]), CAST(:kinds AS BIGINT[]), CAST(:data AS BYTEA[]))"
                " AS given (name, kind, data) ON CONFLICT DO NOTHING)"
            )
        if ends_lease:
            steps.append(self._ended)
        return f"WITH {', '.join(steps)} SELECT key FROM saved"

    def load_head(self, kinds: Sequence[int] | None) -> str:
        """The row of a conversation, and its parts of these kinds, read in one statement and so at one
        moment."""
        asked = "" if kinds is None else f" AND kind IN ({', '.join(str(int(kind)) for kind in kinds)})"
        return (
            f"SELECT {self._row}, NULL AS name, NULL AS kind, NULL AS data"
            f" FROM {self._state} WHERE {self._key} = :key{self._is_kept}"
            " UNION ALL SELECT NULL, NULL, NULL, NULL, name, kind, data"
            f" FROM {self._part} WHERE {self._key} = :key{asked}{self._has_kept_row}"
        )

    def load_parts(self, count: int) -> str:
        """The parts with one of so many names."""
        named = f"{self._key} = :key AND {self._named(count)}"
        return f"SELECT name, kind, data FROM {self._part} WHERE {named}{self._has_kept_row}"

    def drop_parts(self, count: int) -> str:
        """Drops the parts with one of so many names."""
        return f"DELETE FROM {self._part} WHERE {self._key} = :key AND {self._named(count)}"

    def _named(self, count: int) -> str:
        if self.is_single:
            return "name = ANY(CAST(:names AS BYTEA[]))"
        return f"name IN ({', '.join(f':name{number}' for number in range(count))})"

    def delete(self, *, compares: bool) -> str:
        """Deletes a row, or a version of it."""
        version = " AND version = :expected" if compares else ""
        return f"DELETE FROM {self._state} WHERE {self._key} = :key{version}{self._returned}"

    def list(self, *, is_after: bool, has_end: bool) -> str:
        """A page of rows. A bound that is not needed is left out, so that each engine reads the index from
        the first row of the page to the last one."""
        key = self._key
        bound = f"{key} {'>' if is_after else '>='} :start" + (f" AND {key} < :end" if has_end else "")
        return (
            f"SELECT {key}, version, updated_at, {', '.join(_PLAIN)} FROM {self._state}"
            f" WHERE {bound}{self._is_kept} ORDER BY {key} LIMIT :count"
        )

    def recent(self, *, has_start: bool, has_end: bool, is_before: bool) -> str:
        """A page of rows, newest first. Without an index of the times all rows of the prefix are read."""
        key, bounds = self._key, []
        if has_start:
            bounds.append(f"{key} >= :start")
        if has_end:
            bounds.append(f"{key} < :end")
        if is_before:
            bounds.append(f"updated_at <= :at AND (updated_at < :at OR {key} < :before)")
        if self.forgets:
            bounds.append("updated_at > :oldest")
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        return (
            f"SELECT {key}, version, updated_at, {', '.join(_PLAIN)} FROM {self._state}{where}"
            f" ORDER BY updated_at DESC, {key} DESC LIMIT :count"
        )


def now_ms() -> int:
    """Milliseconds since the machine was started. Since Python 3.5 all its processes read the same value."""
    return time.monotonic_ns() // 1_000_000


_PARAMETER: Final = re.compile(r'"[^"]*"|:(\w+)')


@lru_cache(maxsize=512)
def numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """A statement with numbered parameters (``$1``), and the parameters' names in their order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:  # a quoted name of a table
            return found[0]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PARAMETER.sub(number, statement), tuple(names)


# ------------------------------------------------------------------------------------------- tables


def quoted(name: str, schema: str | None = None, sign: str = '"') -> str:
    """A table's name, quoted for SQL."""
    return ".".join(sign + part.replace(sign, sign * 2) + sign for part in (schema, name) if part is not None)


_SQLITE_TYPES: Final = {
    "key": "TEXT",
    "text": "TEXT",
    "integer": "INTEGER",
    "flag": "INTEGER",
    "bytes": "BLOB",
    "digest": "BLOB",
}


def sqlite_tables(role: str, table: str) -> tuple[str, ...]:
    """Make a table of SQLite: "state", "lease" or "part".

    A trigger drops the parts of a conversation with its row. SQLite enforces a foreign key only on
    connections that ask for it, and a row may be deleted over any connection.

    The tables of conversations and parts have row ids. Without them a row stands in the tree of the primary
    key, and what is longer than a quarter of a page goes to pages of its own
    (<https://www.sqlite.org/fileformat2.html>, section 1.6): a head of 1 KB then costs a save more pages.
    A table that was made without row ids stays as it is, and all statements work on it.
    """
    if role == "state":
        return (_sqlite_table(table, STATE_COLUMNS, "key", ""),)
    if role == "lease":
        return (_sqlite_table(lease_table_name(table), LEASE_COLUMNS, "key", " WITHOUT ROWID"),)
    parts = part_table_name(table)
    return (
        _sqlite_table(parts, PART_COLUMNS, "key, name", ""),
        f"CREATE TRIGGER IF NOT EXISTS {quoted(f'{parts}_gone')} AFTER DELETE ON {quoted(table)}"
        f" BEGIN DELETE FROM {quoted(parts)} WHERE key = OLD.key; END",
    )


def _sqlite_table(name: str, columns: Sequence[Column], primary: str, end: str) -> str:
    body = ",\n    ".join([*map(_declared, columns), f"PRIMARY KEY ({primary})"])
    return f"CREATE TABLE IF NOT EXISTS {quoted(name)} (\n    {body}\n){end}"


def added_column(table: str, column: Column) -> str:
    """Adds a column to a SQLite table of an older layout."""
    return f"ALTER TABLE {quoted(table)} ADD COLUMN {_declared(column, column.when_added)}"


def _declared(column: Column, default: int | None = None) -> str:
    default = column.default if default is None else default
    return (
        f"{column.name} {_SQLITE_TYPES[column.kind]}"
        + (" NOT NULL" if column.is_required else "")
        + ("" if default is None else f" DEFAULT {default}")
    )


def postgres_tables(state: str, lease: str, part: str) -> tuple[str, ...]:
    """Make the tables of PostgreSQL. They equal those of `sql_table`, so a store
    over SQLAlchemy and one over a driver may share a database."""
    key = 'key VARCHAR(512) COLLATE "C" NOT NULL'
    return (
        f"CREATE TABLE IF NOT EXISTS {state} ({key} PRIMARY KEY, version BIGINT NOT NULL,"
        " updated_at BIGINT NOT NULL, blob BYTEA NOT NULL, title VARCHAR(200), status VARCHAR(32),"
        " turns BIGINT, total_tokens BIGINT, cost_nano_dollars BIGINT,"
        " stop_requested SMALLINT DEFAULT '0' NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS {lease} ({key} PRIMARY KEY, token VARCHAR(32) NOT NULL,"
        " ends_at BIGINT NOT NULL, ttl_ms BIGINT NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS {part} ({key} REFERENCES {state} (key) ON DELETE CASCADE,"
        " name BYTEA NOT NULL, kind BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (key, name))",
    )
