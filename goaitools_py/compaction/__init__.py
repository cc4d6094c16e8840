"""Compaction: a trigger says when a history shrinks, a strategy says how.

``Compactor(any_of(TokenLimit(8_000), MessageLimit(40)), KeepRecentTurns(6))``
"""

from .base import (
    NO_COMPACTION,
    Archive,
    AskFailed,
    AskModel,
    AskProvider,
    CompactionRequest,
    Compactor,
    CompactorLike,
    Kept,
    ModelAnswer,
    NoChange,
    Planned,
    Strategy,
    Trigger,
    first_of,
)
from .collapse import CollapseToolExchanges
from .placeholders import ClearToolResults, DropMedia
from .provider import ProviderCompaction
from .strategies import DropOldest, KeepRecentTurns, MiddleOut
from .summary import Summarize
from .triggers import (
    ByteLimit,
    ColdCache,
    MessageLimit,
    PendingLimit,
    TokenLimit,
    TurnLimit,
    all_of,
    any_of,
)
from .turns import Piece, TurnView
from .window import ContextWindow

__all__ = [
    "NO_COMPACTION",
    "Archive",
    "AskFailed",
    "AskModel",
    "AskProvider",
    "ByteLimit",
    "ClearToolResults",
    "ColdCache",
    "CollapseToolExchanges",
    "CompactionRequest",
    "Compactor",
    "CompactorLike",
    "ContextWindow",
    "DropMedia",
    "DropOldest",
    "KeepRecentTurns",
    "Kept",
    "MessageLimit",
    "MiddleOut",
    "ModelAnswer",
    "NoChange",
    "PendingLimit",
    "Piece",
    "Planned",
    "ProviderCompaction",
    "Strategy",
    "Summarize",
    "TokenLimit",
    "Trigger",
    "TurnLimit",
    "TurnView",
    "all_of",
    "any_of",
    "first_of",
]
