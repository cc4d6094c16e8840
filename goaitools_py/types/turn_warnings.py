"""The warnings of a turn that went on although the caller should know something.

Owns: the codes, and `TurnWarning`. Must never know: a result, an error, or who warns.
"""

from __future__ import annotations

from typing import Literal

from ..base.values import Value

__all__ = ["TurnWarning", "WarningCode"]

# `docs/write_tables.py` writes the comment above each code into docs/event_fields.md.
WarningCode = Literal[
    # The given state was not used, and a fresh conversation began. `result.discarded` has the reason.
    "state_discarded",
    # The given state was of another provider API, and was converted. The message counts the losses.
    "state_converted",
    # A provider was down, and the turn went on with the next one of the chat's `fallbacks`.
    "fell_back",
    # A kept conversation: the old state is now under another key of the store, which the message names.
    "state_moved",
    # A kept conversation with `keep_branches=True`: an edit has left a branch. It is now under another key
    # of the store, which the message names.
    "branch_kept",
    # A server refused the form of the request, and gets another one from now on. The message names the
    # rules. Or earlier pictures are left out of the request, because the server takes fewer. The stored
    # history has not changed.
    "view_changed",
    # No provider accepts the stored history as it was. It was repaired, and the message counts the repairs
    # by kind.
    "history_repaired",
    # An earlier turn was unfinished. It was closed.
    "turn_closed",
    # Earlier turns had a `system=` text, and this turn has none. The prompt cache starts over.
    "preamble_missing",
    # The `system=` text differs from the last turn's. The prompt cache starts over.
    "preamble_changed",
    # The tools differ from the last turn's. The prompt cache starts over.
    "tools_changed",
    # The format of the answer differs from the last turn's. The prompt cache starts over.
    "output_changed",
    # The model differs from the last turn's.
    "model_changed",
    # Settings of an earlier turn, or of another model, would have been refused. The message says which ones
    # were changed or left out, and why.
    "settings_changed",
    # The signed thinking of earlier turns was no longer valid, and was taken out of the state.
    "thinking_removed",
    # The thinking of the running turn may no longer be valid. The provider is asked to drop it if so, and if
    # the request can say this; else it is taken out after a refusal.
    "thinking_unbound",
    # The provider says that it left parts of the history out.
    "input_dropped",
    # The server differs from the last turn's.
    "endpoint_changed",
    # An answer came for a call that was answered, or closed, before. The first answer holds.
    "answer_ignored",
    # A kept conversation: the provider refused a request that carried messages of other callers. The turn
    # went on without them. They wait, and go along with the next turn.
    "left_waiting",
    # The reply ended inside a tool call. Its calls were not run.
    "calls_dropped",
    # The model's reply holds no text and calls no tool, or has only reasoning. Nothing of it is stored, and
    # the next turn goes on. If no output token was billed, the model was asked once more before (with
    # `max_retries` above 0).
    "empty_reply",
    # The provider, or a guardrail, refused the turn and goes on only without it (status `"refused"`). It
    # stays in the history, where readers find it. Later requests, summaries and searches do not have it.
    "turn_not_sent",
    # Parts of the reply nest deeper than 64 levels. `null` is stored in their place.
    "reply_cut",
    # The reply used ids of earlier calls. Its calls have new ids.
    "call_ids_rewritten",
    # Three replies in a row had only calls that cannot run. The model was asked to answer without tools.
    "invalid_tool_calls",
    # A limit of the turn was reached: one of `limits`, calls in one reply, or pauses.
    "limit_reached",
    # A picture, document or sound of a tool does not fit into the state, and the model reads its type and
    # size. Or a long result cannot be kept whole (`keep_results="store"`), and is cut.
    "result_left_out",
    # A compactor failed, or its summary did not come. The history stays, or the next compactor of
    # `first_of` ran.
    "compaction_failed",
    # A compactor has made all its cuts. Tools, `system=` or messages that always stay are still above its
    # limit. This is said once. If its cuts cost money, the compactor rests from then on.
    "compaction_in_vain",
    # A tool raised something other than `ToolError` or `AbortTurn`. The log `goaitools_py` has class, file
    # and line.
    "tool_failed",
    # `token_counter` raised, or gave a negative number. The estimate is used.
    "token_counter_failed",
    # `prices` does not know the price of a model call.
    "price_unknown",
    # The server counted far fewer tokens than the history has. It cuts the prompt without an error, as
    # Ollama does above `num_ctx`. This is said once. What it left is taken for its context window, and a
    # `Compactor` shrinks the history to it.
    "context_cut_by_server",
    # The history passed a mark, see `ContextWarning`.
    "context_mark",
    # `serve` without a store: the new state is longer than `ServeLimits.state_bytes`. A client that cannot
    # keep it holds the state from before.
    "state_too_large",
    # An emergency cut had nothing else to drop. Pinned messages went, the oldest first. The message names
    # the turn of each one.
    "pinned_dropped",
    # The provider, or a limit of the state, refused the history. Old turns were dropped.
    "emergency_cut",
]


class TurnWarning(Value, frozen=True):
    """Something a caller should know although the turn went on. `message` holds no content of messages."""

    code: WarningCode
    message: str
