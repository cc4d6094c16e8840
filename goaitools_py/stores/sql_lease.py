"""Leases in PostgreSQL, MySQL, MariaDB and SQLite: a row with a time for each lease that is held.

Owns: the table of leases, and the steps that take, renew and release one. Must never know: an engine, a turn.

A row costs a write of a few bytes and keeps nothing open: no connection and no transaction is held while a
model is called, and any pooler may stand between.

The server's clock tells when a lease has run out; on SQLite it is the machine's clock since it was started
(`lease_row.now_ms`), which nobody sets. A server's clock can be set. Forward, leases end early. Back, a lease
would last for as long as that: so one that ends more than twice its length ahead is over. A holder that is
alive renews it three times in its length, so that mostly a dead one's is taken.
The first lease makes the table. Those who migrate their database themselves make it before, with
`lease_table` in their own metadata, or with ::

    -- PostgreSQL
    CREATE UNLOGGED TABLE goaitools_state_lease (
        key VARCHAR(512) COLLATE "C" NOT NULL PRIMARY KEY,
        token VARCHAR(32) NOT NULL,
        ends_at BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL
    );
    -- MySQL, MariaDB
    CREATE TABLE goaitools_state_lease (
        `key` VARBINARY(512) NOT NULL PRIMARY KEY,
        token VARCHAR(32) NOT NULL,
        ends_at BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL
    ) ENGINE=InnoDB;
    -- SQLite
    CREATE TABLE goaitools_state_lease (
        key TEXT NOT NULL PRIMARY KEY,
        token VARCHAR(32) NOT NULL,
        ends_at BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL
    ) WITHOUT ROWID;

``ends_at`` is in milliseconds of that clock, ``ttl_ms`` how long the lease lasts. Unlogged, because nobody
waits for a disk then, and what a crash of the server may lose is only who was about to have a turn.
"""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Insert,
    MetaData,
    String,
    Table,
    Update,
    bindparam,
    delete,
    insert,
    literal_column,
    not_,
    or_,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, IntegrityError

from . import rules
from .lease_row import now_ms
from .sql_table import KeyText, Rows, lost_a_race

__all__ = ["LeaseRows", "SQLLease", "lease_table"]

_MYSQL_NOW: Final = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"

_NOW: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": _MYSQL_NOW,
    "mariadb": _MYSQL_NOW,
}
"""Milliseconds since 1970, by the server's clock."""


def lease_table(
    metadata: MetaData,
    name: str = "goaitools_state_lease",
    schema: str | None = None,
    *,
    unlogged: bool = False,
) -> Table:
    """The table of leases of a store, for the metadata of whoever migrates the database themselves.

    Args:
        metadata: Where it is added.
        name: That of the store's table, with ``_lease`` behind it.
        schema: That of the store's table.
        unlogged: PostgreSQL only, and recommended there.
    """
    return Table(
        name,
        metadata,
        Column("key", KeyText(), primary_key=True),
        Column("token", String(32), nullable=False),
        Column("ends_at", BigInteger(), nullable=False),
        Column("ttl_ms", BigInteger(), nullable=False),
        schema=schema,
        prefixes=["UNLOGGED"] if unlogged else [],
        sqlite_with_rowid=False,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


class LeaseRows(Rows):
    """The leases of one store, and the statements on them."""

    def __init__(self, dialect: str, name: str, schema: str | None) -> None:
        unlogged = dialect == "postgresql"
        super().__init__(lease_table(MetaData(), f"{name}_lease", schema, unlogged=unlogged))
        table, columns = self.table, self.table.c
        self._has_clock = dialect in _NOW
        now: ColumnElement[int] = (
            literal_column(_NOW[dialect], BigInteger())
            if self._has_clock
            else bindparam("now_ms", type_=BigInteger())
        )
        ttl = bindparam("its_ttl", type_=BigInteger())
        row = {"token": bindparam("its_token"), "ends_at": now + ttl, "ttl_ms": ttl}
        is_over = or_(columns.ends_at <= now, columns.ends_at > now + 2 * columns.ttl_ms)
        its_key = columns.key == bindparam("its_key")
        its_own = columns.token == bindparam("its_token")
        add = insert(table)
        if dialect == "postgresql":  # which would write each error about a key that is there into its log
            add = postgresql.insert(table).on_conflict_do_nothing()
        self.add = add.values(key=bindparam("its_key"), **row).execution_options(preserve_rowcount=True)
        self.take_over = update(table).where(its_key, is_over).values(row)
        self.renew = update(table).where(its_key, its_own, not_(is_over)).values(row)
        self.release = delete(table).where(its_key, its_own)

    def clock(self) -> dict[str, int]:
        """What a statement is given of the time, besides what the server knows."""
        return {} if self._has_clock else {"now_ms": now_ms()}


class SQLLease:
    """One holder's lease. Its methods are the steps; each takes a connection."""

    def __init__(self, rows: LeaseRows, key: str, ttl: float) -> None:
        self._rows = rows
        self._named = {"its_key": rules.check_key(key), "its_token": secrets.token_hex(16)}
        self._timed = {**self._named, "its_ttl": max(1, round(rules.check_ttl(ttl) * 1000))}

    def take(self, connection: Connection) -> None:
        """Begin it, or raise `LeaseHeldError`."""
        self._rows.make(connection)
        rows = self._rows
        if not (self._wins(connection, rows.add) or self._wins(connection, rows.take_over)):
            raise rules.held()

    def _wins(self, connection: Connection, statement: Insert | Update) -> bool:
        try:
            return connection.execute(statement, {**self._timed, **self._rows.clock()}).rowcount == 1
        except IntegrityError:
            return False
        except DBAPIError as exc:
            if not lost_a_race(exc):
                raise
            return False

    def renew(self, connection: Connection) -> bool:
        """Begin the `ttl` anew; False if it ran out."""
        return connection.execute(self._rows.renew, {**self._timed, **self._rows.clock()}).rowcount == 1

    def release(self, connection: Connection) -> bool:
        """End it, if it is still this one."""
        return connection.execute(self._rows.release, self._named).rowcount == 1
