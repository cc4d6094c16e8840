"""A strategy that lets a model summarise the older part of a history.

Owns: the instruction, and which answers can be used. Must never know: how a model is asked.

The request is the conversation's own prefix with the instruction at its end. The provider has that prefix in
its prompt cache, so it costs a tenth of a transcript.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from ..backends.dialects import WIRES
from .base import AskModel, CompactionRequest, ModelAnswer, NoChange, OwnStrategy, Turns
from .strategies import check_count, recent_from

__all__ = ["INSTRUCTION", "Summarize"]

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
        count = sum(not turn.note for turn in older)
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
        if note.entry_bytes >= (size := sum(turn.entry_bytes for turn in older)):
            return NoChange(f"the summary takes {note.entry_bytes} bytes, and what it would replace {size}")
        return (note, *turns[start:])
