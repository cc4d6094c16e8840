"""What a client may do with one conversation: say something, answer calls, ask again, follow, stop.

Owns: which turn a request means, also when it comes twice. Must never know: HTTP, or a front end.

=========================================  ==========================================================
the request                                what happens
=========================================  ==========================================================
a message that runs, or has just run       its run is followed, from the beginning
a message that was answered before         the stored reply is told, no model is asked
answers to calls that wait                 the turn goes on
answers that were given before             the run, or the stored reply, is told from behind the calls
answers, and the turn failed after them    the turn goes on
a reply again                              the turn is taken back, and its message is said anew
a reply again, of a turn that failed       the turn goes on
follow                                     the run; or an unfinished turn that nobody runs goes on
catching up                                answers, else follow, else the stored reply is told
=========================================  ==========================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..errors import NothingToResumeError, TurnConflictError, TurnInProgressError, TurnStoppedError
from ..events import ModelRequested, ToolFinished, TurnCompleted, TurnStarted
from ..frontends import Ask, AskError, Piece, Returned, pieces_of, pieces_since
from ..history.turns import HistoryTurn
from ..result import ChatResult
from .hub import Hub
from .runs import Run, digest_of, refused_input
from .stored import (
    STOPPED,
    SYNTHETIC,
    behind_calls,
    call_ids,
    newest_ref,
    not_in_doubt,
    tell_stored,
    unfinished,
)
from .whose import Who

if TYPE_CHECKING:
    from ..async_conversation import AsyncConversation
    from ..handles import AsyncTurn
    from ..kept.facade import ConversationSnapshot

__all__ = ["Talk"]

_UNFINISHED: Final = ("in_progress", "failed")


class Talk:
    """One conversation, for one request.

    Args:
        hub: The turns of this process.
        open: Makes the conversation; its argument is what a turn does while another one runs.
        who: Whose it is.
        can_stop_others: The store has leases and a stop flag, so a stop reaches other processes.
    """

    def __init__(
        self,
        hub: Hub,
        open: Callable[[str], AsyncConversation],
        who: Who,
        *,
        can_stop_others: bool = False,
    ) -> None:
        self._hub = hub
        self._open = open
        self._who = who
        self._conversation = open("reject")
        self._can_stop_others = can_stop_others

    @property
    def conversation(self) -> AsyncConversation:
        """The conversation itself."""
        return self._conversation

    @property
    def _key(self) -> str:
        return self._who.key

    def _options(self, ask: Ask) -> dict[str, Any]:
        options = dict(self._who.options)
        if ask.context is not None:
            options["context"] = ask.context
        if ask.metadata:
            options["metadata"] = {**options.get("metadata", {}), **ask.metadata}
        return options

    def _start(self, drive: Callable[[Run], Any], **about: Any) -> Run:
        return self._hub.start(self._key, self._who.owner or self._key, drive, **about)

    # ------------------------------------------------------------------------------------ a message

    async def say(self, ask: Ask) -> Run:
        """Say something; see the table. `ask.turn_id` must be set."""
        assert ask.turn_id is not None
        run = await self._hub.find_anywhere(self._key)
        if run is not None and run.turn_id == ask.turn_id and (not run.is_over or run.is_good):
            if run.said_digest != digest_of(ask.said):
                raise TurnConflictError("another message has this id")
            return run
        options = self._options(ask)
        try:
            turn = self._conversation.start(list(ask.said), turn_id=ask.turn_id, **options)
        except ValueError as error:
            raise AskError(
                "the message cannot be taken: it is empty, or holds what no text may hold"
            ) from error
        return self._start(
            lambda run: self._drive_asked(run, turn, is_new=True), turn_id=ask.turn_id, said=ask.said
        )

    async def again(self, ask: Ask) -> Run:
        """Have a reply written again; see the table. `ask.again` must be set."""
        assert ask.turn_id is not None
        if self._hub.running(self._key) is not None:
            raise TurnInProgressError("this server runs a turn of this conversation already")
        snapshot = await self._conversation.snapshot()
        if snapshot is None:
            return await self.say(ask)
        if snapshot.info.state.status in _UNFINISHED:
            return self._resume(snapshot, {}, ask)
        turns = snapshot.history.turns
        if not turns:
            return await self.say(ask)
        at = self._turn_named(snapshot, ask.again or "")
        if at is None:
            return self._stored(snapshot, turns[-1])
        self._hub.check_room(self._who.owner or self._key)
        try:
            await self._conversation.rewind(len(turns) - at)
        except ValueError as error:
            raise AskError("a cut stands before this reply, so it cannot be written again") from error
        ref = f"{snapshot.info.state.conversation_id}-{turns[at].number}"
        return await self.say(_with_turn_id(ask, f"{ask.turn_id[:200]}~{ref[-50:]}"))

    def _turn_named(self, snapshot: ConversationSnapshot, id: str) -> int | None:
        """The place of the turn whose message has this id; of an id that is not ours, the newest one's. None
        for a turn that is gone: the reply was written again before."""
        prefix = re.escape(snapshot.info.state.conversation_id)
        found = re.fullmatch(rf"{prefix}-(\d{{1,12}})(?:u\d*)?", id)
        numbers = [turn.number for turn in snapshot.history.turns]
        if found is None:
            return len(numbers) - 1
        number = int(found[1])
        return numbers.index(number) if number in numbers else None

    # -------------------------------------------------------------------------------------- answers

    async def answer(self, ask: Ask) -> Run:
        """Answer calls; see the table. Answers that no call waits for are dropped."""
        claimed = set(ask.answers)
        run = await self._hub.find_anywhere(self._key)
        is_again = run is not None and bool(run.answered) and run.answered <= claimed
        if run is not None and not run.is_over:
            if is_again:
                return run
            if run is self._hub.running(self._key):
                raise TurnInProgressError("this server runs a turn of this conversation already")
        snapshot = await self._conversation.snapshot()
        if snapshot is None:
            raise NothingToResumeError("nothing is stored")
        given = ask.answers_to(snapshot.pending)
        if given:
            return self._resume(snapshot, given, ask)
        if snapshot.info.state.status in _UNFINISHED and self._has_call(snapshot, claimed):
            return self._resume(snapshot, {}, ask)
        if run is not None and is_again and run.is_good:
            return run
        if self._has_call(snapshot, claimed):
            return self._stored(snapshot, snapshot.history.turns[-1], claimed)
        raise NothingToResumeError("no call waits for these answers")

    async def catch_up(self, ask: Ask) -> Run:
        """Answer the calls that wait for these answers. If none does: find what runs, go on with what nobody
        runs, or tell the newest turn from the store."""
        try:
            return await self.answer(ask)
        except (NothingToResumeError, TurnInProgressError):
            run = await self.follow()
        if run is not None:
            return run
        snapshot = await self._conversation.snapshot()
        if snapshot is not None and snapshot.history.turns:
            return self._stored(snapshot, snapshot.history.turns[-1])
        run = self._hub.shown(self._key, self._who.owner)
        run.tell(TurnCompleted(result=ChatResult(text="", state=b"", status="complete")))
        run.end()
        return run

    def _has_call(self, snapshot: ConversationSnapshot, ids: Collection[str]) -> bool:
        turns = snapshot.history.turns
        return bool(turns) and any(
            call.id in ids for message in turns[-1].messages for call in message.tool_calls
        )

    # --------------------------------------------------------------------------------------- follow

    async def follow(self) -> Run | None:
        """Find the run, or go on with an unfinished turn that nobody runs; None if there is neither.

        A run that has just ended is one, too: the client may have read the history before its end.
        """
        run = await self._hub.find_anywhere(self._key)
        if run is not None and (not run.is_over or run.is_good):
            return run
        snapshot = await self._conversation.snapshot()
        if snapshot is None or snapshot.info.state.status != "in_progress":
            return None
        if snapshot.info.metadata.get(STOPPED) == newest_ref(snapshot):
            return None
        return self._hub.running(self._key) or self._resume(snapshot, {}, Ask(), gate="queue")

    async def stop(self) -> bool:
        """Stop the turn that runs. False if none runs. It stays as it is: the next message begins another
        one, and nobody goes on with it.

        A turn of another process is asked to stop, and does so at its next look; see `serve`.
        """
        run = self._hub.running(self._key)
        if run is None:
            stopped = await self._hub.stop_elsewhere(self._key)
            if stopped is None:
                return self._can_stop_others and await self._stop_elsewhere()
            await self._mark_stopped(stopped)
            return True
        await run.stop()
        await run.over()
        if run.was_stopped:  # else it was over already, and a stored reply was told
            await self._mark_stopped(run)
        return run.was_stopped

    async def _stop_elsewhere(self) -> bool:
        return await self._conversation.is_running() and await self._conversation.stop()

    async def _mark_stopped(self, run: Run) -> None:
        if run.turn_ref:
            await self._conversation.update(metadata={STOPPED: run.turn_ref})

    async def forget(self) -> None:
        """Stop what runs, and delete the conversation."""
        await self.stop()
        self._hub.forget(self._key)
        await self._conversation.reset()

    # -------------------------------------------------------------------------------------- driving

    def _resume(
        self, snapshot: ConversationSnapshot, given: Mapping[str, Any], ask: Ask, *, gate: str = "reject"
    ) -> Run:
        before = unfinished(snapshot, given)
        made = self._conversation if gate == "reject" else self._open(gate)
        turn = made.start_resume(given or None, **self._options(ask))
        drive = self._drive_asked if given else self._drive
        return self._start(
            lambda run: drive(run, turn, is_new=False),
            answered=ask.answers.keys() & call_ids(before),
            before=before,
            since=() if given else pieces_since(before, ask.answers.keys()),
        )

    def _stored(
        self, snapshot: ConversationSnapshot, turn: HistoryTurn, answered: Collection[str] = ()
    ) -> Run:
        run = self._hub.shown(self._key, self._who.owner)
        tell_stored(run, snapshot, turn, answered)
        run.end()
        return run

    async def _drive_asked(self, run: Run, turn: AsyncTurn, *, is_new: bool) -> None:
        """As `_drive`, of a message or of answers that this request has sent."""
        with refused_input(run):
            await self._drive(run, turn, is_new=is_new)

    async def _drive(self, run: Run, turn: AsyncTurn, *, is_new: bool) -> None:
        """Run a turn, and tell the run. A turn that was done before is told from the store."""
        has_started = knows_before = False
        completed: TurnCompleted | None = None
        async with turn:
            run.turn = turn
            if run.was_stopped:
                return
            try:
                async for event in turn:
                    if isinstance(event, TurnStarted):
                        has_started = True
                        if run.announce is not None:
                            await run.announce()
                    elif has_started and is_new and not knows_before:
                        knows_before = True
                        if not (isinstance(event, ModelRequested) and event.iteration == 1):
                            run.before = await self._found_before()
                    if isinstance(event, TurnCompleted):
                        completed = event  # told when it is saved, and another worker may go on
                    elif has_started:
                        run.hear(event)
                    run.turn_ref = run.turn_ref or event.turn_ref
                if run.was_stopped:
                    await turn.cancel()  # until it is saved
                    await self._tell_stop(run)
                    return
                result = await turn.result()
            except TurnStoppedError:  # another process has asked for it
                run.was_stopped = True
                await self._tell_stop(run)
                await self._mark_stopped(run)
                return
            except TurnInProgressError:
                if not is_new or not await self._copied(run, has_ended=False):
                    raise
                return
            except NothingToResumeError:
                if is_new or run.answered:
                    raise
                result = None  # another worker has finished the turn meanwhile
        if is_new and not has_started and await self._copied(run, has_ended=True):
            return
        if not has_started or result is None:
            await self._tell_again(run, result)
        elif completed is not None:
            run.tell(completed)

    async def _copied(self, run: Run, *, has_ended: bool) -> bool:
        """Follow the run of the same message in another process. False if there is none."""
        other = await self._hub.find_message(self._key, run.turn_id, has_ended=has_ended)
        if other is None:
            return False
        if other.said_digest != run.said_digest:
            raise TurnConflictError("another message has this id")
        await run.copy(other)
        return True

    async def _tell_stop(self, run: Run) -> None:
        """Tell what became of the calls that a stop has ended, as the history says it."""
        snapshot = await self._conversation.snapshot()
        if snapshot is None or not snapshot.history.turns or newest_ref(snapshot) != run.turn_ref:
            return
        pieces = pieces_of(snapshot.history.turns[-1], not_in_doubt(snapshot.pending))
        for piece in pieces[behind_calls(pieces) :]:
            if isinstance(piece, Returned) and piece.flag in SYNTHETIC:
                told = ToolFinished(
                    piece.call_id, "", 0, piece.flag, 0.0, piece.output, turn_ref=run.turn_ref
                )
                run.tell(told)

    async def _found_before(self) -> tuple[Piece, ...]:
        snapshot = await self._conversation.snapshot()
        return () if snapshot is None else unfinished(snapshot, ())

    async def _tell_again(self, run: Run, result: ChatResult | None) -> None:
        snapshot = await self._conversation.snapshot()
        run.was_stopped = False  # the turn was over before a stop came
        if snapshot is None or not snapshot.history.turns:
            raise NothingToResumeError("nothing is stored")
        tell_stored(run, snapshot, snapshot.history.turns[-1], run.answered, result)


def _with_turn_id(ask: Ask, turn_id: str) -> Ask:
    return Ask(
        conversation=ask.conversation,
        said=ask.said,
        turn_id=turn_id,
        context=ask.context,
        metadata=ask.metadata,
    )
