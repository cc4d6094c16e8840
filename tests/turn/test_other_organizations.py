"""Another organization's key in the middle of a conversation: no signature of before is valid there."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ModelSettings, ToolReturn, tool
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.sim import Reply
from goaitools_py.sim.anthropic import signing
from goaitools_py.sim.openai import responses_reasoning
from goaitools_py.states import state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC, RESPONSES

MODELS = [
    (RESPONSES, "gpt-5.6", {}),
    (ANTHROPIC, "claude-opus-5-5", {}),
    (ANTHROPIC, "claude-sonnet-4-5", {"settings": ModelSettings(thinking_budget_tokens=1024)}),
]


@tool(external=True)
def look(team: str) -> str:
    """Look at a team."""
    raise NotImplementedError


@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize(("wire", "model", "fields"), MODELS, ids=[model for _, model, _ in MODELS])
def test_a_tool_loop_goes_on_with_another_key(
    face: Any,
    sim: Any,
    run: Any,
    monkeypatch: Any,
    wire: str,
    model: str,
    fields: dict[str, Any],
    turns: int,
) -> None:
    """The signed thinking of closed turns and of the open one goes, and no result is lost."""
    backend = sim.backend(model, is_async=face.is_async)
    backend.dialect = dialect_of(wire)
    chat = face.chat(backend, tools=[look], **fields)
    state = None
    for _ in range(turns):
        sim.push(Reply.text("Hello.", thinking="Hm."))
        state = run(chat, state, user="Hello.").state
    sim.push(Reply.calls(("look", '{"team":"Red"}'), thinking="Hm."), Reply.text("7.", thinking="Hm."))
    waiting = run(chat, state, user="The score?")

    monkeypatch.setattr(signing, "_KEY", b"another organization")
    monkeypatch.setattr(responses_reasoning, "_SECRET", b"another organization")
    done = chat.resume(waiting.state, {one.id: ToolReturn("7") for one in waiting.pending})
    refused = len(sim.problems)
    sim.push(Reply.text("Welcome.", thinking="Hm."))
    run(chat, done.state, user="Thanks.")

    assert (done.text, done.status) == ("7.", "complete")
    assert [record.flag for record in done.tool_log] == ["ok"]
    assert check_history(wire, state_messages(done.state)) == []
    assert len(sim.problems) == refused
