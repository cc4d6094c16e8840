"""The long form: llama.cpp's `llama-server`, a real engine with a real prompt cache, on all wires.

It runs where GOAITOOLS_LLAMA_SERVER names the program. The tests make a small model, or take the one that
GOAITOOLS_LLAMA_MODEL names. What its answers say, and how many hold thinking or a tool call, does not matter:
each test asserts what holds for any model, and skips if the model said nothing that the test is about. A seed
makes the answers the same in every run, and each turn has its own temperature, so that one is not like the
other.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from goaitools_py import (
    ChatResult,
    Compactor,
    KeepRecentTurns,
    Limits,
    ModelReplied,
    ModelSettings,
    ProviderRejectedError,
    ProviderUnavailableError,
    ReasoningDelta,
    TextDelta,
    TurnLimit,
)
from goaitools_py.output import Output, OutputError
from goaitools_py.states import read_history, state_from_messages, state_messages
from goaitools_py.testing import check_history

TURNS = 10
SYSTEM = "You are a guide who knows every team and its score."
ASKS_FOR_AN_ANSWER = 32
"""More tokens than stand behind the last message and ask for an answer. An answer of which nothing is kept
leaves them out of the next request."""


@pytest.fixture
def chat(llama: str, face: Any, wire: str) -> Iterator[Any]:
    """A chat that speaks the test's wire with llama-server."""
    base_url = llama + ("" if wire == "anthropic" else "/v1")
    backend = face.backend("tiny", wire=wire, base_url=base_url, api_key="none", max_retries=0)
    yield face.chat(backend, system=SYSTEM, limits=Limits(max_iterations=2))
    if face.is_async:
        face.run(backend.aclose())
    else:
        backend.close()


def get_score(team: str) -> str:
    """Current score of one team."""
    return "7 points"


def turn(n: int, *, limit: int = 120) -> dict[str, Any]:
    """What the n-th turn asks, and how."""
    settings = ModelSettings(max_output_tokens=limit, temperature=0.8 + n / 50)
    return {"user": f"Question {n}: which team leads now, and why?", "settings": settings}


def talk(run: Any, chat: Any, **fields: Any) -> list[ChatResult]:
    """Some turns, each from the bytes that the one before it left."""
    results: list[ChatResult] = []
    for n in range(TURNS):
        state = results[-1].state if results else None
        results.append(run(chat, state, **turn(n), **fields))
    return results


def needed(found: list[Any], what: str) -> list[Any]:
    """What the model said of a kind; skips the test if it said none."""
    if not found:
        pytest.skip(f"no llama-server model that made a {what} here")
    return found


def blocks(wire: str, state: bytes, kind: str) -> list[dict[str, Any]]:
    """The items or content blocks of one type in a state's own messages."""
    found = state_messages(state)
    if wire == "anthropic":
        found = [part for m in found if isinstance(m["content"], list) for part in m["content"]]
    return [part for part in found if part.get("type") == kind]


# ------------------------------------------------------------------------------------------------- turns


def test_turns_with_tools(chat: Any, run: Any, wire: str) -> None:
    """Turns of thinking, calls and text are all taken, and leave a history that breaks no rule."""
    results = talk(run, chat, tools=[get_score])

    calls = needed([record for result in results for record in result.tool_log], "tool call")
    assert all((record.result == "7 points") is (record.flag == "ok") for record in calls)
    assert len({record.call.id for record in calls}) == len(calls)
    assert check_history(wire, state_messages(results[-1].state)) == []
    asked = sum(result.usage.requests for result in results)
    assert results[-1].total_usage.requests == asked > TURNS


def test_a_stream_is_heard(chat: Any) -> None:
    """Thinking and text are heard as they come, and the text that was heard is the result's."""
    thinking, texts = "", []
    for n in range(TURNS):
        heard: list[Any] = []
        result = chat.chat_with_state(None, on_event=heard.append, **turn(n))
        text = "".join(e.text for e in heard if isinstance(e, TextDelta))
        thinking += "".join(e.text for e in heard if isinstance(e, ReasoningDelta))
        texts.append((text, result.text))

    assert all(text == whole for text, whole in texts)
    needed([whole for _, whole in texts if whole], "text")
    needed([thinking] if thinking else [], "thought")


def test_streamed_and_unary_are_the_same(chat: Any) -> None:
    """The same question leaves the same history, whether the answer was streamed or not."""
    for n in range(TURNS):
        unary = chat.chat_with_state(None, tools=[get_score], **turn(n))
        streamed = chat.start(None, tools=[get_score], **turn(n)).result()

        assert streamed.text == unary.text
        assert _said(streamed.state) == _said(unary.state)


def _said(value: Any) -> Any:
    """A state's messages without what is new in every answer, or says nothing."""
    if isinstance(value, bytes):
        value = state_messages(value)
    if isinstance(value, dict):
        new = ("id", "call_id", "tool_call_id", "tool_use_id", "status", "index")
        return {k: _said(v) for k, v in value.items() if k not in new and v not in (None, "", [])}
    return [_said(item) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------------ prompt cache


@pytest.mark.parametrize("tools", [[], [get_score]], ids=["text", "tools"])
def test_the_prompt_cache_is_kept(chat: Any, wire: str, tools: list[Any]) -> None:
    """Each request comes from the cache as far as the one before it went: nothing in it had changed."""
    used: list[Any] = []

    def note(heard: Any) -> None:
        if isinstance(heard, ModelReplied):
            used.append(heard.usage)

    state = None
    for n in range(TURNS):
        state = chat.chat_with_state(state, tools=tools, on_event=note, **turn(n)).state

    shares = [usage.cached_input_tokens / usage.input_tokens for usage in used]
    print(f"{wire}: cached of each request's input: {' '.join(f'{share:.0%}' for share in shares)}")
    for before, after in itertools.pairwise(used):
        assert after.cached_input_tokens >= before.input_tokens - ASKS_FOR_AN_ANSWER
    assert shares[-1] > shares[1]


# ------------------------------------------------------------------------------------- its peculiarities


@pytest.mark.parametrize("wire", ["anthropic"])
def test_thinking_without_a_signature(chat: Any, run: Any, wire: str) -> None:
    """Thinking whose signature is empty is kept as it came and goes back, and the server takes it."""
    results = talk(run, chat, tools=[get_score])

    thought = needed(blocks(wire, results[-1].state, "thinking"), "thought")
    assert {block["signature"] for block in thought} == {""}


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_a_reasoning_item_keeps_its_content(chat: Any, run: Any, wire: str) -> None:
    """A reasoning item goes back with its content: the server refuses one that lost it."""
    results = talk(run, chat, tools=[get_score])
    reasoned = needed(blocks(wire, results[-1].state, "reasoning"), "thought")
    items = state_messages(results[-1].state)
    bare = [
        {k: v for k, v in item.items() if k != "content" or item.get("type") != "reasoning"} for item in items
    ]

    with pytest.raises(ProviderRejectedError):
        run(chat, state_from_messages(wire, bare), **turn(0))

    assert all(item["content"][0]["text"] for item in reasoned)


def test_an_answer_cut_anywhere(chat: Any, run: Any, wire: str) -> None:
    """Wherever the output limit cuts a reply, inside a call too, the conversation goes on."""
    tools = [get_score]
    whole = {
        n: chat.chat_with_state(None, tools=tools, limits=Limits(max_iterations=1), **turn(n))
        for n in range(TURNS)
    }
    called = needed([n for n in whole if whole[n].tool_log], "tool call")
    n = min(called, key=lambda n: whole[n].usage.output_tokens)

    statuses, is_inside = set(), False
    for limit in range(2, min(120, whole[n].usage.output_tokens), 3):
        cut = run(chat, tools=tools, limits=Limits(max_iterations=1), **turn(n, limit=limit))
        after = run(chat, cut.state, tools=tools, limits=Limits(max_iterations=1), **turn(n + 1, limit=16))
        statuses.add(cut.status)
        is_inside |= any(warning.code == "calls_dropped" for warning in cut.warnings)
        is_inside |= any(record.result != "7 points" for record in cut.tool_log)
        assert check_history(wire, state_messages(after.state)) == []

    assert is_inside
    assert ("truncated" in statuses) is (wire != "openai-responses")  # which says "completed" all the same


@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
def test_the_server_fails_at_cut_arguments(chat: Any, run: Any, wire: str) -> None:
    """Why the test above is there: a call whose arguments are no JSON makes every later request fail."""
    cut = {"name": "get_score", "arguments": json.dumps({"team": "red"})[:-3]}
    history: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": cut}]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    if wire == "openai-responses":
        history = [
            {"type": "function_call", "call_id": "c1", **cut},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
        ]
    state = state_from_messages(wire, [{"role": "user", "content": "How many?"}, *history])

    with pytest.raises(ProviderUnavailableError):
        run(chat, state, tools=[get_score], **turn(0))


@pytest.mark.parametrize("choice", ["required", "get_score", "none"])
def test_a_forced_choice(chat: Any, run: Any, wire: str, choice: str) -> None:
    """Whatever the server makes of `tool_choice`, text before a call included, the conversation goes on."""
    state = None
    for n in range(TURNS // 2):
        asked = turn(n)
        settings = ModelSettings(
            max_output_tokens=120, temperature=asked["settings"].temperature, tool_choice=choice
        )
        state = run(chat, state, user=asked["user"], settings=settings, tools=[get_score]).state

    assert check_history(wire, state_messages(state)) == []


# ------------------------------------------------------------------------------- typed answers and recall


@dataclass
class Score:
    """What a typed answer is."""

    team: str
    points: int


def test_a_typed_answer(chat: Any, run: Any, wire: str) -> None:
    """A turn that is complete has a value of the type, and the conversation goes on from each state.

    Over Chat Completions the server holds the model to the schema. It knows no format on its other two APIs:
    there the answer is the call of a tool.
    """
    asked = Output(Score, mode="native" if wire == "openai" else "tool")
    results: list[ChatResult] = []
    state, failures = None, 0
    for n in range(TURNS):
        try:
            results.append(run(chat, state, output_type=asked, **turn(n, limit=200)))
            state = results[-1].state
        except OutputError as error:
            failures += 1
            state = run(chat, error.state, **turn(n, limit=16)).state

    values = needed([result.output for result in results if result.status == "complete"], "typed answer")
    print(f"{wire}: {len(values)} values, {failures} answers that did not fit, of {TURNS} turns")
    assert {type(value) for value in values} == {Score}
    assert all(result.output is None for result in results if result.status != "complete")
    assert check_history(wire, state_messages(state or b"")) == []


def test_the_model_searches_what_was_cut(chat: Any, run: Any, wire: str) -> None:
    """Cuts, and the model's own searches among the turns that are gone, leave a history that breaks no rule.

    The first turn is in no request of the last one, and stays in the archive.
    """
    compactor = Compactor(TurnLimit(2), KeepRecentTurns(1), recall=True)
    results = talk(run, chat, compactor=compactor)

    searches = [result.recall for result in results if result.recall]
    calls = [record for result in results for record in result.tool_log if record.call.name == "recall"]
    needed(calls, "search")
    print(f"{wire}: {len(calls)} calls of recall, {sum(one.hits for one in searches)} with hits")
    state = results[-1].state
    assert sum(one.calls for one in searches) <= len(calls)
    assert check_history(wire, state_messages(state)) == []
    assert "Question 0" not in json.dumps(state_messages(state))
    kept = read_history(state, archived=True)
    assert any("Question 0" in message.said for message in kept.turns[0].messages)
