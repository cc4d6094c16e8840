"""When a compactor may ask a model again after a question that failed.

Owns: the rule, and its row in a state. Must never know: how a model is asked, or the question.

Each question costs money, also if its answer is useless. So after a failed question the next one waits until
the conversation has grown by a quarter. A summariser that always fails then costs a few questions in the life
of a conversation, instead of one in every turn.

The row in the meta data is [length at the last failed question, length at the last cut since then, bytes of
the history after that cut]. A length is the size of the closed history in bytes as if nothing had been cut
since the first failed question. Without this, a sliding window of constant size would lead to a question in
every turn, or to no question at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...base.values import replace
from ...compaction.base import AskFailed, Planned
from ...state.row_codec import bounded_row
from ...state.state import ConversationState
from ...types.messages import Usage

__all__ = ["GROWTH", "Questions", "length_of", "row_after_cut"]

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


class Questions:
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
