"""Facts about reading a unary response: what is stored, what it means, what is no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends.base import FaultKind, ProtocolFault, Reply
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.base.values import replace
from goaitools_py.testing import check_history
from goaitools_py.types.messages import ToolCall, Usage

OPENAI = OpenAIResponsesDialect()
OTHER = OpenAIResponsesDialect("llm.example.org")
SECRET = "xyzzy"

fixed = settings(max_examples=200, deadline=None, derandomize=True, database=None)

THINK = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}'
THINK_2 = '{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gBBB"}'
READABLE = (
    '{"type":"reasoning","id":"rs_3","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}],'
    '"encrypted_content":"x"}'
)
SAY = (
    '{"type":"message","id":"msg_1","status":"completed","role":"assistant","phase":"final_answer",'
    '"content":[{"type":"output_text","text":"Hi","annotations":[],"logprobs":[]}]}'
)
SAY_NOTHING = '{"type":"message","id":"msg_2","status":"incomplete","role":"assistant","content":[]}'
REFUSE = (
    '{"type":"message","id":"msg_3","status":"completed","role":"assistant",'
    '"content":[{"type":"refusal","refusal":"No."}]}'
)
SEARCH = '{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}'
CUSTOM = '{"type":"custom_tool_call","id":"ctc_1","call_id":"c9","name":"run","input":"ls -l"}'
UNKNOWN = '{"type":"never_heard_of","id":"x_1","1e5":1e5,"big":123456789012345678901,"pair":"\\ud83d\\ude00"}'


def call(id: str = "c1", more: str = "", *, name: str = '"look"', arguments: str = '"{}"') -> str:
    head = f'{{"type":"function_call","id":"fc_{id}","call_id":"{id}"'
    return f'{head},"name":{name},"arguments":{arguments}{more}}}'


def response(*items: str, status: Any = "completed", **members: Any) -> bytes:
    """A response body around raw items."""
    rest = json.dumps({"id": "resp_1", "model": "m1", "status": status, **members})
    return f'{{"object":"response","error":null,"output":[{",".join(items)}],{rest[1:]}'.encode()


def read(*items: str, dialect: OpenAIResponsesDialect = OPENAI, **members: Any) -> Reply:
    return dialect.reply(response(*items, **members))


def entry(item: str, dialect: OpenAIResponsesDialect = OPENAI) -> Any:
    """What is kept of one item."""
    (stored,) = read(item, SAY, dialect=dialect).entries[:-1]
    return json.loads(stored)


# ---------------------------------------------------------------------------------------- verbatim


@pytest.mark.parametrize(
    "item",
    [
        SAY,
        THINK,
        READABLE,
        REFUSE,
        SEARCH,
        CUSTOM,
        UNKNOWN,
        call(more=',"status":"completed","namespace":"ns","caller":{"type":"direct"},"x":[1, 2]'),
        '{"type":"compaction","id":"cmp_1","encrypted_content":"gCCC"}',
        '{"type":"program","id":"p","call_id":"pc","code":"x","fingerprint":"f"}',
        '{ "type" : "message", "role":"assistant", "id":"m", "content":[ ] , "a\\u0062":1.0 }',
        '{"type":"mcp_call","id":"mcp_1","name":"f","arguments":"{}","server_label":"s","output":null,"error":null}',
    ],
)
@pytest.mark.parametrize("dialect", [OPENAI, OTHER])
def test_an_item_is_stored_byte_for_byte(item: str, dialect: OpenAIResponsesDialect) -> None:
    """Every item is one entry with the provider's own bytes, unknown types and keys included."""
    assert read(THINK_2, item, SAY, dialect=dialect).entries == (
        THINK_2.encode(),
        item.encode(),
        SAY.encode(),
    )


def test_raw_newlines_between_tokens_go() -> None:
    """An entry is one line; newlines inside strings are escaped and stay."""
    pretty = json.dumps({"type": "message", "role": "assistant", "content": "a\nb"}, indent=2)

    (stored,) = read(pretty).entries

    assert b"\n" not in stored
    assert json.loads(stored) == json.loads(pretty)


# ----------------------------------------------------------------------------- what is changed, row by row


@pytest.mark.parametrize("kind", ["compaction", "tool_search_call", "shell_call", "never_heard_of"])
def test_who_made_an_item_is_left_out(kind: str) -> None:
    """No request type has `created_by`."""
    made = entry(f'{{"type":"{kind}","call_id":"c","created_by":"server","encrypted_content":"A"}}')

    assert made == {"type": kind, "call_id": "c", "encrypted_content": "A"}


@pytest.mark.parametrize(
    ("item", "left_out"),
    [
        (
            call(more=',"namespace":null,"status":null,"async":null,"caller":null'),
            {"namespace", "status", "async"},
        ),
        ('{"type":"function_call","id":null,"call_id":"c","name":"f","arguments":"{}"}', {"id"}),
        (
            '{"type":"custom_tool_call","id":null,"call_id":"c","name":"f","input":"","namespace":null}',
            {"id", "namespace"},
        ),
        (
            '{"type":"reasoning","id":"r","summary":[],"content":null,"status":null,"encrypted_content":null}',
            {"content", "status"},
        ),
        (
            '{"type":"mcp_call","id":"m","name":"f","arguments":"{}","server_label":"s","status":null,"output":null}',
            {"status"},
        ),
        (
            '{"type":"image_generation_call","id":"i","status":"completed","result":"x","error":null,"size":null}',
            {"error"},
        ),
        (
            '{"type":"message","id":"m","role":"assistant","status":"completed","content":[],"phase":null}',
            set(),
        ),
        ('{"type":"never_heard_of","id":null,"status":null,"content":null}', set()),
    ],
)
def test_nulls_that_a_request_may_not_hold_are_left_out(
    item: str, left_out: set[str], data_dir: Path
) -> None:
    """Exactly those; what is stored then is of the published type, if the type is known."""
    stored = entry(item)

    assert json.loads(item).keys() - stored.keys() == left_out
    schema = json.loads((data_dir / "schemas" / "sdk-openai-responses.schema.json").read_bytes())
    is_known = stored["type"] != "never_heard_of"
    assert jsonschema_rs.validator_for(schema).is_valid({"input": [stored]}) is is_known


def test_null_logprobs_are_left_out() -> None:
    """In the parts that have them, and nowhere else."""
    parts = (
        '[{"type":"output_text","text":"a","logprobs":null},{"type":"output_text","text":"b","logprobs":[]}]'
    )
    stored = entry(f'{{"type":"message","role":"assistant","content":{parts},"x": 1}}')

    assert stored["content"] == [
        {"type": "output_text", "text": "a"},
        {"type": "output_text", "text": "b", "logprobs": []},
    ]
    assert stored["x"] == 1


def test_missing_and_repeated_call_ids_are_made() -> None:
    """Each call gets an id of its own, in the calls and in the bytes, the same every time."""
    nameless = '{"type":"function_call","name":"f","arguments":"{}"}'
    items = (call("a"), call("a"), nameless, nameless, CUSTOM.replace("c9", ""))

    reply, again = read(*items), read(*items)

    ids = [one.id for one in reply.calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 5
    assert all(id.startswith("call_") and len(id) == 29 for id in ids[1:])
    assert [json.loads(stored)["call_id"] for stored in reply.entries] == ids
    assert again.entries == reply.entries
    assert [one.id for one in read(*items, id="resp_2").calls][1:] != ids[1:]


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ('"look.around!"', "look_around_"),
        ('""', "unnamed"),
        ("null", "unnamed"),
        ('"' + "a" * 129 + '"', "a" * 128),
        ('"' + "a" * 128 + '"', "a" * 128),
    ],
)
def test_a_name_that_would_be_refused_is_cleaned(name: str, stored: str) -> None:
    """In the bytes; the call keeps what the model wrote, so that the engine can answer it."""
    reply = read(call(name=name))

    assert json.loads(reply.entries[0])["name"] == stored
    assert reply.calls[0].name == (json.loads(name) or "")


@pytest.mark.parametrize(
    ("arguments", "dialect", "stored", "called"),
    [
        ('"{\\"a\\": 1e5}"', OPENAI, '{"a": 1e5}', '{"a": 1e5}'),
        ('"{\\"a\\": 1e5}"', OTHER, '{"a": 1e5}', '{"a": 1e5}'),
        ('"{cut"', OPENAI, "{cut", "{cut"),
        ('"{cut"', OTHER, "{}", "{cut"),
        ('"[1]"', OTHER, "{}", "[1]"),
        ('{"a": 1e5}', OPENAI, '{"a": 1e5}', '{"a": 1e5}'),
        ("null", OPENAI, "", ""),
        ("null", OTHER, "{}", ""),
    ],
)
def test_arguments_are_stored_so_that_they_can_go_back(
    arguments: str, dialect: OpenAIResponsesDialect, stored: str, called: str
) -> None:
    """Verbatim strings; at other servers an object, or they would refuse every later request."""
    reply = read(call(arguments=arguments), dialect=dialect)

    assert json.loads(reply.entries[0])["arguments"] == stored
    assert reply.calls[0].arguments == called


def test_a_custom_calls_input_is_free_text() -> None:
    """It is a call like any other, of its own kind."""
    reply = read(CUSTOM, dialect=OTHER)

    assert reply.calls == (ToolCall(id="c9", name="run", arguments="ls -l", kind="custom"),)
    assert reply.entries == (CUSTOM.encode(),)


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ((SAY, THINK), (SAY,)),
        ((THINK, SAY, THINK_2), (THINK, SAY)),
        ((THINK, THINK_2), ()),
        ((THINK, THINK_2, SAY), (THINK, THINK_2, SAY)),
        ((), ()),
    ],
)
@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_reasoning_that_nothing_follows_is_not_stored(
    items: tuple[str, ...], kept: tuple[str, ...], status: str
) -> None:
    """The next request would be refused; a reply of nothing else has no entries."""
    reply = read(*items, status=status)

    assert reply.entries == tuple(item.encode() for item in kept)
    assert reply.signed is any(THINK[:20] in item for item in kept)
    assert not check_history("openai-responses", reply.entries)


# ------------------------------------------------------------------------------------------ meaning


def test_a_reply_says_what_its_items_say() -> None:
    """Texts and refusals are joined, reasoning apart; calls stand in order."""
    summary = '{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"So."}]}'
    reply = read(READABLE, SAY, summary, SAY, call("a"), CUSTOM)

    assert (reply.text, reply.reasoning) == ("Hi\n\nHi", "Hm.So.")
    assert [(one.id, one.kind) for one in reply.calls] == [("a", "function"), ("c9", "custom")]
    assert (reply.id, reply.model, reply.finish_reason) == ("resp_1", "m1", "completed")
    assert reply.run_calls


@pytest.mark.parametrize(
    ("status", "reason", "items", "stop", "finish", "runs"),
    [
        ("completed", None, (SAY,), "end", "completed", False),
        ("completed", None, (call(),), "end", "completed", True),
        ("completed", None, (REFUSE, call()), "refusal", "completed", False),
        ("incomplete", "max_output_tokens", (SAY, call()), "length", "max_output_tokens", False),
        ("incomplete", "max_messages", (SAY,), "length", "max_messages", False),
        ("incomplete", "content_filter", (call(),), "refusal", "content_filter", False),
        ("incomplete", "steered", (SAY, call()), "length", "steered", False),
        ("incomplete", None, (call(),), "length", "incomplete", False),
        ("complete", None, (call(),), "end", "complete", False),
        (None, None, (call(),), "end", "", False),
        (7, None, (call(),), "end", "", False),
    ],
)
def test_only_a_completed_reply_runs_calls(
    status: Any, reason: Any, items: tuple[str, ...], stop: str, finish: str, runs: bool
) -> None:
    """Any other word than `completed` leaves them alone; the provider's own word is kept."""
    details = None if reason is None else {"reason": reason}

    reply = read(*items, status=status, incomplete_details=details)

    assert (reply.stop, reply.finish_reason, reply.run_calls) == (stop, finish, runs)


@pytest.mark.parametrize(
    ("items", "signed"),
    [
        ((THINK, SAY), True),
        ((READABLE, SAY), True),
        (('{"type":"reasoning","id":"rs","summary":[]}', SAY), True),
        ((READABLE.replace('"x"', "null"), SAY), False),
        (('{"type":"compaction","id":"c","encrypted_content":"x"}', SAY), False),
        ((SAY, call()), False),
    ],
)
def test_encrypted_reasoning_is_signed(items: tuple[str, ...], signed: bool) -> None:
    """So is reasoning that is nothing but an id; text that all can read is not, nor is a compaction."""
    assert read(*items).signed is signed


@pytest.mark.parametrize(
    ("transformations", "dropped"),
    [
        (
            [
                {"id": "rs_1", "action": "removed", "reason": "prefix_mismatch", "type": "reasoning"},
                {"id": "rs_2", "action": "removed", "reason": "turn_boundary", "type": "reasoning"},
            ],
            ("prefix_mismatch", "turn_boundary"),
        ),
        ([{"reason": "what the user said, in full"}, {}, 7], ("unknown",) * 3),
        ([], ()),
        (None, ()),
        ("x", ()),
    ],
)
def test_what_the_provider_left_out_is_told(transformations: Any, dropped: tuple[str, ...]) -> None:
    """The reason of each removed item; never prose."""
    assert read(SAY, input_transformations=transformations).dropped == dropped


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 5},
                "total_tokens": 17,
            },
            Usage(
                input_tokens=10,
                cached_input_tokens=4,
                cache_write_tokens=3,
                output_tokens=7,
                reasoning_tokens=5,
                requests=1,
            ),
        ),
        (None, Usage(requests=1)),
        ([], Usage(requests=1)),
        (
            {
                "input_tokens": -1,
                "output_tokens": 1.5,
                "input_tokens_details": 3,
                "output_tokens_details": None,
            },
            Usage(requests=1),
        ),
        ({"input_tokens": 10**30, "output_tokens": "9"}, Usage(input_tokens=2**53 - 1, requests=1)),
    ],
)
def test_usage_is_counted_and_never_raises(usage: Any, counted: Usage) -> None:
    """An absurd bill is no reason to lose the answer."""
    assert read(SAY, usage=usage).usage == counted


def test_an_envelope_of_unusual_types_is_read_all_the_same() -> None:
    """Members that are not what they should be count as missing."""
    reply = read(SAY, call(), id=5, model=["m"], incomplete_details="x", usage=True)

    assert (reply.id, reply.model, reply.text, reply.run_calls) == ("", "", "Hi", True)


# ------------------------------------------------------------------------------------- taking out


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ((SAY, call()), (SAY,)),
        ((THINK, call("a"), call("b"), CUSTOM), ()),
        ((THINK, SAY, call()), (THINK, SAY)),
        ((THINK, SAY, THINK_2, call()), (THINK, SAY)),
        ((THINK, SEARCH, THINK_2, call()), (THINK, SEARCH)),
        ((THINK, THINK_2, call()), ()),
        ((SAY_NOTHING, call()), ()),
        ((THINK, SAY_NOTHING, call()), ()),
        ((THINK, call(), SAY), (SAY.replace('"id":"msg_1",', ""),)),
        ((call(), THINK, SAY), (THINK, SAY)),
    ],
)
def test_calls_go_with_the_reasoning_before_them(items: tuple[str, ...], kept: tuple[str, ...]) -> None:
    """No orphan is left, and nothing at all of a reply that said nothing else."""
    reply = read(*items, status="incomplete")

    left = OPENAI.without_calls(reply)

    assert left.entries == tuple(item.encode() for item in kept)
    assert (left.calls, left.run_calls) == ((), False)
    assert left.signed is any("encrypted_content" in item for item in kept)
    assert (left.text, left.usage) == (reply.text, reply.usage)
    assert not check_history("openai-responses", left.entries)


def test_a_reply_without_calls_stays_what_it_is() -> None:
    """The very object."""
    reply = read(THINK, SAY)

    assert OPENAI.without_calls(reply) is reply


def test_call_ids_are_replaced_in_order() -> None:
    """In the calls and in the bytes; a wrong number of them is refused."""
    reply = read(THINK, call("a"), SAY, CUSTOM)

    renamed = OPENAI.with_call_ids(reply, ["x", "y"])

    assert [one.id for one in renamed.calls] == ["x", "y"]
    assert renamed.entries == (
        THINK.encode(),
        call("a").replace('"call_id":"a"', '"call_id":"x"').encode(),
        SAY.encode(),
        CUSTOM.replace("c9", "y").encode(),
    )
    assert OPENAI.with_call_ids(reply, ["a", "c9"]) is reply
    with pytest.raises(ValueError, match="shorter"):
        OPENAI.with_call_ids(reply, ["x"])


USER = '{"role":"user","id":"u_1","content":"Hi"}'
OUTPUT = '{"type":"function_call_output","id":"fco","call_id":"a","output":"ok"}'


def bare(item: str) -> str:
    """The item without its id."""
    return json.dumps(
        {key: value for key, value in json.loads(item).items() if key != "id"}, separators=(",", ":")
    )


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ((USER, THINK, SAY, USER), (USER, "", bare(SAY), USER)),
        ((THINK, call("a"), call("b"), OUTPUT), ("", bare(call("a")), bare(call("b")), OUTPUT)),
        ((THINK, THINK_2, SAY, SAY), ("", "", bare(SAY), bare(SAY))),
        ((THINK, SAY, call("a"), OUTPUT), ("", bare(SAY), bare(call("a")), OUTPUT)),
        ((THINK, SAY, USER, SAY), ("", bare(SAY), USER, SAY)),
        ((THINK, SEARCH, THINK_2, SAY), ("", "", "", bare(SAY))),
        ((THINK, SEARCH, SEARCH, SAY), ("", "", "", bare(SAY))),
        ((SEARCH, THINK, SAY), (SEARCH, "", bare(SAY))),
        ((THINK, UNKNOWN), ("", UNKNOWN.replace('"id":"x_1",', ""))),
        ((THINK, USER, SAY), ("", USER, SAY)),
        ((READABLE, SAY), (READABLE.replace(',"encrypted_content":"x"', ""), SAY)),
        (
            ('{"type":"reasoning","id":"rs","summary":[],"encrypted_content":null}', SAY),
            ("", bare(SAY)),
        ),
        (
            (THINK, '{"type":"mcp_approval_request","id":"a"}', SAY),
            ("", '{"type":"mcp_approval_request","id":"a"}', bare(SAY)),
        ),
    ],
)
def test_unsigned_entries_hold_nothing_encrypted(items: tuple[str, ...], left: tuple[str, ...]) -> None:
    """Reasoning goes, and from what followed it the id that points to it; text that can be read stays."""
    entries = [item.encode() for item in items]

    stripped = OPENAI.unsigned(entries)

    assert stripped == [item.encode() for item in left]
    again = [entry for entry in stripped if entry]
    assert all(new is old for new, old in zip(OPENAI.unsigned(again), again, strict=True))
    untouched = [new is old for new, old in zip(stripped, entries, strict=True)]
    assert untouched == [new == old for new, old in zip(left, items, strict=True)]


SHELL = '{"type":"shell_call","id":"sh_1","call_id":"s1","action":{"commands":["ls"]}}'
SHELL_DONE = '{"type":"shell_call_output","id":"so_1","call_id":"s1","output":[]}'


@pytest.mark.parametrize(
    ("items", "left"),
    [
        ((THINK, SAY), (THINK, SAY)),
        ((THINK, SAY, SHELL), (THINK, SAY, "")),
        ((SAY, THINK, SHELL), (SAY, "", "")),
        ((THINK, SHELL, SAY), ("", "", bare(SAY))),
        ((THINK, SHELL, SHELL_DONE, SAY), (THINK, SHELL, SHELL_DONE, SAY)),
        (('{"type":"tool_search_call","call_id":"t","execution":"client","arguments":{}}', SAY), ("", SAY)),
        (
            ('{"type":"tool_search_call","call_id":null,"execution":"server","arguments":{}}', SAY),
            ('{"type":"tool_search_call","call_id":null,"execution":"server","arguments":{}}', SAY),
        ),
        ((SEARCH, call()), (SEARCH, call())),
    ],
)
def test_a_settled_reply_waits_for_nobody(items: tuple[str, ...], left: tuple[str, ...]) -> None:
    """Calls of provider tools that nobody ran would be refused in every later request; the rest stays."""
    entries = [item.encode() for item in items]

    settled = OPENAI.settled(entries)

    assert settled == [item.encode() for item in left]
    assert [new is old for new, old in zip(settled, entries, strict=True)] == [
        bool(item) and item in items for item in left
    ]


# ----------------------------------------------------------------------------------- no answer at all


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "it is empty"),
        (b"  \n", "it is empty"),
        (b"<html>xyzzy</html>", "HTML"),
        (b"null", "not a JSON object"),
        (b'["xyzzy"]', "not a JSON object"),
        (b"{}", "no output"),
        (b'{"output":"xyzzy"}', "no output"),
        (b'{"id":"r","output":[{"type":"message"', "cut off"),
        (b"[" * 100_000, "not a JSON object"),
        (response("7"), "an item"),
        (response('["xyzzy"]'), "an item"),
    ],
)
def test_what_is_no_response_is_a_protocol_fault(body: bytes, problem: str) -> None:
    """It says what came instead, and quotes nothing."""
    with pytest.raises(ProtocolFault, match=problem) as caught:
        OPENAI.reply(body)

    assert caught.value.fault.kind == "protocol"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("members", "kind", "code", "retryable"),
    [
        ({"error": {"code": "server_error", "message": SECRET}}, "unavailable", "server_error", True),
        (
            {"error": {"code": "rate_limit_exceeded", "message": SECRET}},
            "rate_limit",
            "rate_limit_exceeded",
            True,
        ),
        ({"error": {"code": "invalid_prompt", "message": SECRET}}, "rejected", "invalid_prompt", False),
        ({"error": {"code": "image_too_large", "message": SECRET}}, "rejected", "image_too_large", False),
        ({"error": {"code": "context_length_exceeded"}}, "context", "context_length_exceeded", False),
        ({"error": {"code": "vector_store_timeout"}}, "protocol", "vector_store_timeout", True),
        ({"error": SECRET}, "protocol", "", True),
        ({"status": "failed", "error": None}, "protocol", "", True),
        ({"status": "cancelled"}, "protocol", "cancelled", True),
        ({"status": "queued"}, "protocol", "queued", False),
        ({"status": "in_progress"}, "protocol", "in_progress", False),
        ({"object": "error", "code": 503, "message": SECRET}, "unavailable", "503", True),
    ],
)
def test_a_response_that_failed_is_a_fault(
    members: dict[str, Any], kind: FaultKind, code: str, retryable: bool
) -> None:
    """An error in a 200, or a status that is not the end, is never taken for a reply."""
    body = {"object": "response", "status": "completed", "output": [json.loads(THINK)], **members}

    with pytest.raises(ProtocolFault) as caught:
        OPENAI.reply(json.dumps(body).encode())
    # A text under "completed" is a whole reply: `test_paid_once` has that.
    said = {"output": [json.loads(SAY)], "status": members.get("status", "failed")}
    with pytest.raises(ProtocolFault) as beside:
        OPENAI.reply(json.dumps(body | said).encode())

    fault = caught.value.fault
    assert (fault.kind, fault.code, fault.retryable) == (kind, code, retryable)
    assert caught.value.partial_text == ""
    assert SECRET not in str(caught.value)
    # Beside text the reply broke off, as in a stream: the text is kept.
    assert beside.value.partial_text == "Hi"
    assert beside.value.fault.code == code
    unfinished = members.get("status") in ("cancelled", "queued", "in_progress")
    assert beside.value.fault.kind == ("protocol" if unfinished else "interrupted")


@pytest.mark.parametrize("odd", ["[" * 300 + "]" * 300, "1e999", '{"code":1e999}'])
def test_an_error_that_cannot_be_read_is_an_error(odd: str) -> None:
    """It is a finding like any other; elsewhere in the envelope such a value counts as missing."""
    body = f'{{"output":[{SAY}],"error":{odd}}}'.encode()
    elsewhere = body.replace(b'"error"', b'"input_transformations"')

    with pytest.raises(ProtocolFault) as caught:
        OPENAI.reply(body)

    assert (caught.value.fault.kind, caught.value.partial_text) == ("interrupted", "Hi")
    assert OPENAI.reply(elsewhere).text == "Hi"


@fixed
@given(data=st.data())
def test_damaged_bodies_raise_nothing_else(data: st.DataObject) -> None:
    """Cut, flipped or swapped bytes: a reply or a ProtocolFault, and whatever is stored can be read again."""
    body = bytearray(response(THINK, SAY, call(), SEARCH, CUSTOM, usage={"input_tokens": 5}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.sampled_from(b'"{}[],:0n\\x\xff\n'))
    body = body[: data.draw(st.integers(len(body) // 2, len(body)))]

    try:
        reply = OPENAI.reply(bytes(body))
    except ProtocolFault:
        return

    assert all(b"\n" not in stored for stored in reply.entries)
    OPENAI.view(reply.entries)
    OPENAI.unsigned(reply.entries)
    OPENAI.settled(reply.entries)
    OPENAI.without_calls(reply)


def test_a_reply_shows_no_content() -> None:
    """Neither text nor entries nor reasoning stand in its repr."""
    assert SECRET not in repr(replace(read(SAY.replace("Hi", SECRET)), reasoning=SECRET))
