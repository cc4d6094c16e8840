"""Facts about reading a unary chat completion: what is stored, what it means, what is no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends.base import FaultKind, ProtocolFault, Reply
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.testing import check_history
from goaitools_py.types.messages import ToolCall, Usage

OPENAI = OpenAIChatDialect()
OTHER = OpenAIChatDialect("llm.example.org")
SECRET = "xyzzy"

fixed = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def completion(message: bytes, finish: Any = "stop", **members: Any) -> bytes:
    """A response body around the raw bytes of a message."""
    choice = (
        b'{"index": 0, "message": ' + message + b', "finish_reason": ' + json.dumps(finish).encode() + b"}"
    )
    return (
        b'{"choices": ['
        + choice
        + b"]"
        + b"".join(
            b', "%s": %s' % (key.encode(), json.dumps(value).encode()) for key, value in members.items()
        )
        + b"}"
    )


def stored(message: bytes, dialect: OpenAIChatDialect = OPENAI) -> bytes:
    """What is kept of a message."""
    (entry,) = dialect.reply(completion(message)).entries
    return entry


def call(id: str = '"c1"', function: str = '{"name":"look","arguments":"{}"}', more: str = "") -> str:
    return f'{{"id":{id},"type":"function","function":{function}{more}}}'


def calling(*calls: str, more: str = "") -> bytes:
    return f'{{"role":"assistant","content":null,"tool_calls":[{",".join(calls)}]{more}}}'.encode()


# ---------------------------------------------------------------------------------------- verbatim


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"assistant","content":"Hi"}',
        b'{ "content" : "\\u0048i \\ud83d\\ude00 \\/" ,\t"role":"assistant" }',
        b'{"role":"assistant","content":"x","n":[1e5,1.0,-0,123456789012345678901234567890]}',
        b'{"role":"assistant","content":"x","reasoning_content":"","reasoning":"r","reasoning_details":[{}]}',
        b'{"role":"assistant","content":"no","refusal":"I will not"}',
        b'{"role":"assistant","content":null,"audio":{"id":"a1"}}',
        b'{"role":"assistant","content":"x","function_call":{"name":"f","arguments":""}}',
        calling(
            call(), call('"c2"', '{"arguments":" not json","name":"b"}', ',"extra_content":{"g":[1.50]}')
        ),
        calling(call(), more=',"vendor":{"z":1,"a":2}'),
        calling(call(more=',"custom":{"name":"run","input":"ls"}')),
    ],
)
def test_a_message_is_stored_byte_for_byte(message: bytes) -> None:
    """Key order, escapes, spellings of numbers, unknown keys: the provider's own bytes."""
    assert stored(message) == message


@pytest.mark.parametrize("family", ["openai", "api.cloudflare.com"])
def test_text_beside_calls_is_what_the_host_takes(family: str) -> None:
    """Workers AI refuses null, the others refuse the empty text or take null as well."""
    wanted = calling(call()) if family == "openai" else calling(call()).replace(b":null", b':""')
    for message in (calling(call()), calling(call()).replace(b":null", b':""')):
        (entry,) = OpenAIChatDialect(family).reply(completion(message)).entries
        assert entry == wanted


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"assistant","content":""}',
        b'{"role":"assistant","content":null}',
        b'{"role":"assistant","reasoning":"r"}',
        b'{"role":"assistant","content":null,"extra_content":{"google":{"thought_signature":"x"}}}',
        b"{}",
    ],
)
def test_a_message_that_says_nothing_is_not_stored(message: bytes) -> None:
    assert OTHER.reply(completion(message)).entries == ()


def test_raw_newlines_become_spaces() -> None:
    """An entry is one line; in JSON a newline is white space only."""
    assert stored(b'{\n  "role": "assistant",\r\n  "content": "a\\nb"\n}') == (
        b'{   "role": "assistant",\r   "content": "a\\nb" }'
    )


@pytest.mark.parametrize(
    ("message", "entry"),
    [
        (
            b'{"annotations":[{"x":1}],"role":"assistant","content":"x"}',
            b'{"role":"assistant","content":"x"}',
        ),
        (b'{"role":"assistant","refusal":null,"content":"x"}', b'{"role":"assistant","content":"x"}'),
        (b'{"role":"assistant","content":"x","refusal":""}', b'{"role":"assistant","content":"x"}'),
        (b'{"role":"assistant","content":"x","audio":null}', b'{"role":"assistant","content":"x"}'),
        (
            b'{"role":"assistant","content":"x","audio":{"data":"","expires_at":0,"id":"","transcript":""}}',
            b'{"role":"assistant","content":"x"}',
        ),
        (
            b'{"role":"assistant","content":"x","audio":{"data":"UklG"}}',
            b'{"role":"assistant","content":"x"}',
        ),
        (
            b'{"role":"assistant","content":null,"audio":{"id":"a","data":"UklG","transcript":"hi"}}',
            b'{"role":"assistant","content":"hi","audio":{"id":"a"}}',
        ),
        (
            b'{"role":"assistant","content":"x","function_call":{"arguments":"","name":""}}',
            b'{"role":"assistant","content":"x"}',
        ),
        (b'{"role":"assistant","content":"x","tool_calls":null}', b'{"role":"assistant","content":"x"}'),
        (b'{"role":"assistant","content":"x","tool_calls":[]}', b'{"role":"assistant","content":"x"}'),
        (calling(call(more=',"custom":{"input":"","name":""}')), calling(call())),
        (
            calling('{"id":"c","type":"custom","custom":{"name":"run","input":"ls"},"function":null}'),
            calling('{"id":"c","type":"custom","custom":{"name":"run","input":"ls"}}'),
        ),
        (calling(call(more=',"index":0')), calling(call())),
        (
            b'{"role":"assistant","images":[{}],"content":null}',
            b'{"role":"assistant","images":[{}],"content":""}',
        ),
        (calling(call()).replace(b":null", b':""'), calling(call())),
        (
            b'{"role":"assistant","content":null,"refusal":"no"}',
            b'{"role":"assistant","content":"","refusal":"no"}',
        ),
        (b'{"content":"x"}', b'{"content":"x","role":"assistant"}'),
        (b'{"role":null,"content":"x"}', b'{"role":"assistant","content":"x"}'),
    ],
)
def test_what_only_answers_hold_is_left_out(message: bytes, entry: bytes) -> None:
    """Each row of the table of exceptions, and nothing beside it."""
    assert stored(message) == entry


@pytest.mark.parametrize(("family", "kept"), [("openai", False), ("azure", False), ("api.mistral.ai", True)])
def test_the_index_of_a_call_stays_where_clients_send_it_back(family: str, kept: bool) -> None:
    """The first-party servers' request type does not have it."""
    entry = stored(calling(call(more=',"index":0')), OpenAIChatDialect(family))

    assert (b'"index"' in entry) is kept


@fixed
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),  # too short to be a key that means something
        st.sampled_from([None, True, "", "\ud83d\ude00", "é", 1.5, 10**30, [], [None], {}, {"": [{}]}]),
        max_size=3,
    )
)
def test_unknown_keys_come_through(extra: dict[str, Any]) -> None:
    """Whatever a server adds to a message goes back to it as it came."""
    message = json.dumps({"role": "assistant", "content": "x", **extra}).encode()

    assert stored(message) == message


# ------------------------------------------------------------------------------------ calls and ids


def test_calls_are_read_in_order() -> None:
    """Arguments are the raw text that the model wrote, custom tools included."""
    custom = '{"id":"c2","type":"custom","custom":{"name":"run","input":"ls -l"}}'
    untyped = '{"id":"c3","function":{"name":"b","arguments":"{\\"x\\": 1e5}"}}'

    reply = OPENAI.reply(completion(calling(call(), custom, untyped), "tool_calls"))

    assert reply.calls == (
        ToolCall(id="c1", name="look", arguments="{}"),
        ToolCall(id="c2", name="run", arguments="ls -l", kind="custom"),
        ToolCall(id="c3", name="b", arguments='{"x": 1e5}'),
    )


@pytest.mark.parametrize("id", ['""', "null", "7", '"c1"'])
def test_an_id_that_cannot_be_paired_is_made_anew(id: str) -> None:
    """Missing, empty, of the wrong type or repeated: one rule, in the call and in the stored bytes."""
    body = completion(calling(call(), call(id)), "tool_calls")

    reply = OPENAI.reply(body)

    kept, made = (one.id for one in reply.calls)
    assert kept == "c1"
    assert made.startswith("call_")
    assert len(made) == len("call_") + 24
    assert [one["id"] for one in json.loads(reply.entries[0])["tool_calls"]] == [kept, made]
    assert OPENAI.reply(body) == reply


def test_made_ids_differ_within_a_reply() -> None:
    """Two calls without an id are two calls."""
    reply = OPENAI.reply(completion(calling(call("null"), call("null"))))

    assert len({one.id for one in reply.calls}) == 2


def test_a_made_id_touches_nothing_else() -> None:
    """The rest of the message keeps its bytes."""
    spelled = '{"arguments":"\\u007b}","name":"look"}'

    entry = stored(calling(call(function=spelled), call("null", spelled, ',"n":1e5'), more=',"v": 1.0'))

    made = json.loads(entry)["tool_calls"][1]["id"]
    assert entry == calling(call(function=spelled), call(f'"{made}"', spelled, ',"n":1e5'), more=',"v": 1.0')


@pytest.mark.parametrize(
    ("name", "clean"),
    [("get weather!", "get_weather_"), ("", "unnamed"), ("é" * 70, "_" * 64), ("a.b", "a_b")],
)
def test_a_name_that_the_wire_refuses_is_cleaned_in_store(name: str, clean: str) -> None:
    """The call keeps what the model said, for the answer that there is no such tool."""
    function = json.dumps({"name": name, "arguments": "{}"})

    reply = OPENAI.reply(completion(calling(call(function=function))))

    assert reply.calls[0].name == name
    assert json.loads(reply.entries[0])["tool_calls"][0]["function"] == {"name": clean, "arguments": "{}"}


@pytest.mark.parametrize("function", ["null", "7"])
def test_a_call_without_a_function_is_still_answerable(function: str) -> None:
    """It is stored in a form that can be sent, and read as a call of no known tool."""
    reply = OPENAI.reply(completion(calling(call(function=function))))

    assert reply.calls == (ToolCall(id="c1", name="", arguments=""),)
    assert json.loads(reply.entries[0])["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"arguments": "{}", "name": "unnamed"}}
    ]


@pytest.mark.parametrize("dialect", [OPENAI, OTHER])
def test_arguments_that_are_an_object_become_its_text(dialect: OpenAIChatDialect) -> None:
    """Some servers do not quote them, but a request must; the spelling inside stays the model's."""
    given = '{"at": 1e5, "x": "\\u0041\\ud83d\\ude00", "n": 123456789012345678901}'
    message = calling(call(function=f'{{"name":"look","arguments":{given}}}', more=',"n":1e5'))

    reply = dialect.reply(completion(message))

    quoted = json.dumps(given)
    assert reply.calls == (ToolCall(id="c1", name="look", arguments=given),)
    assert reply.entries == (
        calling(call(function=f'{{"name":"look","arguments":{quoted}}}', more=',"n":1e5')),
    )
    assert check_history("openai", reply.entries, open_end=True) == []
    assert dialect.view(reply.entries)[0].tool_calls == reply.calls


def test_input_that_is_an_object_becomes_its_text() -> None:
    """The same for a custom tool."""
    given = calling('{"id":"c","type":"custom","custom":{"name":"run","input":{"a":1.0}}}')

    reply = OTHER.reply(completion(given))

    assert reply.calls[0].arguments == '{"a":1.0}'
    assert reply.entries == (
        calling('{"id":"c","type":"custom","custom":{"name":"run","input":"{\\"a\\":1.0}"}}'),
    )


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('"{\\"at"', '{"at'),
        ('"not json"', "not json"),
        ('""', ""),
        ('"[1]"', "[1]"),
        ('"null"', "null"),
        ('"{} {}"', "{} {}"),
        ('"\\ud800"', "\ud800"),
        ("null", ""),
        ("[1]", "[1]"),
        ("7", "7"),
        ("false", "false"),
    ],
)
def test_arguments_that_servers_choke_on_are_not_sent_back_to_them(arguments: str, read: str) -> None:
    """vLLM and llama.cpp refuse a history with such arguments for ever; the call tells what was said."""
    message = calling(call(), call('"c2"', f'{{"name":"look","arguments":{arguments}}}', ',"n":1e5'))

    reply = OTHER.reply(completion(message))

    assert reply.calls[1] == ToolCall(id="c2", name="look", arguments=read)
    assert reply.entries == (calling(call(), call('"c2"', '{"name":"look","arguments":"{}"}', ',"n":1e5')),)


@pytest.mark.parametrize("family", ["openai", "azure"])
@pytest.mark.parametrize("arguments", ['"{\\"at"', '""', '"[1]"'])
def test_first_party_servers_take_back_what_the_model_wrote(family: str, arguments: str) -> None:
    """There the model sees its own mistake."""
    message = calling(call(function=f'{{"name":"look","arguments":{arguments}}}'))

    assert stored(message, OpenAIChatDialect(family)) == message


def test_input_of_a_custom_tool_is_no_json() -> None:
    """It goes back as it came, to every server."""
    message = calling('{"id":"c","type":"custom","custom":{"name":"run","input":"ls -l"}}')

    assert stored(message, OTHER) == message


def test_ids_can_be_replaced() -> None:
    """For a server that reuses ids across replies: calls and stored bytes change alike."""
    reply = OPENAI.reply(completion(calling(call(), call('"c2"', more=',"n":1e5')), "tool_calls"))

    renamed = OPENAI.with_call_ids(reply, ["x", "y"])

    assert [one.id for one in renamed.calls] == ["x", "y"]
    assert renamed.entries == (calling(call('"x"'), call('"y"', more=',"n":1e5')),)
    assert OPENAI.with_call_ids(reply, ["c1", "c2"]) is reply
    with pytest.raises(ValueError, match="argument"):
        OPENAI.with_call_ids(reply, ["x"])


@pytest.mark.parametrize(
    ("content", "entries"),
    [
        ('"so"', (b'{"role":"assistant","content":"so"}',)),
        ("null", ()),
        ('""', ()),
        ('null,"reasoning":"hm"', ()),
        ('null,"refusal":"no"', (b'{"role":"assistant","content":"","refusal":"no"}',)),
    ],
)
def test_calls_can_be_cut_out(content: str, entries: tuple[bytes, ...]) -> None:
    """What was said beside them stays; a reply that was nothing else is gone."""
    message = f'{{"role":"assistant","content":{content},"tool_calls":[{call()}]}}'.encode()

    cut = OPENAI.without_calls(OPENAI.reply(completion(message, "length")))

    assert cut.entries == entries
    assert (cut.calls, cut.run_calls, cut.stop) == ((), False, "length")


def test_a_reply_without_calls_stays_as_it_is() -> None:
    """There is nothing to cut."""
    reply = OPENAI.reply(completion(b'{"role":"assistant","content":""}'))

    assert OPENAI.without_calls(reply) is reply


# ------------------------------------------------------------------------------------ what it means


@pytest.mark.parametrize(
    ("finish", "refusal", "stop", "runs"),
    [
        ("tool_calls", None, "end", True),
        ("stop", None, "end", True),
        ("", None, "end", True),
        (None, None, "end", True),
        (7, None, "end", True),
        ("eos", None, "end", True),
        ("length", None, "length", False),
        ("content_filter", None, "refusal", False),
        ("stop", "no", "refusal", False),
    ],
)
def test_calls_run_unless_the_reply_was_cut(finish: Any, refusal: str | None, stop: str, runs: bool) -> None:
    """Servers end a reply with calls by many words; only a cut or refused one must not run."""
    refused = "" if refusal is None else f',"refusal":"{refusal}"'

    reply = OPENAI.reply(completion(calling(call(), more=refused), finish))
    said = OPENAI.reply(completion(f'{{"role":"assistant","content":"x"{refused}}}'.encode(), finish))

    assert (reply.stop, reply.run_calls, len(reply.calls)) == (stop, runs, 1)
    assert (said.stop, said.run_calls) == (stop, False)
    assert reply.finish_reason == (finish if isinstance(finish, str) else "")


@pytest.mark.parametrize(
    ("members", "text", "reasoning"),
    [
        ({"content": "hi"}, "hi", ""),
        ({"content": None, "refusal": "I will not"}, "I will not", ""),
        ({"content": "hi", "reasoning_content": "hm"}, "hi", "hm"),
        ({"content": "hi", "reasoning": "hm", "reasoning_details": [{"text": "other"}]}, "hi", "hm"),
        (
            {"content": "hi", "reasoning_details": [{"text": "a"}, {"summary": "b"}, {"data": "c"}]},
            "hi",
            "ab",
        ),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 7]}, "ab7", ""),
        ({"content": [{"type": "thinking", "thinking": [{"text": "hm"}]}]}, "", "hm"),
        ({"content": [{"type": "thinking", "thinking": "hm"}]}, "", "hm"),
        ({"content": {"odd": 1}, "reasoning": 7}, '{"odd": 1}', ""),
        ({"content": "a\ud800"}, "a\ufffd", ""),
    ],
)
def test_text_and_reasoning_are_found(members: dict[str, Any], text: str, reasoning: str) -> None:
    """Wherever the server puts them."""
    reply = OPENAI.reply(completion(json.dumps({"role": "assistant", **members}).encode()))

    assert (reply.text, reply.reasoning) == (text, reasoning)


def test_model_and_id_are_the_providers_own() -> None:
    """What answered, as it names itself; values of another type count as not given."""
    message = b'{"role":"assistant","content":"x"}'

    named = OPENAI.reply(completion(message, id="r1", model="gpt-x-2026"))
    odd = OPENAI.reply(completion(message, id=7, model=None))

    assert (named.id, named.model) == ("r1", "gpt-x-2026")
    assert (odd.id, odd.model, odd.text) == ("", "", "x")


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(
                input_tokens=9,
                output_tokens=5,
                cached_input_tokens=4,
                cache_write_tokens=3,
                reasoning_tokens=2,
                requests=1,
            ),
        ),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4},
            Usage(input_tokens=9, cached_input_tokens=4, requests=1),
        ),
        (
            {"prompt_tokens": 9, "num_cached_tokens": 4},
            Usage(input_tokens=9, cached_input_tokens=4, requests=1),
        ),
        (
            {"prompt_tokens": "9", "completion_tokens": True, "prompt_tokens_details": [], "x": -1},
            Usage(requests=1),
        ),
        ({"prompt_tokens": -9, "completion_tokens": 1.5}, Usage(requests=1)),
        (None, Usage(requests=1)),
        ([], Usage(requests=1)),
    ],
)
def test_usage_is_read_as_far_as_it_is_there(usage: Any, read: Usage) -> None:
    """Servers leave out any part of it; a request was made all the same."""
    assert OPENAI.reply(completion(b'{"content":"x"}', usage=usage)).usage == read


LARGEST = 2**53 - 1


@pytest.mark.parametrize(
    ("count", "read"),
    [
        (b"9007199254740990", LARGEST - 1),
        (b"9007199254740992", LARGEST),
        (b"9999999999999999", LARGEST),
        (b"18446744073709551616", LARGEST),
        (b"1" + b"0" * 400, LARGEST),
        (b"9" * 4300, LARGEST),
        (b"9" * 100_000, LARGEST),
        (b"-" + b"9" * 5000, 0),
        (b"1e999", LARGEST),
        (b"12.0", 12),
        (b"12.5", 0),
        (b"true", 0),
        (b"-0", 0),
        (b'"9"', 0),
        (b"[" * 100 + b"]" * 100, 0),
    ],
)
def test_an_absurd_count_costs_no_reply(count: bytes, read: int) -> None:
    """Whatever a provider says of its bill, the answer that it is for is paid and kept."""
    usage = b'{"prompt_tokens":%s,"prompt_tokens_details":{"cached_tokens":%s}}' % (count, count)
    choice = b'{"index":0,"%s":{"content":"x"},"finish_reason":"stop"}'
    decoder = OPENAI.decoder()

    unary = OPENAI.reply(b'{"choices":[%s],"usage":%s}' % (choice % b"message", usage))
    decoder.feed(b'data: {"choices":[%s]}\n\n' % (choice % b"delta"))
    decoder.feed(b'data: {"choices":[],"usage":%s}\n\ndata: [DONE]\n\n' % usage)
    streamed = decoder.finish()

    # Containers nested that deep make the whole object unreadable; so nothing is counted.
    assert unary.usage == Usage(input_tokens=read, cached_input_tokens=read, requests=1)
    assert (streamed.usage, streamed.text) == (unary.usage, unary.text)


def test_of_several_choices_the_first_counts() -> None:
    """`n` is not a setting of this package; whoever sends it by `extra_body` gets one answer."""
    body = b'{"choices":[{"message":{"role":"assistant","content":"a"}},{"message":null}]}'

    assert OPENAI.reply(body).entries == (b'{"role":"assistant","content":"a"}',)


# ------------------------------------------------------------------------------------- no answer


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"<html>xyzzy</html>",
        b"null",
        b"[]",
        b"7",
        b'"xyzzy"',
        b'["xyzzy"]',
        b"{}",
        b'{"choices":null,"x":"xyzzy"}',
        b'{"choices":[],"x":"xyzzy"}',
        b'{"choices":{"a":"xyzzy"}}',
        b'{"choices":[null]}',
        b'{"choices":["xyzzy"]}',
        b'{"choices":[{"x":"xyzzy"}]}',
        b'{"choices":[{"message":null,"x":"xyzzy"}]}',
        b'{"choices":[{"message":"xyzzy"}]}',
        b'{"choices":[{"message":{"content":"xyzzy"}}]',
        b'{"choices":[{"message":{"content":"xyzzy"}}]} trailing',
        b'{"choices":[{"message":{"content":"xyzzy \xff"}}]}',
        b'{"choices":[{"message":{"content":"xyzzy","tool_calls":{"a":1}}}]}',
        b'{"choices":[{"message":{"content":"xyzzy","tool_calls":["xyzzy"]}}]}',
        b'{"choices":[{"message":{"content":"xyzzy","deep":' + b"[" * 100 + b"]" * 99 + b"}}]}",
        b'{"choices":[{"message":{"content":"xyzzy","deep":' + b"[" * 9000 + b"}}]}",
    ],
)
def test_what_is_no_completion_is_a_protocol_fault(body: bytes) -> None:
    """Both SDKs hand such bodies out as values; here they are found, retryable, and never quoted."""
    with pytest.raises(ProtocolFault) as found:
        OPENAI.reply(body)

    assert (found.value.fault.kind, found.value.fault.retryable) == ("protocol", True)
    assert SECRET not in f"{found.value} {found.value!r} {found.value.__cause__}"


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"message": SECRET, "code": "rate_limit_exceeded"}, "rate_limit", True),
        ({"message": SECRET, "code": 502}, "unavailable", True),
        ({"message": "prompt is too long " + SECRET, "code": 400}, "context", False),
        ({"message": SECRET}, "protocol", True),
        (SECRET, "protocol", True),
    ],
)
def test_an_error_inside_a_success_is_classified(error: Any, kind: FaultKind, retryable: bool) -> None:
    """At the top, or in the choice (OpenRouter)."""
    top = json.dumps({"error": error, "choices": []}).encode()
    inside = json.dumps({"choices": [{"error": error, "message": {"content": ""}}]}).encode()

    for body in (top, inside):
        with pytest.raises(ProtocolFault) as found:
            OPENAI.reply(body)

        assert (found.value.fault.kind, found.value.fault.retryable) == (kind, retryable)
        assert SECRET not in f"{found.value} {found.value!r} {found.value.__cause__}"


@pytest.mark.parametrize("said", [{"content": "half"}, {"refusal": "half"}])
def test_an_error_beside_text_breaks_the_reply_off(said: Any) -> None:
    """As in a stream, whatever the error is: the text is paid for, and kept."""
    error, choice = {"message": SECRET, "code": 400}, {"message": said}
    top = json.dumps({"error": error, "choices": [choice]}).encode()
    inside = json.dumps({"choices": [{"error": error, **choice}]}).encode()

    for body in (top, inside):
        with pytest.raises(ProtocolFault) as found:
            OPENAI.reply(body)

        fault = found.value.fault
        assert (fault.kind, fault.code, fault.retryable) == ("interrupted", "400", True)
        assert found.value.partial_text == "half"
        assert SECRET not in f"{found.value} {found.value!r} {found.value.__cause__}"


@pytest.mark.parametrize("error", [None, {}, ""])
def test_an_empty_error_is_none(error: Any) -> None:
    """Some servers always send the member."""
    assert OPENAI.reply(completion(b'{"content":"x"}', error=error)).text == "x"


@fixed
@given(data=st.data())
def test_damaged_bodies_raise_nothing_else(data: st.DataObject) -> None:
    """Flip, cut or repeat bytes of a completion: a reply or a `ProtocolFault`, and an entry is one object."""
    body = bytearray(
        completion(
            calling(call(), call('"c2"'), more=',"refusal":null,"reasoning":"\\ud83d\\ude00"'), usage={}
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"{"])
        )

    try:
        reply: Reply | None = OTHER.reply(bytes(body))
    except ProtocolFault:
        reply = None

    if reply is not None:
        assert not any(b"\n" in entry for entry in reply.entries)
        assert all(isinstance(json.loads(entry), dict) for entry in reply.entries)
        assert len({one.id for one in reply.calls}) == len(reply.calls)
