"""What a running turn tells its listeners.

Owns: the event values. Must never know: who listens, or how the turn makes them.
`to_dict()` gives JSON-able facts for logs and sockets; it never contains a state blob.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from .messages import Usage

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


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events of a turn."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-able values, with its class name as "type" and never a state."""
        data: dict[str, Any] = {"type": type(self).__name__}
        for item in fields(self):
            if item.name in _HIDDEN:
                continue
            value = getattr(self, item.name)
            if isinstance(value, BaseException):
                value = {"error": type(value).__name__, "message": str(value)}
            elif is_dataclass(value) and not isinstance(value, type):
                value = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in _HIDDEN}
            data[item.name] = value
        return data


@dataclass(frozen=True, slots=True)
class TurnStarted(Event):
    """The turn has its input and is about to ask the model."""

    conversation_id: str


@dataclass(frozen=True, slots=True)
class ModelRequested(Event):
    """A request is about to be sent. `bytes_sent` is the size of its body."""

    iteration: int
    bytes_sent: int


@dataclass(frozen=True, slots=True)
class TextDelta(Event):
    """A piece of the visible reply."""

    text: str = field(repr=False)
    iteration: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta(Event):
    """A piece of the model's reasoning, where the provider shows it."""

    text: str = field(repr=False)
    iteration: int


@dataclass(frozen=True, slots=True)
class ModelReplied(Event):
    """A complete reply arrived. `message_count` is the number of messages in the conversation now."""

    usage: Usage
    message_count: int


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """A tool is about to run."""

    call_id: str
    name: str
    iteration: int


@dataclass(frozen=True, slots=True)
class ToolFinished(Event):
    """A tool call has its result."""

    call_id: str
    name: str
    iteration: int
    flag: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckpointReady(Event):
    """`blob` is a complete state from which `resume` can finish this turn."""

    blob: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """The history was compacted."""

    report: CompactionReport


@dataclass(frozen=True, slots=True)
class ContextWarning(Event):
    """The history approaches, or has reached, the model's context window (tokens)."""

    level: Literal["approaching", "at_limit"]
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class StateDiscarded(Event):
    """The given state could not be read and the turn started afresh; `error.blob` holds the bytes."""

    error: StateError


@dataclass(frozen=True, slots=True)
class TurnCompleted(Event):
    """The turn is over; `result` is what the call returns."""

    result: ChatResult = field(repr=False)
