"""Drives a run of this process: runs the turn to its end, and tells the run its events.

Owns: the events of a run if its turn was done before, is stopped, or runs in another process; how a stop is
remembered; how a message that steers another turn follows it. Must never know: HTTP, or which turn a request
means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..frontends import Returned, pieces_of
from ..state.records import digest8
from ..types.errors import NothingToResumeError, TurnConflictError, TurnInProgressError, TurnStoppedError
from ..types.events import (
    Appended,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    TurnCompleted,
    TurnStarted,
)
from ..types.messages import Part
from ..types.result import ChatResult
from .history_view import (
    GOES_ON,
    SYNTHETIC,
    behind_calls,
    is_marked,
    left_by,
    mark_of,
    named_again,
    newest_ref,
    not_in_doubt,
    reply_of,
    tell_stopped,
    tell_stored,
    unfinished,
)
from .hub import Hub
from .relay import RelayLostError
from .runs import Run, TookIn, refused_input

if TYPE_CHECKING:
    from ..chat.async_conversation import AsyncConversation
    from ..chat.async_turn import AsyncTurn
    from ..chat.kept.facade import ConversationSnapshot

__all__ = ["LOOK_AGAIN", "RunDriver"]

_REPLIES: Final = (TextDelta, ReasoningDelta, ModelReplied)

LOOK_AGAIN: Final = 0.1
"""Seconds until the next look whether another process still runs a turn."""

RELAY_LOOKS: Final = 10
"""After so many of these looks the relay is asked for the turn."""


class RunDriver:
    """The runs of one conversation.

    Args:
        hub: The turns of this process.
        conversation: Where they are kept.
    """

    def __init__(self, hub: Hub, conversation: AsyncConversation) -> None:
        self._hub = hub
        self._conversation = conversation

    async def drive_asked(
        self, run: Run, turn: AsyncTurn, *, is_new: bool, said: Sequence[Part] = ()
    ) -> None:
        """As `drive`, of a message or of answers that this request has sent. `said`: the message."""
        with refused_input(run, said):
            await self.drive(run, turn, is_new=is_new)

    async def drive(
        self, run: Run, turn: AsyncTurn, *, is_new: bool = False, unless_stopped: bool = False
    ) -> None:
        """Run a turn, and tell the run its events. If the turn was done before, they come from the store.

        If the message is given to another turn, the run becomes the same as the run of that turn as soon as
        the provider has taken the message. A turn of another process is seen through the relay; without one
        the run gets the reply at the end.

        `unless_stopped`: no client has asked for this turn, so it ends if a stop is found in the store.
        """
        following: list[asyncio.Task[None]] = []
        try:
            await self._drive(run, turn, following, is_new=is_new, unless_stopped=unless_stopped)
        except Exception:
            if not (following and run.is_copy):
                raise
        finally:
            if following and run.is_copy:
                await asyncio.wait(following)
            await _end(following)

    async def _drive(
        self,
        run: Run,
        turn: AsyncTurn,
        following: list[asyncio.Task[None]],
        *,
        is_new: bool,
        unless_stopped: bool,
    ) -> None:
        knows_before = is_asked = has_asked = False
        completed: TurnCompleted | None = None
        async with turn:
            run.turn = turn
            if run.was_stopped and not run.is_unsaved:
                return
            try:
                async for event in turn:
                    if isinstance(event, Appended) and not run.has_started and not following:
                        self._hub.set_aside(run)
                        following.append(asyncio.create_task(self._follow_taker(run)))
                    if isinstance(event, TurnStarted):
                        has_asked = False  # of a turn that begins anew
                        if following and run.is_copy:
                            # The turn that took the message in was stopped or lost, and its page was told so.
                            await turn.cancel()
                            return
                        self._hub.set_first(run)
                        run.has_started = True
                        if run.announce is not None:
                            await run.announce()
                        # This worker has the lease, and the model is not asked yet.
                        if unless_stopped and await self._is_stopped():
                            run.was_stopped = True
                        if following:
                            following[0].cancel()
                            if await self._is_stopped(event.turn_ref):
                                run.was_stopped = True
                        if run.was_stopped:
                            await turn.cancel()
                    elif run.has_started and is_new and not knows_before:
                        knows_before = True
                        is_first = isinstance(event, ModelRequested) and event.iteration == 1
                        if not is_first or turn._engine.follows_turn:
                            await self._find_before(run)
                    if isinstance(event, TurnCompleted):
                        completed = event  # told when it is saved, and another worker may go on
                    elif run.has_started and (has_asked or type(event) is not TextDelta or not run.before):
                        # A text before the first request is a stored one, which `before` has.
                        run.hear(event)
                        if is_asked and isinstance(event, _REPLIES):
                            self._tell_taken(run, turn._engine.taken_ids)
                    # Only a reply: a provider may refuse the messages, and then they wait again.
                    has_asked = has_asked or isinstance(event, ModelRequested)
                    is_asked = isinstance(event, ModelRequested) or (
                        is_asked and not isinstance(event, _REPLIES)
                    )
                    if run.has_started or isinstance(event, TurnCompleted):  # else it may be the turn before
                        run.turn_ref = run.turn_ref or event.turn_ref
                if run.was_stopped and completed is None:
                    await turn.cancel()  # until it is saved
                    await self._tell_stop(run)
                    return
                run.was_stopped = False  # the turn was over before a stop came
                result = await turn.result()
            except TurnStoppedError:  # another process has asked for it
                run.was_stopped = True
                await self._tell_stop(run)
                await self.remember_stop()
                return
            except TurnInProgressError:
                if not is_new or not await self._copied(run, has_ended=False):
                    raise
                return
            except NothingToResumeError:
                if is_new or run.answered:
                    raise
                result = None  # another worker has finished the turn meanwhile
        if following and run.is_copy:
            return
        await _end(following)  # the message has its reply: this run gets it in another way
        if is_new and not run.has_started and await self._copied(run, has_ended=True):
            return
        if not run.has_started or result is None:
            await self._tell_again(run, result)
        elif completed is not None:
            run.tell(completed)

    def _tell_taken(self, run: Run, ids: tuple[str, ...]) -> None:
        """Tell the run the messages of its turn, if there are others than its own."""
        if set(ids) - {*run.taken, digest8(run.turn_id)}:
            run.tell(TookIn(ids=ids))

    async def _follow_taker(self, run: Run) -> None:
        """Wait until a turn has sent this message, here or at another worker, and become the run of that
        turn."""
        id = digest8(run.turn_id)
        looks = 0
        while True:
            other = self._hub.running(run.key)
            if other is None or not other.has_started:  # else it has the lease
                other = None if looks % RELAY_LOOKS else await self._hub.find_elsewhere(run.key)
                looks += 1
            while other is not None:
                if id in other.taken:
                    await run.copy(other)
                    run.end()  # its listeners do not wait until the lease is free
                    return
                if other.is_over:
                    break
                await other.news_within(None)
            await asyncio.sleep(LOOK_AGAIN)

    async def _copied(self, run: Run, *, has_ended: bool) -> bool:
        """Follow the run of the same message in another process. False if there is no run."""
        other = await self._hub.find_message(self._conversation.key, run.turn_id, has_ended=has_ended)
        if other is None:
            return False
        if other.said_digest != run.said_digest:
            raise TurnConflictError("another message has this id")
        if run.was_stopped and not has_ended:  # the stop came before it was known who runs the turn
            await self._hub.stop_elsewhere(run.key)
        await run.copy(other)
        return True

    async def _tell_stop(self, run: Run) -> None:
        """Tell the run the results that the history has for the calls that a stop has ended."""
        snapshot = await self._conversation.snapshot()
        if snapshot is None or not snapshot.history.turns:
            return
        if reply_of(snapshot, snapshot.history.turns[-1])[0] != run.turn_ref:
            return
        pieces = pieces_of(snapshot.history.turns[-1], not_in_doubt(snapshot.pending))
        for piece in pieces[behind_calls(pieces) :]:
            if isinstance(piece, Returned) and piece.flag in SYNTHETIC:
                told = ToolFinished(
                    piece.call_id, "", 0, piece.flag, 0.0, piece.output, turn_ref=run.turn_ref
                )
                run.tell(told)

    async def _find_before(self, run: Run) -> None:
        snapshot = await self._conversation.snapshot()
        if snapshot is not None:
            await self.forget_stop(snapshot)  # the message came again, so the turn is asked for
            run.found_before(unfinished(snapshot, ()), named_again(snapshot))

    async def _tell_again(self, run: Run, result: ChatResult | None) -> None:
        snapshot = await self._conversation.snapshot()
        if snapshot is None or (result is None and not snapshot.history.turns):
            raise NothingToResumeError("nothing is stored")
        turn = snapshot.history.turns[-1] if result is None else None
        tell_stored(run, snapshot, turn, run.answered, result)

    # ------------------------------------------------------------------------- turns of other processes

    async def wait(self, run: Run, go_on: Callable[[ConversationSnapshot], Run] | None) -> None:
        """Wait for a turn of another process, and tell the run how it ended.

        `go_on`: begins a run that resumes the turn, if the other process has left it. None: the run is cut
        off then, and its listeners may come back.
        """
        while True:
            looks = 0
            while await self._conversation.is_running():
                looks += 1
                if not looks % RELAY_LOOKS and (other := await self._hub.find_elsewhere(run.key)) is not None:
                    await run.copy(other)  # the relay had lost it, and has it again
                    return
                await asyncio.sleep(LOOK_AGAIN)
            snapshot = await self._conversation.snapshot()
            left = left_by(snapshot)
            if snapshot is None or go_on is None or left != "unfinished":
                break
            own = self._hub.running(run.key) or go_on(snapshot)
            await own.begun()
            if own.turn_ref or not isinstance(own.error, TurnInProgressError):
                await run.copy(own)
                return
        if snapshot is not None and left == "stopped":
            tell_stopped(run, snapshot)
        elif snapshot is None or left or not snapshot.history.turns or _has_failed(snapshot):
            run.lose(RelayLostError("the process that ran the turn has left it"))
        else:
            tell_stored(run, snapshot, snapshot.history.turns[-1], run.answered)

    # -------------------------------------------------------------------------------------- stops

    async def remember_stop(self) -> bool:
        """Note in the store that the unfinished turn is stopped. False if the newest turn is complete."""
        snapshot = await self._conversation.snapshot()
        if snapshot is None or snapshot.info.state.status == "complete":
            return False
        if not is_marked(snapshot) or left_by(snapshot) != "stopped":
            await self._conversation.update(metadata=mark_of(snapshot))
        return True

    async def forget_stop(self, snapshot: ConversationSnapshot) -> None:
        """Remove the mark of a stop, because a user asks for the turn again. Else no process would resume it
        after a crash of this one."""
        if is_marked(snapshot):
            await self._conversation.update(metadata=GOES_ON)

    async def _is_stopped(self, turn_ref: str = "") -> bool:
        """True if the newest stored turn is stopped, and has this `turn_ref`, if one is given."""
        snapshot = await self._conversation.snapshot()
        if snapshot is None or left_by(snapshot) != "stopped":
            return False
        if turn_ref and turn_ref != newest_ref(snapshot):
            return False
        await self.remember_stop()  # the turn that has begun takes away that it failed with the stop
        return True


async def _end(following: list[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: the client of a relay may swallow a cancellation."""
    while following:
        for task in following:
            task.cancel()
        _, left = await asyncio.wait(following, timeout=LOOK_AGAIN)
        following[:] = left


def _has_failed(snapshot: ConversationSnapshot) -> bool:
    return snapshot.info.state.status == "failed"
