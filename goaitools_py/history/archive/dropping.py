"""Drop the oldest parts of an archive that is too large.

Owns: the choice of the part, and the row "evicted" of the journal of cuts, with the number of dropped records
and bytes. Must never know: how large an archive may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...base.values import replace
from ...state.parts import ARCHIVE, INLINE, Part
from ...state.records import CutRow
from ...state.state import ConversationState

__all__ = ["journalled", "without_oldest", "without_parts"]


def without_oldest(
    state: ConversationState, fits: Callable[[ConversationState], bool], *, at: int
) -> ConversationState:
    """Drop the oldest parts of the archive in the blob until the state fits, or all of them. Gives the same
    object if the blob has no parts of the archive."""
    here = [part for part in state.parts if part.kind == ARCHIVE and part.place == INLINE]
    lean = state
    for count in range(1, len(here) + 1):
        lean = without_parts(state, here[:count], at)
        if fits(lean):
            break
    return lean


def without_parts(state: ConversationState, gone: Sequence[Part], at: int) -> ConversationState:
    """The state without these parts of its archive. The journal of cuts says so."""
    if not gone:
        return state
    dropped = set(map(id, gone))
    left = tuple(part for part in state.parts if id(part) not in dropped)
    records, size = sum(part.entries for part in gone), sum(part.stored_len for part in gone)
    return journalled(replace(state, parts=left), at, records=records, size=size)


_CUTS_KEPT: Final = 64
"""The most rows that the journal of cuts holds."""


def journalled(state: ConversationState, at: int, *, records: int, size: int) -> ConversationState:
    """Note in the journal of cuts how many records and bytes were dropped."""
    facts = {"n": state.meta.processed, "records": records, "size": size}
    row = CutRow(max(0, at), "evicted", 0, 0, msgspec.Raw(msgspec.json.encode(facts)))
    rows = (*state.meta.cuts, row)[-_CUTS_KEPT:]
    return replace(state, meta=msgspec.structs.replace(state.meta, cuts=rows))
