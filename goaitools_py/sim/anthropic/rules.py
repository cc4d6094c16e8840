"""Refusals of Anthropic's Messages endpoint: the sequence and shape rules of its requests.

Owns: the rules, each with the provider's own text where that is known. Must never know: how a client builds
a request, or the rules of this package's own backends, because the simulator checks them independently.

The texts come from recorded 400 responses and from public threads (anthropics/claude-code#8612, #64383,
#63835; tghamm/Anthropic.SDK#50). Two texts are the simulator's own, because the real ones are unknown: the
position of a system message, and an unknown container. The provider accepts ``max_tokens: 0``, which fills a
cache and answers nothing. A chat never wants that, so it is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..openai.common_rules import Refusal
from .blocks import ROLES, block_refusals, extra, mark_refusals
from .request_options import IN_REPLY, context_refusals, format_refusals
from .turn_rules import begins_thinking, hosted_calls, is_paused, is_summary, pairing, repeated_ids, texts

__all__ = ["BINDING_BETA", "AnthropicRules", "check_anthropic"]

BINDING_BETA = "thinking-binding-controls-2026-08-01"
_STRICT_VERSION = "2026-10-21"
_COMPACTING = frozenset({"compact-2026-09-04", IN_REPLY})
_KEYS = frozenset(
    [
        "max_tokens",
        "messages",
        "model",
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "metadata",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "system",
        "thinking",
        "tool_choice",
        "tools",
        "user_profile_id",
        "stream",
    ]
)
_BETA_KEYS = frozenset(
    [
        "billing_policy",
        "compaction",
        "context_management",
        "fallback_credit_token",
        "fallbacks",
        "mcp_servers",
        "output_format",
        "thread",
    ]
)
_SAMPLING = frozenset({"temperature", "top_k", "top_p"})
_MESSAGE_KEYS = frozenset({"role", "content"})
_SYSTEM_MESSAGE_KEYS = _MESSAGE_KEYS | {"clear_at", "output_config"}
_TOOL_KEYS = frozenset(
    [
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "defer_loading",
        "allowed_callers",
        "input_examples",
        "eager_input_streaming",
    ]
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_MARKS = 4
_MAX_MESSAGES = 100_000
_MIN_BUDGET = 1024


def _simulated(container: str) -> bool:
    return container.startswith("container_sim")


def _modern(model: str) -> bool:
    return "no-system" not in model


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicRules:
    """The rules for one request.

    Attributes:
        version: The request's anthropic-version header.
        betas: The names in its anthropic-beta header; None allows everything that a beta allows.
        knows_container: Says whether a container with this id exists. By default these are the containers
            of simulated replies: their ids begin with "container_sim".
        has_system_messages: Says whether a model takes the role "system" among the messages. By default
            every model does, unless its name contains "no-system".
        ids_stay_unique: True: an id of a tool use may come once in the whole history (publicly reported).
            False: once in a turn (a recorded request that repeated an id in a later turn was accepted).
    """

    version: str = _STRICT_VERSION
    betas: frozenset[str] | None = None
    knows_container: Callable[[str], bool] = _simulated
    has_system_messages: Callable[[str], bool] = _modern
    ids_stay_unique: bool = True

    def refusals(self, body: Mapping[str, Any]) -> list[Refusal]:
        """All problems of a request. The provider answers with the first."""
        return [
            *self._top(body),
            *self._messages(body),
            *_system(body),
            *_tools(body),
            *_tool_choice(body),
            *self._thinking(body),
            *self._settings(body),
            *context_refusals(body, self.betas),
            *_marks(body),
        ]

    # ------------------------------------------------------------------------------------- the request

    def _top(self, body: Mapping[str, Any]) -> Iterator[Refusal]:
        for key in ("model", "messages", "max_tokens"):
            if key not in body:
                yield Refusal(f"{key}: Field required")
        allowed = _KEYS
        if self.betas is None or self.betas:
            allowed |= _BETA_KEYS
        if self.version < _STRICT_VERSION:
            allowed |= _SAMPLING
        for key in body:
            if key not in allowed:
                yield extra(key)
        if "model" in body and not isinstance(body["model"], str):
            yield Refusal("model: Input should be a valid string")

    def _settings(self, body: Mapping[str, Any]) -> Iterator[Refusal]:
        if "max_tokens" in body:
            yield from _whole("max_tokens", body["max_tokens"], 1)
        if not isinstance(body.get("stream", False), bool):
            yield Refusal("stream: Input should be a valid boolean")
        stops = body.get("stop_sequences")
        if stops is not None and not (isinstance(stops, list) and all(isinstance(s, str) for s in stops)):
            yield Refusal("stop_sequences: Input should be a valid list of strings")
        elif stops and not all(stop.strip() for stop in stops):
            yield Refusal("stop_sequences: each stop sequence must contain non-whitespace")
        for key in ("temperature", "top_p"):
            value = body.get(key)
            if value is not None and self.version < _STRICT_VERSION:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    yield Refusal(f"{key}: Input should be a valid number")
                elif not 0 <= value <= 1:
                    yield Refusal(f"{key}: range: 0..1")
        yield from format_refusals(body.get("output_config"))
        container = body.get("container")
        identifier = container.get("id") if isinstance(container, dict) else container
        if identifier is not None and not (isinstance(identifier, str) and self.knows_container(identifier)):
            yield Refusal("container: the container was not found or has expired")

    def _thinking(self, body: Mapping[str, Any]) -> Iterator[Refusal]:
        thinking = body.get("thinking")
        if thinking is None:
            return
        kind = thinking.get("type") if isinstance(thinking, dict) else None
        kinds = ("adaptive", "between_tools", "disabled", "enabled")
        if kind not in kinds:
            listed = ", ".join(f"'{one}'" for one in kinds)
            yield Refusal(
                f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected "
                f"tags: {listed}"
            )
            return
        assert isinstance(thinking, dict)
        yield from self._binding(kind, thinking)
        if kind == "enabled":
            yield from _budget(thinking, body)
        choice = body.get("tool_choice")
        forces = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
        if forces and kind in ("enabled", "adaptive"):
            yield Refusal("Thinking may not be enabled when tool_choice forces tool use.")

    def _binding(self, kind: str, thinking: Mapping[str, Any]) -> Iterator[Refusal]:
        binding = thinking.get("block_binding")
        path = f"thinking.{kind}.block_binding"
        if binding is None:
            return
        if kind not in ("enabled", "adaptive"):
            yield extra(path)
        elif self.betas is not None and BINDING_BETA not in self.betas:
            yield Refusal(f"{path}: Extra inputs are not permitted without the beta header {BINDING_BETA}")
        elif not isinstance(binding, dict):
            yield Refusal(f"{path}: Input should be an object")
        elif binding.get("prefix_mismatch_behavior", "error") not in ("error", "drop_block", None):
            yield Refusal(f"{path}.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'")

    # ------------------------------------------------------------------------------------ the messages

    def _messages(self, body: Mapping[str, Any]) -> Iterator[Refusal]:
        if "messages" not in body:
            return
        messages = body["messages"]
        if not isinstance(messages, list):
            yield Refusal("messages: Input should be a valid array")
            return
        if not messages:
            yield Refusal("messages: at least one message is required")
            return
        if len(messages) > _MAX_MESSAGES:
            yield Refusal(f"messages: at most {_MAX_MESSAGES} messages are allowed")
        found = list(self._each(messages))
        yield from found
        if not found:
            yield from self._roles(messages, str(body.get("model")))
            yield from pairing(messages)
            yield from repeated_ids(messages, everywhere=self.ids_stay_unique)
            yield from hosted_calls(messages)
            thinking, is_claude = body.get("thinking"), "claude" in str(body.get("model"))
            if is_claude and isinstance(thinking, dict) and thinking.get("type") == "enabled":
                yield from begins_thinking(messages)
            ends_with_reply = messages[-1]["role"] == "assistant" and not is_paused(messages[-1])
            if ends_with_reply and body.get("compaction") is None:
                yield Refusal(
                    "This model does not support assistant message prefill. The conversation must end with a "
                    "user message."
                )

    def _each(self, messages: Sequence[Any]) -> Iterator[Refusal]:
        for index, message in enumerate(messages):
            path = f"messages.{index}"
            if not isinstance(message, dict):
                yield Refusal(f"{path}: Input should be an object")
                continue
            role, content = message.get("role"), message.get("content")
            if role not in ROLES:
                allowed = "'user', 'assistant' or 'system'"
                yield Refusal(
                    f"{path}.role: " + ("Field required" if role is None else f"Input should be {allowed}")
                )
                continue
            for key in message:
                if key not in (_SYSTEM_MESSAGE_KEYS if role == "system" else _MESSAGE_KEYS):
                    yield extra(f"{path}.{key}")
            is_last_reply = index == len(messages) - 1 and role == "assistant"
            if content is None:
                yield Refusal(f"{path}.content: Field required")
            elif not isinstance(content, str | list):
                yield Refusal(f"{path}.content: Input should be a valid string or array")
            elif not content and not is_last_reply:
                yield Refusal(
                    f"{path}: all messages must have non-empty content except for the optional final "
                    "assistant message"
                )
            elif isinstance(content, list):
                for at, block in enumerate(content):
                    yield from block_refusals(f"{path}.content.{at}", block, role, self.version)
            if role != "assistant" and any(text and not text.strip() for text in texts(content)):
                yield Refusal("messages: text content blocks must contain non-whitespace text")

    def _roles(self, messages: Sequence[Mapping[str, Any]], model: str) -> Iterator[Refusal]:
        first = messages[0]
        if first["role"] == "system":
            yield Refusal("messages.0: use the top-level 'system' parameter for the initial system prompt")
        elif first["role"] == "assistant" and not is_summary(first):
            yield Refusal('messages: first message must use the "user" role')
        elif is_summary(first) and self.betas is not None and not _COMPACTING & self.betas:
            yield Refusal("messages.0.content.0.type: 'compaction' blocks need their beta header")
        if self.betas is not None and IN_REPLY not in self.betas:
            for index, message in enumerate(messages[1:], 1):
                if is_summary(message):
                    yield Refusal(f"messages.{index}: compaction_block_misplaced: it must come first")
        for index, message in enumerate(messages):
            if message["role"] != "system":
                continue
            if not self.has_system_messages(model):
                yield Refusal("role 'system' is not supported on this model")
                return
            if index and messages[index - 1]["role"] == "assistant":
                yield Refusal(f"messages.{index}: a message with role 'system' must follow a user turn")


def check_anthropic(body: Mapping[str, Any], *, version: str = _STRICT_VERSION) -> list[str]:
    """All reasons why Anthropic would answer this Messages request with 400; [] for a valid request.

    Signatures of thinking are not checked: see `SimServer`.

    Args:
        body: The parsed JSON object of the request.
        version: Its anthropic-version header.
    """
    return [refusal.message for refusal in AnthropicRules(version=version).refusals(body)]


def _whole(path: str, value: Any, minimum: int) -> Iterator[Refusal]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield Refusal(f"{path}: Input should be a valid integer")
    elif value < minimum:
        yield Refusal(f"{path}: must be greater than or equal to {minimum}")


def _budget(thinking: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Refusal]:
    path = "thinking.enabled.budget_tokens"
    budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
    if budget is None:
        yield Refusal(f"{path}: Field required")
    elif isinstance(budget, bool) or not isinstance(budget, int):
        yield Refusal(f"{path}: Input should be a valid integer")
    elif budget < _MIN_BUDGET:
        yield Refusal(f"{path}: Input should be greater than or equal to {_MIN_BUDGET}")
    elif isinstance(limit, int) and limit <= budget:
        yield Refusal("`max_tokens` must be greater than `thinking.budget_tokens`.")


# ----------------------------------------------------------------------------- system, tools and marks


def _system(body: Mapping[str, Any]) -> Iterator[Refusal]:
    system = body.get("system", "")
    if not isinstance(system, str | list):
        yield Refusal("system: Input should be a valid string or array")
        return
    for index, block in enumerate(system if isinstance(system, list) else ()):
        if not isinstance(block, dict) or block.get("type") != "text":
            yield Refusal(f"system.{index}.type: Input should be 'text'")
        elif block.get("text") == "":
            yield Refusal("system: text content blocks must be non-empty")
        else:
            yield from block_refusals(f"system.{index}", block, "system", _STRICT_VERSION)


def _tools(body: Mapping[str, Any]) -> Iterator[Refusal]:
    tools = body.get("tools")
    if tools is None:
        return
    if not isinstance(tools, list):
        yield Refusal("tools: Input should be a valid array")
        return
    for index, tool in enumerate(tools):
        if not isinstance(tool, dict):
            yield Refusal(f"tools.{index}: Input should be an object")
        else:
            yield from _tool(f"tools.{index}", tool)
    names = _names(tools)
    if len(set(names)) < len(names):
        yield Refusal("tools: Tool names must be unique.")


def _tool(path: str, tool: Mapping[str, Any]) -> Iterator[Refusal]:
    yield from mark_refusals(path, tool)
    if tool.get("type") not in (None, "custom"):
        return  # the provider's own tools have other shapes
    path = f"{path}.custom"
    name, schema = tool.get("name"), tool.get("input_schema")
    if name is None:
        yield Refusal(f"{path}.name: Field required")
    elif not (isinstance(name, str) and _TOOL_NAME.fullmatch(name)):
        yield Refusal(f"{path}.name: String should match pattern '^{_TOOL_NAME.pattern}$'")
    if schema is None:
        yield Refusal(f"{path}.input_schema: Field required")
    elif not isinstance(schema, dict):
        yield Refusal(f"{path}.input_schema: Input should be an object")
    elif "type" not in schema:
        yield Refusal(f"{path}.input_schema.type: Field required")
    elif schema["type"] != "object":
        yield Refusal(f"{path}.input_schema.type: Input should be 'object'")
    elif any(key in schema for key in ("oneOf", "allOf", "anyOf")):
        yield Refusal(
            f"{path}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
        )
    for key in tool:
        if key not in _TOOL_KEYS:
            yield extra(f"{path}.{key}")


def _names(tools: Any) -> list[str]:
    listed = tools if isinstance(tools, list) else []
    return [str(tool["name"]) for tool in listed if isinstance(tool, dict) and "name" in tool]


def _tool_choice(body: Mapping[str, Any]) -> Iterator[Refusal]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("any", "auto", "none", "tool"):
        yield Refusal(
            f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags: "
            "'any', 'auto', 'none', 'tool'"
        )
        return
    if not body.get("tools") and not body.get("mcp_servers"):
        yield Refusal("tool_choice: may only be specified while providing tools")
    if kind == "tool" and choice.get("name") not in _names(body.get("tools")):
        yield Refusal(f"Tool '{choice.get('name')}' not found in provided tools")


def _marks(body: Mapping[str, Any]) -> Iterator[Refusal]:
    yield from mark_refusals("cache_control", body)
    count = int(body.get("cache_control") is not None)
    for listed in (body.get("tools"), body.get("system"), *_contents(body.get("messages"))):
        count += sum(_count(block) for block in (listed if isinstance(listed, list) else ()))
    if count > _MAX_MARKS:
        yield Refusal(f"A maximum of {_MAX_MARKS} blocks with cache_control may be provided. Found {count}.")


def _contents(messages: Any) -> list[Any]:
    listed = messages if isinstance(messages, list) else []
    return [message.get("content") for message in listed if isinstance(message, dict)]


def _count(block: Any) -> int:
    if not isinstance(block, dict):
        return 0
    inner = block.get("content") if block.get("type") == "tool_result" else None
    marked = int(block.get("cache_control") is not None)
    return marked + sum(_count(part) for part in (inner if isinstance(inner, list) else ()))
