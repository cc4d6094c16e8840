"""The meaning of the errors of drivers and databases.

Owns: the codes of PostgreSQL, MySQL, MariaDB and SQLite. Must never know: a driver, or a statement.

A driver's error is not raised to the application: its text may quote a key or a blob.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..types.errors import StoreError
from . import common
from .postgres_pools import pooler_problem

__all__ = ["NoTableError", "RefusedError", "is_unwritable", "only_reads", "problem"]


class NoTableError(Exception):
    """A table is not there yet.

    Attributes:
        error: The error for the application, if the table cannot be made.
    """

    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self.error = error


class RefusedError(Exception):
    """The server did not do a statement, and another try with the same values would not help.

    Attributes:
        error: The error for the application.
        lost_race: The server undid the statement for another transaction: deadlock, serialization failure.
        is_made: Another worker has made the same table. "If not exists" does not prevent that.
    """

    def __init__(self, error: StoreError, *, lost_race: bool, is_made: bool) -> None:
        super().__init__()
        self.error = error
        self.lost_race = lost_race
        self.is_made = is_made


_NO_TABLE: Final = ("42P01", 1146)
_NO_COLUMN: Final = ("42703", 1054)
_LOST_RACES: Final = ("40001", "40P01", 1213, 1020)
_MADE_BY_ANOTHER: Final = ("23505", "42P07", "42710", 1061)
_ONLY_READS: Final = ("25006", 1290, 1792, 1836)
_UNWRITABLE: Final = ("22P05", "22021", 1366, 3988)


def _driver_error(error: BaseException) -> Any:
    """The driver's own error, which SQLAlchemy's contains."""
    return getattr(error, "orig", None) or error


def _codes(error: BaseException) -> tuple[str, Any]:
    """PostgreSQL's SQLSTATE, and the first argument of the error: MySQL's number, or a text."""
    found = _driver_error(error)
    code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None) or ""
    return code, found.args[0] if found.args else None


def _is_one_of(error: BaseException, known: tuple[str | int, ...]) -> bool:
    code, first = _codes(error)
    return code in known or (isinstance(first, int) and first in known)


def problem(
    error: Exception, unavailable: Callable[[Exception], StoreError], remedy: str, *, breaks_rule: bool
) -> Exception:
    """Translate an error for the step that sent the statement.

    Args:
        error: The error of a driver, or of SQLAlchemy. Another error is returned as it is.
        unavailable: Makes the error for the application, if this one is not a known case.
        remedy: How to run this store without prepared statements.
        breaks_rule: The driver says that a row would break a constraint.
    """
    if isinstance(error, StoreError):
        return error
    code, first = _codes(error)
    text = first if isinstance(first, str) and not code else ""
    if _is_one_of(error, _NO_TABLE) or text.startswith("no such table"):
        return NoTableError(unavailable(error))
    lost_race, is_made = _is_one_of(error, _LOST_RACES), _is_one_of(error, _MADE_BY_ANOTHER)
    if lost_race or is_made or breaks_rule or code.startswith("23"):
        return RefusedError(unavailable(error), lost_race=lost_race, is_made=is_made)
    if (pooled := pooler_problem(_driver_error(error), remedy)) is not None:
        return pooled.because_of(error)
    if _is_one_of(error, _NO_COLUMN) or "column" in text:
        return common.older_layout("a table").because_of(error)
    return unavailable(error)


def is_unwritable(error: BaseException | None) -> bool:
    """Whether a text cannot be written in the encoding of the connection, the table or the database."""
    if error is None:
        return False
    return isinstance(_driver_error(error), UnicodeEncodeError) or _is_one_of(error, _UNWRITABLE)


def only_reads(error: Exception) -> bool:
    """Whether the server refuses writes: after a failover the connection may lead to the former primary.

    The connection works, so a pool would lend it again. It has to be closed.
    """
    return _is_one_of(error, _ONLY_READS)
