"""Answers to a call that waits while the conversation moves to another provider API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Approve, tool
from goaitools_py.states import convert_state, inspect_state
from goaitools_py.testing import Raw, ScriptedBackend

LONG = "functions.pay:0"
"""An id that Anthropic's API does not take."""
ASKS = {
    "id": "r",
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": LONG, "type": "function", "function": {"name": "pay", "arguments": '{"sum":5}'}}
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
    "model": "m",
    "usage": {},
}


@pytest.mark.parametrize("to", ["anthropic", "openai-responses"])
def test_an_answer_under_the_first_id_is_found(face: Any, to: str) -> None:
    """The page that asked the user knows the first id. The second press is a duplicate, and pays nothing."""
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(sum: int) -> str:
        """Pay."""
        paid.append(sum)
        return "Paid."

    first = ScriptedBackend(Raw.body(json.dumps(ASKS).encode()), wire="openai")
    waiting = face.chat(first, tools=[pay]).chat_with_state(None, user="Pay five.")
    (call,) = waiting.pending
    assert call.id == LONG
    moved = convert_state(waiting.state, to=to).state
    second = ScriptedBackend("Done.", "Never.", wire=to)
    chat = face.chat(second, tools=[pay])

    done = chat.resume(moved, {LONG: Approve()})
    again = chat.resume(done.state, {LONG: Approve()})

    assert (done.text, paid) == ("Done.", [5])
    assert (again.text, again.duplicate, len(second.requests)) == ("Done.", True, 1)
    assert inspect_state(again.state).status == "complete"
