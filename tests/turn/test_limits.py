"""Limits of a turn and of a conversation: one last answer without tools, or an error; nothing is lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import BudgetExceededError, LimitExceededError, Limits, ProviderUnavailableError, Usage
from goaitools_py.base import rawjson
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history

from ._reading import results, roles, tool_choice

RED = ("get_score", '{"team":"Red"}')


def test_the_last_call_forbids_tools_with_the_same_tools(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """At `max_iterations` the model is asked once more: equal tool bytes, `tool_choice: none`."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_iterations=2))
    sim.push(Reply.calls(RED), Reply.calls(RED), Reply.text("So far: 7."))

    result = run(chat, user="Keep looking.")

    assert (result.text, result.status, result.iterations) == ("So far: 7.", "limited", 3)
    assert [w.code for w in result.warnings] == ["limit_reached"]
    assert [tool_choice(request) for request in sim.requests] == [None, None, "none"]
    assert len({rawjson.members(request.body)["tools"] for request in sim.requests}) == 1
    assert scores.runs == ["Red", "Red"]
    assert sim.problems == []


def test_calls_that_come_anyway_are_not_run(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """A model that calls although it may not leaves a history in which each call is answered."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_iterations=1))
    sim.push(Reply.calls(RED), Reply.calls(RED, text="One more."), Reply.text("Hello."))

    result = run(chat, user="Keep looking.")
    after = run(chat, result.state, user="Hello.")

    assert (result.status, result.text) == ("limited", "One more.")
    assert scores.runs == ["Red"]
    assert [r.flag for r in result.tool_log] == ["ok", "not_run"]
    assert roles(result.state)[-1] == "tool"
    assert results(result.state)[-1] == "This tool was not run."
    assert after.status == "complete"
    assert sim.problems == []


def test_a_limit_can_raise(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """With `on_limit="raise"` the turn stops with its results, and `resume` goes on from them."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_iterations=1), on_limit="raise")
    sim.push(Reply.calls(RED))

    with pytest.raises(LimitExceededError) as caught:
        run(chat, user="The score of Red?")
    err = caught.value
    resumed = chat.resume(err.state)

    assert not err.retryable
    assert (err.usage.requests, err.pending_input) == (1, ())
    assert [r.result for r in err.tool_log] == ["Red has 7 points"]
    assert "get_score: Red has 7 points" in resumed.text
    assert scores.runs == ["Red"]
    assert len(sim.requests) == 2
    assert sim.problems == []


def test_calls_beyond_the_limit_are_not_run(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """`max_tool_calls` counts starts, in call order; the rest is answered as not run."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_tool_calls=3), tool_threads=False)
    sim.push(Reply.calls(RED, RED), Reply.calls(RED, RED), Reply.text("Enough."))

    result = run(chat, user="Keep looking.")

    assert len(scores.runs) == 3
    assert [r.flag for r in result.tool_log] == ["ok", "ok", "ok", "not_run"]
    assert (result.text, result.status) == ("Enough.", "limited")
    assert tool_choice(sim.requests[-1]) == "none"
    assert sim.problems == []


def test_calls_that_cannot_run_do_not_count(face: Any, sim: Any, scores: Any) -> None:
    """Only a call that starts is one of the `max_tool_calls`."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_tool_calls=1))
    sim.push(Reply.calls(("nothing", "{}"), RED))

    chat.chat(user="Look.")

    assert scores.runs == ["Red"]


def test_tokens_of_a_turn_are_limited(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Once `max_tokens` are spent, tools end; the answer that is due is still asked for."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_tokens=10))
    sim.push(Reply.calls(RED), Reply.text("7."))

    result = run(chat, user="The score of Red?")

    assert (result.text, result.status) == ("7.", "limited")
    assert len(sim.requests) == 2


def test_one_reply_may_not_run_calls_without_end(face: Any, sim: Any) -> None:
    """A reply of 200 calls runs 128 of them, answers all, and the result says so."""
    runs: list[int] = []

    def count(number: int) -> int:
        """Count."""
        runs.append(number)
        return number

    chat = face.on(sim, tools=[count], tool_threads=False)
    sim.push(Reply.calls(*(("count", f'{{"number":{n}}}') for n in range(200))), Reply.text("Done."))

    result = chat.chat(user="Count.")

    assert runs == list(range(128))
    assert [r.flag for r in result.tool_log].count("not_run") == 72
    assert [w.message for w in result.warnings] == ["of one reply 128 calls are run; it had 200"]
    assert sim.problems == []


def test_a_resumed_turn_counts_what_it_has_used(face: Any, sim: Any, scores: Any) -> None:
    """Calls of before a failure are of the same turn: it has no more of them for having failed."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_tool_calls=3), tool_threads=False)
    broken = Fault.server_error()
    sim.push(Reply.calls(RED, ("nothing", "{}")), Reply.calls(RED), broken, Reply.calls(RED, RED))
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Keep looking.")

    result = chat.resume(caught.value.state)

    assert (len(scores.runs), result.status) == (3, "limited")
    assert [record.flag for record in result.tool_log][-2:] == ["ok", "not_run"]
    assert tool_choice(sim.requests[-1]) == "none"
    assert "calls_started" not in read_history(result.state).turns[0].facts


def test_a_turn_that_fails_at_its_limit_has_its_last_answer(face: Any, sim: Any, scores: Any) -> None:
    """Resumed, it is asked for the last answer, and may not call again."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_iterations=2))
    sim.push(Reply.calls(RED), Reply.calls(RED), Fault.server_error(), Reply.text("So far: 7."))
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Keep looking.")

    result = chat.resume(caught.value.state)

    assert (result.text, result.status) == ("So far: 7.", "limited")
    assert [tool_choice(request) for request in sim.requests] == [None, None, "none", "none"]


def test_the_cost_of_a_turn_counts_from_its_beginning(face: Any, sim: Any, scores: Any) -> None:
    """`max_cost_usd` holds over a resume; the calls of before it have today's price."""
    fields: dict[str, Any] = {"prices": lambda _: Decimal(1), "tools": [scores.get_score]}
    chat = face.on(sim, limits=Limits(max_cost_usd=Decimal(2)), **fields)
    sim.push(Reply.calls(RED), Fault.server_error(), Reply.calls(RED), Reply.text("7."))
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Keep looking.")

    result = chat.resume(caught.value.state)

    assert (result.text, result.status, result.cost_usd) == ("7.", "limited", Decimal(2))


# --------------------------------------------------------------------------------------- conversations


def test_a_spent_conversation_calls_nothing(face: Any, sim: Any, run: Any) -> None:
    """Before anything is sent: the message comes back, the state is the input."""
    chat = face.on(sim)
    before = chat.chat(user="My name is Ada.").state

    with pytest.raises(BudgetExceededError) as caught:
        run(chat, before, user="Who am I?", limits=Limits(conversation_max_tokens=5))

    err = caught.value
    assert err.state == before
    assert [m.text for m in err.pending_input] == ["Who am I?"]
    assert err.usage == Usage()
    assert len(sim.requests) == 1


def test_a_spent_conversation_keeps_finished_results(face: Any, sim: Any, scores: Any) -> None:
    """A budget that ends between a tool and the next call does not throw the tool's result away."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED), Fault.server_error())
    with pytest.raises(ProviderUnavailableError) as unavailable:
        chat.chat(user="The score of Red?")

    with pytest.raises(BudgetExceededError) as caught:
        chat.resume(unavailable.value.state, limits=Limits(conversation_max_tokens=5))
    resumed = chat.resume(caught.value.state)

    assert "get_score: Red has 7 points" in resumed.text
    assert len(sim.requests) == 3


def test_usage_is_of_the_turn_and_of_the_life(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """`usage` sums the turn's calls, `total_usage` the conversation's, and the blob keeps the total."""
    chat = face.on(sim, tools=[scores.get_score])

    first = run(chat, user="Get the score of Red.")
    second = run(chat, first.state, user="Thanks.")

    assert (first.usage.requests, second.usage.requests, second.total_usage.requests) == (2, 1, 3)
    assert second.total_usage == first.usage + second.usage
    assert inspect_state(second.state).total_usage == second.total_usage
    assert inspect_state(second.state).usage == second.usage
    assert second.usage.cached_input_tokens > 0
    assert first.request_ids == ("req_sim_000001", "req_sim_000002")
