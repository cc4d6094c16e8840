"""Calls that wait inside of a waiting call: the calls of another chat that is used as a tool.

Owns: how answers to them become answers to the call around them. Must never know: a chat, or how a turn runs.
"""

from __future__ import annotations

from typing import Any

from ..state.records import JournalCall
from ..state.state import ConversationState
from ..types.answers import INSIDE, Answers, Approve, InnerAnswers, check_answer, pending_inside
from ..types.messages import Text

__all__ = ["asks_of", "with_inner_answers"]


def asks_of(call: JournalCall) -> str:
    """The calls that wait inside of a waiting call, as JSON text; "" without inner calls."""
    return "".join(part.text for part in call.parts if isinstance(part, Text))


def with_inner_answers(state: ConversationState, answers: Answers) -> Answers:
    """The answers by the ids of the conversation's own calls.

    Answers to the inner calls of a call become one answer to this outer call. An answer to an inner call that
    no longer waits is left out. If the outer call is done, the answer becomes a late answer to it.
    """
    calls = {call.id: call for call in state.open.calls} if state.open is not None else {}
    made: dict[str, Any] = {}
    for id, answer in answers.items():
        check_answer(answer)
        outer, inside, inner = id.partition(INSIDE) if isinstance(id, str) else ("", "", "")
        if not inside or id in calls or not _is_known(state, outer):
            made[id] = answer
        elif (call := calls.get(outer)) is None or call.state == "done":
            made[outer] = Approve()
        elif any(one.id == id for one in pending_inside(outer, asks_of(call))):
            earlier = made.get(outer)
            given = earlier.given if isinstance(earlier, InnerAnswers) else {}
            made[outer] = InnerAnswers(given={**given, inner: answer})
    return made


def _is_known(state: ConversationState, id: str) -> bool:
    """True if the conversation may have a call of this id."""
    calls = state.open.calls if state.open is not None else ()
    entries = state.open.entries if state.open is not None else ()
    pieces = (*(segment.raw() for segment in state.segments), *entries)
    named = id.encode("utf-8", "replace")
    return any(call.id == id for call in calls) or any(named in piece for piece in pieces)
