"""A column type for states in your own tables, with SQLAlchemy.

Owns: the column type. Must never know: a table, a session, or the content of a blob.

The mapped class is the user's. Guard its row with ``version_id_col``: if two turns change one conversation,
the second gets a `StaleDataError` instead of silently replacing the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..base.advice import missing_extra_error

try:
    from sqlalchemy import Dialect, LargeBinary
    from sqlalchemy.dialects.mysql import LONGBLOB
    from sqlalchemy.exc import DontWrapMixin
    from sqlalchemy.types import TypeDecorator, TypeEngine
except ModuleNotFoundError as error:
    raise missing_extra_error(error, "StateType", "sqlalchemy") from None

from ..types.errors import StateFormatError
from ._column import column_bytes

__all__ = ["StateType"]

_TAKE_SUBCLASSES: Final = frozenset({"aiosqlite", "asyncpg", "psycopg", "pymysql", "pysqlite"})
"""Drivers that take subclasses of bytes; asyncmy, for one, does not."""


class StateColumnError(StateFormatError, DontWrapMixin):
    """A `StateFormatError` that SQLAlchemy does not wrap in an error which prints the row's values."""


class StateType(TypeDecorator[bytes]):
    """A column for states: bytea on PostgreSQL, LONGBLOB on MySQL and MariaDB, BLOB on SQLite.

    Takes `bytes`, `bytearray`, `memoryview` or None, and gives `bytes` or None. The repr of these
    bytes is their size. So they are shown in the engine's log (``echo=True``) and in the texts of errors
    too, with the drivers psycopg, asyncpg, pymysql, pysqlite and aiosqlite; with another one give the engine
    ``hide_parameters=True``. Text is refused: a state that once was text is damaged, and the error names
    how.
    """

    impl = LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The engine's own type: plain BLOB would cut at 64 KiB on MySQL."""
        return dialect.type_descriptor(LONGBLOB() if dialect.name in ("mysql", "mariadb") else LargeBinary())

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        """Convert a value for the driver."""
        try:
            return column_bytes(value)
        except StateFormatError as error:
            raise StateColumnError(str(error), blob=error.blob) from None

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:
        """Convert a value from the driver."""
        return self.process_bind_param(value, dialect)

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Without the driver's own wrapper, which would show the bytes, where that is known to work."""
        if dialect.driver not in _TAKE_SUBCLASSES:
            return super().bind_processor(dialect)
        return lambda value: self.process_bind_param(value, dialect)
