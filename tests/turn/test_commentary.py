"""Several messages in one reply of the Responses API: their texts are apart wherever they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py.backends.base import ModelRequest
from goaitools_py.states import convert_state, read_history, state_messages
from goaitools_py.testing import Raw, ScriptedBackend

from ._reading import RESPONSES
from ._talk import FORMS, Talk

FORM = pytest.mark.parametrize(("kept", "stream"), FORMS)
PAGE = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 3}


def message(text: str, phase: str | None = None, **part: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], **part}] if text else []
    item = {"type": "message", "id": f"msg_{abs(hash((text, phase))) % 1000}", "role": "assistant"}
    return {**item, "status": "completed", "content": content} | ({} if phase is None else {"phase": phase})


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
COMMENTED = [message("I look at the map.", "commentary"), message("The gate is open.", "final_answer")]
BOTH = "I look at the map.\n\nThe gate is open."

REPLIES = {
    "phases": (COMMENTED, BOTH),
    "search between": ([message("I look."), SEARCH, message("Open.")], "I look.\n\nOpen."),
    "reasoning first": ([REASONING, message("Open.")], "Open."),
    "an empty one": ([message("Open."), message("", "commentary"), message("Yes.")], "Open.\n\nYes."),
    "an empty one first": ([message(""), message("Open.")], "Open."),
    "three": ([message("a"), message("b"), message("c")], "a\n\nb\n\nc"),
    "one": ([message("Open.", "final_answer")], "Open."),
}


def answers(items: list[dict[str, Any]], *, numbered: bool = True) -> Callable[[ModelRequest], Raw]:
    """A response of these items; streamed, each text comes in two pieces. `numbered`: with positions."""

    def answer(request: ModelRequest) -> Raw:
        body = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": items}
        if not request.stream:
            return Raw.body(json.dumps(body).encode())
        events: list[dict[str, Any]] = []
        for at, item in enumerate(items):
            place = {"output_index": at} if numbered else {}
            for part in item.get("content", ()):
                for piece in (part["text"][:1], part["text"][1:]):
                    events.append({"type": "response.output_text.delta", "delta": piece, **place})
            events.append({"type": "response.output_item.done", "item": item, **place})
        events.append({"type": "response.completed", "response": body})
        return Raw([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])

    return answer


@FORM
@pytest.mark.parametrize("name", list(REPLIES))
@pytest.mark.parametrize("wire", [RESPONSES])
def test_the_texts_are_apart(face: Any, wire: str, name: str, kept: bool, stream: bool) -> None:
    """In the result, in the history, after a conversion; what is stored has no byte more."""
    items, text = REPLIES[name]
    talk = Talk(face, face.chat(ScriptedBackend(answers(items), wire=wire)), kept=kept, streamed=stream)

    result = talk.say("Open?")

    assert result.text == text
    assert read_history(result.state).all_messages()[-1].text == text
    stored = [one for one in state_messages(result.state) if one.get("type") == "message"]
    assert stored == [item for item in items if item["type"] == "message"]
    converted = read_history(convert_state(result.state, to="openai").state).all_messages()[-1].text
    assert converted.replace("\n", "").startswith(text.replace("\n", "")[:5])
    if SEARCH not in items:
        assert converted == text


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("name", list(REPLIES))
@pytest.mark.parametrize("wire", [RESPONSES])
def test_the_deltas_are_the_text(face: Any, wire: str, name: str, numbered: bool) -> None:
    """A listener reads what the result says, also of a server that gives no positions."""
    items, text = REPLIES[name]
    backend = ScriptedBackend(answers(items, numbered=numbered), wire=wire)
    turn = face.chat(backend).start(None, user="Open?")

    said = "".join(event.text for event in turn if type(event).__name__ == "TextDelta")

    assert said == turn.result().text == text


@FORM
@pytest.mark.parametrize("wire", [RESPONSES])
def test_a_citation_counts_in_the_whole_text(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """Its place is moved by what stands before it."""
    items = [message("I look.", "commentary"), message("The gate.", "final_answer", annotations=[PAGE])]
    talk = Talk(face, face.chat(ScriptedBackend(answers(items), wire=wire)), kept=kept, streamed=stream)

    result = talk.say("Open?")

    (one,) = result.citations
    assert result.text[one.start : one.end] == "The"
