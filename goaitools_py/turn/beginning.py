"""The beginning of a turn: from the given blob and messages to a state that is ready for the first request.

Owns: reading the blob, recognising a repeated turn, closing the open turn of an earlier call, and taking
messages and answers in. Must never know: a model's reply, or the steps after the first request.

::

    load -> recognise (the turn_id) -> answered_before -> admit

`admit` enters everything into the books in one step, `Ledger.begin`. Before that step the turn has not begun,
and a failure leaves the given blob as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..backends.capabilities import capabilities
from ..base.values import replace
from ..history.rewrite.repair import checked
from ..open_turn import inbox, journal, meter, steps, turn_ids
from ..open_turn import steps as failed
from ..open_turn.attempts import ANSWERS, asked_in_words, without_problems
from ..open_turn.given_answers import late_answers, with_answers, with_inner_answers
from ..open_turn.turn_ids import StoredReply
from ..output.spec import SHORT_TOKENS
from ..state.records import UNKNOWN_MARK, Meta, models_with
from ..state.segments import check_whole
from ..state.state import (
    ConversationState,
    check_revision,
    closed_turns,
    new_state,
    newest_number,
)
from ..types.errors import (
    NothingToResumeError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateInvalidError,
    StatePartMissingError,
    StateProviderError,
    StateSizeError,
    StateVersionError,
    TurnConflictError,
)
from ..types.messages import Message
from ..types.turn_warnings import WarningCode
from .convert_on_load import Converted, load_converted
from .ledger import Ledger
from .request import STICKY, Tools, Voice, voice_of
from .tool_reports import tell_left_out

__all__ = ["Beginning"]

_DAMAGED: Final = (StateFormatError, StateCorruptError, StateInvalidError)
"""The errors that `on_bad_state=None` answers with a fresh conversation. An unauthentic blob raises."""


class Beginning:
    """The input of one turn. It changes while the turn finds out whether it was begun before.

    Attributes:
        messages: The new messages; empty if the state has them already.
        answers: The answers that still count.
        tools: The tools, by name, once the turn was admitted.
        resumes: True if the turn continues the open turn of the state.
        key: The key of the turn in the state; None without a `turn_id`.
        converted: The conversion of the given state; None if its provider API is the turn's own.
    """

    def __init__(self, ledger: Ledger) -> None:
        plan = ledger.plan
        self._plan = plan
        self._ledger = ledger
        self.messages = plan.messages
        self.answers = plan.answers
        self.tools: Tools = {}
        self.resumes = plan.resume
        self.key: turn_ids.TurnKey | None = None
        self.converted: Converted | None = None

    # ------------------------------------------------------------------------------------- the blob

    def load(self) -> ConversationState:
        """The given state, or a fresh one if it cannot be used and the options allow that.

        Raises:
            StateError: The state cannot be used. Nothing is in the books.
        """
        plan, ledger = self._plan, self._ledger
        if not plan.blob:
            fresh = self._fresh()
            check_revision(fresh, ledger.options.min_revision)
            return fresh
        try:
            if plan.damage is not None:
                raise plan.damage
            state, self.converted = load_converted(plan)
            if self.converted is not None:
                ledger.warn("state_converted", self.converted.words())
            check_whole(state.segments)
            journal.check_journal(state, plan.dialect)
            return self._sound(state)
        except StateError as exc:
            exc.blob = exc.blob or plan.blob
            if plan.resume or not self._discards(exc):
                raise
            ledger.report.discarded, ledger.grew_from = exc, b""
            ledger.warn("state_discarded", _discarded(exc))
            return self._fresh()

    def _discards(self, exc: StateError) -> bool:
        """True if a fresh conversation begins in place of an unusable state."""
        options = self._ledger.options
        if isinstance(exc, StateProviderError):
            # The state is intact, but the chat is configured for another provider API. So a fresh
            # conversation begins only if the caller has asked for it.
            return options.on_foreign_state == "fresh"
        if options.on_bad_state == "raise" or isinstance(exc, (StateVersionError, StatePartMissingError)):
            # The state is intact: a worker with a newer release, or with the missing parts, can use it.
            return False
        if options.on_bad_state is None and (options.min_revision or not isinstance(exc, _DAMAGED)):
            return False  # `min_revision` refuses a missing state, so it must refuse an unreadable one, too
        _log_damage(exc)
        return True

    def _fresh(self) -> ConversationState:
        identity = self._ledger.options.conversation_id or self._plan.new_id()
        return new_state(self._plan.dialect.wire, id=identity, created=self._ledger.now.wall_ms)

    def _sound(self, state: ConversationState) -> ConversationState:
        """The state with a closed history that the provider accepts. A repair is a warning.

        The history is read only if its writer has not checked it already.
        """
        ledger = self._ledger
        compactor = ledger.options.compactor
        retention = None if compactor is None else ledger.retention(ledger.retained_bytes)
        sound, log = checked(state, self._plan.dialect, retention=retention)
        if log:
            ledger.tell_repaired(state, sound, log)
        return sound

    # ------------------------------------------------------------------------- a turn that came before

    def recognise(self, state: ConversationState) -> StoredReply | None:
        """Find out by its `turn_id` whether this turn was begun before.

        If so, the turn goes on from the state. If it is finished, its stored reply is returned.

        Raises:
            TurnConflictError: Other messages came with the same id.
        """
        plan, turn_id = self._plan, self._ledger.options.turn_id
        if turn_id is None or plan.resume:
            return None
        key = self.key = turn_ids.key_of(turn_id, plan.dialect.entries(plan.messages))
        said = turn_ids.said_under(state.meta, key)
        if said is None:
            return None
        if said != key.said:
            raise TurnConflictError("this turn_id was used for other messages; give each message its own")
        self.resumes, self.messages = True, ()
        if turn_ids.is_finished(state.meta, key):
            return turn_ids.stored_reply(state, key, plan.dialect)
        if turn_ids.is_unanswered(state.meta, key):
            self.messages = self._asked_again(state, key)
        return None

    def _asked_again(self, state: ConversationState, key: turn_ids.TurnKey) -> tuple[Message, ...]:
        """The messages for a repeated turn that failed before, and that a newer message closed.

        If its messages and the results of its tools are in the history, a reminder is enough. If a cut
        removed them, the same messages are sent again.
        """
        for turn in closed_turns(state):
            if key.id in turn.record.facts.get(turn_ids.TURN_IDS_FACT, ()):
                return (inbox.reminder(self._plan.messages),)
        return self._plan.messages

    def answered_before(self, state: ConversationState) -> StoredReply | None:
        """Leave out answers to calls that have a result already: the first answer holds.

        If no other answer is left, the reply that followed the first answer is returned.
        """
        if not self.answers:
            return None
        self.answers = with_inner_answers(state, self.answers)
        if not self.answers and journal.is_waiting(state):
            return self._still_waiting(state)
        ledger, dialect = self._ledger, self._plan.dialect
        late = late_answers(state, self.answers, dialect, max_bytes=ledger.options.max_tool_result_bytes)
        if late is None:
            return None
        if late.other:
            ledger.warn(
                "answer_ignored",
                f"{late.other} answers came for calls that had other results already; the first ones hold",
            )
        self.answers = {id: answer for id, answer in self.answers.items() if id not in late.ids}
        if self.answers:
            return None
        if late.reply is not None and not late.in_open_turn:
            return late.reply
        if journal.is_waiting(state):
            return self._still_waiting(state)
        if state.open is None and not state.inbox:
            return StoredReply(text="", status="truncated")
        return None

    def _still_waiting(self, state: ConversationState) -> StoredReply:
        return StoredReply(
            text=steps.reply_text(state, self._plan.dialect),
            status="awaiting_tools",
            number=newest_number(state),
        )

    # ------------------------------------------------------------------------------------- taking in

    def queue(self, state: ConversationState) -> ConversationState:
        """Put the messages into the inbox of a state with a waiting turn. The books then have that state."""
        ledger = self._ledger
        queued = steps.with_metadata(self._admitted(state), ledger.options.metadata)
        ledger.begin(state, queued, has_grown=False)
        ledger.identify(state.meta, state.meta.processed + 1)
        return queued

    def admit(self, state: ConversationState, *, denied: bool) -> Voice:
        """Close an open turn of an earlier call, take messages and answers in, and note changes.

        `denied`: True if a new message has denied the calls of a turn that waited for answers.

        Raises:
            ValueError: There is nothing to do, or an answer is for an unknown call.
            StateSizeError: An answer is too large for the state.
        """
        plan, ledger, dialect = self._plan, self._ledger, self._plan.dialect
        given = state
        left_open = state.open is not None and not self.resumes
        if left_open:
            # After a denial the turn is over. A failed turn is answered if its message comes again.
            status = "truncated" if denied else turn_ids.UNANSWERED
            if state.open is not None and ANSWERS in state.open.facts:
                state = without_problems(state)
            if ledger.options.keep_partial:
                state = steps.with_partial_said(state, dialect)
            state = self._sound(steps.close_turn(state, dialect, status=status))
            ledger.warn(
                "turn_closed", "the state held an unfinished turn; it was closed, and a new one began"
            )
        elif state.open is not None and ANSWERS in state.open.facts and state.inbox:
            state = without_problems(state)  # the turn checks its answer again
        unfailed = failed.without_failure(state)
        has_changed, state = left_open or unfailed is not given, unfailed
        is_new = inbox.has_unseen(state, self.messages) or ledger.has_appended
        if not (is_new or state.inbox or state.open is not None):
            raise _nothing_to_do(resume=plan.resume, left_open=left_open)
        voice, self.tools = voice_of(plan, state.meta)  # raises before `begin`, so the given blob stays
        answered = self._with_answers(state, has_changed) if self.answers else state
        admitted = self._admitted(answered)
        if plan.output is not None and not voice.output and plan.output.tool is None:
            admitted = asked_in_words(admitted, plan.output.words, dialect)
        ledger.context_window = plan.context_window or capabilities(voice.model).context_window
        ledger.begin(answered, admitted, has_grown=has_changed or answered is not state)
        if voice.notes:
            ledger.warn("settings_changed", _changed_settings(voice))
        state = self._marked(admitted, voice)
        ledger.identify(state.meta, state.meta.processed + 1)
        return voice

    def _with_answers(self, state: ConversationState, has_changed: bool) -> ConversationState:
        """The state with the answers in its journal."""
        ledger, plan = self._ledger, self._plan
        found = with_answers(
            state,
            self.tools,
            self.answers,
            ledger.options.deps,
            plan.dialect,
            ledger.room,
            max_bytes=ledger.options.max_tool_result_bytes,
        )
        if found.left_out is not None:
            tell_left_out(ledger, *found.left_out)
        if found.problem:
            ledger.begin(state, state, has_grown=has_changed)
            raise ledger.error(
                StateSizeError, f"{found.problem}; nothing was sent, the calls still wait: answer with less"
            )
        return found.state

    def _admitted(self, state: ConversationState) -> ConversationState:
        """The state with this turn's messages, their context and its id."""
        options, messages = self._ledger.options, self.messages
        is_redelivered = self.resumes and not self._plan.resume
        if options.context is not None and not is_redelivered:
            state, found = inbox.with_new_context(state, messages, options.context)
            messages = tuple(found)
        state = inbox.admit(state, messages, self._plan.dialect)
        if options.metadata and state.inbox:
            # Keep the metadata with the waiting messages, so that a resume need not give it again.
            said = {**state.meta.said, **options.metadata}
            state = replace(state, meta=msgspec.structs.replace(state.meta, said=said))
        if self.key is not None:
            state = replace(state, meta=turn_ids.begun(state.meta, self.key))
        return state

    def _id_of(self, state: ConversationState) -> str:
        """The conversation id. An unfinished turn keeps the state's id: the keys of its calls contain it.

        A blob of another writer may have no id. It gets one, because two blobs without an id would share the
        keys of their calls.
        """
        given, own = self._ledger.options.conversation_id, state.meta.id
        return (own if state.open is not None else "") or given or own or self._plan.new_id()

    def _marked(self, state: ConversationState, voice: Voice) -> ConversationState:
        """Note the digests of preamble, tools and model, and return the state, which the books have, too.

        A difference to the last request is a warning. Thinking that was signed over the old prefix is
        removed.
        """
        ledger, meta = self._ledger, state.meta
        marks = {
            "id": self._id_of(state),
            "family": self._plan.dialect.family,
            **voice.marks,
        }
        if meta.output != marks["output"] and meta.model and _is_told(meta, marks["output"]):
            ledger.warn("output_changed", "the format of the answer differs from the last turn's")
        changed: list[str] = []
        if meta.model and (meta.processed or state.open is not None):
            changed = [name for name in _CHANGES if getattr(meta, name) != marks[name]]
        for name in changed:
            if name == "preamble" and not marks[name]:
                ledger.warn("preamble_missing", "earlier turns had a preamble, this one has none")
            elif getattr(meta, name) != UNKNOWN_MARK:  # else a conversion changed it, and has its own warning
                ledger.warn(*_CHANGES[name])
        if meta.signed and (changed or (meta.unbound and state.open is None)):
            reason = f"the {' and '.join(changed)} changed" if changed else "what stands before it changed"
            # Do this before the new digests are noted: the archive needs the digests that were signed.
            ledger.state = state
            state = ledger.unsign(reason)
            meta = state.meta
        sticky = meta.sticky
        if ledger.options.settings:
            own = {k: v for k, v in ledger.options.settings.items() if k in STICKY}
            sticky = {k: v for k, v in {**sticky, **own}.items() if v is not None}
        carry = meta.carry
        if carry and "family" in changed:
            # A value that expires belongs to the server that gave it. No other server knows it.
            carry = {name: row for name, row in carry.items() if not row[1]}
        counted = meter.unanchored(meta) if changed else meta
        if not {"family", "model"}.isdisjoint(changed):
            counted = meter.elsewhere(counted)
            ledger.context_window = self._plan.context_window
        models = models_with(meta, marks["family"], marks["model"]) if changed else meta.models
        state = ledger.state = replace(
            state, meta=msgspec.structs.replace(counted, **marks, sticky=sticky, models=models, carry=carry)
        )
        return state


def _is_told(meta: Meta, output: str) -> bool:
    """True if a change of the answer's format needs a warning: the provider may lose a cached prefix."""
    if meta.output == UNKNOWN_MARK:
        return False  # the state was converted, and the conversion has its own warning
    return bool(meta.output and output) or meta.tokens >= SHORT_TOKENS


def _changed_settings(voice: Voice) -> str:
    return (
        f"settings that were not written for the model {voice.model!r}, which would refuse them: "
        f"{'; '.join(voice.notes)}"
    )


def _log_damage(exc: StateError) -> None:
    import logging  # not at the top: most turns do not log

    logging.getLogger("goaitools_py.state").error(
        "a stored conversation cannot be used, and a fresh one begins (%s, %d bytes): %s",
        type(exc).__name__,
        len(exc.blob),
        exc,
        extra={"event": "state.discarded", "error": type(exc).__name__, "blob_bytes": len(exc.blob)},
    )


def _discarded(exc: StateError) -> str:
    """The reason for a new conversation. A foreign state's own error would advise the option that is set."""
    if isinstance(exc, StateProviderError):
        return (
            f"the given state was written by {exc.found!r} and this chat uses {exc.expected!r}: a new "
            "conversation began; the old one is in the result's `discarded`"
        )
    return f"the given state could not be used, a fresh one began: {exc}"


def _nothing_to_do(*, resume: bool, left_open: bool) -> ValueError:
    if resume:
        return NothingToResumeError(
            "there is nothing to resume: nothing in the state is unfinished or waits for an answer; use "
            "chat_with_state with a message"
        )
    if left_open:
        return ValueError(
            "there is no new message, and the state holds an unfinished turn: finish it with resume"
        )
    return ValueError(
        "there is nothing new to answer: pass user=… or messages=…, or append to the state first"
    )


_CHANGES: Final[Mapping[str, tuple[WarningCode, str]]] = {
    "preamble": (
        "preamble_changed",
        "the system preamble differs from the last turn's; use context= for what changes",
    ),
    "tools": ("tools_changed", "the tools differ from the last turn's: the prompt cache starts over"),
    "model": ("model_changed", "the model differs from the last turn's"),
    "family": ("endpoint_changed", "the endpoint differs from the last turn's"),
}
