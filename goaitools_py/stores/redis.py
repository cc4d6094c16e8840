"""Blobs in Redis, over a client of redis-py: for one server, for Sentinel, for a cluster.

Owns: the client, and the errors made of the client's exceptions. Must never know: commands, a blob's
contents.

Needs the extra: ``pip install 'goaitools-py[redis]'``. Redis's configuration decides how safe a save is:
``appendonly yes`` with ``appendfsync always`` loses no save. ``everysec`` may lose the saves of one second.
Without ``appendonly`` a restart loses the saves since the last snapshot. A replica that takes over may
lack the last saves; compare-and-swap then refuses saves that build on them. Set ``maxmemory-policy`` so that
keys are not evicted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ..base.process import Process, this_process
from ..types.errors import StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredPage, StoredPart
from .clients import redis_answers_within, warn_of_redis
from .redis_keys import Command, KeySpace, LeaseKey, SaveCommand, by_digest, stored_keys
from .taking import held, held_async, taking, taking_async

if TYPE_CHECKING:
    from redis import Redis, RedisCluster
    from redis.asyncio import Redis as AsyncRedis
    from redis.asyncio import RedisCluster as AsyncRedisCluster

__all__ = ["AsyncRedisStore", "RedisStore"]

_BYTES: dict[str, Any] = {"NEVER_DECODE": []}
"""Blobs are bytes, also over a client that was made with ``decode_responses=True``."""


class RedisStore:
    """A store in Redis, for any number of threads, processes and machines.

    Args:
        client: A `redis.Redis` or `redis.RedisCluster`. It stays yours: close it when you are done. It may
            be used before and after a fork: redis-py gives each process connections of its own.
        ttl: Seconds after its last save until Redis forgets a conversation; None: never.
        prefix: The beginning of all its key names.
    """

    def __init__(
        self, client: Redis | RedisCluster, *, ttl: float | None = None, prefix: str = "goaitools"
    ) -> None:
        _check_client(client, "RedisStore", is_async=False)
        warn_of_redis(client)
        self._client: Any = client
        self.longest_wait = redis_answers_within(client)
        self._keys = KeySpace(prefix, ttl)

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return self._keys.loaded(self._send(self._keys.load(key)))

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
            return save.written(self._send(save.write()))
        except StoreUnavailableError:
            if not save.is_stored(self._send(save.look())):
                raise
        return save.version

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one script."""
        return self._keys.loaded_head(self._send(self._keys.load_head(key, kinds)))

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
        return self._keys.deleted(self._send(self._keys.delete(key, expected)), expected)

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in no order.

        Redis looks at all keys of the server, also at keys of other programs. While Redis enlarges its table
        of keys, a key may come twice.
        """
        nodes = _nodes(self._client)
        walk = self._keys.walk(list(nodes), prefix, cursor, limit)
        while asked := walk.ask():
            node, command = asked
            walk.answer(self._send(command, **nodes[node]))
        pipeline = self._client.pipeline(transaction=False)
        for key in walk.keys:
            pipeline.execute_command(*self._keys.listed(key), **_BYTES)
        with _errors():
            answers = pipeline.execute()
        return StoredPage(keys=stored_keys(walk.keys, answers), cursor=walk.cursor)

    def lease_and_load(self, key: str, ttl: float) -> tuple[RedisLease, Stored | None]:
        """Take a lease and load, in one script. See `Combining.lease_and_load`."""
        lease = RedisLease(self._keys.lease(key, ttl), self._send)
        with taking(lease):
            answer = self._send(self._keys.lease_and_load(key, lease.its_key))
            return lease, self._keys.loaded(lease.taken(answer))

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
            answer = self._send(self._keys.lease_and_load_head(key, lease.its_key, kinds))
            return lease, self._keys.loaded_head(lease.taken(answer))

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
        with held(lease, lambda: lease.taken(self._send(lease.its_key.take()) or None)):
            yield lease

    def _send(self, command: Command, **where: Any) -> Any:
        with _errors():
            try:
                try:
                    return self._client.execute_command(*by_digest(command), **where, **_BYTES)
                except _unknown_script():
                    return self._client.execute_command(*command, **where, **_BYTES)
            except _only_reads():
                if (pool := getattr(self._client, "connection_pool", None)) is not None:
                    pool.disconnect(inuse_connections=False)
                raise


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


class AsyncRedisStore:
    """`RedisStore` over a client of `redis.asyncio`, which belongs to one event loop.

    Args:
        client: A `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`. It stays yours: close it when you
            are done. In a child process, a client that was used before the fork is refused.
        ttl: Seconds after its last save until Redis forgets a conversation; None: never.
        prefix: The beginning of all its key names.
    """

    def __init__(
        self, client: AsyncRedis | AsyncRedisCluster, *, ttl: float | None = None, prefix: str = "goaitools"
    ) -> None:
        _check_client(client, "AsyncRedisStore", is_async=True)
        warn_of_redis(client)
        self._client: Any = client
        self.longest_wait = redis_answers_within(client)
        self._keys = KeySpace(prefix, ttl)
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
        """A page of the keys that begin with `prefix`, in no order; see `RedisStore.list`."""
        self._check_process()
        with _errors():
            await self._client.initialize()
        nodes = _nodes(self._client)
        walk = self._keys.walk(list(nodes), prefix, cursor, limit)
        while asked := walk.ask():
            node, command = asked
            walk.answer(await self._send(command, **nodes[node]))
        pipeline = self._client.pipeline(transaction=False)
        for key in walk.keys:
            pipeline.execute_command(*self._keys.listed(key), **_BYTES)
        with _errors():
            answers = await pipeline.execute()
        return StoredPage(keys=stored_keys(walk.keys, answers), cursor=walk.cursor)

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncRedisLease, Stored | None]:
        """As `RedisStore.lease_and_load`, awaited."""
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
        """As `RedisStore.save_and_release`, awaited."""
        version = await self._written(self._keys.save(key, blob, expected, facts, lease=lease.its_key))
        lease.note_end()
        return version

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncRedisLease, StoredHead | None]:
        """As `RedisStore.lease_and_load_head`, awaited."""
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
        """As `RedisStore.save_parts_and_release`, awaited."""
        save = self._keys.save(key, head, expected, facts, new, gone, lease.its_key)
        version = await self._written(save)
        lease.note_end()
        return version

    async def is_held(self, key: str) -> bool:
        """As `RedisStore.is_held`, awaited."""
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
        self._check_process()
        with _errors():
            try:
                try:
                    return await self._client.execute_command(*by_digest(command), **where, **_BYTES)
                except _unknown_script():
                    return await self._client.execute_command(*command, **where, **_BYTES)
            except _only_reads():
                if (pool := getattr(self._client, "connection_pool", None)) is not None:
                    await pool.disconnect(inuse_connections=False)
                raise

    def _check_process(self) -> None:
        if self._used_in is None:
            self._used_in = this_process()
        elif self._used_in is not this_process():
            raise StoreUnavailableError(
                "the Redis client was used before this process was forked, and two processes on one "
                "connection read each other's answers: make the client and the store in each process"
            )


class AsyncRedisLease:
    """`RedisLease` for async code."""

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
        """As `RedisLease.release`, awaited."""
        if not self._is_over:
            await self._send(self.its_key.release())
            self._is_over = True


def _check_client(client: Any, kind: str, *, is_async: bool) -> None:
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


def _is_async(client: Any) -> bool | None:
    """Whether a client is one of `redis.asyncio`. None for a client that is not from redis-py."""
    for base in type(client).__mro__:
        if base.__module__.partition(".")[0] == "redis":
            return base.__module__.startswith("redis.asyncio")
    return None


def _nodes(client: Any) -> dict[str, dict[str, Any]]:
    """The servers that hold keys, by name, with the keyword arguments that send a command to each."""
    if not hasattr(client, "get_primaries"):
        return {"": {}}
    return {node.name: {"target_nodes": node} for node in client.get_primaries()}


def _unknown_script() -> type[Exception]:
    """The error of a server that does not know a script by its digest, for instance after a restart."""
    from redis.exceptions import NoScriptError

    return NoScriptError


def _only_reads() -> type[Exception]:
    """The error of a server that accepts no writes.

    After a failover a connection may lead to the former primary. The connection works, so a pool would lend
    it again. It has to be closed. A client of Sentinel or of a cluster then finds the new primary.
    """
    from redis.exceptions import ReadOnlyError

    return ReadOnlyError


@contextmanager
def _errors() -> Iterator[None]:
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
