"""The steps that a chat asks its surroundings to do, and the two loops that carry them out.

Owns: the steps as values, and the loops. Must never know: a terminal, or which conversation is current.

A flow of `session` is a generator. It yields steps and is resumed with their answers; an error is thrown in
where its step was yielded. So line mode and the app run the same flows, one in plain code and one in an event
loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ..stores import StoredKey
    from ..types.answers import Answer, PendingCall

__all__ = [
    "CallMethod",
    "Choose",
    "Clear",
    "Confirm",
    "Flow",
    "Keys",
    "Open",
    "Quit",
    "RunTurn",
    "Say",
    "ShowChanged",
    "ShowWaiting",
    "Step",
    "Write",
    "drive",
    "drive_async",
]

T = TypeVar("T")


class Say(NamedTuple):
    """Show a text. A "report" answers a command; a "note" tells of an event."""

    text: str
    kind: Literal["note", "report"] = "note"


class CallMethod(NamedTuple):
    """Call a method of the current conversation; the answer is its return value."""

    method: str
    arguments: tuple[Any, ...] = ()


class RunTurn(NamedTuple):
    """Run a turn of a text, or with None the unfinished turn, and show it. The answer is its result.

    The answer is None if the user stopped it.
    """

    said: str | None = None
    answers: Mapping[str, Answer] | None = None


class ShowWaiting(NamedTuple):
    """Say which calls wait for an answer from the user or from outside."""

    calls: Sequence[PendingCall]


class Confirm(NamedTuple):
    """Ask a question; the answer is True or False."""

    question: str


class Keys(NamedTuple):
    """The conversations of the store, as a list of `StoredKey`."""


class Choose(NamedTuple):
    """Show the conversations and let the user choose; the answer is a key, or None."""

    found: tuple[StoredKey, ...]
    at_hand: str


class Open(NamedTuple):
    """Make the conversation under this key the current one. A StateError: the current one stays."""

    key: str


class ShowChanged(NamedTuple):
    """The stored conversation has changed since it was shown."""


class Clear(NamedTuple):
    """Clear the screen."""


class Quit(NamedTuple):
    """End the program after this flow."""


class Write(NamedTuple):
    """Write a new file. An OSError: it is there already, or cannot be written."""

    path: str
    data: bytes


Step: TypeAlias = (
    Say
    | CallMethod
    | RunTurn
    | Confirm
    | Keys
    | Choose
    | Open
    | ShowChanged
    | Clear
    | Quit
    | ShowWaiting
    | Write
)
Flow: TypeAlias = Generator[Step, Any, T]


def drive(flow: Flow[T], do: Callable[[Step], Any]) -> T:
    """Run a flow; `do` carries out a step and returns its answer."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = error = None
        try:
            answer = do(step)
        except Exception as raised:
            error = raised


async def drive_async(flow: Flow[T], do: Callable[[Step], Awaitable[Any]]) -> T:
    """As `drive`, with a `do` that is awaited."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = error = None
        try:
            answer = await do(step)
        except Exception as raised:
            error = raised
