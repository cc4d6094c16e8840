"""The tables of a store in PostgreSQL, MySQL, MariaDB and SQLite, as SQLAlchemy describes them.

Owns: the tables of `layout` in SQL. Must never know: an engine, or a statement on a row.

The first save makes the table of conversations, the first lease the table of leases, the first save with
parts the table of parts. To make them yourself, run ``goaitools store init URL``, or add `state_table`,
`lease_table` and `part_table` to your own metadata, or run ::

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
    CREATE TABLE goaitools_state_lease (
        key VARCHAR(512) COLLATE "C" NOT NULL PRIMARY KEY,
        token VARCHAR(32) NOT NULL,
        ends_at BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL
    );
    CREATE TABLE goaitools_state_part (
        key VARCHAR(512) COLLATE "C" NOT NULL REFERENCES goaitools_state (key) ON DELETE CASCADE,
        name BYTEA NOT NULL,
        kind BIGINT NOT NULL,
        data BYTEA NOT NULL,
        PRIMARY KEY (key, name)
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
    CREATE TABLE goaitools_state_lease (
        `key` VARBINARY(512) NOT NULL PRIMARY KEY,
        token VARCHAR(32) CHARACTER SET utf8mb4 NOT NULL,
        ends_at BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL
    ) ENGINE=InnoDB;
    CREATE TABLE goaitools_state_part (
        `key` VARBINARY(512) NOT NULL,
        name VARBINARY(32) NOT NULL,
        kind BIGINT NOT NULL,
        data LONGBLOB NOT NULL,
        PRIMARY KEY (`key`, name),
        FOREIGN KEY (`key`) REFERENCES goaitools_state (`key`) ON DELETE CASCADE
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
    );
    CREATE TABLE goaitools_state_lease (
        key TEXT NOT NULL PRIMARY KEY,
        token VARCHAR(32) NOT NULL,
        ends_at BIGINT NOT NULL,
        ttl_ms BIGINT NOT NULL
    ) WITHOUT ROWID;

``updated_at`` is in milliseconds since 1970, ``ends_at`` in milliseconds of the clock that `sql_statements`
names, ``ttl_ms`` is the length of the lease. Keys are bytes on MySQL and MariaDB: each of their text
collations takes some different keys for equal, by case, accents, or spaces at the end. On PostgreSQL a
lease is written with ``synchronous_commit = off``: it waits neither for the disk nor for a standby. A standby
that takes over may lack the leases of the last moments, and these end early.

A foreign key drops the parts of a conversation with its row, also after a query by hand; on SQLite a trigger
does it, since foreign keys are not enforced there by default. MySQL has no foreign keys on partitioned
tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Dialect,
    ForeignKeyConstraint,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    event,
)
from sqlalchemy.dialects.mysql import LONGBLOB, VARBINARY, VARCHAR
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import TypeDecorator, TypeEngine

from . import common, layout
from .sql_statements import sqlite_tables

__all__ = ["KeyText", "lease_table", "part_table", "state_table", "tables_of"]

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
    return _made(metadata, name, schema, layout.STATE_COLUMNS, sqlite_with_rowid=True)


def lease_table(
    metadata: MetaData,
    name: str = "goaitools_state_lease",
    schema: str | None = None,
) -> Table:
    """The table of leases of a store, for the metadata of applications that migrate their database
    themselves.

    Args:
        metadata: Where it is added.
        name: The name of the store's table, followed by ``_lease``.
        schema: The schema of the store's table.
    """
    return _made(metadata, name, schema, layout.LEASE_COLUMNS)


def part_table(metadata: MetaData, states: Table) -> Table:
    """The table of parts beside a table of conversations, for the metadata of applications that migrate their
    database themselves.

    Args:
        metadata: The table is added to it. It is the metadata of `states`.
        states: The table of conversations, from `state_table`.
    """
    table = _made(
        metadata,
        layout.part_table_name(states.name),
        states.schema,
        layout.PART_COLUMNS,
        ForeignKeyConstraint(["key"], [states.c.key], ondelete="CASCADE"),
        primary=("key", "name"),
        sqlite_with_rowid=True,
    )
    event.listen(table, "after_create", _trigger(states.name).execute_if(dialect="sqlite"))
    return table


def _trigger(table: str) -> Any:
    """SQLite: drops the parts of a conversation with its row."""
    return DDL(sqlite_tables("part", table)[1].replace("%", "%%"))  # type: ignore[no-untyped-call]


def tables_of(dialect: str, name: str, schema: str | None) -> dict[str, list[list[Any]]]:
    """The statements that make the tables of a store, as `SQLSteps` takes them."""
    states = state_table(metadata := MetaData(), name, schema)
    leases = lease_table(metadata, layout.lease_table_name(name), schema)
    made = {"state": states, "lease": leases, "part": part_table(metadata, states)}
    tables: dict[str, list[list[Any]]] = {
        role: [[CreateTable(table, if_not_exists=True)]] for role, table in made.items()
    }
    if dialect == "sqlite":
        tables["part"][0].append(_trigger(name))
    return tables


def _made(
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
