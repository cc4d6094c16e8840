"""When a compactor cuts again after a cut that did not reach its limit.

Owns: the rule, and its rows in a state. Must never know: how a limit is measured, or the cost of a cut.

If tools and `system=` alone, or the turns that always stay, are above a limit, no cut reaches it. Then the
trigger fires at each request, and each turn would pay for a summary. So the compactor rests. It acts again
when that may help:

- It is another compactor: its trigger, its limit or its strategy has changed.
- The parts around the history, tools and `system=`, have shrunk by a fifth.
- It is worth it: the next request has grown by a quarter since, and the history has doubled.
- Other turns stay now: so many turns have come as had stayed, at least four. Each further cut in vain doubles
  this number. It does not count if the excess is not in the history.
- A cut is free, because no model is asked, and the turns that stay are above the limit. Then each turn is
  cut, as its user wants: `KeepRecentTurns(1)` leaves one turn, for any limit.

The state has a row for each compactor that rests, so it rests in every process: [a digest of the compactor;
after its cut in vain the tokens of the next request, the bytes of the history, the tokens around it, and how
many turns had ever been closed; after how many more it acts again, 0 if their number does not matter].
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, NamedTuple

import msgspec

from ...base.values import replace
from ...open_turn.meter import gauge_of
from ...state.records import MAX_RESTS
from ...state.row_codec import bounded_row
from ...state.state import ConversationState

__all__ = ["has_rested", "is_resting", "resting", "woken"]

_GROWTH: Final = 1.25
_SHRUNK: Final = 0.8
_LEAST_TURNS: Final = 4
_MOST_TURNS: Final = 256

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class _Rest(NamedTuple):
    """A row."""

    key: int
    tokens: int = 0
    size: int = 0
    frame: int = 0
    since: int = 0
    turns: int = 0


def _key(compactor: Any) -> int:
    """A number that equal compactors have in every process."""
    try:
        words = _ADDRESS.sub("", repr(compactor))
    except Exception:  # a trigger or strategy of the caller's
        words = type(compactor).__name__
    return int.from_bytes(hashlib.sha256(words.encode("utf-8", "replace")).digest()[:6])


def _row(state: ConversationState, compactor: Any) -> _Rest | None:
    if not state.meta.rests:
        return None
    key = _key(compactor)
    found = next((row for row in state.meta.rests if row and row[0] == key), None)
    return None if found is None else _Rest(*found[: len(_Rest._fields)])


def _with_row(state: ConversationState, key: int, *new: tuple[int, ...]) -> ConversationState:
    rows = (*(row for row in state.meta.rests if row and row[0] != key), *new)
    return replace(state, meta=msgspec.structs.replace(state.meta, rests=rows[-MAX_RESTS:]))


def has_rested(state: ConversationState, compactor: Any) -> bool:
    """True if a cut of this compactor was in vain, and no later cut has reached its limit."""
    return _row(state, compactor) is not None


def is_resting(state: ConversationState, compactor: Any, tokens: int) -> bool:
    """True if another cut of this compactor would be in vain. `tokens`: the size of the next request."""
    row = _row(state, compactor)
    if row is None:
        return False
    has_grown = tokens >= row.tokens * _GROWTH and state.history_bytes() >= 2 * row.size
    has_others = bool(row.turns) and state.meta.processed >= row.since + row.turns
    return not (has_grown or has_others or gauge_of(state.meta).frame < row.frame * _SHRUNK)


def resting(state: ConversationState, compactor: Any, *, tokens: int, turns: int | None) -> ConversationState:
    """The state after a cut that was in vain.

    Args:
        state: The state with the cut.
        compactor: The compactor that made it.
        tokens: The size of the next request.
        turns: How many turns have stayed; 0 if no other turns in their place would help; None if each turn
            is to be cut.
    """
    before = _row(state, compactor)
    if not turns:
        waits = 0 if turns == 0 else 1
    elif before is None or not before.turns:
        waits = max(_LEAST_TURNS, turns)
    else:
        waits = 2 * before.turns
    row = _Rest(
        key=_key(compactor),
        tokens=tokens,
        size=state.history_bytes(),
        frame=gauge_of(state.meta).frame,
        since=state.meta.processed,
        turns=min(waits, _MOST_TURNS),
    )
    return _with_row(state, row.key, bounded_row(row))


def woken(state: ConversationState, compactor: Any) -> ConversationState:
    """The state after a cut of this compactor that has reached its limit."""
    row = _row(state, compactor)
    return state if row is None else _with_row(state, row.key)
