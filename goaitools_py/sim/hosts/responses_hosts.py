"""The hosts of the Responses API: their rules, in their own words, and how they reply.

Owns: the table, with a source and a date beside every row, and how its rules read a request. Must never know:
the rules that this package itself has for hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from .error_shapes import llamacpp_error, ollama_error, openai_error, vllm_error, xai_error
from .host import Breaks, Host, HostRule, Waived
from .host_replies import Manner, seal_of

__all__ = ["RESPONSES_HOSTS"]

JSON = Mapping[str, Any]
_RECORDED = "seen in recorded traffic"
_OLLAMA = "ollama openai/responses.go 017eb8ae, 2026"
_LLAMACPP = "llama.cpp tools/server/server-chat.cpp 03eb25f3, 2026"
_GENUINE = ("gAAAA",)
"""The beginning of OpenAI's encrypted content in recorded traffic."""

_STORES_NOTHING: Final = (
    Waived(
        "required following item|required 'reasoning' item|not persisted|could not be verified|Duplicate "
        "item",
        "of servers that neither store nor seal: they read the items as they are",
    ),
    Waived("Expected an ID that begins with|string too long", f"ids of DeepSeek are UUIDs: {_RECORDED}"),
)
_IGNORES_MEMBERS: Final = Waived(
    "Unknown parameter", "unknown members are not read: " + f"{_OLLAMA}; {_LLAMACPP}"
)


# ------------------------------------------------------------------------------------------- rules


def _items(body: JSON) -> Iterator[tuple[int, JSON]]:
    found = body.get("input")
    for at, item in enumerate(found if isinstance(found, list) else ()):
        if isinstance(item, dict):
            yield at, item


def _kind(item: JSON) -> str:
    return str(item.get("type") or ("message" if item.get("role") else ""))


def _parts(item: JSON) -> list[JSON]:
    found = [item.get("content"), item.get("output")]
    return [part for parts in found if isinstance(parts, list) for part in parts if isinstance(part, dict)]


def _sealed_here(manner: Manner) -> Breaks:
    """Encrypted reasoning was made by this host. Names its first and last letters."""
    genuine = (seal_of(manner), *_GENUINE)

    def breaks(body: JSON) -> str | None:
        for _, item in _items(body):
            content = item.get("encrypted_content")
            if _kind(item) == "reasoning" and isinstance(content, str) and not content.startswith(genuine):
                return f"{content[:4]}...{content[-4:]}"
        return None

    return breaks


def _only_kinds(*kinds: str) -> Breaks:
    """Every item is of a known kind. Names the place and the kind."""

    def breaks(body: JSON) -> str | None:
        for at, item in _items(body):
            if _kind(item) not in kinds:
                return f'input[{at}]: unknown input item type: "{_kind(item)}"'
        return None

    return breaks


def _no_files(body: JSON) -> str | None:
    for at, item in _items(body):
        if any(part.get("type") == "input_file" for part in _parts(item)):
            return str(at)
    return None


def _argument_objects(body: JSON) -> str | None:
    """The arguments of every call are a JSON object, or empty."""
    for at, item in _items(body):
        if _kind(item) == "function_call" and item.get("arguments"):
            try:
                value = json.loads(str(item["arguments"]))
            except (ValueError, RecursionError):
                return str(at)
            if not isinstance(value, dict):
                return str(at)
    return None


def _reasoning_has_content(body: JSON) -> str | None:
    for _, item in _items(body):
        if item.get("type") == "reasoning":
            content = item.get("content")
            if not isinstance(content, list):
                return "is not an array"
            if not content:
                return "is empty"
    return None


def _reasoning_has_id(body: JSON) -> str | None:
    for at, item in _items(body):
        if item.get("type") == "reasoning" and not isinstance(item.get("id"), str):
            return str(at)
    return None


def _replies_have_type(body: JSON) -> str | None:
    for at, item in _items(body):
        if (
            item.get("role") == "assistant"
            and item.get("type") != "message"
            and not isinstance(item.get("content"), str)
        ):
            return str(at)
    return None


def _replies_have_status(body: JSON) -> str | None:
    """A reply in parts has an id and a status."""
    for at, item in _items(body):
        if item.get("role") == "assistant" and isinstance(item.get("content"), list):
            missing = next((key for key in ("id", "status") if key not in item), None)
            if missing is not None:
                return f"{at}, 'ResponseOutputMessageParam', '{missing}'"
    return None


def _results_are_text(body: JSON) -> str | None:
    for at, item in _items(body):
        parts = item.get("output") if _kind(item) == "function_call_output" else None
        if isinstance(parts, list) and any(
            not isinstance(part, dict) or part.get("type") != "input_text" for part in parts
        ):
            return str(at)
    return None


def _no_developer(body: JSON) -> str | None:
    return next((str(at) for at, item in _items(body) if item.get("role") == "developer"), None)


def _calls_answered(body: JSON) -> str | None:
    """Every call has a result. Names the call."""
    answered = {str(item.get("call_id")) for _, item in _items(body) if _kind(item) == "function_call_output"}
    for _, item in _items(body):
        if _kind(item) == "function_call" and str(item.get("call_id")) not in answered:
            return str(item.get("call_id"))
    return None


def _has(key: str) -> Breaks:
    return lambda body: "" if body.get(key) else None


def _many_tools(body: JSON) -> str | None:
    tools = body.get("tools")
    return str(len(tools)) if isinstance(tools, list) and len(tools) > 128 else None


def _effort_of(*models: str) -> Breaks:
    def breaks(body: JSON) -> str | None:
        reasoning, model = body.get("reasoning"), str(body.get("model"))
        asks = isinstance(reasoning, dict) and reasoning.get("effort") is not None
        return model if asks and model in models else None

    return breaks


# ------------------------------------------------------------------------------------------- hosts


def _sealed(manner: Manner, source: str) -> HostRule:
    return HostRule(
        name="reasoning sealed here",
        breaks=_sealed_here(manner),
        text="The encrypted content {} could not be verified. Reason: Encrypted content could not be "
        "decrypted "
        "or parsed.",
        source=source,
        code="invalid_encrypted_content",
    )


_AZURE: Final = Manner(seal="-azure")
_DEEPSEEK: Final = Manner(
    item="content",
    thinks=lambda body: True,
    item_id=lambda _, key: f"{key[:8]}-{key[8:12]}-4000-8000-{key[3:15]}",
    call_id=lambda hexed, _, nth: f"call_{nth % 100:02}_{hexed[:22]}",
)
_OPEN: Final = Manner(item="content", item_id=lambda kind, key: f"{kind}_{key}")

_VLLM: Final = Host(
    name="vllm",
    rules=(
        HostRule(
            name="arguments are objects",
            breaks=_argument_objects,
            text="Extra data: line 1 column 1 (char 0)",
            source="vllm-project/vllm#45276, 2026-06-11",
        ),
        HostRule(
            name="reasoning has an id",
            breaks=_reasoning_has_id,
            text="1 validation error: {'type': 'missing', 'loc': ('body', 'input', {}, "
            "'ResponseReasoningItemParam', 'id'), 'msg': 'Field required'}",
            source="vllm reads items as the request types of openai: responses/protocol.py, 2026",
        ),
    ),
    takes=_STORES_NOTHING,
    shape=vllm_error,
    manner=replace(_OPEN, call_id=lambda hexed, _, __: f"chatcmpl-tool-{hexed[:16]}"),
)

RESPONSES_HOSTS: Final = (
    Host(
        name="openai",
        rules=(_sealed(Manner(), "openai/codex#11653, 2026-02; recorded 400 of api.openai.com"),),
    ),
    Host(
        name="azure",
        rules=(_sealed(_AZURE, "openai/codex#11653, 2026-02: bound to the resource and its region"),),
        manner=_AZURE,
    ),
    Host(
        name="xai",
        rules=(
            HostRule(
                name="at most 128 tools",
                breaks=_many_tools,
                text="Too many tools: {} > 128",  # words unknown
                source='docs.x.ai, create a response: "Maximum of 128 tools", 2026',
            ),
            HostRule(
                name="no effort of other models",
                breaks=_effort_of("grok-4", "grok-4-0709", "grok-code-fast-1"),
                text="Model {} does not support parameter reasoningEffort.",
                source="charmbracelet/catwalk#181, 2026-02-13",
            ),
            HostRule(
                name="not in the background",
                breaks=_has("background"),
                text="Argument not supported: background",  # words unknown
                source="docs.x.ai, create a response, 2026",
            ),
        ),
        takes=_STORES_NOTHING,
        shape=xai_error,
        manner=Manner(seal="-xai", item_id=lambda kind, key: f"{kind}_{key}"),
    ),
    _VLLM,
    replace(
        _VLLM,
        name="vllm-0.19",
        rules=(
            HostRule(
                name="replies have a status",
                breaks=_replies_have_status,
                text="1 validation error: {'type': 'missing', 'loc': ('body', 'input', {}), 'msg': 'Field "
                "required'}",
                source="vllm-project/vllm#45273, 2026-06-11 (v0.19.1)",
            ),
            *_VLLM.rules,
        ),
    ),
    Host(
        name="ollama",
        rules=(
            HostRule(
                name="known items",
                breaks=_only_kinds("message", "function_call", "function_call_output", "reasoning"),
                text="{}",
                source=_OLLAMA,
            ),
            HostRule(
                name="no files",
                breaks=_no_files,
                text="file inputs are not currently supported",
                source=_OLLAMA,
            ),
            HostRule(
                name="arguments are objects",
                breaks=_argument_objects,
                text="failed to parse function call arguments: invalid character",
                source=_OLLAMA,
            ),
        ),
        takes=(*_STORES_NOTHING, _IGNORES_MEMBERS),
        shape=ollama_error,
        manner=replace(
            _OPEN, item="plain", thinks=lambda body: True, call_id=lambda hexed, _, __: f"call_{hexed[:8]}"
        ),
    ),
    Host(
        name="llamacpp",
        rules=(
            HostRule(
                name="nothing stored",
                breaks=_has("previous_response_id"),
                text="llama.cpp does not support 'previous_response_id'.",
                source=_LLAMACPP,
            ),
            HostRule(
                name="reasoning has content",
                breaks=_reasoning_has_content,
                text="item['content'] {}",
                source=_LLAMACPP,
            ),
            HostRule(
                name="no files",
                breaks=_no_files,
                text="'input_file' is not supported by llamacpp at this moment",
                source=_LLAMACPP,
            ),
            HostRule(
                name="replies have a type",
                breaks=_replies_have_type,
                text="Cannot determine type of 'item'",
                source=_LLAMACPP,
            ),
            HostRule(
                name="known items",
                breaks=_only_kinds("message", "function_call", "function_call_output", "reasoning"),
                text="Cannot determine type of 'item'",
                source=_LLAMACPP,
            ),
            HostRule(
                name="results are text",
                breaks=_results_are_text,
                text="Output of tool call should be 'Input text'",
                source=_LLAMACPP,
            ),
        ),
        takes=(
            *_STORES_NOTHING,
            _IGNORES_MEMBERS,
            Waived("No tool output found|No tool call found", "llama-server does not check pairs (measured)"),
        ),
        shape=llamacpp_error,
        manner=replace(_OPEN, thinks=lambda body: True),
    ),
    Host(
        name="deepseek",
        rules=(
            HostRule(
                name="no developer",
                breaks=_no_developer,
                text="Failed to deserialize the JSON body into the target type: messages[{}].role: unknown "
                "variant `developer`, expected one of `system`, `user`, `assistant`, `tool`, "
                "`latest_reminder`",
                source="EKKOLearnAI/hermes-studio#1926, 2026-07-04",
                code="invalid_request_error",
            ),
            HostRule(
                name="calls are answered",
                breaks=_calls_answered,
                text="No tool output found for tool call {}.",
                source=_RECORDED,
                code="invalid_request_error",
            ),
        ),
        takes=_STORES_NOTHING,
        shape=openai_error,
        manner=_DEEPSEEK,
    ),
)
