"""The interface of a front end: one protocol between a page and a conversation, as pure functions.

Owns: `Ask`, the shapes `FrontEnd` and `FrontStream`, and errors as facts for clients: a status, a class, a
sentence, and whether to try again. Must never know: HTTP, a store, or who runs a turn.

The sentences about errors are for the users of your page, and no word of a message or an exception is in
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from ..base.values import ByShape, Value, field
from ..history.turns import History
from ..types import errors
from ..types.answers import Answers, Approve, Deny, PendingCall, ToolReturn
from ..types.errors import GoAIToolsError
from ..types.events import Event
from ..types.messages import Part
from .reply_pieces import Piece

__all__ = [
    "Ask",
    "AskError",
    "CarryingFrontEnd",
    "FrontEnd",
    "FrontStream",
    "Problem",
    "ProblemError",
    "Shown",
    "SnapshotFrontEnd",
    "problem_of",
]

_MAY_ANSWER: Final[Mapping[str, tuple[type, ...]]] = {
    "approval": (Approve, Deny),
    "external": (ToolReturn, Deny),
    "in_doubt": (),
}
"""The answers that a client may give, by the reason for which a call waits. A client does not know the
outcome of a call that ran on the server."""


class AskError(GoAIToolsError, ValueError):
    """The client's request cannot be read. The text says why, and quotes nothing of it."""


class Ask(Value, frozen=True, kw_only=True):
    """A client's request. From the client's transcript it has only the last message of the user and the
    answers to calls.

    Attributes:
        conversation: The client's name of the conversation; "" without a name. It is not a key: your program
            decides who owns it.
        said: The user's message, in parts; empty if the client only answers calls.
        turn_id: The client's id of the message. It makes a delivery that comes twice one turn.
        answers: Answers by call id, as the client claims them; see `answers_to`.
        edit: The id of the user's message that this one replaces. "" for the message with the id `turn_id`,
            if there is one. None: a new message.
        again: The id of the reply that is to be written again, or `turn_id` for the reply to the message of
            this id; "" for the newest one. None: a new message. `turn_id` is then the id of this request,
            or with `edit` the id of the message: a client without ids of requests, so that each is new.
        context: Facts for the model that are not stored.
        metadata: Names and values to keep with the turn.
        state: The state that the client carries, as `state_to_text` writes it; None without one. Only
            front ends that were made with `CarryingFrontEnd.carrying` read it.
    """

    _unshown = frozenset({"said", "answers", "context", "metadata", "state"})

    conversation: str = ""
    said: tuple[Part, ...] = ()
    turn_id: str | None = None
    answers: Answers = field(default_factory=dict)
    edit: str | None = None
    again: str | None = None
    context: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None

    def answers_to(self, pending: Sequence[PendingCall]) -> Answers:
        """Give the answers to calls that wait, and drop all others.

        A call that waits for an approval takes `Approve` and `Deny`. An external call takes `ToolReturn` and
        `Deny`. A call with an outcome in doubt takes no answer of a client.
        """
        wanted = {call.id: _MAY_ANSWER[call.reason] for call in pending}
        return {id: one for id, one in self.answers.items() if isinstance(one, wanted.get(id, ()))}


class FrontStream(Protocol):
    """Writes one turn as server-sent events. Each element of the lists is one event, ready to be sent."""

    def feed(self, event: Event) -> list[bytes]:
        """Write an event of the turn for the client. `TurnCompleted` ends the stream."""
        ...

    def fail(self, error: BaseException) -> list[bytes]:
        """End the stream with an error: its class and a hint, without content."""
        ...

    def stop(self) -> list[bytes]:
        """End the stream of a turn that was cancelled."""
        ...


class FrontEnd(Protocol):
    """A protocol that clients speak. It holds no state, so one object serves all conversations.

    Attributes:
        name: Its name in routes and logs.
        headers: HTTP headers of a stream.
    """

    name: str
    headers: Mapping[str, str]

    def read(self, body: bytes) -> Ask:
        """Read a request's body. Raises `AskError` for a body that is not of this protocol."""
        ...

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        """Begin a stream.

        Args:
            before: The pieces of the turn so far, for a client that has not seen them.
            goes_on: True if the client holds the beginning of this reply, such as after an approval.
        """
        ...

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        """Write a history as the messages of this protocol, as JSON-able values."""
        ...


@runtime_checkable
class CarryingFrontEnd(FrontEnd, Protocol, metaclass=ByShape):
    """A front end for a client that can carry the state, if no server keeps it."""

    def carrying(self) -> FrontEnd:
        """Give the front end that reads the state of a request, and ends its streams with the new one.

        Its streams write the state of a `TurnCompleted`, and of an error that has one. Use it only with a
        codec that has a key: otherwise the client can read and change the state.
        """
        ...


class Shown(Value, frozen=True, kw_only=True):
    """A stored conversation, for a client that is to show it.

    Attributes:
        history: The conversation.
        conversation_id: As in `FrontEnd.history`.
        pending: As in `FrontEnd.history`.
    """

    _unshown = frozenset({"history"})

    history: History
    conversation_id: str
    pending: tuple[PendingCall, ...] = ()


@runtime_checkable
class SnapshotFrontEnd(FrontEnd, Protocol, metaclass=ByShape):
    """A front end with streams that can begin with the whole conversation, such as `AGUI`.

    A client of it that says nothing and answers no call asks for the conversation as it stands.
    """

    def answering(self, ask: Ask, shown: Shown | None) -> FrontEnd:
        """Give the front end that answers one request.

        Args:
            ask: The request.
            shown: The conversation with which its streams begin. None for a new message: its client holds
                the earlier messages.
        """
        ...


# ------------------------------------------------------------------------------------ errors for clients


class Problem(Value, frozen=True, kw_only=True):
    """An error as a client may see it.

    Attributes:
        code: The class of the error, such as "RateLimitError"; "InternalError" for one of no known class.
        status: The HTTP status.
        title: One sentence for people, without content.
        retryable: True if the same request may succeed later.
        retry_after: Seconds to wait, where that is known.
        detail: The fault of the request; "" for any other error.
    """

    code: str
    status: int
    title: str
    retryable: bool = False
    retry_after: float | None = None
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the members of a problem document of RFC 9457."""
        facts: dict[str, Any] = {
            "type": f"urn:goaitools:{self.code}",
            "title": self.title,
            "status": self.status,
            "retryable": self.retryable,
        }
        if self.retry_after is not None:
            facts["retry_after"] = self.retry_after
        if self.detail:
            facts["detail"] = self.detail
        return facts


class ProblemError(errors.GoAIToolsError):
    """An error that another process has described for clients: `problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"another process met {problem.code}")
        self.problem = problem
        self.retryable = problem.retryable
        self.retry_after = problem.retry_after


_BUSY = "The service is busy. Try again in a moment."
_AWAY = "The service is not available."
_LONG = "That is too long."
_UNREADABLE = "This conversation cannot be opened."
_ELSEWHERE = "This conversation is being worked on. Try again in a moment."

_TABLE: tuple[tuple[type[BaseException], int, str], ...] = (
    (AskError, 400, "The request cannot be read."),
    (errors.RateLimitError, 429, _BUSY),
    (errors.ProviderUnavailableError, 503, _BUSY),
    (errors.StreamInterruptedError, 503, "The reply broke off. Try again."),
    (errors.ProviderProtocolError, 502, _BUSY),
    (errors.DeadlineExceededError, 504, "The reply took too long. Try again."),
    (errors.AuthenticationError, 502, _AWAY),
    (errors.ProviderRejectedError, 422, "The model does not take that."),
    (errors.ContextTooLongError, 413, _LONG),
    (errors.LimitExceededError, 422, "That took too many steps."),
    (errors.OutputError, 502, "I could not work that out."),
    (errors.BudgetExceededError, 402, "This conversation has reached its limit."),
    (errors.StateSizeError, 413, _LONG),
    (errors.TurnStoppedError, 409, "The reply was stopped."),
    (errors.ToolFailedError, 500, "A tool failed."),
    (errors.CheckpointError, 503, _BUSY),
    (errors.StoreCommitError, 503, "The reply could not be saved. Try again."),
    (errors.ToolPendingError, 409, "A tool call waits for an answer."),
    (errors.TurnConflictError, 409, "Another message has this id."),
    (errors.EditError, 409, "That message cannot be replaced any more."),
    (errors.NothingToResumeError, 409, "There is nothing to go on with."),
    (errors.TurnInProgressError, 409, _ELSEWHERE),
    (errors.LeaseHeldError, 409, _ELSEWHERE),
    (errors.StateConflictError, 409, _ELSEWHERE),
    (errors.StoreError, 503, _BUSY),
    (errors.StateTooLargeError, 413, _LONG),
    (errors.StateProviderError, 500, _AWAY),
    (errors.StatePartMissingError, 500, _AWAY),
    (errors.StateError, 500, _UNREADABLE),
    (errors.CompactionError, 503, _BUSY),
)
"""The first row with a class of the error counts. So a subclass stands before its base."""


def problem_of(error: BaseException) -> Problem:
    """Describe an error for a client. An error that is not of this package is an internal one."""
    if isinstance(error, ProblemError):
        return error.problem
    for kind, status, title in _TABLE:
        if isinstance(error, kind):
            return Problem(
                code=kind.__name__,
                status=status,
                title=title,
                retryable=bool(getattr(error, "retryable", False)),
                retry_after=getattr(error, "retry_after", None),
                detail=str(error) if isinstance(error, AskError) else "",
            )
    return Problem(code="InternalError", status=500, title="Something went wrong.")
