"""The place of a message of the user: by a number, by an id that is shown, or by a turn id.

Owns: which messages of a turn, or of the inbox, came with which turn id: by the marks of waiting messages,
by the digests of turn ids, and by a guess where both are missing. Must never know: an edit, or how
a turn leaves a history.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from ..backends.base import Dialect
from ..backends.read_entries import read_entries
from ..base.values import replace
from ..open_turn.inbox import FORMAT, reminder
from ..open_turn.turn_ids import TURN_IDS_FACT, UNKNOWN_SAID, found_by, id_rows, said_redacted
from ..state.closed_turns import ClosedTurn, numbers_of
from ..state.letters import ASSISTANT, EVENT, GIVEN, USER
from ..state.records import InboxItem, RingRow, TurnIdRow, digest8
from ..state.state import ConversationState, closed_turns
from ..types.render import BlockText, is_file

__all__ = [
    "Place",
    "all_turns",
    "begin_of",
    "digests_kept",
    "given_end",
    "ids_of",
    "in_waiting",
    "new_digests",
    "owners_in",
    "place_of",
    "waiting_letters",
    "waiting_rows",
]


class Place(NamedTuple):
    """The place of a message: `turns`, the number of newest turns that go with it; 0 if it waits. `at`: the
    entries in front of it, in its turn or among those that wait."""

    turns: int
    at: int


def place_of(state: ConversationState, edit: int | str, dialect: Dialect) -> Place | None:
    """Find a message of the user; None if it is not in this history."""
    every, is_open = all_turns(state), state.open is not None
    numbers = numbers_of([turn.record for turn in every[: len(every) - is_open]])
    newest = state.meta.processed + 1
    number, before = edit if isinstance(edit, int) else None, 0
    if isinstance(edit, str) and (named := _named(state, edit)) is not None:
        if named[0] is None:  # a message that waits, by its place in the inbox
            at = named[1] - 1
            return Place(0, at) if waiting_letters(state)[at : at + 1] == USER else None
        number, before = named
        if number not in (newest, *numbers):
            number = None  # a `turn_id` may look like an id that is shown
    if number is not None:
        if number == newest and not is_open:
            place = _user_at(waiting_letters(state), before)
            return None if place is None else Place(0, place)
        if number < 1 or number not in (newest, *numbers):
            return None
        turns = 1 if number == newest else len(every) - numbers.index(number)
        letters = every[-turns].letters
        place = _user_at(letters, before)
        if place is None and not before:
            place = given_end(letters)  # a turn of events: they wait again, and a message follows
        return None if place is None else Place(turns, place)
    return _place_of_id(state, every, digest8(str(edit)), dialect)


def _place_of_id(
    state: ConversationState, every: Sequence[ClosedTurn], id: str, dialect: Dialect
) -> Place | None:
    """Find the messages that came with a turn id. A reminder of them that waits is not meant."""
    place = begin_of(id, in_waiting(state, dialect), waiting_letters(state))
    closed = every[: len(every) - (state.open is not None)]
    if place is not None and (state.inbox[place].letter == USER or id not in ids_of(closed)):
        return Place(0, place)
    for turns, turn in enumerate(reversed(every), 1):
        if id not in turn.record.facts.get(TURN_IDS_FACT, ()):
            continue
        place = begin_of(id, owners_in(state, turns, dialect), turn.letters)
        if place is not None and turn.letters[place] != USER and id in ids_of(every[:-turns]):
            continue
        if place is not None:
            return Place(turns, place)
        if turn.letters.count(USER) > turn.letters[: given_end(turn.letters)].count(USER):
            return Place(turns, len(turn.letters))  # it may be of those that came late
    return None


def _user_at(letters: str, before: int) -> int | None:
    """The place of the message of the user behind so many others."""
    places = [at for at, letter in enumerate(letters) if letter == USER]
    return places[before] if before < len(places) else None


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


def all_turns(state: ConversationState) -> list[ClosedTurn]:
    """All turns, oldest first, an open one among them. Reads the whole history."""
    return [*closed_turns(state), *((state.open.closed(),) if state.open is not None else ())]


def ids_of(turns: Iterable[ClosedTurn]) -> set[str]:
    """The turn ids of the messages of these turns."""
    return {id for turn in turns for id in turn.record.facts.get(TURN_IDS_FACT, ())}


def owners_in(state: ConversationState, turns: int, dialect: Dialect) -> list[str]:
    """For each entry of the oldest of so many newest turns the digest of the turn id that it came with; "" if
    that is not known."""
    every = all_turns(state)
    turn, older = every[-turns], every[:-turns]
    ids = turn.record.facts.get(TURN_IDS_FACT, ())
    again = ids_of(older).intersection(ids)
    owners = [""] * len(turn.entries)
    given = list(zip(turn.entries, turn.letters, strict=True))
    _compare(state, owners, ids, given, dialect)
    _guess(owners, ids, given, again)
    # An id of an earlier turn came again: perhaps with a reminder of its message in place of the message.
    texts = {_reminder_text(state, older, id, dialect): id for id in again.difference(owners)}
    if texts:
        for at, (entry, letter) in enumerate(given):
            if letter == EVENT and not owners[at]:
                owners[at] = texts.get(read_entries(dialect, [entry])[0].text, "")
    return owners


def new_digests(
    state: ConversationState,
    turns: Sequence[ClosedTurn | None],
    inbox: Sequence[InboxItem],
    source: Dialect,
    target: Dialect,
) -> Mapping[str, str]:
    """The digests of messages as a conversion or a redaction has written them, by the digest of the turn id.
    Only messages that were surely found have one.

    Args:
        state: The conversation before it.
        turns: Its turns behind it, an open one among them; None: the turn has not changed.
        inbox: Its waiting messages behind it.
        source: Reads the messages before it.
        target: Reads the messages behind it.
    """
    known = {row.id for row in id_rows(state.meta)}
    found: dict[str, str] = {}
    for turn, new in zip(all_turns(state), turns, strict=True):
        ids = [id for id in turn.record.facts.get(TURN_IDS_FACT, ()) if id in known]
        if new is None or not ids or len(turn.entries) > _MOST_GIVEN:
            continue
        owners = [""] * len(turn.entries)
        _compare(state, owners, ids, list(zip(turn.entries, turn.letters, strict=True)), source)
        owners = [owner for owner, letter in zip(owners, turn.letters, strict=True) if letter in GIVEN]
        entries = [entry for entry, letter in zip(new.entries, new.letters, strict=True) if letter in GIVEN]
        if len(owners) == len(entries):
            # If a turn id came again, the first messages are meant.
            found = {**_digests(zip(owners, entries, strict=True), target), **found}
    waiting = [
        (owner, item.entry)
        for owner, item in zip(in_waiting(state, source), inbox, strict=True)
        if item.topic != FORMAT
    ]
    return {**_digests(waiting, target), **found}


_Row = TypeVar("_Row", TurnIdRow, RingRow)


def digests_kept(rows: tuple[_Row, ...], found: Mapping[str, str]) -> tuple[_Row, ...]:
    """The rows of turn ids behind a redaction. A row is new only if its messages have changed.

    `found`: see `new_digests`.
    """
    pairs = ((row, found.get(row.id, "")) for row in rows)
    return tuple(
        row if not new or new == found_by(row) else row._replace(said=said_redacted(row, new))
        for row, new in pairs
    )


def _digests(owned: Iterable[tuple[str, bytes]], dialect: Dialect) -> Mapping[str, str]:
    said: dict[str, list[bytes]] = {}
    for owner, entry in owned:
        said.setdefault(owner, []).append(_bare(entry, dialect))
    return {id: digest8(b"\n".join(bare)) for id, bare in said.items() if id}


def _reminder_text(state: ConversationState, older: Sequence[ClosedTurn], id: str, dialect: Dialect) -> str:
    """The text of a reminder of the messages with this turn id in one of these turns; "" without them."""
    for turn in reversed(older):
        ids = turn.record.facts.get(TURN_IDS_FACT, ())
        if id in ids:
            owners = [""] * len(turn.entries)
            given = list(zip(turn.entries, turn.letters, strict=True))
            _compare(state, owners, ids, given, dialect)
            _guess(owners, ids, given)
            said = [
                _bare(entry, dialect)
                for entry, owner in zip(turn.entries, owners, strict=True)
                if owner == id
            ]
            if said:
                return reminder(read_entries(dialect, said)).text
    return ""


def waiting_letters(state: ConversationState) -> str:
    """The role letters of the messages that wait."""
    return "".join([item.letter for item in state.inbox])


_MOST_SENT: Final = 16
"""How many messages of one send are compared with the digest of its id."""

_MOST_GIVEN: Final = 1_000
"""A turn with more entries than that gets no new digests: a forged state would make it long."""


def begin_of(id: str, owners: Sequence[str], letters: str) -> int | None:
    """The place of the first message of the user that came with a turn id; of the first message if all are
    events; None without any."""
    places = [at for at, owner in enumerate(owners) if owner == id]
    return next((at for at in places if letters[at] == USER), places[0] if places else None)


def given_end(letters: str) -> int:
    """How many messages the model had when it first replied. The application may have greeted before."""
    own = letters.lstrip(ASSISTANT)
    return len(letters) - len(own) + len(own.partition(ASSISTANT)[0])


def waiting_rows(state: ConversationState) -> tuple[TurnIdRow, ...]:
    """The turn ids of the messages that wait."""
    accepted = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    return tuple(row for row in state.meta.turn if row.id not in accepted)


def in_waiting(state: ConversationState, dialect: Dialect) -> list[str]:
    """For each waiting message the digest of the turn id that it came with; "" if it came without one.

    The marks of the messages are exact. Only ids without a marked message are compared, and only with
    messages without a mark: an earlier release has written them.
    """
    owners = [item.turn for item in state.inbox]
    # The description of an answer may have come later, with a second delivery.
    marked = {item.turn for item in state.inbox if item.topic != FORMAT}
    ids = [row.id for row in waiting_rows(state) if row.id not in marked]
    if ids:
        given = [(item.entry, item.letter) for item in state.inbox]
        _compare(state, owners, ids, given, dialect)
        _guess(owners, ids, given)
    return owners


def _compare(
    state: ConversationState,
    owners: list[str],
    ids: Sequence[str],
    given: Sequence[tuple[bytes, str]],
    dialect: Dialect,
) -> None:
    """Write the ids into the places of `owners` that are free.

    A turn has more messages than ids if some were appended, and more ids than one if some waited, or came
    while it ran. So the messages are compared with the digest of their id.
    """
    # Of a row in both columns the one of a turn that is not finished is newer.
    digests = {row.id: found_by(row) for row in reversed(id_rows(state.meta))}
    end = given_end("".join(letter for _, letter in given))
    spans = _spans(owners, given, {digests.get(id, UNKNOWN_SAID) for id in ids} - {UNKNOWN_SAID}, dialect)
    for said, found in spans.items():
        same = [id for id in ids if digests.get(id) == said]
        first: list[range] = []
        late: list[range] = []
        for span in found:
            if any(owners[at] for at in span) or any(span.start in one for one in (*first, *late)):
                continue
            (first if span.stop <= end else late).append(span)
        # A message that was appended stands before the message of the send that began the turn. So of more
        # equal messages than ids, the newest are those of the ids.
        for id, span in zip(same, (*first[-len(same) :], *late), strict=False):
            for at in span:
                owners[at] = id


def _spans(
    owners: Sequence[str], given: Sequence[tuple[bytes, str]], digests: Collection[str], dialect: Dialect
) -> Mapping[str, list[range]]:
    """The places of the messages that have one of these digests, the most messages first."""
    found: dict[str, list[range]] = {}
    if not digests:
        return found
    free = [letter in GIVEN and not owner for (_, letter), owner in zip(given, owners, strict=True)]
    bare = [_bare(entry, dialect) if here else b"" for (entry, _), here in zip(given, free, strict=True)]
    for length in range(min(_MOST_SENT, len(bare)), 0, -1):
        for begin in range(len(bare) - length + 1):
            span = range(begin, begin + length)
            if all(free[at] for at in span):
                said = digest8(b"\n".join(bare[begin : begin + length]))
                if said in digests:
                    found.setdefault(said, []).append(span)
    return found


def _guess(
    owners: list[str],
    ids: Sequence[str],
    given: Sequence[tuple[bytes, str]],
    again: Collection[str] = (),
) -> None:
    """Take the newest free messages that the model had when it first replied for the messages of the ids
    that no digest has found, in the order of the ids. Nothing is taken if the model got free messages later:
    an id may be of those. `again`: the ids of earlier turns, for which nothing is guessed."""
    end = given_end("".join(letter for _, letter in given))
    users = [at for at, (_, letter) in enumerate(given) if letter == USER and not owners[at]]
    if any(at >= end for at in users):
        return
    limit = end
    for id in reversed(ids):
        if id in owners:
            limit = min(limit, owners.index(id))
        elif id not in again and users:
            at = max((at for at in users if at < limit), default=users[-1])
            users.remove(at)
            owners[at], limit = id, min(limit, at)


def _bare(entry: bytes, dialect: Dialect) -> bytes:
    """The entry of a given message as it was before context and speaker stood in it."""
    message, *others = read_entries(dialect, [entry]) or [None]
    if message is None or others:
        return entry
    parts = message.parts
    while len(parts) > 1 and isinstance(parts[0], BlockText) and not is_file(parts[0]):
        parts = parts[1:]
    return entry if parts is message.parts else dialect.entries([replace(message, parts=parts)])[0]
