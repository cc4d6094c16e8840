"""The way between a store and PostgreSQL: a pool, a URL, and a pooler such as PgBouncer.

Owns: the checks of a pool and a URL, how a pooler is detected, and the texts of the errors. Must never know:
a statement of a store, or the contents of a blob.

Some poolers lend a server for one transaction only. They may send a prepared statement to a server that does
not know it, or, worse, that knows another one by the same name. PgBouncer keeps track of them from 1.21 on,
with `max_prepared_statements`. The stores need no other session state: no `SET`, no lock, no `LISTEN`.
"""

from __future__ import annotations

from collections.abc import Collection
from inspect import iscoroutinefunction
from typing import Any, Final

from ..base.display import is_clear
from ..base.process import Process, this_process
from ..types.errors import StoreError, StoreUnavailableError
from . import common

__all__ = [
    "ASK_PID",
    "OneProcess",
    "asyncpg_misused",
    "check_pool",
    "check_url",
    "has_several_hosts",
    "is_unprepared",
    "named_in",
    "pooler_problem",
    "psycopg_not_open",
]


class OneProcess:
    """A pool is used in the process that used it first."""

    def __init__(self) -> None:
        self._used_in: Process | None = None

    def check(self) -> None:
        if self._used_in is None:
            self._used_in = this_process()
        elif self._used_in is not this_process():
            raise StoreUnavailableError(
                "the connections to PostgreSQL were used before this process was forked, and two processes "
                "on one connection read each other's answers: make the pool and the store in each process"
            )


def check_pool(pool: object, lends: str, kind: str) -> None:
    """Raise `TypeError` if `pool` is not a pool of the store's driver: it has no method named `lends`."""
    is_class = isinstance(pool, type)
    lent = None if is_class else getattr(pool, lends, None)
    if lent is not None and not (lends == "getconn" and iscoroutinefunction(lent)):
        return
    wanted = "a psycopg_pool.ConnectionPool" if lends == "getconn" else "a pool of asyncpg"
    found = f"the class {pool.__name__}" if isinstance(pool, type) else type(pool).__name__
    module = type(pool).__module__.partition(".")[0]
    if not is_class and module == "asyncpg":
        found = f"{found} of asyncpg"
    elif not is_class and module == "psycopg_pool":
        found = f"{found} of psycopg"
    advice = f"{kind}.open(url) makes one"
    if lends == "getconn" and (lent is not None or module == "asyncpg"):
        advice += "; in async code, AsyncPostgresStore takes a pool of asyncpg"
    elif lends == "acquire" and module == "psycopg_pool":
        advice += "; in code that is not async, PostgresStore takes a psycopg_pool.ConnectionPool"
    raise TypeError(f"{kind} takes {wanted}, not {found}; {advice}")


def check_url(url: object, kind: str) -> None:
    """Refuse a URL that no PostgreSQL driver accepts. A pool would retry it until its timeout.

    A text without a scheme is the driver's own: psycopg takes ``"dbname=app user=ada"``.
    """
    if not isinstance(url, str):
        raise TypeError(
            f"{kind}.open takes a URL, such as 'postgresql://user@host/database', not {type(url).__name__}"
        )
    scheme, found, _ = url.partition("://")
    if found and scheme not in ("postgresql", "postgres"):
        raise ValueError(
            f"{kind}.open takes a URL that begins with 'postgresql://', got '{scheme}://'; the name of a "
            "driver, as in 'postgresql+psycopg://', is for SQLAlchemy"
        )
    if found and not is_clear(url):
        raise ValueError(
            f"{kind}.open cannot tell where its URL leads: write 'postgresql://user:password@host/database', "
            "with / ? # @ : % in the password percent-encoded"
        )


def has_several_hosts(url: str) -> bool:
    """True for a URL with several hosts, such as a primary and its standby."""
    place = url.partition("://")[2].partition("?")[0].rpartition("@")[2]
    return "," in place.partition("/")[0]


def named_in(url: str) -> Collection[str]:
    """The parameters in a URL for psycopg. Raises `ValueError` without psycopg's text: it may quote a
    password."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return conninfo_to_dict(url)
    except ProgrammingError:
        pass
    raise ValueError(
        "PostgresStore.open takes a URL such as 'postgresql://user@host/database', or words of "
        "psycopg such as 'dbname=app'; psycopg cannot read this one"
    )


def psycopg_not_open(is_owned: bool, error: Exception) -> StoreError:
    """The error of a psycopg pool that is not open. A pool of psycopg opens only once."""
    if is_owned:
        advice = "make another one with PostgresStore.open(url)"
        return common.not_open("this PostgresStore was closed", advice, error)
    return common.not_open(
        "the pool of this PostgresStore is not open",
        "call pool.open() before the first use; a pool that was closed does not open again, so make another "
        "one, and another store",
        error,
    )


_NOT_READY: Final = "pool is not initialized"
"""Part of the text of asyncpg's `InterfaceError`. asyncpg uses this class for other faults too."""


def asyncpg_misused(pool: Any, is_owned: bool, error: Exception) -> StoreError | None:
    """The error of an asyncpg pool that cannot lend a connection; None if asyncpg's own error is clear."""
    if pool.is_closing():
        advice = "make another pool, and another store, for instance with AsyncPostgresStore.open(url)"
        return common.not_open("the pool of this AsyncPostgresStore was closed", advice, error)
    if not is_owned and _NOT_READY in str(error):
        return common.not_open(
            "the pool of this AsyncPostgresStore is not open",
            "write `pool = await asyncpg.create_pool(url)`, with await, or use AsyncPostgresStore.open(url)",
            error,
        )
    return None


ASK_PID: Final = "SELECT pg_backend_pid()"
"""A server's own number. If the driver was told another one when it connected, a pooler is in between."""

_UNKNOWN: Final = ("42P05", "26000")
_PROTOCOL: Final = "08P01"
_OF_ANOTHER: Final = "but prepared statement"
_NO_TRANSACTIONS: Final = "statement pooling mode"


def is_unprepared(error: BaseException | None) -> bool:
    """Whether a server did not know a prepared statement, or knew another one by its name."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code in _UNKNOWN or (code == _PROTOCOL and _OF_ANOTHER in str(error))


def pooler_problem(error: BaseException | None, remedy: str) -> StoreError | None:
    """The error for a statement that a pooler cannot serve; None for any other error.

    It is not a `StoreUnavailableError`, because waiting does not help.

    Args:
        error: The driver's error.
        remedy: How to run this store without prepared statements.
    """
    if is_unprepared(error):
        return StoreError(
            "a pooler is between the store and PostgreSQL, and does not keep prepared statements; PgBouncer "
            f"does in transaction mode from 1.21 on, with max_prepared_statements: {remedy}"
        )
    if _NO_TRANSACTIONS in str(error):
        return StoreError(
            "PgBouncer is between the store and PostgreSQL, and pools single statements where transactions "
            "are needed: set pool_mode to transaction, or open a PostgresStore with prepare=False"
        )
    return None
