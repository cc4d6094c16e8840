"""A store by its URL, for a command that serves on an event loop.

Owns: which ``Async…`` store a URL names, and how it is opened and closed. Must never know: the work on the
store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from .stores import REDIS_URL, TABLE, is_redis, shown_url, sqlite_path

__all__ = ["opened_async_store"]

_DRIVERS: Final = {"postgresql+psycopg2": "postgresql+psycopg", "postgresql": "postgresql+psycopg",
                   "mysql+pymysql": "mysql+asyncmy", "mariadb+pymysql": "mariadb+asyncmy"}  # fmt: skip
"""Drivers for an event loop, by the driver that would block it."""


@asynccontextmanager
async def opened_async_store(url: str, table: str | None = None) -> AsyncIterator[Any]:
    """The store of a URL, open as long as the block runs. A SQLite file is made if it is missing.

    Raises `StoreError` if the store of the URL does not exist, and OSError if a package is missing.
    """
    path = sqlite_path(url)
    if path is not None and table in (None, TABLE):
        from ..stores import AsyncSQLiteStore

        sqlite = AsyncSQLiteStore(path)
        try:
            yield sqlite
        finally:
            await sqlite.aclose()
    elif is_redis(url):
        async with _redis(url, table) as store:
            yield store
    else:
        async with _sql(f"sqlite+aiosqlite:///{path}" if path is not None else url, table or TABLE) as store:
            yield store


@asynccontextmanager
async def _redis(url: str, prefix: str | None) -> AsyncIterator[Any]:
    try:
        from redis.asyncio import Redis
    except ModuleNotFoundError:
        raise OSError("Redis needs an extra: pip install 'goaitools-py[redis]'") from None
    from ..stores import AsyncRedisStore
    from ..stores.clients import OPENED
    from ..types.errors import StoreError

    try:
        client = Redis.from_url(url, socket_timeout=OPENED, socket_connect_timeout=OPENED)
    except ValueError:  # its text may hold a part of the password
        raise StoreError(f"{shown_url(url)} is not a URL of Redis: expected {REDIS_URL}") from None
    try:
        yield AsyncRedisStore(client, prefix=prefix or "goaitools")
    finally:
        await client.aclose()


@asynccontextmanager
async def _sql(url: str, table: str) -> AsyncIterator[Any]:
    from ..types.errors import StoreError

    try:
        import sqlalchemy.ext.asyncio as sa
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError, InvalidRequestError

        from ..stores import AsyncSQLAlchemyStore
        from ..stores.clients import limits_of
    except ModuleNotFoundError:
        raise OSError("this store needs an extra: pip install 'goaitools-py[sqlalchemy]'") from None
    scheme, mark, rest = url.partition("://")
    try:
        parsed = make_url(f"{_DRIVERS.get(scheme, scheme)}{mark}{rest}")
        limits = limits_of(parsed.get_driver_name(), parsed.query)
        engine = sa.create_async_engine(parsed, connect_args=limits)
        store = AsyncSQLAlchemyStore(engine, table=table)
    except ModuleNotFoundError as error:
        raise OSError(f"{shown_url(url)} needs a driver that is not installed: {error.name}") from None
    except (ArgumentError, InvalidRequestError, KeyError, ValueError):
        # The driver's text may hold the password.
        raise StoreError(
            f"{shown_url(url)} cannot be opened: expected a SQLite file, redis://…, or a URL of SQLAlchemy "
            "with a driver for asyncio"
        ) from None
    try:
        yield store
    finally:
        await engine.dispose()
