"""Strategies that drop turns: which ones stay when a history shrinks.

Owns: small callables from `CompactionRequest` to the turns that stay, how "the last n turns" are counted, and
the note that names the tools of dropped turns.
Must never know: when they run.

They work on whole turns, so a call never loses its result, and they always keep at least one turn. A note
that a compaction wrote does not count as a turn, and neither do pinned messages that are left of a turn. The
newest summary stays, because it replaces all turns before it.

A cut makes the provider's prompt cache useless. So cut rarely and deeply: to 25-50 % of the trigger's limit.
A window that slides with every turn costs most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from .base import CompactionRequest, Kept, NoChange, OwnStrategy, Turns
from .turn_views import COMPACTED, TurnView, with_pinned

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
    "recent_from",
    "token_size",
]

Size: TypeAlias = Callable[[TurnView], int]
Target: TypeAlias = tuple[Size, int]
"""How the size of a turn is measured, and the largest total of the turns that stay."""

GAP: Final = "Some turns of this conversation are left out here."

_TOOLS: Final = "Earlier turns of this conversation are left out here. Their tool calls, by tool: "
_USED: Final = r"([A-Za-z0-9_.-]+) \((\d{1,15})\)"
_MOST_TOOLS: Final = 20


class KeepRecentTurns(OwnStrategy, frozen=True):
    """Keep the last `turns` turns. A turn is the user's input with all its replies and tool results.

    Use it with a trigger that fires once in several turns. With ``TurnLimit(turns)`` it cuts in every turn.

    `notes_tools`: a note in the place of the dropped turns names the tools that were called in them, and how
    often: the last 20 tools. A later cut adds to the numbers.
    """

    turns: int
    notes_tools: bool = False

    def __post_init__(self) -> None:
        check_count("KeepRecentTurns", self.turns, 1)
        if not isinstance(self.notes_tools, bool):
            raise TypeError(f"notes_tools must be True or False, got {type(self.notes_tools).__name__}")

    def __call__(self, request: CompactionRequest) -> Turns:
        turns = request.turns
        start = recent_from(turns, self.turns)
        notes = (*_newest_summary(turns[:start]), *self._noted(request, turns[:start]))
        return (*sorted(notes, key=lambda note: note.position % len(turns)), *turns[start:])

    def _noted(self, request: CompactionRequest, gone: Sequence[TurnView]) -> tuple[TurnView, ...]:
        return _tools_note(request, gone) if self.notes_tools else ()


class DropOldest(OwnStrategy, frozen=True, kw_only=True):
    """Drop the oldest turns until the rest fits the target. The last `min_recent_turns` turns always stay.

    Give exactly one of `target_tokens` (estimated) and `target_messages` (neutral messages). A good target is
    25-50 % of the trigger's limit: the next cut is then many turns away. If the turns that always stay are
    above the target, the report says so.
    """

    target_tokens: int | None = None
    target_messages: int | None = None
    min_recent_turns: int = 1

    def __post_init__(self) -> None:
        if (self.target_tokens is None) == (self.target_messages is None):
            raise ValueError("DropOldest takes exactly one of target_tokens and target_messages")
        for name in ("target_tokens", "target_messages"):
            if (target := getattr(self, name)) is not None:
                check_count(name, target, 1)
        check_count("min_recent_turns", self.min_recent_turns, 1)

    def __call__(self, request: CompactionRequest) -> Turns:
        if self.target_tokens is not None:
            target, unit = (token_size, self.target_tokens), "tokens"
        else:
            target, unit = (message_size, self.target_messages or 0), "messages"
        turns = request.turns
        kept = fitting(turns, [target], self.min_recent_turns)
        stays = with_pinned(turns, kept)
        size = sum(map(target[0], stays))
        if size <= target[1]:
            return kept
        pinned = ", and the pinned messages" if len(stays) > len(kept) else ""
        reason = f"the newest {len(kept)} turns{pinned}, which always stay, take {size} of {target[1]} {unit}"
        return Kept(kept, reason) if len(kept) < len(turns) else NoChange(reason)


class MiddleOut(OwnStrategy, frozen=True, kw_only=True):
    """Keep the `first` turns and the `last` turns, and drop the turns between them.

    `note` is a text that stands in the gap, once, also after several cuts. "" leaves it out.
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


# ---------------------------------------------------------------------------------- shared by strategies


def check_count(name: str, value: object, least: int) -> None:
    """Raise ValueError if the value is not a whole number, or below `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} takes a whole number from {least} on, got {value!r}")


def recent_from(turns: Sequence[TurnView], count: int) -> int:
    """The index at which the last `count` turns begin; see `TurnView.is_turn`. 0 if there are no others."""
    left = count
    for at in reversed(range(len(turns))):
        if not left:
            return at + 1
        left -= turns[at].is_turn
    return 0


def _first_to(turns: Sequence[TurnView], count: int) -> int:
    """The index after the first `count` turns; see `TurnView.is_turn`."""
    left = count
    for at, turn in enumerate(turns):
        left -= turn.is_turn
        if not left:
            return at + 1
    return len(turns)


def _newest_summary(turns: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """The newest summary among these turns, ours or the provider's; () without a summary."""
    return next(((turn,) for turn in reversed(turns) if turn.note in ("summary", COMPACTED)), ())


def gap_between(request: CompactionRequest, head: int, tail: int, note: str) -> Turns:
    """Replace the turns from index `head` up to `tail` by a note."""
    turns = request.turns
    gap = turns[head:tail]
    size = sum(turn.entry_bytes - turn.pinned_bytes for turn in gap if not turn.note)
    if not size:
        return turns
    here = next(((turn,) for turn in gap if turn.note == "gap"), ())
    if note and not here:
        written = request.note(note, kind="gap")
        here = (written,) if written.entry_bytes < size else ()
    return (*turns[:head], *_newest_summary(gap), *(here if note else ()), *turns[tail:])


def _tools_note(request: CompactionRequest, gone: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """The note that names the tools of these turns, of which the last may be an earlier note; () without."""
    used: Counter[str] = Counter()
    fresh = False
    for turn in gone:
        if turn.note == "tools":
            found = re.findall(_USED, "".join(one.text for one in turn.messages))
            used.update({name: int(count) for name, count in found})
        elif not turn.note:
            calls = [call.name for one in turn.messages for call in one.tool_calls]
            fresh = fresh or bool(calls)
            for name in calls:
                used[name] = used.pop(name, 0) + 1  # the tool that was called last is the last one
    old = next(((turn,) for turn in reversed(gone) if turn.note == "tools"), ())
    if not fresh:
        return old
    named = [f"{name} ({count})" for name, count in used.items()][-_MOST_TOOLS:]
    written = request.note(f"{_TOOLS}{', '.join(named)}.", kind="tools")
    size = sum(turn.entry_bytes - turn.pinned_bytes for turn in gone)
    return (written,) if written.entry_bytes < size else old


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
    keeps_systems: bool = True,
) -> Sequence[TurnView]:
    """The longest tail that fits all targets, but at least the minimum. The newest summary of the dropped
    turns stays too, if it fits.

    `beside`: turns that stay in any case; they count towards the targets, and so do the pinned messages of
    dropped turns. `keeps_systems`: as in `with_pinned`.
    """
    kept = _tail(turns, targets, min_recent_turns, beside)
    stays = (*beside, *with_pinned(turns, kept, keeps_systems=keeps_systems))
    if len(stays) == len(beside) + len(kept) or all(sum(map(size, stays)) <= most for size, most in targets):
        return kept
    older = turns[: recent_from(turns, min_recent_turns)]
    pinned = with_pinned(older, (), keeps_systems=keeps_systems)
    return _tail(turns, targets, min_recent_turns, (*beside, *pinned))


def _tail(
    turns: Sequence[TurnView],
    targets: Sequence[Target],
    min_recent_turns: int,
    beside: Sequence[TurnView],
) -> Sequence[TurnView]:
    start = recent_from(turns, min_recent_turns)
    left = [most - sum(map(size, (*beside, *turns[start:]))) for size, most in targets]

    def takes(turn: TurnView) -> bool:
        sizes = [size(turn) for size, _ in targets]
        if any(need > rest for need, rest in zip(sizes, left, strict=True)):
            return False
        left[:] = [rest - need for need, rest in zip(sizes, left, strict=True)]
        return True

    summary = tuple(filter(takes, _newest_summary(turns[:start])))
    while start and (_is_first(turns[start - 1], summary) or takes(turns[start - 1])):
        if _is_first(turns[start - 1], summary):
            summary = ()  # the tail has reached the summary itself
        start -= 1
    return (*summary, *turns[start:])


def _is_first(turn: TurnView, turns: Sequence[TurnView]) -> bool:
    return bool(turns) and turns[0] is turn


def drop_to(
    turns: Sequence[TurnView], target: int, size: Size, min_recent_turns: int = 1
) -> Sequence[TurnView]:
    """The longest tail of `turns` with a total `size` within `target`, but at least the minimum."""
    return fitting(turns, [(size, target)], min_recent_turns)
