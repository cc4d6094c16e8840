"""Streams that end early, wire by wire: at every single event, and with an error behind a status of 200."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ProviderProtocolError, ProviderUnavailableError, StreamInterruptedError
from goaitools_py.base import rawjson
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state

from ._reading import ANTHROPIC, CHAT, LEAD, RESPONSES, has_calls, roles, users

CALL = Reply.calls(("get_score", '{"team":"Red"}'), text="Let me see.", ids=("call_1",))
LAST = {CHAT: b'"finish_reason":"tool_calls"', RESPONSES: b"response.completed", ANTHROPIC: b"message_delta"}
"""What is in the event with which a reply is whole."""


def events_of(sim: Any, reply: Reply) -> list[bytes]:
    """The events with which the simulator would answer the last request again."""
    asked = sim.requests[-1]
    sim.push(reply)
    response = sim.respond("POST", asked.path, asked.headers, asked.body)
    return list(response.pieces)


def test_a_call_runs_only_when_its_reply_is_whole(face: Any, sim: Any, scores: Any) -> None:
    """Cut behind every single event of the stream, the reply's call never runs; whole, it runs once."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(CALL)
    chat.start(None, user="The score of Red?").result()
    events = events_of(sim, CALL)
    whole = next(number for number, event in enumerate(events) if LAST[sim.wire] in event) + 1
    scores.runs.clear()

    for after in range(whole):
        sim.push(Fault.cut_stream(after, reply=CALL))
        with pytest.raises((StreamInterruptedError, ProviderProtocolError)) as caught:
            chat.start(None, user="The score of Red?").result()
        assert scores.runs == [], f"it ran after {after} of {len(events)} events"
        assert inspect_state(caught.value.state).open_calls == 0
        assert not has_calls(caught.value.state)
        assert users(caught.value.state) == ["The score of Red?"]
    sim.push(Fault.cut_stream(whole, reply=CALL))
    result = chat.start(None, user="The score of Red?").result()

    assert whole > LEAD[sim.wire] + 3
    assert scores.runs == ["Red"]
    assert [(one.call.arguments, one.flag) for one in result.tool_log] == [('{"team":"Red"}', "ok")]
    assert sim.problems == []


@pytest.mark.parametrize("wire", [ANTHROPIC])
@pytest.mark.parametrize(
    ("word", "flags", "status"), [("tool_use", ["error"], "complete"), ("max_tokens", [], "truncated")]
)
def test_input_that_broke_off_never_runs(
    face: Any, sim: Any, scores: Any, word: str, flags: list[str], status: str
) -> None:
    """A stream with a proper end in the middle of a call's input, which the SDK's own helper would mend."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(CALL)
    chat.start(None, user="The score of Red?").result()
    scores.runs.clear()
    events = events_of(sim, CALL)
    (cut,) = (number for number, event in enumerate(events) if b'\\"tea' in event)
    ending = next(event for event in events if b"message_delta" in event)
    ending = ending.replace(b'"tool_use"', b'"%s"' % word.encode())
    sim.push(Reply.sse(b"".join([*events[: cut + 1], ending, events[-1]])))

    result = chat.start(None, user="The score of Red?").result()
    after = chat.chat_with_state(result.state, user="Hello.")

    assert scores.runs == []
    assert [record.flag for record in result.tool_log] == flags
    assert has_calls(result.state) == bool(flags)
    assert (result.status, after.status) == (status, "complete")
    assert sim.problems == []


@pytest.mark.parametrize("events", [0, 1])
def test_an_error_before_the_first_word_is_retried(face: Any, sim: Any, clock: Any, events: int) -> None:
    """The status was 200 long ago; the provider is overloaded all the same, and nobody has seen a word."""
    chat = face.on(sim, max_retries=1)
    sim.push(Fault.error_event(after=events), Reply.text("Hello."))

    result = chat.start(None, user="Hello?").result()

    assert (result.text, len(sim.requests), len(clock.naps)) == ("Hello.", 2, 1)
    assert roles(result.state) == ["user", "assistant"]
    assert sim.problems == []


@pytest.mark.parametrize("events", [0, 1])
def test_an_error_before_the_first_word_is_unavailable(
    face: Any, sim: Any, texts_sent: Any, events: int
) -> None:
    """Without retries it is like an error status: the message waits, unseen, and is said once."""
    chat = face.on(sim)
    sim.push(Fault.error_event(after=events))

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.start(None, user="Hello?").result()
    err = caught.value
    resumed = chat.resume(err.state)

    assert (err.retryable, err.partial_text, err.pending_input) == (True, "", ())
    assert inspect_state(err.state).waiting_messages == 1
    assert texts_sent(sim).count("Hello?") == 1
    assert roles(resumed.state) == ["user", "assistant"]
    assert sim.problems == []


def test_an_error_behind_a_word_is_an_interruption(face: Any, sim: Any, clock: Any) -> None:
    """Once something was shown nothing is retried; the error has what came, and the provider's code."""
    chat = face.on(sim, max_retries=2)
    sim.push(Fault.error_event(after=LEAD[sim.wire] + 1, reply=Reply.text("Once upon a time.")))

    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Tell me a story.").result()

    assert (caught.value.partial_text, caught.value.retryable) == ("Once", True)
    assert (len(sim.requests), clock.naps) == (1, [])
    assert ("overloaded_error" in str(caught.value)) == (sim.wire == ANTHROPIC)
    assert chat.resume(caught.value.state).status == "complete"


@pytest.mark.parametrize("wire", [RESPONSES])
@pytest.mark.parametrize("code", ["server_error", "server_is_overloaded", "rate_limit_exceeded"])
def test_a_response_that_failed_before_a_word_is_retried(face: Any, sim: Any, clock: Any, code: str) -> None:
    """`response.failed` ends a stream as an error event does."""
    failed = {"id": "resp_1", "object": "response", "status": "failed", "output": [], "error": {"code": code}}
    event = {"type": "response.failed", "response": failed}
    chat = face.on(sim, max_retries=1)
    sim.push(
        Reply.sse(b"event: response.failed\ndata: " + rawjson.dumps(event) + b"\n\n"), Reply.text("Hello.")
    )

    result = chat.start(None, user="Hello?").result()

    assert (result.text, len(sim.requests)) == ("Hello.", 2)
    assert sim.problems == []


def test_a_streamed_turn_counts_the_same_as_a_unary_one(face: Any, sim: Any) -> None:
    """Usage comes in other places of a stream, in pieces on one wire; the sums are equal."""
    chat = face.on(sim)
    unary = chat.chat(user="My name is Ada.").usage
    sim.clear()

    streamed = chat.start(None, user="My name is Ada.").result().usage

    assert streamed == unary
    assert streamed.output_tokens > 0
