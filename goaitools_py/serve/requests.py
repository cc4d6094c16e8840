"""The requests of a client to one conversation: say something, answer calls, ask again, follow, stop.

Owns: which turn a request means, also when it comes twice. Must never know: HTTP, or a front end.

=========================================  ==========================================================
the request                                its effect
=========================================  ==========================================================
a message that runs, or has just run       its run is followed, from the beginning
a message that was answered before         the stored reply is told, no model is asked
answers to calls that wait                 the turn goes on
answers that were given before             the run, or the stored reply, is told from behind the calls
answers, and the turn failed after them    the turn goes on
a message while another turn runs          it steers that turn, if the server says so; see `RunDriver`
a message in place of an earlier one       that one and what followed it leave, and the new one is said
a reply again                              the same, with the message of its turn
a reply again, of a turn that failed       the turn goes on
follow                                     the run, also one of another process
go on                                      the run; or an unfinished turn goes on, unless it was stopped
catching up                                answers, else going on, else the stored reply is told
=========================================  ==========================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from ..base.escaping import as_written
from ..base.values import replace
from ..chat.kept.changes import conversation_id
from ..frontends import Ask, AskError, pieces_since
from ..frontends.reply_pieces import asked_in, is_shown_id
from ..history.turns import HistoryTurn, replies
from ..open_turn.turn_ids import TURN_IDS_FACT
from ..state.records import digest8
from ..types.errors import EditError, NothingToResumeError, TurnConflictError, TurnInProgressError
from ..types.events import TurnCompleted
from ..types.messages import Audio, Document, Image, Message, Part, Text
from ..types.result import ChatResult
from .history_view import (
    GOES_ON,
    Left,
    TurnStatus,
    call_ids,
    id_again,
    ids_since,
    left_by,
    mark_again,
    named_again,
    number_named,
    reply_of,
    shown_id,
    tell_stopped,
    tell_stored,
    unfinished,
    went_on_with,
    with_message,
)
from .hub import Behind, Drive, Hub
from .identity import Caller
from .remote_runs import STOP_SECONDS
from .run_driver import LOOK_AGAIN, RunDriver
from .runs import Run, digest_of

if TYPE_CHECKING:
    from ..chat.async_conversation import AsyncConversation
    from ..chat.async_turn import AsyncTurn
    from ..chat.kept.facade import ConversationSnapshot

__all__ = ["ConversationRequest"]

_UNFINISHED: Final = ("in_progress", "failed")
_STATUS: Final[Mapping[Left, TurnStatus]] = {
    "unfinished": "waiting", "messages": "waiting", "stopped": "stopped", "": "none",
}  # fmt: skip


class ConversationRequest:
    """One conversation, for one request.

    Args:
        hub: The turns of this process.
        conversation: The conversation. Its turns do not wait for others.
        caller: The owner.
        has_leases: The store knows whether another process runs a turn.
        has_flag: The store has a stop flag: with leases a stop then reaches other processes.
        can_erase: The store can delete and list.
        behind: The work behind a complete turn; None: no work.
        steers: A new message goes to the turn that runs.
    """

    def __init__(
        self,
        hub: Hub,
        conversation: AsyncConversation,
        caller: Caller,
        *,
        has_leases: bool = False,
        has_flag: bool = False,
        can_erase: bool = False,
        behind: Behind | None = None,
        steers: bool = False,
    ) -> None:
        self._behind = behind
        self._steers = steers
        self._hub = hub
        self._caller = caller
        self._conversation = conversation
        self._driver = RunDriver(hub, conversation)
        self._has_leases = has_leases
        self._can_stop_others = has_leases and has_flag
        self._can_erase = can_erase

    @property
    def conversation(self) -> AsyncConversation:
        """The conversation itself."""
        return self._conversation

    @property
    def _key(self) -> str:
        return self._caller.key

    def _options(self, ask: Ask) -> dict[str, Any]:
        options = dict(self._caller.options)
        if ask.context is not None:
            options["context"] = ask.context
        if ask.metadata:
            options["metadata"] = {**options.get("metadata", {}), **ask.metadata}
        return options

    def _start(self, drive: Drive, **about: Any) -> Run:
        owner = self._caller.owner or self._key
        return self._hub.start(self._key, owner, drive, behind=self._behind, **about)

    # ------------------------------------------------------------------------------------ a message

    async def say(self, ask: Ask) -> Run:
        """Say something; see the table. `ask.turn_id` must be set."""
        assert ask.turn_id is not None
        run = self._hub.beside(self._key, ask.turn_id) or await self._hub.find_anywhere(self._key)
        if run is not None and run.turn_id == ask.turn_id and (not run.is_over or run.is_good):
            if run.said_digest == digest_of(ask.said):
                return run
            if ask.edit is None:
                raise TurnConflictError("another message has this id")
        edit = self._edited(ask)
        turn = self._turn_of(ask, edit)

        async def drive(run: Run) -> None:
            if (
                edit is not None
                and edit == ask.turn_id
                and await self._edit_written_again(run, ask, edit, is_found=True)
            ):
                return  # else a conversion may make it look as if the same message came again
            try:
                await self._say(run, ask, turn, edit)
            except TurnConflictError:
                if ask.edit != "" or edit is not None or run.events:
                    raise
                # The client knows a message under this id, and has changed it.
                own = ask.turn_id or ""
                await self._say(run, ask, self._turn_of(ask, own), own)

        steers = self._steers and edit is None
        return self._start(drive, turn_id=ask.turn_id, said=ask.said, steers=steers)

    async def _say(self, run: Run, ask: Ask, turn: AsyncTurn, edit: str | None) -> None:
        try:
            await self._driver.drive_asked(run, turn, is_new=True, said=ask.said)
        except EditError:
            if edit is None or run.events or not await self._edit_written_again(run, ask, edit):
                raise

    async def _edit_written_again(self, run: Run, ask: Ask, edit: str, *, is_found: bool = False) -> bool:
        """Edit a message by its older id: since then its reply was written again. False if it is not
        there. `is_found`: only if a turn has it, or it may wait."""
        snapshot = await self._conversation.snapshot()
        for id in () if snapshot is None else ids_since(snapshot, edit, is_found=is_found):
            # A client that has no new id for the edit keeps the one that the message has now.
            anew = replace(ask, turn_id=id) if ask.turn_id == edit else ask
            try:
                turn = self._turn_of(anew, id)
                await self._driver.drive_asked(run, turn, is_new=True, said=ask.said)
            except EditError:
                continue
            return True
        return False

    def _turn_of(self, ask: Ask, edit: str | None) -> AsyncTurn:
        try:
            # An edit of a conversation on which a turn runs is refused, whatever the gate is.
            gate: Any = None if edit is None else "reject"
            return self._conversation.start(
                list(ask.said), turn_id=ask.turn_id, edit=edit, gate=gate, **self._options(ask)
            )
        except ValueError as error:
            raise AskError(
                "the message cannot be taken: it is empty, or holds what no text may hold"
            ) from error

    def _edited(self, ask: Ask) -> str | None:
        """The id of the message that this one replaces; None for a new message."""
        if ask.edit == "" and ask.turn_id is not None:
            # A client that was loaded again knows its messages by the ids that this server has shown.
            is_shown = ask.turn_id.startswith(f"{conversation_id(self._key)}-")
            return ask.turn_id if is_shown and is_shown_id(ask.turn_id) else None
        return ask.edit

    async def again(self, ask: Ask) -> Run:
        """Let the model write a reply again; see the table. `ask.again` must be set."""
        assert ask.turn_id is not None
        assert ask.again is not None
        if self._hub.running(self._key) is not None:
            raise TurnInProgressError("this server runs a turn of this conversation already")
        turn_id, again, is_message = ask.turn_id, ask.again, ask.edit is not None
        ask = replace(ask, edit=None)
        # A client that names only the message has no id for the request: each one is new. Else a request that
        # comes twice is known by both ids.
        is_new = again == turn_id
        id = f"{turn_id[:200]}~{again[-50:]}"
        snapshot = await self._conversation.snapshot()
        if snapshot is None:
            return await self.say(replace(ask, again=None, turn_id=turn_id if is_message or is_new else id))
        turns, newest = snapshot.history.turns, snapshot.info.state.turns_processed + 1
        conversation = snapshot.info.state.conversation_id
        went_on = 0 if is_message or is_new else went_on_with(snapshot).get(digest8(id), 0)
        if not is_new and any(digest8(id) in turn.facts.get(TURN_IDS_FACT, ()) for turn in turns):
            return await self.say(replace(ask, again=None, turn_id=id))
        if 0 < went_on < newest:
            return self._stored(snapshot, _turn_of_again(turns, went_on, ask.said))
        named, number = with_message(snapshot, again), number_named(snapshot, again)
        is_open = bool(turns) and turns[-1].number == newest
        is_unfinished = snapshot.info.state.status in _UNFINISHED
        failed = reply_of(snapshot, turns[-1])[1] if is_unfinished and is_open else ()
        left = [*snapshot.history.waiting, *(one for turn in failed for one in turn.messages)]
        is_left = is_unfinished and (number == newest or number in {turn.number for turn in failed})
        # If this request went on with a turn before, and the turn was refused, another one has its number.
        if _is_asked(left, ask.said) if went_on or not number else is_left:
            if not (is_message or is_new):
                await self._conversation.update(metadata=mark_again(snapshot, digest8(id)))
            return await self._asked_for(snapshot, {}, ask) if is_unfinished else self._answer_waiting()
        if not number and (is_new or not again):
            is_client_id = is_new and not is_shown_id(turn_id)  # a turn would have it
            of_newest = reply_of(snapshot, turns[-1])[1] if turns and not is_client_id else ()
            if of_newest and _is_asked((one for turn in of_newest for one in turn.messages), ask.said):
                number = turns[-1].number
            elif is_client_id or not _is_asked((one for turn in turns for one in turn.messages), ask.said):
                # The provider has refused it.
                return await self.say(replace(ask, again=None, turn_id=turn_id if is_new else id))
        if not 0 < number < newest + is_open:
            raise AskError("again is not the id of a reply of this conversation")
        turn = next((one for one in turns if one.number == number), None)
        edit = f"{conversation}-{number}u"  # a turn that a cut has taken comes back if the cut can be undone
        beside = [] if named is None else _users(named.turn)
        if named and (named.id or is_shown_id(again)) and len(beside) > 1 and _is_asked(beside, ask.said):
            edit = named.id or again  # the message itself: another one stands in front of the same reply
        elif turn is not None:
            turn = _of_call(turns, turn, ask.said)
            same = [at for at, one in enumerate(_users(turn), 1) if _is_same(one, ask.said)]
            number, edit = turn.number, shown_id(snapshot, turn, same[-1] if same else 0)
        id = id_again(turn_id, f"{conversation}-{number}") if is_new else id
        return await self.say(replace(ask, again=None, edit=edit, turn_id=id))

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
            return await self._asked_for(snapshot, given, ask)
        if snapshot.info.state.status in _UNFINISHED and self._has_call(snapshot, claimed):
            return await self._asked_for(snapshot, {}, ask)
        if run is not None and is_again and run.is_good:
            return run
        if self._has_call(snapshot, claimed):
            return self._stored(snapshot, snapshot.history.turns[-1], claimed)
        raise NothingToResumeError("no call waits for these answers")

    async def catch_up(self, ask: Ask) -> Run:
        """Answer the calls that wait for these answers. If no call waits: follow the run, go on with a turn
        that no process runs, or tell the newest turn from the store."""
        try:
            return await self.answer(ask)
        except (NothingToResumeError, TurnInProgressError):
            found = await self.follow("turn")
        if isinstance(found, Run):
            return found
        snapshot = await self._conversation.snapshot()
        if snapshot is not None and (snapshot.history.turns or left_by(snapshot) == "stopped"):
            return self._newest(snapshot)
        run = self._hub.shown(self._key, self._caller.owner)
        run.tell(TurnCompleted(result=ChatResult(text="", state=b"", status="complete")))
        run.end()
        return run

    def _has_call(self, snapshot: ConversationSnapshot, ids: Collection[str]) -> bool:
        turns = snapshot.history.turns
        messages = (
            (one for turn in reply_of(snapshot, turns[-1])[1] for one in turn.messages) if turns else ()
        )
        return any(call.id in ids for message in messages for call in message.tool_calls)

    # --------------------------------------------------------------------------------------- follow

    async def follow(
        self, goes_on: Literal["", "turn", "messages"] = "", *, has_lost: bool = False
    ) -> Run | TurnStatus:
        """Find the run, or tell how the newest turn stands. A run that has just ended is found, too: the
        client may have read the history before its end.

        `goes_on`: begins a run if there is no run. "turn" goes on with an unfinished turn that no process
        runs; "messages" also answers messages that wait without a turn. "" only looks.
        `has_lost`: the client's stream broke off, so it gets a turn that is over from the store.
        """
        run = await self._hub.find_anywhere(self._key)
        if run is not None and not run.is_over:
            return run
        snapshot, is_held = await self._found()
        if (own := self._hub.running(self._key)) is not None:
            return own
        if is_held:  # another process runs the turn, and no relay shows it
            go_on = self._go_on if goes_on else None
            wait = partial(self._driver.wait, go_on=go_on)
            return self._hub.watch(self._key, wait, goes_on=bool(goes_on))
        left = left_by(snapshot)
        if snapshot is not None and left == "unfinished" and goes_on:
            return self._go_on(snapshot)
        if left == "messages" and goes_on == "messages":
            return self._answer_waiting()
        if run is not None and run.is_good:
            return run
        if has_lost and snapshot is not None and snapshot.history.turns:
            is_over = left == "stopped" or (not left and snapshot.info.state.status != "failed")
            if is_over:
                return self._newest(snapshot)
        return _STATUS[left]

    def _answer_waiting(self) -> Run:
        turn = self._conversation.start(**self._options(Ask()))
        return self._start(lambda run: self._driver.drive(run, turn))

    def _newest(self, snapshot: ConversationSnapshot) -> Run:
        """Tell the newest turn from the store, which has turns or was stopped before the first one."""
        if left_by(snapshot) != "stopped":
            return self._stored(snapshot, snapshot.history.turns[-1])
        run = self._hub.shown(self._key, self._caller.owner)
        tell_stopped(run, snapshot)
        run.end()
        return run

    async def seen(self) -> tuple[ConversationSnapshot | None, TurnStatus]:
        """Read the stored conversation, and tell the status of the newest turn."""
        is_known = await self._hub.is_running_anywhere(self._key)  # first: a turn may end meanwhile
        snapshot, is_held = await self._found()
        return snapshot, "running" if is_known or is_held else _STATUS[left_by(snapshot)]

    async def _found(self) -> tuple[ConversationSnapshot | None, bool]:
        """Give the stored conversation, and whether a process runs its unfinished turn."""
        snapshot = await self._conversation.snapshot()
        if left_by(snapshot) != "unfinished" or not self._has_leases:
            return snapshot, False
        if await self._conversation.is_running():
            return snapshot, True
        return await self._conversation.snapshot(), False  # the turn may have ended since

    def _go_on(self, snapshot: ConversationSnapshot) -> Run:
        return self._resume(snapshot, {}, Ask(), unless_stopped=True)

    # ---------------------------------------------------------------------------------------- stop

    async def stop(self) -> bool:
        """Stop the turn that runs, or was left by a process that died. False without a turn. The turn stays
        as it is: the next message begins another one. It goes on only if a user asks for it.

        When this returns the stop is in the store. A turn of another process is asked to stop, and does so at
        its next look; see `serve`.
        """
        run = self._hub.running(self._key)
        if run is None or run.is_copy:
            return await self._stop_elsewhere()
        is_noted = await self._noted_early()
        if not run.is_over:
            await run.stop()
            await run.over()
        if run.was_stopped:
            await self._driver.remember_stop()
        elif is_noted:
            await self._conversation.update(metadata=GOES_ON)
        return run.was_stopped

    async def _noted_early(self) -> bool:
        """Note the stop while the worker of the turn has its lease: then no other worker takes the turn over.
        If it cannot be noted now, the turn is stopped all the same, and noted afterwards."""
        with suppress(Exception):
            return await self._driver.remember_stop()
        return False

    async def _stop_elsewhere(self) -> bool:
        is_noted = has_asked = False
        if await self._hub.is_running_anywhere(self._key):
            is_noted = await self._noted_early()
            if await self._hub.stop_elsewhere(self._key) is not None:
                await self._driver.remember_stop()
                return True
        if not self._can_stop_others:
            return False
        for _ in range(round(STOP_SECONDS / LOOK_AGAIN)):
            is_held = await self._conversation.is_running()
            left = left_by(await self._conversation.snapshot())
            if is_held and not has_asked:
                has_asked = await self._conversation.stop()
            is_meant = is_held or left == "unfinished" or ((is_noted or has_asked) and left == "stopped")
            if is_meant and await self._driver.remember_stop():
                return True
            if not is_held:
                return False
            await asyncio.sleep(LOOK_AGAIN)  # a turn has begun, and nothing of it is stored yet
        return False

    async def forget(self) -> None:
        """Stop the running turn, and erase the conversation, with the bytes that stand aside.

        Raises `TurnInProgressError` if another process runs a turn, and could not be stopped. A store that
        cannot delete, or cannot list, gets a reset: the bytes that stand aside cannot be found in it.
        """
        await self.stop()
        self._hub.forget(self._key)
        await self._hub.clear_behind(self._key)
        await (self._conversation.erase() if self._can_erase else self._conversation.reset())

    # -------------------------------------------------------------------------------------- driving

    async def _asked_for(self, snapshot: ConversationSnapshot, given: Mapping[str, Any], ask: Ask) -> Run:
        """Go on with a turn because a user asks for it, also if it was stopped."""
        await self._driver.forget_stop(snapshot)
        return self._resume(snapshot, given, ask)

    def _resume(
        self,
        snapshot: ConversationSnapshot,
        given: Mapping[str, Any],
        ask: Ask,
        *,
        unless_stopped: bool = False,
    ) -> Run:
        before = unfinished(snapshot, given)
        turn = self._conversation.start_resume(given or None, **self._options(ask))
        driving = self._driver

        def drive(run: Run) -> Any:
            if given:
                return driving.drive_asked(run, turn, is_new=False)
            return driving.drive(run, turn, unless_stopped=unless_stopped)

        return self._start(
            drive,
            answered=ask.answers.keys() & call_ids(before),
            before=before,
            since=() if given else pieces_since(before, ask.answers.keys()),
            named_again=named_again(snapshot),
        )

    def _stored(
        self, snapshot: ConversationSnapshot, turn: HistoryTurn, answered: Collection[str] = ()
    ) -> Run:
        run = self._hub.shown(self._key, self._caller.owner)
        tell_stored(run, snapshot, turn, answered)
        run.end()
        return run


def _turn_of_again(turns: Sequence[HistoryTurn], number: int, said: Sequence[Part]) -> HistoryTurn:
    """The turn with this number, if its message is this one. Its number was given back if it was refused."""
    turn = next((one for one in turns if one.number == number), None)
    if turn is None or not _is_asked(turn.messages, said):
        raise TurnConflictError(
            "this request for a reply came before, and its reply is not in the conversation any more: ask "
            "with a new id"
        )
    return turn


def _is_asked(messages: Iterable[Message], said: Sequence[Part]) -> bool:
    """True if one of the messages is this message of the user."""
    return any(one.role == "user" and not one.is_event and _is_same(one, said) for one in messages)


def _users(turn: HistoryTurn) -> list[Message]:
    """The messages of the user before the first reply of a turn."""
    return [one for one in asked_in(turn) if one.role == "user" and not one.is_event]


def _is_same(message: Message, said: Sequence[Part]) -> bool:
    """True if the texts are equal. Only messages without text are told apart by their files."""
    text = "".join(part.text for part in said if isinstance(part, Text) and not part.is_block)
    return message.said == as_written(text) and (text != "" or _files(message.parts) == _files(said))


def _files(parts: Sequence[Part]) -> list[object]:
    media = [(part.data, part.url) for part in parts if isinstance(part, (Image, Document, Audio))]
    texts = [part.text for part in parts if isinstance(part, Text) and part.text.startswith("<app-file ")]
    return [*media, *texts]


def _of_call(turns: Sequence[HistoryTurn], turn: HistoryTurn, said: Sequence[Part]) -> HistoryTurn:
    """The turn that a client names by its reply. A client that has followed a call shows its turns as one
    reply: of these, the turn with this message of the user, else the first one."""
    reply = next(one for one in replies(turns) if any(of is turn for of in one))
    found = (one for one in reversed(reply) if any(_is_same(message, said) for message in asked_in(one)))
    return next(found, reply[0])
