"""Reads one Chat Completions message as neutral values: roles, parts, calls, reasoning, events.

Owns: where servers put the content of a message. Must never know: its stored form, or its sent form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...base import rawjson
from ...types.messages import Audio, Document, Image, Message, Part, Role, Text, ToolCall
from ...types.render import read_event, read_text
from ..wire.tolerance import as_dict, as_str, data_url, decoded, is_hollow

__all__ = ["call_of", "read_entry", "spoken"]

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def read_entry(entry: bytes) -> Message:
    """Read one stored entry as a neutral message. Parts of unknown kinds are in `raw` only.

    Raises:
        RawJSONError: The entry is not a JSON object, or has more than 100,000 calls.
    """
    view = rawjson.view(entry)
    if not isinstance(view, dict):
        raise rawjson.RawJSONError("an entry of the provider API 'openai' must be a JSON object", 0)
    role = _ROLES.get(as_str(view.get("role")), "user")
    parts = _parts(view.get("content"), as_user=role == "user")
    if role == "user" and len(parts) == 1 and isinstance(parts[0], Text):
        event = read_event(parts[0].text)
        if event is not None:
            return Message(
                role="user",
                parts=(Text(event.text),),
                is_event=True,
                topic=event.topic,
                event_id=event.id,
                raw=entry,
            )
    if role == "assistant" and not parts and (refusal := as_str(view.get("refusal"))):
        parts = (Text(refusal),)
    content, tool_calls = view.get("content"), view.get("tool_calls")
    listed = len(content) if isinstance(content, list) else len(parts)
    return Message(
        role=role,
        parts=parts,
        tool_calls=_calls(tool_calls),
        tool_call_id=as_str(view.get("tool_call_id")) if role == "tool" else None,
        reasoning=spoken(view)[1] if role == "assistant" else "",
        raw=entry,
        unread=listed - len(parts) if role in ("user", "tool") else 0,
    )


def _parts(content: Any, *, as_user: bool) -> tuple[Part, ...]:
    text = read_text if as_user else Text
    if isinstance(content, str):
        return (text(content),) if content else ()
    parts: list[Part] = []
    for part in content if isinstance(content, list) else ():
        match as_dict(part):
            case {"type": "text", "text": str(words)} | {"type": "refusal", "refusal": str(words)}:
                parts.append(text(words))
            case {"type": "image_url", "image_url": {"url": str(url)} as image}:
                media_type, data = data_url(url, "image/png")
                detail = as_str(image.get("detail")) or None
                where = None if data is not None else url
                parts.append(Image(media_type=media_type, data=data, url=where, detail=detail))
            case {"type": "file", "file": {"file_data": str(url)} as file}:
                media_type, data = data_url(url, "application/pdf")
                name = as_str(file.get("filename")) or None
                parts.append(Document(media_type=media_type, data=data, name=name))
            case {"type": "input_audio", "input_audio": {"data": str(encoded)} as audio}:
                media_type = "audio/mpeg" if audio.get("format") == "mp3" else "audio/wav"
                parts.append(Audio(media_type=media_type, data=decoded(encoded)))
    return tuple(parts)


# ----------------------------------------------------------------- content of assistant's messages


def spoken(view: Mapping[str, Any]) -> tuple[str, str]:
    """Text and reasoning of a message. Mistral's models spread both over content parts."""
    content = view.get("content")
    if isinstance(content, str):
        return content, _reasoning(view)
    text, thoughts = [], []
    for part in content if isinstance(content, list) else ():
        match as_dict(part):
            case {"type": "text", "text": str(words)} | {"type": "refusal", "refusal": str(words)}:
                text.append(words)
            case {"type": "thinking", "thinking": list(pieces)}:
                thoughts += [as_str(as_dict(piece).get("text")) for piece in pieces]
            case {"type": "thinking", "thinking": str(words)}:
                thoughts.append(words)
    return "".join(text), "".join(thoughts) or _reasoning(view)


def _reasoning(view: Mapping[str, Any]) -> str:
    for key in ("reasoning_content", "reasoning"):
        if words := as_str(view.get(key)):
            return words
    details = view.get("reasoning_details")
    pieces = [as_dict(piece) for piece in details] if isinstance(details, list) else []
    return "".join(as_str(piece.get("text")) or as_str(piece.get("summary")) for piece in pieces)


def call_of(view: Mapping[str, Any]) -> ToolCall:
    """Read one tool call. Function and custom tools have name and arguments in different members."""
    custom = as_dict(view.get("custom"))
    is_custom = not is_hollow(custom) and is_hollow(view.get("function"))
    body, written = (custom, "input") if is_custom else (as_dict(view.get("function")), "arguments")
    arguments = body.get(written)
    if arguments is not None and not isinstance(arguments, str):  # a server that sends an object
        arguments = rawjson.dumps(arguments).decode()
    return ToolCall(
        id=as_str(view.get("id")),
        name=as_str(body.get("name")),
        arguments=arguments or "",
        kind="custom" if is_custom else "function",
    )


def _calls(found: Any) -> tuple[ToolCall, ...]:
    """The calls of a message. An element that is not an object is not a call."""
    if not isinstance(found, list):
        return ()
    if len(found) > _MOST_CALLS:
        raise rawjson.RawJSONError(f"a message with more than {_MOST_CALLS:,} calls", 0)
    return tuple([call_of(one) for one in found if isinstance(one, dict)])


_MOST_CALLS: Final = 100_000
"""A forged message may have half a million, and each takes up to a kilobyte when it is read and shown. Each
call needs a result, so a history has at most as many calls as entries: 20,000 by the usual limits."""
