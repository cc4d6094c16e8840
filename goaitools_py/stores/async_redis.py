"""Blobs in Redis, over a client of `redis.asyncio`: for one server, for Sentinel, for a cluster.

Owns: the calls of the client, and the meaning of its answers. Must never know: commands, a blob's contents.

Needs the extra: ``pip install 'goaitools-py[redis]'``. Redis's configuration decides how safe a save is:
``appendonly yes`` with ``appendfsync always`` loses no save. ``everysec`` may lose the saves of one second.
Without ``appendonly`` a restart loses the saves since the last snapshot. A replica that takes over may
lack the last saves; compare-and-swap then refuses saves that build on them. Set ``maxmemory-policy`` so that
keys are not evicted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..base.process import Process, this_process
from ..types.errors import StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from .clients import redis_answers_within, warn_of_redis
from .redis_client import (
    BYTES,
    check_client,
    check_recent,
    nodes_of,
    redis_errors,
    refused_writes,
    unknown_script,
)
from .redis_keys import Command, KeySpace, LeaseKey, SaveCommand, by_digest, stored_keys
from .taking import held_async, taking_async

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

__all__ = ["AsyncRedisLease", "AsyncRedisStore"]


class AsyncRedisStore:
    """A store in Redis, for any number of tasks, processes and machines.

    Its client belongs to one event loop.

    Args:
        client: A `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`. It stays yours: close it when you
            are done. In a child process, a client that was used before the fork is refused.
        ttl: Seconds after its last save until Redis forgets a conversation; None: never.
        prefix: The beginning of all its key names.
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
        recent: bool = False,
    ) -> None:
        check_client(client, "AsyncRedisStore", is_async=True)
        check_recent(client, recent)
        warn_of_redis(client)
        self._client: Any = client
        self.longest_wait = redis_answers_within(client)
        self._keys = KeySpace(prefix, ttl, recent=recent)
        if recent:  # without the sets there is no such method, and lists are in no order
            self.recent = self._recents
        if True:  # ASYNC
            self._used_in: Process | None = None

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._keys.loaded(await self._send(self._keys.load(key)))

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
            return save.written(await self._send(save.write()))
        except StoreUnavailableError:
            if not save.is_stored(await self._send(save.look())):
                raise
        return save.version

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one script."""
        return self._keys.loaded_head(await self._send(self._keys.load_head(key, kinds)))

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
        return self._keys.deleted(await self._send(self._keys.delete(key, expected)), expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in no order.

        Redis looks at all keys of the server, also at keys of other programs. While Redis enlarges its table
        of keys, a key may come twice.
        """
        if True:  # ASYNC
            self._check_process()
            with redis_errors():
                await self._client.initialize()
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
            answer = await self._send(self._keys.lease_and_load(key, lease.its_key))
            return lease, self._keys.loaded(lease.taken(answer))

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
            answer = await self._send(self._keys.lease_and_load_head(key, lease.its_key, kinds))
            return lease, self._keys.loaded_head(lease.taken(answer))

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
                if (pool := getattr(self._client, "connection_pool", None)) is not None:
                    await pool.disconnect(inuse_connections=False)
                raise

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
