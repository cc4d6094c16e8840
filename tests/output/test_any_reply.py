"""No reply, however wrong, costs the state or a paid answer: random scripts of replies, failures, resumes.

Each case is one seed on one provider API. After each call: the state is sound, all that was paid for is in
its total, each request is one that the provider takes, and a value is there exactly if the turn is complete.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import BaseModel

from goaitools_py import Chat, ChatResult, Limits, tool
from goaitools_py.backends.base import BackendError
from goaitools_py.base import rawjson
from goaitools_py.output import Output, OutputError
from goaitools_py.sim import check_anthropic, check_openai, check_openai_responses
from goaitools_py.states import inspect_state, read_history, verify_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.errors import TurnError

CHECKS: dict[str, Any] = {
    "openai": check_openai,
    "openai-responses": check_openai_responses,
    "anthropic": check_anthropic,
}
GOOD = '{"guilty":true,"years":3}'
TEXTS = (
    GOOD,
    GOOD,
    '{"guilty":true}',
    "no",
    "",
    "[[[[",
    '{"guilty":true,"years":"x"}',
    "```json\n" + GOOD + "\n```",
    '{"guilty":true,"years":"\ud800"}',
    "null",
    GOOD + GOOD,
)


class Verdict(BaseModel):
    guilty: bool
    years: int


def refuse_odd(verdict: Verdict) -> None:
    """A check that breaks now and then."""
    if verdict.years % 2:
        raise ValueError("Only even years.")


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is dark"


class Script:
    """Replies without end; counts those that are paid for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.paid = 0

    def __call__(self, request: Any) -> Any:
        draw = self.random.random()
        if draw < 0.1:
            raise BackendError("gone", status=503)
        self.paid += 1
        if draw < 0.25:
            return Calls(
                [("look", self.random.choice([{"place": "hall"}, "{", {}]))], self.random.choice(TEXTS)
            )
        if draw < 0.4:
            answers = [{"guilty": True, "years": 3}, {"guilty": True, "years": "x"}, "[", {}]
            return Calls([("final_answer", self.random.choice(answers))], self.random.choice(TEXTS))
        thinking = self.random.choice(["", "", "Hm."])
        text = self.random.choice(TEXTS)
        return Calls([], text or "x", reasoning=thinking) if thinking else text or " "


@pytest.mark.parametrize("wire", CHECKS)
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost(wire: str, seed: int) -> None:
    """Twelve calls: typed and plain turns, resumes with a type and without one."""
    script = Script(seed)
    backend = ScriptedBackend(*[script] * 400, wire=wire)
    chat = Chat(backend, tools=[look], limits=Limits(max_iterations=6))
    state: bytes | None = None
    outcomes: set[str] = set()
    for number in range(12):
        asked: Any = script.random.choice(
            [
                None,
                Verdict,
                Output(Verdict, mode="prompt", retries=2),
                Output(Verdict, mode="native", retries=0),
                Output(Verdict, mode="tool"),
                Output(Verdict, validate=refuse_odd if number % 3 else None, keep_attempts=bool(number % 2)),
            ]
        )
        is_open = state and inspect_state(state).status != "complete"
        try:
            if is_open and script.random.random() < 0.7:
                result: ChatResult[Any] = chat.resume(state, output_type=asked)
            else:
                result = chat.chat_with_state(state, user=f"Judge number {number}.", output_type=asked)
        except TurnError as error:
            state = error.state
            outcomes.add(type(error).__name__)
            told = [error.errors] if isinstance(error, OutputError) else []
            is_kept = not told or (bool(told[0]) and inspect_state(state).status == "failed")
        else:
            state, is_kept = result.state, True
            outcomes.add(result.status)
            assert isinstance(result.output, Verdict) == (asked is not None and result.status == "complete")
        assert is_kept
        assert verify_state(state) == ()
        assert inspect_state(state).total_usage.requests == script.paid if state else True
    bodies = [rawjson.loads(request.body) for request in backend.requests]
    assert [problems for body in bodies if (problems := CHECKS[wire](body))] == []
    assert len(outcomes) > 1

    last = ScriptedBackend("Fine.", wire=wire)
    ended = Chat(last, tools=[look]).chat_with_state(state, user="And now?")
    assert ended.text == "Fine."
    shown = str([m.text for turn in read_history(ended.state).turns for m in turn.messages])
    assert shown.count("And now?") == 1
