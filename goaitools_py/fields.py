"""The keywords of a chat's methods as a type checker sees them: ``**fields: Unpack[ChatFields]``.

Owns: the options' names and types once more, for `ChatOptions` cannot be unpacked; a test compares the two.
Must never know: what a value does. Only type checkers import it, so that it costs a program nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from .messages import Message
from .options import Limits, ModelSettings, Said, Unset
from .prices import Prices
from .tokens import TokenCounter

__all__ = ["ChatFields", "CompactFields", "DefaultFields", "RunTurnsFields"]


class DefaultFields(TypedDict, total=False):
    """What ``Chat(…)`` takes by name: every option that does not belong to one turn."""

    system: str | Unset | None
    context: str | Unset | None
    tools: Sequence[Any] | Unset | None
    deps: Any
    settings: ModelSettings | Unset | None
    sticky_settings: bool | Unset
    compactor: Any
    cold_after: float | Unset | None
    token_counter: TokenCounter | Unset | None
    context_marks: Sequence[float] | Unset
    prices: Prices | Unset | None
    max_iterations: int | Unset
    limits: Limits | Unset | None
    on_limit: Literal["answer", "raise"] | Unset
    timeout: float | Unset | None
    call_timeout: float | Unset | None
    first_delta_timeout: float | Unset | None
    tool_timeout: float | Unset | None
    tool_concurrency: int | Unset
    tool_threads: bool | Unset
    max_tool_result_bytes: int | Unset
    tool_errors: Literal["to_model", "raise"] | Unset
    on_pending: Literal["raise", "deny", "queue"] | Unset
    on_event: Callable[[Any], object] | Unset | None
    on_checkpoint: Callable[[bytes], object] | Unset | None
    on_bad_state: Literal["fresh", "raise"] | Unset | None
    on_foreign_state: Literal["raise", "fresh"] | Unset
    binding: Any


class CompactFields(DefaultFields, total=False):
    """What ``compact_state`` takes by name: what goes beside a turn."""

    min_revision: int | Unset | None


class RunTurnsFields(DefaultFields, total=False):
    """What ``run_turns`` takes by name: it says what the user says itself."""

    messages: Sequence[Message] | Unset | None
    turn_id: str | Unset | None
    conversation_id: str | Unset | None
    metadata: Mapping[str, str] | Unset | None
    min_revision: int | Unset | None


class ChatFields(RunTurnsFields, total=False):
    """What a turn takes by name: every option."""

    user: Said | Unset | None
