"""A store for plain code as a store for an event loop: each call runs in a thread.

Owns: the awaited methods. Must never know: an engine of a store.

Drivers for plain code and for an event loop differ, and a URL names one. So the chat app takes the store that
line mode takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from ..stores import RowFacts, Stored, StoredHead, StoredPage, StoredPart

__all__ = ["FullThreadedStore", "ThreadedStore"]


class ThreadedStore:
    """The methods that every listed store has. The caller closes `store`."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def load(self, key: str) -> Stored | None:
        """As `Store.load`."""
        found: Stored | None = await asyncio.to_thread(self._store.load, key)
        return found

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`."""
        version: int = await asyncio.to_thread(self._store.save, key, blob, expected=expected)
        return version

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `Deleting.delete`."""
        return bool(await asyncio.to_thread(self._store.delete, key, expected=expected))

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """As `Listing.list`."""
        page: StoredPage = await asyncio.to_thread(self._store.list, prefix, cursor=cursor, limit=limit)
        return page


class FullThreadedStore(ThreadedStore):
    """`ThreadedStore` of a store with facts, parts, stop flags and leases, such as a store on a server."""

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """As `Describing.save`."""
        version: int = await asyncio.to_thread(self._store.save, key, blob, expected=expected, facts=facts)
        return version

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
        """As `Parted.save_parts`."""
        version: int = await asyncio.to_thread(
            self._store.save_parts, key, head, new, gone, expected=expected, facts=facts
        )
        return version

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `Parted.load_head`."""
        found: StoredHead | None = await asyncio.to_thread(self._store.load_head, key, kinds=kinds)
        return found

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `Parted.load_parts`."""
        return tuple(await asyncio.to_thread(self._store.load_parts, key, names))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `Stopping.set_stop`."""
        return bool(await asyncio.to_thread(self._store.set_stop, key, is_wanted))

    async def stop_requested(self, key: str) -> bool:
        """As `Stopping.stop_requested`."""
        return bool(await asyncio.to_thread(self._store.stop_requested, key))

    async def is_held(self, key: str) -> bool:
        """As `Peeking.is_held`."""
        return bool(await asyncio.to_thread(self._store.is_held, key))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[_Lease]:
        """As `Leasing.lease`."""
        held = self._store.lease(key, ttl)
        lease = _Lease(await asyncio.to_thread(held.__enter__))
        try:
            yield lease
        finally:
            await asyncio.to_thread(held.__exit__, None, None, None)


class _Lease:
    def __init__(self, lease: Any) -> None:
        self._lease = lease

    async def renew(self) -> bool:
        return bool(await asyncio.to_thread(self._lease.renew))

    async def release(self) -> None:
        await asyncio.to_thread(self._lease.release)
