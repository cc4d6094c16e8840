"""Writes neutral messages, results and tools in the shapes of Anthropic's API.

Owns: the shape of a caller's messages. Must never know: a model's replies, a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ...types.messages import Audio, Document, Image, Message, Part, Text, ToolCall
from ...types.render import BlockText, event_block, system_block, user_text, valid_text
from ...types.request_parts import ToolSpec
from ..wire.request import image_problem, placeholder

__all__ = ["function", "message", "text", "tool_result", "with_blocks", "written_choice"]

_ERROR: Final = "(The tool reported an error.)"
_EMPTY_ERROR: Final = "(The tool reported an error without a text.)"


def message(one: Message, *, knows_system: bool) -> dict[str, Any]:
    """Write one message. Its content is the last member and a list of blocks, so a sent copy can be marked.

    Args:
        one: The message.
        knows_system: True: a system message stays one. False: it becomes a user's message with a block.

    Raises:
        ValueError: The message holds a part that this provider API does not take.
    """
    if one.is_event:
        block = event_block(one.text, topic=one.topic, id=one.event_id)
        return {"role": "user", "content": [text(block)]}
    if one.role == "user":
        return {"role": "user", "content": _content(one.parts, user_text)}
    if one.role == "tool":
        return {"role": "user", "content": [tool_result(one.tool_call_id or "", one.parts)]}
    if not all(isinstance(part, Text) for part in one.parts):
        raise ValueError(f"a message of role {one.role!r} holds text only on the provider API 'anthropic'")
    if one.role == "assistant":
        calls = [_tool_use(call) for call in one.tool_calls]
        return {"role": "assistant", "content": _content(one.parts, valid_text, beside=calls)}
    if knows_system:
        return {"role": "system", "content": _content(one.parts, valid_text)}
    return {"role": "user", "content": [text(system_block(one.text))]}


def tool_result(call_id: str, parts: Sequence[Part], *, is_error: bool = False) -> dict[str, Any]:
    """Write one result. A part that this provider API does not take becomes a line of text that says so.

    A result that is marked as an error holds only text: "all content must be type `text` if `is_error` is
    true" and "content cannot be empty if `is_error` is true" (Anthropic's API, 400; the second in anthropic
    2.13, lib/tools/_toolsets/_runnable.py, too). So an empty error gets a text that says so. An error with a
    picture or a document gets a text instead of the mark, because the picture is worth more to a model than
    the mark.
    """
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    content = _blocks(map(_carriable, parts), user_text)
    if is_error and all(block["type"] == "text" for block in content):
        result["is_error"] = True
        content = content or [text(_EMPTY_ERROR)]
    elif is_error:
        content = [text(_ERROR), *content]
    # Every other empty result has no content, because an empty text block would be refused.
    if content:
        result["content"] = content
    return result


def with_blocks(entry: bytes, blocks: Sequence[bytes]) -> bytes:
    """The message with these blocks as its content."""
    return rawjson.replaced(entry, {"content": b"[" + b",".join(blocks) + b"]"})


def function(tool: ToolSpec) -> dict[str, Any]:
    """One function tool."""
    written: dict[str, Any] = {"name": tool.name, "description": valid_text(tool.description)}
    if tool.strict:
        written["strict"] = True
    return written | {"input_schema": dict(tool.parameters)}


def text(words: str) -> dict[str, Any]:
    """One text block."""
    return {"type": "text", "text": words}


# -------------------------------------------------------------------------------------------- parts


def _content(
    parts: Sequence[Part], write: Callable[[str], str], *, beside: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    content = [*_blocks(parts, write), *beside]
    if not content:
        raise ValueError("the provider API 'anthropic' takes no message of white space only")
    return content


def _blocks(parts: Iterable[Part], write: Callable[[str], str]) -> list[dict[str, Any]]:
    """The parts as blocks. Text of white space only is left out, because the server refuses it alone."""
    return [_block(part, write) for part in parts if not isinstance(part, Text) or part.text.strip()]


def _block(part: Part, write: Callable[[str], str]) -> dict[str, Any]:
    if why := _why_not(part):
        raise ValueError(why)
    match part:
        case BlockText():
            return text(part.text)
        case Text():
            return text(write(part.text))
        case Image():
            return {"type": "image", "source": _source(part)}
        case Document():
            title = {"title": user_text(part.name)} if part.name else {}
            source = _text_source(part) if _is_text(part) else _source(part)
            return {"type": "document", "source": source, **title}
    raise AssertionError(f"{type(part).__name__} is refused above")


def _source(part: Image | Document) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": valid_text(part.url or "")}
    return {"type": "base64", "media_type": part.media_type, "data": part.base64()}


def _text_source(part: Document) -> dict[str, Any]:
    words = (part.data or b"").decode("utf-8", "replace")
    return {"type": "text", "media_type": "text/plain", "data": user_text(words)}


def _is_text(part: Document) -> bool:
    return part.media_type.startswith("text/")


def _why_not(part: Part) -> str:
    """Why this provider API does not take a part; "" if it does."""
    match part:
        case Audio():
            return "the provider API 'anthropic' takes no sound"
        case Image():
            return image_problem(part, "anthropic", is_strict=True)
        case Document() if _is_text(part):
            return (
                ""
                if part.data
                else "the provider API 'anthropic' takes a text document as bytes, and not empty"
            )
        case Document() if part.media_type != "application/pdf":
            return f"the provider API 'anthropic' takes PDF and text documents, not {part.media_type}"
    return ""


def _carriable(part: Part) -> Part:
    why = _why_not(part)
    return Text(placeholder(part, why)) if why and not isinstance(part, Text) else part


def _tool_use(call: ToolCall) -> dict[str, Any]:
    if call.kind == "provider":
        return {**call.parsed, "id": call.id}
    try:
        written = rawjson.loads(call.arguments.encode())
    except ValueError:
        written = None
    input = written if isinstance(written, dict) else {}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": input}


def written_choice(settings: Mapping[str, Any], *, forbid: bool) -> dict[str, Any] | None:
    """The member `tool_choice`; None leaves it out."""
    choice = "none" if forbid else settings.get("tool_choice")
    if choice == "none":
        return {"type": "none"}
    one_at_most = settings.get("parallel_tool_calls") is False
    if choice is None and not one_at_most:
        return None
    kind = {None: "auto", "auto": "auto", "required": "any"}.get(choice)
    written = {"type": kind} if kind else {"type": "tool", "name": choice}
    return written | ({"disable_parallel_tool_use": True} if one_at_most else {})
