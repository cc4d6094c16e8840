"""How long a client waits for a server that does not answer, and the warning if it has no limit.

Owns: the settings of drivers that limit a wait, the warning, and the end of a connection from outside. Must
never know: a statement, or the contents of a blob.

A network can fall silent without an error: a server or a router goes away, and the connection seems to be
open. Then only a limit of the client ends the wait.
"""

from __future__ import annotations

import inspect
import logging
import socket
import weakref
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

from ..base.watch import Watch

__all__ = [
    "LIMITS",
    "OPENED",
    "SILENCE",
    "Silence",
    "answer_limit",
    "answer_setting",
    "hang_up",
    "lacks_answer_limit",
    "limits_of",
    "redis_answers_within",
    "warn_of_redis",
    "warn_once",
]

OPENED: Final = 10.0
"""Seconds that a client made by this package waits for a connection, and for an answer."""

SILENCE: Final = 30.0
"""Seconds until a store ends an application's connection that gives no answer. It is for drivers without a
setting for this."""

_RETRY_PAUSE: Final = 10.0
"""Seconds: the longest pause of redis-py between two tries, by default."""

LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    "pymysql": {"connect_timeout": "connection", "read_timeout": "answer", "write_timeout": "answer"},
    "mysqldb": {"connect_timeout": "connection", "read_timeout": "answer", "write_timeout": "answer"},
    "asyncmy": {"connect_timeout": "connection", "read_timeout": "answer"},
    "asyncpg": {"timeout": "connection", "command_timeout": "answer"},
    "psycopg": {"connect_timeout": "connection"},
    "psycopg2": {"connect_timeout": "connection"},
}
"""By driver, as SQLAlchemy names it: the settings that limit a wait, and the wait that each one limits."""


def limits_of(driver: str, given: Mapping[str, Any]) -> dict[str, float]:
    """The missing settings that limit a driver's waits to 10 seconds. `given`: the settings that are set."""
    return {name: int(OPENED) for name in LIMITS.get(driver, ()) if name not in given}


def answer_setting(driver: str) -> str:
    """The setting of a driver of SQLAlchemy that limits the wait for an answer; "" if there is no setting."""
    return next((name for name, what in LIMITS.get(driver, {}).items() if what == "answer"), "")


def redis_answers_within(client: Any) -> float:
    """Seconds after which a call of a redis-py client has ended. Infinity if it may last for ever."""
    pool = getattr(client, "connection_pool", None)
    given = getattr(pool, "connection_kwargs", None)
    if given is None:  # a cluster finds its nodes anew, and tries each of them
        return inf
    seconds = _socket_timeout(given, getattr(pool, "connection_class", None))
    if seconds is None:
        return inf
    retry = given.get("retry")
    tries = 0 if retry is None else retry.get_retries() if hasattr(retry, "get_retries") else inf
    connect = given.get("socket_connect_timeout") or seconds
    return (tries + 1) * (seconds + connect) + tries * _RETRY_PAUSE


def _socket_timeout(given: Mapping[str, Any], kind: type | None) -> float | None:
    """The timeout of a pool's connections: the given one, or the default of the connection class."""
    if "socket_timeout" in given:
        return given["socket_timeout"]  # type: ignore[no-any-return]
    for base in kind.__mro__ if kind is not None else ():
        init = vars(base).get("__init__")
        found = None if init is None else inspect.signature(init).parameters.get("socket_timeout")
        if found is not None:
            return found.default if isinstance(found.default, int | float) else None
    return None


def answer_limit(client: Any) -> float | None:
    """Seconds for which the connections of a redis-py client wait for an answer. None: for ever."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        return _socket_timeout(pool.connection_kwargs, getattr(pool, "connection_class", None))
    nodes = getattr(client, "nodes_manager", None)
    given = getattr(nodes, "connection_kwargs", None)
    if given is None:
        return inf
    from redis import Connection

    return _socket_timeout(given, Connection)


def lacks_answer_limit(client: Any) -> bool:
    """True if a redis-py client has connections that wait for an answer for ever."""
    return answer_limit(client) is None


def warn_of_redis(client: Any) -> None:
    """Warn once about a redis-py client that waits for ever."""
    with suppress(Exception):  # a client of another library may have any attributes
        if lacks_answer_limit(client):
            warn_once(client, "redis-py", "socket_timeout")


_warned: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def warn_once(client: object, driver: str, setting: str) -> None:
    """Log that a client waits for ever, once for each client."""
    if client in _warned:
        return
    _warned.add(client)
    logging.getLogger("goaitools_py.state").warning(
        "the client of a store (%s) waits without a limit for a server that does not answer: give it a %s",
        driver,
        setting,
        extra={"event": "store.no_timeout", "driver": driver, "setting": setting},
    )


class Silence:
    """Ends a connection that gives no answer for `SILENCE` seconds; ``with Silence(connection): …``.

    It is for drivers without a setting for this. The driver must give the number of its socket with
    `fileno()`, as psycopg does. Other connections are left alone.
    """

    __slots__ = ("_watch",)

    def __init__(self, connection: Any) -> None:
        self._watch: Watch | None = None
        if hasattr(connection, "fileno"):
            self._watch = Watch(lambda: hang_up(connection))
            self._watch.set(SILENCE)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.close()


def hang_up(connection: Any) -> None:
    """End a connection from another thread: the thread that waits for its answer gets an error."""
    with socket.socket(fileno=connection.fileno()) as end:
        try:
            end.shutdown(socket.SHUT_RDWR)
        finally:
            end.detach()
