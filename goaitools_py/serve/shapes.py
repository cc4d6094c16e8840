"""The JSON that clients send and get, as types for the OpenAPI document.

Owns: these shapes. Must never know: HTTP, a turn, or how they are read and written: the front end of plain
JSON does that, and the tests compare both.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ..frontends.bodies import MAX_ID_CHARACTERS
from .history_view import TurnStatus

__all__ = ["CARRIED", "SHAPES"]

NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]
Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARACTERS)]


class _Sent(Struct, forbid_unknown_fields=True):
    """Base of the requests: an unknown member is an error."""


# ------------------------------------------------------------------------------------------ requests


class TextPart(_Sent, tag="text"):
    """Text that the user says."""

    text: NonEmpty


class FilePart(_Sent, tag="file"):
    """A file, as a data URL."""

    url: Annotated[str, Meta(pattern="^data:")]
    media_type: Annotated[Id, Meta(examples=["image/png"])]
    name: Id | UnsetType = UNSET


class TextMessage(_Sent):
    """A message of the user. A turn needs `turn_id` or the header Idempotency-Key. `context` and `metadata`
    are for trusted callers. With `edit`, the id of a message of the user, the new one replaces that message
    and everything after it. With `again`, the id of a reply or "" for the newest one, that reply is written
    again, and the message is the one it answers."""

    text: NonEmpty
    turn_id: Id | UnsetType = UNSET
    edit: Id | UnsetType | None = UNSET
    again: Annotated[str, Meta(max_length=MAX_ID_CHARACTERS)] | UnsetType | None = UNSET
    context: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET


class PartsMessage(_Sent):
    """A message of the user with files. The other members are those of TextMessage."""

    parts: Annotated[list[TextPart | FilePart], Meta(min_length=1)]
    turn_id: Id | UnsetType = UNSET
    edit: Id | UnsetType | None = UNSET
    again: Annotated[str, Meta(max_length=MAX_ID_CHARACTERS)] | UnsetType | None = UNSET
    context: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET


class ApproveAnswer(_Sent):
    """The call may run, with other arguments if there are any."""

    approve: Literal[True]
    arguments: dict[str, Any] | UnsetType | None = UNSET


class DenyAnswer(_Sent):
    """The call may not run. The model reads the reason."""

    deny: str


class ReturnAnswer(_Sent):
    """The result of an external call: any JSON value."""

    value: Any = field(name="return")
    is_error: bool | UnsetType = UNSET


_AN_ANSWER = {
    "anyOf": [
        {"$ref": f"#/components/schemas/{name}"} for name in ("ApproveAnswer", "DenyAnswer", "ReturnAnswer")
    ]
}


class Answers(_Sent):
    """Answers by call id."""

    answers: Annotated[
        dict[str, Any], Meta(min_length=1, extra_json_schema={"additionalProperties": _AN_ANSWER})
    ]


class NewEvent(_Sent):
    """Something that happened. The model reads it with the next message."""

    text: NonEmpty
    topic: NonEmpty | UnsetType | None = UNSET
    id: NonEmpty | UnsetType | None = UNSET


# ----------------------------------------------------------------------------------------- responses


class WaitingCall(Struct):
    """A call that waits for an answer. `arguments`: JSON text."""

    id: str
    name: str
    arguments: str
    reason: Literal["approval", "external", "in_doubt"]


class TokenUsage(Struct):
    """Tokens. Cached and written ones are a part of the input, reasoning is a part of the output."""

    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    requests: int


class ToolAction(Struct):
    """Something that a tool has done, in words for people."""

    text: str
    data: dict[str, Any]


class TurnResult(Struct):
    """The result of a turn. `cost_usd`: null if it is not known, as for a reply from the store."""

    turn: str
    text: str
    status: Literal["complete", "awaiting_tools", "truncated", "refused", "limited"]
    finish_reason: str
    pending: list[WaitingCall]
    usage: TokenUsage
    cost_usd: float | None
    actions: list[ToolAction]
    warnings: list[str]
    duplicate: bool


class StoppedTurn(Struct):
    """A turn that was stopped while the client waited for its result."""

    turn: str
    status: Literal["stopped"]


class Rename(_Sent):
    """A new title; "" takes it away."""

    title: Id | Literal[""]


class GoOn(_Sent):
    """No message: the server goes on with an unfinished turn, or with messages that wait."""


class Stopped(Struct):
    """Whether there was a turn to stop: one that ran, or that a process had left."""

    stopped: bool


class ConversationFacts(Struct):
    """One conversation.

    `turn_status` is "running", "stopped", "waiting" or "none"; "waiting" means that a turn or messages wait,
    and no process runs them.
    """

    title: str
    status: str
    turn_status: TurnStatus
    turns: int
    updated_at: datetime
    cost_usd: float | None
    pending: list[WaitingCall]


class ConversationRow(Struct):
    """A conversation in a list."""

    name: str
    updated_at: datetime
    title: str
    status: str
    turns: int | None
    cost_usd: float | None


class ConversationList(Struct):
    """Conversations, and where the next ones begin; null at the end. `ordered`: the one that was saved last
    comes first; false if the store cannot order them."""

    conversations: list[ConversationRow]
    cursor: str | None
    ordered: bool


class SaidPiece(Struct, tag="text"):
    """Text of a reply."""

    text: str


class ReasonedPiece(Struct, tag="reasoning"):
    """Reasoning of the model."""

    text: str


class CalledPiece(Struct, tag="tool_call"):
    """The model calls a tool. `arguments`: JSON text."""

    id: str
    name: str
    arguments: str


class ReturnedPiece(Struct, tag="tool_result"):
    """A call has its result. `flag`: "ok", "error", "denied" and others."""

    id: str
    flag: str
    output: str


class WaitsPiece(Struct, tag="pending"):
    """A call waits for an answer."""

    id: str
    reason: Literal["approval", "external", "in_doubt"]


class File(Struct):
    """A file in a message."""

    media_type: str
    url: str
    name: str | UnsetType = UNSET


class ShownAction(Struct):
    """Something that a tool did in a turn, as it logged it."""

    text: str
    data: dict[str, Any]


class ShownMessage(Struct):
    """A message of a history. A reply has pieces, and the actions of its turn where the state keeps them.
    Other messages may have files and a speaker."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    pieces: list[SaidPiece | ReasonedPiece | CalledPiece | ReturnedPiece | WaitsPiece] | UnsetType = UNSET
    files: list[File] | UnsetType = UNSET
    speaker: str | UnsetType = UNSET
    actions: list[ShownAction] | UnsetType = UNSET


class ProblemDocument(Struct):
    """A problem document of RFC 9457. `retry_after`: seconds. `state`: where the client carries it."""

    type: Annotated[str, Meta(pattern="^urn:goaitools:")]
    title: str
    status: int
    retryable: bool
    retry_after: float | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    state: str | UnsetType = UNSET


class Done(Struct):
    """The events of one conversation were appended."""

    status: Literal[204]


# ------------------------------------------------------------------- where the client carries the state


class CarriedText(TextMessage):
    """A message of the user, with the state from before; none begins a conversation."""

    state: str | UnsetType | None = UNSET
    conversation: Id | UnsetType = UNSET


class CarriedParts(PartsMessage):
    """A message of the user with files, and the state from before."""

    state: str | UnsetType | None = UNSET
    conversation: Id | UnsetType = UNSET


class CarriedAnswers(Answers):
    """Answers by call id, with the state in which the calls wait."""

    state: str | UnsetType | None = UNSET
    conversation: Id | UnsetType = UNSET


class CarriedEvents(_Sent):
    """Events for a state."""

    events: Annotated[list[NewEvent], Meta(min_length=1)]
    state: str | UnsetType | None = UNSET
    conversation: str | UnsetType | None = UNSET


class CarriedQuery(_Sent):
    """A state to read."""

    state: str | UnsetType | None = UNSET
    conversation: str | UnsetType | None = UNSET


class CarriedResult(TurnResult):
    """The result of a turn, and the new state."""

    state: str


class CarriedState(Struct):
    """The new state."""

    state: str


class CarriedMessages(Struct):
    """The history, oldest message first, and the calls that wait."""

    messages: list[ShownMessage]
    pending: list[WaitingCall]


CARRIED: tuple[type[Struct], ...] = (
    CarriedText, CarriedParts, ApproveAnswer, DenyAnswer, ReturnAnswer, CarriedAnswers, CarriedEvents,
    CarriedQuery, CarriedResult, CarriedState, CarriedMessages, ProblemDocument,
)  # fmt: skip
"""The types of a server without a store."""

SHAPES: tuple[type[Struct], ...] = (
    TextMessage, PartsMessage, ApproveAnswer, DenyAnswer, ReturnAnswer, Answers, NewEvent, GoOn,
    Rename, TurnResult, StoppedTurn, Stopped, ConversationFacts, ConversationList, ShownMessage,
    ProblemDocument, Done,
)  # fmt: skip
"""The types that the document names. Those inside of them come along."""
