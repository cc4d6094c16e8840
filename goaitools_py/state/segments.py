"""How the parts of a state are written into segments, and read again strictly.

Owns: the lines of each kind of segment. Must never know: what an entry says, or how a segment is packed.

::

    meta            {meta data}
    sealed, hot     entry ,⏎ entry ,⏎ … entry ⏎ turn,turn,…       a turn is [at, messages, iterations, facts?]
    inbox           entry ,⏎ … entry ⏎ [letter, topic],…           what no model has seen
    open            entry ,⏎ … entry ⏎ {journal}                   the unfinished turn

An iteration is [roles, finish reason, input, cached, cache write, output, reasoning tokens, start, ms];
`roles` has one letter for each entry: s, u, e (event), a, t. `at` is in milliseconds since the conversation
began, `start` since the turn did, `ms` is how long the model took. An entry never holds a raw newline.

A right digest says nothing about who wrote a blob, so what is read is checked: the meta, the inbox and the
open turn when a state is loaded, the turn columns when somebody reads them, the closed entries never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from .. import rawjson
from ..errors import StateInvalidError
from ..messages import Audio, CallKind, Document, Image, Part, ResultFlag, Text, Usage
from ..rawjson import RawJSONError
from . import blob as blobs
from .blob import Kind, Segment
from .records import (
    MAX_COUNT,
    MAX_NAME,
    Amount,
    Count,
    InboxItem,
    Iteration,
    JournalCall,
    Label,
    Meta,
    Name,
    OpenTurn,
    TurnRecord,
    bounded,
    bounded_row,
    usage_of,
)

_T = TypeVar("_T")

__all__ = [
    "JOIN",
    "columns_of",
    "entries_of",
    "history_segment",
    "inbox_items",
    "inbox_segment",
    "meta_bytes",
    "meta_of",
    "meta_segment",
    "open_segment",
    "open_turn",
    "spliceable",
    "turn_columns",
    "turn_records",
]

JOIN = b",\n"

_encode = msgspec.json.Encoder().encode


def _json(value: Any) -> bytes:
    """Compact JSON; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return rawjson.dumps(msgspec.to_builtins(value))


_REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RawJSONError)


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes, what: str) -> _T:
    """The value, strictly typed. Raises outside the handler: the inner error would hold the data."""
    with suppress(*_REFUSALS):
        # First of all no deeper than `MAX_DEPTH`: what was read deep in C could not be written again.
        (rawjson.items if data[:1] == b"[" else rawjson.members)(data)
        return decoder.decode(data)
    raise _unreadable(what)


def _unreadable(what: str) -> StateInvalidError:
    return StateInvalidError(f"{what} of the state cannot be read; the state cannot be used")


def _split(segment: Segment) -> tuple[memoryview, bytes]:
    raw = segment.raw()
    cut = raw.rfind(b"\n")
    if cut < 0:
        raise StateInvalidError("a history segment has no line of turn columns; the state cannot be used")
    return memoryview(raw)[:cut], raw[cut + 1 :]


# ----------------------------------------------------------------------------------------- meta data


_META = msgspec.json.Decoder(Meta)
_META_KEYS = frozenset(Meta.__struct_fields__)
_META_COUNTS = ("rev", "created", "updated", "messages", "turns", "processed", "tokens")
_counts_of = attrgetter(*_META_COUNTS)


def meta_segment(meta: Meta, extras: Mapping[str, msgspec.Raw]) -> Segment:
    """The meta data as a segment; `extras` are keys of a later release, kept as they are."""
    raw = _json(_writable(meta))
    if extras:
        raw = raw[:-1] + b"," + _encode(extras)[1:]
    return blobs.segment(Kind.META, raw, 0)


def meta_bytes(meta: Meta) -> int:
    """The size of the meta data as they are written, the keys of a later release left aside."""
    return len(_json(_writable(meta)))


def _writable(meta: Meta) -> Meta:
    """The meta within the bounds of its fields: what is paid for is never written unreadably."""
    changes: dict[str, Any] = {}
    counts: tuple[int, ...] = _counts_of(meta)
    if (possible := bounded_row(counts)) is not counts:
        changes.update(zip(_META_COUNTS, possible, strict=True))
    if len(meta.model) > MAX_NAME:
        changes["model"] = meta.model[:MAX_NAME]
    if meta.cuts and any(min(at, turns, messages) < 0 for at, _, turns, messages in meta.cuts):
        changes["cuts"] = tuple((bounded(at), by, bounded(t), bounded(m)) for at, by, t, m in meta.cuts)
    return msgspec.structs.replace(meta, **changes) if changes else meta


def meta_of(segment: Segment) -> tuple[Meta, Mapping[str, msgspec.Raw]]:
    """The meta data, and the keys of a later release byte for byte."""
    raw = segment.raw()
    with suppress(*_REFUSALS):
        names = rawjson.names(raw)  # first, as in `_decoded`: it bounds the depth
        return _META.decode(raw), {} if names <= _META_KEYS else _extras(raw)
    raise _unreadable("the meta data")


def _extras(raw: bytes) -> dict[str, msgspec.Raw]:
    members = rawjson.members(raw).items()
    return {name: msgspec.Raw(value) for name, value in members if name not in _META_KEYS}


# ------------------------------------------------------------------------------------ sealed and hot


_Letters: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[sueat]*\Z")]


class _IterationRow(msgspec.Struct, array_like=True, frozen=True):
    roles: _Letters
    finish_reason: str
    input: Count
    cached: Count
    cache_write: Count
    output: Count
    reasoning: Count
    start: Count
    ms: Count


class _TurnRow(msgspec.Struct, array_like=True, frozen=True):
    at: Count
    messages: Count
    iterations: list[_IterationRow]
    facts: dict[str, Any] = {}


_TURN_COLUMNS = msgspec.json.Decoder(list[_TurnRow])


def _iteration_row(iteration: Iteration) -> _IterationRow:
    u = iteration.usage
    counts = (
        u.input_tokens,
        u.cached_input_tokens,
        u.cache_write_tokens,
        u.output_tokens,
        u.reasoning_tokens,
        iteration.start,
        iteration.ms,
    )
    return _IterationRow(iteration.roles, iteration.finish_reason, *bounded_row(counts))


def _turn_column(record: TurnRecord) -> bytes:
    row: list[Any] = [
        bounded(record.at),
        bounded(record.messages),
        [_iteration_row(item) for item in record.iterations],
    ]
    if record.facts:
        row.append(record.facts)
    return _json(row)


def history_segment(
    kind: Kind,
    entries: Iterable[bytes | memoryview],
    columns: bytes,
    count: int,
    *,
    is_minor: bool = False,
) -> Segment:
    """Entries and the line that follows them as a segment of `count` entries; see `blob.segment`."""
    pieces = [piece for entry in entries for piece in (JOIN, entry)]
    return blobs.segment(kind, b"".join((*pieces[1:], b"\n", columns)), count, is_minor=is_minor)


def turn_columns(records: Iterable[TurnRecord]) -> bytes:
    """Turns as the last line of a history segment; two such lines join with a comma."""
    return b",".join(_turn_column(record) for record in records)


def spliceable(segment: Segment) -> memoryview:
    """The entries as they stand, joined by ``,\\n``: a piece of a request body."""
    return _split(segment)[0]


def columns_of(segment: Segment) -> bytes:
    """The last line of a segment."""
    return _split(segment)[1]


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
            facts=_facts(row.facts),
        )
        for row in rows
    ]
    if sum(record.entries for record in records) != segment.entries:
        raise StateInvalidError("the turn columns do not add up to the entries; the state cannot be used")
    return records


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts, if those that this release reads again are what it wrote."""
    flags = facts.get("flags", {})
    flags_are_text = isinstance(flags, dict) and all(isinstance(flag, str) for flag in flags.values())
    ids = facts.get("turn_ids", [])
    ids_are_text = isinstance(ids, list) and all(isinstance(digest, str) for digest in ids)
    started = facts.get("calls_started", 0)
    started_is_count = type(started) is int and 0 <= started <= MAX_COUNT
    partial_is_text = isinstance(facts.get("interrupted", ""), str)
    metadata = facts.get("metadata", {})
    metadata_is_text = isinstance(metadata, dict) and all(isinstance(one, str) for one in metadata.values())
    failed = facts.get("failed", [])
    failed_is_text = isinstance(failed, list) and len(failed) <= 2 and all(isinstance(x, str) for x in failed)
    if not (
        flags_are_text
        and ids_are_text
        and started_is_count
        and partial_is_text
        and metadata_is_text
        and failed_is_text
    ):
        raise _unreadable("the turn facts")
    return facts


def _iteration(row: _IterationRow) -> Iteration:
    counts = (row.input, row.cached, row.cache_write, row.output, row.reasoning)
    usage = usage_of((*counts, 1)) if any(counts) else Usage()
    return Iteration(
        roles=row.roles, finish_reason=row.finish_reason, usage=usage, start=row.start, ms=row.ms
    )


# --------------------------------------------------------------------------------------------- inbox


_INBOX_COLUMNS = msgspec.json.Decoder(list[tuple[Literal["s", "u", "e", "a"], Name, Label]])


def _objects(entries: list[bytes]) -> list[bytes]:
    """The entries, if each is a JSON object: the next request says what they say."""
    with suppress(RawJSONError):
        for entry in entries:
            rawjson.members(entry)
        return entries
    raise _unreadable("a recent entry")


def inbox_segment(inbox: Sequence[InboxItem]) -> Segment:
    """The inbox as a segment. A topic is cut to what can be read again."""
    columns = _json([[item.letter, item.topic[:MAX_NAME], item.event] for item in inbox])[1:-1]
    return history_segment(Kind.INBOX, [item.entry for item in inbox], columns, len(inbox))


def inbox_items(segment: Segment) -> tuple[InboxItem, ...]:
    """The waiting messages, each a JSON object with the letter of a role that a caller may give."""
    _, columns = _split(segment)
    rows = _decoded(_INBOX_COLUMNS, b"[" + columns + b"]", "the inbox")
    entries = _objects(entries_of(segment))
    if len(rows) != len(entries):
        raise StateInvalidError("the inbox's columns do not match its entries; the state cannot be used")
    return tuple(
        InboxItem(entry=entry, letter=letter, topic=topic, event=event)
        for entry, (letter, topic, event) in zip(entries, rows, strict=True)
    )


# ----------------------------------------------------------------------------------------- open turn


class _PartRow(msgspec.Struct, omit_defaults=True):
    """A part: either its text, or a medium's kind and what it has. `data` is base64 on the way."""

    text: str | None = None
    kind: Literal["image", "document", "audio"] | None = None
    media_type: str = ""
    data: bytes | None = None
    url: str | None = None
    name: str | None = None
    detail: str | None = None


class _CallRow(msgspec.Struct, omit_defaults=True):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    name: str
    arguments: str = ""
    kind: CallKind = "function"
    state: Literal["new", "waiting", "started", "done"] = "new"
    reason: Literal["", "approval", "external"] = ""
    flag: ResultFlag = "ok"
    parts: list[_PartRow] = []
    started: Amount = 0.0
    seconds: Amount = 0.0


class _OpenRow(msgspec.Struct, omit_defaults=True):
    at: Count
    iterations: list[_IterationRow] = []
    letters: _Letters = ""
    messages: Count = 0
    calls: list[_CallRow] = []
    partial: str = ""
    facts: dict[str, Any] = {}


_OPEN_ROW = msgspec.json.Decoder(_OpenRow)


def _part_row(part: Part) -> _PartRow:
    match part:
        case Text():
            return _PartRow(text=part.text)
        case Image():
            row = _PartRow(kind="image", detail=part.detail)
        case Document():
            row = _PartRow(kind="document")
        case Audio():
            row = _PartRow(kind="audio")
    row.media_type, row.data, row.url, row.name = part.media_type, part.data, part.url, part.name
    return row


def _part(row: _PartRow) -> Part:
    if row.text is not None:
        return Text(row.text)
    media: dict[str, Any] = {
        "media_type": row.media_type,
        "data": row.data,
        "url": row.url,
        "name": row.name,
    }
    match row.kind:
        case "image":
            return Image(**media, detail=row.detail)
        case "document":
            return Document(**media)
        case "audio":
            return Audio(**media)
    raise _unreadable("a tool result")


def open_segment(turn: OpenTurn) -> Segment:
    """The unfinished turn as a segment."""
    row = _OpenRow(
        at=bounded(turn.at),
        iterations=[_iteration_row(item) for item in turn.iterations],
        letters=turn.letters,
        messages=bounded(turn.messages),
        calls=[
            _CallRow(
                id=call.id,
                name=call.name,
                arguments=call.arguments,
                kind=call.kind,
                state=call.state,
                reason=call.reason,
                flag=call.flag,
                parts=[_part_row(part) for part in call.parts],
                started=max(0.0, call.started),
                seconds=max(0.0, call.seconds),
            )
            for call in turn.calls
        ],
        partial=turn.partial,
        facts=dict(turn.facts),
    )
    return history_segment(Kind.OPEN, turn.entries, _json(row), len(turn.entries))


def _journal_call(row: _CallRow) -> JournalCall:
    return JournalCall(
        id=row.id,
        name=row.name,
        arguments=row.arguments,
        kind=row.kind,
        state=row.state,
        reason=row.reason,
        flag=row.flag,
        parts=tuple(map(_part, row.parts)),
        started=row.started,
        seconds=row.seconds,
    )


def open_turn(segment: Segment) -> OpenTurn:
    """The unfinished turn. Calls are open only directly after the reply that made them."""
    _, column = _split(segment)
    row = _decoded(_OPEN_ROW, column, "the open turn")
    entries = _objects(entries_of(segment))
    if len(entries) != sum(len(item.roles) for item in row.iterations) + len(row.letters):
        raise StateInvalidError("the open turn's letters do not match its entries; the state cannot be used")
    if row.calls:
        ends_with_reply = not row.letters and bool(row.iterations) and row.iterations[-1].roles.endswith("a")
        if not ends_with_reply or len({call.id for call in row.calls}) != len(row.calls):
            raise StateInvalidError("the open turn's calls belong to no reply; the state cannot be used")
    return OpenTurn(
        at=row.at,
        entries=tuple(entries),
        iterations=tuple(map(_iteration, row.iterations)),
        letters=row.letters,
        messages=row.messages,
        calls=tuple(map(_journal_call, row.calls)),
        partial=row.partial,
        facts=_facts(row.facts),
    )
