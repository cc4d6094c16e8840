"""Facts about the Anthropic stream decoder: pieces of blocks become deltas and one answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import ProtocolFault, Reply, StreamDecoder

JSON = dict[str, Any]

DIALECT = AnthropicDialect()


def event(kind: str, **members: Any) -> bytes:
    data = json.dumps({"type": kind, **members}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def began(**more: Any) -> bytes:
    message = {
        "model": "claude-opus-4-8",
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 7, "cache_read_input_tokens": 100, "output_tokens": 1},
    }
    return event("message_start", message=message | more)


def start(index: int, block: JSON) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, kind: str, **members: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **members})


def ended(stop: str | None = "end_turn", **more: Any) -> bytes:
    end = event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 42}, **more)
    return end + event("message_stop")


TEXT = start(0, {"type": "text", "text": ""})
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}


def decoded(*events: bytes) -> Reply:
    decoder = DIALECT.decoder()
    decoder.feed(b"".join(events))
    return decoder.finish()


def stored(reply: Reply) -> list[JSON]:
    (entry,) = reply.entries
    content: list[JSON] = json.loads(entry)["content"]
    return content


def each_cut(stream: bytes) -> Iterator[StreamDecoder]:
    for at in range(0, len(stream) + 1, 3):
        decoder = DIALECT.decoder()
        decoder.feed(stream[:at])
        decoder.feed(stream[at:])
        yield decoder


# ------------------------------------------------------------------------------------ what is assembled


WHOLE = (
    began(),
    event("ping"),
    start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, "thinking_delta", thinking="H", estimated_tokens=1),
    delta(0, "thinking_delta", thinking="m."),
    delta(0, "signature_delta", signature="c2ln"),
    event("content_block_stop", index=0),
    start(1, {"citations": [], "type": "text", "text": ""}),
    delta(1, "text_delta", text="Grüß"),
    delta(1, "text_delta", text=" dich 🐢"),
    delta(1, "citations_delta", citation={"type": "page_location", "cited_text": "a"}),
    delta(1, "citations_delta", citation={"type": "page_location", "cited_text": "b"}),
    event("content_block_stop", index=1),
    start(2, {**CALL, "caller": {"type": "direct"}}),
    delta(2, "input_json_delta", partial_json=""),
    delta(2, "input_json_delta", partial_json='{"at": "do'),
    delta(2, "input_json_delta", partial_json='or", "n": 1.0}'),
    event("content_block_stop", index=2),
    start(3, {**CALL, "id": "toolu_2"}),
    event("content_block_stop", index=3),
    ended("tool_use"),
)


def test_blocks_are_assembled_as_the_unary_form_has_them() -> None:
    """Members in the order of the block's start, strings joined, the input as the model wrote it."""
    reply = decoded(*WHOLE)

    assert reply.entries == (
        b'{"role":"assistant","content":['
        b'{"type":"thinking","thinking":"Hm.","signature":"c2ln"},'
        b'{"citations":[{"type":"page_location","cited_text":"a"},{"type":"page_location","cited_text":"b"}],'
        b'"type":"text","text":"Gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x90\xa2"},'
        b'{"type":"tool_use","id":"toolu_1","name":"look","input":{"at": "door", "n": 1.0},'
        b'"caller":{"type":"direct"}},'
        b'{"type":"tool_use","id":"toolu_2","name":"look","input":{}}]}',
    )


def test_a_stream_is_the_reply_that_its_unary_form_is() -> None:
    """The same neutral reply, down to the usage."""
    streamed = decoded(*WHOLE)

    usage = {"input_tokens": 7, "cache_read_input_tokens": 100, "output_tokens": 42}
    content = streamed.entries[0].removeprefix(b'{"role":"assistant","content":')[:-1]
    body = (
        b'{"id":"msg_1","type":"message","model":"claude-opus-4-8","content":'
        + content
        + b',"stop_reason":"tool_use","usage":'
        + json.dumps(usage).encode()
        + b"}"
    )
    assert DIALECT.reply(body) == streamed
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (107, 42)
    assert streamed.run_calls


def test_a_stream_cut_anywhere_is_the_same_reply() -> None:
    """Chunks end inside of events, lines and characters."""
    stream = b"".join(WHOLE)
    whole = decoded(stream)

    assert all(decoder.finish() == whole for decoder in each_cut(stream))


def test_deltas_tell_text_and_reasoning_as_they_come() -> None:
    """And nothing else: no input, no signature."""
    decoder = DIALECT.decoder()

    told = [(one.kind, one.text) for part in WHOLE for one in decoder.feed(part)]

    assert told == [("reasoning", "H"), ("reasoning", "m."), ("text", "Grüß"), ("text", " dich 🐢")]
    assert decoder.partial_text == "Grüß dich 🐢"
    assert decoder.is_done


def test_a_block_may_begin_with_text() -> None:
    """Some servers put the first piece into the start."""
    decoder = DIALECT.decoder()

    told = decoder.feed(began() + start(0, {"type": "text", "text": "He"}) + delta(0, "text_delta", text="y"))
    told += decoder.feed(ended())

    assert [one.text for one in told] == ["He", "y"]
    assert decoder.finish().text == "Hey"


def test_events_of_other_spellings_are_read_too() -> None:
    """Spaces, another order of members, unknown ones, and no event names."""
    spaced = (
        b'data: {"index": 0, "type": "content_block_delta", "delta": {"text": "a", "type": "text_delta"}}\n\n'
    )
    extended = event("content_block_delta", index=0, x=1, delta={"type": "text_delta", "text": "b", "y": 2})

    reply = decoded(began(), TEXT, spaced, extended, delta(0, "text_delta", text="c"), ended())

    assert reply.text == "abc"


def test_blocks_are_in_the_order_of_their_places() -> None:
    """Whichever began first, and however their pieces mix."""
    second = start(1, {"type": "text", "text": ""})

    reply = decoded(
        began(), second, TEXT, delta(1, "text_delta", text="b"), delta(0, "text_delta", text="a"), ended()
    )

    assert reply.text == "ab"


def test_unknown_keys_of_a_block_keep_their_bytes() -> None:
    """Numbers as they were spelled, nested things unread."""
    block = b'{"type":"text","x":1e5,"text":"a"}'
    raw = b'data: {"type":"content_block_start","index":0,"content_block":' + block + b"}\n\n"

    reply = decoded(began(), raw, ended())

    assert reply.entries == (b'{"role":"assistant","content":[' + block + b"]}",)


def test_half_an_emoji_waits_for_its_other_half() -> None:
    """Strings are joined code point for code point; one half alone is replaced."""
    pieces = (
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}\n\n',
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\udc22"}}\n\n',
    )

    assert decoded(began(), TEXT, *pieces, ended()).text == "🐢"
    alone = decoded(began(), TEXT, pieces[0], ended())
    assert alone.text == "\ufffd"
    assert b'"\\ufffd"' in alone.entries[0]


def test_an_input_may_be_cut_inside_of_an_emoji() -> None:
    """As servers cut that count UTF-16 units."""
    pieces = (
        b'data: {"type":"content_block_delta","index":0,"delta":'
        b'{"type":"input_json_delta","partial_json":"{\\"a\\":\\"\\ud83d"}}\n\n',
        b'data: {"type":"content_block_delta","index":0,"delta":'
        b'{"type":"input_json_delta","partial_json":"\\udc22\\"}"}}\n\n',
    )

    reply = decoded(began(), start(0, CALL), *pieces, ended("tool_use"))

    assert reply.calls[0].parsed == {"a": "🐢"}
    half = decoded(
        began(), start(0, CALL), pieces[0], delta(0, "input_json_delta", partial_json='"}'), ended()
    )
    assert half.calls[0].parsed == {"a": "\ufffd"}


@pytest.mark.parametrize("text", ['{"at": "do', "[1]", "look!", '{"a":1} {"b":2}'])
def test_input_that_is_no_object_is_the_calls_alone(text: str) -> None:
    """The model's text is in the call's arguments; what is stored is an empty object.

    One that nests too deep is stored cut (tests/turn/test_deep_replies.py).
    """
    pieces = [delta(0, "input_json_delta", partial_json=text[at : at + 3]) for at in range(0, len(text), 3)]

    reply = decoded(began(), start(0, CALL), *pieces, ended("tool_use"))

    assert reply.calls[0].arguments == text
    assert stored(reply)[0]["input"] == {}


def test_cut_json_never_runs() -> None:
    """The reply stopped for length in the middle of an input."""
    reply = decoded(
        began(), start(0, CALL), delta(0, "input_json_delta", partial_json='{"at": "do'), ended("max_tokens")
    )

    assert (reply.run_calls, reply.stop) == (False, "length")
    assert DIALECT.without_calls(reply).entries == ()


def test_an_input_may_stand_in_the_start() -> None:
    """A server that does not stream it sends it whole."""
    reply = decoded(began(), start(0, {**CALL, "input": {"at": "door"}}), ended("tool_use"))

    assert reply.calls[0].parsed == {"at": "door"}


def test_results_of_hosted_tools_come_whole() -> None:
    """In the start of their block."""
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]}

    reply = decoded(
        began(),
        start(0, search),
        delta(0, "input_json_delta", partial_json='{"query":"q"}'),
        start(1, found),
        start(2, {"type": "text", "text": ""}),
        delta(2, "text_delta", text="There."),
        ended(),
    )

    assert stored(reply) == [{**search, "input": {"query": "q"}}, found, {"type": "text", "text": "There."}]
    assert reply.calls == ()


def test_a_compaction_comes_in_one_delta() -> None:
    """Its members are set, not joined."""
    reply = decoded(
        began(),
        start(0, {"type": "compaction", "content": None}),
        delta(0, "compaction_delta", content="So far.", encrypted_content="ZW5j"),
        ended("compaction"),
    )

    assert stored(reply) == [{"type": "compaction", "content": "So far.", "encrypted_content": "ZW5j"}]
    assert reply.stop == "pause"


def test_a_block_of_an_unknown_kind_grows_by_its_own_names() -> None:
    """Strings and lists go on, anything else is replaced."""
    reply = decoded(
        began(),
        start(0, {"type": "brand_new", "words": "a", "list": [1]}),
        delta(0, "brand_new_delta", words="b", list=[2], count=1),
        delta(0, "brand_new_delta", words="c", list=[3], count=2, nothing=None),
        ended(),
    )

    assert stored(reply) == [{"type": "brand_new", "words": "abc", "list": [1, 2, 3], "count": 2}]


def test_an_unknown_delta_changes_no_known_block() -> None:
    """A key that the request type lacks would have every later request refused."""
    reply = decoded(
        began(), TEXT, delta(0, "text_delta", text="a"), delta(0, "brand_new_delta", mood="glad"), ended()
    )

    assert stored(reply) == [{"type": "text", "text": "a"}]


def test_unknown_events_are_passed_over() -> None:
    """The provider's word: new kinds may come."""
    reply = decoded(began(), event("brand_new", x=1), TEXT, delta(0, "text_delta", text="a"), ended())

    assert reply.text == "a"


# ----------------------------------------------------------------------------------- beside the content


def test_the_last_counts_hold() -> None:
    """Totals so far: a later one replaces, a missing or null one leaves what was."""
    end = event(
        "message_delta",
        delta={"stop_reason": "end_turn"},
        usage={
            "input_tokens": 9,
            "cache_read_input_tokens": None,
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    )

    usage = decoded(began(), TEXT, delta(0, "text_delta", text="a"), end, event("message_stop")).usage

    assert (usage.input_tokens, usage.cached_input_tokens) == (109, 100)
    assert (usage.output_tokens, usage.reasoning_tokens) == (5, 3)


def test_container_and_transformations_come_at_either_end() -> None:
    """The end's word replaces the beginning's."""
    first = {"id": "container_1", "expires_at": "1970-01-01T00:00:01Z"}
    second = {"id": "container_2", "expires_at": "1970-01-01T00:00:02Z"}
    dropped = [{"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}]
    end = event("message_delta", delta={"stop_reason": "end_turn", "container": second}, usage={})

    early = decoded(began(container=first, input_transformations=dropped), TEXT, ended())
    late = decoded(
        began(container=first, input_transformations=dropped),
        end,
        event("message_delta", delta={"container": None}, input_transformations=[]),
        event("message_stop"),
    )

    assert (early.carried, early.dropped) == (
        {"container": ("container_1", 1000)},
        ("prefix_binding_mismatch",),
    )
    assert (late.carried, late.dropped, late.finish_reason) == (
        {"container": ("container_2", 2000)},
        (),
        "end_turn",
    )


# --------------------------------------------------------------------------------------- broken streams


def test_a_reply_ends_with_its_stop_reason() -> None:
    """A clean end of the connection before it is a break; what stands behind it may be missing."""
    stream = b"".join(WHOLE)
    end = stream.index(b"\n\n", stream.index(b'"message_delta"')) + 2
    for at in range(0, end - 2, 3):
        decoder = DIALECT.decoder()
        decoder.feed(stream[:at])
        assert not decoder.is_done
        with pytest.raises(ProtocolFault) as caught:
            decoder.finish()
        assert (caught.value.fault.kind, caught.value.fault.retryable) == ("interrupted", True)
    decoder = DIALECT.decoder()
    decoder.feed(stream[:end])
    assert (decoder.is_done, decoder.finish().finish_reason) == (False, "tool_use")


def test_nothing_after_the_end_matters() -> None:
    """Not even garbage, or another message."""
    decoder = DIALECT.decoder()
    decoder.feed(began() + TEXT + delta(0, "text_delta", text="a") + ended())

    assert decoder.feed(delta(0, "text_delta", text="b") + b"data: garbage\n\n") == []
    assert decoder.finish().text == "a"


OVERLOADED = {"type": "overloaded_error", "message": "secret"}


def test_an_error_before_anything_came_is_what_it_says() -> None:
    """Overloaded: to be tried again."""
    decoder = DIALECT.decoder()

    with pytest.raises(ProtocolFault) as caught:
        decoder.feed(began() + event("error", error=OVERLOADED))

    fault = caught.value.fault
    assert (fault.kind, fault.code, fault.retryable) == ("unavailable", "overloaded_error", True)


def test_an_error_in_the_middle_is_an_interruption() -> None:
    """With the error's name, and without its words."""
    decoder = DIALECT.decoder()
    decoder.feed(began() + TEXT + delta(0, "text_delta", text="Half"))

    with pytest.raises(ProtocolFault) as caught:
        decoder.feed(event("error", error=OVERLOADED))

    fault = caught.value.fault
    assert (fault.kind, fault.code, fault.retryable) == ("interrupted", "overloaded_error", True)
    assert "secret" not in str(caught.value)
    assert decoder.partial_text == "Half"


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: [DONE]\n\n",
        b"data: \xff\n\n",
        event("content_block_delta", index=0, delta=7),
        event("content_block_delta", index=9, delta={"type": "text_delta", "text": "a"}),
        event("content_block_delta", delta={"type": "text_delta", "text": "a"}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_start", content_block={"type": "text", "text": ""}),
        event("content_block_start", index=1, content_block=None),
        b'data: {"error":{"message":"secret"}}\n\n',
    ],
)
def test_an_event_that_makes_no_sense_is_an_interruption(bad: bytes) -> None:
    """Never a crash, never a guess, never a quote."""
    decoder = DIALECT.decoder()
    decoder.feed(began() + TEXT + delta(0, "text_delta", text="Half"))

    with pytest.raises(ProtocolFault) as caught:
        decoder.feed(bad)

    assert caught.value.fault.kind == "interrupted"
    assert "secret" not in str(caught.value)


def test_a_page_instead_of_a_stream_is_no_reply() -> None:
    """HTML has no events."""
    with pytest.raises(ProtocolFault):
        decoded(b"<html>\n\nbusy\n\n</html>\n\n")


def test_many_citations_take_no_longer_each() -> None:
    """A list grows by its elements, and is written once."""
    cited = delta(0, "citations_delta", citation={"cited_text": "a" * 50})

    reply = decoded(began(), TEXT, delta(0, "text_delta", text="a"), cited * 20_000, ended())

    assert len(stored(reply)[0]["citations"]) == 20_000
