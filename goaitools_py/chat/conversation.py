# generated from chat/async_conversation.py by tests/make_sync.py; edit chat/async_conversation.py
"""A conversation that is kept in a store: `Conversation`.

Owns: its sync methods. Must never know: the order of acts and checks (`kept`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..base.advice import own_names
from ..history.redact.matching import Match
from ..history.redact.redaction import Redaction
from ..history.turns import History
from ..turn.flow import Flow
from ..turn.observers import notify
from ..turn.plan import Plan
from ..types.answers import Answers, PendingCall
from ..types.errors import StateConflictError, TurnError, TurnInProgressError
from ..types.messages import Message
from ..types.options import ChatOptions, UserInput, refuse_misplaced
from ..types.result import ChatResult, CompactionReport
from .kept import branches, changes
from .kept.facade import ConversationInfo, ConversationSnapshot, Gate, KeptFacade
from .kept.kept_drivers import KeptSteps
from .kept.privacy import KeptPrivacy, export_flow
from .kept.summaries import Summaries, summaries_flow
from .kept.turn import KeptTurn
from .signatures import keywords_written_out

if TYPE_CHECKING:
    from ..output import Output
    from ..stores.base import Stored
    from .fields import ChatFields, CompactFields, NoFields, TurnFields
    from .sync_turn import Turn

__all__ = ["Conversation"]

T = TypeVar("T")


@keywords_written_out
@own_names
class Conversation(KeptFacade):
    """A conversation under one key of a store; made by `Chat.conversation`.

    It holds no state: each method loads the stored state and saves the new one. So any number of threads,
    processes and machines may serve the same key.
    """

    @overload
    def send(
        self,
        user: UserInput | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        gate: Gate | None = None,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> ChatResult[T]: ...
    @overload
    def send(
        self,
        user: UserInput | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        gate: Gate | None = None,
        **fields: Unpack[ChatFields],
    ) -> ChatResult: ...
    def send(
        self,
        user: UserInput | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        gate: Gate | None = None,
        **fields: Unpack[ChatFields],
    ) -> ChatResult[Any]:
        """Run one turn and save it. Without a message it answers the appended messages.

        Args:
            user: The user's message: text, or a list of parts.
            options: `ChatOptions`; every field is also a keyword. With `turn_id` a message that is delivered
                twice is answered once.
            gate: As `conversation(…, gate=…)`, for this turn alone; None: that one. With "steer", while
                another turn runs, the message goes to that turn, and the result is that turn's, with
                `duplicate`. Options such as `tools` count only if the message gets a turn of its own. A send
                with `output_type` waits for a turn of its own, as with "queue".

        Returns:
            The result. Its `state` is stored now.

        Raises:
            TurnError: The turn began and could not end; its progress is stored, unless `unsaved` says why
                not.
            StoreCommitError: The turn is complete, and the store did not save it; see `commit`.
            StateConflictError: Another worker had a turn meanwhile; this one is in the error's `state`.
            TurnInProgressError: Another worker has the lease (with ``gate="queue"``: for all of the turn's
                `timeout`); nothing was called.
            StoreUnavailableError: The store did not answer; nothing was called.
            StateError: The stored state cannot be used, and `on_bad_state` or `on_foreign_state` says to
                raise; it stays as it is.
            ToolPendingError, TurnConflictError, TypeError, ValueError: As `Chat.chat_with_state`.
        """
        return self._turn(*self._work(user, options, fields, gate=gate)).result()

    @overload
    def start(
        self,
        user: UserInput | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        gate: Gate | None = None,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> Turn[T]: ...
    @overload
    def start(
        self,
        user: UserInput | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        gate: Gate | None = None,
        **fields: Unpack[ChatFields],
    ) -> Turn: ...
    def start(
        self,
        user: UserInput | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        gate: Gate | None = None,
        **fields: Unpack[ChatFields],
    ) -> Turn[Any]:
        """Make the same turn as a streaming handle. It is saved when it ends, fails, is cancelled or left."""
        return self._turn(*self._work(user, options, fields, gate=gate, stream=True))

    @overload
    def resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> ChatResult[T]: ...
    @overload
    def resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult: ...
    def resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult[Any]:
        """Finish the stored turn: it failed, another process left it, or it waits for `answers`.

        A repeated answer changes nothing: the stored reply is returned again, with `duplicate`. Raises
        `NothingToResumeError` if nothing is unfinished, or nothing is stored.
        """
        return self._turn(*self._work(None, options, fields, resume=True, answers=answers)).result()

    @overload
    def start_resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> Turn[T]: ...
    @overload
    def start_resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> Turn: ...
    def start_resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> Turn[Any]:
        """Make the turn that `resume` finishes, as a streaming handle; see `start`."""
        return self._turn(*self._work(None, options, fields, resume=True, answers=answers, stream=True))

    def append(self, *messages: Message, **misplaced: Unpack[NoFields]) -> tuple[str, ...]:
        """Add messages or events; no model is asked, and a turn that runs elsewhere is not disturbed. With
        ``gate="steer"`` that turn's next model call reads them.

        Raises `StoreUnavailableError` if the store did not say that it saved; with `event(…, id=…)` it is
        safe to append again.

        Returns:
            An id for each message, in order, for `withdraw`.
        """
        refuse_misplaced("append", misplaced)
        return self._run(self._appending(messages))

    def withdraw(self, id: str, **misplaced: Unpack[NoFields]) -> bool:
        """Take a message of `append` back, if no turn has read it yet. It then leaves no trace.

        With ``gate="steer"`` this is possible while a turn runs: a turn claims messages in the store before
        it sends them. With another gate a running turn does not say which messages it has, so the answer is
        then False.

        Args:
            id: An id that `append` gave.

        Returns:
            True if the message was waiting, and is gone now. False if a turn has it, or may have it, or if no
            waiting message has this id.

        Raises:
            TypeError: The store has no leases.
        """
        refuse_misplaced("withdraw", misplaced)
        wanted = self._withdrawal(id)
        if not isinstance(wanted, KeptPrivacy):
            return self._run(wanted)
        try:
            found: bool = self._work_off(wanted)
        except TurnInProgressError:
            return False
        return found

    def update(self, *, title: str | None = None, metadata: Mapping[str, str | None] | None = None) -> None:
        """Set the title and metadata of the conversation, for people and lists; a model never sees them.

        Also before its first message. A turn that runs elsewhere is not disturbed.

        Args:
            title: At most 256 characters; "" takes it away, None leaves it as it is.
            metadata: Names and values to set; a value of None takes its name away, other names stay. All
                names and values take at most 4 KiB as JSON.
        """
        self._run(self._updating(title, metadata))

    def compact(
        self,
        compactor: Any = None,
        /,
        *,
        dry_run: bool = False,
        if_due: bool = False,
        **fields: Unpack[CompactFields],
    ) -> CompactionReport:
        """Compact now; as `Chat.compact_state`.

        `if_due`: ask the trigger, and do nothing if it does not fire: no model is asked, and nothing is
        saved. No turn waits for this compaction: it has the lease only for its save. If a turn runs then,
        or has run since, the compaction is dropped, and nothing changes. The report then has the outcome
        "no_change", says so as its reason, and has the usage that was paid. Without leases in the store a
        turn that runs meanwhile may end with a `StateConflictError`, unless it saves checkpoints.
        """
        work, on_event = self._compaction(compactor, dry_run, fields, if_due=if_due)
        steps = KeptSteps(work, self._ports.drive, on_event)
        while (told := steps.step()) is not None:
            notify(on_event, told)
        report: CompactionReport = steps.result
        return report

    def commit(self, error: TurnError | StateConflictError) -> bytes:
        """Save the state of an error that the store did not save: of a `StoreCommitError`, of a
        `StateConflictError`, or of an error with `unsaved`. No model is asked. Gives the stored state.

        If another worker had a turn meanwhile, this turn is put behind that turn, which its model did not
        know. Raises `StateConflictError` if that cannot be done: one of the two turns is unfinished, cut, or
        an edit, or the conversation was deleted.
        """
        return self._run(self._committing(error))

    def history(self) -> History:
        """The whole conversation in the classes of this package; empty if nothing is stored."""
        return self._run(self._reads(self._history, self._found(with_results=True)))

    def info(self) -> ConversationInfo | None:
        """Facts of the stored conversation, without its messages; None if nothing is stored."""
        return self._run(self._reads(self._info, self._found()))

    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that `resume` takes answers for."""
        return self._run(self._reads(self._pending, self._found()))

    def snapshot(self) -> ConversationSnapshot | None:
        """`info`, `pending` and `history` of one load, so that they agree; a page can show them. None if
        nothing is stored."""
        return self._run(self._reads(self._snapshot, self._found()))

    def summaries(
        self, prefix: str, *, cursor: str | None = None, limit: int = 100, **misplaced: Unpack[NoFields]
    ) -> Summaries:
        """A page of the conversations of this store, for a list of them: no state is loaded or opened.

        The one that was saved last comes first, if the store has ``recent``; see `Summaries.is_ordered`.

        Args:
            prefix: The beginning of their keys, such as ``"ada/"``. "" lists the conversations of all users.
            cursor: The `cursor` of the page before.
            limit: How many rows a page has at most.

        Raises:
            TypeError: The store cannot list.
        """
        refuse_misplaced("summaries", misplaced)
        return self._run(summaries_flow(self._settings.store, prefix, cursor, limit))

    def fork(self, key: str, *, binding: Any = None, **misplaced: Unpack[NoFields]) -> Conversation:
        """Copy this conversation to a new one, with an id and a key of its own.

        An unfinished turn and waiting calls are copied too. `resume` can finish them in both. The idempotency
        keys differ, so a tool may run once in each.

        Args:
            key: A key under which nothing is stored; else `StateConflictError`.
            binding: For sealed codecs: the owner of the copy, if it is another one.
        """
        refuse_misplaced("fork", misplaced)
        other = self._beside(key, binding)
        self._run(branches.fork_flow(self._settings, other, listening=self._listening))
        return Conversation(self._ports, other, self._save)

    def rewind(self, turns: int = 1, **misplaced: Unpack[NoFields]) -> None:
        """Take the newest turns away; as `rewind_state`."""
        refuse_misplaced("rewind", misplaced)
        self._run(changes.rewind_flow(self._settings, turns, listening=self._listening))

    def undo_cut(self, **misplaced: Unpack[NoFields]) -> None:
        """Undo the newest compaction that the archive has; as `states.undo_cut`."""
        refuse_misplaced("undo_cut", misplaced)
        self._run(changes.undo_flow(self._settings, listening=self._listening))

    def reset(self) -> None:
        """Forget the conversation: delete the state under its key. A store that cannot delete gets an empty
        state. No event is sent."""
        self._run(self._resetting())

    def stop(self) -> bool:
        """Ask the running turn of this conversation to stop, in any thread, process or machine.

        The turn must run on a conversation with ``stop_every=``. It stops before its next model call, or
        before it reads the next piece of a reply; a tool that runs is not interrupted. It then raises
        `stores.TurnStoppedError`, and its progress is stored. A stop that comes while no turn runs is
        forgotten when the next one begins.

        Returns:
            False if nothing is stored under the key, as before the first save of a first turn.

        Raises:
            TypeError: The store has no stop flag.
        """
        return self._run(self._stopping())

    def is_running(self) -> bool:
        """True while a worker runs a turn of this conversation, and for `lease_ttl` seconds after one died.

        The question disturbs no turn, with one exception. If a store of your own has `lease` and no
        `is_held`, the lease is taken for a moment. A turn that begins just then waits a few milliseconds, and
        with ``gate="reject"`` it raises `TurnInProgressError`.

        Raises:
            TypeError: The store has no leases.
        """
        return self._run(self._being_run())

    def redact(self, match: Match, with_: str = "[redacted]", **misplaced: Unpack[NoFields]) -> Redaction:
        """Redact a text in the whole conversation; as `states.redact_state`, with all parts in the store.

        A turn that runs elsewhere is waited for, as `send` does. Bytes that the store keeps aside, because
        they could not be read, are redacted if they can be read now. Else they are deleted: they cannot be
        searched. The key stays as it is, and so do copies under other keys.

        Raises:
            StateError: The stored state cannot be read. `erase` deletes it.
            TurnInProgressError: A turn runs, and it did not end in time, or ``gate="reject"``.
        """
        refuse_misplaced("redact", misplaced)
        found: Redaction = self._work_off(self._redaction(match, with_))
        return found

    def export(self) -> dict[str, Any] | None:
        """Give all that is stored as JSON-able values, for the person it is about; None if nothing is.

        "state" is the result of `states.export_state`: the transcript with the archive, and the input of
        `states.import_state`. "set_aside" has the bytes that could not be read. The export is plain text,
        also of a sealed conversation.
        """
        return self._run(export_flow(self._settings))

    def erase(self, **misplaced: Unpack[NoFields]) -> int:
        """Delete everything that the store has of the conversation: its row, its parts, its lease, and bytes
        kept aside because they could not be read. Gives the number of rows, without parts; 0 if there was
        nothing.

        A turn that runs elsewhere is waited for, as `send` does. Copies under other keys stay. A database may
        keep deleted rows (logs, free pages, backups); this package does not remove them.

        Raises:
            TypeError: The store cannot delete, or cannot list.
            TurnInProgressError: A turn runs, and it did not end in time, or ``gate="reject"``.
        """
        refuse_misplaced("erase", misplaced)
        found: int = self._work_off(self._erasure())
        return found

    def state(self) -> bytes | None:
        """Give the whole conversation as one blob, its archive and media in it; None if nothing is stored.

        With ``parts="store"`` the `state` of a result has no archive: a turn does not load it. Use this
        method for an export, or for a chat without this store.
        """
        found = self._run(self._loading(is_whole=True))
        return None if found is None else bytes(found.blob)

    def _work_off(self, work: KeptPrivacy) -> Any:
        on_event = self._ports.on_event
        steps = KeptSteps(work, self._ports.drive, on_event)
        while (told := steps.step()) is not None:
            notify(on_event, told)
        return steps.result

    def _found(self, *, with_results: bool = False) -> Stored | None:
        return self._run(self._loading(with_results=with_results))

    def _turn(self, work: KeptTurn, plan: Plan) -> Turn[Any]:
        on_event = plan.options.on_event
        turn: Turn[Any] = self._ports.open(work, plan, lambda drive: KeptSteps(work, drive, on_event))
        return turn

    def _run(self, flow: Flow[T]) -> T:
        steps = self._ports.drive(flow)
        while (told := steps.step()) is not None:
            notify(self._ports.on_event, told)
        result: T = steps.result
        return result
