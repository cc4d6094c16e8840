"""The events of a turn, and of other changes of a conversation.

Owns: the event values. Must never know: who listens, or how they are made.
`to_dict()` gives JSON-able facts for logs and sockets. It never contains a state blob. Message text is only
in deltas of text, which consist of it, and in events for a caller that asks for content.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ..base.values import Value
from .errors import StateError
from .messages import ToolCall, Usage
from .result import ChatResult, CompactionReport

__all__ = [
    "Appended",
    "CheckpointReady",
    "Compacted",
    "ContextWarning",
    "Event",
    "FellBack",
    "ModelReplied",
    "ModelRequested",
    "OutputDelta",
    "ReasoningDelta",
    "Retried",
    "StateConverted",
    "StateDiscarded",
    "StateSaved",
    "TextDelta",
    "ToolFinished",
    "ToolPending",
    "ToolProgress",
    "ToolStarted",
    "TurnCompleted",
    "TurnStarted",
]

_HIDDEN = frozenset({"state", "blob", "result", "body"})


class Event(Value, frozen=True, kw_only=True):
    """Base of all events.

    Attributes:
        conversation_id: The id of the conversation, as in `StateInfo.conversation_id`.
        turn_ref: Names the turn in logs: the conversation's id and the turn's number. It stays the same when
            the turn is resumed, also in another process, and across cuts. No later turn of the conversation
            gets it again, also not after a rewind. Two turns that begin from the same blob have the same one.
            An event between two turns has the reference of the turn before. The event of a `duplicate` result
            has the reference of the first delivery, or "" if that turn has left the history.
            `ToolContext.turn_id` is the same text, unless the turn was given the option `turn_id`.
    """

    conversation_id: str = ""
    turn_ref: str = ""

    _content: ClassVar[frozenset[str]] = frozenset()
    """Fields with text of a model or a tool. `to_dict` has them only if content is asked for."""

    def to_dict(self, *, content: bool = False) -> dict[str, Any]:
        """The event as JSON-able values, with its class name as "type" and never a state.

        Args:
            content: True for a page that shows the conversation: also the arguments and results of tool
                calls, and the text of a finished turn. False for logs.
        """
        hidden = _HIDDEN if content else _HIDDEN | self._content
        return {"type": type(self).__name__, **_facts(self, hidden)}


def _facts(value: Value, hidden: frozenset[str] = _HIDDEN) -> dict[str, Any]:
    """The fields of a value, and of the values in it, as JSON-able values, without the hidden fields."""
    return {name: _fact(getattr(value, name)) for name in value.__struct_fields__ if name not in hidden}


def _fact(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"error": type(value).__name__}  # not its text, which may contain anything
    if isinstance(value, tuple):
        return [_fact(item) for item in value]
    return _facts(value) if isinstance(value, Value) else value


class TurnStarted(Event, frozen=True):
    """The turn has its input and is about to ask the model."""

    conversation_id: str


class ModelRequested(Event, frozen=True):
    """A request to the model is about to be sent.

    Attributes:
        iteration: The number of the model call in its turn, from 1. The numbers go on after a `resume`, and
            in a turn of later messages of the same call.
        bytes_sent: The size of its body, in bytes.
        body: The body as it is sent: the whole history as the provider gets it. Never in `to_dict`.
    """

    _unshown = frozenset({"body"})

    iteration: int
    bytes_sent: int
    body: bytes = b""


class TextDelta(Event, frozen=True, gc=False):
    """A piece of the visible reply arrives.

    Attributes:
        text: The piece.
        iteration: As in `ModelRequested`.
    """

    _unshown = frozenset({"text"})

    text: str
    iteration: int


class ReasoningDelta(Event, frozen=True, gc=False):
    """A piece of the model's reasoning arrives, where the provider shows it.

    Attributes:
        text: The piece.
        iteration: As in `ModelRequested`.
    """

    _unshown = frozenset({"text"})

    text: str
    iteration: int


class OutputDelta(Event, frozen=True):
    """More of an answer with an `output_type` has come.

    Attributes:
        partial: The JSON values so far: dicts, lists, texts that may still grow. They are not checked, and
            are not an object of the type. In `to_dict` only with ``content=True``.
        iteration: As in `ModelRequested`.
    """

    _unshown = frozenset({"partial"})
    _content = _unshown

    partial: Any
    iteration: int


class ModelReplied(Event, frozen=True):
    """A complete reply arrived.

    Attributes:
        usage: The `Usage` of this call.
        message_count: Messages in the conversation now.
        iteration: As in `ModelRequested`.
        model: The provider's name of the model that answered.
        seconds: Seconds from the request to the end of the reply.
        finish_reason: As in `ChatResult`.
        request_id: The provider's id of this call; "" if the provider gave no id.
        tool_calls: Each `ToolCall` that the reply asks for, in its order. In `to_dict` only with
            ``content=True``.
        text: Its visible text. In `to_dict` only with ``content=True``.
        response_id: The provider's id of the reply itself; "" if the provider gave no id.
    """

    _unshown = frozenset({"text"})
    _content = frozenset({"tool_calls", "text"})

    usage: Usage
    message_count: int
    iteration: int = 1
    model: str = ""
    seconds: float = 0.0
    finish_reason: str = ""
    request_id: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    text: str = ""
    response_id: str = ""


class Retried(Event, frozen=True):
    """A request failed, and is sent again after a pause.

    Attributes:
        attempt: Which retry of this request comes next, counted from 1.
        pause: Seconds until then.
        reason: The kind of fault: "unavailable", "rate_limit", "interrupted" or another one.
        status_code: The HTTP status; None if there was no answer.
        request_id: The provider's id of the failed request; None if the provider gave no id.
    """

    attempt: int
    pause: float
    reason: str
    status_code: int | None = None
    request_id: str | None = None


class ToolStarted(Event, frozen=True):
    """A tool is about to run.

    Attributes:
        call_id: The id of the call.
        name: The tool.
        iteration: The model call that asked for it.
        arguments: The JSON text that the tool gets, from the model or from an approval. In `to_dict` only
            with ``content=True``.
    """

    _unshown = frozenset({"arguments"})
    _content = _unshown

    call_id: str
    name: str
    iteration: int
    arguments: str = ""


class ToolProgress(Event, frozen=True):
    """A running tool reports its progress with `ToolContext.report_progress`. If reports come faster than
    they are read, only the newest report of each call is sent.

    Attributes:
        call_id: The id of the call.
        name: The tool.
        iteration: The model call that asked for it.
        progress: How far the tool is, in a unit of the tool's own.
        total: The value of `progress` at the end; None if the tool does not know.
        message: The present activity of the tool, or "". In `to_dict` only with ``content=True``.
    """

    _unshown = frozenset({"message"})
    _content = _unshown

    call_id: str
    name: str
    iteration: int
    progress: float
    total: float | None = None
    message: str = ""


class ToolFinished(Event, frozen=True):
    """A tool call has its result.

    Attributes:
        call_id: The id of the call.
        name: The tool.
        iteration: The model call that asked for it.
        flag: The flag of the result, as in `ToolRecord`.
        seconds: Seconds that the call took.
        output: The text of the result, as the model reads it; media are not in it. In `to_dict` only with
            ``content=True``.
    """

    _unshown = frozenset({"output"})
    _content = _unshown

    call_id: str
    name: str
    iteration: int
    flag: str
    seconds: float
    output: str = ""


class ToolPending(Event, frozen=True):
    """A tool call waits for an answer from outside, and the turn ends with the status `"awaiting_tools"`.

    Attributes:
        call_id: The id of the call, for `resume`.
        name: The tool.
        iteration: The model call that asked for it.
        reason: "approval", "external" or "in_doubt", as in `PendingCall`.
        kind: "function", "custom" or "provider", as in `PendingCall`.
        arguments: The model's text, as in `PendingCall`. In `to_dict` only with ``content=True``.
    """

    _unshown = frozenset({"arguments"})
    _content = _unshown

    call_id: str
    name: str
    iteration: int
    reason: str
    kind: str = "function"
    arguments: str = ""


class CheckpointReady(Event, frozen=True):
    """A state of the running turn is ready to be saved: after each reply, and around each tool.

    Attributes:
        blob: A complete state, from which `resume` can finish this turn. Never in `to_dict`.
    """

    _unshown = frozenset({"blob"})

    blob: bytes


class Compacted(Event, frozen=True):
    """The history was compacted, in a turn or by `compact_state`.

    Attributes:
        report: The `CompactionReport` of the cut.
    """

    report: CompactionReport


Filled = Literal["tokens", "blob_bytes", "decoded_bytes", "entries"]
"""The limit that a history fills: the model's context window, or a limit of the state; see `BlobLimits`."""


class ContextWarning(Event, frozen=True):
    """The history has passed a mark of `context_marks`: of the model's context window, or of a limit of the
    state.

    Attributes:
        level: "approaching", or "at_limit".
        used: How much there is.
        limit: How much there may be.
        of: The unit of both, and the limit: "tokens" of the context window, or "blob_bytes", "decoded_bytes"
            or "entries" of the state, as in `BlobLimits`.
        message_count: Messages in the conversation now.
    """

    level: Literal["approaching", "at_limit"]
    used: int
    limit: int
    of: Filled = "tokens"
    message_count: int = 0


class StateDiscarded(Event, frozen=True):
    """The given state was not used, because it is damaged or of another provider API. The turn begins a fresh
    conversation.

    Attributes:
        error: The `StateError`. Its `blob` has the given bytes.
    """

    error: StateError

    def to_dict(self, *, content: bool = False) -> dict[str, Any]:
        """As `Event.to_dict`, with the text of the error, which is an error of this package."""
        facts = super().to_dict(content=content)
        facts["error"]["message"] = str(self.error)
        return facts


class StateConverted(Event, frozen=True):
    """The given state was of another provider API, and was converted.

    Attributes:
        found: The provider API that wrote it.
        to: The provider API of the turn.
        lost: The contents that the conversion dropped: each kind with its count; see `Conversion`.
    """

    found: str
    to: str
    lost: tuple[tuple[str, int], ...] = ()


class FellBack(Event, frozen=True):
    """A provider was down, and the turn goes on with the next one of the chat's `fallbacks`.

    The part of the reply that arrived before does not count: the next provider's reply begins anew.

    Attributes:
        failed: The provider API and the model that did not answer, such as "openai:MODEL".
        to: The provider API and the model that are asked now.
        reason: The class of the error.
        status_code: The HTTP status; None if there was no answer.
    """

    failed: str
    to: str
    reason: str
    status_code: int | None = None


class TurnCompleted(Event, frozen=True):
    """The turn is over, and did not fail.

    Attributes:
        result: The `ChatResult`, which the call returns. `to_dict` has facts of it instead.
        message_count: Messages in the conversation now; 0 if it is not known.
    """

    _unshown = frozenset({"result"})

    result: ChatResult
    message_count: int = 0

    def to_dict(self, *, content: bool = False) -> dict[str, Any]:
        """As `Event.to_dict`, with facts of the result: no state, and text only with `content`.

        "cost_usd" is a float, None if the cost is unknown; "warnings" are the codes of the warnings.
        """
        result = self.result
        cost = result.cost_usd
        return {
            **super().to_dict(content=content),
            **({"text": result.text} if content else {}),
            "status": result.status,
            "finish_reason": result.finish_reason,
            "usage": _facts(result.usage),
            "total_usage": _facts(result.total_usage),
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
    """Messages or events were added to a conversation outside of a turn.

    Attributes:
        messages: How many were given.
        message_count: Messages in the conversation now, without those that wait for the next turn.
        total_usage: The tokens of the conversation in its whole life.
    """

    messages: int
    message_count: int = 0
    total_usage: Usage = Usage()


class StateSaved(Event, frozen=True):
    """A kept conversation was saved: by a turn, an append, a compaction, a commit, a fork or a rewind.

    Attributes:
        version: The store's new version, or None.
        blob_bytes: The size of the state, with the parts of its history.
        written_bytes: Bytes that the save has sent of it: with ``parts="store"`` the head and the new parts.
        message_count: As in `Appended`.
        total_usage: As in `Appended`.
    """

    version: int | None
    blob_bytes: int
    written_bytes: int = 0
    message_count: int = 0
    total_usage: Usage = Usage()
