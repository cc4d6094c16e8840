"""What a provider is asked to do by itself with a request's context while it answers.

Owns: these wishes, in neutral words. Must never know: a wire's names for them, or which hosts have them.

They go along with every request of a conversation, and the provider decides when, by its own count of
tokens, and does it again for each request. The history in the state stays whole. Two may ask for them:

- a compactor, by ``ProviderCompaction(context_management=[…])``. What the wire or the host does not have is
  left out there; the strategy's own way is what happens instead.
- the setting ``ModelSettings(context_management=[…])``, which wins where both do. What the wire or the host
  does not have is a `ValueError`.

`ProviderCompaction` drops from the history what stands before a compaction of the provider's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from .values import Value

__all__ = ["ContextEdit", "ServerCompaction", "ServerThinkingClearing", "ServerToolClearing", "check_edits"]


class ServerCompaction(Value, frozen=True, kw_only=True, tag=True):
    """Compact a request that holds more than `above_tokens`, before it is answered.

    OpenAI's ``context_management`` on the wire "openai-responses", and Anthropic's ``compact_20260112``,
    whose beta ``compact-2026-01-12`` goes along by itself. The reply holds what the provider has made of all
    before it (recorded: Anthropic's begins with it, OpenAI's ends with it), and the provider reads no more of
    what is older.

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


class ServerThinkingClearing(Value, frozen=True, kw_only=True, tag=True):
    """Leave the thinking of old turns out of a request before it is answered.

    It is Anthropic's ``clear_thinking_20251015``; the beta goes along by itself. It takes a request that
    asks for thinking (``ModelSettings(thinking_budget_tokens=…)``, say); to another Anthropic answers 400.

    `keep`: so many of the newest turns keep theirs; "all": every one, which is best for the prompt cache.
    None: the provider's own choice, which differs between models.
    """

    keep: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep != "all":
            _check_count("keep", self.keep, 1)


ContextEdit: TypeAlias = ServerCompaction | ServerToolClearing | ServerThinkingClearing


def check_edits(name: str, value: object) -> None:
    """Raise TypeError for what is no list of such wishes."""
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
