"""The common part of the handles of a turn, and the outcome of one step of a turn.

Owns: the state of a running turn, appended messages, and the value of a step. Must never know: the inside of
a turn, or its options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol

from ..base.values import Value
from ..turn.flow import Steps
from ..types.answers import PendingCall
from ..types.errors import TurnError
from ..types.messages import Message
from ..types.result import ChatResult

__all__ = ["Handle", "RunningTurn", "Step", "StepStatus", "checked_message", "failed_step", "step_of"]


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class RunningTurn(Protocol):
    """The work that a handle drives: a turn, or a turn of a kept conversation."""

    def snapshot(self) -> bytes: ...

    def append(self, *messages: Message) -> None: ...

    @property
    def event_ids(self) -> dict[str, str]: ...

    @property
    def taken_ids(self) -> tuple[str, ...]: ...

    @property
    def follows_turn(self) -> bool: ...


class Handle(Generic[T]):
    """The base of both turn handles: the state at this instant, and the result after the end."""

    _engine: RunningTurn
    _steps: Steps[ChatResult[T]]

    @property
    def state(self) -> bytes:
        """A complete blob of this instant; the chat's `resume` goes on from it. After the turn failed, it is
        the state of its error."""
        error = self._steps.error
        return error.state if isinstance(error, TurnError) else self._engine.snapshot()

    def append(self, *messages: Message) -> None:
        """Add messages to the running turn, from any thread; its next model call sees them.

        Raises:
            RuntimeError: The turn is over; use `append_to_state` on its state.
            StateTooLargeError: The messages that wait for the next model call are beyond the limits of the
                codec.
        """
        if self._steps.done:
            raise RuntimeError("the turn is over; use append_to_state on its state")
        self._engine.append(*(checked_message(message) for message in messages))

    def _finished(self) -> ChatResult[T]:
        steps = self._steps
        if steps.error is not None:
            raise steps.error
        if steps.result is None:
            raise RuntimeError("the turn was given up before its end; turn.state holds what there is")
        return steps.result


def checked_message(value: Any) -> Message:
    """The value, if it is a message; else TypeError."""
    if not isinstance(value, Message):
        advice = "; states.state_from_messages makes a state of a provider's messages"
        raise TypeError(
            f"messages must be made with user(), system(), assistant() or event(), not "
            f"{type(value).__name__}{advice if isinstance(value, dict) else ''}"
        )
    return value


StepStatus = Literal["in_progress", "waiting_for_tools", "complete", "failed"]


class Step(Value, frozen=True, kw_only=True):
    """The outcome of one step of a turn.

    Attributes:
        state: The new blob: save it, and give it to the next step.
        status: "in_progress": the next step asks the model; "waiting_for_tools": the next step runs the
            calls, or gives answers to the calls in `pending`; "complete": the turn is over; "failed": the
            step could not end, see `error`; the next step tries again.
        text: The text of the last reply so far.
        pending: Calls that wait for an answer from outside.
        result: The result of the step. Its usage counts this step alone. None if the step failed.
        error: Why the step failed.
    """

    _unshown = frozenset({"state", "text", "result", "error"})

    state: bytes
    status: StepStatus
    text: str = ""
    pending: tuple[PendingCall, ...] = ()
    result: ChatResult | None = None
    error: TurnError | None = None

    @property
    def is_over(self) -> bool:
        """True if no further step has to follow: the turn is complete, has failed, or waits for answers."""
        return self.status in ("complete", "failed") or bool(self.pending)


def step_of(result: ChatResult, has_calls: bool) -> Step:
    """The step that came to a result. `has_calls`: an unfinished turn has tools to run next."""
    status: StepStatus = "complete"
    if result.status == "awaiting_tools" or (result.status == "in_progress" and has_calls):
        status = "waiting_for_tools"
    elif result.status == "in_progress":
        status = "in_progress"
    return Step(state=result.state, status=status, text=result.text, pending=result.pending, result=result)


def failed_step(error: TurnError) -> Step:
    """The step that a turn's error ended."""
    return Step(state=error.state, status="failed", text=error.text, error=error)
