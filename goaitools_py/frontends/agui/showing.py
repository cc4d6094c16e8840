"""Writes a history as the messages of AG-UI, for snapshots and for pages that are opened again.

Owns: the messages' ids, roles and members. Must never know: a stream.

A client that follows the stream of each turn from its beginning holds the same messages. A reply is one
message of the assistant for each step, with the step's calls, before it one of reasoning, and behind it one
for each result. Events, system messages and the notes of compactions are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...history.turns import History, HistoryTurn
from ...types.answers import PendingCall
from ...types.messages import Message, Part, Text
from ...types.render import files_in
from ..ids import said_in, turn_ids
from ..pieces import Called, Piece, Reasoned, Returned, Said, Step, pieces_of
from .asking import MESSAGE_ID

__all__ = ["Told", "agui_messages", "reasoning_id", "result_id", "result_metadata", "step_id"]


class Told(NamedTuple):
    """The pieces of a turn so far. They replace the pieces of this turn in the history."""

    turn_ref: str
    pieces: Sequence[Piece]


def step_id(turn_ref: str, number: int) -> str:
    """Name the message of a step. `number`: the model call of the turn, counted from 1."""
    return f"{turn_ref}.{number}"


def reasoning_id(step: str) -> str:
    """Name the message with the reasoning of a step."""
    return f"{step}r"


def result_id(turn_ref: str, call_id: str) -> str:
    """Name the message of a result."""
    return f"{turn_ref}:{call_id}"


def result_metadata(flag: str) -> dict[str, Any]:
    """Give the metadata of a result: AG-UI has no word for a result that is an error or a denial."""
    return {} if flag == "ok" else {"metadata": {"flag": flag}}


def agui_messages(
    history: History, *, conversation_id: str, pending: Sequence[PendingCall] = (), told: Told | None = None
) -> list[dict[str, Any]]:
    """Write a history as a list of messages, oldest first. `told`: the newer reply of a stream."""
    messages: list[dict[str, Any]] = []
    for turn in history.turns:
        ids = turn_ids(conversation_id, turn)
        messages += _said_in(turn, ids.said)
        if told is not None and ids.reply == told.turn_ref:
            messages += _reply(ids.reply, told.pieces)
            told = None
        else:
            messages += _reply(ids.reply, pieces_of(turn, pending))
    if told is not None:
        messages += _reply(told.turn_ref, told.pieces)
    for at, message in enumerate(history.waiting, 1):
        if message.role == "user" and not message.is_event:
            messages.append(_said(message, f"{conversation_id}-waiting-{at}"))
    return messages


def _said_in(turn: HistoryTurn, ids: Any) -> list[dict[str, Any]]:
    own = turn.metadata.get(MESSAGE_ID)
    found = []
    for message in said_in(turn):
        id = next(ids)
        if own is not None and message.role == "user":
            id, own = own, None
        found.append(_said(message, id))
    return found


def _said(message: Message, id: str) -> dict[str, Any]:
    files = [_file(part) for part in files_in(message)]
    named = {} if message.speaker is None else {"name": message.speaker}
    if not files:
        return {"id": id, "role": message.role, "content": message.said, **named}
    text = [{"type": "text", "text": message.said}] if message.said else []
    return {"id": id, "role": message.role, "content": [*files, *text], **named}


def _file(part: Part) -> dict[str, Any]:
    assert not isinstance(part, Text)
    kind = part.media_type.partition("/")[0]
    if part.url:
        source = {"type": "url", "value": part.url, "mimeType": part.media_type}
    else:
        source = {"type": "data", "value": part.base64(), "mimeType": part.media_type}
    return {"type": kind if kind in ("image", "audio", "video") else "document", "source": source}


def _reply(turn_ref: str, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The messages of a reply. A result stands behind the message with its call."""
    messages: list[dict[str, Any]] = []
    owners: dict[str, dict[str, Any]] = {}
    number = 0
    step: dict[str, Any] = {}
    for piece in pieces:
        match piece:
            case Step():
                number += 1
                step = {"id": step_id(turn_ref, number), "role": "assistant"}
            case Reasoned():
                id = reasoning_id(step["id"])
                messages.append({"id": id, "role": "reasoning", "content": piece.text})
            case Said():
                step["content"] = piece.text
                messages.append(step)
            case Called():
                if not any(one is step for one in messages):
                    messages.append(step)
                step.setdefault("toolCalls", []).append(_call(piece))
                owners[piece.call.id] = step
            case Returned() if piece.call_id in owners:
                at = messages.index(owners[piece.call_id]) + 1
                while at < len(messages) and messages[at]["role"] == "tool":
                    at += 1
                messages.insert(at, _result(turn_ref, piece))
    return messages


def _call(piece: Called) -> dict[str, Any]:
    call = piece.call
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _result(turn_ref: str, piece: Returned) -> dict[str, Any]:
    return {
        "id": result_id(turn_ref, piece.call_id),
        "role": "tool",
        "toolCallId": piece.call_id,
        "content": piece.output,
        **result_metadata(piece.flag),
    }
