"""Pools of connections to PostgreSQL: checks of the pool and the URL, and errors of a pool that is not open.

Owns: these checks, and the texts of their errors. Must never know: a statement, or the contents of a blob.
"""

from __future__ import annotations

from collections.abc import Collection
from inspect import iscoroutinefunction
from typing import Any, Final

from ..base.display import is_clear
from ..base.process import Process, this_process
from ..types.errors import StoreError, StoreUnavailableError
from . import common

__all__ = ["OneProcess", "asyncpg_misused", "check_pool", "check_url", "named_in", "psycopg_not_open"]


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
