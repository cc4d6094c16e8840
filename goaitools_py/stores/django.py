"""Blobs in the table of a Django model.

Owns: compare-and-swap, listing and deleting with Django's ORM. Must never know: what is in a blob.

Each call runs on the connection of the thread that makes it. Inside the caller's own ``transaction.atomic``
it is part of that transaction, and no transaction that is opened here outlives the call. So keep the model
call out of yours: under ``ATOMIC_REQUESTS`` a view needs ``transaction.non_atomic_requests``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from asgiref.sync import sync_to_async
from django.db import Error, IntegrityError, connections, router, transaction
from django.utils import timezone

from ..errors import StateConflictError
from .base import Stored, StoredKey, StoredPage
from .rules import after_prefix, check_key, check_page, conflict, is_listed, new_version, unavailable

__all__ = ["AsyncDjangoStore", "DjangoStore"]


class ConversationModel(Protocol):
    """The shape of the model: the fields `key`, `blob`, `version`, `updated_at`, and what fills its others.

    Its `save` gives a new row its version, and is atomic, so that a refused row does not spoil the caller's
    transaction.
    """

    _base_manager: Any

    @classmethod
    def columns(cls, key: str, blob: bytes) -> dict[str, Any]:
        """The values of the model's other fields for a blob."""
        ...


class DjangoStore:
    """A store in a model's table.

    It has no leases: a row that is part of the caller's transaction is seen by nobody before its end. Of two
    turns at the same time the slower one is a `StateConflictError`, unless the leases of another store are
    given to it, ``class LeasingStore(DjangoStore): lease = RedisStore(client).lease``.

    Args:
        model: A subclass of `goaitools_py.integrations.django.AbstractConversation`.
        using: The database's alias; by default the one that the routers name for writing, since a replica
            may lag behind the version that a save compares with.
    """

    def __init__(self, model: type[ConversationModel], *, using: str | None = None) -> None:
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

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        check_key(key)
        with self._rows() as rows:
            if expected is None:
                return self._insert(rows, key, blob)
            version = new_version(expected)
            changed = rows.filter(key=key, version=expected).update(
                blob=blob, version=version, updated_at=timezone.now(), **self._model.columns(key, blob)
            )
            if changed != 1:
                raise conflict(expected)
            return version

    def _insert(self, rows: Any, key: str, blob: bytes) -> int:
        try:
            version: int = rows.create(key=key, blob=blob).version
        except IntegrityError as exc:
            if rows.filter(key=key).exists():
                found = conflict(None).because_of(exc)
                raise found from found.__cause__
            raise
        return version

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Forget what is stored under `key`, and the rows that hang on it; False if nothing was."""
        check_key(key)
        with self._rows() as rows, transaction.atomic(using=rows.db):
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
        check_page(prefix, limit)
        end = after_prefix(prefix)
        with self._rows() as rows:
            wanted = rows.filter(key__gte=prefix) if cursor is None else rows.filter(key__gt=cursor)
            if end is not None:
                wanted = wanted.filter(key__lt=end)
            found = list(wanted.order_by("key").values_list("key", "version", "updated_at")[: limit + 1])
        keys = tuple(
            StoredKey(key=k, version=v, updated_at=_in_utc(at))
            for k, v, at in found[:limit]
            if is_listed(k, prefix)
        )
        return StoredPage(keys=keys, cursor=found[limit - 1][0] if len(found) > limit else None)

    @contextmanager
    def _rows(self) -> Iterator[Any]:
        alias = self._using or router.db_for_write(self._model)
        try:
            yield self._model._base_manager.using(alias)
        except Error as exc:
            connections[alias].close_if_unusable_or_obsolete()  # so that the next call connects anew
            if getattr(exc.__cause__, "sqlstate", None) == "40001":  # PostgreSQL above READ COMMITTED
                late = StateConflictError(
                    "another transaction was first; begin yours anew, load again and redo the turn"
                ).because_of(exc)
                raise late from late.__cause__
            failed = unavailable(f"Django's database {alias!r}", exc)
            raise failed from failed.__cause__


class AsyncDjangoStore:
    """`DjangoStore` for async code. Its calls run in the thread where Django keeps the connection."""

    def __init__(self, model: type[ConversationModel], *, using: str | None = None) -> None:
        self._store = DjangoStore(model, using=using)

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return await sync_to_async(self._store.load)(key)

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet."""
        return await sync_to_async(self._store.save)(key, blob, expected=expected)

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Forget what is stored under `key`, and the rows that hang on it; False if nothing was."""
        return await sync_to_async(self._store.delete)(key, expected=expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return await sync_to_async(self._store.list)(prefix, cursor=cursor, limit=limit)


def _in_utc(at: datetime) -> datetime:
    return (timezone.make_aware(at) if timezone.is_naive(at) else at).astimezone(UTC)
