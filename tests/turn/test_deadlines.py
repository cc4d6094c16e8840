"""The turn's own deadline, over calls, retries and tools; no test here waits for a clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from goaitools_py import (
    DeadlineExceededError,
    ProviderUnavailableError,
    RateLimitError,
    inspect_state,
    tool,
)
from goaitools_py.sim import Fault, Reply

from ._reading import LEAD, roles, users


def test_a_deadline_that_passes_in_a_tool_sends_nothing_more(
    face: Any, sim: Any, run: Any, clock: Any
) -> None:
    """The tool's result is kept, the model is not asked again, and `resume` goes on from there."""
    runs: list[int] = []

    @tool(timeout=1000)
    def dig(depth: int) -> str:
        """Dig for long."""
        runs.append(depth)
        clock.advance(400)
        return "gold"

    chat = face.on(sim, tools=[dig], timeout=300, tool_threads=False)
    sim.push(Reply.calls(("dig", '{"depth":1}')))

    with pytest.raises(DeadlineExceededError) as caught:
        run(chat, user="Dig.")
    err = caught.value

    assert err.retryable
    assert [r.result for r in err.tool_log] == ["gold"]
    assert err.pending_input == ()
    assert len(sim.requests) == 1
    assert chat.resume(err.state).status == "complete"
    assert runs == [1]
    assert sim.problems == []


def test_no_tool_starts_after_the_deadline(face: Any, sim: Any, run: Any, clock: Any) -> None:
    """The second call has not begun, and resuming runs it."""
    runs: list[int] = []

    @tool
    def dig(depth: int) -> str:
        """Dig for long."""
        runs.append(depth)
        clock.advance(400)
        return "gold"

    chat = face.on(sim, tools=[dig], timeout=300, tool_threads=False)
    sim.push(Reply.calls(("dig", '{"depth":1}'), ("dig", '{"depth":2}')))

    with pytest.raises(DeadlineExceededError) as caught:
        run(chat, user="Dig.")
    ran = list(runs)
    result = chat.resume(caught.value.state, timeout=None)

    assert ran == [1]
    assert runs == [1, 2]
    assert [r.flag for r in result.tool_log] == ["ok", "ok"]
    assert sim.problems == []


def test_a_wait_beyond_the_deadline_is_not_begun(face: Any, sim: Any, clock: Any) -> None:
    """A retry that could not finish in time is given up at once, with the provider's own reason."""
    chat = face.on(sim, max_retries=5, timeout=30)
    sim.push(Fault.error(503, "busy", headers=(("retry-after", "45"),)))

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Hello.")

    assert caught.value.retry_after == 45.0
    assert clock.naps == []


def test_retries_end_with_the_deadline(face: Any, sim: Any, run: Any, clock: Any) -> None:
    """Many short waits may not add up to more than the turn has."""
    chat = face.on(sim, max_retries=100, timeout=30)
    sim.push(*[Fault.rate_limit(retry_after=8)] * 100)

    with pytest.raises(RateLimitError) as caught:
        run(chat, user="Hello.")

    assert sum(clock.naps) <= 30
    assert len(sim.requests) == 4
    assert caught.value.retryable
    assert (roles(caught.value.state), users(caught.value.state)) == (["user"], ["Hello."])


def test_endless_pings_are_no_reply(face: Any, sim: Any) -> None:
    """A stream that only keeps itself alive ends at the deadline, not later."""
    chat = face.on(sim, timeout=0.2)
    sim.push(Fault.pings(after=LEAD[sim.wire] + 1, reply=Reply.text("Once upon a time.")))

    with pytest.raises(DeadlineExceededError) as caught:
        chat.start(None, user="Tell me a story.").result()

    assert caught.value.retryable
    assert caught.value.partial_text == "Once"
    assert (roles(caught.value.state), users(caught.value.state)) == (["user"], ["Tell me a story."])
    assert inspect_state(caught.value.state).status == "failed"


def test_a_silent_provider_is_left_at_the_deadline(face: Any, sim: Any, run: Any) -> None:
    """No headers in time: the message is in the state, and nothing was accepted."""
    gate = threading.Event()
    chat = face.on(sim, timeout=0.1, max_retries=3)
    sim.push(Fault.hold(gate))

    with pytest.raises(DeadlineExceededError) as caught:
        run(chat, user="Hello.")
    gate.set()

    assert inspect_state(caught.value.state).waiting_messages == 1
    assert chat.resume(caught.value.state, timeout=30).status == "complete"


def test_there_is_no_deadline_without_a_timeout(face: Any, sim: Any, clock: Any) -> None:
    """`timeout=None` leaves the time to the caller."""

    @tool
    def dig(depth: int) -> str:
        """Dig for ever."""
        clock.advance(1e9)
        return "gold"

    chat = face.on(sim, tools=[dig], timeout=None, tool_timeout=None)
    sim.push(Reply.calls(("dig", '{"depth":1}')))

    assert chat.chat(user="Dig.").status == "complete"
