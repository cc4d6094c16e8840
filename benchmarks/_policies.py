"""The compaction policies that are compared, with their names in the tables.

Owns: what each policy is. Must never know: what it is used on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from goaitools_py import (
    NO_COMPACTION,
    ClearToolResults,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    Summarize,
    TokenLimit,
    all_of,
    any_of,
    first_of,
)
from goaitools_py.compaction import (
    ColdCache,
    CollapseToolExchanges,
    CompactionRequest,
    ContextWindow,
    ProviderCompaction,
)

__all__ = [
    "CHEAPER",
    "DEEP",
    "DEFAULT",
    "NONE",
    "SLIDING",
    "SLIDING_EACH",
    "after_pauses",
    "policies",
    "sliding",
    "with_tools",
]

Made = Callable[[Any], Any]
"""From the provider, which has a cheaper model beside its own, to a compactor."""

NONE: Final = "no compaction"
SLIDING: Final = "sliding window, equal mean context"
SLIDING_EACH: Final = "the same, sliding at each request"
DEEP: Final = "drop oldest, to 25 %"
DEFAULT: Final = "summarise, keep 2 turns"
CHEAPER: Final = "summarise with a cheaper model, keep 2"


def _always(request: CompactionRequest) -> bool:
    return True


def sliding(tokens: int) -> Made:
    """A window that moves with every turn."""
    return lambda _: Compactor(_always, DropOldest(target_tokens=tokens))


def policies(limit: int, history: int) -> Mapping[str, Made]:
    """The policies for every conversation.

    Args:
        limit: Tokens of a request at which a policy acts.
        history: How many of these may be history; the rest surrounds it.
    """
    full = TokenLimit(limit)

    def cut(part: float) -> Made:
        return lambda _: Compactor(full, DropOldest(target_tokens=int(history * part)))

    return {
        NONE: lambda _: NO_COMPACTION,
        "sliding window, 20 turns": lambda _: Compactor(_always, KeepRecentTurns(20)),
        "drop oldest, to 75 %": cut(0.75),
        "drop oldest, to 50 %": cut(0.5),
        DEEP: cut(0.25),
        "ContextWindow (to 40 %)": lambda _: ContextWindow(max_tokens=limit),
        "limit or 40 messages, keep 6 turns": lambda _: Compactor(
            any_of(full, MessageLimit(40)), KeepRecentTurns(6)
        ),
        "summarise, keep 4 turns": lambda _: Compactor(full, Summarize(keep_turns=4)),
        DEFAULT: lambda _: Compactor(full, Summarize(keep_turns=2)),
        CHEAPER: lambda provider: Compactor(full, Summarize(provider.cheaper, keep_turns=2)),
        "the provider's compaction, keep 2 turns": lambda _: Compactor(
            full, ProviderCompaction(keep_turns=2)
        ),
    }


def with_tools(limit: int) -> Mapping[str, Made]:
    """The policies for what tools have said."""
    full = TokenLimit(limit)
    return {
        "clear tool results, each turn": lambda _: Compactor(_always, ClearToolResults(keep=3, at_least=1)),
        "clear tool results, 3 at a time": lambda _: Compactor(full, ClearToolResults(keep=3, at_least=3)),
        "clear tool results, a sixth of all at a time": lambda _: Compactor(full, ClearToolResults(keep=3)),
        "collapse tool exchanges": lambda _: Compactor(full, CollapseToolExchanges()),
        "clear tool results, then summarise": lambda _: first_of(
            Compactor(full, ClearToolResults(keep=3)), Compactor(full, Summarize(keep_turns=2))
        ),
    }


def after_pauses(limit: int) -> Made:
    """A summary as usual; after a pause, when there is no cache to lose, from a quarter of the limit on."""
    return lambda _: first_of(
        Compactor(all_of(ColdCache(), TokenLimit(limit // 4)), Summarize(keep_turns=2)),
        Compactor(TokenLimit(limit), Summarize(keep_turns=2)),
    )
