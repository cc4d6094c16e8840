"""Shows turns of other processes here, and turns of this process to the others, through a relay.

Owns: the tasks that tell a relay and listen to it. Must never know: which relay it is, or the input of a
turn.
A relay that fails is logged by its error's class. Then each process sees its own turns only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from .relay import Opened, Relay, RelayLostError
from .relay_codec import ANNOUNCE_SECONDS, LostNotesError, RunAnnouncer, rebuild_run
from .runs import Run
from .serve_limits import ServeLimits

__all__ = ["STOP_SECONDS", "RemoteRuns"]

LAST_WORDS: Final = 5.0
"""Seconds that a stopping server waits until the relay has taken its last notes."""

STOP_SECONDS: Final = 10.0
"""How long another worker may take to stop a turn."""

ANNOUNCED_LOOKS: Final = 30
ANNOUNCED_PAUSE: Final = 0.1
"""How often, and with how many seconds between, a worker looks for a run that another one begins."""

LISTEN_AGAIN: Final = 1.0
"""Seconds until a worker listens again to a relay that has failed."""

_log = logging.getLogger("goaitools_py")


class RemoteRuns:
    """The runs that the workers show each other.

    Args:
        relay: Carries the notes of the runs.
        worker: The name of this process.
        limits: How long a run that is over is kept.
        named: Gives a run of this process that is not over, by id.
    """

    def __init__(
        self, relay: Relay, worker: str, limits: ServeLimits, named: Callable[[str], Run | None]
    ) -> None:
        self._relay = relay
        self._worker = worker
        self._limits = limits
        self._named = named
        self._shadows: dict[str, Run] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._following: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None

    def tell(self, run: Run) -> None:
        """Show a run of this process to the others, to its end."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        telling = RunAnnouncer(run, self._worker, self._relay)
        run.announce, run.last_words = telling.announce, telling.last_words
        _begin(self._telling, telling.tell_all())

    async def find(self, key: str) -> Run | None:
        """The newest run of a conversation if another process drives it, or has driven it to a good end."""
        opened = await self._opened(key)
        if opened is None or opened.outcome == "bad":
            return None
        run = self._shadow(key, opened)
        if opened.outcome:
            await run.over()
        return None if run.is_lost else run

    async def find_message(self, key: str, turn_id: str, *, looks: int = ANNOUNCED_LOOKS) -> Run | None:
        """The run of this message in another process, which may be about to announce it."""
        now = asyncio.get_running_loop().time
        ends = now() + (looks - 1) * ANNOUNCED_PAUSE  # a relay that is away takes longer for each look
        while True:
            opened = await self._opened(key)
            if opened is not None and opened.turn_id == turn_id and opened.outcome != "bad":
                return self._shadow(key, opened)
            if opened is not None and not opened.outcome:
                return None
            if now() >= ends:
                return None
            await asyncio.sleep(ANNOUNCED_PAUSE)

    async def is_running(self, key: str) -> bool:
        """True while another process runs a turn of a conversation."""
        opened = await self._opened(key)
        return opened is not None and not opened.outcome

    async def stop(self, key: str) -> Run | None:
        """Ask another process to stop its turn. Give the run; None if no turn runs or stops in time."""
        opened = await self._opened(key)
        if opened is None or opened.outcome:
            return None
        run = self._shadow(key, opened)
        try:
            await self._relay.stop(opened)
            async with asyncio.timeout(STOP_SECONDS):
                await run.over()
        except Exception as error:
            _log.warning("a relay failed with %s: a turn is not stopped", type(error).__name__)
            return None
        return run if run.was_stopped else None

    async def close(self) -> None:
        """Tell how the runs ended, and follow no others."""
        for task in (*self._following, *([self._listening] if self._listening else [])):
            task.cancel()
        for run in self._shadows.values():
            if not run.is_over:
                run.lose(RelayLostError("the server stops"))
        if self._telling:
            await asyncio.wait(list(self._telling), timeout=LAST_WORDS)
        for task in self._telling:
            task.cancel()
        self._listening = None

    async def _opened(self, key: str) -> Opened | None:
        """The newest run of another process."""
        try:
            async with asyncio.timeout(ANNOUNCE_SECONDS):
                opened = await self._relay.find(key)
        except Exception as error:
            _log.warning("a relay failed with %s: turns of other workers are not seen", type(error).__name__)
            return None
        return None if opened is None or opened.worker == self._worker else opened

    def _shadow(self, key: str, opened: Opened) -> Run:
        run = self._shadows.get(opened.id)
        if run is None:
            about = {"turn_id": opened.turn_id, "said_digest": opened.said, "answered": opened.answered}
            run = self._shadows[opened.id] = Run(opened.id, key, "", **about)  # type: ignore[arg-type]
            task = _begin(self._following, rebuild_run(run, opened, self._relay))
            task.add_done_callback(lambda _: self._forget_later(opened.id))
        return run

    def _forget_later(self, id: str) -> None:
        shadow = self._shadows[id]
        # A run whose notes are gone stays, so that its pages wait for the store's answer.
        may_come = shadow.is_lost and not isinstance(shadow.error, LostNotesError)
        seconds = 0 if may_come else self._limits.keep_seconds
        asyncio.get_running_loop().call_later(seconds, self._shadows.pop, id, None)

    async def _listen(self) -> None:
        """Stop the runs that other processes ask to stop."""
        while True:
            try:
                async for id in self._relay.stops(self._worker):
                    run = self._named(id)
                    if run is not None:
                        _begin(self._telling, run.stop())
            except Exception as error:
                _log.warning("a relay failed with %s: stops are not heard", type(error).__name__)
            await asyncio.sleep(LISTEN_AGAIN)


def _begin(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
