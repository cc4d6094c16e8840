"""Replies that no provider should send: the conversation goes on with what can be sent back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import ProviderProtocolError
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC, CHAT, RESPONSES

CHAT_USAGE = {"prompt_tokens": 11, "completion_tokens": 2}
USAGE = {"input_tokens": 11, "output_tokens": 2}


def chat_body(**message: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": CHAT_USAGE}).encode()


def response(*items: Any) -> bytes:
    return json.dumps({"status": "completed", "output": items, "usage": USAGE}).encode()


def anthropic(content: Any) -> bytes:
    body = {"type": "message", "role": "tool", "content": content, "stop_reason": "end_turn", "usage": USAGE}
    return json.dumps(body).encode()


TAKEN = [
    pytest.param(CHAT, chat_body(role="tool", content="Hi."), id="chat-tool"),
    pytest.param(CHAT, chat_body(role=7, content="Hi."), id="chat-number"),
    pytest.param(CHAT, chat_body(role="user", content=["Hi."]), id="chat-strings"),
    pytest.param(
        RESPONSES, response({"type": "message", "role": "user", "content": "Hi."}), id="responses-user"
    ),
    pytest.param(RESPONSES, response({"content": [{"text": "Hi."}]}), id="responses-bare"),
    pytest.param(ANTHROPIC, anthropic("Hi."), id="anthropic-string"),
    pytest.param(ANTHROPIC, anthropic([{"type": "text", "text": "Hi."}]), id="anthropic-tool"),
]
REFUSED = [
    pytest.param(CHAT, chat_body(role="assistant", tool_calls=5), id="chat-calls"),
    pytest.param(RESPONSES, response({"id": "x"}), id="responses-nothing"),
    pytest.param(
        RESPONSES,
        response({"type": "function_call_output", "call_id": "c0", "output": "x"}),
        id="responses-result",
    ),
    pytest.param(ANTHROPIC, anthropic([{"type": "tool_result", "tool_use_id": "c0"}]), id="anthropic-result"),
]


@pytest.mark.parametrize(("wire", "body"), TAKEN)
def test_an_impossible_reply_is_mended_and_the_conversation_goes_on(
    face: Any, sim: Any, wire: str, body: bytes
) -> None:
    """The text is the caller's, the stored message the assistant's, and the next request is taken."""
    chat = face.on(sim)
    sim.push(Reply.raw(body), Reply.text("Hello."))

    result = chat.chat_with_state(None, user="Hello?")
    after = chat.chat_with_state(result.state, user="And now?")

    assert (result.text, after.text) == ("Hi.", "Hello.")
    assert check_history(wire, state_messages(after.state)) == []
    assert sim.problems == []


@pytest.mark.parametrize(("wire", "body"), REFUSED)
def test_a_reply_that_cannot_be_sent_back_is_a_protocol_error(
    face: Any, sim: Any, wire: str, body: bytes
) -> None:
    """Its usage is counted, and the conversation goes on without it."""
    chat = face.on(sim)
    sim.push(Reply.raw(body), Reply.text("Hello."))

    with pytest.raises(ProviderProtocolError) as caught:
        chat.chat_with_state(None, user="Hello?")
    after = chat.resume(caught.value.state)

    assert inspect_state(caught.value.state).total_usage.input_tokens == 11
    assert after.text == "Hello."
    assert check_history(wire, state_messages(after.state)) == []
    assert sim.problems == []
