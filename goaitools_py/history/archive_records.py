"""The format of a record of the archive, and of the part that holds it.

Owns: the values of a record and the lines of a part. Must never know: why a cut was made, or which part goes
first.

::

    part      kind 64, up to 256 KiB of raw bytes:  entry ,⏎ entry ,⏎ … entry ⏎ record,record,…
    record    {cut},turn,turn,…        a turn is a row as in a history segment, see `turn_rows`
    {cut}     n        how many turns had been closed before the cut
              by       the strategy, as in the journal of cuts
              wire     the provider API of the entries
              prev     the digest of the record before this one; left out if it is the first
              places   the place of each turn of the record in the history before the cut
              stays    the places in the history after the cut of the turns that stayed as they were
              before   the changed values of the meta data, as they were: see `BeforeCut`
              voice    a digest of model, endpoint, preamble and tools of the last request before the cut
              media    the digests of the media that the entries name, see `media`; left out without any

A record holds each turn that the cut removed or changed, as it was directly before the cut. A change is a
rewording, a loss of signed blocks, or a context block more or less. Unchanged turns are not in it. In the
history, a turn that was changed has the fact "c": it is a copy, and its original is in the archive. The row
of the cut in the journal names the digest of its record as "record".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any

import msgspec

from ..base import rawjson
from ..base.json_scan import most_values, separators
from ..base.rawjson import RawJSONError
from ..base.values import Value
from ..state.closed_turns import ClosedTurn
from ..state.codec import Codec
from ..state.parts import ARCHIVE, Part, new_part
from ..state.records import Meta, cut_facts, digest8
from ..state.row_codec import Count, Label
from ..state.segments import JOIN, values_of_lines
from ..state.state import hard_limits
from ..state.turn_rows import records_in
from ..types.errors import StateInvalidError

__all__ = [
    "BeforeCut",
    "Record",
    "check_archive",
    "have_few_values",
    "in_order",
    "invalid_part",
    "newest_record",
    "part_of",
    "read_records",
    "record_digest",
    "records_of",
    "voice_digest",
]


class BeforeCut(msgspec.Struct, frozen=True):
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
    def of(cls, meta: Meta) -> BeforeCut:
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
    before: BeforeCut = BeforeCut()
    voice: Label = ""


class Record(Value, frozen=True, kw_only=True):
    """The turns and meta data that one cut took out or changed; see the module for the fields.

    `turns` are the turns as they were, each with its number as the fact "n". `digest` names the record.
    """

    _unshown = frozenset({"turns"})

    number: int
    by: str
    wire: str
    previous: str
    places: tuple[int, ...]
    stays: tuple[int, ...]
    before: BeforeCut
    voice: str
    turns: tuple[ClosedTurn, ...]
    digest: str


def voice_digest(meta: Meta) -> str:
    """A digest of the parts of a request before the history. Thinking is signed over them, too."""
    return digest8("\n".join((meta.family, meta.model, meta.preamble, meta.tools)))


def newest_record(meta: Meta) -> str:
    """The digest of the newest record, as the journal of cuts names it; "" if it names no record."""
    found = [facts.record for row in meta.cuts if (facts := cut_facts(row)) is not None and facts.record]
    return found[-1] if found else ""


def in_order(parts: Sequence[Part], archive: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with this archive in the place of their own, in the order of the directory."""
    others = [part for part in parts if part.kind != ARCHIVE]
    return tuple(sorted([*others, *archive], key=lambda part: part.kind))  # stable


def records_of(part: Part, codec: Codec, binding: Any = None) -> list[tuple[Record, list[bytes]]]:
    """The records of one part, each with its columns as they are written: ``{cut}``, and a row for each turn.

    Raises:
        StateError: The part is elsewhere, or damaged.
    """
    check_archive([part], codec, binding)
    raw = part.raw(codec, binding)
    records = read_records(raw, part.entries)
    return list(zip(records, _columns(raw.rpartition(b"\n")[2]), strict=True))


def part_of(records: Sequence[tuple[Sequence[bytes], Sequence[bytes]]], codec: Codec) -> Part:
    """A part of these records, each given as its columns and its entries; see `records_of`."""
    text = JOIN.join([entry for _, entries in records for entry in entries])
    lines = b",".join([column for columns, _ in records for column in columns])
    return new_part(ARCHIVE, text + b"\n" + lines, len(records), compresses=codec.compresses)


def check_archive(parts: Sequence[Part], codec: Codec, binding: Any = None) -> None:
    """Refuse an archive with far more JSON values than a state and the stored bytes, before it is read.

    Raises:
        StateError: It has too many values, or a part is elsewhere or damaged.
    """
    stored = sum(part.stored_len for part in parts)
    records, most = sum(part.entries for part in parts), hard_limits(codec).max_entries + stored
    if records > most:
        raise invalid_part(f"{records} records, expected at most {most}")
    if not have_few_values([part.raw(codec, binding) for part in parts], stored, codec):
        raise invalid_part(f"more JSON values than a state may have, in {stored} stored bytes")


def have_few_values(raws: Sequence[bytes], stored: int, codec: Codec) -> bool:
    """True if raw parts have no more JSON values, and no more entries, than a state and their stored bytes.

    An archive may be larger than a state. So its stored bytes count as allowed values, too.
    """
    values = hard_limits(codec).max_values + stored
    if sum([most_values(len(raw)) for raw in raws]) <= values:
        return True
    if sum(map(separators, raws)) <= values:
        return True
    for raw in raws:
        values -= values_of_lines(raw, values)
        if values < 0:
            return False
    return True


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
                raise invalid_part("a turn that belongs to no cut")
    return found


def read_records(raw: bytes, count: int) -> list[Record]:
    """Read the records of a part from its raw bytes. `count`: how many it says that it has."""
    text, _, lines = raw.rpartition(b"\n")
    entries = text.split(JOIN) if text else []
    found = _columns(lines)
    if len(found) != count or not found:
        raise invalid_part(f"{len(found)} records, expected {count or 'at least 1'}")
    records: list[Record] = []
    at = 0
    for columns in found:
        rows = records_in(b",".join(columns[1:]))
        end = at + sum(row.entries for row in rows)
        if end > len(entries):
            raise invalid_part("fewer entries than its turns have")
        own = entries[at:end]
        turns = []
        for row in rows:
            turns.append(ClosedTurn(tuple(entries[at : at + row.entries]), row))
            at += row.entries
        records.append(_record(columns, own, turns))
    if at != len(entries):
        raise invalid_part("more entries than its turns have")
    return records


def _record(columns: Sequence[bytes], entries: Sequence[bytes], turns: Sequence[ClosedTurn]) -> Record:
    cut: _Cut | None = None
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        cut = msgspec.json.decode(columns[0], type=_Cut)
    if cut is None or len(cut.places) != len(turns) or not _fit(cut.places, cut.stays):
        raise invalid_part("a cut that cannot be read")
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
    """Tell whether both lists grow, and whether changed and unchanged turns together fill all places of the
    history before the cut. Then the turns that stayed have the places that the record leaves free."""
    grow = all(a < b for one in (places, stays) for a, b in pairwise(one))
    return grow and (not places or places[-1] < len(places) + len(stays))


def invalid_part(found: str) -> StateInvalidError:
    """The error for a part of the archive that breaks a rule. `found`: the fault, for the text."""
    return StateInvalidError(f"a part of the archive has {found}; the archive cannot be read")
