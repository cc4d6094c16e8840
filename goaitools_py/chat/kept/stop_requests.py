"""A request to stop a running turn, perhaps from another machine.

Owns: the times of a turn's looks at the stop flag, and the flows that use the flag and the lease. Must never
know: the end of a stopped turn.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...stores.layout import peeks
from ...turn.flow import CallModel, Clock, Emit, Flow, Moment, ReadChunk
from ...types.errors import LeaseHeldError
from .row import Row
from .row_calls import RowSettings

if TYPE_CHECKING:
    from ...turn.flow import Effect

__all__ = ["StopWatch", "running_flow", "stop_flow"]

PAUSE_OF_WAIT: Final = 10
"""After a look without an answer, the pause is at least this number times as long as the look. So a silent
store does not delay a reply at each piece."""


class StopWatch:
    """Looks at the stop flag before a model call, and before the next piece of a reply is read. There are at
    least `stop_every` seconds between two looks. So a tool that runs is not interrupted. A short turn looks
    once: when it begins, to clear an old flag."""

    def __init__(self, row: Row) -> None:
        settings = row.settings
        self._row, self._store, self._key = row, settings.store, settings.key
        self._every = settings.stop_every or inf
        self._next = inf
        self._now = 0.0

    def begin(self) -> Flow[None]:
        """Clear a flag that was meant for an earlier turn."""
        # Unlike later looks this one raises: nothing is paid yet, and an old flag would stop the turn.
        if (yield from self._row.ask(self._store.stop_requested, self._key)):
            yield from self.clear()
        now = yield Clock()
        self._next = now.monotonic + self._every

    def clear(self) -> Flow[None]:
        """Clear the flag."""
        yield from self._row.ask(self._store.set_stop, self._key, False, is_paid=True)

    def note(self, answer: Any) -> None:
        """Take the time from the answer to an effect, if it has one."""
        if type(answer) is tuple and type(answer[0]) is Moment:
            self._now = answer[0].monotonic

    def is_asked(self, effect: Effect) -> Flow[bool]:
        """True if the turn has to stop in place of this effect."""
        if type(effect) is CallModel:
            now = yield Clock()
            self._now = now.monotonic
        elif type(effect) is not ReadChunk and not (type(effect) is Emit and effect.then is not None):
            return False
        # Before a read, the time comes from the last answer (`note`): a `Clock` for each piece costs more.
        if self._now < self._next:
            return False
        self._next = self._now + self._every
        asked = yield from self._row.asked_beside(self._store.stop_requested, self._key)
        if asked is None and self._row.is_silent:
            now = yield Clock()
            self._next = now.monotonic + max(self._every, PAUSE_OF_WAIT * (now.monotonic - self._now))
        return bool(asked)


def stop_flow(settings: RowSettings) -> Flow[bool]:
    """Set the stop flag. False if nothing is stored under the key.

    Raises:
        TypeError: The store has no stop flag.
    """
    if not callable(getattr(settings.store, "set_stop", None)):
        raise TypeError(f"stop needs a store with set_stop(); {type(settings.store).__name__} has none")
    found: bool = yield from Row(settings).ask(settings.store.set_stop, settings.key)
    return found


def running_flow(settings: RowSettings) -> Flow[bool]:
    """True while a worker holds the lease of the conversation.

    If the store has leases and no `is_held`, the lease is taken for a moment.

    Raises:
        TypeError: The store has no leases.
    """
    if not callable(getattr(settings.store, "lease", None)):
        raise TypeError(f"is_running needs a store with leases; {type(settings.store).__name__} has none")
    if peeks(settings.store):
        held: bool = yield from Row(settings).ask(settings.store.is_held, settings.key)
        return held
    # Undisturbed: a cancellation after the lease is taken must not leave it taken.
    look = settings.undisturbed(partial(_is_taken, settings.store.lease(settings.key, settings.lease_ttl)))
    found: bool = yield from Row(settings).ask(look.call)
    return found


def _is_taken(context: Any) -> bool | Awaitable[bool]:
    if hasattr(context, "__aenter__"):
        return _is_taken_async(context)
    try:
        with context:
            return False
    except LeaseHeldError:
        return True


async def _is_taken_async(context: Any) -> bool:
    try:
        async with context:
            return False
    except LeaseHeldError:
        return True
