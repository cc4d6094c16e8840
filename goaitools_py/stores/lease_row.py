"""A lease as a row of SQLite, whose own locks are for writing and would keep everybody out.

Owns: the table and its statements. Must never know: a connection, or whose lease it is.

All writers are on one machine, so that its clock tells when a lease has run out.
"""

from __future__ import annotations

import secrets
import time

from . import rules

__all__ = ["TABLE", "LeaseRow"]

TABLE = """
CREATE TABLE IF NOT EXISTS goaitools_state_lease (
    key TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    ends_at INTEGER NOT NULL
) WITHOUT ROWID
"""

_TAKE = """
INSERT INTO goaitools_state_lease VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET token = excluded.token, ends_at = excluded.ends_at
WHERE goaitools_state_lease.ends_at <= ?
"""
_RENEW = "UPDATE goaitools_state_lease SET ends_at = ? WHERE key = ? AND token = ? AND ends_at > ?"
_RELEASE = "DELETE FROM goaitools_state_lease WHERE key = ? AND token = ? OR ends_at <= ?"

Statement = tuple[str, tuple[str | int, ...]]


class LeaseRow:
    """One holder's lease. Each statement changes one row if it succeeds, none if not."""

    def __init__(self, key: str, ttl: float) -> None:
        self._key = key
        self._ttl_ms = max(1, round(rules.check_ttl(ttl) * 1000))
        self._token = secrets.token_hex(16)

    def take(self) -> Statement:
        """Begin it, unless another one has not run out."""
        now = time.time_ns() // 1_000_000
        return _TAKE, (self._key, self._token, now + self._ttl_ms, now)

    def renew(self) -> Statement:
        """Begin the `ttl` anew, unless it ran out."""
        now = time.time_ns() // 1_000_000
        return _RENEW, (now + self._ttl_ms, self._key, self._token, now)

    def release(self) -> Statement:
        """End it, and sweep out what others left behind."""
        return _RELEASE, (self._key, self._token, time.time_ns() // 1_000_000)
