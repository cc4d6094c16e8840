"""Strategies: which turns stay when a history shrinks.

Owns: small callables from `CompactionRequest` to kept turns. Must never know: when they are asked.
Every strategy works on whole turns, so that no call is cut from its result, and never keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..values import Value
from .base import CompactionRequest, TurnView

__all__ = ["DropOldest", "KeepRecentTurns"]


class KeepRecentTurns(Value, frozen=True):
    """Keep the last `turns` turns. A turn is a user's input with every reply and tool result to it."""

    turns: int

    def __post_init__(self) -> None:
        if not isinstance(self.turns, int) or self.turns < 1:
            raise ValueError(f"KeepRecentTurns takes a positive whole number, got {self.turns!r}")

    def __call__(self, request: CompactionRequest) -> Sequence[TurnView]:
        return request.turns[-self.turns :]


class DropOldest(Value, frozen=True, kw_only=True):
    """Drop turns, oldest first, until the rest fits the target; the last `min_recent_turns` always stay.

    Exactly one of `target_tokens` (estimated) and `target_messages` (neutral messages) is given.
    """

    target_tokens: int | None = None
    target_messages: int | None = None
    min_recent_turns: int = 1

    def __post_init__(self) -> None:
        if (self.target_tokens is None) == (self.target_messages is None):
            raise ValueError("DropOldest takes exactly one of target_tokens and target_messages")
        if self.min_recent_turns < 1:
            raise ValueError(f"min_recent_turns must be at least 1, got {self.min_recent_turns!r}")

    def __call__(self, request: CompactionRequest) -> Sequence[TurnView]:
        if self.target_tokens is not None:
            return drop_to(request.turns, self.target_tokens, lambda turn: turn.tokens, self.min_recent_turns)
        return drop_to(
            request.turns, self.target_messages or 0, lambda turn: turn.message_count, self.min_recent_turns
        )


def drop_to(
    turns: Sequence[TurnView], target: int, size: Callable[[TurnView], int], min_recent_turns: int = 1
) -> Sequence[TurnView]:
    """The longest tail of `turns` whose summed `size` is within `target`, never under the minimum."""
    kept = 0
    total = 0
    for turn in reversed(turns):
        total += size(turn)
        if total > target and kept >= min_recent_turns:
            break
        kept += 1
    return turns[len(turns) - kept :]
