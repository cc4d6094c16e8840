"""Read the records of an archive, and check them.

Owns: whole records, and the chain of their digests. Must never know: the readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.values import replace
from ...state.codec import BlobLimits, Codec, check_limit
from ...state.media import Media, added_by, digest_of, put_back, references
from ...state.media_rows import media_of
from ...state.parts import ARCHIVE, Part
from ...state.state import ConversationState, hard_limits
from ...types.errors import StateCorruptError
from .records import Record, check_archive, newest_record, read_records

__all__ = ["archive_of", "check_chain", "stored_records", "whole_record"]


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
