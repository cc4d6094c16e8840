"""A conversation made from another one: a fork, an earlier point of it, or the history before the newest cut.

An edit takes one message of the user and everything after it out; the turn then says the new message.

Owns: these pure steps from blob to blob, and the text that says why a cut cannot be undone. Must never know:
a store, a model, or the format of a record of the archive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..backends.base import Dialect
from ..backends.dialects import dialect_for
from ..backends.read_entries import read_entries
from ..base.values import replace
from ..open_turn.meter import count_entries, gauge_of, unanchored
from ..open_turn.turn_ids import TURN_IDS_FACT, with_texts
from ..state.closed_turns import ClosedTurn, has_gap, numbers_of, with_numbers
from ..state.codec import PLAIN, Codec
from ..state.letters import ASSISTANT, GIVEN, USER
from ..state.media_rows import results_of, with_results
from ..state.parts import ARCHIVE
from ..state.records import InboxItem, RingRow, TurnIdRow, cut_facts, digest8, fresh_id, with_cut
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
from ..types.render import BlockText
from .archive_reading import is_undoable, newest_cut, undoable, undone
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


class _Place(NamedTuple):
    """The place of a message: `turns`, the number of newest turns that go with it, and `before`, the messages
    of the user in front of it, in its turn or among those that wait, which stay."""

    turns: int
    before: int


def before_message(
    state: ConversationState, edit: int | str, dialect: Dialect, *, codec: Codec = PLAIN, binding: Any = None
) -> ConversationState:
    """Take a message of the user out of a conversation, and everything that came after it.

    Usage and cost stay counted. Events that wait stay in the inbox. Messages of the user that wait go: they
    were said later. Events and messages from before it, in the same turn, wait again.

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
        place = _place_of(state, edit, dialect)
        if place is not None and place.turns <= there:
            break
        behind = state if not there else _without_newest(state, there, dialect)
        if not is_undoable(behind, codec, binding):
            raise EditError(_why_no_edit(state, is_found=place is not None))
        state = undone(behind, codec, binding)
        is_unbound = state.meta.unbound
    left = _left_waiting(state, place, dialect)
    ids = {row.id for row in left.rows}
    if place.turns:
        state = _without_newest(state, place.turns, dialect, is_unbound=is_unbound)
    meta = msgspec.structs.replace(
        state.meta,
        turn=left.rows,
        ring=tuple(row for row in state.meta.ring if row.id not in ids),
        context="",
        said={},
        status="complete",
    )
    return replace(state, meta=meta, inbox=left.items)


class _Left(NamedTuple):
    items: tuple[InboxItem, ...]
    rows: tuple[TurnIdRow, ...]


def _left_waiting(state: ConversationState, place: _Place, dialect: Dialect) -> _Left:
    """The inbox after an edit: messages from before the edited one, in its turn, and events that wait."""
    events = tuple(item for item in state.inbox if item.letter != USER)
    if not place.turns:  # the message waits itself
        first = [at for at, item in enumerate(state.inbox) if item.letter == USER][: place.before]
        items = tuple(item for at, item in enumerate(state.inbox) if item.letter != USER or at in first)
        places = _waiting_at(state, dialect)
        return _Left(items, tuple(row for row in _waiting_rows(state) if places[row.id] < place.before))
    turn = _turn_at(state, place.turns)
    if turn.letters.partition(ASSISTANT)[0].count(USER) <= place.before and USER in turn.letters:
        raise EditError(
            "the model had replied in this turn before the message was said, so it cannot be replaced alone: "
            "edit the first message of the turn"
        )
    ids = turn.record.facts.get(TURN_IDS_FACT, ())
    marks = next((one.marks for one in turn.record.iterations), {})
    kept: list[InboxItem] = []
    said = 0
    for at, (entry, letter) in enumerate(zip(turn.entries, turn.letters, strict=True)):
        if letter == ASSISTANT or (letter == USER and said == place.before):
            break
        speaker, pinned = marks.get(at, (None, None))
        said += letter == USER
        more = inbox_facts(speaker, pinned)
        kept.append(InboxItem(entry=entry, letter=letter, more=more))
    rows: list[TurnIdRow | RingRow] = [*state.meta.turn, *state.meta.ring]
    places = _said_in(state, turn, dialect)
    rows = [row for row in rows if row.id in ids and places[row.id] < place.before]
    return _Left((*kept, *events), tuple(TurnIdRow(row.id, row.said, row.more) for row in rows))


def _turn_at(state: ConversationState, turns: int) -> ClosedTurn:
    """The oldest of so many newest turns."""
    opened = state.open
    if opened is not None and turns == 1:
        return opened.closed()
    return closed_turns(state)[-(turns - (opened is not None))]


def _waiting_rows(state: ConversationState) -> tuple[TurnIdRow, ...]:
    """The turn ids of the messages that wait."""
    accepted = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    return tuple(row for row in state.meta.turn if row.id not in accepted)


def _place_of(state: ConversationState, edit: int | str, dialect: Dialect) -> _Place | None:
    """Find a message of the user; None if it is not in this history."""
    closed, is_open = closed_turns(state), state.open is not None
    waiting = sum(item.letter == USER for item in state.inbox)
    number, before = edit if isinstance(edit, int) else None, 0
    if isinstance(edit, str) and (named := _named(state, edit)) is not None:
        if named[0] is None:  # a message that waits, by its place in the inbox
            items = state.inbox[: named[1]]
            is_said = len(items) == named[1] and items[-1].letter == USER
            return _Place(0, sum(item.letter == USER for item in items) - 1) if is_said else None
        number, before = named
        if number not in (state.meta.processed + 1, *numbers_of([turn.record for turn in closed])):
            number = None  # a `turn_id` may look like an id that is shown
    if number is not None:
        if number == state.meta.processed + 1:
            if is_open:
                return _Place(1, before) if _has_message(state, 1, before) else None
            return _Place(0, before) if waiting > before else None
        numbers = numbers_of([turn.record for turn in closed])
        if number < 1 or number not in numbers:
            return None
        turns = len(closed) - numbers.index(number) + is_open
        return _Place(turns, before) if _has_message(state, turns, before) else None
    digest = digest8(str(edit))
    if digest in (at := _waiting_at(state, dialect)):
        return _Place(0, at[digest])
    for turns in range(1, len(closed) + is_open + 1):
        turn = _turn_at(state, turns)
        if digest in turn.record.facts.get(TURN_IDS_FACT, ()):
            return _Place(turns, _said_in(state, turn, dialect)[digest])
    return None


def _waiting_at(state: ConversationState, dialect: Dialect) -> dict[str, int]:
    """As `_said_at`, for the turn ids of the messages that wait."""
    given = [(item.entry, item.letter) for item in state.inbox]
    return _said_at(state, [row.id for row in _waiting_rows(state)], given, dialect)


def _said_in(state: ConversationState, turn: ClosedTurn, dialect: Dialect) -> dict[str, int]:
    """As `_said_at`, for the turn ids of a turn."""
    given = list(zip(turn.entries, turn.letters, strict=True))
    return _said_at(state, turn.record.facts.get(TURN_IDS_FACT, ()), given, dialect)


_MOST_SENT: Final = 16
"""How many messages of one send are compared with the digest of its id."""


def _said_at(
    state: ConversationState, ids: Sequence[str], given: Sequence[tuple[bytes, str]], dialect: Dialect
) -> dict[str, int]:
    """For each turn id, how many messages of the user stand before the messages that came with it.

    A turn has more messages than ids if some were appended, and more ids than one if some waited, or came
    while it ran. So the messages are compared with the digest of their id. Without a match the newest
    messages that the model had when it first replied count as the messages of the newest ids; but if it got
    messages later, the id may be of those.
    """
    rows: tuple[TurnIdRow | RingRow, ...] = (*state.meta.turn, *state.meta.ring)
    digests = {row.id: row.said for row in rows}
    letters = "".join(letter for _, letter in given)
    first = letters.partition(ASSISTANT)[0].count(USER)
    ends_late = letters.count(USER) > first
    bare = [_bare(entry, dialect) if letter in GIVEN else b"" for entry, letter in given]
    found: dict[str, int] = {}
    for at, id in enumerate(ids):
        places = (
            begin
            for begin in range(len(bare))
            for end in range(begin + 1, min(begin + _MOST_SENT, len(bare)) + 1)
            if all(bare[begin:end]) and digest8(b"\n".join(bare[begin:end])) == digests.get(id)
        )
        begin = next(places, None)
        if begin is not None:
            found[id] = letters[:begin].count(USER)
        else:
            found[id] = first if ends_late else max(0, first - len(ids) + at)
    return found


def _bare(entry: bytes, dialect: Dialect) -> bytes:
    """The entry of a given message as it was before context and speaker stood in it."""
    message, *others = read_entries(dialect, [entry]) or [None]
    if message is None or others:
        return entry
    parts = message.parts
    while len(parts) > 1 and isinstance(parts[0], BlockText):
        parts = parts[1:]
    return entry if parts is message.parts else dialect.entries([replace(message, parts=parts)])[0]


def _has_message(state: ConversationState, turns: int, before: int) -> bool:
    """True if the turn has a message of the user behind so many others."""
    return not before or _turn_at(state, turns).letters.count(USER) > before


_SHOWN_ID: Final = re.compile(r"-(?:([1-9]\d{0,11})(?:u([1-9]\d{0,5})?)?|waiting-([1-9]\d{0,5}))")
"""The end of an id that front ends show: of a turn, of a message of the user in it, or of one that waits."""


def _named(state: ConversationState, id: str) -> tuple[int | None, int] | None:
    """Read an id that a front end shows: the number of the turn, and how many messages of the user stand
    before the message in it. For a message that waits: None, and its place in the inbox from 1."""
    found = _SHOWN_ID.fullmatch(id.removeprefix(state.meta.id)) if id.startswith(state.meta.id) else None
    if found is None:
        return None
    number, place, waits = found.groups()
    return (None, int(waits)) if waits else (int(number), int(place or 1) - 1)


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
        with_texts(meta, removed, dialect),
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
