"""The interface of a front end: one protocol between a page and a conversation, as pure functions.

Owns: `Ask`, and the shapes `FrontEnd` and `FrontStream`. Must never know: HTTP, a store, or who runs a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from ..base.values import Value, field
from ..history.turns import History
from ..types.answers import Answers, Approve, Deny, PendingCall, ToolReturn
from ..types.errors import GoAIToolsError
from ..types.events import Event
from ..types.messages import Part
from .reply_pieces import Piece

__all__ = ["Ask", "AskError", "CarryingFrontEnd", "FrontEnd", "FrontStream", "Shown", "SnapshotFrontEnd"]

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
        again: The id of the reply that is to be written again; "" for the newest one. None: a new message.
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
class CarryingFrontEnd(FrontEnd, Protocol):
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
class SnapshotFrontEnd(FrontEnd, Protocol):
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
