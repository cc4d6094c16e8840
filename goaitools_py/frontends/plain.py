"""Plain JSON and plain server-sent events, for programs in any language.

Owns: the front end `PLAIN_JSON`: the members of requests, the shapes of replies and histories, and the names
of the events. Must never know: HTTP, a store, or who listens.

A message: ``{"text" | "parts", "turn_id", "context"?, "metadata"?, "edit"?, "again"?}``. With ``edit``, the
id of a message of the user, the new one replaces that message and everything after it. With ``again``, the id
of a reply or "" for the newest one, that reply is written again, and the message is the one it answers.
Answers:
``{"answers": {call_id: answer}}``, each ``{"approve": true, "arguments"?}``, ``{"deny": reason}`` or
``{"return": value, "is_error"?}``. The URL names the conversation.

Events: ``started {turn}``, then ``text {text}``, ``reasoning {text}``, ``tool_call {id, name, arguments}``,
``progress {id, progress, total, message}``, ``tool_result {id, flag, output}`` and ``pending {id, reason}``
in any number, and at the end one of ``done`` (the result, as in JSON), ``stopped`` and ``error`` (a problem
document of RFC 9457).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..history.turns import History, replies
from ..types.answers import Answer, Approve, Deny, PendingCall, ToolReturn
from ..types.events import Event, ToolProgress, TurnCompleted, TurnStarted
from ..types.messages import Message, Part, Text
from ..types.render import files_in
from ..types.result import ChatResult
from .bodies import (
    HEADERS,
    MAX_ID_CHARACTERS,
    frame,
    json_object,
    media_of,
    members_at,
    progress_of,
    span_at,
    state_of,
    text_of,
    value_of,
)
from .front_end import Ask, AskError, CarryingFrontEnd, FrontEnd, FrontStream, problem_of
from .reply_pieces import (
    Called,
    Piece,
    Reasoned,
    Returned,
    Said,
    Waits,
    pieces_of_event,
    pieces_of_reply,
    said_in,
    turn_ids,
)

__all__ = [
    "PLAIN_JSON",
    "PlainStream",
    "actions_of",
    "cost_of",
    "messages_of",
    "pending_of",
    "result_of",
]

_MEMBERS = frozenset({"text", "parts", "turn_id", "context", "metadata", "answers"})
_AGAIN = frozenset({"again", "edit"})
_CARRIED = frozenset({"state", "conversation"})


def _read_plain(body: bytes, *, carries: bool = False) -> Ask:
    """Read a body. Raises `AskError` if its form is wrong; an unknown member is an error, too.

    `carries`: the client carries the state, and may name the conversation.
    """
    found = json_object(body)
    members = _MEMBERS | (_CARRIED if carries else _AGAIN)
    if unknown := found.keys() - members:
        known = ", ".join(sorted(members))
        raise AskError(f"{len(unknown)} of the body's members are unknown; the members are {known}")
    context = found.get("context")
    if context is not None and not isinstance(context, str):
        raise AskError("context must be text")
    said = _asked_parts(found)
    answers = _answers(found.get("answers"), body)
    if bool(said) is bool(answers):
        raise AskError("the body must have one of text, parts and answers")
    again = found.get("again")
    if again is not None and not (isinstance(again, str) and len(again) <= MAX_ID_CHARACTERS and said):
        raise AskError("again is the id of a reply, and goes with the message that it answers")
    edit = text_of(found, "edit") if found.get("edit") is not None else None
    if edit is not None and (again is not None or not said):
        raise AskError("edit is the id of a message of the user, and goes with the message that replaces it")
    return Ask(
        conversation=text_of(found, "conversation") if "conversation" in found else "",
        state=text_of(found, "state", most=None) if found.get("state") is not None else None,
        said=said,
        edit=edit,
        again=again,
        turn_id=text_of(found, "turn_id") if "turn_id" in found else None,
        answers=answers,
        context=context,
        metadata=_metadata(found.get("metadata")),
    )


def _asked_parts(found: dict[str, Any]) -> tuple[Part, ...]:
    if "text" in found and "parts" in found:
        raise AskError("the body must have one of text, parts and answers")
    if "text" in found:
        return (Text(text_of(found, "text", most=None)),)
    if "parts" not in found:
        return ()
    parts = found["parts"]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise AskError("parts must be a list of objects with at least one of them")
    return tuple(_asked_part(part) for part in parts)


def _asked_part(part: dict[str, Any]) -> Part:
    if part.get("type") == "text":
        return Text(text_of(part, "text", most=None))
    if part.get("type") == "file":
        name = text_of(part, "name") if part.get("name") else None
        return media_of(text_of(part, "url", most=None), text_of(part, "media_type"), name)
    raise AskError("the type of a part must be text or file")


def _metadata(found: object) -> Mapping[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise AskError("metadata must be an object whose values are text")
    return found


def _answers(found: object, body: bytes) -> dict[str, Answer]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise AskError("answers must be an object of objects, by call id")
    spans = members_at(body, "answers")
    return {id: _answer(one, spans.get(id)) for id, one in found.items()}


def _answer(one: dict[str, Any], span: bytes | None) -> Answer:
    def as_written(name: str, read: Any) -> Any:
        return value_of(None if span is None else span_at(span, name), read)

    match one:
        case {"approve": True, **rest} if rest.keys() <= {"arguments"}:
            arguments = rest.get("arguments")
            if arguments is not None and not isinstance(arguments, dict):
                raise AskError("the arguments of an approval must be an object")
            if arguments is None:
                return Approve()
            return Approve(as_written("arguments", arguments))
        case {"deny": str(reason), **rest} if not rest:
            return Deny(reason)
        case {"return": value, **rest} if rest.keys() <= {"is_error"}:
            is_error = rest.get("is_error", False)
            if not isinstance(is_error, bool):
                raise AskError("is_error must be true or false")
            return ToolReturn(as_written("return", value), is_error=is_error)
    raise AskError("an answer must be {approve: true}, {deny: reason} or {return: value}")


def _piece_of(piece: Piece) -> tuple[str, dict[str, Any]] | None:
    """The kind and the members of a piece; None for a piece that plain JSON does not have."""
    match piece:
        case Said():
            return "text", {"text": piece.text}
        case Reasoned():
            return "reasoning", {"text": piece.text}
        case Called():
            call = piece.call
            return "tool_call", {"id": call.id, "name": call.name, "arguments": call.arguments}
        case Returned():
            return "tool_result", {"id": piece.call_id, "flag": piece.flag, "output": piece.output}
        case Waits():
            return "pending", {"id": piece.call_id, "reason": piece.reason}
    return None


def cost_of(result: ChatResult) -> float | None:
    """Give the cost of a turn in US dollars; None if it is not known, as for a reply from the store."""
    cost = None if result.duplicate or not result.usage.requests else result.cost_usd
    return None if cost is None else float(cost)


def actions_of(result: ChatResult) -> list[dict[str, Any]]:
    """Give the actions of a turn's tools, with their data as JSON-able values."""
    found: list[dict[str, Any]] = result.to_dict(content=True)["actions"] if result.actions else []
    return found


def result_of(result: ChatResult, turn: str) -> dict[str, Any]:
    """Write the result of a turn. `turn`: its `turn_ref`."""
    usage = result.usage
    return {
        "turn": turn,
        "text": result.text,
        "status": result.status,
        "finish_reason": result.finish_reason,
        "pending": pending_of(result.pending),
        "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
        "cost_usd": cost_of(result),
        "actions": actions_of(result),
        "warnings": [warning.code for warning in result.warnings],
        "duplicate": result.duplicate,
    }


def pending_of(calls: Sequence[PendingCall]) -> list[dict[str, Any]]:
    """Write calls that wait for answers."""
    return [
        {"id": call.id, "name": call.name, "arguments": call.arguments, "reason": call.reason}
        for call in calls
    ]


def messages_of(
    history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
) -> list[dict[str, Any]]:
    """Write a history as messages, oldest first. A reply has its text, and all its pieces in order."""
    messages: list[dict[str, Any]] = []
    for reply in replies(history.turns):
        for turn in reply:
            ids = turn_ids(conversation_id, turn)
            messages += [_said(message, next(ids.said)) for message in said_in(turn)]
        pieces = pieces_of_reply(reply, pending)
        written = [
            {"type": found[0], **found[1]} for piece in pieces if (found := _piece_of(piece)) is not None
        ]
        if written:
            text = "".join(piece.text for piece in pieces if isinstance(piece, Said))
            id = turn_ids(conversation_id, reply[0]).reply
            messages.append({"id": id, "role": "assistant", "text": text, "pieces": written})
            told = (one for turn in reply for one in turn.actions)
            if actions := [{"text": one.text, "data": dict(one.data)} for one in told]:
                messages[-1]["actions"] = actions
    for at, message in enumerate(history.waiting, 1):
        if message.role == "user" and not message.is_event:
            messages.append(_said(message, f"{conversation_id}-waiting-{at}"))
    return messages


def _said(message: Message, id: str) -> dict[str, Any]:
    found: dict[str, Any] = {"id": id, "role": message.role, "text": message.said}
    if message.speaker is not None:
        found["speaker"] = message.speaker
    if files := [_file(part) for part in files_in(message)]:
        found["files"] = files
    return found


def _file(part: Part) -> dict[str, Any]:
    assert not isinstance(part, Text)
    url = part.url or f"data:{part.media_type};base64,{part.base64()}"
    return {"media_type": part.media_type, "url": url, **({"name": part.name} if part.name else {})}


class PlainStream(FrontStream):
    """The events of one turn. `before`: its pieces so far. `carries`: the client keeps the state."""

    def __init__(self, before: Sequence[Piece] = (), *, carries: bool = False) -> None:
        self._before = tuple(before)
        self._carries = carries
        self._has_begun = False
        self._turn_ref = ""

    def feed(self, event: Event) -> list[bytes]:
        """Write an event."""
        if isinstance(event, TurnCompleted):
            begun = self._begin(event.turn_ref)
            told = {**result_of(event.result, self._turn_ref), **self._carried(event.result)}
            return [*begun, frame(told, event="done")]
        if isinstance(event, ToolProgress):
            told = {"id": event.call_id, **progress_of(event)}
            return [*self._begin(event.turn_ref), frame(told, event="progress")]
        pieces = pieces_of_event(event)
        if not pieces and not isinstance(event, TurnStarted):
            return []
        return [*self._begin(event.turn_ref), *_written(pieces)]

    def fail(self, error: BaseException) -> list[bytes]:
        """End with ``error``."""
        return [frame({**problem_of(error).to_dict(), **self._carried(error)}, event="error")]

    def stop(self) -> list[bytes]:
        """End with ``stopped``."""
        return [frame({}, event="stopped")]

    def _carried(self, of: object) -> dict[str, str]:
        return state_of(of) if self._carries else {}

    def _begin(self, turn_ref: str) -> list[bytes]:
        if self._has_begun:
            return []
        self._has_begun, self._turn_ref = True, turn_ref
        return [frame({"turn": turn_ref}, event="started"), *_written(self._before)]


def _written(pieces: Iterable[Piece]) -> list[bytes]:
    found = (_piece_of(piece) for piece in pieces)
    return [frame(one[1], event=one[0]) for one in found if one is not None]


class _PlainJSON(CarryingFrontEnd):
    """Plain JSON, and server-sent events with names."""

    name: str = "plain"
    headers: Mapping[str, str] = HEADERS

    def __init__(self, *, carries: bool = False) -> None:
        self._carries = carries

    def carrying(self) -> FrontEnd:
        return _PlainJSON(carries=True)

    def read(self, body: bytes) -> Ask:
        return _read_plain(body, carries=self._carries)

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return PlainStream(before, carries=self._carries)

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        return messages_of(history, conversation_id=conversation_id, pending=pending)


PLAIN_JSON: Final[CarryingFrontEnd] = _PlainJSON()
