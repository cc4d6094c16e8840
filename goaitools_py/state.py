"""A conversation as a value, and how it maps to the segments of a blob.

Owns: `ConversationState`, its meta data, its turns' columns, the inbox and the open turn's journal.
Must never know: what an entry says (that is the dialect's), or how bytes are sealed (that is `blob`'s).

::

    segment         lines (an entry never holds a raw newline)
    sealed, hot     entry ,⏎ entry ,⏎ … entry ⏎ turn,turn,…       a turn is [at, messages, iterations, facts?]
    inbox           entry ,⏎ … entry ⏎ [letter, topic, id],…        what no model has seen
    open            entry ,⏎ … entry ⏎ {journal}                    the unfinished turn

An iteration is [roles, finish reason, input, cached, cache write, output, reasoning tokens, start, ms];
`roles` has one letter for each entry: s, u, e (event), a, t. `at` is in milliseconds since the conversation
began, `start` since the turn did, `ms` is how long the model took.
History is spliced, never parsed: a normal turn reads the meta and copies bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec

from . import blob as blobs
from . import rawjson
from .blob import PLAIN, BlobLimits, Codec, Kind, Segment
from .errors import StateInvalidError, StateProviderError
from .messages import Audio, Document, Image, Part, ResultFlag, Text, Usage
from .values import Value, replace

_T = TypeVar("_T")

__all__ = [
    "ConversationState",
    "InboxItem",
    "Iteration",
    "JournalCall",
    "Meta",
    "OpenTurn",
    "TurnRecord",
    "digest8",
    "dump_state",
    "hard_limits",
    "load_meta",
    "load_state",
    "new_state",
    "rebuild",
    "soft_limits",
    "turn_records",
    "with_turn",
]

SEAL_BYTES = 64 * 1024
"""A hot segment this large is sealed: it is not compressed again by later turns."""

JOIN = b",\n"
_CUTS_KEPT = 16
_EVENTS_KEPT = 64


def digest8(data: bytes) -> str:
    """The first 8 bytes of SHA-256 as 11 characters of base64url: a fingerprint, not a secret."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:8]).decode("ascii").rstrip("=")


# ---------------------------------------------------------------------------------------------- meta


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be said of a conversation without reading it; constant size. Unknown keys survive.

    `created` is in milliseconds since the epoch, `updated` in milliseconds after that. `messages` and
    `turns` count the closed history; `processed` counts every turn ever closed. `total` and `usage` are
    [input, cached, cache write, output, reasoning, requests]. `tokens` estimates the closed history.
    """

    wire: str
    family: str = ""
    model: str = ""
    id: str = ""
    rev: int = 0
    parent: str = ""
    created: int = 0
    updated: int = 0
    status: str = "complete"
    messages: int = 0
    turns: int = 0
    processed: int = 0
    tokens: int = 0
    total: tuple[int, ...] = ()
    usage: tuple[int, ...] = ()
    preamble: str = ""
    tools: str = ""
    context: str = ""
    events: tuple[str, ...] = ()
    sticky: dict[str, Any] = {}
    cuts: tuple[tuple[int, str, int, int], ...] = ()


_META = msgspec.json.Decoder(Meta)
_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_META_KEYS = frozenset(Meta.__struct_fields__)
_encode = msgspec.json.Encoder().encode


def usage_row(usage: Usage) -> tuple[int, ...]:
    """A usage as the tuple that is stored; () for none."""
    row = (
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.requests,
    )
    return row if any(row) else ()


def usage_of(row: Sequence[int]) -> Usage:
    """The usage that `usage_row` stored."""
    if not row:
        return Usage()
    padded = (*row, 0, 0, 0, 0, 0, 0)
    return Usage(
        input_tokens=padded[0],
        cached_input_tokens=padded[1],
        cache_write_tokens=padded[2],
        output_tokens=padded[3],
        reasoning_tokens=padded[4],
        requests=padded[5],
    )


# ------------------------------------------------------------------------------------ turns, journal


class Iteration(Value, frozen=True, kw_only=True):
    """One model call of a turn: the entries that went with it and came back, as role letters."""

    roles: str
    finish_reason: str = ""
    usage: Usage = Usage()
    start: int = 0
    ms: int = 0

    def row(self) -> _IterationRow:
        """The iteration as it is stored."""
        u = self.usage
        return _IterationRow(
            self.roles,
            self.finish_reason,
            u.input_tokens,
            u.cached_input_tokens,
            u.cache_write_tokens,
            u.output_tokens,
            u.reasoning_tokens,
            self.start,
            self.ms,
        )


class TurnRecord(Value, frozen=True, kw_only=True):
    """A closed turn's facts: when it began (ms after the conversation), how many entries, which calls."""

    unshown = frozenset({"facts"})

    at: int
    messages: int
    iterations: tuple[Iteration, ...]
    facts: Mapping[str, Any] = {}

    @property
    def entries(self) -> int:
        """How many stored entries the turn has."""
        return sum(len(iteration.roles) for iteration in self.iterations)

    def column(self) -> bytes:
        """The turn as one element of a segment's last line."""
        row: list[Any] = [self.at, self.messages, [iteration.row() for iteration in self.iterations]]
        if self.facts:
            row.append(self.facts)
        return _json(row)


class _IterationRow(msgspec.Struct, array_like=True, frozen=True):
    roles: str
    finish_reason: str
    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int
    start: int
    ms: int


class _TurnRow(msgspec.Struct, array_like=True, frozen=True):
    at: int
    messages: int
    iterations: list[_IterationRow]
    facts: dict[str, Any] = {}


_TURN_COLUMNS = msgspec.json.Decoder(list[_TurnRow])


def _json(value: Any) -> bytes:
    """Compact JSON; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return rawjson.dumps(msgspec.to_builtins(value))


class InboxItem(Value, frozen=True, kw_only=True):
    """A message that no model has seen: its entry, its role letter and, for events, topic and id digest."""

    unshown = frozenset({"entry"})

    entry: bytes
    letter: str
    topic: str = ""
    event: str = ""


class JournalCall(Value, frozen=True, kw_only=True):
    """One call of the open reply. `state` is "new", "started" or "done"; a done one has its result."""

    unshown = frozenset({"arguments", "parts"})

    id: str
    name: str
    arguments: str
    kind: str = "function"
    state: Literal["new", "started", "done"] = "new"
    flag: ResultFlag = "ok"
    parts: tuple[Part, ...] = ()
    started: float = 0.0
    seconds: float = 0.0


class OpenTurn(Value, frozen=True, kw_only=True):
    """The unfinished turn: what a model has accepted so far, and the journal of its last reply's calls.

    `entries` ends with the raw reply while `calls` are open. `letters` and `messages` describe the
    entries that belong to no iteration yet. `partial` is text of a reply that broke off: kept, flagged,
    never sent.
    """

    unshown = frozenset({"partial", "facts", "entries"})

    at: int
    entries: tuple[bytes, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    letters: str = ""
    messages: int = 0
    calls: tuple[JournalCall, ...] = ()
    partial: str = ""
    facts: Mapping[str, Any] = {}


# ---------------------------------------------------------------------------------------------- state


class ConversationState(Value, frozen=True, kw_only=True):
    """A conversation between two turns, or in the middle of one."""

    unshown = frozenset({"extras", "hot", "sealed"})

    meta: Meta
    extras: Mapping[str, msgspec.Raw] = {}
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
        return [_split(segment)[0] for segment in self.segments]

    def history_bytes(self) -> int:
        """How many bytes the closed history has."""
        return sum(segment.raw_len for segment in self.segments)


def new_state(wire: str, *, id: str, created: int) -> ConversationState:
    """An empty conversation. `created` is in milliseconds since the epoch."""
    return ConversationState(meta=Meta(wire=wire, id=id, created=created))


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes, what: str) -> _T:
    """The value, strictly typed. Raises outside the handler: the inner error would hold the data."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decoder.decode(data)
    raise StateInvalidError(f"{what} of the state cannot be read; the state cannot be used")


def _split(segment: Segment) -> tuple[memoryview, bytes]:
    raw = segment.raw()
    cut = raw.rfind(b"\n")
    if cut < 0:
        raise StateInvalidError("a history segment has no line of turn columns; the state cannot be used")
    return memoryview(raw)[:cut], raw[cut + 1 :]


def entries_of(segment: Segment) -> list[bytes]:
    """The entries of a history segment, one by one."""
    entries, _ = _split(segment)
    found = bytes(entries).split(JOIN) if entries else []
    if len(found) != segment.entries:
        raise StateInvalidError(
            f"a segment declares {segment.entries} entries and holds {len(found)}; the state cannot be used"
        )
    return found


def turn_records(segment: Segment) -> list[TurnRecord]:
    """The turns of a history segment."""
    _, columns = _split(segment)
    rows = _decoded(_TURN_COLUMNS, b"[" + columns + b"]", "the turn columns")
    records = [
        TurnRecord(
            at=row.at,
            messages=row.messages,
            iterations=tuple(_iteration(item) for item in row.iterations),
            facts=row.facts,
        )
        for row in rows
    ]
    if sum(record.entries for record in records) != segment.entries:
        raise StateInvalidError("the turn columns do not add up to the entries; the state cannot be used")
    return records


def _iteration(row: _IterationRow) -> Iteration:
    counts = (row.input, row.cached, row.cache_write, row.output, row.reasoning)
    usage = usage_of((*counts, 1)) if any(counts) else Usage()
    return Iteration(
        roles=row.roles, finish_reason=row.finish_reason, usage=usage, start=row.start, ms=row.ms
    )


def _history_segment(
    kind: Kind, entries: Iterable[bytes | memoryview], columns: bytes, count: int
) -> Segment:
    return blobs.segment(kind, JOIN.join(entries) + b"\n" + columns, count)


def with_turn(state: ConversationState, entries: Sequence[bytes], record: TurnRecord) -> ConversationState:
    """The state with one more closed turn at its end. Meta is the caller's to update."""
    if not entries:
        return state
    hot = state.hot
    column, count = record.column(), len(entries)
    if hot is None:
        return replace(state, hot=_history_segment(Kind.HOT, entries, column, count))
    if hot.raw_len >= SEAL_BYTES:
        sealed = (*state.sealed, blobs.segment(Kind.SEALED, hot.raw(), hot.entries))
        segment = _history_segment(Kind.HOT, entries, column, count)
        return replace(state, sealed=sealed, hot=segment)
    old, columns = _split(hot)
    segment = _history_segment(Kind.HOT, (old, *entries), b",".join((columns, column)), hot.entries + count)
    return replace(state, hot=segment)


def rebuild(
    state: ConversationState, turns: Sequence[tuple[Sequence[bytes], TurnRecord]]
) -> ConversationState:
    """The state with its closed history replaced by `turns`, packed into segments anew."""
    sealed: list[Segment] = []
    entries: list[bytes] = []
    columns: list[bytes] = []
    size = 0
    for turn_entries, record in turns:
        if size >= SEAL_BYTES:
            sealed.append(_history_segment(Kind.SEALED, entries, b",".join(columns), len(entries)))
            entries, columns, size = [], [], 0
        entries.extend(turn_entries)
        columns.append(record.column())
        size += sum(len(entry) + len(JOIN) for entry in turn_entries)
    hot = _history_segment(Kind.HOT, entries, b",".join(columns), len(entries)) if entries else None
    return replace(state, sealed=tuple(sealed), hot=hot)


# ------------------------------------------------------------------------------------- inbox and open


def _inbox_segment(inbox: Sequence[InboxItem]) -> Segment:
    columns = _json([[item.letter, item.topic, item.event] for item in inbox])[1:-1]
    return _history_segment(Kind.INBOX, [item.entry for item in inbox], columns, len(inbox))


_INBOX_COLUMNS = msgspec.json.Decoder(list[tuple[str, str, str]])


def _inbox_items(segment: Segment) -> tuple[InboxItem, ...]:
    _, columns = _split(segment)
    rows = _decoded(_INBOX_COLUMNS, b"[" + columns + b"]", "the inbox")
    entries = entries_of(segment)
    if len(rows) != len(entries):
        raise StateInvalidError("the inbox's columns do not match its entries; the state cannot be used")
    return tuple(
        InboxItem(entry=entry, letter=letter, topic=topic, event=event)
        for entry, (letter, topic, event) in zip(entries, rows, strict=True)
    )


class _CallRow(msgspec.Struct, omit_defaults=True):
    id: str
    name: str
    arguments: str = ""
    kind: str = "function"
    state: Literal["new", "started", "done"] = "new"
    flag: ResultFlag = "ok"
    parts: list[dict[str, Any]] = []
    started: float = 0.0
    seconds: float = 0.0


class _OpenRow(msgspec.Struct, omit_defaults=True):
    at: int
    iterations: list[_IterationRow] = []
    letters: str = ""
    messages: int = 0
    calls: list[_CallRow] = []
    partial: str = ""
    facts: dict[str, Any] = {}


_OPEN_ROW = msgspec.json.Decoder(_OpenRow)
_MEDIA: dict[str, type[Image | Document | Audio]] = {"image": Image, "document": Document, "audio": Audio}


def _part_row(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"text": part.text}
    kind = next(name for name, cls in _MEDIA.items() if isinstance(part, cls))
    row: dict[str, Any] = {"kind": kind, "media_type": part.media_type}
    if part.data is not None:
        row["data"] = part.base64()
    for name in ("url", "name", "detail"):
        if (value := getattr(part, name, None)) is not None:
            row[name] = value
    return row


def _part(row: Mapping[str, Any]) -> Part:
    if "text" in row:
        return Text(str(row["text"]))
    cls = _MEDIA[row["kind"]]
    values = {name: row[name] for name in ("url", "name", "detail") if name in row}
    data = base64.b64decode(row["data"], validate=True) if "data" in row else None
    return cls(media_type=str(row["media_type"]), data=data, **values)


def _open_segment(turn: OpenTurn) -> Segment:
    row = _OpenRow(
        at=turn.at,
        iterations=[iteration.row() for iteration in turn.iterations],
        letters=turn.letters,
        messages=turn.messages,
        calls=[
            _CallRow(
                id=call.id,
                name=call.name,
                arguments=call.arguments,
                kind=call.kind,
                state=call.state,
                flag=call.flag,
                parts=[_part_row(part) for part in call.parts],
                started=call.started,
                seconds=call.seconds,
            )
            for call in turn.calls
        ],
        partial=turn.partial,
        facts=dict(turn.facts),
    )
    return _history_segment(Kind.OPEN, turn.entries, _json(row), len(turn.entries))


def _journal_call(row: _CallRow) -> JournalCall:
    try:
        parts = tuple(_part(part) for part in row.parts)
    except (KeyError, TypeError, ValueError) as exc:
        raise StateInvalidError(
            "a tool result of the open turn cannot be read; the state cannot be used"
        ) from exc
    return JournalCall(
        id=row.id,
        name=row.name,
        arguments=row.arguments,
        kind=row.kind,
        state=row.state,
        flag=row.flag,
        parts=parts,
        started=row.started,
        seconds=row.seconds,
    )


def _open_turn(segment: Segment) -> OpenTurn:
    _, column = _split(segment)
    row = _decoded(_OPEN_ROW, column, "the open turn")
    calls = tuple(_journal_call(call) for call in row.calls)
    entries = entries_of(segment)
    if len(entries) != sum(len(item.roles) for item in row.iterations) + len(row.letters):
        raise StateInvalidError("the open turn's letters do not match its entries; the state cannot be used")
    return OpenTurn(
        at=row.at,
        entries=tuple(entries),
        iterations=tuple(_iteration(item) for item in row.iterations),
        letters=row.letters,
        messages=row.messages,
        calls=calls,
        partial=row.partial,
        facts=row.facts,
    )


# -------------------------------------------------------------------------------------- bytes <-> state


def soft_limits(codec: Codec) -> BlobLimits:
    """The limits that a codec was made with, else the defaults: what a turn may write."""
    return getattr(codec, "limits", None) or blobs.LIMITS


def hard_limits(codec: Codec) -> BlobLimits:
    """Twice the soft limits: what is paid for is written, and read again, all the same."""
    soft = soft_limits(codec)
    return BlobLimits(
        max_segments=soft.max_segments,
        max_meta_bytes=soft.max_meta_bytes,
        max_blob_bytes=2 * soft.max_blob_bytes,
        max_decoded_bytes=2 * soft.max_decoded_bytes,
        max_entries=2 * soft.max_entries,
    )


def dump_state(
    state: ConversationState,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    limits: BlobLimits | None = None,
) -> bytes:
    """Encode a state as a blob. Raises `StateTooLargeError` beyond `limits`."""
    meta = _encode(state.meta)
    if state.extras:
        rest = _encode(state.extras)
        meta = meta[:-1] + b"," + rest[1:]
    segments = [blobs.segment(Kind.META, meta, 0), *state.segments]
    if state.inbox:
        segments.append(_inbox_segment(state.inbox))
    if state.open is not None:
        segments.append(_open_segment(state.open))
    return blobs.encode(segments, codec=codec, binding=binding, limits=limits or soft_limits(codec))


def _read_meta(segment: Segment) -> tuple[Meta, Mapping[str, msgspec.Raw]]:
    raw = segment.raw()
    meta = _decoded(_META, raw, "the meta data")
    keys = _decoded(_RAW_OBJECT, raw, "the meta data")
    extras = {name: value for name, value in keys.items() if name not in _META_KEYS}
    return meta, extras


def load_meta(blob: bytes | bytearray | memoryview, *, codec: Codec = PLAIN, binding: Any = None) -> Meta:
    """The meta data of a blob, read without touching its history."""
    return _read_meta(blobs.decode(blob, codec=codec, binding=binding)[0])[0]


def load_state(
    blob: bytes | bytearray | memoryview,
    *,
    wire: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
    limits: BlobLimits | None = None,
) -> ConversationState:
    """Decode a blob, up to the hard limits unless others are given.

    With `wire`, a state of another wire raises `StateProviderError`.
    The closed history stays compressed until it is sent; the inbox and the open turn are read.
    """
    segments = blobs.decode(blob, codec=codec, binding=binding, limits=limits or hard_limits(codec))
    meta, extras = _read_meta(segments[0])
    if wire is not None and meta.wire != wire:
        raise StateProviderError(
            f"state was written by {meta.wire!r}, this chat uses {wire!r}; use a chat on {meta.wire!r}, "
            "or pass state=None to start afresh",
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
            inbox = _inbox_items(segment)
        else:
            opened = _open_turn(segment)
    return ConversationState(
        meta=meta, extras=extras, sealed=tuple(sealed), hot=hot, inbox=inbox, open=opened
    )
