"""A strategy that replaces each old tool exchange by one line of text.

Owns: how calls and results read as text. Must never know: when it runs, or a provider API.

``get_score(team=Red) -> 30`` takes a fifth of the tokens that the call and its result take in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from json import dumps
from typing import Any, Final

from ..state.letters import TOOL
from ..types.messages import Message, Text, ToolCall
from .base import CompactionRequest, NoChange, OwnStrategy, Turns
from .placeholders import is_answer, shown_media
from .strategies import check_count, recent_from
from .turn_views import Piece, TurnView

__all__ = ["CollapseToolExchanges"]

_CUT: Final = "…"


class CollapseToolExchanges(OwnStrategy, frozen=True, kw_only=True):
    """Replace the tool exchanges of all but the last `keep_turns` turns by a note with one line for each:
    ``get_score(team=Red) -> 30``. The note stands before the reply that the exchanges led to.

    The note says that it comes from the application. A model that reads its calls as its own text might
    start to write calls as text.

    Args:
        keep_turns: This number of newest turns stays unchanged.
        max_characters: The longest text for a call's arguments, its result, and the model's words with it.
        at_least: Wait until this number of exchanges can be replaced at once. None: as many as the newest
            turns have, and at least one.
    """

    keep_turns: int = 2
    max_characters: int = 200
    at_least: int | None = None

    def __post_init__(self) -> None:
        check_count("keep_turns", self.keep_turns, 1)
        check_count("max_characters", self.max_characters, 1)
        check_count("at_least", self.at_least if self.at_least is not None else 1, 1)

    def __call__(self, request: CompactionRequest) -> Turns:
        turns = list(request.turns)
        recent = recent_from(turns, self.keep_turns)
        count = 0
        for at in range(recent):
            turns[at], lines = self._collapsed(request, turns[at])
            count += lines
        if not count:
            return NoChange("there are no old tool exchanges to collapse")
        stays = sum(bool(one.tool_calls) for turn in turns[recent:] for one in turn.messages)
        if count < (needed := self.at_least or max(1, stays)):
            return NoChange(
                f"{count} tool exchanges could be collapsed; the strategy waits until there are {needed}"
            )
        return tuple(turns)

    def _collapsed(self, request: CompactionRequest, turn: TurnView) -> tuple[TurnView, int]:
        """The turn with its exchanges replaced, and how many; the same turn if it would not get smaller."""
        if not any(TOOL in letters for letters in turn.roles):
            return turn, 0
        kept: list[Piece] = []
        lines: list[str] = []
        count = 0
        pieces = turn.pieces
        at = 0
        while at < len(pieces):
            piece = pieces[at]
            if piece.role == "assistant" and not piece.is_settled:
                return turn, 0  # its hosted calls have their results in another message
            results = pieces[at + 1] if at + 1 < len(pieces) else None
            if results is not None and results.role == "tool" and _is_exchange(turn, piece, results):
                lines.append(self._line(piece.messages, results.messages))
                at += 2
                continue
            if lines:
                kept.append(_note(request, lines, piece.iteration))
                count, lines = count + len(lines), []
            kept.append(piece)
            at += 1
        if lines:
            kept.append(_note(request, lines, pieces[-1].iteration))
            count += len(lines)
        if not count:
            return turn, 0
        new = turn.with_pieces(kept)
        return (new, count) if new.entry_bytes < turn.entry_bytes else (turn, 0)

    def _line(self, said: Sequence[Message], results: Sequence[Message]) -> str:
        answers = {one.tool_call_id: one for one in results}
        words = self._bounded(" ".join(one.text for one in said if one.text))
        calls = "; ".join(
            f"{call.name}({self._bounded(_arguments(call))}) -> "
            f"{self._bounded(_result(answers.get(call.id)))}"
            for one in said
            for call in one.tool_calls
        )
        return f"{words} {calls}" if words else calls

    def _bounded(self, text: str) -> str:
        text = " ".join(text.split())
        most = self.max_characters
        return text if len(text) <= most else text[: most - 1] + _CUT


def _is_exchange(turn: TurnView, piece: Piece, results: Piece) -> bool:
    """True if `results` are the results of all calls of the reply, and nothing else."""
    if piece.role != "assistant" or not is_answer(turn, results):
        return False
    made = [call.id for one in piece.messages for call in one.tool_calls]
    return bool(made) and made == [one.tool_call_id for one in results.messages]


def _note(request: CompactionRequest, lines: Sequence[str], iteration: int) -> Piece:
    view = request.note("\n".join(lines), kind="tools")
    return Piece(
        role="user", iteration=iteration, entries=view.entries, letters="".join(view.roles), words=view.words
    )


def _arguments(call: ToolCall) -> str:
    given: Any = None
    with suppress(ValueError):
        given = call.parsed
    if not isinstance(given, dict):
        return call.arguments
    return ", ".join(f"{name}={_value(value)}" for name, value in given.items())


def _value(value: object) -> str:
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False, separators=(",", ":"))


def _result(result: Message | None) -> str:
    if result is None:
        return ""
    return " ".join(
        part.text if isinstance(part, Text) else f"[{shown_media(part)}]" for part in result.parts
    )
