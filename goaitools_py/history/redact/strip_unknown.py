"""Remove from a state everything that a later release added.

Owns: taking every unknown name, fact, segment and part out of a state, and counting them. Must never know:
the operation that needs it. A redaction must not carry values that it cannot read, so it calls this. All
other operations keep them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...base.values import replace
from ...state.closed_turns import FACTS, Iteration, TurnRecord
from ...state.parts import IGNORABLE_PARTS
from ...state.records import InboxItem, JournalCall, Meta, OpenTurn
from ...state.row_codec import NO_MORE, CutEnd, InboxEnd, IterationEnd, known_end
from ...state.state import ConversationState, closed_turns, rebuild

__all__ = ["known_record", "strip_unknown"]


def strip_unknown(state: ConversationState) -> tuple[ConversationState, int]:
    """Remove names, segments and parts that this release does not know. Give the state, and their number.

    Gives the same object if the count is 0. Reads the turn columns, and writes the history anew if a row in
    them has an unknown name.
    """
    meta, count = _meta(state.meta)
    parts = tuple(part for part in state.parts if part.kind not in IGNORABLE_PARTS)
    count += len(state.extras) + len(state.later) + len(state.parts) - len(parts)
    inbox: list[InboxItem] = []
    for item in state.inbox:
        more, gone = known_end(InboxEnd, item.more)
        inbox.append(replace(item, more=more) if gone else item)
        count += gone
    opened, of_open = _open(state.open)
    turns = [(turn, *known_record(turn.record)) for turn in closed_turns(state)]
    of_turns = sum(dropped for *_, dropped in turns)
    count += of_open + of_turns
    if not count:
        return state, 0
    state = replace(state, meta=meta, extras={}, later=(), parts=parts, inbox=tuple(inbox), open=opened)
    if of_turns:
        state = rebuild(state, [replace(turn, record=record) for turn, record, _ in turns])
    return state, count


def _meta(meta: Meta) -> tuple[Meta, int]:
    ends = [known_end(CutEnd, row.more) for row in meta.cuts]
    count = sum(gone for _, gone in ends)
    count += sum(bool(row[-1]) for rows in (meta.turn, meta.ring, meta.media) for row in rows)
    if not count:
        return meta, 0
    cuts = [row._replace(more=msgspec.Raw(more)) for row, (more, _) in zip(meta.cuts, ends, strict=True)]
    changed = msgspec.structs.replace(
        meta,
        cuts=tuple(cuts),
        turn=tuple(row._replace(more=NO_MORE) for row in meta.turn),
        ring=tuple(row._replace(more=NO_MORE) for row in meta.ring),
        media=tuple(row._replace(more=NO_MORE) for row in meta.media),
    )
    return changed, count


def _iterations(iterations: Sequence[Iteration]) -> tuple[tuple[Iteration, ...], int]:
    ends = [known_end(IterationEnd, one.more) for one in iterations]
    found = tuple(
        replace(one, more=more) if gone else one for one, (more, gone) in zip(iterations, ends, strict=True)
    )
    return found, sum(gone for _, gone in ends)


def _facts(facts: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    known = {name: value for name, value in facts.items() if name in FACTS}
    return known, len(facts) - len(known)


def known_record(record: TurnRecord) -> tuple[TurnRecord, int]:
    """Give the record of a turn without unknown names, and how many there were."""
    iterations, count = _iterations(record.iterations)
    facts, more = _facts(record.facts)
    if not count + more:
        return record, 0
    return replace(record, iterations=iterations, facts=facts), count + more


def _open(turn: OpenTurn | None) -> tuple[OpenTurn | None, int]:
    if turn is None:
        return None, 0
    iterations, count = _iterations(turn.iterations)
    facts, more = _facts(turn.facts)
    calls = tuple(_call(call) for call in turn.calls)
    count += more + len(turn.extras) + sum(len(call.extras) for call in turn.calls)
    if not count:
        return turn, 0
    return replace(turn, iterations=iterations, facts=facts, calls=calls, extras={}), count


def _call(call: JournalCall) -> JournalCall:
    return replace(call, extras={}) if call.extras else call
