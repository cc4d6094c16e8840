"""Streamed pieces that belong together are one value; what is repeated is kept once."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import ProtocolFault, Reply
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect

Value = Any
Events = list[Value]

DIALECTS = {
    "openai": OpenAIChatDialect("llm.example.org"),
    "openai-responses": OpenAIResponsesDialect("llm.example.org"),
    "anthropic": AnthropicDialect("llm.example.org"),
}
FILES = {
    "openai": "openai-chat.jsonl.zst",
    "openai-responses": "openai-responses.jsonl.zst",
    "anthropic": "anthropic-messages.jsonl.zst",
}
DONE = "[DONE]"


def sse(events: Events) -> bytes:
    words = [event if event == DONE else json.dumps(event) for event in events]
    return "".join(f"data: {word}\n\n" for word in words).encode()


def reply_to(wire: str, events: Events) -> Reply:
    decoder = DIALECTS[wire].decoder()
    decoder.feed(sse(events))
    return decoder.finish()


def chat(*deltas: Value, finish: str = "stop") -> Events:
    return [
        *({"choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        DONE,
    ]


def message(*deltas: Value) -> Value:
    return json.loads(reply_to("openai", chat(*deltas)).entries[0])


# ------------------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["Hel", "lo"], "Hello"),
        (["a", "a", "b"], "aab"),
        (["azure", "azure", "azure"], "azure"),
        (["", "azure", "", None], "azure"),
        ([""], ""),
        ([1, 2, 3], 3),
        ([True, True], True),
        (["a", 1], 1),
        ([[1], [2]], [1, 2]),
        ([["x", "y"], ["x", "y"]], ["x", "y"]),
        ([{"a": "x"}, {"b": "y"}], {"a": "x", "b": "y"}),
        ([{"id": "r", "t": "Hel"}, {"id": "r", "t": "lo"}], {"id": "r", "t": "Hello"}),
        ([{"tier": "fast"}] * 3, {"tier": "fast"}),
        ([{"id": "r1"}, {"id": "r2"}], {"id": "r2"}),
        (
            [[{"type": "text", "text": "ha"}], [{"type": "text", "text": "ha"}]],
            [{"type": "text", "text": "haha"}],
        ),
        (
            [
                [{"type": "image_url", "index": 0, "image_url": {"url": "u1"}}],
                [{"type": "image_url", "index": 0, "image_url": {"url": "u2"}}],
            ],
            [
                {"type": "image_url", "index": 0, "image_url": {"url": "u1"}},
                {"type": "image_url", "index": 0, "image_url": {"url": "u2"}},
            ],
        ),
    ],
)
def test_an_unknown_value_is_joined_wherever_it_stands(pieces: list[Value], whole: Value) -> None:
    """In a message, a call, a call's function, and a block of a kind that nobody knows."""
    named = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calls = [{"index": 0, **(named if first else {}), "x_new": piece} for first, piece in numbered(pieces)]
    functions = [
        {"index": 0, **named, "function": {**(named["function"] if first else {}), "x_new": piece}}  # type: ignore[dict-item]
        for first, piece in numbered(pieces)
    ]

    in_message = message(*({"x_new": piece} for piece in pieces))
    in_call = message(*({"tool_calls": [call]} for call in calls))["tool_calls"][0]
    in_function = message(*({"tool_calls": [call]} for call in functions))["tool_calls"][0]["function"]
    in_block = block({"type": "brand_new"}, *({"x_new": piece} for piece in pieces))

    found = [holder.get("x_new") for holder in (in_message, in_call, in_function, in_block)]
    assert found == [whole] * 4
    assert in_function["arguments"] == "{}"


def numbered(pieces: list[Value]) -> list[tuple[bool, Value]]:
    return [(position == 0, piece) for position, piece in enumerate(pieces)]


def block(start: Value, *deltas: Value) -> Value:
    """The only block of an Anthropic stream."""
    reply = reply_to(
        "anthropic",
        [
            {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "brand_new_delta", **delta}}
                for delta in deltas
            ),
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "x"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ],
    )
    return json.loads(reply.entries[0])["content"][0]


def test_a_block_of_an_unknown_kind_repeats_what_it_began_with() -> None:
    """A constant beside a text that grows."""
    made = block(
        {"type": "brand_new", "source": "web", "words": ""},
        {"source": "web", "words": "Hel"},
        {"source": "web", "words": "lo"},
    )

    assert made == {"type": "brand_new", "source": "web", "words": "Hello"}


def thinking(text: str, signature: str = "") -> Value:
    return {"type": "thinking", "thinking": text, "signature": signature}


@pytest.mark.parametrize("holder", ["thinking_blocks", "provider_specific_fields"])
def test_signed_blocks_of_a_gateway_are_whole(holder: str) -> None:
    """LiteLLM streams a signed block of Claude's piece by piece, its signature last and alone."""
    redacted = {"type": "redacted_thinking", "data": "AAAA"}
    pieces = [
        thinking("Let me "),
        thinking("see"),
        thinking("see"),
        thinking("", "S1=="),
        redacted,
        redacted | {"data": "BBBB"},
        thinking("", "S2=="),
        thinking("", "S3=="),
        thinking("More."),
        thinking("", "S4=="),
    ]
    deltas = [
        {holder: [piece]} if holder == "thinking_blocks" else {holder: {"thinking_blocks": [piece]}}
        for piece in pieces
    ]

    made = message(*deltas, {"content": "Red."})[holder]

    assert (made if holder == "thinking_blocks" else made["thinking_blocks"]) == [
        thinking("Let me seesee", "S1=="),
        redacted,
        redacted | {"data": "BBBB"},
        thinking("", "S2=="),
        thinking("", "S3=="),
        thinking("More.", "S4=="),
    ]


def test_thinking_in_parts_is_stored_as_small_as_it_is() -> None:
    """Mistral's reasoning models send a part for every word; an unary answer has one part."""
    words = [f"word{number} " for number in range(500)]
    thoughts = [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": word}], "closed": True}]}
        for word in words
    ]
    texts = [{"content": [{"type": "text", "text": word}]} for word in words]
    reference = {"content": [{"type": "reference", "reference_ids": [1, 2]}]}

    reply = reply_to("openai", chat(*thoughts, *texts[:250], reference, *texts[250:]))

    assert json.loads(reply.entries[0])["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "".join(words)}], "closed": True},
        {"type": "text", "text": "".join(words[:250])},
        *reference["content"],
        {"type": "text", "text": "".join(words[250:])},
    ]
    assert (reply.text, reply.reasoning) == ("".join(words), "".join(words))
    assert len(reply.entries[0]) < 1.1 * 2 * len("".join(words))


# ------------------------------------------------------------------------------- other cuts, same message


def cut(text: str, source: random.Random, most: int = 5) -> list[str]:
    """The text in pieces, none of them empty."""
    places = sorted(source.sample(range(1, len(text)), min(source.randint(0, most), max(len(text) - 1, 0))))
    return [text[start:end] for start, end in itertools.pairwise([0, *places, len(text)])]


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
OBJECTS = st.recursive(
    st.builds(lambda text: "<" + text + ">", WORDS),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "deep"]), inner, min_size=1, max_size=3),
    max_leaves=6,
)
"""Texts that begin and end with marks, so that no cut makes equal pieces; and objects of such texts."""


def pieces_of(value: Value, source: random.Random) -> list[Value]:
    """An unknown value as it might be streamed."""
    if isinstance(value, str):
        return list(cut(value, source))
    return [{key: piece} for key, inner in value.items() for piece in pieces_of(inner, source)]


@given(
    fields=st.dictionaries(st.sampled_from(["x_note", "x_trace", "x_more"]), OBJECTS, min_size=1),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_unknown_fields_are_the_same_whatever_way_they_were_cut(fields: Value, seed: int) -> None:
    """Strings grow at any depth, beside constants that every delta repeats."""
    source = random.Random(seed)
    constants = {"id": "r1", "x_region": "eu", "x_tags": ["a", "b"], "x_meta": {"tier": "fast", "n": 1}}
    deltas = [
        {key: piece, **constants} for key, value in fields.items() for piece in pieces_of(value, source)
    ]

    made = message(*deltas, {"content": "x"})

    assert made == {"role": "assistant", "content": "x", **fields, **constants}


# ------------------------------------------------------------------------------------- recorded streams


@lru_cache(maxsize=3)
def _streams(path: Path) -> tuple[Events, ...]:
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    found = []
    for line in lines:
        for exchange in json.loads(line)["exchanges"]:
            if text := exchange["response"].get("sse"):
                found.append(_events(text))
    return tuple(found)


def _events(text: str) -> Events:
    data = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    return [DONE if word == DONE else json.loads(word) for word in data if word]


@pytest.fixture(params=DIALECTS)
def recorded(request: pytest.FixtureRequest, data_dir: Path) -> tuple[str, tuple[Events, ...]]:
    """A wire, and every stream of it that was recorded."""
    path = data_dir / "recorded" / FILES[request.param]
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    return request.param, _streams(path)


Growing = tuple[Value, str]


def growing_in(wire: str, event: Value) -> Growing | None:
    """Where the one string of an event that grows is, if there is nothing else in it: what names the run
    that it goes on with, and the string."""
    if event == DONE:
        return None
    if wire == "anthropic":
        delta = event.get("delta") or {}
        key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(
            delta.get("type", "")
        )
        return ((event["index"], key), delta[key]) if key and delta[key] else None
    if wire == "openai-responses":
        is_text = event.get("type") == "response.output_text.delta"
        return (event["item_id"], event["delta"]) if is_text and event["delta"] else None
    choices = event.get("choices") or []
    if len(choices) != 1 or choices[0].get("finish_reason") or event.get("usage"):
        return None
    delta = {key: value for key, value in choices[0].get("delta", {}).items() if value not in (None, "")}
    if list(delta) == ["tool_calls"] and len(delta["tool_calls"]) == 1:
        call = delta["tool_calls"][0]
        function = call.get("function") or {}
        if set(call) <= {"index", "function"} and set(function) == {"arguments"} and function["arguments"]:
            return (call["index"], function["arguments"])
        return None
    (key, text) = next(iter(delta.items())) if len(delta) == 1 else ("", "")
    return (key, text) if key in ("content", "reasoning", "refusal") and isinstance(text, str) else None


def with_text(wire: str, event: Value, text: str) -> Value:
    """The event with another string that grows."""
    made = copy.deepcopy(event)
    if wire == "anthropic":
        key = next(key for key in ("text", "thinking", "partial_json") if key in made["delta"])
        made["delta"][key] = text
    elif wire == "openai-responses":
        made["delta"] = text
    elif "tool_calls" in made["choices"][0]["delta"]:
        made["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = text
    else:
        delta = made["choices"][0]["delta"]
        delta[next(key for key, value in delta.items() if value and key != "role")] = text
    return made


def recut(wire: str, events: Events, source: random.Random) -> Events:
    """The stream with the runs of its texts cut at other places."""
    made: Events = []
    found = [growing_in(wire, event) for event in events]
    for run, group in itertools.groupby(range(len(events)), lambda at: found[at] and found[at][0]):
        places = list(group)
        if run is None:
            made += [events[at] for at in places]
            continue
        text = "".join(found[at][1] for at in places)  # type: ignore[index]
        made += [with_text(wire, events[places[0]], piece) for piece in cut(text, source, most=len(places))]
    return made


def replies(wire: str, streams: tuple[Events, ...], change: Callable[[Events], Events]) -> Iterator[Any]:
    for events in streams:
        try:
            whole = reply_to(wire, events)
        except ProtocolFault:
            continue  # recorded errors
        yield whole, reply_to(wire, change(events))


def test_a_recorded_stream_cut_at_other_points_is_the_same_message(recorded: Any) -> None:
    """Byte for byte."""
    wire, streams = recorded
    source = random.Random(15)
    count = 0

    for whole, other in replies(wire, streams, lambda events: recut(wire, events, source)):
        count += 1
        assert other.entries == whole.entries
        assert (other.text, other.reasoning, other.calls) == (whole.text, whole.reasoning, whole.calls)

    assert count >= 20


REPEATED = {
    "id": "vendor-1",
    "x_provider": "azure",
    "x_list": ["a", {"id": "b"}],
    "x_meta": {"tier": "fast", "deep": {"name": "n", "on": True}},
}


def repeating(wire: str, events: Events) -> Events:
    """The stream with constants in every delta, call and function of it."""
    made = copy.deepcopy(events)
    for event in made:
        if wire == "openai" and event != DONE:
            for choice in event.get("choices") or []:
                delta = choice.get("delta")
                if delta:
                    delta |= REPEATED
                for call in (delta or {}).get("tool_calls") or []:
                    call |= {key: value for key, value in REPEATED.items() if key != "id"}
                    call.get("function", {}).update({"x_provider": "azure"})
    return made


def test_no_constant_of_a_recorded_stream_doubles(recorded: Any) -> None:
    """What all pieces of a stream say alike stands in the message once, the constants that were recorded
    and more of them in every delta."""
    wire, streams = recorded
    count = 0

    for events in streams:
        for change in (events, repeating(wire, events)):
            try:
                reply = reply_to(wire, change)
            except ProtocolFault:
                continue
            stored = [json.loads(entry) for entry in reply.entries]
            for names, values in said_in(wire, change).items():
                count += 1
                for found in found_at(stored, names):
                    assert found in values, names

    assert count >= 10


KNOWN_TEXTS = frozenset(
    {"content", "reasoning", "refusal", "arguments", "text", "thinking", "partial_json", "input", "delta"}
)


def said_in(wire: str, events: Events) -> dict[tuple[str, ...], set[str]]:
    """The strings that came more than once in one place, always the same; by the names that lead there."""
    seen: dict[tuple[Any, ...], list[str]] = {}
    for event in events:
        if event == DONE:
            continue
        if wire == "openai":
            found = [choice for choice in event.get("choices") or [] if not choice.get("index")]
            holders = [choice["delta"] for choice in found if choice.get("delta")]
        else:
            inner = [event.get(key) for key in ("delta", "content_block", "item")]
            holders = [holder for holder in inner if isinstance(holder, dict)]
        at = event.get("index", event.get("output_index", 0))
        for holder in holders:
            for path, value in strings(holder, (at,)):
                seen.setdefault(path, []).append(value)
    said: dict[tuple[str, ...], set[str]] = {}
    for path, values in seen.items():
        said.setdefault(tuple(step for step in path if isinstance(step, str)), set()).update(values)
    constant = {
        tuple(step for step in path if isinstance(step, str))
        for path, values in seen.items()
        if len(values) > 1 and len(set(values)) == 1
    }
    return {names: said[names] for names in constant}


def strings(value: Value, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, dict):
        place = (value["index"],) if isinstance(value.get("index"), int) else ()
        for key, inner in value.items():
            if key not in KNOWN_TEXTS and key != "type":
                yield from strings(inner, (*path, *place, key))
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, path)
    elif isinstance(value, str) and value:
        yield path, value


def found_at(said: list[Value], names: tuple[str, ...]) -> Iterator[str]:
    """The strings of a message under these names; lists are passed through."""
    for name in names:
        inner = [one[name] for one in said if isinstance(one, dict) and name in one]
        said = [one for value in inner for one in (value if isinstance(value, list) else [value])]
    return (one for one in said if isinstance(one, str))
