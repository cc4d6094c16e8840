"""A client of redis-py under a store: its checks, its servers, its URL, and the confirmation by replicas.

Owns: clients, the wait for replicas, and the errors made of redis-py's exceptions. Must never know: a command
of a store, or a blob.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from ..base.advice import missing_extra_error
from ..base.display import is_clear
from ..base.values import Value
from ..types.errors import StoreError, StoreUnavailableError
from . import common
from .clients import answer_limit

__all__ = [
    "ASK_LOG",
    "ASK_SYNC",
    "BYTES",
    "ReplicaWait",
    "check_client",
    "check_recent",
    "clients_of",
    "is_cluster",
    "is_part_of_cluster",
    "lost_connection",
    "nodes_of",
    "one_node",
    "open_client",
    "redis_errors",
    "refused_writes",
    "syncs_writes",
    "unknown_script",
    "waits_in",
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


def is_cluster(client: Any) -> bool:
    """True for a client that knows the nodes of a cluster."""
    return hasattr(client, "get_primaries")


def nodes_of(client: Any) -> dict[str, dict[str, Any]]:
    """The servers that hold keys, by name, with the keyword arguments that send a command to each."""
    if not is_cluster(client):
        return {"": {}}
    return {node.name: {"target_nodes": node} for node in client.get_primaries()}


def clients_of(client: Any) -> list[Any]:
    """A client that `open_client` has made, and those of the sentinels that it asks for the master."""
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return [client, *getattr(manager, "sentinels", ())]


def is_part_of_cluster(info: Any) -> bool:
    """Read the answer to ``INFO cluster``: True for a node of a cluster."""
    return isinstance(info, dict) and bool(info.get("cluster_enabled"))


def one_node() -> StoreError:
    """The error of a plain client of a node of a cluster. It would see only the keys of that node."""
    return StoreError(
        "this server is one node of a Redis Cluster, and the client does not know the others: give the store "
        "a RedisCluster of redis-py, or open a URL such as redis+cluster://HOST:PORT"
    )


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


def lost_connection() -> tuple[type[Exception], ...]:
    """The errors of a connection that broke, or that gave no answer in time."""
    from redis.exceptions import ConnectionError, TimeoutError

    return ConnectionError, TimeoutError, OSError


@contextmanager
def redis_errors() -> Iterator[None]:
    from redis.exceptions import MovedError, RedisClusterException, RedisError

    try:
        yield
    except MovedError as exc:
        raise one_node().because_of(exc) from None
    except (RedisError, RedisClusterException, OSError) as exc:
        failed = common.unavailable("Redis", exc)
        raise failed from failed.__cause__
    except RuntimeError as exc:
        if (misplaced := common.other_loop("Redis", exc)) is None:
            raise
        raise misplaced from misplaced.__cause__


# --------------------------------------------------------------------------------------- replicas


class ReplicaWait(Value, frozen=True):
    """How many replicas confirm a write before it is acknowledged, and for how many seconds that may take.

    ``WAIT`` counts the writes of its own connection, so it is sent behind the write on the same one. If
    the server has ``WAITAOF`` and syncs its log at each write, that follows: then the write is on the disks.
    It does not replace ``WAIT``, because a replica tells the position of its disk one round trip later, and
    without another request after up to a second. With ``appendfsync everysec`` it would hold each save for a
    second, and with ``no`` for ever.
    """

    replicas: int
    seconds: float

    @classmethod
    def of(cls, client: Any, replicas: int, seconds: float) -> ReplicaWait | None:
        """Check the numbers. None for no replicas."""
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            raise TypeError(f"wait_replicas must be a whole number, not {type(replicas).__name__}")
        if replicas < 0:
            raise ValueError(f"wait_replicas must be 0 or more, got {replicas}; 0 waits for no replica")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"wait_seconds must be a number of seconds, not {type(seconds).__name__}")
        limit = answer_limit(client) if replicas else None
        if not 0.001 <= seconds < (limit or 3600.0):
            why = "3600" if not limit else f"the client's socket_timeout, {limit:g}"
            raise ValueError(f"wait_seconds must be at least 0.001 and less than {why}, got {seconds}")
        return cls(replicas, seconds) if replicas else None

    def commands(self, on_disk: bool) -> tuple[tuple[str | int, ...], ...]:
        """The commands that wait. `on_disk`: also for the disks of the server and the replicas."""
        ms = round(self.seconds * 1000)
        wait = ("WAIT", self.replicas, ms)
        return (wait, ("WAITAOF", 1, self.replicas, ms)) if on_disk else (wait,)

    def check(self, answer: int | Sequence[int]) -> None:
        """Read an answer. `StoreUnavailableError` if too few replicas have confirmed in time."""
        local, confirmed = (1, answer) if isinstance(answer, int) else answer
        if local < 1 or confirmed < self.replicas:
            raise StoreUnavailableError(
                f"{confirmed} of {self.replicas} replicas confirmed within {self.seconds:g} seconds: Redis "
                "may have saved, and may lose it in a failover; load before you save again"
            )


ASK_SYNC: Final = ("CONFIG GET", "append*")
ASK_LOG: Final = ("WAITAOF", 1, 0, 1)
"""An error if the server does not know ``WAITAOF``, or keeps no log; else it answers at once."""


def syncs_writes(config: Any) -> bool:
    """Read the answer to `ASK_SYNC`: True if the server writes each change to its disk before it answers."""
    found = {_text(name): _text(value) for name, value in config.items()} if isinstance(config, dict) else {}
    return (found.get("appendonly"), found.get("appendfsync")) == ("yes", "always")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# --------------------------------------------------------------------------------------- URLs

_EXPECTED: Final = (
    "redis://HOST:PORT/0, redis+cluster://HOST:PORT,HOST:PORT or "
    "redis+sentinel://HOST:PORT,HOST:PORT/NAME/0, rediss in place of redis for TLS, "
    "with / ? # @ : % in a password percent-encoded"
)
_SCHEME: Final = re.compile(r"(?P<tls>rediss?)\+(?P<kind>cluster|sentinel)")
_WAITS: Final = ("wait_replicas", "wait_seconds")


def waits_in(url: str) -> tuple[str, dict[str, Any]]:
    """Take `wait_replicas` and `wait_seconds` out of the parameters of a URL."""
    if not isinstance(url, str):
        raise TypeError(f"a URL of Redis is a str, not {type(url).__name__}")
    before, mark, query = url.partition("?")
    pairs = query.split("&")
    found = dict(pair.split("=", 1) for pair in pairs if pair.partition("=")[0] in _WAITS and "=" in pair)
    rest = "&".join(pair for pair in pairs if pair.partition("=")[0] not in _WAITS)
    try:
        waits: dict[str, Any] = {
            name: int(text) if name == "wait_replicas" else float(text) for name, text in found.items()
        }
    except ValueError:
        raise ValueError("wait_replicas and wait_seconds in a URL of Redis are numbers") from None
    return (f"{before}{mark}{rest}" if rest else before), waits


def open_client(url: str, store: str, *, timeout: float, is_async: bool) -> Any:
    """Make a client for one server, a cluster or Sentinel, which gives up after `timeout` seconds.

    It tries once more after a failure: a store and a turn try again themselves.

    Raises:
        ValueError: The URL cannot be read. Its text is not quoted, because it may hold a password.
        StoreUnavailableError: No node of a cluster answers. An async client of a cluster asks later.
    """
    try:
        import redis
        import redis.asyncio
    except ModuleNotFoundError as error:
        raise missing_extra_error(error, store, "redis") from None
    from redis.backoff import NoBackoff

    here: Any = redis.asyncio if is_async else redis
    if is_async:
        from redis.asyncio.retry import Retry
    else:
        from redis.retry import Retry  # type: ignore[assignment]
    options = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "retry": Retry(NoBackoff(), 1)}
    scheme, _, rest = url.partition("://")
    if (found := _SCHEME.fullmatch(scheme)) is None:
        if scheme not in ("redis", "rediss", "unix") or (scheme != "unix" and not is_clear(url)):
            raise _unreadable()
        try:
            return here.Redis.from_url(url, **options)
        except ValueError:
            raise _unreadable() from None
    hosts, path, options_of_sentinel = _parts(url, rest, options)
    if found["tls"] == "rediss":
        options["ssl"] = True
    with redis_errors():
        if found["kind"] == "cluster":
            if path:
                raise _unreadable()  # a cluster has one database
            kind = redis.asyncio.cluster if is_async else redis.cluster
            nodes = [kind.ClusterNode(host, port) for host, port in hosts]
            return kind.RedisCluster(startup_nodes=nodes, **options)
        if not 1 <= len(path) <= 2 or not "".join(path[1:] or ["0"]).isdigit():
            raise _unreadable()
        kind = redis.asyncio.sentinel if is_async else redis.sentinel
        ssl = {"ssl": True} if "ssl" in options else {}
        sentinel = kind.Sentinel(
            hosts, sentinel_kwargs={"socket_timeout": timeout, **ssl, **options_of_sentinel}, **options
        )
        return sentinel.master_for(path[0], db=int("".join(path[1:]) or 0))


def _unreadable() -> ValueError:
    return ValueError(f"this is not a URL of Redis that can be read; expected {_EXPECTED}")


def _parts(
    url: str, rest: str, options: dict[str, Any]
) -> tuple[list[tuple[str, int]], list[str], dict[str, Any]]:
    """Read hosts and path of a URL, and the options for a connection to Sentinel itself. Names, passwords and
    parameters are added to `options`."""
    if not is_clear(url):
        raise _unreadable()
    place, _, query = rest.partition("?")
    place, *path = [unquote(part) if at else part for at, part in enumerate(place.split("/"))]
    user, _, places = place.rpartition("@")
    name, _, password = user.partition(":")
    if name:
        options["username"] = unquote(name)
    if password:
        options["password"] = unquote(password)
    from redis.connection import parse_url

    pairs = [pair for pair in query.split("&") if pair]
    of_sentinel = dict(parse_qsl("&".join(pair for pair in pairs if pair.startswith("sentinel_"))))
    try:
        # redis-py turns the parameters that it knows into numbers.
        given = parse_url(  # type: ignore[no-untyped-call]
            "redis://?" + "&".join(p for p in pairs if not p.startswith("sentinel_"))
        )
    except ValueError:
        raise _unreadable() from None
    options.update(given)
    hosts = []
    for each in places.split(","):
        host, mark, port = each.rpartition(":")
        if not mark or not port.isdigit() or not host:
            raise _unreadable()
        hosts.append((host.strip("[]"), int(port)))
    return hosts, [part for part in path if part], {k[9:]: v for k, v in of_sentinel.items()}
