# generated from stores/async_sqlalchemy.py by tests/make_sync.py; edit stores/async_sqlalchemy.py
"""Blobs in PostgreSQL, MySQL, MariaDB or SQLite, over an engine of SQLAlchemy.

Owns: connections. Must never know: a statement, or a blob's contents.

Needs the extra: ``pip install 'goaitools-py[sqlalchemy]'``, and a driver. Make the engine with
``pool_pre_ping=True``: otherwise the first call after a restart of the server finds a dead connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..base.advice import own_names
from .sql_engine import (
    Preparing,
    carry_on,
    engine_errors,
    forks_of,
    inner_engine,
    known_dialect,
    loses_its_place,
    steps_of,
    waits_of,
)
from .sql_steps import Running, Step
from .sql_store import SQLStore

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["SQLAlchemyStore"]

T = TypeVar("T")


@own_names
class SQLAlchemyStore(SQLStore):
    """A store in a table of a database, for any number of threads, processes and machines.

    Each call takes a connection out of the pool, sends one statement that is a transaction of its own, and
    gives the connection back. No connection is held while a model is called, not even under a lease. Where
    parts are saved, MySQL, MariaDB and SQLite need one short transaction. On SQLite the engine's own settings
    hold; `SQLiteStore` uses the same tables, and sets WAL and when to sync.

    Args:
        engine: It stays yours: dispose of it when you are done. In a child of a fork its pool begins anew;
            one over a SQLite file must be made there, or have ``poolclass=NullPool``.
        table: The table's name. The first save makes it, the first lease ``<table>_lease``, the first save of
            parts ``<table>_part``; `goaitools store init` makes all three, and
            `goaitools_py.stores.sql_table` shows their DDL.
        schema: The table's schema; by default the connection's.
        prepare: Whether PostgreSQL prepares statements. None: as the engine says; over psycopg not if a
            pooler, such as PgBouncer, is in between. Over asyncpg give False if there is one, before the
            engine has connections.
        ttl: Seconds after its last save until the store forgets a conversation; None: never. The clock of
            this process tells. The row stays in the table, see `goaitools store prune`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = "goaitools_state",
        schema: str | None = None,
        prepare: bool | None = None,
        ttl: float | None = None,
    ) -> None:
        self._dialect = known_dialect(engine, "SQLAlchemyStore")
        inner = inner_engine(engine)
        self._forks = forks_of(inner, is_async=False)
        self._waits = waits_of(inner)
        self._preparing = Preparing(inner, prepare)
        self._engine = engine
        self._steps = steps_of(self._dialect, table, schema, ttl)

    @property
    def longest_wait(self) -> float:
        """Seconds after which a call has ended in any case; infinity if a driver may wait for ever."""
        return self._waits.longest

    def _run(self, step: Step[T]) -> T:
        """Do a step. If its connection is lost, go on with another one."""
        running = Running(step)
        while not running.is_over:
            with engine_errors(self._dialect), self._forks.step():
                connection = self._engine.connect()
                try:
                    carry_on(connection, running, self._preparing)
                finally:
                    self._give_back(connection)
        return running.result

    def _give_back(self, connection: Connection) -> None:
        try:
            connection.close()
        except BaseException as exc:
            if not loses_its_place(self._dialect):
                raise
            self._engine.dispose()
            if not isinstance(exc, Exception):
                raise
