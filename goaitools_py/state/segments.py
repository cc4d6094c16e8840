"""Write entries, with a last line behind them, as a segment, and read both again.

Owns: the lines of a segment, and the references to large media in them. Must never know: what an entry says,
what stands in the last line, or how a segment is packed.

::

    meta            {meta data}                                   see `meta_segment`
    sealed, hot     entry ,⏎ entry ,⏎ … entry ⏎ turn,turn,…       closed turns, see `turn_rows`
    inbox           entry ,⏎ … entry ⏎ row,row,…                  unseen messages, see `inbox_segment`
    open            entry ,⏎ … entry ⏎ {journal}                  the unfinished turn, see `open_segment`

An entry never holds a raw newline. Large media in entries and in the journal are references, see `media`. The
functions here give entries whole.

A right digest does not say who wrote a blob. So the content is checked: the meta, the inbox and the open turn
when a state is loaded, the turn rows on their first use. Closed entries are never checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress

from .. import rawjson
from ..errors import StateInvalidError
from ..rawjson import RawJSONError
from ..values import replace
from . import blob as blobs
from .blob import Kind, Segment
from .bounds import MAX_ENTRY_VALUES, MAX_ROW_VALUES
from .closed_turns import TurnRecord
from .later import unreadable
from .media import MARK, Media, added_by, cut_out, put_back, references
from .row_json import check_rows, check_values
from .turn_rows import letters_in, records_in

__all__ = [
    "JOIN",
    "check_history",
    "check_history_rows",
    "columns_of",
    "count_letters",
    "entries_of",
    "history_segment",
    "object_entries",
    "spliceable",
    "stored_lines",
    "stored_segment",
    "turn_records",
    "with_inlined",
    "with_media",
]

JOIN = b",\n"


def _lines(segment: Segment) -> tuple[memoryview, bytes]:
    """Give the entries as they are stored, and the last line."""
    raw = segment.raw()
    cut = raw.rfind(b"\n")
    if cut < 0:
        raise StateInvalidError("a history segment has no line of turn columns; the state cannot be used")
    return memoryview(raw)[:cut], raw[cut + 1 :]


def _split(segment: Segment) -> tuple[memoryview, bytes]:
    """Give the whole entries, and the last line."""
    entries, columns = _lines(segment)
    if segment.media or MARK in segment.raw():
        media = segment.media or {}
        return memoryview(put_back(bytes(entries), media)), put_back(columns, media)
    return entries, columns


def history_segment(
    kind: Kind,
    entries: Sequence[bytes],
    columns: bytes,
    *,
    behind: Sequence[Segment] = (),
    is_minor: bool = False,
) -> Segment:
    """Write entries, and the line that follows them, as a segment; see `blob.segment`.

    `behind`: history segments whose entries and last lines stand before these.
    """
    stored, media = cut_out(entries)
    if not behind:
        return stored_segment(kind, stored, columns, media, is_minor=is_minor)
    if len(behind) == 1 and media is None and behind[0].media is None:  # the usual case: no media
        own, line = _lines(behind[0])
        joined = [piece for entry in stored for piece in (JOIN, entry)]
        raw = b"".join((own, *joined, b"\n", line, b",", columns))
        return blobs.segment(kind, raw, behind[0].entries + len(entries), is_minor=is_minor)
    before = [_lines(segment) for segment in behind]
    count = sum([segment.entries for segment in behind]) + len(entries)
    columns = b",".join([*[own for _, own in before], *([columns] if columns else ())])
    for segment in behind:
        if segment.media:
            media = {**segment.media, **(media or {})}
    pieces: list[bytes | memoryview] = [*[own for own, _ in before], *stored]
    return stored_segment(kind, pieces, columns, media, count=count, is_minor=is_minor)


def stored_segment(
    kind: Kind,
    entries: Sequence[bytes | memoryview],
    columns: bytes,
    media: Media | None = None,
    *,
    count: int | None = None,
    is_minor: bool = False,
) -> Segment:
    """Write entries that are stored text already as a segment. `media`: those that the references name.

    `count`: how many entries they are, if the pieces are not single entries.
    """
    pieces = [piece for entry in entries for piece in (JOIN, entry)]
    raw = b"".join((*pieces[1:], b"\n", columns))
    found = blobs.segment(kind, raw, len(entries) if count is None else count, is_minor=is_minor)
    return with_media(found, media) if media else found


def with_media(segment: Segment, media: Media) -> Segment:
    """Give a segment those of the media that it names.

    Raises `StateInvalidError` if it names others, or has FF bytes that are no references.
    """
    names = references(segment.raw())
    if not names:
        return segment
    added = added_by(names, media)
    return replace(segment, media={name: media[name] for name in dict.fromkeys(names)}, added=added)


def with_inlined(segment: Segment, names: Collection[bytes]) -> Segment:
    """Give a segment with these media in its entries, instead of references to them."""
    media = segment.media or {}
    raw = put_back(segment.raw(), media, names)
    found = blobs.segment(Kind(segment.kind), raw, segment.entries)
    return with_media(found, media) if MARK in raw else found


def stored_lines(segment: Segment) -> tuple[list[bytes], bytes]:
    """Give the entries of a segment one by one as they are stored, with references, and its last line."""
    entries, columns = _lines(segment)
    return _separate(segment, entries), columns


def spliceable(segment: Segment) -> memoryview:
    """Give the entries as they stand, joined by ``,\\n``: a piece of a request body."""
    return _split(segment)[0]


def columns_of(segment: Segment) -> bytes:
    """Give the last line of a segment.

    Raises `StateInvalidError` if it has more values than the rows of a state may have.
    """
    columns = _split(segment)[1]
    check_rows([columns], segment.entries)
    return columns


def check_history(segments: Sequence[Segment]) -> None:
    """Refuse a history whose entries and rows have too many values together. Call it before they are read.

    Raises `StateInvalidError`. The time is that of adding sizes, unless they are far beyond the usual.
    """
    if sum([segment.raw_len for segment in segments]) > 2 * MAX_ENTRY_VALUES:
        stored = sum([len(segment.stored) for segment in segments])
        check_values([segment.raw() for segment in segments], stored, "the history of the state")
    check_history_rows(segments)


def check_history_rows(segments: Sequence[Segment]) -> None:
    """Refuse a history whose rows have too many values together. Call it before the rows are read.

    Raises `StateInvalidError`. The time is that of adding sizes, unless they are far beyond the usual.
    """
    entries = sum([segment.entries for segment in segments])
    if sum([segment.raw_len for segment in segments]) > MAX_ROW_VALUES:
        check_rows([_lines(segment)[1] for segment in segments], entries)


def entries_of(segment: Segment) -> list[bytes]:
    """Give the entries of a history segment, one by one."""
    return _separate(segment, _split(segment)[0])


def _separate(segment: Segment, entries: memoryview) -> list[bytes]:
    text = bytes(entries)
    count = text.count(JOIN) + 1 if text else 0
    if count != segment.entries:
        raise StateInvalidError(
            f"a segment declares {segment.entries} entries and holds {count}; the state cannot be used"
        )
    if len(text) > 2 * MAX_ENTRY_VALUES:
        check_values([text], len(segment.stored), "a segment of the state")
    return text.split(JOIN) if text else []


def turn_records(segment: Segment) -> list[TurnRecord]:
    """Read the turns of a history segment."""
    records = records_in(columns_of(segment))
    if sum(record.entries for record in records) != segment.entries:
        raise StateInvalidError("the turn columns do not add up to the entries; the state cannot be used")
    return records


def count_letters(segment: Segment) -> Counter[str]:
    """Count the role letters of a history segment. It costs a part of what `turn_records` does."""
    return letters_in(_lines(segment)[1])  # no media stand in this line, and they may be elsewhere


def object_entries(segment: Segment) -> list[bytes]:
    """Give the entries, if each is a JSON object: the next request contains them."""
    entries = entries_of(segment)
    with suppress(RawJSONError):
        for entry in entries:
            rawjson.members(entry)
        return entries
    raise unreadable("a recent entry")
