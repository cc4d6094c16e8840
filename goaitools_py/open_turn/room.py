"""Computes how much more the state of a running turn can hold, and shortens a tool result that does not fit.

Owns: the sizes of a state before it is written, the room that is kept free for later parts of the turn, and
the short text that replaces a part that does not fit. Must never know: when a call starts or ends, or a limit
of the caller other than the state's.

A state may be as large as the hard limits, which are twice the soft limits. The end of this range is kept
free in two steps of an eighth of the soft limits each, so that each part of a turn leaves room for the next::

    soft limits      a turn may begin with this much, and should end with it
    RESULTS          tool results, and messages to a running turn, stop here: a reply still fits; and the
                     results of one turn stop at seven eighths of the soft limits
    REPLY            a reply, or the text of a reply that broke off, stops here: messages still fit
    hard limits      messages that are appended between turns stop here

The sizes are upper bounds, computed in microseconds from known lengths. Only if these bounds do not show that
the state fits, the open turn is written to learn its exact size.

A reply with calls is accepted only if a short record of every call fits. Each result leaves the room of the
records that follow it. So every call that took effect has a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from ..backends.base import Dialect, Reply
from ..base import json_scan
from ..base.values import replace
from ..state.codec import BlobLimits, Codec
from ..state.media_rows import media_weight
from ..state.parts import INLINE, MEDIA, RESULT
from ..state.parts import Part as StoredPart
from ..state.records import MAX_OPEN_CALLS, JournalCall, OpenTurn
from ..state.segments import meta_bytes, values_in
from ..state.state import ConversationState, hard_limits, soft_limits, written
from ..types.errors import StateTooLargeError
from ..types.messages import Part, Text
from ..types.result import Action
from . import journal, steps
from .turn_ids import within_json

__all__ = [
    "CALL_BYTES",
    "REPLY",
    "RESULTS",
    "Admitted",
    "Room",
    "Size",
    "admitted",
    "calls_problem",
    "reply_problem",
    "size_of",
    "stored_size",
    "with_actions",
    "written_size",
]

REPLY: Final = 1
"""Eighths of the soft limits that a reply leaves free."""
RESULTS: Final = 2
"""Eighths of the soft limits that a tool result leaves free."""

CALL_BYTES: Final = 192
"""An upper bound: the bytes that the short record of a finished call needs beyond the record of one that has
not run."""

_SHORT_BYTES: Final = 80
"""The bytes of the shortest record, as `admitted` writes it."""
_ENTRY_BYTES: Final = 512
_PART_BYTES: Final = 192
_ITERATION_BYTES: Final = 256
_BOOKS: Final = 2048
"""An upper bound of the bytes that a turn adds beside its messages: counters, columns, segment headers, the
codec."""
_HEAD_BYTES: Final = 20
_BESIDE_BYTES: Final = 400
"""An upper bound of the bytes that a part with sealed history takes beside those of its segment."""
_SMALL: Final = 2048

_encode = msgspec.json.Encoder().encode


class Size(NamedTuple):
    """The sizes of a state, or their limits. In bytes; entries, segments and values are counts."""

    blob: int
    decoded: int
    entries: int
    segments: int
    meta: int = 0
    values: int = 0

    @classmethod
    def of(cls, limits: BlobLimits) -> Size:
        """The limits as sizes."""
        return cls(
            limits.max_blob_bytes,
            limits.max_decoded_bytes,
            limits.max_entries,
            limits.max_segments,
            limits.max_meta_bytes,
            limits.max_values,
        )

    def without(self, soft: BlobLimits, eighths: int) -> Size:
        """The limits, lowered by so many eighths of the soft limits; `segments` and `meta` stay."""
        return self._replace(
            blob=self.blob - eighths * soft.max_blob_bytes // 8,
            decoded=self.decoded - eighths * soft.max_decoded_bytes // 8,
            entries=self.entries - eighths * soft.max_entries // 8,
            values=self.values - eighths * soft.max_values // 8,
        )

    def beyond(self, most: Size) -> StateTooLargeError | None:
        """The first size that exceeds its limit, as an error; None if all are within the limits."""
        if (
            self.blob <= most.blob
            and self.decoded <= most.decoded
            and self.entries <= most.entries
            and self.segments <= most.segments
            and self.meta <= most.meta
            and self.values <= most.values
        ):
            return None
        name, found, limit = next(row for row in zip(_NAMES, self, most, strict=True) if row[1] > row[2])
        limit = max(0, limit)  # the calls that wait may need more than there is
        return StateTooLargeError(
            f"state is too large: found {found}, expected at most {name}={limit}",
            limit_name=name,
            limit=limit,
        )


_NAMES: Final = (
    "max_blob_bytes",
    "max_decoded_bytes",
    "max_entries",
    "max_segments",
    "max_meta_bytes",
    "max_values",
)


def size_of(state: ConversationState, codec: Codec, *, meta: int, most_values: int) -> Size:
    """Upper bounds of a state's sizes, now and after its open turn closes. `meta`: bytes of its meta data.

    `most_values`: the limit of JSON values. The count stops beyond it.
    """
    blob, decoded, entries = _closed(state, codec)
    hot = state.hot
    if hot is not None and codec.compresses:
        # Closing the turn compresses the hot segment again together with it, perhaps less well.
        blob += min(hot.raw_len - len(hot.stored), len(hot.stored) // 2)
    new = meta + _BOOKS
    for item in state.inbox:
        new += len(item.entry) + len(item.more) + _PART_BYTES
    entries += len(state.inbox)
    if state.open is not None:
        new += _open_bytes(state.open)
        entries += len(state.open.entries) + len(state.open.calls)
    values = decoded = decoded + new
    if decoded > most_values:  # only a text of more bytes can hold too many values
        own = json_scan.most_values(new)
        values = values_in(state.segments, most_values - own) + own
    return Size(blob + new, decoded, entries, len(state.sealed) + 6, values=values)


def stored_size(state: ConversationState, codec: Codec) -> Size:
    """The sizes of a state without an open turn, meta data and codec not counted."""
    blob, decoded, entries = _closed(state, codec)
    waiting = sum(len(item.entry) for item in state.inbox)
    return Size(blob + waiting, decoded + waiting, entries + len(state.inbox), len(state.segments) + 1)


def _closed(state: ConversationState, codec: Codec) -> tuple[int, int, int]:
    blob = decoded = entries = 0
    has_media = bool(state.meta.media)
    compresses = codec.compresses
    for segment in (*state.segments, *state.later):
        decoded += segment.raw_len + segment.added
        blob += len(segment.stored) if compresses else segment.raw_len
        entries += segment.entries
        has_media = has_media or bool(segment.media)
    if state.is_apart:
        blob += _BESIDE_BYTES * len(state.sealed)
    if state.parts:
        blob += sum([part.weight for part in state.parts if part.kind != MEDIA and not _gives_way(part)])
    if has_media:
        blob += media_weight(state.meta, state.parts, state.segments)
    return blob, decoded, entries


def written_size(state: ConversationState, codec: Codec, *, most_values: int) -> Size:
    """The sizes of a state if it were written now. `most_values`: see `size_of`."""
    segments, parts, added = written(state, soft_limits(codec))
    decoded = sum(segment.raw_len for segment in segments)
    stored = sum(len(segment.stored) for segment in segments) if codec.compresses else decoded
    stored += sum(part.weight for part in parts if not _gives_way(part))
    if state.is_apart:
        stored += _BESIDE_BYTES * len(state.sealed)
    return Size(
        stored + _HEAD_BYTES * len(segments) + _CODEC_BYTES,
        decoded + added,
        sum(segment.entries for segment in segments),
        len(segments),
        segments[0].raw_len,
        values_in(segments, most_values),
    )


def _gives_way(part: StoredPart) -> bool:
    """True for a whole result in the blob. It leaves when the state is written, if there is no room for it;
    see `fitting_results`."""
    return part.kind == RESULT and part.place == INLINE


_CODEC_BYTES: Final = 512
"""An upper bound of the bytes that a codec adds to a body: header, seal, padding."""


def _open_bytes(turn: OpenTurn) -> int:
    size = sum(map(len, turn.entries)) + 3 * len(turn.entries) + _ITERATION_BYTES * (len(turn.iterations) + 1)
    for iteration in turn.iterations:
        size += len(iteration.more)
    if turn.partial:
        size += _text_bytes(turn.partial)
    if turn.facts:
        size += _text_bytes(str(turn.facts)) + _raw_bytes(turn.facts.values())
    if turn.extras:
        size += _raw_bytes(turn.extras.values())
    return size + sum(map(_call_bytes, turn.calls))


def _raw_bytes(values: Iterable[Any]) -> int:
    """The bytes of values that a later release wrote."""
    return sum(len(bytes(value)) + _PART_BYTES for value in values if isinstance(value, Raw))


def _call_bytes(call: JournalCall) -> int:
    size = _ENTRY_BYTES + _text_bytes(call.arguments) + 6 * (2 * len(call.id) + len(call.name))
    return size + sum(map(_part_bytes, call.parts)) + _raw_bytes(call.extras.values())


def _part_bytes(part: Part) -> int:
    if isinstance(part, Text):
        return _PART_BYTES + _text_bytes(part.text)
    said = (part.url, part.media_type, getattr(part, "name", None))
    return _PART_BYTES + len(part.data or b"") * 4 // 3 + sum(_text_bytes(one) for one in said if one)


def _text_bytes(text: str) -> int:
    """An upper bound of the bytes that a text takes as JSON."""
    if len(text) < _SMALL:
        return 6 * len(text)
    try:
        return len(_encode(text))
    except UnicodeEncodeError:  # a lone surrogate
        return 6 * len(text)


@lru_cache(maxsize=16)  # every turn asks, and few limits are in use
def _levels(soft: BlobLimits, hard: BlobLimits) -> tuple[Size, ...]:
    """The limits of `Room`: the soft limits, the limits of a turn alone, and the hard limits with 0, 1 and 2
    eighths of the soft limits kept free."""
    most, twice = Size.of(soft), Size.of(hard)
    return (most, most.without(soft, 1), *(twice.without(soft, free) for free in range(RESULTS + 1)))


class Room:
    """The room in the state of one conversation.

    Attributes:
        soft: The soft limits.
        hard: The hard limits, which are twice the soft ones.
    """

    def __init__(self, codec: Codec, dialect: Dialect) -> None:
        self._codec = codec
        self._dialect = dialect
        self.soft = soft_limits(codec)
        self.hard = hard_limits(codec)
        self._soft, self._alone, *self._hard = _levels(self.soft, self.hard)

    def problem(self, state: ConversationState, free: int, *, more: int = 0) -> StateTooLargeError | None:
        """The error of a state that does not keep `free` eighths of the soft limits free below the hard ones.

        None if it does, now and after its open turn closes. `more`: bytes that will be added besides.
        """
        return self._problem(state, self._hard[free], more)

    def soft_problem(self, state: ConversationState, *, more: int = 0) -> StateTooLargeError | None:
        """The error of a state beyond the soft limits; None if it is within them."""
        return self._problem(state, self._soft, more)

    def problem_alone(self, state: ConversationState, *, more: int = 0) -> StateTooLargeError | None:
        """The error of an open turn that alone, without the closed turns, does not keep an eighth of the soft
        limits free; None if it does."""
        return self._problem(replace(state, sealed=(), hot=None), self._alone, more)

    def _problem(self, state: ConversationState, most: Size, more: int) -> StateTooLargeError | None:
        codec, values = self._codec, most.values
        # First a bound that needs no encoding, then the exact size. Most states end here.
        if not state.meta.sticky:
            size = size_of(state, codec, meta=most.meta + more, most_values=values)
            if size.beyond(most) is None:
                return None
        meta = meta_bytes(state.meta) + _PART_BYTES
        size = size_of(state, codec, meta=meta + more, most_values=values)
        if size._replace(meta=meta).beyond(most) is None:
            return None
        most = most._replace(blob=most.blob - more, decoded=most.decoded - more)
        problem = written_size(state, codec, most_values=values).beyond(most)
        if problem is not None or state.open is None:
            return problem
        # Last, because it writes the whole turn: a closed turn may be larger than an open one, and it has to
        # fit at the end, when its reply is paid for.
        closed = steps.close_turn(state, self._dialect)
        return written_size(closed, codec, most_values=values).beyond(most)

    def with_partial(self, state: ConversationState, text: str) -> ConversationState:
        """The state with the text of a partial reply, cut to the room that the state has."""
        if state.open is None:
            return state
        opened = replace(state.open, partial="")
        kept = self.capped(text, replace(state, open=opened))
        return replace(state, open=replace(opened, partial=kept))

    def capped(self, text: str, state: ConversationState) -> str:
        """The longest beginning of a partial reply's text that the state has room for."""
        most = self._hard[REPLY]
        for meta in (most.meta, meta_bytes(state.meta)):
            size = size_of(state, self._codec, meta=meta, most_values=most.values)
            room = min(most.blob - size.blob, most.decoded - size.decoded)
            if 6 * len(text) <= room:
                return text
        return within_json(text, max(0, room))


_MEDIA_TRIED: Final = 16
"""At most this many media of one result are tried one by one; later ones are left out."""


class Admitted:
    """A finished call, shortened so that the journal can hold it.

    Attributes:
        call: The call that enters the journal.
        logged: The same call with its whole text.
        left_out: The media that a short text replaces, as (type, bytes).
        problem: Why the text does not fit either; "" if it does.
    """

    __slots__ = ("call", "left_out", "logged", "problem")

    def __init__(self, call: JournalCall) -> None:
        self.call = self.logged = call
        self.left_out: list[tuple[str, int]] = []
        self.problem = ""


def admitted(room: Room, state: ConversationState, index: int, call: JournalCall) -> Admitted:
    """The call, with as much of its result as the journal of `state` has room for.

    A text with type and size replaces media that do not fit. If the text of the result does not fit either, a
    short record replaces it. A result that is no longer than this record is kept: `reply_problem` has made
    room for the record of each call.
    """
    found = Admitted(call)
    media = [at for at, part in enumerate(call.parts) if not isinstance(part, Text)]
    if _is_short(call) or _problem(room, state, index, call) is None:
        return found
    # All media out first, then each one in again if it fits: so a large one does not push out the small ones.
    parts = [_note(part) if at in media else part for at, part in enumerate(call.parts)]
    for at in media[:_MEDIA_TRIED]:
        tried = [*parts[:at], call.parts[at], *parts[at + 1 :]]
        if _problem(room, state, index, replace(call, parts=tuple(tried))) is None:
            parts = tried
    found.call = found.logged = replace(call, parts=tuple(parts))
    found.left_out = [
        (_type(part), _bytes(part)) for part, now in zip(call.parts, parts, strict=True) if now is not part
    ]
    problem = _problem(room, state, index, found.call)
    if problem is not None:
        size = sum(map(_bytes, parts))
        note = f"[result left out: {size:,} bytes; the conversation's state has no room for it]"
        # `logged` keeps the whole text: the tool log of the error is then its only copy.
        found.call = replace(call, parts=(Text(note),))
        found.problem = f"the result of tool {call.name!r}, {size:,} bytes, {_shown_limit(room, problem)}"
    return found


def _is_short(call: JournalCall) -> bool:
    """True if the result is one text, and as JSON no longer than the record that would replace it."""
    texts = [part.text for part in call.parts if isinstance(part, Text)]
    if len(texts) != len(call.parts) or len(texts) > 1:
        return False
    try:
        return len(_encode(texts)) <= _SHORT_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _problem(
    room: Room, state: ConversationState, index: int, call: JournalCall
) -> StateTooLargeError | None:
    return _results_problem(room, journal.put_call(state, index, call))


def with_actions(room: Room, state: ConversationState, actions: Sequence[Action]) -> ConversationState:
    """The state with actions in its open turn, or with their number, or as it is: as far as there is room."""
    for most in (journal.MOST_ACTION_BYTES, 0):
        grown = journal.with_actions(state, actions, most=most)
        if _results_problem(room, grown) is None:
            return grown
    return state


def _results_problem(room: Room, grown: ConversationState) -> StateTooLargeError | None:
    more = journal.unfinished(grown) * CALL_BYTES
    # The turn should end within the soft limits. A cut can remove the turns before it, but not this turn.
    return room.problem(grown, RESULTS, more=more) or room.problem_alone(grown, more=more)


def reply_problem(room: Room, state: ConversationState, reply: Reply) -> str:
    """The problem if the state has no room for the reply in it, or for the results of its calls; else ""."""
    # A reply with calls has to leave more room: its tools run next, and what they did must be recorded.
    calls = journal.unfinished(state)
    size = sum(map(len, reply.entries))
    if calls > MAX_OPEN_CALLS:
        return f"the reply, {size:,} bytes, has {calls:,} calls, expected at most {MAX_OPEN_CALLS:,}"
    problem = room.problem(state, RESULTS if calls else REPLY, more=calls * CALL_BYTES)
    if problem is None:
        return ""
    what = (
        f"the reply, {size:,} bytes with {len(reply.calls)} calls,"
        if calls
        else f"the reply, {size:,} bytes,"
    )
    return f"{what} {_shown_limit(room, problem)}"


def calls_problem(room: Room, state: ConversationState) -> str:
    """The problem if the results of the journal's calls would not fit, so that no call may start; else ""."""
    calls = journal.unfinished(state)
    problem = room.problem(state, 0, more=calls * CALL_BYTES)
    return "" if problem is None else f"the results of {calls} calls {_shown_limit(room, problem, verb='do')}"


def _shown_limit(room: Room, problem: StateTooLargeError, verb: str = "does") -> str:
    """The end of an error text about a part that does not fit. It names the caller's limit."""
    name = problem.limit_name
    return f"{verb} not fit into the state (limit {name}={getattr(room.soft, name)})"


def _note(part: Part) -> Text:
    kind = type(part).__name__.lower()
    what = f"{kind} left out: {_type(part)}, {_bytes(part):,} bytes"
    return Text(f"[{what}; the conversation's state has no room for it]")


def _type(part: Part) -> str:
    return "text/plain" if isinstance(part, Text) else part.media_type


def _bytes(part: Part) -> int:
    if isinstance(part, Text):
        return len(part.text.encode("utf-8", "replace"))
    return len(part.data or b"") + len(part.url or "")
