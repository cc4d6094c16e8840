"""The statements of a PostgreSQL store, as texts with numbered parameters.

Owns: SQL. Must never know: a driver, or the meaning of an answer.

The tables follow `layout`, and equal the tables of `sql_table`, `sql_lease` and `sql_parts`. So a store over
SQLAlchemy and a store over a driver may share a database.
"""

from __future__ import annotations

from typing import Final

from .layout import PLAIN_COLUMNS, lease_table_name, part_table_name

__all__ = ["Statements"]

_NOW: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
"""Milliseconds since 1970, by the server's clock."""

_PLAIN: Final = [column.name for column in PLAIN_COLUMNS]
_SAVED: Final = ["blob", "version", "updated_at", *_PLAIN]
_LAST: Final = len(_SAVED)


class Statements:
    """The statements on the tables of one store.

    Parameters, where a statement has them: $1 the key. A save: $2 the blob, $3 its version, $4 the time, then
    the plain columns in their order, then the expected version.
    """

    def __init__(self, table: str, schema: str | None) -> None:
        state = _named(table, schema)
        lease, part = _named(lease_table_name(table), schema), _named(part_table_name(table), schema)
        self.make = _tables(state, lease, part)
        # The stop flag is named so that a table of an older layout is found here, before a turn is paid for.
        row = "blob, version, updated_at, stop_requested"
        self.load = f"SELECT {row} FROM {state} WHERE key = $1"

        sets = ", ".join(f"{name} = ${number}" for number, name in enumerate(_SAVED, 2))
        values = ", ".join(f"${number}" for number in range(2, _LAST + 2))
        insert = (
            f"INSERT INTO {state} (key, {', '.join(_SAVED)}) VALUES ($1, {values})"
            " ON CONFLICT DO NOTHING RETURNING key"
        )
        update = f"UPDATE {state} SET {sets} WHERE key = $1 AND version = ${_LAST + 2} RETURNING key"
        self.insert, self.update = insert, update
        self.insert_and_release = _with_release(insert, lease, _LAST + 2)
        self.update_and_release = _with_release(update, lease, _LAST + 3)
        self.insert_with_parts = _with_parts(insert, part, _LAST + 2)
        self.update_with_parts = _with_parts(update, part, _LAST + 3)
        self.insert_with_parts_and_release = _with_parts(insert, part, _LAST + 2, lease)
        self.update_with_parts_and_release = _with_parts(update, part, _LAST + 3, lease)

        self.load_head = (
            f"SELECT {row}, NULL::bytea AS name, NULL::bigint AS kind, NULL::bytea AS data"
            f" FROM {state} WHERE key = $1"
            " UNION ALL SELECT NULL, NULL, NULL, NULL, name, kind, data"
            f" FROM {part} WHERE key = $1 AND ($2::bigint[] IS NULL OR kind = ANY($2::bigint[]))"
        )
        self.load_parts = f"SELECT name, kind, data FROM {part} WHERE key = $1 AND name = ANY($2::bytea[])"
        self.set_stop = f"UPDATE {state} SET stop_requested = $2 WHERE key = $1 RETURNING key"
        self.stop_requested = f"SELECT stop_requested FROM {state} WHERE key = $1"
        self.delete = (
            f"DELETE FROM {state} WHERE key = $1 AND ($2::bigint IS NULL OR version = $2::bigint)"
            " RETURNING key"
        )
        self.list = (
            f"SELECT key, version, updated_at, {', '.join(_PLAIN)} FROM {state} WHERE key >= $1"
            " AND ($2::text IS NULL OR key < $2::text) AND ($3::text IS NULL OR key > $3::text)"
            " ORDER BY key LIMIT $4"
        )

        # $2 the token, $3 the length in milliseconds.
        is_over = f"(held.ends_at <= {_NOW} OR held.ends_at > {_NOW} + 2 * held.ttl_ms)"
        self.take = (
            f"INSERT INTO {lease} AS held (key, token, ends_at, ttl_ms) VALUES ($1, $2, {_NOW} + $3, $3)"
            " ON CONFLICT (key) DO UPDATE SET token = excluded.token, ends_at = excluded.ends_at,"
            f" ttl_ms = excluded.ttl_ms WHERE {is_over} RETURNING key"
        )
        self.renew = (
            f"UPDATE {lease} AS held SET ends_at = {_NOW} + $3, ttl_ms = $3"
            f" WHERE key = $1 AND token = $2 AND NOT {is_over} RETURNING key"
        )
        self.is_held = f"SELECT 1 FROM {lease} AS held WHERE key = $1 AND NOT {is_over}"
        self.release = f"DELETE FROM {lease} WHERE key = $1 AND token = $2"


def _with_release(save: str, lease: str, token: int) -> str:
    return f"WITH saved AS ({save}), {_ended(lease, token)} SELECT key FROM saved"


def _ended(lease: str, token: int) -> str:
    return f"ended AS (DELETE FROM {lease} WHERE key IN (SELECT key FROM saved) AND token = ${token})"


def _with_parts(save: str, part: str, first: int, lease: str = "") -> str:
    """The parts change only if the statement changed the row of the head. After the save's own parameters:
    the names of the parts to drop; names, kinds and data of the parts to add; the token, if a lease ends."""
    gone, names, kinds, data = (f"${first + number}" for number in range(4))
    return (
        f"WITH saved AS ({save}),"
        f" dropped AS (DELETE FROM {part} WHERE key IN (SELECT key FROM saved)"
        f" AND name = ANY({gone}::bytea[])),"
        f" added AS (INSERT INTO {part} (key, name, kind, data)"
        " SELECT saved.key, given.name, given.kind, given.data FROM saved,"
        f" unnest({names}::bytea[], {kinds}::bigint[], {data}::bytea[]) AS given (name, kind, data)"
        f" ON CONFLICT DO NOTHING){', ' + _ended(lease, first + 4) if lease else ''} SELECT key FROM saved"
    )


def _named(name: str, schema: str | None) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name) if part is not None)


def _tables(state: str, lease: str, part: str) -> tuple[str, ...]:
    key = 'key VARCHAR(512) COLLATE "C" NOT NULL'
    return (
        f"CREATE TABLE IF NOT EXISTS {state} ({key} PRIMARY KEY, version BIGINT NOT NULL,"
        " updated_at BIGINT NOT NULL, blob BYTEA NOT NULL, title VARCHAR(200), status VARCHAR(32),"
        " turns BIGINT, total_tokens BIGINT, cost_nano_dollars BIGINT,"
        " stop_requested SMALLINT DEFAULT '0' NOT NULL)",
        f"CREATE UNLOGGED TABLE IF NOT EXISTS {lease} ({key} PRIMARY KEY, token VARCHAR(32) NOT NULL,"
        " ends_at BIGINT NOT NULL, ttl_ms BIGINT NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS {part} ({key} REFERENCES {state} (key) ON DELETE CASCADE,"
        " name BYTEA NOT NULL, kind BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (key, name))",
    )
