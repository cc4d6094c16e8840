"""Facts about streamed chat completions: how pieces become one message, and what ends a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goaitools_py.backends.base import Delta, FaultKind, ProtocolFault, Reply
from goaitools_py.backends.http.sse import MAX_EVENT_BYTES
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_chat.stream import ChatDecoder
from goaitools_py.types.messages import ToolCall, Usage

OTHER = OpenAIChatDialect("llm.example.org")
SECRET = "xyzzy"
DONE = b"data: [DONE]\n\n"


def sse(event: Any) -> bytes:
    return b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"


def chunk(delta: Any = None, finish: Any = None, **members: Any) -> bytes:
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return sse({"id": "r1", "model": "m1", "choices": [choice], **members})


def stream(*deltas: Any, finish: Any = "stop") -> bytes:
    return b"".join(chunk(delta) for delta in deltas) + chunk(finish=finish) + DONE


def calls(*deltas: Any) -> dict[str, Any]:
    return {"tool_calls": list(deltas)}


def decode(*chunks: bytes, dialect: OpenAIChatDialect = OTHER) -> tuple[Reply, list[Delta]]:
    decoder = dialect.decoder()
    deltas = [delta for part in chunks for delta in decoder.feed(part)]
    return decoder.finish(), deltas


def message(*deltas: Any) -> Any:
    """The assembled message of a stream of these deltas."""
    reply, _ = decode(stream(*deltas))
    return json.loads(reply.entries[0])


# ------------------------------------------------------------------------------------- assembling


def test_text_is_joined_and_told() -> None:
    """Each piece is a delta; the message is stored once, in a fixed order of keys."""
    reply, deltas = decode(
        stream({"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"})
    )

    assert deltas == [Delta(kind="text", text="Hel"), Delta(kind="text", text="lo")]
    assert reply.entries == (b'{"role":"assistant","content":"Hello"}',)
    assert (reply.text, reply.finish_reason, reply.stop) == ("Hello", "stop", "end")
    assert (reply.id, reply.model) == ("r1", "m1")


def test_keys_have_a_fixed_order() -> None:
    """role, content, the rest as it came, tool_calls; whatever came first on the wire."""
    reply, _ = decode(
        stream(
            calls({"index": 0, "id": "c", "function": {"name": "f"}}), {"reasoning": "r"}, {"content": "x"}
        )
    )

    assert list(json.loads(reply.entries[0])) == ["role", "content", "reasoning", "tool_calls"]


def test_a_call_is_assembled_from_its_pieces() -> None:
    """Arguments are joined code point for code point; the place in the stream is no part of the call."""
    reply, deltas = decode(
        stream(
            {"role": "assistant", "content": None},
            calls(
                {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
            ),
            calls({"index": 0, "function": {"arguments": '{"at": 1e'}}),
            calls({"index": 0, "function": {"arguments": '5, "é": "\\ud83d'}}),
            calls({"index": 0, "function": {"arguments": '\\ude00"}'}}),
            calls({"index": 1, "id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}}),
            finish="tool_calls",
        )
    )

    assert reply.calls == (
        ToolCall(id="c1", name="look", arguments='{"at": 1e5, "é": "\\ud83d\\ude00"}'),
        ToolCall(id="c2", name="b", arguments="{}"),
    )
    assert reply.run_calls
    assert deltas == []
    assert json.loads(reply.entries[0]) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": 1e5, "é": "\\ud83d\\ude00"}'},
            },
            {"id": "c2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
        ],
    }


F = {"name": "f", "arguments": "1"}
G = {"name": "g", "arguments": "2"}


@pytest.mark.parametrize(
    ("deltas", "found"),
    [
        # One call whose id and name are repeated with every piece, or emptied.
        (
            [{"index": 0, "id": "a", "function": F}, {"index": 0, "id": "a", "function": F}],
            [("a", "f", "11")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": F},
                {"index": 0, "id": "", "function": {"name": "", "arguments": "2"}},
            ],
            [("a", "f", "12")],
        ),
        (
            [
                {"index": 0, "id": "a", "function": F},
                {"index": 0, "id": None, "function": {"name": None, "arguments": None}},
            ],
            [("a", "f", "1")],
        ),
        # Parallel calls interleaved.
        (
            [
                {"index": 1, "id": "b", "function": G},
                {"index": 0, "id": "a", "function": F},
                {"index": 1, "function": F},
            ],
            [("b", "f", "21"), ("a", "f", "1")],
        ),
        # Gemini's endpoint: all calls numbered 0.
        (
            [{"index": 0, "id": "a", "function": F}, {"index": 0, "id": "b", "function": G}],
            [("a", "f", "1"), ("b", "g", "2")],
        ),
        # No index: by id, else the last one, else a new one when a name comes.
        ([{"id": "a", "function": F}, {"id": "b", "function": G}], [("a", "f", "1"), ("b", "g", "2")]),
        (
            [
                {"id": "a", "function": F},
                {"id": "b", "function": G},
                {"id": "a", "function": {"arguments": "3"}},
            ],
            [("a", "f", "13"), ("b", "g", "2")],
        ),
        ([{"id": "a", "function": F}, {"function": {"arguments": "3"}}], [("a", "f", "13")]),
        # A new id with a piece that names nothing goes on with its index's call.
        (
            [{"index": 0, "id": "a", "function": F}, {"index": 0, "id": "b", "function": {"arguments": "3"}}],
            [("b", "f", "13")],
        ),
    ],
)
def test_pieces_find_their_call(deltas: list[Any], found: list[tuple[str, str, str]]) -> None:
    """Whatever way a server numbers and names them."""
    reply, _ = decode(stream(*(calls(delta) for delta in deltas)))
    together, _ = decode(stream(calls(*deltas)))

    assert [(call.id, call.name, call.arguments) for call in reply.calls] == found
    assert together.calls == reply.calls


def test_calls_without_any_name_tag_are_two_when_two_names_come() -> None:
    """No index, no id: a name begins a call; ids are made so that results can be paired."""
    reply, _ = decode(stream(calls({"function": F}), calls({"function": G})))

    assert [call.name for call in reply.calls] == ["f", "g"]
    assert all(call.id.startswith("call_") for call in reply.calls)
    assert len({call.id for call in reply.calls}) == 2


def test_a_custom_tool_call_grows_by_its_input() -> None:
    """The other kind of call."""
    reply, _ = decode(
        stream(
            calls({"index": 0, "id": "c", "type": "custom", "custom": {"name": "run", "input": "ls"}}),
            calls({"index": 0, "custom": {"input": " -l"}}),
        )
    )

    assert reply.calls == (ToolCall(id="c", name="run", arguments="ls -l", kind="custom"),)


def test_unknown_values_keep_their_bytes() -> None:
    """Thought signatures and the like go back as they came, number spellings included."""
    raw = (
        b'{"choices":[{"delta":{"vendor": {"n": 1e5 ,"big":123456789012345678901234567890},"list":[1.0],'
        b'"tool_calls":[{"index":0,"id":"c","extra_content": {"google":{"thought_signature":"S\\/g=="}},'
        b'"function":{"name":"f","arguments":"{}","more":1.50}}]}}]}'
    )

    reply, _ = decode(sse(raw), chunk({"list": [2.0]}), chunk(finish="stop"))

    assert reply.entries == (
        b'{"role":"assistant","content":null,'
        b'"vendor":{"n": 1e5 ,"big":123456789012345678901234567890},"list":[1.0,2.0],'
        b'"tool_calls":[{"id":"c","extra_content":{"google":{"thought_signature":"S\\/g=="}},'
        b'"function":{"name":"f","arguments":"{}","more":1.50}}]}',
    )


def test_marks_of_the_stream_are_no_part_of_the_message() -> None:
    """Groq says of each piece what channel it is; the deprecated call was never asked for."""
    assert message({"content": "x", "channel": "final", "function_call": {"name": "f"}}) == {
        "role": "assistant",
        "content": "x",
    }


def test_reasoning_is_joined_and_told_apart() -> None:
    """Under whichever name, as a delta of its own kind."""
    for key in ("reasoning", "reasoning_content"):
        reply, deltas = decode(stream({key: "hm"}, {key: "!"}, {"content": "x"}))

        assert [delta.kind for delta in deltas] == ["reasoning", "reasoning", "text"]
        assert (reply.text, reply.reasoning) == ("x", "hm!")
        assert json.loads(reply.entries[0])[key] == "hm!"


def test_reasoning_under_two_names_is_told_once() -> None:
    """vLLM 0.11 sends both; both are kept."""
    reply, deltas = decode(stream({"reasoning": "a", "reasoning_content": "a"}, {"content": "x"}))

    assert deltas == [Delta(kind="reasoning", text="a"), Delta(kind="text", text="x")]
    assert json.loads(reply.entries[0])["reasoning"] == "a"


def test_an_empty_reasoning_is_kept() -> None:
    """DeepSeek refuses a later request without the key, empty or not; null says nothing."""
    assert message({"reasoning_content": "", "content": "x"})["reasoning_content"] == ""
    assert "reasoning_content" not in message({"reasoning_content": None, "content": "x"})


def details(*pieces: Any) -> dict[str, Any]:
    return {"reasoning_details": list(pieces)}


TEXT = {"type": "reasoning.text"}


@pytest.mark.parametrize(
    ("deltas", "whole"),
    [
        # Pieces of one index grow; a signature comes last, nulls say nothing.
        (
            [
                details({**TEXT, "index": 0, "text": "a", "signature": None}),
                details({**TEXT, "index": 0, "text": "b", "id": "r"}),
                details({**TEXT, "index": 0, "signature": "S"}),
            ],
            [{**TEXT, "index": 0, "text": "ab", "id": "r", "signature": "S"}],
        ),
        # Another index, another type, another id: another part.
        (
            [
                details({"type": "reasoning.summary", "index": 0, "summary": "a"}),
                details({"type": "reasoning.encrypted", "index": 0, "data": "xx", "id": "r1"}),
                details({"type": "reasoning.encrypted", "index": 0, "data": "yy", "id": "r2"}),
                details({"type": "reasoning.summary", "index": 0, "summary": "b"}),
                details({"type": "reasoning.summary", "index": 1, "summary": "c"}),
            ],
            [
                {"type": "reasoning.summary", "index": 0, "summary": "ab"},
                {"type": "reasoning.encrypted", "index": 0, "data": "xx", "id": "r1"},
                {"type": "reasoning.encrypted", "index": 0, "data": "yy", "id": "r2"},
                {"type": "reasoning.summary", "index": 1, "summary": "c"},
            ],
        ),
        # Encrypted data grow by index only.
        (
            [
                details({"type": "reasoning.encrypted", "index": 0, "data": "x"}),
                details({"type": "reasoning.encrypted", "index": 0, "data": "y"}),
            ],
            [{"type": "reasoning.encrypted", "index": 0, "data": "xy"}],
        ),
        (
            [
                details(
                    {"type": "reasoning.encrypted", "data": "x"}, {"type": "reasoning.encrypted", "data": "y"}
                )
            ],
            [{"type": "reasoning.encrypted", "data": "x"}, {"type": "reasoning.encrypted", "data": "y"}],
        ),
        # Without an index text goes on with the last part; what is signed is complete.
        (
            [
                details({**TEXT, "text": "a"}, {**TEXT, "text": "b", "signature": "S"}),
                details({**TEXT, "text": "c"}),
            ],
            [{**TEXT, "text": "ab", "signature": "S"}, {**TEXT, "text": "c"}],
        ),
    ],
)
def test_reasoning_details_are_merged(deltas: list[Any], whole: list[Any]) -> None:
    """OpenRouter's parts come in pieces and go back whole, in order."""
    assert message(*deltas, {"content": "x"})["reasoning_details"] == whole


def test_reasoning_details_are_told_unless_the_text_came_beside() -> None:
    """OpenRouter sends the same words as `reasoning` too; encrypted data are no words."""
    _, alone = decode(stream(details({**TEXT, "text": "a"}, {"type": "reasoning.encrypted", "data": "x"})))
    _, beside = decode(stream({"reasoning": "a", **details({**TEXT, "text": "a"})}))

    assert alone == beside == [Delta(kind="reasoning", text="a")]


def test_content_parts_are_merged() -> None:
    """Mistral's reasoning models begin with parts and go on with strings."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}

    reply, deltas = decode(
        stream(
            {"content": "0"},
            {"content": [thinking]},
            {"content": [thinking]},
            {"content": "a"},
            {"content": "b"},
        )
    )

    assert [(delta.kind, delta.text) for delta in deltas] == [
        ("text", "0"),
        ("reasoning", "h"),
        ("reasoning", "h"),
        ("text", "a"),
        ("text", "b"),
    ]
    assert (reply.text, reply.reasoning) == ("0ab", "hh")
    assert json.loads(reply.entries[0])["content"] == [
        {"type": "text", "text": "0"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hh"}]},
        {"type": "text", "text": "ab"},
    ]


def test_thinking_may_be_a_plain_string() -> None:
    """It grows like any other text, and is told as reasoning."""
    reply, deltas = decode(
        stream(
            {"content": [{"type": "thinking", "thinking": "h"}]},
            {"content": [{"type": "thinking", "thinking": "m"}]},
            {"content": [{"type": "text", "text": "x"}]},
        )
    )

    assert [delta.kind for delta in deltas] == ["reasoning", "reasoning", "text"]
    assert json.loads(reply.entries[0])["content"][0] == {"type": "thinking", "thinking": "hm"}


def test_a_refusal_is_told_as_text() -> None:
    """It is what the user sees; the reply says that it is a refusal."""
    reply, deltas = decode(stream({"content": None, "refusal": "I "}, {"refusal": "won't"}))

    assert deltas == [Delta(kind="text", text="I "), Delta(kind="text", text="won't")]
    assert (reply.text, reply.stop) == ("I won't", "refusal")
    assert json.loads(reply.entries[0]) == {"role": "assistant", "content": "", "refusal": "I won't"}


def test_sound_leaves_its_id() -> None:
    """The last piece of sound has no id; a request takes nothing else."""
    deltas = ({"audio": {"id": "a1", "data": "Uk"}}, {"audio": {"data": "lG"}}, {"audio": {"expires_at": 1}})

    assert message(*deltas) == {"role": "assistant", "content": None, "audio": {"id": "a1"}}


def test_half_an_emoji_finds_its_other_half() -> None:
    """A tokeniser may cut inside a character; the message has it whole, a listener never sees half of one."""
    halves = (
        rb'{"choices":[{"delta":{"content":"a\ud83d"}}]}',
        rb'{"choices":[{"delta":{"content":"\ude00"}}]}',
    )

    reply, deltas = decode(*map(sse, halves), chunk(finish="stop"))

    assert json.loads(reply.entries[0])["content"] == reply.text == "a😀"
    assert [delta.text for delta in deltas] == ["a", "😀"]


def test_a_lone_half_is_replaced() -> None:
    """UTF-8 has no bytes for it, and servers refuse its escape."""
    reply, _ = decode(sse(rb'{"choices":[{"delta":{"content":"\ud83d!"}}]}'), chunk(finish="stop"))

    assert json.loads(reply.entries[0])["content"] == "\ufffd!"
    assert reply.text == "\ufffd!"


def test_only_the_first_choice_counts() -> None:
    """Of several answers one is kept."""
    other = sse({"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]})

    reply, deltas = decode(chunk({"content": "A"}), other, chunk(finish="length"))

    assert (reply.text, reply.stop, len(deltas)) == ("A", "length", 1)


def test_an_event_of_unusual_types_is_read_all_the_same() -> None:
    """A number for an id, a fraction for an index, a word too many: what can be read is."""
    odd = {
        "id": 7,
        "model": None,
        "choices": [
            {"index": 0.5, "delta": {"content": "no"}},
            {"index": None, "delta": {"content": "x", "refusal": None}, "finish_reason": 1},
            {"delta": None},
        ],
        "x_groq": 7,
    }

    reply, _ = decode(sse(odd), chunk(finish="stop"))

    assert (reply.text, reply.id, reply.model) == ("x", "r1", "m1")


@pytest.mark.parametrize(
    "usage_event",
    [
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}},
        {"usage": {"prompt_tokens": 9, "completion_tokens": 5}},
        {"choices": [], "x_groq": {"id": "q", "usage": {"prompt_tokens": 9, "completion_tokens": 5}}},
        {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 9, "completion_tokens": 5}},
    ],
)
def test_usage_comes_in_its_own_event_or_beside_a_choice(usage_event: Any) -> None:
    """After the finish reason too; the last one counts, null says nothing."""
    early = chunk({"content": "x"}, usage={"prompt_tokens": 1})

    reply, _ = decode(early, chunk(finish="stop", usage=None), sse(usage_event), DONE)

    assert reply.usage == Usage(input_tokens=9, output_tokens=5, requests=1)


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[],"usage":{"prompt_tokens":"\xff"}}',
        b'{"choices":[],"usage":7}',
        b'{"choices":[],"x_groq":{"usage":[1]}}',
        b'{"choices":[],"x_groq":["\xff"]}',
    ],
)
def test_unreadable_usage_is_none(event: bytes) -> None:
    """It comes after the reply, which is paid and kept."""
    reply, _ = decode(chunk({"content": "x"}, finish="stop"), sse(event), DONE)

    assert (reply.text, reply.usage) == ("x", Usage(requests=1))


def test_a_stream_without_usage_counts_its_request() -> None:
    """Servers that do not know `stream_options` send none."""
    reply, _ = decode(stream({"content": "x"}))

    assert reply.usage == Usage(requests=1)


# --------------------------------------------------------------------------------- how it arrives

WHOLE = b": ping\n\n" + stream(
    {"role": "assistant", "content": "é😀"},
    calls({"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":'}}),
    calls({"index": 0, "function": {"arguments": ' "\U0001f600"}'}}),
    {"content": "!"},
    finish="tool_calls",
)


PLAIN = chunk({"content": "a"})
EVENTS = st.sampled_from(
    [
        PLAIN,
        chunk({"role": "assistant", "content": "é"}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"role": "user", "content": "b"}),
        chunk({"content": None}),
        chunk({"content": 7}),
        chunk({"content": "r", "refusal": "s"}),
        chunk({"content": "c", "reasoning": "d"}),
        chunk({"content": "e", "refusal": None, "reasoning": None, "tool_calls": None, "audio": None}),
        chunk({"content": "f", "vendor": {"x": 1e5}}),
        chunk({"content": "g", "annotations": [1]}),
        chunk({"content": "h", **calls({"index": 0, "id": "c", "function": F})}),
        chunk({"content": "i"}, "stop"),
        chunk({"content": "j"}, ""),
        chunk({"content": "k"}, usage={"prompt_tokens": 3}),
        chunk({"content": "l"}, x_groq={"usage": {"prompt_tokens": 4}}),
        chunk({"content": "m"}, error={}),
        chunk({"content": [{"type": "text", "text": "n"}]}),
        chunk({"reasoning_content": "o"}),
        sse({"choices": []}),
        sse({"choices": [{"delta": {"content": "v"}}]}),
        sse(rb'{"choices":[{"delta":{"content":"\ud83d"}}]}'),
        sse(rb'{"choices":[{"delta":{"content":"\ude00"}}]}'),
        sse({"choices": [{"index": 1, "delta": {"content": "p"}}]}),
        sse({"choices": [{"index": 0, "delta": {"content": "q"}}, {"index": 1, "delta": {"content": "r"}}]}),
        sse({"id": "r2", "model": 7, "object": "other", "choices": [{"delta": {"content": "s"}}]}),
        sse({"object": "error", "choices": [{"delta": {"content": "t"}}]}),
        sse({"error": {"code": 503}, "choices": [{"delta": {"content": "u"}}]}),
        sse(b'{"choices":[{"delta":{"content":"\xff"}}]}'),
        b": ping\n\n",
        DONE,
    ]
)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(events=st.lists(st.just(PLAIN) | EVENTS, max_size=12))
@example(events=[chunk({"role": "assistant", "content": ""}), PLAIN, sse({"error": {"code": 503}})])
@example(events=[chunk({"role": "user", "content": "a"}), chunk({"role": "assistant", "content": "b"}), DONE])
@example(events=[sse({"id": "r", "choices": [{"delta": {"content": "v"}}]}), PLAIN, DONE])
@example(events=[sse({"model": "m", "choices": [{"delta": {"content": "v"}}]}), PLAIN, DONE])
@example(events=[PLAIN, sse({"choices": []}), DONE])
def test_plain_text_is_read_as_any_other_event_is(events: list[bytes]) -> None:
    """Events of text alone have a shorter way; it leads to the same deltas, reply and faults."""

    def read(*, guesses: int) -> Any:
        decoder = ChatDecoder("llm.example.org")
        decoder._guesses_left = guesses
        told: list[Delta] = []
        try:
            for event in events:
                told += decoder.feed(event)
            return told, decoder.partial_text, decoder.finish()
        except ProtocolFault as found:
            return told, decoder.partial_text, (str(found), found.fault)

    assert read(guesses=100) == read(guesses=0)


def test_a_stream_that_is_never_plain_is_not_guessed_at_for_ever() -> None:
    """A wrong guess costs as much as it might have saved."""
    decoder = ChatDecoder("llm.example.org")
    for _ in range(20):
        decoder.feed(chunk({"content": "x", "vendor": 1}))

    assert decoder._guesses_left == 0
    assert not decoder._expects_text
    assert decoder.partial_text == "x" * 20


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_cut_anywhere_changes_nothing(line_end: bytes) -> None:
    """Cut in two at any byte: the same reply, the same deltas."""
    whole = WHOLE.replace(b"\n", line_end)
    expected = decode(WHOLE)

    assert all(decode(whole[:cut], whole[cut:]) == expected for cut in range(len(whole) + 1))


def test_single_bytes_make_the_same_reply() -> None:
    """A stream may arrive byte by byte."""
    assert decode(*(WHOLE[at : at + 1] for at in range(len(WHOLE)))) == decode(WHOLE)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_damaged_streams_raise_nothing_else(data: st.DataObject) -> None:
    """Flip, cut or repeat bytes of a stream: a reply or a `ProtocolFault`, and an entry is one object."""
    damaged = bytearray(WHOLE + sse({"choices": [], "usage": {"prompt_tokens": 1}, "x_groq": {"usage": {}}}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        piece = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"null", b"\n\ndata: "]))
        damaged[at : at + data.draw(st.integers(0, 3))] = piece

    try:
        reply, _ = decode(bytes(damaged))
    except ProtocolFault:
        return

    assert isinstance(json.loads(reply.entries[0]), dict)
    assert b"\n" not in reply.entries[0]


def test_the_name_of_an_event_does_not_count() -> None:
    """Dispatch is on the data: some servers name their events, some do not."""
    named = WHOLE.replace(b"data: {", b"event: whatever\ndata: {")

    assert decode(named) == decode(WHOLE)


def test_what_follows_the_end_is_ignored() -> None:
    """Nothing is read after ``[DONE]``, blank data and keep-alives never are."""
    assert decode(b"data:\n\n", b"data:  \n\n", WHOLE, b"data: garbage\n\n") == decode(WHOLE)


def test_a_stream_is_done_at_its_last_word() -> None:
    """Whoever reads can stop there, however long the connection stays open."""
    decoder = OTHER.decoder()
    seen = [decoder.is_done]
    for part in (chunk({"content": "x"}), chunk(finish="stop"), sse({"choices": [], "usage": {}}), DONE):
        decoder.feed(part)
        seen.append(decoder.is_done)

    assert seen == [False, False, False, False, True]
    assert decoder.feed(sse({"error": {"message": SECRET}}) + b"data: {oops\n\n") == []
    assert decoder.finish().text == "x"


def test_partial_text_grows() -> None:
    """What is there when a stream breaks off, content parts included."""
    decoder = OTHER.decoder()
    seen = [decoder.partial_text]
    for delta in (
        {"content": "a"},
        {"content": "b"},
        {"reasoning": "r"},
        {"content": [{"type": "text", "text": "c"}]},
    ):
        decoder.feed(chunk(delta))
        seen.append(decoder.partial_text)

    assert seen == ["", "a", "ab", "ab", "abc"]


# ------------------------------------------------------------------------------------ how it ends


@pytest.mark.parametrize(
    "chunks",
    [
        (),
        (b"",),
        (b": ping\n\n",),
        (b"<html>xyzzy</html>",),
        (b'{"choices":[{"message":{"content":"xyzzy"}}]}',),
        (chunk({"content": SECRET}),),
        (chunk({"content": SECRET}), chunk(finish="stop")[:-4]),
        (chunk({"content": SECRET}), b"data: [DONE"),
        (chunk({"content": SECRET}, finish=""),),
        (chunk(calls({"index": 0, "id": "c", "function": F})),),
        (sse({"choices": [], "usage": {}}), DONE),
        (DONE,),
        (sse({"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]}), DONE),
    ],
)
def test_a_clean_end_without_the_replys_own_end_is_an_interruption(chunks: tuple[bytes, ...]) -> None:
    """Neither SDK notices; a half reply must never count as one."""
    with pytest.raises(ProtocolFault) as found:
        decode(*chunks)

    assert (found.value.fault.kind, found.value.fault.retryable) == ("interrupted", True)
    assert SECRET not in f"{found.value} {found.value!r}"


@pytest.mark.parametrize("last", [chunk(finish="stop")[:-1], chunk(finish="stop")[:-2], b"data: [DONE]"])
def test_a_last_event_needs_no_blank_line(last: bytes) -> None:
    """Some servers close the connection right behind its JSON."""
    reply, deltas = decode(chunk({"content": "Hi"}), last)

    assert (reply.text, [delta.text for delta in deltas]) == ("Hi", ["Hi"])


def test_a_last_event_without_its_blank_line_is_told() -> None:
    """Its text, too, once the stream is over."""
    decoder = OTHER.decoder()
    decoder.feed(chunk({"content": "Hi"}, "stop")[:-1])

    assert [delta.text for delta in decoder.end()] == ["Hi"]
    assert decoder.end() == []
    assert decoder.finish().text == "Hi"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_events_may_be_one_newline_apart(line_end: bytes) -> None:
    """A proxy that drops blank lines: each line of data is JSON of its own."""
    events = (chunk({"content": "H"}), chunk({"content": "i"}), chunk(finish="stop"), DONE)
    stream = b"".join(events).replace(b"\n\n", line_end)

    for size in (1, 7, len(stream)):
        decoder = OTHER.decoder()
        told = [one for at in range(0, len(stream), size) for one in decoder.feed(stream[at : at + size])]
        told += decoder.end()
        assert ("".join(one.text for one in told), decoder.finish().text) == ("Hi", "Hi")


def test_a_whole_completion_in_one_event() -> None:
    """A proxy that does not stream: a message where a delta should be, and ``[DONE]`` behind it."""
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]
    }

    reply, deltas = decode(sse(body), DONE)

    assert (reply.text, [delta.text for delta in deltas]) == ("Hi", ["Hi"])


@pytest.mark.parametrize("behind", [b"\n\ndata: [DONE]\n\n", b"data: [DONE]", b"\n[DONE]\n"])
def test_done_behind_a_whole_body(behind: bytes) -> None:
    body = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'

    assert OTHER.reply(body + behind).text == "Hi"


def test_calls_of_one_index_without_ids() -> None:
    """A proxy numbers all calls 0 and names none: a name behind whole arguments begins another call."""

    def piece(**function: str) -> dict[str, Any]:
        return calls({"index": 0, "function": function})

    pieces = [
        piece(name="look", arguments=""),
        piece(arguments='{"a":'),
        piece(arguments="1}"),
        piece(name="look", arguments='{"a":2}'),
        piece(name="take", arguments='{"b"'),
        piece(arguments=":3}"),
    ]
    reply, _ = decode(stream(*pieces, finish="tool_calls"))

    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("look", '{"a":1}'),
        ("look", '{"a":2}'),
        ("take", '{"b":3}'),
    ]
    assert len({call.id for call in reply.calls}) == 3


@pytest.mark.parametrize("finish", ["", None])
def test_done_ends_a_reply_without_a_reason(finish: Any) -> None:
    """Recorded servers leave the reason empty; ``[DONE]`` is said at the end only."""
    reply, _ = decode(stream(calls({"index": 0, "id": "c", "function": F}), finish=finish))

    assert (reply.finish_reason, reply.run_calls) == ("", True)


@pytest.mark.parametrize("end", [b"", DONE, b"data: [DONE]", chunk({}) + DONE])
def test_a_reason_ends_a_reply_without_done(end: bytes) -> None:
    """Several servers never say ``[DONE]``."""
    reply, _ = decode(chunk({"content": "x"}), chunk(finish="length"), end)

    assert (reply.text, reply.stop) == ("x", "length")


ERRORS: list[tuple[Any, FaultKind, bool]] = [
    ({"error": {"message": SECRET, "code": "rate_limit_exceeded"}}, "rate_limit", True),
    ({"error": {"message": SECRET, "code": 400, "type": "bad"}}, "rejected", False),
    ({"error": {"message": SECRET}}, "protocol", True),
    ({"error": SECRET}, "protocol", True),
    ({"object": "error", "message": SECRET, "code": 503}, "unavailable", True),
    ({"choices": [{"delta": {"content": ""}, "error": {"code": 503}}]}, "unavailable", True),
    (SECRET.encode(), "protocol", True),
    (b"[1]", "protocol", True),
    (b'{"choices":7}', "protocol", True),
    (b'{"choices":[{"delta":{"content":"xyzzy \xff"}}]}', "protocol", True),
    (b'{"choices":[{"delta":{"tool_calls":["xyzzy"]}}]}', "protocol", True),
    (b'{"choices":[{"delta":{"v":' + b"[" * 9000 + b"]" * 8999 + b"}}]}", "protocol", True),
]


@pytest.mark.parametrize(("event", "kind", "retryable"), ERRORS)
def test_an_error_before_the_first_delta_is_classified(event: Any, kind: FaultKind, retryable: bool) -> None:
    """Nothing was told yet, so the engine may act on it as on an error status."""
    with pytest.raises(ProtocolFault) as found:
        decode(chunk({"role": "assistant", "content": ""}), sse(event))

    assert (found.value.fault.kind, found.value.fault.retryable) == (kind, retryable)
    assert SECRET not in f"{found.value} {found.value!r} {found.value.__cause__}"


@pytest.mark.parametrize(("event", "kind", "retryable"), ERRORS)
@pytest.mark.parametrize("begun", [{"content": "x"}, {"reasoning": "x"}, calls({"index": 0, "function": F})])
def test_an_error_after_the_first_delta_is_an_interruption(
    begun: Any, event: Any, kind: FaultKind, retryable: bool
) -> None:
    """Whatever the provider calls it."""
    with pytest.raises(ProtocolFault) as found:
        decode(chunk(begun), sse(event))

    assert (found.value.fault.kind, found.value.fault.retryable) == ("interrupted", True)
    assert SECRET not in f"{found.value} {found.value!r} {found.value.__cause__}"


def test_an_interruption_names_the_providers_code() -> None:
    """For the log; never its prose."""
    with pytest.raises(ProtocolFault) as found:
        decode(chunk({"content": "x"}), sse({"error": {"message": SECRET, "code": "overloaded"}}))

    assert found.value.fault.code == "overloaded"


@pytest.mark.parametrize(
    ("before", "kind"), [({"content": ""}, "protocol"), ({"content": "x"}, "interrupted")]
)
def test_an_event_without_end_is_given_up(before: Any, kind: FaultKind) -> None:
    """A server cannot make a decoder hold all it sends."""
    decoder = OTHER.decoder()
    decoder.feed(chunk(before))

    for _ in range(MAX_EVENT_BYTES // 2**20):
        decoder.feed(b"x" * 2**20)
    with pytest.raises(ProtocolFault, match="larger than") as found:
        decoder.feed(b"x")

    assert found.value.fault.kind == kind


@pytest.mark.parametrize("error", [None, {}, ""])
def test_an_empty_error_is_none(error: Any) -> None:
    """Some servers send the member with every event."""
    reply, _ = decode(chunk({"content": "x"}, error=error), chunk(finish="stop", error=error))

    assert reply.text == "x"
