"""The things that a request asks of a provider beside its messages: tools, and edits of its context.

Owns: these requests as neutral values. Must never know: a tool's function, a provider API's names for them,
or which hosts support them.

Every request of the conversation asks for the edits. The provider decides when to make them, by its own count
of tokens, and makes them anew for each request. The history in the state does not change. There are two ways
to ask:

- A compactor: ``ProviderCompaction(context_management=[…])``. An edit that the provider API or the host does
  not have is left out, and the strategy works without it.
- The setting ``ModelSettings(context_management=[…])``, which wins over the compactor. An edit that the
  provider API or the host does not have is a `ValueError`.

After a compaction of the provider, `ProviderCompaction` drops everything before it from the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ..base.values import Given, Value

__all__ = [
    "ContextEdit",
    "ProviderTool",
    "ServerCompaction",
    "ServerThinkingClearing",
    "ServerToolClearing",
    "ToolSpec",
    "check_edits",
]


class ToolSpec(Value, frozen=True, kw_only=True):
    """A function tool as a request describes it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False


class ProviderTool(Value, frozen=True):
    """A tool of the provider, which is sent unchanged. `raw` is the provider's own JSON object.

    The repr does not show it, because the entry of an MCP server may hold the server's key.
    """

    _unshown = frozenset({"raw"})

    raw: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.raw, Mapping):
            raise TypeError(f"a ProviderTool takes the provider's JSON object, not {type(self.raw).__name__}")
        if not self.raw:
            raise ValueError("a ProviderTool takes the provider's JSON object, and this one is empty")


class ServerCompaction(Given, frozen=True, kw_only=True, tag=True):
    """Compact a request that holds more than `above_tokens`, before it is answered.

    This is OpenAI's ``context_management`` on "openai-responses", and Anthropic's ``compact_20260112``. Its
    beta header ``compact-2026-01-12`` is added automatically. The reply holds the compaction (recorded:
    Anthropic's reply begins with it, OpenAI's reply ends with it). The provider no longer reads older items.

    `instructions`: a prompt for the summary, instead of the provider's own prompt; Anthropic only.
    """

    _unshown = frozenset({"instructions"})

    above_tokens: int
    instructions: str = ""

    def __post_init__(self) -> None:
        _check_count("above_tokens", self.above_tokens, 1)


class ServerToolClearing(Given, frozen=True, kw_only=True, tag=True):
    """Leave old tool results out of a request before it is answered.

    This is Anthropic's ``clear_tool_uses_20250919``; the beta header is added automatically.

    The provider chooses the settings that are not given. Each clearing changes the prefix, and the prompt
    cache does not have the new prefix: use `at_least_tokens` to clear rarely.

    Attributes:
        above_tokens: Clear if the request holds more tokens.
        keep: This number of newest tool uses stays.
        at_least_tokens: Clear only if this number of tokens is removed.
        clear_inputs: True: the arguments of the calls are removed too.
        keep_tools: Names of tools with results that always stay.
    """

    above_tokens: int | None = None
    keep: int | None = None
    at_least_tokens: int | None = None
    clear_inputs: bool = False
    keep_tools: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, least in (("above_tokens", 1), ("keep", 0), ("at_least_tokens", 1)):
            if (value := getattr(self, name)) is not None:
                _check_count(name, value, least)
        if isinstance(self.keep_tools, str):
            raise TypeError("keep_tools must be a list of names; write keep_tools=['look']")


class ServerThinkingClearing(Given, frozen=True, kw_only=True, tag=True):
    """Leave the thinking of old turns out of a request before it is answered.

    This is Anthropic's ``clear_thinking_20251015``; the beta header is added automatically. It needs a
    request with thinking, such as ``ModelSettings(thinking_budget_tokens=…)``; without it Anthropic answers
    400.

    `keep`: this number of newest turns keeps its thinking. "all": every turn does, which is best for the
    prompt cache. None: the provider chooses, differently for each model.
    """

    keep: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep != "all":
            _check_count("keep", self.keep, 1)


ContextEdit: TypeAlias = ServerCompaction | ServerToolClearing | ServerThinkingClearing


def check_edits(name: str, value: object) -> None:
    """Raise TypeError if the value is not a list of context edits."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be a list, not {_kind(value)}")
    for edit in value:
        if not isinstance(edit, ContextEdit):
            raise TypeError(
                f"each item of {name} must be a ServerCompaction, a ServerToolClearing or a "
                f"ServerThinkingClearing, not {_kind(edit)}"
            )


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
