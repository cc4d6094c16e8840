"""Facts about streamed responses: what tells something, what holds what is kept, what ends a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends.base import Delta, FaultKind, ProtocolFault, Reply
from goaitools_py.backends.http.sse import MAX_EVENT_BYTES
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.types.messages import Usage

OPENAI = OpenAIResponsesDialect()
SECRET = "xyzzy"

fixed = settings(max_examples=200, deadline=None, derandomize=True, database=None)

THINK = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}'
SAY = '{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Hi you"}]}'
CALL = '{"type":"function_call","id":"fc","call_id":"c1","name":"look","arguments":"{\\"n\\": 1e5}"}'


def event(type: str, more: str = "", *, named: bool = True) -> bytes:
    """One event; `more` is the raw JSON of its other members."""
    data = f'{{"type":"{type}"{"," if more else ""}{more}}}'
    head = f"event: {type}\n" if named else ""
    return f"{head}data: {data}\n\n".encode()


def delta(text: Any, type: str = "response.output_text.delta") -> bytes:
    return event(
        type, f'"item_id":"m","output_index":0,"delta":{json.dumps(text)},"logprobs":[],"obfuscation":"xx"'
    )


def done(item: str, at: int | None = 0) -> bytes:
    where = "" if at is None else f'"output_index":{at},'
    return event("response.output_item.done", f'{where}"item":{item}')


def end(*items: str, type: str = "completed", **members: Any) -> bytes:
    rest = json.dumps({"id": "r1", "model": "m1", "status": type, **members})
    return event(f"response.{type}", f'"response":{{"output":[{",".join(items)}],{rest[1:]}')


STARTED = event("response.created", '"response":{"id":"r1","status":"in_progress","output":[],"error":null}')


def decode(*chunks: bytes) -> tuple[Reply, list[Delta]]:
    decoder = OPENAI.decoder()
    deltas = [delta for chunk in chunks for delta in decoder.feed(chunk)]
    return decoder.finish(), deltas


# ------------------------------------------------------------------------------------------ telling


def test_text_is_told_and_the_whole_item_kept() -> None:
    """Each piece is a delta; the stored bytes are those of the last event."""
    reply, deltas = decode(STARTED, delta("Hi "), delta("you"), done(SAY), end(SAY))

    assert deltas == [Delta(kind="text", text="Hi "), Delta(kind="text", text="you")]
    assert reply.entries == (SAY.encode(),)
    assert (reply.text, reply.finish_reason, reply.stop) == ("Hi you", "completed", "end")
    assert (reply.id, reply.model) == ("r1", "m1")


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("response.output_text.delta", "text"),
        ("response.refusal.delta", "text"),
        ("response.reasoning_text.delta", "reasoning"),
        ("response.reasoning_summary_text.delta", "reasoning"),
    ],
)
def test_four_kinds_of_deltas_tell_something(type: str, kind: str) -> None:
    """Visible text and reasoning, raw or summarised."""
    decoder = OPENAI.decoder()

    assert decoder.feed(delta("x", type)) == [Delta(kind=kind, text="x")]  # type: ignore[arg-type]
    assert decoder.partial_text == ("x" if kind == "text" else "")


@pytest.mark.parametrize(
    "silent",
    [
        delta("{", "response.function_call_arguments.delta"),
        delta("{", "response.custom_tool_call_input.delta"),
        delta("x", "response.audio.transcript.delta"),
        delta("x", "response.never_heard_of.delta"),
        delta(""),
        event("response.output_text.delta"),
        event("response.output_text.delta", '"delta":null'),
        event("response.output_text.delta", '"delta":{"x":1}'),
        event("response.output_text.done", '"text":"x"'),
        event("response.web_search_call.searching"),
        event("response.compaction.compacting"),
        event("keepalive"),
        b": ping\n\n",
        b"data: \n\n",
        b'data: {"x":1}\n\n',
        b"data: [DONE]\n\n",
    ],
)
def test_all_else_is_silent(silent: bytes) -> None:
    """It is neither told nor an end nor an error."""
    reply, deltas = decode(silent, end(SAY))

    assert deltas == []
    assert reply.entries == (SAY.encode(),)


def test_half_an_emoji_finds_its_other_half() -> None:
    """Halves in two deltas are whole in what is told and in the partial text."""
    decoder = OPENAI.decoder()

    told = decoder.feed(event("response.output_text.delta", '"delta":"\\ud83d"'))
    told += decoder.feed(event("response.output_text.delta", '"delta":"\\ude00"'))

    assert [one.text for one in told] == ["😀"]
    assert decoder.partial_text == "😀"


# ------------------------------------------------------------------------------------------ keeping


def test_what_is_added_is_never_kept() -> None:
    """Its encrypted content may be half of it."""
    added = event("response.output_item.added", f'"output_index":0,"item":{THINK.replace("gAAA", "g")}')

    never_done = event("response.output_item.added", f'"output_index":2,"item":{SAY}')

    reply, _ = decode(added, done(THINK), done(CALL, 1), never_done, end())

    assert reply.entries == (THINK.encode(), CALL.encode())


def test_the_last_event_wins() -> None:
    """Where it has the items, they are kept in its form, not in that of their own events."""
    other = THINK.replace("gAAA", "gBBB")

    reply, _ = decode(done(other), done(SAY, 1), end(THINK, SAY))

    assert reply.entries == (THINK.encode(), SAY.encode())


@pytest.mark.parametrize("last", [end(), event("response.completed", '"response":{"status":"completed"}')])
def test_a_last_event_without_items_leaves_those_that_were_done(last: bytes) -> None:
    """In the order of their places, not of their events."""
    reply, _ = decode(done(CALL, 10), done(THINK, 2), done(SAY, 3), last)

    assert reply.entries == (THINK.encode(), SAY.encode(), CALL.encode())
    assert reply.run_calls


@pytest.mark.parametrize("place", ['"output_index":"x",', '"output_index":null,', '"output_index":-1.5,', ""])
def test_items_without_a_place_stand_as_they_came(place: str) -> None:
    """Servers that number nothing send in order."""
    events = [event("response.output_item.done", f'{place}"item":{item}') for item in (THINK, SAY, CALL)]

    reply, _ = decode(*events, end())

    assert reply.entries == (THINK.encode(), SAY.encode(), CALL.encode())


def test_the_end_tells_usage_and_status() -> None:
    """All that a unary response tells is told by the last event."""
    reply, _ = decode(
        end(
            SAY,
            type="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
            usage={"input_tokens": 5},
        )
    )

    assert (reply.stop, reply.finish_reason) == ("length", "max_output_tokens")
    assert reply.usage == Usage(input_tokens=5, requests=1)


@pytest.mark.parametrize(("type", "stop"), [("completed", "end"), ("incomplete", "length")])
def test_the_ends_name_is_its_status_where_it_has_none(type: str, stop: str) -> None:
    """Calls run after `response.completed`, with or without a status in it."""
    reply, _ = decode(event(f"response.{type}", f'"response":{{"output":[{CALL}]}}'))

    assert (reply.stop, reply.finish_reason, reply.run_calls) == (stop, type, type == "completed")


# ------------------------------------------------------------------------------------------- cutting

WHOLE = b"".join([STARTED, delta("Hä "), delta("you"), done(THINK), done(SAY, 1), end(THINK, SAY)])


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_cut_anywhere_changes_nothing(line_end: bytes) -> None:
    """Chunks may end in the middle of a line, a character, a line end."""
    stream = WHOLE.replace(b"\n", line_end)
    whole = decode(WHOLE)

    for at in range(0, len(stream), 7):
        assert decode(stream[:at], stream[at:]) == whole


def test_single_bytes_make_the_same_reply() -> None:
    """The finest cut of all."""
    assert decode(*(WHOLE[at : at + 1] for at in range(len(WHOLE)))) == decode(WHOLE)


def test_the_name_of_an_event_does_not_count() -> None:
    """Some servers leave `event:` lines out, and end with [DONE]."""
    nameless = b"\n".join(line for line in WHOLE.split(b"\n") if not line.startswith(b"event:"))

    assert decode(nameless, b"data: [DONE]\n\n") == decode(WHOLE)


def test_what_follows_the_end_is_ignored() -> None:
    """The reply is complete: neither an error nor noise can take it back."""
    noise = event("error", '"code":"server_error"') + b"data: {cut\n\n" + delta("more")

    assert decode(WHOLE + noise) == decode(WHOLE)
    assert decode(WHOLE, noise) == decode(WHOLE)


def test_a_stream_is_done_at_its_last_word() -> None:
    """Not before: there is no other sign of the end."""
    decoder = OPENAI.decoder()

    decoder.feed(delta("Hi") + done(SAY))
    before = decoder.is_done
    decoder.feed(end(SAY))

    assert (before, decoder.is_done) == (False, True)


def test_partial_text_grows() -> None:
    """Text that came is there, whatever becomes of the reply."""
    decoder = OPENAI.decoder()

    decoder.feed(delta("Hi ") + delta("Hm", "response.reasoning_text.delta") + delta("you"))

    assert decoder.partial_text == "Hi you"


# ---------------------------------------------------------------------------------------- going wrong


@pytest.mark.parametrize(
    "chunks",
    [
        (),
        (STARTED,),
        (delta("Hi"),),
        (delta("Hi"), done(SAY)),
        (delta("Hi"), done(SAY), b"data: [DONE]\n\n"),
        (done(CALL), end(CALL)[:-4]),
    ],
)
def test_a_clean_end_without_the_last_event_is_an_interruption(chunks: tuple[bytes, ...]) -> None:
    """Neither finished items nor [DONE] end a reply, nor does an event that was cut off."""
    with pytest.raises(ProtocolFault, match="before the reply did") as caught:
        decode(*chunks)

    assert (caught.value.fault.kind, caught.value.fault.retryable) == ("interrupted", True)


ERRORS: list[tuple[bytes, FaultKind, str, bool]] = [
    (
        event("error", f'"code":"server_error","message":"{SECRET}","param":null'),
        "unavailable",
        "server_error",
        True,
    ),
    (
        event("error", f'"error":{{"code":"rate_limit_exceeded","message":"{SECRET}"}}'),
        "rate_limit",
        "rate_limit_exceeded",
        True,
    ),
    (event("error", '"code":null,"message":"x"'), "protocol", "", True),
    (event("error", '"code":"invalid_prompt"'), "rejected", "invalid_prompt", False),
    (b'data: {"error":{"code":429}}\n\n', "rate_limit", "429", True),
    (b'data: {"object":"error","type":"Busy","code":503}\n\n', "unavailable", "Busy", True),
    (
        end(type="failed", error={"code": "server_error", "message": SECRET}),
        "unavailable",
        "server_error",
        True,
    ),
    (end(type="failed", error={"code": "invalid_image"}), "rejected", "invalid_image", False),
    (end(SAY, type="failed"), "interrupted", "", True),
    (event("response.failed"), "protocol", "", True),
    (event("response.failed", f'"response":{{"output":[{SAY}]}}'), "interrupted", "", True),
    (event("response.completed"), "protocol", "", True),
    (event("response.completed", '"response":{"status":"completed"}'), "protocol", "", True),
    (end(SAY, status="in_progress"), "protocol", "in_progress", False),
    (b"data: {cut\n\n", "protocol", "", True),
    (b"data: <html>xyzzy\n\n", "protocol", "", True),
    (b"data: 7\n\n", "protocol", "", True),
]


@pytest.mark.parametrize(("broken", "kind", "code", "retryable"), ERRORS)
def test_an_error_before_anything_came_is_classified(
    broken: bytes, kind: FaultKind, code: str, retryable: bool
) -> None:
    """As an error answer would be; nothing of it is quoted."""
    with pytest.raises(ProtocolFault) as caught:
        decode(STARTED, broken)

    fault = caught.value.fault
    assert (fault.kind, fault.code, fault.retryable) == (kind, code, retryable)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "before",
    [delta("Hi"), delta("x", "response.reasoning_text.delta"), done(THINK), delta("{", "response.x.delta")],
)
@pytest.mark.parametrize(("broken", "kind", "code", "retryable"), ERRORS)
def test_an_error_after_that_is_an_interruption(
    before: bytes, broken: bytes, kind: FaultKind, code: str, retryable: bool
) -> None:
    """The reply has begun: it is paid for, and the provider's code is kept. But done items that only lack
    the response around them are a reply."""
    if before == done(THINK) and broken == event("response.completed", '"response":{"status":"completed"}'):
        assert decode(before, broken)[0].entries == ()
        return
    with pytest.raises(ProtocolFault) as caught:
        decode(before, broken)

    assert (caught.value.fault.kind, caught.value.fault.code) == ("interrupted", code)


def test_an_event_without_end_is_given_up() -> None:
    """Before it fills the memory."""
    decoder = OPENAI.decoder()

    decoder.feed(b"data: " + b"x" * (MAX_EVENT_BYTES - 100))
    with pytest.raises(ProtocolFault, match="larger than"):
        decoder.feed(b"x" * 200)


def test_an_item_that_is_none_is_a_fault_of_the_reply() -> None:
    """It shows when the reply is read, and quotes nothing."""
    with pytest.raises(ProtocolFault, match="an item of the answer cannot be read"):
        decode(done('"xyzzy"'), end())


@fixed
@given(data=st.data())
def test_damaged_streams_raise_nothing_else(data: st.DataObject) -> None:
    """Cut or changed bytes give deltas, a reply or a ProtocolFault."""
    stream = bytearray(WHOLE + end(THINK, SAY, CALL))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at] = data.draw(st.sampled_from(b'"{}[],:0n\\x\xff\n\r'))

    try:
        reply, _ = decode(bytes(stream[: data.draw(st.integers(0, len(stream)))]))
    except ProtocolFault:
        return

    assert all(b"\n" not in entry for entry in reply.entries)
