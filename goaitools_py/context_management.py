"""What a provider is asked to do by itself with a request's context while it answers.

Owns: these wishes, in neutral words. Must never know: a wire's names for them, or which hosts have them.

They are settings of a request, not compactors: the provider decides when, by its own count of tokens, and
does it again for each request. The history in the state stays whole, and `ProviderCompaction` drops from it
what a compaction of the provider's stands for. A wire or host that has no such thing is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from .values import Value

__all__ = ["ContextEdit", "ServerCompaction", "ServerToolClearing"]


class ServerCompaction(Value, frozen=True, kw_only=True, tag=True):
    """Compact a request that holds more than `above_tokens`, before it is answered.

    OpenAI's ``context_management`` on the wire "openai-responses", and Anthropic's ``compact_20260112``,
    whose beta ``compact-2026-01-12`` goes along by itself. The reply begins with what the provider has made
    of all before it, and the provider reads no more of what is older.

    `instructions`: what to keep, in place of the provider's own prompt; Anthropic only.
    """

    unshown = frozenset({"instructions"})

    above_tokens: int
    instructions: str = ""

    def __post_init__(self) -> None:
        _check_count("above_tokens", self.above_tokens, 1)


class ServerToolClearing(Value, frozen=True, kw_only=True, tag=True):
    """Leave old tool results out of a request before it is answered.

    It is Anthropic's ``clear_tool_uses_20250919``; the beta goes along by itself.

    What is not given is the provider's own choice. Each clearing makes a new prefix for its prompt cache:
    `at_least_tokens` makes it wait for so many.

    Attributes:
        above_tokens: Clear where a request holds more.
        keep: So many of the newest tool uses stay.
        at_least_tokens: Clear only if so many would go.
        clear_inputs: True: what the model wrote for the calls goes too.
        keep_tools: Names of tools whose results always stay.
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


ContextEdit: TypeAlias = ServerCompaction | ServerToolClearing


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
