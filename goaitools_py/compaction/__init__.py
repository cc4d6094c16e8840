"""Compaction: a trigger says when a history shrinks, a strategy says how.

``Compactor(any_of(TokenLimit(8_000), MessageLimit(40)), KeepRecentTurns(6))``
"""

from .base import (
    NO_COMPACTION,
    CompactionRequest,
    Compactor,
    CompactorLike,
    Strategy,
    Trigger,
    TurnView,
    first_of,
)
from .strategies import DropOldest, KeepRecentTurns
from .triggers import MessageLimit, TokenLimit, all_of, any_of

__all__ = [
    "NO_COMPACTION",
    "CompactionRequest",
    "Compactor",
    "CompactorLike",
    "DropOldest",
    "KeepRecentTurns",
    "MessageLimit",
    "Strategy",
    "TokenLimit",
    "Trigger",
    "TurnView",
    "all_of",
    "any_of",
    "first_of",
]
