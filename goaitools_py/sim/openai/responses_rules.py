"""Refusals of OpenAI's Responses endpoint: the sequence and shape rules of its requests.

Owns: the rules, each with the provider's own text where that is known. Must never know: how a client builds
a request, or the rules of this package's own backends, because the simulator checks them independently.

The texts come from recorded 400 responses, from openai-openapi.json and from public issue threads
(continuedev/continue#8933, #9101 and #10092, vercel/ai#7543 and #13383, openai/codex#8145). Where compatible
servers were recorded to accept more than OpenAI, the rule allows it and names them. There is no store here: a
stored response, conversation or item is never found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .common_rules import (
    Refusal,
    missing,
    named,
    needs_model,
    schema_faults,
    streaming,
    unsupported,
    within,
    wrong_type,
)
from .responses_items import input_faults
from .responses_tools import choice_faults, tool_faults

__all__ = ["check_openai_responses", "responses_refusals"]

_MIN_OUTPUT_TOKENS = 16
_LEAST_COMPACTED = 1000
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_INCLUDE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
_KEYS = (
    "access_programs",
    "background",
    "background_options",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
_MOVED = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}


def check_openai_responses(body: Mapping[str, Any]) -> list[str]:
    """All reasons why OpenAI would answer this Responses request with 400; [] for a valid request.

    Args:
        body: The parsed JSON object of the request.
    """
    return [refusal.message for refusal in responses_refusals(body)]


def responses_refusals(body: Mapping[str, Any]) -> list[Refusal]:
    """As `check_openai_responses`, with parameter and code. The provider reports the first."""
    return [
        *_keys(body),
        *needs_model(body),
        *_stored_elsewhere(body),
        *input_faults(body),
        *tool_faults(body),
        *choice_faults(body),
        *_settings(body),
    ]


# ----------------------------------------------------------------------------------------- top level


def _keys(body: Mapping[str, Any]) -> Iterator[Refusal]:
    for key in body:
        if key in _MOVED:
            yield Refusal(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to "
                f"'{_MOVED[key]}'. Try again with the new parameter. See the API documentation for more "
                "information: https://platform.openai.com/docs/api-reference/responses/create.",
                key,
                "unsupported_parameter",
            )
        elif key not in _KEYS:
            yield Refusal(f"Unknown parameter: '{key}'.", key, "unknown_parameter")


def _stored_elsewhere(body: Mapping[str, Any]) -> Iterator[Refusal]:
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    if previous is not None:
        yield Refusal(
            f"Previous response with id '{previous}' not found.",
            "previous_response_id",
            "previous_response_not_found",
        )
    if conversation is not None:
        name = conversation.get("id") if isinstance(conversation, dict) else conversation
        yield Refusal(f"Conversation with id '{name}' not found.", "conversation")
    if body.get("prompt") is not None:
        name = body["prompt"].get("id") if isinstance(body["prompt"], dict) else body["prompt"]
        yield Refusal(f"Prompt with id '{name}' not found.", "prompt")


def _settings(body: Mapping[str, Any]) -> Iterator[Refusal]:
    yield from streaming(body)
    options = body.get("stream_options")
    for key in options if isinstance(options, dict) else ():
        if key != "include_obfuscation":
            yield Refusal(
                f"Unknown parameter: 'stream_options.{key}'.", f"stream_options.{key}", "unknown_parameter"
            )
    for key in ("store", "background", "parallel_tool_calls"):
        if body.get(key) is not None and not isinstance(body[key], bool):
            yield wrong_type(key, "a boolean", body[key])
    if body.get("instructions") is not None and not isinstance(body["instructions"], str):
        yield wrong_type("instructions", "a string", body["instructions"])
    yield from within("max_output_tokens", body.get("max_output_tokens"), _MIN_OUTPUT_TOKENS, whole=True)
    yield from within("max_tool_calls", body.get("max_tool_calls"), 1, whole=True)
    yield from within("temperature", body.get("temperature"), 0, at_most=2)
    yield from within("top_p", body.get("top_p"), 0, at_most=1)
    yield from within("top_logprobs", body.get("top_logprobs"), 0, at_most=20, whole=True)
    if body.get("truncation") not in (None, "auto", "disabled"):
        yield unsupported("truncation", body["truncation"], ("auto", "disabled"))
    yield from _include(body.get("include"))
    yield from _context_management(body.get("context_management"))
    yield from _reasoning_options(body.get("reasoning"))
    yield from _text(body)


def _include(include: Any) -> Iterator[Refusal]:
    if include is None:
        return
    if not isinstance(include, list):
        yield wrong_type("include", "an array of strings", include)
        return
    for index, entry in enumerate(include):
        if entry not in _INCLUDE:
            yield unsupported(f"include[{index}]", entry, _INCLUDE)


def _context_management(entries: Any) -> Iterator[Refusal]:
    """Only compaction is known. The recorded threshold of 1000 is the smallest that the docs allow."""
    if entries is None:
        return
    if not isinstance(entries, list):
        yield wrong_type("context_management", "an array of objects", entries)
        return
    for index, entry in enumerate(entries):
        path = f"context_management[{index}]"
        if not isinstance(entry, dict):
            yield wrong_type(path, "an object", entry)
            continue
        if entry.get("type") != "compaction":
            yield unsupported(f"{path}.type", entry.get("type"), ("compaction",))
        for key in entry:
            if key not in ("type", "compact_threshold"):
                yield Refusal(f"Unknown parameter: '{path}.{key}'.", f"{path}.{key}", "unknown_parameter")
        threshold = entry.get("compact_threshold")
        yield from within(f"{path}.compact_threshold", threshold, _LEAST_COMPACTED, whole=True)


def _reasoning_options(reasoning: Any) -> Iterator[Refusal]:
    if reasoning is None:
        return
    if not isinstance(reasoning, dict):
        yield wrong_type("reasoning", "an object", reasoning)
        return
    words = {
        "effort": _EFFORTS,
        "summary": ("concise", "detailed", "auto"),
        "context": ("auto", "current_turn", "all_turns"),
    }
    for key, allowed in words.items():
        if reasoning.get(key) is not None and reasoning[key] not in allowed:
            yield unsupported(f"reasoning.{key}", reasoning[key], allowed)


def _text(body: Mapping[str, Any]) -> Iterator[Refusal]:
    text = body.get("text")
    if text is None:
        return
    if not isinstance(text, dict):
        yield wrong_type("text", "an object", text)
        return
    shape = text.get("format")
    if shape is None:
        return
    if not isinstance(shape, dict):
        yield wrong_type("text.format", "an object", shape)
    elif "type" not in shape:
        yield missing("text.format.type")
    elif shape["type"] not in ("text", "json_object", "json_schema"):
        yield unsupported("text.format.type", shape["type"], ("json_object", "json_schema", "text"))
    elif shape["type"] == "json_schema":
        yield from named("text.format.name", shape.get("name"), at_most=64)
        if "schema" not in shape:
            yield missing("text.format.schema")
        else:
            yield from schema_faults(
                shape["schema"],
                path="text.format.schema",
                of=f"response_format '{shape.get('name')}'",
                code="invalid_json_schema",
                strict=shape.get("strict") is True,
            )
