"""Read and check the records of an archive, and undo the newest cut with the record of it.

Owns: whole records, the chain of their digests, whether a cut can be undone, and the state as directly before
it. Must never know: the turns since then, or the callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ..base import rawjson
from ..base.values import replace
from ..state.closed_turns import has_gap, numbers_of, with_numbers
from ..state.codec import BlobLimits, Codec, check_limit
from ..state.media import Media, added_by, digest_of, put_back, references
from ..state.media_rows import media_of
from ..state.parts import ARCHIVE, Part, new_part
from ..state.records import PINNED_DROPPED, CutRow, Meta, cut_facts
from ..state.segments import JOIN
from ..state.state import ConversationState, closed_turns, hard_limits, rebuild
from ..types.errors import StateCorruptError
from .archive_records import (
    Record,
    check_archive,
    in_order,
    invalid_part,
    newest_record,
    read_records,
    voice_digest,
)

__all__ = [
    "REDACTED",
    "archive_of",
    "check_chain",
    "is_undoable",
    "newest_cut",
    "stored_records",
    "undoable",
    "undone",
    "whole_record",
]


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
        StateError: A part is elsewhere, or damaged, or they have too many values together.
    """
    archive = [part for part in parts if part.kind == ARCHIVE]
    check_archive(archive, codec, binding)
    return [record for part in archive for record in read_records(part.raw(codec, binding), part.entries)]


def _added(record: Record, media: Media, limits: BlobLimits) -> int:
    """The bytes by which the entries of a record grow when its media are put back.

    Raises:
        StateInvalidError: The state does not have one of the media.
        StateTooLargeError: The entries are larger than the limit for a state.
    """
    entries = [entry for turn in record.turns for entry in turn.entries]
    added = added_by([name for entry in entries for name in references(entry)], media)
    if added:
        check_limit("max_decoded_bytes", limits.max_decoded_bytes, added + sum(map(len, entries)))
    return added


def whole_record(record: Record, media: Media, limits: BlobLimits) -> Record:
    """The record with all media in its entries. The same object if it names no media.

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

    These names are not checked if the journal names no record, or if a part of the archive is elsewhere. Each
    part that is here must be readable. Each medium that a record names must be in the state, and each medium
    that is here must have its digest.

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
    here = [part for part in archive if part.is_here]
    records = stored_records(here, codec, binding)
    for record in records:
        _added(record, media, hard_limits(codec))
    if not newest or len(here) < len(archive) or not archive:
        return
    names = [*[record.previous for record in records[1:]], newest]
    # A name is left out if the journal, which is bounded, did not know the record before.
    if any(name not in ("", record.digest) for name, record in zip(names, records, strict=True)):
        raise StateCorruptError(
            "the records of the archive are not those that the journal of cuts and the records themselves "
            "name; restore the state from a backup, or go on without its archive"
        )


REDACTED: Final = "redacted"
"""The name in the journal of cuts for a redaction, in the place of a strategy."""


_HARMLESS: Final = ("evicted", "rewound", REDACTED, PINNED_DROPPED)
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
    record = stored_records(archive[-1:], codec, binding)[-1]
    if record.digest != facts.record or record.wire != state.meta.wire:
        return None
    media = media_of(state.meta, state.parts, codec, binding)
    return whole_record(record, media, hard_limits(codec))


def undone(state: ConversationState, codec: Codec, binding: Any = None) -> ConversationState:
    """The state as directly before its newest cut: its turns, and the meta data that `BeforeCut` lists.

    The record leaves the archive, and the row of the cut leaves the journal. All other meta data go on. If
    the model, the preamble or the tools have changed since the cut, the restored signed blocks do not fit
    (`Meta.unbound`). Then the next turn takes them out.

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
        raise invalid_part("a cut that kept more turns than there are")
    stayed = iter([live[place] for place in record.stays])
    changed = dict(zip(record.places, record.turns, strict=True))
    turns = [changed.get(place) or next(stayed) for place in range(len(changed) + len(record.stays))]
    rows = list(state.meta.cuts)
    at = max(place for place, row in enumerate(rows) if row.by not in _HARMLESS)
    del rows[at - bool(at and rows[at - 1].by == PINNED_DROPPED) : at + 1]
    before = record.before
    is_other = before.signed and bool(record.voice) and record.voice != voice_digest(state.meta)
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
        gone = sum(len(turn.entries) for turn in stored_records([last], codec, binding)[-1].turns)
        text, _, lines = raw.rpartition(b"\n")
        entries = text.split(JOIN) if text else []
        columns = rawjson.items(b"[" + lines + b"]")
        end = max(place for place, column in enumerate(columns) if column[:1] == b"{")
        left = JOIN.join(entries[: len(entries) - gone]) + b"\n" + b",".join(columns[:end])
        archive.append(new_part(ARCHIVE, left, last.entries - 1, compresses=codec.compresses))
    return in_order(parts, archive)
