"""The store contract can fail: each of its checks finds a store that is broken in that one way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from goaitools_py import StateConflictError
from goaitools_py.stores import (
    AsyncMemoryStore,
    LeaseHeldError,
    MemoryStore,
    RowFacts,
    Stored,
    StoredHead,
    StoredKey,
    StoredPage,
    StoredPart,
)
from goaitools_py.stores import common as rules
from goaitools_py.stores.memory import MemoryLease
from goaitools_py.testing import _store_beside, _store_extras, _store_saving, _store_together, store_contract
from goaitools_py.testing._store_case import StoreCheck


def findings(make_store: Callable[[], Any], expire: Callable[[str], None] | None = None) -> str:
    """What the contract says about a store, "" if nothing."""
    try:
        store_contract(make_store, max_blob_bytes=100_000, lease_ttl=0.2, expire=expire)
    except AssertionError as error:
        return str(error)
    return ""


# ------------------------------------------------------------------------------------- broken stores


class Bent(MemoryStore):
    """A store in memory; one of its methods is replaced below."""

    def raw(self, key: str) -> Stored | None:
        return self._kept.get(key)

    def put(self, key: str, blob: bytes, version: int, at: datetime | None = None) -> int:
        self._kept[key] = Stored(blob=blob, version=version, updated_at=at or datetime.now(UTC))
        return version


class ForgetsNothing(Bent):
    """It has a `ttl` that does nothing."""

    def expire(self, key: str) -> None:
        assert self.raw(key) is not None


class GivesEmpty(Bent):
    """Nothing stored looks like an empty blob."""

    def load(self, key: str) -> Stored | None:
        return super().load(key) or Stored(blob=b"", version=0, updated_at=datetime.now(UTC))


class KeepsAt64K(Bent):
    """A column of 64 KiB cuts what is longer, as MySQL's BLOB does without strict mode."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return super().save(key, blob[:65_535], expected=expected)


class KeepsText(Bent):
    """A column of text ends at the first zero byte."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return super().save(key, blob.partition(b"\0")[0], expected=expected)


class GivesMemoryviews(Bent):
    """The driver's own type comes out."""

    def load(self, key: str) -> Stored | None:
        stored = super().load(key)
        return stored and replace(stored, blob=memoryview(stored.blob))


class KeepsFirstAsText(Bent):
    """The first save takes another way than later ones, and that one cuts."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return super().save(key, blob[:65_535] if expected is None else blob, expected=expected)


class LocalTime(Bent):
    """Times have no zone."""

    def load(self, key: str) -> Stored | None:
        stored = super().load(key)
        return stored and replace(stored, updated_at=stored.updated_at.replace(tzinfo=None))


class OldTime(Bent):
    """The time stays that of an hour ago."""

    def load(self, key: str) -> Stored | None:
        stored = super().load(key)
        return stored and replace(stored, updated_at=stored.updated_at - timedelta(hours=1))


class Remembers(Bent):
    """Loads come from a cache of the store's own, as from a transaction that stays open."""

    def __init__(self, shared: MemoryStore) -> None:
        super().__init__()
        self._lock, self._kept, self._leases = shared._lock, shared._kept, shared._leases
        self._cache: dict[str, Stored | None] = {}

    def load(self, key: str) -> Stored | None:
        return self._cache.setdefault(key, super().load(key))

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        self._cache.pop(key, None)
        return super().save(key, blob, expected=expected)


def _folding(fold: Callable[[str], str]) -> type[MemoryStore]:
    class Folds(Bent):
        """Keys are compared after folding."""

        def load(self, key: str) -> Stored | None:
            return super().load(fold(key))

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            return super().save(fold(key), blob, expected=expected)

    return Folds


class AnyKey(Bent):
    """Keys are cut silently instead of refused."""

    def load(self, key: str) -> Stored | None:
        return self.raw(key[:512])

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return super().save(
            key.replace("\0", "").encode("utf-8", "replace").decode()[:512], blob, expected=expected
        )


class ShortKeys(Bent):
    """Keys end at 100 characters."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        if len(key) > 100:
            raise ValueError("too long")
        return super().save(key, blob, expected=expected)


class SameVersion(Bent):
    """The version does not move when the bytes do not."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        old = self.raw(key)
        if old is not None and old.version == expected and old.blob == blob:
            return old.version
        return super().save(key, blob, expected=expected)


class WrongVersion(Bent):
    """Save gives the version before."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return super().save(key, blob, expected=expected) - 1


class NoComparison(Bent):
    """The last writer wins."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        with self._lock:
            old = self.raw(key)
            return self.put(key, blob, old.version + 1 if old else 1)


class NoComparisonAtFirst(Bent):
    """A first save replaces what is there."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        old = self.raw(key)
        return super().save(key, blob, expected=old.version if old and expected is None else expected)


class OlderIsFine(Bent):
    """A save is refused only if it names a newer version."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        old = self.raw(key)
        stale = old is not None and expected is not None and expected < old.version
        return super().save(key, blob, expected=old.version if old and stale else expected)


class MakesAnew(Bent):
    """A save that expects a version creates what is not there."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return super().save(key, blob, expected=expected if self.raw(key) else None)


class WritesThenRefuses(Bent):
    """The conflict is noticed after the write."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        old = self.raw(key)
        if (old.version if old else None) != expected:
            self.put(key, blob, old.version if old else 1)
            raise StateConflictError("too late")
        return super().save(key, blob, expected=expected)


class TellsTheKey(Bent):
    """The conflict's text names the key."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        try:
            return super().save(key, blob, expected=expected)
        except StateConflictError:
            raise StateConflictError(f"conflict for {key}") from None


class ComparesThenSaves(Bent):
    """Compare and save are two steps, with time for others between them."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        old = self.raw(key)
        if (old.version if old else None) != expected:
            raise StateConflictError("somebody was first")
        time.sleep(0.001)
        return self.put(key, blob, old.version + 1 if old else 1)


class CountsFromOne(Bent):
    """The versions of a deleted key come again."""

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        with self._lock:
            old = self.raw(key)
            if (old.version if old else None) != expected:
                raise StateConflictError("somebody was first")
            return self.put(key, blob, old.version + 1 if old else 1)


class DeletesNothing(Bent):
    """Delete says that it did."""

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        return self.raw(key) is not None


class DeletesAlways(Bent):
    """Delete does not compare."""

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        return super().delete(key)


class SkipsOne(Bent):
    """The next page begins one key too late."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        page = super().list(prefix, cursor=cursor, limit=limit)
        return page if cursor is None else StoredPage(keys=page.keys[1:], cursor=page.cursor)


class NeverEnds(Bent):
    """There is always a next page."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        page = super().list(prefix, cursor=cursor, limit=limit)
        return StoredPage(keys=page.keys, cursor=page.cursor or "")


class IgnoresLimit(Bent):
    """A page has all there is."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        return super().list(prefix, limit=100_000)


class FollowsAnyCursor(Bent):
    """The cursor alone says where a page begins."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        if cursor is None:
            return super().list(prefix, limit=limit)
        found = [row for row in super().list(limit=100_000).keys if row.key > cursor]
        end = rules.after_prefix(prefix)
        keys = tuple(row for row in found if end is None or row.key < end)
        return StoredPage(keys=keys[:limit], cursor=keys[limit - 1].key if len(keys) > limit else None)


class TrustsCursors(Bent):
    """A cursor that it did not give is an error of the program."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        begin = 0 if cursor is None else {"0": 0}[cursor]
        return StoredPage(keys=super().list(prefix, limit=100_000).keys[begin:][:limit], cursor=None)


class ListsLike(Bent):
    """The prefix is a pattern, and upper and lower case are the same, as with SQLite's LIKE."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        import fnmatch

        pattern = prefix.replace("_", "?").replace("%", "*").lower() + "*"
        found = sorted(
            key for key in self._kept if fnmatch.fnmatchcase(key.lower(), pattern) and key > (cursor or "")
        )
        keys = tuple(
            StoredKey(key=k, version=self._kept[k].version, updated_at=self._kept[k].updated_at)
            for k in found[:limit]
        )
        return StoredPage(keys=keys, cursor=keys[-1].key if len(found) > limit else None)


class ListsOldVersions(Bent):
    """A listing tells the version before."""

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        page = super().list(prefix, cursor=cursor, limit=limit)
        return StoredPage(
            keys=tuple(replace(k, version=k.version - 1) for k in page.keys), cursor=page.cursor
        )


class RecentByKey(Bent):
    """The order of keys, in place of that of saves."""

    def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        return self.list(prefix, cursor=before, limit=limit)


class RecentByOffset(Bent):
    """Its cursor counts rows, so a save meanwhile moves a row onto two pages, or onto none."""

    def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        start = int(before or 0)
        rows = super().recent(prefix, limit=10_000).keys[start:]
        return StoredPage(keys=rows[:limit], cursor=str(start + limit) if len(rows) > limit else None)


class RecentOfAll(Bent):
    """The cursor decides where the page begins, and the prefix is not looked at again."""

    def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        return super().recent("" if before else prefix, before=before, limit=limit)


class ListsDeleted(Bent):
    """A deleted key stays in the index."""

    def __init__(self) -> None:
        super().__init__()
        self._index: dict[str, StoredKey] = {}

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        version = super().save(key, blob, expected=expected)
        at = self._kept[key].updated_at
        self._index[key] = StoredKey(key=key, version=version, updated_at=at)
        return version

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        found = sorted(k for k in self._index if k.startswith(prefix) and k > (cursor or ""))
        keys = tuple(self._index[k] for k in found[:limit])
        return StoredPage(keys=keys, cursor=keys[-1].key if len(found) > limit else None)


class ListsAll(Bent):
    """A listing shows what was set aside, as it shows conversations."""

    def _hides(self, key: str) -> bool:
        return False

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        found = sorted(
            k for k in self._kept if k.startswith(prefix) and k > (cursor or "") and not self._hides(k)
        )
        keys = tuple(
            StoredKey(key=k, version=self._kept[k].version, updated_at=self._kept[k].updated_at)
            for k in found[:limit]
        )
        return StoredPage(keys=keys, cursor=keys[-1].key if len(found) > limit else None)


class HidesTooMuch(ListsAll):
    """A listing takes keys of the application's for what was set aside, and never shows that."""

    def _hides(self, key: str) -> bool:
        return ".unreadable." in key


class LeasesToAll(Bent):
    """Everybody gets the lease."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        yield MemoryLease(self._lock, self._leases, key, ttl)


class LeasesOneKey(Bent):
    """One lease for all keys."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        with super().lease("all", ttl) as lease:
            yield lease


class KeepsLeases(Bent):
    """A lease does not end with its block."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        lease = MemoryLease(self._lock, self._leases, key, ttl)
        lease.take()
        yield lease


class LeasesSlowly(Bent):
    """Looking whether a lease is free and taking it are two steps."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        if self._leases.get(key, ("", 0.0))[1] > time.monotonic():
            raise LeaseHeldError("held")
        time.sleep(0.01)
        self._leases.pop(key, None)
        with super().lease(key, ttl) as lease:
            yield lease


class LeaseLocks(Bent):
    """A lease is a transaction: what others save during it is gone afterwards."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        before = self.raw(key)
        try:
            with super().lease(key, ttl) as lease:
                yield lease
        finally:
            if before is None:
                self._kept.pop(key, None)


class LeasesForever(Bent):
    """A lease has no end."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        with super().lease(key, 1_000.0) as lease:
            yield lease


class EndsAnyLease(Bent):
    """The end of a block ends whoever's lease it is."""

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[MemoryLease]:
        lease = MemoryLease(self._lock, self._leases, key, ttl)
        lease.take()
        try:
            yield lease
        finally:
            self._leases.pop(key, None)


class PeeksByTaking(Bent):
    """The question takes the lease for a moment."""

    def is_held(self, key: str) -> bool:
        try:
            with self.lease(key, 60.0):
                time.sleep(0.001)
                return False
        except LeaseHeldError:
            return True


class PeeksAtAll(Bent):
    """The question does not name a key."""

    def is_held(self, key: str) -> bool:
        return any(end > time.monotonic() for _, end in self._leases.values())


class PeeksForever(Bent):
    """The question does not look at the time."""

    def is_held(self, key: str) -> bool:
        return key in self._leases


class ForgetsTitles(Bent):
    """Facts are saved without the title."""

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        return super().save(key, blob, expected=expected, facts=facts and replace(facts, title=""))


class RefusesTitles(Bent):
    """A title that the column cannot hold is an error."""

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        if facts is not None and len(facts.title) > 255:
            raise ValueError("value too long for the column")
        return super().save(key, blob, expected=expected, facts=facts)


class KeepsOldFacts(Bent):
    """A save without facts leaves those of the blob before."""

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        return super().save(key, blob, expected=expected, facts=facts or self._facts.get(key))


class ClearsStop(Bent):
    """A save writes the whole row, the flag too."""

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        version = super().save(key, blob, expected=expected, facts=facts)
        self._stops.discard(key)
        return version


class StopIsAVersion(Bent):
    """Setting the flag is a save."""

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        old = self.raw(key)
        if old is not None:
            self.put(key, old.blob, old.version + 1)
        return super().set_stop(key, is_wanted)


class GivesAllKinds(Bent):
    """A head comes with all its parts, whatever was asked for."""

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        return super().load_head(key)


class CutsParts(Bent):
    """A part is kept in a column of 64 KiB."""

    def save_parts(
        self, key: str, head: bytes, new: Collection[StoredPart], gone: Collection[bytes], **rest: Any
    ) -> int:
        return super().save_parts(
            key, head, [replace(one, data=one.data[:65_535]) for one in new], gone, **rest
        )


class PartsFirst(Bent):
    """Parts are written before the head is compared."""

    def save_parts(
        self, key: str, head: bytes, new: Collection[StoredPart], gone: Collection[bytes], **rest: Any
    ) -> int:
        kept = {name: part for name, part in self._parts.get(key, {}).items() if name not in gone}
        self._parts[key] = kept | {part.name: part for part in new}
        return super().save_parts(key, head, (), (), **rest)


class KeepsAllParts(Bent):
    """Parts are never dropped."""

    def save_parts(
        self, key: str, head: bytes, new: Collection[StoredPart], gone: Collection[bytes], **rest: Any
    ) -> int:
        return super().save_parts(key, head, new, (), **rest)


class LeavesParts(Bent):
    """Delete takes the head only."""

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        parts = self._parts.get(key)
        deleted = super().delete(key, expected=expected)
        if parts is not None:
            self._parts[key] = parts
        return deleted


class PartsLater(Bent):
    """The head is saved in one step, its parts in the next."""

    def save_parts(
        self, key: str, head: bytes, new: Collection[StoredPart], gone: Collection[bytes], **rest: Any
    ) -> int:
        version = super().save_parts(key, head, (), (), **rest)
        time.sleep(0.001)
        kept = {name: part for name, part in self._parts.get(key, {}).items() if name not in gone}
        self._parts[key] = kept | {part.name: part for part in new}
        return version


class Combines(Bent):
    """A store that follows the contract with two steps in one call. Those below break it in one way each."""

    def lease_and_load(self, key: str, ttl: float) -> tuple[MemoryLease, Stored | None]:
        lease = MemoryLease(self._lock, self._leases, key, ttl)
        lease.take()
        return lease, self.load(key)

    def save_and_release(
        self, lease: MemoryLease, key: str, blob: bytes, *, expected: int | None, facts: Any = None
    ) -> int:
        version = self.save(key, blob, expected=expected, facts=facts)
        lease.release()
        return version


class LoadsWithoutLease(Combines):
    """The lease is not looked at."""

    def lease_and_load(self, key: str, ttl: float) -> tuple[MemoryLease, Stored | None]:
        return MemoryLease(self._lock, self._leases, key, ttl), self.load(key)


class ReleasesWhenRefused(Combines):
    """The lease ends whether or not the save was done."""

    def save_and_release(
        self, lease: MemoryLease, key: str, blob: bytes, *, expected: int | None, facts: Any = None
    ) -> int:
        lease.release()
        return self.save(key, blob, expected=expected, facts=facts)


class SavesUnderLease(Combines):
    """A lease that ran out prevents the save."""

    def save_and_release(
        self, lease: MemoryLease, key: str, blob: bytes, *, expected: int | None, facts: Any = None
    ) -> int:
        if not lease.renew():
            raise StateConflictError("the lease has ended")
        return super().save_and_release(lease, key, blob, expected=expected, facts=facts)


class LoadsFirst(Combines):
    """What is loaded is from before the lease was taken."""

    def lease_and_load(self, key: str, ttl: float) -> tuple[MemoryLease, Stored | None]:
        found = self.load(key)
        time.sleep(0.001)
        return super().lease_and_load(key, ttl)[0], found


class CombinesParts(Bent):
    """The same for a head and its parts."""

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[MemoryLease, StoredHead | None]:
        lease = MemoryLease(self._lock, self._leases, key, ttl)
        lease.take()
        return lease, self.load_head(key, kinds=kinds)

    def save_parts_and_release(
        self,
        lease: MemoryLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: Any = None,
    ) -> int:
        version = self.save_parts(key, head, new, gone, expected=expected, facts=facts)
        lease.release()
        return version


class LoadsAllKinds(CombinesParts):
    """The kinds are not looked at."""

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[MemoryLease, StoredHead | None]:
        return super().lease_and_load_head(key, ttl)


class LeavesThePartsOut(CombinesParts):
    """The save that ends a lease is that of the head."""

    def save_parts_and_release(
        self,
        lease: MemoryLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: Any = None,
    ) -> int:
        return super().save_parts_and_release(lease, key, head, (), (), expected=expected, facts=facts)


class LoadsHeadFirst(CombinesParts):
    """What is loaded is from before the lease was taken."""

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[MemoryLease, StoredHead | None]:
        found = self.load_head(key, kinds=kinds)
        time.sleep(0.001)
        return super().lease_and_load_head(key, ttl, kinds=kinds)[0], found


def _remembering() -> Callable[[], MemoryStore]:
    shared = MemoryStore()
    return lambda: Remembers(shared)


BROKEN: tuple[tuple[Any, StoreCheck], ...] = (
    (GivesEmpty, _store_saving.nothing_is_none),
    (KeepsAt64K, _store_saving.bytes_come_back),
    (KeepsText, _store_saving.bytes_come_back),
    (GivesMemoryviews, _store_saving.bytes_come_back),
    (KeepsFirstAsText, _store_saving.first_bytes_come_back),
    (LocalTime, _store_saving.time_of_save),
    (OldTime, _store_saving.time_of_save),
    (_remembering(), _store_saving.fresh_loads),
    (_folding(str.casefold), _store_saving.keys_are_apart),
    (_folding(str.rstrip), _store_saving.keys_are_apart),
    (_folding(lambda key: key.encode("ascii", "replace").decode()), _store_saving.keys_are_apart),
    (ShortKeys, _store_saving.long_keys),
    (AnyKey, _store_saving.impossible_keys),
    (WrongVersion, _store_saving.new_versions),
    (SameVersion, _store_saving.same_bytes_again),
    (NoComparison, _store_saving.first_save_replaces_nothing),
    (NoComparison, _store_saving.other_versions_are_refused),
    (NoComparison, _store_saving.one_winner),
    (NoComparison, _store_saving.nothing_is_lost),
    (NoComparisonAtFirst, _store_saving.first_save_replaces_nothing),
    (OlderIsFine, _store_saving.other_versions_are_refused),
    (MakesAnew, _store_saving.nothing_is_not_replaced),
    (WritesThenRefuses, _store_saving.other_versions_are_refused),
    (TellsTheKey, _store_saving.conflicts_are_silent),
    (ComparesThenSaves, _store_saving.one_winner),
    (ComparesThenSaves, _store_saving.nothing_is_lost),
    (DeletesNothing, _store_extras.delete_forgets),
    (DeletesAlways, _store_extras.delete_compares),
    (CountsFromOne, _store_extras.versions_do_not_come_again),
    (SkipsOne, _store_extras.list_is_complete),
    (NeverEnds, _store_extras.list_is_complete),
    (IgnoresLimit, _store_extras.list_is_complete),
    (ListsLike, _store_extras.list_is_complete),
    (FollowsAnyCursor, _store_extras.list_stays_within_its_prefix),
    (TrustsCursors, _store_extras.list_stays_within_its_prefix),
    (ListsOldVersions, _store_extras.list_tells_the_same),
    (ListsDeleted, _store_extras.list_all),
    (RecentByKey, _store_extras.recent_is_in_order),
    (RecentByOffset, _store_extras.recent_pages_hold_still),
    (RecentOfAll, _store_extras.recent_stays_within_its_prefix),
    (ListsAll, _store_extras.list_hides_what_was_set_aside),
    (HidesTooMuch, _store_extras.list_hides_what_was_set_aside),
    (LeasesToAll, _store_extras.lease_is_exclusive),
    (LeasesOneKey, _store_extras.lease_is_exclusive),
    (KeepsLeases, _store_extras.lease_is_exclusive),
    (LeasesSlowly, _store_extras.lease_has_one_winner),
    (LeaseLocks, _store_extras.lease_is_no_lock),
    (LeasesForever, _store_extras.lease_runs_out),
    (EndsAnyLease, _store_extras.lease_runs_out),
    (PeeksByTaking, _store_extras.peek_only_reads),
    (PeeksAtAll, _store_extras.peek_only_reads),
    (PeeksForever, _store_extras.lease_runs_out),
    (ForgetsTitles, _store_beside.facts_are_listed),
    (RefusesTitles, _store_beside.facts_are_listed),
    (KeepsOldFacts, _store_beside.facts_are_of_the_blob),
    (ClearsStop, _store_beside.stop_is_a_flag),
    (StopIsAVersion, _store_beside.stop_is_a_flag),
    (GivesAllKinds, _store_beside.parts_come_back),
    (CutsParts, _store_beside.parts_come_back),
    (PartsFirst, _store_beside.parts_change_with_the_head),
    (KeepsAllParts, _store_beside.parts_change_with_the_head),
    (LeavesParts, _store_beside.parts_go_with_the_head),
    (PartsLater, _store_beside.parts_and_head_race),
    (ForgetsNothing, _store_beside.old_rows_are_gone),
    (LoadsWithoutLease, _store_together.lease_comes_with_the_blob),
    (ReleasesWhenRefused, _store_together.save_ends_the_lease),
    (SavesUnderLease, _store_together.save_ends_the_lease),
    (LoadsFirst, _store_together.load_follows_the_lease),
    (LoadsAllKinds, _store_together.lease_comes_with_the_head),
    (LeavesThePartsOut, _store_together.save_of_parts_ends_the_lease),
    (LoadsHeadFirst, _store_together.head_follows_the_lease),
)


def _name(value: Any) -> str:
    return value.wants[:40] if isinstance(value, StoreCheck) else getattr(value, "__name__", "store")


@pytest.mark.parametrize(("broken", "check"), BROKEN, ids=_name)
def test_a_broken_store_is_found(broken: Callable[[], Any], check: StoreCheck) -> None:
    """Each store is broken in one way, and the check that is for it says so."""
    store = broken()

    told = findings(broken if isinstance(store, Remembers) else lambda: store, getattr(store, "expire", None))

    assert f"- {check.wants}: " in told


def test_every_check_is_seen_to_fail() -> None:
    """The list above leaves out no check of the contract."""
    rooms = (_store_saving, _store_extras, _store_beside, _store_together)
    checks = {check.wants for room in rooms for check in room.CHECKS}

    assert {check.wants for _, check in BROKEN} == checks


# --------------------------------------------------------------------------------------- both colours


class AsyncComparesThenSaves(AsyncMemoryStore):
    """Compare and save are two steps, and another task runs between them."""

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        old = self._store.load(key)
        if (old.version if old else None) != expected:
            raise StateConflictError("somebody was first")
        await asyncio.sleep(0)
        now = self._store.load(key)
        return self._store.save(key, blob, expected=now.version if now else None)


def test_a_broken_async_store_is_found() -> None:
    """Async stores are raced too, as tasks of one event loop. Which of the two races it loses is a matter of
    luck."""
    store = AsyncComparesThenSaves()

    told = findings(lambda: store)

    races = (_store_saving.one_winner, _store_saving.nothing_is_lost)
    assert any(f"- {check.wants}: " in told for check in races)
    assert "AsyncComparesThenSaves" in told


def test_an_async_contract_may_be_called_inside_a_loop() -> None:
    """The contract has an event loop of its own, so that a test which is async may call it."""

    async def inside() -> None:
        store = AsyncMemoryStore()
        store_contract(lambda: store, lease_ttl=0.2)

    asyncio.run(inside())


def test_a_store_may_lack_what_is_optional() -> None:
    """A store that can load and save only keeps the contract."""

    class Plain:
        def __init__(self) -> None:
            kept = MemoryStore()
            self.load, self.save = kept.load, kept.save

    store = Plain()

    assert findings(lambda: store) == ""


def test_what_is_no_store_is_told() -> None:
    """A make_store that gives something else is told what a store has."""
    assert "a store needs a method 'load'" in findings(object)


def test_a_mixture_of_colours_is_told() -> None:
    """A store whose load blocks and whose delete is awaited is told so."""

    class Mixed(MemoryStore):
        async def delete(self, key: str, *, expected: int | None = None) -> bool:  # type: ignore[override]
            return True

    store = Mixed()

    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert "make all of them async, or none" in findings(lambda: store)


def test_the_contract_cleans_up() -> None:
    """What was saved for the contract is deleted afterwards, and what was there before is not."""
    store = MemoryStore()
    store.save("ada", b"mine", expected=None)

    store_contract(lambda: store, lease_ttl=0.2)

    assert [entry.key for entry in store.list().keys] == ["ada"]


def test_a_store_that_is_entered_is_left() -> None:
    """What make_store gives is entered, and left at the end, however the contract went."""
    events: list[str] = []

    @contextmanager
    def make_store() -> Iterator[MemoryStore]:
        events.append("open")
        yield NoComparison()
        events.append("closed")

    findings(make_store)

    assert events == ["open", "open", "closed", "closed"]
