"""A conversation made from another one: a fork, an earlier point of it, or the history before the newest cut.

An edit takes one message of the user and everything after it out; the turn then says the new message.

Owns: these pure steps from blob to blob, and the text that says why a cut cannot be undone. Must never know:
a store, a model, or the format of a record of the archive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..backends.base import Dialect
from ..backends.dialects import dialect_for
from ..backends.read_entries import read_entries
from ..base.values import replace
from ..open_turn.inbox import FORMAT
from ..open_turn.meter import count_entries, gauge_of, unanchored
from ..open_turn.turn_ids import TURN_IDS_FACT, UNANSWERED, with_texts
from ..state.closed_turns import ClosedTurn, has_gap, numbers_of, with_numbers
from ..state.codec import PLAIN, Codec
from ..state.letters import EVENT, SYSTEM, USER, Mark
from ..state.media_rows import results_of, with_results
from ..state.parts import ARCHIVE
from ..state.records import IDS_KEPT, InboxItem, TurnIdRow, cut_facts, digest8, fresh_id, with_cut
from ..state.row_codec import bounded, inbox_facts
from ..state.state import (
    ConversationState,
    closed_turns,
    dump_state,
    hard_limits,
    load_state,
    rebuild,
    without_lost,
)
from ..types.errors import EditError
from ..types.options import check_options
from .archive_reading import is_undoable, newest_cut, undoable, undone
from .message_places import (
    Place,
    all_turns,
    begin_of,
    given_end,
    ids_of,
    in_waiting,
    owners_in,
    place_of,
    waiting_letters,
    waiting_rows,
)
from .rewrite.repair import REPAIRED, checked
from .rewrite.rewritten import UNSIGNED, unsigned_turns, with_unique_calls

__all__ = ["EditError", "before_message", "fork_state", "rewind_state", "undo_cut"]


def fork_state(
    blob: bytes | bytearray | memoryview,
    *,
    conversation_id: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """Copy a conversation under an id of its own, so that its tool calls have idempotency keys of their own.

    Without `conversation_id` the id is random. An unfinished turn can be finished in both copies.

    Raises `StateError` if the blob cannot be read.
    """
    check_options({"conversation_id": conversation_id})
    state = load_state(blob, codec=codec, binding=binding)
    meta = msgspec.structs.replace(state.meta, id=conversation_id or fresh_id())
    return _next(blob, replace(state, meta=meta), codec, binding)


def rewind_state(
    blob: bytes | bytearray | memoryview,
    turns: int = 1,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Take the newest turns out of a conversation. An unfinished turn counts as one turn.

    Usage and cost stay counted, a `turn_id` stays used, and waiting messages stay in the inbox.

    Args:
        blob: The state.
        turns: How many turns to take out. Turns from before the newest cut can be taken out only if the blob
            has the record of this cut; see ``Compactor(…, retain=True)``. The cut is then undone: the
            turns come back as they were before it.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        ValueError: There are fewer turns since the newest cut that cannot be undone. The text says how many.
        StateError: The blob cannot be read.
    """
    if not isinstance(turns, int) or turns < 1:
        raise ValueError(f"turns must be a positive whole number, got {turns!r}")
    state = load_state(blob, codec=codec, binding=binding)
    dialect = dialect_for(state.meta.wire, dialect)
    left, is_unbound = turns, False
    while left > (there := _since_cut(state) + (state.open is not None)):
        behind = state if not there else _without_newest(state, there, dialect)
        if not is_undoable(behind, codec, binding):
            possible = turns - left + there
            there_are = "there is 1 turn" if possible == 1 else f"there are {possible} turns"
            since = " since the newest cut" if state.meta.cuts else ""
            raise ValueError(f"{there_are}{since}, and {turns} cannot go")
        state = undone(behind, codec, binding)
        left -= there
        is_unbound = state.meta.unbound
    return _next(blob, _without_newest(state, left, dialect, is_unbound=is_unbound), codec, binding)


def before_message(
    state: ConversationState, edit: int | str, dialect: Dialect, *, codec: Codec = PLAIN, binding: Any = None
) -> ConversationState:
    """Take a message of the user out of a conversation, and everything that came after it.

    Usage and cost stay counted. Events that wait stay in the inbox, unless they were sent with a message that
    goes. Messages of the user that wait go: they were said later. Events and messages from before it, in the
    same turn, wait again.

    Args:
        state: The conversation.
        edit: The number or the id of the message's turn, its `turn_id`, or an id that a front end shows.
        dialect: Reads the entries.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.

    Raises:
        EditError: No message has this id, or it stands before a cut that cannot be undone, or the model had
            replied in its turn before it was said.
    """
    is_unbound = False
    while True:
        there = _since_cut(state) + (state.open is not None)
        place = place_of(state, edit, dialect)
        if place is not None and place.turns <= there:
            break
        behind = state if not there else _without_newest(state, there, dialect)
        if not is_undoable(behind, codec, binding):
            raise EditError(_why_no_edit(state, is_found=place is not None))
        state = undone(behind, codec, binding)
        is_unbound = state.meta.unbound
    if not place.turns:
        return _without_waiting(state, place.at, dialect)
    left = _left_waiting(state, place, dialect)
    state = _without_newest(state, place.turns, dialect, is_unbound=is_unbound)
    kept = ids_of(closed_turns(state))
    # An id that waits again has no reply any more. If an earlier turn has its message, that turn had none.
    ring = [
        row._replace(status=UNANSWERED, text="") if row.id in left.again else row
        for row in state.meta.ring
        if row.id not in left.again or row.id in kept
    ]
    meta = msgspec.structs.replace(
        state.meta,
        turn=left.rows,
        ring=tuple(ring),
        events=_events_without(state, left.items),
        context="",
        said=left.said,
        status="complete",
    )
    return replace(state, meta=meta, inbox=left.items)


def _without_waiting(state: ConversationState, begin: int, dialect: Dialect) -> ConversationState:
    """The state without a message that waits, and without the messages after it. An open turn stays."""
    meta, letters = state.meta, waiting_letters(state)
    owners = in_waiting(state, dialect)
    known = {owner: begin_of(owner, owners, letters) for owner in owners if owner}
    own = owners[begin]
    gone = {
        id
        for id, at in known.items()
        if at is not None and at >= begin and (letters[at] == USER or id == own)
    }
    items = tuple(
        item
        for at, item in enumerate(state.inbox)
        if owners[at] not in gone and (at < begin or (at > begin and item.letter in _STAYING))
    )
    accepted = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    rows = tuple(row for row in meta.turn if row.id not in gone or row.id in accepted)
    meta = msgspec.structs.replace(
        meta,
        turn=rows,
        events=_events_without(state, items),
        context="",  # it may have gone with the message
        said=meta.said if any(item.letter not in _STAYING for item in items) else {},
    )
    return replace(state, meta=meta, inbox=items)


_STAYING: Final = frozenset({EVENT, SYSTEM})
"""The letters of messages that wait on after an edit: the application has said them, and no user."""


def _events_without(state: ConversationState, items: Sequence[InboxItem]) -> tuple[str, ...]:
    """The marks of the events that the state has seen, without events that no longer wait: these may come
    again."""
    gone = {item.event for item in state.inbox} - {item.event for item in items}
    return tuple(mark for mark in state.meta.events if mark not in gone)


class _Left(NamedTuple):
    """The messages that wait after an edit. `again`: the turn ids of messages that had been read and wait
    again. `said`: the metadata that came with the messages."""

    items: tuple[InboxItem, ...]
    rows: tuple[TurnIdRow, ...]
    again: frozenset[str]
    said: Mapping[str, str]


def _left_waiting(state: ConversationState, place: Place, dialect: Dialect) -> _Left:
    """The messages that wait after the edit of a message in a turn: those from before it, in the same turn,
    and events that wait."""
    removed = all_turns(state)[-place.turns :]
    turn = removed[0]
    end = given_end(turn.letters)
    if place.at > end or (place.at == end and USER in turn.letters):
        raise EditError(
            "the model had replied in this turn before the message was said, so it cannot be replaced alone: "
            "edit the first message of the turn"
        )
    owners = owners_in(state, place.turns, dialect)
    ids = turn.record.facts.get(TURN_IDS_FACT, ())
    begins = {id: begin_of(id, owners, turn.letters) for id in ids}
    own = next((id for id, at in begins.items() if at == place.at), "")
    again = [id for id, at in begins.items() if at is not None and at < place.at]
    kept = _as_waiting(state, turn, place.at, owners, again, own, dialect)
    waiting = in_waiting(state, dialect)
    gone = ids_of(removed).difference(again)
    gone |= {waiting[at] for at, item in enumerate(state.inbox) if item.letter not in _STAYING} - {""}
    events = [
        item for at, item in enumerate(state.inbox) if item.letter in _STAYING and waiting[at] not in gone
    ]
    known = {row.id: TurnIdRow(row.id, row.said, row.more) for row in state.meta.ring}
    known.update({row.id: row for row in state.meta.turn})
    rows = [known[id] for id in again if id in known]
    rows += [row for row in waiting_rows(state) if row.id not in gone and row.id not in again]
    said = turn.record.facts.get("metadata", {}) if any(item.letter == USER for item in kept) else {}
    return _Left((*kept, *events), tuple(rows[-IDS_KEPT:]), frozenset(again), said)


def _as_waiting(
    state: ConversationState,
    turn: ClosedTurn,
    end: int,
    owners: Sequence[str],
    again: Collection[str],
    own: str,
    dialect: Dialect,
) -> list[InboxItem]:
    """The first messages of a turn as messages that wait, with their marks.

    `again`: the turn ids that wait again. `own`: the turn id with messages that do not.
    """
    marks: dict[int, Mark] = {}
    begin = 0
    for one in turn.record.iterations:
        marks.update({begin + at: mark for at, mark in one.marks.items()})
        begin += len(one.roles)
    found: list[InboxItem] = []
    owner = ""
    for at, (entry, letter) in enumerate(zip(turn.entries[:end], turn.letters[:end], strict=True)):
        message = read_entries(dialect, [entry])[0] if letter == EVENT else None
        topic = (message.topic if message is not None else None) or ""
        # The description of an answer stands behind the messages that it came with, and has no digest.
        owner = owner if topic == FORMAT else owners[at]
        if own and owner == own:
            continue
        event = digest8(message.event_id) if message is not None and message.event_id is not None else ""
        speaker, pinned = marks.get(at, Mark())
        found.append(
            InboxItem(
                entry=entry,
                letter=letter,
                topic=topic,
                event=event if event in state.meta.events else "",
                more=inbox_facts(speaker, pinned, turn=owner if owner in again else ""),
            )
        )
    return found


def _why_no_edit(state: ConversationState, *, is_found: bool) -> str:
    if is_found or newest_cut(state.meta) is not None:
        return (
            "the message to edit is not among the turns since the newest cut, and only those can be replaced"
            "; Compactor(…, retain=True) keeps what is needed to go back further"
        )
    return (
        "no message of this conversation has the id of edit=: give the number or the id of a turn of "
        "history().turns, or the turn_id of its message"
    )


def _without_newest(
    state: ConversationState, turns: int, dialect: Dialect, *, is_unbound: bool = False
) -> ConversationState:
    """Remove so many of the newest turns. All of them are younger than the newest cut.

    `is_unbound`: the signed blocks that an undone cut gave back do not fit their prefix now.
    """
    meta, closed = state.meta, closed_turns(state)
    was_open = state.open is not None
    left = turns - was_open
    kept, removed = closed[: len(closed) - left], closed[len(closed) - left :]
    begun = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    size, frame = state.history_bytes() or 1, min(meta.tokens, gauge_of(meta).frame)
    state = without_lost(state, rebuild(replace(state, open=None), kept))
    meta = msgspec.structs.replace(
        with_texts(meta, removed, dialect, before=kept),
        messages=sum(turn.record.messages for turn in kept),
        turns=len(kept),
        processed=meta.processed + was_open,  # its number is not given again
        tokens=frame + (meta.tokens - frame) * state.history_bytes() // size,
        gauge=unanchored(meta).gauge,
        context="",
        turn=tuple(row for row in meta.turn if row.id not in begun),
        unbound=is_unbound,
        failed=(),
        status="complete",
        cuts=with_cut(meta, meta.updated, "rewound", 0, 0),
        gap=has_gap(kept, meta.processed + was_open),
    )
    return replace(state, meta=meta)


def _since_cut(state: ConversationState) -> int:
    """How many closed turns are younger than the newest cut.

    A cut that removed nothing counts only if its record is in the archive. Then the originals of its turns
    are there, and these turns must not be taken out of the history alone.
    """
    closed = closed_turns(state)
    kept = any(part.kind == ARCHIVE for part in state.parts)
    for row in reversed(state.meta.cuts):
        facts = cut_facts(row)
        if not (row.turns or row.messages or (kept and facts is not None and facts.record)):
            continue
        if facts is None:  # another writer's row: its clock has to do
            return sum(turn.record.at > row.at for turn in closed)
        return sum(number > facts.number for number in numbers_of([turn.record for turn in closed]))
    return len(closed)


def _next(blob: Any, state: ConversationState, codec: Codec, binding: Any) -> bytes:
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


_CORRECTIONS: Final = (REPAIRED, UNSIGNED)
"""Changes of the closed history that no compactor has made. They are undone together with the cut before
them. The turn that made them, or the next turn, makes them again if they are still needed."""


def undo_cut(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Undo the newest cut: its turns come back as they were before it, from the archive in the state.

    Without a turn since the cut, the conversation is as before the cut: its signed thinking is valid again.
    Turns since the cut follow the turns that come back. Their signed thinking is taken out, because it was
    signed over the shorter history, and their calls get other ids where calls that come back have the same.
    Usage, cost, used ids and waiting messages stay. Call it again to undo the cut before. Turns that were
    repaired since the cut, or lost their signed thinking, come back as they were, too. The next turn takes
    signed thinking out again if it does not fit.

    Args:
        blob: The state. It has the record of its newest cut, see ``Compactor(…, retain=True)``.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        min_revision: The lowest revision that the state may have.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        ValueError: There is no cut, a turn is unfinished, or the record of the cut is not there. The text
            names the remedy.
        StateTooLargeError: The whole history is too large for a state.
        StateError: The blob cannot be read.
    """
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    results = results_of(state.parts)
    dialect = dialect_for(state.meta.wire, dialect)
    if state.open is not None:
        raise ValueError(
            "the newest cut cannot be undone while a turn is unfinished: finish it with resume, or take it "
            "out with rewind_state(state), then undo the cut"
        )
    since: list[ClosedTurn] = []
    while True:
        record = undoable(state, codec, binding)
        if record is None:
            raise ValueError(_why_not(state))
        turns = with_numbers(closed_turns(state))
        numbers = numbers_of([turn.record for turn in turns])
        first = next((place for place, number in enumerate(numbers) if number > record.number), len(turns))
        since[:0] = turns[first:]
        state = undone(rebuild(state, turns[:first]), codec, binding)
        if record.by not in _CORRECTIONS or newest_cut(state.meta) is None:
            break
    if since:
        state = _with_turns_since(state, since, dialect)
    state = replace(state, parts=with_results(state.parts, results))  # also those of the turns since
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def _with_turns_since(
    early: ConversationState, since: Sequence[ClosedTurn], dialect: Dialect
) -> ConversationState:
    """The state before a cut, with the turns since the cut behind it. The whole history is checked."""
    back = with_numbers(closed_turns(early))
    since = with_unique_calls(unsigned_turns(since, dialect), back, dialect)
    turns = [*back, *since]
    meta = unanchored(early.meta)
    added = count_entries([entry for turn in since for entry in turn.entries], dialect)
    meta = msgspec.structs.replace(
        meta,
        messages=meta.messages + sum(turn.record.messages for turn in since),
        turns=meta.turns + len(since),
        tokens=bounded(gauge_of(meta).expected(added)),
        context="",  # the newest context block is not where the record says, so the context is sent again
        rules=0,
        gap=has_gap(turns, meta.processed),
    )
    state, _ = checked(replace(rebuild(early, turns), meta=meta), dialect)
    return state


def _why_not(state: ConversationState) -> str:
    """The reason why the newest cut cannot be undone, and the remedy."""
    row = newest_cut(state.meta)
    if row is None:
        return "there is no cut to undo; rewind_state(state, turns) takes the newest turns out"
    archive = [part for part in state.parts if part.kind == ARCHIVE]
    if archive and not archive[-1].is_here:
        return (
            "the newest cut cannot be undone: the archive of this state is kept elsewhere; undo it through "
            "conversation.undo_cut(), or in the whole state of conversation.state()"
        )
    return (
        f"the newest cut (by {row.by!r}) cannot be undone: the archive has no record of it that fits. "
        "Compactor(…, retain=True) keeps records, up to retain_bytes. What is possible: take out turns since "
        "the cut, with rewind_state(state, turns)"
    )
