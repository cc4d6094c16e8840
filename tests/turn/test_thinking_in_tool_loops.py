"""Thinking that is switched on, or lost, while a tool loop is open: the provider takes every request."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ModelSettings, ToolReturn, tool
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.sim import Reply
from goaitools_py.states import convert_state, pending_calls, state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC

THINK = ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096)
ON, OFF = {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}

pytestmark = pytest.mark.parametrize("wire", [ANTHROPIC])


@tool(external=True)
def look(team: str) -> str:
    """Look at a team."""
    raise NotImplementedError


@pytest.fixture
def claude(face: Any, sim: Any) -> Any:
    """A chat with a model that takes a thinking budget, on the provider's own host."""
    backend = sim.backend("claude-sonnet-4-5", is_async=face.is_async)
    backend.dialect = dialect_of(ANTHROPIC)
    return face.chat(backend, tools=[look])


def thinking(sim: Any) -> list[Any]:
    """What each request says of thinking."""
    return [request.parsed.get("thinking") for request in sim.requests]


def call(**more: Any) -> Reply:
    return Reply.calls(("look", '{"team":"Red"}'), **more)


def answered(waiting: Any) -> dict[str, ToolReturn]:
    return {one.id: ToolReturn("7") for one in waiting.pending}


def test_thinking_that_is_switched_on_in_a_tool_loop_begins_with_the_next_message(
    claude: Any, sim: Any, run: Any
) -> None:
    """A call that was made without thinking is answered without it, also over further calls."""
    sim.push(call(), call(), Reply.text("7."), Reply.text("Welcome.", thinking="Hm."))
    waiting = run(claude, user="The score?")

    waiting = claude.resume(waiting.state, answered(waiting), settings=THINK)
    done = claude.resume(waiting.state, answered(waiting), settings=THINK)
    run(claude, done.state, user="Thanks.", settings=THINK)

    assert thinking(sim) == [None, OFF, OFF, ON]
    assert sim.problems == []


def test_a_loop_that_began_with_thinking_goes_on_with_it(claude: Any, sim: Any, run: Any) -> None:
    """Also if a later reply of it has none, and if it is redacted."""
    sim.push(call(redacted=True), call(), Reply.text("7."))

    waiting = run(claude, user="The score?", settings=THINK)
    waiting = claude.resume(waiting.state, answered(waiting), settings=THINK)
    claude.resume(waiting.state, answered(waiting), settings=THINK)

    assert thinking(sim) == [ON] * 3
    assert sim.problems == []


def test_a_message_behind_unanswered_calls_is_taken(claude: Any, sim: Any, run: Any) -> None:
    """The closed calls and the message are one turn to the provider."""
    sim.push(call(), Reply.text("7."))
    waiting = run(claude, user="The score?")

    run(claude, waiting.state, user="Never mind.", settings=THINK, on_pending="deny")

    assert thinking(sim) == [None, OFF]
    assert sim.problems == []


@pytest.mark.parametrize("origin", ["openai", "openai-responses"])
def test_a_loop_of_another_provider_goes_on(face: Any, sim: Any, claude: Any, origin: str) -> None:
    """A conversation that was converted while its calls wait."""
    sim.wire = origin
    sim.push(call())
    waiting = face.on(sim, tools=[look]).chat(user="The score?")
    sim.wire = ANTHROPIC
    moved = convert_state(waiting.state, ANTHROPIC).state
    sim.push(Reply.text("7."))

    (pending,) = pending_calls(moved)
    claude.resume(moved, {pending.id: ToolReturn("7")}, settings=THINK)

    assert thinking(sim)[-1] == OFF
    assert sim.problems == []


@pytest.mark.parametrize("more", [{}, {"thinking": ""}], ids=["once", "over two calls"])
def test_a_loop_goes_on_after_its_thinking_was_refused(
    claude: Any, sim: Any, run: Any, more: dict[str, Any]
) -> None:
    """By a model that cannot drop it: the thinking is taken out, and the request that is sent instead asks
    for none. No tool's result is lost."""
    sim.push(call(thinking="Hm."), *([call()] if more else []), Reply.text("7."), Reply.text("Welcome."))
    waiting = run(claude, user="The score?", settings=THINK, system="Be short.")
    if more:
        waiting = claude.resume(waiting.state, answered(waiting), settings=THINK, system="Be short.")

    done = claude.resume(waiting.state, answered(waiting), settings=THINK, system="Be long.")
    run(claude, done.state, user="Thanks.", settings=THINK, system="Be long.")

    assert (done.text, done.status) == ("7.", "complete")
    assert [record.flag for record in done.tool_log] == ["ok"]
    assert thinking(sim)[-2:] == [OFF, ON]
    assert b"thinking" not in b"".join(map(rawjson.dumps, state_messages(done.state)))
    assert check_history(ANTHROPIC, state_messages(done.state)) == []
    assert {warning.code for warning in done.warnings} >= {"thinking_removed"}
