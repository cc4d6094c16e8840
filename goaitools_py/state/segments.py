"""Write meta data, and entries with a last line behind them, as segments, and read them again.

Owns: the lines of a segment, the references to large media in them, the bounds of the meta data's fields as
they are written, and its keys of a later release. Must never know: the content of an entry or of the last
line, the meaning of the meta data to a turn, or how a segment is packed.

::

    meta            {meta data}
    sealed, hot     entry ,⏎ entry ,⏎ … entry ⏎ turn,turn,…       closed turns, see `turn_rows`
    inbox           entry ,⏎ … entry ⏎ row,row,…                  unseen messages, see `inbox_segment`
    open            entry ,⏎ … entry ⏎ {journal}                  the unfinished turn, see `open_segment`

An entry never holds a raw newline. Large media in entries and in the journal are references, see `media`. The
functions here give entries whole.

A right digest does not say who wrote a blob. So the content is checked: the meta, the inbox and the open turn
when a state is loaded, the turn rows on their first use. Closed entries are never checked. `forward_compat`
reads meta data once more where the strict reader refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from ..base import rawjson
from ..base.json_scan import exact_values, is_shallow, most_values, separators
from ..base.rawjson import RawJSONError
from ..base.values import replace
from ..types.errors import StateInvalidError
from . import blob as blobs
from . import forward_compat
from .blob import Kind, Segment
from .closed_turns import UNSENT, TurnRecord
from .codec import check_limit
from .forward_compat import unreadable
from .media import MARK, Media, added_by, cut_out, put_back, references
from .records import CutRow, Meta
from .row_codec import MAX_NAME, REFUSALS, as_json, bounded, bounded_row
from .turn_rows import letters_in, records_in

__all__ = [
    "JOIN",
    "RAW_LEN",
    "check_entries",
    "check_values",
    "check_whole",
    "columns_of",
    "count_letters",
    "entries_of",
    "history_segment",
    "meta_bytes",
    "meta_of",
    "meta_segment",
    "object_entries",
    "spliceable",
    "stored_lines",
    "stored_segment",
    "turn_records",
    "values_in",
    "values_of_lines",
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
    if not _is_whole(segment):
        media = segment.media or {}
        return memoryview(put_back(bytes(entries), media)), put_back(columns, media)
    return entries, columns


def _is_whole(segment: Segment) -> bool:
    """True if the segment has no references to media. Long ones are searched once."""
    if segment.media:
        return False
    if not segment._unmarked:
        force_setattr(segment, "_unmarked", MARK not in segment.raw())
    return segment._unmarked


def check_whole(segments: Sequence[Segment]) -> None:
    """Refuse segments that do not inflate, have no last line, or name media that the state does not have.

    Raises `StateCorruptError` or `StateInvalidError`.
    """
    for segment in segments:
        if segment.media is None:
            _split(segment)


def history_segment(
    kind: Kind,
    entries: Sequence[bytes],
    columns: bytes,
    *,
    behind: Sequence[Segment] = (),
    is_minor: bool = False,
) -> Segment:
    """Write entries, and the line that follows them, as a segment; see `blob.segment`.

    `behind`: history segments. Their entries and last lines stand before these.
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
    """Write entries with references as a segment. `media`: the media that the references name.

    `count`: how many entries they are, if the pieces are not single entries.
    """
    pieces = [piece for entry in entries for piece in (JOIN, entry)]
    raw = b"".join((*pieces[1:], b"\n", columns))
    found = blobs.segment(kind, raw, len(entries) if count is None else count, is_minor=is_minor)
    return with_media(found, media) if media else found


def with_media(segment: Segment, media: Media) -> Segment:
    """Give a segment the media that it names.

    Raises `StateInvalidError` if it names others, or has FF bytes that are not references.
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


_UNSENT: Final = rawjson.dumps(UNSENT)


def spliceable(segment: Segment) -> memoryview:
    """Give the entries that are sent as they stand, joined by ``,\\n``: a piece of a request body. It may be
    empty."""
    entries, columns = _split(segment)
    if _UNSENT not in columns:  # nearly always
        return entries
    texts, records, kept, at = _separate(segment, entries), turn_records(segment), list[bytes](), 0
    for record in records:
        if record.is_sent:
            kept += texts[at : at + record.entries]
        at += record.entries
    return memoryview(JOIN.join(kept))


def columns_of(segment: Segment) -> bytes:
    """Give the last line of a segment."""
    return _split(segment)[1]


def entries_of(segment: Segment) -> list[bytes]:
    """Give the entries of a history segment, one by one."""
    return _separate(segment, _split(segment)[0])


def _separate(segment: Segment, entries: memoryview) -> list[bytes]:
    text = bytes(entries)
    # The head states the number, and limits were checked with it. A forged state may hold more.
    count = text.count(JOIN) + 1 if text else 0
    if count != segment.entries:
        raise StateInvalidError(
            f"a segment declares {segment.entries} entries and holds {count}; the state cannot be used"
        )
    return text.split(JOIN) if text else []


def turn_records(segment: Segment) -> list[TurnRecord]:
    """Read the turns of a history segment."""
    records = records_in(columns_of(segment))
    if not all(record.entries for record in records):
        raise StateInvalidError("a turn has no entries; the state cannot be used")
    # Else an entry would belong to another turn, or to no turn, and a cut would drop half a turn.
    if sum(record.entries for record in records) != segment.entries:
        raise StateInvalidError("the turn columns do not add up to the entries; the state cannot be used")
    return records


def count_letters(segment: Segment) -> Counter[str]:
    """Count the role letters of a history segment. It costs less than `turn_records`."""
    return letters_in(_lines(segment)[1])  # no media stand in this line, and they may be elsewhere


def object_entries(segment: Segment) -> list[bytes]:
    """Give the entries, if each is a JSON object."""
    entries = entries_of(segment)
    check_entries(entries)
    return entries


def check_entries(entries: Sequence[bytes]) -> None:
    """Refuse entries that are not JSON objects. Raises `StateInvalidError`."""
    with suppress(RawJSONError):
        for entry in entries:
            rawjson.names(entry)
        return
    raise unreadable("an entry")


# ---------------------------------------------------------------------------------- number of JSON values


def values_in(segments: Sequence[Segment], most: int) -> int:
    """Count the JSON values in segments; see `json_scan.count_values`. Small states cost nothing."""
    left, found = sum(map(RAW_LEN, segments)), 0
    if (bound := most_values(left)) <= most:
        return bound
    for segment in segments:
        found += _values(segment, most)
        left -= segment.raw_len
        if (bound := found + most_values(left)) <= most:
            return bound
    found = 0
    for segment in segments:
        found += _values(segment, most, is_exact=True)
        if found > most:
            break
    return found


def check_values(segments: Sequence[Segment], most: int) -> None:
    """Refuse segments with more JSON values than a state may have. Call it before they are parsed.

    Raises `StateTooLargeError`.
    """
    if sum(map(RAW_LEN, segments)) > most:  # fewer bytes cannot hold more values
        check_limit("max_values", most, values_in(segments, most))


RAW_LEN: Final = attrgetter("raw_len")


def _values(segment: Segment, most: int, *, is_exact: bool = False) -> int:
    """Count the values of a segment once: most segments of a large state come again with each turn."""
    key = hash(segment.stored), segment.raw_len, segment.entries, is_exact
    found = _counted.get(key)
    if found is None:
        raw = segment.raw()
        # The count begins anew in each line, so a forged state could gain by more lines.
        if is_exact and raw.count(b"\n") > segment.entries + 1:
            raise StateInvalidError("a segment has more lines than entries; the state cannot be used")
        found = values_of_lines(raw, most) if is_exact else separators(raw)
        if found <= most:
            if len(_counted) >= _MOST_COUNTED:
                _counted.clear()
            _counted[key] = found
    return found


_counted: Final[dict[tuple[int, int, int, bool], int]] = {}
"""How many values segments have. Python's hash of bytes has a key of its own in each process, so an attacker
cannot make another segment with the same hash."""
_MOST_COUNTED: Final = 4096


def values_of_lines(raw: bytes, most: int) -> int:
    """Count the JSON values of raw text exactly, up to `most`.

    The count begins anew outside of strings in each line. In a forged state a line may end within a string,
    and the reader of the next line does not know that.
    """
    found = raw.count(b"\n")  # each line is at least one entry
    if found > most:
        return found
    found = start = 0
    while start < len(raw) and found <= most:
        end = raw.find(b"\n", start + _LINES_BYTES)
        lines = raw[start:].removesuffix(b"\n") if end < 0 else raw[start:end]
        start += len(lines) + 1
        for line in lines.split(b"\n"):  # a short line is not worth a closer look
            if len(line) < 64:
                found += len(line.translate(None, _OTHERS)) or 1
            else:
                found += max(1, exact_values(line, most - found))
    return found


_LINES_BYTES: Final = 65_536
_OTHERS: Final = bytes(set(range(256)) - set(b",[{"))


# --------------------------------------------------------------------------------------------- meta data


_META = msgspec.json.Decoder(Meta)
_META_KEYS = frozenset(Meta.__struct_fields__)
_META_COUNTS = ("rev", "created", "updated", "messages", "turns", "processed", "tokens")
_counts_of = attrgetter(*_META_COUNTS)


def meta_segment(meta: Meta, extras: Mapping[str, msgspec.Raw]) -> Segment:
    """Write the meta data as a segment. `extras`: the keys of a later release, byte for byte."""
    raw = as_json(_writable(meta))
    if extras:
        raw = forward_compat.with_members(raw, extras)
    return blobs.segment(Kind.META, raw, 0)


def meta_bytes(meta: Meta) -> int:
    """Count the bytes of the meta data as they are written, without the keys of a later release."""
    return len(as_json(_writable(meta)))


def _writable(meta: Meta) -> Meta:
    """Bring the meta within the bounds of its fields. Beyond them a paid turn could not be read again."""
    changes: dict[str, Any] = {}
    counts: tuple[int, ...] = _counts_of(meta)
    if (possible := bounded_row(counts)) is not counts:
        changes.update(zip(_META_COUNTS, possible, strict=True))
    if len(meta.model) > MAX_NAME:
        changes["model"] = meta.model[:MAX_NAME]
    if meta.cuts:
        changes["cuts"] = _written_rows([_bounded_cut(cut) for cut in meta.cuts], _CUT)
    if meta.turn:
        changes["turn"] = _written_rows(meta.turn, _TURN_ID)
    if meta.ring:
        changes["ring"] = _written_rows(meta.ring, _RING)
    if meta.media:
        changes["media"] = _written_rows(meta.media, _TURN_ID)
    if meta.hosts:
        changes["hosts"] = _written_rows(meta.hosts, _TURN_ID)
    return msgspec.structs.replace(meta, **changes) if changes else meta


_CUT, _TURN_ID, _RING = itemgetter(0, 1, 2, 3), itemgetter(0, 1), itemgetter(0, 1, 2, 3)
_MORE = itemgetter(-1)


def _written_rows(
    rows: Sequence[tuple[Any, ...]], short: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Leave out the object at the end of a row where it is empty."""
    if not any(map(_MORE, rows)):  # the usual case; `map` runs in C, and a state may remember 64 ids
        return list(map(short, rows))
    return [row if row[-1] else short(row) for row in rows]


def _bounded_cut(cut: CutRow) -> CutRow:
    if min(cut.at, cut.turns, cut.messages) >= 0:
        return cut
    return cut._replace(at=bounded(cut.at), turns=bounded(cut.turns), messages=bounded(cut.messages))


def meta_of(segment: Segment) -> tuple[Meta, Mapping[str, msgspec.Raw]]:
    """Read the meta data, and the keys of a later release byte for byte."""
    raw = segment.raw()
    meta = _known(raw)
    if meta is not None:
        return meta, {}
    with suppress(RawJSONError):
        own, extras = forward_compat.split_object(raw, _META_KEYS)
        if extras and (meta := _known(own)) is not None:
            return meta, extras
    # The rest is damage, or a value of a later release, which must not count as damage: `on_bad_state`
    # would begin a fresh conversation over it.
    raise forward_compat.refused_meta(raw)


def _known(raw: bytes) -> Meta | None:
    """The meta data in an object that has only keys of this release; None if it breaks a rule."""
    # Before msgspec reads it: C reads deeper JSON than Python can write again.
    if not is_shallow(raw):
        return None
    try:
        raw.decode()  # msgspec does not check the strings inside of raw values
        meta = _META.decode(raw)
    except REFUSALS:
        return None
    ends_well = (
        (not meta.cuts or _ends_well(meta.cuts))
        and (not meta.turn or _ends_well(meta.turn))
        and (not meta.ring or _ends_well(meta.ring))
        and (not meta.media or _ends_well(meta.media))
        and (not meta.hosts or _ends_well(meta.hosts))
    )
    return meta if ends_well else None


def _ends_well(rows: Sequence[tuple[Any, ...]]) -> bool:
    """Tell whether each row ends with its own elements, as almost always, or with one object behind them."""
    if not any(map(_MORE, rows)):
        return True
    return all(not row[-1] or forward_compat.is_object(row[-1]) for row in rows)
