"""Half a surrogate pair, which no UTF-8 can hold: one rule wherever it comes in (`render.valid_text`).

Every text that is sent, stored, shown or given to a tool has U+FFFD in its place: a caller's, a tool's and a
model's. Signed thinking with half a pair is left out. Names and ids are refused, for two could become one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Document, Tool, assistant, event, tool, user
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import Raw, ScriptedBackend
from goaitools_py.types.events import TextDelta

from ._answers import Answer, anthropic_answer, chat_answer, responses_answer
from ._reading import CHAT, HISTORY, RESPONSES

HALF, MARK = "a\ud83d!", "a\ufffd!"


def says(wire: str, text: str) -> Answer:
    """An answer of this text; the JSON has half a pair as an escape."""
    if wire == CHAT:
        return chat_answer({"content": text})
    if wire == RESPONSES:
        part = {"type": "output_text", "text": text, "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return responses_answer({**said, "content": [part]})
    return anthropic_answer({"type": "text", "text": text})


def calls(wire: str, arguments: str) -> Answer:
    """An answer that calls ``look`` with these arguments, JSON text."""
    if wire == CHAT:
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
        return chat_answer({"content": None, "tool_calls": [call]}, finish="tool_calls")
    if wire == RESPONSES:
        head = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}
        return responses_answer({**head, "arguments": arguments})
    block = {"type": "tool_use", "id": "c1", "name": "look", "input": json.loads(arguments)}
    return anthropic_answer(block, stop="tool_use")


def test_what_a_caller_says(face: Any, wire: str, run: Any) -> None:
    """Messages, events, context, system text and names of documents."""
    backend = ScriptedBackend("Hm.", wire=wire)
    document = Document.from_bytes(b"%PDF", name=f"{HALF}.pdf")
    said = [event(HALF), assistant(HALF), user(HALF, document)]

    result = run(face.chat(backend), messages=said, context=HALF, system=HALF)

    body = backend.requests[0].body
    assert body.decode().count(MARK) == 6
    assert b"?!" not in body
    assert b"\\ud83d" not in body
    turn = read_history(result.state).turns[0]
    assert {message.said for message in turn.messages[:3]} == {MARK}


def test_what_a_tool_finds(face: Any, wire: str, run: Any) -> None:
    """The model, the log and the history have the same."""

    @tool
    def look(place: str) -> str:
        """Look."""
        return HALF

    backend = ScriptedBackend(calls(wire, '{"place": "hall"}'), "Done.", wire=wire)

    result = run(face.chat(backend, tools=[look]), user="Look.")

    assert MARK in backend.requests[1].body.decode()
    assert result.tool_log[0].result == MARK
    (found,) = [message for message in read_history(result.state).all_messages() if message.role == "tool"]
    assert found.text == MARK


@pytest.mark.parametrize("is_own_schema", [False, True])
def test_what_a_model_writes_for_arguments(face: Any, wire: str, run: Any, is_own_schema: bool) -> None:
    """The tool gets text that it can write, and the call is sent back with the same text."""
    places: list[str] = []

    def look(place: str) -> str:
        """Look."""
        places.append(place)
        return "quiet"

    schema = {"type": "object", "properties": {"place": {"type": "string"}}}
    backend = ScriptedBackend(calls(wire, '{"place": "a\\ud83d!"}'), "Done.", wire=wire)
    tools = [Tool("look", "Look.", schema, look) if is_own_schema else look]

    result = run(face.chat(backend, tools=tools), user="Look.")

    assert places == [MARK]
    assert result.tool_log[0].flag == "ok"
    body = backend.requests[1].body
    assert b"\\ud83d" not in body.replace(b"\\\\", b"\\")
    assert b"a\\ufffd!" in body.replace(b"\\\\", b"\\")


def test_what_a_provider_says(face: Any, wire: str, run: Any) -> None:
    """Shown, stored and sent back with the mark, streamed or not."""
    backend = ScriptedBackend(says(wire, HALF), "Done.", wire=wire)
    chat = face.chat(backend)

    first = run(chat, user="Say.")
    run(chat, first.state, user="Again.")

    assert first.text == MARK
    assert read_history(first.state).all_messages()[-1].text == MARK
    assert MARK in json.dumps(backend.bodies()[1][HISTORY[wire]], ensure_ascii=False)
    assert MARK in json.dumps(state_messages(first.state), ensure_ascii=False)
    assert b"\\ud83d" not in backend.requests[1].body


def pieces(wire: str, first: str, second: str) -> Raw:
    """A stream whose text comes in two deltas, and is whole in no event."""
    if wire == CHAT:
        chunks: list[Any] = [{"id": "c", "model": "m", "choices": [{"delta": {"role": "assistant"}}]}]
        chunks += [
            {"id": "c", "model": "m", "choices": [{"delta": {"content": one}}]} for one in (first, second)
        ]
        chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    elif wire == RESPONSES:
        part = {"type": "output_text", "text": first + second, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
        chunks = [{"type": "response.output_text.delta", "delta": one} for one in (first, second)]
        response = {"id": "r", "object": "response", "status": "completed", "output": [item]}
        chunks.append({"type": "response.completed", "response": response})
    else:
        head = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [],
            "usage": {"input_tokens": 1},
        }
        chunks = [{"type": "message_start", "message": head}]
        chunks.append(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        )
        for one in (first, second):
            text = {"type": "text_delta", "text": one}
            chunks.append({"type": "content_block_delta", "index": 0, "delta": text})
        chunks.append({"type": "content_block_stop", "index": 0})
        chunks.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
        chunks.append({"type": "message_stop"})
    return Raw([b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks])


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("a\ud83d", "\ude00b", "a😀b"),
        ("a\ud83d", "b", "a\ufffdb"),
        ("a", "b\ud83d", "ab\ufffd"),
        ("c\ude00", "b", "c\ufffdb"),
        ("\ud83d", "\ud83d\ude00", "\ufffd😀"),
    ],
)
def test_what_a_stream_says(face: Any, wire: str, first: str, second: str, text: str) -> None:
    """A pair whose halves come in two deltas is whole, for the listener too; a half alone is replaced."""
    backend = ScriptedBackend(pieces(wire, first, second), "Done.", wire=wire)
    chat = face.chat(backend)
    turn = chat.start(None, user="Say.")

    told = [one.text for one in turn if isinstance(one, TextDelta)]
    result = turn.result()
    chat.chat_with_state(result.state, user="Again.")

    assert ("".join(told), result.text) == (text, text)
    assert text in json.dumps(backend.bodies()[1][HISTORY[wire]], ensure_ascii=False)
    assert json.dumps(json.loads(backend.requests[1].body)).count("\\ud83d") == text.count("😀")


def test_names_and_reasoning_of_a_model(face: Any, wire: str, run: Any) -> None:
    """Anything else that a model writes: names of calls, reasoning, members that nobody knows."""
    if wire == CHAT:
        call = {"id": "c1", "type": "function", "function": {"name": HALF, "arguments": "{}"}, "x": HALF}
        answer = chat_answer({"content": None, "reasoning_content": HALF, "tool_calls": [call]})
    elif wire == RESPONSES:
        thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": HALF}]}
        call = {"type": "function_call", "id": "f", "call_id": "c1", "name": HALF, "arguments": "{}"}
        answer = responses_answer(thought, call)
    else:
        thought = {"type": "thinking", "thinking": HALF, "signature": ""}
        call = {"type": "tool_use", "id": "c1", "name": HALF, "input": {HALF: HALF}}
        answer = anthropic_answer(thought, call, stop="tool_use")
    backend = ScriptedBackend(answer, "Done.", wire=wire)

    result = run(face.chat(backend, tools=[known]), user="Say.")

    assert result.text == "Done."
    assert b"\\ud83d" not in backend.requests[1].body
    backend.requests[1].body.decode()


@tool
def known() -> str:
    """Do nothing."""
    return ""


def test_signed_thinking_is_verbatim_or_left_out(face: Any, run: Any) -> None:
    """Changed, its signature would be wrong. What it said before stays signed."""
    good = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    bad = {"type": "thinking", "thinking": HALF, "signature": "c2ln"}
    call = {"type": "tool_use", "id": "c1", "name": "known", "input": {}}
    other = {**call, "id": "c2"}
    steps = [
        anthropic_answer(good, call, stop="tool_use"),
        anthropic_answer(good, bad, other, stop="tool_use"),
    ]
    backend = ScriptedBackend(*steps, "Done.", wire="anthropic")

    result = run(face.chat(backend, tools=[known]), user="Say.")

    kinds = [[block["type"] for block in one["content"]] for one in backend.bodies()[2]["messages"][1::2]]
    assert kinds == [["thinking", "tool_use"], ["tool_use"]]
    assert result.text == "Done."
    assert b"\\ud83d" not in backend.requests[2].body


@pytest.mark.parametrize("member", ["reasoning_details", "thinking_blocks"])
def test_signed_details_are_verbatim_or_left_out(face: Any, run: Any, member: str) -> None:
    """The same for a gateway's signed thinking on Chat Completions."""
    sealed = [{"type": "reasoning.text", "text": HALF, "signature": "c2ln"}]
    backend = ScriptedBackend(chat_answer({"content": "Hm.", member: sealed}), "Done.")
    chat = face.chat(backend)

    first = run(chat, user="Say.")
    run(chat, first.state, user="Again.")

    assert member not in backend.bodies()[1]["messages"][1]
    assert backend.bodies()[1]["messages"][1]["content"] == "Hm."


@pytest.mark.parametrize(
    "fields",
    [{"turn_id": HALF}, {"conversation_id": HALF}, {"metadata": {"a": HALF}}, {"metadata": {HALF: "a"}}],
)
def test_names_are_refused(face: Any, fields: dict[str, Any]) -> None:
    """Before anything is sent."""
    backend = ScriptedBackend("Hm.")

    with pytest.raises(ValueError, match="surrogate"):
        face.chat(backend).chat(user="Hi.", **fields)

    assert backend.requests == []


@pytest.mark.parametrize("name", ["topic", "id"])
def test_an_events_names_are_refused(name: str) -> None:
    """Two events of different halves would be taken for one."""
    with pytest.raises(ValueError, match="surrogate"):
        event("It rains.", **{name: HALF})
