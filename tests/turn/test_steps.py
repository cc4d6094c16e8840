"""A turn step by step: each step is one model call or one round of tools, and the whole is the same turn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from goaitools_py import Approve, LimitExceededError, Limits, ProviderUnavailableError, event, tool
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import Step, inspect_state

from ._reading import history_sent, messages, results

RED = ("get_score", '{"team":"Red"}')
BLUE = ("get_score", '{"team":"Blue"}')


def walk(chat: Any, state: bytes | None, *, most: int = 20, **fields: Any) -> list[Step]:
    """All steps of one turn; only the first one has its message."""
    options = {name: value for name, value in fields.items() if name != "user"}
    steps = [chat.step(state, **fields)]
    while not steps[-1].is_over:
        assert len(steps) < most
        steps.append(chat.step(steps[-1].state, **options))
    return steps


def test_a_step_is_one_model_call_or_one_round_of_tools(face: Any, sim: Any, scores: Any) -> None:
    """The statuses say what the next step does, and each state is whole."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, BLUE, text="I look."), Reply.text("Both have 7."))

    steps = walk(chat, None, user="Who leads?")

    assert [step.status for step in steps] == ["waiting_for_tools", "in_progress", "complete"]
    assert [step.text for step in steps] == ["I look.", "I look.", "Both have 7."]
    assert [step.result.usage.requests for step in steps] == [1, 0, 1]
    assert [len(sim.requests), sorted(scores.runs)] == [2, ["Blue", "Red"]]
    assert [inspect_state(step.state).status for step in steps] == ["in_progress", "in_progress", "complete"]
    assert sim.problems == []


def test_each_step_may_be_another_process(face: Any, sim: Any, scores: Any) -> None:
    """A state is all that a step needs; the last one is what one call would have made."""
    sim.push(Reply.calls(RED), Reply.calls(BLUE), Reply.text("Done."))
    state: bytes | None = None
    said: dict[str, Any] = {"user": "Both?"}
    step = None
    while step is None or not step.is_over:
        chat = face.on(sim, tools=[scores.get_score])
        step = chat.step(state, **said)
        state, said = step.state, {}
    stepped = history_sent(sim.requests[-1])

    sim.push(Reply.calls(RED), Reply.calls(BLUE), Reply.text("Done."))
    whole = face.on(sim, tools=[scores.get_score]).chat_with_state(None, user="Both?")

    assert [(m.role, m.text) for m in messages(whole.state)] == [
        (m.role, m.text) for m in messages(step.state)
    ]
    assert len(history_sent(sim.requests[-1])) == len(stepped)
    assert sim.problems == []


@pytest.mark.parametrize("seed", range(4))
def test_steps_make_the_turns_that_calls_make(face: Any, sim: Any, scores: Any, seed: int) -> None:
    """Random turns: going step by step leads to the same history, usage and effects."""
    print("seed", seed)
    dice = random.Random(seed)

    def script() -> list[Reply]:
        made = [
            Reply.calls(*[dice.choice((RED, BLUE)) for _ in range(dice.randint(1, 3))])
            for _ in range(dice.randint(0, 3))
        ]
        return [*made, Reply.text(f"Answer {dice.random():.3f}")]

    turns = [script() for _ in range(3)]
    chat = face.on(sim, tools=[scores.get_score])
    stepped: bytes | None = None
    whole: bytes | None = None
    for number, turn in enumerate(turns):
        sim.push(*turn)
        stepped = walk(chat, stepped, user=f"Question {number}")[-1].state
        sim.push(*turn)
        whole = chat.chat_with_state(whole, user=f"Question {number}").state
    assert stepped is not None
    assert whole is not None

    assert [(m.role, m.text) for m in messages(stepped)] == [(m.role, m.text) for m in messages(whole)]
    one, other = inspect_state(stepped), inspect_state(whole)
    assert (one.turns, one.messages, one.status) == (other.turns, other.messages, "complete")
    assert one.total_usage.total_tokens == other.total_usage.total_tokens
    assert one.total_usage.requests == other.total_usage.requests
    assert sim.problems == []


def test_a_failed_step_is_tried_again(face: Any, sim: Any, scores: Any) -> None:
    """A failure is a step's status; the next step goes on where it failed, and no tool runs twice."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED), Fault.server_error(), Reply.text("Red has 7."))

    first = chat.step(None, user="Red?")
    second = chat.step(first.state)
    failed = chat.step(second.state)
    last = chat.step(failed.state)

    assert (failed.status, failed.result, failed.is_over) == ("failed", None, True)
    assert isinstance(failed.error, ProviderUnavailableError)
    assert (last.status, last.text) == ("complete", "Red has 7.")
    assert scores.runs == ["Red"]
    assert sim.problems == []


def test_a_step_waits_for_answers(face: Any, sim: Any) -> None:
    """Calls that wait are in `pending`; a step with the answers runs them, and asks nothing yet."""
    ran: list[int] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        ran.append(amount)
        return "paid"

    chat = face.on(sim, tools=[pay])
    sim.push(Reply.calls(("pay", '{"amount":5}')), Reply.text("Paid."))

    asked = chat.step(None, user="Pay five.")
    waits = chat.step(asked.state)
    again = chat.step(waits.state)
    answered = chat.step(again.state, {again.pending[0].id: Approve()})
    last = chat.step(answered.state)

    assert (asked.status, asked.pending) == ("waiting_for_tools", ())
    assert (waits.status, len(waits.pending), waits.is_over) == ("waiting_for_tools", 1, True)
    assert (again.status, ran) == ("waiting_for_tools", [5])
    assert (answered.status, last.status, last.text) == ("in_progress", "complete", "Paid.")
    assert results(last.state) == ["paid"]
    assert sim.problems == []


@pytest.mark.parametrize("on_limit", ["answer", "raise"])
def test_limits_count_over_all_steps(face: Any, sim: Any, scores: Any, on_limit: str) -> None:
    """`max_iterations` is that of the turn, however many steps it has."""
    chat = face.on(sim, tools=[scores.get_score], limits=Limits(max_iterations=2), on_limit=on_limit)
    sim.push(Reply.calls(RED), Reply.calls(RED), Reply.text("So far: 7."))

    steps = walk(chat, None, user="Keep looking.")

    if on_limit == "answer":
        assert (steps[-1].status, steps[-1].text) == ("complete", "So far: 7.")
        assert steps[-1].result.status == "limited"
    else:
        assert (steps[-1].status, len(sim.requests)) == ("failed", 2)
        assert isinstance(steps[-1].error, LimitExceededError)
    assert scores.runs == ["Red", "Red"]
    assert sim.problems == []


def test_a_step_answers_what_was_appended(face: Any, sim: Any) -> None:
    """Events that wait begin a turn; a complete conversation has no next step."""
    chat = face.on(sim)
    state = chat.append_to_state(None, event("A troll has come."))
    sim.push(Reply.text("Run!"))

    step = chat.step(state)

    assert (step.status, step.text) == ("complete", "Run!")
    with pytest.raises(ValueError, match="nothing"):
        chat.step(step.state)


def test_a_step_says_nothing_of_its_content(sim: Any, face: Any) -> None:
    """The repr of a step has no text."""
    sim.push(Reply.text("Secret plan."))

    step = face.on(sim).step(None, user="Tell me.")

    assert "Secret" not in repr(step)
