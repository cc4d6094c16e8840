"""Decides how much of a tool result, or of a reply, fits into the state.

Owns: the short text that replaces a part that does not fit. Must never know: when a call starts or ends.

A reply with calls is accepted only if a short record of every call fits. Each result leaves the room of the
records that follow it. So every call that took effect has a record.
"""

from __future__ import annotations

from typing import Final

from ..backends.base import Reply
from ..base.values import replace
from ..state.records import JournalCall
from ..state.state import ConversationState
from ..types.errors import StateTooLargeError
from ..types.messages import Part, Text
from . import journal
from .room import CALL_BYTES, REPLY, RESULTS, Room

__all__ = ["Admitted", "admitted", "calls_problem", "reply_problem", "shown_limit"]

_MEDIA_TRIED: Final = 16
"""At most this many media of one result are tried one by one; later ones are left out."""


class Admitted:
    """A finished call, shortened so that the journal can hold it.

    Attributes:
        call: The call that enters the journal.
        logged: The same call with its whole text.
        left_out: The media that a short text replaces, as (type, bytes).
        problem: Why the text does not fit either; "" if it does.
    """

    __slots__ = ("call", "left_out", "logged", "problem")

    def __init__(self, call: JournalCall) -> None:
        self.call = self.logged = call
        self.left_out: list[tuple[str, int]] = []
        self.problem = ""


def admitted(room: Room, state: ConversationState, index: int, call: JournalCall) -> Admitted:
    """The call, with as much of its result as the journal of `state` has room for.

    A text with type and size replaces media that do not fit. If the text of the result does not fit either, a
    short record replaces it.
    """
    found = Admitted(call)
    media = [at for at, part in enumerate(call.parts) if not isinstance(part, Text)]
    if _problem(room, state, index, call) is None:
        return found
    parts = [_note(part) if at in media else part for at, part in enumerate(call.parts)]
    for at in media[:_MEDIA_TRIED]:
        tried = [*parts[:at], call.parts[at], *parts[at + 1 :]]
        if _problem(room, state, index, replace(call, parts=tuple(tried))) is None:
            parts = tried
    found.call = found.logged = replace(call, parts=tuple(parts))
    found.left_out = [
        (_type(part), _bytes(part)) for part, now in zip(call.parts, parts, strict=True) if now is not part
    ]
    problem = _problem(room, state, index, found.call)
    if problem is not None:
        size = sum(map(_bytes, parts))
        note = f"[result left out: {size:,} bytes; the conversation's state has no room for it]"
        found.call = replace(call, parts=(Text(note),))
        found.problem = f"the result of tool {call.name!r}, {size:,} bytes, {shown_limit(room, problem)}"
    return found


def _problem(
    room: Room, state: ConversationState, index: int, call: JournalCall
) -> StateTooLargeError | None:
    grown = journal.put_call(state, index, call)
    more = journal.unfinished(grown) * CALL_BYTES
    # The turn should end within the soft limits. A cut can remove the turns before it, but not this turn.
    return room.problem(grown, RESULTS, more=more) or room.problem_alone(grown, more=more)


def reply_problem(room: Room, state: ConversationState, reply: Reply) -> str:
    """The problem if the state has no room for the reply in it, or for the results of its calls; else ""."""
    calls = journal.unfinished(state)
    problem = room.problem(state, RESULTS if calls else REPLY, more=calls * CALL_BYTES)
    if problem is None:
        return ""
    size = sum(map(len, reply.entries))
    what = (
        f"the reply, {size:,} bytes with {len(reply.calls)} calls,"
        if calls
        else f"the reply, {size:,} bytes,"
    )
    return f"{what} {shown_limit(room, problem)}"


def calls_problem(room: Room, state: ConversationState) -> str:
    """The problem if the results of the journal's calls would not fit, so that no call may start; else ""."""
    calls = journal.unfinished(state)
    problem = room.problem(state, 0, more=calls * CALL_BYTES)
    return "" if problem is None else f"the results of {calls} calls {shown_limit(room, problem, verb='do')}"


def shown_limit(room: Room, problem: StateTooLargeError, verb: str = "does") -> str:
    """The end of an error text about a part that does not fit. It names the caller's limit."""
    name = problem.limit_name
    return f"{verb} not fit into the state (limit {name}={getattr(room.soft, name)})"


def _note(part: Part) -> Text:
    kind = type(part).__name__.lower()
    what = f"{kind} left out: {_type(part)}, {_bytes(part):,} bytes"
    return Text(f"[{what}; the conversation's state has no room for it]")


def _type(part: Part) -> str:
    return "text/plain" if isinstance(part, Text) else part.media_type


def _bytes(part: Part) -> int:
    if isinstance(part, Text):
        return len(part.text.encode("utf-8", "replace"))
    return len(part.data or b"") + len(part.url or "")
