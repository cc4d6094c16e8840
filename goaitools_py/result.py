"""What a turn gives back.

Owns: the frozen result values. Must never know: how they came about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .citations import Citation
from .messages import ToolRecord, Usage
from .prices import Charge, genai_price, priced, total
from .values import Value

if TYPE_CHECKING:
    from .errors import StateError
    from .turn.answers import PendingCall

__all__ = ["Bill", "ChatResult", "CompactionReport", "Outcome", "Status", "TurnWarning", "WarningCode"]

Status = Literal["complete", "awaiting_tools", "truncated", "refused", "limited"]

WarningCode = Literal[
    "state_discarded",  # the given blob was not used (damaged, or foreign); a fresh conversation began
    "state_moved",  # that blob was moved aside in the store; under which key
    "history_repaired",  # the stored history was one that no provider takes; what was done, by kind
    "turn_closed",  # an unfinished earlier turn was closed with flagged results
    "preamble_missing",  # earlier turns had a system preamble, this call has none
    "preamble_changed",  # the preamble differs from the last turn's: prompt caches start over
    "tools_changed",  # the tool list differs from the last turn's: prompt caches start over
    "model_changed",
    "thinking_removed",  # what stands before signed thinking changed; it was taken out of closed turns
    "thinking_unbound",  # signed thinking of the running turn does not fit any more: the provider may drop it
    "input_dropped",  # the provider says that it left parts of the history out, and why
    "endpoint_changed",
    "answer_ignored",  # an answer came for a call that has another answer, or was closed without one
    "calls_dropped",  # the reply was cut inside a tool call; its calls were not run
    "reply_cut",  # parts of the reply nested deeper than 64 levels; null stands in their place
    "call_ids_rewritten",  # the reply gave its calls ids that the conversation had already
    "invalid_tool_calls",  # three replies in a row held only calls that cannot run
    "limit_reached",
    "result_left_out",  # no room for a tool's picture, document or sound; the model reads type and size
    "compaction_failed",
    "tool_failed",  # a tool raised something that it does not raise on purpose; the log says where
    "token_counter_failed",  # the caller's token counter raised, or gave a number below 0
    "price_unknown",  # a price list was given, and does not know what a model call cost
    "context_mark",  # the history has grown beyond a mark of the context window, or of the state's limits
    "emergency_cut",  # the provider or a size limit refused the history, and old turns were dropped
]

Outcome = Literal["compacted", "no_change", "invalid", "failed"]


class TurnWarning(Value, frozen=True):
    """Something a caller should know although the turn went on. `message` holds no content of messages."""

    code: WarningCode
    message: str


class CompactionReport(Value, frozen=True, kw_only=True):
    """What a compaction did. Counts of messages are neutral ones; bytes are of the stored entries, tokens
    are estimates of the closed history.

    Attributes:
        outcome: "compacted"; "no_change": there was nothing to do, or the result would have been no better;
            "invalid": the compactor's answer could not be used; "failed": it raised, or its model did not
            answer. In all but the first the history is as it was.
        by: The strategy's name.
        reason: Why nothing was done, or less than was asked for, without content.
        removed_turns: Turns that are gone.
        rewritten_turns: Turns of which parts were replaced.
        usage: What the strategy's own model calls consumed; part of the turn's usage.
        state: Set by `compact_state` only.
        error: What a trigger, a strategy or `archive` of yours raised, for your own log.
    """

    unshown = frozenset({"state", "error"})

    outcome: Outcome
    by: str = ""
    reason: str = ""
    removed_turns: int = 0
    rewritten_turns: int = 0
    removed_messages: int = 0
    usage: Usage = Usage()
    messages_before: int = 0
    messages_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    state: bytes = b""
    error: Exception | None = None


class Bill(Value, frozen=True, kw_only=True):
    """A turn's model calls, each with the model that was asked for, and what they cost if that was booked."""

    charges: tuple[tuple[str, Charge], ...] = ()
    booked: tuple[Decimal | None, ...] | None = None

    @property
    def cost_usd(self) -> Decimal | None:
        """What they cost together; None if one of them is unknown."""
        if self.booked is not None:
            return total(self.booked)
        return total(priced(genai_price, charge, asked) for asked, charge in self.charges)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatResult(tuple[str, bytes]):
    """The outcome of a turn; it is the tuple ``(text, state)``, so that ``text, state = …`` is typed.

    Attributes:
        text: The last reply's visible text.
        state: The new blob: save it, and give it to the next call.
        status: "complete"; "awaiting_tools" if calls wait for answers; "truncated" or "refused" by the
            model; "limited" by a turn's limit.
        finish_reason: The provider's own word.
        pending: Calls that wait for an answer from outside; empty unless `status` is "awaiting_tools".
        usage: What this turn consumed, every call included.
        total_usage: What the conversation has consumed in its whole life, across compactions.
        aside_usage: The part of `total_usage` that went into summaries and the like.
        total_cost_usd: What the conversation has cost in its whole life, if each call's price was known when
            it was made: that is kept with `prices=` or a limit on costs only. None means unknown.
        iterations: Model calls of this turn.
        actions: What tools logged with ``ctx.log_action``.
        tool_log: Every tool call with its result, in order.
        compaction: Set if the history was compacted.
        context_used: Tokens that the next request holds before anything new is said.
        context_fraction: Part of the model's context window in use, None if the window is unknown.
        warnings: What the caller should know although the turn succeeded; docs/events.md has the codes.
        discarded: Why the given state was not used, if a fresh one was begun: it is damaged, or of another
            provider API. Its bytes are in ``discarded.blob``.
        citations: The sources that the reply names (web search, documents); their places count in `text`.
        duplicate: True if this is the stored reply to what came before: a turn with the same `turn_id`, or
            the same answer to `resume`.
        model: The model that answered, as the provider names it.
        request_ids: The provider's ids, one per model call that reported one.
        turns_left: Of `run_turns` that stopped because this turn waits: the texts that were not said.
    """

    text: str = field(repr=False)
    state: bytes = field(repr=False)
    status: Status = "complete"
    finish_reason: str = ""
    pending: tuple[PendingCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    total_usage: Usage = field(default_factory=Usage)
    aside_usage: Usage = field(default_factory=Usage)
    total_cost_usd: Decimal | None = None
    iterations: int = 0
    actions: tuple[Any, ...] = field(default=(), repr=False)
    tool_log: tuple[ToolRecord, ...] = ()
    compaction: CompactionReport | None = None
    context_used: int = 0
    context_fraction: float | None = None
    warnings: tuple[TurnWarning, ...] = ()
    discarded: StateError | None = field(default=None, repr=False)
    duplicate: bool = False
    model: str = ""
    request_ids: tuple[str, ...] = ()
    turns_left: tuple[str, ...] = field(default=(), repr=False)
    citations: tuple[Citation, ...] = ()
    bill: Bill = field(default_factory=Bill, repr=False)

    @cached_property
    def cost_usd(self) -> Decimal | None:
        """What this turn cost, every call included; None means unknown.

        Without `prices=` this asks genai-prices when it is read, if the extra ``[prices]`` is installed.
        """
        return self.bill.cost_usd

    def __new__(cls, *, text: str, state: bytes, **_: Any) -> ChatResult:
        return tuple.__new__(cls, (text, state))

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        # What a copy, here or in another process, gives to `__new__`; the other fields follow.
        return (), {"text": self.text, "state": self.state}
