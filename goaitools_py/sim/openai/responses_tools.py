"""Refusals of OpenAI's Responses endpoint for tools, and for the choice among them.

Owns: the shapes of tools, and the tools that `tool_choice` may name. Must never know: items of the input,
except items that append tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .common_rules import (
    Refusal,
    empty_array,
    missing,
    named,
    repeated_names,
    schema_faults,
    too_many,
    unsupported,
    wrong_type,
)

__all__ = ["MAX_NAME", "choice_faults", "tool_faults", "tool_list"]

MAX_NAME = 128
"""The longest name of a tool."""
_MAX_TOOLS = 128
_HOSTED_TOOLS = (
    "file_search",
    "computer",
    "computer_use_preview",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "mcp",
    "code_interpreter",
    "programmatic_tool_calling",
    "image_generation",
    "local_shell",
    "shell",
    "namespace",
    "tool_search",
    "apply_patch",
)


def tool_faults(body: Mapping[str, Any]) -> Iterator[Refusal]:
    """The problems of `tools`."""
    tools = body.get("tools")
    if tools is None:
        return
    yield from tool_list("tools", tools)


def tool_list(path: str, tools: Any) -> Iterator[Refusal]:
    """The problems of a list of tools, in the request or in an item."""
    if not isinstance(tools, list):
        yield wrong_type(path, "an array of objects", tools)
        return
    if len(tools) > _MAX_TOOLS:
        yield too_many(path, _MAX_TOOLS, len(tools))
    for index, tool in enumerate(tools):
        yield from _tool(f"{path}[{index}]", tool)
    yield from repeated_names([name for _, name in _named_tools(tools)])


def _tool(path: str, tool: Any) -> Iterator[Refusal]:
    if not isinstance(tool, dict):
        yield wrong_type(path, "an object", tool)
        return
    kind = tool.get("type")
    if kind is None:
        yield missing(f"{path}.type")
    elif kind not in ("function", "custom", *_HOSTED_TOOLS):
        yield unsupported(path, kind, ("function", "custom", *_HOSTED_TOOLS))
    elif kind in ("function", "custom"):
        yield from named(f"{path}.name", tool.get("name"), at_most=MAX_NAME)
        strict, schema = tool.get("strict"), tool.get("parameters")
        if strict is not None and not isinstance(strict, bool):
            yield wrong_type(f"{path}.strict", "a boolean", strict)
        if kind == "function" and (schema is not None or strict is True):
            yield from schema_faults(
                {} if schema is None else schema,
                path=f"{path}.parameters",
                of=f"function '{tool.get('name')}'",
                code="invalid_function_parameters",
                strict=strict is True,
            )


def _tool_names(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Kind and name of each tool that has a name, also in appended tool lists."""
    given = body.get("input")
    items = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    appended = [item.get("tools") for item in items if item.get("type") == "additional_tools"]
    return [name for tools in (body.get("tools"), *appended) for name in _named_tools(tools)]


def _named_tools(tools: Any) -> list[tuple[str, str]]:
    listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return [(str(tool.get("type")), str(tool["name"])) for tool in listed if tool.get("name")]


def choice_faults(body: Mapping[str, Any]) -> Iterator[Refusal]:
    """The problems of `tool_choice`."""
    choice = body.get("tool_choice")
    if choice is None:
        return
    names = _tool_names(body)
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            yield unsupported("tool_choice", choice, ("none", "auto", "required"))
        elif choice == "required" and not body.get("tools") and not names:
            yield Refusal("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
    elif not isinstance(choice, dict):
        yield wrong_type("tool_choice", "one of a string or object", choice)
    elif choice.get("type") == "allowed_tools":
        yield from _allowed_tools(choice, names)
    else:
        yield from _chosen("tool_choice", choice, names)


def _allowed_tools(choice: Mapping[str, Any], names: Sequence[tuple[str, str]]) -> Iterator[Refusal]:
    if choice.get("mode") not in ("auto", "required"):
        yield unsupported("tool_choice.mode", choice.get("mode"), ("auto", "required"))
    tools = choice.get("tools")
    if not isinstance(tools, list):
        yield wrong_type("tool_choice.tools", "an array of objects", tools)
    elif not tools:
        yield empty_array("tool_choice.tools")
    else:
        for index, tool in enumerate(tools):
            yield from _chosen(f"tool_choice.tools[{index}]", tool, names)


def _chosen(path: str, tool: Any, names: Sequence[tuple[str, str]]) -> Iterator[Refusal]:
    if not isinstance(tool, dict):
        yield wrong_type(path, "an object", tool)
    elif "type" not in tool:
        yield missing(f"{path}.type")
    elif tool["type"] in ("function", "custom"):
        if tool.get("name") is None:
            yield missing(f"{path}.name")
        elif (tool["type"], tool["name"]) not in names:
            yield Refusal(
                f"Tool choice '{tool['type']}' not found in 'tools' parameter: '{tool['name']}'.", path
            )
    elif tool["type"] not in _HOSTED_TOOLS:
        yield unsupported(f"{path}.type", tool["type"], ("function", "custom", *_HOSTED_TOOLS))
