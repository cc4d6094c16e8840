"""Replies that say nothing: asked for once more if that is free, told, and stored nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import ProviderProtocolError, ReasoningDelta
from goaitools_py.backends.base import ModelRequest
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history
from goaitools_py.types.events import Retried

from ..kept.conftest import Threads
from ._reading import ALL, ANTHROPIC, CHAT, HISTORY, RESPONSES, roles

IN, OUT = 11, 5


def raw(request: ModelRequest, body: Any, events: list[Any]) -> Raw:
    if not request.stream:
        return Raw.body(json.dumps(body).encode())
    return Raw([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])


def chat(finish: str = "stop", *, out: int = 0, **message: Any) -> Callable[[ModelRequest], Raw]:
    said = {"role": "assistant", **message}
    head = {"id": "c", "object": "chat.completion", "model": "m"}
    usage = {"prompt_tokens": IN, "completion_tokens": out}
    body = {**head, "choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": usage}
    events = [
        {**head, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**head, "choices": [], "usage": usage},
    ]
    return lambda request: raw(request, body, events)


def responses(*items: Any, out: int = 0, status: str = "completed", **more: Any) -> Any:
    usage = {"input_tokens": IN, "output_tokens": out}
    body = {"id": "r", "object": "response", "model": "m", "status": status, "usage": usage, **more}
    body["output"] = list(items)
    events = [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(items)
    ]
    return lambda request: raw(request, body, [*events, {"type": f"response.{status}", "response": body}])


def claude(*blocks: Any, out: int = 0, stop: str = "end_turn") -> Callable[[ModelRequest], Raw]:
    usage = {"input_tokens": IN, "output_tokens": out}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    events: list[Any] = [{"type": "message_start", "message": {**head, "content": [], "stop_reason": None}}]
    for at, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage})
    body = {**head, "content": list(blocks), "stop_reason": stop}
    return lambda request: raw(request, body, [*events, {"type": "message_stop"}])


MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
EMPTY_PART = {"type": "output_text", "text": "", "annotations": []}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "abc"}

FREE = [
    pytest.param(CHAT, chat(content=""), id="chat"),
    pytest.param(CHAT, chat(content=None), id="chat-null"),
    pytest.param(CHAT, chat(), id="chat-without-content"),
    pytest.param(CHAT, chat(content=[]), id="chat-no-part"),
    pytest.param(CHAT, chat(content=[{"type": "text", "text": ""}]), id="chat-empty-part"),
    pytest.param(CHAT, chat("tool_calls", content="", tool_calls=[]), id="chat-no-call"),
    pytest.param(RESPONSES, responses(), id="responses"),
    pytest.param(RESPONSES, responses({**MESSAGE, "content": []}), id="responses-no-part"),
    pytest.param(RESPONSES, responses({**MESSAGE, "content": [EMPTY_PART]}), id="responses-empty-part"),
    pytest.param(ANTHROPIC, claude(), id="anthropic"),
    pytest.param(ANTHROPIC, claude(stop="tool_use"), id="anthropic-tool-use"),
    pytest.param(ANTHROPIC, claude({"type": "text", "text": ""}), id="anthropic-empty-block"),
]
"""Nothing said, and no output token billed."""

PAID = [
    pytest.param(CHAT, chat(content="", reasoning_content="Hm.", out=OUT), id="chat-reasoning-content"),
    pytest.param(CHAT, chat(content="", reasoning="Hm.", out=OUT), id="chat-reasoning"),
    pytest.param(
        CHAT,
        chat(content=None, reasoning_details=[{"type": "reasoning.text", "text": "Hm."}], out=OUT),
        id="chat-details",
    ),
    pytest.param(
        CHAT,
        chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}], out=OUT),
        id="chat-thinking-part",
    ),
    pytest.param(CHAT, chat(content="", out=OUT), id="chat-billed"),
    pytest.param(RESPONSES, responses(SEALED, out=OUT), id="responses-reasoning"),
    pytest.param(
        RESPONSES, responses(SEALED, {**MESSAGE, "content": [EMPTY_PART]}, out=OUT), id="responses-both"
    ),
    pytest.param(ANTHROPIC, claude(THOUGHT, out=OUT), id="anthropic-thinking"),
    pytest.param(ANTHROPIC, claude(THOUGHT, out=OUT, stop="tool_use"), id="anthropic-tool-use"),
]
"""Nothing said, but output tokens billed: asking again would be paid for twice."""

AT_LENGTH = [
    pytest.param(CHAT, chat("length", content=""), id="chat"),
    pytest.param(CHAT, chat("length", content="", reasoning_content="Hm.", out=OUT), id="chat-reasoning"),
    pytest.param(
        RESPONSES,
        responses(SEALED, out=OUT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        id="responses",
    ),
    pytest.param(ANTHROPIC, claude(THOUGHT, out=OUT, stop="max_tokens"), id="anthropic"),
]


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


def assert_goes_on(wire: str, face: Any, run: Any, backend: ScriptedBackend, state: bytes) -> None:
    """The next turn sends two messages of the user, and no reply between them."""
    after = run(face.chat(backend), state, user="Hello?")
    sent = backend.bodies()[-1][HISTORY[wire]]
    assert (after.status, after.text, codes(after)) == ("complete", "Here.", [])
    assert [entry["role"] for entry in sent] == ["user", "user"]
    assert roles(after.state) == ["user", "user", "assistant"]
    assert check_history(wire, state_messages(after.state)) == []


@pytest.mark.parametrize(("wire", "reply"), FREE)
def test_an_empty_reply_that_cost_nothing_is_asked_for_once_more(
    face: Any, run: Any, wire: str, reply: Any
) -> None:
    """Its input is in the books; the second answer is that of the turn."""
    backend = ScriptedBackend(reply, "Hello.", wire=wire, max_retries=2)
    events: list[Any] = []

    result = run(face.chat(backend, on_event=events.append), user="Hi.")

    assert (result.status, result.text, codes(result)) == ("complete", "Hello.", [])
    assert roles(result.state) == ["user", "assistant"]
    assert result.usage.requests == 2
    assert result.usage.input_tokens > IN
    assert [(one.reason, one.pause) for one in events if isinstance(one, Retried)] == [("protocol", 0.0)]
    assert backend.requests[0].body == backend.requests[1].body


@pytest.mark.parametrize(("wire", "reply"), FREE)
def test_an_empty_reply_that_comes_twice_is_told(face: Any, run: Any, wire: str, reply: Any) -> None:
    """Complete, with a warning, without an entry; and the conversation goes on."""
    backend = ScriptedBackend(reply, reply, "Here.", wire=wire, max_retries=2)

    result = run(face.chat(backend), user="Hi.")

    assert (result.status, result.text, codes(result)) == ("complete", "", ["empty_reply"])
    assert roles(result.state) == ["user"]
    assert (result.usage.input_tokens, result.usage.requests, len(backend.requests)) == (2 * IN, 2, 2)
    assert inspect_state(result.state).total_usage == result.usage
    assert_goes_on(wire, face, run, backend, result.state)


@pytest.mark.parametrize(("wire", "reply"), [*PAID, *FREE])
def test_what_was_paid_for_or_may_not_be_sent_again_is_told_at_once(
    face: Any, run: Any, wire: str, reply: Any
) -> None:
    """Without retries nothing is asked for again; nor is what output tokens were billed for."""
    backend = ScriptedBackend(reply, "Here.", wire=wire, max_retries=2 if reply in _paid() else 0)

    result = run(face.chat(backend), user="Hi.")

    assert (result.status, result.text, codes(result)) == ("complete", "", ["empty_reply"])
    assert (roles(result.state), len(backend.requests)) == (["user"], 1)
    assert_goes_on(wire, face, run, backend, result.state)


def _paid() -> list[Any]:
    return [case.values[1] for case in PAID]


@pytest.mark.parametrize("wire", ALL)
def test_an_error_with_the_same_name_is_sent_again_as_any_other(face: Any, run: Any, wire: str) -> None:
    """A server's own code for an error is not taken for an empty reply: the retries are counted."""
    error = Raw.body(json.dumps({"error": {"code": "empty_reply", "type": "empty_reply"}}).encode())
    backend = ScriptedBackend(*[error] * 5, wire=wire, max_retries=0)

    with pytest.raises(ProviderProtocolError):
        run(face.chat(backend), user="Hi.")

    assert len(backend.requests) == 1


@pytest.mark.parametrize(("wire", "reply"), AT_LENGTH)
def test_an_empty_reply_at_a_limit_is_truncated(face: Any, run: Any, wire: str, reply: Any) -> None:
    """The same limit would be reached again, so nothing is asked for once more."""
    backend = ScriptedBackend(reply, "Here.", wire=wire, max_retries=2)

    result = run(face.chat(backend), user="Hi.")

    assert (result.status, result.text, codes(result)) == ("truncated", "", ["empty_reply"])
    assert (roles(result.state), len(backend.requests)) == (["user"], 1)
    assert_goes_on(wire, face, run, backend, result.state)


def test_reasoning_that_was_handed_out_is_not_asked_for_again(face: Any) -> None:
    """A server that bills nothing has still shown its reasoning to the listener."""
    backend = ScriptedBackend(chat(content="", reasoning="Hm."), wire=CHAT, max_retries=2)
    turn = face.chat(backend).start(None, user="Hi.")

    shown = [one.text for one in turn if isinstance(one, ReasoningDelta)]

    assert (shown, turn.result().status, len(backend.requests)) == (["Hm."], "complete", 1)


# ------------------------------------------------------------------------------------- behind tools


CALLED = [
    pytest.param(CHAT, chat(content="", out=OUT), id="chat"),
    pytest.param(RESPONSES, responses(out=OUT), id="responses"),
    pytest.param(ANTHROPIC, claude(out=OUT), id="anthropic"),
]


@pytest.mark.parametrize(("wire", "reply"), CALLED)
def test_an_empty_reply_behind_results(face: Any, run: Any, scores: Any, wire: str, reply: Any) -> None:
    """The exchange stays, the tool has run once, and the turn's stored text is no earlier one."""
    asked = Calls([("get_score", {"team": "Red"})], "I look.")
    backend = ScriptedBackend(asked, reply, "Here.", wire=wire)
    chat = face.chat(backend, tools=[scores.get_score])

    result = run(chat, user="The score?", turn_id="t-1")
    again = run(chat, result.state, user="The score?", turn_id="t-1")
    after = run(chat, result.state, user="Hello?")

    assert (result.status, result.text, codes(result)) == ("complete", "", ["empty_reply"])
    assert (again.duplicate, again.text, again.status) == (True, "", "complete")
    assert roles(after.state) == ["user", "assistant", "tool", "user", "assistant"]
    assert scores.runs == ["Red"]
    assert check_history(wire, state_messages(after.state)) == []


@pytest.mark.parametrize(("wire", "reply"), CALLED)
def test_an_empty_reply_behind_results_is_asked_for_with_the_same_results(
    face: Any, run: Any, scores: Any, wire: str, reply: Any
) -> None:
    """A free one in the middle of a turn: no tool runs again."""
    free = {CHAT: chat(content=""), RESPONSES: responses(), ANTHROPIC: claude()}[wire]
    asked = Calls([("get_score", {"team": "Red"})])
    backend = ScriptedBackend(asked, free, "Seven.", wire=wire, max_retries=1)

    result = run(face.chat(backend, tools=[scores.get_score]), user="The score?")

    assert (result.text, codes(result), scores.runs) == ("Seven.", [], ["Red"])
    assert backend.requests[1].body == backend.requests[2].body
    assert roles(result.state) == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(("wire", "reply"), CALLED)
def test_an_answer_of_a_type_that_is_empty(face: Any, run: Any, wire: str, reply: Any) -> None:
    """It does not fit: the model is told so, and its next answer counts."""
    backend = ScriptedBackend(reply, "[7]", wire=wire)

    result = run(face.chat(backend), user="The points?", output_type=list[int])

    assert result.output == [7]
    assert check_history(wire, state_messages(result.state)) == []


# ------------------------------------------------------------------------------------ beside calls


CALL = {"id": "c1", "type": "function", "function": {"name": "get_score", "arguments": '{"team":"Red"}'}}


@pytest.mark.parametrize("content", ["", None, []])
def test_empty_text_beside_calls_is_sent_as_null(face: Any, run: Any, scores: Any, content: Any) -> None:
    """Moonshot refuses the empty text, and every server that takes calls takes null but Cloudflare's."""
    calls = chat("tool_calls", content=content, tool_calls=[{"index": 0, **CALL}])
    backend = ScriptedBackend(calls, "Seven.", wire=CHAT)

    run(face.chat(backend, tools=[scores.get_score]), user="The score?")

    assert not backend.bodies()[1]["messages"][1]["content"]
    assert backend.bodies()[1]["messages"][1]["content"] != ""


# -------------------------------------------------------------------------------- what is no silence


@pytest.mark.parametrize(
    "message",
    [
        {
            "content": "",
            "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
        },
        {"content": "", "refusal": "No."},
        {"content": "", "audio": {"id": "audio_1", "transcript": "Hello."}},
        {"content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"content": " "},
    ],
)
def test_a_reply_that_says_something_else_is_stored(face: Any, run: Any, message: dict[str, Any]) -> None:
    backend = ScriptedBackend(chat(**message), wire=CHAT, max_retries=2)

    result = run(face.chat(backend), user="Draw.")

    assert roles(result.state) == ["user", "assistant"]
    assert "empty_reply" not in codes(result)


# --------------------------------------------------------------------------------------------- kept


@pytest.mark.parametrize("wire", ALL)
def test_a_kept_conversation_goes_on(face: Any, wire: str) -> None:
    """The same in a store, with a checkpoint before each request."""
    free = {CHAT: chat(content=""), RESPONSES: responses(), ANTHROPIC: claude()}[wire]
    backend = ScriptedBackend(free, free, "Here.", wire=wire, max_retries=1)
    kept = Threads(face)(backend, MemoryStore(), save="checkpoint")

    first = kept.send("Hi.")
    second = kept.send("Hello?")

    assert (first.status, first.text, codes(first)) == ("complete", "", ["empty_reply"])
    assert second.text == "Here."
    assert roles(second.state) == ["user", "user", "assistant"]
