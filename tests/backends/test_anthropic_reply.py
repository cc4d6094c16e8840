"""Facts about how an Anthropic answer becomes a reply: what is stored, what may run, what goes along."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import ProtocolFault, Reply
from goaitools_py.base import rawjson
from goaitools_py.testing import check_history
from goaitools_py.types.messages import Usage

JSON = dict[str, Any]

DIALECT = AnthropicDialect()

TEXT = {"type": "text", "text": "Hello."}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "door"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def message(*content: Any, stop: str | None = "end_turn", **more: Any) -> bytes:
    whole = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-8",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    return json.dumps(whole | more).encode()


def reply(*content: Any, stop: str | None = "end_turn", **more: Any) -> Reply:
    return DIALECT.reply(message(*content, stop=stop, **more))


def stored(found: Reply) -> list[JSON]:
    """The content of what is stored, which is one entry or none."""
    if not found.entries:
        return []
    (entry,) = found.entries
    parsed = json.loads(entry)
    assert list(parsed) == ["role", "content"]
    assert parsed["role"] == "assistant"
    blocks: list[JSON] = parsed["content"]
    return blocks


# --------------------------------------------------------------------------------------- what is said


def test_a_reply_says_what_the_answer_says() -> None:
    """Text and thinking joined, calls with the very bytes of their input, and who answered."""
    found = reply(THOUGHT, TEXT, {"type": "text", "text": " You."}, CALL, stop="tool_use")

    assert found.text == "Hello. You."
    assert found.reasoning == "Hm."
    assert [(call.id, call.name, call.arguments) for call in found.calls] == [
        ("toolu_1", "look", '{"at": "door"}')
    ]
    assert (found.model, found.id, found.finish_reason) == ("claude-opus-4-8", "msg_1", "tool_use")
    assert (found.stop, found.run_calls, found.signed) == ("end", True, True)


def test_content_is_stored_byte_for_byte() -> None:
    """White space inside a line, odd numbers, escapes and unknown keys stay; only raw newlines go."""
    content = (
        b'[ {"type":"text", "text":"a\\u00e9\\/", "x": 1e5},\n'
        b'  {"type":"tool_use","id":"t","name":"f","input":{ "b":1.0,"a":12345678901234567890 }},'
        b'{"type":"brand_new","deep":{"text":null}} ]'
    )
    body = b'{"type":"message","content":' + content + b',"stop_reason":"tool_use","usage":{}}'

    found = DIALECT.reply(body)

    kept = content.replace(b"\n", b" ")
    assert found.entries == (b'{"role":"assistant","content":' + kept + b"}",)
    assert found.calls[0].arguments == '{ "b":1.0,"a":12345678901234567890 }'


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "", "signature": "only this"},
        REDACTED,
        SEARCH,
        FOUND,
        {"type": "text", "text": "x", "citations": [{"type": "char_location", "cited_text": "y"}]},
        {**CALL, "caller": {"type": "direct"}, "toolset_name": None},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "compaction", "content": "summary", "encrypted_content": None, "signature": "s"},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        {"type": "mcp_tool_listing", "mcp_server_name": "m", "tools": []},
        {"type": "brand_new", "text": ["not", "a", "string"], "id": 7},
    ],
)
def test_every_kind_of_block_is_kept(block: JSON) -> None:
    """Whatever a provider sends goes back as it came."""
    found = reply(block, FOUND, TEXT)

    assert stored(found) == [block, FOUND, TEXT]


@pytest.mark.parametrize(
    ("stop", "meaning"),
    [
        ("stop_sequence", "end"),
        ("brand_new", "end"),
        (None, "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
    ],
)
def test_only_tool_use_and_end_turn_run_calls(stop: str | None, meaning: str) -> None:
    """Any other word means that the calls may not be whole, or not meant."""
    found = reply(TEXT, CALL, stop=stop)

    assert (found.stop, found.run_calls) == (meaning, False)
    assert len(found.calls) == 1
    assert reply(TEXT, CALL, stop="end_turn").run_calls


def test_calls_of_hosted_tools_are_nobodys_to_run() -> None:
    """The server runs them itself."""
    mcp = {"type": "mcp_tool_use", "id": "m1", "name": "f", "server_name": "s", "input": {}}
    done = {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": []}

    found = reply(SEARCH, FOUND, mcp, done, TEXT, stop="tool_use")

    assert (found.calls, found.run_calls) == ((), False)


# ------------------------------------------------------------------------------ the table of exceptions


def test_empty_text_is_left_out() -> None:
    """The server refuses it, wherever it stands."""
    assert stored(reply({"type": "text", "text": ""}, THOUGHT, TEXT)) == [THOUGHT, TEXT]


def test_white_space_is_kept_beside_words_or_calls_only() -> None:
    """As recorded servers take it; alone it is refused."""
    blank = {"type": "text", "text": "\n\n"}

    assert stored(reply(blank, TEXT)) == [blank, TEXT]
    assert stored(reply(blank, CALL, stop="tool_use")) == [blank, CALL]
    assert stored(reply(blank)) == []
    assert stored(reply(THOUGHT, blank)) == []
    assert stored(reply(blank, SEARCH, FOUND)) == [SEARCH, FOUND]


def test_an_answer_cannot_end_in_thinking() -> None:
    """Thinking at the end is left out, and a reply of nothing else is no message."""
    assert stored(reply(THOUGHT, TEXT, REDACTED, THOUGHT, stop="max_tokens")) == [THOUGHT, TEXT]
    for stop in ("max_tokens", "end_turn", "refusal"):
        found = reply(THOUGHT, REDACTED, stop=stop)
        assert (found.entries, found.signed, found.reasoning) == ((), False, "Hm.")


def test_an_empty_answer_is_no_message() -> None:
    """As some refusals are."""
    found = reply(stop="refusal")

    assert (found.entries, found.text, found.stop) == ((), "", "refusal")


def test_a_null_caller_is_left_out() -> None:
    """The request type has no null there; a null that it has stays."""
    blocks = (
        {**SEARCH, "caller": None},
        {**FOUND, "caller": None},
        {**CALL, "toolset_name": None, "caller": None},
    )

    found = reply(*blocks, stop="tool_use")

    assert stored(found) == [SEARCH, FOUND, {**CALL, "toolset_name": None}]


@pytest.mark.parametrize("id", [None, "", "toolu_1", 7])
def test_a_call_without_an_id_of_its_own_gets_one(id: Any) -> None:
    """The same one for the same answer, in the call and in the stored bytes."""
    body = message(CALL, {**CALL, "id": id}, stop="tool_use")

    one, other = DIALECT.reply(body), DIALECT.reply(body)

    first, second = one.calls
    assert first.id == "toolu_1"
    assert second.id.startswith("toolu_")
    assert len(second.id) == 30
    assert [block["id"] for block in stored(one)] == [first.id, second.id]
    assert one == other


def test_a_name_that_the_wire_would_refuse_is_cleaned_where_it_is_stored() -> None:
    """The call keeps the model's own word, which the engine answers."""
    found = reply({**CALL, "name": "look at/it"}, {**CALL, "id": "t2", "name": ""}, stop="tool_use")

    assert [block["name"] for block in stored(found)] == ["look_at_it", "unnamed"]
    assert [call.name for call in found.calls] == ["look at/it", ""]


@pytest.mark.parametrize(
    ("input", "arguments", "kept"),
    [
        (None, "{}", {}),
        ([1], "[1]", {}),
        (7, "7", {}),
        ('{"a":1}', '{"a":1}', {"a": 1}),
        ('{"a":', '{"a":', {}),
        ("", "", {}),
    ],
)
@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
def test_input_that_is_no_object_is_not_stored(kind: str, input: Any, arguments: str, kept: JSON) -> None:
    """The server takes objects only; what the model wrote is in the call."""
    found = reply({**CALL, "type": kind, "input": input}, TEXT, stop="tool_use")

    assert stored(found)[0]["input"] == kept
    assert [call.arguments for call in found.calls] == ([arguments] if kind == "tool_use" else [])


def test_a_call_without_input_gets_an_empty_one() -> None:
    """A missing member counts as nothing."""
    found = reply({"type": "tool_use", "id": "t", "name": "f"}, stop="tool_use")

    assert stored(found)[0]["input"] == {}
    assert found.calls[0].parsed == {}


# ------------------------------------------------------------------------------------- cuts and ids


def test_calls_can_be_cut_out() -> None:
    """What was said stays; thinking behind which nothing is left goes with them."""
    found = DIALECT.without_calls(reply(THOUGHT, TEXT, THOUGHT, CALL, stop="max_tokens"))

    assert stored(found) == [THOUGHT, TEXT]
    assert (found.calls, found.run_calls, found.signed) == ((), False, True)


@pytest.mark.parametrize("content", [(CALL,), (THOUGHT, CALL), ({"type": "text", "text": " "}, CALL)])
def test_a_reply_of_calls_and_thinking_goes_whole(content: tuple[JSON, ...]) -> None:
    """Nothing is left that a server would take back."""
    found = DIALECT.without_calls(reply(*content, stop="max_tokens"))

    assert (found.entries, found.signed) == ((), False)


def test_a_reply_without_calls_stays_the_object_it_is() -> None:
    """Nothing is read for nothing."""
    found = reply(TEXT)

    assert DIALECT.without_calls(found) is found


def test_ids_can_be_replaced() -> None:
    """In the calls and in the stored bytes, and nowhere else."""
    found = reply(SEARCH, FOUND, CALL, TEXT, {**CALL, "id": "toolu_2"}, stop="tool_use")

    renamed = DIALECT.with_call_ids(found, ["a", "b"])

    assert [call.id for call in renamed.calls] == ["a", "b"]
    assert stored(renamed) == [SEARCH, FOUND, {**CALL, "id": "a"}, TEXT, {**CALL, "id": "b"}]
    assert DIALECT.with_call_ids(found, ["toolu_1", "toolu_2"]) is found
    with pytest.raises(ValueError, match="zip"):
        DIALECT.with_call_ids(found, ["a"])


# ---------------------------------------------------------------------------------- signed, settled


@pytest.mark.parametrize(
    ("block", "signed"),
    [
        (THOUGHT, True),
        (REDACTED, True),
        ({**THOUGHT, "thinking": ""}, True),
        ({**THOUGHT, "signature": ""}, False),
        ({**THOUGHT, "signature": None}, False),
        ({"type": "thinking", "thinking": "Hm."}, False),
        (SEARCH, False),
    ],
)
def test_a_signature_makes_a_reply_signed(block: JSON, signed: bool) -> None:
    """Thinking of a server that signs nothing is bound to nothing."""
    assert reply(block, TEXT).signed is signed


def test_thinking_can_be_taken_out() -> None:
    """Of answers; everything else is the very object that it was."""
    (answer,) = reply(THOUGHT, TEXT, REDACTED, CALL, stop="tool_use").entries
    (silent,) = reply(TEXT).entries
    quoting = b'{"role":"user","content":[{"type":"thinking","thinking":"theirs"}]}'
    imported = b'{"content":[{"type":"thinking","thinking":"a","signature":"b"}],"role":"assistant"}'

    found = DIALECT.unsigned([answer, silent, quoting, imported])

    assert json.loads(found[0])["content"] == [TEXT, CALL]
    assert found[1] is silent
    assert found[2] is quoting
    assert found[3] == b""


def test_text_about_thinking_costs_nothing_but_a_look() -> None:
    """A quoted word is no block, and the entry stays as it is."""
    (entry,) = reply({"type": "text", "text": 'say "thinking"'}).entries

    assert DIALECT.unsigned([entry])[0] is entry


def test_a_paused_call_of_a_hosted_tool_is_cut_out() -> None:
    """Something else than its continuation follows: it would never be answered."""
    paused = reply(
        THOUGHT, TEXT, {**SEARCH, "id": "s0"}, {**FOUND, "tool_use_id": "s0"}, SEARCH, stop="pause_turn"
    )

    (settled,) = DIALECT.settled(paused.entries)

    assert stored(paused)[-1] == SEARCH
    assert json.loads(settled)["content"] == stored(paused)[:-1]


def test_a_paused_reply_of_nothing_else_goes_whole() -> None:
    """Only thinking would remain."""
    assert DIALECT.settled(reply(THOUGHT, SEARCH, stop="pause_turn").entries) == [b""]


def test_a_result_may_be_in_the_next_entry_of_a_reply() -> None:
    """As when a paused reply and its continuation are looked at together."""
    entries = [*reply(TEXT, SEARCH, stop="pause_turn").entries, *reply(FOUND, TEXT).entries]

    found = DIALECT.settled(entries)

    assert all(new is old for new, old in zip(found, entries, strict=True))


def test_an_answered_reply_is_settled_as_it_is() -> None:
    """The very object, so that nothing is written anew."""
    (entry,) = reply(SEARCH, FOUND, TEXT).entries

    assert DIALECT.settled([entry])[0] is entry


# ---------------------------------------------------------------------------------- beside the content


def test_the_container_goes_along_until_it_expires() -> None:
    """Milliseconds since the epoch, whatever the zone."""
    for moment in ("2026-06-30T23:59:45.123147Z", "2026-07-01T01:59:45.123147+02:00"):
        found = reply(TEXT, container={"id": "container_1", "expires_at": moment})
        assert found.carried == {"container": ("container_1", 1_782_863_985_123)}


@pytest.mark.parametrize(
    "container",
    [
        None,
        7,
        {},
        {"id": "container_1"},
        {"id": "container_1", "expires_at": "soon"},
        {"id": "container_1", "expires_at": None},
        {"id": "", "expires_at": "2026-06-30T23:59:45Z"},
        {"id": "c" * 257, "expires_at": "2026-06-30T23:59:45Z"},
    ],
)
def test_a_container_of_no_known_end_is_not_carried(container: Any) -> None:
    """A request that names one that is gone would be refused, and all after it."""
    assert reply(TEXT, container=container).carried == {}


def test_dropped_blocks_are_told_by_reason() -> None:
    """One for each block left out; entries about blocks that were shown are no loss."""
    entries = [
        {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"},
        {"type": "thinking_mismatch_allowed", "path": "x", "reason": "prefix_binding_mismatch"},
        {"type": "thinking_dropped", "path": "y", "reason": "free prose, maybe quoting"},
        {"type": "thinking_dropped", "path": "z"},
        7,
    ]

    found = reply(TEXT, input_transformations=entries)

    assert found.dropped == ("prefix_binding_mismatch", "unknown", "unknown")
    assert reply(TEXT, input_transformations={"not": "a list"}).dropped == ()


def test_usage_counts_cached_tokens_as_input() -> None:
    """The wire's own `input_tokens` are only those that no cache had a part in."""
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000,
        "output_tokens": 40,
        "output_tokens_details": {"thinking_tokens": 30},
    }

    assert reply(TEXT, usage=usage).usage == Usage(
        input_tokens=3210,
        cached_input_tokens=3000,
        cache_write_tokens=200,
        output_tokens=40,
        reasoning_tokens=30,
        requests=1,
    )


@pytest.mark.parametrize(
    "usage",
    [
        None,
        7,
        [],
        {},
        {"input_tokens": -1, "output_tokens": "many", "output_tokens_details": 1},
        {"input_tokens": 1.5},
    ],
)
def test_an_absurd_bill_loses_no_answer(usage: Any) -> None:
    """What is no count is 0."""
    assert reply(TEXT, usage=usage).usage == Usage(requests=1)


def test_a_huge_count_is_bounded() -> None:
    """By what every JSON reader holds exactly."""
    assert reply(TEXT, usage={"output_tokens": 10**30}).usage.output_tokens == 2**53 - 1


# ------------------------------------------------------------------------------------ not an answer


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"<html>busy</html>",
        b"{}",
        b'{"content":null}',
        b'{"content":"text"}',
        b'{"type":"message","content":[{"type":"text","text":"cut off',
        b'{"content":[7]}',
        b'{"content":[{"type":"text","text":"\xff"}]}',
        b'{"content":[' + b'{"a":' * 80 + b"1" + b"}" * 80 + b"]}",
    ],
)
def test_a_body_that_is_no_message_is_a_finding(body: bytes) -> None:
    """Retryable, of kind "protocol", and silent about what was in it."""
    with pytest.raises(ProtocolFault) as caught:
        DIALECT.reply(body)

    assert (caught.value.fault.kind, caught.value.fault.retryable) == ("protocol", True)
    assert "busy" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind", "retryable"),
    [
        ("overloaded_error", "unavailable", True),
        ("api_error", "unavailable", True),
        ("timeout_error", "unavailable", True),
        ("rate_limit_error", "rate_limit", True),
        ("authentication_error", "auth", False),
        ("permission_error", "auth", False),
        ("billing_error", "auth", False),
        ("not_found_error", "rejected", False),
        ("invalid_request_error", "rejected", False),
        ("request_too_large", "rejected", False),
        ("brand_new_error", "protocol", True),
    ],
)
def test_an_error_inside_a_200_is_classified_by_its_name(name: str, kind: str, retryable: bool) -> None:
    """Gateways answer 200 with an error's body."""
    body = json.dumps({"type": "error", "error": {"type": name, "message": "secret"}}).encode()

    with pytest.raises(ProtocolFault) as caught:
        DIALECT.reply(body)

    fault = caught.value.fault
    assert (fault.kind, fault.code, fault.retryable) == (kind, name, retryable)
    assert "secret" not in str(caught.value)


def test_members_of_unusual_types_lose_no_answer() -> None:
    """A server's wrong type beside the content is read as nothing."""
    found = reply(TEXT, id=7, model=None, type=None, stop_reason=["end_turn"])

    assert (found.text, found.id, found.model, found.finish_reason) == ("Hello.", "", "", "")


def test_half_an_emoji_is_not_stored() -> None:
    """Anthropic refuses each request with one: shown and stored there is a replacement character."""
    body = b'{"content":[{"type":"text","text":"a\\ud83d"}],"stop_reason":"end_turn"}'

    found = DIALECT.reply(body)

    assert found.text == "a\ufffd"
    assert b'"a\\ufffd"' in found.entries[0]


def test_whatever_is_stored_can_be_sent_back() -> None:
    """Over all rows of the table at once, the rules have nothing to say against it."""
    blank = {"type": "text", "text": " "}
    for content in (
        (THOUGHT, {"type": "text", "text": ""}, TEXT, THOUGHT),
        (blank, SEARCH, FOUND),
        ({**CALL, "input": None, "id": None, "name": "a b"}, TEXT),
        (THOUGHT, TEXT, SEARCH),
    ):
        found = DIALECT.without_calls(reply(*content, stop="max_tokens"))
        entries = [entry for entry in DIALECT.settled(found.entries) if entry]
        asked = b'{"role":"user","content":[{"type":"text","text":"Hi"}]}'
        assert check_history("anthropic", [asked, *entries, asked]) == []


def test_a_reply_of_very_many_blocks_is_read() -> None:
    """Each is read once and on its own, so that many take no longer each."""
    many = reply(*[TEXT] * 20_000)

    assert len(rawjson.items(rawjson.members(many.entries[0])["content"])) == 20_000
