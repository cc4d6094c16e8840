"""Redaction: remove a text from all places of a state.

Owns: the order of the steps and of the passes, the places of matches, which signed blocks a change takes out,
and the report. Must never know: how an entry or a row is rewritten, or a store.

::

    drop the values of a later release -> rewrite entries and rows -> take signed blocks out behind the first
    change -> rewrite archive and whole results -> do it again, which must find nothing

A provider signs a block together with its prefix. So a change in an entry makes all signed blocks behind it
invalid, and they leave. Blocks before it stay valid, and stay. Turns of the history and of the archive are
compared by their numbers: an undone cut puts them back in this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ...backends.base import Dialect
from ...backends.dialects import dialect_for, known_dialect
from ...base.values import Value, replace
from ...state.closed_turns import ClosedTurn, Iteration, with_numbers
from ...state.codec import PLAIN, Codec
from ...state.media_rows import results_of, with_results
from ...state.parts import ELSEWHERE, MAX_PART_BYTES, RESULT, Part, new_part
from ...state.records import Meta, OpenTurn, digest8, with_cut
from ...state.state import (
    ConversationState,
    closed_entries,
    closed_turns,
    dump_state,
    hard_limits,
    load_state,
    newest_number,
    rebuild,
)
from ..archive_reading import REDACTED
from ..message_places import digests_kept, new_digests
from ..rewrite.rewritten import is_signed
from .archived import ArchivedCut, cuts_of, with_cuts
from .entry_texts import Redactor
from .matching import Finder, Match, found_again
from .rows import inbox_without, meta_without, open_without, record_without, strip_unknown

__all__ = [
    "ChangedEntries",
    "Pass",
    "RedactedPlace",
    "Redaction",
    "marked_redacted",
    "redact_state",
]

_OPAQUE: Final = (b'"encrypted_content"', b'"redacted_thinking"')
_PASSES: Final = 4


class Redaction(Value, frozen=True, kw_only=True):
    """The result of `redact_state`. Apart from the state, it has no content of the conversation.

    Attributes:
        state: The new state; the given bytes if nothing had to change.
        count: How many matches were replaced.
        places: Where; oldest turns first.
        kept: How many matches were left, because they are words of the provider API, such as ``"user"`` in
            ``"role": "user"``.
        unsigned: How many entries have lost signed or encrypted reasoning, or its id. The provider would not
            accept them behind the change.
        sealed: How many entries still hold pieces that only the provider can read, and that cannot be
            searched. These are encrypted reasoning from before the first change, and compactions of the
            provider.
        dropped: How many values of a later release were dropped, because this release cannot read them.
        erased: Of a kept conversation: how many rows of unreadable bytes were deleted; None if the store
            cannot list its rows, so that they cannot be found. 0 for a state alone.
    """

    _unshown = frozenset({"state"})

    state: bytes
    count: int
    places: tuple[RedactedPlace, ...]
    kept: int
    unsigned: int
    sealed: int
    dropped: int
    erased: int | None = 0


def redact_state(
    blob: bytes | bytearray | memoryview,
    match: Match,
    with_: str = "[redacted]",
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> Redaction:
    """Redact a text in a state: messages, tool calls and results, archive, waiting messages, metadata.

    Text is matched without its escapes: in tool arguments, in JSON in a result, in events, and across the
    parts of a message. The result keeps the rules of the provider API. Signed thinking behind the first
    change is taken out. A second call changes nothing.

    It does not search pictures and other media that are no text, digests, numbers outside of tool arguments,
    and blocks that only the provider can read (`Redaction.sealed`).

    Args:
        blob: The state.
        match: A text, with upper and lower case as given; a compiled regular expression; or a function that
            takes a text and gives the (start, end) of each match.
        with_: The replacement. It must have a visible character, and must not match.
        codec: How the blob is protected, before and after.
        binding: The owner, for a sealed blob.
        min_revision: The least revision that it may have.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        TypeError, ValueError: The match cannot be searched, or `with_` would be found again.
        ValueError: Parts of the state are kept in a store: use `redact` of the conversation.
        StateError: The blob cannot be read, or a part of it is damaged.
    """
    redactor = Redactor(Finder(match, with_))
    given = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    if any(part.place == ELSEWHERE for part in given.parts):
        raise ValueError(
            "a store keeps parts of this state, and the blob does not have them: use redact() of a "
            "conversation with parts='store'"
        )
    dialect = dialect_for(given.meta.wire, dialect)
    known, dropped = strip_unknown(given)
    first = Pass(known, redactor, dialect, codec, binding)
    state, places = first.state, first.places
    for _ in range(_PASSES):
        again = Pass(state, redactor, dialect, codec, binding)
        if not again.places:
            break
        state, places = again.state, [*places, *again.places]
    else:
        raise found_again()
    dropped += first.dropped
    found = Redaction(
        state=bytes(blob),
        count=sum(place.count for place in places),
        places=tuple(places),
        kept=first.kept,
        unsigned=first.unsigned,
        sealed=_sealed(state, codec, binding),
        dropped=dropped,
    )
    if not places and not dropped:
        return found
    return replace(found, state=_written(state, bytes(blob), codec, binding, is_marked=bool(places)))


def marked_redacted(blob: bytes, *, codec: Codec, binding: Any) -> bytes:
    """The state with the mark of a redaction in which nothing was found."""
    return _written(load_state(blob, codec=codec, binding=binding), blob, codec, binding, is_marked=True)


def _written(state: ConversationState, given: bytes, codec: Codec, binding: Any, *, is_marked: bool) -> bytes:
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(given[:112]))
    if is_marked:
        # A redaction has no clock, so the row has the time of the last write. It tells another worker, which
        # saves a turn on the old state, that the history has changed.
        meta = msgspec.structs.replace(meta, cuts=with_cut(meta, meta.updated, REDACTED, 0, 0))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def _sealed(state: ConversationState, codec: Codec, binding: Any) -> int:
    entries = [*closed_entries(state), *(state.open.entries if state.open is not None else ())]
    entries += [entry for cut in cuts_of(state, codec, binding) for entry in cut.entries]
    return sum(any(mark in entry for mark in _OPAQUE) for entry in entries)


_Where: TypeAlias = Literal["history", "open", "inbox", "archive", "results", "facts", "set_aside"]

_CONTEXT: Final = b"<app-context>"
"""The mark of a context block."""


class RedactedPlace(Value, frozen=True, kw_only=True):
    """Where something was replaced.

    Attributes:
        where: The closed history; the unfinished turn; the messages that wait; the archive; the results that
            are kept whole; the facts of the conversation, such as its title, metadata and remembered replies;
            or bytes of a kept conversation that had been set aside.
        turn: The number of the turn; None where there is no turn, 0 for a note of a compaction.
        count: How many matches were replaced there.
    """

    where: _Where
    turn: int | None
    count: int


class Pass:
    """A pass over a state.

    Attributes:
        state: The state without the matches.
        places: Where something was replaced.
        kept: How many matches were words of the provider API. They stay.
        unsigned: How many entries lost signed blocks.
        dropped: How many names of a later release the archive had.
    """

    def __init__(
        self, state: ConversationState, redactor: Redactor, dialect: Dialect, codec: Codec, binding: Any
    ) -> None:
        self._finder, self._dialect = redactor.finder, dialect
        self._redactor = redactor
        redactor.begin()
        self.places: list[RedactedPlace] = []
        self.unsigned = 0
        cuts = cuts_of(state, codec, binding)
        self.dropped = sum(cut.dropped for cut in cuts)
        redacted = with_cuts(*self._done(state, cuts), codec)
        self.state = self._with_results(redacted, codec, binding)
        self.kept = self._redactor.kept

    def _done(
        self, state: ConversationState, cuts: Sequence[ArchivedCut]
    ) -> tuple[ConversationState, list[ArchivedCut]]:
        """The state without the match, but with its old archive; and the records of the new archive."""
        live, newest = with_numbers(closed_turns(state)), newest_number(state)
        entries = [entry for turn in live for entry in turn.entries]
        self._redactor.learn_ids([*entries, *(entry for cut in cuts for entry in cut.entries)])
        self._redactor.learn_ids(state.open.entries if state.open is not None else ())

        turns = [self._turn(turn, "history") for turn in live]
        opened = state.open
        if opened is not None:
            with self._noting("open", newest):
                opened = open_without(self._redactor, opened)
        with self._noting("inbox"):
            inbox = inbox_without(self._redactor, state.inbox)
        records = [self._record(cut) for cut in cuts]
        with self._noting("facts"):
            meta = meta_without(self._redactor, state.meta)
        changed = [new if new.entries != old.entries else None for new, old in zip(turns, live, strict=True)]
        if state.open is not None and opened is not None:
            changed.append(opened.closed() if opened.entries != state.open.entries else None)
        said = new_digests(state, changed, inbox, self._dialect, self._dialect)
        meta = msgspec.structs.replace(
            meta, turn=digests_kept(meta.turn, said), ring=digests_kept(meta.ring, said)
        )

        histories = [[*map(_changed, live, turns)]]
        if state.open is not None and opened is not None:
            running = ChangedEntries(newest, state.open.entries, opened.entries, state.open.iterations)
            histories[0].append(running)
        histories += [[*map(_changed, old.turns, new.turns)] for old, new in zip(cuts, records, strict=True)]
        waiting = ChangedEntries(newest, [one.entry for one in state.inbox], [one.entry for one in inbox], ())
        forgets = any(_has_other_context(one) for history in (*histories, [waiting]) for one in history)

        first = _first_change(histories)
        turns = [self._unsigned(turn, first, self._dialect) for turn in turns]
        if opened is not None:
            opened, lost = _open_unsigned(opened, newest, first, self._dialect)
            self.unsigned += lost
        records = [
            replace(
                record,
                turns=tuple([self._unsigned(turn, first, self._reader(record)) for turn in record.turns]),
                forgets_context=forgets,
            )
            for record in records
        ]
        if any(new is not old for new, old in zip(turns, live, strict=True)):
            state = rebuild(state, turns)
        if first is not None and meta.signed:
            rest = [entry for turn in turns for entry in turn.entries]
            rest += opened.entries if opened is not None else ()
            signed = is_signed(rest, self._dialect)
            meta = msgspec.structs.replace(meta, signed=signed, unbound=meta.unbound and signed)
        meta = _counted(meta, live, turns)
        if forgets:
            meta = msgspec.structs.replace(meta, context="")  # so the next turn sends it again
        return replace(state, meta=meta, inbox=inbox, open=opened), records

    def _with_results(self, state: ConversationState, codec: Codec, binding: Any) -> ConversationState:
        """The state with its whole results redacted. Each keeps its number; a changed one gets a new part."""
        old = results_of(state.parts)
        new: list[Part] = []
        for part in old:
            text = part.raw(codec, binding).decode("utf-8", "replace")
            with self._noting("results"):
                left = self._redactor.text(text)
            if left is text:
                new.append(part)
            elif len(raw := left.encode()) <= MAX_PART_BYTES:
                new.append(new_part(RESULT, raw, part.entries, compresses=codec.compresses))
        if new == old:
            return state
        return replace(state, parts=with_results(state.parts, new))

    def _turn(self, turn: ClosedTurn, where: _Where) -> ClosedTurn:
        with self._noting(where, turn.record.facts.get("n")):
            new = turn.with_entries([self._redactor.entry(entry) for entry in turn.entries])
            record = record_without(self._redactor, turn.record)
        return new if record is turn.record else replace(new, record=record)

    def _record(self, cut: ArchivedCut) -> ArchivedCut:
        turns = tuple([self._turn(turn, "archive") for turn in cut.turns])
        with self._noting("archive"):
            by = self._redactor.text(cut.by)[:64]
        return replace(cut, turns=turns, by=by)

    def _reader(self, cut: ArchivedCut) -> Dialect | None:
        wire = cut.record.wire
        return self._dialect if wire == self._dialect.wire else known_dialect(wire)

    def _unsigned(
        self, turn: ClosedTurn, first: tuple[int, int] | None, dialect: Dialect | None
    ) -> ClosedTurn:
        left, lost = _unsigned_behind(turn, _number(turn), first, dialect)
        self.unsigned += lost
        return left

    @contextmanager
    def _noting(self, where: _Where, turn: int | None = None) -> Iterator[None]:
        """Note the number of replacements inside the block."""
        before = self._finder.count
        yield
        if found := self._finder.count - before:
            self.places.append(RedactedPlace(where=where, turn=turn, count=found))


def _number(turn: ClosedTurn) -> int:
    number = turn.record.facts.get("n")
    return number if type(number) is int else 0


def _changed(old: ClosedTurn, new: ClosedTurn) -> ChangedEntries:
    return ChangedEntries(_number(old), old.entries, new.entries, old.record.iterations)


def _has_other_context(turn: ChangedEntries) -> bool:
    return any(old is not new and _CONTEXT in old for old, new in zip(turn.old, turn.new, strict=True))


def _counted(meta: Meta, old: Sequence[ClosedTurn], new: Sequence[ClosedTurn]) -> Meta:
    """The meta data with the number of messages that are left."""
    lost = sum(turn.record.messages for turn in old) - sum(turn.record.messages for turn in new)
    return msgspec.structs.replace(meta, messages=max(0, meta.messages - lost)) if lost else meta


class ChangedEntries(Value, frozen=True):
    """A turn with its number, before and after a change of its entries. A note has the number 0."""

    number: int
    old: Sequence[bytes]
    new: Sequence[bytes]
    iterations: Sequence[Iteration]

    @property
    def iteration(self) -> int | None:
        """The first iteration with another entry; None without one."""
        ends = list(accumulate(len(one.roles) for one in self.iterations))
        for place, (old, new) in enumerate(zip(self.old, self.new, strict=True)):
            if old is not new:
                return next((at for at, end in enumerate(ends) if place < end), len(ends))
        return None


def _first_change(histories: Sequence[Sequence[ChangedEntries]]) -> tuple[int, int] | None:
    """The number of the first changed turn, and its first changed iteration; None without a change.

    `histories`: turns in order, of the history and of each record of the archive. A changed note counts as a
    change at the beginning of the turn behind it.
    """
    found: list[tuple[int, int]] = []
    for turns in histories:
        behind = 0
        for turn in reversed(turns):
            behind = turn.number or behind
            if (iteration := turn.iteration) is not None:
                found.append((behind, iteration if turn.number else 0))
    return min(found, default=None)


def _unsigned_behind(
    turn: ClosedTurn, number: int, first: tuple[int, int] | None, dialect: Dialect | None
) -> tuple[ClosedTurn, int]:
    """The turn without its signed blocks behind the first change, and how many entries had signed blocks. The
    same object if there are no blocks to take out."""
    at = _begin(number, turn.record.iterations, first)
    if at is None or dialect is None:
        return turn, 0
    behind = turn.entries[at:]
    left = dialect.unsigned(behind)
    lost = sum(new is not old for new, old in zip(left, behind, strict=True))
    return turn.with_entries([*turn.entries[:at], *left]), lost


def _open_unsigned(
    turn: OpenTurn, number: int, first: tuple[int, int] | None, dialect: Dialect
) -> tuple[OpenTurn, int]:
    """As `_unsigned_behind`, for the unfinished turn."""
    closed = turn.closed()
    left, lost = _unsigned_behind(closed, number, first, dialect)
    if left is closed:
        return turn, 0
    count = len(turn.iterations)
    known, rest = left.record.iterations[:count], left.record.iterations[count:]
    changed = replace(
        turn,
        entries=left.entries,
        iterations=known,
        letters="".join(one.roles for one in rest),
        messages=left.record.messages,
    )
    return changed, lost


def _begin(number: int, iterations: Sequence[Iteration], first: tuple[int, int] | None) -> int | None:
    """The place of the first entry of a turn behind the first change; None if all are before it."""
    if first is None or number < first[0]:
        return None
    if number > first[0]:
        return 0
    return sum(len(one.roles) for one in iterations[: first[1]])
