"""Write the messages that no model has seen as a segment, and read them again.

Owns: the row of a waiting message: ``[letter, topic, event, more?]``. Must never know: when a message joins a
turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..types.errors import StateError, StateInvalidError
from . import later
from .blob import Kind, Segment
from .bounds import MAX_NAME, Label, Name
from .letters import InboxLetter
from .records import InboxItem
from .row_ends import NO_MORE
from .row_json import as_json, decoded, decoder_of
from .segments import columns_of, history_segment, object_entries

__all__ = ["inbox_items", "inbox_segment"]


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
    if not all(not row.more or later.is_object(row.more) for row in rows):
        raise _refused_inbox(data)
    entries = object_entries(segment)
    if len(rows) != len(entries):
        raise StateInvalidError("the inbox's columns do not match its entries; the state cannot be used")
    return tuple(
        InboxItem(entry=entry, letter=row.letter, topic=row.topic, event=row.event, more=bytes(row.more))
        for entry, row in zip(entries, rows, strict=True)
    )


def _refused_inbox(data: bytes) -> StateError:
    return later.refused_rows(data, "the inbox", is_inbox=True)
