"""The table of blobs in PostgreSQL, MySQL, MariaDB and SQLite, and each step that a store takes on it.

Owns: columns, statements, what a driver's error means. Must never know: an engine, or what is in a blob.

Each step takes a connection in autocommit mode, so that a statement is a transaction and none stays open.
The first save makes the table. Those who migrate their database themselves make it before, with
`state_table` in their own metadata, or with ::

    -- PostgreSQL
    CREATE TABLE goaitools_state (
        key VARCHAR(512) COLLATE "C" NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        blob BYTEA NOT NULL
    );
    -- MySQL, MariaDB
    CREATE TABLE goaitools_state (
        `key` VARBINARY(512) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        `blob` LONGBLOB NOT NULL
    ) ENGINE=InnoDB;
    -- SQLite
    CREATE TABLE goaitools_state (
        key TEXT NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        blob BLOB NOT NULL
    ) WITHOUT ROWID;

``updated_at`` is in milliseconds since 1970. Keys are bytes on MySQL, where each text collation takes some
different keys for equal: upper and lower case, accents, spaces at the end.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGBLOB, VARBINARY
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import TypeDecorator, TypeEngine

from ..errors import StateConflictError, StoreUnavailableError
from . import rules
from .base import Stored, StoredKey, StoredPage

__all__ = ["KeyText", "Rows", "Save", "StateRows", "lost_a_race", "state_table"]

_MYSQL = ("mysql", "mariadb")


class KeyText(TypeDecorator[str]):
    """A text that is compared and sorted byte by byte."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in _MYSQL:
            return dialect.type_descriptor(VARBINARY(rules.MAX_KEY_BYTES))
        if dialect.name == "postgresql":
            return dialect.type_descriptor(String(rules.MAX_KEY_BYTES, collation="C"))
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode() if value is not None and dialect.name in _MYSQL else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return bytes(value).decode() if dialect.name in _MYSQL else value


def state_table(metadata: MetaData, name: str = "goaitools_state", schema: str | None = None) -> Table:
    """The table of a store, for the metadata of whoever migrates the database themselves."""
    return Table(
        name,
        metadata,
        Column("key", KeyText(), primary_key=True),
        Column("version", BigInteger(), nullable=False),
        Column("updated_at", BigInteger(), nullable=False),
        Column("blob", LargeBinary().with_variant(LONGBLOB(), *_MYSQL), nullable=False),
        schema=schema,
        sqlite_with_rowid=False,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


class Rows:
    """A table that is made when it is first written to."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._is_there = False

    def is_there(self, connection: Connection) -> bool:
        """Whether the table has been made. It is asked until it has."""
        if not self._is_there:
            self._is_there = inspect(connection).has_table(self.table.name, schema=self.table.schema)
        return self._is_there

    def make(self, connection: Connection) -> None:
        """Make the table, if it is missing. Another process may do the same at the same time."""
        if self.is_there(connection):
            return
        try:
            connection.execute(CreateTable(self.table, if_not_exists=True))
        except DBAPIError:  # PostgreSQL: "if not exists" does not hold against a rival
            if not self.is_there(connection):
                raise
        self._is_there = True


class StateRows(Rows):
    """The rows of one table of blobs. Its methods are the steps; each takes a connection first."""

    def __init__(self, name: str, schema: str | None) -> None:
        super().__init__(state_table(MetaData(), name, schema))

    def load(self, connection: Connection, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        if not self.is_there(connection):
            return None
        columns = self.table.c
        row = connection.execute(
            select(columns.blob, columns.version, columns.updated_at).where(columns.key == key)
        ).first()
        if row is None:
            return None
        return Stored(blob=bytes(row[0]), version=row[1], updated_at=rules.as_time(row[2]))

    def delete(self, connection: Connection, key: str, expected: int | None) -> bool:
        """Forget a key, with `expected` only that version."""
        if not self.is_there(connection):
            return False
        columns = self.table.c
        wanted = delete(self.table).where(columns.key == key)
        if expected is None:
            return connection.execute(wanted).rowcount == 1
        if connection.execute(wanted.where(columns.version == expected)).rowcount == 1:
            return True
        if self.load(connection, key) is not None:
            raise rules.conflict(expected)
        return False

    def list(self, connection: Connection, prefix: str, cursor: str | None, limit: int) -> StoredPage:
        """A page of the keys that begin with `prefix`."""
        if not self.is_there(connection):
            return StoredPage(keys=(), cursor=None)
        columns = self.table.c
        wanted = select(columns.key, columns.version, columns.updated_at).where(columns.key >= prefix)
        if (end := rules.after_prefix(prefix)) is not None:
            wanted = wanted.where(columns.key < end)
        if cursor is not None:
            wanted = wanted.where(columns.key > cursor)
        rows = connection.execute(wanted.order_by(columns.key).limit(limit + 1)).all()
        keys = tuple(
            StoredKey(key=key, version=version, updated_at=rules.as_time(at))
            for key, version, at in rows[:limit]
            if rules.is_listed(key, prefix)
        )
        return StoredPage(keys=keys, cursor=rows[limit - 1][0] if len(rows) > limit else None)


class Save:
    """One save: the step that writes, and the step that looks whether it was written.

    Attributes:
        version: What the row will have.
        was_sent: Whether the write may have reached the server. If an error comes then, only a look tells.
    """

    def __init__(self, rows: StateRows, key: str, blob: bytes, expected: int | None) -> None:
        self._rows = rows
        self._key = rules.check_key(key)
        self._blob = bytes(blob)
        self._expected = expected
        self.version = rules.new_version(expected)
        self.was_sent = False

    def write(self, connection: Connection) -> None:
        """Write, if the stored version is still the expected one."""
        self._rows.make(connection)
        columns = self._rows.table.c
        row = {
            "blob": self._blob,
            "version": self.version,
            "updated_at": rules.as_ms(datetime.now(UTC)),
        }
        self.was_sent = True
        try:
            if self._expected is None:
                connection.execute(insert(self._rows.table).values(key=self._key, **row))
                return
            changed = connection.execute(
                update(self._rows.table)
                .where(columns.key == self._key, columns.version == self._expected)
                .values(**row)
            ).rowcount
        except IntegrityError:
            changed = 0  # its words quote the row, so that it is nobody's cause
        except DBAPIError as exc:
            if not lost_a_race(exc):
                raise
            changed = 0
        if changed != 1:
            raise self._refused(connection)

    def is_stored(self, connection: Connection) -> bool:
        """Whether the row is there as this save would have left it."""
        stored = self._rows.load(connection, self._key)
        return stored is not None and (stored.version, stored.blob) == (self.version, self._blob)

    def _refused(self, connection: Connection) -> StateConflictError | StoreUnavailableError:
        if self._expected is None and self._rows.load(connection, self._key) is None:
            return StoreUnavailableError(
                "the database refused the row, and not because the key is taken: look at the table's "
                "constraints and triggers"
            )
        return rules.conflict(self._expected)


def lost_a_race(error: DBAPIError) -> bool:
    """Whether the server undid the statement for another transaction: deadlock, serialization failure."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code in ("40001", "40P01") or number in (1213, 1020)
