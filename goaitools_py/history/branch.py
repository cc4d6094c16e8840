"""A conversation made from another one: a fork, or an earlier point of it.

Owns: two pure steps from blob to blob. Must never know: a store, or a model.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..backends.base import Dialect
from ..base.values import replace
from ..open_turn.meter import gauge_of, unanchored
from ..open_turn.turn_ids import TURN_IDS_FACT, with_texts
from ..state.closed_turns import has_gap, numbers_of
from ..state.codec import PLAIN, Codec
from ..state.parts import ARCHIVE
from ..state.records import cut_facts, digest8, fresh_id, with_cut
from ..state.state import ConversationState, closed_turns, dump_state, hard_limits, load_state, rebuild
from ..types.options import check_options
from .archive.undoing import is_undoable, undone
from .wires import dialect_for

__all__ = ["fork_state", "rewind_state"]


def fork_state(
    blob: bytes | bytearray | memoryview,
    *,
    conversation_id: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """Copy a conversation under an id of its own, so that its tool calls have idempotency keys of their own.

    Without `conversation_id` the id is random. An unfinished turn can be finished in both copies.

    Raises `StateError` if the blob cannot be read.
    """
    check_options({"conversation_id": conversation_id})
    state = load_state(blob, codec=codec, binding=binding)
    meta = msgspec.structs.replace(state.meta, id=conversation_id or fresh_id())
    return _next(blob, replace(state, meta=meta), codec, binding)


def rewind_state(
    blob: bytes | bytearray | memoryview,
    turns: int = 1,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Take the newest turns out of a conversation. An unfinished turn counts as one turn.

    Usage and cost stay counted, a `turn_id` stays used, and waiting messages stay in the inbox.

    Args:
        blob: The state.
        turns: How many turns to take out. Turns from before the newest cut can be taken out only if the blob
            has the record of this cut; see ``Compactor(…, retain=True)``. The cut is then undone: the
            turns come back as they were before it.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        ValueError: There are fewer turns since the newest cut that cannot be undone. The text says how many.
        StateError: The blob cannot be read.
    """
    if not isinstance(turns, int) or turns < 1:
        raise ValueError(f"turns must be a positive whole number, got {turns!r}")
    state = load_state(blob, codec=codec, binding=binding)
    dialect = dialect_for(state.meta.wire, dialect)
    left, is_unbound = turns, False
    while left > (there := _since_cut(state) + (state.open is not None)):
        behind = state if not there else _without_newest(state, there, dialect)
        if not is_undoable(behind, codec, binding):
            possible = turns - left + there
            there_are = "there is 1 turn" if possible == 1 else f"there are {possible} turns"
            since = " since the newest cut" if state.meta.cuts else ""
            raise ValueError(f"{there_are}{since}, and {turns} cannot go")
        state = undone(behind, codec, binding)
        left -= there
        is_unbound = state.meta.unbound
    return _next(blob, _without_newest(state, left, dialect, is_unbound=is_unbound), codec, binding)


def _without_newest(
    state: ConversationState, turns: int, dialect: Dialect, *, is_unbound: bool = False
) -> ConversationState:
    """Remove so many of the newest turns. All of them are younger than the newest cut.

    `is_unbound`: the signed blocks that an undone cut gave back do not fit their prefix now.
    """
    meta, closed = state.meta, closed_turns(state)
    was_open = state.open is not None
    left = turns - was_open
    kept, removed = closed[: len(closed) - left], closed[len(closed) - left :]
    begun = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    size, frame = state.history_bytes() or 1, min(meta.tokens, gauge_of(meta).frame)
    state = rebuild(replace(state, open=None), kept)
    meta = msgspec.structs.replace(
        with_texts(meta, removed, dialect),
        messages=sum(turn.record.messages for turn in kept),
        turns=len(kept),
        processed=meta.processed + was_open,  # its number is not given again
        tokens=frame + (meta.tokens - frame) * state.history_bytes() // size,
        gauge=unanchored(meta).gauge,
        context="",
        turn=tuple(row for row in meta.turn if row.id not in begun),
        unbound=is_unbound,
        failed=(),
        status="complete",
        cuts=with_cut(meta, meta.updated, "rewound", 0, 0),
        gap=has_gap(kept, meta.processed + was_open),
    )
    return replace(state, meta=meta)


def _since_cut(state: ConversationState) -> int:
    """How many closed turns are younger than the newest cut.

    A cut that removed nothing counts only if its record is in the archive. Then the originals of its turns
    are there, and these turns must not be taken out of the history alone.
    """
    closed = closed_turns(state)
    kept = any(part.kind == ARCHIVE for part in state.parts)
    for row in reversed(state.meta.cuts):
        facts = cut_facts(row)
        if not (row.turns or row.messages or (kept and facts is not None and facts.record)):
            continue
        if facts is None:  # another writer's row: its clock has to do
            return sum(turn.record.at > row.at for turn in closed)
        return sum(number > facts.number for number in numbers_of([turn.record for turn in closed]))
    return len(closed)


def _next(blob: Any, state: ConversationState, codec: Codec, binding: Any) -> bytes:
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))
