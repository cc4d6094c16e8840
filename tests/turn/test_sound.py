"""A reply with sound: its transcript is the text; its id goes back until it expires, the transcript later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.states import (
    convert_state,
    inspect_state,
    read_history,
    state_from_messages,
    state_messages,
)
from goaitools_py.testing import Raw, ScriptedBackend, check_history
from goaitools_py.turn.edges import async_edge, sync_edge

from ._reading import CHAT
from ._talk import FORMS, Talk

FORM = pytest.mark.parametrize(("kept", "stream"), FORMS)
HOUR = 3_600
WORDS = "The gate is open."


class Clock:
    """A wall clock that a test moves on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time_ns(self) -> int:
        return time.time_ns() + int(self.ahead * 1e9)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock of both edges on by so many seconds."""
    clock = Clock()

    class Module:
        time_ns = staticmethod(clock.time_ns)

        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

    for module in (sync_edge, async_edge):
        monkeypatch.setattr(module, "time", Module())

    def move(seconds: float) -> None:
        clock.ahead += seconds

    return move


def speaks(
    id: str = "audio_1", words: str = WORDS, *, expires: Any = None, **message: Any
) -> Callable[[ModelRequest], Raw]:
    """A reply that speaks, whole or in pieces as OpenAI streams it; it expires after an hour."""

    def answer(request: ModelRequest) -> Raw:
        until = int(time.time()) + HOUR if expires is None else expires
        if not request.stream:
            audio = {"id": id, "data": "UklGRg==", "transcript": words, "expires_at": until}
            said = {"role": "assistant", "content": None, "refusal": None, "audio": audio, **message}
            body = {"id": "c", "model": "m", "choices": [{"message": said, "finish_reason": "stop"}]}
            return Raw.body(json.dumps(body).encode())
        pieces: list[dict[str, Any]] = [{"id": id, "transcript": words[:3]}, {"data": "Ukl"}]
        pieces += [{"transcript": words[3:]}, {"data": "GRg=="}, {"expires_at": until}]
        deltas = [{"role": "assistant", "content": None, **message}, *({"audio": one} for one in pieces)]
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        return Raw([b"data: " + json.dumps({"id": "c", **event}).encode() + b"\n\n" for event in events])

    return answer


def replies(request: ModelRequest) -> list[dict[str, Any]]:
    """The assistant's messages of a request."""
    return [one for one in json.loads(request.body)["messages"] if one["role"] == "assistant"]


def talk_of(face: Any, kept: bool, stream: bool, *steps: Any) -> tuple[Talk, ScriptedBackend]:
    backend = ScriptedBackend(*steps, wire=CHAT)
    return Talk(face, face.chat(backend), kept=kept, streamed=stream), backend


@FORM
def test_the_transcript_is_the_text(face: Any, kept: bool, stream: bool) -> None:
    """Of the result, of the history, of the stored message; the sound itself is not stored."""
    talk, _ = talk_of(face, kept, stream, speaks())

    result = talk.say("Is it open?")

    assert result.text == WORDS
    assert read_history(result.state).all_messages()[-1].text == WORDS
    (stored,) = state_messages(result.state)[1:]
    assert (stored["content"], stored["audio"]) == (WORDS, {"id": "audio_1"})
    assert set(stored) <= {"role", "content", "audio"}
    assert check_history(CHAT, state_messages(result.state)) == []


def test_the_words_are_told_as_they_come(face: Any) -> None:
    """The deltas are the text."""
    turn = face.chat(ScriptedBackend(speaks(), wire=CHAT)).start(None, user="Is it open?")

    said = [event.text for event in turn if type(event).__name__ == "TextDelta"]

    assert said == [WORDS[:3], WORDS[3:]]
    assert turn.result().text == WORDS


@FORM
def test_the_id_goes_back_until_it_expires(
    face: Any, later: Callable[[float], None], kept: bool, stream: bool
) -> None:
    """Then its transcript takes its place; what is stored stays as it is."""
    talk, backend = talk_of(face, kept, stream, speaks(), "Yes.", "Yes.", "Yes.")
    stored = state_messages(talk.say("Is it open?").state)

    talk.say("Sure?")
    later(HOUR - 300)
    talk.say("Still?")
    later(270)  # half a minute before its end: the request may take that long
    result = talk.say("And now?")

    first, second, third = (replies(request)[0] for request in backend.requests[1:])
    assert first == second == {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    assert third == {"role": "assistant", "content": WORDS}
    assert state_messages(result.state)[: len(stored)] == stored
    assert result.warnings == ()


@FORM
def test_each_sound_has_its_own_end(
    face: Any, later: Callable[[float], None], kept: bool, stream: bool
) -> None:
    """The older one is text while the newer one still is a sound."""
    talk, backend = talk_of(face, kept, stream, speaks("a", "One."), "Yes.", "Yes.")
    talk.say("First?")
    later(HOUR / 2)
    backend._steps.insert(0, speaks("b", "Two.", expires=int(time.time()) + HOUR * 3 // 2))
    talk.say("Second?")
    later(HOUR / 2 + 60)

    talk.say("And?")

    older, newer = replies(backend.requests[-1])
    assert older == {"role": "assistant", "content": "One."}
    assert newer == {"role": "assistant", "content": None, "audio": {"id": "b"}}


@FORM
def test_many_sounds(face: Any, kept: bool, stream: bool) -> None:
    """A state remembers the newest ones; the others are sent as text."""
    talk, backend = talk_of(face, kept, stream, *(speaks(f"a{n}", f"{n}.") for n in range(30)), "Done.")
    for _ in range(30):
        talk.say("Next?")

    result = talk.say("And?")

    for request in backend.requests:
        assert all(("audio" in one) != bool(one["content"]) for one in replies(request))
    said = replies(backend.requests[-1])
    assert [one.get("audio") for one in said[-10:]] == [{"id": f"a{n}"} for n in range(20, 30)]
    assert said[:10] == [{"role": "assistant", "content": f"{n}."} for n in range(10)]
    assert {one["content"] for one in said[-10:]} == {None}
    assert inspect_state(result.state).turns == 31


@FORM
@pytest.mark.parametrize("expires", [0, "soon", None, 10**30])
@pytest.mark.parametrize("words", ["", WORDS])
def test_odd_sounds(face: Any, words: str, expires: Any, kept: bool, stream: bool) -> None:
    """Without a transcript, without a readable end: the next turn is a valid request all the same."""
    step = speaks(words=words, expires="x" if expires is None else expires)
    talk, backend = talk_of(face, kept, stream, step, "Yes.")
    first = talk.say("Is it open?")

    talk.say("Sure?")

    assert first.text == words
    (sent,) = replies(backend.requests[1])
    assert sent.get("audio") == {"id": "audio_1"} or sent["content"] == WORDS
    assert check_history(CHAT, json.loads(backend.requests[1].body)["messages"]) == []


@FORM
def test_a_refused_id_blocks_nothing(face: Any, kept: bool, stream: bool) -> None:
    """The server has forgotten it early: the turn goes on with the text, and so do all later ones."""

    def refuses(request: ModelRequest) -> Any:
        if any("audio" in one for one in replies(request)):
            body = b'{"error":{"message":"Audio not found","type":"invalid_request_error"}}'
            return BackendError("the provider refuses the request", status=400, body=body)
        return "Yes."

    talk, backend = talk_of(face, kept, stream, speaks(), *[refuses] * 4)
    talk.say("Is it open?")

    results = [talk.say("Sure?"), talk.say("Sure?")]

    assert [one.text for one in results] == ["Yes.", "Yes."]
    assert [[warning.code for warning in one.warnings] for one in results] == [["view_changed"], []]
    assert replies(backend.requests[-1])[0] == {"role": "assistant", "content": WORDS}
    assert len(backend.requests) == 4


def test_a_sound_of_another_writer(face: Any, run: Any) -> None:
    """An imported id is of no known age: the transcript is sent, or a note."""
    messages: list[dict[str, Any]] = []
    for content in (WORDS, None):
        messages += [{"role": "user", "content": "Open?"}]
        messages += [{"role": "assistant", "content": content, "audio": {"id": "audio_1"}}]
    backend = ScriptedBackend("Yes.", wire=CHAT)

    run(face.chat(backend), state_from_messages(CHAT, messages), user="Sure?")

    said = replies(backend.requests[0])
    assert [sorted(one) for one in said] == [["content", "role"]] * 2
    assert said[0]["content"] == WORDS
    assert "transcript" in said[1]["content"]


def test_a_sound_beside_calls(face: Any, run: Any) -> None:
    """The calls run, and stay with it."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    def look() -> str:
        """Look."""
        return "A moor."

    backend = ScriptedBackend(speaks(tool_calls=[{"index": 0, **call}]), "Yes.", wire=CHAT)

    result = run(face.chat(backend, tools=[look]), user="Open?")

    (sent,) = replies(backend.requests[1])
    assert (sent["audio"], [one["id"] for one in sent["tool_calls"]]) == ({"id": "audio_1"}, ["c1"])
    assert result.text == "Yes."


def test_a_conversion_takes_the_words(face: Any, run: Any) -> None:
    """Another provider API has no such id; the sound is a loss."""
    state = run(face.chat(ScriptedBackend(speaks(), wire=CHAT)), user="Open?").state

    found = convert_state(state, to="anthropic")

    assert WORDS in json.dumps(state_messages(found.state))
    assert [loss.kind for loss in found.losses if loss.kind == "media"] == ["media"]
