"""A strategy that has the provider itself compact the older part of a history.

Owns: which turns are given to the provider, what it is to do by itself with each request, and what is done
where it has no such thing. Must never know: a wire's request for it.

It is the only kind of compaction after which the reasoning of the turns that stay is still good: the
provider checks what it has signed from its newest compaction on. Behind any other cut it is taken out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Literal

from ..context_management import ContextEdit, check_edits
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
from .turns import COMPACTED, TurnView

__all__ = ["ProviderCompaction"]


class ProviderCompaction(OwnStrategy, frozen=True):
    """Have the provider compact all but the last `keep_turns` turns into an item of its own.

    OpenAI's ``/responses/compact`` and Anthropic's compaction on demand (beta ``compact-2026-09-04``). What
    comes back is opaque, belongs to the provider, and stands in the place of the turns.

    With `context_management` every request of the conversation also asks the provider to do something with
    the context by itself, before it answers: a chat whose compactor has this strategy sends it along, in a
    turn in which no trigger fires too. If it compacts inside a reply, the history holds such an item already,
    and whole turns before it are dropped without a question, as soon as the trigger fires. Other edits leave
    the history as it is.

    Args:
        keep_turns: So many turns stay word for word.
        at_least: Ask only if so many turns would go that are not compacted yet. None: one the first time, and
            then as many as `keep_turns`, at least 4. OpenAI's compaction keeps what the user said, so that a
            history of long questions hardly shrinks, and would be compacted again in every turn.
        instructions: What the provider is told to keep, where it takes such words (Anthropic).
        fallback: The strategy for a wire, or a server, that has no compaction, or refuses it. "summarize" is
            ``Summarize(keep_turns=…)`` with the turn's own model; None: nothing is done.
        context_management: `ServerCompaction`, `ServerToolClearing`, `ServerThinkingClearing`. What the wire
            or the host does not have is left out of the request, and so is the clearing of thinking where a
            request asks for none: what happens there is what the strategy does when its trigger fires. The
            setting of the same name wins, and raises ValueError instead.
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
            return NoChange("the wire has no compaction of the provider's")
        if fallback == "summarize":
            fallback = Summarize(keep_turns=self.keep_turns)
        planned = fallback(request)
        if isinstance(planned, Generator):
            return (yield from planned)
        return planned


def _newest_boundary(turns: Sequence[TurnView]) -> int:
    """The newest turn in which the provider compacted all before it; -1 if there is none."""
    for at in range(len(turns) - 1, -1, -1):
        if any(b"compaction" in entry for entry in turns[at].entries) and turns[at].has_boundary:
            return at
    return -1
