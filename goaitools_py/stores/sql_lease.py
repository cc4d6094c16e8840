"""Leases in PostgreSQL, MySQL, MariaDB and SQLite: one row with an end time for each lease that is held.

Owns: the table of leases, the steps that take, renew and release one, and a save that ends one. Must never
    know: an engine, a turn.

A lease costs a write of a few bytes. No connection and no transaction stays open while a model is called, so
any connection pooler may stand between.

The server's clock says when a lease has ended. On SQLite it is the machine's clock since its start
(`sqlite_tables.now_ms`), which programs cannot set. A server's clock can be set. If it is set forward, leases
end early. If it is set back, a lease would last as much longer. So a lease that ends more than twice its
length ahead counts as ended. A living holder renews its lease three times in its length, so in most cases
only the lease of a dead holder is taken over.

The first lease makes the table. To make it yourself, run ``goaitools store init URL``, or add `lease_table`
to your own metadata, or run ::

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
        token VARCHAR(32) CHARACTER SET utf8mb4 NOT NULL,
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

``ends_at`` is in milliseconds of that clock, ``ttl_ms`` is the length of the lease. The table is unlogged, so
that a lease does not wait for the disk. A crash of the server may lose it, and then a lease ends early.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Connection,
    Delete,
    Insert,
    MetaData,
    Table,
    Update,
    bindparam,
    delete,
    exists,
    insert,
    literal_column,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, IntegrityError

from . import common
from .base import Stored, StoredHead
from .layout import LEASE_COLUMNS, lease_table_name
from .sql_parts import PartRows, SaveParts
from .sql_table import Rows, RowSave, StateRows, lost_a_race, made
from .sqlite_tables import now_ms

__all__ = ["LastSave", "LastSaveOfParts", "LeaseRows", "SQLLease", "lease_table"]

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
    """The table of leases of a store, for the metadata of applications that migrate their database
    themselves.

    Args:
        metadata: Where it is added.
        name: The name of the store's table, followed by ``_lease``.
        schema: The schema of the store's table.
        unlogged: PostgreSQL only, and recommended there.
    """
    return made(metadata, name, schema, LEASE_COLUMNS, prefixes=["UNLOGGED"] if unlogged else [])


class LeaseRows(Rows):
    """The leases of one store, and the statements on them."""

    def __init__(self, dialect: str, name: str, schema: str | None) -> None:
        unlogged = dialect == "postgresql"
        super().__init__(lease_table(MetaData(), lease_table_name(name), schema, unlogged=unlogged))
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
        if dialect == "postgresql":  # it writes each duplicate key error into its log
            add = postgresql.insert(table).on_conflict_do_nothing()
        self.add = add.values(key=bindparam("its_key"), **row).execution_options(preserve_rowcount=True)
        self.take_over = update(table).where(its_key, is_over).values(row)
        self.renew = update(table).where(its_key, its_own, not_(is_over)).values(row)
        self.release = delete(table).where(its_key, its_own)
        self._held = select(columns.ttl_ms).where(its_key, not_(is_over))

    def clock(self) -> dict[str, int]:
        """The time parameters of a statement: empty if the server's clock is used."""
        return {} if self._has_clock else {"now_ms": now_ms()}

    def is_held(self, connection: Connection, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        if not self.is_there(connection):
            return False
        return connection.execute(self._held, {"its_key": key, **self.clock()}).first() is not None


class SQLLease:
    """One holder's lease. Its methods are the steps; each takes a connection.

    Attributes:
        is_taken: True once `take` has begun it.
    """

    def __init__(self, rows: LeaseRows, key: str, ttl: float) -> None:
        self._rows = rows
        self._named = {"its_key": common.check_key(key), "its_token": secrets.token_hex(16)}
        self._timed = {**self._named, "its_ttl": max(1, round(common.check_ttl(ttl) * 1000))}
        self.is_taken = False

    def take(self, connection: Connection) -> None:
        """Begin the lease, or raise `LeaseHeldError`."""
        self._rows.make(connection)
        rows = self._rows
        if not (self._wins(connection, rows.add) or self._wins(connection, rows.take_over)):
            raise common.held()
        self.is_taken = True

    def take_and_load(self, connection: Connection, states: StateRows) -> Stored | None:
        """Begin the lease, and then load the row of its key; or raise `LeaseHeldError`.

        These are two statements, because one statement sees all rows as they were when it began. If it had to
        wait for the former holder, it would return a blob from before that holder's save.
        """
        self.take(connection)
        return states.load(connection, str(self._named["its_key"]))

    def take_and_load_head(
        self, connection: Connection, parts: PartRows, kinds: Collection[int] | None
    ) -> StoredHead | None:
        """Begin the lease, and then load the head of its key. See `take_and_load`."""
        self.take(connection)
        return parts.load_head(connection, str(self._named["its_key"]), kinds)

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
        """Begin the `ttl` anew. False if the lease ran out."""
        return connection.execute(self._rows.renew, {**self._timed, **self._rows.clock()}).rowcount == 1

    def release(self, connection: Connection) -> bool:
        """End the lease, if this holder still has it."""
        return connection.execute(self._rows.release, self._named).rowcount == 1

    def ending(self, saved: CTE) -> Delete:
        """The statement that ends the lease, if this holder still has it, and if `saved` has a row."""
        table = self._rows.table
        named = self._named
        return delete(table).where(
            table.c.key == named["its_key"], table.c.token == named["its_token"], exists().select_from(saved)
        )


class LastSave(RowSave):
    """The save of a row that ends a lease. On PostgreSQL both are one statement; elsewhere the end of the
    lease is a second one, right after the save."""

    def __init__(self, lease: SQLLease, states: StateRows, *save: Any) -> None:
        super().__init__(states, *save)
        self._lease = lease
        self._states = states

    def write(self, connection: Connection) -> None:
        """Write, if the stored version is still the expected one, and end the lease."""
        super().write(connection)
        if connection.dialect.name != "postgresql":
            self._lease.release(connection)

    def _change(self, connection: Connection) -> int:
        if connection.dialect.name != "postgresql":
            return super()._change(connection)
        saved = self.statement().returning(self._states.table.c.key).cte("saved")
        ended = self._lease.ending(saved).cte("ended")
        return len(connection.execute(select(saved.c.key).add_cte(ended)).all())


class LastSaveOfParts(SaveParts):
    """The save of a head and its parts that ends a lease, in the same statement or transaction.

    In a transaction the lease comes last, so that all savers lock the rows in one order.
    """

    def __init__(self, lease: SQLLease, *save: Any) -> None:
        super().__init__(*save)
        self._lease = lease

    def write(self, connection: Connection) -> None:
        """Write all of it, if the stored version is still the expected one, and end the lease."""
        super().write(connection)
        if connection.dialect.name != "postgresql":
            self._lease.release(connection)

    def _more(self, head: CTE) -> list[CTE]:
        return [*super()._more(head), self._lease.ending(head).cte("ended")]
