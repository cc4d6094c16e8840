"""The turn's own deadline, over calls, retries and tools; no test here waits for a clock for long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    DeadlineExceededError,
    ProviderUnavailableError,
    RateLimitError,
    Timeouts,
    tool,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state
from goaitools_py.testing import Calls, ScriptedBackend

from ._reading import LEAD, results, roles, users


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


def late_call(clock: Any, name: str) -> Callable[[Any], Calls]:
    """A provider that calls a tool when only 0.3 of the turn's 300 s are left."""

    def reply(request: Any) -> Calls:
        clock.advance(300 - 0.3)
        return Calls([(name, {})])

    return reply


def test_a_tool_that_hangs_in_a_thread_ends_with_the_turn(face: Any, run: Any, clock: Any) -> None:
    """It has what is left of the turn's time, though its own would be far longer; `resume` tells the model
    that nobody knows its outcome."""
    release, is_out = threading.Event(), threading.Event()

    @tool
    def dig() -> str:
        """Dig for long."""
        release.wait(60)
        is_out.set()
        return "gold"

    chat = face.chat(ScriptedBackend(late_call(clock, "dig"), "Never mind."), tools=[dig], tool_threads=True)

    with pytest.raises(DeadlineExceededError) as caught:
        run(chat, user="Dig.", timeout=300)
    was_waited_for = is_out.is_set()
    release.set()
    err = caught.value
    result = chat.resume(err.state)

    assert not was_waited_for
    assert [(r.flag, r.synthetic) for r in err.tool_log] == [("unknown", True)]
    assert inspect_state(err.state).open_calls == 0
    assert (result.text, result.status) == ("Never mind.", "complete")
    assert "it is unknown whether it took effect" in results(result.state)[0]


def test_a_coroutine_that_hangs_ends_with_the_turn(run: Any, clock: Any) -> None:
    """It is cancelled when the turn's time is up."""
    ends: list[str] = []

    @tool
    async def dig() -> str:
        """Dig for long."""
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("waited for")
        return "gold"

    chat = AsyncChat(ScriptedBackend(late_call(clock, "dig")), tools=[dig], timeout=300)

    async def go() -> None:
        await run(chat, user="Dig.")

    with pytest.raises(DeadlineExceededError) as caught:
        asyncio.run(go())

    assert ends == ["cancelled"]
    assert [(r.flag, r.synthetic) for r in caught.value.tool_log] == [("unknown", True)]


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

    chat = face.on(sim, tools=[dig], timeout=Timeouts(turn=None, tool=None))
    sim.push(Reply.calls(("dig", '{"depth":1}')))

    assert chat.chat(user="Dig.").status == "complete"
