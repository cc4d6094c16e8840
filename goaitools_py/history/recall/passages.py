"""The turns that are no longer shown to the model, as texts.

Owns: which turns these are, and how a turn reads as a passage. Must never know: a query.

A turn is a passage if its original is in the archive, and the history shows no turn with the same text. So a
turn that has only lost its signed thinking is not a passage. Calls of the recall tool and their results are
left out. Else a repeated question would match its own earlier search best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ...backends.base import Dialect
from ...backends.read_entries import read_entries
from ...base.values import Value, replace
from ...compaction.recall_note import RECALL
from ...state.closed_turns import ClosedTurn, numbers_of
from ...state.codec import Codec
from ...state.media import shortened
from ...state.parts import ARCHIVE, Part
from ...state.state import ConversationState, closed_turns
from ...types.errors import StateError
from ...types.messages import Message
from ..archive.reading import stored_records
from ..archive.records import Record, check_archive
from ..info import when

__all__ = ["Passage", "passages_of", "searched_parts"]

MOST_BYTES: Final = 32 * 2**20
"""How many raw bytes of the archive one call searches, from the newest on."""

_MOST_ARGUMENTS: Final = 300


class Passage(Value, frozen=True, kw_only=True):
    """An earlier turn as text.

    `number`: the number of the turn. `date`: the day on which it began, in UTC. `has_asked`: True if the
    model searched earlier turns in it.
    """

    _unshown = frozenset({"text"})

    number: int
    date: str
    text: str
    has_asked: bool


def searched_parts(state: ConversationState) -> tuple[Part, ...]:
    """The newest parts of the archive, up to `MOST_BYTES`, which a call searches. Oldest first."""
    found: list[Part] = []
    left = MOST_BYTES
    for part in reversed([part for part in state.parts if part.kind == ARCHIVE]):
        left -= part.raw_len
        if left < 0:
            break
        found.append(part)
    return tuple(reversed(found))


def passages_of(
    state: ConversationState,
    dialect: Dialect,
    *,
    codec: Codec,
    binding: Any = None,
    loaded: Mapping[bytes, bytes] | None = None,
    dialect_of: Callable[[str], Dialect | None] = lambda wire: None,
) -> list[Passage]:
    """Give the turns that are no longer shown, oldest first.

    Args:
        state: The state of the running turn.
        dialect: Reads the entries of its provider API.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        dialect_of: Gives the dialect of another provider API, which the conversation had before; None if it
            is unknown. Turns of an unknown provider API are left out.
        loaded: Parts that a store keeps: the bytes by name. A part that is neither in the state nor in
            `loaded` is left out, and so is a damaged part.
    """
    found: list[Part] = []
    for part in searched_parts(state):
        here = part if part.is_here else replace(part, stored=(loaded or {}).get(part.digest, b""))
        if here.is_here:
            with suppress(StateError):
                here.raw(codec, binding)
                found.append(here)
    records: list[Record] = []
    with suppress(StateError):
        check_archive(found, codec, binding)
        for part in found:
            with suppress(StateError):
                records += stored_records((part,), codec, binding)
    return _passages(state, records, dialect, dialect_of)


def _passages(
    state: ConversationState,
    records: Sequence[Record],
    dialect: Dialect,
    dialect_of: Callable[[str], Dialect | None],
) -> list[Passage]:
    dialects: dict[str, Dialect | None] = {state.meta.wire: dialect}
    live = closed_turns(state)
    numbers = numbers_of([turn.record for turn in live])
    copies = {number: turn for number, turn in zip(numbers, live, strict=True) if number}
    found: dict[int, Passage | None] = {}
    for record in records:
        if record.wire not in dialects:
            dialects[record.wire] = dialect_of(record.wire)
        own = dialects[record.wire]
        if own is None:
            continue
        for turn, number in zip(record.turns, numbers_of([t.record for t in record.turns]), strict=True):
            if not number or number in found:  # a note, or a later copy
                continue
            if not turn.record.is_sent:  # the provider would refuse its text in a search result, too
                found[number] = None
                continue
            with suppress(StateError):  # an entry that cannot be read is of no use to the model
                passage = _passage(turn, number, state.meta.created, own)
                shown = copies.get(number)
                is_shown = shown is not None and _lines_of(shown, dialect) == _lines_of(turn, own)
                found[number] = None if is_shown else passage
    return [passage for _, passage in sorted(found.items()) if passage is not None and passage.text]


def _passage(turn: ClosedTurn, number: int, created: int, dialect: Dialect) -> Passage:
    lines, has_asked = _lines_of(turn, dialect)
    date = when(created, turn.record.at).date().isoformat()
    return Passage(number=number, date=date, text="\n".join(lines), has_asked=has_asked)


def _lines_of(turn: ClosedTurn, dialect: Dialect) -> tuple[list[str], bool]:
    """The lines of a passage, and whether the model searched earlier turns in the turn."""
    messages = read_entries(dialect, [shortened(entry) for entry in turn.entries])
    asked = {call.id for message in messages for call in message.tool_calls if call.name == RECALL}
    return list(_lines(messages, asked)), bool(asked)


def _lines(messages: Iterable[Message], asked: set[str]) -> Iterable[str]:
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in asked:
                yield _line("tool", message.said)
            continue
        if message.role != "system" and (said := message.said):
            yield _line("event" if message.is_event else message.role, said)
        for call in message.tool_calls:
            if call.name != RECALL:
                yield _line("call", f"{call.name} {call.arguments[:_MOST_ARGUMENTS]}")


def _line(who: str, said: str) -> str:
    """A message as lines. Later lines are indented, so that no text can look like another message."""
    lines = "\n  ".join(said.strip().splitlines())
    return f"{who}: {lines}"
