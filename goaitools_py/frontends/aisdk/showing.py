"""Writes a history as the messages of the AI SDK, for a page that is opened or loaded again.

Owns: the messages' ids, roles and parts. Must never know: a stream.

A client that follows the stream of each turn from its beginning holds the same messages. The reply of a turn
is one message, with the turn's `turn_ref` as its id. A message of the user has the `turn_ref` and "u".
Events, system messages and the notes of compactions are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...history.turns import History
from ...types.answers import PendingCall
from ...types.messages import Message, Part, Text
from ...types.render import files_in
from ..ids import said_in, turn_ids
from ..pieces import Called, Piece, Reasoned, Returned, Said, Step, Waits, pieces_of
from .calls import BAD_INPUT, input_of, is_inside, output_of

__all__ = ["ui_messages"]


def ui_messages(
    history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
) -> list[dict[str, Any]]:
    """Write a history as a list of UI messages, oldest first."""
    messages: list[dict[str, Any]] = []
    for turn in history.turns:
        ids = turn_ids(conversation_id, turn)
        messages += [
            _message(next(ids.said), message.role, _parts_said(message)) for message in said_in(turn)
        ]
        if parts := _parts_replied(pieces_of(turn, pending)):
            messages.append(_message(ids.reply, "assistant", parts))
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
