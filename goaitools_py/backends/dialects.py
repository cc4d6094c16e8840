"""Dialects by wire name, for whoever has a state or a name but no backend.

Owns: which wire name means which dialect. Must never know: a connection.

A dialect's module is loaded when its wire is asked for: most programs speak one.
"""

from __future__ import annotations

from .base import Dialect

__all__ = ["WIRES", "dialect_of"]

WIRES = ("openai", "openai-responses", "anthropic")
"""The wires whose states this release can read."""


def dialect_of(wire: str, *, family: str | None = None, model: str = "") -> Dialect:
    """The dialect that reads a wire's entries.

    Args:
        wire: One of `WIRES`.
        family: The endpoint family, None for that of the company that made the wire.
        model: The model that will be called, where a dialect's requests depend on it; "" if unknown.

    Raises:
        ValueError: This release does not speak the wire.
    """
    match wire:
        case "openai":
            from .openai.chat import OpenAIChatDialect

            return OpenAIChatDialect(family or "openai")
        case "openai-responses":
            from .openai.responses import OpenAIResponsesDialect

            return OpenAIResponsesDialect(family or "openai")
        case "anthropic":
            from .anthropic.messages import AnthropicDialect

            return AnthropicDialect(family=family or "anthropic", model=model)
    raise ValueError(f"this release cannot read entries of the wire {wire!r}; it speaks {', '.join(WIRES)}")
