"""The archive: what cuts took out of a history or changed in it, never sent, kept in parts beside it.

Owns: what a record of the archive is, and the steps that write, read and drop records. Must never know: why a
cut is made, or which turns a strategy keeps.

::

    part      kind 64, up to 256 KiB of raw bytes:  entry ,⏎ entry ,⏎ … entry ⏎ record,record,…
    record    {cut},turn,turn,…        a turn is a row as in a history segment, see `segments`
    {cut}     n        how many turns had been closed before the cut
              by       the strategy, as in the journal of cuts
              wire     the provider API of the entries
              prev     the digest of the record before this one; left out if there was none
              places   the place of each turn of the record in the history before the cut
              stays    the places in the history after the cut of the turns that stayed as they were
              before   what the cut changed in the meta data, as it was: see `Before`
              voice    a digest of model, endpoint, preamble and tools of the last request before the cut
              media    the digests of the media that the entries name, see `media`; left out without any

A record holds each turn that does not stand in the new history exactly as it was directly before the cut:
removed, reworded, without its signed blocks, with a context block more or less. The turns that stayed are not
in it. In the history, a turn that was changed has the fact "c": it is a copy, and its original is in the
archive. The row of the cut in the journal names the digest of its record as "record".

The oldest part goes first. Then the journal of cuts has a row "evicted", which says how many records and
bytes went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, Final

import msgspec

from .. import rawjson
from ..errors import StateCorruptError, StateError, StateInvalidError
from ..rawjson import RawJSONError
from ..state.bounds import Count, Label
from ..state.closed_turns import ClosedTurn, has_gap, numbers_of, with_numbers
from ..state.codec import BlobLimits, Codec, check_limit
from ..state.media import Media, added_by, cut_out, digest_of, put_back, references
from ..state.media_rows import archived_bytes, media_of, only_archived, with_archived
from ..state.parts import ARCHIVE, ELSEWHERE, INLINE, MAX_PART_BYTES, Part, new_part
from ..state.records import MAX_MEDIA, CutRow, Meta, cut_facts, digest8
from ..state.segments import JOIN, records_in, turn_columns
from ..state.state import ConversationState, closed_turns, hard_limits, rebuild
from ..values import Value, replace

__all__ = [
    "REDACTED",
    "Before",
    "Record",
    "Retention",
    "archive_of",
    "check_chain",
    "is_undoable",
    "marked",
    "newest_cut",
    "newest_record",
    "part_of",
    "record_digest",
    "records_of",
    "stored_records",
    "undoable",
    "undone",
    "whole_record",
    "with_joined",
    "with_record",
    "with_room",
    "without_oldest",
]

SHARED_BYTES: Final = 256 * 1024
"""Records share a part until it has this many raw bytes."""

_SHARES: Final = 4
"""A part also gets no more records once it has this fraction of `retain_bytes`, so that dropping the oldest
part does not drop the whole archive."""

_COPY_FACT: Final = "c"


class Retention(Value, frozen=True, kw_only=True):
    """What a cut needs to keep what it changes.

    Attributes:
        most_bytes: The most stored bytes of the archive in the blob. Parts that a store keeps do not count.
        codec: How the blob is protected: the newest part is opened to take in one more record.
        binding: The owner, for a sealed blob.
        limits: The limits of the state.
    """

    most_bytes: int
    codec: Codec
    binding: Any
    limits: BlobLimits


class Before(msgspec.Struct, frozen=True):
    """The meta data that a cut changes, as they were before it."""

    tokens: Count = 0
    gauge: Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)] = ()
    context: Label = ""
    signed: bool = False
    unbound: bool = False
    rules: Count = 0
    warned: Count = 0
    messages: Count = 0
    turns: Count = 0

    @classmethod
    def of(cls, meta: Meta) -> Before:
        """These fields of a state's meta data."""
        return cls(*[getattr(meta, name) for name in cls.__struct_fields__])

    def restored(self, meta: Meta) -> Meta:
        """The meta data with these fields."""
        return msgspec.structs.replace(meta, **{name: getattr(self, name) for name in self.__struct_fields__})


class _Cut(msgspec.Struct, frozen=True):
    n: Count
    by: Label
    wire: Label
    prev: Label = ""
    places: tuple[Count, ...] = ()
    stays: tuple[Count, ...] = ()
    before: Before = Before()
    voice: Label = ""


class Record(Value, frozen=True, kw_only=True):
    """What one cut took out or changed; see the module for the fields.

    `turns` are the turns as they were, each with its number as the fact "n". `digest` names the record.
    """

    _unshown = frozenset({"turns"})

    number: int
    by: str
    wire: str
    previous: str
    places: tuple[int, ...]
    stays: tuple[int, ...]
    before: Before
    voice: str
    turns: tuple[ClosedTurn, ...]
    digest: str


# --------------------------------------------------------------------------------------------- writing


def marked(turns: Sequence[ClosedTurn], rest: Sequence[ClosedTurn]) -> list[ClosedTurn]:
    """The turns after a cut; each that the cut changed has the mark of a copy. Notes get none.

    `turns` are the turns before the cut. A turn that stayed is the very object.
    """
    before = set(map(id, turns))
    return [turn if id(turn) in before or not turn.record.facts.get("n") else _copy(turn) for turn in rest]


def _copy(turn: ClosedTurn) -> ClosedTurn:
    facts = {name: value for name, value in turn.record.facts.items() if name != "n"}
    # The number stands last, as `with_numbers` writes it, so that an undone cut gives back the same bytes.
    facts |= {_COPY_FACT: True, "n": turn.record.facts["n"]}
    return replace(turn, record=replace(turn.record, facts=facts))


def with_record(
    cut: ConversationState,
    old: ConversationState,
    turns: Sequence[ClosedTurn],
    rest: Sequence[ClosedTurn],
    retention: Retention,
    *,
    at: int,
) -> ConversationState:
    """The state after a cut, with a record of the cut in its archive. The oldest parts go if need be.

    A record that is larger than the whole archive may be is not kept: its cut cannot be undone.

    Args:
        cut: The state after the cut. Its newest row in the journal of cuts is that of the cut.
        old: The state before it.
        turns: The turns before it, each with its number.
        rest: The turns after it. A turn that stayed as it was is the very object.
        retention: How much is kept.
        at: Now, in milliseconds after the conversation began.
    """
    row = cut.meta.cuts[-1]
    after = set(map(id, rest))
    before = set(map(id, turns))
    changed = [(place, turn) for place, turn in enumerate(turns) if id(turn) not in after]
    head: dict[str, Any] = {"n": old.meta.processed, "by": row.by, "wire": old.meta.wire}
    if previous := newest_record(old.meta):
        head["prev"] = previous
    head |= {
        "places": [place for place, _ in changed],
        "stays": [place for place, turn in enumerate(rest) if id(turn) in before],
        "before": msgspec.to_builtins(Before.of(old.meta)),
        "voice": _voice(old.meta),
    }
    whole = [entry for _, turn in changed for entry in turn.entries]
    entries, media = _cut_out(whole, cut)
    if media:
        head["media"] = [name.decode() for name in media]
    columns = [rawjson.dumps(head), *[turn_columns([turn.record]) for _, turn in changed]]
    parts = _with_entry(cut, entries, columns, retention, media)
    if parts is None:
        return _journalled(cut, at, records=1, size=sum(map(len, whole)))
    more = {**msgspec.json.decode(row.more), "record": record_digest(columns, entries)}
    named = row._replace(more=msgspec.Raw(msgspec.json.encode(more)))
    meta = msgspec.structs.replace(cut.meta, cuts=(*cut.meta.cuts[:-1], named))
    if media:
        meta, parts = with_archived(meta, parts, media, old.meta.processed)
    return _bounded(replace(cut, meta=meta, parts=parts), retention, at)


def _cut_out(entries: Sequence[bytes], state: ConversationState) -> tuple[Sequence[bytes], Media]:
    """The entries of a record as they are stored, and their media; the entries as they are if the archive
    would have too many media."""
    stored, media = cut_out(entries)
    archived = {row.digest.encode() for row in state.meta.media if row.archived}
    if not media or len(archived | media.keys()) > MAX_MEDIA // 2:
        return entries, {}
    return stored, media


def _voice(meta: Meta) -> str:
    """A digest of what stands before the history in a request. Thinking is signed over that, too."""
    return digest8("\n".join((meta.family, meta.model, meta.preamble, meta.tools)))


def newest_record(meta: Meta) -> str:
    """The digest of the newest record, as the journal of cuts names it; "" if it names none."""
    found = [facts.record for row in meta.cuts if (facts := cut_facts(row)) is not None and facts.record]
    return found[-1] if found else ""


def _with_entry(
    state: ConversationState,
    entries: Sequence[bytes],
    columns: Sequence[bytes],
    retention: Retention,
    media: Media,
) -> tuple[Part, ...] | None:
    """The parts with one more record, which names these media; None if it is too large to be kept. The media
    that no live turn has count, too."""
    parts = state.parts
    codec, binding = retention.codec, retention.binding
    text, lines = JOIN.join(entries), b",".join(columns)
    if len(text) + len(lines) + 1 > MAX_PART_BYTES:
        return None
    alone = new_part(ARCHIVE, text + b"\n" + lines, 1, compresses=codec.compresses)
    own = only_archived(state.segments, media)
    if alone.stored_len + own > min(retention.most_bytes, retention.limits.max_archive_bytes):
        return None
    archive = [part for part in parts if part.kind == ARCHIVE]
    last = archive[-1] if archive else None
    own += archived_bytes(state.meta, parts, state.segments)
    if last is not None and _takes_more(last, alone, retention.most_bytes - _SHARES * own):
        with suppress(StateError):  # damage in the archive does not stop a turn; a new part begins
            archive[-1] = _one_part(last, alone, codec, binding)
            return _in_order(parts, archive)
    return _in_order(parts, [*archive, alone])


def _one_part(older: Part, newer: Part, codec: Codec, binding: Any) -> Part:
    """One part with the records of two, in order.

    Raises:
        StateError: The older part is damaged.
    """
    pieces = [part.raw(codec, binding).rpartition(b"\n") for part in (older, newer)]
    if pieces[0][2][:1] != b"{":
        raise _invalid("a turn that belongs to no cut")
    text = JOIN.join([text for text, _, _ in pieces if text])
    raw = text + b"\n" + b",".join([lines for _, _, lines in pieces])
    return new_part(ARCHIVE, raw, older.entries + newer.entries, compresses=codec.compresses)


def with_room(parts: Sequence[Part]) -> Part | None:
    """The part elsewhere that a new part of the archive may join; None if there is no such pair.

    For a store of parts: a cut does not have the older parts of the archive, so its record begins a part.
    """
    archive = [part for part in parts if part.kind == ARCHIVE]
    for older, newer in pairwise(archive):
        if older.place == ELSEWHERE and newer.place == INLINE:
            fits = older.raw_len + newer.raw_len <= SHARED_BYTES
            return older if fits and not older.is_here else None
    return None


def with_joined(
    state: ConversationState, stored: bytes, codec: Codec, binding: Any = None
) -> ConversationState:
    """The state whose new part of the archive stands in one part with the part that `with_room` gave.

    `stored`: the bytes of that part. The very object if they are damaged.
    """
    older = with_room(state.parts)
    if older is None:
        return state
    parts = list(state.parts)
    place = next(at for at, part in enumerate(parts) if part is older)
    with suppress(StateError):
        there = replace(older, place=INLINE, stored=stored)
        parts[place : place + 2] = [_one_part(there, parts[place + 1], codec, binding)]
        return replace(state, parts=tuple(parts))
    return state


def _takes_more(part: Part, more: Part, most_bytes: int) -> bool:
    return (
        part.place == INLINE
        and part.is_here
        and part.raw_len + more.raw_len <= SHARED_BYTES
        and part.stored_len + more.stored_len <= most_bytes // _SHARES
    )


def _in_order(parts: Sequence[Part], archive: Sequence[Part]) -> tuple[Part, ...]:
    others = [part for part in parts if part.kind != ARCHIVE]
    return tuple(sorted([*others, *archive], key=lambda part: part.kind))  # stable


# -------------------------------------------------------------------------------------------- dropping


def _bounded(state: ConversationState, retention: Retention, at: int) -> ConversationState:
    """The state without the oldest parts of its archive that are beyond what may be kept."""
    archive = [part for part in state.parts if part.kind == ARCHIVE]
    limits = retention.limits
    gone: list[Part] = []
    while len(archive) > 1:  # the newest record fits, see `_with_entry`
        here = [part for part in archive if part.place == INLINE]
        media = archived_bytes(state.meta, _in_order(state.parts, archive), state.segments)
        if here and sum(part.stored_len for part in here) + media > retention.most_bytes:
            oldest = here[0]
        elif (
            sum(part.stored_len for part in archive) > limits.max_archive_bytes
            or len(state.parts) - len(gone) > limits.max_segments // 2
        ):
            oldest = archive[0]
        else:
            break
        archive.remove(oldest)
        gone.append(oldest)
    return _without(state, gone, at)


def without_oldest(
    state: ConversationState, fits: Callable[[ConversationState], bool], *, at: int
) -> ConversationState:
    """The state with as few parts of the archive dropped, oldest first, as it takes to fit; without any in
    the blob if that is not enough. The very object if the blob has none."""
    here = [part for part in state.parts if part.kind == ARCHIVE and part.place == INLINE]
    lean = state
    for count in range(1, len(here) + 1):
        lean = _without(state, here[:count], at)
        if fits(lean):
            break
    return lean


def _without(state: ConversationState, gone: Sequence[Part], at: int) -> ConversationState:
    if not gone:
        return state
    dropped = set(map(id, gone))
    left = tuple(part for part in state.parts if id(part) not in dropped)
    records, size = sum(part.entries for part in gone), sum(part.stored_len for part in gone)
    return _journalled(replace(state, parts=left), at, records=records, size=size)


_CUTS_KEPT: Final = 64
"""The most rows that the journal of cuts holds."""


def _journalled(state: ConversationState, at: int, *, records: int, size: int) -> ConversationState:
    facts = {"n": state.meta.processed, "records": records, "size": size}
    row = CutRow(max(0, at), "evicted", 0, 0, msgspec.Raw(msgspec.json.encode(facts)))
    rows = (*state.meta.cuts, row)[-_CUTS_KEPT:]
    return replace(state, meta=msgspec.structs.replace(state.meta, cuts=rows))


# --------------------------------------------------------------------------------------------- reading


def archive_of(state: ConversationState, codec: Codec, binding: Any = None) -> list[Record]:
    """All records of the archive, oldest first, with whole entries.

    Raises:
        StateError: A part is elsewhere, or damaged.
        StateTooLargeError: A record has more than a state may have, or all records more than the archive may,
            with all media in their entries.
    """
    limits = hard_limits(codec)
    media = media_of(state.meta, state.parts, codec, binding)
    records: list[Record] = []
    size = 0
    for record in stored_records(state.parts, codec, binding):
        size += _added(record, media, limits)
        check_limit("max_archive_bytes", limits.max_archive_bytes, size)
        records.append(whole_record(record, media, limits))
    return records


def stored_records(parts: Sequence[Part], codec: Codec, binding: Any = None) -> list[Record]:
    """All records in these parts, oldest first, with their entries as they are stored; see `media`.

    Raises:
        StateError: A part is elsewhere, or damaged.
    """
    return [
        record
        for part in parts
        if part.kind == ARCHIVE
        for record in _records(part.raw(codec, binding), part.entries)
    ]


def _added(record: Record, media: Media, limits: BlobLimits) -> int:
    """How many bytes the entries of a record grow by when its media are put back.

    Raises:
        StateInvalidError: The state does not have one of the media.
        StateTooLargeError: The entries are larger than those of a state may be.
    """
    entries = [entry for turn in record.turns for entry in turn.entries]
    added = added_by([name for entry in entries for name in references(entry)], media)
    if added:
        check_limit("max_decoded_bytes", limits.max_decoded_bytes, added + sum(map(len, entries)))
    return added


def whole_record(record: Record, media: Media, limits: BlobLimits) -> Record:
    """The record with all media in its entries. The very object if it names none.

    Raises `StateInvalidError` or `StateTooLargeError` as `archive_of`.
    """
    if not _added(record, media, limits):
        return record
    turns = [
        replace(turn, entries=tuple([put_back(e, media) for e in turn.entries])) for turn in record.turns
    ]
    return replace(record, turns=tuple(turns))


def check_chain(state: ConversationState, codec: Codec, binding: Any = None) -> None:
    """Check that each record names the one before it, and that the journal of cuts names the newest.

    Nothing is checked if the journal names no record, or if a part of the archive is elsewhere. Each medium
    that a record names must be in the state, and each medium that is here must have its digest.

    Raises:
        StateCorruptError: A record is missing between two others, was changed, or is not the newest.
        StateError: A part is damaged.
    """
    media = media_of(state.meta, state.parts, codec, binding)
    for name, medium in media.items():
        if medium.part.is_here and digest_of(replace(medium.part).raw(codec, binding)) != name:
            raise StateCorruptError(
                "a medium of the state does not have the digest by which its entries name it; restore the "
                "state from a backup"
            )
    archive = [part for part in state.parts if part.kind == ARCHIVE]
    newest = newest_record(state.meta)
    if not newest or not archive or not all(part.is_here for part in archive):
        return
    records = stored_records(archive, codec, binding)
    for record in records:
        _added(record, media, hard_limits(codec))
    names = [*[record.previous for record in records[1:]], newest]
    # A name is left out if the journal, which is bounded, did not know the record before.
    if any(name not in ("", record.digest) for name, record in zip(names, records, strict=True)):
        raise StateCorruptError(
            "the records of the archive are not those that the journal of cuts and the records themselves "
            "name; restore the state from a backup, or go on without its archive"
        )


def records_of(part: Part, codec: Codec, binding: Any = None) -> list[tuple[Record, list[bytes]]]:
    """The records of one part, each with its columns as they are written: ``{cut}``, and a row for each turn.

    Raises:
        StateError: The part is elsewhere, or damaged.
    """
    raw = part.raw(codec, binding)
    records = _records(raw, part.entries)
    return list(zip(records, _columns(raw.rpartition(b"\n")[2]), strict=True))


def part_of(records: Sequence[tuple[Sequence[bytes], Sequence[bytes]]], codec: Codec) -> Part:
    """A part of these records, each given as its columns and its entries; see `records_of`."""
    text = JOIN.join([entry for _, entries in records for entry in entries])
    lines = b",".join([column for columns, _ in records for column in columns])
    return new_part(ARCHIVE, text + b"\n" + lines, len(records), compresses=codec.compresses)


def record_digest(columns: Sequence[bytes], entries: Sequence[bytes]) -> str:
    """The digest that names a record, in the record behind it and in the journal of cuts."""
    return digest8(b"\n".join([*columns, *entries]))


def _columns(lines: bytes) -> list[list[bytes]]:
    """The columns of each record."""
    found: list[list[bytes]] = []
    with suppress(RawJSONError):
        for item in rawjson.items(b"[" + lines + b"]"):
            if item[:1] == b"{":
                found.append([item])
            elif found:
                found[-1].append(item)
            else:
                raise _invalid("a turn that belongs to no cut")
    return found


def _records(raw: bytes, count: int) -> list[Record]:
    text, _, lines = raw.rpartition(b"\n")
    entries = text.split(JOIN) if text else []
    found = _columns(lines)
    if len(found) != count or not found:
        raise _invalid(f"{len(found)} records, expected {count or 'at least 1'}")
    records: list[Record] = []
    at = 0
    for columns in found:
        rows = records_in(b",".join(columns[1:]))
        end = at + sum(row.entries for row in rows)
        if end > len(entries):
            raise _invalid("fewer entries than its turns have")
        own = entries[at:end]
        turns = []
        for row in rows:
            turns.append(ClosedTurn(tuple(entries[at : at + row.entries]), row))
            at += row.entries
        records.append(_record(columns, own, turns))
    if at != len(entries):
        raise _invalid("more entries than its turns have")
    return records


def _record(columns: Sequence[bytes], entries: Sequence[bytes], turns: Sequence[ClosedTurn]) -> Record:
    cut: _Cut | None = None
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        cut = msgspec.json.decode(columns[0], type=_Cut)
    if cut is None or len(cut.places) != len(turns) or not _fit(cut.places, cut.stays):
        raise _invalid("a cut that cannot be read")
    return Record(
        number=cut.n,
        by=cut.by,
        wire=cut.wire,
        previous=cut.prev,
        places=cut.places,
        stays=cut.stays,
        before=cut.before,
        voice=cut.voice,
        turns=tuple(turns),
        digest=record_digest(columns, entries),
    )


def _fit(places: Sequence[int], stays: Sequence[int]) -> bool:
    """Tell whether both grow, and whether the turns of the record and those that stayed fill all places of
    the history before the cut. Then the turns that stayed have the places that the record leaves free."""
    grow = all(a < b for one in (places, stays) for a, b in pairwise(one))
    return grow and (not places or places[-1] < len(places) + len(stays))


# ------------------------------------------------------------------------------------------- going back

REDACTED: Final = "redacted"
"""What the row of a redaction in the journal of cuts says in the place of a strategy."""

_HARMLESS: Final = ("evicted", "rewound", REDACTED)
"""Rows of the journal of cuts that leave each closed turn as it is, or change it in the archive alike."""


def is_undoable(state: ConversationState, codec: Codec, binding: Any = None) -> bool:
    """Whether the newest cut can be undone: its record is there, and no turn was changed since."""
    return undoable(state, codec, binding) is not None


def newest_cut(meta: Meta) -> CutRow | None:
    """The row of the newest cut; None if nothing has cut or changed the closed turns."""
    return next((row for row in reversed(meta.cuts) if row.by not in _HARMLESS), None)


def undoable(state: ConversationState, codec: Codec, binding: Any = None) -> Record | None:
    """The record of the newest cut, if it is at hand and fits.

    Raises:
        StateError: The newest part of the archive is damaged.
    """
    row = newest_cut(state.meta)
    facts = cut_facts(row) if row is not None else None
    archive = [part for part in state.parts if part.kind == ARCHIVE]
    if facts is None or not facts.record or not archive or not archive[-1].is_here:
        return None
    record = _records(archive[-1].raw(codec, binding), archive[-1].entries)[-1]
    if record.digest != facts.record or record.wire != state.meta.wire:
        return None
    media = media_of(state.meta, state.parts, codec, binding)
    return whole_record(record, media, hard_limits(codec))


def undone(state: ConversationState, codec: Codec, binding: Any = None) -> ConversationState:
    """The state as directly before its newest cut: its turns, and what `Before` lists of the meta data.

    The record leaves the archive, and the row of the cut leaves the journal. All other meta data go on. If
    the model, the preamble or the tools are others than before the cut, the signed blocks that come back do
    not fit (`Meta.unbound`), and the next turn takes them out.

    Raises:
        ValueError: There are turns since the cut, or the cut cannot be undone; see `is_undoable`.
        StateError: The newest part of the archive is damaged.
    """
    record = undoable(state, codec, binding)
    live = with_numbers(closed_turns(state))
    if record is None or state.open is not None:
        raise ValueError("the newest cut cannot be undone: its record is not there, or a turn is unfinished")
    numbers = numbers_of([turn.record for turn in live])
    if any(number > record.number for number in numbers):
        raise ValueError("the newest cut cannot be undone: there are turns since")
    if max(record.stays, default=-1) >= len(live):
        raise _invalid("a cut that kept more turns than there are")
    stayed = iter([live[place] for place in record.stays])
    changed = dict(zip(record.places, record.turns, strict=True))
    turns = [changed.get(place) or next(stayed) for place in range(len(changed) + len(record.stays))]
    rows = list(state.meta.cuts)
    del rows[max(place for place, row in enumerate(rows) if row.by not in _HARMLESS)]
    before = record.before
    is_other = before.signed and bool(record.voice) and record.voice != _voice(state.meta)
    meta = msgspec.structs.replace(
        before.restored(state.meta),
        unbound=before.unbound or is_other,
        cuts=tuple(rows),
        gap=has_gap(turns, state.meta.processed),
    )
    parts = _without_newest(state.parts, codec, binding)
    return replace(rebuild(state, turns), meta=meta, parts=parts)


def _without_newest(parts: Sequence[Part], codec: Codec, binding: Any) -> tuple[Part, ...]:
    """The parts without the newest record of the archive."""
    *archive, last = [part for part in parts if part.kind == ARCHIVE]
    if last.entries > 1:
        raw = last.raw(codec, binding)
        gone = sum(len(turn.entries) for turn in _records(raw, last.entries)[-1].turns)
        text, _, lines = raw.rpartition(b"\n")
        entries = text.split(JOIN) if text else []
        columns = rawjson.items(b"[" + lines + b"]")
        end = max(place for place, column in enumerate(columns) if column[:1] == b"{")
        left = JOIN.join(entries[: len(entries) - gone]) + b"\n" + b",".join(columns[:end])
        archive.append(new_part(ARCHIVE, left, last.entries - 1, compresses=codec.compresses))
    return _in_order(parts, archive)


def _invalid(found: str) -> StateInvalidError:
    return StateInvalidError(f"a part of the archive has {found}; the archive cannot be read")
