# generated from testing/_async_crash_stores.py by tests/make_sync.py; edit testing/_async_crash_stores.py
"""Wraps the program's store for a life that may be killed before and after each call of the store.

Owns: the calls that pass through to the store, and the leases that a dead life has left. Must never know:
when a kill comes, or the checks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

from ..stores.base import Combining, CombiningParts, Leasing, Parted

__all__ = ["Held", "MortalStore", "mortal"]

Passes = Callable[[str], None]
"""Called before and after each effect. It raises once the life is over."""

Held = dict[int, Any]
"""A function that ends each held lease, by the lease's identity. A lease of a dead life stays in it."""


def mortal(store: Any, passes: Passes, held: Held) -> MortalStore:
    """Give a store for one life, with the leases, parts and combined steps that the program's store has."""
    shapes: dict[type[Any], type[MortalStore]] = {
        CombiningParts: _PartsCombiningStore,
        Combining: _CombiningStore,
        Leasing: _LeasingStore,
        Parted: _PartedStore,
    }
    kinds = (*(kind for shape, kind in shapes.items() if isinstance(store, shape)), MortalStore)
    made: MortalStore = _of(kinds)(store, passes, held)
    return made


@cache
def _of(kinds: tuple[type[Any], ...]) -> type[Any]:
    """One class with the methods of these."""
    return type(kinds[0].__name__, kinds, {})


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


class _PartedStore(MortalStore):
    def save_parts(self, *save: Any, **how: Any) -> int:
        """As `Parted.save_parts`."""
        self._passes("before a save")
        version: int = self._store.save_parts(*save, **how)
        self._passes("after a save")
        return version

    def load_head(self, key: str, *, kinds: Any = None) -> Any:
        """As `Parted.load_head`."""
        self._passes("before a load")
        return self._store.load_head(key, kinds=kinds)

    def load_parts(self, key: str, names: Any) -> Any:
        """As `Parted.load_parts`."""
        self._passes("before a load")
        return self._store.load_parts(key, names)


class _LeasingStore(MortalStore):
    def lease(self, key: str, ttl: float) -> _Leased:
        """As `Leasing.lease`."""
        return _Leased(self._store.lease(key, ttl), self._passes, self._held)


class _Leased:
    """The ``with`` block of a lease. Not a generator: Python would end the generator of a dead life."""

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
        return self._taken(lambda: self._store.lease_and_load(key, ttl))

    def _taken(self, take: Callable[[], Any]) -> tuple[Any, Any]:
        self._passes("before a lease")
        lease, stored = take()
        kept = self._held[id(lease)] = ExitStack()
        kept.callback(lease.release)
        self._passes("after a lease")
        return _CombinedLease(lease, self._passes, self._held), stored

    def save_and_release(self, lease: Any, *save: Any, **how: Any) -> int:
        """As `Combining.save_and_release`."""
        return self._ended(lease._lease, self._store.save_and_release, *save, **how)

    def _ended(self, lease: Any, method: Any, *save: Any, **how: Any) -> int:
        self._passes("before a save")
        version: int = method(lease, *save, **how)
        self._held.pop(id(lease), None)
        self._passes("after a save")
        return version


class _PartsCombiningStore(_CombiningStore):
    def lease_and_load_head(self, key: str, ttl: float, *, kinds: Any = None) -> tuple[Any, Any]:
        """As `CombiningParts.lease_and_load_head`."""
        return self._taken(lambda: self._store.lease_and_load_head(key, ttl, kinds=kinds))

    def save_parts_and_release(self, lease: Any, *save: Any, **how: Any) -> int:
        """As `CombiningParts.save_parts_and_release`."""
        return self._ended(lease._lease, self._store.save_parts_and_release, *save, **how)


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
