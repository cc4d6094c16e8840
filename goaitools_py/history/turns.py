"""A stored conversation in neutral words: its turns, and the model calls of each.

Owns: `History` and what it is made of. Must never know: a provider's JSON, or a backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from ..backends.base import Dialect
from ..citations import Citation, citations_of_rows
from ..messages import Message, ToolCall, Usage
from ..reading import read_entries
from ..state.codec import PLAIN, Codec
from ..state.records import TurnRecord
from ..state.state import closed_turns, load_state
from ..turn import journal
from ..turn.repair import checked
from ..values import Value
from .info import when
from .wires import dialect_for

__all__ = ["History", "HistoryIteration", "HistoryTurn", "read_history"]


class HistoryIteration(Value, frozen=True, kw_only=True):
    """One model call of a turn with what went in and what came back."""

    messages: tuple[Message, ...]
    finish_reason: str
    usage: Usage
    started_at: datetime
    completed_at: datetime

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model made in this iteration."""
        return tuple(call for message in self.messages for call in message.tool_calls)


class HistoryTurn(Value, frozen=True, kw_only=True):
    """One turn: its iterations, and the facts stored with it (status, settings, metadata, flags)."""

    unshown = frozenset({"facts"})

    iterations: tuple[HistoryIteration, ...]
    started_at: datetime
    facts: Mapping[str, Any]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn's messages in order."""
        return tuple(message for iteration in self.iterations for message in iteration.messages)

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the caller's `metadata=` said of the turn."""
        return dict(self.facts.get("metadata", {}))

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources that the turn's replies named, in order. Their places count in the text of their own
        reply."""
        return citations_of_rows(self.facts.get("citations"))

    @property
    def failure(self) -> tuple[str, str] | None:
        """Class and code of the error that the turn ended with, such as ``("RateLimitError", "")``; None if
        it ended well. A turn that was resumed and finished has none."""
        return journal.failure_in(self.facts)


class History(Value, frozen=True, kw_only=True):
    """A conversation's turns, oldest first; `waiting` are messages that no model has seen."""

    turns: tuple[HistoryTurn, ...]
    waiting: tuple[Message, ...] = ()

    def all_messages(self) -> tuple[Message, ...]:
        """Every message, the waiting ones last."""
        return (*(message for turn in self.turns for message in turn.messages), *self.waiting)

    def iteration(self, number: int) -> HistoryIteration:
        """The n-th model call of the conversation, counted from 0. IndexError beyond the end."""
        every = [iteration for turn in self.turns for iteration in turn.iterations]
        return every[number]


def read_history(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> History:
    """Read the whole conversation in neutral words. An unfinished turn is shown as it would close.

    `dialect`: that of a wire which is not built in.
    """
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    dialect = dialect_for(state.meta.wire, dialect)
    state, _ = checked(journal.close_turn(state, dialect), dialect)
    turns = tuple(
        _turn(entries, record, state.meta.created, dialect) for entries, record in closed_turns(state)
    )
    waiting = read_entries(dialect, [item.entry for item in state.inbox])
    return History(turns=turns, waiting=waiting)


def _turn(entries: Sequence[bytes], record: TurnRecord, created: int, dialect: Dialect) -> HistoryTurn:
    left = iter(entries)
    iterations = []
    for iteration in record.iterations:
        own = list(islice(left, len(iteration.roles)))
        started = record.at + iteration.start
        iterations.append(
            HistoryIteration(
                messages=read_entries(dialect, own),
                finish_reason=iteration.finish_reason,
                usage=iteration.usage,
                started_at=when(created, started),
                completed_at=when(created, started + iteration.ms),
            )
        )
    return HistoryTurn(iterations=tuple(iterations), started_at=when(created, record.at), facts=record.facts)
