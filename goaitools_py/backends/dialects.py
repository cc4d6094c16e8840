"""Dialects by wire name, for whoever has a state but no backend.

Owns: which wire name means which dialect. Must never know: a connection.
"""

from __future__ import annotations

from .base import Dialect
from .openai_chat import OpenAIChatDialect

__all__ = ["WIRES", "dialect_of"]

WIRES = ("openai",)
"""The wires whose states this release can read."""


def dialect_of(wire: str) -> Dialect:
    """The dialect that reads a wire's entries. ValueError for a wire that this release does not speak."""
    if wire == "openai":
        return OpenAIChatDialect()
    raise ValueError(f"this release cannot read entries of the wire {wire!r}; it speaks {', '.join(WIRES)}")
