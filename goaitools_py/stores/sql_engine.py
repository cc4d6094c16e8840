"""An engine of SQLAlchemy under a store: how long it waits, whether it prepares statements, and its forks.

Owns: the listeners on an engine, the settings that they find, how the commands of a step are done on a
connection, and the errors made of the engine's errors. Must never know: a statement of a store.

An engine does not show the settings that it gives to its driver. Listeners get them at each new connection.

A child of a fork neither uses nor closes its parent's connections, and opens its own. The call for this is
``engine.dispose(close=False)``, as SQLAlchemy's documentation says under "Using Connection Pools with
Multiprocessing or os.fork()". For a SQLite file it is not enough (see `sqlite_file`): an engine that kept a
file open is refused in the child.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, Executable, NullPool, Pool, QueuePool, TextClause, event, text
from sqlalchemy.exc import IntegrityError, StatementError

from ..base.process import this_process
from ..types.errors import StoreError, StoreUnavailableError
from . import common
from .clients import Silence, answer_setting, warn_once
from .layout import lease_table_name, part_table_name
from .postgres_pools import ASK_PID
from .sql_errors import only_reads, problem
from .sql_statements import Statements, quoted
from .sql_steps import DONE, Command, Rows, Running, SQLSteps
from .sql_table import tables_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = [
    "EngineWaits",
    "Forks",
    "Preparing",
    "carry_on",
    "engine_errors",
    "forks_of",
    "inner_engine",
    "known_dialect",
    "loses_its_place",
    "steps_of",
    "waits_of",
]

_CONNECT: Final = 10.0
"""Seconds that drivers of MySQL wait for a connection, by default."""


class EngineWaits:
    """Watches one engine, for all stores over it.

    Attributes:
        longest: Seconds after which a call has ended in any case, as far as known. 0 on a machine's own
            files, infinity for a driver that may wait for ever.
    """

    def __init__(self, engine: Engine) -> None:
        self.longest = 0.0 if engine.dialect.name == "sqlite" else inf
        setting = answer_setting(engine.dialect.driver)
        if not setting:
            return
        name, it = engine.dialect.driver, weakref.ref(engine)

        @event.listens_for(engine, "do_connect")
        def _connecting(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> None:
            seconds = given.get(setting)
            if seconds is None:
                if (engine := it()) is not None:
                    warn_once(engine, name, setting)
            elif not dialect.is_async:
                # The sum: a free connection, connecting, a statement without answer, a reset without answer.
                connect = float(given.get("connect_timeout") or _CONNECT)
                self.longest = _for_a_free_connection(it()) + connect + 2 * float(seconds)


def _for_a_free_connection(engine: Engine | None) -> float:
    """Seconds that a pool waits for a connection to come back, before it raises."""
    pool = None if engine is None else engine.pool
    return pool.timeout() if isinstance(pool, QueuePool) else 0.0


_known_waits: Final[weakref.WeakKeyDictionary[Engine, EngineWaits]] = weakref.WeakKeyDictionary()


def waits_of(engine: Engine) -> EngineWaits:
    """The waits of an engine. All stores over an engine share one object."""
    found = _known_waits.get(engine)
    if found is None:
        found = _known_waits.setdefault(engine, EngineWaits(engine))
    return found


_REMEDY: Final = "make the store with prepare=False before the engine has connections"


class Preparing:
    """Tells the connections of one store's steps whether to prepare.

    psycopg takes the setting at any time, asyncpg when it connects. Other drivers prepare no statements.
    """

    def __init__(self, engine: Engine, prepare: bool | None) -> None:
        self._is_told = engine.dialect.driver in ("psycopg", "psycopg_async")
        self._prepare = prepare
        if engine.dialect.driver == "asyncpg" and prepare is False:
            event.listen(engine, "do_connect", _connect_unprepared)

    def begin(self, connection: Connection) -> None:
        """Make a connection ready. If the application has not decided, look once for a pooler."""
        if not self._is_told or self._prepare:
            return
        driver: Any = connection.connection.driver_connection
        if self._prepare is None:
            self._prepare = connection.exec_driver_sql(ASK_PID).scalar() == driver.info.backend_pid
            if self._prepare:
                return
        driver.prepare_threshold = None


def _connect_unprepared(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> None:
    """One function for all stores: an engine keeps each listener once, and as long as it lives."""
    given["statement_cache_size"] = 0


_left: Final[list[Pool]] = []
"""Pools of parents. A pool that is collected may close its connections."""


class Forks:
    """Watches one engine, for all stores over it."""

    def __init__(self, engine: Engine, *, is_async: bool) -> None:
        self._engine = weakref.ref(engine)
        self._is_sqlite = engine.dialect.name == "sqlite"
        in_memory = self._is_sqlite and ":memory:" in (engine.url.database or ":memory:")
        self._is_copied = in_memory and not is_async
        self._process = this_process()
        self._was_used = False
        self._is_refused = False
        self._steps: dict[object, None] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step on a connection of the engine. `StoreUnavailableError` if the engine is refused here."""
        if self._process is not this_process():
            self.begin_anew()
        if self._is_refused:
            raise StoreUnavailableError(
                "the engine had a SQLite file open when this process was forked, and cannot be used here "
                "without losing saves: make the engine in each process (after the fork), give it "
                "poolclass=NullPool, or use SQLiteStore"
            )
        self._was_used = True
        if not self._is_sqlite:
            yield
            return
        token = object()
        self._steps[token] = None
        try:
            yield
        finally:
            self._steps.pop(token, None)

    def begin_anew(self) -> None:
        """Make the engine usable in a child, or refuse an engine with an open SQLite file."""
        self._process = this_process()
        engine = self._engine()
        if engine is None or self._is_copied:
            return
        if self._is_sqlite:
            was_closed = isinstance(engine.pool, NullPool) and not self._steps
            self._is_refused = self._is_refused or (self._was_used and not was_closed)
            self._steps.clear()
            return
        _left.append(engine.pool)
        engine.dispose(close=False)


_known_forks: Final[weakref.WeakKeyDictionary[Engine, Forks]] = weakref.WeakKeyDictionary()


def forks_of(engine: Engine, *, is_async: bool = False) -> Forks:
    """The watcher of an engine. All stores over an engine share one."""
    found = _known_forks.get(engine)
    if found is None:
        found = _known_forks.setdefault(engine, Forks(engine, is_async=is_async))
    return found


def _in_child() -> None:
    for forks in list(_known_forks.values()):
        forks.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


_KNOWN = ("postgresql", "mysql", "mariadb", "sqlite")

# The isolation level of a transaction. It is always named: an application's engine may be in autocommit mode,
# and then there would be no transaction.
_ATOMIC = {"mysql": "REPEATABLE READ", "mariadb": "REPEATABLE READ", "sqlite": "SERIALIZABLE"}


def steps_of(dialect: str, table: str, schema: str | None, ttl: float | None) -> SQLSteps:
    """The steps of a store."""
    sign = "`" if dialect in ("mysql", "mariadb") else '"'
    names = [
        quoted(name, schema, sign).replace(":", "\\:")  # for `text`, where a colon begins a parameter
        for name in (table, lease_table_name(table), part_table_name(table))
    ]
    statements = Statements(dialect, *names, forgets=ttl is not None)
    return SQLSteps(statements, tables_of(dialect, table, schema), ttl)


def carry_on(connection: Connection, running: Running[Any], preparing: Preparing) -> None:
    """Do the commands of a step until it is over, or the connection may be broken. End the connection if the
    server falls silent.

    A single command is done in autocommit mode. The level is set on the connection and not on the engine. On
    MySQL that is a statement, and if it fails inside of `connect`, the connection stays out of the pool for
    as long as the caller keeps the error.
    """
    dialect, level = connection.dialect.name, ""
    with Silence(connection.connection.driver_connection):
        while not running.is_over:
            rows: Rows = ()
            failed: Exception | None = None
            try:
                wanted = "AUTOCOMMIT" if len(running.commands) == 1 else _ATOMIC[dialect]
                if level != wanted:
                    if connection.in_transaction():
                        connection.rollback()
                    connection.execution_options(isolation_level=wanted)
                    if not level:
                        preparing.begin(connection)
                    level = wanted
                rows = _done(connection, running.commands)
            except Exception as exc:
                failed = _problem(dialect, exc)
                if only_reads(exc):
                    connection.invalidate()
            if failed is None:
                running.answer(rows)
            else:
                running.fail(failed)
                if isinstance(failed, StoreError):
                    return  # the connection may be broken


def _done(connection: Connection, commands: Sequence[Command]) -> Rows:
    first, *rest = commands
    if not rest:
        return _answer(connection, *first)
    with connection.begin() as transaction:
        rows = _answer(connection, *first)
        if not rows:
            transaction.rollback()
            return ()
        for command in rest:
            _answer(connection, *command)
    return rows


def _answer(connection: Connection, statement: Any, values: Any) -> Rows:
    executed: Executable = _text(statement) if isinstance(statement, str) else statement
    result = connection.execute(executed, values or None)
    if result.returns_rows:
        return result.all()
    return DONE if result.rowcount else ()


@lru_cache(maxsize=512)
def _text(statement: str) -> TextClause:
    return text(statement)


def loses_its_place(dialect: str) -> bool:
    """Whether a connection that breaks on its way back occupies a place of the pool for ever.

    SQLAlchemy then sets the isolation level back. On MySQL and MariaDB that is a statement. If it fails,
    SQLAlchemy does not count the connection as given back. Only a new pool has all its places.
    """
    return dialect in ("mysql", "mariadb")


def inner_engine(engine: Engine | AsyncEngine) -> Engine:
    """The engine itself, or the one that an `AsyncEngine` contains."""
    return engine if isinstance(engine, Engine) else engine.sync_engine


def known_dialect(engine: Engine | AsyncEngine, kind: str) -> str:
    """The name of an engine's dialect. Raises for an object that is no engine, or of the other colour."""
    is_async = kind == "AsyncSQLAlchemyStore"
    inner = getattr(engine, "sync_engine", None)  # an AsyncEngine contains an Engine
    if not isinstance(inner if is_async else engine, Engine):
        made = "create_async_engine(url)" if is_async else "create_engine(url)"
        found = type(engine).__name__
        if isinstance(engine, Engine) or isinstance(inner, Engine):
            found += f", which is for {'SQLAlchemyStore' if is_async else 'AsyncSQLAlchemyStore'}"
        raise TypeError(f"{kind} takes an engine, not {found}: {kind}({made})")
    name = engine.dialect.name
    if name not in _KNOWN:
        raise ValueError(
            f"the engine speaks {name!r}, the store knows {', '.join(_KNOWN)}; for another database write a "
            "store of your own, and prove it with goaitools_py.testing.store_contract"
        )
    return name


@contextmanager
def engine_errors(dialect: str) -> Iterator[None]:
    """Catch everything: drivers have no common class for the errors while they connect."""
    try:
        yield
    except Exception as exc:
        failed = _problem(dialect, exc)
        if failed is exc:
            raise
        raise failed from failed.__cause__


def _problem(dialect: str, error: Exception) -> Exception:
    # A UnicodeError, a ValueError of the driver, means that the connection cannot write a text (a key).
    if isinstance(error, (StoreError, TypeError, ValueError)) and not isinstance(error, UnicodeError):
        return error
    if isinstance(error, StatementError):
        error.params = None  # the parameters are the key and the blob, and would be printed
    breaks_rule = isinstance(error, IntegrityError)
    return problem(error, partial(common.unavailable, dialect), _REMEDY, breaks_rule=breaks_rule)
