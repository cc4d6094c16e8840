"""The turns that run in this process: one for each conversation, and how many there may be.

Owns: the tasks that drive them, and the work behind a turn, which gives way to the next one. Must never
know: HTTP, the input of a turn, or the aim of the work behind it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..types.errors import GoAIToolsError, TurnInProgressError, UnderlyingError
from .relay import Relay, RelayLostError
from .remote_runs import RemoteRuns
from .runs import Run
from .serve_limits import ServeLimits

__all__ = ["Behind", "Drive", "Hub", "TooManyTurnsError"]

Drive = Callable[[Run], Awaitable[None]]
"""Runs a turn to its end and tells the run its events."""

Behind = Callable[[], Awaitable[object]]
"""Work behind a complete turn, such as a compaction. The next turn of the conversation cancels it."""

_OPEN: Final = ("awaiting_tools", "in_progress")

LEAST_SECONDS: Final = 5.0
"""Seconds that a turn which has not begun gets at least when the server stops, even with a shorter grace.
Most turns save their message within milliseconds."""

_log = logging.getLogger("goaitools_py")


class TooManyTurnsError(GoAIToolsError):
    """No turn may begin now: too many run, or the server stops.

    `status`: 429 if the owner has too many, else 503.
    """

    retryable = True
    retry_after = 1.0

    def __init__(self, status: int) -> None:
        super().__init__("too many turns run at a time")
        self.status = status


class Hub:
    """Starts runs, finds them again by key, and ends them with the server.

    Args:
        limits: How many there may be.
        relay: Carries runs between processes; None: each process sees its own.
    """

    def __init__(self, limits: ServeLimits, relay: Relay | None = None) -> None:
        self._limits = limits
        self._runs: dict[str, Run] = {}
        self._aside: dict[tuple[str, str], Run] = {}
        self._tasks: dict[asyncio.Task[None], Run] = {}
        self._watched: dict[tuple[str, bool], Run] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._behind: dict[str, asyncio.Task[None]] = {}
        self._owners: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._name = os.urandom(8).hex()
        self._is_closing = False
        self._remote = None if relay is None else RemoteRuns(relay, self._name, limits, self._named)

    def _named(self, id: str) -> Run | None:
        return next((run for run in self._tasks.values() if run.id == id and not run.is_copy), None)

    def find(self, key: str) -> Run | None:
        """The newest run of a conversation: running, or over and still kept."""
        return self._runs.get(key)

    def running(self, key: str) -> Run | None:
        """The run of a conversation that is not over."""
        run = self._runs.get(key)
        return None if run is None or run.is_over else run

    async def find_anywhere(self, key: str) -> Run | None:
        """The newest run of a conversation in any process. A run of another process is followed there."""
        run = self.running(key) or await self.find_elsewhere(key)
        return run or self.find(key)

    async def find_elsewhere(self, key: str) -> Run | None:
        """The newest run of a conversation if another process drives it, or has driven it to a good end."""
        return None if self._remote is None else await self._remote.find(key)

    async def is_running_anywhere(self, key: str) -> bool:
        """True while this process knows of a run of a conversation, in any process, that is not over."""
        if self.running(key) is not None:
            return True
        return self._remote is not None and await self._remote.is_running(key)

    async def stop_elsewhere(self, key: str) -> Run | None:
        """Ask the process that runs a turn of this conversation to stop it. Give the run, or None."""
        return None if self._remote is None else await self._remote.stop(key)

    async def find_message(self, key: str, turn_id: str, *, has_ended: bool) -> Run | None:
        """The run of this message in another process, which may have begun a moment ago."""
        if self._remote is None:
            return None
        how = {"looks": 1} if has_ended else {}
        return await self._remote.find_message(key, turn_id, **how)

    def beside(self, key: str, turn_id: str) -> Run | None:
        """The run of a message that is meant for a turn that runs already."""
        return self._aside.get((key, turn_id))

    def set_aside(self, run: Run) -> None:
        """Note that another turn runs on this conversation, and this run waits for it."""
        if self._runs.get(run.key) is run:
            del self._runs[run.key]
        self._aside[run.key, run.turn_id] = run
        run.waits_long()

    def set_first(self, run: Run) -> None:
        """Note that the turn of this run begins, so that this is the newest run of the conversation."""
        self._clear_aside(run)
        self._runs[run.key] = run

    def _clear_aside(self, run: Run) -> None:
        if self._aside.get((run.key, run.turn_id)) is run:
            del self._aside[run.key, run.turn_id]

    def forget(self, key: str) -> None:
        """Drop the newest run of a conversation."""
        self._runs.pop(key, None)

    def check_room(self, owner: str) -> None:
        """Raise `TooManyTurnsError` if no turn of this owner may begin now."""
        if self._is_closing or self._owners.total() >= self._limits.turns:
            raise TooManyTurnsError(503)
        if self._owners[owner] >= self._limits.turns_per_owner:
            raise TooManyTurnsError(429)

    def start(
        self,
        key: str,
        owner: str,
        drive: Drive,
        *,
        behind: Behind | None = None,
        steers: bool = False,
        **about: Any,
    ) -> Run:
        """Begin a run in a task of its own. `behind`: the work behind its turn, if the turn is complete.
        `steers`: if one runs on this key, the new one is set aside.

        Raises `TurnInProgressError` if one runs on this key, and `TooManyTurnsError`.
        """
        is_taken = self.running(key) is not None
        if is_taken and not steers:
            raise TurnInProgressError("this server runs a turn of this conversation already")
        self.check_room(owner)
        run = Run(f"{self._name}-{next(self._numbers)}", key, owner, **about)
        if is_taken:
            self.set_aside(run)
        else:
            self._runs[key] = run
        self._owners[owner] += 1
        task = asyncio.get_running_loop().create_task(self._drive(run, drive, behind))
        self._tasks[task] = run
        task.add_done_callback(self._done)
        if self._remote is not None:
            self._remote.tell(run)
        return run

    def shown(self, key: str, owner: str, **about: Any) -> Run:
        """Make a run that no turn drives: the caller adds its events, for example from a stored reply."""
        return Run(f"{self._name}-{next(self._numbers)}", key, owner, **about)

    def watch(self, key: str, drive: Drive, *, goes_on: bool) -> Run:
        """Make a run that follows a turn of another process, or find the existing one. `drive` tells the run
        its events in a task of its own. `goes_on`: `drive` goes on with the turn if its process left it."""
        run = self._watched.get((key, goes_on))
        if run is None:
            run = self._watched[key, goes_on] = self.shown(key, "")
            task = asyncio.get_running_loop().create_task(self._watch(run, drive, goes_on=goes_on))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)
        return run

    async def _watch(self, run: Run, drive: Drive, *, goes_on: bool) -> None:
        try:
            await drive(run)
        except asyncio.CancelledError:
            run.lose(RelayLostError("the server stops"))
            raise
        except Exception as error:
            run.error = error
        finally:
            del self._watched[run.key, goes_on]
            run.end()

    async def _drive(self, run: Run, drive: Drive, behind: Behind | None) -> None:
        try:
            await self.clear_behind(run.key)
            await drive(run)
        except asyncio.CancelledError:
            run.was_stopped = not run.has_no_server
            if run.has_no_server:
                run.error = TooManyTurnsError(503)
            raise
        except Exception as error:
            if run.is_unsaved:
                run.was_stopped = False  # there is nothing that a stop could have kept
            if not run.was_stopped:
                run.error = error
                if not isinstance(error, GoAIToolsError):
                    _log.error("a turn of the server failed with %s", UnderlyingError.of(error))
        finally:
            self._clear_aside(run)
            self._owners[run.owner] -= 1
            self._owners += Counter()  # owners without turns go
            try:
                if run.last_words is not None:
                    await run.last_words()
            finally:
                run.end()
            asyncio.get_running_loop().call_later(self._limits.keep_seconds, self._forget, run)
        if behind is not None and run.is_good and run.result is not None and run.result.status not in _OPEN:
            self._begin_behind(run.key, behind)

    def _begin_behind(self, key: str, behind: Behind) -> None:
        """Begin the work behind a turn, if there is room. Else the next turn's end asks for it again."""
        if not self._is_closing and len(self._behind) < self._limits.turns:
            task = self._behind[key] = asyncio.get_running_loop().create_task(_work(behind))
            task.add_done_callback(lambda _: self._behind.pop(key))

    async def clear_behind(self, key: str) -> None:
        """Cancel the work behind the newest turn of a conversation, and wait until it has given way."""
        if (task := self._behind.get(key)) is not None:
            task.cancel()
            await asyncio.wait([task])

    def _forget(self, run: Run) -> None:
        if self._runs.get(run.key) is run:
            del self._runs[run.key]

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # it is in the run

    async def close(self) -> None:
        """Take no more turns, wait for the running ones, and cancel the rest after the grace.

        A turn that has asked a model is awaited until it is saved. A turn that has not begun, because the
        store does not answer, has cost nothing. After the grace once more it ends with an error, and the
        message can be sent again.
        """
        self._is_closing = True
        for task in (*self._watching, *self._behind.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._limits.grace_seconds)
        stops = asyncio.gather(*(run.stop() for run in self._tasks.values()), return_exceptions=True)
        await self._wait_for_unbegun()
        for task, run in list(self._tasks.items()):
            if not run.has_started:  # nothing awaits between this look and the cancellation
                run.has_no_server = True
                task.cancel()
        if begun := [task for task, run in self._tasks.items() if run.has_started]:
            await asyncio.wait(begun)
        await self._wait_for_unbegun()  # they give their leases back
        if not self._tasks:
            await stops
        stops.cancel()
        if self._behind:
            await asyncio.wait(list(self._behind.values()))
        if self._remote is not None:
            await self._remote.close()

    async def _wait_for_unbegun(self) -> None:
        ends = asyncio.get_running_loop().time() + max(LEAST_SECONDS, self._limits.grace_seconds)
        while unbegun := [task for task, run in self._tasks.items() if not run.has_started]:
            left = ends - asyncio.get_running_loop().time()
            if left <= 0:
                return
            # A turn may begin meanwhile, and is then not to be cancelled: so look again from time to time.
            await asyncio.wait(unbegun, timeout=min(left, LEAST_SECONDS / 50))

    @property
    def is_open(self) -> bool:
        """False once the server stops: no turn may begin."""
        return not self._is_closing

    def open(self) -> None:
        """Take turns again, such as after a restart in the same process."""
        self._is_closing = False


async def _work(behind: Behind) -> None:
    try:
        await behind()
    except Exception as error:
        _log.warning("the work behind a turn of the server failed with %s", UnderlyingError.of(error))
