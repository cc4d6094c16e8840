"""Reads items of the Responses API as neutral values, and changes items of an impossible shape.

Owns: the content of an item, and which items together are one message.
Must never know: the stored form or the sent form.

No server should send an item of an impossible shape. The table of its changes is in `reply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from ...base import rawjson
from ...types.messages import Document, Image, Message, Part, Role, Text, ToolCall, media_type_of
from ...types.render import read_event, read_text
from ..base import ProtocolFault
from ..openai.odd_replies import has_odd_content, mended_content
from ..wire.tolerance import as_dict, as_str, data_url
from . import client_calls as client
from .rules import entry_problems

__all__ = [
    "BETWEEN",
    "CALLS",
    "SPEAKERS",
    "call_of",
    "is_odd_item",
    "is_refused",
    "kind_of",
    "mended_item",
    "read_entries",
    "spoken",
    "thought",
]

CALLS: Final[Mapping[str, tuple[Literal["function", "custom"], str]]] = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
}
"""The items that are calls of the caller's tools: the kind of tool, and the member with its arguments."""

_ROLES: Final[Mapping[str, Role]] = {
    "assistant": "assistant",
    "user": "user",
    "system": "system",
    "developer": "system",
    "additional_tools": "system",
    "configuration_update": "system",
    "compaction_trigger": "system",
    "mcp_approval_response": "tool",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
    "computer_call_output": "tool",
    "local_shell_call_output": "tool",
    "apply_patch_call_output": "tool",
}
"""The role of an item, by its `kind_of`. All other items are the model's: its thinking, its calls, and the
results of hosted tools in the middle of a reply."""


def kind_of(item: Mapping[str, Any]) -> str:
    """The kind of an item: the role of a message, the type of every other item."""
    kind = as_str(item.get("type"))
    return as_str(item.get("role")) or "user" if kind in ("message", "") else kind


def read_entries(entries: Iterable[bytes]) -> tuple[Message, ...]:
    """Read consecutive stored entries as neutral messages; the items of one reply are one message.

    Parts and items of unknown kinds are in `raw` only.

    Raises:
        RawJSONError: An entry is not a JSON object.
    """
    messages: list[Message] = []
    reply: list[tuple[bytes, Mapping[str, Any]]] = []
    for entry in entries:
        item = rawjson.view(entry)
        if not isinstance(item, dict):
            raise rawjson.RawJSONError(
                "an entry of the provider API 'openai-responses' must be a JSON object", 0
            )
        role = _role(item)
        # Items of a reply have a type or an id. An assistant's message without both is the caller's.
        if role == "assistant" and ("type" in item or "id" in item):
            reply.append((entry, item))
            continue
        if reply:
            messages.append(_reply(reply))
            reply = []
        messages.append(_reply([(entry, item)]) if role == "assistant" else _given(entry, item, role))
    if reply:
        messages.append(_reply(reply))
    return tuple(messages)


def _role(item: Mapping[str, Any]) -> Role:
    kind = kind_of(item)
    if kind == "tool_search_output" and item.get("execution") == "client":
        return "tool"
    if kind == "shell_call_output" and not item.get("id"):  # the server's own outputs have one
        return "tool"
    return _ROLES.get(kind, "assistant" if "type" in item else "user")


BETWEEN: Final = "\n\n"
"""The separator between the texts of two messages of one reply, such as a commentary (`phase`) and the final
answer. The messages themselves have no separator."""


def _reply(items: Sequence[tuple[bytes, Mapping[str, Any]]]) -> Message:
    parts: list[Part] = []
    calls: list[ToolCall] = []
    thoughts: list[str] = []
    done = {(kind_of(item), client.answered_id(item)) for _, item in items}
    for entry, item in items:
        kind = kind_of(item)
        if kind == "assistant":
            said = _parts(item.get("content"), as_user=False)
            if _has_text(said) and _has_text(parts):
                parts.append(Text(BETWEEN))
            parts += said
        elif kind == "reasoning":
            thoughts.append(thought(item))
        elif kind in CALLS:
            calls.append(call_of(item))
        elif (call := client.client_call(item, entry)) and (client.OUTPUTS[kind], call.id) not in done:
            calls.append(call)
    return Message(
        role="assistant",
        parts=tuple(parts),
        tool_calls=tuple(calls),
        reasoning="".join(thoughts),
        raw=b",\n".join(entry for entry, _ in items),
    )


def _has_text(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, Text) and part.text for part in parts)


def _given(entry: bytes, item: Mapping[str, Any], role: Role) -> Message:
    if role == "tool":
        own = client.output_parts(item)
        parts = _parts(item.get("output"), as_user=False) if own is None else own
        return Message(
            role=role,
            parts=parts,
            tool_call_id=client.answered_id(item),
            raw=entry,
            unread=_unread(item.get("output"), parts) if own is None else 0,
        )
    parts = _parts(item.get("content"), as_user=role == "user")
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
    return Message(role=role, parts=parts, raw=entry, unread=_unread(item.get("content"), parts))


def _unread(content: Any, parts: Sequence[Part]) -> int:
    return len(content) - len(parts) if isinstance(content, list) else 0


def _parts(content: Any, *, as_user: bool) -> tuple[Part, ...]:
    text = read_text if as_user else Text
    if isinstance(content, str):
        return (text(content),) if content else ()
    parts: list[Part] = []
    for part in content if isinstance(content, list) else ():
        match as_dict(part):
            case {"type": "input_text" | "output_text" | "text", "text": str(words)}:
                parts.append(text(words))
            case {"type": "refusal", "refusal": str(words)}:
                parts.append(text(words))
            case {"type": "input_image", "image_url": str(url)} as image:
                media_type, data = data_url(url, "image/png")
                detail = as_str(image.get("detail")) or None
                where = None if data is not None else url
                parts.append(Image(media_type=media_type, data=data, url=where, detail=detail))
            case {"type": "input_file"} as file:
                parts += _document(file)
    return tuple(parts)


def _document(file: Mapping[str, Any]) -> tuple[Document, ...]:
    name = as_str(file.get("filename")) or None
    if encoded := as_str(file.get("file_data")):
        media_type, data = data_url(encoded, "application/pdf")
        return (Document(media_type=media_type, data=data, name=name),)
    if url := as_str(file.get("file_url")):
        return (Document(url=url, media_type=media_type_of(url, "application/pdf"), name=name),)
    return ()


# ----------------------------------------------------------------------------- content of model items


def spoken(content: Any) -> str:
    """The visible text of a message's content; a refusal is text."""
    return "".join(part.text for part in _parts(content, as_user=False) if isinstance(part, Text))


def is_refused(content: Any) -> bool:
    """Whether a message's content holds a refusal."""
    parts = content if isinstance(content, list) else ()
    return any(as_dict(part).get("type") == "refusal" for part in parts)


def thought(item: Mapping[str, Any]) -> str:
    """The readable text of a reasoning item: the thinking itself, or else its summary."""
    return _texts(item.get("content")) or _texts(item.get("summary"))


def _texts(parts: Any) -> str:
    if not isinstance(parts, list):
        return as_str(parts)
    return "".join(as_str(as_dict(part).get("text")) for part in parts)


def call_of(item: Mapping[str, Any]) -> ToolCall:
    """Read a call of one of the caller's tools."""
    kind, written = CALLS[as_str(item.get("type"))]
    arguments = item.get(written)
    if arguments is not None and not isinstance(arguments, str):  # a server that sends an object
        arguments = rawjson.dumps(arguments).decode()
    return ToolCall(
        id=as_str(item.get("call_id")), name=as_str(item.get("name")), arguments=arguments or "", kind=kind
    )


_SPEAKING: Final = ("assistant", "user", "system", "developer")


SPEAKERS: Final = ("assistant",)
"""Roles that a message of a reply may have. A tuple, because the value to look up may be unhashable."""


def is_odd_item(item: Mapping[str, Any], speakers: Sequence[str] = SPEAKERS) -> bool:
    """True for an item of an impossible shape, such as a message with a role outside of `speakers`."""
    kind = item.get("type")
    if _has_odd_id(item):
        return True
    if kind == "message":
        content = item.get("content")
        return item.get("role") not in speakers or content is None or has_odd_content(content)
    if not isinstance(kind, str) or kind in ("", *_SPEAKING):
        return True
    return next(entry_problems(item), None) is not None


def _has_odd_id(item: Mapping[str, Any]) -> bool:
    id = item.get("id")
    return id is not None and not isinstance(id, str)


def mended_item(entry: bytes, item: Mapping[str, Any], speakers: Sequence[str] = SPEAKERS) -> bytes:
    """The item in a form that can be sent back.

    Raises:
        ProtocolFault: The item has no type and is not a message.
    """
    changed: dict[str, bytes] = {}
    kind = item.get("type")
    if not isinstance(kind, str) or kind in ("", "message", *_SPEAKING):
        if "content" not in item and kind != "message":
            raise ProtocolFault("an item of the answer is neither a message nor of any type")
        changed["type"] = b'"message"'
        if item.get("role") not in speakers:
            changed["role"] = b'"assistant"'
        if item.get("content") is None:
            changed["content"] = b"[]"
        elif has_odd_content(item["content"]):
            changed["content"] = mended_content(rawjson.members(entry)["content"], text_type="output_text")
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        changed["summary"] = b"[]"
    entry = rawjson.without(entry, {"id"}) if _has_odd_id(item) else entry
    return rawjson.replaced(entry, changed) if changed else entry
