"""Which context blocks outlive a cut: the newest, and no other.

Owns: finding the blocks of a history, and taking the older ones out of it. Must never know: why it is cut.

A context block (`ChatOptions.context`) is said once and holds until another is said. So when the turn that
carries the newest one goes, the block moves to the next turn that stays, as a message of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..backends.base import Dialect
from ..messages import Message, Part
from ..reading import read_entries
from ..render import is_context
from ..state.records import Iteration, TurnRecord
from ..state.state import ConversationState
from ..values import replace
from .unsign import Turn

__all__ = ["with_newest_context"]

_MARK: Final = b"<app-context>"
"""No user's own words hold this: they are escaped."""


def with_newest_context(
    state: ConversationState, turns: Sequence[Turn], kept: Sequence[tuple[int, Turn]], dialect: Dialect
) -> tuple[list[Turn], bool]:
    """What stays of a history, with its newest context block only, and whether that is still there.

    Args:
        state: The conversation before the cut.
        turns: Its closed turns.
        kept: Those that stay, each with its place among `turns`; -1 for one that is new.
        dialect: The wire's words.
    """
    newest: Part | None = None
    at = len(turns)  # the running turn has it
    if not _is_in_running(state, dialect):
        at, newest = next(
            (
                (place, blocks[-1])
                for place in reversed(range(len(turns)))
                if (blocks := [*_blocks(turns[place], dialect)])
            ),
            (-1, None),
        )
        if newest is None:
            return [turn for _, turn in kept], False
    found: list[Turn] = []
    has_it = newest is None
    for place, turn in kept:
        if place == at and any(True for _ in _blocks(turn, dialect)):
            has_it = True
        turn = _without_blocks(turn, dialect, keeps_last=place == at)
        if not has_it and place > at and newest is not None and _letters(turn[1]).strip("s"):
            turn, has_it = _with_block(turn, newest, dialect), True
        found.append(turn)
    return found, has_it


def _is_in_running(state: ConversationState, dialect: Dialect) -> bool:
    running = [(item.entry, item.letter) for item in state.inbox]
    opened = state.open
    if opened is not None:
        letters = "".join(iteration.roles for iteration in opened.iterations) + opened.letters
        running.extend(zip(opened.entries, letters, strict=True))
    return any(True for _ in _said(running, dialect))


def _blocks(turn: Turn, dialect: Dialect) -> Iterator[Part]:
    """The context blocks of a turn, in order."""
    entries, record = turn
    return _said(zip(entries, _letters(record), strict=True), dialect)


def _said(entries: Iterable[tuple[bytes, str]], dialect: Dialect) -> Iterator[Part]:
    """The context blocks among entries with their role letters. A tool's words, or a model's, are none."""
    for entry, letter in entries:
        if letter == "u" and _MARK in entry:
            for message in read_entries(dialect, [entry]):
                yield from filter(is_context, message.parts)


def _letters(record: TurnRecord) -> str:
    return "".join(iteration.roles for iteration in record.iterations)


def _without_blocks(turn: Turn, dialect: Dialect, *, keeps_last: bool) -> Turn:
    """The turn without its context blocks; the very turn if nothing is to go.

    A message that is nothing but a block goes as a whole, if the turn has another of the user's.
    """
    entries, record = turn
    letters = _letters(record)
    carriers = [at for at, entry in enumerate(entries) if letters[at] == "u" and _MARK in entry]
    if keeps_last:
        carriers = carriers[:-1]
    if not carriers:
        return turn
    left = list(entries)
    for at in carriers:
        messages = read_entries(dialect, [entries[at]])
        parts = [part for part in messages[0].parts if not is_context(part)]
        if len(messages) != 1 or len(parts) == len(messages[0].parts):
            continue
        if parts:
            (left[at],) = dialect.entries([replace(messages[0], parts=tuple(parts))])
        elif any(letters[other] in "ue" for other in range(len(left)) if other != at and left[other]):
            left[at] = b""
    stays = iter(left)
    iterations = tuple(
        replace(iteration, roles="".join(letter for letter in iteration.roles if next(stays)))
        for iteration in record.iterations
    )
    gone = left.count(b"")
    return [entry for entry in left if entry], replace(
        record, iterations=iterations, messages=record.messages - gone
    )


def _with_block(turn: Turn, block: Part, dialect: Dialect) -> Turn:
    """The turn with a message that is the block before all else."""
    entries, record = turn
    new = dialect.entries([Message(role="user", parts=(block,))])
    first, *others = record.iterations or (Iteration(roles=""),)
    first = replace(first, roles="u" * len(new) + first.roles)
    return [*new, *entries], replace(record, iterations=(first, *others), messages=record.messages + 1)
