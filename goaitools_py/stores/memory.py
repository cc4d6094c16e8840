"""Blobs in a dictionary, for tests and for conversations that end with the process.

Owns: the dictionary and its lock. Must never know: the contents of a blob.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from ..base.process import this_process
from . import common
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from .layout import facts_of, plain_values

__all__ = ["AsyncMemoryStore", "MemoryStore"]


class MemoryStore:
    """A store that forgets everything when the process ends. Any number of threads may share it.

    Processes do not: after a fork the child has a copy of its own, without the leases. It has no combined
    steps: a step is a look into a dictionary, and combining saves no round trip.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Stored] = {}
        self._facts: dict[str, RowFacts | None] = {}
        self._stops: set[str] = set()
        self._parts: dict[str, dict[bytes, StoredPart]] = {}
        self._leases: dict[str, tuple[str, float]] = {}
        self._process = this_process()
        self._guards = {self._process: (self._lock, self._leases)}

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._kept.get(common.check_key(key))

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        return self._save(key, blob, expected, facts)

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; in the same step add parts and drop parts. See `Parted.save_parts`."""
        return self._save(key, head, expected, facts, new, gone)

    def _save(
        self,
        key: str,
        blob: bytes,
        expected: int | None,
        facts: RowFacts | None,
        new: Collection[StoredPart] = (),
        gone: Collection[bytes] = (),
    ) -> int:
        common.check_key(key)
        now = datetime.now(UTC)
        row = Stored(blob=bytes(blob), version=common.new_version(expected), updated_at=now)
        with self._own_lock():
            old = self._kept.get(key)
            if (old.version if old else None) != expected:
                raise common.conflict(expected)
            self._kept[key] = row
            self._facts[key] = facts_of(plain_values(facts).values())
            if new or gone:
                # A new dictionary: a reader that holds the old one without the lock is not disturbed.
                kept = {name: part for name, part in self._parts.get(key, {}).items() if name not in gone}
                self._parts[key] = {part.name: part for part in new} | kept
        return row.version

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), as one save left them."""
        common.check_key(key)
        with self._own_lock():
            row, parts = self._kept.get(key), self._parts.get(key, {})
        if row is None:
            return None
        wanted = tuple(part for part in parts.values() if kinds is None or part.kind in kinds)
        return StoredHead(blob=row.blob, version=row.version, updated_at=row.updated_at, parts=wanted)

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        parts = self._parts.get(common.check_key(key), {})
        return tuple(parts[name] for name in dict.fromkeys(names) if name in parts)

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        common.check_key(key)
        with self._own_lock():
            if key not in self._kept:
                return False
            (self._stops.add if is_wanted else self._stops.discard)(key)
        return True

    def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        return common.check_key(key) in self._stops

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        common.check_key(key)
        with self._own_lock():
            old = self._kept.get(key)
            if old is None:
                return False
            if expected is not None and old.version != expected:
                raise common.conflict(expected)
            del self._kept[key]
            self._facts.pop(key, None)
            self._stops.discard(key)
            self._parts.pop(key, None)
        return True

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        common.check_page(prefix, limit, cursor)
        with self._own_lock():
            found = sorted(
                key
                for key in self._kept
                if key.startswith(prefix)
                and (cursor is None or key > cursor)
                and common.is_listed(key, prefix)
            )
            keys = tuple(
                StoredKey(key=key, version=row.version, updated_at=row.updated_at, facts=self._facts.get(key))
                for key, row in ((key, self._kept[key]) for key in found[:limit])
            )
        return StoredPage(keys=keys, cursor=keys[-1].key if len(found) > limit else None)

    def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, the one that was saved last first."""
        cursor = common.read_recent(prefix, limit, before, digits=18)
        with self._own_lock():
            found = sorted(
                (common.as_micro(row.updated_at), key)
                for key, row in self._kept.items()
                if key.startswith(prefix) and common.is_listed(key, prefix)
            )
            found = [one for one in reversed(found) if cursor is None or one < cursor]
            keys = tuple(
                StoredKey(key=key, version=row.version, updated_at=row.updated_at, facts=self._facts.get(key))
                for key, row in ((key, self._kept[key]) for _, key in found[:limit])
            )
        has_more = len(found) > limit
        return StoredPage(keys=keys, cursor=common.recent_cursor(*found[limit - 1]) if has_more else None)

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken."""
        common.check_key(key)
        lease = MemoryLease(self._own_lock(), self._leases, key, common.check_ttl(ttl))
        try:
            lease.take()
            yield lease
        finally:
            lease.release()

    def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        common.check_key(key)
        with self._own_lock():
            return self._leases.get(key, ("", 0.0))[1] > time.monotonic()

    def _own_lock(self) -> threading.Lock:
        """The lock of this process. After a fork the child makes its own lock, and its own leases. Threads of
        the parent may hold the old ones, and these threads do not run in the child."""
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
        """Begin the lease. `LeaseHeldError` if another lease has not run out."""
        with self._lock:
            other = self._leases.get(self._key)
            if other is not None and other[1] > time.monotonic():
                raise common.held()
            self._leases[self._key] = (self._token, time.monotonic() + self._ttl)

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        with self._lock:
            token, end = self._leases.get(self._key, ("", 0.0))
            if token != self._token or end <= time.monotonic():
                return False
            self._leases[self._key] = (token, time.monotonic() + self._ttl)
        return True

    def release(self) -> None:
        """End the lease, if this holder still has it."""
        with self._lock:
            if self._leases.get(self._key, ("", 0.0))[0] == self._token:
                del self._leases[self._key]


class AsyncMemoryStore:
    """`MemoryStore` for async code."""

    longest_wait = 0.0

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._store.load(key)

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        return self._store.save(key, blob, expected=expected, facts=facts)

    async def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `MemoryStore.save_parts`."""
        return self._store.save_parts(key, head, new, gone, expected=expected, facts=facts)

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `MemoryStore.load_head`."""
        return self._store.load_head(key, kinds=kinds)

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `MemoryStore.load_parts`."""
        return self._store.load_parts(key, names)

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `MemoryStore.set_stop`."""
        return self._store.set_stop(key, is_wanted)

    async def stop_requested(self, key: str) -> bool:
        """As `MemoryStore.stop_requested`."""
        return self._store.stop_requested(key)

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        return self._store.delete(key, expected=expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return self._store.list(prefix, cursor=cursor, limit=limit)

    async def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """As `MemoryStore.recent`."""
        return self._store.recent(prefix, before=before, limit=limit)

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncMemoryLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken."""
        with self._store.lease(key, ttl) as lease:
            yield AsyncMemoryLease(lease)

    async def is_held(self, key: str) -> bool:
        """As `MemoryStore.is_held`."""
        return self._store.is_held(key)


class AsyncMemoryLease:
    """`MemoryLease` for async code."""

    def __init__(self, lease: MemoryLease) -> None:
        self._lease = lease

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return self._lease.renew()

    async def release(self) -> None:
        """End the lease, if this holder still has it."""
        self._lease.release()
