"""Another conversation out of an old one: a fork, or an earlier point of it.

Owns: two pure steps from blob to blob. Must never know: a store, or a model.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..backends.base import Dialect
from ..options import check_options
from ..state.codec import PLAIN, Codec
from ..state.records import digest8, fresh_id, with_cut
from ..state.state import ConversationState, closed_turns, dump_state, hard_limits, load_state, rebuild
from ..turn.meter import gauge_of, unanchored
from ..turn.turn_ids import FACT, with_texts
from ..values import replace
from .wires import dialect_for

__all__ = ["fork_state", "rewind_state"]


def fork_state(
    blob: bytes | bytearray | memoryview,
    *,
    conversation_id: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """The same conversation under an id of its own, so that its tool calls have idempotency keys of their
    own. Without `conversation_id` the id is random. A turn that is not finished can be finished in both.

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
    """The conversation without its newest turns; an unfinished one counts as one.

    What was spent stays spent, a `turn_id` stays used, and messages that no model has seen wait on.

    Args:
        blob: The state.
        turns: How many go. Those of before the newest cut stay: what stood before them is not there any more.
        codec: How the blob is protected.
        binding: For sealed codecs: what it belongs to.
        dialect: That of a wire which is not built in.

    Raises:
        ValueError: There are not so many turns since the newest cut.
        StateError: The blob cannot be read.
    """
    if not isinstance(turns, int) or turns < 1:
        raise ValueError(f"turns must be a positive whole number, got {turns!r}")
    state = load_state(blob, codec=codec, binding=binding)
    meta, closed = state.meta, closed_turns(state)
    was_open = state.open is not None
    left = turns - was_open
    cut = max((at for at, _, gone, messages in meta.cuts if gone or messages), default=-1)
    since = sum(record.at > cut for _, record in closed) if cut >= 0 else len(closed)
    if left > since:
        there = since + was_open
        raise ValueError(f"there are {there} turns since the newest cut, and {turns} cannot go")
    kept, removed = closed[: len(closed) - left], closed[len(closed) - left :]
    begun = state.open.facts.get(FACT, ()) if state.open is not None else ()
    size, frame = state.history_bytes() or 1, min(meta.tokens, gauge_of(meta).frame)
    state = rebuild(replace(state, open=None), kept)
    meta = msgspec.structs.replace(
        with_texts(meta, removed, dialect_for(meta.wire, dialect)),
        messages=sum(record.messages for _, record in kept),
        turns=len(kept),
        processed=meta.processed + was_open,  # its number is not given again
        tokens=frame + (meta.tokens - frame) * state.history_bytes() // size,
        gauge=unanchored(meta).gauge,
        context="",
        turn=tuple(row for row in meta.turn if row[0] not in begun),
        unbound=False,
        failed=(),
        status="complete",
        cuts=with_cut(meta, meta.updated, "rewound", 0, 0),
    )
    return _next(blob, replace(state, meta=meta), codec, binding)


def _next(blob: Any, state: ConversationState, codec: Codec, binding: Any) -> bytes:
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))
