"""Strategies that drop turns: which ones stay when a history shrinks.

Owns: small callables from `CompactionRequest` to kept turns, and what "the last so many turns" are.
Must never know: when they are asked.

They work on whole turns, so that no call is cut from its result, and never keep nothing. A note that a
compaction wrote is no turn to them: the newest summary stays with what stays, for it stands for all before.

A cut throws the provider's prompt cache away, so it should be rare and deep: cut to 25-50 % of the trigger's
limit. A window that slides with every turn is the dearest of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from .base import CompactionRequest, Kept, NoChange, OwnStrategy, Turns
from .turns import COMPACTED, TurnView

__all__ = [
    "DropOldest",
    "KeepRecentTurns",
    "MiddleOut",
    "Size",
    "Target",
    "check_count",
    "drop_to",
    "fitting",
    "gap_between",
    "message_size",
    "newest_summary",
    "recent_from",
    "token_size",
]

Size: TypeAlias = Callable[[TurnView], int]
Target: TypeAlias = tuple[Size, int]
"""What is counted of a turn, and how much of it all that stays may have."""

GAP: Final = "Some turns of this conversation are left out here."


class KeepRecentTurns(OwnStrategy, frozen=True):
    """Keep the last `turns` turns. A turn is a user's input with every reply and tool result to it.

    With a trigger that fires every few turns this is deep enough; behind ``TurnLimit(turns)`` it slides.
    """

    turns: int

    def __post_init__(self) -> None:
        check_count("KeepRecentTurns", self.turns, 1)

    def __call__(self, request: CompactionRequest) -> Turns:
        turns = request.turns
        start = recent_from(turns, self.turns)
        return (*newest_summary(turns[:start]), *turns[start:])


class DropOldest(OwnStrategy, frozen=True, kw_only=True):
    """Drop turns, oldest first, until the rest fits the target; the last `min_recent_turns` always stay.

    Exactly one of `target_tokens` (estimated) and `target_messages` (neutral messages) is given: 25-50 % of
    what the trigger allows, so that the next cut is far away. Where the turns that always stay are too much
    already, the report says so.
    """

    target_tokens: int | None = None
    target_messages: int | None = None
    min_recent_turns: int = 1

    def __post_init__(self) -> None:
        if (self.target_tokens is None) == (self.target_messages is None):
            raise ValueError("DropOldest takes exactly one of target_tokens and target_messages")
        check_count("min_recent_turns", self.min_recent_turns, 1)

    def __call__(self, request: CompactionRequest) -> Turns:
        if self.target_tokens is not None:
            target, unit = (token_size, self.target_tokens), "tokens"
        else:
            target, unit = (message_size, self.target_messages or 0), "messages"
        turns = request.turns
        kept = fitting(turns, [target], self.min_recent_turns)
        size = sum(map(target[0], kept))
        if size <= target[1]:
            return kept
        reason = f"the newest {len(kept)} turns, which always stay, take {size} of {target[1]} {unit}"
        return Kept(kept, reason) if len(kept) < len(turns) else NoChange(reason)


class MiddleOut(OwnStrategy, frozen=True, kw_only=True):
    """Keep the `first` and the `last` turns: how the conversation began, and where it is.

    `note` stands where the others were, once, however often turns go there; "" leaves it out.
    """

    first: int = 1
    last: int = 4
    note: str = GAP

    def __post_init__(self) -> None:
        check_count("first", self.first, 1)
        check_count("last", self.last, 1)

    def __call__(self, request: CompactionRequest) -> Turns:
        turns = request.turns
        head = _first_to(turns, self.first)
        return gap_between(request, head, max(head, recent_from(turns, self.last)), self.note)


# ---------------------------------------------------------------------------------------- what they share


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or too small. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} takes a whole number from {least} on, got {value!r}")


def recent_from(turns: Sequence[TurnView], count: int) -> int:
    """Where the last `count` turns begin; notes are none. 0 if there are no more than these."""
    left = count
    for at in reversed(range(len(turns))):
        if not left:
            return at + 1
        left -= not turns[at].note
    return 0


def _first_to(turns: Sequence[TurnView], count: int) -> int:
    """Where the first `count` turns end; notes before them are among them."""
    left = count
    for at, turn in enumerate(turns):
        left -= not turn.note
        if not left:
            return at + 1
    return len(turns)


def newest_summary(turns: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """The newest summary among these, ours or the provider's own, if there is one."""
    return next(((turn,) for turn in reversed(turns) if turn.note in ("summary", COMPACTED)), ())


def gap_between(request: CompactionRequest, head: int, tail: int, note: str) -> Turns:
    """The turns without those from `head` up to `tail`, and a note in their place."""
    turns = request.turns
    gap = turns[head:tail]
    size = sum(turn.entry_bytes for turn in gap if not turn.note)
    if not size:
        return turns
    here = next(((turn,) for turn in gap if turn.note == "gap"), ())
    if note and not here:
        written = request.note(note, kind="gap")
        here = (written,) if written.entry_bytes < size else ()
    return (*turns[:head], *newest_summary(gap), *(here if note else ()), *turns[tail:])


def token_size(turn: TurnView) -> int:
    """Estimated tokens."""
    return turn.tokens


def message_size(turn: TurnView) -> int:
    """Neutral messages."""
    return turn.message_count


def fitting(
    turns: Sequence[TurnView],
    targets: Sequence[Target],
    min_recent_turns: int,
    beside: Sequence[TurnView] = (),
) -> Sequence[TurnView]:
    """The longest tail within all targets, but never fewer than the minimum; with the newest summary of what
    goes, as far as that fits too.

    `beside`: what else will stay, and counts.
    """

    start = recent_from(turns, min_recent_turns)
    left = [most - sum(map(size, (*beside, *turns[start:]))) for size, most in targets]

    def takes(turn: TurnView) -> bool:
        sizes = [size(turn) for size, _ in targets]
        if any(need > rest for need, rest in zip(sizes, left, strict=True)):
            return False
        left[:] = [rest - need for need, rest in zip(sizes, left, strict=True)]
        return True

    summary = tuple(filter(takes, newest_summary(turns[:start])))
    while start and (_is_first(turns[start - 1], summary) or takes(turns[start - 1])):
        if _is_first(turns[start - 1], summary):
            summary = ()  # it stands in its own place
        start -= 1
    return (*summary, *turns[start:])


def _is_first(turn: TurnView, turns: Sequence[TurnView]) -> bool:
    return bool(turns) and turns[0] is turn


def drop_to(
    turns: Sequence[TurnView], target: int, size: Size, min_recent_turns: int = 1
) -> Sequence[TurnView]:
    """The longest tail of `turns` whose summed `size` is within `target`, never under the minimum."""
    return fitting(turns, [(size, target)], min_recent_turns)
