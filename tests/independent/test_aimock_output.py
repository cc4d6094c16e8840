"""Typed answers against aimock, a server that this project did not write: all wires, both chats, both ways.

aimock reads Chat Completions' `response_format`, and so proves that this format is its own. On the two other
provider APIs it proves that a request with a format is taken, and that attempts are asked again in a form
that it understands.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from goaitools_py.output import Output, OutputError
from goaitools_py.states import read_history, verify_state

from .test_aimock import calls, says

GOOD = '{"guilty":true,"years":3}'
WRONG = '{"guilty":true,"years":"many"}'


class Verdict(BaseModel):
    guilty: bool
    years: int


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_an_answer_is_a_value(scene: Any, run: Any, wire: str, mode: Any) -> None:
    """The format is the server's own where it knows one, and words are part of the question."""
    fixture = says(GOOD)
    if wire == "openai" and mode == "native":
        fixture["match"]["responseFormat"] = "json_schema"
    scene.answers(fixture)

    result = run(scene.chat(), user="Judge the butler.", output_type=Output(Verdict, mode=mode))

    assert (result.output, result.text, result.status) == (Verdict(guilty=True, years=3), GOOD, "complete")
    asked = str(scene.transcripts[0])
    assert ("JSON Schema" in asked) is (mode == "prompt")


def test_an_answer_by_a_call(scene: Any, run: Any) -> None:
    """The server offers the call that it was told of, and takes the next request behind the answer."""
    call = calls(("final_answer", {"guilty": True, "years": 3}))
    call["match"]["toolName"] = "final_answer"
    scene.answers(says("Yes.", to="Sure?"), call)
    chat = scene.chat()

    judged = run(chat, user="Judge the butler.", output_type=Output(Verdict, mode="tool"))
    told = run(chat, judged.state, user="Sure?")

    assert (judged.output, judged.iterations, told.text) == (Verdict(guilty=True, years=3), 1, "Yes.")
    assert [row[0] for row in scene.transcripts[1]] == ["user", "call", "result", "user"]


def test_a_wrong_answer_is_told_and_leaves(scene: Any, run: Any) -> None:
    """The server sees the wrong answer and what is wrong with it. The history does not."""
    scene.answers(says(GOOD, to="does not fit"), says(WRONG, to="Judge"), says("Yes.", to="Sure?"))
    chat = scene.chat()

    judged = run(chat, user="Judge the butler.", output_type=Verdict)
    told = run(chat, judged.state, user="Sure?")

    assert (judged.output, judged.iterations, told.text) == (Verdict(guilty=True, years=3), 2, "Yes.")
    again, after = scene.transcripts[1], scene.transcripts[2]
    assert ("assistant", WRONG) in again
    assert "years: should be a valid integer" in again[-1][1]
    assert after == [("user", "Judge the butler."), ("assistant", GOOD), ("user", "Sure?")]


@pytest.mark.parametrize("text", ["", "No.", "null", "[[[", '{"guilty":true,"years":"\\ud800"}'])
def test_no_answer_costs_the_conversation(scene: Any, run: Any, text: str) -> None:
    """An answer that never fits is an error with a state, and the state goes on."""
    scene.answers(says("Fine.", to="And now?"), says(text or " "))
    chat = scene.chat()

    with pytest.raises(OutputError) as error:
        run(chat, user="Judge the butler.", output_type=Output(Verdict, retries=1))
    ended = run(chat, error.value.state, user="And now?")

    assert error.value.usage.requests == 2
    assert ended.text == "Fine."
    assert verify_state(ended.state) == ()
    assert [message.text for message in read_history(ended.state).turns[-1].messages][-1] == "Fine."
