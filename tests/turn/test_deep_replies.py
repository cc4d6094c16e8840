"""Replies that nest deeper than 64 levels: text and calls are kept, and the conversation goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import ModelSettings, PendingCall, ProviderProtocolError, StreamInterruptedError, Tool, tool
from goaitools_py.backends.base import ModelRequest
from goaitools_py.states import inspect_state, read_history, state_from_messages, state_messages
from goaitools_py.testing import ScriptedBackend, check_history
from goaitools_py.testing.scripted import Raw

from ._answers import Answer, anthropic_answer, chat_answer, responses_answer
from ._reading import CHAT, RESPONSES, results

DEPTHS = [65, 300, 5_000]
"""Just too deep; within the recursion limit of a C parser; far beyond it."""

MARK = "here it goes deep"


def nested(levels: int, inner: str = "1") -> str:
    """JSON text of lists in lists."""
    return "[" * levels + inner + "]" * levels


def deep(answer: Answer, text: str) -> Answer:
    """The answer with this JSON in place of the string `MARK`."""

    def filled(request: ModelRequest) -> Raw:
        raw = answer(request)
        return Raw([chunk.replace(json.dumps(MARK).encode(), text.encode()) for chunk in raw.chunks])

    return filled


def says(wire: str, **members: Any) -> Answer:
    """An answer with these members beside its text."""
    if wire == CHAT:
        return chat_answer({"content": "Hi.", **members})
    if wire == RESPONSES:
        part = {"type": "output_text", "text": "Hi.", "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return responses_answer({**said, "content": [part], **members})
    return anthropic_answer({"type": "text", "text": "Hi.", **members})


def calls(wire: str, arguments: Any) -> Answer:
    """An answer that calls ``look`` with these arguments, a JSON value on every wire."""
    if wire == CHAT:
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
        return chat_answer({"content": "Hm.", "tool_calls": [call]}, finish="tool_calls")
    if wire == RESPONSES:
        head = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look"}
        part = {"type": "output_text", "text": "Hm.", "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return responses_answer({**said, "content": [part]}, {**head, "arguments": arguments})
    block = {"type": "tool_use", "id": "c1", "name": "look", "input": arguments}
    return anthropic_answer({"type": "text", "text": "Hm."}, block, stop="tool_use")


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_deep_member_is_cut_and_the_rest_is_kept(face: Any, wire: str, run: Any, levels: int) -> None:
    """The text is the caller's, the usage is counted, the next request is one that a provider takes."""
    answer = deep(says(wire, extra={"a": [MARK], "b": "kept"}), nested(levels))
    backend = ScriptedBackend(answer, "Yes.", wire=wire)
    chat = face.chat(backend)

    first = run(chat, user="Hello?")
    second = run(chat, first.state, user="Sure?")

    assert (first.text, second.text) == ("Hi.", "Yes.")
    assert codes(first) == ["reply_cut"]
    assert "reply_cut" not in codes(second)
    if wire != CHAT or not run.is_streamed:
        assert inspect_state(first.state).total_usage.input_tokens == 9
    assert check_history(wire, state_messages(second.state)) == []
    sent = backend.requests[1].body.decode()
    assert '"kept"' in sent
    assert sent.count("[" * 50) == 1
    assert read_history(second.state).all_messages()[1].text == "Hi."


@tool
def look(place: Any) -> str:
    """Look."""
    at, levels = place, 0
    while isinstance(at, list) and at:
        at, levels = at[0], levels + 1
    return f"{levels} levels, then {at}"


@pytest.mark.parametrize("is_text", [False, True], ids=["value", "text"])
@pytest.mark.parametrize("levels", [*DEPTHS, 200_000])
def test_a_tool_runs_with_what_the_model_wrote_or_not_at_all(
    face: Any, wire: str, run: Any, levels: int, is_text: bool
) -> None:
    """Never with arguments that were cut: what Python cannot read is a result that the model can read."""
    arguments = f'{{"place": {nested(levels)}}}'
    text = json.dumps(arguments) if is_text else arguments
    backend = ScriptedBackend(deep(calls(wire, MARK), text), "Done.", wire=wire)
    chat = face.chat(backend, tools=[look])

    result = run(chat, user="Look.")

    (found,) = results(result.state)
    if levels < 200:  # pydantic reads so many
        assert found == f"{levels} levels, then 1"
    else:
        assert "nest too deep" in found
    assert (result.text, result.status) == ("Done.", "complete")
    assert check_history(wire, state_messages(result.state)) == []


def streamed_input(text: str) -> Answer:
    """A message of Anthropic's whose tool input comes in pieces, each of them a shallow event."""
    pieces = [text[at : at + 50] for at in range(0, len(text), 50)]

    def answer(request: ModelRequest) -> Raw:
        raw = calls("anthropic", {})(request)
        grown = [
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": one},
            }
            for one in pieces
        ]
        events = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in grown]
        at = next(i for i, chunk in enumerate(raw.chunks) if b'"tool_use"' in chunk) + 1
        return Raw([*raw.chunks[:at], *events, *raw.chunks[at:]])

    return answer


@pytest.mark.parametrize("levels", [61, 62, *DEPTHS])
def test_an_input_in_pieces_is_cut_where_it_is_stored(face: Any, levels: int) -> None:
    """The tool gets all of it; the stored message nests 64 levels at most."""
    backend = ScriptedBackend(
        streamed_input(f'{{"place": {nested(levels - 1)}}}'), "Done.", "Yes.", wire="anthropic"
    )
    chat = face.chat(backend, tools=[look])

    result = chat.start(None, user="Look.").result()
    after = chat.start(result.state, user="And?").result()

    assert ("reply_cut" in codes(result)) == (levels > 61)
    (found,) = results(result.state)
    assert found == f"{levels - 1} levels, then 1" if levels < 200 else "nest too deep" in found
    assert (result.text, after.text) == ("Done.", "Yes.")
    assert check_history("anthropic", state_messages(after.state)) == []
    assert '"input":{"place":[[[' in backend.requests[1].body.decode().replace(" ", "")


@pytest.mark.parametrize("levels", [60, 61, 62, 63])
def test_a_streamed_citation_may_stand_deeper_than_it_came(face: Any, levels: int) -> None:
    """Two levels deeper in the message than in its event, on Anthropic's API."""

    def answer(request: ModelRequest) -> Raw:
        raw = says("anthropic")(request)
        citation = b'{"type":"x","cited_text":"Hi.","extra":%s}' % nested(levels - 1).encode()
        event = b'{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":%s}}'
        return Raw([*raw.chunks[:2], b"data: " + event % citation + b"\n\n", *raw.chunks[2:]])

    backend = ScriptedBackend(answer, "Yes.", wire="anthropic")
    chat = face.chat(backend)

    first = chat.start(None, user="Hello?").result()
    second = chat.start(first.state, user="Sure?").result()

    assert (first.text, second.text) == ("Hi.", "Yes.")
    assert ("reply_cut" in codes(first)) == (levels > 60)
    assert check_history("anthropic", state_messages(second.state)) == []


@pytest.mark.parametrize("inner", [b"[" * 1_000_000, b'{"a":' * 200_000], ids=["lists", "objects"])
def test_a_body_of_nothing_but_openings_is_refused(face: Any, wire: str, run: Any, inner: bytes) -> None:
    """As no reply; the conversation goes on."""
    hostile = Raw([b'data: {"choices": ' + inner + b"\n\n"]) if run.is_streamed else Raw.body(inner)
    backend = ScriptedBackend(hostile, "Yes.", wire=wire)
    chat = face.chat(backend)

    with pytest.raises((ProviderProtocolError, StreamInterruptedError)) as caught:
        run(chat, user="Hello?")

    assert run(chat, caught.value.state, user="Hello?").text == "Yes."


def test_a_deep_result_of_a_tool(face: Any, wire: str, run: Any) -> None:
    """It is text to the model, or an error that the model can read."""

    @tool
    def look(place: Any) -> Any:
        """Look."""
        value: Any = 1
        for _ in range(place):
            value = [value]
        return value

    for levels in (70, 5_000):
        answer = deep(calls(wire, MARK), json.dumps(f'{{"place": {levels}}}'))
        backend = ScriptedBackend(answer, "Done.", wire=wire)
        result = run(face.chat(backend, tools=[look]), user="Look.")
        (found,) = results(result.state)
        assert found.startswith("[[[") if levels == 70 else "JSON" in found
        assert result.text == "Done."


def value(levels: int) -> Any:
    """Lists in lists."""
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


@pytest.mark.parametrize("levels", [70, 5_000])
def test_what_a_caller_gives_is_refused_before_anything_is_sent(
    face: Any, wire: str, run: Any, levels: int
) -> None:
    """Settings and hand-written schemas: the error says how deep they may be."""
    backend = ScriptedBackend("Yes.", wire=wire)
    extra = ModelSettings(extra_body={"x": value(levels)})
    schema = {"type": "object", "default": value(levels)}

    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        run(face.chat(backend, settings=extra), user="Hello?")
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        run(face.chat(backend, tools=[Tool("look", "Look.", schema, look)]), user="Hello?")

    assert backend.requests == []


@pytest.mark.parametrize("levels", [*range(57, 68), 5_000])
def test_an_imported_history_is_refused_or_works(face: Any, wire: str, levels: int) -> None:
    """Up to the very level at which it is refused, its next request is one that a provider takes."""
    part: dict[str, Any] = {"type": "text", "text": "Hi.", "extra": value(levels)}
    said: dict[str, Any] = {"role": "assistant", "content": [part]}
    if wire == RESPONSES:
        part["type"], said["type"] = "output_text", "message"
    history = [{"role": "user", "content": "Hello?"}, said]
    if levels > 61:  # it stands three levels deep in its message
        with pytest.raises(ValueError, match="nested deeper than 64 levels"):
            state_from_messages(wire, history)
        return
    state = state_from_messages(wire, history)
    backend = ScriptedBackend("Yes.", wire=wire)

    result = face.chat(backend).chat_with_state(state, user="Sure?")

    assert result.text == "Yes."
    assert check_history(wire, state_messages(result.state)) == []
    assert backend.requests[0].body.count(b"[" * levels) == 1


def test_the_arguments_of_a_waiting_call_that_nest_too_deep() -> None:
    """A documented error for whoever reads them; the text itself is there."""
    for levels in (101, 5_000):
        call = PendingCall(id="c1", name="look", arguments=nested(levels), reason="external")
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            _ = call.parsed
