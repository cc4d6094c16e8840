"""Anthropic's refusals for two options of a request: ``context_management`` and ``output_config.format``.

Owns: the shape of the edits, their order, the beta that each needs, and the rules for schemas. Must never
know: how a client writes them, or the effect of an edit.

The shapes of edits come from the published types (anthropic 2.12, types/beta); the recorded requests pass.
The smallest trigger of a compaction is the smallest one in recorded traffic. The documentation says that
clearing thinking comes first (build-with-claude/context-editing; the text of the refusal is not known). That
it needs thinking is known from a 400 in anthropics/claude-code#11971. The texts about schemas come from
public issue threads and from platform.claude.com, structured outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..openai.common_rules import Refusal
from .blocks import extra

__all__ = ["IN_REPLY", "context_refusals", "format_refusals"]

IN_REPLY = "compact-2026-01-12"
"""The beta of compactions inside a reply, which later requests name too."""

_EDITING = "context-management-2025-06-27"
_TOKENS = ("input_tokens",)
_THINKING = "clear_thinking_20251015"
_EDITS: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]] = {
    "clear_tool_uses_20250919": (
        _EDITING,
        {
            "trigger": ("input_tokens", "tool_uses"),
            "keep": ("tool_uses",),
            "clear_at_least": _TOKENS,
            "clear_tool_inputs": (),
            "exclude_tools": (),
        },
    ),
    _THINKING: (_EDITING, {"keep": ()}),
    "compact_20260112": (
        IN_REPLY,
        {"trigger": _TOKENS, "pause_after_compaction": (), "instructions": ()},
    ),
}
"""By type: its beta, and the units of its members."""

_LEAST_COMPACTED = 50_000


def context_refusals(body: Mapping[str, Any], betas: Collection[str] | None) -> Iterator[Refusal]:
    """The problems of a request's ``context_management``. `betas` None: every beta is on."""
    wanted = body.get("context_management")
    if wanted is None:
        return
    if body.get("compaction") is not None:
        yield Refusal("compaction: may not be used together with context_management")
    if not isinstance(wanted, dict):
        yield Refusal("context_management: Input should be an object")
        return
    for key in wanted:
        if key != "edits":
            yield extra(f"context_management.{key}")
    edits = wanted.get("edits", [])
    if not isinstance(edits, list):
        yield Refusal("context_management.edits: Input should be a valid array")
        return
    for at, edit in enumerate(edits):
        yield from _edit(f"context_management.edits.{at}", edit, betas)
    kinds = [edit.get("type") for edit in edits if isinstance(edit, dict)]
    if _THINKING in kinds:
        if kinds.index(_THINKING) > 0:
            yield Refusal(f"context_management.edits: `{_THINKING}` strategy must be the first one")
        thinking = body.get("thinking")
        if not isinstance(thinking, dict) or thinking.get("type") not in ("adaptive", "enabled"):
            yield Refusal(f"`{_THINKING}` strategy requires `thinking` to be enabled")


def _edit(path: str, edit: Any, betas: Collection[str] | None) -> Iterator[Refusal]:
    kind = str(edit.get("type")) if isinstance(edit, dict) else "None"
    if kind not in _EDITS or (betas is not None and _EDITS[kind][0] not in betas):
        known = ", ".join(repr(name) for name, (beta, _) in _EDITS.items() if betas is None or beta in betas)
        yield Refusal(
            f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {known}"
        )
        return
    members = _EDITS[kind][1]
    for key, value in edit.items():
        if key == "type":
            continue
        if key not in members:
            yield extra(f"{path}.{kind}.{key}")
        elif members[key] and value is not None:
            yield from _count(f"{path}.{kind}.{key}", value, members[key])
    if not isinstance(edit.get("clear_tool_inputs", False), bool | list | None):
        yield Refusal(f"{path}.{kind}.clear_tool_inputs: Input should be a valid boolean or array")
    names = edit.get("exclude_tools")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        yield Refusal(f"{path}.{kind}.exclude_tools: Input should be a valid list of strings")
    if kind == _THINKING:
        yield from _turns_kept(f"{path}.{kind}.keep", edit.get("keep"))
    trigger = edit.get("trigger")
    if kind == "compact_20260112" and isinstance(trigger, dict) and _below(trigger.get("value")):
        yield Refusal(f"{path}.{kind}.trigger: must be at least {_LEAST_COMPACTED} input tokens")


def _turns_kept(path: str, keep: Any) -> Iterator[Refusal]:
    if isinstance(keep, dict) and keep.get("type") == "thinking_turns":
        yield from _count(path, keep, ("thinking_turns",))
    elif keep not in (None, "all", {"type": "all"}):
        yield Refusal(f"{path}: Input should be 'all', or an object of type 'all' or 'thinking_turns'")


def _below(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < _LEAST_COMPACTED


def _count(path: str, value: Any, units: tuple[str, ...]) -> Iterator[Refusal]:
    if not isinstance(value, dict):
        yield Refusal(f"{path}: Input should be an object")
        return
    if value.get("type") not in units:
        yield Refusal(f"{path}.type: Input should be {' or '.join(map(repr, units))}")
    number = value.get("value")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        yield Refusal(f"{path}.value: Input should be a valid integer, 0 or more")
    for key in value:
        if key not in ("type", "value"):
            yield extra(f"{path}.{key}")


_PATH = "output_config.format.schema"
_NOT_SUPPORTED = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength"),
    "array": ("maxItems", "uniqueItems"),
}


def format_refusals(config: Any) -> Iterator[Refusal]:
    """The problems of a request's ``output_config``."""
    shape = config.get("format") if isinstance(config, dict) else None
    if shape is None:
        return
    if not isinstance(shape, dict) or shape.get("type") != "json_schema":
        yield Refusal("output_config.format.type: Input should be 'json_schema'")
    elif not isinstance(shape.get("schema"), dict):
        yield Refusal(f"{_PATH}: Field required")
    else:
        yield from _schema(shape["schema"], shape["schema"], ())


def _schema(schema: Any, root: Mapping[str, Any], inside: tuple[str, ...]) -> Iterator[Refusal]:
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in inside:
            yield Refusal(f"{_PATH}: Circular reference detected in schema definitions: {reference}")
            return
        found: Any = root
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key) if isinstance(found, dict) else None
        yield from _schema(found, root, (*inside, reference))
        return
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not False:
        yield Refusal(f"{_PATH}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for key in _NOT_SUPPORTED.get(str(kind), ()):
        if key in schema:
            yield Refusal(f"{_PATH}: For '{kind}' type, property '{key}' is not supported")
    if "oneOf" in schema:
        yield Refusal(f"{_PATH}: Schema type 'oneOf' is not supported")
    properties = schema.get("properties")
    parts = [schema.get("items"), *(properties.values() if isinstance(properties, dict) else ())]
    for union in ("anyOf", "allOf"):
        parts += schema.get(union) or []
    for part in parts:
        yield from _schema(part, root, inside)
