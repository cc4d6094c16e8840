"""Write the content of a state into segments, and read it again strictly.

Owns: the lines of each kind of segment. Must never know: what an entry says, or how a segment is packed.

::

    meta            {meta data}
    sealed, hot     entry ,⏎ entry ,⏎ … entry ⏎ turn,turn,…       a turn is [at, messages, iterations, facts?]
    inbox           entry ,⏎ … entry ⏎ [letter, topic, event, more?],…    messages that no model has seen
    open            entry ,⏎ … entry ⏎ {journal}                   the unfinished turn

Large media in entries and in the journal are references; see `media`. The functions here give entries whole.

An iteration is [roles, finish reason, input, cached, cache write, output, reasoning tokens, start, ms,
more?]. `roles` has one letter for each entry: s, u, e (event), a, t. `at` counts milliseconds since the
conversation began, `start` milliseconds since the turn began, `ms` how long the model took. `more` is one
JSON object, to which later releases add names; it is left out while it is empty. An entry never holds a raw
newline.

A right digest does not say who wrote a blob. So the content is checked: the meta, the inbox and the open turn
when a state is loaded, the turn columns on their first use. Closed entries are never checked. Reading is
strict. Where the strict reader refuses a row, `later` reads it once more: it keeps the names of a later
release byte for byte, and raises `StateVersionError` for a value that this release cannot understand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from .. import rawjson
from ..errors import StateError, StateInvalidError
from ..messages import Audio, CallKind, Document, Image, Part, ResultFlag, Text, Usage
from ..rawjson import RawJSONError
from ..values import replace
from . import blob as blobs
from . import later
from .blob import Kind, Segment
from .bounds import MAX_COUNT, MAX_NAME, Amount, Count, Label, Name, bounded, bounded_row
from .closed_turns import FACTS, Iteration, TurnRecord
from .later import raw_facts, unreadable
from .letters import ASSISTANT, LETTERS, InboxLetter
from .media import MARK, Media, added_by, cut_out, put_back, references
from .records import CutRow, InboxItem, JournalCall, Meta, OpenTurn, usage_of
from .row_ends import NO_MORE, are_speakers

_T = TypeVar("_T")

__all__ = [
    "JOIN",
    "columns_of",
    "count_letters",
    "entries_of",
    "history_segment",
    "inbox_items",
    "inbox_segment",
    "meta_bytes",
    "meta_of",
    "meta_segment",
    "open_segment",
    "open_turn",
    "records_in",
    "spliceable",
    "stored_lines",
    "stored_segment",
    "turn_columns",
    "turn_records",
    "with_inlined",
    "with_media",
]

JOIN = b",\n"

_encode = msgspec.json.Encoder().encode


def _json(value: Any) -> bytes:
    """Write compact JSON. Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _without_surrogates(value)


def _without_surrogates(value: Any) -> bytes:
    """As `_json`, for a value with lone surrogates. Marks stand for raw members until the last step."""
    mark = os.urandom(16).hex()
    aside: list[bytes] = []

    def put_aside(raw: object) -> str:
        if not isinstance(raw, msgspec.Raw):
            raise TypeError(f"a state cannot hold {type(raw).__name__}")
        aside.append(bytes(raw))
        return f"{mark}-{len(aside) - 1}-"

    text = rawjson.dumps(msgspec.to_builtins(value, enc_hook=put_aside))
    for number, raw in enumerate(aside):
        text = text.replace(f'"{mark}-{number}-"'.encode(), raw)
    return text


_REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RawJSONError)


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes, refused: Callable[[bytes], StateError]) -> _T:
    """Decode with strict types. The error is raised outside the handler: the inner error holds the data."""
    with suppress(*_REFUSALS):
        # First check the depth, at most `MAX_DEPTH`: C reads deeper values than Python can write again.
        (rawjson.items if data[:1] == b"[" else rawjson.members)(data)
        return decoder.decode(data)
    raise refused(data)


def _lines(segment: Segment) -> tuple[memoryview, bytes]:
    """Give the entries as they are stored, and the last line."""
    raw = segment.raw()
    cut = raw.rfind(b"\n")
    if cut < 0:
        raise StateInvalidError("a history segment has no line of turn columns; the state cannot be used")
    return memoryview(raw)[:cut], raw[cut + 1 :]


def _split(segment: Segment) -> tuple[memoryview, bytes]:
    """Give the whole entries, and the last line."""
    entries, columns = _lines(segment)
    if segment.media or MARK in segment.raw():
        media = segment.media or {}
        return memoryview(put_back(bytes(entries), media)), put_back(columns, media)
    return entries, columns


# ----------------------------------------------------------------------------------------- meta data


_META = msgspec.json.Decoder(Meta)
_META_KEYS = frozenset(Meta.__struct_fields__)
_META_COUNTS = ("rev", "created", "updated", "messages", "turns", "processed", "tokens")
_counts_of = attrgetter(*_META_COUNTS)


def meta_segment(meta: Meta, extras: Mapping[str, msgspec.Raw]) -> Segment:
    """Write the meta data as a segment. `extras`: the keys of a later release, byte for byte."""
    raw = _json(_writable(meta))
    if extras:
        raw = later.with_members(raw, extras)
    return blobs.segment(Kind.META, raw, 0)


def meta_bytes(meta: Meta) -> int:
    """Count the bytes of the meta data as they are written, without the keys of a later release."""
    return len(_json(_writable(meta)))


def _writable(meta: Meta) -> Meta:
    """Bring the meta within the bounds of its fields. Beyond them a paid turn could not be read again."""
    changes: dict[str, Any] = {}
    counts: tuple[int, ...] = _counts_of(meta)
    if (possible := bounded_row(counts)) is not counts:
        changes.update(zip(_META_COUNTS, possible, strict=True))
    if len(meta.model) > MAX_NAME:
        changes["model"] = meta.model[:MAX_NAME]
    if meta.cuts:
        changes["cuts"] = _written_rows([_bounded_cut(cut) for cut in meta.cuts], _CUT)
    if meta.turn:
        changes["turn"] = _written_rows(meta.turn, _TURN_ID)
    if meta.ring:
        changes["ring"] = _written_rows(meta.ring, _RING)
    if meta.media:
        changes["media"] = _written_rows(meta.media, _TURN_ID)
    return msgspec.structs.replace(meta, **changes) if changes else meta


_CUT, _TURN_ID, _RING = itemgetter(0, 1, 2, 3), itemgetter(0, 1), itemgetter(0, 1, 2, 3)
_MORE = itemgetter(-1)


def _written_rows(
    rows: Sequence[tuple[Any, ...]], short: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Leave out the object at the end of a row where it is empty."""
    if not any(map(_MORE, rows)):  # the usual case; `map` runs in C, and a state may remember 64 ids
        return list(map(short, rows))
    return [row if row[-1] else short(row) for row in rows]


def _bounded_cut(cut: CutRow) -> CutRow:
    if min(cut.at, cut.turns, cut.messages) >= 0:
        return cut
    return cut._replace(at=bounded(cut.at), turns=bounded(cut.turns), messages=bounded(cut.messages))


def meta_of(segment: Segment) -> tuple[Meta, Mapping[str, msgspec.Raw]]:
    """Read the meta data, and the keys of a later release byte for byte."""
    raw = segment.raw()
    with suppress(*_REFUSALS):
        names = rawjson.names(raw)  # first, as in `_decoded`: it checks the depth
        meta = _META.decode(raw)
        if (
            _ends_well(meta.cuts)
            and _ends_well(meta.turn)
            and _ends_well(meta.ring)
            and (not meta.media or _ends_well(meta.media))
        ):
            return meta, {} if names <= _META_KEYS else _extras(raw)
    raise later.refused_meta(raw)


def _ends_well(rows: Sequence[tuple[Any, ...]]) -> bool:
    """Tell whether each row ends with its own elements, as almost always, or with one object behind them."""
    if not rows or not any(map(_MORE, rows)):
        return True
    return all(not row[-1] or later.is_object(row[-1]) for row in rows)


def _extras(raw: bytes) -> dict[str, msgspec.Raw]:
    members = rawjson.members(raw).items()
    return {name: msgspec.Raw(value) for name, value in members if name not in _META_KEYS}


# ------------------------------------------------------------------------------------ sealed and hot


_Letters: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^[{LETTERS}]*\Z")]


class _IterationRow(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    roles: _Letters
    finish_reason: str
    input: Count
    cached: Count
    cache_write: Count
    output: Count
    reasoning: Count
    start: Count
    ms: Count
    more: msgspec.Raw = NO_MORE


class _TurnRow(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    at: Count
    messages: Count
    iterations: list[_IterationRow]
    facts: dict[str, Any] = {}


class _RawTurnRow(msgspec.Struct, array_like=True, frozen=True):
    at: msgspec.Raw
    messages: msgspec.Raw
    iterations: msgspec.Raw
    facts: msgspec.Raw = NO_MORE


_TURN_COLUMNS = msgspec.json.Decoder(list[_TurnRow])
_RAW_TURN_COLUMNS = msgspec.json.Decoder(list[_RawTurnRow])


def _iteration_row(iteration: Iteration) -> list[Any]:
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
    row: list[Any] = [iteration.roles, iteration.finish_reason, *bounded_row(counts)]
    if iteration.more:
        row.append(msgspec.Raw(iteration.more))
    return row


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
    entries: Sequence[bytes],
    columns: bytes,
    *,
    behind: Sequence[Segment] = (),
    is_minor: bool = False,
) -> Segment:
    """Write entries, and the line that follows them, as a segment; see `blob.segment`.

    `behind`: history segments whose entries and last lines stand before these.
    """
    stored, media = cut_out(entries)
    if not behind:
        return stored_segment(kind, stored, columns, media, is_minor=is_minor)
    if len(behind) == 1 and media is None and behind[0].media is None:  # the usual case: no media
        own, line = _lines(behind[0])
        joined = [piece for entry in stored for piece in (JOIN, entry)]
        raw = b"".join((own, *joined, b"\n", line, b",", columns))
        return blobs.segment(kind, raw, behind[0].entries + len(entries), is_minor=is_minor)
    before = [_lines(segment) for segment in behind]
    count = sum([segment.entries for segment in behind]) + len(entries)
    columns = b",".join([*[own for _, own in before], *([columns] if columns else ())])
    for segment in behind:
        if segment.media:
            media = {**segment.media, **(media or {})}
    pieces: list[bytes | memoryview] = [*[own for own, _ in before], *stored]
    return stored_segment(kind, pieces, columns, media, count=count, is_minor=is_minor)


def stored_segment(
    kind: Kind,
    entries: Sequence[bytes | memoryview],
    columns: bytes,
    media: Media | None = None,
    *,
    count: int | None = None,
    is_minor: bool = False,
) -> Segment:
    """Write entries that are stored text already as a segment. `media`: those that the references name.

    `count`: how many entries they are, if the pieces are not single entries.
    """
    pieces = [piece for entry in entries for piece in (JOIN, entry)]
    raw = b"".join((*pieces[1:], b"\n", columns))
    found = blobs.segment(kind, raw, len(entries) if count is None else count, is_minor=is_minor)
    return with_media(found, media) if media else found


def with_media(segment: Segment, media: Media) -> Segment:
    """Give a segment those of the media that it names.

    Raises `StateInvalidError` if it names others, or has FF bytes that are no references.
    """
    names = references(segment.raw())
    if not names:
        return segment
    added = added_by(names, media)
    return replace(segment, media={name: media[name] for name in dict.fromkeys(names)}, added=added)


def with_inlined(segment: Segment, names: Collection[bytes]) -> Segment:
    """Give a segment with these media in its entries, instead of references to them."""
    media = segment.media or {}
    raw = put_back(segment.raw(), media, names)
    found = blobs.segment(Kind(segment.kind), raw, segment.entries)
    return with_media(found, media) if MARK in raw else found


def stored_lines(segment: Segment) -> tuple[list[bytes], bytes]:
    """Give the entries of a segment one by one as they are stored, with references, and its last line."""
    entries, columns = _lines(segment)
    return _separate(segment, entries), columns


def turn_columns(records: Iterable[TurnRecord]) -> bytes:
    """Write turns as the last line of a history segment. Join two such lines with a comma."""
    return b",".join(_turn_column(record) for record in records)


def spliceable(segment: Segment) -> memoryview:
    """Give the entries as they stand, joined by ``,\\n``: a piece of a request body."""
    return _split(segment)[0]


def columns_of(segment: Segment) -> bytes:
    """Give the last line of a segment."""
    return _split(segment)[1]


def entries_of(segment: Segment) -> list[bytes]:
    """Give the entries of a history segment, one by one."""
    return _separate(segment, _split(segment)[0])


def _separate(segment: Segment, entries: memoryview) -> list[bytes]:
    found = bytes(entries).split(JOIN) if entries else []
    if len(found) != segment.entries:
        raise StateInvalidError(
            f"a segment declares {segment.entries} entries and holds {len(found)}; the state cannot be used"
        )
    return found


def turn_records(segment: Segment) -> list[TurnRecord]:
    """Read the turns of a history segment."""
    records = records_in(columns_of(segment))
    if sum(record.entries for record in records) != segment.entries:
        raise StateInvalidError("the turn columns do not add up to the entries; the state cannot be used")
    return records


def count_letters(segment: Segment) -> Counter[str]:
    """Count the role letters of a history segment. It costs a part of what `turn_records` does."""
    data = b"[" + _lines(segment)[1] + b"]"  # no media stand in this line, and they may be elsewhere
    found: Counter[str] = Counter()
    for row in _decoded(_TURN_COLUMNS, data, _refused_turns):
        for item in row.iterations:
            found.update(item.roles)
    return found


def records_in(columns: bytes) -> list[TurnRecord]:
    """Read a line of turn columns; see `turn_columns`."""
    data = b"[" + columns + b"]"
    rows = _decoded(_TURN_COLUMNS, data, _refused_turns)
    if not all(_are_known(row.iterations) for row in rows):
        raise _refused_turns(data)
    records = [
        TurnRecord(
            at=row.at,
            messages=row.messages,
            iterations=tuple(_iteration(item) for item in row.iterations),
            facts=_facts(row.facts),
        )
        for row in rows
    ]
    if not all(row.facts.keys() <= FACTS for row in rows):
        raws = [bytes(row.facts) for row in _RAW_TURN_COLUMNS.decode(data)]
        records = [
            record if record.facts.keys() <= FACTS else replace(record, facts=raw_facts(record.facts, raw))
            for record, raw in zip(records, raws, strict=True)
        ]
    return records


def _refused_turns(data: bytes) -> StateError:
    return later.refused_rows(data, "the turn columns")


def _are_known(rows: Sequence[_IterationRow]) -> bool:
    """Tell whether each row ends with its own elements, or with one object behind them."""
    return all(not row.more or later.is_object(row.more) for row in rows)


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Give the facts, if those that this release uses have the types that it writes."""
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
        raise unreadable("the turn facts")
    return facts


def _iteration(row: _IterationRow) -> Iteration:
    counts = (row.input, row.cached, row.cache_write, row.output, row.reasoning)
    usage = usage_of((*counts, 1)) if any(counts) else Usage()
    return Iteration(
        roles=row.roles,
        finish_reason=row.finish_reason,
        usage=usage,
        start=row.start,
        ms=row.ms,
        more=bytes(row.more),
    )


# --------------------------------------------------------------------------------------------- inbox


class _InboxRow(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    letter: InboxLetter
    topic: Name
    event: Label
    more: msgspec.Raw = NO_MORE


_INBOX_COLUMNS = msgspec.json.Decoder(list[_InboxRow])


def _objects(entries: list[bytes]) -> list[bytes]:
    """Give the entries, if each is a JSON object: the next request contains them."""
    with suppress(RawJSONError):
        for entry in entries:
            rawjson.members(entry)
        return entries
    raise unreadable("a recent entry")


def inbox_segment(inbox: Sequence[InboxItem]) -> Segment:
    """Write the inbox as a segment. A topic is cut to `MAX_NAME` characters: a longer one cannot be read."""
    rows = [
        [item.letter, item.topic[:MAX_NAME], item.event, *([msgspec.Raw(item.more)] if item.more else ())]
        for item in inbox
    ]
    columns = _json(rows)[1:-1]
    return history_segment(Kind.INBOX, [item.entry for item in inbox], columns)


def inbox_items(segment: Segment) -> tuple[InboxItem, ...]:
    """Read the waiting messages. Each is a JSON object with the letter of a role that a caller may give."""
    _, columns = _split(segment)
    data = b"[" + columns + b"]"
    rows = _decoded(_INBOX_COLUMNS, data, _refused_inbox)
    if not all(not row.more or later.is_object(row.more) for row in rows):
        raise _refused_inbox(data)
    entries = _objects(entries_of(segment))
    if len(rows) != len(entries):
        raise StateInvalidError("the inbox's columns do not match its entries; the state cannot be used")
    return tuple(
        InboxItem(entry=entry, letter=row.letter, topic=row.topic, event=row.event, more=bytes(row.more))
        for entry, row in zip(entries, rows, strict=True)
    )


def _refused_inbox(data: bytes) -> StateError:
    return later.refused_rows(data, "the inbox", is_inbox=True)


# ----------------------------------------------------------------------------------------- open turn


class _PartRow(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A part: its text, or the kind and the members of a medium. JSON holds `data` as base64."""

    text: str | None = None
    kind: Literal["image", "document", "audio"] | None = None
    media_type: str = ""
    data: bytes | None = None
    url: str | None = None
    name: str | None = None
    detail: str | None = None


class _CallRow(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
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


class _OpenRow(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    at: Count
    iterations: list[_IterationRow] = []
    letters: _Letters = ""
    messages: Count = 0
    calls: list[_CallRow] = []
    partial: str = ""
    facts: dict[str, Any] = {}


_OPEN_ROW = msgspec.json.Decoder(_OpenRow)
_CALL_ROW = msgspec.json.Decoder(_CallRow)
_PART_ROWS = msgspec.json.Decoder(list[_PartRow])
_OPEN_KEYS = frozenset(_OpenRow.__struct_fields__)
_CALL_KEYS = frozenset(_CallRow.__struct_fields__)
_PART_KEYS = frozenset(_PartRow.__struct_fields__)


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
    raise unreadable("a tool result")


def open_segment(turn: OpenTurn) -> Segment:
    """Write the unfinished turn as a segment."""
    iterations: list[Any] = [_iteration_row(item) for item in turn.iterations]
    calls: list[Any] = [_call_row(call) for call in turn.calls]
    row = _OpenRow(
        at=bounded(turn.at),
        iterations=iterations,
        letters=turn.letters,
        messages=bounded(turn.messages),
        calls=calls,
        partial=turn.partial,
        facts=dict(turn.facts),
    )
    column = later.with_members(_json(row), turn.extras)
    (*entries, column), media = cut_out([*turn.entries, column])
    return stored_segment(Kind.OPEN, entries, column, media)


def _call_row(call: JournalCall) -> _CallRow | msgspec.Raw:
    row = _CallRow(
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
    if not call.extras:
        return row
    extras = dict(call.extras)
    parts = extras.pop("parts", None)
    raw = _json(row)
    if parts is not None and _parts_of(bytes(parts)) == call.parts:
        raw = rawjson.replaced(raw, {"parts": bytes(parts)})
    return msgspec.Raw(later.with_members(raw, extras))


def _journal_call(row: _CallRow, extras: Mapping[str, msgspec.Raw]) -> JournalCall:
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
        extras=extras,
    )


def open_turn(segment: Segment) -> OpenTurn:
    """Read the unfinished turn. Calls are open only directly after the reply that made them."""
    _, column = _split(segment)
    row, extras, calls = _open_row(column)
    entries = _objects(entries_of(segment))
    if len(entries) != sum(len(item.roles) for item in row.iterations) + len(row.letters):
        raise StateInvalidError("the open turn's letters do not match its entries; the state cannot be used")
    if row.calls:
        ends_with_reply = (
            not row.letters and bool(row.iterations) and row.iterations[-1].roles.endswith(ASSISTANT)
        )
        if not ends_with_reply or len({call.id for call in row.calls}) != len(row.calls):
            raise StateInvalidError("the open turn's calls belong to no reply; the state cannot be used")
    return OpenTurn(
        at=row.at,
        entries=tuple(entries),
        iterations=tuple(map(_iteration, row.iterations)),
        letters=row.letters,
        messages=row.messages,
        calls=tuple(map(_journal_call, row.calls, calls)),
        partial=row.partial,
        facts=_open_facts(row, column),
        extras=extras,
    )


_Extras: TypeAlias = Mapping[str, msgspec.Raw]


def _open_row(column: bytes) -> tuple[_OpenRow, _Extras, Sequence[_Extras]]:
    """Read the open turn's row, and the names that a later release added to it and to each of its calls."""
    with suppress(*_REFUSALS):
        rawjson.names(column)  # first, as in `_decoded`: it checks the depth
        row = _OPEN_ROW.decode(column)
        if _are_known(row.iterations):
            return row, {}, [{}] * len(row.calls)
    with suppress(*_REFUSALS):
        known, extras = later.split_object(column, _OPEN_KEYS)
        members = rawjson.members(known)
        calls = [_split_call(call) for call in rawjson.items(members.get("calls", b"[]"))]
        if calls:
            members["calls"] = b"[" + b",".join(call for call, _ in calls) + b"]"
        row = _OPEN_ROW.decode(_encode({name: msgspec.Raw(value) for name, value in members.items()}))
        if _are_known(row.iterations):
            return row, extras, [extra for _, extra in calls]
    raise later.refused_open(column)


def _split_call(data: bytes) -> tuple[bytes, _Extras]:
    """Split one call's row: the row with the names that are known, and the names that a later release added.

    A `Part` has no field for such names. So where a part has some, all parts of the call are also kept as
    they are written, for as long as the call has these parts.
    """
    known, extras = later.split_object(data, _CALL_KEYS)
    parts = rawjson.members(known).get("parts")
    if parts is None or (short := _short_parts(parts)) is None:
        return known, extras
    extras["parts"] = msgspec.Raw(parts)
    return rawjson.replaced(known, {"parts": short}), extras


def _short_parts(parts: bytes) -> bytes | None:
    """Give the parts with only the names that are known; None if they have no other names."""
    split = [later.split_object(part, _PART_KEYS) for part in rawjson.items(parts)]
    if not any(others for _, others in split):
        return None
    return b"[" + b",".join(known for known, _ in split) + b"]"


def _parts_of(parts: bytes) -> tuple[Part, ...]:
    return tuple(map(_part, _PART_ROWS.decode(_short_parts(parts) or parts)))


def _open_facts(row: _OpenRow, column: bytes) -> dict[str, Any]:
    facts = _facts(row.facts)
    if not are_speakers(facts.get("who", [])):
        raise unreadable("the turn facts")
    return facts if facts.keys() <= FACTS else raw_facts(facts, rawjson.members(column)["facts"])
