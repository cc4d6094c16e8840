"""Context blocks and cuts: only the newest block stays.

Owns: how the blocks of a history are found, and how the older blocks are taken out. Must never know: why the
history is cut.

A context block (`ChatOptions.context`) is sent once and is valid until the next one. So when a cut removes
the turn with the newest block, the block moves to the next turn that stays, as a message of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...backends.base import Dialect
from ...backends.read_entries import read_entries
from ...base.values import replace
from ...state.closed_turns import ClosedTurn
from ...state.letters import EVENT, SYSTEM, USER
from ...state.state import ConversationState
from ...types.messages import Message, Part
from ...types.render import is_context

__all__ = ["with_newest_context"]

_MARK: Final = b"<app-context>"
"""A user's own text cannot contain this, because it is escaped."""


def with_newest_context(
    state: ConversationState,
    turns: Sequence[ClosedTurn],
    kept: Sequence[tuple[int, ClosedTurn]],
    dialect: Dialect,
) -> tuple[list[ClosedTurn], bool]:
    """The kept turns with the newest context block only, and whether that block is still in the history.

    Args:
        state: The conversation before the cut.
        turns: Its closed turns.
        kept: The turns that stay, each with its place among `turns`; -1 for a new turn.
        dialect: Reads and writes the entries.
    """
    newest: Part | None = None
    at = len(turns)  # the running turn has the newest block
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
    found: list[ClosedTurn] = []
    has_it = newest is None
    for place, turn in kept:
        if place == at and any(True for _ in _blocks(turn, dialect)):
            has_it = True
        turn = _without_blocks(turn, dialect, keeps_last=place == at)
        if not has_it and place > at and newest is not None and turn.letters.strip(SYSTEM):
            turn, has_it = _with_block(turn, newest, dialect), True
        found.append(turn)
    return found, has_it


def _is_in_running(state: ConversationState, dialect: Dialect) -> bool:
    running = [(item.entry, item.letter) for item in state.inbox]
    opened = state.open
    if opened is not None:
        running.extend(zip(opened.entries, opened.roles, strict=True))
    return any(True for _ in _blocks_among(running, dialect))


def _blocks(turn: ClosedTurn, dialect: Dialect) -> Iterator[Part]:
    """The context blocks of a turn, in order."""
    return _blocks_among(zip(turn.entries, turn.letters, strict=True), dialect)


def _blocks_among(entries: Iterable[tuple[bytes, str]], dialect: Dialect) -> Iterator[Part]:
    """The context blocks in these entries, given with their role letters. Only user messages have blocks."""
    for entry, letter in entries:
        if letter == USER and _MARK in entry:
            for message in read_entries(dialect, [entry]):
                yield from filter(is_context, message.parts)


def _without_blocks(turn: ClosedTurn, dialect: Dialect, *, keeps_last: bool) -> ClosedTurn:
    """The turn without its context blocks; the same object if there is no block to take out.

    A message that is only a block is taken out as a whole, if the turn has another message of the user.
    `keeps_last`: the last block stays.
    """
    entries, letters = turn.entries, turn.letters
    carriers = [at for at, entry in enumerate(entries) if letters[at] == USER and _MARK in entry]
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
        elif any(
            letters[other] in (USER, EVENT) for other in range(len(left)) if other != at and left[other]
        ):
            left[at] = b""
    return turn.with_entries(left)


def _with_block(turn: ClosedTurn, block: Part, dialect: Dialect) -> ClosedTurn:
    """The turn with the block before all else, as a message of its own."""
    return turn.with_user_entries(dialect.entries([Message(role="user", parts=(block,))]), messages=1)
