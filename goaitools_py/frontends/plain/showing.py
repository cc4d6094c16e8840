"""Writes replies, results and histories as plain JSON.

Owns: these shapes. Must never know: a stream, or HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...history.turns import History
from ...types.answers import PendingCall
from ...types.messages import Message, Part, Text
from ...types.render import files_in
from ...types.result import ChatResult
from ..ids import said_in, turn_ids
from ..pieces import Called, Piece, Reasoned, Returned, Said, Waits, pieces_of

__all__ = ["messages_of", "pending_of", "piece_of", "result_of"]


def piece_of(piece: Piece) -> tuple[str, dict[str, Any]] | None:
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
    for turn in history.turns:
        ids = turn_ids(conversation_id, turn)
        messages += [_said(message, next(ids.said)) for message in said_in(turn)]
        pieces = pieces_of(turn, pending)
        written = [
            {"type": found[0], **found[1]} for piece in pieces if (found := piece_of(piece)) is not None
        ]
        if written:
            text = "".join(piece.text for piece in pieces if isinstance(piece, Said))
            messages.append({"id": ids.reply, "role": "assistant", "text": text, "pieces": written})
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
