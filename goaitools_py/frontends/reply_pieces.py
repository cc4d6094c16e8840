"""A reply as a sequence of pieces: text, reasoning, calls and results, in the order of their making.

Owns: the pieces, how events and histories become pieces, and the ids of a turn's messages. So a live stream
and a history that is read later say the same, under the same ids. Must never know: a front end's protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, cast

from ..base.values import Value
from ..history.turns import HistoryIteration, HistoryTurn
from ..types.answers import INSIDE, PendingCall
from ..types.events import (
    Event,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolPending,
)
from ..types.messages import CallKind, Message, Text, ToolCall

__all__ = [
    "Called",
    "Piece",
    "Reasoned",
    "Returned",
    "Said",
    "Step",
    "TurnIds",
    "Waits",
    "parts_of",
    "pieces_of",
    "pieces_of_event",
    "pieces_since",
    "said_in",
    "turn_ids",
]


class Piece(Value, frozen=True):
    """Base of all pieces of a reply."""


class Step(Piece, frozen=True):
    """The model is asked. The following pieces belong to its next reply."""


class Reasoned(Piece, frozen=True):
    """Reasoning of the model, or a part of it."""

    _unshown = frozenset({"text"})
    text: str


class Said(Piece, frozen=True):
    """Visible text, or a part of it."""

    _unshown = frozenset({"text"})
    text: str


class Called(Piece, frozen=True):
    """The model calls a tool. For a tool that is a chat, also each call of this chat that waits."""

    call: ToolCall


class Returned(Piece, frozen=True):
    """A call has its result: the text that the model reads, and the flag of `ToolResult`."""

    _unshown = frozenset({"output"})
    call_id: str
    flag: str
    output: str


class Waits(Piece, frozen=True):
    """A call waits for an answer. `reason`: as in `PendingCall`."""

    call_id: str
    reason: str


def pieces_of_event(event: Event) -> tuple[Piece, ...]:
    """Give the pieces that an event of a running turn adds to the reply."""
    match event:
        case TextDelta():
            return (Said(event.text),)
        case ReasoningDelta():
            return (Reasoned(event.text),)
        case ModelRequested():
            return (Step(),)
        case ModelReplied():
            return tuple(Called(call) for call in event.tool_calls)
        case ToolFinished():
            return (Returned(event.call_id, event.flag, event.output),)
        case ToolPending():
            waits = Waits(event.call_id, event.reason)
            if INSIDE not in event.call_id:
                return (waits,)
            kind = cast(CallKind, event.kind)
            call = ToolCall(id=event.call_id, name=event.name, arguments=event.arguments, kind=kind)
            return Called(call), waits
    return ()


def pieces_of(turn: HistoryTurn, pending: Sequence[PendingCall] = ()) -> tuple[Piece, ...]:
    """Give the pieces of a stored reply.

    Args:
        turn: The turn. An unfinished one, too.
        pending: The calls that wait for an answer. The history of an unfinished turn has placeholders for
            their results; a `Waits` replaces each of them. Calls of another chat that wait inside of a call
            are not in this history: a `Called` for each stands before its `Waits`.
    """
    reasons = {call.id: call.reason for call in pending}
    inside: dict[str, list[Piece]] = {}
    for call in pending:
        outer, is_inside, _ = call.id.partition(INSIDE)
        if is_inside:
            made = ToolCall(id=call.id, name=call.name, arguments=call.arguments, kind=call.kind)
            inside.setdefault(outer, []).extend([Called(made), Waits(call.id, call.reason)])
    flags = turn.facts.get("flags", {})
    found: list[Piece] = []

    def results(messages: Sequence[Message]) -> None:
        for message in messages:
            if message.role == "tool" and message.tool_call_id is not None:
                id = message.tool_call_id
                if id in reasons:
                    found.append(Waits(id, reasons[id]))
                elif id in inside:
                    found.extend(inside[id])
                else:
                    found.append(Returned(id, flags.get(id, "ok"), message.text))

    for iteration in turn.iterations:
        sent, reply, unread = parts_of(iteration)
        results(sent)
        if reply:
            found.extend(_pieces_of_reply(reply))
        results(unread)
    if partial := turn.facts.get("interrupted"):
        found += (Step(), Said(partial))
    return tuple(found)


def parts_of(
    iteration: HistoryIteration,
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Divide an iteration into the messages that were sent, the reply, and results that no model has read."""
    messages = iteration.messages
    end = len(messages)
    while iteration.is_reply and end and messages[end - 1].role != "assistant":
        end -= 1
    begin = end
    while begin and messages[begin - 1].role == "assistant":
        begin -= 1
    return messages[:begin], messages[begin:end], messages[end:]


def _pieces_of_reply(reply: Sequence[Message]) -> list[Piece]:
    found: list[Piece] = [Step()]
    if reasoning := "".join(message.reasoning for message in reply):
        found.append(Reasoned(reasoning))
    if said := "".join(message.said for message in reply):
        found.append(Said(said))
    found.extend(Called(call) for message in reply for call in message.tool_calls)
    return found


def pieces_since(pieces: Sequence[Piece], call_ids: Collection[str]) -> tuple[Piece, ...]:
    """Leave out the pieces that a client saw before it answered calls: all up to the step of these calls.

    The results of that step stay. All pieces stay if no piece is a call with one of these ids.
    """
    made = [at for at, one in enumerate(pieces) if isinstance(one, Called) and one.call.id in call_ids]
    return tuple(pieces[made[-1] + 1 :]) if made else tuple(pieces)


class TurnIds(NamedTuple):
    """The ids of a turn's messages. `said`: one for each message that is not the reply."""

    reply: str
    said: Iterator[str]


def turn_ids(conversation_id: str, turn: HistoryTurn) -> TurnIds:
    """Name the messages of a turn. The reply has the turn's `turn_ref`, see `Event`."""
    ref = f"{conversation_id}-{turn.number}"
    return TurnIds(ref, _ids(ref))


def _ids(ref: str) -> Iterator[str]:
    yield f"{ref}u"
    number = 2
    while True:
        yield f"{ref}u{number}"
        number += 1


def said_in(turn: HistoryTurn) -> list[Message]:
    """Give the messages of a turn that people see, without its reply: messages of the user, and greetings of
    the application."""
    sent = [message for iteration in turn.iterations for message in parts_of(iteration)[0]]
    return [one for one in sent if one.role in ("user", "assistant") and not one.is_event and _is_shown(one)]


def _is_shown(message: Message) -> bool:
    return bool(message.said) or any(not isinstance(part, Text) for part in message.parts)
