"""Messages of AG-UI, both ways: reads the request of a client, and writes a history for it.

Owns: the request's members, and the ids, roles and members of messages. Must never know: a stream, or a
stored state.

A request is a ``RunAgentInput`` (AG-UI 1.0, ``spec/1.0/schema.json``). The client sends its transcript. This
module takes the last message, if it is the user's; the entries of ``resume``; and results in messages of the
role ``tool`` at the end. `Ask.answers_to` then drops the answers that no stored call waits for. A request
with no message and no answer asks for the conversation as it stands. The earlier messages of the transcript
only go back to the same client; see `before_reply`. ``tools``, ``context``, ``state`` and
``forwardedProps`` are not read: a page does not choose the model's input.

A history serves snapshots, and pages that are opened again. A client that follows the stream of each turn
from its beginning holds the same messages. A reply is one message of the assistant for each step, with the
step's calls, before it one of reasoning, and behind it one for each result. Events, system messages and the
notes of compactions are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..history.turns import History, HistoryTurn, replies
from ..types.answers import Answer, Approve, Deny, PendingCall, ToolReturn
from ..types.messages import Message, Part, Text
from ..types.render import files_in
from .bodies import items_at, json_object, media_of, span_at, text_of, value_of
from .front_end import Ask, AskError
from .reply_pieces import (
    Called,
    Piece,
    Reasoned,
    Returned,
    Said,
    Step,
    is_shown_id,
    pieces_of_reply,
    said_in,
    turn_ids,
)

__all__ = [
    "AGUIAsk",
    "StreamedReply",
    "agui_messages",
    "before_reply",
    "read_agui",
    "reasoning_id",
    "result_id",
    "result_metadata",
    "step_id",
]

_MESSAGE_ID: Final = "agui.message_id"
"""The name in a turn's metadata of the id that the client gave the user's message. A snapshot needs it: the
client puts messages with unknown ids at the end."""

_MEDIA: Final = ("image", "audio", "video", "document")  # no set: a client may send a value without a hash


class AGUIAsk(Ask, frozen=True, kw_only=True):
    """A request of an AG-UI client.

    Attributes:
        run: The client's id of the run.
        is_current: True if the client has named its protocol version, so that it knows all of 1.0.
        reasoning: The ids of the messages with reasoning that the client holds.
        transcript: With a new message: all messages that the client holds.
    """

    _unshown = Ask._unshown | {"transcript"}

    run: str = ""
    is_current: bool = False
    reasoning: frozenset[str] = frozenset()
    transcript: tuple[dict[str, Any], ...] = ()


def read_agui(body: bytes) -> AGUIAsk:
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
    is_said = bool(messages) and messages[-1].get("role") == "user"
    if is_said and answers and not is_shown_id(str(messages[-1].get("id"))):
        raise AskError("answer the calls first, and then send the message")
    # With answers, a stored message may stand at the end: the client puts those there that it gets later.
    if is_said and not answers:
        id = text_of(messages[-1], "id")
        said = _asked_parts(messages[-1].get("content"))
        about |= {"metadata": {_MESSAGE_ID: id}, "transcript": tuple(messages)}
        return AGUIAsk(said=said, turn_id=id, edit="", **about)
    return AGUIAsk(answers={**_results(messages), **answers}, **about)


def _asked_parts(content: object) -> tuple[Part, ...]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise AskError("the content of a message must be text or a list of parts")
    said = tuple(_asked_part(part) for part in parts if part.get("text") != "")
    if not said:
        raise AskError("the user's message has no text and no file")
    return said


def _asked_part(part: dict[str, Any]) -> Part:
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


class StreamedReply(NamedTuple):
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
    history: History,
    *,
    conversation_id: str,
    pending: Sequence[PendingCall] = (),
    told: StreamedReply | None = None,
) -> list[dict[str, Any]]:
    """Write a history as a list of messages, oldest first. `told`: the newer reply of a stream."""
    messages: list[dict[str, Any]] = []
    for reply in replies(history.turns):
        for turn in reply:
            messages += _said_in(turn, turn_ids(conversation_id, turn).said)
        ref = turn_ids(conversation_id, reply[0]).reply
        if told is not None and ref == told.turn_ref:
            messages += _reply(ref, told.pieces)
            told = None
        else:
            messages += _reply(ref, pieces_of_reply(reply, pending))
    if told is not None:
        messages += _reply(told.turn_ref, told.pieces)
    for at, message in enumerate(history.waiting, 1):
        if message.role == "user" and not message.is_event:
            messages.append(_said(message, f"{conversation_id}-waiting-{at}"))
    return messages


def before_reply(transcript: Sequence[dict[str, Any]], turn_ref: str) -> list[dict[str, Any]] | None:
    """Give a client's messages without the reply of this turn; None if it holds nothing of the reply.

    A client removes messages with reasoning only if a snapshot has others. So without others they stay, and
    are empty.
    """
    others: list[dict[str, Any]] = []
    reasoning: list[dict[str, Any]] = []
    for one in transcript:
        if not str(one.get("id")).startswith((f"{turn_ref}.", f"{turn_ref}:")):  # see `step_id`, `result_id`
            others.append(one)
        elif one.get("role") == "reasoning":
            reasoning.append({**one, "content": ""})
    if len(others) == len(transcript):
        return None
    return others if any(one.get("role") == "reasoning" for one in others) else [*others, *reasoning]


def _said_in(turn: HistoryTurn, ids: Any) -> list[dict[str, Any]]:
    own = turn.metadata.get(_MESSAGE_ID)
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
