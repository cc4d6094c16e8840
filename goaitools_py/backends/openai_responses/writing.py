"""Writes neutral messages, results, tools and context edits in the shapes of the Responses API.

Owns: the items of a request that are not a provider's own. Must never know: a request's other members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...base.values import replace
from ...types.messages import Audio, Document, Image, Part, Text, ToolCall, ToolResult
from ...types.render import BlockText, user_text, valid_text
from ...types.request_parts import (
    ContextEdit,
    ServerCompaction,
    ServerThinkingClearing,
    ServerToolClearing,
    ToolSpec,
)
from ..wire import request as writing
from . import client_calls as client
from .items import CALLS

__all__ = [
    "call_item",
    "function_tool",
    "message_content",
    "output_item",
    "responses_edits",
    "result_item",
    "usable_on_responses",
    "written_choice",
]

_OUTPUTS: Final = {"function": "function_call_output", "custom": "custom_tool_call_output"}


def call_item(call: ToolCall) -> dict[str, Any]:
    if call.kind == "provider":
        return {**call.parsed, client.id_key(call.name): call.id}
    item = next(item for item, (kind, _) in CALLS.items() if kind == call.kind)
    return {"type": item, "call_id": call.id, "name": call.name, CALLS[item][1]: call.arguments}


def result_item(result: ToolResult, is_own: bool) -> dict[str, Any]:
    if result.kind == "provider" and result.name in client.OUTPUTS:
        return client.result_item(result.name, result.call_id, result.parts)
    kind = _OUTPUTS.get(result.kind, "function_call_output")
    return output_item(kind, result.call_id, result.parts, is_own)


def output_item(type: str, call_id: str, parts: Sequence[Part], is_own: bool) -> dict[str, Any]:
    content = [_result_part(part, is_own) for part in parts]
    is_text = not content or (len(content) == 1 and content[0]["type"] == "input_text")
    output = "".join(part["text"] for part in content) if is_text else content
    return {"type": type, "call_id": call_id, "output": output}


def _result_part(part: Part, is_own: bool) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": user_text(part.text)}
    if isinstance(part, Audio):
        return {"type": "input_text", "text": writing.placeholder(part, "this provider takes no sound")}
    if isinstance(part, Image) and (why := writing.image_problem(part, "openai-responses", is_strict=is_own)):
        return {"type": "input_text", "text": writing.placeholder(part, why)}
    return _media(part)


def message_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    content = [_part(part) for part in parts]
    if len(content) == 1 and content[0]["type"] == "input_text":
        text: str = content[0]["text"]
        return text
    return content


def _part(part: Part) -> dict[str, Any]:
    match part:
        case BlockText():
            return {"type": "input_text", "text": part.text}
        case Text():
            return {"type": "input_text", "text": user_text(part.text)}
        case Audio():
            raise ValueError(
                "the provider API 'openai-responses' takes no sound; use the provider API 'openai'"
            )
        case _:
            return _media(part)


def _media(part: Image | Document) -> dict[str, Any]:
    url = valid_text(part.url) if part.data is None and part.url is not None else writing.inline_url(part)
    if isinstance(part, Image):
        return {"type": "input_image", "detail": part.detail or "auto", "image_url": url}
    if part.data is None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": writing.file_name(part), "file_data": url}


# ------------------------------------------------------------------------------------------- tools


def function_tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": valid_text(tool.description),
        "parameters": dict(tool.parameters),
        # Always sent: without it the server makes schemas strict where it can, unlike Chat Completions.
        "strict": tool.strict,
    }


def written_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in writing.TOOL_CHOICES else {"type": "function", "name": choice}


# ------------------------------------------------------------------------------------- context edits


def responses_edits(wanted: Sequence[ContextEdit]) -> list[dict[str, Any]]:
    """OpenAI's member on the Responses API. Raises `ValueError` for an edit that it does not have."""
    return [{"type": "compaction", "compact_threshold": _threshold(one)} for one in wanted]


def usable_on_responses(wanted: Sequence[ContextEdit]) -> tuple[ContextEdit, ...]:
    """The edits that this provider API has: compactions, without instructions."""
    return tuple(replace(one, instructions="") for one in wanted if isinstance(one, ServerCompaction))


def _threshold(wanted: ContextEdit) -> int:
    if isinstance(wanted, ServerThinkingClearing):
        raise ValueError("the provider API 'openai-responses' clears no reasoning by itself; leave it out")
    if isinstance(wanted, ServerToolClearing):
        raise ValueError(
            "the provider API 'openai-responses' clears no tool results by itself; use "
            "Compactor(trigger, ClearToolResults(…))"
        )
    if wanted.instructions:
        raise ValueError(
            "the provider API 'openai-responses' takes no instructions for a compaction; leave them out"
        )
    return wanted.above_tokens
