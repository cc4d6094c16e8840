"""Half a surrogate pair, which no UTF-8 can hold: one rule wherever it comes in (`render.plain`).

Every text that is sent, stored, shown or given to a tool has U+FFFD in its place. What a provider wrote is
stored as it came. Names and ids are refused, for two could become one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Document, Tool, assistant, event, tool, user
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import ScriptedBackend

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
    """The tool gets text that it can write; the stored call is as it came."""
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
    assert b"\\ud83d" in backend.requests[1].body.replace(b"\\\\", b"\\")


def test_what_a_provider_says(face: Any, wire: str, run: Any) -> None:
    """Shown with the mark, streamed or not; stored and sent back as it came."""
    backend = ScriptedBackend(says(wire, HALF), "Done.", wire=wire)
    chat = face.chat(backend)

    first = run(chat, user="Say.")
    run(chat, first.state, user="Again.")

    assert first.text == MARK
    assert read_history(first.state).all_messages()[-1].text == MARK
    assert HALF in json.dumps(backend.bodies()[1][HISTORY[wire]], ensure_ascii=False)
    assert HALF in json.dumps(state_messages(first.state), ensure_ascii=False)


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
