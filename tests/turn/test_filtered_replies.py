"""Replies that a filter took away whole: a result that says so, paid for, and the conversation goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import ProviderProtocolError, StreamInterruptedError
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC, CHAT, RESPONSES, roles

JSON = {"content-type": "application/json"}
CHAT_USAGE = {"prompt_tokens": 11, "completion_tokens": 0, "total_tokens": 11}
USAGE = {"input_tokens": 11, "output_tokens": 0}


def body(value: Any) -> Any:
    """One JSON body."""
    return Reply.raw(json.dumps(value).encode())


def events(*values: Any, end: str = "") -> Any:
    """An event stream; its last word is `end`."""
    data = [json.dumps(value) for value in values] + ([end] if end else [])
    return Reply.sse("".join(f"data: {one}\n\n" for one in data).encode())


def filtered_choice(reason: str, **members: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "m", "choices": [{"index": 0, "finish_reason": reason, **members}]}


RESPONSE = {
    "id": "r1",
    "object": "response",
    "status": "incomplete",
    "incomplete_details": {"reason": "content_filter"},
    "model": "m",
    "usage": USAGE,
}
MESSAGE = {"id": "r1", "type": "message", "role": "assistant", "model": "m", "usage": USAGE}

REFUSED = [
    pytest.param(CHAT, body(filtered_choice("content_filter") | {"usage": CHAT_USAGE}), id="chat-azure"),
    pytest.param(
        CHAT,
        body(
            filtered_choice("content_filter", message=None, content_filter_results={}) | {"usage": CHAT_USAGE}
        ),
        id="chat-null",
    ),
    pytest.param(
        CHAT,
        body(filtered_choice("content_filter: PROHIBITED_CONTENT") | {"usage": CHAT_USAGE}),
        id="chat-with-a-reason",
    ),
    pytest.param(
        CHAT,
        events(
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            filtered_choice("content_filter"),
            {"choices": [], "usage": CHAT_USAGE},
            end="[DONE]",
        ),
        id="chat-stream",
    ),
    pytest.param(
        CHAT,
        events(filtered_choice("content_filter", delta=None) | {"usage": CHAT_USAGE}, end="[DONE]"),
        id="chat-stream-null",
    ),
    pytest.param(RESPONSES, body(RESPONSE | {"output": []}), id="responses"),
    pytest.param(RESPONSES, body(RESPONSE | {"output": None}), id="responses-null"),
    pytest.param(RESPONSES, body(RESPONSE), id="responses-without-output"),
    pytest.param(
        RESPONSES, events({"type": "response.incomplete", "response": RESPONSE}), id="responses-stream"
    ),
    pytest.param(ANTHROPIC, body(MESSAGE | {"content": [], "stop_reason": "refusal"}), id="anthropic"),
    pytest.param(ANTHROPIC, body(MESSAGE | {"content": None, "stop_reason": "refusal"}), id="anthropic-null"),
    pytest.param(ANTHROPIC, body(MESSAGE | {"stop_reason": "refusal"}), id="anthropic-without-content"),
    pytest.param(
        ANTHROPIC,
        events(
            {"type": "message_start", "message": MESSAGE | {"content": []}},
            {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": USAGE},
            {"type": "message_stop"},
        ),
        id="anthropic-stream",
    ),
]


def turn(chat: Any, reply: Any, state: bytes | None = None, **fields: Any) -> Any:
    """A turn that is streamed if its reply is."""
    is_stream = ("content-type", "application/json") not in reply.headers
    return chat.start(state, **fields).result() if is_stream else chat.chat_with_state(state, **fields)


@pytest.mark.parametrize(("wire", "reply"), REFUSED)
def test_a_reply_that_was_filtered_whole_is_a_refusal(face: Any, sim: Any, wire: str, reply: Any) -> None:
    """No text, no message even: status "refused", the usage counted, nothing raised or asked again."""
    chat = face.on(sim, max_retries=2)
    sim.push(reply, Reply.text("Hello."))

    result = turn(chat, reply, user="Say it.")
    after = chat.chat_with_state(result.state, user="Hello?")

    assert (result.status, result.text) == ("refused", "")
    assert result.finish_reason.startswith(("content_filter", "refusal"))
    assert (result.usage.input_tokens, result.usage.requests) == (11, 1)
    assert len(sim.requests) == 2
    assert check_history(wire, state_messages(result.state)) == []
    assert (after.status, after.text) == ("complete", "Hello.")
    assert [role for role in roles(after.state) if role == "user"] == ["user", "user"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", [CHAT])
def test_an_answer_cut_off_before_its_first_word_is_truncated(face: Any, sim: Any) -> None:
    """Gemini's endpoint leaves the message out when thinking took all the tokens there were."""
    reply = body(filtered_choice("length") | {"usage": CHAT_USAGE})
    chat = face.on(sim)
    sim.push(reply)

    result = turn(chat, reply, user="Think.")

    assert (result.status, result.text, result.usage.input_tokens) == ("truncated", "", 11)


NO_MESSAGE = [
    pytest.param(CHAT, body({"choices": [], "usage": CHAT_USAGE}), id="no-choice"),
    pytest.param(CHAT, body(filtered_choice("stop") | {"usage": CHAT_USAGE}), id="no-message"),
    pytest.param(CHAT, body(filtered_choice("stop", message=[]) | {"usage": CHAT_USAGE}), id="no-object"),
    pytest.param(RESPONSES, body(RESPONSE | {"status": "completed", "output": 5}), id="responses"),
    pytest.param(ANTHROPIC, body(MESSAGE | {"content": 5, "stop_reason": "end_turn"}), id="anthropic"),
]


@pytest.mark.parametrize(("wire", "reply"), NO_MESSAGE)
def test_the_usage_of_an_answer_that_is_none_is_counted(face: Any, sim: Any, wire: str, reply: Any) -> None:
    """Whatever else is missing: what the server says it consumed will be on the bill."""
    chat = face.on(sim)
    sim.push(reply)

    with pytest.raises(ProviderProtocolError) as caught:
        turn(chat, reply, user="Hello?")

    assert caught.value.usage.input_tokens == 11
    assert inspect_state(caught.value.state).total_usage.input_tokens == 11


@pytest.mark.parametrize(
    ("wire", "reply"),
    [
        pytest.param(
            CHAT,
            events({"choices": [{"index": 0, "delta": {"content": "Hel"}}], "usage": CHAT_USAGE}),
            id="chat",
        ),
        pytest.param(
            RESPONSES,
            events(
                {"type": "response.output_text.delta", "delta": "Hel"},
                {
                    "type": "response.failed",
                    "response": RESPONSE | {"status": "failed", "error": {"code": "server_error"}},
                },
            ),
            id="responses",
        ),
        pytest.param(
            ANTHROPIC,
            events(
                {"type": "message_start", "message": MESSAGE | {"content": []}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}},
            ),
            id="anthropic",
        ),
    ],
)
def test_the_usage_of_a_stream_that_broke_off_is_counted(face: Any, sim: Any, wire: str, reply: Any) -> None:
    """Once, as far as the server had said it."""
    chat = face.on(sim)
    sim.push(reply)

    with pytest.raises(StreamInterruptedError) as caught:
        turn(chat, reply, user="Hello?")

    assert (caught.value.partial_text, caught.value.usage.input_tokens) == ("Hel", 11)
    assert inspect_state(caught.value.state).total_usage.input_tokens == 11
