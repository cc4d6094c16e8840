"""Turns seen from other processes: carries a run from the worker that drives it to the others.

Owns: the protocol `Relay`, its values, and a relay inside one process. Must never know: HTTP, a turn, or the
content of the notes.

The worker that runs a turn opens the run under the conversation's key, puts its notes, and ends it. Another
worker finds it there, follows it, or asks for its end. A relay that fails costs the other workers their view.
It never costs a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from ..base.values import Value, replace
from ..types.errors import GoAIToolsError

__all__ = ["MemoryRelay", "Opened", "Relay", "RelayLostError"]


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
    """

    id: str
    worker: str
    turn_id: str = ""
    said: str = ""
    answered: tuple[str, ...] = ()
    outcome: str = ""


class Relay(Protocol):
    """Carries runs between workers. Each method may raise; the server then does without."""

    async def open(self, key: str, run: Opened) -> None:
        """Announce a run. It replaces the run that was announced under `key` before."""
        ...

    async def put(self, run: Opened, note: bytes) -> None:
        """Add a note to a run."""
        ...

    async def keep(self, key: str, run: Opened) -> None:
        """Say that the run's worker is alive. The server calls it every `keep_every` seconds."""
        ...

    async def end(self, key: str, run: Opened, outcome: str) -> None:
        """Say that nothing more comes. The run can still be found and followed for a while."""
        ...

    async def find(self, key: str) -> Opened | None:
        """Find the newest run of a conversation; None without a run, or if its worker is gone."""
        ...

    def follow(self, key: str, run: Opened) -> AsyncIterator[Sequence[bytes]]:
        """Replay the notes of a run from the first one, and follow it to its end.

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
        while True:
            news, kept = self._news, self._by_id.get(run.id)
            if kept is None:
                raise RelayLostError("the run is not kept any more")
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
