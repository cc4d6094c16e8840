"""What is done with a conversation that is kept in a store: turns, appends, cuts, forks.

Owns: the order of lease, load, turn and save, and what is saved when a turn ends badly. Must never know: an
engine of a store, a socket, or which colour carries its effects out.

::

    take the lease -> load -> [ turn: each checkpoint is saved, if asked ] -> save -> give the lease back

The turn is the engine's own flow. Its effects are passed on, but for the few that a store changes: a
checkpoint is saved, before the first request so is what was said, and the turn is complete once it is saved.
Where an exit or a cancellation ends the flow, it cannot yield any more: `settle` is the flow that then saves.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable
from typing import Any, Final

from ..errors import (
    CheckpointError,
    CompactionError,
    StateConflictError,
    StateError,
    StoreCommitError,
    TurnError,
)
from ..events import Appended, TurnCompleted
from ..history.branch import fork_state, rewind_state
from ..history.info import refs_of
from ..messages import Message
from ..result import ChatResult, CompactionReport, TurnWarning
from ..state.reseal import rewrap
from ..state.state import dump_state, load_state, new_state
from ..turn import turn_ids
from ..turn.engine import Plan, TurnEngine
from ..turn.flow import CallModel, Clock, Effect, Emit, Flow, Invoke
from ..values import replace
from .row import DuplicateError, Row, RowSettings

__all__ = [
    "KeptCompaction",
    "KeptTurn",
    "append_flow",
    "commit_flow",
    "conversation_id",
    "fork_flow",
    "reset_flow",
    "rewind_flow",
]

MAX_RESTARTS: Final = 5
"""How often a turn begins anew because somebody else saved before it had called anything."""

MAX_APPENDS: Final = 100
"""How often an append is tried: it fits onto everything, and somebody gets through each time."""


def conversation_id(key: str) -> str:
    """The conversation's id for a key; a state keeps ids of up to 256 characters."""
    return key if len(key) <= 256 else hashlib.sha256(key.encode()).hexdigest()


def _keep(blob: bytes) -> None:
    """Stands for `on_checkpoint` in a plan; `KeptTurn` does what it asks for and never calls it."""


def _claim(blob: bytes) -> None:
    """As `_keep`, for the plan's `claim`."""


class _OvertakenError(Exception):
    """Somebody else saved before anything was called: begin anew."""


class KeptTurn:
    """One turn of a kept conversation. `run` is its flow; `settle` what is left to do if that was given up.

    Attributes:
        is_settled: True once nothing is left to do.
        unsaved: What kept a turn that was given up from being saved.
    """

    def __init__(self, settings: RowSettings, plan: Plan, *, checkpoints: bool) -> None:
        self._row = Row(settings)
        self._user_keep = plan.options.on_checkpoint
        self._checkpoints = checkpoints
        if checkpoints:
            plan = replace(plan, is_shared=True, options=replace(plan.options, on_checkpoint=_keep))
        else:
            plan = replace(plan, is_shared=True, claim=_claim)
        self._plan = plan
        self._engine: TurnEngine | None = None
        self._appended: tuple[Message, ...] = ()
        self._lock = threading.Lock()
        self._given = b""
        self._end: bytes | None = None
        self._aside = ""
        self._has_called = False
        self._has_saved = False
        self._is_noted = False
        self.is_settled = False
        self.unsaved: Exception | None = None

    # ------------------------------------------------------------------------------ for the handle

    def snapshot(self) -> bytes:
        """The conversation at this instant; b"" before it was loaded, what is stored once it is saved."""
        if self._end is not None:
            return self._end
        return self._engine.snapshot() if self._engine is not None else b""

    def append(self, *messages: Message) -> None:
        """As `TurnEngine.append`; a turn that has to begin anew is given them again."""
        with self._lock:
            if self._engine is not None:
                self._engine.append(*messages)
            else:
                self._plan.dialect.entries(messages)  # what cannot be said is refused here
            self._appended += messages

    def _new_engine(self, plan: Plan) -> TurnEngine:
        with self._lock:
            engine = self._engine = TurnEngine(plan)
            if self._appended:
                engine.append(*self._appended)
        return engine

    # --------------------------------------------------------------------------------- the turn

    def run(self) -> Flow[ChatResult]:
        """The turn, from the lease to the save."""
        self._plan.codec.check(self._plan.options.binding)
        try:
            result = yield from self._turn()
        except Exception:
            yield from self._row.release()
            self.is_settled = True
            raise
        yield from self._row.release()
        self.is_settled = True
        if self._plan.listening:
            yield Emit(TurnCompleted(result, **(self._engine.of if self._engine is not None else {})))
        return result

    def _turn(self) -> Flow[ChatResult]:
        waited = yield from self._row.take_lease(self._plan.options.timeout)
        for _ in range(MAX_RESTARTS):
            yield from self._row.load()
            self._given = self._row.stored
            engine = self._new_engine(self._begun(self._given, waited))
            try:
                result = yield from self._pass_on(engine)
            except _OvertakenError:
                continue
            except Exception as exc:
                return (yield from self._note_failure(engine, exc))
            return (yield from self._note(engine, result))
        raise StateConflictError("others kept saving before this turn could begin, and nothing was called")

    def _begun(self, blob: bytes, waited: float) -> Plan:
        """The plan on what is stored, with the time that is left."""
        plan, options = self._plan, self._plan.options
        if options.timeout is not None and waited:
            options = replace(options, timeout=max(0.001, options.timeout - waited))
        return replace(plan, blob=blob, options=options)

    def _pass_on(self, engine: TurnEngine) -> Flow[ChatResult]:
        """The engine's flow, with a store under it."""
        flow = engine.run()
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect = flow.throw(failure) if failure is not None else flow.send(answer)
            except StopIteration as stop:
                result: ChatResult = stop.value
                return result
            answer = failure = None
            if type(effect) is Emit and type(effect.event) is TurnCompleted:
                continue  # it is, once it is saved
            asked, args = (effect.function, effect.args) if type(effect) is Invoke else (None, ())
            is_save = asked is _keep or asked is _claim
            if self._is_first(engine, effect, is_checkpoint=is_save):
                try:
                    yield from self._before_first_call(engine, effect)
                except BaseException:
                    flow.close()
                    raise
                self._has_called = not is_save
            try:
                if asked is _keep:
                    yield from self._checkpoint(engine, *args)
                elif asked is _claim:
                    yield from self._save(*args)
                else:
                    answer = yield effect
            except BaseException as exc:
                failure = exc

    def _is_first(self, engine: TurnEngine, effect: Effect, *, is_checkpoint: bool) -> bool:
        """Whether this is the first call, or a checkpoint before it (a compaction asks a model, say)."""
        if is_checkpoint:
            is_early = not self._plan.resume and not engine.is_over
            return is_early and not self._has_saved and not self._has_called
        return type(effect) is CallModel and not self._has_called

    def _before_first_call(self, engine: TurnEngine, effect: Effect) -> Flow[None]:
        yield from self._set_aside(engine)
        if self._has_saved:  # a tool may have run: the turn cannot begin anew
            return
        if self._checkpoints:
            first = engine.snapshot()
        elif type(effect) is Invoke:
            first = effect.args[0]  # a turn that goes on where another worker left it, and claims its calls
        else:
            return
        row = self._row
        try:
            yield from row.commit(first, most=0, is_paid=False)
        except StateConflictError as exc:
            raise _OvertakenError from exc
        if row.stored != row.mine and self._plan.options.turn_id is not None:
            raise _OvertakenError  # it was saved without an answer, and somebody went on from there
        yield from self._tell_saved()

    def _set_aside(self, engine: TurnEngine) -> Flow[None]:
        if engine.discarded is not None and not self._aside:
            self._aside = yield from self._row.set_aside()

    def _checkpoint(self, engine: TurnEngine, blob: bytes) -> Flow[None]:
        if not engine.is_over:  # the end of the turn is saved by `_note`, with its own errors
            yield from self._save(blob)
        if self._user_keep is not None:
            yield Invoke(self._user_keep, (blob,))

    def _save(self, blob: bytes) -> Flow[None]:
        """Save what a turn that goes on has come to. Raises if somebody else had a turn meanwhile."""
        yield from self._row.commit(blob, is_there=self._is_there)
        self._has_saved = True
        yield from self._tell_saved()

    def _tell_saved(self) -> Flow[None]:
        if self._plan.listening and self._engine is not None:
            yield from self._row.tell(self._engine.of)

    # ---------------------------------------------------------------------------------- the end

    def _note(self, engine: TurnEngine, result: ChatResult) -> Flow[ChatResult]:
        """Save a turn that succeeded."""
        row = self._row
        yield from self._set_aside(engine)
        try:
            stored = yield from row.commit(result.state, is_there=self._is_there)
        except DuplicateError:
            return (yield from self._repeat())
        except Exception as exc:
            self._is_noted = True
            if isinstance(exc, StateConflictError):
                if self._is_stored(result):
                    return self._uncut(result)
                raise self._conflict(exc, result.state, result.text) from exc
            raise self._not_taken(exc, result) from exc
        self._is_noted, self._end = True, stored
        yield from self._tell_saved()
        warnings = (*result.warnings, *self._warnings())
        return dataclasses.replace(result, state=stored, warnings=warnings)

    def _is_stored(self, result: ChatResult) -> bool:
        """True if a checkpoint had the whole turn already: what was not saved is the cut after it."""
        mine, plan = self._row.mine, self._plan
        if not mine or result.compaction is None:
            return False
        kept, whole = (
            load_state(blob, codec=plan.codec, binding=plan.options.binding) for blob in (mine, result.state)
        )
        return kept.open is None is whole.open and kept.meta.processed == whole.meta.processed

    def _uncut(self, result: ChatResult) -> ChatResult:
        """The result of a turn that is stored, with what somebody else did behind it, but not its cut."""
        self._end = self._row.stored
        why = "somebody else had a turn meanwhile, and the history stays as it is"
        report = result.compaction
        if report is not None:
            report = replace(report, outcome="failed", reason=why)
        warnings = (*result.warnings, TurnWarning("compaction_failed", why), *self._warnings())
        return dataclasses.replace(result, state=self._end, compaction=report, warnings=warnings)

    def _note_failure(self, engine: TurnEngine, exc: Exception) -> Flow[ChatResult]:
        """Save what a turn came to that failed, and raise. But if somebody else has finished the same turn
        meanwhile, theirs is the result."""
        if isinstance(exc, CheckpointError) and isinstance(exc.__cause__, DuplicateError):
            return (yield from self._repeat())
        row = self._row
        try:
            if not (self._has_called or self._has_saved):  # what was to be said may be stored all the same
                yield from row.find_sent(self._is_there)
            new = self._left_by(engine, exc)
            if new != row.mine:
                yield from self._set_aside(engine)
            stored = yield from row.commit(new, is_there=self._is_there)
        except DuplicateError:
            return (yield from self._repeat())
        except Exception as why:
            self._is_noted = True
            if not isinstance(exc, TurnError):
                exc.add_note(f"what the turn came to is not in the store ({type(why).__name__})")
                raise exc from exc.__cause__
            if isinstance(exc, CheckpointError) and isinstance(why, StateConflictError):
                raise self._conflict(why, exc.state, exc.text) from exc
            exc.unsaved, exc.state, exc.base = why, row.timed(exc.state), row.mine
            raise exc from exc.__cause__
        self._is_noted, self._end = True, stored
        yield from self._tell_saved()
        if isinstance(exc, CheckpointError) and isinstance(exc.__cause__, StateConflictError):
            text = f"{exc.__cause__}; no further tool was started, and err.state is what is stored"
            raise StateConflictError(text, state=stored, text=exc.text, base=row.mine) from exc
        if isinstance(exc, TurnError):
            exc.state = stored
            exc.warnings = (*exc.warnings, *self._warnings())
        raise exc from exc.__cause__

    def _left_by(self, engine: TurnEngine, exc: Exception) -> bytes:
        """What is to be stored after a failure; what is stored already if the turn has not begun."""
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
            if row.mine in (b"", self._given):
                return row.mine
            return row.taken_back(b"" if self._aside else new)
        return new

    def _is_there(self, blob: bytes) -> bool:
        """Whether somebody else's state has this turn, finished."""
        plan = self._plan
        if plan.options.turn_id is None or plan.resume:
            return False
        try:
            meta = load_state(
                blob, wire=plan.dialect.wire, codec=plan.codec, binding=plan.options.binding
            ).meta
        except StateError:
            return False
        key = turn_ids.key_of(plan.options.turn_id, plan.dialect.entries(plan.messages))
        return turn_ids.said_under(meta, key) == key.said and turn_ids.is_finished(meta, key)

    def _repeat(self) -> Flow[ChatResult]:
        """The reply that somebody else got for the same turn, from what is stored."""
        row = self._row
        row.mine = row.stored
        engine = self._new_engine(replace(self._plan, blob=row.stored))
        self._is_noted, self._end = True, row.stored
        result = yield from self._pass_on(engine)
        if result.state != row.mine:  # what was said meanwhile waits behind theirs
            return (yield from self._note(engine, result))
        return result

    def _conflict(self, exc: StateConflictError, state: bytes, text: str) -> StateConflictError:
        return StateConflictError(
            f"{exc}; this turn is not in the store, but in err.state",
            state=self._row.timed(state),
            text=text,
            base=self._row.mine,
        )

    def _not_taken(self, exc: Exception, result: ChatResult) -> StoreCommitError:
        error = StoreCommitError(
            f"the turn is complete, and the store did not take it ({type(exc).__name__}): "
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
        if not self._aside:
            return ()
        where = f"what was stored and could not be used is kept under this key with {self._aside!r} behind it"
        return (TurnWarning("state_moved", where),)

    def settle(self) -> Flow[None]:
        """What is left to do after the turn was given up: save it, give the lease back."""
        engine = self._engine
        if engine is not None and not self._is_noted:
            try:
                new = engine.snapshot()
                if new != self._row.mine and new != self._given:
                    yield from self._set_aside(engine)
                    self._end = yield from self._row.commit(new, is_there=self._is_there)
            except DuplicateError:
                self._end = self._row.stored
            except Exception as exc:
                self.unsaved = exc
            self._is_noted = True
        yield from self._row.release()
        self.is_settled = True
        yield from self._tell_saved()


class KeptCompaction:
    """A compaction of a kept conversation; as `KeptTurn`, but one that is given up leaves nothing."""

    unsaved: Exception | None = None

    def __init__(
        self,
        settings: RowSettings,
        compact: Callable[[bytes], Flow[CompactionReport]],
        *,
        timeout: float | None,
        listening: bool = False,
    ) -> None:
        self._row = Row(settings)
        self._compact = compact
        self._listening = listening
        self._timeout = timeout
        self.is_settled = False

    def run(self) -> Flow[CompactionReport]:
        """The compaction, from the lease to the save."""
        try:
            report = yield from self._run()
        except Exception:
            yield from self.settle()
            raise
        yield from self.settle()
        return report

    def _run(self) -> Flow[CompactionReport]:
        yield from self._row.take_lease(self._timeout)
        yield from self._row.load()
        try:
            report = yield from self._compact(self._row.stored)
        except CompactionError as exc:
            if exc.state:  # nothing was cut, but something was spent
                yield from self._commit(exc.state)
            raise
        return replace(report, state=(yield from self._commit(report.state)))

    def _commit(self, blob: bytes) -> Flow[bytes]:
        try:
            stored = yield from self._row.commit(blob)
        except StateConflictError as exc:
            raise StateConflictError(
                f"{exc}; the compacted conversation is not in the store, but in err.state: compact again",
                state=blob,
                base=self._row.mine,
            ) from exc
        if self._listening:
            yield from self._row.tell()
        return stored

    def settle(self) -> Flow[None]:
        """Give the lease back."""
        yield from self._row.release()
        self.is_settled = True


# --------------------------------------------------------------------------------------- without a model


def append_flow(
    settings: RowSettings, grow: Callable[[bytes], bytes], *, count: int = 0, listening: bool = False
) -> Flow[None]:
    """Load, let it grow by `count` messages, save; if somebody else saved meanwhile, let theirs grow.

    `listening`: here and below, tell of what was done.
    """
    row = Row(settings)
    for left in range(MAX_APPENDS, -1, -1):
        yield from row.load()
        try:
            yield from row.commit(grow(row.stored), most=0, is_paid=False)
        except StateConflictError:
            if not left:
                raise
            continue
        if listening and row.has_saved:
            of = refs_of(row.stored, codec=settings.codec, binding=settings.binding)
            yield Emit(Appended(count, **of))
            yield from row.tell(of)
        return


def commit_flow(settings: RowSettings, state: bytes, base: bytes, *, listening: bool = False) -> Flow[bytes]:
    """Save a state that could not be saved before, on top of what is stored now."""
    row = Row(settings)
    yield from row.load()
    row.grew_from(base, state)
    stored = yield from row.commit(state)
    if listening:
        yield from row.tell()
    return stored


def rewind_flow(settings: RowSettings, turns: int, *, listening: bool = False) -> Flow[None]:
    """Take the newest turns away."""
    row = Row(settings)
    yield from row.load()
    if not row.stored:
        raise ValueError("there is nothing to rewind: nothing is stored under this key")
    new = rewind_state(
        row.stored, turns, codec=settings.codec, binding=settings.binding, dialect=settings.dialect
    )
    yield from row.commit(new, is_paid=False)
    if listening:
        yield from row.tell()


def fork_flow(settings: RowSettings, other: RowSettings, *, listening: bool = False) -> Flow[None]:
    """Begin another conversation with what this one holds. `StateConflictError` if there is one already."""
    row, beside = Row(settings), Row(other)
    yield from row.load()
    if not row.stored:
        raise ValueError("there is nothing to fork: nothing is stored under this key")
    blob = fork_state(
        row.stored,
        conversation_id=conversation_id(other.key),
        codec=settings.codec,
        binding=settings.binding,
    )
    if other.binding != settings.binding:
        blob = rewrap(blob, codec=settings.codec, binding=settings.binding, to_binding=other.binding)
    yield from beside.commit(blob, most=0, is_paid=False)
    if listening:
        yield from beside.tell()


def reset_flow(settings: RowSettings) -> Flow[None]:
    """Forget the conversation. A store that cannot delete gets one in which nothing was said."""
    store = settings.store
    if hasattr(store, "delete"):
        yield Invoke(store.delete, (settings.key,))
        return
    now = yield Clock()
    fresh = dump_state(
        new_state(settings.dialect.wire, id=conversation_id(settings.key), created=now.wall_ms),
        codec=settings.codec,
        binding=settings.binding,
    )
    row = Row(settings)
    for left in range(MAX_RESTARTS, -1, -1):
        yield from row.load()
        if not row.stored:
            return
        try:
            load_state(row.stored, codec=settings.codec, binding=settings.binding)
        except StateError:
            yield from row.set_aside()
        try:
            yield from row.overwrite(fresh)
        except StateConflictError:
            if not left:
                raise
            continue
        return
