"""Refusals of the Messages endpoint for a single content block: types, members, and their values.

Owns: the shape of blocks, and each refusal in the provider's own text if it is known. Must never know:
the messages around a block, or how a client builds one.

The block types and members come from the request types in the anthropic SDK 2.12, with betas. The texts
are pydantic's, as in the provider's recorded and publicly reported responses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..openai.common_rules import Refusal

__all__ = ["ROLES", "block_refusals", "extra", "is_answer", "is_hosted_call", "mark_refusals"]

ROLES = ("user", "assistant", "system")
_HOSTED_CALLS = ("server_tool_use", "mcp_tool_use")
_HOSTED_RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "advisor_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_result",
)
_TYPES: Mapping[str, tuple[str, ...]] = {
    "user": ("text", "image", "document", "search_result", "tool_result", "container_upload"),
    "assistant": (
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        *_HOSTED_CALLS,
        *_HOSTED_RESULTS,
        "document",
        "container_upload",
        "compaction",
        "fallback",
        "mcp_tool_listing",
    ),
    "system": ("text", "tool_addition", "tool_removal"),
}
_IN_RESULTS = ("text", "image", "document", "search_result", "tool_reference", "browser_state")
# Type: required members, optional members. Blocks of other types are accepted.
_MEMBERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ("cache_control", "citations")),
    "image": (("source",), ("cache_control", "transformations")),
    "document": (("source",), ("cache_control", "citations", "context", "title")),
    "thinking": (("thinking", "signature"), ()),
    "redacted_thinking": (("data",), ()),
    "tool_use": (("id", "name", "input"), ("cache_control", "caller", "toolset_name")),
    "server_tool_use": (("id", "name", "input"), ("cache_control", "caller")),
    "tool_result": (("tool_use_id",), ("cache_control", "content", "is_error", "toolset_name")),
}
_TEXTS = ("text", "thinking", "signature", "data", "id", "name", "tool_use_id")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME = 200
_TTL = ("5m", "1h")
_STRICT_VERSION = "2026-10-21"


def block_refusals(path: str, block: Any, role: str, version: str) -> Iterator[Refusal]:
    """The problems of one block of a message.

    Args:
        path: Where it is, such as "messages.0.content.1".
        role: The message's, one of `ROLES`.
        version: The request's anthropic-version. From 2026-10-21 on the provider accepts less.
    """
    if not isinstance(block, dict):
        yield Refusal(f"{path}: Input should be an object")
        return
    kind = block.get("type")
    if kind is None:
        yield Refusal(f"{path}.type: Field required")
    elif kind not in _TYPES[role] or (
        role == "assistant" and kind == "document" and version >= _STRICT_VERSION
    ):
        yield _unknown_tag(path, kind, _TYPES[role])
    else:
        yield from _members(path, kind, block)
        if kind == "text" and role == "user" and block.get("citations") and version >= _STRICT_VERSION:
            yield extra(f"{path}.text.citations")
        if kind == "tool_result" and isinstance(block.get("content"), list):
            for index, inner in enumerate(block["content"]):
                yield from _in_result(f"{path}.tool_result.content.{index}", inner)


def mark_refusals(path: str, block: Mapping[str, Any]) -> Iterator[Refusal]:
    """The problems of the cache mark of a block, a tool, or the whole request."""
    mark = block.get("cache_control")
    if mark is None:
        return
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
        yield Refusal(f"{path}.cache_control.ephemeral.type: Input should be 'ephemeral'")
    elif mark.get("ttl", "5m") not in _TTL:
        yield Refusal(f"{path}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")


def is_hosted_call(block: Mapping[str, Any]) -> bool:
    """True for a call that the provider itself runs."""
    return block.get("type") in _HOSTED_CALLS


def is_answer(block: Mapping[str, Any]) -> bool:
    """True for the result of a call that the provider ran."""
    return block.get("type") in _HOSTED_RESULTS


def extra(path: str) -> Refusal:
    """A member that the provider does not know."""
    return Refusal(f"{path}: Extra inputs are not permitted")


def _in_result(path: str, block: Any) -> Iterator[Refusal]:
    if not isinstance(block, dict) or block.get("type") not in _IN_RESULTS:
        yield _unknown_tag(path, block.get("type") if isinstance(block, dict) else None, _IN_RESULTS)
    else:
        yield from _members(path, block["type"], block)


def _members(path: str, kind: str, block: Mapping[str, Any]) -> Iterator[Refusal]:
    needed, allowed = _MEMBERS.get(kind, ((), tuple(block)))
    inner = f"{path}.{kind}"
    for key in needed:
        if key not in block:
            yield Refusal(f"{inner}.{key}: Field required")
        elif key in _TEXTS and not isinstance(block[key], str):
            yield Refusal(f"{inner}.{key}: Input should be a valid string")
    for key in block:
        if key not in ("type", *needed, *allowed):
            yield extra(f"{inner}.{key}")
    yield from mark_refusals(inner, block)
    if kind == "text" and block.get("text") == "":
        yield Refusal("messages: text content blocks must be non-empty")
    if kind in ("tool_use", "server_tool_use"):
        yield from _call(inner, block)
    if kind == "tool_result" and not _ID.fullmatch(str(block.get("tool_use_id"))):
        yield Refusal(f"{inner}.tool_use_id: String should match pattern '^{_ID.pattern}$'")
    if kind == "tool_result" and not isinstance(block.get("content", ""), str | list | None):
        yield Refusal(f"{inner}.content: Input should be a valid string or array")
    if kind == "tool_result" and not isinstance(block.get("is_error", False), bool | None):
        yield Refusal(f"{inner}.is_error: Input should be a valid boolean")
    if kind == "tool_result" and block.get("is_error") is True:
        yield from _error_result(path, block.get("content"))


def _error_result(path: str, content: Any) -> Iterator[Refusal]:
    """Refuse content that a result marked as an error may not hold. Both texts are publicly reported (of
    content that was "", and of pictures beside text); the first rule is also in anthropic 2.13,
    lib/tools/_toolsets/_runnable.py: "The API rejects an is_error result with empty content"."""
    if not content:
        yield Refusal(f"{path}.tool_result: content cannot be empty if `is_error` is true")
    elif isinstance(content, list) and any(
        isinstance(inner, dict) and inner.get("type") != "text" for inner in content
    ):
        yield Refusal(f"{path}.tool_result: all content must be type `text` if `is_error` is true")


def _call(path: str, block: Mapping[str, Any]) -> Iterator[Refusal]:
    identifier, name = block.get("id"), block.get("name")
    if isinstance(identifier, str) and not _ID.fullmatch(identifier):
        yield Refusal(f"{path}.id: String should match pattern '^{_ID.pattern}$'")
    if name == "":
        yield Refusal(f"{path}.name: String should have at least 1 character")
    elif isinstance(name, str) and len(name) > _MAX_NAME:
        yield Refusal(f"{path}.name: String should have at most {_MAX_NAME} characters")
    if "input" in block and not isinstance(block["input"], dict):
        yield Refusal(f"{path}.input: Input should be a valid dictionary")


def _unknown_tag(path: str, kind: Any, expected: Sequence[str]) -> Refusal:
    listed = ", ".join(f"'{one}'" for one in expected)
    return Refusal(
        f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {listed}"
    )
