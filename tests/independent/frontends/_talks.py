"""Conversations whose streams the clients read: a model that says what a test wants, and its tools.

Owns: the tools and the wires. Must never know: a client, or what a test expects.
"""

from __future__ import annotations

from typing import Any

from goaitools_py import Chat, Conversation, ToolError, tool
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend

__all__ = ["WIRES", "conversation"]

WIRES = ["openai", "openai-responses", "anthropic"]


@tool
def look(at: str) -> dict[str, str]:
    """Look at something."""
    return {"seen": at}


@tool
def count(numbers: list[int]) -> int:
    """Add numbers."""
    return sum(numbers)


@tool
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(f"it failed: {why}")


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


@tool(external=True)
def ask_player(question: str) -> str:
    """Ask the player."""
    raise AssertionError


TOOLS = [look, count, fail, fire, ask_player]


def conversation(wire: str, *steps: Any) -> Conversation:
    """A conversation in memory on a wire, whose model says the steps."""
    chat = Chat(ScriptedBackend(*steps, wire=wire), tools=TOOLS)
    return chat.conversation(MemoryStore(), "hall", save="checkpoint")
