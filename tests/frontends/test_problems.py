"""The table of errors names each error that a client may meet, and says nothing of its text."""

from __future__ import annotations

import pytest

from goaitools_py.frontends import AskError, problem_of
from goaitools_py.types import errors
from goaitools_py.types.errors import GoAIToolsError

SECRET = "Harrogate-4711"
BASES = {"GoAIToolsError", "TurnError", "ToolError", "AbortTurn"}
"""Never raised by themselves at a caller."""


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - BASES))
def test_each_error_has_a_row(name: str) -> None:
    problem = problem_of(getattr(errors, name)(SECRET))

    assert problem.code != "InternalError"
    assert 400 <= problem.status < 600
    assert SECRET not in str(problem.to_dict())


def test_a_subclass_has_its_own_row() -> None:
    """The first row counts, so no base may stand before what is made of it."""
    for name in set(errors.__all__) - BASES:
        kind = getattr(errors, name)
        own = problem_of(kind(SECRET)).code
        assert issubclass(kind, getattr(errors, own))


def test_what_an_error_says_of_a_retry_is_passed_on() -> None:
    error = errors.RateLimitError(SECRET, retryable=True, retry_after=2.5)

    assert problem_of(error).to_dict() == {
        "type": "urn:goaitools:RateLimitError",
        "title": "The service is busy. Try again in a moment.",
        "status": 429,
        "retryable": True,
        "retry_after": 2.5,
    }


def test_others_are_internal() -> None:
    assert problem_of(RuntimeError(SECRET)).to_dict()["title"] == "Something went wrong."
    assert problem_of(GoAIToolsError(SECRET)).status == 500
    assert problem_of(AskError("id must be text")).to_dict()["detail"] == "id must be text"
