"""What a turn, and what is done with a conversation beside its turns, tells its listeners.

Owns: the event values. Must never know: who listens, or how they are made.
`to_dict()` gives JSON-able facts for logs and sockets. It never contains a state blob, and what somebody said
only in the two deltas, which are nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .messages import Usage
from .values import Value

if TYPE_CHECKING:
    from .errors import StateError
    from .result import ChatResult, CompactionReport

__all__ = [
    "Appended",
    "CheckpointReady",
    "Compacted",
    "ContextWarning",
    "Event",
    "ModelReplied",
    "ModelRequested",
    "ReasoningDelta",
    "StateDiscarded",
    "StateSaved",
    "TextDelta",
    "ToolFinished",
    "ToolStarted",
    "TurnCompleted",
    "TurnStarted",
]

_HIDDEN = frozenset({"state", "blob", "result"})


class Event(Value, frozen=True, kw_only=True):
    """Base of all events.

    Attributes:
        conversation_id: The id of the conversation, as in `StateInfo.conversation_id`.
        turn_ref: Names the turn in logs: the conversation's id and the turn's number, the same text as
            `ToolContext.turn_id`. It stays the same when the turn is resumed, in another process too, and
            across cuts; no later turn of the conversation gets it, also after a rewind. Two turns that begin
            from the same blob have the same one. Of what happens between two turns it is that of the turn
            before. "" if it is not known: the turn of a `duplicate` result that has left the history.
    """

    conversation_id: str = ""
    turn_ref: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-able values, with its class name as "type" and never a state."""
        return {"type": type(self).__name__, **_facts(self)}


def _facts(value: Value) -> dict[str, Any]:
    """The fields of a value as JSON-able values, of the values in it too, without what is hidden."""
    return {name: _fact(getattr(value, name)) for name in value.__struct_fields__ if name not in _HIDDEN}


def _fact(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"error": type(value).__name__}  # whose text may say anything
    return _facts(value) if isinstance(value, Value) else value


class TurnStarted(Event, frozen=True):
    """The turn has its input and is about to ask the model."""

    conversation_id: str


class ModelRequested(Event, frozen=True):
    """A request is about to be sent. `bytes_sent` is the size of its body."""

    iteration: int
    bytes_sent: int


class TextDelta(Event, frozen=True, gc=False):
    """A piece of the visible reply."""

    unshown = frozenset({"text"})

    text: str
    iteration: int


class ReasoningDelta(Event, frozen=True, gc=False):
    """A piece of the model's reasoning, where the provider shows it."""

    unshown = frozenset({"text"})

    text: str
    iteration: int


class ModelReplied(Event, frozen=True):
    """A complete reply arrived.

    Attributes:
        usage: What this call consumed.
        message_count: Messages in the conversation now.
        iteration: The model call of this turn, counted from 1, and anew after a `resume`.
        model: The model that answered, as the provider names it.
        seconds: From the request to the end of the reply.
        finish_reason: The provider's own word.
        request_id: The provider's id of this call; "" if it gave none.
    """

    usage: Usage
    message_count: int
    iteration: int = 0
    model: str = ""
    seconds: float = 0.0
    finish_reason: str = ""
    request_id: str = ""


class ToolStarted(Event, frozen=True):
    """A tool is about to run."""

    call_id: str
    name: str
    iteration: int


class ToolFinished(Event, frozen=True):
    """A tool call has its result. `flag` is that of `ToolResult`, `seconds` how long the call took."""

    call_id: str
    name: str
    iteration: int
    flag: str
    seconds: float


class CheckpointReady(Event, frozen=True):
    """`blob` is a complete state from which `resume` can finish this turn."""

    unshown = frozenset({"blob"})

    blob: bytes


class Compacted(Event, frozen=True):
    """The history was compacted."""

    report: CompactionReport


Filled = Literal["tokens", "blob_bytes", "decoded_bytes", "entries"]
"""What a history fills: the model's context window, or a limit of the state; see `BlobLimits`."""


class ContextWarning(Event, frozen=True):
    """The history approaches, or has reached, the model's context window (tokens), or a limit of its state.

    `of`: which; `used` and `limit` are in its units.
    """

    level: Literal["approaching", "at_limit"]
    used: int
    limit: int
    of: Filled = "tokens"


class StateDiscarded(Event, frozen=True):
    """The given state was not used, because it is damaged or of another provider API, and the turn started
    afresh; `error.blob` holds the bytes."""

    error: StateError

    def to_dict(self) -> dict[str, Any]:
        """As `Event.to_dict`, with the words of the error, which is one of ours."""
        facts = super().to_dict()
        facts["error"]["message"] = str(self.error)
        return facts


class TurnCompleted(Event, frozen=True):
    """The turn is over; `result` is what the call returns."""

    unshown = frozenset({"result"})

    result: ChatResult

    def to_dict(self) -> dict[str, Any]:
        """As `Event.to_dict`, with what the result says of the turn: no text, no state.

        "cost_usd" is a float, None if the cost is unknown; "warnings" are their codes.
        """
        result = self.result
        cost = result.cost_usd
        return {
            **super().to_dict(),
            "status": result.status,
            "finish_reason": result.finish_reason,
            "usage": _facts(result.usage),
            "cost_usd": None if cost is None else float(cost),
            "iterations": result.iterations,
            "tool_calls": len(result.tool_log),
            "model": result.model,
            "request_ids": list(result.request_ids),
            "context_used": result.context_used,
            "warnings": [warning.code for warning in result.warnings],
            "duplicate": result.duplicate,
        }


class Appended(Event, frozen=True):
    """Messages or events were added to a conversation outside of a turn. `messages`: how many were given."""

    messages: int


class StateSaved(Event, frozen=True):
    """A kept conversation was saved: by a turn, an append, a compaction, a commit, a fork or a rewind.

    `version` is what the store calls it now, `blob_bytes` its size.
    """

    version: int | None
    blob_bytes: int
