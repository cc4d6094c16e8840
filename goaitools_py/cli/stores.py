"""A store by its URL, for commands.

Owns: which store a URL names, and how it is opened and closed. Must never know: the work on the store.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..base.display import shown_address

__all__ = [
    "REDIS_URL",
    "TABLE",
    "add_store",
    "has_store",
    "is_redis",
    "lacking_limit",
    "opened_store",
    "shown_url",
    "sqlite_path",
]

TABLE: Final = "goaitools_state"
REDIS_URL: Final = "redis://NAME:PASSWORD@HOST:PORT/0, with / ? # @ : % in a password percent-encoded"
_SQL: Final = ("postgresql", "mysql", "mariadb")
_REDIS: Final = ("redis", "rediss", "unix")
_EXPECTED: Final = "a SQLite file, sqlite:///FILE, postgresql+psycopg://…, mysql+pymysql://… or redis://…"


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
    """True for the URL of a Redis server."""
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
    if (path := sqlite_path(url)) is not None:
        with _sqlite(path, table, make) as store:
            yield store
    elif is_redis(url):
        with _redis(url, table) as store:
            yield store
    else:
        with _sql(url, table or TABLE) as store:
            yield store


@contextmanager
def _sqlite(path: str, table: str | None, make: bool) -> Iterator[Any]:
    from ..types.errors import StoreError

    if not make and not os.path.isfile(path):  # opening would make the file
        raise StoreError(f"there is no store {path}")
    if table not in (None, TABLE):
        with _sql(f"sqlite:///{path}", str(table)) as store:
            yield store
        return
    from ..stores import SQLiteStore

    with SQLiteStore(path) as sqlite:
        yield sqlite


@contextmanager
def _redis(url: str, prefix: str | None) -> Iterator[Any]:
    try:
        import redis
    except ModuleNotFoundError:
        raise OSError("Redis needs an extra: pip install 'goaitools-py[redis]'") from None
    from ..stores import RedisStore
    from ..stores.clients import OPENED
    from ..types.errors import StoreError

    try:
        client = redis.Redis.from_url(url, socket_timeout=OPENED, socket_connect_timeout=OPENED)
    except ValueError:  # its text may hold a part of the password
        raise StoreError(f"{shown_url(url)} is not a URL of Redis: expected {REDIS_URL}") from None
    with client:
        yield RedisStore(client, prefix=prefix or "goaitools")


@contextmanager
def _sql(url: str, table: str) -> Iterator[Any]:
    from ..types.errors import StoreError

    scheme = url.partition("://")[0].partition("+")[0]
    if scheme not in (*_SQL, "sqlite"):
        raise StoreError(f"{shown_url(url)} names no store; expected {_EXPECTED}")
    try:
        import sqlalchemy

        from ..stores import SQLAlchemyStore
        from ..stores.clients import limits_of
    except ModuleNotFoundError:
        raise OSError("this store needs an extra: pip install 'goaitools-py[sqlalchemy]'") from None
    try:
        parsed = sqlalchemy.make_url(url)
        limits = limits_of(parsed.get_driver_name(), parsed.query)
        engine = sqlalchemy.create_engine(parsed, poolclass=sqlalchemy.NullPool, connect_args=limits)
    except (sqlalchemy.exc.ArgumentError, ModuleNotFoundError, ValueError, KeyError) as error:
        raise StoreError(f"{shown_url(url)} cannot be opened: {_why(error)}") from None
    try:
        yield SQLAlchemyStore(engine, table=table)
    finally:
        engine.dispose()


def _why(error: Exception) -> str:
    """The reason, without the URL, which may hold a password."""
    if isinstance(error, ModuleNotFoundError):
        return f"its driver is not installed ({error.name})"
    return "SQLAlchemy cannot read the URL, or does not know this database"
