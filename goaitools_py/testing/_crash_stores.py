"""The program's store as a life sees it that may be killed: before and after each of its calls.

Owns: what passes through to the store, and which leases a dead life has left. Must never know: when a kill
comes, or what is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from ..stores.base import AsyncCombining, AsyncLeasing, Combining, Leasing

__all__ = ["AsyncMortalStore", "MortalStore", "async_mortal", "mortal"]

Passes = Callable[[str], None]
"""Called before and after each effect. It raises once the life is over."""

Held = dict[int, Any]
"""What ends each lease that is held, by its identity. A lease of a dead life stays in it."""


def mortal(store: Any, passes: Passes, held: Held) -> MortalStore:
    """Give a store for one life, with the leases that the program's store has."""
    kind = MortalStore
    if isinstance(store, Leasing):
        kind = _CombiningStore if isinstance(store, Combining) else _LeasingStore
    return kind(store, passes, held)


def async_mortal(store: Any, passes: Passes, held: Held) -> AsyncMortalStore:
    """As `mortal`, awaited."""
    kind = AsyncMortalStore
    if isinstance(store, AsyncLeasing):
        kind = _AsyncCombiningStore if isinstance(store, AsyncCombining) else _AsyncLeasingStore
    return kind(store, passes, held)


class MortalStore:
    """Load and save, as long as the life lasts."""

    def __init__(self, store: Any, passes: Passes, held: Held) -> None:
        self._store, self._passes, self._held = store, passes, held

    def load(self, key: str) -> Any:
        """As `Store.load`."""
        self._passes("before a load")
        return self._store.load(key)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`."""
        self._passes("before a save")
        version: int = self._store.save(key, blob, expected=expected)
        self._passes("after a save")
        return version


class _LeasingStore(MortalStore):
    def lease(self, key: str, ttl: float) -> _Leased:
        """As `Leasing.lease`."""
        return _Leased(self._store.lease(key, ttl), self._passes, self._held)


class _Leased:
    """The ``with`` block of a lease. No generator: Python ends one that a dead life has left behind."""

    def __init__(self, around: Any, passes: Passes, held: Held) -> None:
        self._around, self._passes, self._held = around, passes, held

    def __enter__(self) -> _Lease:
        self._passes("before a lease")
        with ExitStack() as stack:
            lease = stack.enter_context(self._around)
            self._held[id(self)] = stack.pop_all()
        self._passes("after a lease")
        return _Lease(lease, self._passes)

    def __exit__(self, *error: object) -> None:
        self._passes("before a release")
        self._held.pop(id(self)).close()
        self._passes("after a release")


class _CombiningStore(_LeasingStore):
    def lease_and_load(self, key: str, ttl: float) -> tuple[Any, Any]:
        """As `Combining.lease_and_load`."""
        self._passes("before a lease")
        lease, stored = self._store.lease_and_load(key, ttl)
        kept = self._held[id(lease)] = ExitStack()
        kept.callback(lease.release)
        self._passes("after a lease")
        return _CombinedLease(lease, self._passes, self._held), stored

    def save_and_release(
        self, lease: Any, key: str, blob: bytes, *, expected: int | None, facts: Any = None
    ) -> int:
        """As `Combining.save_and_release`."""
        self._passes("before a save")
        version: int = self._store.save_and_release(lease._lease, key, blob, expected=expected, facts=facts)
        self._held.pop(id(lease._lease), None)
        self._passes("after a save")
        return version


class _Lease:
    def __init__(self, lease: Any, passes: Passes) -> None:
        self._lease, self._passes = lease, passes

    def renew(self) -> bool:
        """As `Lease.renew`. No kill comes here: it depends on the clock whether a turn renews its lease."""
        return bool(self._lease.renew())


class _CombinedLease(_Lease):
    def __init__(self, lease: Any, passes: Passes, held: Held) -> None:
        super().__init__(lease, passes)
        self._held = held

    def release(self) -> None:
        """End the lease."""
        self._passes("before a release")
        self._lease.release()
        self._held.pop(id(self._lease), None)
        self._passes("after a release")


# ------------------------------------------------------------------------------------------- awaited


class AsyncMortalStore:
    """As `MortalStore`, awaited."""

    def __init__(self, store: Any, passes: Passes, held: Held) -> None:
        self._store, self._passes, self._held = store, passes, held

    async def load(self, key: str) -> Any:
        """As `Store.load`."""
        self._passes("before a load")
        return await self._store.load(key)

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`."""
        self._passes("before a save")
        version: int = await self._store.save(key, blob, expected=expected)
        self._passes("after a save")
        return version


class _AsyncLeasingStore(AsyncMortalStore):
    def lease(self, key: str, ttl: float) -> _AsyncLeased:
        """As `Leasing.lease`."""
        return _AsyncLeased(self._store.lease(key, ttl), self._passes, self._held)


class _AsyncLeased:
    """As `_Leased`, awaited."""

    def __init__(self, around: Any, passes: Passes, held: Held) -> None:
        self._around, self._passes, self._held = around, passes, held

    async def __aenter__(self) -> _AsyncLease:
        self._passes("before a lease")
        async with AsyncExitStack() as stack:
            lease = await stack.enter_async_context(self._around)
            self._held[id(self)] = stack.pop_all()
        self._passes("after a lease")
        return _AsyncLease(lease, self._passes)

    async def __aexit__(self, *error: object) -> None:
        self._passes("before a release")
        await self._held.pop(id(self)).aclose()
        self._passes("after a release")


class _AsyncCombiningStore(_AsyncLeasingStore):
    async def lease_and_load(self, key: str, ttl: float) -> tuple[Any, Any]:
        """As `Combining.lease_and_load`."""
        self._passes("before a lease")
        lease, stored = await self._store.lease_and_load(key, ttl)
        kept = self._held[id(lease)] = AsyncExitStack()
        kept.push_async_callback(lease.release)
        self._passes("after a lease")
        return _AsyncCombinedLease(lease, self._passes, self._held), stored

    async def save_and_release(
        self, lease: Any, key: str, blob: bytes, *, expected: int | None, facts: Any = None
    ) -> int:
        """As `Combining.save_and_release`."""
        self._passes("before a save")
        version: int = await self._store.save_and_release(
            lease._lease, key, blob, expected=expected, facts=facts
        )
        self._held.pop(id(lease._lease), None)
        self._passes("after a save")
        return version


class _AsyncLease:
    def __init__(self, lease: Any, passes: Passes) -> None:
        self._lease, self._passes = lease, passes

    async def renew(self) -> bool:
        """As `Lease.renew`."""
        return bool(await self._lease.renew())


class _AsyncCombinedLease(_AsyncLease):
    def __init__(self, lease: Any, passes: Passes, held: Held) -> None:
        super().__init__(lease, passes)
        self._held = held

    async def release(self) -> None:
        """End the lease."""
        self._passes("before a release")
        await self._lease.release()
        self._held.pop(id(self._lease), None)
        self._passes("after a release")
