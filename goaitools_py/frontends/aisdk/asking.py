"""Reads the request of an AI SDK client.

Owns: the request's members. Must never know: a stream, or a stored state.

The body is ``{"id", "messages", "trigger", "messageId"}`` (`HttpChatTransport` of npm ``ai`` 6 and 7). The
client sends its whole transcript. This module takes the last message, if it is the user's, and the user's
answers to calls; `Ask.answers_to` then drops the answers that no stored call waits for.
"""

from __future__ import annotations

from typing import Any

from ...types.answers import Answer, Approve, Deny, ToolReturn
from ...types.messages import Part, Text
from ..base import Ask, AskError
from ..bodies import items_at, json_object, media_of, span_at, text_of, value_of

__all__ = ["read"]


def read(body: bytes, *, carries: bool = False) -> Ask:
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
            again=_again(found) if trigger == "regenerate-message" else None,
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


def _again(found: dict[str, Any]) -> str:
    return "" if found.get("messageId") is None else text_of(found, "messageId")


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
