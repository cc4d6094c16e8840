"""How a reply ends: streams without a last event, stop words of failed servers, errors in odd places."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import (
    AuthenticationError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    StreamInterruptedError,
)
from goaitools_py.states import read_history
from goaitools_py.testing import Raw, ScriptedBackend
from goaitools_py.types.events import TextDelta

from ._reading import ALL, ANTHROPIC, CHAT, RESPONSES
from .test_empty_replies import chat, claude, responses

USAGE = {"input_tokens": 11, "output_tokens": 5}
HEAD = {
    "type": "message_start",
    "message": {"id": "m", "type": "message", "role": "assistant", "content": []},
}
CALL = {"type": "tool_use", "id": "c1", "name": "get_score", "input": {}}
RED = '{"team":"Red"}'


def stream(*events: Any) -> Raw:
    return Raw([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])


def text(words: str = "Hello.", *, closed: bool = True) -> list[Any]:
    events = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}},
    ]
    return [*events, *([{"type": "content_block_stop", "index": 0}] if closed else [])]


def call(written: str = RED, *, closed: bool = True) -> list[Any]:
    delta = {"type": "input_json_delta", "partial_json": written}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": CALL},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    ]
    return [*events, *([{"type": "content_block_stop", "index": 0}] if closed else [])]


def end(word: str | None, *, usage: bool = True) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": word}, **({"usage": USAGE} if usage else {})}


STOP = {"type": "message_stop"}

# -------------------------------------------------------------------------- Messages without `message_stop`


def test_a_stream_whose_blocks_are_closed_is_whole(face: Any) -> None:
    """A compatible server that leaves the last event out has said everything."""
    backend = ScriptedBackend(stream(HEAD, *text(), end("end_turn")), wire=ANTHROPIC)

    result = face.chat(backend).start(None, user="Hi.").result()

    assert (result.status, result.text, result.usage.output_tokens) == ("complete", "Hello.", 5)


@pytest.mark.parametrize("word", ["tool_use", "end_turn"])
@pytest.mark.parametrize("stop", [True, False])
def test_whole_calls_run(face: Any, scores: Any, word: str, stop: bool) -> None:
    events = [HEAD, *call(), end(word), *([STOP] if stop else [])]
    backend = ScriptedBackend(stream(*events), stream(HEAD, *text(), end("end_turn")), wire=ANTHROPIC)

    result = face.chat(backend, tools=[scores.get_score]).start(None, user="The score?").result()

    assert (result.text, scores.runs) == ("Hello.", ["Red"])


def test_whole_calls_of_a_body_run_under_end_turn(face: Any, scores: Any) -> None:
    asked = claude({**CALL, "input": {"team": "Red"}}, stop="end_turn")
    backend = ScriptedBackend(asked, "Hello.", wire=ANTHROPIC)

    result = face.chat(backend, tools=[scores.get_score]).chat_with_state(None, user="The score?")

    assert (result.text, scores.runs) == ("Hello.", ["Red"])


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*text(closed=False), end("end_turn")], id="an open block"),
        pytest.param([*text(), end(None)], id="no stop reason"),
        pytest.param([*text(), end("end_turn", usage=False)], id="no usage"),
        pytest.param([*call(), end(None)], id="a call without a stop reason"),
        pytest.param([*call(closed=False), end("tool_use")], id="an open call"),
        pytest.param(text(), id="no end"),
    ],
)
def test_any_other_stream_broke_off(face: Any, scores: Any, events: list[Any]) -> None:
    """Its text is in the error, and no call of it runs."""
    backend = ScriptedBackend(stream(HEAD, *events), wire=ANTHROPIC)

    with pytest.raises(StreamInterruptedError):
        face.chat(backend, tools=[scores.get_score]).start(None, user="The score?").result()

    assert scores.runs == []


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([*call(), end("max_tokens"), STOP], "truncated"),
        ([*call(), end("max_tokens")], "truncated"),
        ([*call(), end("refusal"), STOP], "refused"),
        ([*call(), end(None), STOP], "complete"),
        ([*call('{"team":"Re'), end("end_turn"), STOP], "complete"),
        ([*call(closed=False), end("end_turn"), STOP], "complete"),
        ([*call(), end("stop_sequence"), STOP], "complete"),
    ],
)
def test_calls_that_may_not_run(face: Any, scores: Any, events: list[Any], status: str) -> None:
    backend = ScriptedBackend(stream(HEAD, *events), wire=ANTHROPIC)

    result = face.chat(backend, tools=[scores.get_score]).start(None, user="The score?").result()

    assert (result.status, scores.runs) == (status, [])
    assert result.warnings[0].code == "calls_dropped"


# ------------------------------------------------------------------------------ words of a failed server


WORDS = ["error", "abort", "insufficient_system_resource", "network_error"]


def ending(wire: str, word: str, words: str) -> Any:
    if wire == CHAT:
        return chat(word, content=words, out=5)
    return claude(*([{"type": "text", "text": words}] if words else []), out=5, stop=word)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC])
def test_a_reply_that_broke_off_is_not_complete(face: Any, run: Any, wire: str, word: str) -> None:
    """As of a stream that breaks off: what was said is kept, and not asked for again by itself."""
    backend = ScriptedBackend(ending(wire, word, "Once upon"), "Once upon a time.", wire=wire, max_retries=2)
    made = face.chat(backend)

    with pytest.raises(StreamInterruptedError) as caught:
        run(made, user="A story.")

    assert (caught.value.partial_text, caught.value.code, len(backend.requests)) == ("Once upon", word, 1)
    assert caught.value.usage.output_tokens == 5
    assert read_history(caught.value.state).turns[-1].partial_text == "Once upon"
    assert made.resume(caught.value.state).text == "Once upon a time."


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC])
def test_a_reply_that_broke_off_before_its_first_word(face: Any, run: Any, wire: str, word: str) -> None:
    """Nothing is lost: it is asked for again, as after a 503."""
    backend = ScriptedBackend(ending(wire, word, ""), "Hello.", wire=wire, max_retries=1)
    assert run(face.chat(backend), user="Hi.").text == "Hello."

    backend = ScriptedBackend(ending(wire, word, ""), wire=wire)
    with pytest.raises(ProviderUnavailableError):
        run(face.chat(backend), user="Hi.")


# ------------------------------------------------------------------------------- errors in odd places


def minimax(code: int) -> dict[str, Any]:
    return {"id": "x", "choices": None, "base_resp": {"status_code": code, "status_msg": "SECRET"}}


PLACES = [
    pytest.param(minimax(1008), AuthenticationError, "credit", id="minimax-balance"),
    pytest.param(minimax(1004), AuthenticationError, "", id="minimax-key"),
    pytest.param(minimax(1002), RateLimitError, "", id="minimax-rate"),
    pytest.param(minimax(1026), ProviderRejectedError, "", id="minimax-content"),
    pytest.param(minimax(1033), ProviderUnavailableError, "", id="minimax-system"),
    pytest.param({"errors": [{"code": 401, "message": "SECRET"}]}, AuthenticationError, "", id="cloudflare"),
    pytest.param(
        {"object": "error", "message": "SECRET", "type": "invalid_request_error", "code": 400},
        ProviderRejectedError,
        "",
        id="vllm",
    ),
    pytest.param(
        {"code": "rate_limit_exceeded", "message": "SECRET", "request_id": "x"},
        RateLimitError,
        "",
        id="dashscope",
    ),
]


@pytest.mark.parametrize(("body", "error", "word"), PLACES)
@pytest.mark.parametrize("wire", ALL)
def test_an_error_in_a_place_of_its_own(
    face: Any, run: Any, wire: str, body: Any, error: type[Exception], word: str
) -> None:
    """Status 200, and no reply: the error says what it is, and is not retried in vain."""
    data = json.dumps(body).encode()
    backend = ScriptedBackend(Raw.body(data), wire=wire)

    with pytest.raises(error) as caught:
        run(face.chat(backend), user="Hi.")

    assert word in str(caught.value)
    assert "SECRET" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert "environment variable" not in str(caught.value)


def test_an_error_in_the_place_of_the_first_event(face: Any) -> None:
    """MiniMax streams the same object; one with status 0 is no error."""
    backend = ScriptedBackend(stream(minimax(1008)), max_retries=2)

    with pytest.raises(AuthenticationError):
        face.chat(backend).start(None, user="Hi.").result()

    assert len(backend.requests) == 1


def test_a_reply_with_a_status_of_zero_is_a_reply(face: Any, run: Any) -> None:
    def answer(request: Any) -> Raw:
        chunks = chat(content="Hello.")(request).chunks
        return Raw([one.replace(b'"id"', b'"base_resp":{"status_code":0},"id"', 1) for one in chunks])

    assert run(face.chat(ScriptedBackend(answer)), user="Hi.").text == "Hello."


# ------------------------------------------------------------------------- how servers write a stream


ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
SAID = {**ITEM, "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]}
HELLO = {
    CHAT: chat(content="Hello.", out=5),
    RESPONSES: responses(SAID, out=5),
    ANTHROPIC: claude({"type": "text", "text": "Hello."}, out=5),
}


@pytest.mark.parametrize("cut", [1, 7, 10_000])
@pytest.mark.parametrize("is_narrow", [False, True], ids=["blank lines", "one newline"])
@pytest.mark.parametrize("wire", ALL)
def test_streams_without_blank_lines(face: Any, wire: str, is_narrow: bool, cut: int) -> None:
    """The last event may lack its blank line, and all others, too: the reply is whole, and asked for once."""

    def answer(request: Any) -> Raw:
        sent = b"".join(HELLO[wire](request).chunks).rstrip(b"\n")
        sent = sent.replace(b"\n\n", b"\n") if is_narrow else sent
        return Raw([sent[at : at + cut] for at in range(0, len(sent), cut)])

    backend = ScriptedBackend(answer, wire=wire, max_retries=2)

    result = face.chat(backend).start(None, user="Hi.").result()

    assert (result.status, result.text, result.usage.output_tokens) == ("complete", "Hello.", 5)
    assert len(backend.requests) == 1


@pytest.mark.parametrize("wire", ALL)
def test_done_behind_a_whole_body(face: Any, wire: str) -> None:
    backend = ScriptedBackend(
        lambda request: Raw([*HELLO[wire](request).chunks, b"\n\ndata: [DONE]\n\n"]), wire=wire
    )

    assert face.chat(backend).chat_with_state(None, user="Hi.").text == "Hello."


def test_the_text_of_a_last_event_is_told(face: Any) -> None:
    """A listener hears it, though nothing but the end of the stream says that the event is whole."""
    event = {"choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    backend = ScriptedBackend(Raw([b"data: " + json.dumps(event).encode()]))
    turn = face.chat(backend).start(None, user="Hi.")

    assert [one.text for one in turn if isinstance(one, TextDelta)] == ["Hello."]
    assert turn.result().text == "Hello."
