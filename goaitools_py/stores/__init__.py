"""Stable. Stores for blobs: a protocol with compare-and-swap, and classes that implement it.

Owns: the places of blobs, with compare-and-swap. Must never know: the content of a blob.

Begin with `base.py`, the protocols; `memory.py` is the simplest store. CONTRIBUTING.md has the recipe for a
new one. Each class is loaded at its first use, so SQLite's store does not load Redis.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..base.advice import missing_extra_error
from ..types.errors import LeaseHeldError, TurnStoppedError
from .base import (
    AsyncCombining,
    AsyncCombiningParts,
    AsyncDeleting,
    AsyncDescribing,
    AsyncLease,
    AsyncLeasing,
    AsyncListing,
    AsyncParted,
    AsyncPeeking,
    AsyncStopping,
    AsyncStore,
    Combining,
    CombiningParts,
    Deleting,
    Describing,
    Lease,
    Leasing,
    Listing,
    Parted,
    Peeking,
    RowFacts,
    Stopping,
    Store,
    Stored,
    StoredHead,
    StoredKey,
    StoredPage,
    StoredPart,
)

if TYPE_CHECKING:
    from .async_redis import AsyncRedisStore
    from .async_sqlalchemy import AsyncSQLAlchemyStore
    from .callable import AsyncCallableStore, CallableStore
    from .django import AsyncDjangoStore, DjangoStore
    from .memory import AsyncMemoryStore, MemoryStore
    from .postgres import AsyncPostgresStore, PostgresStore
    from .redis import RedisStore
    from .sqlalchemy import SQLAlchemyStore
    from .sqlite import AsyncSQLiteStore, SQLiteStore

__all__ = [
    "AsyncCallableStore",
    "AsyncCombining",
    "AsyncCombiningParts",
    "AsyncDeleting",
    "AsyncDescribing",
    "AsyncDjangoStore",
    "AsyncLease",
    "AsyncLeasing",
    "AsyncListing",
    "AsyncMemoryStore",
    "AsyncParted",
    "AsyncPeeking",
    "AsyncPostgresStore",
    "AsyncRedisStore",
    "AsyncSQLAlchemyStore",
    "AsyncSQLiteStore",
    "AsyncStopping",
    "AsyncStore",
    "CallableStore",
    "Combining",
    "CombiningParts",
    "Deleting",
    "Describing",
    "DjangoStore",
    "Lease",
    "LeaseHeldError",
    "Leasing",
    "Listing",
    "MemoryStore",
    "Parted",
    "Peeking",
    "PostgresStore",
    "RedisStore",
    "RowFacts",
    "SQLAlchemyStore",
    "SQLiteStore",
    "Stopping",
    "Store",
    "Stored",
    "StoredHead",
    "StoredKey",
    "StoredPage",
    "StoredPart",
    "TurnStoppedError",
]


_EXTRAS = {"SQLAlchemyStore": "sqlalchemy", "DjangoStore": "django"}
"""Stores with a module that imports a package of an extra. Other stores import it when they connect."""


_PUBLIC = frozenset(__all__)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


if not TYPE_CHECKING:
    # `from goaitools_py.stores import *` asks for each name, and works without the extras.
    __all__ = [
        name
        for name in __all__
        if all(not name.endswith(end) or _is_installed(extra) for end, extra in _EXTRAS.items())
    ]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    extra = next((extra for end, extra in _EXTRAS.items() if name.endswith(end)), "")
    try:
        return _loaded(name)
    except ModuleNotFoundError as error:
        if not extra:
            raise
        raise missing_extra_error(error, name, extra) from None


def _loaded(name: str) -> Any:
    if name.endswith("CallableStore"):
        from . import callable as two_functions

        return getattr(two_functions, name)
    if name.endswith("MemoryStore"):
        from . import memory

        return getattr(memory, name)
    if name.endswith("SQLiteStore"):
        from . import sqlite

        return getattr(sqlite, name)
    if name.endswith("SQLAlchemyStore"):
        if name.startswith("Async"):
            from . import async_sqlalchemy

            return async_sqlalchemy.AsyncSQLAlchemyStore
        from . import sqlalchemy

        return sqlalchemy.SQLAlchemyStore
    if name.endswith("PostgresStore"):
        from . import postgres

        return getattr(postgres, name)
    if name.endswith("RedisStore"):
        if name.startswith("Async"):
            from . import async_redis

            return async_redis.AsyncRedisStore
        from . import redis

        return redis.RedisStore
    from . import django

    return getattr(django, name)
