"""Blobs in the table of a Django model.

Owns: compare-and-swap, listing and deleting with Django's ORM. Must never know: the contents of a blob.

Each call runs on the connection of the thread that makes it. Inside the caller's own ``transaction.atomic``
it is part of that transaction, and no transaction that is opened here outlives the call. So call the model
outside of your transaction: under ``ATOMIC_REQUESTS`` a view needs ``transaction.non_atomic_requests``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from asgiref.sync import sync_to_async
from django.db import Error, IntegrityError, connections, router, transaction
from django.db.models import Q
from django.utils import timezone

from ..types.errors import StateConflictError
from .base import RowFacts, Stored, StoredKey, StoredPage
from .common import (
    after_prefix,
    as_micro,
    aside_range,
    check_key,
    check_lifetime,
    check_page,
    conflict,
    is_listed,
    new_version,
    of_micro,
    read_recent,
    recent_cursor,
    unavailable,
)
from .layout import PLAIN_COLUMNS, facts_of, plain_values

__all__ = ["AsyncDjangoStore", "DjangoStore"]


_PLAIN = [column.name for column in PLAIN_COLUMNS]


class ConversationModel(Protocol):
    """The shape of the model: the columns of `layout` as fields, and a method that fills its own fields.

    Its `save` gives a new row its version, and is atomic, so that a refused row does not spoil the caller's
    transaction. It fills the plain columns with `described` if `described` is not empty.
    """

    _base_manager: Any
    version: int
    described: Mapping[str, Any]

    def __init__(self, *, key: str, blob: bytes) -> None: ...

    def save(self, *, using: str, force_insert: bool) -> None:
        """Insert the row."""
        ...

    @classmethod
    def columns(cls, key: str, blob: bytes) -> dict[str, Any]:
        """The values of the model's other fields for a blob."""
        ...


def _check_model(model: object, kind: str) -> None:
    """Raise `TypeError` for an object that is not a model class."""
    if not isinstance(model, type) or not hasattr(model, "_base_manager"):
        found = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(f"{kind} takes a model, a subclass of AbstractConversation, not {found}")


class DjangoStore:
    """A store in a model's table.

    It has no leases: other connections see no row of the caller's transaction before it ends. Of two turns at
    the same time the slower one gets `StateConflictError`. To avoid that, give it the leases of another
    store: ``class LeasingStore(DjangoStore): lease = RedisStore(client).lease``. It keeps no parts.

    Args:
        model: A subclass of `goaitools_py.integrations.django.AbstractConversation`.
        using: The database's alias; by default the one that the routers name for writing, since a replica
            may lag behind the version that a save compares with.
        ttl: Seconds after its last save until the store forgets a conversation; None: never. The clock of
            this process tells. The row stays in the table, and a new conversation takes it over.
    """

    def __init__(
        self, model: type[ConversationModel], *, using: str | None = None, ttl: float | None = None
    ) -> None:
        _check_model(model, "DjangoStore")
        self._ttl = None if ttl is None else timedelta(seconds=check_lifetime(ttl))
        self._model = model
        self._using = using

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        check_key(key)
        with self._rows() as rows:
            row = rows.filter(key=key).values_list("blob", "version", "updated_at").first()
        if row is None:
            return None
        blob, version, at = row
        return Stored(blob=bytes(blob), version=version, updated_at=_in_utc(at))

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        Without facts the model's `columns` fills the plain columns from the blob.
        """
        check_key(key)
        described: Mapping[str, Any] = {} if facts is None else _as_fields(facts)
        with self._rows() as rows:
            if expected is None:
                return self._insert(rows, key, blob, described)
            version = new_version(expected)
            columns = {**self._model.columns(key, blob), **described}
            changed = rows.filter(key=key, version=expected).update(
                blob=blob, version=version, updated_at=timezone.now(), **columns
            )
            if changed != 1:
                raise conflict(expected)
            return version

    def _insert(self, rows: Any, key: str, blob: bytes, described: Mapping[str, Any]) -> int:
        row = self._model(key=key, blob=blob)
        row.described = described
        try:
            row.save(using=rows.db, force_insert=True)
            version: int = row.version
        except IntegrityError as exc:
            if self._ttl is not None:
                # Rows that refer to a forgotten row may forbid that it is deleted, so it is changed.
                version = new_version(None)
                columns = {**self._model.columns(key, blob), **described, "stop_requested": False}
                old = self._forgotten(rows.db, self._ttl).filter(key=key)
                if old.update(blob=blob, version=version, updated_at=timezone.now(), **columns):
                    return version
            if rows.filter(key=key).exists():
                found = conflict(None).because_of(exc)
                raise found from found.__cause__
            raise
        return version

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        check_key(key)
        with self._rows() as rows:
            return bool(rows.filter(key=key).update(stop_requested=is_wanted))

    def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        check_key(key)
        with self._rows() as rows:
            return bool(rows.filter(key=key, stop_requested=True).exists())

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, and the rows that refer to it. False if there was no entry."""
        check_key(key)
        with self._rows() as rows, transaction.atomic(using=rows.db):
            if self._ttl is not None:
                aside, end = aside_range(key)
                its_own = Q(key=key) | Q(key__gte=aside, key__lt=end)
                self._forgotten(rows.db, self._ttl).filter(its_own).delete()
            row = rows.filter(key=key)
            if (
                expected is not None
                and row.filter(version=expected).update(version=new_version(expected)) != 1
            ):
                if row.exists():
                    raise conflict(expected)
                return False
            return bool(row.delete()[0])

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        check_page(prefix, limit, cursor)
        end = after_prefix(prefix)
        with self._rows() as rows:
            wanted = rows.filter(key__gte=prefix)
            if cursor is not None:
                wanted = wanted.filter(key__gt=cursor)
            if end is not None:
                wanted = wanted.filter(key__lt=end)
            told = wanted.order_by("key").values_list("key", "version", "updated_at", *_PLAIN)
            found = list(told[: limit + 1])
        keys = tuple(
            StoredKey(key=k, version=v, updated_at=_in_utc(at), facts=facts_of(plain))
            for k, v, at, *plain in found[:limit]
            if is_listed(k, prefix)
        )
        return StoredPage(keys=keys, cursor=found[limit - 1][0] if len(found) > limit else None)

    def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, the one that was saved last first.

        Django keeps microseconds, so the cursor counts them.
        """
        cursor = read_recent(prefix, limit, before, digits=18)
        end = after_prefix(prefix)
        with self._rows() as rows:
            wanted = rows.filter(key__gte=prefix) if prefix else rows.all()
            if end is not None:
                wanted = wanted.filter(key__lt=end)
            if cursor is not None:
                at = of_micro(cursor[0])
                at = at if timezone.is_aware(timezone.now()) else timezone.make_naive(at)
                wanted = wanted.filter(Q(updated_at__lt=at) | Q(updated_at=at, key__lt=cursor[1]))
            told = wanted.order_by("-updated_at", "-key").values_list("key", "version", "updated_at", *_PLAIN)
            found = list(told[: limit + 1])
        keys = tuple(
            StoredKey(key=k, version=v, updated_at=_in_utc(at), facts=facts_of(plain))
            for k, v, at, *plain in found[:limit]
            if is_listed(k, prefix)
        )
        last = found[limit - 1] if len(found) > limit else None
        return StoredPage(
            keys=keys, cursor=None if last is None else recent_cursor(as_micro(_in_utc(last[2])), last[0])
        )

    @contextmanager
    def _rows(self) -> Iterator[Any]:
        alias = self._using or router.db_for_write(self._model)
        try:
            rows = self._model._base_manager.using(alias)
            yield rows if self._ttl is None else rows.filter(updated_at__gt=timezone.now() - self._ttl)
        except Error as exc:
            connections[alias].close_if_unusable_or_obsolete()  # the next call connects anew
            if getattr(exc.__cause__, "sqlstate", None) == "40001":  # PostgreSQL above READ COMMITTED
                late = StateConflictError(
                    "another transaction was first; begin yours anew, load again and redo the turn"
                ).because_of(exc)
                raise late from late.__cause__
            failed = unavailable(f"Django's database {alias!r}", exc)
            raise failed from failed.__cause__

    def _forgotten(self, alias: str, ttl: timedelta) -> Any:
        return self._model._base_manager.using(alias).filter(updated_at__lte=timezone.now() - ttl)


class AsyncDjangoStore:
    """`DjangoStore` for async code. Its calls run in the thread where Django keeps the connection."""

    longest_wait = 0.0

    def __init__(
        self, model: type[ConversationModel], *, using: str | None = None, ttl: float | None = None
    ) -> None:
        _check_model(model, "AsyncDjangoStore")
        self._store = DjangoStore(model, using=using, ttl=ttl)

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return await sync_to_async(self._store.load)(key)

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        return await sync_to_async(self._store.save)(key, blob, expected=expected, facts=facts)

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        return await sync_to_async(self._store.set_stop)(key, is_wanted)

    async def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        return await sync_to_async(self._store.stop_requested)(key)

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, and the rows that refer to it. False if there was no entry."""
        return await sync_to_async(self._store.delete)(key, expected=expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return await sync_to_async(self._store.list)(prefix, cursor=cursor, limit=limit)

    async def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """As `DjangoStore.recent`."""
        return await sync_to_async(self._store.recent)(prefix, before=before, limit=limit)


def _as_fields(facts: RowFacts) -> dict[str, Any]:
    """The plain columns as a model's fields: there, texts are never NULL."""
    texts = {column.name for column in PLAIN_COLUMNS if column.kind == "text"}
    return {
        name: "" if value is None and name in texts else value for name, value in plain_values(facts).items()
    }


def _in_utc(at: datetime) -> datetime:
    return (timezone.make_aware(at) if timezone.is_naive(at) else at).astimezone(UTC)
