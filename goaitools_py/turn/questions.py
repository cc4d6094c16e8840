"""When a compactor may ask a model again after it asked in vain.

Owns: the rule, and its row in a state. Must never know: how a model is asked, or what about.

A question is paid for, whatever the answer is worth. So after a question in vain the next one waits until the
conversation has grown by a quarter: a summariser that always fails costs a few questions in the life of a
conversation, not one in every turn.

The row in the meta data is [length at the last question in vain, length at the last cut since then, bytes of
the history after that cut]. Lengths are bytes of the closed history as if nothing had been cut since the
first question in vain: else a window that slides, and never grows, would be asked about in every turn, or
never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ..compaction.base import AskFailed, Planned
from ..messages import Usage
from ..state.records import bounded_row
from ..state.state import ConversationState
from ..values import replace

__all__ = ["GROWTH", "Questions", "length_of", "row_after_cut"]

GROWTH: Final = 1.25
"""A model is asked again once the conversation is this many times as long as at the last question in vain."""


def length_of(row: Sequence[int], size: int) -> int:
    """The conversation's length in bytes, of the history's size now and the row; the size without a row."""
    if not row:
        return size
    _, length, size_then = row if len(row) > 2 else (row[0], row[0], row[0])
    return length + max(0, size - size_then)


def row_after_cut(row: Sequence[int], before: int, after: int) -> tuple[int, ...]:
    """The row after a cut from `before` to `after` bytes; () stays ()."""
    return bounded_row((row[0], length_of(row, before), after)) if row else ()


class Questions:
    """The questions of one compaction.

    Attributes:
        asked: How many were put to a model.
        spent: What the answers consumed.
    """

    def __init__(self, state: ConversationState, *, is_free: bool) -> None:
        """`is_free`: the caller, or the provider's refusal, wants the compaction now: nothing waits."""
        self.asked = 0
        self.spent: list[Usage] = []
        self._failures: tuple[str, ...] = ()
        self._unchanged: tuple[str, ...] = ()
        row = state.meta.ask_failed
        self._length = length_of(row, state.history_bytes())
        self._waits = bool(row) and not is_free and self._length < row[0] * GROWTH

    def ask(self) -> None:
        """Note a question. Raises `AskFailed` if it has to wait."""
        if self._waits:
            raise AskFailed(
                "the last question to a model was in vain, and the next one waits until the conversation has "
                f"grown by {GROWTH - 1:.0%}"
            )
        self.asked += 1

    def pass_over(self, planned: Planned) -> None:
        """Note why compactors before this plan's did nothing."""
        self._failures = planned.failures
        self._unchanged = planned.unchanged

    @property
    def vain(self) -> tuple[str, ...]:
        """Why compactors that were tried first did nothing, if another one did."""
        return (*self._failures, *(self._unchanged if self.asked else ()))

    def noted(self, state: ConversationState, *, has_compacted: bool) -> ConversationState:
        """The state with its length, if a model was asked in vain; without one after a useful answer."""
        if not self.asked:
            return state
        row: tuple[int, ...] = ()
        if not has_compacted or self.vain:
            size = state.history_bytes()
            row = (self._length,) if size == self._length else (self._length, self._length, size)
        return replace(
            state, meta=msgspec.structs.replace(state.meta, ask_failed=bounded_row(row) if row else ())
        )
