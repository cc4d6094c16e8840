"""Blobs in a dictionary, for tests and for what need not outlive the process.

Owns: the dictionary and its lock. Must never know: what is in a blob.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from ..process import this_process
from . import rules
from .base import Stored, StoredKey, StoredPage

__all__ = ["AsyncMemoryStore", "MemoryStore"]


class MemoryStore:
    """A store that forgets everything when the process ends. Any number of threads may share it.

    Processes do not: after a fork the child has a copy of its own, without the leases.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Stored] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._process = this_process()
        self._guards = {self._process: (self._lock, self._leases)}

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._kept.get(rules.check_key(key))

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        rules.check_key(key)
        new = Stored(blob=bytes(blob), version=rules.new_version(expected), updated_at=datetime.now(UTC))
        with self._own_lock():
            old = self._kept.get(key)
            if (old.version if old else None) != expected:
                raise rules.conflict(expected)
            self._kept[key] = new
        return new.version

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Forget what is stored under `key`, with `expected` only that version; False if nothing was."""
        rules.check_key(key)
        with self._own_lock():
            old = self._kept.get(key)
            if old is None:
                return False
            if expected is not None and old.version != expected:
                raise rules.conflict(expected)
            del self._kept[key]
        return True

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        rules.check_page(prefix, limit)
        with self._own_lock():
            found = sorted(
                (key, stored)
                for key, stored in self._kept.items()
                if key.startswith(prefix)
                and (cursor is None or key > cursor)
                and rules.is_listed(key, prefix)
            )
        keys = tuple(
            StoredKey(key=key, version=stored.version, updated_at=stored.updated_at)
            for key, stored in found[:limit]
        )
        return StoredPage(keys=keys, cursor=keys[-1].key if len(found) > limit else None)

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken."""
        rules.check_key(key)
        lease = MemoryLease(self._own_lock(), self._leases, key, rules.check_ttl(ttl))
        lease.take()
        try:
            yield lease
        finally:
            lease.release()

    def _own_lock(self) -> threading.Lock:
        """The lock of this process. After a fork threads that are not here may hold that of the parent, and
        its leases."""
        if self._process is not this_process():
            made = self._guards.setdefault(this_process(), (threading.Lock(), {}))
            self._lock, self._leases = made
            self._process = this_process()
        return self._lock


class MemoryLease:
    """A lease that is held in memory."""

    def __init__(
        self, lock: threading.Lock, leases: dict[str, tuple[str, float]], key: str, ttl: float
    ) -> None:
        self._lock = lock
        self._leases = leases
        self._key = key
        self._ttl = ttl
        self._token = secrets.token_hex(16)

    def take(self) -> None:
        """Begin it. `LeaseHeldError` if another one has not run out."""
        with self._lock:
            other = self._leases.get(self._key)
            if other is not None and other[1] > time.monotonic():
                raise rules.held()
            self._leases[self._key] = (self._token, time.monotonic() + self._ttl)

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if it ran out meanwhile."""
        with self._lock:
            token, end = self._leases.get(self._key, ("", 0.0))
            if token != self._token or end <= time.monotonic():
                return False
            self._leases[self._key] = (token, time.monotonic() + self._ttl)
        return True

    def release(self) -> None:
        """End it, if it is still this one."""
        with self._lock:
            if self._leases.get(self._key, ("", 0.0))[0] == self._token:
                del self._leases[self._key]


class AsyncMemoryStore:
    """`MemoryStore` for async code."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._store.load(key)

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        return self._store.save(key, blob, expected=expected)

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Forget what is stored under `key`, with `expected` only that version; False if nothing was."""
        return self._store.delete(key, expected=expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return self._store.list(prefix, cursor=cursor, limit=limit)

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncMemoryLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken."""
        with self._store.lease(key, ttl) as lease:
            yield AsyncMemoryLease(lease)


class AsyncMemoryLease:
    """`MemoryLease` for async code."""

    def __init__(self, lease: MemoryLease) -> None:
        self._lease = lease

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if it ran out meanwhile."""
        return self._lease.renew()
