"""A state after a rewrite of its closed turns: its meta data, its list of cuts, and the record in the
archive.

Owns: the common steps of every rewrite of entries. Must never know: the change, or its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from ...backends.base import Dialect
from ...base.values import replace
from ...open_turn.turn_ids import with_texts
from ...state.closed_turns import ClosedTurn, has_gap
from ...state.records import with_cut
from ...state.state import ConversationState, rebuild
from ..archive_keeping import Retention, marked, with_record
from .unsign import is_signed

__all__ = ["REPAIRED", "rewritten"]

REPAIRED: Final = "repaired"
"""The name in the list of cuts for a repair, in the place of a strategy."""


def rewritten(
    state: ConversationState,
    turns: Sequence[ClosedTurn],
    kept: Sequence[ClosedTurn],
    gone: Sequence[ClosedTurn],
    dialect: Dialect,
    *,
    is_unsigned: bool,
    retention: Retention | None,
) -> ConversationState:
    """The state with other closed turns, and with a row in its list of cuts.

    Args:
        state: The conversation.
        turns: Its closed turns, each with its number; see `with_numbers`.
        kept: The turns that take their place.
        gone: The turns that were dropped as a whole.
        dialect: Reads the entries.
        is_unsigned: True: `kept` have no signed blocks, because their prefix has changed.
        retention: The limits for the record of the change in the archive; None: keep no record.
    """
    if retention is not None:
        kept = marked(turns, kept)
    messages = sum(turn.record.messages for turn in kept)
    meta = msgspec.structs.replace(
        with_texts(state.meta, [turn for turn in gone if _is_readable(turn.entries, dialect)], dialect),
        messages=messages,
        turns=len(kept),
        context="",  # its message may be gone, so the context is sent again
        # A repair has no clock, so the row has the time of the last write.
        cuts=with_cut(
            state.meta,
            state.meta.updated,
            REPAIRED,
            len(turns) - len(kept),
            max(0, state.meta.messages - messages),
            removed=gone,
        ),
        gap=has_gap(kept, state.meta.processed),
    )
    if is_unsigned:
        still = state.open is not None and is_signed(state.open.entries, dialect)
        meta = msgspec.structs.replace(meta, signed=still, unbound=still)
    made = replace(rebuild(state, kept), meta=meta)
    if retention is not None:
        made = with_record(made, state, turns, kept, retention, at=state.meta.updated)
    return made


def _is_readable(entries: Sequence[bytes], dialect: Dialect) -> bool:
    with suppress(ValueError):
        dialect.view(entries)
        return True
    return False
