"""The mode "tool": the answer is the arguments of a call, for servers without a format for answers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from goaitools_py import Approve, tool
from goaitools_py.output import Output, OutputError
from goaitools_py.sim import check_anthropic, check_openai, check_openai_responses
from goaitools_py.states import inspect_state, verify_state
from goaitools_py.testing import Calls, ScriptedBackend

CHECKS: dict[str, Any] = {
    "openai": check_openai,
    "openai-responses": check_openai_responses,
    "anthropic": check_anthropic,
}
WIRES = list(CHECKS)


class Verdict(BaseModel):
    guilty: bool
    years: int


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is dark"


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def judged(**arguments: Any) -> Calls:
    """A call of the answer's tool."""
    return Calls([("final_answer", arguments)])


GOOD = judged(guilty=True, years=3)
WRONG = judged(guilty=True, years="many")
MODE = Output(Verdict, mode="tool")


def desk(face: Any, wire: str, *steps: Any, **how: Any) -> tuple[Any, ScriptedBackend]:
    """A chat on a script."""
    script = ScriptedBackend(*steps, wire=wire)
    return face.chat(script, **how), script


def sound(script: ScriptedBackend, wire: str, state: bytes) -> None:
    """Each request is one that the provider takes, and the state is whole."""
    assert [found for body in script.bodies() if (found := CHECKS[wire](body))] == []
    assert verify_state(state) == ()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_the_answer_is_a_call(face: Any, wire: str, stream: bool) -> None:
    """Behind other tools; the turn ends with it, and the next one goes on."""
    chat, script = desk(face, wire, Calls([("look", {"place": "Hall"})]), GOOD, "Sure.", tools=[look])

    turn = {"user": "Judge.", "output_type": MODE}
    result = chat.start(None, **turn).result() if stream else chat.chat(**turn)
    after = chat.chat_with_state(result.state, user="Sure?")

    assert (result.output, result.status, result.iterations) == (Verdict(guilty=True, years=3), "complete", 2)
    assert after.text == "Sure."
    assert b"final_answer" in script.requests[0].body
    assert b"JSON Schema" not in script.requests[0].body
    sound(script, wire, after.state)


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_that_does_not_fit_is_told(face: Any, wire: str) -> None:
    """As the result of the call; the caller's check refuses in the same way."""
    chat, script = desk(face, wire, WRONG, judged(guilty=True, years=4), GOOD)

    def odd(verdict: Verdict) -> None:
        if verdict.years % 2 == 0:
            raise ValueError("Only odd years.")

    result = chat.chat(user="Judge.", output_type=Output(Verdict, mode="tool", retries=2, validate=odd))

    assert result.output == Verdict(guilty=True, years=3)
    assert [record.flag for record in result.tool_log] == ["error", "error", "ok"]
    assert "years: should be a valid integer" in result.tool_log[0].result
    assert "Only odd years." in result.tool_log[1].result
    sound(script, wire, result.state)


@pytest.mark.parametrize("wire", WIRES)
def test_no_answer_is_an_error_that_costs_nothing(face: Any, wire: str) -> None:
    """The retries are used up; the state has all, and goes on in each way."""
    chat, script = desk(face, wire, WRONG, WRONG, GOOD, "Fine.", WRONG)

    with pytest.raises(OutputError) as error:
        chat.chat(user="Judge.", output_type=MODE)
    resumed = chat.resume(error.value.state, output_type=MODE)
    plain = chat.chat_with_state(error.value.state, user="Never mind.")

    assert "years" in error.value.errors[0][1]
    assert inspect_state(error.value.state).total_usage.requests == 2
    assert resumed.output == Verdict(guilty=True, years=3)
    assert plain.text == "Fine."
    sound(script, wire, plain.state)


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_in_text_is_taken_if_it_fits(face: Any, wire: str) -> None:
    """And else the model is told."""
    chat, script = desk(face, wire, "Guilty.", '{"guilty":true,"years":3}')

    result = chat.chat(user="Judge.", output_type=MODE)

    assert (result.output, result.iterations) == (Verdict(guilty=True, years=3), 2)
    sound(script, wire, result.state)


@pytest.mark.parametrize("wire", WIRES)
def test_an_approval_beside_it(face: Any, wire: str) -> None:
    """The turn waits first, and then has its answer without a further request."""
    both = Calls([("pay", {"euros": 5}), ("final_answer", {"guilty": True, "years": 3})])
    chat, script = desk(face, wire, both, tools=[pay])

    waits = chat.chat(user="Judge.", output_type=MODE)
    result = chat.resume(waits.state, {waits.pending[0].id: Approve()}, output_type=MODE)

    assert (waits.status, waits.output) == ("awaiting_tools", None)
    assert (result.output, len(script.requests)) == (Verdict(guilty=True, years=3), 1)
    sound(script, wire, result.state)


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_is_not_paid_for_twice(face: Any, wire: str) -> None:
    """After a crash behind the call, and for a message that comes twice."""
    chat, script = desk(face, wire, GOOD)
    blobs: list[bytes] = []

    result = chat.chat(user="Judge.", output_type=MODE, turn_id="m1", on_checkpoint=blobs.append)
    resumed = [chat.resume(blob, output_type=MODE).output for blob in blobs[:-1] if blob != b""][1:]
    again = chat.chat_with_state(result.state, user="Judge.", output_type=MODE, turn_id="m1")

    assert set(map(repr, resumed)) <= {"Verdict(guilty=True, years=3)"}
    assert resumed
    assert (again.duplicate, again.output) == (True, result.output)
    assert len(script.requests) == 1


def test_a_tool_of_the_same_name_is_refused(face: Any) -> None:
    """Before anything is sent; another name goes."""

    @tool
    def final_answer(text: str) -> str:
        """Say it."""
        return text

    chat, script = desk(face, "openai", Calls([("verdict", {"value": [1]})]), tools=[final_answer])

    with pytest.raises(ValueError, match="has the name 'final_answer'"):
        chat.chat(user="Judge.", output_type=MODE)

    assert chat.chat(user="Judge.", output_type=Output(list[int], mode="tool", name="verdict")).output == [1]
    assert len(script.requests) == 1


def test_a_step_ends_with_the_answer(face: Any) -> None:
    """Step by step the answer is there when its call has run."""
    chat, script = desk(face, "openai", GOOD)

    step = chat.step(None, user="Judge.", output_type=MODE)
    while not step.is_over:
        step = chat.step(step.state, output_type=MODE)

    assert step.result is not None
    assert (step.result.output, len(script.requests)) == (Verdict(guilty=True, years=3), 1)
