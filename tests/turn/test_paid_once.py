"""Replies that are paid for and odd, but usable: each is asked for once, and what it says is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import StreamInterruptedError, TurnError, tool
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Raw, ScriptedBackend, check_history

from ._answers import anthropic_answer, chat_answer, responses_answer
from ._reading import ANTHROPIC, CHAT, RESPONSES, has_calls, roles

CHAT_USAGE = {"prompt_tokens": 11, "completion_tokens": 2}
USAGE = {"input_tokens": 11, "output_tokens": 2}
ERROR = {"code": 502, "message": "SECRET"}


def sse(*values: Any, end: str = "[DONE]") -> Any:
    data = [json.dumps(value) for value in values] + ([end] if end else [])
    return Reply.sse("".join(f"data: {one}\n\n" for one in data).encode())


def raw(value: Any) -> Any:
    return Reply.raw(json.dumps(value).encode())


def scripted(value: Any) -> Raw:
    return Raw.body(json.dumps(value).encode())


def turn(chat: Any, reply: Any, **fields: Any) -> Any:
    """A turn that is streamed if its reply is."""
    is_stream = ("content-type", "application/json") not in reply.headers
    return chat.start(None, **fields).result() if is_stream else chat.chat_with_state(None, **fields)


# ------------------------------------------------------- calls that a limit cut, under another stop word

CUT = [{"index": 0, "id": "c1", "type": "function", "function": {"name": "get_score", "arguments": '{"te'}}]
WORDS = ["length", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens"]


def cut_chat(word: str, native: str | None, *, streamed: bool) -> Any:
    ended = {"finish_reason": word, "native_finish_reason": native}
    said = {"role": "assistant", "content": None, "tool_calls": CUT}
    base = {"id": "r", "object": "chat.completion", "model": "m"}
    if not streamed:
        return raw(base | {"choices": [{"index": 0, "message": said, **ended}], "usage": CHAT_USAGE})
    return sse(
        base | {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, **ended}], "usage": CHAT_USAGE},
    )


def cut_response(*, streamed: bool, **members: Any) -> Any:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "get_score", "arguments": '{"te'}
    call |= members.pop("call", {})
    body = {"id": "r", "object": "response", "model": "m", "status": "completed", "usage": USAGE}
    body |= {"output": [call], **members}
    if not streamed:
        return raw(body)
    return sse(
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.completed", "response": body},
        end="",
    )


CUT_CALLS = [
    pytest.param(wire, make(streamed=streamed, **fields), id=f"{wire}-{name}-{'sse' if streamed else 'body'}")
    for streamed in (False, True)
    for wire, name, make, fields in (
        *((CHAT, f"native {one}", cut_chat, {"word": "tool_calls", "native": one}) for one in WORDS),
        *((CHAT, one, cut_chat, {"word": one, "native": None}) for one in WORDS),
        (CHAT, "native of stop", cut_chat, {"word": "stop", "native": "MAX_TOKENS"}),
        (RESPONSES, "reason", cut_response, {"incomplete_details": {"reason": "max_output_tokens"}}),
        (RESPONSES, "call", cut_response, {"call": {"status": "incomplete"}}),
    )
]


@pytest.mark.parametrize(("wire", "reply"), CUT_CALLS)
def test_calls_that_a_limit_cut_are_asked_for_once(
    face: Any, sim: Any, scores: Any, wire: str, reply: Any
) -> None:
    """Whatever a gateway calls the end: the result says "truncated", no call runs and none is stored."""
    sim.push(reply, Reply.text("Hello."))
    chat = face.on(sim, tools=[scores.get_score])

    result = turn(chat, reply, user="The score?")
    after = chat.chat_with_state(result.state, user="Hello.")

    assert (result.status, result.usage.requests, len(sim.requests)) == ("truncated", 1, 2)
    assert [warning.code for warning in result.warnings] == ["calls_dropped"]
    assert scores.runs == []
    assert not has_calls(result.state)
    assert after.text == "Hello."


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("native", ["SAFETY", "refusal", "content_filter"])
@pytest.mark.parametrize("wire", [CHAT])
def test_calls_that_a_filter_ended_are_not_run(
    face: Any, sim: Any, scores: Any, native: str, streamed: bool
) -> None:
    """The same for a filter, whose word stands under the same name."""
    reply = cut_chat("tool_calls", native, streamed=streamed)
    sim.push(reply)

    result = turn(face.on(sim, tools=[scores.get_score]), reply, user="The score?")

    assert (result.status, result.finish_reason, len(sim.requests)) == ("refused", native, 1)
    assert scores.runs == []


@pytest.mark.parametrize("native", [None, "stop", "tool_use", "STOP", "completed"])
@pytest.mark.parametrize("wire", [CHAT])
def test_whole_calls_run_whatever_the_native_word(
    face: Any, sim: Any, scores: Any, native: str | None
) -> None:
    """Any other native word changes nothing."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_score", "arguments": '{"team":"Red"}'}}
    choice = {"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    sim.push(raw({"id": "r", "choices": [choice | {"native_finish_reason": native}]}), Reply.text("1:0"))

    result = face.on(sim, tools=[scores.get_score]).chat_with_state(None, user="The score?")

    assert (result.status, result.text, scores.runs) == ("complete", "1:0", ["Red"])


@pytest.mark.parametrize("word", ["length", "MAX_TOKENS"])
@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_a_text_that_a_limit_cut_is_truncated(face: Any, sim: Any, word: str) -> None:
    """Also by a gateway that passes another provider's word on."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Once upon"}]}
    sim.push(raw(said | {"stop_reason": word, "usage": USAGE}))

    result = face.on(sim).chat_with_state(None, user="A story.")

    assert (result.status, result.text, result.finish_reason) == ("truncated", "Once upon", word)


# ------------------------------------------------------------------- an error beside text in one body

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Once upon"}, "finish_reason": "stop"}
ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Once upon"}]}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Once upon"}]}
RESPONSE = {"id": "r", "object": "response", "output": [ITEM], "usage": USAGE}
HALF = b'data: {"choices":[{"index":0,"delta":{"content":"Once upon"}}]}\n\ndata: {"error":{"code":502}}\n\n'

UNENDED = CHOICE | {"finish_reason": None}
BROKEN_OFF = [
    pytest.param(CHAT, raw({"choices": [UNENDED], "error": ERROR, "usage": CHAT_USAGE}), id="chat"),
    pytest.param(
        CHAT,
        raw({"choices": [CHOICE | {"error": ERROR, "finish_reason": "error"}], "usage": CHAT_USAGE}),
        id="chat-choice",
    ),
    pytest.param(
        CHAT,
        raw({"choices": [UNENDED], "error": {"message": "SECRET"}, "usage": CHAT_USAGE}),
        id="chat-nameless",
    ),
    pytest.param(
        CHAT, raw({"choices": [UNENDED], "error": ERROR | {"code": 400}, "usage": CHAT_USAGE}), id="chat-400"
    ),
    pytest.param(RESPONSES, raw(RESPONSE | {"error": ERROR}), id="responses"),
    pytest.param(
        RESPONSES,
        raw(RESPONSE | {"status": "failed", "error": {"code": "server_error", "message": "SECRET"}}),
        id="responses-failed",
    ),
    pytest.param(RESPONSES, raw(RESPONSE | {"status": "failed"}), id="responses-failed-nameless"),
    pytest.param(ANTHROPIC, raw(MESSAGE | {"error": ERROR, "usage": USAGE}), id="anthropic"),
    pytest.param(
        ANTHROPIC,
        raw(MESSAGE | {"type": "error", "error": {"type": "overloaded_error"}, "usage": USAGE}),
        id="anthropic-error",
    ),
    pytest.param(
        ANTHROPIC,
        raw(MESSAGE | {"content": "Once upon", "error": ERROR, "usage": USAGE}),
        id="anthropic-string",
    ),
]


@pytest.mark.parametrize(("wire", "reply"), BROKEN_OFF)
def test_text_beside_an_error_is_kept_and_not_asked_for_again(
    face: Any, sim: Any, wire: str, reply: Any
) -> None:
    """As of a stream that breaks off: one request, paid for, its text in the error and in the state."""
    chat = face.on(sim, max_retries=2)
    sim.push(reply, Reply.text("Once upon a time."))

    with pytest.raises(StreamInterruptedError) as caught:
        chat.chat_with_state(None, user="A story.")
    error = caught.value

    assert (error.partial_text, error.retryable, len(sim.requests)) == ("Once upon", True, 1)
    assert read_history(error.state).turns[-1].partial_text == "Once upon"
    assert error.usage.input_tokens == inspect_state(error.state).total_usage.input_tokens == 11
    assert "SECRET" not in f"{error} {error!r} {error.__cause__!r}"
    after = chat.resume(error.state)
    assert after.text == "Once upon a time."
    assert roles(after.state) == ["user", "assistant"]
    assert check_history(wire, state_messages(after.state)) == []


ENDED = MESSAGE | {"stop_reason": "end_turn", "usage": USAGE}
DONE = RESPONSE | {"status": "completed"}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "Once upon"}, "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": CHAT_USAGE}
TEXT = {"type": "text", "text": ""}
EVENTS = (
    {"type": "message_start", "message": MESSAGE | {"content": [], "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": TEXT},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Once upon"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
)


def events(*given: dict[str, Any]) -> Raw:
    """A stream of these events, whole or in the body of a request that asked for none."""
    return Raw.body(b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in given))


WHOLE = [
    pytest.param(CHAT, {"choices": [CHOICE], "error": ERROR, "usage": CHAT_USAGE}, id="chat"),
    pytest.param(CHAT, {"choices": [CHOICE | {"error": ERROR}], "usage": CHAT_USAGE}, id="chat-choice"),
    pytest.param(CHAT, {"choices": [CHOICE], "error": "SECRET", "usage": CHAT_USAGE}, id="chat-nameless"),
    pytest.param(CHAT, (CHUNK, LAST, {"error": ERROR}), id="chat-event"),
    pytest.param(CHAT, (CHUNK, LAST, {"object": "error", "code": 503, "message": "SECRET"}), id="chat-vllm"),
    pytest.param(CHAT, (CHUNK, LAST | {"error": ERROR}), id="chat-last-event"),
    pytest.param(RESPONSES, DONE | {"error": ERROR}, id="responses"),
    pytest.param(
        RESPONSES,
        ({"type": "response.completed", "response": DONE | {"error": ERROR}},),
        id="responses-last-event",
    ),
    pytest.param(ANTHROPIC, ENDED | {"error": ERROR}, id="anthropic"),
    pytest.param(ANTHROPIC, (*EVENTS, {"type": "error", "error": ERROR}), id="anthropic-event"),
]


@pytest.mark.parametrize("ways", ["own", "fallback"])
@pytest.mark.parametrize(("wire", "answer"), WHOLE)
def test_a_whole_reply_beside_an_error_is_the_reply(
    face: Any, run: Any, wire: str, answer: Any, ways: str
) -> None:
    """Its own last word says that it is whole. It is paid for, and neither provider is asked again."""
    body = events(*answer) if isinstance(answer, tuple) else scripted(answer)
    backend = ScriptedBackend(body, "Again.", wire=wire, max_retries=2)
    other = ScriptedBackend("Again.")
    chat = face.chat(backend, fallbacks=[other] if ways == "fallback" else [])

    result = run(chat, user="A story.")

    assert (result.status, result.text, len(backend.requests)) == ("complete", "Once upon", 1)
    assert (result.usage.input_tokens, result.usage.requests, other.requests) == (11, 1, [])
    assert check_history(wire, state_messages(result.state)) == []
    assert "SECRET" not in str(state_messages(result.state))


def test_calls_of_a_whole_reply_beside_an_error_run(face: Any, run: Any, scores: Any) -> None:
    """They are whole, too."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_score", "arguments": '{"team":"Red"}'}}
    choice = {"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    backend = ScriptedBackend(scripted({"choices": [choice], "error": ERROR}), "1:0")

    result = run(face.chat(backend, tools=[scores.get_score]), user="The score?")

    assert (result.text, scores.runs) == ("1:0", ["Red"])


SILENT = [
    pytest.param(CHAT, {"choices": [CHOICE | {"message": {"content": ""}}]}, id="chat"),
    pytest.param(RESPONSES, DONE | {"output": []}, id="responses"),
    pytest.param(
        RESPONSES, DONE | {"output": [{"type": "reasoning", "id": "r", "summary": []}]}, id="responses-thinks"
    ),
    pytest.param(ANTHROPIC, ENDED | {"content": []}, id="anthropic"),
    pytest.param(
        ANTHROPIC,
        ENDED | {"content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]},
        id="anthropic-thinks",
    ),
]


@pytest.mark.parametrize(("wire", "answer"), SILENT)
def test_a_reply_that_says_nothing_beside_an_error_is_the_error(
    face: Any, run: Any, wire: str, answer: Any
) -> None:
    """Whatever its last word is: nothing is lost, and a passing error is tried again."""
    backend = ScriptedBackend(scripted(answer | {"error": ERROR}), "Again.", wire=wire, max_retries=1)

    assert run(face.chat(backend), user="A story.").text == "Again."
    assert len(backend.requests) == 2


UNUSABLE = [
    pytest.param(
        CHAT, scripted({"choices": [{"message": {"content": "Once upon", "tool_calls": 5}}]}), id="chat-calls"
    ),
    pytest.param(RESPONSES, scripted(RESPONSE | {"status": "in_progress"}), id="responses-unfinished"),
    pytest.param(
        RESPONSES,
        scripted(RESPONSE | {"status": "completed", "output": [ITEM, {"type": "function_call_output"}]}),
        id="responses-result",
    ),
    pytest.param(ANTHROPIC, scripted(MESSAGE | {"content": "Once upon"}), id="anthropic-string"),
    pytest.param(
        ANTHROPIC,
        scripted(MESSAGE | {"content": [*MESSAGE["content"], {"type": "tool_result"}]}),
        id="anthropic-result",
    ),
    pytest.param(CHAT, Raw.body(HALF), id="chat-stream-in-a-body"),
]


@pytest.mark.parametrize(("wire", "reply"), UNUSABLE)
def test_text_of_an_answer_that_is_no_reply_is_kept(face: Any, wire: str, reply: Any) -> None:
    """An answer that cannot be stored, or has not ended, still has a text that was paid for."""
    backend = ScriptedBackend(reply, "Once upon a time.", wire=wire, max_retries=2)
    chat = face.chat(backend)

    with pytest.raises(TurnError) as caught:
        chat.chat_with_state(None, user="A story.")

    assert (caught.value.partial_text, len(backend.requests)) == ("Once upon", 1)
    assert read_history(caught.value.state).turns[-1].partial_text == "Once upon"
    assert chat.resume(caught.value.state).text == "Once upon a time."


# -------------------------------------------------------------------- calls that say "no arguments"

NONE = [None, "", "null", "None", "undefined", "[]", '""', '"null"', '"{}"', {}, []]


def answer(wire: str, arguments: Any, *, is_missing: bool) -> Any:
    if wire == ANTHROPIC:
        block = {"type": "tool_use", "id": "t1", "name": "ping", "input": arguments}
        if is_missing:
            del block["input"]
        return anthropic_answer(block, stop="tool_use")
    if wire == RESPONSES:
        call = {"type": "function_call", "id": "f", "call_id": "c", "name": "ping", "arguments": arguments}
        if is_missing:
            del call["arguments"]
        return responses_answer(call)
    function = {"name": "ping", "arguments": arguments}
    if is_missing:
        del function["arguments"]
    called = {"id": "c", "type": "function", "function": function}
    return chat_answer({"tool_calls": [called]}, finish="tool_calls")


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC])
@pytest.mark.parametrize("arguments", ["missing", *NONE], ids=repr)
@pytest.mark.parametrize("family", [None, "local"])
def test_a_call_without_arguments_runs(
    face: Any, run: Any, wire: str, arguments: Any, family: str | None
) -> None:
    """However a model or a server writes that there are none, and whoever runs the server."""
    runs: list[str] = []

    @tool
    def ping() -> str:
        """Say that you are there."""
        runs.append("ping")
        return "pong"

    made = answer(wire, arguments, is_missing=arguments == "missing")
    backend = ScriptedBackend(made, "Done.", wire=wire, dialect=dialect_of(wire, family=family))

    result = run(face.chat(backend, tools=[ping]), user="Are you there?")

    assert (runs, result.text, len(backend.requests)) == (["ping"], "Done.", 2)
    assert check_history(wire, state_messages(result.state)) == []
