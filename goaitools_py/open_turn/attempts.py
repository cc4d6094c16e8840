"""Answers of an open turn that a type is asked of: how they are marked, and how those that did not fit leave.

Owns: the fact `ANSWERS`, the two events that tell a model of the type, and the removal of attempts. Must
never know: a type, a schema, how a model is called.

A reply without calls is marked as an answer before it is known whether it fits. So a process that ends in
between loses nothing: `resume` looks at the same answer again, and does not pay for another. The attempts
that did not fit leave the turn when it is closed, with the events that told the model why. Their model calls
stay in the record, because they were paid for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from ..backends.base import Dialect, Reply
from ..backends.read_entries import read_entries
from ..base.values import replace
from ..state.letters import ASSISTANT, EVENT
from ..state.records import Meta, OpenTurn
from ..state.state import ConversationState
from ..types.messages import event
from .inbox import admit
from .meter import count_entries, unanchored
from .turn_ids import reply_text

__all__ = [
    "ANSWERS",
    "FORMAT",
    "PROBLEMS",
    "asked_in_words",
    "ends_with_answer",
    "has_attempts",
    "marked",
    "stored_answer",
    "told",
    "without_attempts",
    "without_problems",
]

ANSWERS: Final = "answers"
"""A fact of the open turn: the numbers, from 0, of the iterations whose replies were answers. All but one
that ends the turn are attempts that did not fit."""

FORMAT: Final = "goaitools.answer-format"
"""The topic of the event that tells the model the schema."""

PROBLEMS: Final = "goaitools.answer-problems"
"""The topic of the event that tells the model why its answer does not fit."""


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


def stored_answer(turn: OpenTurn, dialect: Dialect) -> Reply:
    """The answer at the end of a turn, as far as the state has it."""
    return Reply(
        entries=(),
        text=reply_text(turn.closed(), dialect),
        finish_reason=turn.iterations[-1].finish_reason if turn.iterations else "",
    )


# ---------------------------------------------------------------------------------- what a model is told


def told(state: ConversationState, words: str, dialect: Dialect) -> ConversationState:
    """The state with the reason in its inbox why the newest answer does not fit."""
    return admit(state, [event(words, topic=PROBLEMS)], dialect)


def without_problems(state: ConversationState) -> ConversationState:
    """The state without such a reason in its inbox; the very object if there is none. An answer is looked at
    again when its turn goes on."""
    left = tuple(item for item in state.inbox if item.topic != PROBLEMS)
    return state if len(left) == len(state.inbox) else replace(state, inbox=left)


def asked_in_words(state: ConversationState, words: str, dialect: Dialect) -> ConversationState:
    """The state with a schema at the end of its inbox; as it is if the open turn was told the same before."""
    message = event(words, topic=FORMAT)
    if state.open is not None and dialect.entries([message])[0] in state.open.entries:
        return state
    return admit(state, [message], dialect)


# ------------------------------------------------------------------------------------------- the removal


def has_attempts(turn: OpenTurn) -> bool:
    """True if the turn has an answer that did not fit, and another reply behind it."""
    rows = turn.facts.get(ANSWERS, ())
    return bool(rows) and any(row < len(turn.iterations) - 1 for row in rows)


def without_attempts(turn: OpenTurn, meta: Meta, dialect: Dialect) -> tuple[OpenTurn, Meta]:
    """The turn without attempts that did not fit, and the meta data with an estimate of its new size.

    What a provider sealed behind the first of them was sealed together with it, so it leaves the turn, too.
    """
    closed = turn.closed()  # an iteration for each reply, and one for what is not answered
    rows = [row for row in turn.facts.get(ANSWERS, ()) if row < len(turn.iterations) - 1]
    gone = _places(
        closed.letters, [one.roles for one in closed.record.iterations], rows, closed.entries, dialect
    )
    if not gone:
        return turn, meta
    first = min(gone)
    left = [entry for at, entry in enumerate(closed.entries) if at >= first and at not in gone]
    bare = iter(dialect.unsigned(left))
    entries = [
        entry if at < first else b"" if at in gone else next(bare) for at, entry in enumerate(closed.entries)
    ]
    changed = closed.with_entries(entries)
    record = changed.record
    size = count_entries([closed.entries[at] for at in sorted(gone)], dialect)
    # Letters that stood at the end, without a reply, are an iteration of their own now.
    made = replace(
        turn, entries=changed.entries, iterations=record.iterations, letters="", messages=record.messages
    )
    return made, msgspec.structs.replace(unanchored(meta), tokens=max(0, meta.tokens - size))


def _places(
    letters: str, roles: Sequence[str], rows: Collection[int], entries: Sequence[bytes], dialect: Dialect
) -> set[int]:
    """Where the attempts stand, and the events that told the model why they do not fit."""
    starts = [sum(map(len, roles[:row])) for row in range(len(roles))]
    gone: set[int] = set()
    for row in rows:
        while True:
            sent = len(roles[row].rstrip(ASSISTANT))
            gone.update(range(starts[row] + sent, starts[row] + len(roles[row])))
            if sent or not row:
                break
            row -= (
                1  # a reply that goes on after a pause of its provider is one attempt with what came before
            )
    first = min(gone, default=len(entries))
    gone.update(
        at
        for at, entry in enumerate(entries)
        if at > first and letters[at] == EVENT and _is_problem(entry, dialect)
    )
    return gone


def _is_problem(entry: bytes, dialect: Dialect) -> bool:
    return any(message.topic == PROBLEMS for message in read_entries(dialect, [entry]))
