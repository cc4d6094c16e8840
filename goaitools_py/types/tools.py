"""A tool as a request describes it, and the result of a tool.

Owns: these values. Must never know: a tool's function, or how a provider API writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.values import Given, Value

__all__ = ["ProviderTool", "ToolReturn", "ToolSpec"]


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


class ToolReturn(Given, frozen=True):
    """A tool's result that says whether it is an error. `value` is anything that a tool may return."""

    _unshown = frozenset({"value"})

    value: Any
    is_error: bool = False
