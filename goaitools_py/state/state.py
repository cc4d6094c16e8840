"""A conversation as a value, and its way to a blob and back.

Owns: `ConversationState` and how it grows by a turn. Must never know: what an entry says (that is the
dialect's), how a segment's lines are written (`segments`), or how bytes are sealed (`blob`).

History is spliced, never parsed: a normal turn reads the meta and copies bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ..errors import StateAuthError, StateProviderError
from ..values import Value, field, replace
from . import blob as blobs
from .blob import Kind, Segment
from .codec import LIMITS, PLAIN, BlobLimits, Codec, refused
from .records import RULES_VERSION, InboxItem, Meta, OpenTurn, TurnRecord
from .segments import (
    JOIN,
    columns_of,
    entries_of,
    history_segment,
    inbox_items,
    inbox_segment,
    meta_of,
    meta_segment,
    open_segment,
    open_turn,
    spliceable,
    turn_columns,
    turn_records,
)

__all__ = [
    "ConversationState",
    "check_revision",
    "closed_turns",
    "dump_state",
    "hard_limits",
    "load_state",
    "new_state",
    "newest_number",
    "rebuild",
    "segments_of",
    "soft_limits",
    "with_turn",
]

SEAL_BYTES = 32 * 1024
"""A hot segment this large is sealed: later turns do not compress it again."""
FULL_BYTES = 64 * 1024
"""A sealed segment smaller than this takes in the next one that is sealed."""


class ConversationState(Value, frozen=True, kw_only=True):
    """A conversation between two turns, or in the middle of one."""

    unshown = frozenset({"extras", "hot", "sealed"})

    meta: Meta
    extras: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    """Meta keys that a later release wrote; kept as they are."""
    sealed: tuple[Segment, ...] = ()
    hot: Segment | None = None
    inbox: tuple[InboxItem, ...] = ()
    open: OpenTurn | None = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The closed history, oldest first."""
        return self.sealed if self.hot is None else (*self.sealed, self.hot)

    def history(self) -> list[bytes | memoryview]:
        """The closed history as pieces of a request body, entries joined by ``,\\n``."""
        return [spliceable(segment) for segment in self.segments]

    def history_bytes(self) -> int:
        """How many bytes the closed history has."""
        return sum(segment.raw_len for segment in self.segments)


def new_state(wire: str, *, id: str, created: int) -> ConversationState:
    """An empty conversation. `created` is in milliseconds since the epoch."""
    return ConversationState(meta=Meta(wire=wire, id=id, created=created, rules=RULES_VERSION))


def newest_number(state: ConversationState) -> int:
    """The number of the newest turn, the unfinished one if there is one; 0 before the first."""
    return state.meta.processed + (state.open is not None)


def with_turn(state: ConversationState, entries: Sequence[bytes], record: TurnRecord) -> ConversationState:
    """The state with one more closed turn at its end. Meta is the caller's to update."""
    if not entries:
        return state
    sealed, hot = state.sealed, state.hot
    pieces: Sequence[bytes | memoryview] = entries
    column, count = turn_columns([record]), len(entries)
    if hot is not None and hot.raw_len >= SEAL_BYTES:
        sealed, hot = _with_sealed(sealed, hot), None
    if hot is not None:
        pieces = (spliceable(hot), *entries)
        column, count = columns_of(hot) + b"," + column, hot.entries + count
    grown = history_segment(Kind.HOT, pieces, column, count, is_minor=bool(sealed))
    return replace(state, sealed=sealed, hot=grown)


def _with_sealed(sealed: tuple[Segment, ...], hot: Segment) -> tuple[Segment, ...]:
    if not sealed or sealed[-1].raw_len >= FULL_BYTES:
        return (*sealed, blobs.segment(Kind.SEALED, hot.raw(), hot.entries))
    last = sealed[-1]
    columns = columns_of(last) + b"," + columns_of(hot)
    pieces = (spliceable(last), spliceable(hot))
    return (*sealed[:-1], history_segment(Kind.SEALED, pieces, columns, last.entries + hot.entries))


def closed_turns(state: ConversationState) -> list[tuple[tuple[bytes, ...], TurnRecord]]:
    """The closed turns with their entries, oldest first."""
    turns: list[tuple[tuple[bytes, ...], TurnRecord]] = []
    for segment in state.segments:
        entries = entries_of(segment)
        at = 0
        for record in turn_records(segment):
            turns.append((tuple(entries[at : at + record.entries]), record))
            at += record.entries
    return turns


def rebuild(
    state: ConversationState, turns: Sequence[tuple[Sequence[bytes], TurnRecord]]
) -> ConversationState:
    """The state with its closed history replaced by `turns`, in segments as if it had grown by them."""
    piles: list[_Pile] = []
    for entries, record in turns:
        if not piles or piles[-1].raw_len >= SEAL_BYTES:
            if len(piles) > 1 and piles[-2].raw_len < FULL_BYTES:
                piles[-2].take(piles.pop())
            piles.append(_Pile())
        piles[-1].add(entries, [turn_columns([record])])
    segments = [pile.segment(Kind.SEALED) for pile in piles[:-1]]
    hot = piles[-1].segment(Kind.HOT, is_minor=bool(segments)) if piles else None
    return replace(state, sealed=tuple(segments), hot=hot)


class _Pile:
    """Turns that will be one segment."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._columns: list[bytes] = []
        self.raw_len = -len(JOIN)  # no joint at the end; the newline counts as a comma

    def add(self, entries: Sequence[bytes], columns: Sequence[bytes]) -> None:
        self._entries += entries
        self._columns += columns
        self.raw_len += sum(len(entry) + len(JOIN) for entry in entries)
        self.raw_len += sum(len(column) + 1 for column in columns)

    def take(self, other: _Pile) -> None:
        self.add(other._entries, other._columns)

    def segment(self, kind: Kind, *, is_minor: bool = False) -> Segment:
        columns = b",".join(self._columns)
        return history_segment(kind, self._entries, columns, len(self._entries), is_minor=is_minor)


# -------------------------------------------------------------------------------- bytes <-> state


def soft_limits(codec: Codec) -> BlobLimits:
    """The limits that a codec was made with, else the defaults: what a turn may write."""
    return getattr(codec, "limits", None) or LIMITS


def hard_limits(codec: Codec) -> BlobLimits:
    """Twice the soft limits: what is paid for is written, and read again, all the same."""
    return _twice(soft_limits(codec))


@lru_cache(maxsize=16)  # every turn asks, and few limits are in use
def _twice(soft: BlobLimits) -> BlobLimits:
    return BlobLimits(**{name: 2 * getattr(soft, name) for name in BlobLimits.__struct_fields__})


def dump_state(
    state: ConversationState,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    limits: BlobLimits | None = None,
) -> bytes:
    """Encode a state as a blob. Raises `StateTooLargeError` beyond `limits`."""
    segments = segments_of(state)
    return blobs.encode(segments, codec=codec, binding=binding, limits=limits or soft_limits(codec))


def segments_of(state: ConversationState) -> list[Segment]:
    """The segments of a state's blob, in order."""
    segments = [meta_segment(state.meta, state.extras), *state.segments]
    if state.inbox:
        segments.append(inbox_segment(state.inbox))
    if state.open is not None:
        segments.append(open_segment(state.open))
    return segments


def load_state(
    blob: bytes | bytearray | memoryview,
    *,
    wire: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    limits: BlobLimits | None = None,
) -> ConversationState:
    """Decode a blob, up to the hard limits unless others are given.

    With `wire`, a state of another wire raises `StateProviderError`. A state that the codec finds too old,
    or whose revision is below `min_revision`, raises `StateAuthError`.
    The closed history stays compressed until it is sent; the inbox and the open turn are read.
    """
    segments = blobs.decode(blob, codec=codec, binding=binding, limits=limits or hard_limits(codec))
    meta, extras = meta_of(segments[0])
    try:
        codec.check_age(meta.created + meta.updated)
        _check_revision(meta, min_revision)
    except StateAuthError as error:
        error.blob = bytes(blob)
        raise
    if wire is not None and meta.wire != wire:
        writer = f"{meta.wire!r} (model {meta.model!r})" if meta.model else repr(meta.wire)
        raise StateProviderError(
            f"state was written by {writer}, this chat uses {wire!r}; go on with a chat on {meta.wire!r}, or "
            "begin a new conversation: pass state=None, or on_foreign_state='fresh' to a turn. Its messages "
            "are in state_messages(state)",
            blob=bytes(blob),
            expected=wire,
            found=meta.wire,
        )
    sealed: list[Segment] = []
    hot: Segment | None = None
    inbox: tuple[InboxItem, ...] = ()
    opened: OpenTurn | None = None
    for segment in segments[1:]:
        if segment.kind == Kind.SEALED:
            sealed.append(segment)
        elif segment.kind == Kind.HOT:
            hot = segment
        elif segment.kind == Kind.INBOX:
            inbox = inbox_items(segment)
        else:
            opened = open_turn(segment)
    return ConversationState(
        meta=meta, extras=extras, sealed=tuple(sealed), hot=hot, inbox=inbox, open=opened
    )


def check_revision(state: ConversationState, min_revision: int | None) -> None:
    """Refuse a state that is older than one that is known to exist; a new one has revision 0.

    Raises `StateAuthError`.
    """
    _check_revision(state.meta, min_revision)


def _check_revision(meta: Meta, min_revision: int | None) -> None:
    if min_revision is not None and meta.rev < min_revision:
        raise refused()
