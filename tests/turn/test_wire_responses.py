"""What only the Responses wire has: custom tools, responses that are incomplete, reasoning between items."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ModelSettings, ProviderTool, ToolReturn
from goaitools_py.base import rawjson
from goaitools_py.sim import Reply
from goaitools_py.states import state_messages
from goaitools_py.testing import check_history

from ._reading import RESPONSES, history_sent, messages, parts_of, roles, said

pytestmark = pytest.mark.parametrize("wire", [RESPONSES])

DRAW = ProviderTool({"type": "custom", "name": "draw"})
PICTURE = 'a fox, "red",\nbehind {no} JSON'
THINK = ModelSettings(reasoning_effort="low")


def response(*items: dict[str, Any], status: str = "completed", reason: str = "") -> Any:
    """A response of some items, as exact bytes."""
    details = {"reason": reason} if reason else None
    body = {"id": "resp_1", "object": "response", "model": "m", "status": status}
    return Reply.raw(rawjson.dumps({**body, "incomplete_details": details, "output": list(items)}))


def thought(number: int) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": []}


def spoken(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def test_a_custom_call_is_answered_in_its_own_kind(face: Any, sim: Any, run: Any) -> None:
    """What the model wrote is no JSON and stays as it is; the result is a `custom_tool_call_output`."""
    chat = face.on(sim, tools=[DRAW])
    sim.push(Reply.calls(("draw", PICTURE), ids=("call_1",)), Reply.text("I cannot draw."))

    waiting = run(chat, user="Draw a fox.")
    result = chat.resume(waiting.state, {"call_1": ToolReturn("No pencil.", is_error=True)})
    after = run(chat, result.state, user="Never mind.")

    (call,) = parts_of(history_sent(sim.requests[1]), "custom_tool_call")
    (output,) = parts_of(history_sent(sim.requests[1]), "custom_tool_call_output")
    assert (call["input"], call["call_id"], output["call_id"]) == (PICTURE, "call_1", "call_1")
    assert [(one.call.kind, one.call.arguments, one.flag) for one in result.tool_log] == [
        ("custom", PICTURE, "error")
    ]
    assert (result.text, after.status) == ("I cannot draw.", "complete")
    assert check_history(RESPONSES, state_messages(result.state)) == []
    assert sim.problems == []


def test_custom_and_function_calls_keep_their_order(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Each result has the kind of its call, in call order."""
    chat = face.on(sim, tools=[DRAW, scores.get_score])
    sim.push(
        Reply.calls(("draw", PICTURE), ("get_score", '{"team":"Red"}'), ids=("c1", "c2")), Reply.text("7.")
    )

    waiting = run(chat, user="Both.")
    result = chat.resume(waiting.state, {"c1": ToolReturn("A fox.")})

    kinds = [item["type"] for item in state_messages(result.state) if "call_id" in item]
    assert kinds == [
        "custom_tool_call",
        "function_call",
        "custom_tool_call_output",
        "function_call_output",
    ]
    assert scores.runs == ["Red"]
    assert sim.problems == []


def test_a_cut_custom_call_is_not_answered(face: Any, sim: Any, run: Any) -> None:
    """A custom call of an incomplete response is dropped like any other."""
    sim.push(Reply.calls(("draw", PICTURE[:5]), text="I draw.", finish="length"))

    result = run(face.on(sim, tools=[DRAW]), user="Draw a fox.")

    assert [warning.code for warning in result.warnings] == ["calls_dropped"]
    assert (result.status, result.finish_reason) == ("truncated", "max_output_tokens")
    assert parts_of(state_messages(result.state), "custom_tool_call") == []
    assert len(sim.requests) == 1


@pytest.mark.parametrize(
    ("reason", "status"), [("max_output_tokens", "truncated"), ("content_filter", "refused")]
)
def test_an_incomplete_response_is_a_result(face: Any, sim: Any, run: Any, reason: str, status: str) -> None:
    """Its reason is the finish reason; its text is in the history."""
    chat = face.on(sim)
    sim.push(response(spoken("Once upon"), status="incomplete", reason=reason))

    result = run(chat, user="Tell me a story.")
    after = run(chat, result.state, user="Go on.")

    assert (result.status, result.finish_reason, result.text) == (status, reason, "Once upon")
    assert [one.text for one in said(sim.requests[1])] == ["Tell me a story.", "Once upon", "Go on."]
    assert after.status == "complete"
    assert sim.problems == []


def test_reasoning_without_its_item_is_left_out(face: Any, sim: Any, run: Any) -> None:
    """A response that ran out of tokens while it thought leaves nothing that the provider would refuse."""
    chat = face.on(sim, settings=THINK)
    sim.push(response(thought(1), status="incomplete", reason="max_output_tokens"))

    result = run(chat, user="Think.")
    after = run(chat, result.state, user="Hello.")

    assert (result.status, result.text) == ("truncated", "")
    assert roles(result.state) == ["user"]
    assert after.status == "complete"
    assert sim.problems == []


def test_reasoning_goes_with_its_cut_call(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """A dropped call takes the reasoning with it that led there; what was said before stays."""
    chat = face.on(sim, settings=THINK, tools=[scores.get_score])
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_score", "arguments": '{"te'}
    items = (spoken("Let me see."), thought(1), call)
    sim.push(response(*items, status="incomplete", reason="max_output_tokens"))

    result = run(chat, user="The score?")
    after = run(chat, result.state, user="Hello.")

    assert scores.runs == []
    assert [entry["type"] for entry in state_messages(result.state)[1:]] == ["message"]
    assert (result.text, after.status) == ("Let me see.", "complete")
    assert sim.problems == []


def test_encrypted_reasoning_goes_back_as_it_came(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Nobody but the provider reads it; each item stands before the one that it led to."""
    chat = face.on(sim, settings=THINK, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), redacted=True), Reply.text("7.", redacted=True))

    result = run(chat, user="The score?")
    run(chat, result.state, user="Thanks.")

    first, second = parts_of(state_messages(result.state), "reasoning")
    assert first["encrypted_content"]
    assert first["encrypted_content"] != second["encrypted_content"]
    assert parts_of(history_sent(sim.requests[1]), "reasoning") == [first]
    assert parts_of(history_sent(sim.requests[2]), "reasoning") == [first, second]
    kinds = [item.get("type", "message") for item in history_sent(sim.requests[2])]
    assert kinds == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
        "message",
    ]
    assert [message.reasoning for message in messages(result.state)] == [""] * 4
    assert sim.problems == []


def test_nothing_is_stored_at_the_provider(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Every request says so, asks for the reasoning that it needs itself, and names no response before it."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Reply.text("7."))

    run(chat, user="The score?")

    for request in sim.requests:
        assert request.parsed["store"] is False
        assert request.parsed["include"] == ["reasoning.encrypted_content"]
        assert not {"previous_response_id", "conversation", "instructions"} & set(request.parsed)
