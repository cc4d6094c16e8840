# generated from stores/async_redis.py by tests/make_sync.py; edit stores/async_redis.py
"""Blobs in Redis, over a client of `redis`: for one server, for Sentinel, for a cluster.

Owns: the calls of the client, and the meaning of its answers. Must never know: commands, a blob's contents.

Needs the extra: ``pip install 'goaitools-py[redis]'``. Redis's configuration decides how safe a save is:
``appendonly yes`` with ``appendfsync always`` loses no save. ``everysec`` may lose the saves of one second.
Without ``appendonly`` a restart loses the saves since the last snapshot. A replica that takes over may
lack the last saves, except with `wait_replicas`. Set ``maxmemory-policy`` so that keys are not evicted.

With `wait_replicas` each load and each save is one round trip of a write and a ``WAIT`` behind it, on one
connection. A load must wait too: it may find a save that no replica has, and a turn may be answered from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..types.errors import LeaseHeldError, StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from .clients import redis_answers_within, warn_of_redis
from .redis_client import (
    ASK_LOG,
    ASK_SYNC,
    BYTES,
    ReplicaWait,
    check_client,
    check_recent,
    clients_of,
    is_cluster,
    is_part_of_cluster,
    lost_connection,
    nodes_of,
    one_node,
    open_client,
    redis_errors,
    refused_writes,
    syncs_writes,
    unknown_script,
    waits_in,
)
from .redis_keys import Command, KeySpace, LeaseKey, SaveCommand, by_digest, stored_keys
from .taking import held, taking

if TYPE_CHECKING:
    from redis import Redis, RedisCluster

__all__ = ["RedisLease", "RedisStore"]


def _unchanged(answer: Any) -> Any:
    return answer


class RedisStore:
    """A store in Redis, for any number of threads, processes and machines.

    Args:
        client: A `redis.Redis` or `redis.RedisCluster`. It stays yours: close it when you are done. It may be
            used before and after a fork: redis-py gives each process connections of its own.
        ttl: Seconds after its last save until Redis forgets a conversation; None: never.
        prefix: The beginning of all its key names.
        wait_replicas: How many replicas confirm a save before it is acknowledged, and a load's answer. Give
            the number of all replicas, of each master in a cluster: a save survives a failover only if the
            replica that takes over has it. 0: none. Where the server has ``WAITAOF`` and ``appendfsync
            always``, it is on the disks of server and replicas, too; give all nodes the same settings.
        wait_seconds: Seconds for the confirmations. After that it is a `StoreUnavailableError`, and the save
            may have been done: load before you save again. Less than the client's `socket_timeout`.
        recent: True: each save also notes its time in sorted sets, and the store has a method ``recent``: it
            lists the conversations that were saved since, the newest first. One for all keys, and one for
            each beginning of a key that ends in a slash. Not on a cluster: there a script changes the keys of
            one node only.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        ttl: float | None = None,
        prefix: str = "goaitools",
        wait_replicas: int = 0,
        wait_seconds: float = 1.0,
        recent: bool = False,
    ) -> None:
        check_client(client, "RedisStore", is_async=False)
        check_recent(client, recent)
        warn_of_redis(client)
        self._client: Any = client
        self._owned = False
        self.longest_wait = redis_answers_within(client)
        self._wait = ReplicaWait.of(client, wait_replicas, wait_seconds)
        self._on_disk: bool | None = None
        """Whether the server can wait for the disks of its replicas. None: it was not asked yet."""
        self._keys = KeySpace(prefix, ttl, touches=self._wait is not None, recent=recent)
        if recent:  # without the sets there is no such method, and lists are in no order
            self.recent = self._recents

    @classmethod
    def open(
        cls,
        url: str,
        *,
        ttl: float | None = None,
        prefix: str = "goaitools",
        timeout: float = 5.0,
        wait_replicas: int = 0,
        wait_seconds: float = 1.0,
        recent: bool = False,
    ) -> Self:
        """A store with a client of its own, which `close` closes. With a cluster, one of its nodes has to
        answer.

        Args:
            url: ``redis://HOST:PORT/0`` for one server, ``redis+cluster://HOST:PORT,HOST:PORT`` for a
                cluster, ``redis+sentinel://HOST:PORT,HOST:PORT/NAME/0`` for the master that these sentinels
                call NAME. A user name and a password stand before the hosts; the sentinels' own are the
                parameters ``sentinel_username`` and ``sentinel_password``. With ``rediss`` it is TLS. The
                parameters ``wait_replicas`` and ``wait_seconds`` go before the arguments of this name.
            ttl: As for the class.
            prefix: As for the class.
            timeout: Seconds to wait for a connection, and for an answer, before `StoreUnavailableError`.
            wait_replicas: As for the class.
            wait_seconds: As for the class.
            recent: As for the class.

        Raises:
            ValueError: The URL cannot be read.
        """
        url, waits = waits_in(url)
        client = open_client(url, "RedisStore", timeout=timeout, is_async=False)
        waits = {"wait_replicas": wait_replicas, "wait_seconds": wait_seconds, **waits}
        store = cls(client, ttl=ttl, prefix=prefix, recent=recent, **waits)
        store._owned = True
        return store

    def close(self) -> None:
        """Close the client, if `open` made it."""
        for client in clients_of(self._client) if self._owned else ():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._keys.loaded(self._kept(self._keys.load(key)))

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        If the connection breaks after the write was sent, Redis is asked once whether it was done.
        """
        return self._written(self._keys.save(key, blob, expected, facts))

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; in the same script add parts and drop parts. See `Parted.save_parts`."""
        return self._written(self._keys.save(key, head, expected, facts, new, gone))

    def _written(self, save: SaveCommand) -> int:
        try:
            return save.written(self._kept(save.write()))
        except StoreUnavailableError:
            if self._wait is not None:
                # A look would not tell whether replicas have it. A save that is sent again is done once.
                if not self._kept(save.write()):
                    raise
            elif not save.is_stored(self._send(save.look())):
                raise
        return save.version

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one script."""
        return self._keys.loaded_head(self._kept(self._keys.load_head(key, kinds)))

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        return self._keys.loaded_parts(self._send(self._keys.load_parts(key, names)))

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        return bool(self._send(self._keys.set_stop(key, is_wanted)))

    def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        return self._send(self._keys.stop_requested(key)) is not None

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        return self._keys.deleted(self._kept(self._keys.delete(key, expected)), expected)

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in no order.

        Redis looks at all keys of the server, also at keys of other programs. While Redis enlarges its table
        of keys, a key may come twice.
        """
        if cursor is None and not is_cluster(self._client):
            with suppress(StoreUnavailableError):  # the server may forbid INFO
                if is_part_of_cluster(self._send(("INFO", "cluster"))):
                    raise one_node()
        nodes = nodes_of(self._client)
        walk = self._keys.walk(list(nodes), prefix, cursor, limit)
        while asked := walk.ask():
            node, command = asked
            walk.answer(self._send(command, **nodes[node]))
        return StoredPage(keys=self._listed(walk.keys), cursor=walk.cursor)

    def _listed(self, keys: Sequence[str]) -> tuple[StoredKey, ...]:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command(*self._keys.listed(key), **BYTES)
        with redis_errors():
            return stored_keys([*keys], pipeline.execute())

    def _recents(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, the one that was saved last first."""
        walk = self._keys.recent(prefix, before, limit)
        while asked := walk.ask():
            walk.answer(self._send(asked))
        return StoredPage(keys=self._listed(walk.keys), cursor=walk.cursor)

    def lease_and_load(self, key: str, ttl: float) -> tuple[RedisLease, Stored | None]:
        """Take a lease and load, in one script. See `Combining.lease_and_load`."""
        lease = RedisLease(self._keys.lease(key, ttl), self._send)
        with taking(lease):
            answer = self._kept(self._keys.lease_and_load(key, lease.its_key), lease.taken)
            return lease, self._keys.loaded(answer)

    def save_and_release(
        self,
        lease: RedisLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; the same script ends the lease. See `Combining.save_and_release`."""
        version = self._written(self._keys.save(key, blob, expected, facts, lease=lease.its_key))
        lease.note_end()
        return version

    def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[RedisLease, StoredHead | None]:
        """Take a lease and load the head, in one script. See `CombiningParts.lease_and_load_head`."""
        lease = RedisLease(self._keys.lease(key, ttl), self._send)
        with taking(lease):
            command = self._keys.lease_and_load_head(key, lease.its_key, kinds)
            return lease, self._keys.loaded_head(self._kept(command, lease.taken))

    def save_parts_and_release(
        self,
        lease: RedisLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save_parts`; the same script ends the lease. See `CombiningParts`."""
        save = self._keys.save(key, head, expected, facts, new, gone, lease.its_key)
        version = self._written(save)
        lease.note_end()
        return version

    def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        return bool(self._send(self._keys.is_held(key)))

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[RedisLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken."""
        lease = RedisLease(self._keys.lease(key, ttl), self._send)

        def take() -> None:
            lease.taken(self._send(lease.its_key.take()) or None)

        with held(lease, take):
            yield lease

    def _send(self, command: Command, **where: Any) -> Any:
        with redis_errors():
            try:
                try:
                    return self._client.execute_command(*by_digest(command), **where, **BYTES)
                except unknown_script():
                    return self._client.execute_command(*command, **where, **BYTES)
            except refused_writes():
                self._leave_server()
                raise

    def _kept(self, command: Command, seen: Callable[[Any], Any] = _unchanged) -> Any:
        """Send a script that writes. With `wait_replicas`, give its answer once they have confirmed it.

        `seen` gets the answer before that: a lease that was taken is given back if they do not confirm.
        """
        wait = self._wait
        if wait is None:
            return seen(self._send(command))
        with redis_errors():
            if self._on_disk is None:
                self._on_disk = self._syncs_writes()
            behind = wait.commands(self._on_disk)
            answer, *confirmed = self._on_one(by_digest(command), *behind)
            if isinstance(answer, unknown_script()):
                answer, *confirmed = self._on_one(command, *behind)
            elif is_cluster(self._client) and isinstance(answer, Exception):
                # The client follows this command to the node that has the key now, and learns where it is.
                self._client.execute_command("EXISTS", command[3])
                answer, *confirmed = self._on_one(by_digest(command), *behind)
                if isinstance(answer, unknown_script()):
                    answer, *confirmed = self._on_one(command, *behind)
            try:
                if isinstance(answer, Exception):
                    raise answer
                seen(answer)
                for found in confirmed:
                    if isinstance(found, Exception):
                        raise found
                    wait.check(found)
            except LeaseHeldError:
                raise
            except Exception as exc:
                # Another server may have taken over, and it may have other settings.
                self._on_disk = None
                self._leave_server()
                if exc is answer and is_cluster(self._client):
                    failed = common.unavailable("Redis", exc)
                    raise failed from failed.__cause__
                raise
        return answer

    def _syncs_writes(self) -> bool:
        from redis.exceptions import ResponseError

        where: dict[str, Any] = next(iter(nodes_of(self._client).values()), {})
        try:
            config = self._client.execute_command(*ASK_SYNC, **where)
            if not syncs_writes(config):
                return False
            self._client.execute_command(*ASK_LOG, **where)
        except ResponseError:  # the server does not know this, or forbids it
            return False
        return True

    def _on_one(self, *commands: Command) -> Sequence[Any]:
        """Send commands on one connection to the server of the first one's key. Errors are answers."""
        client: Any = self._client
        if is_cluster(client):
            client = client.get_redis_connection(client.get_node_from_key(commands[0][3]))
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command, **BYTES)
        try:
            answers: Sequence[Any] = pipeline.execute(raise_on_error=False)
        except lost_connection() as exc:
            return [exc] * len(commands)
        return answers

    def _leave_server(self) -> None:
        """Close idle connections: after a failover they may lead to the former primary."""
        if (pool := getattr(self._client, "connection_pool", None)) is not None:
            pool.disconnect(inuse_connections=False)


class RedisLease:
    """A lease in Redis."""

    def __init__(self, lease: LeaseKey, send: Callable[[Command], Any]) -> None:
        self.its_key = lease
        self._send = send
        self._is_over = False
        self.is_taken = False
        """True once Redis has confirmed it."""

    def taken(self, answer: Any) -> Any:
        """Note the answer to the script that takes the lease, and return it. `LeaseHeldError` for None."""
        if answer is None:
            raise common.held()
        self.is_taken = True
        return answer

    def note_end(self) -> None:
        """Note that a save has ended the lease."""
        self._is_over = True

    def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return bool(self._send(self.its_key.renew()))

    def release(self) -> None:
        """End the lease now. Raises `StoreUnavailableError`; may be called again."""
        if not self._is_over:
            self._send(self.its_key.release())
            self._is_over = True
