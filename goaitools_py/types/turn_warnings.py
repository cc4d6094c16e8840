"""The warnings of a turn that went on although the caller should know something.

Owns: the codes, and `TurnWarning`. Must never know: a result, an error, or who warns.
"""

from __future__ import annotations

from typing import Literal

from ..base.values import Value

__all__ = ["TurnWarning", "WarningCode"]

WarningCode = Literal[
    "state_discarded",  # the given blob was not used (damaged, or foreign); a fresh conversation began
    "state_converted",  # the given state was of another provider API; from which to which, and the losses
    "fell_back",  # a provider was down, and the turn went on with another one
    "state_moved",  # that blob was moved aside in the store; under which key
    "branch_kept",  # an edit has left a branch of the conversation, which was copied; under which key
    "view_changed",  # a server refused the form of the request; it gets another one from now on; the rules
    "history_repaired",  # no provider accepts the stored history as it was; the repairs, by kind
    "turn_closed",  # an unfinished earlier turn was closed with flagged results
    "preamble_missing",  # earlier turns had a system preamble, this call has no preamble
    "preamble_changed",  # the preamble differs from the last turn's: prompt caches start over
    "tools_changed",  # the tool list differs from the last turn's: prompt caches start over
    "output_changed",  # the format of the answer differs from the last turn's: prompt caches start over
    "model_changed",
    "settings_changed",  # settings of an earlier turn or another model were changed, or left out, and why
    "thinking_removed",  # the text before signed thinking changed; it was taken out of closed turns
    "thinking_unbound",  # signed thinking of the running turn does not fit any more: the provider may drop it
    "input_dropped",  # the provider says that it left parts of the history out, and why
    "endpoint_changed",
    "answer_ignored",  # an answer came for a call that has another answer, or was closed without one
    "left_waiting",  # a request with messages of other callers was refused; those messages wait on
    "calls_dropped",  # the reply was cut inside a tool call; its calls were not run
    "empty_reply",  # the model's reply said nothing and called no tool; it is not in the history
    "turn_not_sent",  # the provider goes on only without the refused turn: later requests do not have it
    "reply_cut",  # parts of the reply nested deeper than 64 levels; null stands in their place
    "call_ids_rewritten",  # the reply gave its calls ids that the conversation had already
    "invalid_tool_calls",  # three replies in a row held only calls that cannot run
    "limit_reached",
    "result_left_out",  # no room for a tool's medium, or for the whole of a long result; the model reads less
    "compaction_failed",
    "compaction_in_vain",  # a compactor has made all its cuts, and its limit is not reached: it rests
    "tool_failed",  # a tool raised something that it does not raise on purpose; the log says where
    "token_counter_failed",  # the caller's token counter raised, or gave a number below 0
    "price_unknown",  # a price list was given, and does not know the price of a model call
    "context_cut_by_server",  # the server cuts the prompt without an error; its size is the window's
    "context_mark",  # the history has grown beyond a mark of the context window, or of the state's limits
    "state_too_large",  # `serve` without a store: the new state is longer than its client can keep
    "pinned_dropped",  # an emergency cut has left nothing else to drop: which pinned messages went
    "emergency_cut",  # the provider or a size limit refused the history, and old turns were dropped
]


class TurnWarning(Value, frozen=True):
    """Something a caller should know although the turn went on. `message` holds no content of messages."""

    code: WarningCode
    message: str
