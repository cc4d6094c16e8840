"""The protocols of a store: blobs under keys, saved with compare-and-swap.

Owns: the protocols and their values. Must never know: an engine, or the contents of a blob.

Every store can `load` and `save`. Its methods show its other abilities: a store with a `delete` is a
`Deleting`, one with a `list` a `Listing`, one with a `lease` a `Leasing`, one with a `set_stop` a `Stopping`,
one with an `is_held` a `Peeking`, one with a `save_parts` a `Parted`, one with a `lease_and_load` a
`Combining`, one with a `lease_and_load_head` a `CombiningParts`; ``isinstance`` tells. A store is
`Describing` if its `save` has a parameter ``facts``. The protocols for async code have the same methods,
awaited.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from ..base.values import ByShape
from .layout import RowFacts, StoredPart

__all__ = [
    "AsyncCombining",
    "AsyncCombiningParts",
    "AsyncDeleting",
    "AsyncDescribing",
    "AsyncLease",
    "AsyncLeasing",
    "AsyncListing",
    "AsyncParted",
    "AsyncPeeking",
    "AsyncStopping",
    "AsyncStore",
    "Combining",
    "CombiningParts",
    "Deleting",
    "Describing",
    "Lease",
    "Leasing",
    "Listing",
    "Parted",
    "Peeking",
    "RowFacts",
    "Stopping",
    "Store",
    "Stored",
    "StoredHead",
    "StoredKey",
    "StoredPage",
    "StoredPart",
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
class StoredHead(Stored):
    """A blob together with some of its parts, all read at one moment.

    Attributes:
        parts: The parts that were asked for, in no order.
    """

    parts: tuple[StoredPart, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """One key of a listing: like the result of `load`, without the blob.

    Attributes:
        facts: The facts of the last save; None if that save gave no facts, or the store keeps no facts.
    """

    key: str = field(repr=False)
    version: int
    updated_at: datetime
    facts: RowFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """One page of a listing.

    Attributes:
        keys: At most as many as were asked for. There may be fewer, or 0, before the last page.
        cursor: Give it to `list` for the next page. None after the last page.
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

        Returns the new version. Raises `StateConflictError` if another worker was first; then nothing is
        saved. Raises `StoreUnavailableError` if the store did not say that it saved: it may have, so load
        before you save again.
        """
        ...


class Describing(Protocol):
    """A store that keeps facts about a blob in plain columns beside it, and gives them with `Listing.list`.

    A save without facts empties the columns: they never describe an older blob.
    """

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """As `Store.save`; the facts are saved with the blob, in the same atomic step."""
        ...


@runtime_checkable
class Stopping(Protocol, metaclass=ByShape):
    """A store with a flag beside each blob that asks the worker of a conversation to stop.

    The flag belongs to the key, not to the blob. It changes no version, a save leaves it as it is, and a
    delete removes it. A store does not decide how a turn reacts to the flag.
    """

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the flag, or clear it. False if nothing is stored under `key`; then nothing is set."""
        ...

    def stop_requested(self, key: str) -> bool:
        """The flag; False if nothing is stored under `key`."""
        ...


@runtime_checkable
class Parted(Protocol, metaclass=ByShape):
    """A store that keeps parts of a conversation beside its blob, which is then called its head.

    Head and parts change in one atomic step. A reader sees all of a save, or nothing of it. After a crash the
    store holds the old state or the new one. `Listing.list` shows no parts. `Deleting.delete`
    takes them with the key. `Store.load` gives the head alone, and `Store.save` leaves the parts as they are.
    """

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
        """As `Describing.save` for the head. The same step adds the parts `new`, and drops the parts `gone`.

        Args:
            key: As for `Store.save`.
            head: The blob.
            new: Parts to add. A part that is there already stays.
            gone: Names of parts to drop. A name that is not there, or is among the new ones, is ignored.
            expected: As for `Store.save`; if the save is refused, no part changes either.
            facts: As for `Describing.save`.
        """
        ...

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds, read at one moment. `kinds`: None for all, () for no
        parts."""
        ...

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored, in no order.

        A save may have dropped parts since the head was loaded. If a part is missing, load the head again.
        """
        ...


@runtime_checkable
class Deleting(Protocol, metaclass=ByShape):
    """A store that can delete."""

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`. False if there was no entry.

        With `expected`, only that version: `StateConflictError` if another one is stored.
        """
        ...


@runtime_checkable
class Listing(Protocol, metaclass=ByShape):
    """A store that can list its keys."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`.

        A kept conversation may set unreadable bytes aside under a key like ``<key>.unreadable.<24 hexadecimal
        digits>``. These keys are not conversations. They are listed only for a prefix that reaches into
        that end, such as ``"ada.unreadable."``.
        A key that exists during the whole walk is on one of the pages. A key that is made or deleted during
        the walk may be missing. A cursor may be forged: no page shows a key outside the prefix, and a cursor
        that this store cannot have given is a `ValueError`.

        A store may also have a method ``recent(prefix="", *, before=None, limit=100)``. It gives the same
        keys, the one that was saved last first. `before` is the `StoredPage.cursor` of the page before. A key
        that is not saved during the walk is on exactly one page.
        """
        ...


class Lease(Protocol):
    """A lease that was taken.

    It may also have a method ``release()``, which ends the lease before its ``with`` block does. Unlike the
    end of the block, it raises `StoreUnavailableError` if the store failed; then call it again.
    """

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out: another holder may have it now."""
        ...


@runtime_checkable
class Leasing(Protocol, metaclass=ByShape):
    """A store that can reserve a key for one holder for a limited time."""

    def lease(self, key: str, ttl: float) -> AbstractContextManager[Lease]:
        """Hold the lease of `key` inside a ``with`` block, for at most `ttl` seconds, then renew it.

        It does not wait: `LeaseHeldError` if another holder has it. After a crash of its holder a lease lasts
        for `ttl` seconds at most. It saves two workers from paying for the same turn. It is not a lock: a
        holder may be paused beyond its `ttl`, and a worker that does not ask for the lease is not kept out.
        Only the compare-and-swap of `save` ensures that no turn is lost or doubled.

        If the caller is interrupted while the lease is taken, the store gives it back.
        """
        ...


@runtime_checkable
class Peeking(Protocol, metaclass=ByShape):
    """A `Leasing` store that tells whether a key is leased without a lease of its own."""

    def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads: a `lease` at the same time succeeds.

        The answer may be out of date at once. To get the lease, call `lease`; do not ask first.
        """
        ...


@runtime_checkable
class Combining(Protocol, metaclass=ByShape):
    """A `Leasing` store that takes a lease and loads in one call, and saves and releases in one call.

    That saves a turn two round trips. A turn may use one of the two methods without the other.
    """

    def lease_and_load(self, key: str, ttl: float) -> tuple[Lease, Stored | None]:
        """Take the lease of `key` as `Leasing.lease` does, and then load. The lease has a ``release``.

        The load sees every save that was finished when the lease was taken. `LeaseHeldError` if another
        holder has the lease; then nothing is loaded.
        """
        ...

    def save_and_release(
        self, lease: Lease, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """As `Describing.save`. If the blob was saved, the lease has ended too; otherwise it continues.

        A lease that ran out does not prevent the save: only the version does.
        """
        ...


@runtime_checkable
class CombiningParts(Protocol, metaclass=ByShape):
    """A `Parted` store that does the two steps of `Combining` for a head and its parts."""

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[Lease, StoredHead | None]:
        """Take the lease as `Combining.lease_and_load` does, and then load as `Parted.load_head` does."""
        ...

    def save_parts_and_release(
        self,
        lease: Lease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `Parted.save_parts`. If the head was saved, the lease has ended too; otherwise it continues."""
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


class AsyncDescribing(Protocol):
    """`Describing` for async code."""

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """As `Describing.save`."""
        ...


@runtime_checkable
class AsyncStopping(Protocol, metaclass=ByShape):
    """`Stopping` for async code."""

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `Stopping.set_stop`."""
        ...

    async def stop_requested(self, key: str) -> bool:
        """As `Stopping.stop_requested`."""
        ...


@runtime_checkable
class AsyncParted(Protocol, metaclass=ByShape):
    """`Parted` for async code."""

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
        ...

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `Parted.load_head`."""
        ...

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `Parted.load_parts`."""
        ...


@runtime_checkable
class AsyncDeleting(Protocol, metaclass=ByShape):
    """`Deleting` for async code."""

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `Deleting.delete`."""
        ...


@runtime_checkable
class AsyncListing(Protocol, metaclass=ByShape):
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
class AsyncLeasing(Protocol, metaclass=ByShape):
    """`Leasing` for async code."""

    def lease(self, key: str, ttl: float) -> AbstractAsyncContextManager[AsyncLease]:
        """As `Leasing.lease`, in an ``async with``."""
        ...


@runtime_checkable
class AsyncPeeking(Protocol, metaclass=ByShape):
    """`Peeking` for async code."""

    async def is_held(self, key: str) -> bool:
        """As `Peeking.is_held`."""
        ...


@runtime_checkable
class AsyncCombining(Protocol, metaclass=ByShape):
    """`Combining` for async code."""

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncLease, Stored | None]:
        """As `Combining.lease_and_load`."""
        ...

    async def save_and_release(
        self, lease: AsyncLease, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """As `Combining.save_and_release`."""
        ...


@runtime_checkable
class AsyncCombiningParts(Protocol, metaclass=ByShape):
    """`CombiningParts` for async code."""

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncLease, StoredHead | None]:
        """As `CombiningParts.lease_and_load_head`."""
        ...

    async def save_parts_and_release(
        self,
        lease: AsyncLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `CombiningParts.save_parts_and_release`."""
        ...
