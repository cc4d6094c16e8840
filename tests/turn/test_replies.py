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
)
from goaitools_py.base import rawjson
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, state_messages

from ._reading import (
    ALL,
    ANTHROPIC,
    CHAT,
    OPENAI,
    RESPONSES,
    call_ids,
    has_calls,
    history_sent,
    messages,
    on,
    result_ids,
    results,
    roles,
    roles_sent,
    users,
)

RED = ("get_score", '{"team":"Red"}')
BLUE = ("get_score", '{"team":"Blue"}')


# ------------------------------------------------------------------------------------ text that ended

CUT = Reply.text("Once upon a", finish="length")
FILTERED = Reply.text("I must", finish="content_filter")
REFUSED = Reply.refusal("I will not.")
STOPPED = Reply.text("Fine.", finish="stop_sequence")
WINDOW = "model_context_window_exceeded"


@pytest.mark.parametrize(
    ("wire", "reply", "status", "text", "word"),
    [
        *on([CHAT], CUT, "truncated", "Once upon a", "length", id="length"),
        *on([RESPONSES], CUT, "truncated", "Once upon a", "max_output_tokens", id="length"),
        *on([ANTHROPIC], CUT, "truncated", "Once upon a", "max_tokens", id="length"),
        *on([ANTHROPIC], Reply.text("Once", finish=WINDOW), "truncated", "Once", WINDOW, id="window"),
        *on(OPENAI, FILTERED, "refused", "I must", "content_filter", id="content filter"),
        *on([ANTHROPIC], FILTERED, "refused", "I must", "refusal", id="content filter"),
        *on([CHAT], REFUSED, "refused", "I will not.", "stop", id="refusal"),
        *on([RESPONSES], REFUSED, "refused", "I will not.", "completed", id="refusal"),
        *on([ANTHROPIC], REFUSED, "refused", "I will not.", "refusal", id="refusal"),
        *on([CHAT, ANTHROPIC], Reply.text("Fine.", finish=""), "complete", "Fine.", "", id="no stop word"),
        *on(ALL, Reply.text("Fine.", finish="eos"), "complete", "Fine.", "eos", id="unknown stop word"),
        *on([ANTHROPIC], STOPPED, "complete", "Fine.", "stop_sequence", id="stop sequence"),
    ],
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
    assert roles(result.state) == ["user", "assistant"]
    assert messages(result.state)[-1].text == text
    assert after.status == "complete"
    assert sim.problems == []


@pytest.mark.parametrize("wire", [RESPONSES])
def test_a_response_without_a_status_has_ended(face: Any, sim: Any, run: Any) -> None:
    """A unary one has no word for it; of a streamed one the last event says that it is complete."""
    chat = face.on(sim)
    sim.push(Reply.text("Fine.", finish=""))

    result = run(chat, user="Tell me a story.")

    assert (result.status, result.text) == ("complete", "Fine.")
    assert result.finish_reason == ("completed" if run.is_streamed else "")


def test_the_models_own_limit_truncates(face: Any, sim: Any, run: Any) -> None:
    """An output limit set by the caller cuts the text, and the status says so."""
    tokens = 16 if sim.wire == RESPONSES else 4  # the least that the Responses wire takes
    chat = face.on(sim, settings=ModelSettings(max_output_tokens=tokens))

    result = run(chat, user="My name is Ada. Tell me a long story of a fox, an owl and a theatre.")

    assert result.status == "truncated"
    assert 0 < len(result.text) <= 4 * tokens


# ---------------------------------------------------------------------------------- calls that may not run


@pytest.mark.parametrize(
    ("wire", "word", "status"),
    [
        *on(ALL, "length", "truncated", id="length"),
        *on(ALL, "content_filter", "refused", id="content filter"),
        *on([ANTHROPIC], WINDOW, "truncated", id="window"),
        *on([ANTHROPIC], "stop_sequence", "complete", id="stop_sequence"),
        *on([ANTHROPIC], "", "complete", id="no word"),
        *on([ANTHROPIC, RESPONSES], "eos", "complete", id="unknown word"),
    ],
)
@pytest.mark.parametrize("text", ["", "Let me see."], ids=["calls only", "with text"])
def test_cut_calls_are_not_run(
    face: Any, sim: Any, run: Any, scores: Any, word: str, status: str, text: str
) -> None:
    """Calls of a reply that was cut off never run and are not stored, a reply of nothing else neither.

    Anthropic has two words for calls that are whole, "tool_use" and "end_turn", the Responses wire one:
    "completed".
    """
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(RED, ("get_score", '{"team":"Bl'), text=text, finish=word), Reply.text("Hello."))

    result = run(chat, user="The scores?")
    after = run(chat, result.state, user="Hello.")

    assert scores.runs == []
    assert result.tool_log == ()
    assert result.status == status
    is_unsent = status == "refused" and not (text and sim.wire == RESPONSES)
    told = ["calls_dropped", *(["turn_not_sent"] if is_unsent else [])]
    assert [w.code for w in result.warnings] == told
    assert roles(result.state) == (["user", "assistant"] if text else ["user"])
    assert not has_calls(result.state)
    assert after.status == "complete"
    assert sim.problems == []


@pytest.mark.parametrize("wire", [RESPONSES])
def test_calls_beside_a_refusal_are_not_run(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """A reply that refuses and calls at once, though it is complete, runs nothing and stores no call."""
    refused = {"type": "refusal", "refusal": "I will not."}
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [refused],
    }
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": RED[0], "arguments": RED[1]}
    response = {"object": "response", "id": "r", "status": "completed", "output": [message, call]}
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.raw(rawjson.dumps(response)))

    result = run(chat, user="The score?")
    after = run(chat, result.state, user="Hello.")

    assert scores.runs == []
    assert (result.status, result.text) == ("refused", "I will not.")
    assert [w.code for w in result.warnings] == ["calls_dropped"]
    assert not has_calls(result.state)
    assert after.status == "complete"
    assert sim.problems == []


@pytest.mark.parametrize(
    ("wire", "word"), [case for word in ("stop", "", "eos") for case in on([CHAT], word, id=f"{word!r}")]
)
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

    assert roles(result.state) == ["user", "assistant", "tool", "tool", "assistant"]
    made = call_ids(result.state)
    assert len(set(made)) == 2
    assert all(made)
    assert result_ids(result.state) == made
    assert results(result.state) == ["Red has 7 points", "Blue has 7 points"]
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

    ids = result_ids(result.state)
    assert len(ids) == len(set(ids)) == 2
    assert call_ids(result.state) == ids
    assert [w.code for w in result.warnings] == ["call_ids_rewritten"]
    assert scores.runs == ["Red", "Blue"]
    assert sim.problems == []


def test_a_used_id_is_replaced_the_same_way_each_time(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """A turn that is run once more on the same blob gets the same new ids: nothing random, no clock."""
    chat = face.on(sim, tools=[scores.get_score])
    used = Reply.calls(RED, BLUE, ids=("call_0", "call_1"))
    sim.push(used, Reply.text("7 each."))
    before = run(chat, user="The scores?").state
    sim.push(used, Reply.text("Still."), used, Reply.text("Still."))

    first, second = (run(chat, before, user="And now?") for _ in range(2))

    made = call_ids(first.state)[2:]
    assert len({"call_0", "call_1", *made}) == 4
    assert call_ids(second.state) == call_ids(first.state)
    assert state_messages(second.state) == state_messages(first.state)
    assert [w.code for w in first.warnings] == [w.code for w in second.warnings] == ["call_ids_rewritten"]
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

    assert roles_sent(sim.requests[-1]) == ["user", "assistant", "tool", "tool", "user"]
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

    first, second = (history_sent(request) for request in sim.requests)
    assert roles_sent(sim.requests[0]) == ["user"]
    assert second[: len(first)] == first
    assert roles_sent(sim.requests[1]) == ["user", "assistant", "tool", "user"]
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

    assert users(caught.value.state) == ["Hello.", "Rain begins."]
    assert [message.is_event for message in messages(caught.value.state)] == [False, True]
    assert inspect_state(caught.value.state).waiting_messages == 2
