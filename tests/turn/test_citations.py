"""Sources that a reply names: shown in the result and the history, kept over a reload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import Raw, ScriptedBackend, check_history
from goaitools_py.types.citations import Citation

from ._answers import Answer, anthropic_answer, chat_answer, responses_answer
from ._reading import ANTHROPIC, CHAT, HISTORY, RESPONSES
from ._talk import FORMS, Talk

TEXT = "Open at nine. Closed on Mondays."
PAGE = {"url": "https://hall.example/hours", "title": "Hours \ud800", "start_index": 0, "end_index": 13}
ANNOTATION = {"type": "url_citation", "url_citation": PAGE}
LOCATION = {
    "type": "web_search_result_location",
    "url": PAGE["url"],
    "title": PAGE["title"],
    "cited_text": "9",
}


def cites(wire: str) -> Answer:
    """An answer that names one page for its first sentence."""
    if wire == CHAT:
        return chat_answer({"content": TEXT, "annotations": [ANNOTATION]})
    if wire == RESPONSES:
        part = {"type": "output_text", "text": TEXT, "annotations": [{"type": "url_citation", **PAGE}]}
        first = {"type": "output_text", "text": "So: ", "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return responses_answer({**said, "content": [first, part]})
    return anthropic_answer(
        {"type": "text", "text": TEXT[:13], "citations": [LOCATION]}, {"type": "text", "text": TEXT[13:]}
    )


@pytest.fixture(params=[CHAT, RESPONSES, ANTHROPIC])
def wire(request: pytest.FixtureRequest) -> str:
    """The wire of a scripted provider."""
    return str(request.param)


def test_the_sources_of_a_reply_are_in_its_result_and_in_the_history(face: Any, wire: str, run: Any) -> None:
    """With the passage that relies on each; the same after a reload, and in a later turn."""
    backend = ScriptedBackend(cites(wire), "Yes.", wire=wire)
    chat = face.chat(backend)

    first = run(chat, user="When?")
    second = run(chat, first.state, user="Sure?")

    (one,) = first.citations
    assert (one.url, one.title) == (PAGE["url"], "Hours \ufffd")
    assert first.text[one.start : one.end] == "Open at nine."
    assert second.citations == ()
    kept = read_history(second.state).turns
    assert [(c.url, c.title, c.quoted) for c in kept[0].citations] == [(one.url, one.title, one.quoted)]
    assert kept[1].citations == ()
    assert check_history(wire, state_messages(second.state)) == []


def test_annotations_do_not_go_back_to_a_chat_endpoint(face: Any, run: Any) -> None:
    """No request type of Chat Completions has them; the provider's own object stays in the citation."""
    backend = ScriptedBackend(cites(CHAT), "Yes.", wire=CHAT)
    chat = face.chat(backend)

    result = run(chat, run(chat, user="When?").state, user="Sure?")

    assert b"annotations" not in backend.requests[1].body
    (one,) = read_history(result.state).turns[0].citations
    assert json.loads(one.raw or b"")["url_citation"]["url"] == PAGE["url"]


def test_openrouter_gets_its_annotations_back(face: Any, run: Any) -> None:
    """It takes them, and parses no file anew that they hold: they stay in the message, byte for byte."""
    file = {
        "type": "file",
        "file": {"hash": "h", "name": "a.pdf", "content": [{"type": "text", "text": "x"}]},
    }
    answer = chat_answer({"content": TEXT, "annotations": [file]})
    backend = ScriptedBackend(answer, "Yes.", dialect=OpenAIChatDialect("openrouter.ai"))
    chat = face.chat(backend)

    run(chat, run(chat, user="When?").state, user="Sure?")

    assert backend.bodies()[1]["messages"][1]["annotations"] == [file]


def test_sources_of_both_halves_of_a_paused_reply(face: Any, run: Any) -> None:
    """The places count in the whole text."""
    half = {"type": "text", "text": "First. ", "citations": [LOCATION]}
    rest = {"type": "text", "text": "Then.", "citations": [LOCATION]}
    backend = ScriptedBackend(
        anthropic_answer(half, stop="pause_turn"), anthropic_answer(rest), wire=ANTHROPIC
    )

    result = run(face.chat(backend), user="When?")

    assert [result.text[c.start : c.end] for c in result.citations] == ["First. ", "Then."]


def test_content_that_is_an_object_is_text(face: Any, run: Any) -> None:
    """JSON mode of some servers: the caller reads the JSON, and the next request holds it as a string."""
    backend = ScriptedBackend(chat_answer({"content": {"score": 7, "big": 10**30}}), "Yes.", wire=CHAT)
    chat = face.chat(backend)

    first = run(chat, user="Score?")
    second = run(chat, first.state, user="Sure?")

    assert json.loads(first.text) == {"score": 7, "big": 10**30}
    assert backend.bodies()[1][HISTORY[CHAT]][1]["content"] == first.text
    assert check_history(CHAT, state_messages(second.state)) == []


def test_what_is_no_citation_is_passed_over(face: Any, run: Any) -> None:
    """Whatever a server writes for annotations, the reply is there."""
    odd = [7, None, {}, {"type": 3}, {"type": "x"}, {"type": "url_citation", "start_index": -1, "url": 5}]
    backend = ScriptedBackend(chat_answer({"content": TEXT, "annotations": odd}), wire=CHAT)

    result = run(face.chat(backend), user="When?")

    assert result.text == TEXT
    assert [(c.kind, c.url, c.start) for c in result.citations] == [
        ("x", None, None),
        ("url_citation", None, None),
    ]


def test_a_citation_shows_no_content() -> None:
    """Its repr may be logged."""
    assert "hall" not in repr(Citation(kind="url_citation", url="https://hall.example", title="hall"))


# ------------------------------------------------------------------- sources beside the message

PAGES = ["https://a.example", "https://b.example"]
FOUND = [
    {"url": PAGES[1], "title": "B", "date": "2026-11-01", "snippet": "It closes."},
    {"url": "https://c.example", "title": "C", "snippet": ""},
    {"title": "no address"},
    7,
]
TOPS = {
    "perplexity": ({"citations": PAGES, "search_results": FOUND}, [*PAGES, "https://c.example"]),
    "xai": ({"citations": PAGES}, PAGES),
    "results": ({"search_results": FOUND}, [PAGES[1], "https://c.example"]),
    "zhipu": ({"web_search": [{"link": PAGES[0], "title": "A", "content": "Nine."}]}, PAGES[:1]),
    "odd": ({"citations": {"a": 1}, "search_results": "x", "web_search": [None]}, []),
}


def beside(wire: str, top: dict[str, Any], said: str, *, early: bool) -> Answer:
    """An answer with these members at its top; streamed they come in the last event, or in the first."""

    def answer(request: ModelRequest) -> Raw:
        if wire == RESPONSES:
            part = {"type": "output_text", "text": said, "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
            body = {"id": "r", "object": "response", "status": "completed", "output": [item], **top}
            done = {"type": "response.output_item.done", "output_index": 0, "item": item}
            events: list[Any] = [done, {"type": "response.completed", "response": body}]
        else:
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {"id": "c", "model": "m", "choices": [choice], **top}
            deltas = [
                {"index": 0, "delta": {"content": said[:9]}},
                {"index": 0, "delta": {"content": said[9:]}},
            ]
            ends = [*deltas, {"index": 0, "delta": {}, "finish_reason": "stop"}]
            events = [{"id": "c", "model": "m", "choices": [one]} for one in ends]
            events[0 if early else -1] |= top
        if not request.stream:
            return Raw.body(json.dumps(body).encode())
        return Raw([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])

    return answer


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", list(TOPS))
@pytest.mark.parametrize("wire", [CHAT, RESPONSES])
@pytest.mark.parametrize(("kept", "stream"), FORMS)
def test_sources_at_the_top_of_a_completion(
    face: Any, wire: str, name: str, early: bool, kept: bool, stream: bool
) -> None:
    """In the order of the marks in the text, each address once; stored with the turn, and not sent back."""
    top, urls = TOPS[name]
    backend = ScriptedBackend(beside(wire, top, "Open at nine [1][2].", early=early), "Yes.", wire=wire)
    talk = Talk(face, face.chat(backend), kept=kept, streamed=stream)

    first, second = talk.say("When?"), talk.say("Sure?")

    assert [one.url for one in first.citations] == urls
    assert second.citations == ()
    known = read_history(second.state).turns[0].citations
    assert [one.url for one in known] == urls
    assert b"search_results" not in backend.requests[1].body
    if name == "perplexity":
        assert [one.title for one in first.citations] == [None, "B", "C"]
        assert first.citations[1].quoted == "It closes."
        assert json.loads(first.citations[1].raw or b"") == FOUND[0]


def test_a_source_that_an_annotation_names_is_there_once(face: Any) -> None:
    """The annotation has the passage."""
    said = {"role": "assistant", "content": TEXT, "annotations": [ANNOTATION]}
    body = {"choices": [{"message": said, "finish_reason": "stop"}], "citations": [PAGE["url"], PAGES[0]]}
    backend = ScriptedBackend(Raw.body(json.dumps(body).encode()), wire=CHAT)

    found = face.chat(backend).chat_with_state(None, user="When?").citations

    assert [(one.url, one.start) for one in found] == [(PAGE["url"], 0), (PAGES[0], None)]
