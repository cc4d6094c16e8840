"""A provider that fails: the caller gets one typed error with a state to go on from, and loses nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from goaitools_py import (
    AuthenticationError,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    TurnError,
    Usage,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history

from ._reading import ALL, ANTHROPIC, CHAT, OPENAI, RESPONSES, on, roles, users

ASKED = "What is my name?"

REFUSED_BEFORE_AN_ANSWER = [
    *on(ALL, Fault.rate_limit(), RateLimitError, 429, True, id="429"),
    *on(OPENAI, Fault.quota(), RateLimitError, 429, False, id="quota"),
    *on([ANTHROPIC], Fault.quota(), AuthenticationError, 402, False, id="no credit"),
    *on(ALL, Fault.server_error(500), ProviderUnavailableError, 500, True, id="500"),
    *on(ALL, Fault.server_error(503), ProviderUnavailableError, 503, True, id="503"),
    *on(ALL, Fault.overloaded(), ProviderUnavailableError, 529, True, id="529"),
    *on(ALL, Fault.error(408, "timeout"), ProviderUnavailableError, 408, True, id="408"),
    *on(ALL, Fault.error(409, "conflict"), ProviderUnavailableError, 409, True, id="409"),
    *on(ALL, Fault.html(502), ProviderUnavailableError, 502, True, id="502 with a page"),
    *on(ALL, Fault.reset(), ProviderUnavailableError, None, True, id="reset"),
    *on(ALL, Fault.hang_up(), ProviderUnavailableError, None, True, id="hang-up"),
    *on(ALL, Fault.unauthorized(), AuthenticationError, 401, False, id="401"),
    *on(ALL, Fault.error(403, "forbidden"), AuthenticationError, 403, False, id="403"),
    *on(ALL, Fault.not_found(), ProviderRejectedError, 404, False, id="404"),
]

NO_REPLY = [
    *on(ALL, Fault.html(), id="page"),
    *on(ALL, Fault.null(), id="null"),
    *on(ALL, Fault.broken_json(), id="broken JSON"),
    *on(ALL, Reply.raw(b""), id="nothing"),
    *on(ALL, Reply.raw(b"[]"), id="a list"),
    *on(ALL, Reply.raw(b'{"error":{"message":"?"}}'), id="error without a name"),
    *on([ANTHROPIC], Reply.raw(b'{"type":"error","error":{"message":"?"}}'), id="nameless error"),
    *on([ANTHROPIC], Reply.raw(b'{"type":"message","content":null}'), id="null for content"),
    *on([RESPONSES], Reply.raw(b'{"object":"response","status":"completed"}'), id="no output"),
    *on([RESPONSES], Reply.raw(b'{"status":"cancelled","output":[]}'), id="cancelled"),
    *on([CHAT], Reply.raw(b'{"choices":[{"index":0}]}'), id="choice without a message"),
]


def known_ada(chat: Any) -> bytes:
    """A state after one turn, in which the player gave a name."""
    return chat.chat_with_state(None, user="My name is Ada.").state


def goes_on(chat: Any, sim: Any, err: TurnError, sent: Callable[..., list[str]]) -> None:
    """Both ways on from an error's state ask the question once, and the answer knows the past."""
    resumed = chat.resume(err.state)
    assert sent(sim).count(ASKED) == 1
    assert "Your name is Ada." in resumed.text
    assert users(resumed.state).count(ASKED) == 1
    asked_anew = chat.chat_with_state(err.state, user="And who am I?")
    assert sent(sim).count(ASKED) == 1
    assert "Your name is Ada." in asked_anew.text
    assert sim.problems == []


@pytest.mark.parametrize(("wire", "fault", "error", "status", "retryable"), REFUSED_BEFORE_AN_ANSWER)
def test_a_failed_call_keeps_the_message(
    face: Any, sim: Any, run: Any, texts_sent: Any, fault: Any, error: Any, status: Any, retryable: bool
) -> None:
    """The error names the status and whether to try again; its state holds the message, once."""
    chat = face.on(sim)
    before = known_ada(chat)
    sim.push(fault)

    with pytest.raises(error) as caught:
        run(chat, before, user=ASKED)

    err = caught.value
    assert type(err) is error
    assert (err.status_code, err.retryable, err.retry_after) == (status, retryable, None)
    assert (err.text, err.partial_text, err.tool_log, err.usage) == ("", "", (), Usage())
    assert err.pending_input == ()
    assert users(err.state).count(ASKED) == 1
    assert inspect_state(err.state).status == "failed"
    assert len(sim.requests) == 2
    goes_on(chat, sim, err, texts_sent)


@pytest.mark.parametrize(("wire", "fault"), NO_REPLY)
def test_a_200_without_a_reply_is_a_protocol_error(
    face: Any, sim: Any, run: Any, texts_sent: Any, fault: Any
) -> None:
    """A page, null or half an answer is no reply: retryable, and the message waits unseen."""
    chat = face.on(sim, max_retries=2)
    before = known_ada(chat)
    sim.push(fault)

    with pytest.raises(ProviderProtocolError) as caught:
        run(chat, before, user=ASKED, metadata={"of": "the message"})

    err = caught.value
    assert err.retryable
    assert (err.pending_input, err.partial_text, err.usage) == ((), "", Usage())
    assert inspect_state(err.state).waiting_messages == 1
    assert len(sim.requests) == 2
    resumed = chat.resume(err.state)
    assert read_history(resumed.state).turns[-1].metadata == {"of": "the message"}
    sim.requests.pop()
    goes_on(chat, sim, err, texts_sent)


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        *on([CHAT, ANTHROPIC], Fault.no_choices(), id="empty"),
        *on(ALL, Fault.no_choices(null=True), id="null"),
    ],
)
def test_a_completion_without_choices_is_a_protocol_error(
    face: Any, sim: Any, texts_sent: Any, fault: Any
) -> None:
    """Both SDKs return such a body as a value; here it is an error."""
    chat = face.on(sim)
    before = known_ada(chat)
    sim.push(fault)

    with pytest.raises(ProviderProtocolError) as caught:
        chat.chat_with_state(before, user=ASKED)

    assert caught.value.retryable
    goes_on(chat, sim, caught.value, texts_sent)


@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_a_stream_of_nothing_is_a_protocol_error(face: Any, sim: Any, texts_sent: Any) -> None:
    """A message that begins and stops, without a block and without a reason, is no answer."""
    chat = face.on(sim)
    before = known_ada(chat)
    sim.push(Fault.no_choices())

    with pytest.raises(ProviderProtocolError) as caught:
        chat.start(before, user=ASKED).result()

    assert caught.value.retryable
    goes_on(chat, sim, caught.value, texts_sent)


EMPTY = {
    RESPONSES: b'{"object":"response","id":"r","status":"completed","output":[],"model":"m"}',
    ANTHROPIC: b'{"type":"message","role":"assistant","id":"m","content":[],"stop_reason":"end_turn"}',
}


@pytest.mark.parametrize("wire", EMPTY)
def test_an_answer_that_ended_without_a_word_is_a_result(face: Any, sim: Any, texts_sent: Any) -> None:
    """Providers send such: it is paid for, says that it is complete, and the conversation goes on."""
    chat = face.on(sim)
    before = known_ada(chat)
    sim.push(Reply.raw(EMPTY[sim.wire]))

    result = chat.chat_with_state(before, user="Hm.")
    after = chat.chat_with_state(result.state, user=ASKED)

    assert (result.text, result.status) == ("", "complete")
    assert roles(result.state) == ["user", "assistant", "user"]
    assert texts_sent(sim).count("Hm.") == 1
    assert "Your name is Ada." in after.text
    assert sim.problems == []


def test_an_error_inside_a_200_is_named(face: Any, sim: Any, run: Any, texts_sent: Any) -> None:
    """An error object where the reply should be is classified like an error status."""
    chat = face.on(sim)
    before = known_ada(chat)
    sim.push(Fault.error_body())

    with pytest.raises(ProviderUnavailableError) as caught:
        run(chat, before, user=ASKED)

    assert caught.value.retryable
    assert inspect_state(caught.value.state).waiting_messages == 1
    goes_on(chat, sim, caught.value, texts_sent)


def test_no_server_at_all_is_unavailable(face: Any, wire: str) -> None:
    """A refused connection is a retryable error with the message in its state."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        chat = face.chat(face.backend(wire=wire, base_url=url, api_key="none", max_retries=0))

        with pytest.raises(ProviderUnavailableError) as caught:
            chat.chat(user=ASKED)

    assert caught.value.retryable
    assert caught.value.status_code is None
    assert [m.text for m in read_history(caught.value.state).all_messages()] == [ASKED]


def test_the_sdks_exception_is_at_hand(face: Any, sim: Any) -> None:
    """What the provider said in its own words is at `sdk_error`, with its request id on the error."""
    chat = face.on(sim)
    sim.push(Fault.unauthorized())

    with pytest.raises(AuthenticationError) as caught:
        chat.chat(user=ASKED)

    sdk = anthropic if sim.wire == ANTHROPIC else openai
    assert isinstance(caught.value.sdk_error, sdk.AuthenticationError)
    assert caught.value.request_id == "req_sim_000001"


def test_a_failure_after_tools_keeps_their_results(
    face: Any, sim: Any, run: Any, scores: Any, texts_sent: Any
) -> None:
    """The exchange before the failure is paid for: it stays, and no tool runs again."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.server_error())

    with pytest.raises(ProviderUnavailableError) as caught:
        run(chat, user="The score of Red?")
    err = caught.value
    result = chat.resume(err.state)

    assert err.usage.requests == 1
    assert [(r.call.name, r.result, r.flag) for r in err.tool_log] == [
        ("get_score", "Red has 7 points", "ok")
    ]
    assert "Red has 7 points" in texts_sent(sim)
    assert result.status == "complete"
    assert scores.runs == ["Red"]
    assert len(sim.requests) == 3
    assert sim.problems == []


def test_the_next_turn_after_a_failure_closes_it(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Without `resume`, the unfinished turn is closed with its real results, and a warning says so."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.server_error())
    with pytest.raises(ProviderUnavailableError) as caught:
        run(chat, user="The score of Red?")

    result = run(chat, caught.value.state, user="Never mind.")

    assert [w.code for w in result.warnings] == ["turn_closed"]
    assert roles(result.state) == ["user", "assistant", "tool", "user", "assistant"]
    assert sim.problems == []


# -------------------------------------------------------------------------------------------- retries


def test_transient_failures_are_retried(face: Any, sim: Any, run: Any, clock: Any) -> None:
    """As often as the backend says, with growing waits; then the turn is as if nothing had been."""
    chat = face.on(sim, max_retries=3)
    sim.push(Fault.server_error(), Fault.reset(), Fault.rate_limit())

    result = run(chat, user="Hello.")

    assert result.status == "complete"
    assert len(sim.requests) == 4
    assert [0.375 <= clock.naps[0] <= 0.5, 0.75 <= clock.naps[1] <= 1.0, 1.5 <= clock.naps[2] <= 2.0] == [
        True,
        True,
        True,
    ]
    assert (roles(result.state), users(result.state)) == (["user", "assistant"], ["Hello."])
    assert result.usage.requests == 1
    assert sim.problems == []


def test_retries_end(face: Any, sim: Any, run: Any, clock: Any) -> None:
    """After `max_retries` further tries the failure is the caller's."""
    chat = face.on(sim, max_retries=2)
    sim.push(*[Fault.server_error()] * 3)

    with pytest.raises(ProviderUnavailableError):
        run(chat, user="Hello.")

    assert len(sim.requests) == 3
    assert len(clock.naps) == 2


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault.rate_limit(retry_after=7), 7.0),
        (Fault.rate_limit(retry_after_ms=1500), 1.5),
        (Fault.rate_limit(retry_after=0), 0.0),
        (Fault.error(503, "busy", headers=(("retry-after", "3"),)), 3.0),
    ],
    ids=["seconds", "milliseconds", "at once", "503"],
)
def test_the_provider_says_how_long_to_wait(
    face: Any, sim: Any, clock: Any, fault: Any, seconds: float
) -> None:
    """A wait that the provider asks for is kept to the letter."""
    chat = face.on(sim, max_retries=1)
    sim.push(fault)

    chat.chat(user="Hello.")

    assert clock.naps == [seconds]


def test_a_long_wait_is_the_callers_to_make(face: Any, sim: Any, clock: Any) -> None:
    """`Retry-After: 400` is not slept through; the error says how long the provider asked to wait."""
    chat = face.on(sim, max_retries=2, timeout=None)
    sim.push(Fault.rate_limit(retry_after=400))

    with pytest.raises(RateLimitError) as caught:
        chat.chat(user="Hello.")

    assert caught.value.retry_after == 400.0
    assert caught.value.retryable
    assert clock.naps == []
    assert len(sim.requests) == 1


@pytest.mark.parametrize(
    "fault", [Fault.quota(), Fault.unauthorized(), Fault.not_found(), Fault.bad_request(), Fault.html()]
)
def test_what_will_not_pass_is_not_retried(face: Any, sim: Any, clock: Any, fault: Any) -> None:
    """An empty account, a wrong key, a bad request or a page in the way costs one request only."""
    chat = face.on(sim, max_retries=2)
    sim.push(fault)

    with pytest.raises(TurnError):
        chat.chat(user="Hello.")

    assert len(sim.requests) == 1
    assert clock.naps == []
