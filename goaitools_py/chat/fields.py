"""The keywords of a chat's methods as a type checker sees them: ``**fields: Unpack[ChatFields]``.

Owns: the options' names and types once more, for `ChatOptions` cannot be unpacked; a test compares the two.
Must never know: the effect of a value. Only type checkers import it, so that it costs a program nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from ..types.messages import Message
from ..types.options import Limits, ModelSettings, Timeouts, Unset, UserInput
from ..types.tokens import TokenCounter
from ..types.usage import Prices

__all__ = [
    "ChatFields",
    "CompactFields",
    "DefaultFields",
    "NoFields",
    "RunTurnsFields",
    "SeriesFields",
    "TurnFields",
]


class DefaultFields(TypedDict, total=False):
    """Keyword options of ``Chat(…)``: every option that does not belong to one turn."""

    system: str | Unset | None
    context: str | Unset | None
    tools: Sequence[Any] | Unset | None
    deps: Any
    settings: ModelSettings | Unset | None
    sticky_settings: bool | Unset
    compactor: Any
    cold_after: float | Unset | None
    record_ids: bool | Unset
    record_actions: bool | Unset
    token_counter: TokenCounter | Unset | None
    context_marks: Sequence[float] | Unset
    prices: Prices | Unset | None
    limits: Limits | Unset | None
    keep_partial: bool | Unset
    on_limit: Literal["answer", "raise"] | Unset
    timeout: float | Timeouts | Unset | None
    tool_concurrency: int | Unset
    tool_threads: bool | Unset
    max_tool_result_bytes: int | Unset
    keep_results: Literal["cut", "store"] | Unset
    tool_errors: Literal["to_model", "raise"] | Unset
    on_pending: Literal["raise", "deny", "queue"] | Unset
    on_event: Callable[[Any], object] | Unset | None
    on_checkpoint: Callable[[bytes], object] | Unset | None
    on_bad_state: Literal["fresh", "raise"] | Unset | None
    on_foreign_state: Literal["raise", "fresh", "convert"] | Unset
    binding: Any


class NoFields(TypedDict):
    """Keyword options of a method that has no options of turns. An option is refused, and the error names the
    right place."""


class CompactFields(DefaultFields, total=False):
    """Keyword options of ``compact_state``: the chat's defaults, and `min_revision`."""

    min_revision: int | Unset | None


class SeriesFields(DefaultFields, total=False):
    """Keyword options of ``run_turns``, except `output_type`. There is no `user`: the texts take its
    place."""

    messages: Sequence[Message] | Unset | None
    speaker: str | Unset | None
    turn_id: str | Unset | None
    edit: int | str | Unset | None
    conversation_id: str | Unset | None
    metadata: Mapping[str, str] | Unset | None
    min_revision: int | Unset | None


class TurnFields(SeriesFields, total=False):
    """Keyword options of a turn, except `output_type`, the type of the result."""

    user: UserInput | Unset | None


class RunTurnsFields(SeriesFields, total=False):
    """Keyword options of ``run_turns``."""

    output_type: Any


class ChatFields(TurnFields, total=False):
    """Keyword options of a turn: every option."""

    output_type: Any
