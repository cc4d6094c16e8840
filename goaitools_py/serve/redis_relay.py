"""Turns seen from other processes through Redis Streams.

Owns: the names of the keys, and the commands. Must never know: the content of a note.

========================  ==========  ====================================================================
key                       type        holds
========================  ==========  ====================================================================
``PREFIX:run:KEY``        string      the newest run of a conversation; it goes when its worker is silent
``PREFIX:news:RUN``       stream      the notes of a run; the last entry says that it is over
``PREFIX:stops:WORKER``   stream      the ids of runs that a worker is to stop
========================  ==========  ====================================================================

Each command touches one key, so a cluster works, too. Needs Redis 6.2 or newer, and the extra ``[redis]``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .relay import Opened, RelayLostError, ended

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

__all__ = ["RedisRelay"]

_BYTES: Final[dict[str, Any]] = {"NEVER_DECODE": []}
"""Notes are bytes, also over a client that was made with ``decode_responses=True``."""

_BLOCK_MS: Final = 1_000
"""How long one look for news waits. It stays below the default `socket_timeout` of redis-py, 5 seconds."""

_MINE: Final = """
local found = redis.call('GET', KEYS[1])
if not found or found == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
"""
"""Write an announcement in the place of its older form, unless another run has taken the key."""

_OVER: Final = b"over"
_NOTE: Final = b"note"


def _check_client(client: Any) -> None:
    """Raise `TypeError` for a URL, or for a client of redis-py that is not awaited."""
    of_redis = [base.__module__ for base in type(client).__mro__ if base.__module__.split(".")[0] == "redis"]
    is_plain = bool(of_redis) and not of_redis[0].startswith("redis.asyncio")
    if is_plain or not hasattr(client, "execute_command"):
        found = "one of redis" if is_plain else type(client).__name__
        raise TypeError(
            f"RedisRelay takes a client of redis.asyncio, not {found}: "
            "RedisRelay(redis.asyncio.Redis.from_url(url))"
        )


class RedisRelay:
    """A relay in Redis 6.2 or newer, for any number of workers on any number of machines.

    Each worker needs an object of its own, made after a fork. Each turn that a worker follows holds one
    connection of the client's pool. Replies and results of tools stand in Redis in plain text for as long as
    `keep_seconds` says, also if states are sealed. Protect it as you protect your store.

    Args:
        client: A `redis.asyncio.Redis` or `redis.asyncio.RedisCluster` with a `socket_timeout` of more than
            a second. It stays yours: close it when you are done.
        prefix: The beginning of all its key names.
        keep_seconds: How long a run that is over can be followed.
        alive_seconds: After so long without a word of its worker, a run counts as dead. It is renewed three
            times as often.
        entries: About how many notes of a run are kept. A worker that comes later to a longer run waits for
            its end instead.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        prefix: str = "goaitools:relay",
        keep_seconds: float = 60.0,
        alive_seconds: float = 10.0,
        entries: int = 20_000,
    ) -> None:
        for name, value in (("keep", keep_seconds), ("alive", alive_seconds)):
            if not value > 0:
                raise ValueError(f"{name}_seconds must be more than 0, got {value}")
        _check_client(client)
        self._client: Any = client
        self._prefix = prefix
        self._keep_ms = max(1, round(keep_seconds * 1000))
        self._alive_ms = max(1, round(alive_seconds * 1000))
        self._entries = entries

    @property
    def keep_every(self) -> float:
        """A third of `alive_seconds`."""
        return self._alive_ms / 3_000

    async def open(self, key: str, run: Opened) -> None:
        """Announce a run; see `Relay.open`."""
        await self._send("SET", self._run(key), _written(run), "PX", self._alive_ms)

    async def put(self, run: Opened, note: bytes) -> None:
        """Add a note to the stream of a run."""
        await self._add(self._news(run.id), _NOTE, note, self._keep_ms + self._alive_ms)

    async def keep(self, key: str, run: Opened) -> None:
        """Renew the announcement and the stream, unless another run has taken the key."""
        await self._announce(key, run, run, self._alive_ms)
        await self._send("PEXPIRE", self._news(run.id), self._keep_ms + self._alive_ms)

    async def end(self, key: str, run: Opened, outcome: str) -> None:
        """End the stream, then say so in the announcement."""
        await self._add(self._news(run.id), _OVER, b"", self._keep_ms)
        await self._announce(key, run, ended(run, outcome), self._keep_ms)

    async def find(self, key: str) -> Opened | None:
        """Find the newest run under `key`, if its worker is alive, or the run is over and still kept."""
        found = await self._send("GET", self._run(key))
        return None if found is None else msgspec.msgpack.decode(found, type=Opened)

    async def follow(self, key: str, run: Opened) -> AsyncIterator[Sequence[bytes]]:
        """Replay a run and follow it; see `Relay.follow`."""
        last: Any = b"0"
        is_doubtful = False
        while True:
            entries = await self._read(self._news(run.id), last)
            notes = [fields[_NOTE] for _, fields in entries if _NOTE in fields]
            if notes:
                yield notes
            if entries:
                last, is_doubtful = entries[-1][0], False
                if _OVER in entries[-1][1]:
                    return
            elif is_doubtful:
                raise RelayLostError("the worker of the run is gone")
            else:  # the end may come between two looks
                found = await self.find(key)
                is_doubtful = found is None or found.id != run.id or bool(found.outcome)

    async def stop(self, run: Opened) -> None:
        """Ask the run's worker to stop it."""
        await self._add(self._stops(run.worker), _NOTE, run.id.encode(), 60_000)

    async def stops(self, worker: str) -> AsyncIterator[str]:
        """Give the runs that another worker asks to stop; see `Relay.stops`."""
        last: Any = b"0"
        while True:
            for entry, fields in await self._read(self._stops(worker), last):
                last = entry
                yield fields[_NOTE].decode()

    # --------------------------------------------------------------------------------------- commands

    def _run(self, key: str) -> str:
        return f"{self._prefix}:run:{key}"

    def _news(self, id: str) -> str:
        return f"{self._prefix}:news:{id}"

    def _stops(self, worker: str) -> str:
        return f"{self._prefix}:stops:{worker}"

    async def _announce(self, key: str, old: Opened, new: Opened, milliseconds: int) -> None:
        await self._send("EVAL", _MINE, 1, self._run(key), _written(old), _written(new), milliseconds)

    async def _add(self, stream: str, name: bytes, value: bytes, milliseconds: int) -> None:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.execute_command("XADD", stream, "MAXLEN", "~", self._entries, "*", name, value, **_BYTES)
        pipeline.execute_command("PEXPIRE", stream, milliseconds)
        await pipeline.execute()

    async def _read(self, stream: str, last: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Give the next entries of a stream, oldest first; empty after a second without one."""
        found = await self._send("XREAD", "COUNT", 500, "BLOCK", _BLOCK_MS, "STREAMS", stream, last)
        if isinstance(found, dict):  # RESP3
            return [entry for pages in found.values() for page in pages for entry in page]
        return [entry for _, entries in found or () for entry in entries]

    async def _send(self, *command: Any) -> Any:
        return await self._client.execute_command(*command, **_BYTES)


def _written(run: Opened) -> bytes:
    return msgspec.msgpack.encode(run)
