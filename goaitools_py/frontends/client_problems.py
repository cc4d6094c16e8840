"""Errors as facts for clients: a status, a class, a sentence, and whether to try again.

Owns: the table of errors. Must never know: how a front end or a server writes them.
The sentences are for the users of your page, and no word of a message or an exception is in them.
"""

from __future__ import annotations

from typing import Any

from ..base.values import Value
from ..types import errors
from .front_end import AskError

__all__ = ["Problem", "ProblemError", "problem_of"]


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
