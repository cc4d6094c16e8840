"""A conversation as a value, and its way to a blob and back.

Owns: `ConversationState`, and how it grows by a turn. Must never know: the content of an entry (a dialect
knows it), how a segment's lines are written (`segments` knows), or how bytes are sealed (`blob` knows).

History is spliced, never parsed: a normal turn reads the meta and copies bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..base.values import Value, field, replace
from ..types.errors import StateAuthError, StateError, StateProviderError
from . import apart
from . import blob as blobs
from .apart import JOINED, StateHead, encode_head, joins, sealed_history
from .blob import Kind, Segment
from .closed_turns import ClosedTurn, with_few_numbers
from .codec import PLAIN, BlobLimits, Codec, check_limit, hard_limits, refused, soft_limits
from .media import Media, Medium, cut_out
from .media_rows import Written, fitting_results, media_of, resolved, with_rows, without_lost_results
from .parts import MEDIA, RESULT, SEALED_HISTORY, Part
from .records import RULES_VERSION, InboxItem, Meta, OpenTurn
from .segments import (
    JOIN,
    RAW_LEN,
    check_values,
    entries_of,
    history_segment,
    meta_of,
    meta_segment,
    object_entries,
    spliceable,
    stored_lines,
    stored_segment,
    turn_records,
    with_media,
)
from .turn_rows import turn_columns
from .unfinished_segments import inbox_items, inbox_segment, open_segment, open_turn

__all__ = [
    "ConversationState",
    "check_revision",
    "closed_entries",
    "closed_turns",
    "dump_state",
    "hard_limits",
    "load_meta",
    "load_state",
    "new_state",
    "newest_number",
    "rebuild",
    "soft_limits",
    "with_turn",
    "without_lost",
    "written",
]

SEAL_BYTES = 32 * 1024
"""A hot segment of this size or more is sealed: later turns do not compress it again."""
FULL_BYTES = 64 * 1024
"""A sealed segment smaller than this is joined with the next segment that is sealed."""


class ConversationState(Value, frozen=True, kw_only=True):
    """A conversation between two turns, or in the middle of one."""

    _unshown = frozenset({"extras", "hot", "later", "parts", "sealed"})

    meta: Meta
    extras: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    """Meta keys that a later release wrote, kept byte for byte."""
    sealed: tuple[Segment, ...] = ()
    hot: Segment | None = None
    inbox: tuple[InboxItem, ...] = ()
    open: OpenTurn | None = None
    later: tuple[Segment, ...] = ()
    """Segments of a later release that this one may ignore, kept byte for byte."""
    is_apart: bool = False
    """True if it is written as a head, with its parts beside it; see `apart`."""
    parts: tuple[Part, ...] = ()
    """Archive, media, results, and parts that a later release added, in the blob or elsewhere; carried
    unopened."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The closed history, oldest first."""
        return self.sealed if self.hot is None else (*self.sealed, self.hot)

    def history(self) -> list[bytes | memoryview]:
        """Give the closed history as pieces of a request body, entries joined by ``,\\n``. Turns that the
        provider would refuse are left out."""
        return [piece for segment in self.segments if (piece := spliceable(segment))]

    def history_bytes(self) -> int:
        """Count the bytes of the closed history in one segment, with all media in their entries."""
        between = JOINED * (len(self.segments) - 1) if self.segments else 0
        return sum([segment.raw_len + segment.added for segment in self.segments]) + between


def new_state(wire: str, *, id: str, created: int) -> ConversationState:
    """Make an empty conversation. `created` is in milliseconds since the epoch."""
    return ConversationState(meta=Meta(wire=wire, id=id, created=created, rules=RULES_VERSION))


def newest_number(state: ConversationState) -> int:
    """Give the number of the newest turn, counting an unfinished one; 0 before the first turn."""
    return state.meta.processed + (state.open is not None)


def with_turn(state: ConversationState, turn: ClosedTurn) -> ConversationState:
    """Add a closed turn at the end. The caller updates the meta data."""
    if not turn.entries:
        return state
    sealed, hot = state.sealed, state.hot
    if hot is not None and hot.raw_len >= (apart.SMALL if state.is_apart else SEAL_BYTES):
        sealed, hot = (_with_part if state.is_apart else _with_sealed)(sealed, hot), None
    behind = () if hot is None else (hot,)
    column = turn_columns([turn.record])
    grown = history_segment(Kind.HOT, turn.entries, column, behind=behind, is_minor=bool(sealed))
    return replace(state, sealed=sealed, hot=grown)


def _with_sealed(sealed: tuple[Segment, ...], hot: Segment) -> tuple[Segment, ...]:
    if not sealed or sealed[-1].raw_len >= FULL_BYTES:
        return (*sealed, _joined((hot,)))
    return (*sealed[:-1], _joined((sealed[-1], hot)))


def _with_part(sealed: tuple[Segment, ...], hot: Segment) -> tuple[Segment, ...]:
    """Seal the hot segment of a closed history in parts, and join it with the newest parts if it is time."""
    left = len(sealed) - joins([each.raw_len for each in sealed], hot.raw_len)
    return (*sealed[:left], _joined((*sealed[left:], hot)))


def _joined(behind: tuple[Segment, ...]) -> Segment:
    """Join history segments to one sealed segment. No entry is parsed."""
    if len(behind) > 1:
        return history_segment(Kind.SEALED, (), b"", behind=behind)
    (hot,) = behind
    found = blobs.segment(Kind.SEALED, hot.raw(), hot.entries)
    return with_media(found, hot.media) if hot.media else found


def closed_turns(state: ConversationState, *, checked: bool = True) -> list[ClosedTurn]:
    """Give the closed turns, oldest first.

    `checked`: whether each entry must be a JSON object. Only a caller that does not read entries, or repairs
    them, passes False.

    Raises `StateInvalidError` or `StateVersionError` if they cannot be read.
    """
    turns: list[ClosedTurn] = []
    for segment in state.segments:
        entries = object_entries(segment) if checked else entries_of(segment)
        at = 0
        for record in turn_records(segment):
            end = at + record.entries
            turns.append(ClosedTurn(tuple(entries[at:end]), record))
            at = end
    return turns


def closed_entries(state: ConversationState) -> list[bytes]:
    """Give the entries of all closed turns, oldest first."""
    return [entry for turn in closed_turns(state) for entry in turn.entries]


def rebuild(state: ConversationState, turns: Sequence[ClosedTurn]) -> ConversationState:
    """Replace the closed history by `turns`, in the segments that it would have if it had grown by them.

    In parts, leading segments that hold the same turns stay: a save does not write them again. Whole results
    that no turn names any more leave.
    """
    turns = with_few_numbers(turns)
    rebuilt = _rebuilt_in_parts(state, turns) if state.is_apart else _rebuilt(state, turns)
    return without_lost(state, rebuilt)


def without_lost(state: ConversationState, new: ConversationState) -> ConversationState:
    """Give the new state without the whole results that the old one names and the new one does not."""
    if all(part.kind != RESULT for part in new.parts):  # as of most states: no segment is read
        return new
    return replace(new, parts=without_lost_results(new.parts, _named_in(state), _named_in(new)))


def _named_in(state: ConversationState) -> list[bytes]:
    """Give the bytes in which a state may name results."""
    pieces = [segment.raw() for segment in state.segments]
    return pieces if state.open is None else [*pieces, open_segment(state.open).raw()]


def _rebuilt(state: ConversationState, turns: Sequence[ClosedTurn]) -> ConversationState:
    piles: list[_Pile] = []
    for turn in turns:
        if not piles or piles[-1].raw_len >= SEAL_BYTES:
            # The same borders as of a history that grew turn by turn: equal histories give equal bytes.
            if len(piles) > 1 and piles[-2].raw_len < FULL_BYTES:
                piles[-2].take(piles.pop())
            piles.append(_Pile())
        piles[-1].add_turn(turn)
    segments = [pile.segment(Kind.SEALED) for pile in piles[:-1]]
    hot = piles[-1].segment(Kind.HOT, is_minor=bool(segments)) if piles else None
    return replace(state, sealed=tuple(segments), hot=hot)


def _rebuilt_in_parts(state: ConversationState, turns: Sequence[ClosedTurn]) -> ConversationState:
    kept: list[Segment] = []
    at = 0
    for segment in state.sealed:
        own, end = _Pile(), at
        while end < len(turns) and own.entries < segment.entries:
            own.add_turn(turns[end])
            end += 1
        if own.raw() != segment.raw():
            break
        kept.append(segment)
        at = end
    # Joined as piles: only the segments of the result are compressed.
    piles: list[_Pile] = []
    hot = _Pile()
    for turn in turns[at:]:
        if hot.raw_len >= apart.SMALL:
            sizes = [*[each.raw_len for each in kept], *[pile.raw_len for pile in piles]]
            for _ in range(joins(sizes, hot.raw_len)):
                older = piles.pop() if piles else _Pile.of(kept.pop())
                older.take(hot)
                hot = older
            piles.append(hot)
            hot = _Pile()
        hot.add_turn(turn)
    sealed = (*kept, *[pile.segment(Kind.SEALED) for pile in piles])
    newest = hot.segment(Kind.HOT, is_minor=bool(sealed)) if hot.entries else None
    return replace(state, sealed=sealed, hot=newest)


class _Pile:
    """Turns that will be one segment."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._columns: list[bytes] = []
        self._media: dict[bytes, Medium] = {}
        self.raw_len = -len(JOIN)  # the last entry has no JOIN; the newline stands for the last comma

    @classmethod
    def of(cls, segment: Segment) -> _Pile:
        """Take a segment apart, without parsing its turns."""
        pile = cls()
        entries, columns = stored_lines(segment)
        pile._add(entries, [columns], segment.media)
        return pile

    @property
    def entries(self) -> int:
        """How many entries it has."""
        return len(self._entries)

    def add_turn(self, turn: ClosedTurn) -> None:
        stored, media = cut_out(turn.entries)
        self._add(stored, [turn_columns([turn.record])], media)

    def _add(self, entries: Sequence[bytes], columns: Sequence[bytes], media: Media | None) -> None:
        self._entries += entries
        self._columns += columns
        if media:
            self._media.update(media)
        self.raw_len += sum(len(entry) + len(JOIN) for entry in entries)
        self.raw_len += sum(len(column) + 1 for column in columns)

    def take(self, other: _Pile) -> None:
        """Add the turns of another pile, which is used no more."""
        self._add(other._entries, other._columns, other._media)

    def raw(self) -> bytes:
        """Give the raw bytes of the segment."""
        return b"".join((JOIN.join(self._entries), b"\n", b",".join(self._columns)))

    def segment(self, kind: Kind, *, is_minor: bool = False) -> Segment:
        columns = b",".join(self._columns)
        return stored_segment(kind, self._entries, columns, self._media, is_minor=is_minor)


# -------------------------------------------------------------------------------- bytes <-> state


def dump_state(
    state: ConversationState,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    limits: BlobLimits | None = None,
    seen: dict[bytes, Part] | None = None,
) -> bytes:
    """Encode a state as a blob, or as a head if it is apart. Raises `StateTooLargeError` beyond `limits`.

    `seen`: the parts of new media by their digests. Give the same dict with each state of a turn: then a
    medium is encrypted once, and a store of parts saves it once.
    """
    limits = limits or soft_limits(codec)
    segments, parts, added = written(state, soft_limits(codec), seen)
    if added:
        # `encode` counts media as short references. The limit holds for entries with their media.
        size = added + sum([segment.raw_len for segment in segments])
        check_limit("max_decoded_bytes", limits.max_decoded_bytes, size)
    if parts:
        fitting = fitting_results(parts, segments, soft_limits(codec), compresses=codec.compresses)
        parts = tuple(fitting)
    # The reader has the same limit. A state beyond it could be saved, and never be read again.
    check_values(segments, limits.max_values)
    if state.is_apart:
        return encode_head(segments, parts, codec=codec, binding=binding, limits=limits)
    return blobs.encode(segments, parts, codec=codec, binding=binding, limits=limits)


def written(state: ConversationState, soft: BlobLimits, seen: dict[bytes, Part] | None = None) -> Written:
    """Give the segments and the parts of a state's blob, in order.

    `soft`: the soft limits of its codec. `seen`: see `dump_state`.
    """
    segments = [*state.segments]
    if state.inbox:
        segments.append(inbox_segment(state.inbox))
    if state.open is not None:
        segments.append(open_segment(state.open))
    meta, parts, added = state.meta, state.parts, 0
    has_media = bool(meta.media)
    for segment in segments:
        has_media = has_media or segment.media is not None
    if has_media:
        meta, (segments, parts, added) = with_rows(meta, parts, segments, soft, seen)
    return Written([meta_segment(meta, state.extras), *segments, *state.later], parts, added)


def load_state(
    blob: bytes | bytearray | memoryview,
    *,
    wire: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    limits: BlobLimits | None = None,
) -> ConversationState:
    """Decode a blob. The closed history stays compressed until it is sent; inbox and open turn are read now.

    Args:
        blob: The stored value.
        wire: The provider API that the state must have; None for any.
        codec: The codec that wrote it.
        binding: For keyed codecs: the owner of the blob.
        min_revision: The lowest revision that it may have.
        limits: The largest sizes that it may have; None for the hard limits of the codec.

    Raises:
        StateProviderError: It is a state of another provider API than `wire`.
        StateAuthError: The codec refuses it or finds it too old, or its revision is below `min_revision`.
        StateError: It cannot be read; see `blob.decode`.
    """
    limits = limits or hard_limits(codec)
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=limits)
    meta, extras = meta_of(segments[0])
    try:
        # Before the provider API is compared: an old or replayed state must not be converted either.
        codec.check_age(meta.created + meta.updated)
        _check_revision(meta, min_revision)
    except StateAuthError as error:
        error.blob = bytes(blob)
        raise
    if wire is not None and meta.wire != wire:
        writer = f"{meta.wire!r} (model {meta.model!r})" if meta.model else repr(meta.wire)
        raise StateProviderError(
            f"state was written by {writer}, this chat uses {wire!r}; go on with a chat on {meta.wire!r}, "
            "convert it with on_foreign_state='convert', or begin a new conversation: pass state=None, or "
            "on_foreign_state='fresh' to a turn",
            blob=bytes(blob),
            expected=wire,
            found=meta.wire,
        )
    if isinstance(blob, StateHead) and parts:
        parts = blob.placed(parts)
    sealed: list[Segment] = []
    if parts and parts[0].kind == SEALED_HISTORY:
        sealed = [sealed_history(part, codec, binding) for part in parts if part.kind == SEALED_HISTORY]
        parts = parts[len(sealed) :]
    own: Sequence[Segment] = segments[1:]
    if sum(map(RAW_LEN, (*sealed, *segments))) > limits.max_values:  # fewer bytes cannot hold more values
        _check_values([*sealed, *segments], limits, blob)
    # Also parts without rows must be looked at: rows and parts that do not match are damage.
    if meta.media or (parts and any(part.kind == MEDIA for part in parts)):
        sealed, own = _resolved(meta, parts, sealed, own, codec, binding, limits)
    hot: Segment | None = None
    inbox: tuple[InboxItem, ...] = ()
    opened: OpenTurn | None = None
    later: list[Segment] = []
    for segment in own:
        if segment.kind == Kind.SEALED:
            sealed.append(segment)
        elif segment.kind == Kind.HOT:
            hot = segment
        elif segment.kind == Kind.INBOX:
            inbox = inbox_items(segment)
        elif segment.kind == Kind.OPEN:
            opened = open_turn(segment)
        else:
            later.append(segment)
    return ConversationState(
        meta=meta,
        extras=extras,
        sealed=tuple(sealed),
        hot=hot,
        inbox=inbox,
        open=opened,
        later=tuple(later),
        is_apart=isinstance(blob, StateHead),
        parts=parts,
    )


def load_meta(blob: bytes | bytearray | memoryview, *, codec: Codec = PLAIN, binding: Any = None) -> Meta:
    """Decode the meta data of a blob, and check its seal.

    Inbox and open turn are not read, so this takes milliseconds, whatever they hold.

    Raises StateError: The blob cannot be read; see `blob.decode`. What is not read may be damaged.
    """
    segments, _ = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    meta, _ = meta_of(segments[0])
    codec.check_age(meta.created + meta.updated)
    return meta


def _check_values(segments: Sequence[Segment], limits: BlobLimits, blob: Any) -> None:
    """Refuse a state with too many JSON values, before more of it than the meta is parsed."""
    try:
        check_values([one for one in segments if one.kind not in blobs.IGNORABLE], limits.max_values)
    except StateError as error:
        error.blob = bytes(blob)
        raise


def _resolved(
    meta: Meta,
    parts: Sequence[Part],
    sealed: list[Segment],
    own: Sequence[Segment],
    codec: Codec,
    binding: Any,
    limits: BlobLimits,
) -> tuple[list[Segment], list[Segment]]:
    """Give the segments with the media that their entries name."""
    read = [segment for segment in own if segment.kind not in blobs.IGNORABLE]
    found = resolved([*sealed, *read], media_of(meta, parts, codec, binding), limits)
    return found[: len(sealed)], [*found[len(sealed) :], *own[len(read) :]]


def check_revision(state: ConversationState, min_revision: int | None) -> None:
    """Refuse a state with a lower revision than `min_revision`: a newer one is known. A new state has 0.

    Raises `StateAuthError`.
    """
    _check_revision(state.meta, min_revision)


def _check_revision(meta: Meta, min_revision: int | None) -> None:
    if min_revision is not None and meta.rev < min_revision:
        raise refused()
