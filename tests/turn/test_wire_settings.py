"""Settings and token counts in the words of each wire, through both chats and a real request."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ModelSettings, Usage
from goaitools_py.base import rawjson
from goaitools_py.sim import Reply

from ._reading import ALL, ANTHROPIC, CHAT, OPENAI, RESPONSES, on, tool_choice

SETTINGS = [
    *on([CHAT], {"max_output_tokens": 500}, {"max_tokens": 500}, id="limit"),
    *on([RESPONSES], {"max_output_tokens": 500}, {"max_output_tokens": 500}, id="limit"),
    *on([ANTHROPIC], {"max_output_tokens": 500}, {"max_tokens": 500}, id="limit"),
    *on([CHAT], {"reasoning_effort": "low"}, {"reasoning_effort": "low"}, id="effort"),
    *on([RESPONSES], {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}, id="effort"),
    *on([ANTHROPIC], {"reasoning_effort": "low"}, {"output_config": {"effort": "low"}}, id="effort"),
    *on(
        [ANTHROPIC],
        {"thinking_budget_tokens": 1024},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 8192},
        id="budget",
    ),
    *on(
        [ANTHROPIC],
        {"thinking_budget_tokens": 10_000},
        {"thinking": {"type": "enabled", "budget_tokens": 10_000}, "max_tokens": 18_192},
        id="large budget",
    ),
    *on([ANTHROPIC], {"thinking_budget_tokens": 0}, {"thinking": {"type": "disabled"}}, id="no budget"),
    *on([CHAT], {"stop": "END"}, {"stop": "END"}, id="stop"),
    *on([ANTHROPIC], {"stop": "END"}, {"stop_sequences": ["END"]}, id="stop"),
    *on([ANTHROPIC], {"stop": ["A", "B"]}, {"stop_sequences": ["A", "B"]}, id="stops"),
    *on(ALL, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}, id="sampling"),
    *on([CHAT], {"seed": 7}, {"seed": 7}, id="seed"),
    *on(OPENAI, {"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, id="cache key"),
    *on(OPENAI, {"parallel_tool_calls": False}, {"parallel_tool_calls": False}, id="one call"),
    *on(
        [ANTHROPIC],
        {"parallel_tool_calls": False},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        id="one call",
    ),
    *on(
        [ANTHROPIC],
        {"parallel_tool_calls": False, "tool_choice": "required"},
        {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        id="one call at least",
    ),
    *on(OPENAI, {"tool_choice": "required"}, {"tool_choice": "required"}, id="required"),
    *on([ANTHROPIC], {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}, id="required"),
    *on(ALL, {"model": "sim-other"}, {"model": "sim-other"}, id="model"),
    *on(OPENAI, {"extra_body": {"user": "u"}}, {"user": "u"}, id="extra"),
    *on(
        [ANTHROPIC],
        {"extra_body": {"metadata": {"user_id": "u"}}},
        {"metadata": {"user_id": "u"}},
        id="extra",
    ),
]


@pytest.mark.parametrize(("wire", "given", "expected"), SETTINGS)
def test_a_setting_reaches_the_request_in_its_words(
    face: Any, sim: Any, run: Any, scores: Any, given: Any, expected: dict[str, Any]
) -> None:
    """The provider takes the request, and it says what was asked for."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.text("Hello."))

    run(chat, user="Hello.", settings=ModelSettings(**given))

    body = sim.requests[0].parsed
    assert {key: body.get(key) for key in expected} == expected
    assert sim.problems == []


@pytest.mark.parametrize("choice", ["auto", "none", "required", "get_score"])
def test_every_tool_choice_has_a_word(face: Any, sim: Any, run: Any, scores: Any, choice: str) -> None:
    """The model may, must not or must call, or must call this very tool."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.text("Hello."))

    run(chat, user="Hello.", settings=ModelSettings(tool_choice=choice))

    assert tool_choice(sim.requests[0]) == choice
    assert sim.problems == []


def test_without_tools_nothing_is_said_of_them(face: Any, sim: Any, run: Any) -> None:
    """Providers refuse a choice among tools that are not there."""
    settings = ModelSettings(tool_choice="required", parallel_tool_calls=False)

    run(face.on(sim), user="Hello.", settings=settings)

    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(sim.requests[0].parsed)
    assert sim.problems == []


UNSUPPORTED = [
    *on([CHAT], {"thinking_budget_tokens": 1024}, "thinking_budget_tokens", id="budget"),
    *on([RESPONSES], {"thinking_budget_tokens": 1024}, "thinking_budget_tokens", id="budget"),
    *on([RESPONSES], {"stop": "END"}, "stop", id="stop"),
    *on([RESPONSES], {"seed": 7}, "seed", id="seed"),
    *on([RESPONSES], {"extra_body": {"store": True}}, "store", id="store"),
    *on([RESPONSES], {"extra_body": {"previous_response_id": "r"}}, "previous_response_id", id="response"),
    *on([RESPONSES], {"extra_body": {"input": []}}, "input", id="input"),
    *on([ANTHROPIC], {"seed": 7}, "seed", id="seed"),
    *on([ANTHROPIC], {"prompt_cache_key": "k"}, "prompt_cache_key", id="cache key"),
    *on([ANTHROPIC], {"extra_body": {"messages": []}}, "messages", id="messages"),
    *on(
        [ANTHROPIC],
        {"thinking_budget_tokens": 1024, "max_output_tokens": 1024},
        "max_output_tokens",
        id="nothing beside the budget",
    ),
]


@pytest.mark.parametrize(("wire", "given", "named"), UNSUPPORTED)
def test_what_a_wire_has_not_is_refused_before_anything_is_sent(
    face: Any, sim: Any, run: Any, given: Any, named: str
) -> None:
    """It is the caller's mistake: no request, no state, and the setting's name in the text."""
    with pytest.raises(ValueError, match=named):
        run(face.on(sim), user="Hello.", settings=ModelSettings(**given))

    assert sim.requests == []


# ---------------------------------------------------------------------------------------- token counts

MESSAGE = {"role": "assistant", "content": "Hello."}
PART = {"type": "output_text", "text": "Hello.", "annotations": []}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [PART]}
COUNTED: dict[str, dict[str, Any]] = {
    CHAT: {
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 60,
            "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
            "completion_tokens": 7,
            "completion_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 67,
        },
    },
    RESPONSES: {
        "object": "response",
        "status": "completed",
        "output": [ITEM],
        "usage": {
            "input_tokens": 60,
            "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 67,
        },
    },
    ANTHROPIC: {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 30,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    },
}
"""The same answer on each wire: 10 tokens read anew, 30 from the cache, 20 written to it; 3 of 7 thought."""


def test_usage_means_the_same_on_every_wire(face: Any, sim: Any, run: Any) -> None:
    """Cached and written tokens are parts of the input, reasoning is a part of the output."""
    sim.push(Reply.raw(rawjson.dumps({"id": "r", "model": "m", **COUNTED[sim.wire]})))

    result = run(face.on(sim), user="Hello.")

    expected = Usage(
        input_tokens=60,
        cached_input_tokens=30,
        cache_write_tokens=20,
        output_tokens=7,
        reasoning_tokens=3,
        requests=1,
    )
    assert result.usage == result.total_usage == expected


@pytest.mark.parametrize("wire", [RESPONSES, ANTHROPIC])
def test_a_prefix_is_written_once_and_then_read(face: Any, sim: Any, run: Any) -> None:
    """What one request wrote to the cache the next one reads; thinking is counted as output."""
    thinks = {
        RESPONSES: ModelSettings(reasoning_effort="low"),
        ANTHROPIC: ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096),
    }
    chat = face.on(sim, settings=thinks[sim.wire], system="You are a guide. " * 40)

    first = run(chat, user="My name is Ada.")
    second = run(chat, first.state, user="Who am I?")

    assert first.usage.cached_input_tokens == 0
    assert first.usage.cache_write_tokens > 100
    assert second.usage.cached_input_tokens > 100
    assert second.usage.cache_write_tokens < first.usage.cache_write_tokens
    assert second.usage.input_tokens > first.usage.input_tokens
    assert 0 < second.usage.reasoning_tokens < second.usage.output_tokens
    assert sim.problems == []


def test_an_answer_without_counts_is_none_the_worse(face: Any, sim: Any, run: Any) -> None:
    """A server that does not count still answers; only the request is counted."""
    sim.push(Reply.text("Hello.", usage=False))

    result = run(face.on(sim), user="Hello.")

    assert (result.text, result.usage) == ("Hello.", Usage(requests=1))
    assert sim.problems == []
