"""How much more a running turn's state can hold.

Owns: sizes of a state that is not written yet, and the part of its limits that is kept free for what has to
follow. Must never know: what enters a state, or what is done where it does not fit.

A state is written up to its hard limits, twice the soft ones. The last quarter of that is kept free in two
steps of an eighth of the soft limits each, so that whatever comes has room for what comes after it::

    soft limits      what a turn may begin with, and should end with
    RESULTS          tool results and messages to a running turn end here: there is room for a reply; and a
                     turn's own results end at seven eighths of the soft limits
    REPLY            a reply and the text of one that broke off end here: there is room for messages
    hard limits      messages that are appended between turns end here

Sizes are upper bounds made of lengths that are known, and cost microseconds. The open turn is written, only
to see how large it is, where they do not say that it fits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from ..backends.base import Dialect
from ..errors import StateTooLargeError
from ..messages import Part, Text
from ..state.codec import BlobLimits, Codec
from ..state.records import JournalCall, OpenTurn
from ..state.segments import meta_bytes
from ..state.state import ConversationState, hard_limits, segments_of, soft_limits
from ..values import replace
from . import journal
from .turn_ids import within_json

__all__ = ["CALL_BYTES", "REPLY", "RESULTS", "Room", "Size", "size_of", "stored_size", "written_size"]

REPLY: Final = 1
"""Eighths of the soft limits that a reply leaves free."""
RESULTS: Final = 2
"""Eighths of the soft limits that a tool result leaves free."""

CALL_BYTES: Final = 192
"""More than a short record of a call takes beside that of one that was not run."""

_ENTRY_BYTES: Final = 512
_PART_BYTES: Final = 192
_ITERATION_BYTES: Final = 256
_BOOKS: Final = 2048
"""More than a turn adds beside its messages: counters, columns, heads of segments, the codec's own bytes."""
_HEAD_BYTES: Final = 20
_SMALL: Final = 2048

_encode = msgspec.json.Encoder().encode


class Size(NamedTuple):
    """Sizes of a state, or what they may be at most."""

    blob: int
    decoded: int
    entries: int
    segments: int
    meta: int = 0

    @classmethod
    def of(cls, limits: BlobLimits) -> Size:
        """Limits as sizes."""
        return cls(
            limits.max_blob_bytes,
            limits.max_decoded_bytes,
            limits.max_entries,
            limits.max_segments,
            limits.max_meta_bytes,
        )

    def without(self, soft: BlobLimits, eighths: int) -> Size:
        """These limits without so many eighths of the soft ones; segments and meta data stay."""
        return self._replace(
            blob=self.blob - eighths * soft.max_blob_bytes // 8,
            decoded=self.decoded - eighths * soft.max_decoded_bytes // 8,
            entries=self.entries - eighths * soft.max_entries // 8,
        )

    def beyond(self, most: Size) -> StateTooLargeError | None:
        """What is larger than it may be; None if nothing is."""
        if (
            self.blob <= most.blob
            and self.decoded <= most.decoded
            and self.entries <= most.entries
            and self.segments <= most.segments
            and self.meta <= most.meta
        ):
            return None
        name, found, limit = next(row for row in zip(_NAMES, self, most, strict=True) if row[1] > row[2])
        return StateTooLargeError(
            f"state is too large: found {found}, expected at most {name}={limit}",
            limit_name=name,
            limit=limit,
        )


_NAMES: Final = ("max_blob_bytes", "max_decoded_bytes", "max_entries", "max_segments", "max_meta_bytes")


def size_of(state: ConversationState, codec: Codec, *, meta: int) -> Size:
    """The most that a state takes, now or once its open turn is closed. `meta`: bytes of its meta data."""
    blob, decoded, entries = _closed(state, codec)
    hot = state.hot
    if hot is not None and codec.compresses:
        # It is compressed again with what follows it, perhaps not as well.
        blob += min(hot.raw_len - len(hot.stored), len(hot.stored) // 2)
    new = meta + _BOOKS
    for item in state.inbox:
        new += len(item.entry) + _PART_BYTES
    entries += len(state.inbox)
    if state.open is not None:
        new += _open_bytes(state.open)
        entries += len(state.open.entries) + len(state.open.calls)
    return Size(blob + new, decoded + new, entries, len(state.sealed) + 6)


def stored_size(state: ConversationState, codec: Codec) -> Size:
    """What a state without an open turn takes, but for its meta data and what the codec adds."""
    blob, decoded, entries = _closed(state, codec)
    waiting = sum(len(item.entry) for item in state.inbox)
    return Size(blob + waiting, decoded + waiting, entries + len(state.inbox), len(state.segments) + 1)


def _closed(state: ConversationState, codec: Codec) -> tuple[int, int, int]:
    blob = decoded = entries = 0
    for segment in state.segments:
        decoded += segment.raw_len
        blob += len(segment.stored)
        entries += segment.entries
    return blob if codec.compresses else decoded, decoded, entries


def written_size(state: ConversationState, codec: Codec) -> Size:
    """What a state takes as it would be written now."""
    segments = segments_of(state)
    decoded = sum(segment.raw_len for segment in segments)
    stored = sum(len(segment.stored) for segment in segments) if codec.compresses else decoded
    return Size(
        stored + _HEAD_BYTES * len(segments) + _CODEC_BYTES,
        decoded,
        sum(segment.entries for segment in segments),
        len(segments),
        segments[0].raw_len,
    )


_CODEC_BYTES: Final = 512
"""More than any codec adds to a body: header, seal, padding."""


def _open_bytes(turn: OpenTurn) -> int:
    size = sum(map(len, turn.entries)) + 3 * len(turn.entries) + _ITERATION_BYTES * (len(turn.iterations) + 1)
    size += _text_bytes(turn.partial)
    if turn.facts:
        size += _text_bytes(str(turn.facts))
    return size + sum(map(_call_bytes, turn.calls))


def _call_bytes(call: JournalCall) -> int:
    size = _ENTRY_BYTES + _text_bytes(call.arguments) + 6 * (2 * len(call.id) + len(call.name))
    return size + sum(map(_part_bytes, call.parts))


def _part_bytes(part: Part) -> int:
    if isinstance(part, Text):
        return _PART_BYTES + _text_bytes(part.text)
    said = (part.url, part.media_type, getattr(part, "name", None))
    return _PART_BYTES + len(part.data or b"") * 4 // 3 + sum(_text_bytes(one) for one in said if one)


def _text_bytes(text: str) -> int:
    """The most bytes that a text takes as JSON."""
    if len(text) < _SMALL:
        return 6 * len(text)
    try:
        return len(_encode(text))
    except UnicodeEncodeError:  # a lone surrogate
        return 6 * len(text)


@lru_cache(maxsize=16)  # every turn asks, and few limits are in use
def _levels(soft: BlobLimits, hard: BlobLimits) -> tuple[Size, ...]:
    """What a state may be within: the soft limits, those for a turn alone, and the hard ones with 0, 1 and 2
    eighths free."""
    most, twice = Size.of(soft), Size.of(hard)
    return (most, most.without(soft, 1), *(twice.without(soft, free) for free in range(RESULTS + 1)))


class Room:
    """The room in one conversation's state."""

    def __init__(self, codec: Codec, dialect: Dialect) -> None:
        self._codec = codec
        self._dialect = dialect
        self.soft = soft_limits(codec)
        self._soft, self._alone, *self._hard = _levels(self.soft, hard_limits(codec))

    def problem(self, state: ConversationState, free: int, *, more: int = 0) -> StateTooLargeError | None:
        """What keeps the state, as it is or closed, from leaving so many eighths free of the hard limits;
        None if it fits.

        `more`: bytes that will come in beside.
        """
        return self._problem(state, self._hard[free], more)

    def soft_problem(self, state: ConversationState, *, more: int = 0) -> StateTooLargeError | None:
        """What keeps the state from being within the soft limits; None if it fits."""
        return self._problem(state, self._soft, more)

    def problem_alone(self, state: ConversationState, *, more: int = 0) -> StateTooLargeError | None:
        """What keeps the open turn from being within the soft limits once all closed turns are gone, with an
        eighth left free; None if it fits."""
        return self._problem(replace(state, sealed=(), hot=None), self._alone, more)

    def _problem(self, state: ConversationState, most: Size, more: int) -> StateTooLargeError | None:
        codec = self._codec
        if not state.meta.sticky and size_of(state, codec, meta=most.meta + more).beyond(most) is None:
            return None
        meta = meta_bytes(state.meta) + _PART_BYTES
        if size_of(state, codec, meta=meta + more)._replace(meta=meta).beyond(most) is None:
            return None
        most = most._replace(blob=most.blob - more, decoded=most.decoded - more)
        problem = written_size(state, codec).beyond(most)
        if problem is not None or state.open is None:
            return problem
        return written_size(journal.close_turn(state, self._dialect), codec).beyond(most)

    def capped(self, text: str, state: ConversationState) -> str:
        """The beginning of a text that the state has room for as that of a reply that broke off."""
        most = self._hard[REPLY]
        for meta in (most.meta, meta_bytes(state.meta)):
            size = size_of(state, self._codec, meta=meta)
            room = min(most.blob - size.blob, most.decoded - size.decoded)
            if 6 * len(text) <= room:
                return text
        return within_json(text, max(0, room))
