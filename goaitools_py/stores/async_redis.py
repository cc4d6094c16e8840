"""Blobs in Redis, over a client of `redis.asyncio`: for one server, for Sentinel, for a cluster.

Owns: the calls of the client, and the meaning of its answers. Must never know: commands, a blob's contents.

Needs the extra: ``pip install 'goaitools-py[redis]'``. Redis's configuration decides how safe a save is:
``appendonly yes`` with ``appendfsync always`` loses no save. ``everysec`` may lose the saves of one second.
Without ``appendonly`` a restart loses the saves since the last snapshot. A replica that takes over may
lack the last saves, except with `wait_replicas`. Set ``maxmemory-policy`` so that keys are not evicted.

With `wait_replicas` each load and each save is one round trip of a write and a ``WAIT`` behind it, on one
connection. A load must wait too: it may find a save that no replica has, and a turn may be answered from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..base.process import Process, this_process
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
from .taking import held_async, taking_async

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

__all__ = ["AsyncRedisLease", "AsyncRedisStore"]


def _unchanged(answer: Any) -> Any:
    return answer


class AsyncRedisStore:
    """A store in Redis, for any number of tasks, processes and machines.

    Its client belongs to one event loop.

    Args:
        client: A `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`. It stays yours: close it when you
            are done. In a child process, a client that was used before the fork is refused.
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
        check_client(client, "AsyncRedisStore", is_async=True)
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
        if True:  # ASYNC
            self._used_in: Process | None = None

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
        """A store with a client of its own, which `aclose` closes. Call it while the event loop runs.

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
        client = open_client(url, "AsyncRedisStore", timeout=timeout, is_async=True)
        waits = {"wait_replicas": wait_replicas, "wait_seconds": wait_seconds, **waits}
        store = cls(client, ttl=ttl, prefix=prefix, recent=recent, **waits)
        store._owned = True
        return store

    async def aclose(self) -> None:
        """Close the client, if `open` made it."""
        for client in clients_of(self._client) if self._owned else ():
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._keys.loaded(await self._kept(self._keys.load(key)))

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        If the connection breaks after the write was sent, Redis is asked once whether it was done.
        """
        return await self._written(self._keys.save(key, blob, expected, facts))

    async def save_parts(
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
        return await self._written(self._keys.save(key, head, expected, facts, new, gone))

    async def _written(self, save: SaveCommand) -> int:
        try:
            return save.written(await self._kept(save.write()))
        except StoreUnavailableError:
            if self._wait is not None:
                # A look would not tell whether replicas have it. A save that is sent again is done once.
                if not await self._kept(save.write()):
                    raise
            elif not save.is_stored(await self._send(save.look())):
                raise
        return save.version

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one script."""
        return self._keys.loaded_head(await self._kept(self._keys.load_head(key, kinds)))

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        return self._keys.loaded_parts(await self._send(self._keys.load_parts(key, names)))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        return bool(await self._send(self._keys.set_stop(key, is_wanted)))

    async def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        return await self._send(self._keys.stop_requested(key)) is not None

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        return self._keys.deleted(await self._kept(self._keys.delete(key, expected)), expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in no order.

        Redis looks at all keys of the server, also at keys of other programs. While Redis enlarges its table
        of keys, a key may come twice.
        """
        if True:  # ASYNC
            self._check_process()
            with redis_errors():
                await self._client.initialize()
        if cursor is None and not is_cluster(self._client):
            with suppress(StoreUnavailableError):  # the server may forbid INFO
                if is_part_of_cluster(await self._send(("INFO", "cluster"))):
                    raise one_node()
        nodes = nodes_of(self._client)
        walk = self._keys.walk(list(nodes), prefix, cursor, limit)
        while asked := walk.ask():
            node, command = asked
            walk.answer(await self._send(command, **nodes[node]))
        return StoredPage(keys=await self._listed(walk.keys), cursor=walk.cursor)

    async def _listed(self, keys: Sequence[str]) -> tuple[StoredKey, ...]:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command(*self._keys.listed(key), **BYTES)
        with redis_errors():
            return stored_keys([*keys], await pipeline.execute())

    async def _recents(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, the one that was saved last first."""
        walk = self._keys.recent(prefix, before, limit)
        while asked := walk.ask():
            walk.answer(await self._send(asked))
        return StoredPage(keys=await self._listed(walk.keys), cursor=walk.cursor)

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncRedisLease, Stored | None]:
        """Take a lease and load, in one script. See `Combining.lease_and_load`."""
        lease = AsyncRedisLease(self._keys.lease(key, ttl), self._send)
        async with taking_async(lease):
            answer = await self._kept(self._keys.lease_and_load(key, lease.its_key), lease.taken)
            return lease, self._keys.loaded(answer)

    async def save_and_release(
        self,
        lease: AsyncRedisLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; the same script ends the lease. See `Combining.save_and_release`."""
        version = await self._written(self._keys.save(key, blob, expected, facts, lease=lease.its_key))
        lease.note_end()
        return version

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncRedisLease, StoredHead | None]:
        """Take a lease and load the head, in one script. See `CombiningParts.lease_and_load_head`."""
        lease = AsyncRedisLease(self._keys.lease(key, ttl), self._send)
        async with taking_async(lease):
            command = self._keys.lease_and_load_head(key, lease.its_key, kinds)
            return lease, self._keys.loaded_head(await self._kept(command, lease.taken))

    async def save_parts_and_release(
        self,
        lease: AsyncRedisLease,
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
        version = await self._written(save)
        lease.note_end()
        return version

    async def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        return bool(await self._send(self._keys.is_held(key)))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncRedisLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken."""
        lease = AsyncRedisLease(self._keys.lease(key, ttl), self._send)

        async def take() -> None:
            lease.taken(await self._send(lease.its_key.take()) or None)

        async with held_async(lease, take):
            yield lease

    async def _send(self, command: Command, **where: Any) -> Any:
        if True:  # ASYNC
            self._check_process()
        with redis_errors():
            try:
                try:
                    return await self._client.execute_command(*by_digest(command), **where, **BYTES)
                except unknown_script():
                    return await self._client.execute_command(*command, **where, **BYTES)
            except refused_writes():
                await self._leave_server()
                raise

    async def _kept(self, command: Command, seen: Callable[[Any], Any] = _unchanged) -> Any:
        """Send a script that writes. With `wait_replicas`, give its answer once they have confirmed it.

        `seen` gets the answer before that: a lease that was taken is given back if they do not confirm.
        """
        wait = self._wait
        if wait is None:
            return seen(await self._send(command))
        if True:  # ASYNC
            self._check_process()
        with redis_errors():
            if self._on_disk is None:
                self._on_disk = await self._syncs_writes()
            behind = wait.commands(self._on_disk)
            answer, *confirmed = await self._on_one(by_digest(command), *behind)
            if isinstance(answer, unknown_script()):
                answer, *confirmed = await self._on_one(command, *behind)
            elif is_cluster(self._client) and isinstance(answer, Exception):
                # The client follows this command to the node that has the key now, and learns where it is.
                await self._client.execute_command("EXISTS", command[3])
                answer, *confirmed = await self._on_one(by_digest(command), *behind)
                if isinstance(answer, unknown_script()):
                    answer, *confirmed = await self._on_one(command, *behind)
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
                await self._leave_server()
                if exc is answer and is_cluster(self._client):
                    failed = common.unavailable("Redis", exc)
                    raise failed from failed.__cause__
                raise
        return answer

    async def _syncs_writes(self) -> bool:
        from redis.exceptions import ResponseError

        where: dict[str, Any] = next(iter(nodes_of(self._client).values()), {})
        try:
            config = await self._client.execute_command(*ASK_SYNC, **where)
            if not syncs_writes(config):
                return False
            await self._client.execute_command(*ASK_LOG, **where)
        except ResponseError:  # the server does not know this, or forbids it
            return False
        return True

    async def _on_one(self, *commands: Command) -> Sequence[Any]:
        """Send commands on one connection to the server of the first one's key. Errors are answers."""
        client: Any = self._client
        if is_cluster(client):
            if True:  # ASYNC
                from redis.asyncio.cluster import PipelineCommand

                await client.initialize()
                node = client.get_node_from_key(commands[0][3])
                sent = [PipelineCommand(at, *command, **BYTES) for at, command in enumerate(commands)]
                await node.execute_pipeline(sent)
                return [each.result for each in sent]
            else:  # noqa: RET505
                client = client.get_redis_connection(client.get_node_from_key(commands[0][3]))
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command, **BYTES)
        try:
            answers: Sequence[Any] = await pipeline.execute(raise_on_error=False)
        except lost_connection() as exc:
            return [exc] * len(commands)
        return answers

    async def _leave_server(self) -> None:
        """Close idle connections: after a failover they may lead to the former primary."""
        if (pool := getattr(self._client, "connection_pool", None)) is not None:
            await pool.disconnect(inuse_connections=False)

    if True:  # ASYNC

        def _check_process(self) -> None:
            if self._used_in is None:
                self._used_in = this_process()
            elif self._used_in is not this_process():
                raise StoreUnavailableError(
                    "the Redis client was used before this process was forked, and two processes on one "
                    "connection read each other's answers: make the client and the store in each process"
                )


class AsyncRedisLease:
    """A lease in Redis."""

    def __init__(self, lease: LeaseKey, send: Callable[[Command], Awaitable[Any]]) -> None:
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

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return bool(await self._send(self.its_key.renew()))

    async def release(self) -> None:
        """End the lease now. Raises `StoreUnavailableError`; may be called again."""
        if not self._is_over:
            await self._send(self.its_key.release())
            self._is_over = True
