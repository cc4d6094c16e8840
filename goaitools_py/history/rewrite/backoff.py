"""When a compactor cuts again, or asks a model again, after it was in vain.

Owns: both rules, and their rows in a state. Must never know: how a limit is measured, how a model is asked,
or the cost of a cut.

**Cuts.** If tools and `system=` alone, or the turns that always stay, are above a limit, no cut reaches it.
Then the trigger fires at each request, and each turn would pay for a summary. So the compactor rests. It acts
again when that may help:

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

**Questions.** Each question costs money, also if its answer is useless. So after a failed question the next
one waits until the conversation has grown by a quarter. A summariser that always fails then costs a few
questions in the life of a conversation, instead of one in every turn.

The row in the meta data is [length at the last failed question, length at the last cut since then, bytes of
the history after that cut]. A length is the size of the closed history in bytes as if nothing had been cut
since the first failed question. Without this, a sliding window of constant size would lead to a question in
every turn, or to no question at all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ...base.values import replace
from ...compaction.base import AskFailed, Planned
from ...open_turn.meter import gauge_of
from ...state.records import MAX_RESTS
from ...state.row_codec import bounded_row
from ...state.state import ConversationState
from ...types.messages import Usage

__all__ = [
    "GROWTH",
    "CompactorQuestions",
    "has_rested",
    "is_resting",
    "length_of",
    "resting",
    "row_after_cut",
    "woken",
]

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
    has_grown = tokens >= row.tokens * GROWTH and state.history_bytes() >= 2 * row.size
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


GROWTH: Final = 1.25
"""A model is asked again when the conversation is this many times as long as at the last failed question."""


def length_of(row: Sequence[int], size: int) -> int:
    """The length of the conversation in bytes: `size`, the bytes of the history now, if there is no row."""
    if not row:
        return size
    _, length, size_then = row if len(row) > 2 else (row[0], row[0], row[0])
    return length + max(0, size - size_then)


def row_after_cut(row: Sequence[int], before: int, after: int) -> tuple[int, ...]:
    """The row after a cut from `before` to `after` bytes; () for ()."""
    return bounded_row((row[0], length_of(row, before), after)) if row else ()


class CompactorQuestions:
    """The questions of one compaction.

    Attributes:
        asked: How many questions were sent to a model.
        spent: The usage of each answer.
    """

    def __init__(self, state: ConversationState, *, is_free: bool) -> None:
        """`is_free`: no question waits, because the caller or a refused request needs the compaction now."""
        self.asked = 0
        self.spent: list[Usage] = []
        self._failures: tuple[str, ...] = ()
        self._unchanged: tuple[str, ...] = ()
        row = state.meta.ask_failed
        self._length = length_of(row, state.history_bytes())
        self._waits = bool(row) and not is_free and self._length < row[0] * GROWTH

    def ask(self) -> None:
        """Count a question. Raises `AskFailed` if it has to wait."""
        if self._waits:
            raise AskFailed(
                "the last question to a model was in vain, and the next one waits until the conversation has "
                f"grown by {GROWTH - 1:.0%}"
            )
        self.asked += 1

    def pass_over(self, planned: Planned) -> None:
        """Note why the compactors before this plan's compactor did nothing."""
        self._failures = planned.failures
        self._unchanged = planned.unchanged

    @property
    def vain(self) -> tuple[str, ...]:
        """Why compactors that were tried earlier did nothing, although a later one did something."""
        return (*self._failures, *(self._unchanged if self.asked else ()))

    def noted(self, state: ConversationState, *, has_compacted: bool) -> ConversationState:
        """The state with the new row: set after a failed question, cleared after a useful answer."""
        if not self.asked:
            return state
        row: tuple[int, ...] = ()
        if not has_compacted or self.vain:
            size = state.history_bytes()
            row = (self._length,) if size == self._length else (self._length, self._length, size)
        return replace(
            state, meta=msgspec.structs.replace(state.meta, ask_failed=bounded_row(row) if row else ())
        )
