"""Turns that are known by an id of the caller's: the same id again is the same turn.

Owns: the ring of finished ids in the meta data, and the reply that a finished one had.
Must never know: how a turn runs, or where ids come from.

The ring holds digests only. A finished turn's reply stands in the history, and is copied into the ring
when a cut takes it out of there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from .. import rawjson
from ..backends.base import Dialect
from ..reading import read_entries
from ..state.codec import LIMITS, BlobLimits
from ..state.records import IDS_KEPT, Meta, TurnRecord, digest8
from ..state.state import ConversationState, closed_turns
from ..values import Value

__all__ = [
    "FACT",
    "UNANSWERED",
    "StoredReply",
    "TurnKey",
    "begun",
    "finished",
    "given_up",
    "is_finished",
    "is_unanswered",
    "key_of",
    "reply_of",
    "reply_text",
    "said_under",
    "stored_reply",
    "with_texts",
    "within_json",
]

FACT: Final = "turn_ids"
"""The fact of a turn that lists the digests of the ids whose messages a model has accepted in it: more than
one if a turn took up what an earlier one had said in vain."""

UNANSWERED: Final = "unanswered"
"""The ring's status of a turn that failed, and that a newer message closed before it had a reply."""

_MAX_TEXT: Final = 16 * 1024
_MAX_TEXTS: Final = 128 * 1024
"""Bytes of one reply, and of all replies, that the ring keeps, as the JSON of a state has them."""


class TurnKey(Value, frozen=True):
    """A turn's id and its messages, as digests."""

    id: str
    said: str

    @property
    def row(self) -> tuple[str, str]:
        """As the meta data has it."""
        return self.id, self.said


class StoredReply(Value, frozen=True, kw_only=True):
    """What a finished turn answered."""

    unshown = frozenset({"text"})

    text: str
    status: str = "complete"
    finish_reason: str = ""
    number: int | None = None
    """The turn's own number; None if the history does not tell."""


def key_of(turn_id: str, entries: Sequence[bytes]) -> TurnKey:
    """The digests of an id and of what was said under it."""
    return TurnKey(digest8(turn_id), digest8(b"\n".join(entries)))


def begun(meta: Meta, key: TurnKey) -> Meta:
    """The meta data with the id of the turn that runs now."""
    if key.row in meta.turn:
        return meta
    return msgspec.structs.replace(meta, turn=(*meta.turn, key.row)[-IDS_KEPT:])


def finished(meta: Meta, ids: Collection[str], status: str) -> Meta:
    """The meta data with the turn of these ids finished; the oldest of 64 go.

    `ids`: those whose messages a model has accepted. What else waits is of a turn that is still to come.
    """
    rows = tuple((id, said, status, "") for id, said in meta.turn if id in ids)
    left = tuple(row for row in meta.turn if row[0] not in ids)
    ring = (*(row for row in meta.ring if row[0] not in ids), *rows)
    return msgspec.structs.replace(meta, turn=left, ring=ring[-IDS_KEPT:])


def said_under(meta: Meta, key: TurnKey) -> str | None:
    """The digest of what was said under an id before; None if it is not known."""
    for id, said, *_ in (*meta.turn, *meta.ring):
        if id == key.id:
            return said
    return None


def is_finished(meta: Meta, key: TurnKey) -> bool:
    """True if the turn of the id is over, and has what reply it will have."""
    return any(row[0] == key.id and row[2] != UNANSWERED for row in meta.ring)


def is_unanswered(meta: Meta, key: TurnKey) -> bool:
    """True if the turn of the id was closed without a reply, and no other has taken it up."""
    if key.row in meta.turn:
        return False
    return any(row[0] == key.id and row[2] == UNANSWERED for row in meta.ring)


def given_up(meta: Meta, removed: Sequence[TurnRecord]) -> Meta:
    """The meta data with the unanswered turns that a cut removes finished, if tools were called in them.

    A model that no longer sees what its tools did would call them again for the same message. So the message
    is not asked again: its redelivery gets the stored end of the turn, "truncated" and without text.
    """
    called = [record for record in removed if any("t" in iteration.roles for iteration in record.iterations)]
    ids = {id for record in called for id in record.facts.get(FACT, ())}
    if not ids:
        return meta
    ring = tuple(
        (id, said, "truncated" if id in ids and status == UNANSWERED else status, text)
        for id, said, status, text in meta.ring
    )
    return msgspec.structs.replace(meta, ring=ring)


def stored_reply(state: ConversationState, key: TurnKey, dialect: Dialect) -> StoredReply:
    """The reply of a finished turn, from the history or from the ring."""
    row = next(row for row in state.meta.ring if row[0] == key.id)
    for later, (entries, record) in enumerate(reversed(closed_turns(state))):
        if key.id in record.facts.get(FACT, ()):
            return StoredReply(
                text=row[3] or reply_text(entries, record, dialect),  # as it was, if it was rewritten
                status=row[2],
                finish_reason=record.iterations[-1].finish_reason if record.iterations else "",
                number=_number(state.meta, record, later),
            )
    return StoredReply(text=row[3], status=row[2])


def _number(meta: Meta, record: TurnRecord, later: int) -> int | None:
    """A turn's number, from how many stand behind it; None if some of those are gone, or were never turns."""
    if any(at >= record.at for at, *_ in meta.cuts):
        return None
    return meta.processed - later


def with_texts(
    meta: Meta,
    removed: Sequence[tuple[Sequence[bytes], TurnRecord]],
    dialect: Dialect,
    *,
    limits: BlobLimits = LIMITS,
) -> Meta:
    """The meta data with the replies of turns that are about to leave the history, or to be rewritten.

    `limits`: those of the state; all replies together take a part of them at most.
    """
    most = min(
        _MAX_TEXTS, limits.max_meta_bytes // 2, limits.max_blob_bytes // 8, limits.max_decoded_bytes // 8
    )
    known = {row[0] for row in meta.ring}
    found: dict[str, str] = {}
    for entries, record in removed:
        for digest in known.intersection(record.facts.get(FACT, ())):
            found[digest] = within_json(reply_text(entries, record, dialect), min(_MAX_TEXT, most))
    if not found:
        return meta
    ring = tuple((id, said, status, text or found.get(id, "")) for id, said, status, text in meta.ring)
    left = most
    kept: list[tuple[str, str, str, str]] = []
    for id, said, status, text in reversed(ring):
        left -= _size(text)
        kept.append((id, said, status, text if left >= 0 else ""))
    return msgspec.structs.replace(meta, ring=tuple(reversed(kept)))


def reply_of(entries: Sequence[bytes], record: TurnRecord) -> Sequence[bytes]:
    """The last reply of a turn, and those before it that its provider had paused."""
    # Behind it may stand results of calls that came although none was allowed, or that nobody answered
    # before the turn was closed.
    roles = "".join(iteration.roles for iteration in record.iterations)
    end = roles.rfind("a") + 1
    return entries[len(roles[:end].rstrip("a")) : end]


def reply_text(entries: Sequence[bytes], record: TurnRecord, dialect: Dialect) -> str:
    """What a turn's last reply says."""
    return "".join(message.text for message in read_entries(dialect, reply_of(entries, record)))


def _size(text: str) -> int:
    return len(rawjson.dumps(text)) - 2


def within_json(text: str, most: int) -> str:
    """The longest beginning of a text that has at most so many bytes as JSON."""
    text = text[:most]
    if _size(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(text[:middle]) <= most else (low, middle - 1)
    return text[:low]
