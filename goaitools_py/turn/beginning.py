"""The beginning of a turn: from the given blob and messages to a state that is ready for the first request.

Owns: reading the blob, recognising a repeated turn, closing the open turn of an earlier call, and taking
messages and answers in. Must never know: a model's reply, or the steps after the first request.

::

    load -> came_before (the turn_id, late answers) -> queue, or deny if calls wait -> admit

`admit` enters everything into the books in one step, `Ledger.begin`. Before that step the turn has not begun,
and a failure leaves the given blob as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..backends.capabilities import capabilities
from ..base.values import replace
from ..history.rewrite.repair import checked
from ..open_turn import acts, inbox, journal, steps
from ..open_turn.attempts import ANSWERS, without_problems
from ..open_turn.given_answers import with_answers
from ..open_turn.turn_ids import StoredReply, TurnKey, key_of
from ..output import SHORT_TOKENS
from ..state.records import UNKNOWN_MARK, Meta
from ..state.segments import check_whole
from ..state.state import (
    ConversationState,
    check_revision,
    load_state,
    new_state,
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
from ..types.turn_warnings import WarningCode
from .convert_on_load import Converted, converted
from .ledger import Ledger
from .recall import keeping_of
from .request import STICKY, Tools, Voice, voice_of, words_of
from .tool_reports import tell_left_out, tell_not_kept

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
        state: The given state, without the messages of this turn; see `load`.
    """

    state: ConversationState

    def __init__(self, ledger: Ledger) -> None:
        plan = ledger.plan
        self._plan = plan
        self._ledger = ledger
        self.messages = plan.messages
        self.answers = plan.answers
        self.tools: Tools = {}
        self.resumes = plan.resume
        self._is_known = False
        self.key: TurnKey | None = None
        self.converted: Converted | None = None
        self._has_denied = False
        self._unedited: ConversationState | None = None

    # ------------------------------------------------------------------------------------- the blob

    def load(self) -> None:
        """Load the given state, or make a fresh one if it cannot be used and the options allow that.

        Raises:
            StateError: The state cannot be used. Nothing is in the books.
        """
        plan, ledger = self._plan, self._ledger
        if not plan.blob:
            self.state = self._fresh()
            check_revision(self.state, ledger.options.min_revision)
            return
        try:
            if plan.damage is not None:
                raise plan.damage
            self._read()
            check_whole(self.state.segments)
            journal.check_journal(self.state, plan.dialect)
            self._repair()
        except StateError as exc:
            exc.blob = bytes(exc.blob or plan.blob)
            if plan.resume or not self._discards(exc):
                raise
            ledger.report.discarded, ledger.grew_from = exc, b""
            ledger.warn("state_discarded", _discarded(exc))
            self.state = self._fresh()

    def _read(self) -> None:
        """Read the given blob, and convert the state if it is of another provider API."""
        plan, options = self._plan, self._ledger.options
        try:
            self.state = load_state(
                plan.blob,
                wire=plan.dialect.wire,
                codec=plan.codec,
                binding=options.binding,
                min_revision=options.min_revision,
            )
            return
        except StateProviderError as error:
            foreign = error
        # Outside of the handler: inside it an error of the conversion would get this one as its context.
        self.state, self.converted = converted(plan, foreign)
        self._ledger.warn("state_converted", self.converted.words())

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

    def _repair(self) -> None:
        """Give the state a closed history that the provider accepts. A repair is a warning.

        The history is read only if its writer has not checked it already.
        """
        ledger = self._ledger
        compactor = ledger.options.compactor
        retention = None if compactor is None else ledger.retention(ledger.retained_bytes)
        given = self.state
        self.state, log = checked(given, self._plan.dialect, retention=retention)
        if log:
            ledger.tell_repaired(given, self.state, log)

    # ------------------------------------------------------------------------- a turn that came before

    def came_before(self) -> StoredReply | None:
        """Find the reply to return at once: of a finished turn, or behind answers that came too late.

        If the turn was begun before and is not finished, it goes on from the state.

        Raises:
            TurnConflictError: Other messages came with the same id.
        """
        plan, ledger = self._plan, self._ledger
        # The `turn_id` before the answers: a finished turn gives its stored reply, whatever the state waits
        # for now.
        if ledger.options.turn_id is not None and not plan.resume:
            try:
                known = acts.recognise(
                    self.state,
                    ledger.options.turn_id,
                    plan.messages,
                    plan.dialect,
                    is_edit=ledger.options.edit == ledger.options.turn_id,
                )
            except TurnConflictError:
                if ledger.options.edit != ledger.options.turn_id:
                    raise
                # The message is said anew under its own id, which names the new one from now on.
                known = acts.Recognised(
                    key=key_of(ledger.options.turn_id, plan.dialect.entries(plan.messages)),
                    messages=plan.messages,
                )
            self.key, self.messages = known.key, known.messages
            # If its messages still wait, an open turn is another one: it is closed, as before a new message.
            self._is_known, self.resumes = known.is_known, known.is_known and not known.waits
            if known.reply is not None:
                return known.reply
        if ledger.options.edit is not None and not self.resumes:
            self._edit(ledger.options.edit)
        if not self.answers:
            return None
        most = ledger.options.max_tool_result_bytes
        found = acts.sort_answers(self.state, self.answers, plan.dialect, max_bytes=most)
        if found.ignored:
            ledger.warn(
                "answer_ignored",
                f"{found.ignored} answers came for calls that had other results already; the first ones hold",
            )
        self.answers = found.answers
        return found.reply

    def _edit(self, edit: int | str) -> None:
        """Take the message that the turn replaces out of the state, and everything after it.

        Raises:
            EditError: The message cannot be replaced. Nothing is in the books.
        """
        from ..history.branch import before_message  # not at the top: most turns do not edit

        if not self.messages:
            raise ValueError("edit= needs the new message: pass user=… or messages=…")
        plan, self._unedited = self._plan, self.state
        state = before_message(
            self.state, edit, plan.dialect, codec=plan.codec, binding=self._ledger.options.binding
        )
        self.state = state if self.key is None else acts.without_id(state, self.key)

    # ------------------------------------------------------------------------------------- taking in

    def queue(self) -> None:
        """Put the messages into the inbox of a state with a waiting turn. The books then have that state."""
        ledger = self._ledger
        begun = self._begun(self.state)
        queued = steps.with_metadata(begun.state, ledger.options.metadata)
        ledger.begin(replace(begun, state=queued))
        ledger.identify(self.state.meta, self.state.meta.processed + 1)

    def deny(self) -> None:
        """Deny the calls that the turn waits for: a new message came in place of the answers."""
        self.state, self._has_denied = journal.deny_waiting(self.state), True

    def admit(self) -> Voice:
        """Close an open turn of an earlier call, take messages and answers in, and note changes.

        Raises:
            ValueError: There is nothing to do, or an answer is for an unknown call.
            StateSizeError: An answer is too large for the state.
        """
        plan, ledger = self._plan, self._ledger
        loaded = self.state
        left_open = loaded.open is not None and not self.resumes
        if left_open:
            self._close_earlier()
        elif loaded.open is not None and ANSWERS in loaded.open.facts and loaded.inbox:
            self.state = without_problems(loaded)  # the turn checks its answer again
        given = self.state = steps.without_failure(self.state)
        if plan.claim and given.inbox:
            # With the claim stored before the first request, the messages cannot be withdrawn while the
            # model reads them.
            given = self.state = inbox.claimed(given, plan.claim)
        has_grown = left_open or given is not loaded
        if not (acts.has_work(given, self.messages) or ledger.has_appended):
            raise _nothing_to_do(resume=plan.resume, left_open=left_open)
        # Everything that may raise for a mistake of the caller comes before `begin`: the given blob is then
        # still the state, and the same call can be made again without the mistake.
        voice, self.tools = voice_of(plan, given.meta)
        if self.answers:
            self.state = self._with_answers(has_grown)
        begun = self._begun(
            self.state,
            words=words_of(plan, voice),
            has_grown=has_grown or self.state is not given,
        )
        if plan.claim:  # an event of the turn's own can be withdrawn, too
            begun = replace(begun, state=inbox.claimed(begun.state, plan.claim))
        ledger.context_window = plan.context_window or capabilities(voice.model).context_window
        ledger.begin(begun)
        if voice.notes:
            ledger.warn("settings_changed", _changed_settings(voice))
        self._mark(voice)
        ledger.identify(ledger.state.meta, ledger.state.meta.processed + 1)
        return voice

    def _close_earlier(self) -> None:
        """Close the open turn of an earlier call."""
        ledger = self._ledger
        keep_partial = ledger.options.keep_partial
        self.state = acts.close_earlier(
            self.state, self._plan.dialect, denied=self._has_denied, keep_partial=keep_partial
        )
        self._repair()
        ledger.warn("turn_closed", "the state held an unfinished turn; it was closed, and a new one began")

    def _with_answers(self, has_grown: bool) -> ConversationState:
        """The state with the answers in its journal."""
        ledger, plan = self._ledger, self._plan
        found = with_answers(
            self.state,
            self.tools,
            self.answers,
            ledger.options.deps,
            plan.dialect,
            ledger.room,
            max_bytes=ledger.options.max_tool_result_bytes,
            keeping=keeping_of(ledger),
        )
        if found.not_kept is not None:
            tell_not_kept(ledger, *found.not_kept)
        if found.left_out is not None:
            tell_left_out(ledger, *found.left_out)
        if found.problem:
            ledger.begin(acts.begun(self.state, self.state, has_grown=has_grown))
            raise ledger.error(
                StateSizeError, f"{found.problem}; nothing was sent, the calls still wait: answer with less"
            )
        return found.state

    def _begun(self, state: ConversationState, *, words: str = "", has_grown: bool = False) -> acts.Begun:
        """The state with this turn's messages, their context and its id."""
        options = self._ledger.options
        is_redelivered = self._is_known and not self._plan.resume
        begun = acts.begin(
            state,
            self.messages,
            self._plan.dialect,
            # The state has the context of a redelivered message already, perhaps with that message.
            context=None if is_redelivered else options.context,
            metadata=options.metadata,
            key=self.key,
            turn=self._plan.fresh_own if self.key is None else self.key.id,
            is_shared=self._plan.is_shared,
            words=words,
            has_grown=has_grown,
        )
        if self._plan.titles and not (state.meta.title or state.meta.processed or state.open):
            begun = replace(begun, state=acts.titled(begun.state, self.messages))
        return begun if self._unedited is None else replace(begun, unedited=self._unedited)

    def _mark(self, voice: Voice) -> None:
        """Note the digests of preamble, tools and model.

        A difference to the last request is a warning. Thinking that was signed over the old prefix is
        removed.
        """
        ledger, plan, meta = self._ledger, self._plan, self._ledger.state.meta
        is_open = ledger.state.open is not None
        # An unfinished turn keeps the state's id: the keys of its calls contain it. A blob of another writer
        # may have no id. It gets one: two blobs without an id would share the keys of their calls.
        id = (meta.id if is_open else "") or ledger.options.conversation_id or meta.id or plan.new_id()
        marks = {"id": id, "family": plan.dialect.family, **voice.marks}
        if meta.output != marks["output"] and meta.model and _is_told(meta, marks["output"]):
            ledger.warn("output_changed", "the format of the answer differs from the last turn's")
        changed = acts.changed_marks(ledger.state, marks)
        for name in changed:
            if name == "preamble" and not marks[name]:
                ledger.warn("preamble_missing", "earlier turns had a preamble, this one has none")
            elif getattr(meta, name) != UNKNOWN_MARK:  # else a conversion changed it, and has its own warning
                ledger.warn(*_CHANGES[name])
        if meta.signed and (changed or (meta.unbound and not is_open)):
            reason = f"the {' and '.join(changed)} changed" if changed else "what stands before it changed"
            # Before the new digests are noted: the archive needs the digests that were signed.
            ledger.unsign(reason)
        if "family" in changed or "model" in changed:
            ledger.context_window = plan.context_window
        own = ledger.options.settings
        sticky = {name: value for name, value in own.items() if name in STICKY} if own else None
        ledger.state = acts.mark(ledger.state, marks, changed, sticky=sticky)


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
