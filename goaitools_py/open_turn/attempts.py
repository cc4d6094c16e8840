"""Marks the answers of a turn with a requested type, and removes the answers that did not fit.

Owns: the fact `ANSWERS`, the two events that tell a model about the type, and the removal of attempts. Must
never know: a type, a schema, how a model is called.

A reply without calls is marked as an answer before it is checked. So a process that ends before the check
loses nothing: `resume` checks the same answer again, and does not pay for another one. When the turn is
closed, the attempts that did not fit leave it, together with the events that told the model the problems.
Their model calls stay in the record, because they were paid for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from ..backends.base import Dialect
from ..backends.read_entries import read_entries
from ..base.values import replace
from ..state.letters import ASSISTANT, EVENT
from ..state.records import Meta, OpenTurn
from ..state.state import ConversationState
from ..types.messages import event
from .inbox import FORMAT, admit
from .meter import count_entries, unanchored

__all__ = [
    "ANSWERS",
    "asked_in_words",
    "ends_with_answer",
    "marked",
    "told",
    "without_marks",
    "without_problems",
]

ANSWERS: Final = "answers"
"""A fact of the open turn: the numbers, from 0, of the iterations with an answer as reply. An answer that
ends the turn fits. All other answers are attempts that did not fit."""

_PROBLEMS: Final = "goaitools.answer-problems"
"""The topic of the event that tells the model the problems of its answer."""


def marked(state: ConversationState, *, keep_earlier: bool) -> ConversationState:
    """The state with its newest reply marked as an answer. `keep_earlier`: the answers before it stay."""
    turn = state.open
    assert turn is not None
    earlier = () if keep_earlier else turn.facts.get(ANSWERS, ())
    rows = [*earlier, len(turn.iterations) - 1]
    return replace(state, open=replace(turn, facts={**turn.facts, ANSWERS: rows}))


def ends_with_answer(turn: OpenTurn) -> bool:
    """True if the newest reply is an answer, and nothing was sent since."""
    rows = turn.facts.get(ANSWERS, ())
    return bool(rows) and rows[-1] == len(turn.iterations) - 1 and not turn.letters and not turn.calls


# ------------------------------------------------------------------------------ the events for a model


def told(state: ConversationState, words: str, dialect: Dialect) -> ConversationState:
    """The state with an event in its inbox that tells the model the problems of its newest answer."""
    return admit(state, [event(words, topic=_PROBLEMS)], dialect)


def without_problems(state: ConversationState) -> ConversationState:
    """The state without this event in its inbox; the same object if the inbox has no such event.

    A turn that goes on checks its answer again, and so writes a new event.
    """
    left = tuple(item for item in state.inbox if item.topic != _PROBLEMS)
    return state if len(left) == len(state.inbox) else replace(state, inbox=left)


def asked_in_words(
    state: ConversationState, words: str, dialect: Dialect, *, turn: str = ""
) -> ConversationState:
    """The state with a schema at the end of its inbox; unchanged if the open turn has the same event. `turn`:
    see `admit`."""
    message = event(words, topic=FORMAT)
    if state.open is not None and dialect.entries([message])[0] in state.open.entries:
        return state
    return admit(state, [message], dialect, turn=turn)


# ------------------------------------------------------------------------------------------- the removal


def without_marks(state: ConversationState, dialect: Dialect) -> ConversationState:
    """The state, with an open turn that is over for its type: its attempts that did not fit leave it."""
    turn, meta = state.open, state.meta
    assert turn is not None
    rows = turn.facts.get(ANSWERS, ())
    if any(row < len(turn.iterations) - 1 for row in rows):
        turn, meta = _without_attempts(turn, meta, dialect)
    facts = {name: fact for name, fact in turn.facts.items() if name != ANSWERS}
    return replace(state, open=replace(turn, facts=facts), meta=meta)


def _without_attempts(turn: OpenTurn, meta: Meta, dialect: Dialect) -> tuple[OpenTurn, Meta]:
    """The turn without attempts that did not fit, and the meta data with an estimate of its new size.

    Signed blocks after the first attempt leave the turn, too: their signature covers that attempt.
    """
    closed = turn.closed()  # one iteration for each reply, and one for the unanswered messages
    rows = [row for row in turn.facts.get(ANSWERS, ()) if row < len(turn.iterations) - 1]
    gone = _places(
        closed.letters, [one.roles for one in closed.record.iterations], rows, closed.entries, dialect
    )
    if not gone:
        return turn, meta
    first = min(gone)
    left = [entry for at, entry in enumerate(closed.entries) if at >= first and at not in gone]
    # A signature covers what stands before it. With the attempts gone, the provider would refuse it.
    bare = iter(dialect.unsigned(left))
    entries = [
        entry if at < first else b"" if at in gone else next(bare) for at, entry in enumerate(closed.entries)
    ]
    changed = closed.with_entries(entries)
    record = changed.record
    size = count_entries([closed.entries[at] for at in sorted(gone)], dialect)
    # Letters without a reply are now an iteration of their own.
    made = replace(
        turn, entries=changed.entries, iterations=record.iterations, letters="", messages=record.messages
    )
    return made, msgspec.structs.replace(unanchored(meta), tokens=max(0, meta.tokens - size))


def _places(
    letters: str, roles: Sequence[str], rows: Collection[int], entries: Sequence[bytes], dialect: Dialect
) -> set[int]:
    """The positions of the attempts, and of the events that told the model their problems."""
    starts = [sum(map(len, roles[:row])) for row in range(len(roles))]
    gone: set[int] = set()
    for row in rows:
        while True:
            sent = len(roles[row].rstrip(ASSISTANT))
            gone.update(range(starts[row] + sent, starts[row] + len(roles[row])))
            if sent or not row:
                break
            row -= 1  # a reply that continues a paused one belongs to the same attempt
    first = min(gone, default=len(entries))
    gone.update(
        at
        for at, entry in enumerate(entries)
        if at > first and letters[at] == EVENT and _is_problem(entry, dialect)
    )
    return gone


def _is_problem(entry: bytes, dialect: Dialect) -> bool:
    return any(message.topic == _PROBLEMS for message in read_entries(dialect, [entry]))
