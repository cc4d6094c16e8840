"""Measures how full the model's context window and each limit of the state are.

Owns: the warning at each mark of `context_marks`, once for each. Must never know: how room is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ..base.values import replace
from ..open_turn.room import stored_size
from ..state.state import ConversationState
from ..types.events import ContextWarning, Filled
from .ledger import Ledger

__all__ = ["passed_marks"]

_DIGIT_BITS: Final = 4
_DIGIT: Final = 15
"""`Meta.warned` has four bits for each limit: the number of marks that were warned of."""

_SHRINK: Final = "a compactor would shrink it; without one, old turns are dropped at the limit"
_FILLED: Final[Mapping[Filled, tuple[str, str]]] = {
    "tokens": ("the model's {} tokens", "a compactor would shrink it"),
    "blob_bytes": ("the state's max_blob_bytes={}", _SHRINK),
    "decoded_bytes": ("the state's max_decoded_bytes={}", _SHRINK),
    "entries": ("the state's max_entries={}", _SHRINK),
}


def passed_marks(ledger: Ledger, state: ConversationState) -> list[ContextWarning]:
    """Warn once for each mark that the history has passed, and return the events.

    The state counts the marks that were warned of. If the history shrinks below a mark, the mark counts as
    new again. The warnings and the new state are in the books.
    """
    marks, meta = ledger.options.context_marks, state.meta
    told = meta.warned
    if not told and _is_far_below(ledger, state, marks[0]):
        return []
    found: list[ContextWarning] = []
    for at, (of, used, limit) in enumerate(_fillings(ledger, state)):
        if limit is None:
            continue
        passed = min(_DIGIT, sum(used >= mark * limit for mark in marks))
        known = meta.warned >> _DIGIT_BITS * at & _DIGIT
        told += passed - known << _DIGIT_BITS * at
        if passed > known:
            unit, advice = _FILLED[of]
            ledger.warn(
                "context_mark",
                f"the history takes about {used} of {unit.format(limit)}, which is beyond the mark of "
                f"{marks[passed - 1]:.0%}; {advice}",
            )
            level: Literal["approaching", "at_limit"] = "at_limit" if passed == len(marks) else "approaching"
            found.append(ContextWarning(level, used, limit, of, **ledger.of))
    if told != meta.warned:
        ledger.state = replace(state, meta=msgspec.structs.replace(meta, warned=told))
    return found


def _is_far_below(ledger: Ledger, state: ConversationState, mark: float) -> bool:
    """True if numbers that are cheap to get show that no mark is reached."""
    soft, window = ledger.room.soft, ledger.context_window
    if state.inbox or (window and state.meta.tokens >= mark * window):
        return False
    size = entries = 0
    for segment in state.segments:
        size += segment.raw_len + segment.added
        entries += segment.entries
    least = min(soft.max_blob_bytes, soft.max_decoded_bytes)
    return size < mark * least and entries < mark * soft.max_entries


def _fillings(ledger: Ledger, state: ConversationState) -> tuple[tuple[Filled, int, int | None], ...]:
    """For each limit of the history: its name, the size that is used, and the limit."""
    size, soft = stored_size(state, ledger.plan.codec), ledger.room.soft
    return (
        ("tokens", state.meta.tokens, ledger.context_window),
        ("blob_bytes", size.blob, soft.max_blob_bytes),
        ("decoded_bytes", size.decoded, soft.max_decoded_bytes),
        ("entries", size.entries, soft.max_entries),
    )
