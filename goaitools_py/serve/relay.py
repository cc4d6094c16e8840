"""Turns seen from other processes: carries a run from the worker that drives it to the others.

Owns: the protocol `Relay`, its values, a relay inside one process, and one through Redis Streams. Must never
know: HTTP, a turn, or the content of the notes.

The worker that runs a turn opens the run under the conversation's key, puts its notes, and ends it. Another
worker finds it there, follows it, or asks for its end. A relay that fails costs the other workers their view
until it works again, and never costs a turn. The keys in Redis:

========================  ==========  ====================================================================
key                       type        holds
========================  ==========  ====================================================================
``PREFIX:run:KEY``        string      the newest run of a conversation; it goes when its worker is silent
``PREFIX:news:RUN.N``     stream      the notes of a run; the last entry says that it is over
``PREFIX:stops:WORKER``   stream      the ids of runs that a worker is to stop
========================  ==========  ====================================================================

Redis may lose notes: it begins again without them, or another machine takes over. Then the worker puts all
notes into a new stream, and N is one more. Each note has its place in the run: readers skip those they know.
Each command touches one key, so a cluster works, too. Needs Redis 6.2 or newer, and the extra ``[redis]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from ..base.values import Value, replace
from ..types.errors import GoAIToolsError

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

__all__ = ["MemoryRelay", "Opened", "RedisRelay", "Relay", "RelayLostError"]


class RelayLostError(GoAIToolsError):
    """A run cannot be followed to its end: its worker is gone, or the relay has dropped its beginning."""

    retryable = True
    retry_after = 1.0
    status = 503


class Opened(Value, frozen=True, kw_only=True):
    """A run as other workers find it.

    Attributes:
        id: Unique among all runs of all workers.
        worker: The worker that drives it.
        turn_id: The client's id of the message; "" for a turn that goes on.
        said: A digest of the user's message.
        answered: The ids of the calls that the request answered.
        outcome: "" while it runs; "good"; "bad" for a turn that failed or was stopped.
        again: How often its worker has put the notes anew.
    """

    id: str
    worker: str
    turn_id: str = ""
    said: str = ""
    answered: tuple[str, ...] = ()
    outcome: str = ""
    again: int = 0


class Relay(Protocol):
    """Carries runs between workers. Each method may raise; the server then does without.

    After an error of `put`, `keep` or `end` the server opens the run again, with `again` one higher, and puts
    all its notes.
    """

    async def open(self, key: str, run: Opened) -> None:
        """Announce a run that has no notes yet. It replaces an earlier announcement under `key`."""
        ...

    async def put(self, run: Opened, note: bytes) -> None:
        """Add a note to a run. Raises `RelayLostError` if the notes before it are gone."""
        ...

    async def keep(self, key: str, run: Opened) -> None:
        """Say that the run's worker is alive. The server calls it every `keep_every` seconds.

        Raises `RelayLostError` if the notes are gone.
        """
        ...

    async def end(self, key: str, run: Opened, outcome: str) -> None:
        """Say that nothing more comes. The run can still be found and followed for a while."""
        ...

    async def find(self, key: str) -> Opened | None:
        """Find the newest run of a conversation; None without a run, or if its worker is gone."""
        ...

    def follow(self, key: str, run: Opened) -> AsyncIterator[Sequence[bytes]]:
        """Replay the notes of a run from the first one, and follow it to its end. If the run is opened again,
        its notes come once more.

        Raises `RelayLostError` if that end will not come.
        """
        ...

    async def stop(self, run: Opened) -> None:
        """Ask the run's worker to stop it."""
        ...

    def stops(self, worker: str) -> AsyncIterator[str]:
        """Give the ids of this worker's runs that other workers ask to stop, as they come; without an end."""
        ...

    @property
    def keep_every(self) -> float:
        """How often `keep` has to be called, in seconds."""
        ...


class _RelayedRun:
    def __init__(self, run: Opened) -> None:
        self.run = run
        self.notes: list[bytes] = []


class MemoryRelay:
    """A relay between applications on one event loop: for tests, and for several `serve` over one store.

    Args:
        keep_seconds: How long a run that is over can be followed.
    """

    keep_every = 3600.0

    def __init__(self, *, keep_seconds: float = 60.0) -> None:
        self._keep_seconds = keep_seconds
        self._runs: dict[str, _RelayedRun] = {}
        self._by_id: dict[str, _RelayedRun] = {}
        self._stops: dict[str, list[str]] = {}
        self._news = asyncio.Event()

    async def open(self, key: str, run: Opened) -> None:
        """As `Relay.open`."""
        self._runs[key] = self._by_id[run.id] = _RelayedRun(run)
        self._wake()

    async def put(self, run: Opened, note: bytes) -> None:
        """As `Relay.put`."""
        self._by_id[run.id].notes.append(note)
        self._wake()

    async def keep(self, key: str, run: Opened) -> None:
        """Nothing to do: this process is alive."""

    async def end(self, key: str, run: Opened, outcome: str) -> None:
        """As `Relay.end`."""
        kept = self._by_id[run.id]
        kept.run = ended(run, outcome)
        self._wake()
        asyncio.get_running_loop().call_later(self._keep_seconds, self._forget, key, kept)

    def _forget(self, key: str, kept: _RelayedRun) -> None:
        self._by_id.pop(kept.run.id, None)
        if self._runs.get(key) is kept:
            del self._runs[key]

    async def find(self, key: str) -> Opened | None:
        """As `Relay.find`."""
        kept = self._runs.get(key)
        return None if kept is None else kept.run

    async def follow(self, key: str, run: Opened) -> AsyncIterator[Sequence[bytes]]:
        """As `Relay.follow`."""
        at = 0
        known: _RelayedRun | None = None
        while True:
            news, kept = self._news, self._by_id.get(run.id)
            if kept is None:
                raise RelayLostError("the run is not kept any more")
            if kept is not known:
                known, at = kept, 0
            is_over, new = bool(kept.run.outcome), kept.notes[at:]
            at += len(new)
            if new:
                yield new
            if is_over:
                return
            await news.wait()

    async def stop(self, run: Opened) -> None:
        """As `Relay.stop`."""
        self._stops.setdefault(run.worker, []).append(run.id)
        self._wake()

    async def stops(self, worker: str) -> AsyncIterator[str]:
        """As `Relay.stops`."""
        while True:
            news = self._news
            for id in self._stops.pop(worker, ()):
                yield id
            if news is self._news:
                await news.wait()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def ended(run: Opened, outcome: str) -> Opened:
    """The announcement of a run that is over."""
    return replace(run, outcome=outcome)


# ----------------------------------------------------------------------------------------- through Redis


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

_BEHIND: Final = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if (last and last[1] or '') ~= ARGV[1] then
  return false
end
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', ARGV[3], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return id
"""
"""Add an entry behind the one that the worker has added last. Nothing is added if another one is the last:
Redis has lost entries, or the command was sent twice."""

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
        self._last: dict[str, bytes] = {}
        """The newest entry of each run that this worker drives."""

    @property
    def keep_every(self) -> float:
        """A third of `alive_seconds`."""
        return self._alive_ms / 3_000

    async def open(self, key: str, run: Opened) -> None:
        """Announce a run; see `Relay.open`. A run that is opened again leaves a newer run its place."""
        self._last[run.id] = b""
        found = await self._send("GET", self._run(key)) if run.again else None
        if found is not None and _read_opened(found).id == run.id:
            await self._send("EVAL", _MINE, 1, self._run(key), found, _written(run), self._alive_ms)
        elif found is None:
            await self._send("SET", self._run(key), _written(run), "PX", self._alive_ms)

    async def put(self, run: Opened, note: bytes) -> None:
        """Add a note to the stream of a run; see `Relay.put`."""
        await self._add_behind(run, _NOTE, note, self._keep_ms + self._alive_ms)

    async def keep(self, key: str, run: Opened) -> None:
        """Renew the announcement and the stream, unless another run has taken the key; see `Relay.keep`."""
        await self._announce(key, run, run, self._alive_ms)
        is_there = await self._send("PEXPIRE", self._news(run), self._keep_ms + self._alive_ms)
        if not is_there and self._last.get(run.id):
            raise RelayLostError("Redis has lost the notes of a run")

    async def end(self, key: str, run: Opened, outcome: str) -> None:
        """End the stream, then say so in the announcement."""
        await self._add_behind(run, _OVER, b"", self._keep_ms)
        await self._announce(key, run, ended(run, outcome), self._keep_ms)
        self._last.pop(run.id, None)

    async def find(self, key: str) -> Opened | None:
        """Find the newest run under `key`, if its worker is alive, or the run is over and still kept."""
        found = await self._send("GET", self._run(key))
        return None if found is None else _read_opened(found)

    async def follow(self, key: str, run: Opened) -> AsyncIterator[Sequence[bytes]]:
        """Replay a run and follow it; see `Relay.follow`."""
        last: Any = b"0"
        is_doubtful, looks = False, 0
        while True:
            entries = await self._read(self._news(run), last)
            notes = [fields[_NOTE] for _, fields in entries if _NOTE in fields]
            if notes:
                yield notes
            if entries:
                last, is_doubtful, looks = entries[-1][0], False, 0
                if _OVER in entries[-1][1]:
                    return
                continue
            if is_doubtful:
                raise RelayLostError("the worker of the run is gone")
            found = await self.find(key)
            if found is not None and found.id == run.id and found.again != run.again:
                run, last = found, b"0"
            elif found is None:  # Redis may have lost it: its worker then opens it again when it calls `keep`
                looks += 1
                is_doubtful = looks * _BLOCK_MS > self._alive_ms / 2
            else:  # the end may come between two looks
                is_doubtful = found.id != run.id or bool(found.outcome)

    async def stop(self, run: Opened) -> None:
        """Ask the run's worker to stop it."""
        stream = self._stops(run.worker)
        await self._send("XADD", stream, "MAXLEN", "~", self._entries, "*", _NOTE, run.id.encode())
        await self._send("PEXPIRE", stream, 60_000)

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

    def _news(self, run: Opened) -> str:
        return f"{self._prefix}:news:{run.id}.{run.again}"

    def _stops(self, worker: str) -> str:
        return f"{self._prefix}:stops:{worker}"

    async def _announce(self, key: str, old: Opened, new: Opened, milliseconds: int) -> None:
        await self._send("EVAL", _MINE, 1, self._run(key), _written(old), _written(new), milliseconds)

    async def _add_behind(self, run: Opened, name: bytes, value: bytes, milliseconds: int) -> None:
        last = self._last.pop(run.id, None)  # after an error it is not known
        if last is None:
            raise RelayLostError("the run is not open")
        news = self._news(run)
        id = await self._send("EVAL", _BEHIND, 1, news, last, self._entries, name, value, milliseconds)
        if id is None:
            raise RelayLostError("Redis has lost the notes of a run")
        self._last[run.id] = id

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


def _read_opened(data: bytes) -> Opened:
    return msgspec.msgpack.decode(data, type=Opened)
