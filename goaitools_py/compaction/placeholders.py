"""Strategies that keep every turn, and replace old results, media and tool exchanges by a short text.

Owns: the texts that stand in their place, and how calls and results read as text. Must never know: when they
run, or a provider API.

A rewritten message changes the prefix of every later request, and the prompt cache does not have the new
prefix. So these strategies wait until they can rewrite several messages at once.

A collapsed exchange is one line: ``get_score(team=Red) -> 30`` takes a fifth of the tokens that the call and
its result take in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from json import dumps
from typing import Any, Final

from ..base.values import replace
from ..state.letters import TOOL
from ..types.messages import Message, Part, Text, ToolCall
from .base import CompactionRequest, NoChange, OwnStrategy, Turns
from .strategies import check_count, recent_from
from .turn_views import Piece, TurnView

__all__ = ["CLEARED", "ClearToolResults", "CollapseToolExchanges", "DropMedia", "is_answer"]

_SHARE: Final = 6
"""Clear results only if they are one sixth of the history or more. A fixed number would be too small for a
long history, which is written to the cache again as a whole, and too large for a short one."""

CLEARED: Final = "[result left out]"
"""The text that replaces a tool result."""


class ClearToolResults(OwnStrategy, frozen=True):
    """Replace all tool results but the newest `keep` by a few words.

    The calls stay: the model sees its calls, and may call again. The results of one exchange are replaced
    together. Short results stay, and so do the results of the last `min_recent_turns` turns.

    `at_least`: wait until this number of results can be replaced at once. None: until they are a sixth of
    the history. benchmarks/compaction.py found this to be cheap where writing the cache costs extra.
    """

    keep: int = 3
    at_least: int | None = None
    min_recent_turns: int = 0

    def __post_init__(self) -> None:
        check_count("keep", self.keep, 0)
        check_count("at_least", self.at_least if self.at_least is not None else 1, 1)
        check_count("min_recent_turns", self.min_recent_turns, 0)

    def __call__(self, request: CompactionRequest) -> Turns:
        turns = list(request.turns)
        recent = recent_from(turns, self.min_recent_turns)
        newer = count = 0
        for at in reversed(range(len(turns))):
            pieces = list(turns[at].pieces)
            changed = 0
            for number in reversed(range(len(pieces))):
                piece = pieces[number]
                if piece.role != "tool":
                    continue
                if newer >= self.keep and at < recent:
                    pieces[number], gone = _cleared(turns[at], piece)
                    changed += gone
                newer += len(piece.messages)
            if changed:
                turns[at] = turns[at].with_pieces(pieces)
                count += changed
        if self.at_least is not None:
            return _batch(turns, count, self.at_least, "tool results")
        size = sum(turn.entry_bytes for turn in request.turns)
        gone = size - sum(turn.entry_bytes for turn in turns)
        if count and _SHARE * gone < size:
            return NoChange(
                f"{count} old tool results could be left out; the strategy waits until they are a sixth of "
                "the history"
            )
        return _batch(turns, count, 1, "tool results")


class DropMedia(OwnStrategy, frozen=True, kw_only=True):
    """Replace pictures, documents and sound in users' messages and tool results by a text such as
    ``[image/png, 24 KB, left out]``. Media of the last `after_turns` turns stay.

    A message with parts that this release cannot read (`Message.unread`) stays unchanged, because rewriting
    it would lose those parts. A pinned message stays unchanged, too.

    `at_least`: wait until this number of media can be replaced at once. None: as many as the last turns
    have, and at least one.
    """

    after_turns: int = 2
    at_least: int | None = None

    def __post_init__(self) -> None:
        check_count("after_turns", self.after_turns, 1)
        check_count("at_least", self.at_least if self.at_least is not None else 1, 1)

    def __call__(self, request: CompactionRequest) -> Turns:
        turns = list(request.turns)
        recent = recent_from(turns, self.after_turns)
        count = 0
        for at in range(recent):
            pieces = [_without_media(turns[at], piece) for piece in turns[at].pieces]
            if gone := sum(number for _, number in pieces):
                turns[at] = turns[at].with_pieces([piece for piece, _ in pieces])
                count += gone
        stays = sum(1 for turn in turns[recent:] for _ in _media(turn.messages))
        return _batch(turns, count, self.at_least or max(1, stays), "pictures, documents and sounds")


def _batch(turns: Sequence[TurnView], count: int, needed: int, what: str) -> Turns:
    if not count:
        return NoChange(f"there are no old {what} to leave out")
    if count < needed:
        return NoChange(f"{count} old {what} could be left out; the strategy waits until there are {needed}")
    return tuple(turns)


# ------------------------------------------------------------------------------------------ tool results


def is_answer(turn: TurnView, piece: Piece) -> bool:
    """True if the piece can be rewritten: it holds only results of the turn's own calls."""
    calls = {call.id for message in turn.messages for call in message.tool_calls}
    return all(message.role == "tool" and message.tool_call_id in calls for message in piece.messages)


def _cleared(turn: TurnView, piece: Piece) -> tuple[Piece, int]:
    """The piece with its long results replaced, and how many were replaced."""
    messages = piece.messages
    said = [_is_long(message) for message in messages]
    if not any(said) or not is_answer(turn, piece):
        return piece, 0
    new = turn.rewritten(
        piece,
        *(
            replace(message, parts=(Text(CLEARED),)) if is_long else message
            for message, is_long in zip(messages, said, strict=True)
        ),
    )
    if sum(map(len, new.entries)) >= sum(map(len, piece.entries)):
        return piece, 0
    return new, sum(said)


def _is_long(result: Message) -> bool:
    if result.unread or any(not isinstance(part, Text) for part in result.parts):
        return True
    return len(result.text.encode("utf-8", "replace")) > len(CLEARED)


# ------------------------------------------------------------------------------------------------- media


def _media(messages: Sequence[Message]) -> Iterator[Part]:
    for message in messages:
        yield from (part for part in message.parts if not isinstance(part, Text))


def _without_media(turn: TurnView, piece: Piece) -> tuple[Piece, int]:
    messages = piece.messages
    count = sum(1 for _ in _media(messages))
    if not count or piece.is_pinned or any(message.unread for message in messages):
        return piece, 0
    is_said = piece.role == "user" and all(message.role == "user" for message in messages)
    if not is_said and not (piece.role == "tool" and is_answer(turn, piece)):
        return piece, 0
    return turn.rewritten(
        piece, *(replace(one, parts=tuple(map(_worded, one.parts))) for one in messages)
    ), count


def _worded(part: Part) -> Part:
    return part if isinstance(part, Text) else Text(f"[{_shown_media(part)}, left out]")


def _shown_media(part: Part) -> str:
    """Describe a picture, document or sound: its type and its size."""
    if isinstance(part, Text):
        return ""
    size = len(part.data or b"")
    if not size:
        return part.media_type
    return f"{part.media_type}, {f'{round(size / 1000)} KB' if size >= 1000 else f'{size} bytes'}"


# ---------------------------------------------------------------------------------------- tool exchanges


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
        part.text if isinstance(part, Text) else f"[{_shown_media(part)}]" for part in result.parts
    )
