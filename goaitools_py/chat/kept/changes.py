"""The flows that change a kept conversation outside a turn, from `append` to `compact`.

Owns: the load, the save and the acts after a conflict, for each of them. Must never know: a turn, the inside
of a compactor, or which store it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ...base.values import replace
from ...history.branch import rewind_state, undo_cut
from ...open_turn.turn_ids import UNANSWERED
from ...state.apart import whole
from ...state.blob_header import may_take_long
from ...state.records import digest8, fresh_id
from ...state.state import dump_state, load_state, new_state
from ...turn.flow import Clock, Emit, Flow, computed
from ...types.errors import CompactionError, StateConflictError, StateError, TurnInProgressError
from ...types.events import Appended, Compacted
from ...types.messages import Message
from ...types.result import CompactionReport
from .parts import made_whole
from .row import DuplicateError, Row
from .row_calls import RowSettings

__all__ = [
    "Held",
    "KeptCompaction",
    "append_flow",
    "commit_flow",
    "conversation_id",
    "hold",
    "let_go",
    "message_ids",
    "reset_flow",
    "rewind_flow",
    "save_held_flow",
    "undo_flow",
]

_T = TypeVar("_T")

MAX_APPENDS: Final = 100
"""How often an append is tried. It fits onto every state, and one of several workers always succeeds."""


MAX_RESETS: Final = 5
"""How often a deletion begins anew because another worker saved meanwhile."""


def conversation_id(key: str) -> str:
    """Make the conversation's id for a key: the key, or a digest of it beyond 256 characters."""
    return key if len(key) <= 256 else hashlib.sha256(key.encode()).hexdigest()


def message_ids(messages: Sequence[Message]) -> tuple[str, ...]:
    """Make the ids under which appended messages can be withdrawn. An event with an id gets a digest of its
    id; the others begin with eight random digits."""
    base = fresh_id()[:8]
    return tuple(
        f"{base}-{number}" if message.event_id is None else digest8(message.event_id)
        for number, message in enumerate(messages)
    )


def append_flow(
    settings: RowSettings, grow: Callable[[bytes], bytes], *, count: int | None = 0, listening: bool = False
) -> Flow[None]:
    """Load a state, let it grow by `count` messages, and save it. After a conflict, begin again.

    `count`: None for a change without a message. `listening`: True, here and below, if there are observers.
    """
    row = Row(settings)
    for left in range(MAX_APPENDS, -1, -1):
        yield from row.load()
        try:
            # No rebase: after a conflict the newly loaded state grows instead.
            grown = yield from computed(partial(grow, row.stored), is_long=may_take_long(row.stored))
            yield from row.commit(grown, most=0, is_paid=False)
        except StateConflictError:
            if not left:
                raise
            continue
        if listening and row.has_saved:
            of = yield from row.refs()
            if count is not None:
                yield Emit(Appended(count, **of))
            yield from row.tell(of)
        return


MAX_HELD: Final = 64
"""How many turns a chat holds that no store has taken."""

MAX_HELD_BYTES: Final = 16 * 1024 * 1024
"""How many bytes their states may have in all. Beyond either limit, the oldest turns go."""


class HeldTurn(NamedTuple):
    """A turn that no store has taken: its place, its state, and the state that it began from."""

    store: Any
    binding: Any
    state: bytes
    base: bytes

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.state) + len(self.base)


Held = dict[tuple[int, str, str], HeldTurn]
"""Turns by the id of the store object, which they keep alive, by the key, and by the `turn_id`."""


def hold(held: Held, settings: RowSettings, turn_id: str, state: bytes, base: bytes) -> None:
    """Keep a turn that was not saved, until its `turn_id` is sent again.

    There is no lock: each line changes the dict in one step, and a turn that is gone is only paid again.
    """
    turn = HeldTurn(settings.store, settings.binding, state, base)
    at = (id(settings.store), settings.key, turn_id)
    held.pop(at, None)  # the newest is the last
    held[at] = turn
    turns = list(held.items())
    left = sum(one.size for _, one in turns)
    for number, (oldest, one) in enumerate(turns):
        if left <= MAX_HELD_BYTES and len(turns) - number <= MAX_HELD:
            break
        held.pop(oldest, None)
        left -= one.size


def let_go(held: Held, settings: RowSettings, state: bytes | None = None) -> None:
    """Drop the turns of a conversation: all of them, or the one with this state."""
    for at, turn in list(held.items()):
        if at[:2] == (id(settings.store), settings.key) and state in (None, turn.state):
            held.pop(at, None)


def commit_flow(
    settings: RowSettings, state: bytes, base: bytes, held: Held, *, listening: bool = False
) -> Flow[bytes]:
    """Save a state after its first save failed, and drop it from `held`.

    It is rebased on the stored state, also behind turns there: the caller wants this reply, and has paid.
    """
    row = Row(replace(settings, concurrent_turns=True))
    yield from row.load()
    # The save that failed may be done after all. Then `mine` is this state, and it is not saved twice.
    row.grew_from(base, state)
    made = _finished_ids(settings, state) - _finished_ids(settings, base)

    def is_there(blob: bytes) -> bool:
        return bool(made) and made <= _finished_ids(settings, blob)

    try:
        # Another worker may have got the same turn, with the same `turn_id`, and have finished it.
        stored = row.stored if is_there(row.stored) else (yield from row.commit(state, is_there=is_there))
    except DuplicateError:
        stored = row.stored
    let_go(held, settings, state)
    if listening:
        yield from row.tell()
    return whole(stored)


def save_held_flow(held: Held, settings: RowSettings, turn_id: str, *, listening: bool = False) -> Flow[bool]:
    """Save the turn of this id that the chat holds. True if the stored state may be another one now.

    A turn that does not fit on the stored state is dropped, and its message is answered anew.
    """
    at = (id(settings.store), settings.key, turn_id)
    turn = held.get(at)
    if turn is None or turn.binding != settings.binding:
        return False
    try:
        yield from commit_flow(settings, turn.state, turn.base, held, listening=listening)
    except (StateConflictError, StateError):
        held.pop(at, None)
    return True


def _finished_ids(settings: RowSettings, blob: bytes) -> frozenset[str]:
    """The digests of the turn ids that have a reply in a state."""
    if not blob:
        return frozenset()
    ring = load_state(blob, codec=settings.codec, binding=settings.binding).meta.ring
    return frozenset(row.id for row in ring if row.status != UNANSWERED)


def rewind_flow(settings: RowSettings, turns: int, *, listening: bool = False) -> Flow[None]:
    """Remove the newest turns."""
    return _going_back(
        settings, lambda blob, **how: rewind_state(blob, turns, **how), "rewind", listening=listening
    )


def undo_flow(settings: RowSettings, *, listening: bool = False) -> Flow[None]:
    """Undo the newest cut."""
    return _going_back(settings, undo_cut, "undo", listening=listening)


def _going_back(
    settings: RowSettings, back: Callable[..., bytes], name: str, *, listening: bool
) -> Flow[None]:
    """Replace the state by an earlier one, which `back` makes of the whole state, archive included."""
    row = Row(settings)
    yield from row.load(is_whole=True)
    if not row.stored:
        raise ValueError(f"there is nothing to {name}: nothing is stored under this key")
    new = yield from computed(
        partial(back, row.stored, codec=settings.codec, binding=settings.binding, dialect=settings.reader)
    )
    yield from row.commit(new, is_paid=False)
    if listening:
        yield from row.tell()


def reset_flow(settings: RowSettings) -> Flow[None]:
    """Delete the conversation. A store without `delete` gets an empty one in its place."""
    store = settings.store
    if hasattr(store, "delete"):
        yield from Row(settings).ask(store.delete, settings.key)
        return
    now = yield Clock()
    fresh = dump_state(
        new_state(settings.dialect.wire, id=conversation_id(settings.key), created=now.wall_ms),
        codec=settings.codec,
        binding=settings.binding,
    )
    row = Row(settings)
    for left in range(MAX_RESETS, -1, -1):
        yield from row.load(tolerates_damage=True)
        if not row.stored:
            return
        try:
            # Before the save that overwrites these bytes: a crash in between loses no byte.
            if row.damage is not None or not _is_readable(row.stored, settings):
                yield from row.set_aside()
            yield from row.overwrite(fresh)
        except StateConflictError:
            if not left:
                raise
            continue
        return


def _is_readable(blob: bytes, settings: RowSettings) -> bool:
    try:
        load_state(blob, codec=settings.codec, binding=settings.binding)
    except StateError:
        return False
    return True


_DROPPED: Final = "a turn began meanwhile, and the compaction is dropped"


def _holding_back(flow: Flow[_T], told: list[Emit]) -> Flow[_T]:
    """Run a flow, and keep its reports of a compaction: listeners get them after the save."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = flow.throw(failure) if failure is not None else flow.send(answer)
        except StopIteration as stop:
            result: _T = stop.value
            return result
        answer = failure = None
        if type(effect) is Emit and isinstance(effect.event, Compacted):
            told.append(effect)
            continue
        try:
            answer = yield effect
        except BaseException as exc:
            failure = exc


class KeptCompaction:
    """A compaction of a kept conversation. As `KeptTurn`, but an abandoned compaction saves nothing.

    With `if_due` no turn waits for it. The model is asked without the lease, which is taken for the save
    only. A turn that has begun meanwhile is more important: then the compaction is dropped.
    """

    unsaved: Exception | None = None

    def __init__(
        self,
        settings: RowSettings,
        compact: Callable[[bytes], Flow[CompactionReport]],
        *,
        timeout: float | None,
        listening: bool = False,
        if_due: bool = False,
    ) -> None:
        self._row = Row(replace(settings, gate="reject") if if_due else settings)
        self._if_due = if_due
        self._compact = compact
        self._listening = listening
        self._timeout = timeout
        self.is_settled = False

    def run(self) -> Flow[CompactionReport]:
        """Run the compaction, from the lease to the save."""
        try:
            report = yield from self._run()
        except Exception as exc:
            yield from self.settle()
            made_whole(exc)
            raise
        yield from self.settle()
        return report

    def _run(self) -> Flow[CompactionReport]:
        if self._if_due:
            return (yield from self._behind_turns())
        yield from self._row.take_lease(self._timeout)
        yield from self._row.load()
        try:
            report = yield from self._compact(self._row.stored)
        except CompactionError as exc:
            if exc.state:  # the history is unchanged, but tokens were spent
                yield from self._commit(exc.state)
            raise
        return replace(report, state=whole((yield from self._commit(report.state))))

    def _behind_turns(self) -> Flow[CompactionReport]:
        """Compact without the lease, and save if no turn has begun since."""
        before = Row(self._row.settings)
        yield from before.load()
        told: list[Emit] = []
        try:
            report = yield from _holding_back(self._compact(before.stored), told)
        except CompactionError as exc:
            if exc.state and not (yield from self._save_behind(before.stored, exc.state)):
                exc.state = b""  # it is not stored, and the stored state is newer
            yield from told
            raise
        saved = report.state == before.stored or (yield from self._save_behind(before.stored, report.state))
        if not saved:
            report = replace(
                report,
                outcome="no_change",
                reason=_DROPPED,
                removed_turns=0,
                rewritten_turns=0,
                removed_messages=0,
                messages_after=report.messages_before,
                bytes_after=report.bytes_before,
                tokens_after=report.tokens_before,
            )
        for emit in told:
            event = emit.event
            yield replace(emit, event=replace(event, report=report)) if isinstance(event, Compacted) else emit
        return replace(
            report, state=whole(self._row.stored if saved and self._row.has_saved else before.stored)
        )

    def _save_behind(self, base: bytes, new: bytes) -> Flow[bool]:
        """Save a state that grew from `base`. False if a turn runs now, or has changed the stored state."""
        try:
            yield from self._row.take_lease(self._timeout)
            yield from self._row.load()
            self._row.grew_from(base, new)
            yield from self._row.commit(new, is_last=True)
        except (TurnInProgressError, StateConflictError):
            return False
        if self._listening:
            yield from self._row.tell()
        return True

    def _commit(self, blob: bytes) -> Flow[bytes]:
        try:
            stored = yield from self._row.commit(blob, is_last=True)
        except StateConflictError as exc:
            raise StateConflictError(
                f"{exc}; the compacted conversation is only in err.state, not in the store: compact again",
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
