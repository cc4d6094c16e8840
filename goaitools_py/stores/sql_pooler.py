"""Whether statements are prepared over an engine of SQLAlchemy.

Owns: how each driver gets the setting. Must never know: a statement of a store.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from ..types.errors import StoreError
from .pooler import ASK_PID, pooler_problem

__all__ = ["Preparing", "refused_by_pooler"]

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


def refused_by_pooler(error: DBAPIError) -> StoreError | None:
    """The error for a statement that a pooler cannot serve; None for any other error."""
    return pooler_problem(error.orig, _REMEDY)
