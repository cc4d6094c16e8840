"""Replies that are complete but odd: cut off, refused, with unusable calls, ids or stop words."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    ModelReplied,
    ModelRequested,
    ModelSettings,
    ProviderProtocolError,
    ToolStarted,
    event,
    inspect_state,
    state_messages,
)
from goaitools_py.sim import Fault, Reply

RED = ("get_score", '{"team":"Red"}')
BLUE = ("get_score", '{"team":"Blue"}')


# ------------------------------------------------------------------------------------ text that ended


@pytest.mark.parametrize(
    ("reply", "status", "text", "word"),
    [
        (Reply.text("Once upon a", finish="length"), "truncated", "Once upon a", "length"),
        (Reply.text("I must", finish="content_filter"), "refused", "I must", "content_filter"),
        (Reply.refusal("I will not."), "refused", "I will not.", "stop"),
        (Reply.text("Fine.", finish=""), "complete", "Fine.", ""),
        (Reply.text("Fine.", finish="eos"), "complete", "Fine.", "eos"),
    ],
    ids=["length", "content filter", "refusal", "no stop word", "unknown stop word"],
)
def test_text_that_ended_is_a_result(
    face: Any, sim: Any, run: Any, reply: Any, status: str, text: str, word: str
) -> None:
    """However a text ended, it is a result with a status, in the history, and no exception."""
    chat = face.on(sim)
    sim.push(reply)

    result = run(chat, user="Tell me a story.")
    after = run(chat, result.state, user="Go on.")

    assert (result.status, result.text, result.finish_reason) == (status, text, word)
    assert len(state_messages(result.state)) == 2
    assert after.status == "complete"
    assert sim.problems == []


def test_the_models_own_limit_truncates(face: Any, sim: Any, run: Any) -> None:
    """An output limit set by the caller cuts the text, and the status says so."""
    chat = face.on(sim, settings=ModelSettings(max_output_tokens=4))

    result = run(chat, user="My name is Ada.")

    assert result.status == "truncated"
    assert 0 < len(result.text) <= 16


# ---------------------------------------------------------------------------------- calls that may not run


@pytest.mark.parametrize("word", ["length", "content_filter"])
@pytest.mark.parametrize("text", ["", "Let me see."], ids=["calls only", "with text"])
def test_cut_calls_are_not_run(face: Any, sim: Any, run: Any, scores: Any, word: str, text: str) -> None:
    """Calls of a reply that was cut off never run and are not stored, a reply of nothing else neither."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, ("get_score", '{"team":"Bl'), text=text, finish=word), Reply.text("Hello."))

    result = run(chat, user="The scores?")
    after = run(chat, result.state, user="Hello.")

    assert scores.runs == []
    assert result.tool_log == ()
    assert result.status == ("truncated" if word == "length" else "refused")
    assert [w.code for w in result.warnings] == ["calls_dropped"]
    stored = state_messages(result.state)
    assert [m["role"] for m in stored] == (["user", "assistant"] if text else ["user"])
    assert not any("tool_calls" in m for m in stored)
    assert after.status == "complete"
    assert sim.problems == []


@pytest.mark.parametrize("word", ["stop", "", "eos"])
def test_whole_calls_run_whatever_the_stop_word(
    face: Any, sim: Any, run: Any, scores: Any, word: str
) -> None:
    """Real servers end complete calls with other words, or none; the calls are run."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, finish=word))

    result = run(chat, user="The score?")

    assert scores.runs == ["Red"]
    assert result.status == "complete"
    assert result.iterations == 2
    assert sim.problems == []


# ---------------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize(
    "ids", [("", ""), ("same", "same"), ("one", "")], ids=["none", "duplicate", "one missing"]
)
def test_call_ids_are_made_unique(face: Any, sim: Any, run: Any, scores: Any, ids: Any) -> None:
    """Missing and duplicate ids are replaced before anything runs; results go to the right calls."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, BLUE, ids=ids))

    result = run(chat, user="The scores?")

    _, calls, first, second, _ = state_messages(result.state)
    made = [call["id"] for call in calls["tool_calls"]]
    assert len(set(made)) == 2
    assert all(made)
    assert [(m["tool_call_id"], m["content"]) for m in (first, second)] == [
        (made[0], "Red has 7 points"),
        (made[1], "Blue has 7 points"),
    ]
    assert sim.problems == []


def test_ids_are_made_the_same_way_each_time(face: Any, sim: Any, scores: Any) -> None:
    """Equal replies get equal ids: nothing random, no clock."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, ids=("",)), Reply.text("7."), Reply.calls(RED, ids=("",)))

    first, second = (state_messages(chat.chat(user="The score?").state)[1] for _ in range(2))

    assert first == second


def test_an_id_that_the_conversation_has_used_is_replaced(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Servers that count calls from 0 in each reply cannot confuse the history."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, ids=("call_0",)), Reply.text("7."), Reply.calls(BLUE, ids=("call_0",)))
    before = run(chat, user="The score of Red?").state

    result = run(chat, before, user="And of Blue?")

    ids = [m["tool_call_id"] for m in state_messages(result.state) if m["role"] == "tool"]
    assert len(ids) == len(set(ids)) == 2
    assert [w.code for w in result.warnings] == ["call_ids_rewritten"]
    assert scores.runs == ["Red", "Blue"]
    assert sim.problems == []


# --------------------------------------------------------------------------- messages while calls are open


def test_an_event_of_the_running_turn_waits_for_the_results(
    face: Any, sim: Any, scores: Any, texts_sent: Any
) -> None:
    """What is put in while calls are open reaches the next request, after their results."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, BLUE))
    turn = chat.start(None, user="The scores?")
    for happened in turn:
        if isinstance(happened, ToolStarted) and not scores.runs:
            turn.append(event("Rain begins."))

    roles = [m["role"] for m in sim.requests[-1].parsed["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    assert "Rain begins." in texts_sent(sim)[-1]
    assert inspect_state(happened.result.state).waiting_messages == 0
    assert sim.problems == []


def test_a_message_put_in_while_the_model_speaks_waits_for_the_next_request(
    face: Any, sim: Any, scores: Any
) -> None:
    """What came after a request was sent is not taken for seen: it stands after the reply, not before."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, text="Let me see."))
    turn = chat.start(None, user="The score?")
    for happened in turn:
        if isinstance(happened, ModelRequested) and happened.iteration == 1:
            turn.append(event("Rain begins."))

    first, second = (request.parsed["messages"] for request in sim.requests)
    assert [m["role"] for m in first] == ["user"]
    assert second[: len(first)] == first
    assert [m["role"] for m in second] == ["user", "assistant", "tool", "user"]
    assert sim.problems == []


def test_a_message_after_the_last_reply_waits_in_the_state(face: Any, sim: Any) -> None:
    """An event put in when no further request follows is in the result's state, unseen."""
    chat = face.on(sim)
    turn = chat.start(None, user="Hello.")
    for happened in turn:
        if isinstance(happened, ModelReplied):
            turn.append(event("Rain begins."))

    assert inspect_state(happened.result.state).waiting_messages == 1
    answer = chat.chat_with_state(happened.result.state)
    assert "Noted: Rain begins.." in answer.text


def test_a_message_after_the_end_is_refused(face: Any, sim: Any) -> None:
    """The result's state is already out, so a message that it would not hold is not swallowed."""
    chat = face.on(sim)
    turn = chat.start(None, user="Hello.")
    turn.result()

    with pytest.raises(RuntimeError, match="append_to_state"):
        turn.append(event("Rain begins."))


def test_a_message_put_in_survives_an_answer_that_was_no_model(face: Any, sim: Any) -> None:
    """A page instead of a reply undoes the request, not what was put into the turn meanwhile."""
    chat = face.on(sim)
    sim.push(Fault.html())
    turn = chat.start(None, user="Hello.")
    for happened in turn:
        if isinstance(happened, ModelRequested):
            break
    turn.append(event("Rain begins."))

    with pytest.raises(ProviderProtocolError) as caught:
        turn.result()

    texts = [m["content"] for m in state_messages(caught.value.state)]
    assert texts[0] == "Hello."
    assert "Rain begins." in texts[1]
    assert inspect_state(caught.value.state).waiting_messages == 2
