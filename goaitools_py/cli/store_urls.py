"""A store by its URL: for commands in plain code, and for commands that serve on an event loop.

Owns: which store a URL names, and how it is opened and closed. Must never know: the work on the store.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from ..base.display import shown_address

__all__ = [
    "SERVERS",
    "TABLE",
    "add_store",
    "has_store",
    "is_redis",
    "lacking_limit",
    "opened_async_store",
    "opened_store",
    "shown_url",
    "sqlite_path",
]

TABLE: Final = "goaitools_state"
_SQL: Final = ("postgresql", "mysql", "mariadb", "sqlite")
_ONE_REDIS: Final = ("redis", "rediss")
_REDIS: Final = (
    *_ONE_REDIS,
    "unix",
    *(f"{one}+{many}" for one in _ONE_REDIS for many in ("cluster", "sentinel")),
)
_PREFIX: Final = "goaitools"
_DRIVERS: Final = {"postgresql+psycopg2": "postgresql+psycopg", "postgresql": "postgresql+psycopg",
                   "mysql+pymysql": "mysql+asyncmy", "mariadb+pymysql": "mariadb+asyncmy"}  # fmt: skip
"""Drivers for an event loop, by the driver that would block it."""
SERVERS: Final = (
    "postgresql+psycopg://…, mysql+pymysql://…, redis://…, redis+cluster://… or redis+sentinel://…/NAME"
)
_EXPECTED: Final = f"a SQLite file, sqlite:///FILE, {SERVERS}"


def add_store(
    parser: argparse.ArgumentParser,
    *,
    what: str = "take the state from this store",
    otherwise: str = "$GOAITOOLS_STORE, where no file is named",
) -> None:
    """Add the options that name a store. `otherwise`: the default, for the help text."""
    parser.add_argument(
        "--store",
        metavar="URL",
        help=f"{what}: {_EXPECTED} (default: {otherwise})",
    )
    parser.add_argument(
        "--table", metavar="NAME", help=f"its table, or the prefix in Redis (default: {TABLE}; goaitools)"
    )


def has_store(args: argparse.Namespace) -> bool:
    """Take the store of the environment if the options name no store. True if there is a store."""
    if args.store is None:
        args.store = os.environ.get("GOAITOOLS_STORE") or None
    return args.store is not None


def is_redis(url: str) -> bool:
    """True for the URL of a Redis server, of a cluster, or of sentinels."""
    return url.partition("://")[0] in _REDIS


def sqlite_path(url: str) -> str | None:
    """The file of a SQLite store; None for a store on a server."""
    if url.startswith("sqlite:///"):
        return url.removeprefix("sqlite:///")
    return None if "://" in url else url


def lacking_limit(url: str) -> str:
    """Name the missing timeout setting of a client that an application makes from this URL alone. Without it
    the client waits for ever for an answer. "" if the client has a limit, or needs no limit."""
    from ..stores.clients import answer_setting, lacks_answer_limit

    if sqlite_path(url) is not None:
        return ""
    if is_redis(url):
        if "+" in url.partition("://")[0]:
            return ""  # `RedisStore.open` makes these clients, with a limit
        import redis

        with redis.Redis.from_url(url) as client:
            return "socket_timeout" if lacks_answer_limit(client) else ""
    import sqlalchemy

    parsed = sqlalchemy.make_url(url)
    setting = answer_setting(parsed.get_driver_name())
    return "" if setting in parsed.query else setting


def shown_url(url: str) -> str:
    """The URL without name, password and parameters. The path of a file is shown as it is."""
    scheme, found, _ = url.partition("://")
    return url if not found or scheme == "sqlite" else shown_address(url)


@contextmanager
def opened_store(url: str, table: str | None = None, *, make: bool = False) -> Iterator[Any]:
    """The store of a URL, open as long as the block runs. `make`: a SQLite file may be new.

    Raises `StoreError` if the store does not exist, and OSError if a package is missing.
    """
    from ..types.errors import StoreError

    path = sqlite_path(url)
    if path is not None and not make and not os.path.isfile(path):  # opening would make the file
        raise StoreError(f"there is no store {path}")
    if path is not None and table in (None, TABLE):
        from ..stores import SQLiteStore

        with SQLiteStore(path) as sqlite:
            yield sqlite
    elif is_redis(url):
        with opened_redis(url, table) as redis:
            yield redis
    else:
        engine = _sql_engine(url if path is None else f"sqlite:///{path}", is_async=False)
        from ..stores import SQLAlchemyStore

        try:
            yield SQLAlchemyStore(engine, table=table or TABLE)
        finally:
            engine.dispose()


@asynccontextmanager
async def opened_async_store(url: str, table: str | None = None) -> AsyncIterator[Any]:
    """As `opened_store`, for an event loop. A SQLite file is made if it is missing."""
    path = sqlite_path(url)
    if path is not None and table in (None, TABLE):
        from ..stores import AsyncSQLiteStore

        async with AsyncSQLiteStore(path) as sqlite:
            yield sqlite
    elif is_redis(url):
        from ..stores import AsyncRedisStore

        async with _redis_store(AsyncRedisStore, url, table) as redis:
            yield redis
    else:
        engine = _sql_engine(url if path is None else f"sqlite+aiosqlite:///{path}", is_async=True)
        from ..stores import AsyncSQLAlchemyStore

        try:
            yield AsyncSQLAlchemyStore(engine, table=table or TABLE)
        finally:
            await engine.dispose()


def opened_redis(url: str, table: str | None = None) -> Any:
    """A store in Redis, to be opened by ``with``. `table`: the prefix of its keys."""
    from ..stores import RedisStore

    return _redis_store(RedisStore, url, table)


def _redis_store(kind: Any, url: str, table: str | None) -> Any:
    from ..stores.clients import OPENED
    from ..types.errors import StoreError

    try:
        return kind.open(_of_all_nodes(url), prefix=table or _PREFIX, timeout=OPENED)
    except ModuleNotFoundError:
        raise OSError("Redis needs an extra: pip install 'goaitools-py[redis]'") from None
    except ValueError as error:  # its text does not quote the URL
        raise StoreError(f"{shown_url(url)} cannot be opened: {error}") from None


def _of_all_nodes(url: str) -> str:
    """The URL of a cluster, if this one names a node of it: the other nodes hold conversations, too."""
    from ..stores.redis_client import is_part_of_cluster, open_client, waits_in

    scheme, mark, rest = url.partition("://")
    if scheme not in _ONE_REDIS:
        return url
    import redis

    with open_client(waits_in(url)[0], "RedisStore", timeout=5.0, is_async=False) as client:
        try:
            info = client.info("cluster")
        except (redis.RedisError, OSError):  # the store tells that
            return url
    if not is_part_of_cluster(info):
        return url
    place, sign, query = rest.partition("?")
    return f"{scheme}+cluster{mark}{place.partition('/')[0]}{sign}{query}"


def _sql_engine(url: str, *, is_async: bool) -> Any:
    from ..types.errors import StoreError

    scheme, mark, rest = url.partition("://")
    if scheme.partition("+")[0] not in _SQL:
        raise StoreError(f"{shown_url(url)} names no store and cannot be opened; expected {_EXPECTED}")
    try:
        import sqlalchemy as sa
        from sqlalchemy.ext.asyncio import create_async_engine

        from ..stores.clients import limits_of
    except ModuleNotFoundError:
        raise OSError("this store needs an extra: pip install 'goaitools-py[sqlalchemy]'") from None
    driver = _DRIVERS.get(scheme, scheme) if is_async or scheme == "postgresql" else scheme
    rest = _several_hosts(rest)
    try:
        parsed = sa.make_url(f"{driver}{mark}{rest}")
        limits = limits_of(parsed.get_driver_name(), parsed.query)
        if is_async:
            return create_async_engine(parsed, connect_args=limits)
        return sa.create_engine(parsed, poolclass=sa.NullPool, connect_args=limits)
    except (
        sa.exc.ArgumentError,
        sa.exc.InvalidRequestError,
        ModuleNotFoundError,
        KeyError,
        ValueError,
    ) as error:
        raise StoreError(f"{shown_url(url)} cannot be opened: {_why(error)}") from None


def _several_hosts(rest: str) -> str:
    """Write several hosts of PostgreSQL as SQLAlchemy reads them. The one that takes writes is used."""
    place, _, query = rest.partition("?")
    user, sign, place = place.rpartition("@")
    hosts, slash, name = place.partition("/")
    if "," not in hosts:
        return rest
    pairs = [*(f"host={host}" for host in hosts.split(",")), *([query] if query else [])]
    if "target_session_attrs=" not in query:
        pairs.append("target_session_attrs=read-write")
    return f"{user}{sign}{slash}{name}?{'&'.join(pairs)}"


def _why(error: Exception) -> str:
    """The reason, without the URL, which may hold a password."""
    if isinstance(error, ModuleNotFoundError):
        return f"its driver is not installed ({error.name})"
    if type(error).__name__ == "InvalidRequestError":
        return "its driver is not one for asyncio"
    return "SQLAlchemy cannot read the URL, or does not know this database"
