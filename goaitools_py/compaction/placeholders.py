"""Strategies that leave every message in its place, and put a word where its bulk was.

Owns: what becomes of old tool results and old media. Must never know: when they are asked, or a wire.

A rewritten message makes a new prefix, which no prompt cache has. So they wait until a batch of them can go
at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..messages import Message, Part, Text
from ..values import replace
from .base import CompactionRequest, NoChange, OwnStrategy, Turns
from .strategies import check_count, recent_from
from .turns import Piece, TurnView

__all__ = ["CLEARED", "ClearToolResults", "DropMedia", "is_answer", "shown_media"]

_SHARE: Final = 6
"""One of so many parts of the history has to be worth a new prefix: a fixed number of results is too few for
a long history, whose every byte is then written to the cache again, and too many for a short one."""

CLEARED: Final = "[result left out]"
"""What stands where a tool result was."""


class ClearToolResults(OwnStrategy, frozen=True):
    """Put a few words in the place of tool results, all but the newest `keep` of them.

    The calls stay, so the model sees what it asked and may ask again. Results of one exchange go together;
    short ones stay, and so do those of the last `min_recent_turns`.

    `at_least`: wait until so many can go at once. None: until what would go is a sixth of the history, which
    benchmarks/compaction.py found to be cheap where writing the cache costs extra.
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
    """Put ``[image/png, 24 KB, left out]`` in the place of pictures, documents and sound in users' messages
    and tool results, but for those of the last `after_turns` turns. A message with parts that this release
    has no word for (`Message.unread`) stays as it is, for to write it anew would lose them.

    `at_least`: wait until so many can go at once. None: as many as the last turns have, and one at least.
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
    """True for results that can be written anew: nothing but results of the turn's own calls."""
    calls = {call.id for message in turn.messages for call in message.tool_calls}
    return all(message.role == "tool" and message.tool_call_id in calls for message in piece.messages)


def _cleared(turn: TurnView, piece: Piece) -> tuple[Piece, int]:
    """The piece without what its results say, and how many said something."""
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
    """A picture, document or sound in a few words: its type and size."""
    if isinstance(part, Text):
        return ""
    size = len(part.data or b"")
    if not size:
        return part.media_type
    return f"{part.media_type}, {f'{round(size / 1000)} KB' if size >= 1000 else f'{size} bytes'}"
