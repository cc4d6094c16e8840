"""Leases of SQL databases: an advisory lock of the server where it has them, else a row with a time.

Owns: the steps that take, renew and release each. Must never know: an engine, or a turn.

A lock of the server lives as long as the connection that took it. So that connection is taken out of the
pool, is in no transaction, and is idle while a model is called; the server itself closes it when it was
idle for longer than the lease's `ttl`, which is how a holder that hangs loses it.
"""

from __future__ import annotations

import hashlib
import math
from typing import Protocol

from sqlalchemy import Connection, text
from sqlalchemy.engine.interfaces import DBAPIConnection

from . import rules
from .lease_row import TABLE, LeaseRow, Statement

__all__ = ["SQLLease", "lease_of"]


class SQLLease(Protocol):
    """The steps of one lease. `holds_connection`: all are to be taken on one connection, kept open."""

    holds_connection: bool

    def take(self, connection: Connection) -> None:
        """Begin it, or raise `LeaseHeldError`."""
        ...

    def renew(self, connection: Connection) -> bool:
        """Begin the `ttl` anew; False if it ran out."""
        ...

    def release(self, connection: Connection) -> None:
        """End it."""
        ...


def lease_of(dialect: str, scope: str, key: str, ttl: float) -> SQLLease:
    """A lease of `key` in a table, which `scope` names."""
    name = hashlib.sha256(f"{scope}\0{rules.check_key(key)}".encode())
    rules.check_ttl(ttl)
    if dialect == "postgresql":
        number = int.from_bytes(name.digest()[:8], signed=True)
        return _LockLease(
            take=f"SELECT pg_try_advisory_lock({number})",
            limit=f"SET idle_session_timeout = {max(1, round(ttl * 1000))}",
            release=f"SELECT pg_advisory_unlock({number})",
        )
    if dialect == "sqlite":
        return _RowLease(LeaseRow(key, ttl))
    lock = (
        f"goaitools-{name.hexdigest()[:48]}"  # at most 64 characters, the same for all databases of a server
    )
    return _LockLease(
        take=f"SELECT GET_LOCK('{lock}', 0)",
        limit=f"SET SESSION wait_timeout = {math.ceil(ttl)}",
        release=f"SELECT RELEASE_LOCK('{lock}')",
    )


class _LockLease:
    """A lock of the server, on a connection that leaves the pool."""

    holds_connection = True

    def __init__(self, *, take: str, limit: str, release: str) -> None:
        self._take = text(take)
        self._limit = text(limit)
        self._release = text(release)
        self._own: DBAPIConnection | None = None

    def take(self, connection: Connection) -> None:
        if not connection.scalar(self._take):
            raise rules.held()
        connection.detach()
        self._own = connection.connection.dbapi_connection
        try:
            connection.execute(self._limit)
        except BaseException:
            self._close(connection)
            raise

    def renew(self, connection: Connection) -> bool:
        connection.execute(text("SELECT 1"))  # idle no more: the server counts from here again
        return True

    def release(self, connection: Connection) -> None:
        try:
            connection.execute(self._release)
        finally:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        """SQLAlchemy does not close a connection that left the pool, if the driver is async."""
        if not connection.invalidated:
            connection.invalidate()
        if self._own is not None:
            self._own.close()


class _RowLease:
    """A row of SQLite, the same as `SQLiteStore`'s."""

    holds_connection = False

    def __init__(self, row: LeaseRow) -> None:
        self._row = row

    def take(self, connection: Connection) -> None:
        connection.exec_driver_sql(TABLE)
        if not _changed(connection, self._row.take()):
            raise rules.held()

    def renew(self, connection: Connection) -> bool:
        return _changed(connection, self._row.renew())

    def release(self, connection: Connection) -> None:
        _changed(connection, self._row.release())


def _changed(connection: Connection, statement: Statement) -> bool:
    return connection.exec_driver_sql(*statement).rowcount > 0
