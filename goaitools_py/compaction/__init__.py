"""Stable. Compaction: a trigger says when a history shrinks, a strategy says how.

``Compactor(any_of(TokenLimit(8_000), MessageLimit(40)), KeepRecentTurns(6))``

Owns: all triggers and strategies, and the types for your own. Must never know: how a state is stored.

Begin with `base.py`, the question to a strategy and its answer. `triggers.py` and `strategies.py` have the
usual ones. `turn/shrink.py` calls them, and `history/rewrite/cut.py` does the cut.
"""

from ..types.request_parts import ServerCompaction, ServerThinkingClearing, ServerToolClearing
from ..types.result import CompactionReport
from .base import (
    NO_COMPACTION,
    AskFailed,
    AskModel,
    AskProvider,
    CompactionRequest,
    CompactorLike,
    Kept,
    ModelAnswer,
    NoChange,
    Strategy,
    Trigger,
    first_of,
)
from .compactor import Compactor
from .placeholders import ClearToolResults, CollapseToolExchanges, DropMedia
from .strategies import DropOldest, KeepRecentTurns, MiddleOut
from .summary import ProviderCompaction, Summarize
from .triggers import ByteLimit, ColdCache, MessageLimit, PendingLimit, TokenLimit, TurnLimit, all_of, any_of
from .turn_views import Piece, TurnView
from .window import ContextWindow

__all__ = [
    "NO_COMPACTION",
    "AskFailed",
    "AskModel",
    "AskProvider",
    "ByteLimit",
    "ClearToolResults",
    "ColdCache",
    "CollapseToolExchanges",
    "CompactionReport",
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
    "ProviderCompaction",
    "ServerCompaction",
    "ServerThinkingClearing",
    "ServerToolClearing",
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
