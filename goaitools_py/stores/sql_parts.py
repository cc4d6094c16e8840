"""The table of parts in PostgreSQL, MySQL, MariaDB and SQLite, and each step on it.

Owns: that table, and how head and parts change in one atomic step. Must never know: an engine, or the
    contents of a part.

PostgreSQL does it in one statement, the others in one transaction. In both cases the head's row is changed
first, and so locked. Of two savers the second one waits, finds another version, and changes nothing.

A foreign key drops the parts of a conversation with its row, also after a query by hand; on SQLite a trigger
does it, since foreign keys are not enforced there by default. MySQL has no foreign keys on partitioned
tables. The first save with parts makes the table. To make it yourself, run ``goaitools store init URL``, or
add `part_table` to your own metadata, or run ::

    -- PostgreSQL
    CREATE TABLE goaitools_state_part (
        key VARCHAR(512) COLLATE "C" NOT NULL REFERENCES goaitools_state (key) ON DELETE CASCADE,
        name BYTEA NOT NULL,
        kind BIGINT NOT NULL,
        data BYTEA NOT NULL,
        PRIMARY KEY (key, name)
    );
    -- MySQL, MariaDB
    CREATE TABLE goaitools_state_part (
        `key` VARBINARY(512) NOT NULL,
        name VARBINARY(32) NOT NULL,
        kind BIGINT NOT NULL,
        data LONGBLOB NOT NULL,
        PRIMARY KEY (`key`, name),
        FOREIGN KEY (`key`) REFERENCES goaitools_state (`key`) ON DELETE CASCADE
    ) ENGINE=InnoDB;
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from sqlalchemy import (
    CTE,
    DDL,
    BigInteger,
    Connection,
    Delete,
    ForeignKeyConstraint,
    Insert,
    LargeBinary,
    MetaData,
    Table,
    column,
    delete,
    event,
    inspect,
    literal,
    select,
    union_all,
    values,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from . import common
from .base import RowFacts, StoredHead, StoredPart
from .layout import PART_COLUMNS, part_table_name
from .sql_table import Rows, RowSave, StateRows, made
from .sqlite_tables import part_tables

__all__ = ["PartRows", "SaveParts", "part_table"]

_NAMES_AT_ONCE: Final = 500


def part_table(metadata: MetaData, states: Table) -> Table:
    """The table of parts beside a table of conversations, for the metadata of applications that migrate their
    database themselves.

    Args:
        metadata: The table is added to it. It is the metadata of `states`.
        states: The table of conversations, from `state_table`.
    """
    table = made(
        metadata,
        part_table_name(states.name),
        states.schema,
        PART_COLUMNS,
        ForeignKeyConstraint(["key"], [states.c.key], ondelete="CASCADE"),
        primary=("key", "name"),
        sqlite_with_rowid=True,
    )
    _, trigger = part_tables(states.name)
    made_too: Any = DDL(trigger.replace("%", "%%"))  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", made_too.execute_if(dialect="sqlite"))
    return table


class PartRows(Rows):
    """The parts of one store, and the steps that read them."""

    def __init__(self, states: StateRows) -> None:
        super().__init__(part_table(states.table.metadata, states.table))
        self.states = states

    def make(self, connection: Connection) -> None:
        """Make the tables, if they are missing. Another process may do the same at the same time."""
        self.states.make(connection)
        if self.is_there(connection):
            return
        try:
            self.table.create(connection, checkfirst=True)
        except DBAPIError:
            if not inspect(connection).has_table(self.table.name, schema=self.table.schema):
                raise
        self._is_there = True

    def load_head(self, connection: Connection, key: str, kinds: Collection[int] | None) -> StoredHead | None:
        """The head and its parts of these kinds, read in one statement and so at one moment."""
        if kinds == () or not self.is_there(connection):
            row = self.states.load(connection, key)
            if row is None:
                return None
            return StoredHead(blob=row.blob, version=row.version, updated_at=row.updated_at)
        state, part = self.states.table.c, self.table.c
        is_wanted = part.key == key
        if kinds is not None:
            is_wanted = is_wanted & part.kind.in_(sorted(kinds))
        no_name = literal(b"", LargeBinary())
        zero = literal(0, BigInteger())
        rows = connection.execute(
            union_all(
                select(
                    no_name.label("name"), zero.label("kind"), state.blob, state.version, state.updated_at
                ).where(state.key == key),
                select(part.name, part.kind, part.data, zero, zero).where(is_wanted),
            )
        ).all()
        head = next((row for row in rows if not row[0]), None)
        if head is None:
            return None
        parts = tuple(_part(row) for row in rows if row[0])
        return StoredHead(
            blob=bytes(head[2]), version=head[3], updated_at=common.as_time(head[4]), parts=parts
        )

    def load_parts(
        self, connection: Connection, key: str, names: Collection[bytes]
    ) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        if not self.is_there(connection):
            return ()
        part = self.table.c
        return tuple(
            _part(row)
            for some in _chunks(names)
            for row in connection.execute(
                select(part.name, part.kind, part.data).where(part.key == key, part.name.in_(some))
            )
        )


class SaveParts(RowSave):
    """One save of a head and its parts. On PostgreSQL `write` is one statement; elsewhere the caller opens a
    transaction around it, and rolls it back if `write` raises."""

    def __init__(
        self,
        rows: PartRows,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        expected: int | None,
        facts: RowFacts | None,
    ) -> None:
        super().__init__(rows.states, key, head, expected, facts)
        self._parts = rows
        self._new = {part.name: part for part in new}
        self._gone = [name for name in dict.fromkeys(gone) if name not in self._new]

    @property
    def is_ready(self) -> bool:
        """Whether the tables are known to exist."""
        return self._parts.is_known

    def make_tables(self, connection: Connection) -> None:
        """Make the tables before the transaction: on MySQL, making a table ends a transaction."""
        self._parts.make(connection)

    def write(self, connection: Connection) -> None:
        """Write all of it, if the stored version is still the expected one."""
        if connection.dialect.name == "postgresql":
            self._write_at_once(connection)
            return
        super().write(connection)
        for statement in self._dropped():
            connection.execute(statement)
        if self._new:
            connection.execute(self._added(connection.dialect.name), [*map(self._row, self._new.values())])

    def _dropped(self) -> Iterator[Delete]:
        part = self._parts.table.c
        for some in _chunks(self._gone):
            yield delete(self._parts.table).where(part.key == self._key, part.name.in_(some))

    def _added(self, dialect: str) -> Insert:
        table = self._parts.table
        if dialect == "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
        # Not INSERT IGNORE, which would also keep silent about a row that is refused for another reason.
        return mysql.insert(table).on_duplicate_key_update(kind=table.c.kind)

    def _row(self, part: StoredPart) -> dict[str, Any]:
        return {"key": self._key, "name": part.name, "kind": part.kind, "data": part.data}

    def _write_at_once(self, connection: Connection) -> None:
        """PostgreSQL: the parts change only if the statement changed the row of the head.

        The statement sees the parts as they were when it began. They cannot be out of date: a save that has
        changed them since has changed the version too, and then this statement changes nothing.
        """
        self._compare_and_save(connection, self._change_at_once)

    def _change_at_once(self, connection: Connection) -> int:
        head = self.statement().returning(self._rows.table.c.key).cte("head")
        return len(connection.execute(select(head.c.key).add_cte(*self._more(head))).all())

    def _more(self, head: CTE) -> list[CTE]:
        """The steps that follow in the statement if `head` has a row."""
        table, part = self._parts.table, self._parts.table.c
        steps = []
        if self._gone:
            steps.append(
                delete(table)
                .where(part.key.in_(select(head.c.key)), part.name.in_(self._gone))
                .cte("dropped")
            )
        if self._new:
            given = values(*(column(c.name, c.type) for c in (part.name, part.kind, part.data)), name="given")
            given = given.data([(one.name, one.kind, one.data) for one in self._new.values()])
            rows = select(head.c.key, given.c.name, given.c.kind, given.c.data).select_from(
                head.join(given, literal(True))
            )
            steps.append(
                postgresql.insert(table)
                .from_select(["key", "name", "kind", "data"], rows)
                .on_conflict_do_nothing()
                .cte("added")
            )
        return steps


def _chunks(names: Collection[bytes]) -> Iterator[list[bytes]]:
    """Split the names into groups that one statement can hold."""
    listed = list(dict.fromkeys(names))
    for start in range(0, len(listed), _NAMES_AT_ONCE):
        yield listed[start : start + _NAMES_AT_ONCE]


def _part(row: Any) -> StoredPart:
    name, kind, data = row[:3]
    return StoredPart(name=bytes(name), kind=int(kind), data=bytes(data))
