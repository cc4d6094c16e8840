"""What a running turn tells its listeners.

Owns: the event values. Must never know: who listens, or how the turn makes them.
`to_dict()` gives JSON-able facts for logs and sockets; it never contains a state blob.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .messages import Usage
from .values import Value

if TYPE_CHECKING:
    from .errors import StateError
    from .result import ChatResult, CompactionReport

__all__ = [
    "CheckpointReady",
    "Compacted",
    "ContextWarning",
    "Event",
    "ModelReplied",
    "ModelRequested",
    "ReasoningDelta",
    "StateDiscarded",
    "TextDelta",
    "ToolFinished",
    "ToolStarted",
    "TurnCompleted",
    "TurnStarted",
]

_HIDDEN = frozenset({"state", "blob", "result"})


class Event(Value, frozen=True):
    """Base of all events of a turn."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-able values, with its class name as "type" and never a state."""
        return {"type": type(self).__name__, **_facts(self)}


def _facts(value: Value) -> dict[str, Any]:
    """The fields of a value as JSON-able values, of the values in it too, without what is hidden."""
    return {name: _fact(getattr(value, name)) for name in value.__struct_fields__ if name not in _HIDDEN}


def _fact(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
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
    """A complete reply arrived. `message_count` is the number of messages in the conversation now."""

    usage: Usage
    message_count: int


class ToolStarted(Event, frozen=True):
    """A tool is about to run."""

    call_id: str
    name: str
    iteration: int


class ToolFinished(Event, frozen=True):
    """A tool call has its result."""

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
    """The given state could not be read and the turn started afresh; `error.blob` holds the bytes."""

    error: StateError


class TurnCompleted(Event, frozen=True):
    """The turn is over; `result` is what the call returns."""

    unshown = frozenset({"result"})

    result: ChatResult
