"""A pooler between a store and PostgreSQL, such as PgBouncer: how it is detected, and its limits.

Owns: these rules, and the texts of the errors. Must never know: a store, a pool, or an engine.

Some poolers lend a server for one transaction only. They may send a prepared statement to a server that does
not know it, or, worse, that knows another one by the same name. PgBouncer keeps track of them from 1.21 on,
with `max_prepared_statements`. The stores need no other session state: no `SET`, no lock, no `LISTEN`.
"""

from __future__ import annotations

from typing import Final

from ..types.errors import StoreError

__all__ = ["ASK_PID", "is_unprepared", "pooler_problem"]

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
