"""A run in two places: its worker sends the notes to a relay, and another worker builds the run from them.

Owns: both ways. Must never know: which relay it is, HTTP, or how a turn is driven.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from ..frontends import ProblemError, problem_of
from .notes import Ended, Found, Note, read_notes, write_notes
from .relay import Opened, Relay, RelayLostError
from .runs import Run

__all__ = ["Telling", "mirror"]

ANNOUNCE_SECONDS: Final = 2.0
"""How long a turn waits for the relay to take its announcement, and its end."""

_log = logging.getLogger("goaitools_py")


class Telling:
    """Tells a relay of a run, to its end.

    A relay that fails is logged and left alone: the turn and its listeners here go on.
    """

    def __init__(self, run: Run, worker: str, relay: Relay) -> None:
        self._run = run
        self._worker = worker
        self._relay = relay
        self._opened: Opened | None = None
        self._is_told = asyncio.Event()

    async def announce(self) -> None:
        """Let other workers find the run. No worker has heard of it before."""
        run = self._run
        opened = Opened(
            id=run.id,
            worker=self._worker,
            turn_id=run.turn_id,
            said=run.said_digest,
            answered=tuple(sorted(run.answered)),
        )
        try:
            async with asyncio.timeout(ANNOUNCE_SECONDS):
                await self._relay.open(run.key, opened)
        except Exception as error:
            _warn(error)
        else:
            self._opened = opened

    async def tell_all(self) -> None:
        """Put the run's events as they come, and its end. A run that was not announced sends nothing."""
        run = self._run
        await run.begun()
        if self._opened is None:
            return
        try:
            await self._put_all(self._opened)
            await self._relay.end(run.key, self._opened, "good" if run.is_good else "bad")
        except Exception as error:
            _warn(error)
        finally:
            self._is_told.set()

    async def last_words(self) -> None:
        """Wait until the relay knows how the run ended. Then another worker that the client asks next does
        not show this run as running."""
        self._run.finish()
        if self._opened is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_SECONDS):
                    await self._is_told.wait()

    async def _put_all(self, opened: Opened) -> None:
        run = self._run
        notes: list[Note] = [Found(run.before, run.since)]
        at = sent = 0
        while True:
            is_over = run.is_ending
            notes += run.events[sent:]
            sent = len(run.events)
            if is_over:
                problem = None if run.error is None else problem_of(run.error)
                notes.append(Ended(run.was_stopped, problem))
            if notes:
                await self._relay.put(opened, write_notes(at, notes))
                at += len(notes)
                notes = []
            if is_over:
                return
            if sent < len(run.events) or run.is_ending:
                continue
            if not await run.news_within(self._relay.keep_every):
                await self._relay.keep(run.key, opened)


def _warn(error: Exception) -> None:
    _log.warning("a relay failed with %s: other workers do not see a turn", type(error).__name__)


async def mirror(run: Run, opened: Opened, relay: Relay) -> None:
    """Build a run from the notes of a relay. A run that cannot be followed to its end ends as lost."""
    at = 0
    try:
        async for entries in relay.follow(run.key, opened):
            for entry in entries:
                begin, notes = read_notes(entry)
                if begin != at:
                    raise RelayLostError("the relay has dropped the beginning of the run")
                at += len(notes)
                for note in notes:
                    _tell(run, note)
        if not run.is_over:
            raise RelayLostError("the run has no end")
    except Exception as error:
        if not isinstance(error, RelayLostError):
            _log.warning("a relay failed with %s; a turn cannot be followed", type(error).__name__)
        if not run.is_over:
            run.lose(error)


def _tell(run: Run, note: Note) -> None:
    match note:
        case Found():
            run.before, run.since = note.before, note.since
        case Ended():
            run.was_stopped = note.was_stopped
            run.error = None if note.problem is None else ProblemError(note.problem)
            run.end()
        case _:
            run.tell(note)
