"""Messages of the AI SDK, both ways: reads the request of a client, and writes a history for it.

Owns: the request's members, the ids, roles and parts of messages, and the values of tool calls and results,
which a stream writes alike. Must never know: a stream, or a stored state.

The body is ``{"id", "messages", "trigger", "messageId"}`` (`HttpChatTransport` of npm ``ai`` 6 and 7). The
client sends its whole transcript. This module takes the last message, if it is the user's, and the user's
answers to calls; `Ask.answers_to` then drops the answers that no stored call waits for.

A client that follows the stream of each turn from its beginning holds the messages that are written for a
page that is loaded again. The reply of a call is one message, with the `turn_ref` of its first turn as its
id. A message of the user has the `turn_ref` of its turn and "u". Events, system messages and the notes of
compactions are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from ..base import rawjson
from ..history.turns import History, replies
from ..types.answers import INSIDE, Answer, Approve, Deny, PendingCall, ToolReturn
from ..types.messages import Message, Part, Text, ToolCall
from ..types.render import files_in
from .bodies import changes, items_at, json_object, media_of, span_at, text_of, value_of
from .front_end import Ask, AskError
from .reply_pieces import (
    Called,
    Piece,
    Reasoned,
    Returned,
    Said,
    Step,
    Waits,
    pieces_of_reply,
    said_in,
    turn_ids,
)

__all__ = ["BAD_INPUT", "input_of", "is_inside", "output_of", "read_aisdk", "ui_messages"]


def read_aisdk(body: bytes, *, carries: bool = False) -> Ask:
    """Read a body. Raises `AskError` if it is not a request of an AI SDK client.

    `carries`: the client carries the state, as the metadata of its replies; the newest one counts.
    """
    found = json_object(body)
    name = text_of(found, "id")
    messages = found.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise AskError("messages must be a list of objects")
    trigger = found.get("trigger") or "submit-message"
    if trigger not in ("submit-message", "regenerate-message"):
        raise AskError("trigger must be submit-message or regenerate-message")
    if not messages:
        raise AskError("messages is empty")
    last = messages[-1]
    state = _newest_state(messages) if carries else None
    if last.get("role") == "user":
        return Ask(
            conversation=name,
            said=_said(_parts(last)),
            turn_id=text_of(last, "id"),
            again=_again(found, last) if trigger == "regenerate-message" else None,
            edit=_edited(found, last, trigger),
            state=state,
        )
    if last.get("role") != "assistant" or trigger == "regenerate-message":
        raise AskError("the last message must be the user's, or a reply with answered calls")
    return Ask(conversation=name, answers=_answers(messages, body), state=state)


def _newest_state(messages: list[dict[str, Any]]) -> str | None:
    for message in reversed(messages):
        metadata = message.get("metadata")
        if message.get("role") == "assistant" and isinstance(metadata, dict) and "state" in metadata:
            return text_of(metadata, "state", most=None)
    return None


def _again(found: dict[str, Any], last: dict[str, Any]) -> str:
    """The id of the reply, if the client names it, else of the message that it answers."""
    return text_of(last, "id") if found.get("messageId") is None else text_of(found, "messageId")


def _edited(found: dict[str, Any], last: dict[str, Any], trigger: str) -> str | None:
    """The id of the message that is replaced; None for a new message.

    An edit names its id, which the new message has, too. A regenerate replaces the message by itself.
    """
    if trigger == "regenerate-message":
        return text_of(last, "id")
    return text_of(found, "messageId") if found.get("messageId") is not None and "id" in last else None


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise AskError("the parts of a message must be a list of objects")
    return parts


def _said(parts: list[dict[str, Any]]) -> tuple[Part, ...]:
    said: list[Part] = []
    for part in parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str) and part["text"]:
            said.append(Text(part["text"]))
        elif part.get("type") == "file":
            name = part.get("filename")
            said.append(
                media_of(
                    text_of(part, "url", most=None),
                    text_of(part, "mediaType"),
                    name if isinstance(name, str) and name else None,
                )
            )
    if not said:
        raise AskError("the user's message has no text and no file")
    return tuple(said)


def _answers(messages: list[dict[str, Any]], body: bytes) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    spans = items_at(body, "messages", len(messages))
    for message, span in zip(messages, spans, strict=True):
        if message.get("role") != "assistant":
            continue
        parts = _parts(message)
        for part, cut in zip(parts, items_at(span, "parts", len(parts)), strict=True):
            id, answer = part.get("toolCallId"), _answer(part, cut)
            if isinstance(id, str) and answer is not None:
                found[id] = answer
    return found


def _answer(part: dict[str, Any], cut: bytes | None) -> Answer | None:
    """Give the answer in a part of a tool call; None without an answer."""
    match part.get("state"):
        case "approval-responded":
            approval = part.get("approval")
            if not isinstance(approval, dict) or not isinstance(approval.get("approved"), bool):
                raise AskError("an approval must say approved: true or false")
            if approval["approved"]:
                return Approve()
            reason = approval.get("reason")
            return Deny(reason if isinstance(reason, str) else "")
        case "output-available":
            if cut is None or "output" not in part:
                return ToolReturn(part.get("output"))
            return ToolReturn(value_of(span_at(cut, "output"), part["output"]))
        case "output-error":
            text = part.get("errorText")
            return ToolReturn(text if isinstance(text, str) else "", is_error=True)
    return None


BAD_INPUT = "The arguments are not valid JSON."


def input_of(call: ToolCall) -> tuple[Any, bool]:
    """Give the arguments of a call as a JSON value, and whether a tool can take them.

    The free text of a custom tool is good as it is; a function's arguments that are not JSON are not good. A
    value that nests deeper than an answer can is given as text. So is a value that a page would read wrong.
    """
    if call.kind == "custom":
        return call.arguments, True
    try:
        return _writable(call.arguments or "{}"), True
    except ValueError:
        return call.arguments, False


def is_inside(call: ToolCall) -> bool:
    """True for a call that waits inside of another call: the outer call runs a chat as a tool."""
    return INSIDE in call.id


def output_of(text: str) -> Any:
    """The text of a result as a client gets it: an object or a list if it is one in JSON, else the text."""
    if text[:1] in ("{", "["):
        try:
            return _writable(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _writable(text: str) -> Any:
    """Read JSON. Give the text itself if an answer cannot hold the value, or a page would read other values.

    A model, or a tool that reads text of strangers, may nest JSON deeper than the writer allows. JavaScript
    reads another number for 12345678901234567891, and only one of two equal names.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        rawjson.view(text.encode())  # it may have a number that no float can hold
        return text
    try:
        orjson.dumps([[[[[[[[value]]]]]]]])  # an answer adds fewer levels
    except TypeError:
        return text
    return text if changes(text, by_value=True) else value


def ui_messages(
    history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
) -> list[dict[str, Any]]:
    """Write a history as a list of UI messages, oldest first."""
    messages: list[dict[str, Any]] = []
    for reply in replies(history.turns):
        for turn in reply:
            ids = turn_ids(conversation_id, turn)
            messages += [
                _message(next(ids.said), message.role, _parts_said(message)) for message in said_in(turn)
            ]
        if parts := _parts_replied(pieces_of_reply(reply, pending)):
            messages.append(_message(turn_ids(conversation_id, reply[0]).reply, "assistant", parts))
    for at, message in enumerate(history.waiting, 1):
        if message.role == "user" and not message.is_event and (parts := _parts_said(message)):
            messages.append(_message(f"{conversation_id}-waiting-{at}", "user", parts))
    return messages


def _message(id: str, role: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": id, "role": role, "parts": parts}


def _parts_said(message: Message) -> list[dict[str, Any]]:
    parts = [_part_said(part) for part in files_in(message)]
    if said := message.said:
        parts.append({"type": "text", "text": said, **({"state": "done"} if message.role != "user" else {})})
    return parts


def _part_said(part: Part) -> dict[str, Any]:
    assert not isinstance(part, Text)
    url = part.url or f"data:{part.media_type};base64,{part.base64()}"
    named = {"filename": part.name} if part.name else {}
    return {"type": "file", "mediaType": part.media_type, "url": url, **named}


def _parts_replied(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    has_step_inside = False
    for piece in pieces:
        match piece:
            case Step():
                has_step_inside = False
                parts.append({"type": "step-start"})
            case Said() | Reasoned():
                kind = "text" if isinstance(piece, Said) else "reasoning"
                parts.append({"type": kind, "text": piece.text, "state": "done"})
            case Called():
                if is_inside(piece.call) and not has_step_inside:
                    parts.append({"type": "step-start"})  # see `UIMessageStream`
                    has_step_inside = True
                parts.append(_call(piece))
                calls[piece.call.id] = parts[-1]
            case Returned() if piece.call_id in calls:
                _finish(calls[piece.call_id], piece)
            case Waits() if piece.call_id in calls and piece.reason == "approval":
                calls[piece.call_id] |= {"state": "approval-requested", "approval": {"id": piece.call_id}}
    return parts


def _call(piece: Called) -> dict[str, Any]:
    call = piece.call
    value, is_good = input_of(call)
    part = {"type": "dynamic-tool", "toolName": call.name, "toolCallId": call.id, "input": value}
    if is_good:
        return {**part, "state": "input-available"}
    return {**part, "state": "output-error", "errorText": BAD_INPUT}


def _finish(part: dict[str, Any], piece: Returned) -> None:
    if piece.flag == "ok":
        part |= {"state": "output-available", "output": output_of(piece.output)}
    elif piece.flag == "denied":
        part |= {"state": "output-denied", "approval": {"id": piece.call_id, "approved": False}}
    else:
        part |= {"state": "output-error", "errorText": piece.output}
