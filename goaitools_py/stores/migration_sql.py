"""The steps of a migration in PostgreSQL, MySQL and MariaDB, over SQLAlchemy.

Owns: how a step is done there. Must never know: the list of steps.

A column that may be empty, or has a default, is added without a copy of the table (PostgreSQL 11, MySQL
8.0.12, MariaDB 10.3). It needs the table's lock for a moment, and waits for transactions that hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, MetaData, Table, create_engine, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from ..types.errors import StoreUnavailableError
from .migration import Step
from .sql_table import lease_table, part_table, state_table

__all__ = ["SQLTables"]


class SQLTables:
    """The tables of a database.

    Args:
        url: As SQLAlchemy takes it, such as ``postgresql+psycopg://user@host/database``.
        table: The name of the table of conversations.
        partitions: For PostgreSQL only: into how many partitions the tables of conversations and parts are
            divided when they are made, by a hash of the key; 0: none.
    """

    def __init__(self, url: str, table: str, *, partitions: int = 0) -> None:
        with _errors():
            parsed = make_url(url)
            self._engine = create_engine(parsed, isolation_level="AUTOCOMMIT")
        states = state_table(metadata := MetaData(), table)
        self._tables = {
            "state": states,
            "lease": lease_table(metadata, f"{table}_lease"),
            "part": part_table(metadata, states),
        }
        self._partitions = partitions
        if partitions:
            for role in ("state", "part"):
                self._tables[role].dialect_options["postgresql"]["partition_by"] = "HASH (key)"

    def columns(self, table: str) -> frozenset[str] | None:
        """The names of a table's columns; None if the table does not exist."""
        with self._connected() as connection:
            found = inspect(connection)
            if not found.has_table(table):
                return None
            return frozenset(column["name"] for column in found.get_columns(table))

    def do(self, step: Step) -> None:
        """Do a step."""
        table = self._tables[step.role]
        with self._connected() as connection:
            if step.column is None:
                self._make(connection, table, self._partitions if step.role != "lease" else 0)
                return
            dialect = connection.dialect
            column = str(CreateColumn(table.c[step.column.name]).compile(dialect=dialect))
            if step.column.default is None and step.column.when_added is not None:
                column += f" DEFAULT {step.column.when_added}"
            name = dialect.identifier_preparer.format_table(table)
            connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {column}"))

    def _make(self, connection: Connection, table: Table, partitions: int) -> None:
        """Make a table, with all its partitions or not at all."""
        if not partitions:
            table.create(connection, checkfirst=True)
            return
        connection.execution_options(isolation_level="READ COMMITTED")
        quote = connection.dialect.identifier_preparer.quote
        with connection.begin():
            table.create(connection)
            for number in range(partitions):
                connection.execute(
                    text(
                        f"CREATE TABLE {quote(f'{table.name}_p{number}')} PARTITION OF {quote(table.name)}"
                        f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
                    )
                )

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with _errors(), self._engine.connect() as connection:
            yield connection


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (
        ArgumentError,
        ValueError,
    ):  # a ValueError's text may hold a part of the password, taken for a port
        raise ValueError("the URL is none that SQLAlchemy can read") from None
    except ModuleNotFoundError as exc:
        raise ValueError(f"the URL names the driver {exc.name!r}, which is not installed") from None
    except SQLAlchemyError as exc:
        told = getattr(exc, "orig", None) or exc
        raise StoreUnavailableError(f"the database refused: {type(told).__name__}: {told}") from None
