"""Dialects by the name of their provider API, for code that has a state or a name but no backend.

Owns: which name means which dialect. Must never know: a connection.

A dialect's module is imported when it is first needed, because most programs use one.
"""

from __future__ import annotations

from .base import Dialect

__all__ = ["WIRES", "dialect_of"]

WIRES = ("openai", "openai-responses", "anthropic")
"""The provider APIs of the states that this release can read."""


def dialect_of(wire: str, *, family: str | None = None, model: str = "") -> Dialect:
    """The dialect of a provider API.

    Args:
        wire: One of `WIRES`.
        family: The operator of the endpoint; None for the company that made the provider API.
        model: The model, if the dialect's requests depend on it; "" if unknown.

    Raises:
        ValueError: This release does not have the provider API.
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
    raise ValueError(
        f"this release cannot read entries of the provider API {wire!r}; it speaks {', '.join(WIRES)}"
    )
