"""Rules of hosts of Chat Completions for the tools and the settings of a request.

Owns: reading tools, their schemas and the settings for one rule at a time. Must never know: which host has
which rule, or the words of a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .host import Breaks

__all__ = [
    "is_thinking",
    "names_match",
    "no_choice_without_tools",
    "no_empty_schema",
    "no_empty_tools",
    "no_forced_choice",
    "no_schema_mode",
    "no_setting",
    "no_stream_options",
    "no_strict",
    "no_type_beside_any_of",
    "nothing_beside_ref",
    "only_value",
    "properties_have_types",
    "tools_with_calls",
]

JSON = Mapping[str, Any]
_MOST_NODES = 10_000


def is_thinking(*quiet: str) -> Callable[[JSON], bool]:
    """Says of a request whether its model thinks: it does, unless the request says no or the model's name
    begins with one of `quiet`."""

    def thinks(body: JSON) -> bool:
        switch = body.get("thinking")
        is_off = isinstance(switch, dict) and switch.get("type") == "disabled"
        is_off = is_off or body.get("enable_thinking") is False
        return not is_off and not str(body.get("model")).startswith(quiet or ("\0",))

    return thinks


# ------------------------------------------------------------------------------------------- tools


def _tools(body: JSON) -> list[JSON]:
    found = body.get("tools")
    tools = [tool for tool in found if isinstance(tool, dict)] if isinstance(found, list) else []
    return [tool["function"] for tool in tools if isinstance(tool.get("function"), dict)]


def names_match(pattern: re.Pattern[str]) -> Breaks:
    """Every tool's name matches. Names the tool's place."""

    def breaks(body: JSON) -> str | None:
        for at, function in enumerate(_tools(body)):
            if not pattern.fullmatch(str(function.get("name"))):
                return str(at)
        return None

    return breaks


def no_strict(body: JSON) -> str | None:
    """No tool says whether it is strict."""
    return next((str(at) for at, function in enumerate(_tools(body)) if "strict" in function), None)


def no_empty_tools(body: JSON) -> str | None:
    """A list of tools has one."""
    return "" if body.get("tools") == [] else None


def no_choice_without_tools(body: JSON) -> str | None:
    """A choice of tools comes with tools."""
    return "" if body.get("tool_choice") not in (None, "none") and not body.get("tools") else None


def tools_with_calls(body: JSON) -> str | None:
    """A history with calls comes with tools."""
    messages = body.get("messages")
    has_calls = any(
        isinstance(message, dict) and (message.get("tool_calls") or message.get("role") == "tool")
        for message in (messages if isinstance(messages, list) else ())
    )
    return "" if has_calls and not body.get("tools") else None


def no_forced_choice(*, thinks: Callable[[JSON], bool]) -> Breaks:
    """While the model thinks, no request requires a call. Names the choice."""

    def breaks(body: JSON) -> str | None:
        choice = body.get("tool_choice")
        is_forced = choice in ("required", "any") or isinstance(choice, dict)
        word = choice if isinstance(choice, str) else "specified"
        return word if is_forced and thinks(body) else None

    return breaks


# ------------------------------------------------------------------------------------------ schemas


def _nodes(body: JSON) -> Iterator[tuple[str, Any]]:
    """Every schema in the tools' parameters, with its path, at most `_MOST_NODES` of them."""
    waiting: list[tuple[str, Any]] = [("root", function.get("parameters")) for function in _tools(body)]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        path, node = waiting.pop(0)
        yield path, node
        if not isinstance(node, dict):
            continue
        at = "" if path == "root" else f"{path}."
        for key in ("properties", "$defs", "definitions"):
            inner = node.get(key)
            if isinstance(inner, dict):
                waiting += [(f"{at}{key}.{name}", part) for name, part in inner.items()]
        for key in ("anyOf", "oneOf", "allOf"):
            inner = node.get(key)
            if isinstance(inner, list):
                waiting += [(f"{at}{key}.{nth}", part) for nth, part in enumerate(inner)]
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                waiting.append((f"{at}{key}", node[key]))


def _first(body: JSON, wrong: Callable[[str, Any], bool]) -> str | None:
    return next((path for path, node in _nodes(body) if wrong(path, node)), None)


def no_type_beside_any_of(body: JSON) -> str | None:
    """A schema with `anyOf` has its types within it. Names the path."""
    return _first(body, lambda _, node: isinstance(node, dict) and "anyOf" in node and "type" in node)


def nothing_beside_ref(*keys: str) -> Breaks:
    """A schema with `$ref` does not have these members. Names the path and the member."""

    def breaks(body: JSON) -> str | None:
        for path, node in _nodes(body):
            beside = next(
                (key for key in keys if isinstance(node, dict) and "$ref" in node and key in node), ""
            )
            if beside:
                return f"{path}': conflicting keywords found after $ref expansion: {beside}"
        return None

    return breaks


def properties_have_types(body: JSON) -> str | None:
    """A property has a type, or is a choice of schemas. Names the path."""
    known = ("type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const")

    def wrong(path: str, node: Any) -> bool:
        is_property = path.rpartition(".")[0].endswith("properties")
        return is_property and not (isinstance(node, dict) and any(key in node for key in known))

    return _first(body, wrong)


def no_empty_schema(body: JSON) -> str | None:
    """A schema names more than its required members. Names it."""
    for path, node in _nodes(body):
        if path != "root" and isinstance(node, dict) and not set(node) - {"required", "description", "title"}:
            return repr(node)
    return None


# ----------------------------------------------------------------------------------------- settings


def no_setting(*keys: str, words: Mapping[str, str] | None = None) -> Breaks:
    """The request does not have these members. Names the member, in the host's word for it."""

    def breaks(body: JSON) -> str | None:
        found = next((key for key in keys if body.get(key) is not None), None)
        return found if found is None else (words or {}).get(found, found)

    return breaks


def only_value(key: str, value: Any, *, when: Callable[[JSON], bool]) -> Breaks:
    """If the request has this member, it has this value."""

    def breaks(body: JSON) -> str | None:
        return key if body.get(key) not in (None, value) and when(body) else None

    return breaks


def no_schema_mode(body: JSON) -> str | None:
    """The format of the answer is no JSON Schema."""
    shape = body.get("response_format")
    return "" if isinstance(shape, dict) and shape.get("type") == "json_schema" else None


def no_stream_options(body: JSON) -> str | None:
    """Options of a stream come with a stream."""
    return "" if body.get("stream_options") is not None and body.get("stream") is not True else None
