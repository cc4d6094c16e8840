"""The reaction of a chat to a line, a message or a command, as flows of steps.

Owns: the order of the steps, and the texts for the user. Must never know: a terminal, an event loop, or how a
turn runs.

Another program may use the same conversation. If it has saved a turn meanwhile, that turn stays, and the turn
of this program is added after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .chat_input import COMMANDS, Typed, check_name, copy_name, free_name, help_lines, typed
from .conversions import exported, file_name
from .session_steps import (
    CallMethod,
    Choose,
    Clear,
    Confirm,
    Flow,
    Keys,
    Open,
    Quit,
    RunTurn,
    Say,
    ShowChanged,
    ShowWaiting,
    Write,
)
from .summary_lines import HeaderFacts, header_facts
from .text_output import counted

if TYPE_CHECKING:
    from .. import ChatResult, PendingCall, TurnError
    from ..chat.kept.facade import ConversationInfo, ConversationSnapshot
    from ..types.answers import Answer

__all__ = ["CONVERSATION", "Session"]

CONVERSATION: Final[Mapping[str, Any]] = {
    "save": "checkpoint",  # a program that is killed in mid-answer loses nothing
    "concurrent_turns": True,
    "lease_ttl": 5.0,
}
"""The settings of the conversations of a chat in a terminal."""


class Session:
    """The current conversation, and its unsaved turn.

    Args:
        key: The key of the current conversation.
        opened: The `codec` and `binding` of its state; {} for a plain one.
    """

    def __init__(self, key: str, opened: Mapping[str, Any] | None = None) -> None:
        self.key = key
        self._opened = dict(opened or {})
        self._unsaved: TurnError | None = None
        self._has_failed = False
        self._flows = {name: getattr(self, f"_{name}") for name, _, _ in COMMANDS}

    @property
    def failed(self) -> bool:
        """True if the last turn failed, or was not saved."""
        return self._has_failed or self._unsaved is not None

    # ------------------------------------------------------------------------------- effect of a line

    def begin(self) -> Flow[None]:
        """Describe unfinished work of an earlier program in this conversation, and how to continue it."""
        info: ConversationInfo | None = yield CallMethod("info")
        if info is None:
            return
        pending = yield CallMethod("pending")
        if waiting := _waiting_calls(pending):
            yield ShowWaiting(waiting)
        elif info.state.status in ("in_progress", "failed"):
            yield Say("The last turn is unfinished: /resume finishes it; a new line begins another.")

    def answer(self, line: str) -> Flow[None]:
        """Answer a message or carry out a command."""
        if (read := typed(line)) is None:
            return
        yield from self._guarded(self._answered(read))

    def settle(self, answers: Mapping[str, Answer]) -> Flow[None]:
        """Give answers to waiting calls, by their ids, and let the model continue."""
        yield from self._guarded(self._turn(RunTurn(answers=answers)))

    def end(self) -> Flow[None]:
        """Save the unsaved turn."""
        yield from self._save_rest()

    def facts(self) -> Flow[HeaderFacts]:
        """The facts for the header."""
        return header_facts(self.key, (yield CallMethod("info")))

    def snapshot(self) -> Flow[ConversationSnapshot | None]:
        """The conversation for a screen; None if nothing is stored."""
        found: ConversationSnapshot | None = yield CallMethod("snapshot")
        return found

    def _guarded(self, flow: Flow[None]) -> Flow[None]:
        from ..types.errors import GoAIToolsError

        if not (yield from self._save_rest()):
            yield Say("Your line was not sent.")
            return
        try:
            yield from flow
        except (GoAIToolsError, OSError, ValueError) as error:
            self._has_failed = True
            yield Say(f"Failed: {error}")

    def _answered(self, read: Typed) -> Flow[None]:
        if read.command == "":
            yield from self._turn(RunTurn(read.text))
        elif read.command == "?":
            yield Say(read.text)
        else:
            yield from self._flows[read.command](read.text)

    # ------------------------------------------------------------------------------------------- turns

    def _turn(self, turn: RunTurn) -> Flow[None]:
        """Run a turn, and say how it ended."""
        from ..types.errors import (
            NothingToResumeError,
            StateConflictError,
            StoreCommitError,
            ToolPendingError,
            TurnError,
        )

        try:
            result: ChatResult | None = yield turn
        except StoreCommitError as error:
            yield from self._keep_unsaved(error)
        except StateConflictError as error:
            self._has_failed = True
            yield Say(f"Not kept: {error.__cause__ or error}")
        except TurnError as error:
            yield from self._fail(error)
        except ToolPendingError as error:
            self._has_failed = True
            yield Say("Your line was not sent.")
            yield ShowWaiting(_waiting_calls(error.pending))
        except NothingToResumeError:
            yield Say("There is nothing to resume.")
        else:
            if result is None:
                yield from self._stopped()
            else:
                yield from self._finish(result)

    def _stopped(self) -> Flow[None]:
        """Describe the rest of a turn that the user stopped. If it had not begun yet, there is no rest."""
        info: ConversationInfo | None = yield CallMethod("info")
        if info is not None and info.state.status != "complete":
            yield Say("Cancelled. What was said so far is kept; /resume asks again.")
        else:
            yield Say("Cancelled before it began. Your line was not sent.")

    def _finish(self, result: ChatResult) -> Flow[None]:
        self._has_failed = False
        if result.status == "awaiting_tools":
            yield ShowWaiting(_waiting_calls(result.pending))
        elif result.status != "complete":
            yield Say(f"The reply is {result.status}.")
        for warning in result.warnings:
            if warning.code == "price_unknown":
                continue  # the header has no cost then
            yield Say(f"Warning: {warning.message}")
        if result.compaction is not None:
            yield Say(f"Compacted: {counted(result.compaction.removed_turns, 'turn')} removed.")

    def _fail(self, error: TurnError) -> Flow[None]:
        """Describe the error and the next step. The conversation continues from the error's state."""
        self._has_failed = True
        yield Say(f"{type(error).__name__}: {error}")
        if cause := error.sdk_error or error.__cause__:
            yield Say(f"Cause: {cause}")
        if error.retry_after is not None:
            yield Say(f"The provider asks to wait {error.retry_after:g} seconds.")
        if error.unsaved is not None:
            yield from self._keep_unsaved(error)
        elif error.pending_input:
            yield Say("Your message was not accepted and is not kept: change it, or what the error names.")
        else:
            yield Say("Your message is kept: /resume asks again.")

    # ------------------------------------------------------------------------------------- unsaved turn

    def _keep_unsaved(self, error: TurnError) -> Flow[None]:
        """Keep a turn that the store did not save. It is saved before the next line is answered."""
        self._unsaved = error
        yield Say(f"Not saved: {error.unsaved}. The next line tries again.")

    def _save_rest(self) -> Flow[bool]:
        """Save the kept turn; False if the store still fails."""
        from ..types.errors import StateConflictError, StoreError

        if self._unsaved is None:
            return True
        try:
            yield CallMethod("commit", (self._unsaved,))
        except StateConflictError as error:
            self._has_failed = True
            yield Say(f"Not kept: {error}")
        except StoreError as error:
            yield Say(f"Still not saved: {error}.")
            return False
        self._unsaved = None
        return True

    # ------------------------------------------------------------------- commands: which conversation

    def _new(self, name: str) -> Flow[None]:
        taken = {stored.key for stored in (yield Keys())} | {self.key}
        if name and name in taken:
            yield Say(f"There is a conversation {name!r} already: /threads {name} goes to it.")
            return
        yield from self._go_to(check_name(name) if name else free_name(taken))

    def _threads(self, name: str) -> Flow[None]:
        found = yield Keys()
        if not name:
            name = (yield Choose(tuple(found), self.key)) or ""
        elif name not in {stored.key for stored in found}:
            yield Say(f"There is no conversation {name!r}: /new {name} begins it.")
            return
        if name and name != self.key:
            yield from self._go_to(name)

    def _fork(self, name: str) -> Flow[None]:
        if (yield CallMethod("info")) is None:
            yield Say("Nothing was said yet.")
            return
        if not name:
            name = copy_name(self.key, {stored.key for stored in (yield Keys())})
        yield CallMethod("fork", (check_name(name),))
        yield from self._go_to(name)

    def _go_to(self, key: str) -> Flow[None]:
        yield Open(key)
        self.key = key
        yield ShowChanged()
        yield Say(f"Now in conversation {key!r}.")
        yield from self.begin()

    # --------------------------------------------------------------- commands: the current conversation

    def _rewind(self, text: str) -> Flow[None]:
        if not (text or "1").isdecimal():
            yield Say("/rewind takes a number of turns.")
            return
        if (yield CallMethod("info")) is None:
            yield Say("Nothing was said yet.")
            return
        yield CallMethod("rewind", (int(text or 1),))
        yield ShowChanged()
        yield Say(f"{counted(int(text or 1), 'turn')} taken away.")

    def _reset(self, _: str) -> Flow[None]:
        info: ConversationInfo | None = yield CallMethod("info")
        if info is None:
            yield Say("Nothing was said yet.")
        elif (yield Confirm(f"Forget conversation {self.key!r} with {counted(info.state.turns, 'turn')}?")):
            yield CallMethod("reset")
            yield ShowChanged()
            yield Say("The conversation is forgotten.")
        else:
            yield Say("Nothing was changed.")

    def _clear(self, _: str) -> Flow[None]:
        yield Clear()

    def _export(self, path: str) -> Flow[None]:
        blob: bytes | None = yield CallMethod("state")
        if blob is None:
            yield Say("Nothing was said yet.")
            return
        path = path or file_name(self.key)
        yield Write(path, exported(blob, path, self._opened))
        yield Say(f"Written to {path}.")

    def _inspect(self, _: str) -> Flow[None]:
        from .state_report import info_lines

        if (info := (yield CallMethod("info"))) is None:
            yield Say("Nothing was said yet.")
            return
        yield Say("\n".join(info_lines(info.state, (yield CallMethod("pending")))), "report")

    def _history(self, _: str) -> Flow[None]:
        from .state_report import history_lines

        found = yield from self.snapshot()
        if found is None:
            yield Say("Nothing was said yet.")
            return
        lines = history_lines(found.history, open_calls=found.info.state.open_calls)
        yield Say("\n".join(lines), "report")

    def _event(self, text: str) -> Flow[None]:
        from ..types.messages import event

        yield CallMethod("append", (event(text),))

    def _resume(self, _: str) -> Flow[None]:
        yield from self._turn(RunTurn())

    def _approve(self, _: str) -> Flow[None]:
        from .. import Approve
        from .chat_input import is_address

        pending = yield CallMethod("pending")
        calls = [call for call in pending if call.reason == "approval" or is_address(call)]
        if calls:
            yield from self._turn(RunTurn(answers={call.id: Approve() for call in calls}))
        else:
            yield Say("There is nothing to approve.")

    def _deny(self, reason: str) -> Flow[None]:
        from .. import Deny

        if waiting := _waiting_calls((yield CallMethod("pending"))):
            yield from self._turn(RunTurn(answers={call.id: Deny(reason) for call in waiting}))
        else:
            yield Say("There is nothing to deny.")

    def _answer(self, text: str) -> Flow[None]:
        from .. import ToolReturn
        from .chat_input import typed_answer

        call = next((call for call in (yield CallMethod("pending")) if call.reason == "external"), None)
        if call is None:
            yield Say("No call waits for a result.")
            return
        try:
            value = typed_answer(call, text)
        except ValueError as error:
            yield Say(str(error))
            return
        yield from self._turn(RunTurn(answers={call.id: ToolReturn(value)}))

    def _help(self, _: str) -> Flow[None]:
        yield Say("\n".join(help_lines()), "report")

    def _quit(self, _: str) -> Flow[None]:
        yield Quit()


def _waiting_calls(pending: Sequence[PendingCall]) -> Sequence[PendingCall]:
    """The calls that block a new message. Calls in doubt do not block it."""
    return [call for call in pending if call.reason != "in_doubt"]
