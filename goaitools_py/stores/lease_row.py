"""A lease as a row of SQLite. SQLite's own locks would block all other writers while a model is called.

Owns: the statements on that row. Must never know: a connection, or who holds the lease.

All writers are on one machine, so a clock of the machine says when a lease has ended: the clock that counts
from the machine's start. All processes read the same time on it, and a program cannot set it. After a restart
it begins again at 0, and the holder of an older lease is gone. An older lease then ends later than a new one
could, so it counts as ended. In the worst case it holds for its length once more.
"""

from __future__ import annotations

import secrets
import time

from . import common

__all__ = ["LeaseRow", "is_held", "now_ms"]

_IS_OVER = "(ends_at <= ? OR ends_at > ? + 2 * ttl_ms)"
_TAKE = f"""
INSERT INTO goaitools_state_lease AS held (key, token, ends_at, ttl_ms) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET token = excluded.token, ends_at = excluded.ends_at, ttl_ms = excluded.ttl_ms
WHERE {_IS_OVER.replace("ends_at", "held.ends_at").replace("ttl_ms", "held.ttl_ms")}
"""
_RENEW = f"UPDATE goaitools_state_lease SET ends_at = ? WHERE key = ? AND token = ? AND NOT {_IS_OVER}"
_RELEASE = f"DELETE FROM goaitools_state_lease WHERE key = ? AND token = ? OR {_IS_OVER}"
_IS_HELD = f"SELECT 1 FROM goaitools_state_lease WHERE key = ? AND NOT {_IS_OVER}"

Statement = tuple[str, tuple[str | int, ...]]


class LeaseRow:
    """One holder's lease. Each statement changes one row if it succeeds, otherwise 0 rows."""

    def __init__(self, key: str, ttl: float) -> None:
        self._key = key
        self._ttl_ms = max(1, round(common.check_ttl(ttl) * 1000))
        self._token = secrets.token_hex(16)

    def take(self) -> Statement:
        """Begin the lease, unless another lease has not run out."""
        now = now_ms()
        return _TAKE, (self._key, self._token, now + self._ttl_ms, self._ttl_ms, now, now)

    def renew(self) -> Statement:
        """Begin the `ttl` anew, unless the lease ran out."""
        now = now_ms()
        return _RENEW, (now + self._ttl_ms, self._key, self._token, now, now)

    def release(self) -> Statement:
        """End the lease, and delete the rows of all leases that have ended."""
        now = now_ms()
        return _RELEASE, (self._key, self._token, now, now)


def is_held(key: str) -> Statement:
    """Ask whether the key is leased. The answer has one row if it is, otherwise 0 rows."""
    now = now_ms()
    return _IS_HELD, (key, now, now)


def now_ms() -> int:
    """Milliseconds since the machine was started. Since Python 3.5 all its processes read the same value."""
    return time.monotonic_ns() // 1_000_000
