"""Write the unfinished turn and the messages that no model has seen as segments, and read them again.

Owns: the journal (the iterations so far, the calls with their states and results, and the names that a later
release added to them), and the row of a waiting message: ``[letter, topic, event, more?]``. Must never know:
the next step of a turn, or when a message joins one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from ..base import rawjson
from ..types.errors import StateError, StateInvalidError
from ..types.messages import Audio, CallKind, Document, Image, Part, ResultFlag, Text
from . import forward_compat
from .blob import Kind, Segment
from .closed_turns import FACTS
from .forward_compat import raw_facts, unreadable
from .letters import ASSISTANT, InboxLetter
from .media import cut_out
from .records import MAX_OPEN_CALLS, InboxItem, JournalCall, OpenTurn
from .row_codec import (
    MAX_NAME,
    NO_MORE,
    REFUSALS,
    Amount,
    Count,
    Label,
    Name,
    are_pins,
    are_speakers,
    as_json,
    bounded,
    decoded,
    decoder_of,
)
from .segments import columns_of, history_segment, object_entries, stored_segment
from .turn_rows import IterationRow, RoleLetters, are_known, checked_facts, iteration_of, row_of

__all__ = ["inbox_items", "inbox_segment", "open_segment", "open_turn"]

_Extras: TypeAlias = Mapping[str, msgspec.Raw]


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
    iterations: list[IterationRow] = []
    letters: RoleLetters = ""
    messages: Count = 0
    calls: list[_CallRow] = []
    partial: str = ""
    facts: dict[str, Any] = {}


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
    iterations: list[Any] = [row_of(item) for item in turn.iterations]
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
    column = forward_compat.with_members(as_json(row), turn.extras)
    # The journal, too: the results of its calls may hold large media.
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
    raw = as_json(row)
    # The kept bytes are valid only while they equal the parts: the call may have another result now.
    if parts is not None and _parts_of(bytes(parts)) == call.parts:
        raw = rawjson.replaced(raw, {"parts": bytes(parts)})
    return msgspec.Raw(forward_compat.with_members(raw, extras))


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
    column = columns_of(segment)
    row, extras, calls = _open_row(column)
    if len(row.calls) > MAX_OPEN_CALLS:
        found = f"{len(row.calls)} calls, expected at most {MAX_OPEN_CALLS}"
        raise StateInvalidError(f"the open turn has {found}; the state cannot be used")
    entries = object_entries(segment)
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
        iterations=tuple(map(iteration_of, row.iterations)),
        letters=row.letters,
        messages=row.messages,
        calls=tuple(map(_journal_call, row.calls, calls)),
        partial=row.partial,
        facts=_open_facts(row, column),
        extras=extras,
    )


def _open_row(column: bytes) -> tuple[_OpenRow, _Extras, Sequence[_Extras]]:
    """Read the open turn's row, and the names that a later release added to it and to each of its calls."""
    with suppress(*REFUSALS):
        rawjson.names(column)  # first, as in `decoded`: it checks the depth
        row: _OpenRow = decoder_of(_OpenRow).decode(column)
        if are_known(row.iterations):
            return row, {}, [{}] * len(row.calls)
    with suppress(*REFUSALS):
        known, extras = forward_compat.split_object(column, _OPEN_KEYS)
        members = rawjson.members(known)
        calls = [_split_call(call) for call in rawjson.items(members.get("calls", b"[]"))]
        if calls:
            members["calls"] = b"[" + b",".join(call for call, _ in calls) + b"]"
        row = decoder_of(_OpenRow).decode(
            as_json({name: msgspec.Raw(value) for name, value in members.items()})
        )
        if are_known(row.iterations):
            return row, extras, [extra for _, extra in calls]
    raise forward_compat.refused_open(column)


def _split_call(data: bytes) -> tuple[bytes, _Extras]:
    """Split one call's row: the row with the names that are known, and the names that a later release added.

    A `Part` has no field for the names of a later release. So if a part has one, all parts of the call are
    also kept as they are written, for as long as the call has these parts.
    """
    known, extras = forward_compat.split_object(data, _CALL_KEYS)
    parts = rawjson.members(known).get("parts")
    if parts is None or (short := _short_parts(parts)) is None:
        return known, extras
    extras["parts"] = msgspec.Raw(parts)
    return rawjson.replaced(known, {"parts": short}), extras


def _short_parts(parts: bytes) -> bytes | None:
    """Give the parts with only the names that are known; None if they have no other names."""
    split = [forward_compat.split_object(part, _PART_KEYS) for part in rawjson.items(parts)]
    if not any(others for _, others in split):
        return None
    return b"[" + b",".join(known for known, _ in split) + b"]"


def _parts_of(parts: bytes) -> tuple[Part, ...]:
    return tuple(map(_part, decoder_of(list[_PartRow]).decode(_short_parts(parts) or parts)))


def _open_facts(row: _OpenRow, column: bytes) -> dict[str, Any]:
    facts = checked_facts(row.facts)
    if not are_speakers(facts.get("who", [])) or not are_pins(facts.get("pin", [])):
        raise unreadable("the turn facts")
    return facts if facts.keys() <= FACTS else raw_facts(facts, rawjson.members(column)["facts"])


class _InboxRow(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    letter: InboxLetter
    topic: Name
    event: Label
    more: msgspec.Raw = NO_MORE


def inbox_segment(inbox: Sequence[InboxItem]) -> Segment:
    """Write the inbox as a segment. A topic is cut to `MAX_NAME` characters: a longer one cannot be read."""
    rows = [
        [item.letter, item.topic[:MAX_NAME], item.event, *([msgspec.Raw(item.more)] if item.more else ())]
        for item in inbox
    ]
    columns = as_json(rows)[1:-1]
    return history_segment(Kind.INBOX, [item.entry for item in inbox], columns)


def inbox_items(segment: Segment) -> tuple[InboxItem, ...]:
    """Read the waiting messages. Each is a JSON object with the letter of a role that a caller may give."""
    columns = columns_of(segment)
    data = b"[" + columns + b"]"
    rows: list[_InboxRow] = decoded(decoder_of(list[_InboxRow]), data, _refused_inbox)
    if not all(not row.more or forward_compat.is_object(row.more) for row in rows):
        raise _refused_inbox(data)
    entries = object_entries(segment)
    if len(rows) != len(entries):
        raise StateInvalidError("the inbox's columns do not match its entries; the state cannot be used")
    return tuple(
        InboxItem(entry=entry, letter=row.letter, topic=row.topic, event=row.event, more=bytes(row.more))
        for entry, row in zip(entries, rows, strict=True)
    )


def _refused_inbox(data: bytes) -> StateError:
    return forward_compat.refused_rows(data, "the inbox", is_inbox=True)
