"""The records of an archive, rewritten: each names the new digest of the record before it.

Owns: a part of the archive taken apart and put together again. Must never know: the text that is redacted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ...base import rawjson
from ...base.values import Value, replace
from ...state.closed_turns import ClosedTurn
from ...state.codec import Codec
from ...state.media import cut_out, put_back, references
from ...state.media_rows import media_of, with_archived_only
from ...state.parts import ARCHIVE, Part
from ...state.records import CutRow, cut_facts
from ...state.segments import check_entries
from ...state.state import ConversationState, hard_limits
from ...state.turn_rows import turn_columns
from ..archive_reading import whole_record
from ..archive_records import Record, check_archive, part_of, record_digest, records_of
from .rows import known_record

__all__ = ["ArchivedCut", "cuts_of", "with_cuts"]

_KNOWN: Final = frozenset({"before", "by", "media", "n", "places", "prev", "stays", "voice", "wire"})


class ArchivedCut(Value, frozen=True, kw_only=True):
    """One record of the archive that may be rewritten.

    Attributes:
        part: The place of its part among all parts of the state.
        record: The record, with whole entries.
        media: The names of the media that its entries name in the archive.
        columns: Its columns as they are written.
        turns: Its turns. An unchanged turn is the same object as in `record`.
        by: The strategy.
        forgets_context: True if the context block before the cut has changed.
        dropped: How many names of a later release it has.
    """

    _unshown = frozenset({"columns", "turns", "record"})

    part: int
    record: Record
    columns: Sequence[bytes]
    turns: tuple[ClosedTurn, ...]
    by: str
    media: frozenset[bytes] = frozenset()
    forgets_context: bool = False
    dropped: int = 0

    @property
    def entries(self) -> list[bytes]:
        """The whole entries of its turns."""
        return [entry for turn in self.turns for entry in turn.entries]

    def stored(self) -> tuple[Sequence[bytes], list[bytes]]:
        """Its entries as they are stored, and the names of their media. A medium that was changed stays in
        its entry."""
        stored, media = cut_out(self.entries)
        if media is None:
            return stored, []
        new = media.keys() - self.media
        left = [name for name in media if name in self.media]
        return [put_back(entry, media, new) for entry in stored] if new else stored, left

    def written(self, names: Mapping[str, str], media: Sequence[bytes]) -> list[bytes]:
        """Its columns anew. `names`: the new digests of rewritten records. The columns of turns that did not
        change stay byte for byte. `media`: the names of its media now."""
        head, *rows = self.columns
        changes: dict[str, bytes] = {}
        if not self.media <= set(media):
            head = rawjson.without(head, ("media",))
            if media:
                changes["media"] = rawjson.dumps([name.decode() for name in media])
        if (previous := names.get(self.record.previous, self.record.previous)) != self.record.previous:
            changes["prev"] = rawjson.dumps(previous)
        if self.by != self.record.by:
            changes["by"] = rawjson.dumps(self.by)
        if self.forgets_context and self.record.before.context:
            before = msgspec.structs.replace(self.record.before, context="")
            changes["before"] = msgspec.json.encode(before)
        if self.dropped:
            head = rawjson.without(head, rawjson.names(head) - _KNOWN)
        if changes:
            head = rawjson.replaced(head, changes)
        for place, (new, old) in enumerate(zip(self.turns, self.record.turns, strict=True)):
            if new.record is not old.record:
                rows[place] = turn_columns([new.record])
        return [head, *rows]


def cuts_of(state: ConversationState, codec: Codec, binding: Any) -> list[ArchivedCut]:
    """The records of the archive, oldest first, without the names of a later release.

    Raises `StateError` if a part is damaged, if they have too many values together, or if an entry is not a
    JSON object.
    """
    check_archive([part for part in state.parts if part.kind == ARCHIVE], codec, binding)
    media = media_of(state.meta, state.parts, codec, binding)
    found: list[ArchivedCut] = []
    for place, part in enumerate(state.parts):
        if part.kind != ARCHIVE:
            continue
        for stored, columns in records_of(part, codec, binding):
            names = [references(entry) for turn in stored.turns for entry in turn.entries]
            record = whole_record(stored, media, hard_limits(codec))
            check_entries([entry for turn in record.turns for entry in turn.entries])
            dropped = len(rawjson.names(columns[0]) - _KNOWN)
            turns: list[ClosedTurn] = []
            for turn in record.turns:
                known, gone = known_record(turn.record)
                turns.append(replace(turn, record=known) if gone else turn)
                dropped += gone
            found.append(
                ArchivedCut(
                    part=place,
                    record=record,
                    columns=columns,
                    turns=tuple(turns),
                    by=record.by,
                    media=frozenset([name for own in names for name in own]),
                    dropped=dropped,
                )
            )
    return found


def with_cuts(state: ConversationState, cuts: Sequence[ArchivedCut], codec: Codec) -> ConversationState:
    """The state with these records in its archive. Parts with unchanged records stay as they are."""
    names: dict[str, str] = {}
    parts: dict[int, list[tuple[Sequence[bytes], Sequence[bytes]]]] = {}
    changed: set[int] = set()
    named: dict[bytes, int] = {}
    for cut in cuts:
        entries, media = cut.stored()
        named.update(dict.fromkeys(media, cut.record.number))
        columns = cut.written(names, media)
        digest = record_digest(columns, entries)
        if digest != cut.record.digest:
            names[cut.record.digest] = digest
            changed.add(cut.part)
        parts.setdefault(cut.part, []).append((columns, entries))
    if not changed:
        return state
    placed: list[Part] = list(state.parts)
    for place in changed:
        placed[place] = part_of(parts[place], codec)
    rows = tuple(_renamed(row, names) for row in state.meta.cuts)
    meta = with_archived_only(msgspec.structs.replace(state.meta, cuts=rows), named)
    return replace(state, parts=tuple(placed), meta=meta)


def _renamed(row: CutRow, names: Mapping[str, str]) -> CutRow:
    facts = cut_facts(row)
    if facts is None or facts.record not in names:
        return row
    more = rawjson.replaced(bytes(row.more), {"record": rawjson.dumps(names[facts.record])})
    return row._replace(more=msgspec.Raw(more))
