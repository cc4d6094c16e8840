"""Reads one Anthropic message as neutral values: roles, parts, calls, results, reasoning, events.

Owns: where a message of this provider API holds its content. Must never know: its stored or sent form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...base import rawjson
from ...types.messages import Document, Image, Message, Part, Text, ToolCall
from ...types.render import read_event, read_system, read_text
from ..wire.tolerance import decoded

__all__ = ["member_call", "read_entry"]


def read_entry(entry: bytes) -> tuple[Message, ...]:
    """Read one stored entry as neutral messages, at least one. Blocks of unknown kinds are in `raw` only.

    An entry with tool results gives one message for each result, and one user's message for each run of
    other blocks.

    Raises:
        RawJSONError: The entry is not a JSON object.
    """
    view = rawjson.view(entry)
    if not isinstance(view, dict):
        raise rawjson.RawJSONError("an entry of the provider API 'anthropic' must be a JSON object", 0)
    role = view.get("role")
    blocks = _blocks(view.get("content"))
    if role == "assistant":
        return (_spoken(blocks, entry),)
    if role == "system":
        return (Message(role="system", parts=_parts(blocks, as_user=False), raw=entry),)
    return tuple(_heard(blocks, entry)) or (Message(role="user", raw=entry),)


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _spoken(blocks: Sequence[dict[str, Any]], entry: bytes) -> Message:
    has_calls = any(block.get("type") == "tool_use" for block in blocks)
    thoughts = [_str(block, "thinking") for block in blocks if block.get("type") == "thinking"]
    return Message(
        role="assistant",
        parts=_parts(blocks, as_user=False),
        tool_calls=_calls(blocks, entry) if has_calls else (),
        reasoning="".join(thoughts),
        raw=entry,
    )


def _calls(blocks: Iterable[dict[str, Any]], entry: bytes) -> tuple[ToolCall, ...]:
    """The calls. Their arguments are the bytes of their input; of a toolset's member, the whole block."""
    raws = [raw for raw in rawjson.items(rawjson.members(entry)["content"]) if raw.startswith(b"{")]
    return tuple(
        member_call(_str(block, "id"), family, raw)
        if (family := _str(block, "toolset_name"))
        else ToolCall(
            id=_str(block, "id"),
            name=_str(block, "name"),
            arguments=rawjson.members(raw).get("input", b"{}").decode(),
        )
        for block, raw in zip(blocks, raws, strict=True)
        if block.get("type") == "tool_use"
    )


def _heard(blocks: Iterable[dict[str, Any]], entry: bytes) -> Iterable[Message]:
    beside: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            beside.append(block)
            continue
        if beside:
            yield _user(beside, entry)
            beside = []
        content = _blocks(block.get("content"))
        parts = _parts(content, as_user=False)
        yield Message(
            role="tool",
            parts=parts,
            tool_call_id=_str(block, "tool_use_id"),
            raw=entry,
            unread=len(content) - len(parts),
        )
    if beside:
        yield _user(beside, entry)


def _user(blocks: list[dict[str, Any]], entry: bytes) -> Message:
    parts = _parts(blocks, as_user=True)
    if len(parts) == 1 and isinstance(parts[0], Text):
        text = parts[0].text
        if (event := read_event(text)) is not None:
            return Message(
                role="user",
                parts=(Text(event.text),),
                is_event=True,
                topic=event.topic,
                event_id=event.id,
                raw=entry,
            )
        if (instruction := read_system(text)) is not None:
            return Message(role="system", parts=(Text(instruction),), raw=entry)
    return Message(role="user", parts=parts, raw=entry, unread=len(blocks) - len(parts))


def _parts(blocks: Iterable[dict[str, Any]], *, as_user: bool) -> tuple[Part, ...]:
    text = read_text if as_user else Text
    parts: list[Part] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(words)}:
                parts.append(text(words))
            case {"type": "image", "source": {"type": "base64", "data": str(data)} as source}:
                media_type = _str(source, "media_type") or "image/png"
                parts.append(Image(media_type=media_type, data=decoded(data)))
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                parts.append(Image(media_type="image/png", url=url))
            case {"type": "document", "source": dict(source)}:
                document = _document(source, _str(block, "title") or None)
                parts += [] if document is None else [document]
    return tuple(parts)


def _document(source: Mapping[str, Any], name: str | None) -> Document | None:
    media_type = _str(source, "media_type")
    match source:
        case {"type": "base64", "data": str(data)}:
            return Document(media_type=media_type or "application/pdf", data=decoded(data), name=name)
        case {"type": "text", "data": str(text)}:
            return Document(media_type=media_type or "text/plain", data=_encoded(text), name=name)
        case {"type": "url", "url": str(url)}:
            return Document(media_type="application/pdf", url=url, name=name)
    return None  # other sources, such as uploaded files, are in `raw` only


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _str(owner: Mapping[str, Any], key: str) -> str:
    value = owner.get(key)
    return value if isinstance(value, str) else ""


def member_call(id: str, family: str, raw: bytes) -> ToolCall:
    """A call of a member, as a call of the family. The arguments are the whole block."""
    return ToolCall(id=id, name=family, arguments=raw.decode("utf-8", "replace"), kind="provider")
