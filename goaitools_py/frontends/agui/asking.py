"""Reads the request of an AG-UI client.

Owns: the request's members. Must never know: a stream, or a stored state.

The body is a ``RunAgentInput`` (AG-UI 1.0, ``spec/1.0/schema.json``). The client sends its transcript. This
module takes the last message, if it is the user's; the entries of ``resume``; and results in messages of the
role ``tool`` at the end. `Ask.answers_to` then drops the answers that no stored call waits for. A request
with no message and no answer asks for the conversation as it stands. ``tools``, ``context``, ``state`` and
``forwardedProps`` are not read: a page does not choose the model's input.
"""

from __future__ import annotations

from typing import Any, Final

from ...types.answers import Answer, Approve, Deny, ToolReturn
from ...types.messages import Part, Text
from ..base import Ask, AskError
from ..bodies import items_at, json_object, media_of, span_at, text_of, value_of

__all__ = ["MESSAGE_ID", "AGUIAsk", "read"]

MESSAGE_ID: Final = "agui.message_id"
"""The name in a turn's metadata of the id that the client gave the user's message. A snapshot needs it: the
client puts messages with unknown ids at the end."""

_MEDIA: Final = ("image", "audio", "video", "document")  # no set: a client may send a value without a hash


class AGUIAsk(Ask, frozen=True, kw_only=True):
    """A request of an AG-UI client.

    Attributes:
        run: The client's id of the run.
        is_current: True if the client has named its protocol version, so that it knows all of 1.0.
        reasoning: The ids of the messages with reasoning that the client holds.
    """

    run: str = ""
    is_current: bool = False
    reasoning: frozenset[str] = frozenset()


def read(body: bytes) -> AGUIAsk:
    """Read a body. Raises `AskError` if it is not a request of an AG-UI client."""
    found = json_object(body)
    messages = found.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise AskError("messages must be a list of objects")
    about: dict[str, Any] = {
        "conversation": text_of(found, "threadId"),
        "run": text_of(found, "runId"),
        "is_current": isinstance(found.get("protocolVersion"), str),
        "reasoning": frozenset(
            one["id"] for one in messages if one.get("role") == "reasoning" and isinstance(one.get("id"), str)
        ),
    }
    answers = _resumed(found.get("resume"), body)
    if messages and messages[-1].get("role") == "user":
        if answers:
            raise AskError("answer the calls first, and then send the message")
        id = text_of(messages[-1], "id")
        said = _said(messages[-1].get("content"))
        return AGUIAsk(said=said, turn_id=id, metadata={MESSAGE_ID: id}, **about)
    return AGUIAsk(answers={**_results(messages), **answers}, **about)


def _said(content: object) -> tuple[Part, ...]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise AskError("the content of a message must be text or a list of parts")
    said = tuple(_part(part) for part in parts if part.get("text") != "")
    if not said:
        raise AskError("the user's message has no text and no file")
    return said


def _part(part: dict[str, Any]) -> Part:
    if part.get("type") == "text":
        return Text(text_of(part, "text", most=None))
    if part.get("type") not in _MEDIA:
        raise AskError("the type of a part must be text, image, audio, video or document")
    source = part.get("source")
    if not isinstance(source, dict):
        raise AskError("a part with a file must have a source")
    if source.get("type") == "url":
        return media_of(text_of(source, "value", most=None), _media_type(source), None)
    if source.get("type") != "data":
        raise AskError("a file must be sent as data")
    kind = _media_type(source)
    return media_of(f"data:{kind};base64,{text_of(source, 'value', most=None)}", kind, None)


def _media_type(source: dict[str, Any]) -> str:
    return text_of(source, "mimeType")


def _resumed(entries: object, body: bytes) -> dict[str, Answer]:
    """The answers to approvals. An entry without an answer that can be read is an error."""
    if entries is None:
        return {}
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise AskError("resume must be a list of objects")
    spans = items_at(body, "resume", len(entries))
    return {text_of(one, "interruptId"): _answer(one, span) for one, span in zip(entries, spans, strict=True)}


def _answer(entry: dict[str, Any], span: bytes | None) -> Answer:
    if entry.get("status") == "cancelled":
        return Deny("")
    if entry.get("status") != "resolved":
        raise AskError("the status of a resume entry must be resolved or cancelled")
    match entry.get("payload"):
        case True | {"approved": True}:
            return Approve(_arguments(entry["payload"], span))
        case False:
            return Deny("")
        case {"approved": False, **rest}:
            reason = rest.get("reason")
            return Deny(reason if isinstance(reason, str) else "")
    raise AskError("the payload of a resume entry must say approved: true or false")


def _arguments(payload: object, span: bytes | None) -> dict[str, Any] | str | None:
    arguments = payload.get("arguments") if isinstance(payload, dict) else None
    if arguments is not None and not isinstance(arguments, dict):
        raise AskError("the arguments of an approval must be an object")
    if arguments is None:
        return None
    cut = None if span is None else span_at(span, "payload", "arguments")
    found: dict[str, Any] | str = value_of(cut, arguments)
    return found


def _results(messages: list[dict[str, Any]]) -> dict[str, Answer]:
    """The results in messages at the end of the transcript: a client puts its own tools' results there."""
    found: dict[str, Answer] = {}
    for message in reversed(messages):
        if message.get("role") != "tool":
            break
        id = message.get("toolCallId")
        if isinstance(id, str):
            is_error = isinstance(message.get("error"), str) and bool(message["error"])
            found[id] = ToolReturn(_text(message.get("content")), is_error=is_error)
    return found


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))
