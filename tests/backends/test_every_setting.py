"""Guards over all provider APIs: each field of `ModelSettings`, and the merging of `extra_body`.

`SHOWN` has one row for each field and one column for each provider API. A field or a provider API without
its place in the table fails the tests.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import ModelSettings
from goaitools_py.backends.base import ModelRequest, RequestParts
from goaitools_py.backends.dialects import WIRES, dialect_of
from goaitools_py.backends.wire.request import MERGED
from goaitools_py.compaction import ServerCompaction, ServerToolClearing
from goaitools_py.types.options import SETTING_NAMES
from goaitools_py.types.request_parts import ToolSpec

HISTORY = [b'{"role":"user","content":"Hello."}']
TOOL = ToolSpec(name="look", description="Look.", parameters={"type": "object"})
REFUSED = "the setting's name is in a ValueError"
EFFORT = {"output_config": {"effort": "low"}}
PINNED = {"anthropic-version": "2023-06-01"}
CLEARING = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": 9000},
}

SHOWN: dict[str, tuple[Any, Any, Any, Any]] = {
    # field: (value, "openai", "openai-responses", "anthropic")
    "model": ("other", {"model": "other"}, {"model": "other"}, {"model": "other"}),
    "max_output_tokens": (
        500,
        {"max_completion_tokens": 500},
        {"max_output_tokens": 500},
        {"max_tokens": 500},
    ),
    "temperature": (0.5, {"temperature": 0.5}, {"temperature": 0.5}, REFUSED),
    "top_p": (0.5, {"top_p": 0.5}, {"top_p": 0.5}, REFUSED),
    "reasoning_effort": ("low", {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}, EFFORT),
    "thinking_budget_tokens": (
        1024,
        REFUSED,
        REFUSED,
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
    "stop": ("END", {"stop": "END"}, REFUSED, {"stop_sequences": ["END"]}),
    "seed": (7, {"seed": 7}, REFUSED, REFUSED),
    "frequency_penalty": (0.5, {"frequency_penalty": 0.5}, REFUSED, REFUSED),
    "presence_penalty": (-2, {"presence_penalty": -2}, REFUSED, REFUSED),
    "parallel_tool_calls": (
        False,
        {"parallel_tool_calls": False},
        {"parallel_tool_calls": False},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    ),
    "tool_choice": (
        "look",
        {"tool_choice": {"type": "function", "function": {"name": "look"}}},
        {"tool_choice": {"type": "function", "name": "look"}},
        {"tool_choice": {"type": "tool", "name": "look"}},
    ),
    "prompt_cache_key": ("k", {"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, REFUSED),
    "extra_body": ({"x": [1]}, {"x": [1]}, {"x": [1]}, {"x": [1]}),
    "extra_headers": ({"x-a": "b"}, {}, {}, {}),
    "context_management": (
        {
            "openai": [ServerCompaction(above_tokens=9000)],
            "openai-responses": [ServerCompaction(above_tokens=9000)],
            "anthropic": [ServerToolClearing(above_tokens=9000)],
        },
        REFUSED,
        {"context_management": [{"type": "compaction", "compact_threshold": 9000}]},
        {"context_management": {"edits": [CLEARING]}},
    ),
}


def request_of(wire: str, settings: dict[str, Any]) -> ModelRequest:
    """A request with one tool, as a turn has it made: the model is a part of its own."""
    dialect = dialect_of(wire)
    given = ModelSettings(**settings).given()
    model = given.pop("model", "m")
    tools = dialect.tools([TOOL])
    parts = RequestParts(model=model, history=HISTORY, tools=tools, settings=given, cache_marks=False)
    return dialect.request(parts)


def body_of(wire: str, **settings: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(request_of(wire, settings).body)
    return parsed


def test_every_setting_has_its_row() -> None:
    """Who adds a field to `ModelSettings`, or a provider API, says here what comes of it."""
    assert tuple(SHOWN) == SETTING_NAMES
    assert WIRES == ("openai", "openai-responses", "anthropic")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", SHOWN)
def test_a_setting_is_in_the_request_or_refused(wire: str, name: str) -> None:
    """The setting changes exactly these members of the request, or is refused by its name."""
    value, *expected = SHOWN[name]
    value = value[wire] if name == "context_management" else value
    shown = expected[WIRES.index(wire)]
    if shown is REFUSED:
        with pytest.raises(ValueError, match=name):
            request_of(wire, {name: value})
        return

    plain = body_of(wire)
    request = request_of(wire, {name: value})

    changed = {key: one for key, one in json.loads(request.body).items() if plain.get(key) != one}
    assert changed == shown
    assert (name != "extra_headers") or dict(request.headers).items() >= value.items()


def test_sampling_is_taken_by_an_anthropic_version_that_has_it() -> None:
    """The refusal of the table is Anthropic's newest version's; a pinned older one takes both."""
    body = body_of("anthropic", temperature=0.5, top_p=0.5, extra_headers=PINNED)

    assert (body["temperature"], body["top_p"]) == (0.5, 0.5)


# ----------------------------------------------------------------------------------------- extra_body

wires = pytest.mark.parametrize("wire", WIRES)
LIMIT = dict(zip(WIRES, ("max_completion_tokens", "max_output_tokens", "max_tokens"), strict=True))
HISTORIES = dict(zip(WIRES, ("messages", "input", "messages"), strict=True))


@wires
def test_extra_body_wins(wire: str) -> None:
    """Over the setting that writes the same member, over the model and the tools."""
    extra = {LIMIT[wire]: 7, "model": "n", "tools": [{"type": "x"}]}

    body = body_of(wire, max_output_tokens=500, extra_body=extra)

    assert {key: body[key] for key in extra} == extra


@wires
def test_a_none_of_extra_body_leaves_the_member_out(wire: str) -> None:
    """Whatever wrote it: a setting, or the dialect; and one that nothing wrote."""
    extra = {"tool_choice": None, "tools": None, "unknown": None}

    body = body_of(wire, tool_choice="required", extra_body=extra)

    assert not extra.keys() & body.keys()


@wires
@pytest.mark.parametrize("name", sorted(MERGED))
def test_some_objects_are_merged_one_level_deep(wire: str, name: str) -> None:
    """Of these objects a setting writes a part; where both give a key, `extra_body` wins."""
    settings: dict[str, Any] = {"reasoning_effort": "low"}
    if wire == "anthropic":
        settings["thinking_budget_tokens"] = 1024
    ours = body_of(wire, **settings).get(name, {})
    theirs = {"more": {"deep": 1}, **{key: "theirs" for key in ours if key != "type"}}

    assert body_of(wire, **settings, extra_body={name: {"more": {"deep": 1}}})[name] == {
        **ours,
        "more": {"deep": 1},
    }
    if not isinstance(ours.get("budget_tokens"), int):
        assert body_of(wire, **settings, extra_body={name: theirs})[name] == {**ours, **theirs}
    assert body_of(wire, **settings, extra_body={name: "word"})[name] == "word"


@wires
def test_every_other_object_is_replaced(wire: str) -> None:
    """Half of one variant is no other variant: {"type": "auto"} with a tool's name would be refused."""
    body = body_of(wire, tool_choice="look", extra_body={"tool_choice": {"type": "auto"}})

    assert body["tool_choice"] == {"type": "auto"}


@wires
def test_what_the_chat_writes_itself_is_never_overwritten(wire: str) -> None:
    """The history, and whether the reply is streamed."""
    for name, value in ((HISTORIES[wire], []), ("stream", True), ("stream", None)):
        with pytest.raises(ValueError, match=f"extra_body cannot set '{name}': the chat writes it itself"):
            body_of(wire, extra_body={name: value})
