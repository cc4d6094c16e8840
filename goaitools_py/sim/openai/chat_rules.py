"""Refusals of OpenAI's Chat Completions endpoint: the sequence and shape rules of its requests.

Owns: the rules, each with the provider's own text where that is known. Must never know: how a client builds
a request, or the rules of this package's own backends, because the simulator checks them independently.

The texts come from recorded 400 responses and from public issue threads (openai/openai-go#43,
agno-agi/agno#5116). Where compatible servers were recorded to accept more than OpenAI, the rule allows it and
names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .common_rules import (
    Refusal,
    empty_array,
    missing,
    named,
    needs_model,
    no_match,
    repeated_names,
    schema_faults,
    streaming,
    too_long,
    too_many,
    unsupported,
    within,
    wrong_type,
)

__all__ = ["check_openai", "openai_refusals"]

_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_TEXT_ONLY = ("text",)
_PARTS = {
    "system": _TEXT_ONLY,
    "developer": _TEXT_ONLY,
    "tool": _TEXT_ONLY,
    "function": _TEXT_ONLY,
    "assistant": ("text", "refusal"),
    # document_url is Mistral's.
    "user": ("text", "image_url", "input_audio", "file", "document_url"),
}
_PART_FIELDS = {
    "text": (("text",),),
    "refusal": (("refusal",),),
    "image_url": (("image_url", "url"),),
    "input_audio": (("input_audio", "data"), ("input_audio", "format")),
    "file": (("file",),),
    "document_url": (("document_url",),),
}
_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MESSAGE_NAME = re.compile(r"[^\s<|\\/>]+")
_MAX_CALL_ID = 40
_MAX_TOOLS = 128
_MAX_STOPS = 4


def check_openai(body: Mapping[str, Any]) -> list[str]:
    """All reasons why OpenAI would answer this Chat Completions request with 400; [] for a valid request.

    Args:
        body: The parsed JSON object of the request.
    """
    return [refusal.message for refusal in openai_refusals(body)]


def openai_refusals(body: Mapping[str, Any]) -> list[Refusal]:
    """As `check_openai`, with parameter and code. The provider reports the first."""
    return [*needs_model(body), *_messages(body), *_tools(body), *_tool_choice(body), *_settings(body)]


# ----------------------------------------------------------------------------------------- messages


def _routed(body: Mapping[str, Any]) -> bool:
    """True for a router such as OpenRouter, which names models 'vendor/model' and checks less than OpenAI."""
    return "/" in str(body.get("model"))


def _messages(body: Mapping[str, Any]) -> Iterator[Refusal]:
    messages = body.get("messages")
    if messages is None:
        yield missing("messages")
    elif not isinstance(messages, list):
        yield wrong_type("messages", "an array of objects", messages)
    elif not messages:
        yield empty_array("messages")
    else:
        for index, message in enumerate(messages):
            path = f"messages[{index}]"
            if isinstance(message, dict):
                yield from _message(path, message, routed=_routed(body))
            else:
                yield wrong_type(path, "an object", message)
        yield from _pairing([m if isinstance(m, dict) else {} for m in messages])


def _message(path: str, message: Mapping[str, Any], *, routed: bool) -> Iterator[Refusal]:
    role = message.get("role")
    if role is None:
        yield missing(f"{path}.role")
        return
    if role not in _ROLES:
        yield unsupported(f"{path}.role", role, _ROLES)
        return
    yield from _content(path, message)
    name = message.get("name")
    if name is not None and not (isinstance(name, str) and _MESSAGE_NAME.fullmatch(name)):
        yield no_match(f"{path}.name", _MESSAGE_NAME)
    if role == "function" and name is None:
        yield missing(f"{path}.name")
    if role == "tool":
        yield from _answered(f"{path}.tool_call_id", message.get("tool_call_id"), routed=routed)
    if "tool_calls" in message and message["tool_calls"] is not None:
        if role == "assistant":
            yield from _calls(f"{path}.tool_calls", message, routed=routed)
        else:
            yield Refusal(f"Invalid value: '{path}.tool_calls' is only allowed with role 'assistant'.", path)


def _answered(path: str, identifier: object, *, routed: bool) -> Iterator[Refusal]:
    if not isinstance(identifier, str):
        yield missing(path)
    elif len(identifier) > _MAX_CALL_ID and not routed:
        yield too_long(path, identifier, _MAX_CALL_ID)


def _content(path: str, message: Mapping[str, Any]) -> Iterator[Refusal]:
    role, content = message["role"], message.get("content")
    path = f"{path}.content"
    if content is None:
        says_otherwise = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        if not (role == "assistant" and says_otherwise) and role != "function":
            yield Refusal("Invalid value for 'content': expected a string, got null.", path)
    elif isinstance(content, list):
        # Mistral accepts an empty list with tool calls (recorded).
        if not content and not message.get("tool_calls"):
            yield empty_array(path)
        for index, part in enumerate(content):
            yield from _part(f"{path}[{index}]", part, _PARTS[role])
    elif not isinstance(content, str):
        yield wrong_type(path, "one of a string or array of objects", content)


def _part(path: str, part: Any, allowed: Sequence[str]) -> Iterator[Refusal]:
    if not isinstance(part, dict):
        yield wrong_type(path, "an object", part)
    elif "type" not in part:
        yield missing(f"{path}.type")
    elif part["type"] not in allowed:
        yield unsupported(path, part["type"], allowed)
    else:
        for keys in _PART_FIELDS[part["type"]]:
            value: Any = part
            for key in keys:
                # Compatible servers take "image_url": "https://…" for {"url": …}.
                value = value.get(key) if isinstance(value, dict) else value
            if value is None:
                yield missing(".".join((path, *keys)))


def _calls(path: str, message: Mapping[str, Any], *, routed: bool) -> Iterator[Refusal]:
    calls = message["tool_calls"]
    if not isinstance(calls, list):
        yield wrong_type(path, "an array of objects", calls)
        return
    # Mistral accepts an empty list (recorded). Its assistant messages have `prefix`.
    if not calls and "prefix" not in message:
        yield empty_array(path)
    for index, call in enumerate(calls):
        if isinstance(call, dict):
            yield from _call(f"{path}[{index}]", call, routed=routed)
        else:
            yield wrong_type(f"{path}[{index}]", "an object", call)
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    for repeated in sorted({str(i) for i in ids if ids.count(i) > 1}):
        yield Refusal(f"Invalid parameter: Duplicate value for 'id' of '{repeated}' in '{path}'.", path)


def _call(path: str, call: Mapping[str, Any], *, routed: bool) -> Iterator[Refusal]:
    identifier = call.get("id")
    if not isinstance(identifier, str) or not identifier:
        yield missing(f"{path}.id")
    elif len(identifier) > _MAX_CALL_ID and not routed:
        yield too_long(f"{path}.id", identifier, _MAX_CALL_ID)
    # Mistral sends and accepts calls without a type.
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        yield unsupported(f"{path}.type", kind, ("function", "custom"))
        return
    inner, text_key = call.get(kind), "arguments" if kind == "function" else "input"
    if not isinstance(inner, dict):
        yield missing(f"{path}.{kind}")
        return
    name = inner.get("name")
    if name is None:
        yield missing(f"{path}.{kind}.name")
    elif not (isinstance(name, str) and _FUNCTION_NAME.fullmatch(name)):
        yield no_match(f"{path}.{kind}.name", _FUNCTION_NAME)
    if inner.get(text_key) is None:
        yield missing(f"{path}.{kind}.{text_key}")
    elif not isinstance(inner[text_key], str):
        yield wrong_type(f"{path}.{kind}.{text_key}", "a string", inner[text_key])


def _pairing(messages: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """Every call has one result, directly after the message with the call, and there are no other results."""
    waiting: list[str] = []
    answered: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            identifier = str(message.get("tool_call_id"))
            if identifier in answered:
                yield Refusal(
                    f"Invalid parameter: Duplicate value for 'tool_call_id' of '{identifier}', "
                    f"in messages[{answered[identifier]}] and messages[{index}].",
                    f"messages.[{index}].tool_call_id",
                )
            elif identifier in waiting:
                waiting.remove(identifier)
                answered[identifier] = index
            else:
                # "preceeding" is the provider's spelling.
                yield Refusal(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message "
                    "with 'tool_calls'.",
                    f"messages.[{index}].role",
                )
        else:
            yield from _unanswered(waiting, index)
            calls = message.get("tool_calls")
            known = calls if isinstance(calls, list) and message.get("role") == "assistant" else []
            waiting = [str(call["id"]) for call in known if isinstance(call, dict) and call.get("id")]
            answered = {}
    yield from _unanswered(waiting, len(messages))


def _unanswered(waiting: Sequence[str], index: int) -> Iterator[Refusal]:
    if waiting:
        yield Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(waiting),
            f"messages.[{index}].role",
        )


# -------------------------------------------------------------------------------------------- tools


def _tools(body: Mapping[str, Any]) -> Iterator[Refusal]:
    tools = body.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list):
        yield wrong_type("tools", "an array of objects", tools)
        return
    if not tools:
        yield empty_array("tools")
    if len(tools) > _MAX_TOOLS:
        yield too_many("tools", _MAX_TOOLS, len(tools))
    for index, tool in enumerate(tools):
        yield from _tool(f"tools[{index}]", tool, routed=_routed(body))
    yield from repeated_names(_tool_names(body))


def _tool(path: str, tool: Any, *, routed: bool) -> Iterator[Refusal]:
    if not isinstance(tool, dict):
        yield wrong_type(path, "an object", tool)
        return
    kind = tool.get("type", "function")  # Mistral takes tools without a type
    if kind not in ("function", "custom"):
        yield unsupported(f"{path}.type", kind, ("function", "custom"))
        return
    inner = tool.get(kind)
    if not isinstance(inner, dict):
        yield missing(f"{path}.{kind}")
        return
    name = inner.get("name")
    if name is None:
        yield missing(f"{path}.{kind}.name")
    elif not (isinstance(name, str) and _FUNCTION_NAME.fullmatch(name)):
        yield no_match(f"{path}.{kind}.name", _FUNCTION_NAME)
    if kind == "function" and inner.get("parameters") is not None:
        yield from schema_faults(
            inner["parameters"],
            path=f"{path}.function.parameters",
            of=f"function '{name}'",
            code="invalid_function_parameters",
            strict=inner.get("strict") is True and not routed,
        )


def _tool_names(body: Mapping[str, Any]) -> list[str]:
    tools = body.get("tools")
    listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    inner = [tool.get("custom" if tool.get("type") == "custom" else "function") for tool in listed]
    return [str(entry["name"]) for entry in inner if isinstance(entry, dict) and "name" in entry]


def _tool_choice(body: Mapping[str, Any]) -> Iterator[Refusal]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        yield Refusal(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
            "tool_choice",
        )
    elif isinstance(choice, str):
        if choice not in ("none", "auto", "required", "any"):  # "any" is Mistral's word for "required"
            yield unsupported("tool_choice", choice, ("none", "auto", "required"))
    elif not isinstance(choice, dict):
        yield wrong_type("tool_choice", "one of a string or object", choice)
    else:
        for name in _chosen(choice):
            if name not in _tool_names(body):
                yield Refusal(
                    f"Invalid value for 'tool_choice': tool '{name}' not found in 'tools'.",
                    "tool_choice",
                    "invalid_value",
                )


def _chosen(choice: Mapping[str, Any]) -> list[Any]:
    allowed = choice.get("allowed_tools")
    entries = allowed.get("tools") if isinstance(allowed, dict) else [choice]
    found: list[Any] = []
    for entry in entries if isinstance(entries, list) else []:
        kind = "custom" if isinstance(entry, dict) and entry.get("type") == "custom" else "function"
        inner = entry.get(kind) if isinstance(entry, dict) else None
        found.append(inner.get("name") if isinstance(inner, dict) else None)
    return found


# ----------------------------------------------------------------------------------------- settings


def _settings(body: Mapping[str, Any]) -> Iterator[Refusal]:
    yield from streaming(body)
    yield from _response_format(body.get("response_format"))
    if body.get("parallel_tool_calls") is not None and not body.get("tools"):
        yield Refusal(
            "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are "
            "specified.",
            "parallel_tool_calls",
        )
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "max_tokens",
            "invalid_parameter_combination",
        )
    for key in ("max_tokens", "max_completion_tokens", "n"):
        yield from within(key, body.get(key), 1, whole=True)
    yield from within("temperature", body.get("temperature"), 0, at_most=2)
    yield from within("top_p", body.get("top_p"), 0, at_most=1)
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > _MAX_STOPS:
        yield too_many("stop", _MAX_STOPS, len(stop))


def _response_format(shape: Any) -> Iterator[Refusal]:
    if shape is None:
        return
    if not isinstance(shape, dict):
        yield wrong_type("response_format", "an object", shape)
    elif shape.get("type") not in ("text", "json_object", "json_schema"):
        yield unsupported("response_format.type", shape.get("type"), ("json_object", "json_schema", "text"))
    elif shape["type"] == "json_schema":
        inner = shape.get("json_schema")
        if not isinstance(inner, dict):
            yield missing("response_format.json_schema")
            return
        yield from named("response_format.json_schema.name", inner.get("name"), at_most=64)
        if inner.get("schema") is not None:
            yield from schema_faults(
                inner["schema"],
                path="response_format",
                of=f"response_format '{inner.get('name')}'",
                code="",
                strict=inner.get("strict") is True,
            )
