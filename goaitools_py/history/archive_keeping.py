"""Keep the turns that a cut changes: their record joins the archive, and the oldest parts leave a full one.

Owns: the steps that add a record, which part it joins, which part is dropped, and the row "evicted" of the
journal of cuts, with the number of dropped records and bytes. Must never know: why a cut is made, which turns
a strategy keeps, or how large an archive may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import msgspec

from ..base import rawjson
from ..base.values import Value, replace
from ..state.closed_turns import ClosedTurn
from ..state.codec import BlobLimits, Codec
from ..state.media import Media, cut_out
from ..state.media_rows import archived_bytes, only_archived, results_of, with_archived, with_results
from ..state.parts import ARCHIVE, ELSEWHERE, INLINE, MAX_PART_BYTES, Part, inflated, most_inflated, new_part
from ..state.records import MAX_MEDIA, CutRow
from ..state.segments import JOIN
from ..state.state import ConversationState
from ..state.turn_rows import turn_columns
from ..types.errors import StateError
from .archive_records import (
    BeforeCut,
    have_few_values,
    in_order,
    invalid_part,
    newest_record,
    record_digest,
    voice_digest,
)

__all__ = [
    "SHARED_BYTES",
    "Retention",
    "marked",
    "with_joined",
    "with_record",
    "with_room",
    "without_oldest",
]

SHARED_BYTES: Final = 256 * 1024
"""Records share a part until it has this many raw bytes."""


_SHARES: Final = 4
"""A part with this fraction of `retain_bytes` gets no more records. Else a drop of the oldest part could drop
the whole archive."""


_COPY_FACT: Final = "c"


class Retention(Value, frozen=True, kw_only=True):
    """Limits and codec for the record of a cut.

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


def marked(turns: Sequence[ClosedTurn], rest: Sequence[ClosedTurn]) -> list[ClosedTurn]:
    """The turns after a cut. Each turn that the cut changed gets the mark of a copy; notes do not.

    `turns` are the turns before the cut. A turn that stayed is the same object.
    """
    before = set(map(id, turns))
    return [turn if id(turn) in before or not turn.record.facts.get("n") else _copy(turn) for turn in rest]


def _copy(turn: ClosedTurn) -> ClosedTurn:
    facts = {name: value for name, value in turn.record.facts.items() if name != "n"}
    # The number is the last fact, as `with_numbers` writes it, so that an undone cut gives back the same
    # bytes.
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
    """The state after a cut, with a record of the cut in its archive. The oldest parts are dropped if the
    room is needed.

    A record that is larger than the whole archive may be is not kept: its cut cannot be undone.

    Args:
        cut: The state after the cut. The newest row of its journal of cuts describes this cut.
        old: The state before it.
        turns: The turns before it, each with its number.
        rest: The turns after it. An unchanged turn is the same object.
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
        "before": msgspec.to_builtins(BeforeCut.of(old.meta)),
        "voice": voice_digest(old.meta),
    }
    whole = [entry for _, turn in changed for entry in turn.entries]
    entries, media = _cut_out(whole, cut)
    if media:
        head["media"] = [name.decode() for name in media]
    columns = [rawjson.dumps(head), *[turn_columns([turn.record]) for _, turn in changed]]
    parts = _with_entry(cut, entries, columns, retention, media)
    if parts is None:
        return _journalled(cut, at, records=1, size=sum(map(len, whole)))
    parts = with_results(parts, results_of(old.parts))  # those that the record names stay, too
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
    raw = text + b"\n" + lines
    alone = new_part(ARCHIVE, raw, 1, compresses=codec.compresses)
    if not have_few_values([raw], alone.stored_len, codec):
        return None
    own = only_archived(state.segments, media)
    if alone.stored_len + own > min(retention.most_bytes, retention.limits.max_archive_bytes):
        return None
    archive = [part for part in parts if part.kind == ARCHIVE]
    last = archive[-1] if archive else None
    own += archived_bytes(state.meta, parts, state.segments)
    if last is not None and _takes_more(last, alone, retention.most_bytes - _SHARES * own):
        with suppress(StateError):  # damage in the archive does not stop a turn; a new part begins
            archive[-1] = _one_part(last, alone, codec, binding)
            return in_order(parts, archive)
    return in_order(parts, [*archive, alone])


def _one_part(older: Part, newer: Part, codec: Codec, binding: Any) -> Part:
    """One part with the records of two, in order.

    Raises:
        StateError: The older part is damaged.
    """
    pieces = [part.raw(codec, binding).rpartition(b"\n") for part in (older, newer)]
    if pieces[0][2][:1] != b"{":
        raise invalid_part("a turn that belongs to no cut")
    text = JOIN.join([text for text, _, _ in pieces if text])
    raw = text + b"\n" + b",".join([lines for _, _, lines in pieces])
    return new_part(ARCHIVE, raw, older.entries + newer.entries, compresses=codec.compresses)


def with_room(parts: Sequence[Part]) -> Part | None:
    """The part elsewhere that a new part of the archive may join; None if no part can take it.

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
    """The state with the new part of its archive joined to the part that `with_room` gave.

    `stored`: the bytes of that part. The same object if they are damaged.
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


def _bounded(state: ConversationState, retention: Retention, at: int) -> ConversationState:
    """The state without the oldest parts of its archive that exceed the limits."""
    archive = [part for part in state.parts if part.kind == ARCHIVE]
    limits = retention.limits
    gone: list[Part] = []
    while len(archive) > 1:  # the newest record fits, see `_with_entry`
        here = [part for part in archive if part.place == INLINE]
        media = archived_bytes(state.meta, in_order(state.parts, archive), state.segments)
        if here and (
            sum(part.stored_len for part in here) + media > retention.most_bytes
            or inflated(in_order(state.parts, archive)) > most_inflated(limits) // 2
        ):
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
    return _without_parts(state, gone, at)


def without_oldest(
    state: ConversationState, fits: Callable[[ConversationState], bool], *, at: int
) -> ConversationState:
    """Drop the oldest parts of the archive in the blob until the state fits, or all of them. Gives the same
    object if the blob has no parts of the archive."""
    here = [part for part in state.parts if part.kind == ARCHIVE and part.place == INLINE]
    lean = state
    for count in range(1, len(here) + 1):
        lean = _without_parts(state, here[:count], at)
        if fits(lean):
            break
    return lean


def _without_parts(state: ConversationState, gone: Sequence[Part], at: int) -> ConversationState:
    """The state without these parts of its archive. The journal of cuts says so."""
    if not gone:
        return state
    dropped = set(map(id, gone))
    left = tuple(part for part in state.parts if id(part) not in dropped)
    records, size = sum(part.entries for part in gone), sum(part.stored_len for part in gone)
    return _journalled(replace(state, parts=left), at, records=records, size=size)


_CUTS_KEPT: Final = 64
"""The most rows that the journal of cuts holds."""


def _journalled(state: ConversationState, at: int, *, records: int, size: int) -> ConversationState:
    """Note in the journal of cuts how many records and bytes were dropped."""
    facts = {"n": state.meta.processed, "records": records, "size": size}
    row = CutRow(max(0, at), "evicted", 0, 0, msgspec.Raw(msgspec.json.encode(facts)))
    rows = (*state.meta.cuts, row)[-_CUTS_KEPT:]
    return replace(state, meta=msgspec.structs.replace(state.meta, cuts=rows))
