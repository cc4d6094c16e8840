"""The table of conversations in PostgreSQL, MySQL, MariaDB and SQLite, and each step on it.

Owns: the table of `layout` in SQL, the statements, the meaning of a driver's errors. Must never know: an
    engine, or the contents of a blob.

Each step takes a connection in autocommit mode: each statement is a transaction of its own, and no
transaction stays open. The first save makes the table. To make it yourself, run ``goaitools store init
URL``, or add `state_table` to your own metadata, or run ::

    -- PostgreSQL
    CREATE TABLE goaitools_state (
        key VARCHAR(512) COLLATE "C" NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        blob BYTEA NOT NULL,
        title VARCHAR(200),
        status VARCHAR(32),
        turns BIGINT,
        total_tokens BIGINT,
        cost_nano_dollars BIGINT,
        stop_requested SMALLINT DEFAULT '0' NOT NULL
    );
    -- MySQL, MariaDB
    CREATE TABLE goaitools_state (
        `key` VARBINARY(512) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        `blob` LONGBLOB NOT NULL,
        title VARCHAR(200) CHARACTER SET utf8mb4,
        status VARCHAR(32) CHARACTER SET utf8mb4,
        turns BIGINT,
        total_tokens BIGINT,
        cost_nano_dollars BIGINT,
        stop_requested SMALLINT NOT NULL DEFAULT '0'
    ) ENGINE=InnoDB;
    -- SQLite
    CREATE TABLE goaitools_state (
        key TEXT NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        blob BLOB NOT NULL,
        title VARCHAR(200),
        status VARCHAR(32),
        turns BIGINT,
        total_tokens BIGINT,
        cost_nano_dollars BIGINT,
        stop_requested SMALLINT DEFAULT '0' NOT NULL
    ) WITHOUT ROWID;

``updated_at`` is in milliseconds since 1970. Keys are bytes on MySQL and MariaDB: each of their text
collations takes some different keys for equal, by case, accents, or spaces at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Insert,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    Update,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGBLOB, VARBINARY, VARCHAR
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import TypeDecorator, TypeEngine

from ..types.errors import StateConflictError, StoreUnavailableError
from . import common, layout
from .base import RowFacts, Stored, StoredKey, StoredPage

__all__ = [
    "KeyText",
    "RowSave",
    "Rows",
    "StateRows",
    "lacks_a_column",
    "lacks_a_sign",
    "lost_a_race",
    "made",
    "only_reads",
    "state_table",
]

_MYSQL = ("mysql", "mariadb")


class KeyText(TypeDecorator[str]):
    """A text that is compared and sorted byte by byte."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in _MYSQL:
            return dialect.type_descriptor(VARBINARY(common.MAX_KEY_BYTES))
        if dialect.name == "postgresql":
            return dialect.type_descriptor(String(common.MAX_KEY_BYTES, collation="C"))
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode() if value is not None and dialect.name in _MYSQL else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return bytes(value).decode() if dialect.name in _MYSQL else value


def state_table(metadata: MetaData, name: str = "goaitools_state", schema: str | None = None) -> Table:
    """The table of a store, for the metadata of applications that migrate their database themselves."""
    return made(metadata, name, schema, layout.STATE_COLUMNS)


def made(
    metadata: MetaData,
    name: str,
    schema: str | None,
    columns: Sequence[layout.Column],
    *more: Any,
    primary: Sequence[str] = ("key",),
    **options: Any,
) -> Table:
    """A table of the layout, as SQLAlchemy describes it.

    Args:
        metadata: Where it is added.
        name: The table's name.
        schema: The table's schema.
        columns: Its columns.
        more: Constraints.
        primary: The columns of the primary key.
        options: As for `Table`.
    """
    return Table(
        name,
        metadata,
        *(_column(column, is_primary=column.name in primary) for column in columns),
        *more,
        schema=schema,
        **{"sqlite_with_rowid": False, "mysql_engine": "InnoDB", "mariadb_engine": "InnoDB", **options},
    )


def _column(column: layout.Column, *, is_primary: bool) -> Column[Any]:
    return Column(
        column.name,
        _type(column),
        primary_key=is_primary,
        nullable=not column.is_required,
        server_default=None if column.default is None else str(column.default),
    )


def _type(column: layout.Column) -> TypeEngine[Any]:
    match column.kind:
        case "key":
            return KeyText()
        case "text":  # the default character set of a database may not hold every title
            return String(column.size).with_variant(VARCHAR(column.size, charset="utf8mb4"), *_MYSQL)
        case "integer":
            return BigInteger()
        case "flag":
            return SmallInteger()
        case "digest":
            return LargeBinary().with_variant(VARBINARY(column.size), *_MYSQL)
        case _:
            return LargeBinary().with_variant(LONGBLOB(), *_MYSQL)


class Rows:
    """A table that the first writing step makes."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._is_there = False

    @property
    def is_known(self) -> bool:
        """Whether the table was seen, or made."""
        return self._is_there

    def is_there(self, connection: Connection) -> bool:
        """Whether the table exists. After a yes the database is not asked again."""
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
    """The rows of one table of conversations. Each method is a step, with a connection as first argument."""

    def __init__(self, name: str, schema: str | None) -> None:
        super().__init__(state_table(MetaData(), name, schema))

    def load(self, connection: Connection, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        if not self.is_there(connection):
            return None
        columns = self.table.c
        # The stop flag is named so that a table of an older layout is found here, before a turn is paid for.
        row = connection.execute(
            select(columns.blob, columns.version, columns.updated_at, columns.stop_requested).where(
                columns.key == key
            )
        ).first()
        if row is None:
            return None
        return Stored(blob=bytes(row[0]), version=row[1], updated_at=common.as_time(row[2]))

    def delete(self, connection: Connection, key: str, expected: int | None) -> bool:
        """Delete a key, with `expected` only that version."""
        if not self.is_there(connection):
            return False
        columns = self.table.c
        wanted = delete(self.table).where(columns.key == key)
        if expected is None:
            return connection.execute(wanted).rowcount == 1
        if connection.execute(wanted.where(columns.version == expected)).rowcount == 1:
            return True
        if self.load(connection, key) is not None:
            raise common.conflict(expected)
        return False

    def list(self, connection: Connection, prefix: str, cursor: str | None, limit: int) -> StoredPage:
        """A page of the keys that begin with `prefix`."""
        if not self.is_there(connection):
            return StoredPage(keys=(), cursor=None)
        columns = self.table.c
        plain = [columns[column.name] for column in layout.PLAIN_COLUMNS]
        wanted = select(columns.key, columns.version, columns.updated_at, *plain)
        wanted = wanted.where(columns.key >= prefix)
        if (end := common.after_prefix(prefix)) is not None:
            wanted = wanted.where(columns.key < end)
        if cursor is not None:
            wanted = wanted.where(columns.key > cursor)
        rows = connection.execute(wanted.order_by(columns.key).limit(limit + 1)).all()
        keys = tuple(
            StoredKey(key=key, version=version, updated_at=common.as_time(at), facts=layout.facts_of(told))
            for key, version, at, *told in rows[:limit]
            if common.is_listed(key, prefix)
        )
        return StoredPage(keys=keys, cursor=rows[limit - 1][0] if len(rows) > limit else None)

    def set_stop(self, connection: Connection, key: str, is_wanted: bool) -> bool:
        """Set the stop flag of a key, or clear it."""
        if not self.is_there(connection):
            return False
        changed = update(self.table).where(self.table.c.key == key).values(stop_requested=int(is_wanted))
        return connection.execute(changed).rowcount == 1

    def stop_requested(self, connection: Connection, key: str) -> bool:
        """The stop flag of a key."""
        if not self.is_there(connection):
            return False
        flag = select(self.table.c.stop_requested).where(self.table.c.key == key)
        return bool(connection.execute(flag).scalar())


class RowSave:
    """One save: a step that writes, and a step that looks whether the row was written.

    Attributes:
        version: The new version of the row.
        was_sent: Whether the write may have reached the server. After an error only `is_stored` tells whether
            it was done.
    """

    def __init__(
        self, rows: StateRows, key: str, blob: bytes, expected: int | None, facts: RowFacts | None = None
    ) -> None:
        self._rows = rows
        self._key = common.check_key(key)
        self._blob = bytes(blob)
        self._expected = expected
        self._facts = facts
        self.version = common.new_version(expected)
        self.was_sent = False

    def write(self, connection: Connection) -> None:
        """Write, if the stored version is still the expected one."""
        self._rows.make(connection)
        self._compare_and_save(connection, self._change)

    def _change(self, connection: Connection) -> int:
        done = connection.execute(self.statement())
        return 1 if self._expected is None else done.rowcount  # a refused insert raises

    def _compare_and_save(self, connection: Connection, change: Callable[[Connection], int]) -> None:
        """Send the statement. If it changed no row, raise the error that explains why."""
        self.was_sent = True
        try:
            try:
                changed = change(connection)
            except (DBAPIError, UnicodeEncodeError) as exc:
                if self._facts is None or self._facts.title.isascii() or not lacks_a_sign(exc):
                    raise
                self._facts = layout.ascii_facts(self._facts)
                changed = change(connection)
        except IntegrityError:
            changed = 0  # the IntegrityError is not chained: its text quotes the row
        except DBAPIError as exc:
            if not lost_a_race(exc):
                raise
            changed = 0
        if changed != 1:
            raise self._refused(connection)

    def statement(self) -> Insert | Update:
        """The statement that compares and saves. It changes one row, or 0 rows."""
        table = self._rows.table
        row: dict[str, Any] = {
            "blob": self._blob,
            "version": self.version,
            "updated_at": common.as_ms(datetime.now(UTC)),
            **layout.plain_values(self._facts),
        }
        if self._expected is None:
            return insert(table).values(key=self._key, **row)
        return update(table).where(table.c.key == self._key, table.c.version == self._expected).values(**row)

    def is_stored(self, connection: Connection) -> bool:
        """Whether the stored row has the version and the blob of this save."""
        stored = self._rows.load(connection, self._key)
        return stored is not None and (stored.version, stored.blob) == (self.version, self._blob)

    def _refused(self, connection: Connection) -> StateConflictError | StoreUnavailableError:
        if self._expected is None and self._rows.load(connection, self._key) is None:
            return StoreUnavailableError(
                "the database refused the row, and not because the key is taken: look at the table's "
                "constraints and triggers"
            )
        return common.conflict(self._expected)


def lacks_a_sign(error: DBAPIError | UnicodeEncodeError) -> bool:
    """Whether a text cannot be written in the encoding of the connection, the table or the database."""
    if isinstance(error, UnicodeEncodeError):
        return True
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code in ("22P05", "22021") or number in (1366, 3988) or isinstance(error.orig, UnicodeEncodeError)


def lost_a_race(error: DBAPIError) -> bool:
    """Whether the server undid the statement for another transaction: deadlock, serialization failure."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code in ("40001", "40P01") or number in (1213, 1020)


def only_reads(error: Exception) -> bool:
    """Whether the server refuses writes: after a failover the connection may lead to the former primary.

    The connection works, so a pool would lend it again. It has to be closed.
    """
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code == "25006" or number in (1290, 1792, 1836)


def lacks_a_column(error: DBAPIError) -> bool:
    """Whether the server says that a statement names a column which the table does not have."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    first = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return code == "42703" or first == 1054 or (isinstance(first, str) and "column" in first)
