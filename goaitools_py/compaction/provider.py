"""A strategy that asks the provider to compact the older part of a history.

Owns: which turns the provider compacts, the context edits of each request, and the fallback where the
provider API has no compaction. Must never know: how a provider API writes the request.

After this compaction the reasoning of the turns that stay remains valid, because the provider checks
signatures only after its newest compaction. After any other cut that reasoning has to be removed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Literal

from ..types.request_parts import ContextEdit, check_edits
from .base import (
    AskFailed,
    AskProvider,
    CompactionRequest,
    NoChange,
    OwnStrategy,
    Strategy,
    Turns,
    check_strategy,
)
from .strategies import check_count, recent_from
from .summary import Summarize
from .turn_views import COMPACTED, TurnView

__all__ = ["ProviderCompaction"]


class ProviderCompaction(OwnStrategy, frozen=True):
    """Ask the provider to compact all but the last `keep_turns` turns into one item of its own.

    It uses OpenAI's ``/responses/compact`` and Anthropic's compaction on demand (beta
    ``compact-2026-09-04``). The item that comes back is opaque and replaces the turns.

    With `context_management` every request of the conversation also asks the provider to work on its context
    before it answers, whether a trigger fires or not. If the provider compacts inside a reply, the history
    already holds its item; when the trigger fires next, the turns before it are dropped without another
    request. Other edits do not change the history.

    Args:
        keep_turns: This number of newest turns stays word for word.
        at_least: Ask only if this number of turns that are not yet compacted would be. None: one the first
            time, then as many as `keep_turns`, but at least 4. OpenAI's compaction keeps the user's texts,
            so a history of long questions hardly shrinks and would be compacted again in every turn.
        instructions: Name the facts to keep, for a provider that takes instructions (Anthropic).
        fallback: The strategy where the provider API or the server has no compaction, or refuses it.
            "summarize" is ``Summarize(keep_turns=…)`` with the model of the turn. None: nothing is done.
        context_management: `ServerCompaction`, `ServerToolClearing`, `ServerThinkingClearing`. The request
            leaves out an edit that the provider API or the host does not have, and the clearing of thinking
            in a request without thinking. The strategy itself still works when its trigger fires. The
            setting of the same name wins, and raises ValueError for an edit that is not available.
    """

    keep_turns: int = 2
    at_least: int | None = None
    instructions: str = ""
    fallback: Strategy | Literal["summarize"] | None = "summarize"
    context_management: Sequence[ContextEdit] = ()

    def __post_init__(self) -> None:
        check_count("keep_turns", self.keep_turns, 1)
        check_count("at_least", self.at_least if self.at_least is not None else 1, 1)
        check_edits("context_management", self.context_management)
        if self.fallback not in ("summarize", None):
            check_strategy(self.fallback)

    def __call__(self, request: CompactionRequest) -> Generator[Any, Any, Turns]:
        turns = request.turns
        boundary = _newest_boundary(turns)
        if boundary > 0:
            return turns[boundary:]
        start = recent_from(turns, self.keep_turns)
        older = turns[:start]
        count = sum(not turn.note for turn in older)
        has_one = any(turn.note == COMPACTED for turn in older)
        needed = self.at_least or (max(self.keep_turns, 4) if has_one else 1)
        if count < needed:
            return NoChange(
                f"{count} turns are older than the last {self.keep_turns}; a compaction waits for {needed}"
            )
        try:
            compacted: TurnView | None = yield AskProvider(turns=older, instructions=self.instructions)
        except AskFailed:
            if self.fallback is None:
                raise
            compacted = None
        if compacted is not None:
            return (compacted, *turns[start:])
        fallback = self.fallback
        if fallback is None:
            return NoChange("the provider API has no compaction")
        if fallback == "summarize":
            fallback = Summarize(keep_turns=self.keep_turns)
        planned = fallback(request)
        if isinstance(planned, Generator):
            return (yield from planned)
        return planned


def _newest_boundary(turns: Sequence[TurnView]) -> int:
    """Find the newest turn in which the provider compacted everything before it; -1 if it never did."""
    for at in range(len(turns) - 1, -1, -1):
        if any(b"compaction" in entry for entry in turns[at].entries) and turns[at].has_boundary:
            return at
    return -1
