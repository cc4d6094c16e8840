"""Two states that grew from one: both of what they added, in one state.

Owns: the pure step from three blobs to one. Must never know: a store, or who was first.

What `theirs` added stays where it is, what `mine` added comes behind it. Messages that were appended always
go together. Of turns, one side may have one; if both have, that is a conflict, unless the caller wants the
turns one behind the other although the later one was answered without the earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from ..backends.base import Dialect
from ..errors import StateConflictError
from ..state.codec import PLAIN, Codec
from ..state.records import IDS_KEPT, InboxItem, Meta, bounded, digest8, usage_of, usage_row
from ..state.state import (
    ConversationState,
    closed_turns,
    dump_state,
    hard_limits,
    load_state,
    new_state,
    rebuild,
)
from ..turn.meter import unanchored
from ..turn.turn_ids import UNANSWERED
from ..turn.unsign import is_signed, unsigned_turns
from ..values import replace
from .wires import dialect_for

__all__ = ["begun_at", "holds_state", "rebase_state"]


def rebase_state(
    mine: bytes | bytearray | memoryview,
    *,
    base: bytes | bytearray | memoryview | None,
    theirs: bytes | bytearray | memoryview,
    concurrent_turns: bool = False,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Join two states that both grew from `base`: what `theirs` added, then what `mine` added.

    No model and no tool is called. Events whose id both have enter once, and so do the messages of a turn
    whose id both have; of an unseen topic the newer stays. What mine took back goes.

    Args:
        mine: The state that could not be saved.
        base: What it grew from; None or empty if the conversation began with it.
        theirs: What somebody else saved meanwhile.
        concurrent_turns: Put my turns behind theirs if both have some. The model has answered mine without
            knowing theirs; its thinking is taken out, for it was signed over another history.
        codec: How the blobs are protected.
        binding: For sealed codecs: what they belong to.
        dialect: That of a wire which is not built in.

    Raises:
        StateConflictError: Both had a turn, or the same one, or they did not grow from this base.
        StateError: One of them cannot be read.
    """
    if bytes(theirs) in (bytes(base or b""), bytes(mine)):
        return bytes(mine)
    my, old, their = _three(mine, base, theirs, codec, binding)
    _check_kinship(my, old, their, has_base=bool(base))
    if not base:
        my = _since(my, their.meta.created)
    shared = _new_ids(my, old) & _new_ids(their, old)
    if not _has_moved(my, old):
        joined = _without(their, _taken_back(my, old), ids={*old.meta.turn} - {*my.meta.turn})
        joined = _with_inbox(joined, _unsaid(my, old, their if shared else None), my.meta, old.meta)
    elif not _has_moved(their, old):
        joined = _with_inbox(my, _unsaid(their, old, my if shared else None), their.meta, old.meta)
    elif shared:
        raise StateConflictError("both states had the same turn: the reply of one of them has to do")
    elif concurrent_turns:
        joined = _behind(my, old, their, dialect_for(my.meta.wire, dialect))
    else:
        raise StateConflictError(
            "both states had a turn since they were one: redo mine on theirs, or say concurrent_turns=True"
        )
    meta = msgspec.structs.replace(
        joined.meta,
        rev=max(my.meta.rev, their.meta.rev) + 1,
        parent=digest8(bytes(theirs)[:112]),
        updated=max(my.meta.updated, their.meta.updated),
        total=_sum(my.meta.total, old.meta.total, their.meta.total),
        aside=_sum(my.meta.aside, old.meta.aside, their.meta.aside),
        cost=_row_sum(my.meta.cost, old.meta.cost, their.meta.cost),
    )
    return dump_state(replace(joined, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def holds_state(
    theirs: bytes, mine: bytes, *, base: bytes | None, codec: Codec = PLAIN, binding: Any = None
) -> bool:
    """True if `theirs` grew from `mine`, so far as can be told: what `mine` has beyond `base` is in it.

    For who saved and got no answer. After a cut of what `mine` added the answer is False.
    """
    my, old, their = _three(mine, base, theirs, codec, binding)
    if their.meta.parent == digest8(mine[:112]):
        return True
    entries, gone = _entries(my), _taken_back(my, old)
    return (
        (my.open is None or my.open == their.open)
        and _entries(their)[: len(entries)] == entries
        and set(my.meta.cuts) <= set(their.meta.cuts)
        and _added(gone, their.inbox) == list(their.inbox)
        and not _unsaid(my, old, their)
    )


def begun_at(blob: bytes, created: int, *, codec: Codec = PLAIN, binding: Any = None) -> bytes:
    """The state as one of a conversation that began at another time, in milliseconds since the epoch.

    For a worker that began a conversation at the same moment as somebody else, whose time is the one stored.
    """
    state = load_state(blob, codec=codec, binding=binding)
    if state.meta.created == created:
        return blob
    return dump_state(_since(state, created), codec=codec, binding=binding, limits=hard_limits(codec))


def _three(
    mine: Any, base: Any, theirs: Any, codec: Codec, binding: Any
) -> tuple[ConversationState, ConversationState, ConversationState]:
    """Mine, the base, and theirs."""
    my, their = (load_state(blob, codec=codec, binding=binding) for blob in (mine, theirs))
    if base:
        return my, load_state(base, codec=codec, binding=binding), their
    return my, new_state(my.meta.wire, id=their.meta.id, created=their.meta.created), their


def _new_ids(state: ConversationState, old: ConversationState) -> set[str]:
    """Digests of the turn ids that the state has and the old one has not."""
    return {row[0] for row in (*state.meta.turn, *state.meta.ring)} - {
        row[0] for row in (*old.meta.turn, *old.meta.ring)
    }


def _taken_back(my: ConversationState, old: ConversationState) -> list[InboxItem]:
    """What waited in the old state and does not in mine, which had no turn: the provider refused it."""
    topics = {item.topic for item in my.inbox if item.topic}
    return [item for item in _added(my.inbox, old.inbox) if item.topic not in topics]


def _without(
    state: ConversationState, gone: list[InboxItem], *, ids: set[tuple[str, str]]
) -> ConversationState:
    """The state without messages that waited, and what only they brought: event ids, turn ids, context."""
    left = _added(gone, state.inbox)
    if len(left) == len(state.inbox):
        return state
    marks = {item.event for item in gone if item.event}
    events = tuple(mark for mark in state.meta.events if mark not in marks)
    turn = tuple(row for row in state.meta.turn if row not in ids)
    meta = msgspec.structs.replace(state.meta, events=events, turn=turn, context="")
    return replace(state, inbox=tuple(left), meta=meta)


def _entries(state: ConversationState) -> list[bytes]:
    """Every entry of the closed history."""
    return [entry for entries, _ in closed_turns(state) for entry in entries]


def _unsaid(
    state: ConversationState, old: ConversationState, other: ConversationState | None
) -> list[InboxItem]:
    """The messages that wait in the state and did not in the old one; with `other`, those that it lacks."""
    added = _added(old.inbox, state.inbox)
    if other is None or not added:
        return added
    said = Counter(_entries(other))
    said.subtract(_entries(old))
    said.update(item.entry for item in _added(old.inbox, other.inbox))
    if other.open is not None:
        said.update(other.open.entries)
    unsaid: list[InboxItem] = []
    for item in added:
        if said[item.entry] > 0:
            said[item.entry] -= 1
        else:
            unsaid.append(item)
    return unsaid


def _check_kinship(
    my: ConversationState, old: ConversationState, their: ConversationState, *, has_base: bool
) -> None:
    metas = (my.meta, their.meta)
    same = all(meta.wire == old.meta.wire and meta.processed >= old.meta.processed for meta in metas)
    if has_base:
        same = same and all(meta.created == old.meta.created and meta.rev >= old.meta.rev for meta in metas)
    if not same:
        raise StateConflictError("the two states did not grow from this base; load again and redo the turn")


def _since(state: ConversationState, created: int) -> ConversationState:
    """The state of a conversation that began at another time: what happened when stays as it was.

    Two that began the same conversation at once keep the time of the first, by which others know it.
    """
    later = state.meta.created - created
    if not later:
        return state

    def at(ms: int) -> int:
        return bounded(ms + later)

    turns = [(entries, replace(record, at=at(record.at))) for entries, record in closed_turns(state)]
    cuts = tuple((at(ms), *cut) for ms, *cut in state.meta.cuts)
    meta = msgspec.structs.replace(state.meta, created=created, updated=at(state.meta.updated), cuts=cuts)
    opened = state.open
    if opened is not None:
        opened = replace(opened, at=at(opened.at))
    return rebuild(replace(state, meta=meta, open=opened), turns)


def _has_moved(state: ConversationState, old: ConversationState) -> bool:
    """True if the state has a turn, a part of one, or a cut that the old one has not."""
    return (
        state.meta.processed != old.meta.processed
        or state.open != old.open
        or state.meta.cuts != old.meta.cuts
        or state.history_bytes() != old.history_bytes()
    )


def _added(old: Iterable[InboxItem], new: Iterable[InboxItem]) -> list[InboxItem]:
    """What `new` has and `old` has not, in order."""
    known = Counter(old)
    added: list[InboxItem] = []
    for item in new:
        if known[item]:
            known[item] -= 1
        else:
            added.append(item)
    return added


def _with_inbox(
    state: ConversationState, added: list[InboxItem], other: Meta, old: Meta
) -> ConversationState:
    """The state with messages that wait in another one, and the ids that are new there since the old one.

    An id that the old one had and the state has not was taken back with its turn: it may be used again.
    """
    meta = state.meta
    fresh = [item for item in added if not item.event or item.event not in meta.events]
    topics = {item.topic for item in fresh if item.topic}
    inbox = (*(item for item in state.inbox if item.topic not in topics), *fresh)
    events = tuple(dict.fromkeys((*meta.events, *other.events)))
    known = {row[0] for row in (*meta.turn, *meta.ring, *old.turn)}
    turn = (*meta.turn, *(row for row in other.turn if row[0] not in known))
    meta = msgspec.structs.replace(meta, events=events[-IDS_KEPT:], turn=turn[-IDS_KEPT:])
    return replace(state, inbox=inbox, meta=meta)


def _behind(
    my: ConversationState, old: ConversationState, their: ConversationState, dialect: Dialect
) -> ConversationState:
    """Their state with the turns that only mine has behind its own."""
    count = my.meta.processed - old.meta.processed
    turns = closed_turns(my)
    if my.open is not None or their.open is not None or not 0 < count <= len(turns):
        raise StateConflictError("both states have turns, and an unfinished one cannot stand beside another")
    if old.open is not None:  # each side has a version of that turn; one behind the other would repeat it
        raise StateConflictError("both states went on from the same unfinished turn: redo mine on theirs")
    heard = _added(my.inbox, old.inbox)
    if heard and _added(their.inbox, old.inbox):
        raise StateConflictError("both states answered the same waiting messages; redo mine on theirs")
    own = turns[-count:]
    before = closed_turns(their)
    if any(turn in before for turn in own):  # mine had a cut in its middle, or theirs grew from mine
        raise StateConflictError("both states had the same turn: the reply of one of them has to do")
    if my.meta.signed:
        own = [(tuple(entries), record) for entries, record in unsigned_turns(own, dialect)]
    joined = rebuild(their, [*before, *own])
    answered = {row[0] for row in my.meta.ring if row[2] != UNANSWERED}
    theirs = [row for row in their.meta.ring if row[2] != UNANSWERED or row[0] not in answered]
    known = {row[0] for row in theirs}
    ring = (*theirs, *(row for row in my.meta.ring if row[0] not in known))
    meta = msgspec.structs.replace(
        their.meta,
        messages=their.meta.messages + sum(record.messages for _, record in own),
        turns=their.meta.turns + len(own),
        processed=their.meta.processed + count,
        tokens=their.meta.tokens + max(0, my.meta.tokens - old.meta.tokens),
        gauge=unanchored(their.meta).gauge,
        usage=my.meta.usage,
        context="",
        systems=their.meta.systems or my.meta.systems,
        signed=their.meta.signed or any(is_signed(entries, dialect) for entries, _ in own),
        ring=ring[-IDS_KEPT:],
        rules=min(their.meta.rules, my.meta.rules),
    )
    joined = replace(joined, meta=meta)
    waiting = [item for item in joined.inbox if item not in heard]
    return _with_inbox(replace(joined, inbox=tuple(waiting)), _added(old.inbox, my.inbox), my.meta, old.meta)


def _sum(mine: tuple[int, ...], old: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    return usage_row(usage_of(_row_sum(mine, old, theirs)))


def _row_sum(mine: tuple[int, ...], old: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    """What both spent: theirs, and what mine added to the old."""
    size = max(len(mine), len(old), len(theirs))
    padded = ((*row, *[0] * (size - len(row))) for row in (mine, old, theirs))
    return tuple(max(0, t + m - o) for m, o, t in zip(*padded, strict=True))
