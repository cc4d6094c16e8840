"""The flow of a turn of a kept conversation.

Owns: the order of lease, load, turn and save, and which state is saved when a turn ends badly. Must never
know: an engine of a store, a socket, or which of the two drivers carries its effects out.

::

    take the lease -> load -> [ turn: each checkpoint is saved, if asked ] -> save -> give the lease back

The turn is the engine's own flow. Its effects are passed on, except the few that a store changes. A
checkpoint is saved. With checkpoints, the new messages are saved before the first request. The turn is
complete only after its save. An exit or a cancellation can end the flow, and then it cannot yield any more.
So `settle` is a second flow that saves.
"""

from __future__ import annotations

import dataclasses
import threading
from contextlib import suppress
from typing import Any, Final

from ...base.values import replace
from ...history.additions import append_messages, claim_waiting
from ...open_turn import turn_ids
from ...state.apart import whole
from ...state.records import digest8
from ...state.state import load_state
from ...turn.engine import TurnEngine
from ...turn.fallback import FallbackTurn, engine_of
from ...turn.flow import CallModel, CallTool, Checkpoint, Clock, Effect, Emit, Flow, Look, ReadParts
from ...turn.plan import Plan
from ...types.errors import (
    CheckpointError,
    StateConflictError,
    StateError,
    StoreCommitError,
    TurnError,
    TurnStoppedError,
)
from ...types.events import CheckpointReady, TurnCompleted
from ...types.messages import Message
from ...types.result import ChatResult
from ...types.turn_warnings import TurnWarning
from .branches import EditBranch
from .changes import Held, hold, save_held_flow
from .parts import later_whole, made_whole
from .row import DuplicateError, Row
from .row_calls import RowSettings
from .steering import Steering, StopWatch, take_in

__all__ = ["KeptTurn"]

MAX_RESTARTS: Final = 5
"""How often a turn begins anew because another worker saved before it had called anything."""


class _OvertakenError(Exception):
    """Another worker saved before this turn called a model or a tool: begin anew."""


class KeptTurn:
    """One turn of a kept conversation. `run` is its flow. If the flow was abandoned, `settle` does the rest.

    Attributes:
        is_settled: True once nothing is left to do.
        unsaved: The error that prevented the save of an abandoned turn.
    """

    def __init__(self, settings: RowSettings, plan: Plan, *, checkpoints: bool, held: Held) -> None:
        self._edits = plan.options.edit is not None
        self._row = Row(settings)
        self._held = held
        self._checkpoints = checkpoints
        self._stops = StopWatch(self._row) if settings.stop_every is not None else None
        # With checkpoints each start of a tool is saved too. So a turn needs no claims of its calls.
        # A reply that is read piece by piece can be stopped between two pieces.
        stream = plan.stream or self._stops is not None
        steers = settings.gate == "steer"
        self._plan = replace(
            plan,
            is_shared=True,
            checkpoints=checkpoints,
            claims=not checkpoints,
            stream=stream,
            titles=settings.auto_title,
            in_parts=settings.in_parts,
            steers=steers,
            claim=digest8(plan.new_id()) if settings.marks_waiting else "",
            # A fallback goes on with the messages in the inbox, and has to know them.
            fresh_own=digest8(plan.new_id()) if plan.fallbacks and plan.messages else "",
        )
        # A turn of another kind cannot answer for this one: with a requested type it waits. So does an edit.
        is_plain = not plan.resume and plan.output is None and not self._edits
        hands_over = steers and plan.messages and is_plain
        self._steering = Steering(self._row) if hands_over else None
        self._engine: TurnEngine | FallbackTurn | None = None
        self._appended: tuple[Message, ...] = ()
        self._known = self._stored = 0  # appended messages that the engine has, and that a save has stored
        self._lock = threading.Lock()
        self._given = b""
        self._end: bytes | None = None
        self._aside = ""
        self._branch = EditBranch(self._row)
        self._has_called = False
        self._has_saved = False
        self._is_noted = False
        self._is_repeat = False
        self.is_settled = False
        self.unsaved: Exception | None = None

    # ------------------------------------------------------------------------------ for the handle

    def snapshot(self) -> bytes:
        """Give the conversation as it is now: b"" before the load, the stored state after the save."""
        if self._end is not None:
            return whole(self._end)
        return whole(self._engine.snapshot()) if self._engine is not None else b""

    @property
    def event_ids(self) -> dict[str, str]:
        """The ids in each event of this turn; before the load, the conversation's id only."""
        if self._engine is None:
            return {"conversation_id": self._plan.options.conversation_id or ""}
        return self._engine.event_ids

    @property
    def taken_ids(self) -> tuple[str, ...]:
        """As `TurnEngine.taken_ids`."""
        return () if self._engine is None else self._engine.taken_ids

    @property
    def follows_turn(self) -> bool:
        """As `TurnEngine.follows_turn`."""
        return self._engine is not None and self._engine.follows_turn

    def append(self, *messages: Message) -> None:
        """As `TurnEngine.append`. A turn that begins anew gets the messages again."""
        # One lock with `_new_engine`: a message of another thread reaches each engine exactly once.
        with self._lock:
            if self._engine is not None:
                self._engine.append(*messages)
            else:
                self._plan.dialect.entries(messages)  # raises for messages that this provider API cannot take
            self._appended += messages

    def _new_engine(self, plan: Plan) -> TurnEngine | FallbackTurn:
        with self._lock:
            engine = self._engine = engine_of(plan)
            self._row.meta_of = engine.meta_of
            if rest := self._appended[self._stored :]:
                engine.append(*rest)
        return engine

    # --------------------------------------------------------------------------------- the turn

    def run(self) -> Flow[ChatResult[Any]]:
        """Run the turn, from the lease to the save."""
        self._plan.codec.check(self._plan.options.binding)
        try:
            result = yield from self._turn()
        except Exception as exc:
            if not (isinstance(exc, TurnError) or self._has_called or self._has_saved):
                yield from self._take_back()
            # After an exit this flow cannot yield any more: then `settle` gives the lease back.
            yield from self._row.release()
            self.is_settled = True
            made_whole(exc)
            if self.unsaved is not None and isinstance(exc, (TurnError, StateConflictError)):
                self._hold(exc.state, exc.base)
            raise
        yield from self._row.release()
        self.is_settled = True
        # After the release: a slow observer does not hold the lease.
        if self._plan.listening:
            known = self._engine
            of = {} if known is None else {**known.event_ids, "message_count": known.counts["message_count"]}
            yield Emit(TurnCompleted(result, **of))
        return result

    def _turn(self) -> Flow[ChatResult[Any]]:
        if self._steering is None:
            waited = yield from self._row.take_lease(self._plan.options.timeout)
        else:
            waited = yield from self._steering.wait(self._plan)
            self._plan = self._steering.plan
        # Under the lease: before it, the stop flag may be meant for another worker's turn.
        if self._stops is not None:
            yield from self._stops.begin()
        began = (yield Clock()).monotonic - waited
        for _ in range(MAX_RESTARTS):
            # The turn's options say how damage is handled. An edit may undo a cut, and needs the archive.
            yield from self._row.load(tolerates_damage=True, is_whole=self._edits)
            if self._held and (yield from self._save_held()):
                yield from self._row.load(tolerates_damage=True, is_whole=self._edits)
            if self._edits:
                self._branch.check_same_turns(self._given, self._plan.options.turn_id)
            # An engine from before a restart has not grown from this state: a save of it would lose what
            # another worker has added.
            self._engine = None
            # After a restart: what was moved aside before is not what is stored now.
            self._given, self._aside = self._row.stored, ""
            # The turn's `timeout` bounds the wait for the lease, the loads, and the restarts.
            waited = (yield Clock()).monotonic - began
            engine = self._new_engine(self._begun(self._given, waited))
            try:
                result = yield from self._pass_on(engine)
            except _OvertakenError:
                yield from self._branch.drop()  # it lacks what the other worker has saved
                continue
            except Exception as exc:
                return (yield from self._note_failure(engine, exc))
            return (yield from self._note(engine, result))
        raise StateConflictError(
            f"other workers saved {MAX_RESTARTS} times before this turn could begin, and nothing was called: "
            "try again later"
        )

    def _hold(self, state: bytes, base: bytes) -> None:
        """Keep a turn that the store did not take, for a second send of its `turn_id`."""
        turn_id = self._plan.options.turn_id
        if turn_id is not None and not self._plan.resume and state not in (b"", base):
            hold(self._held, self._row.settings, turn_id, state, base)

    def _save_held(self) -> Flow[bool]:
        """Save what an earlier send of this `turn_id` has left. Then this turn finds it in the store."""
        plan = self._plan
        if plan.options.turn_id is None or plan.resume:
            return False
        return (
            yield from save_held_flow(
                self._held, self._row.settings, plan.options.turn_id, listening=plan.listening
            )
        )

    def _take_back(self) -> Flow[None]:
        """Take the message of a steering send back, if the send ends before its own turn has begun."""
        if self._steering is not None and self._steering.has_begun:
            with suppress(Exception):  # the error of the send is more important
                yield from self._steering.take_back()

    def _begun(self, blob: bytes, waited: float) -> Plan:
        """Make the plan of a turn on the stored state, and note how long it waited before."""
        return replace(self._plan, blob=blob, waited=waited, damage=self._row.damage)

    def _pass_on(self, engine: TurnEngine | FallbackTurn) -> Flow[ChatResult[Any]]:
        """Pass the engine's effects on, and do the effects that concern the store."""
        flow, stops = engine.run(), self._stops
        answer: Any = None
        failure: BaseException | None = None
        while True:
            # Before the effect is made: a checkpoint has at least these messages.
            self._known = len(self._appended)
            try:
                effect = flow.throw(failure) if failure is not None else flow.send(answer)
            except StopIteration as stop:
                result: ChatResult = stop.value
                return result
            except TurnStoppedError:
                # The error that was thrown in has no state. The engine's own error has the work so far.
                raise engine.stopped() from None
            answer = failure = None
            try:
                if type(effect) is Emit and type(effect.event) is CheckpointReady:
                    # An observer may keep the state, and has no store with its parts.
                    told = replace(effect.event, blob=whole(effect.event.blob))
                    effect = replace(effect, event=told)
                if stops is not None and (yield from stops.is_asked(effect)):
                    # The reader gets the piece that came. The effect behind it, the next read, is left out.
                    if type(effect) is Emit:
                        yield Emit(effect.event)
                    failure = TurnStoppedError("the turn is stopped here")
                    continue
            except BaseException as exc:
                # An exit during the look at the flag: the engine's flow has to keep what it received.
                failure = exc
                continue
            if type(effect) is Emit and type(effect.event) is TurnCompleted:
                continue  # the turn is complete after its save; `run` tells then
            is_save = type(effect) is Checkpoint and (effect.is_claim or self._checkpoints)
            if self._is_first(engine, effect, is_checkpoint=is_save):
                try:
                    yield from self._before_first_call(engine, effect)
                except BaseException:
                    # Not thrown into the flow: the engine would take it for the failure of its own call.
                    flow.close()
                    raise
                # Before the call: an error inside it may come after the model was asked.
                self._has_called = not is_save
            try:
                if type(effect) is Checkpoint:
                    yield from self._checkpoint(engine, effect)
                elif type(effect) is ReadParts:
                    answer = yield from self._row.read_parts(effect.names)
                elif type(effect) is Look:
                    answer = yield from take_in(self._row, effect)
                    if answer:
                        self._has_saved, self._stored = True, self._known
                        yield from self._tell_saved()
                else:
                    answer = yield effect
                    if stops is not None:
                        stops.note(answer)
            except BaseException as exc:
                # Also an exit: the engine's flow has to keep the text that it received before it ends.
                failure = exc

    def _is_first(self, engine: TurnEngine | FallbackTurn, effect: Effect, *, is_checkpoint: bool) -> bool:
        """Tell whether this is the first call, or a checkpoint before it (of a compaction, say)."""
        if self._has_called:
            return False
        # In a resume that has claimed messages, one of them may have been withdrawn since the load.
        claims = self._plan.claim != "" and engine.has_claimed
        if is_checkpoint:
            return (claims or not self._plan.resume) and not engine.is_over and not self._has_saved
        return type(effect) is CallModel or (type(effect) is CallTool and claims)

    def _before_first_call(self, engine: TurnEngine | FallbackTurn, effect: Effect) -> Flow[None]:
        try:
            # Before the model is paid: here the turn can still fail, or begin anew. A store of parts sees
            # here that another worker has saved.
            yield from self._set_aside(engine)
        except StateConflictError as exc:
            raise _OvertakenError from exc
        if engine.has_edited:
            yield from self._branch.keep(self._given)
        if engine.is_only_asked:
            # The stored history stays until the provider takes the new message.
            claim, settings = self._plan.claim, self._row.settings
            if claim and engine.has_claimed and self._row.mine == self._given:
                # Only with their marks: else a message could be withdrawn while the model reads it.
                yield from self._save_first(
                    claim_waiting(self._given, claim, codec=settings.codec, binding=settings.binding)
                )
            return
        if self._has_saved:  # a tool may have run, so the turn cannot begin anew
            return
        if self._checkpoints:
            self._known = len(self._appended)
            first = engine.snapshot()
        elif type(effect) is Checkpoint:
            first = effect.blob  # the turn continues another worker's turn, and claims its calls
        elif self._plan.claim and engine.has_claimed:
            self._known = len(self._appended)
            first = engine.snapshot()
        else:
            return
        self._branch.is_needed = True
        yield from self._save_first(first)
        self._stored = self._known
        yield from self._tell_saved()

    def _save_first(self, first: bytes) -> Flow[None]:
        """Save a state before anything is called."""
        row = self._row
        if row.stored != row.mine:
            raise _OvertakenError
        try:
            # No rebase: nothing was called, so the turn begins anew on the newer state.
            yield from row.commit(first, most=0, is_paid=False)
        except StateConflictError as exc:
            raise _OvertakenError from exc
        if row.stored != row.mine and self._plan.options.turn_id is not None:
            raise _OvertakenError  # the save got no answer but was done, and another worker continued from it

    def _set_aside(self, engine: TurnEngine | FallbackTurn) -> Flow[None]:
        # Before the save that overwrites these bytes: a crash in between loses no byte.
        if engine.discarded is not None and not self._aside:
            self._aside = yield from self._row.set_aside()

    def _checkpoint(self, engine: TurnEngine | FallbackTurn, effect: Checkpoint) -> Flow[None]:
        """Save a blob, if this conversation saves it. Only then give it to the caller's own callback."""
        # `_note` saves the end of the turn, with its own errors.
        if effect.is_claim or (self._checkpoints and not engine.is_over):
            yield from self._save(effect.blob)
        if effect.keep is not None:
            yield replace(effect, blob=whole(effect.blob))

    def _save(self, blob: bytes) -> Flow[None]:
        """Save the state of a turn that is not at its end. Raises if another worker had a turn meanwhile."""
        self._branch.is_needed = True
        yield from self._row.commit(blob, is_there=self._is_there)
        self._has_saved, self._stored = True, self._known
        yield from self._tell_saved()

    def _tell_saved(self) -> Flow[None]:
        if self._plan.listening and self._engine is not None:
            yield from self._row.tell({**self._engine.event_ids, **self._engine.counts})

    # ---------------------------------------------------------------------------------- the end

    def _note(self, engine: TurnEngine | FallbackTurn, result: ChatResult) -> Flow[ChatResult[Any]]:
        """Save a turn that succeeded."""
        row = self._row
        yield from self._set_aside(engine)
        is_unasked = self._is_unasked(engine)
        if is_unasked:  # if this fails, nothing is saved
            yield from self._branch.keep(self._given)
        self._branch.is_needed = True
        is_there = self._is_there_for_edit if is_unasked else self._is_there
        try:
            stored = yield from row.commit(result.state, is_there=is_there, is_last=True)
        except DuplicateError:
            return (yield from self._repeat())
        except Exception as exc:
            # After an exit, `settle` saves instead, and `commit` first looks for the save that was sent.
            self._is_noted = True
            if is_unasked and isinstance(exc, StateConflictError):
                yield from self._branch.drop()
                raise
            if isinstance(exc, StateConflictError) and self._is_stored(result):
                return self._uncut(result)
            self.unsaved = exc  # if the turn is cancelled before it can raise this, `settle` must tell it
            if isinstance(exc, StateConflictError):
                raise self._conflict(exc, result.state, result.text) from exc
            raise self._not_taken(exc, result) from exc
        self._is_noted, self._end = True, stored
        yield from self._tell_saved()
        warnings = (*result.warnings, *self._warnings())
        return dataclasses.replace(result, state=later_whole(stored), warnings=warnings)

    def _is_stored(self, result: ChatResult) -> bool:
        """True if a checkpoint has saved the whole turn already. Then only the cut after it was not saved."""
        mine, plan = self._row.mine, self._plan
        if not mine or result.compaction is None:
            return False
        kept, whole = (
            load_state(blob, codec=plan.codec, binding=plan.options.binding) for blob in (mine, result.state)
        )
        return kept.open is None is whole.open and kept.meta.processed == whole.meta.processed

    def _uncut(self, result: ChatResult) -> ChatResult:
        """Give the result of a turn that is stored without its cut; another worker's turn may follow it."""
        self._end = self._row.stored
        why = "another worker had a turn meanwhile, and the history stays as it is"
        report = result.compaction
        if report is not None:
            report = replace(report, outcome="failed", reason=why)
        warnings = (*result.warnings, TurnWarning("compaction_failed", why), *self._warnings())
        return dataclasses.replace(result, state=later_whole(self._end), compaction=report, warnings=warnings)

    def _note_failure(self, engine: TurnEngine | FallbackTurn, exc: Exception) -> Flow[ChatResult[Any]]:
        """Save the state of a turn that failed, and raise its error. If another worker has finished the same
        turn meanwhile, give that worker's result instead."""
        if isinstance(exc, CheckpointError) and isinstance(exc.__cause__, DuplicateError):
            return (yield from self._repeat())
        stops = self._stops if isinstance(exc, TurnStoppedError) else None
        row = self._row
        try:
            if not (self._has_called or self._has_saved):  # a save without an answer may have been done
                yield from row.find_sent(self._is_there)
            new = self._left_by(engine, exc)
            # Only before a save: a turn that changes nothing leaves the unreadable bytes in their row.
            if new != row.mine:
                yield from self._set_aside(engine)
                if new != self._given and engine.has_edited:
                    yield from self._branch.keep(self._given)
                    self._branch.is_needed = True
            stored = yield from row.commit(new, is_there=self._is_there, is_last=stops is None)
        except DuplicateError:
            return (yield from self._repeat())
        except Exception as why:
            self._is_noted = True
            if self._lacks_branch(engine):
                raise why from exc  # nothing was called, and nothing is saved: the edit can be sent again
            self.unsaved = why
            if not isinstance(exc, TurnError):
                exc.add_note(f"the state of this turn could not be saved ({type(why).__name__})")
                raise exc from exc.__cause__
            if isinstance(exc, CheckpointError) and isinstance(why, StateConflictError):
                raise self._conflict(why, exc.state, exc.text) from exc
            exc.unsaved, exc.state, exc.base = why, row.timed(exc.state), row.mine
            raise exc from exc.__cause__
        self._is_noted, self._end = True, stored
        if not engine.has_edited or new in (b"", self._given):
            yield from self._branch.drop()
        if stops is not None:
            # After the save: if this worker dies in between, the flag still says that no worker shall
            # continue the turn. Before the lease is given back: after that, the flag may be meant for the
            # next turn.
            with suppress(Exception):  # the next turn takes the flag away, too
                yield from stops.clear()
        yield from self._tell_saved()
        if isinstance(exc, CheckpointError) and isinstance(exc.__cause__, StateConflictError):
            text = f"{exc.__cause__}; no further tool was started, and err.state is what is stored"
            raise StateConflictError(text, state=stored, text=exc.text, base=row.mine) from exc
        if isinstance(exc, TurnError):
            exc.state = stored
            exc.warnings = (*exc.warnings, *self._warnings())
        raise exc from exc.__cause__

    def _is_unasked(self, engine: TurnEngine | FallbackTurn) -> bool:
        """True if the turn has edited the conversation, and the new message only waits."""
        return engine.has_edited and not self._has_called

    def _lacks_branch(self, engine: TurnEngine | FallbackTurn) -> bool:
        """True if the turn has edited the conversation, and there is no copy from before the edit. A later
        save of its state would lose the messages that the edit took out."""
        return engine.has_edited and not self._branch.is_kept

    def _left_by(self, engine: TurnEngine | FallbackTurn, exc: Exception) -> bytes:
        """Choose the state to store after a failure: the stored one if the turn has not begun."""
        row = self._row
        if isinstance(exc, TurnError):
            new = exc.state
        elif self._has_called and engine.has_acted:
            new = engine.snapshot()
        elif self._has_called or self._has_saved:
            return row.mine
        else:
            new = self._given
        if new in (b"", self._given):
            # A checkpoint may have stored a message before the provider refused it. The message has to go, or
            # each later turn would send it again.
            if row.mine in (b"", self._given):
                return row.mine
            return row.taken_back(b"" if self._aside else new)
        return new

    def _is_there(self, blob: bytes) -> bool:
        """Tell whether another worker's state contains this turn, finished."""
        # This worker may have saved it itself: then the save is of a turn for later messages.
        return self._has_finished(blob) and not self._has_finished(self._row.mine)

    def _is_there_for_edit(self, blob: bytes) -> bool:
        """As `_is_there`. Raises if another worker has had a turn: an edit is not put behind it."""
        self._branch.check_same_turns(self._given, self._plan.options.turn_id)
        return self._is_there(blob)

    def _has_finished(self, blob: bytes) -> bool:
        plan = self._plan
        if plan.options.turn_id is None or plan.resume or not blob:
            return False
        try:
            meta = load_state(blob, codec=plan.codec, binding=plan.options.binding).meta
        except StateError:
            return False
        key = turn_ids.key_of(plan.options.turn_id, plan.dialect.entries(plan.messages))
        return turn_ids.said_under(meta, key) == key.said and turn_ids.is_finished(meta, key)

    def _repeat(self) -> Flow[ChatResult[Any]]:
        """Give the reply that another worker got for the same turn, from the stored state."""
        row = self._row
        # This worker knows the other worker's state now. Appended messages are added to it.
        row.mine = row.stored
        engine = self._new_engine(replace(self._plan, blob=row.stored))
        # Not noted yet: if the reader leaves here, `settle` still has to store the appended messages.
        self._is_repeat, self._end = True, row.stored
        result = yield from self._pass_on(engine)
        if result.state != row.mine:  # messages were appended meanwhile: they wait behind that turn
            return (yield from self._note(engine, result))
        self._is_noted = True
        return dataclasses.replace(result, state=later_whole(result.state))

    def _append_behind(self) -> Flow[None]:
        """Store the messages that were appended to this turn behind another worker's turn of the same id."""
        row, plan = self._row, self._plan
        row.mine = self._end = row.stored
        if rest := self._appended[self._stored :]:
            now = yield Clock()
            grown = append_messages(
                row.stored,
                rest,
                plan.dialect,
                codec=plan.codec,
                binding=plan.options.binding,
                fresh_id=plan.new_id(),
                now_ms=now.wall_ms,
                min_revision=None,
            )
            self._end = yield from row.commit(grown, is_last=True)

    def _conflict(self, exc: StateConflictError, state: bytes, text: str) -> StateConflictError:
        return StateConflictError(
            f"{exc}; this turn is not in the store, but in err.state",
            state=self._row.timed(state),
            text=text,
            base=self._row.mine,
        )

    def _not_taken(self, exc: Exception, result: ChatResult) -> StoreCommitError:
        error = StoreCommitError(
            f"the turn is complete, but the store did not save it ({type(exc).__name__}): "
            "conversation.commit(err) tries again; the reply is in err.text, the whole turn in err.state",
            state=self._row.timed(result.state),
            text=result.text,
            usage=result.usage,
            tool_log=result.tool_log,
            retryable=True,
            warnings=(*result.warnings, *self._warnings()),
            discarded=result.discarded,
            bill=result.bill,
        )
        error.unsaved, error.base = exc, self._row.mine
        return error

    def _warnings(self) -> tuple[TurnWarning, ...]:
        found: tuple[TurnWarning, ...] = ()
        if self._aside:
            where = (
                f"the stored state could not be used: it is kept under this key with {self._aside!r} added"
            )
            found += (TurnWarning("state_moved", where),)
        if self._branch.end:
            where = f"the conversation before the edit is kept under this key with {self._branch.end!r} added"
            found += (TurnWarning("branch_kept", where),)
        return found

    def settle(self) -> Flow[None]:
        """Finish an abandoned turn: save it, and give the lease back."""
        engine = self._engine
        if engine is not None and not self._is_noted:
            try:
                yield from self._save_rest(engine)
            except Exception as exc:
                self.unsaved = exc
                is_refused = isinstance(exc, StateConflictError) and self._is_unasked(engine)
                with suppress(Exception):  # the lease is given back in any case
                    if not (is_refused or self._lacks_branch(engine)):
                        self._hold(whole(engine.snapshot()), whole(self._row.mine))
            # After the save: if an exit interrupts it, `settle` may run once more, and has to save.
            self._is_noted = True
        if engine is None:
            yield from self._take_back()
        yield from self._row.release()
        self.is_settled = True
        # Last: the lease is free by now, and an exit out of an observer does not repeat the save.
        yield from self._tell_saved()

    def _save_rest(self, engine: TurnEngine | FallbackTurn) -> Flow[None]:
        if self._is_repeat:
            yield from self._append_behind()
            return
        engine.release()
        new = engine.snapshot()
        # A save that adds nothing would only make other workers rebase.
        if new == self._row.mine or new == self._given:
            return
        is_unasked = self._is_unasked(engine)
        is_there = self._is_there_for_edit if is_unasked else self._is_there
        try:
            yield from self._set_aside(engine)
            if engine.has_edited:
                yield from self._branch.keep(self._given)
            self._end = yield from self._row.commit(new, is_there=is_there, is_last=True)
        except DuplicateError:
            yield from self._append_behind()
        except StateConflictError:
            if is_unasked:
                yield from self._branch.drop()
            raise
