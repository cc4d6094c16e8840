"""Event streams and bodies under content types that are not theirs: the first bytes decide."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import ProviderProtocolError, RateLimitError, StreamInterruptedError, TextDelta
from goaitools_py.sim import Fault, Reply
from goaitools_py.sim.http_values import Response
from goaitools_py.turn.receive import is_event_stream

from ._reading import ALL, CHAT, LEAD, on, roles

CALL = Reply.calls(("get_score", '{"team":"Red"}'), text="Let me see.", ids=("call_1",))


def said(chat: Any, sim: Any, reply: Any, *, is_streamed: bool) -> Response:
    """What the simulator answers with this reply."""
    sim.push(Reply.text("x"))
    (chat.start(None, user="x").result if is_streamed else lambda: chat.chat(user="x"))()
    asked = sim.requests[-1]
    sim.push(reply)
    response: Response = sim.respond("POST", asked.path, asked.headers, asked.body)
    return response


def under(content_type: str | None, pieces: Any, **more: Any) -> Response:
    headers = () if content_type is None else (("content-type", content_type),)
    return Response(headers=headers, pieces=tuple(pieces), streamed=True, **more)


TYPES = [
    "application/json",
    "application/json; charset=utf-8",
    "text/plain",
    "text/plain; charset=utf-8",
    "text/html",
    "application/octet-stream",
    "text/event-stream",
    None,
]


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n\n", b": ping\n\n"])
def test_an_event_stream_is_read_whatever_it_is_called(
    face: Any, sim: Any, scores: Any, content_type: str | None, before: bytes
) -> None:
    """Word by word, with its calls; and the conversation goes on."""
    chat = face.on(sim, tools=[scores.get_score])
    events = said(chat, sim, CALL, is_streamed=True).pieces
    scores.runs.clear()
    sim.push(under(content_type, [before, *events]), Reply.text("Red has 7."))

    turn = chat.start(None, user="The score of Red?")
    words = [event.text for event in turn if isinstance(event, TextDelta)]
    result = turn.result()

    assert len(words) > 2
    assert "".join(words) == "Let me see.Red has 7."
    assert (result.text, scores.runs) == ("Red has 7.", ["Red"])
    assert sim.problems == []


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_the_first_bytes_may_come_one_by_one(face: Any, sim: Any, content_type: str) -> None:
    """As long as it could be either, more is read."""
    chat = face.on(sim)
    whole = b"".join(said(chat, sim, Reply.text("Hello."), is_streamed=True).pieces)
    sim.push(under(content_type, [whole[at : at + 1] for at in range(8)] + [whole[8:]]))

    assert chat.start(None, user="Hello?").result().text == "Hello."


@pytest.mark.parametrize("content_type", TYPES)
def test_one_body_is_read_whatever_it_is_called(face: Any, sim: Any, content_type: str | None) -> None:
    """A server that does not stream answers a request for a stream with one body."""
    chat = face.on(sim)
    (body,) = said(chat, sim, Reply.text("Hello."), is_streamed=False).pieces
    sim.push(under(content_type, [b"\n", body[:9], body[9:]]))

    turn = chat.start(None, user="Hello?")
    words = [event.text for event in turn if isinstance(event, TextDelta)]

    assert (words, turn.result().text) == (["Hello."], "Hello.")
    assert roles(turn.state) == ["user", "assistant"]
    assert sim.problems == []


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_an_event_stream_that_was_not_asked_for_is_read(face: Any, sim: Any, content_type: str) -> None:
    """Some gateways stream to everybody; the answer is paid for."""
    chat = face.on(sim)
    events = said(chat, sim, Reply.text("Hello."), is_streamed=True).pieces
    sim.push(under(content_type, events))

    result = chat.chat_with_state(None, user="Hello?")

    assert (result.text, roles(result.state)) == ("Hello.", ["user", "assistant"])


@pytest.mark.parametrize(("wire", "content_type"), on([CHAT], "text/event-stream", id="events"))
def test_an_error_body_under_the_name_of_a_stream_is_that_error(
    face: Any, sim: Any, content_type: str
) -> None:
    """With its class, not as a stream that broke off."""
    body = json.dumps({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}).encode()
    chat = face.on(sim)
    sim.push(under(content_type, [body]))

    with pytest.raises(RateLimitError):
        chat.start(None, user="Hello?").result()


@pytest.mark.parametrize("wire", ALL)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_a_stream_of_another_name_that_breaks_off_is_an_interruption(
    face: Any, sim: Any, content_type: str
) -> None:
    """The words that came are in the error."""
    chat = face.on(sim)
    events = said(chat, sim, Reply.text("Hello there."), is_streamed=True).pieces
    sim.push(under(content_type, events[: LEAD[sim.wire] + 1]))

    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Hello?").result()

    assert caught.value.partial_text
    assert "Hello there.".startswith(caught.value.partial_text)


@pytest.mark.parametrize("page", [Fault.html(), under("text/event-stream", [b"<html>busy</html>"])])
def test_a_page_is_no_stream(face: Any, sim: Any, page: Any) -> None:
    """A proxy's, whatever it says it is."""
    chat = face.on(sim)
    sim.push(page)

    with pytest.raises(ProviderProtocolError):
        chat.start(None, user="Hello?").result()


@pytest.mark.parametrize(
    ("opening", "found"),
    [
        (b"data: {}", True),
        (b"data:{}", True),
        (b"event: ping\n", True),
        (b"id: 1\n", True),
        (b"retry: 5\n", True),
        (b": ping\n", True),
        (b"\r\n\r\n\xef\xbb\xbf", None),
        (b"\xef\xbb\xbf data: 1", True),
        (b'{"data": 1}', False),
        (b" [1]", False),
        (b"<!doctype html>", False),
        (b"", None),
        (b"dat", None),
        (b"database: x", None),
        (b"null", None),
    ],
)
def test_what_bytes_begin(opening: bytes, found: bool | None) -> None:
    """A field of an event or a comment; JSON or HTML; or neither."""
    assert is_event_stream(opening) is found
