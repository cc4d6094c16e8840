"""A stream that breaks off, and a turn that is given up: what came is told, and the state goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    AsyncTurn,
    ProviderUnavailableError,
    StreamInterruptedError,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnCompleted,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Raw, ScriptedBackend, check_history

from ._reading import ANTHROPIC, CHAT, LEAD, RESPONSES, roles, texts, users
from ._stalling import Words

STORY = Reply.text("Once upon a time there was a fox.")

BROKEN: dict[str, Callable[[int], Fault]] = {
    "reset": lambda after: Fault.reset(after=after, reply=STORY),
    "hang-up": lambda after: Fault.hang_up(after=after, reply=STORY),
    "clean end without the terminal event": lambda after: Fault.cut_stream(after, reply=STORY),
    "error event": lambda after: Fault.error_event(after=after, reply=STORY),
}
"""How a stream breaks after so many events."""


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_stream_tells_what_came(
    face: Any, sim: Any, clock: Any, texts_sent: Any, fault: str
) -> None:
    """The partial text is in the error, not in the history; nothing is retried once a delta was shown."""
    chat = face.on(sim, max_retries=2)
    before = chat.chat_with_state(None, user="My name is Ada.").state
    sim.push(BROKEN[fault](LEAD[sim.wire] + 3))
    turn = chat.start(before, user="Tell me a story.")
    deltas: list[str] = []

    with pytest.raises(StreamInterruptedError) as caught:
        deltas.extend(event.text for event in turn if isinstance(event, TextDelta))
    err = caught.value

    assert err.partial_text == "Once upon a"
    assert err.partial_text.startswith("".join(deltas))
    assert err.retryable
    assert (err.pending_input, err.text, err.tool_log) == ((), "", ())
    assert len(sim.requests) == 2
    assert clock.naps == []
    assert turn.state is not None
    assert inspect_state(turn.state).open_calls == 0
    resumed = chat.resume(err.state)
    assert texts_sent(sim).count("Tell me a story.") == 1
    assert not any("Once upon" in text for text in texts_sent(sim))
    assert resumed.status == "complete"
    assert sim.problems == []


def test_partial_text_stays_flagged(face: Any, sim: Any) -> None:
    """When nobody resumes, the turn closes with its partial text beside the history, not in it."""
    chat = face.on(sim)
    sim.push(Fault.reset(after=LEAD[sim.wire] + 3, reply=STORY))
    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Tell me a story.").result()

    after = chat.chat_with_state(caught.value.state, user="Never mind.")

    assert read_history(after.state).turns[0].facts["interrupted"] == "Once upon a"
    assert roles(after.state) == ["user", "user", "assistant"]
    assert sim.problems == []


def test_partial_text_may_stay_in_the_context(face: Any, sim: Any, texts_sent: Any, scores: Any) -> None:
    """With `keep_partial` the model reads what it had said, on each provider API, also behind a tool."""
    chat = face.on(sim, keep_partial=True, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.reset(after=LEAD[sim.wire] + 3, reply=STORY))
    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Tell me a story.").result()
    sim.push(Reply.text("Fine."), Reply.text("Yes."))

    after = chat.chat_with_state(caught.value.state, user="Never mind.")
    later = chat.chat_with_state(after.state, user="Still there?")

    assert texts_sent(sim).count("Once upon a") == 1
    assert roles(later.state) == ["user", "assistant", "tool", "assistant", *["user", "assistant"] * 2]
    first = read_history(later.state).turns[0]
    assert (first.messages[-1].said, "interrupted" in first.facts) == ("Once upon a", False)
    assert inspect_state(later.state).messages == 8
    assert sim.problems == []


def test_nothing_is_kept_of_a_reply_without_a_word(face: Any, sim: Any) -> None:
    """Also with `keep_partial` no empty message enters the history."""
    chat = face.on(sim, keep_partial=True)
    sim.push(Fault.cut_stream(0, reply=STORY))
    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Tell me a story.").result()

    after = chat.chat_with_state(caught.value.state, user="Never mind.")

    assert roles(after.state) == ["user", "user", "assistant"]
    assert sim.problems == []


def test_a_stream_that_broke_before_its_first_word_is_retried(face: Any, sim: Any, clock: Any) -> None:
    """Nobody has seen anything of it, so trying again cannot repeat a word."""
    chat = face.on(sim, max_retries=1)
    sim.push(Fault.cut_stream(0, reply=STORY), STORY)
    turn = chat.start(None, user="Tell me a story.")

    result = turn.result()

    assert result.text == "Once upon a time there was a fox."
    assert len(sim.requests) == 2
    assert len(clock.naps) == 1
    assert roles(result.state) == ["user", "assistant"]
    assert sim.problems == []


def test_cut_calls_of_a_broken_stream_are_not_run(face: Any, sim: Any, scores: Any) -> None:
    """Calls whose arguments broke off never start; the turn can be asked again."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Fault.cut_stream(3, reply=Reply.calls(("get_score", '{"team":"Red"}'))))

    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Hello?").result()

    assert scores.runs == []
    assert inspect_state(caught.value.state).open_calls == 0
    assert chat.resume(caught.value.state).status == "complete"
    assert sim.problems == []


def test_a_short_unary_body_is_unavailable(face: Any, sim: Any, texts_sent: Any) -> None:
    """A body that is shorter than promised is no reply, even where its JSON happens to be whole."""
    chat = face.on(sim)
    sim.push(Fault.short_body())

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Hello?")

    assert caught.value.retryable
    assert chat.resume(caught.value.state).status == "complete"
    assert texts_sent(sim).count("Hello?") == 1


WHOLE = {
    CHAT: b'{"id":"1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"At once."},"finish_reason":"stop"}]}',
    RESPONSES: b'{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"type":'
    b'"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text",'
    b'"text":"At once.","annotations":[]}]}]}',
    ANTHROPIC: b'{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text",'
    b'"text":"At once."}],"stop_reason":"end_turn"}',
}


def test_a_server_that_does_not_stream_is_read_all_the_same(face: Any, sim: Any) -> None:
    """A JSON reply to a request for a stream is one delta and a complete turn."""
    chat = face.on(sim)
    sim.push(Reply.raw(WHOLE[sim.wire]))

    events = list(chat.start(None, user="Hello?"))

    assert [e.text for e in events if isinstance(e, TextDelta)] == ["At once."]
    assert events[-1].result.text == "At once."


def test_the_same_is_stored_streamed_and_unary(face: Any, sim: Any, scores: Any) -> None:
    """A conversation looks the same afterwards, whichever way it came over the wire."""
    chat = face.on(sim, tools=[scores.get_score])
    unary = chat.chat(user="Get the score of Red.").state
    streamed = chat.start(None, user="Get the score of Red.").result().state

    assert state_messages(streamed) == state_messages(unary)
    assert len(scores.runs) == 2


# ---------------------------------------------------------------------------------------- given up


def test_a_turn_given_up_in_mid_reply_goes_on(face: Any, sim: Any, texts_sent: Any) -> None:
    """Leaving the loop loses nothing: the state at that instant resumes with the message said once."""
    chat = face.on(sim)
    before = chat.chat_with_state(None, user="My name is Ada.").state
    sim.push(STORY)
    turn = chat.start(before, user="What is my name?")
    for event in turn:
        if isinstance(event, TextDelta):
            break
    turn.cancel()

    resumed = chat.resume(turn.state)

    assert "Your name is Ada." in resumed.text
    assert texts_sent(sim).count("What is my name?") == 1
    assert roles(turn.state) == ["user", "assistant", "user"]
    assert sim.problems == []


def leave_at_the_first_word(face: Any, turn: Any) -> None:
    """Leave the `with` block of a turn, of either colour, as soon as it says something."""

    async def leave(turn: AsyncTurn) -> None:
        async with turn:
            async for event in turn:
                if isinstance(event, TextDelta):
                    break

    if face.is_async:
        face.run(leave(turn))
        return
    with turn:
        for event in turn:
            if isinstance(event, TextDelta):
                break


def test_an_answer_that_is_there_is_kept_when_its_turn_is_left(face: Any, wire: str) -> None:
    """A reply that came in one piece is whole and paid for, though only its first word was looked at: it is
    in the history, and is not asked for again."""
    story = "Once upon a time there was a fox."
    backend = ScriptedBackend(Raw.body(Words(wire, story).whole(stream=True)), "You are welcome.", wire=wire)
    chat = face.chat(backend)
    turn = chat.start(None, user="Tell me a story.").turn

    leave_at_the_first_word(face, turn)
    after = chat.chat_with_state(turn.state, user="Thanks.")

    known = inspect_state(turn.state)
    assert (known.status, known.usage.requests) == ("complete", 1)
    assert texts(turn.state, "assistant") == [story]
    assert "interrupted" not in read_history(turn.state).turns[0].facts
    assert check_history(wire, state_messages(turn.state)) == []
    assert texts(after.state, "assistant") == [story, "You are welcome."]
    assert after.warnings == ()
    with pytest.raises(ValueError, match="nothing to resume"):
        chat.resume(turn.state)


def test_a_turn_left_and_taken_up_again_is_one_turn(face: Any, sim: Any) -> None:
    """Breaking out of the loop only pauses the turn; `result` runs the rest."""
    chat = face.on(sim)
    sim.push(STORY)
    turn = chat.start(None, user="Tell me a story.")
    for _ in turn:
        break

    assert turn.result().text == "Once upon a time there was a fox."
    assert len(sim.requests) == 1


def test_a_turn_that_was_given_up_has_no_result(face: Any, sim: Any) -> None:
    """Asking a cancelled turn for its result is the caller's mistake, and cancelling twice is none."""
    chat = face.on(sim)
    turn = chat.start(None, user="Hello.")
    turn.cancel()
    turn.cancel()

    with pytest.raises(RuntimeError, match="given up"):
        turn.result()
    assert sim.requests == []


@pytest.mark.parametrize("kind", [ToolStarted, ToolFinished])
def test_every_instant_between_tools_can_be_resumed(face: Any, sim: Any, scores: Any, kind: Any) -> None:
    """A turn left around a tool is a history that the provider takes, and finished tools do not run again."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), ("get_score", '{"team":"Blue"}')))
    turn = chat.start(None, user="Both scores?")
    for event in turn:
        if type(event) is kind:
            break
    turn.cancel()

    resumed = chat.resume(turn.state)
    closed = chat.chat_with_state(turn.state, user="Never mind.")

    assert len(scores.runs) == len(set(scores.runs))
    assert resumed.status == closed.status == "complete"
    assert sim.problems == []


def test_the_state_before_the_first_event_is_the_given_one(face: Any, sim: Any) -> None:
    """A turn is lazy: until it is iterated nothing is sent, and its state is the input."""
    chat = face.on(sim)
    before = chat.chat_with_state(None, user="My name is Ada.").state

    turn = chat.start(before, user="Hello.")

    assert turn.state == before
    assert len(sim.requests) == 1


def test_every_state_on_the_way_holds_the_message_once(face: Any, sim: Any, scores: Any) -> None:
    """At each event the state decodes, is a history that the provider takes, and has the question once."""
    chat = face.on(sim, tools=[scores.get_score])
    turn = chat.start(None, user="Get the score of Red and the score of Blue.")
    seen = 0
    for event in turn:
        assert users(turn.state) == ["Get the score of Red and the score of Blue."]
        assert check_history(sim.wire, state_messages(turn.state)) == []
        seen += 1
        last = event

    assert seen > 10
    assert isinstance(last, TurnCompleted)
    assert turn.state == last.result.state
