# generated from stores/async_redis.py by tests/make_sync.py; edit stores/async_redis.py
"""Blobs in Redis, over a client of `redis`: for one server, for Sentinel, for a cluster.

Owns: the calls of the client, and the meaning of its answers. Must never know: commands, a blob's contents.

Needs the extra: ``pip install 'goaitools-py[redis]'``. Redis's configuration decides how safe a save is:
``appendonly yes`` with ``appendfsync always`` loses no save. ``everysec`` may lose the saves of one second.
Without ``appendonly`` a restart loses the saves since the last snapshot. A replica that takes over may
lack the last saves; compare-and-swap then refuses saves that build on them. Set ``maxmemory-policy`` so that
keys are not evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
from .taking import held, taking

if TYPE_CHECKING:
    from redis import Redis, RedisCluster

__all__ = ["RedisLease", "RedisStore"]


class RedisStore:
    """A store in Redis, for any number of threads, processes and machines.

    Args:
        client: A `redis.Redis` or `redis.RedisCluster`. It stays yours: close it when you are done. It may be
            used before and after a fork: redis-py gives each process connections of its own.
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
        check_client(client, "RedisStore", is_async=False)
        check_recent(client, recent)
        warn_of_redis(client)
        self._client: Any = client
        self.longest_wait = redis_answers_within(client)
        self._keys = KeySpace(prefix, ttl, recent=recent)
        if recent:  # without the sets there is no such method, and lists are in no order
            self.recent = self._recents

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
