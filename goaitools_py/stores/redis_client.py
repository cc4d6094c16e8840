"""A client of redis-py under a store: whether it is one, its servers, and the errors made of its exceptions.

Owns: these checks, and the texts of their errors. Must never know: a command of a store, or a blob.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import common

__all__ = [
    "BYTES",
    "check_client",
    "check_recent",
    "nodes_of",
    "redis_errors",
    "refused_writes",
    "unknown_script",
]

BYTES: dict[str, Any] = {"NEVER_DECODE": []}
"""Blobs are bytes, also over a client that was made with ``decode_responses=True``."""


def check_client(client: Any, kind: str, *, is_async: bool) -> None:
    """Raise `TypeError` for an object that is no client, or for a sync client in place of an async one, or
    the reverse. `kind`: the name of the store class."""
    made, other = ("redis.asyncio", "redis") if is_async else ("redis", "redis.asyncio")
    if isinstance(client, type) or not hasattr(client, "execute_command"):
        found = f"the class {client.__name__}" if isinstance(client, type) else type(client).__name__
    elif _is_async(client) is (not is_async):
        found = f"one of {other}"
    else:
        return
    raise TypeError(f"{kind} takes a client of {made}, not {found}: {kind}({made}.Redis.from_url(url))")


def check_recent(client: Any, recent: bool) -> None:
    """Refuse ``recent=True`` on a cluster, and a value that is not a bool."""
    if not isinstance(recent, bool):
        raise TypeError(f"recent must be True or False, not {type(recent).__name__}")
    if recent and hasattr(client, "get_primaries"):
        raise ValueError(
            "recent=True needs one server: on a cluster a save cannot change the sorted set, which lies on "
            "another node, in the same step; leave it out, and list() is in no order"
        )


def _is_async(client: Any) -> bool | None:
    """Whether a client is one of `redis.asyncio`. None for a client that is not from redis-py."""
    for base in type(client).__mro__:
        if base.__module__.partition(".")[0] == "redis":
            return base.__module__.startswith("redis.asyncio")
    return None


def nodes_of(client: Any) -> dict[str, dict[str, Any]]:
    """The servers that hold keys, by name, with the keyword arguments that send a command to each."""
    if not hasattr(client, "get_primaries"):
        return {"": {}}
    return {node.name: {"target_nodes": node} for node in client.get_primaries()}


def unknown_script() -> type[Exception]:
    """The error of a server that does not know a script by its digest, for instance after a restart."""
    from redis.exceptions import NoScriptError

    return NoScriptError


def refused_writes() -> type[Exception]:
    """The error of a server that accepts no writes.

    After a failover a connection may lead to the former primary. The connection works, so a pool would lend
    it again. It has to be closed. A client of Sentinel or of a cluster then finds the new primary.
    """
    from redis.exceptions import ReadOnlyError

    return ReadOnlyError


@contextmanager
def redis_errors() -> Iterator[None]:
    from redis.exceptions import RedisClusterException, RedisError

    try:
        yield
    except (RedisError, RedisClusterException, OSError) as exc:
        failed = common.unavailable("Redis", exc)
        raise failed from failed.__cause__
    except RuntimeError as exc:
        if (misplaced := common.other_loop("Redis", exc)) is None:
            raise
        raise misplaced from misplaced.__cause__
