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
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec

from . import blob as blobs
from . import rawjson
from .blob import Kind, Segment
from .errors import StateInvalidError
from .messages import Audio, Document, Image, Part, ResultFlag, Text, Usage
from .records import InboxItem, Iteration, JournalCall, Meta, OpenTurn, TurnRecord, usage_of

_T = TypeVar("_T")

__all__ = [
    "JOIN",
    "columns_of",
    "entries_of",
    "history_segment",
    "inbox_items",
    "inbox_segment",
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


# ----------------------------------------------------------------------------------------- meta data


_META = msgspec.json.Decoder(Meta)
_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_META_KEYS = frozenset(Meta.__struct_fields__)


def meta_segment(meta: Meta, extras: Mapping[str, msgspec.Raw]) -> Segment:
    """The meta data as a segment; `extras` are keys of a later release, kept as they are."""
    raw = _encode(meta)
    if extras:
        raw = raw[:-1] + b"," + _encode(extras)[1:]
    return blobs.segment(Kind.META, raw, 0)


def meta_of(segment: Segment) -> tuple[Meta, Mapping[str, msgspec.Raw]]:
    raw = segment.raw()
    meta = _decoded(_META, raw, "the meta data")
    keys = _decoded(_RAW_OBJECT, raw, "the meta data")
    extras = {name: value for name, value in keys.items() if name not in _META_KEYS}
    return meta, extras


# ------------------------------------------------------------------------------------ sealed and hot


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


def _iteration_row(iteration: Iteration) -> _IterationRow:
    u = iteration.usage
    return _IterationRow(
        iteration.roles,
        iteration.finish_reason,
        u.input_tokens,
        u.cached_input_tokens,
        u.cache_write_tokens,
        u.output_tokens,
        u.reasoning_tokens,
        iteration.start,
        iteration.ms,
    )


def _turn_column(record: TurnRecord) -> bytes:
    row: list[Any] = [record.at, record.messages, [_iteration_row(item) for item in record.iterations]]
    if record.facts:
        row.append(record.facts)
    return _json(row)


def history_segment(kind: Kind, entries: Iterable[bytes | memoryview], columns: bytes, count: int) -> Segment:
    """Entries and the line that follows them as a segment of `count` entries."""
    return blobs.segment(kind, JOIN.join(entries) + b"\n" + columns, count)


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


# --------------------------------------------------------------------------------------------- inbox


_INBOX_COLUMNS = msgspec.json.Decoder(list[tuple[str, str, str]])


def inbox_segment(inbox: Sequence[InboxItem]) -> Segment:
    columns = _json([[item.letter, item.topic, item.event] for item in inbox])[1:-1]
    return history_segment(Kind.INBOX, [item.entry for item in inbox], columns, len(inbox))


def inbox_items(segment: Segment) -> tuple[InboxItem, ...]:
    _, columns = _split(segment)
    rows = _decoded(_INBOX_COLUMNS, b"[" + columns + b"]", "the inbox")
    entries = entries_of(segment)
    if len(rows) != len(entries):
        raise StateInvalidError("the inbox's columns do not match its entries; the state cannot be used")
    return tuple(
        InboxItem(entry=entry, letter=letter, topic=topic, event=event)
        for entry, (letter, topic, event) in zip(entries, rows, strict=True)
    )


# ----------------------------------------------------------------------------------------- open turn


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


def open_segment(turn: OpenTurn) -> Segment:
    row = _OpenRow(
        at=turn.at,
        iterations=[_iteration_row(item) for item in turn.iterations],
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
    return history_segment(Kind.OPEN, turn.entries, _json(row), len(turn.entries))


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


def open_turn(segment: Segment) -> OpenTurn:
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
