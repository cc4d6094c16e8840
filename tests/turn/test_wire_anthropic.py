"""What only Anthropic's wire has: containers that are carried along, thinking that nobody can read."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ModelSettings, ProviderTool
from goaitools_py.base import rawjson
from goaitools_py.sim import Reply
from goaitools_py.states import read_history, state_messages

from ._reading import ANTHROPIC, history_sent, parts_of

pytestmark = pytest.mark.parametrize("wire", [ANTHROPIC])

CODE = ProviderTool({"type": "code_execution_20250825", "name": "code_execution"})
THINK = ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096)


def containers(sim: Any) -> list[Any]:
    """The container that each request names."""
    return [request.parsed.get("container") for request in sim.requests]


def ran_in(container: str, expires_at: str) -> Any:
    """An answer whose tools ran in a container, as exact bytes."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn",
        "container": {"id": container, "expires_at": expires_at},
    }
    return Reply.raw(rawjson.dumps(message))


def test_a_container_is_carried_along(face: Any, sim: Any, run: Any) -> None:
    """Later requests name the machine on which the provider's tools ran, across turns, and the newest."""
    chat = face.on(sim, tools=[CODE])
    sim.push(
        Reply.text("Done.", container="container_sim_1"),
        Reply.text("Done."),
        Reply.text("Done.", container="container_sim_2"),
    )

    state = None
    for number in range(4):
        state = run(chat, state, user=f"Compute {number}.").state

    assert containers(sim) == [None, "container_sim_1", "container_sim_1", "container_sim_2"]
    assert "container_sim" not in str(read_history(state).all_messages())
    assert sim.problems == []


def test_a_paused_reply_goes_on_in_its_container(face: Any, sim: Any, run: Any) -> None:
    """The continuation within the turn names it as well."""
    sim.push(
        Reply.pause("Let me see. ", tool="code_execution", container="container_sim_1"), Reply.text("4.")
    )

    result = run(face.on(sim, tools=[CODE]), user="Compute.")

    assert containers(sim) == [None, "container_sim_1"]
    assert result.text == "Let me see. 4."
    assert sim.problems == []


@pytest.mark.parametrize(
    ("expires_at", "is_sent"),
    [("2099-12-31T23:59:59Z", True), ("2020-01-01T00:00:00Z", False), ("", False), ("tomorrow", False)],
    ids=["good", "expired", "no end", "no time"],
)
def test_an_expired_container_is_left_out(face: Any, sim: Any, expires_at: str, is_sent: bool) -> None:
    """A container that is gone would be refused with every request that follows, so nobody names it."""
    chat = face.on(sim, tools=[CODE])
    sim.push(ran_in("container_sim_1", expires_at))
    state = chat.chat(user="Compute.").state

    result = chat.chat_with_state(state, user="Once more.")

    assert containers(sim) == [None, "container_sim_1" if is_sent else None]
    assert result.status == "complete"
    assert sim.problems == []


def test_a_container_without_tools_is_not_named(face: Any, sim: Any) -> None:
    """Where nothing could run in it, it is left out; with tools again it is back."""
    sim.push(Reply.text("Done.", container="container_sim_1"))
    state = face.on(sim, tools=[CODE]).chat(user="Compute.").state

    state = face.on(sim).chat_with_state(state, user="Thanks.").state
    face.on(sim, tools=[CODE]).chat_with_state(state, user="Once more.")

    assert containers(sim) == [None, None, "container_sim_1"]
    assert sim.problems == []


def test_redacted_thinking_goes_back_as_it_came(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Nobody but the provider reads it; it stands before its call when the result is sent, and later."""
    chat = face.on(sim, settings=THINK, tools=[scores.get_score])
    call = Reply.calls(("get_score", '{"team":"Red"}'), text="Let me see.", redacted=True)
    sim.push(call, Reply.text("7.", redacted=True), Reply.text("Welcome."))

    result = run(chat, user="The score?")
    run(chat, result.state, user="Thanks.")

    first, second = parts_of(state_messages(result.state), "redacted_thinking")
    assert first["data"] != second["data"]
    assert parts_of(history_sent(sim.requests[1]), "redacted_thinking") == [first]
    assert parts_of(history_sent(sim.requests[2]), "redacted_thinking") == [first, second]
    blocks = [block["type"] for block in history_sent(sim.requests[1])[1]["content"]]
    assert blocks == ["redacted_thinking", "text", "tool_use"]
    assert [message.reasoning for message in read_history(result.state).all_messages()] == [""] * 4
    assert scores.runs == ["Red"]
    assert sim.problems == []


def test_redacted_thinking_ends_with_its_prefix(face: Any, sim: Any, run: Any) -> None:
    """Behind another preamble it is taken out like any signed thinking, with a warning."""
    chat = face.on(sim, settings=THINK)
    sim.push(Reply.text("Hello, Ada.", redacted=True))
    before = run(chat, user="My name is Ada.", system="You are a guide.").state

    result = run(chat, before, user="Who am I?", system="You are a cook.")

    assert [warning.code for warning in result.warnings] == ["preamble_changed", "thinking_removed"]
    assert parts_of(history_sent(sim.requests[1]), "redacted_thinking") == []
    assert "Your name is Ada." in result.text
    assert sim.problems == []


def test_thinking_without_its_text_goes_back_too(face: Any, sim: Any, run: Any) -> None:
    """A block whose text was left out on request is complete: its signature holds the thought."""
    hidden = {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}}
    chat = face.on(sim, settings=ModelSettings(max_output_tokens=4096, extra_body=hidden))
    sim.push(Reply.text("Hello.", thinking="They greet me."))

    result = run(chat, user="Hello.")
    run(chat, result.state, user="Hello again.")

    (thought,) = parts_of(state_messages(result.state), "thinking")
    assert thought["thinking"] == ""
    assert thought["signature"]
    assert parts_of(history_sent(sim.requests[1]), "thinking") == [thought]
    assert sim.problems == []
