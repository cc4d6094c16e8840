"""Decides which media and which results stay in a state, and which part belongs to each row.

Owns: the rows of the meta data, the parts that belong to them by order, when a medium leaves a state, and
when the whole of a long result does. Must never know: the content of an entry, or of a record of the archive.

A medium stays while an entry names it, or while the archive may have a record that names it. Its row has the
number of the newest cut with a record that names it. So a medium that no entry names stays until all records
up to that number have left the archive.

A result has no row. The note in its shortened text has its number, and so has its part. It leaves when the
note leaves the history, unless the archive gets the note. The oldest results leave if there are too many.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..types.errors import StateInvalidError
from .blob import Segment
from .codec import BlobLimits, Codec, check_limit
from .media import Media, Medium
from .parts import ARCHIVE, ELSEWHERE, INLINE, MEDIA, RESULT, Part, inflated, most_inflated
from .records import MAX_MEDIA, MediaRow, Meta, cut_facts
from .segments import with_inlined, with_media

__all__ = [
    "Written",
    "archived_bytes",
    "fitting_results",
    "media_of",
    "media_weight",
    "named_results",
    "only_archived",
    "resolved",
    "result_named",
    "result_notes",
    "results_of",
    "with_archived",
    "with_archived_only",
    "with_result",
    "with_results",
    "with_rows",
    "without_lost_results",
]

_ROW_BYTES: Final = 512
"""Each medium counts as this many bytes of the meta data's limit."""
_PART_BYTES: Final = 512
"""More than a part takes beside its content."""


class Written(NamedTuple):
    """A state in the form of its blob: segments, parts, and by how many bytes the media enlarge it."""

    segments: list[Segment]
    parts: tuple[Part, ...]
    added: int


def media_of(meta: Meta, parts: Sequence[Part], codec: Codec, binding: Any = None) -> Media:
    """Give the media of a state by their digests.

    Raises `StateInvalidError` if rows and parts do not match.
    """
    found = [part for part in parts if part.kind == MEDIA]
    media = {
        row.digest.encode(): Medium(part, codec, binding)
        for row, part in zip(meta.media, found, strict=False)
    }
    # Also equal digests in two rows end here: they would leave a part without a row.
    if not len(media) == len(meta.media) == len(found):
        raise StateInvalidError("the media of the state do not match their parts; the state cannot be used")
    return media


def resolved(segments: Sequence[Segment], media: Media, limits: BlobLimits) -> list[Segment]:
    """Give the segments of a loaded state, each with the media that its entries name.

    Raises:
        StateInvalidError: An entry names a medium that the state does not have.
        StateTooLargeError: The entries are larger than a state may be, with all media put back.
    """
    found = [with_media(segment, media) for segment in segments]
    # Before anything is put back: one medium of 8 MiB may be named by a thousand entries.
    size = sum([segment.raw_len + segment.added for segment in found])
    check_limit("max_decoded_bytes", limits.max_decoded_bytes, size)
    return found


# -------------------------------------------------------------------------------------------- keeping


def _oldest_archived(meta: Meta, records: int) -> int | None:
    """Give the number of the oldest record in the archive; None without records.

    `records`: how many the archive has. 0, the lowest number, if the journal of cuts has forgotten it.
    """
    if not records:
        return None
    known = [facts.number for row in meta.cuts if (facts := cut_facts(row)) is not None and facts.record]
    return max(1, known[-records]) if records <= len(known) else 0


def _held(meta: Meta, parts: Sequence[Part]) -> set[bytes]:
    """Give the media that the archive may name."""
    if not any(row.archived for row in meta.media):  # as almost always; the journal of cuts is not read
        return set()
    oldest = _oldest_archived(meta, sum([part.entries for part in parts if part.kind == ARCHIVE]))
    if oldest is None:
        return set()
    return {row.digest.encode() for row in meta.media if row.archived and row.archived >= oldest}


def _named(segments: Sequence[Segment]) -> dict[bytes, Medium]:
    named: dict[bytes, Medium] = {}
    for segment in segments:
        if segment.media:
            named.update(segment.media)
    return named


def with_rows(
    meta: Meta,
    parts: Sequence[Part],
    segments: Sequence[Segment],
    limits: BlobLimits,
    seen: dict[bytes, Part] | None = None,
) -> tuple[Meta, Written]:
    """Give meta data and parts with exactly the media that the state needs.

    Media beyond the limits are put back into their entries.

    Args:
        meta: The meta data, with the rows that are known.
        parts: The parts of the state.
        segments: All segments but the meta data.
        limits: The soft limits of the state.
        seen: The parts of new media by their digests, which grows; see `dump_state`.
    """
    seen = {} if seen is None else seen
    rows = {row.digest.encode(): row for row in meta.media}
    own = dict(zip(rows, [part for part in parts if part.kind == MEDIA], strict=True))
    named = _named(segments)
    held = _held(meta, parts)
    most = min(MAX_MEDIA, limits.max_segments // 4, limits.max_meta_bytes // _ROW_BYTES)
    room = limits.max_media_bytes - sum([own[name].stored_len for name in held])
    # The archive is not opened here. So its media cannot be put back into entries, and must stay.
    kept = dict.fromkeys(name for name in rows if name in held)
    for name in dict.fromkeys((*(name for name in rows if name in named), *named)):
        size = named[name].part.raw_len + _PART_BYTES
        if name in kept:
            continue
        if len(kept) < most and size <= room:
            kept[name] = None
            room -= size
    # Media without room go back into their entries. Nothing is lost, and the limit of the entries decides.
    gone = named.keys() - kept.keys()
    if gone:
        segments = [_without(segment, gone) for segment in segments]
    ordered = [name for name in (*rows, *(name for name in named if name not in rows)) if name in kept]
    meta = msgspec.structs.replace(
        meta, media=tuple([rows.get(name) or MediaRow(name.decode(), 0) for name in ordered])
    )
    media = [own.get(name) or seen.setdefault(name, named[name].part) for name in ordered]
    others = [part for part in parts if part.kind != MEDIA]
    placed = tuple(sorted([*others, *media], key=_kind_of))  # stable: media stay in the order of their rows
    return meta, Written(list(segments), placed, sum([segment.added for segment in segments]))


def _kind_of(part: Part) -> int:
    return part.kind


def _without(segment: Segment, gone: Collection[bytes]) -> Segment:
    own = [name for name in segment.media or () if name in gone]
    return with_inlined(segment, own) if own else segment


def with_archived(
    meta: Meta, parts: Sequence[Part], media: Media, number: int
) -> tuple[Meta, tuple[Part, ...]]:
    """Give meta data and parts after cut `number`. The record of the cut names these media."""
    rows = {row.digest.encode(): row for row in meta.media}
    added = [medium.part for name, medium in media.items() if name not in rows]
    for name in media:
        row = rows.get(name) or MediaRow(name.decode(), 0)
        rows[name] = row._replace(archived=max(1, number))
    meta = msgspec.structs.replace(meta, media=tuple(rows.values()))
    return meta, tuple(sorted([*parts, *added], key=_kind_of))  # stable: as in `with_rows`


def with_archived_only(meta: Meta, named: Mapping[bytes, int]) -> Meta:
    """Give meta data for an archive that names exactly these media, by the number of their newest cut."""
    rows = []
    for row in meta.media:
        number = named.get(row.digest.encode())
        rows.append(row._replace(archived=0 if number is None else max(1, number)))
    return msgspec.structs.replace(meta, media=tuple(rows))


# -------------------------------------------------------------------------------------------- weighing


def media_weight(meta: Meta, parts: Sequence[Part], segments: Sequence[Segment]) -> int:
    """Give an upper limit of the bytes that the media of closed turns and of the archive take in a blob."""
    known = {
        row.digest.encode(): part
        for row, part in zip(meta.media, [part for part in parts if part.kind == MEDIA], strict=True)
    }
    named, held = _named(segments), _held(meta, parts)
    weight = sum([part.weight for name, part in known.items() if name in named or name in held])
    return weight + sum([one.part.weight + _ROW_BYTES for name, one in named.items() if name not in known])


def archived_bytes(meta: Meta, parts: Sequence[Part], segments: Sequence[Segment]) -> int:
    """Count the bytes in the blob of media that only the archive names."""
    found = [part for part in parts if part.kind == MEDIA]
    own = dict(zip([row.digest.encode() for row in meta.media], found, strict=True))
    names = _held(meta, parts) - _named(segments).keys()
    return sum([own[name].stored_len for name in names if own[name].place != ELSEWHERE])


def only_archived(segments: Sequence[Segment], media: Media) -> int:
    """Count the bytes of the media that no segment names."""
    named = _named(segments)
    return sum([medium.part.stored_len for name, medium in media.items() if name not in named])


# ------------------------------------------------------------------------------------------- results

MAX_RESULTS: Final = 64
"""How many whole results a state keeps. Each head lists them, with some 45 bytes for each."""

_NAMED: Final = re.compile(rb"call recall with result ([0-9a-f]{8})\]")
"""The end of the note in a shortened result; `tools.call.with_ends` writes it. It is the same within JSON."""
_NOTE: Final = re.compile(r"\[[\d,]+ of [\d,]+ bytes left out; for all of it call recall with result \w{8}\]")
_MARGIN: Final = 16
"""A blob with results keeps this fraction of its limit free: for the codec, and for the directory."""


def named_results(pieces: Iterable[bytes | bytearray | memoryview]) -> set[int]:
    """Give the numbers of the results that notes in these bytes name."""
    return {int(name, 16) for piece in pieces for name in _NAMED.findall(piece)}


def result_notes(text: str) -> list[str]:
    """Give the notes in a text that name results, in order."""
    return _NOTE.findall(text) if "call recall with result" in text else []


def results_of(parts: Sequence[Part]) -> list[Part]:
    """Give the parts with whole results, oldest first."""
    return [part for part in parts if part.kind == RESULT]


def result_named(parts: Sequence[Part], number: int) -> Part | None:
    """Give the part with the result of this number; None if it is not kept."""
    return next((part for part in parts if part.kind == RESULT and part.entries == number), None)


def with_results(parts: Sequence[Part], results: Sequence[Part]) -> tuple[Part, ...]:
    """Give the parts with these results in the place of their own."""
    others = [part for part in parts if part.kind != RESULT]
    return tuple(sorted([*others, *results], key=_kind_of))  # stable: a later kind of part stays behind


def with_result(
    parts: Sequence[Part], new: Part, most_bytes: int, limits: BlobLimits
) -> tuple[Part, ...] | None:
    """Give the parts with one more result, without the oldest results beyond the limits. None: it is too
    large to be kept.

    `most_bytes`: the most stored bytes of all results. `limits`: the soft limits of the state.
    """
    most_bytes = min(most_bytes, limits.max_archive_bytes)
    most_raw, most = most_inflated(limits) // 4, min(MAX_RESULTS, limits.max_segments // 4)
    kept = [*results_of(parts), new]
    while kept and (
        sum([part.stored_len for part in kept]) > most_bytes or inflated(kept) > most_raw or len(kept) > most
    ):
        del kept[0]
    return with_results(parts, kept) if kept else None


def fitting_results(
    parts: Sequence[Part], segments: Sequence[Segment], limits: BlobLimits, *, compresses: bool
) -> Sequence[Part]:
    """Give the parts without the oldest results for which the blob has no room within its soft limits.

    So a result never takes a state beyond a limit: it gives way to messages, replies and other results.
    """
    results = [part for part in parts if part.kind == RESULT and part.place == INLINE]
    if not results:
        return parts
    size = sum([len(one.stored) if compresses else one.raw_len for one in segments])
    size += sum([part.weight for part in parts])
    room = limits.max_blob_bytes - limits.max_blob_bytes // _MARGIN
    gone: set[int] = set()
    for part in results:
        if size <= room:
            break
        size -= part.weight
        gone.add(id(part))
    return [part for part in parts if id(part) not in gone] if gone else parts


def without_lost_results(
    parts: Sequence[Part], before: Iterable[bytes | memoryview], after: Iterable[bytes | memoryview]
) -> tuple[Part, ...]:
    """Give the parts without the results that a change has taken out of the history.

    `before`, `after`: the bytes of the history, with its open turn.
    """
    lost = named_results(before) - named_results(after)
    return tuple([part for part in parts if part.kind != RESULT or part.entries not in lost])
