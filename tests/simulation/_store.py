"""The store of a run: rows with compare-and-swap, leases, and every way in which a store may fail.

Owns: rows, their parts, leases, and a second book of who holds a lease, which no planted bug can touch.
Must never know: what is in a blob, or whose turn it is.

A worker reaches it through a `Port`, its connection, which is where the faults strike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from goaitools_py import StateConflictError, StatePartMissingError, StoreUnavailableError
from goaitools_py.chat.kept.parts import LOADED, head_of, whole_or_unreadable
from goaitools_py.seal import Plain
from goaitools_py.state.parts import ELSEWHERE
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.stores import Stored, StoredHead, StoredKey, StoredPage, StoredPart
from goaitools_py.types.errors import LeaseHeldError

__all__ = ["CombiningPort", "LeasingPort", "Place", "Port", "Rows", "Save"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Place(Protocol):
    """Where a store is: its clock, what is to happen later, and where a broken promise is told."""

    @property
    def now(self) -> float: ...

    def later(self, seconds: float, act: Callable[[], None]) -> None: ...

    def broken(self, what: str) -> None: ...


class Save(NamedTuple):
    """A save that was made. `by`: the worker's name."""

    by: str
    key: str
    before: bytes
    after: bytes


class Rows:
    """What the store holds."""

    def __init__(self, place: Place, on_save: Callable[[Save], None]) -> None:
        self.place = place
        self.rows: dict[str, Stored] = {}
        self.parts: dict[str, dict[bytes, StoredPart]] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.held: dict[str, tuple[str, float]] = {}
        self.stops: set[str] = set()
        self.away_until = -1.0
        self._on_save = on_save
        self._versions = 0

    def save(
        self,
        by: str,
        key: str,
        blob: bytes,
        expected: int | None,
        new: Collection[StoredPart] = (),
        gone: Collection[bytes] = (),
    ) -> int:
        """As `Store.save`, or with parts as `Parted.save_parts`."""
        old = self.rows.get(key)
        if (old.version if old else None) != expected:
            raise StateConflictError("another version is stored")
        before = self.whole(key, kinds=LOADED) if old else b""
        self._versions += 1
        self.rows[key] = Stored(blob=bytes(blob), version=self._versions, updated_at=EPOCH)
        self._change_parts(key, new, gone)
        self._on_save(Save(by, key, before, self.whole(key, kinds=LOADED)))
        return self._versions

    def _change_parts(self, key: str, new: Collection[StoredPart], gone: Collection[bytes]) -> None:
        """Add and drop parts, after the save of their head. They have to be those that the head lists."""
        added = {part.name: part for part in new}
        kept = {name: part for name, part in self.parts.get(key, {}).items() if name not in gone}
        self.parts[key] = kept | added
        listed = {
            part.digest
            for part in parts_of(self.rows[key].blob, codec=Plain(), binding=None)
            if part.place == ELSEWHERE
        }
        if listed != self.parts[key].keys():
            lacking = len(listed - self.parts[key].keys())
            self.place.broken(f"{lacking} parts of {key} are missing, or one is there that no head lists")

    def whole(self, key: str, *, kinds: Collection[int] | None = None) -> bytes:
        """A state with its parts of these kinds in it; None for all."""
        row = self.rows[key]
        found = self.parts.get(key, {}).values()
        parts = tuple(part for part in found if kinds is None or part.kind in kinds)
        if not parts:
            return row.blob
        head = StoredHead(blob=row.blob, version=row.version, updated_at=row.updated_at, parts=parts)
        with suppress(StatePartMissingError):  # `_change_parts` has told of it
            return whole_or_unreadable(head_of(head, Plain(), None, kinds=kinds)[0])
        return row.blob

    def delete(self, by: str, key: str) -> bool:
        """As `Deleting.delete`."""
        self.stops.discard(key)
        if key not in self.rows:
            return False
        before = self.whole(key, kinds=LOADED)
        del self.rows[key]
        self.parts.pop(key, None)
        self._on_save(Save(by, key, before, b""))
        return True

    def take(self, key: str, token: str, ttl: float) -> None:
        """Begin a lease. `LeaseHeldError` if another one has not run out."""
        now = self.place.now
        if self.leases.get(key, ("", -1.0))[1] > now:
            raise LeaseHeldError("held")
        other, end = self.held.get(key, ("", -1.0))
        if end > now and other != token:
            self.place.broken(f"{token} got the lease of {key} that {other} holds")
        self.leases[key] = self.held[key] = (token, now + ttl)

    def renew(self, key: str, token: str, ttl: float) -> bool:
        """Begin the seconds of a lease anew. False if it ran out."""
        now = self.place.now
        mine, end = self.leases.get(key, ("", -1.0))
        if mine != token or end <= now:
            return False
        self.leases[key] = self.held[key] = (token, now + ttl)
        return True

    def release(self, key: str, token: str) -> None:
        """End a lease."""
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]
        if self.leases.get(key, ("", 0.0))[0] == token:
            self.leases.pop(key, None)


class Port:
    """One worker's connection to a store without leases.

    `fault`, with its `amount`, strikes the next call that it can strike, and is then gone.
    """

    CAN_STRIKE = frozenset({"fail"})

    def __init__(self, rows: Rows, name: str) -> None:
        self.rows = rows
        self.name = name
        self.fault = ""
        self.amount = 0.0

    def load(self, key: str) -> Stored | None:
        """As `Store.load`."""
        self._reach()
        return self.rows.rows.get(key)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`."""
        return self._sent(lambda: self.rows.save(self.name, key, blob, expected))

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: object = None,
    ) -> int:
        """As `Parted.save_parts`."""
        return self._sent(lambda: self._save_parts(key, head, new, gone, expected))

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `Parted.load_head`."""
        self._reach()
        return self._head(key, kinds)

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `Parted.load_parts`."""
        self._reach()
        return tuple(part for name, part in self.rows.parts.get(key, {}).items() if name in names)

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `Deleting.delete`."""
        is_unanswered = self._takes("unanswered")
        self._reach()
        was_there = self.rows.delete(self.name, key)
        if is_unanswered:
            raise StoreUnavailableError("no answer came")
        return was_there

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """As `Listing.list`."""
        self._reach()
        found = [
            StoredKey(key=key, version=row.version, updated_at=row.updated_at)
            for key, row in sorted(self.rows.rows.items())
            if key.startswith(prefix)
        ]
        return StoredPage(keys=tuple(found), cursor=None)

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `Stopping.set_stop`."""
        self._reach()
        if key not in self.rows.rows:
            return False
        (self.rows.stops.add if is_wanted else self.rows.stops.discard)(key)
        return True

    def stop_requested(self, key: str) -> bool:
        """As `Stopping.stop_requested`."""
        self._reach()
        return key in self.rows.stops

    def _head(self, key: str, kinds: Collection[int] | None) -> StoredHead | None:
        row = self.rows.rows.get(key)
        if row is None:
            return None
        parts = self.rows.parts.get(key, {}).values()
        wanted = tuple(part for part in parts if kinds is None or part.kind in kinds)
        return StoredHead(blob=row.blob, version=row.version, updated_at=row.updated_at, parts=wanted)

    def _save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        expected: int | None,
    ) -> int:
        return self.rows.save(self.name, key, head, expected, new, gone)

    def _sent(self, save: Callable[[], int]) -> int:
        """Do a save, or what a fault makes of it."""
        if self._takes("late"):
            self.rows.place.later(self.amount, lambda: self._done_late(save))
            raise StoreUnavailableError("no answer came, and the save is still on its way")
        is_unanswered = self._takes("unanswered")
        self._reach()
        version = save()
        if is_unanswered:
            raise StoreUnavailableError("no answer came")
        return version

    @staticmethod
    def _done_late(save: Callable[[], int]) -> None:
        with suppress(StateConflictError):
            save()

    def _takes(self, kind: str) -> bool:
        if self.fault != kind:
            return False
        self.fault = ""
        return True

    def _reach(self) -> None:
        if self._takes("fail") or self.rows.place.now < self.rows.away_until:
            raise StoreUnavailableError("down")


class LeasingPort(Port):
    """The same with leases."""

    def __init__(self, rows: Rows, name: str) -> None:
        super().__init__(rows, name)
        self._taken = 0

    def lease(self, key: str, ttl: float) -> Lease:
        """As `Leasing.lease`."""
        self._taken += 1
        return Lease(self, key, f"{self.name}.{self._taken}", ttl)


class CombiningPort(LeasingPort):
    """The same with two steps in one call. What is lost is lost of both."""

    def lease_and_load(self, key: str, ttl: float) -> tuple[Lease, Stored | None]:
        """As `Combining.lease_and_load`."""
        lease = self.lease(key, ttl)
        lease.__enter__()
        return lease, self.rows.rows.get(key)

    def save_and_release(
        self, lease: Lease, key: str, blob: bytes, *, expected: int | None, facts: object = None
    ) -> int:
        """As `Combining.save_and_release`."""
        return self._sent(lambda: self._ended(lease, self.rows.save(self.name, key, blob, expected)))

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[Lease, StoredHead | None]:
        """As `CombiningParts.lease_and_load_head`."""
        lease = self.lease(key, ttl)
        lease.__enter__()
        return lease, self._head(key, kinds)

    def save_parts_and_release(
        self,
        lease: Lease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: object = None,
    ) -> int:
        """As `CombiningParts.save_parts_and_release`."""
        return self._sent(lambda: self._ended(lease, self._save_parts(key, head, new, gone, expected)))

    @staticmethod
    def _ended(lease: Lease, version: int) -> int:
        lease.end()
        return version


class Lease:
    """A lease, and the context that holds it."""

    def __init__(self, port: LeasingPort, key: str, token: str, ttl: float) -> None:
        self._port = port
        self._key = key
        self._token = token
        self._ttl = ttl

    def __enter__(self) -> Lease:
        is_unanswered = self._port._takes("unanswered")
        self._port._reach()
        self._port.rows.take(self._key, self._token, self._ttl)
        if is_unanswered:
            raise StoreUnavailableError("no answer came")
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()

    def release(self) -> None:
        """As the end of the context."""
        self._port._reach()
        self.end()

    def end(self) -> None:
        """End it in the store."""
        self._port.rows.release(self._key, self._token)

    def renew(self) -> bool:
        """As `Lease.renew`."""
        if self._port.rows.place.now < self._port.rows.away_until:
            return True  # nothing was renewed; the next one may be in time
        return self._port.rows.renew(self._key, self._token, self._ttl)
