"""A turn step by step: one model call, or one round of tools, at a time.

Owns: the outcome of a step. Must never know: how a turn runs.
"""

from __future__ import annotations

from typing import Literal

from ..base.values import Value
from ..types.answers import PendingCall
from ..types.errors import TurnError
from ..types.result import ChatResult

__all__ = ["Step", "StepStatus", "failed_step", "step_of"]

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
