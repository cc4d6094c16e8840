"""The simulator answers every type in every mode, on every provider API."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from goaitools_py import AsyncChat, Chat, tool
from goaitools_py.output import Output

SIMS = ["sim:openai", "sim:openai-responses", "sim:anthropic"]
MODES: list[Any] = ["tool", "native", "prompt", "auto"]


class Verdict(BaseModel):
    name: str
    score: int


class Round(BaseModel):
    verdict: Verdict
    places: list[str]
    mood: Literal["dark", "bright"]
    doubt: float | None


@dataclass
class Pair:
    left: str
    right: bool


TYPES: list[Any] = [Verdict, Round, Pair, list[Verdict], int, str, Literal["yes", "no"], Verdict | Pair]


@tool
def get_score(team: str) -> int:
    """The score of a team."""
    return 30


@pytest.mark.parametrize("sim", SIMS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of", TYPES, ids=str)
def test_every_type_is_answered(sim: str, mode: Any, of: Any) -> None:
    """With one model call: no answer has to be given again."""
    with Chat(sim) as chat:
        result = chat.chat(user="Ada has 30 points.", output_type=Output(of, mode=mode, retries=0))

    assert result.status == "complete"
    assert result.iterations == 1
    assert result.output is not None


@pytest.mark.parametrize("sim", SIMS)
def test_it_answers_in_async_code_too(sim: str) -> None:
    """And streamed."""
    wanted = Output(Verdict, mode="tool", retries=0)

    async def run() -> Any:
        async with AsyncChat(sim) as chat:
            async with chat.start(None, user="Ada has 30 points.", output_type=wanted) as turn:
                async for _ in turn:
                    pass
            return await turn.result()

    assert asyncio.run(run()).output == Verdict(name="Ada has 30 points.", score=30)


@pytest.mark.parametrize("sim", SIMS)
def test_other_tools_come_first(sim: str) -> None:
    """The answer is given once they have run; a tool's own name may be any."""
    wanted = Output(Verdict, mode="tool", name="score_card", retries=0)
    with Chat(sim, tools=[get_score]) as chat:
        result = chat.chat(user="What is the score of Red?", output_type=wanted)

    assert [record.call.name for record in result.tool_log] == ["get_score", "score_card"]
    assert isinstance(result.output, Verdict)


@pytest.mark.parametrize("sim", SIMS)
def test_a_refused_answer_is_given_again(sim: str) -> None:
    """As often as it is asked for."""
    seen: list[Verdict] = []

    def check(verdict: Verdict) -> None:
        seen.append(verdict)
        if len(seen) < 3:
            raise ValueError("look again")

    with Chat(sim) as chat:
        result = chat.chat(
            user="Ada has 30 points.", output_type=Output(Verdict, mode="tool", retries=2, validate=check)
        )

    assert (len(seen), result.status) == (3, "complete")


def test_a_turn_without_such_a_tool_is_as_before() -> None:
    """The words of a message ask for no tool by themselves."""
    with Chat("sim") as chat:
        assert chat.chat(user="Give me your final answer.").text.startswith("[simulated]")
