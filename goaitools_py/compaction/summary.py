"""Strategies that have the older part of a history summarised: by a model, or by the provider itself.

Owns: the instruction to the model, which answers can be used, which turns the provider compacts, and the
fallback where the provider API has no compaction. Must never know: how a model is asked, or how a provider
API writes the request.

The request to a model is the conversation's own prefix with the instruction at its end. The provider has that
prefix in its prompt cache, so it costs a tenth of a transcript.

After a compaction of the provider the reasoning of the turns that stay remains valid, because the provider
checks signatures only after its newest compaction. After any other cut that reasoning has to be removed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, Literal

from ..backends.dialects import WIRES
from ..types.request_parts import ContextEdit, check_edits
from .base import (
    AskFailed,
    AskModel,
    AskProvider,
    CompactionRequest,
    ModelAnswer,
    NoChange,
    OwnStrategy,
    Strategy,
    Turns,
    check_strategy,
)
from .strategies import check_count, recent_from
from .turn_views import COMPACTED, TurnView

__all__ = ["INSTRUCTION", "ProviderCompaction", "Summarize"]

INSTRUCTION: Final = """\
Summarise the conversation above. Your summary will stand in its place: whoever goes on with the \
conversation sees the summary and none of those messages.

Keep, as exactly as it was said:
- names, numbers, dates, places, identifiers, file names, links, quotations that matter;
- what people are like, what they want, and what they said must or must not happen;
- what was decided and why, what was tried and failed;
- what events and tool results said, the newest value where one replaced another;
- what is still open: questions without an answer, promises, tasks, the next step.
If an earlier summary stands in the conversation, carry over all of it that still holds.

Leave out greetings, repetitions and how things were worded. Add nothing, judge nothing, answer nothing, and \
call no tool. Write in the language of the conversation, in short sentences or lists, and begin at once with \
the content."""

_LEAD: Final = "Summary of the conversation up to here, in place of its messages:\n"

_APIS: Final = (*WIRES, "sim")
"""How the name of a backend may begin."""

_UNUSABLE: Final = {
    "length": "the summary was cut off at the output limit",
    "refusal": "the model refused to write a summary",
    "pause": "the model did not finish its summary",
}


class Summarize(OwnStrategy, frozen=True):
    """Let a model summarise all but the last `keep_turns` turns. Its text replaces them, as a note.

    An earlier summary is summarised too, and replaced. If the summary is empty, refused, cut off, or longer
    than the turns that it would replace, nothing changes and the report says why.

    Args:
        backend: Another, cheaper model: a backend, or a name such as "openai:MODEL". It gets a transcript.
            None: the model of the turn, which gets the prefix that its provider has cached.
        keep_turns: This number of newest turns stays word for word.
        at_least: Ask only if this number of turns would be summarised. None: one; if there is a summary
            already, `keep_turns`, so that the summary is not rewritten in every turn.
        max_output_tokens: The longest summary, in tokens; None leaves it to the chat's settings.
        instruction: The prompt for the summary. The default lists the facts that a summary has to keep.
    """

    backend: Any = None
    keep_turns: int = 4
    at_least: int | None = None
    max_output_tokens: int | None = None
    instruction: str = INSTRUCTION

    def __post_init__(self) -> None:
        if not (self.backend is None or isinstance(self.backend, str) or hasattr(self.backend, "dialect")):
            raise TypeError(
                "Summarize takes a backend, or a name such as 'openai:MODEL', got "
                f"{type(self.backend).__name__}; the number of turns that stay is keep_turns=…"
            )
        if isinstance(self.backend, str) and self.backend.partition(":")[0] not in _APIS:
            # A turn would only warn that there is no summary, and the history would grow.
            raise ValueError(
                f"Summarize takes a backend, or a name such as 'openai:MODEL', got {self.backend!r}; the "
                f"names begin with {', '.join(_APIS)}"
            )
        check_count("keep_turns", self.keep_turns, 1)
        check_count("at_least", self.at_least if self.at_least is not None else 1, 1)
        if self.max_output_tokens is not None:
            check_count("max_output_tokens", self.max_output_tokens, 1)

    def __call__(self, request: CompactionRequest) -> Generator[AskModel, ModelAnswer, Turns]:
        turns = request.turns
        start = recent_from(turns, self.keep_turns)
        older = turns[:start]
        count = sum(turn.is_turn for turn in older)
        has_summary = any(turn.note == "summary" for turn in older)
        needed = self.at_least or (self.keep_turns if has_summary else 1)
        if count < needed:
            return NoChange(
                f"{count} turns are older than the last {self.keep_turns}; a summary waits for {needed}"
            )
        answer = yield AskModel(
            turns=older,
            instruction=self.instruction,
            backend=self.backend,
            max_output_tokens=self.max_output_tokens,
        )
        text = answer.text.strip()
        if answer.stop != "end":
            return NoChange(_UNUSABLE.get(answer.stop, f"the summary ended with {answer.stop!r}"))
        if not text:
            return NoChange("the summary is empty")
        note = request.note(f"{_LEAD}{text}", kind="summary")
        if note.entry_bytes >= (size := sum(turn.entry_bytes - turn.pinned_bytes for turn in older)):
            return NoChange(f"the summary takes {note.entry_bytes} bytes, and what it would replace {size}")
        return (note, *turns[start:])


# --------------------------------------------------------------------------------------- by the provider


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
        count = sum(turn.is_turn for turn in older)
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
