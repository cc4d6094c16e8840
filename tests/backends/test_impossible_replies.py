"""Replies with impossible roles, contents and items: what is stored of them is what servers take."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import ProtocolFault, Reply
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.testing import check_history
from goaitools_py.types.messages import Text, ToolResult, user

Value = Any

DIALECTS = {
    "openai": OpenAIChatDialect("llm.example.org"),
    "openai-responses": OpenAIResponsesDialect("llm.example.org"),
    "anthropic": AnthropicDialect("llm.example.org"),
}
CHAT_USAGE = {"prompt_tokens": 11, "completion_tokens": 2}
USAGE = {"input_tokens": 11, "output_tokens": 2}

BODIES: dict[str, Value] = {
    "openai": {
        "id": "r1",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Let me see."},
                        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                    ],
                    "refusal": None,
                    "name": "ada",
                    "audio": {"id": "a1", "data": "", "expires_at": 1, "transcript": ""},
                    "function_call": {"name": "old", "arguments": "{}"},
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                        {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "x"}},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": CHAT_USAGE,
    },
    "openai-responses": {
        "id": "r1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [
            {"id": "rs1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
            },
            {"id": "k1", "type": "compaction", "encrypted_content": "AAAA"},
            {"id": "f1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"id": "g1", "type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
        ],
        "usage": USAGE,
    },
    "anthropic": {
        "id": "r1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "AAAA"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
        ],
        "usage": USAGE,
    },
}
SAYS = {"openai": "message", "openai-responses": "output", "anthropic": "content"}
"""The member that holds what the model said."""

ODD: tuple[Value, ...] = (
    None,
    True,
    False,
    0,
    5,
    -1.5,
    "",
    " ",
    "tool",
    "user",
    "system",
    "developer",
    "message",
    "reasoning",
    "tool_result",
    "function_call_output",
    "text",
    "\ud83d",
    [],
    {},
    [None],
    [5, "Red"],
    ["Red"],
    [{}],
    [[]],
    [{"text": "Red"}],
    [{"type": 5, "text": "Red"}],
    [{"type": "text", "text": 5}],
    [{"type": "output_text"}],
    [{"type": "tool_result", "tool_use_id": "c1"}],
    [{"type": "function_call_output", "call_id": "c0", "output": "x"}],
    {"type": "text", "text": "Red"},
    {"type": "message", "role": "user", "content": "Red"},
    {"answer": 42},
)
GONE = object()


def paths(value: Value, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from paths(inner, (*at, step))


def changed(body: Value, path: tuple[Any, ...], odd: Value) -> Value:
    """A copy with one value replaced, or left out. A path that is gone already changes nothing."""
    made = copy.deepcopy(body)
    inner = made
    for step in path[:-1]:
        try:
            inner = inner[step]
        except (KeyError, IndexError, TypeError):
            return made
    try:
        if odd is GONE:
            del inner[path[-1]]
        else:
            inner[path[-1]] = odd
    except (KeyError, IndexError, TypeError):
        pass
    return made


def flaws(wire: str, reply: Reply) -> list[str]:
    """What a server would refuse in the next request: the stored reply, its calls answered, and a user."""
    dialect = DIALECTS[wire]
    kept = reply if reply.run_calls or not reply.calls else dialect.without_calls(reply)
    results = [
        ToolResult(call_id=call.id, name=call.name, parts=(Text("7"),), kind=call.kind) for call in kept.calls
    ]
    entries = [
        *dialect.entries([user("Hello?")]),
        *kept.entries,
        *(dialect.results(results) if results else ()),
        *dialect.entries([user("Thanks.")]),
    ]
    flat = [entry for entry in entries if entry]
    return check_history(wire, flat)


def events(wire: str, body: Value) -> list[Value]:
    """A stream that says what a body says."""
    if wire == "openai-responses":
        return [{"type": "response.completed", "response": body}]
    if wire == "openai":
        choice = body["choices"][0]
        delta = {"index": 0, "delta": choice.get("message")}
        end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        return [{"choices": [delta]}, {"choices": [end], "usage": body["usage"]}]
    content = body.get("content")
    blocks = content if isinstance(content, list) else []
    return [
        {"type": "message_start", "message": {**body, "content": [], "stop_reason": None}},
        *({"type": "content_block_start", "index": n, "content_block": one} for n, one in enumerate(blocks)),
        {"type": "message_delta", "delta": {"stop_reason": body["stop_reason"]}},
        {"type": "message_stop"},
    ]


def read(wire: str, body: Value, *, is_streamed: bool) -> tuple[Reply | ProtocolFault, int]:
    """The reply or the fault, and the input tokens that are known for it."""
    decoder = DIALECTS[wire].decoder()
    try:
        if is_streamed:
            for event in events(wire, body):
                decoder.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        reply = decoder.finish() if is_streamed else DIALECTS[wire].reply(json.dumps(body).encode())
    except ProtocolFault as fault:
        usage = fault.usage or getattr(decoder, "usage_so_far", None)
        return fault, usage.input_tokens if usage else 0
    return reply, reply.usage.input_tokens


def hostile(wire: str) -> Iterator[Value]:
    """Every single odd value in what the model said, and a sample of pairs of them."""
    body = BODIES[wire]
    where = [path for path in paths(body) if SAYS[wire] in path]
    ways = [(path, odd) for path in where for odd in (*ODD, GONE)]
    for path, odd in ways:
        yield changed(body, path, odd)
    source = random.Random(16)
    for _ in range(2_000):
        made = body
        for path, odd in source.sample(ways, 2):
            made = changed(made, path, odd)
        if source.random() < 0.3:
            made = made | {"stop_reason": "end_turn"} if wire == "anthropic" else made
        yield made


@pytest.mark.parametrize("is_streamed", [False, True], ids=["unary", "streamed"])
@pytest.mark.parametrize("wire", DIALECTS)
def test_whatever_a_reply_holds_the_next_request_is_taken(wire: str, is_streamed: bool) -> None:
    """An odd reply is refused, and its usage known; or what is stored of it passes `check_history`."""
    found: dict[str, Value] = {}
    taken = 0

    for body in hostile(wire):
        reply, tokens = read(wire, body, is_streamed=is_streamed)
        # A stream of Chat Completions says its usage at the end: an event that breaks it off comes before.
        if tokens != 11 and not (is_streamed and wire == "openai" and isinstance(reply, ProtocolFault)):
            found.setdefault(f"usage lost: {reply!r:.80}", body)
        if isinstance(reply, Reply):
            taken += 1
            for flaw in flaws(wire, reply):
                found.setdefault(flaw, body)

    assert not found, "\n".join(f"{flaw}: {json.dumps(body)}" for flaw, body in list(found.items())[:8])
    assert taken > 900


@pytest.mark.parametrize("role", ["tool", "user", "system", 7, None, "", ["assistant"]])
def test_a_chat_reply_is_the_assistants(role: Value) -> None:
    """Whatever it says of itself, in one body and in a stream."""
    body = {"choices": [{"message": {"role": role, "content": "Hello."}, "finish_reason": "stop"}]}
    body["usage"] = CHAT_USAGE

    replies = [read("openai", body, is_streamed=is_streamed)[0] for is_streamed in (False, True)]

    for reply in replies:
        assert isinstance(reply, Reply)
        (entry,) = reply.entries
        assert json.loads(entry) == {"role": "assistant", "content": "Hello."}


@pytest.mark.parametrize(
    ("content", "stored", "text"),
    [
        (5, "5", "5"),
        (False, "false", "false"),
        ({"a": 1.50}, '{"a": 1.5}', '{"a": 1.5}'),
        (
            ["Red", None, " wins"],
            [{"type": "text", "text": "Red"}, {"type": "text", "text": " wins"}],
            "Red wins",
        ),
        ([{"text": "Red"}], [{"type": "text", "text": "Red"}], "Red"),
        ([{"type": "text", "text": 5}], [{"type": "text", "text": "5"}], "5"),
        ([{"type": "text"}], [{"type": "text", "text": ""}], ""),
        ([{"x": 1}], [{"type": "text", "text": '{"x": 1}'}], '{"x": 1}'),
        ([{"type": "text", "text": "Red", "x": 1}, 5], None, "Red5"),
        ([None], "", ""),
        ([], "", ""),
    ],
)
def test_odd_content_is_text(content: Value, stored: Value, text: str) -> None:
    """What a model said is not lost because a gateway framed it oddly."""
    body = {
        "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": CHAT_USAGE,
    }

    reply, _ = read("openai", body, is_streamed=False)

    assert isinstance(reply, Reply)
    assert reply.text == text
    if stored is not None:
        # What says nothing is not stored.
        assert [json.loads(entry)["content"] for entry in reply.entries] == ([stored] if text else [])


def test_an_item_that_speaks_for_the_user_is_the_assistants() -> None:
    """An output item of the user, or of no role, would be a message that the user never wrote."""
    for item in (
        {"type": "message", "role": "user", "content": [{"type": "output_text", "text": "Hi."}]},
        {"role": "system", "content": "Hi."},
        {"type": 5, "content": "Hi."},
        {"type": "user", "content": ["Hi."]},
    ):
        body = {"status": "completed", "output": [item], "usage": USAGE}

        reply, _ = read("openai-responses", body, is_streamed=False)

        assert isinstance(reply, Reply)
        (entry,) = reply.entries
        assert (json.loads(entry)["type"], json.loads(entry)["role"]) == ("message", "assistant")
        assert reply.text == "Hi."


def test_content_that_is_one_string_is_one_block() -> None:
    """A compatible server writes it as a request may have it."""
    body = BODIES["anthropic"] | {"content": "Hi.", "stop_reason": "end_turn"}

    reply, _ = read("anthropic", body, is_streamed=False)

    assert isinstance(reply, Reply)
    assert (reply.text, reply.entries) == (
        "Hi.",
        (b'{"role":"assistant","content":[{"type":"text","text":"Hi."}]}',),
    )
