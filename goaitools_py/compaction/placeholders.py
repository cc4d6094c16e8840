"""Strategies that keep every message and replace its large parts by a short text.

Owns: the texts that replace old tool results and old media. Must never know: when they run, or a provider
API.

A rewritten message changes the prefix of every later request, and the prompt cache does not have the new
prefix. So these strategies wait until they can rewrite several messages at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..base.values import replace
from ..types.messages import Message, Part, Text
from .base import CompactionRequest, NoChange, OwnStrategy, Turns
from .strategies import check_count, recent_from
from .turn_views import Piece, TurnView

__all__ = ["CLEARED", "ClearToolResults", "DropMedia", "is_answer", "shown_media"]

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
    it would lose those parts.

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
    if not count or any(message.unread for message in messages):
        return piece, 0
    is_said = piece.role == "user" and all(message.role == "user" for message in messages)
    if not is_said and not (piece.role == "tool" and is_answer(turn, piece)):
        return piece, 0
    return turn.rewritten(
        piece, *(replace(one, parts=tuple(map(_worded, one.parts))) for one in messages)
    ), count


def _worded(part: Part) -> Part:
    return part if isinstance(part, Text) else Text(f"[{shown_media(part)}, left out]")


def shown_media(part: Part) -> str:
    """Describe a picture, document or sound: its type and its size."""
    if isinstance(part, Text):
        return ""
    size = len(part.data or b"")
    if not size:
        return part.media_type
    return f"{part.media_type}, {f'{round(size / 1000)} KB' if size >= 1000 else f'{size} bytes'}"
