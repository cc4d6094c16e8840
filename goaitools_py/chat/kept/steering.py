"""Requests of others to a running turn, perhaps from another machine: to stop, or to take messages in.

Owns: the times of a turn's looks at the stop flag, and the flows that use the flag and the lease; the claim
of new messages, and the way of a message to a turn that runs elsewhere and back. Must never know: the end of
a stopped turn, or how a turn sends the messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ...base.run_twice import run_twice
from ...base.values import replace
from ...history.additions import hand_over, withdraw_message
from ...open_turn import turn_ids
from ...state.blob_header import may_take_long
from ...stores.layout import peeks
from ...turn.flow import CallModel, Clock, Emit, Flow, Look, Moment, ReadChunk, computed
from ...turn.plan import Plan
from ...types.errors import LeaseHeldError, StateConflictError, StateError, TurnInProgressError
from .changes import append_flow
from .row import Row
from .row_calls import RowSettings

if TYPE_CHECKING:
    from ...turn.flow import Effect

__all__ = ["Steering", "StopWatch", "running_flow", "stop_flow", "take_in", "withdraw_flow", "withdrawing"]

MAX_CLAIMS: Final = 5
"""How often a turn tries to claim new messages while other workers save. Then they wait for its next look."""

_TRIES: Final = 100
"""How often a withdrawal is tried. It fits onto every state."""

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


# ------------------------------------------------------------------------- messages for a running turn


def take_in(row: Row, effect: Look) -> Flow[bool]:
    """Look for new messages in the row of a running turn, and claim them with a save. True if the turn has
    taken some in."""
    for _ in range(MAX_CLAIMS):
        if not (yield from row.look()):
            return False
        known, newest = row.mine, row.stored
        claim = yield from computed(partial(effect.claim, known, newest), is_long=may_take_long(newest))
        if claim is None:
            return False

        def move(step: Callable[[], None], mine: bytes) -> None:
            step()
            row.mine = mine

        # Both together, and before the save: in between a save would lose the messages, or have them twice.
        run_twice(move, claim.enter, newest)
        try:
            # No rebase: a message may have been withdrawn meanwhile, and must not be sent.
            yield from row.commit(claim.blob, most=0)
        except StateConflictError:
            run_twice(move, claim.undo, known)
            continue
        return True
    return False


class Steering:
    """The messages of a send that finds another turn running: they go to that turn, by the inbox.

    Attributes:
        plan: The plan of the send's own turn, from `wait` on. Once the messages are handed over, it has a
            `turn_id`.
        has_begun: True once this send may have put the messages into the inbox.
    """

    plan: Plan

    def __init__(self, row: Row) -> None:
        self._row = row
        self.has_begun = False

    def wait(self, plan: Plan) -> Flow[float]:
        """Take the lease. If another turn has it, hand the messages over, and wait. Gives the seconds.

        Raises:
            TurnInProgressError: The lease was not free in time. The messages are taken back, if no turn has
                claimed them.
        """
        self.plan = plan
        row, timeout = self._row, plan.options.timeout
        began = yield Clock()
        try:
            return (yield from row.take_lease(timeout, is_patient=False))
        except TurnInProgressError:
            pass
        yield from self._hand_over()
        now = yield Clock()
        left = None if timeout is None else max(0.0, timeout - (now.monotonic - began.monotonic))
        try:
            yield from row.take_lease(left)
        except TurnInProgressError as exc:
            if (yield from self.take_back()):
                raise
            raise TurnInProgressError(
                "the turn that runs on this conversation has taken this message in, and has not ended in "
                "time: deliver it again under the same turn_id for the reply"
            ) from exc
        now = yield Clock()
        return float(now.monotonic - began.monotonic)

    def _hand_over(self) -> Flow[None]:
        plan = self.plan
        if plan.options.turn_id is None:
            plan = self.plan = replace(plan, options=replace(plan.options, turn_id=plan.new_id()))
        options = plan.options
        now = yield Clock()
        grown = partial(
            hand_over,
            messages=plan.messages,
            dialect=plan.dialect,
            turn_id=options.turn_id or "",
            context=options.context,
            metadata=options.metadata,
            codec=plan.codec,
            binding=options.binding,
            fresh_id=options.conversation_id or "",
            now_ms=now.wall_ms,
        )

        def grow(blob: bytes) -> bytes:
            new = grown(blob)
            # Before the save: without an answer to it, the messages may be there. What is there already
            # came with another delivery, which takes it back itself.
            self.has_begun = self.has_begun or new != blob
            return new

        try:
            yield from append_flow(
                self._row.settings, grow, count=len(plan.messages), listening=plan.listening
            )
        except StateError:
            # The state has no room, or cannot be read here. The turn under the lease says so.
            self.has_begun = False

    def take_back(self) -> Flow[bool]:
        """Take the messages out of the inbox. False if another turn has them."""
        if not self.has_begun:
            return True
        plan = self.plan
        key = turn_ids.key_of(plan.options.turn_id or "", plan.dialect.entries(plan.messages))
        is_back = yield from _withdrawn(Row(self._row.settings), key.id, is_turn=True)
        self.has_begun = False
        return is_back


def withdraw_flow(settings: RowSettings, id: str, *, listening: bool = False) -> Flow[bool]:
    """Take a waiting message back. False if no waiting message has this id, or if a turn has claimed it."""
    return _withdrawn(Row(settings), id, listening=listening)


def withdrawing(id: str, *, listening: bool = False) -> Callable[[Row], Flow[bool]]:
    """As `withdraw_flow`, in a row with a lease."""
    return lambda row: _withdrawn(row, id, listening=listening)


def _withdrawn(row: Row, id: str, *, listening: bool = False, is_turn: bool = False) -> Flow[bool]:
    settings = row.settings
    kept = {"codec": settings.codec, "binding": settings.binding}
    for left in range(_TRIES, -1, -1):
        yield from row.load()
        shorter = yield from computed(
            partial(withdraw_message, row.stored, id, is_turn=is_turn, **kept),
            is_long=may_take_long(row.stored),
        )
        if shorter == row.stored:
            return False
        try:
            yield from row.commit(shorter, most=0, is_paid=False)
        except StateConflictError:
            if not left:
                raise
            continue
        break
    if listening:
        yield from row.tell()
    return True
