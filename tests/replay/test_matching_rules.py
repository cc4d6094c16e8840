"""Facts about the rules for replayed answers: each of them can fail, and none for what says nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ._recorded import Exchange
from ._rules import against_accepted
from ._wire import JSON, Wire
from ._wire_anthropic import ANTHROPIC
from ._wire_chat import CHAT
from ._wire_responses import RESPONSES

# ------------------------------------------------------------------------------------ B: what was taken

CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"a": 1}'}
REASONING = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA", "summary": []}
SPOKEN = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "It’s here – now.", "annotations": []}],
}
ITEMS: list[JSON] = [REASONING, SPOKEN, CALL]


def changed(item: JSON, **changes: Any) -> dict[str, Any]:
    """The item with some keys said otherwise; None takes one away."""
    return {key: value for key, value in {**item, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    "ours",
    [
        [SPOKEN, CALL],
        [REASONING, CALL],
        [REASONING, SPOKEN],
        [SPOKEN, REASONING, CALL],
        [changed(REASONING, encrypted_content="gBBB"), SPOKEN, CALL],
        [REASONING, changed(SPOKEN, content=[{"type": "output_text", "text": "It's there - now."}]), CALL],
        [REASONING, changed(SPOKEN, content="Else."), CALL],
        [REASONING, SPOKEN, changed(CALL, arguments='{"a": 2}')],
        [REASONING, SPOKEN, changed(CALL, name="peek")],
        [REASONING, SPOKEN, changed(CALL, call_id="call_2")],
        [REASONING, SPOKEN, changed(CALL, call_id=None)],
        [REASONING, SPOKEN, {**CALL, "arguments": {"a": [1]}}],
        [REASONING, changed(SPOKEN, id=None), CALL],
        [],
    ],
)
def test_a_replay_that_lacks_or_changes_what_was_taken_is_found(ours: list[JSON]) -> None:
    """A part that is gone, stands elsewhere, or says something else is a finding."""
    assert against_accepted(ours, ITEMS, ITEMS)


def test_the_answer_itself_is_what_was_taken() -> None:
    """Nothing is found where nothing differs."""
    assert against_accepted(ITEMS, ITEMS, ITEMS) == []


@pytest.mark.parametrize(
    "accepted",
    [
        [SPOKEN, CALL],  # a client that dropped a part
        [{"type": "reasoning", "id": "rs_0"}, *ITEMS],  # or added one
        [REASONING, {"role": "assistant", "content": "It's here - now."}, CALL],
        [REASONING, SPOKEN, changed(CALL, arguments='{"a":1}')],
        [REASONING, SPOKEN, changed(CALL, id=None)],
        [REASONING, SPOKEN, {**CALL, "status": "completed", "namespace": None}],
        [REASONING, SPOKEN, {**CALL, "cache_control": {"type": "ephemeral"}}],
        [REASONING, SPOKEN, changed(CALL, call_id="call_of_the_client")],
    ],
)
def test_what_a_client_added_dropped_or_wrote_otherwise_is_no_finding(accepted: list[JSON]) -> None:
    """Null, empty and cache marks say nothing; JSON is read; typographic quotes and dashes are plain ones."""
    assert against_accepted(ITEMS, ITEMS, accepted) == []


def test_either_form_of_a_streamed_secret_is_taken() -> None:
    """A provider that streams sends `encrypted_content` twice, and takes both."""
    done, completed = changed(REASONING, encrypted_content="gDone"), REASONING
    other = changed(REASONING, encrypted_content="gElse")
    forms = {"gDone": "rs_1", "gAAA": "rs_1"}

    assert against_accepted([done], [completed], [completed], forms) == []
    assert against_accepted([completed], [completed], [done], forms) == []
    assert against_accepted([other], [completed], [done], forms)
    assert against_accepted([done], [completed], [completed])


@pytest.mark.parametrize(
    ("ours", "is_found"),
    [
        ([{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}], False),
        ([{"type": "text", "text": "Two."}, {"type": "text", "text": "One."}], True),
        ([{"type": "text", "text": "One."}], True),
    ],
)
def test_parts_without_a_name_are_told_apart_by_what_they_say(ours: list[JSON], is_found: bool) -> None:
    """Of two texts the one that a client kept is the one to be found, at its place."""
    both: list[JSON] = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]

    def message(content: list[JSON]) -> list[JSON]:
        return [{"role": "assistant", "content": content}]

    assert bool(against_accepted(message(ours), message(both), message(both))) is is_found
    assert against_accepted(message(both), message(both), message(both[1:])) == []


# ----------------------------------------------------------------------------------------- A: verbatim


def exchange(wire: Wire, body: Mapping[str, Any] | str, *, host: str = "") -> Exchange:
    """An exchange with a unary answer, or with a stream's text."""
    is_streamed = isinstance(body, str)
    return Exchange(
        wire=wire,
        at=0,
        request={"method": "POST", "host": host or wire.first_party[0], "path": wire.path, "body": {}},
        response={"status": 200, "headers": {}, ("sse" if is_streamed else "body"): body},
        assembled=None,
        raw_body=b"" if is_streamed else json.dumps(body).encode(),
    )


def lines(*elements: JSON) -> list[bytes]:
    """Elements as the bytes that `exchange` makes of a unary answer."""
    return [json.dumps(element).encode() for element in elements]


CHAT_MESSAGE = {
    "role": "assistant",
    "content": "Look.",
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    ],
}
BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    {"type": "text", "text": "Look."},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1.0}},
]
UNARY: Mapping[str, tuple[Exchange, list[bytes]]] = {
    "openai": (exchange(CHAT, {"choices": [{"message": CHAT_MESSAGE}]}), lines(CHAT_MESSAGE)),
    "openai-responses": (exchange(RESPONSES, {"output": ITEMS, "status": "completed"}), lines(*ITEMS)),
    "anthropic": (
        exchange(ANTHROPIC, {"content": BLOCKS, "stop_reason": "tool_use"}),
        lines({"role": "assistant", "content": BLOCKS}),
    ),
}


@pytest.mark.parametrize("name", UNARY)
def test_the_providers_own_bytes_are_verbatim(name: str) -> None:
    """Nothing is found in an answer that is sent back as it came."""
    answer, ours = UNARY[name]

    assert answer.wire.against_answer(ours, answer) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("openai", b"Look.", b"Look!"),
        ("openai", b'{\\"a\\": 1}', b'{\\"a\\":1}'),
        ("openai", b'"call_1"', b'"call_2"'),
        ("openai", b', "type": "function"', b""),
        ("openai", b'"content"', b'"refusal": "No.", "content"'),
        ("openai", b'"Look."', b'"Loo\\u006b."'),
        ("openai-responses", b"gAAA", b"gBBB"),
        ("openai-responses", b"\\u2019", b"'"),
        ("openai-responses", b'"id": "fc_1", ', b""),
        ("openai-responses", b'"name": "look"', b'"name": "look", "status": "completed"'),
        ("openai-responses", b'{\\"a\\": 1}', b'{\\"a\\":1}'),
        ("openai-responses", b'"summary": []', b'"summary":[]'),
        ("anthropic", b"c2ln", b"c2lm"),
        ("anthropic", b"Hm.", b"Hm"),
        ("anthropic", b"1.0", b"1"),
        ("anthropic", b"toolu_1", b"toolu_2"),
        ("anthropic", b', "signature": "c2ln"', b""),
        ("anthropic", b'{"type": "text", "text": "Look."}, ', b""),
    ],
)
def test_a_change_of_a_single_thing_is_found(name: str, old: bytes, new: bytes) -> None:
    """Text, arguments, ids, signatures, keys and the very spelling: each is held to the provider's own."""
    answer, ours = UNARY[name]
    forged = [element.replace(old, new) for element in ours]
    assert forged != ours

    assert answer.wire.against_answer(forged, answer)


@pytest.mark.parametrize("name", UNARY)
def test_an_answer_with_a_part_too_few_is_found(name: str) -> None:
    """An element that is not sent back is missed."""
    answer, ours = UNARY[name]
    if len(ours) > 1:
        assert answer.wire.against_answer(ours[1:], answer)
    else:
        hollow = [json.dumps({"role": "assistant", "content": []}).encode()]
        assert answer.wire.against_answer(hollow, answer)


def sse(*events: JSON) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def test_a_streamed_item_may_have_either_of_its_forms() -> None:
    """What `output_item.done` said and what `response.completed` said are both the provider's own."""
    done = changed(REASONING, encrypted_content="gDone")
    answer = exchange(
        RESPONSES,
        sse(
            {"type": "response.output_item.done", "item": done},
            {"type": "response.completed", "response": {"output": [REASONING]}},
        ),
    )

    assert RESPONSES.against_answer(lines(done), answer) == []
    assert RESPONSES.against_answer(lines(REASONING), answer) == []
    assert RESPONSES.against_answer(lines(changed(REASONING, encrypted_content="gElse")), answer)


def test_streamed_blocks_are_held_to_their_pieces() -> None:
    """The texts of thinking, signature and input are what the pieces add up to, input to the byte."""
    answer = exchange(
        ANTHROPIC,
        sse(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "thinking_delta", "thinking": "Hm."},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "signature_delta", "signature": "c2"},
            },
            {"type": "content_block_start", "index": 1, "content_block": {**BLOCKS[2], "input": {}}},
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": '{"a":'},
            },
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": " 1.0}"},
            },
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ),
    )
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2"}
    (ours,) = lines({"role": "assistant", "content": [thinking, BLOCKS[2]]})

    assert ANTHROPIC.is_whole(answer)
    assert ANTHROPIC.against_answer([ours], answer) == []
    assert ANTHROPIC.against_answer([ours.replace(b"1.0", b"1.00")], answer)
    assert ANTHROPIC.against_answer([ours.replace(b"c2", b"c3")], answer)
    assert ANTHROPIC.against_answer([ours.replace(b"Hm.", b"Hm")], answer)
