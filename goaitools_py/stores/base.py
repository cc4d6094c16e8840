"""What a store is: blobs under keys, saved with compare-and-swap.

Owns: the protocols and their values. Must never know: an engine, or what is in a blob.

A store can `load` and `save`. What else it can do is seen by its shape: a store with a `delete` is a
`Deleting`, one with a `list` a `Listing`, one with a `lease` a `Leasing`; ``isinstance`` tells. The
protocols for async code have the same methods, awaited.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

__all__ = [
    "AsyncDeleting",
    "AsyncLease",
    "AsyncLeasing",
    "AsyncListing",
    "AsyncStore",
    "Deleting",
    "Lease",
    "Leasing",
    "Listing",
    "Store",
    "Stored",
    "StoredKey",
    "StoredPage",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A blob with the version that the next save must name.

    Attributes:
        blob: The bytes as they were saved.
        version: A number to be compared for equality only. Each save changes it, and no later blob under
            this key gets it again, not even after a `delete`.
        updated_at: When it was saved, in UTC.
    """

    blob: bytes = field(repr=False)
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """What a listing tells of a key: what `load` would give, without the blob."""

    key: str = field(repr=False)
    version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """One page of a listing.

    Attributes:
        keys: At most as many as were asked for; fewer, or none, do not mean that it was the last page.
        cursor: What to give to `list` for the next page; None after the last one.
    """

    keys: tuple[StoredKey, ...]
    cursor: str | None = field(repr=False)


# ------------------------------------------------------------------------------------------ blocking


class Store(Protocol):
    """Keeps one blob for each key, a text of at most 512 bytes of UTF-8 without NUL."""

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None. Raises `StoreUnavailableError`."""
        ...

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected` (None: nothing is stored yet).

        Returns the new version. Raises `StateConflictError` if somebody else was first; then nothing is
        saved. Raises `StoreUnavailableError` if the store did not say that it saved: it may have, so load
        before you save again.
        """
        ...


@runtime_checkable
class Deleting(Protocol):
    """A store that can forget."""

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Forget what is stored under `key`; False if nothing was.

        With `expected`, only that version: `StateConflictError` if another one is stored.
        """
        ...


@runtime_checkable
class Listing(Protocol):
    """A store that knows its keys."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`.

        Keys under which a kept conversation has set unreadable bytes aside, ``<key>.unreadable.<24
        hexadecimal digits>``, are not conversations: they are listed only for a prefix that reaches into
        that end, such as ``"ada.unreadable."``.
        A key that is there all the while is on one of the pages; one that comes or goes meanwhile may be.
        """
        ...


class Lease(Protocol):
    """A lease that is held.

    It may also have a method ``release()``, which ends it before its ``with`` block does. Unlike the block's
    end it raises `StoreUnavailableError` if the store could not do that; then it is called again.
    """

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if it ran out meanwhile: somebody else may hold it now."""
        ...


@runtime_checkable
class Leasing(Protocol):
    """A store that can keep others away from a key for a while."""

    def lease(self, key: str, ttl: float) -> AbstractContextManager[Lease]:
        """Hold the lease of `key` inside a ``with`` block, for at most `ttl` seconds, then renew it.

        It does not wait: `LeaseHeldError` if somebody holds it. A holder that died keeps it for `ttl`
        seconds at most. It spares two workers from paying for the same turn. It is not a lock: a holder
        may be paused beyond its `ttl`, and whoever does not ask for the lease is not kept out. That no turn
        is lost or doubled rests on the compare-and-swap of `save` alone.
        """
        ...


# ------------------------------------------------------------------------------------------- awaited


class AsyncStore(Protocol):
    """`Store` for async code."""

    async def load(self, key: str) -> Stored | None:
        """As `Store.load`."""
        ...

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`. If it is cancelled, the blob may have been saved: load before saving again."""
        ...


@runtime_checkable
class AsyncDeleting(Protocol):
    """`Deleting` for async code."""

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `Deleting.delete`."""
        ...


@runtime_checkable
class AsyncListing(Protocol):
    """`Listing` for async code."""

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """As `Listing.list`."""
        ...


class AsyncLease(Protocol):
    """`Lease` for async code; its ``release``, if it has one, is awaited."""

    async def renew(self) -> bool:
        """As `Lease.renew`."""
        ...


@runtime_checkable
class AsyncLeasing(Protocol):
    """`Leasing` for async code."""

    def lease(self, key: str, ttl: float) -> AbstractAsyncContextManager[AsyncLease]:
        """As `Leasing.lease`, in an ``async with``."""
        ...
