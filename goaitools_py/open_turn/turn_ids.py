"""Turn ids of the caller: the same id means the same turn.

Owns: the ring of finished turn ids in the meta data, and how the reply of a finished turn is found.
Must never know: how a turn runs, or where the ids come from.

The ring holds digests only. The history has the reply of a finished turn. When a cut removes the turn, the
text of the reply is copied into the ring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from ..backends.base import Dialect
from ..backends.read_entries import read_entries
from ..base import rawjson
from ..base.values import Value
from ..state.closed_turns import ClosedTurn, numbers_of
from ..state.codec import LIMITS, BlobLimits
from ..state.records import IDS_KEPT, Meta, RingRow, TurnIdRow, digest8
from ..state.state import ConversationState, closed_turns

__all__ = [
    "SAME_CALL",
    "TURN_IDS_FACT",
    "UNANSWERED",
    "UNKNOWN_SAID",
    "WRITTEN_ANEW",
    "StoredReply",
    "TurnKey",
    "answered_in",
    "begun",
    "finished",
    "found_by",
    "given_up",
    "id_rows",
    "is_finished",
    "is_unanswered",
    "key_of",
    "reply_text",
    "said_converted",
    "said_in",
    "said_redacted",
    "said_under",
    "stored_reply",
    "with_texts",
    "within_json",
]

TURN_IDS_FACT: Final = "turn_ids"
"""The name of a turn fact: the digests of the turn ids of all messages that a model has accepted in the turn.
There are several if the turn took over the messages of an earlier, unanswered turn."""

SAME_CALL: Final = "same_call"
"""A fact of a turn of messages that came behind the last reply of a call: the digests of the turn ids of the
turns before it in the call. A turn has it from its beginning on. If it is complete it keeps the digests: the
call has returned its reply, and so does a second delivery of those."""

UNANSWERED: Final = "unanswered"
"""A status in the ring: the turn failed, and a newer message closed it before it had a reply."""

UNKNOWN_SAID: Final = ""
"""Replaces the digest of a turn's messages that a conversion to another provider API did not find. Any
messages then count as the same."""

WRITTEN_ANEW: Final = "~"
"""Stands before the digest of the messages as a conversion or a redaction has written them, which finds them
in the history. Behind a redaction the digest of the messages as they came stands before it: a second delivery
is compared with this one. Behind a conversion nothing stands there; behind both, this sign stands twice."""

_MAX_TEXT: Final = 16 * 1024
_MAX_TEXTS: Final = 128 * 1024
"""The most bytes that the ring keeps of one reply, and of all replies together; counted as JSON."""


class TurnKey(Value, frozen=True):
    """Digests of a turn's id and of its messages."""

    id: str
    said: str

    @property
    def row(self) -> TurnIdRow:
        """The row of the meta data."""
        return TurnIdRow(self.id, self.said)

    def is_in(self, rows: Iterable[TurnIdRow]) -> bool:
        """True if one of these rows has this id and these messages."""
        return any(row.id == self.id and said_in(row) in (self.said, UNKNOWN_SAID) for row in rows)


class StoredReply(Value, frozen=True, kw_only=True):
    """The reply of a finished turn."""

    _unshown = frozenset({"text"})

    text: str
    status: str = "complete"
    finish_reason: str = ""
    number: int | None = None
    """The number of the turn; None if the history does not tell it."""


def id_rows(meta: Meta) -> tuple[TurnIdRow | RingRow, ...]:
    """The rows of all turn ids: first of turns that are not finished."""
    return (*meta.turn, *meta.ring)


def said_in(row: TurnIdRow | RingRow) -> str:
    """The digest with which the messages of a second delivery are compared; `UNKNOWN_SAID` after a conversion
    of them."""
    return row.said.partition(WRITTEN_ANEW)[0]


def said_redacted(row: TurnIdRow | RingRow, found_by: str) -> str:
    """The new value of `said` behind a redaction. `found_by`: the digest of the redacted messages."""
    return f"{said_in(row) or WRITTEN_ANEW}{WRITTEN_ANEW}{found_by}"


def said_converted(row: TurnIdRow | RingRow, found_by: str) -> str:
    """The new value of `said` behind a conversion. `found_by`: the digest of the converted messages."""
    is_redacted = row.said.rpartition(WRITTEN_ANEW)[0] != ""
    return WRITTEN_ANEW * (1 + is_redacted) + found_by


def found_by(row: TurnIdRow | RingRow) -> str:
    """The digest that finds the messages in the history; `UNKNOWN_SAID` if it is not known."""
    return row.said.rpartition(WRITTEN_ANEW)[2]


def key_of(turn_id: str, entries: Sequence[bytes]) -> TurnKey:
    """The digests of a turn id and of the entries that were sent with it."""
    return TurnKey(digest8(turn_id), digest8(b"\n".join(entries)))


def begun(meta: Meta, key: TurnKey) -> Meta:
    """The meta data, with the id of the running turn added."""
    if key.is_in(meta.turn):
        return meta
    # The oldest ids leave. An id that is gone counts as new, so a very late redelivery is answered again.
    return msgspec.structs.replace(meta, turn=(*meta.turn, key.row)[-IDS_KEPT:])


def finished(meta: Meta, ids: Collection[str], status: str) -> Meta:
    """The meta data, with these ids moved to the ring. Beyond 64 rows the oldest leave the ring.

    `ids`: the digests of the turn ids of all messages that a model has accepted. Other ids belong to messages
    that still wait, so they stay.
    """
    # One assignment of both columns: an id in neither of them would make a redelivery run its tools again,
    # and an id in both of them would be finished and waiting.
    rows = tuple(RingRow(row.id, row.said, status, "", row.more) for row in meta.turn if row.id in ids)
    left = tuple(row for row in meta.turn if row.id not in ids)
    ring = (*(row for row in meta.ring if row.id not in ids), *rows)
    return msgspec.structs.replace(meta, turn=left, ring=ring[-IDS_KEPT:])


def said_under(meta: Meta, key: TurnKey, *, is_edit: bool = False) -> str | None:
    """The digest of the messages that came with this id before; None for an unknown id.

    If a conversion has changed the digest, this is the digest of `key`. `is_edit`: the messages may replace
    those, and are plain texts: a conversion writes these as a send does. So they are compared behind it, too.
    """
    row = next((row for row in id_rows(meta) if row.id == key.id), None)
    if row is None:
        return None
    is_converted = row.said.rpartition(WRITTEN_ANEW)[:2] == ("", WRITTEN_ANEW)
    return said_in(row) or (found_by(row) if is_edit and is_converted else key.said)


def is_finished(meta: Meta, key: TurnKey) -> bool:
    """True if the turn with this id is over and its reply is final."""
    return any(row.id == key.id and row.status != UNANSWERED for row in meta.ring)


def is_unanswered(meta: Meta, key: TurnKey) -> bool:
    """True if the turn with this id was closed without a reply, and no other turn has taken it over."""
    if key.is_in(meta.turn):
        return False
    return any(row.id == key.id and row.status == UNANSWERED for row in meta.ring)


def given_up(meta: Meta, removed: Sequence[ClosedTurn]) -> Meta:
    """The meta data after a cut. An unanswered turn that the cut removes is finished if it had tool calls.

    After the cut the model does not see the results of its tools, and would call them again for the same
    message. So a redelivery of that message is not sent. It gets the stored end of the turn: the status
    "truncated" and no text.
    """
    called = [turn for turn in removed if turn.has_tool_results]
    ids = {id for turn in called for id in turn.record.facts.get(TURN_IDS_FACT, ())}
    if not ids:
        return meta
    ring = tuple(
        row._replace(status="truncated") if row.id in ids and row.status == UNANSWERED else row
        for row in meta.ring
    )
    return msgspec.structs.replace(meta, ring=ring)


def stored_reply(state: ConversationState, key: TurnKey, dialect: Dialect) -> StoredReply:
    """The reply of a finished turn: from the history if the turn is there, else from the ring."""
    row = next(row for row in state.meta.ring if row.id == key.id)
    found = answered_in(state, key.id)
    if found is None:
        return StoredReply(text=row.text, status=row.status)
    turn, later = found
    record = turn.record
    numbers = numbers_of([one.record for one in closed_turns(state)])
    # The ring has the text from before a rewrite, or of an earlier turn of the same call.
    is_newer = key.id in record.facts.get(SAME_CALL, ()) and "rewritten" not in record.facts
    known = "" if is_newer else row.text
    return StoredReply(
        text=known or reply_text(turn, dialect),
        status=row.status,
        finish_reason=record.iterations[-1].finish_reason if record.iterations else "",
        number=numbers[-1 - later],
    )


def answered_in(state: ConversationState, id: str) -> tuple[ClosedTurn, int] | None:
    """The closed turn with the reply that the call of a turn id has returned, and the number of turns after
    it; None if the history lacks it."""
    for later, turn in enumerate(reversed(closed_turns(state))):
        facts = turn.record.facts
        if id in facts.get(TURN_IDS_FACT, ()) or id in facts.get(SAME_CALL, ()):
            return turn, later
    return None


def with_texts(
    meta: Meta,
    removed: Sequence[ClosedTurn],
    dialect: Dialect,
    *,
    before: Sequence[ClosedTurn] = (),
    limits: BlobLimits = LIMITS,
) -> Meta:
    """The meta data, with the replies of turns that a cut removes or rewrites.

    Args:
        meta: The meta data.
        removed: These turns, in their order.
        dialect: Reads the replies.
        before: The turns before them, if newest turns are removed: the others of the same call have their own
            replies again.
        limits: The limits of the state. All replies together take at most a part of them.
    """
    most = min(
        _MAX_TEXTS, limits.max_meta_bytes // 2, limits.max_blob_bytes // 8, limits.max_decoded_bytes // 8
    )
    known = {row.id for row in meta.ring}
    found: dict[str, str] = {}
    newer: dict[str, str] = {}
    stay = {id for turn in before for id in turn.record.facts.get(TURN_IDS_FACT, ())}
    gone: set[str] = set()
    for turn in removed:
        facts = turn.record.facts
        own = known.intersection(facts.get(TURN_IDS_FACT, ()))
        # The ring may have the reply of an earlier turn of the same call.
        is_newer = "rewritten" not in facts
        of_call = known.intersection(facts.get(SAME_CALL, ()))
        gone |= of_call & stay  # an earlier cut may have given them this turn's reply
        same = of_call - stay if is_newer else set()
        if own or same:
            text = within_json(reply_text(turn, dialect), min(_MAX_TEXT, most))
            found |= dict.fromkeys(own, text)
            newer |= dict.fromkeys(same, text)
    if not (found or newer or gone):
        return meta
    # From the newest reply on: redeliveries come soon after the first delivery.
    left = most
    kept: list[RingRow] = []
    for row in reversed(meta.ring):
        text = newer.get(row.id) or ("" if row.id in gone else row.text) or found.get(row.id, "")
        left -= _size(text)
        kept.append(row._replace(text=text if left >= 0 else ""))
    return msgspec.structs.replace(meta, ring=tuple(reversed(kept)))


def reply_text(turn: ClosedTurn, dialect: Dialect) -> str:
    """The text of a turn's last reply."""
    return "".join(message.text for message in read_entries(dialect, turn.last_reply()))


def _size(text: str) -> int:
    return len(rawjson.dumps(text)) - 2


def within_json(text: str, most: int) -> str:
    """The longest beginning of a text that takes at most `most` bytes as JSON."""
    text = text[:most]
    if _size(text) <= most:
        return text
    # A search and not a cut of the encoded text: a cut inside an escape would leave no valid text.
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(text[:middle]) <= most else (low, middle - 1)
    return text[:low]
