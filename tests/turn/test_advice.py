"""What an error advises fits its cause: an empty quota, a limit without a time, an unknown model."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import GoAIToolsError
from goaitools_py.sim import Fault


def failed(face: Any, sim: Any, fault: Fault) -> Any:
    sim.push(*[fault] * 5)
    chat = face.chat(sim.backend(is_async=face.is_async, max_retries=0))
    with pytest.raises(GoAIToolsError) as found:
        chat.chat(user="Hello")
    return found.value


def test_a_quota_that_is_used_up_names_no_time(face: Any, sim: Any) -> None:
    """No wait helps; somebody has to pay."""
    error = failed(face, sim, Fault.quota())
    assert error.retry_after is None
    assert "credit" in str(error)
    assert "retry_after" not in str(error)


def test_a_limit_without_a_time_names_none(face: Any, sim: Any) -> None:
    """`retry_after` is advised where the provider gave it."""
    error = failed(face, sim, Fault.error(429, "slow down", code="rate_limit_exceeded"))
    assert error.retryable
    assert error.retry_after is None
    assert "try resume later" in str(error)
    assert "retry_after" not in str(error)


def test_a_404_says_what_to_check(face: Any, sim: Any) -> None:
    """The message stays in the state, so `resume` is enough."""
    error = failed(face, sim, Fault.error(404, "The model does not exist.", code="model_not_found"))
    assert "check the model's name" in str(error)
    assert error.pending_input == ()
