"""Reasoning items of the Responses wire: sent back as they came they are seen, changed they are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from goaitools_py.sim import Reply, SimServer

TOOLS = [
    {
        "type": "function",
        "name": "get_score",
        "parameters": {
            "type": "object",
            "properties": {"team": {"type": "string"}},
            "required": ["team"],
        },
    }
]
OTHER = {"type": "function", "name": "roll", "parameters": {"type": "object", "properties": {}}}
RULES = {"role": "developer", "content": "Keep the score."}
ASK = {"role": "user", "content": "Get the score of Red and Blue."}
THANKS = {"role": "user", "content": "Thank you. My name is Ada."}
FRAME: dict[str, Any] = {
    "model": "gpt-5",
    "store": False,
    "tools": TOOLS,
    "reasoning": {"effort": "low"},
    "include": ["reasoning.encrypted_content"],
}


def send(sim: SimServer, *items: Any, **more: Any) -> tuple[int, dict[str, Any]]:
    body = json.dumps({**FRAME, "input": items, **more}).encode()
    response = sim.respond("POST", "/v1/responses", {}, body)
    return response.status, json.loads(response.body)


def accepted(sim: SimServer, *items: Any, **more: Any) -> dict[str, Any]:
    status, made = send(sim, *items, **more)
    assert status == 200, made
    return made


def refused(sim: SimServer, *items: Any, **more: Any) -> dict[str, Any]:
    status, made = send(sim, *items, **more)
    assert status == 400, made
    error: dict[str, Any] = made["error"]
    return error


def outputs(made: dict[str, Any]) -> list[dict[str, Any]]:
    """An output for each call of a response."""
    calls = [item for item in made["output"] if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": "7"} for call in calls]


def conversation(sim: SimServer) -> list[dict[str, Any]]:
    """Two turns, the first with a tool loop: three replies, each with its reasoning."""
    items: list[dict[str, Any]] = [RULES, ASK]
    first = accepted(sim, *items)
    items += [*first["output"], *outputs(first)]
    items += accepted(sim, *items)["output"]
    items += [THANKS, *accepted(sim, *items, THANKS)["output"]]
    assert [item.get("type", item.get("role")) for item in items] == [
        "developer",
        "user",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "reasoning",
        "message",
        "user",
        "reasoning",
        "message",
    ]
    return items


NEXT = {"role": "user", "content": "What is my name?"}
PLACES = (2, 7, 10)


def reasons(made: dict[str, Any]) -> list[tuple[str, str]]:
    told = made.get("input_transformations", [])
    assert all((one["type"], one["action"]) == ("reasoning", "removed") for one in told)
    return [(one["id"], one["reason"]) for one in told]


# ---------------------------------------------------------------------------------------- what is made


def test_reasoning_begins_the_reply() -> None:
    """With reasoning asked for, the first item is a reasoning item with encrypted content."""
    first, *rest = accepted(SimServer(), RULES, ASK)["output"]

    assert (first["type"], first["summary"]) == ("reasoning", [])
    assert first["id"].startswith("rs_")
    assert first["encrypted_content"]
    assert [item["type"] for item in rest] == ["function_call", "function_call"]


@pytest.mark.parametrize("more", [{"reasoning": None}, {"reasoning": {"effort": "none"}}])
def test_no_reasoning_unless_asked_for(more: dict[str, Any]) -> None:
    """Without reasoning, or with effort none, there is no reasoning item."""
    made = accepted(SimServer(), ASK, **more)

    assert {item["type"] for item in made["output"]} == {"function_call"}


def test_encrypted_content_only_if_included() -> None:
    """Without the include the item is there, but its content is not."""
    made = accepted(SimServer(), ASK, include=[])

    assert made["output"][0]["type"] == "reasoning"
    assert "encrypted_content" not in made["output"][0]


def test_a_summary_only_if_asked_for() -> None:
    """The thoughts are told with reasoning.summary, and kept to oneself without it or when redacted."""
    sim = SimServer()
    sim.push(*[Reply.text("Hi.", thinking="Hm.")] * 2, Reply.text("Hi.", thinking="Hm.", redacted=True))
    told = {"reasoning": {"effort": "low", "summary": "auto"}}

    made = [accepted(sim, ASK, **more)["output"][0]["summary"] for more in ({}, told, told)]

    assert made == [[], [{"type": "summary_text", "text": "Hm."}], []]


def test_the_announced_content_is_of_no_use() -> None:
    """In a stream `.added` holds other encrypted content than `.done`, and it is refused when sent back."""
    sim = SimServer()
    body = json.dumps({**FRAME, "input": [ASK], "stream": True}).encode()
    rows = sim.respond("POST", "/v1/responses", {}, body).body.decode().splitlines()
    told = [json.loads(row[6:]) for row in rows if row.startswith("data: ")]
    items = {e["type"].rpartition(".")[2]: e["item"] for e in reversed(told) if "output_item" in e["type"]}
    added, done = items["added"], items["done"]
    made = told[-1]["response"]

    forms = [added, done, made["output"][0]]
    assert len({form["encrypted_content"] for form in forms}) == 3
    rest = [*made["output"][1:], *outputs(made)]
    assert refused(sim, ASK, added, *rest)["code"] == "invalid_encrypted_content"
    for form in forms[1:]:
        assert reasons(accepted(sim, ASK, form, *rest)) == []


# ----------------------------------------------------------------------------------- what is reported


def test_a_legal_replay_reports_nothing() -> None:
    """A conversation that only grows keeps all its reasoning, turn after turn."""
    sim = SimServer()

    items = conversation(sim)
    last = accepted(sim, *items, NEXT)

    assert "input_transformations" not in last
    assert last["output"][1]["content"][0]["text"] == "[simulated] Your name is Ada."
    assert sim.problems == []


def test_a_replay_may_be_spelled_otherwise() -> None:
    """Key order, white space and states do not change what a model sees."""
    sim = SimServer()
    items = [dict(reversed(item.items())) for item in deepcopy(conversation(sim))]
    for item in items:
        item.pop("status", None)
    body = json.dumps({**FRAME, "input": [*items, NEXT]}, indent=2).encode()

    made = json.loads(sim.respond("POST", "/v1/responses", {}, body).body)

    assert "input_transformations" not in made


def test_a_text_and_the_same_text_as_an_item_are_one() -> None:
    """An input that began as a text may go on as a list."""
    sim = SimServer()
    body = json.dumps({**FRAME, "input": "Hello."}).encode()
    first = json.loads(sim.respond("POST", "/v1/responses", {}, body).body)

    made = accepted(sim, {"role": "user", "content": "Hello."}, *first["output"], NEXT)

    assert reasons(made) == []


Change = Callable[[list[dict[str, Any]], dict[str, Any]], None]


def edited(place: int, **new: Any) -> Change:
    return lambda items, _: items[place].update(new)


def put(place: int, item: dict[str, Any]) -> Change:
    return lambda items, _: items.insert(place, item)


def moved(place: int, to: int) -> Change:
    return lambda items, _: items.insert(to, items.pop(place))


def dropped(start: int, stop: int) -> Change:
    return lambda items, _: items.__delitem__(slice(start, stop))


def asked(**new: Any) -> Change:
    return lambda _, more: more.update(new)


def unpaired(items: list[dict[str, Any]], _: dict[str, Any]) -> None:
    """The first reasoning goes, and the ids of the calls that it led to."""
    del items[2], items[2]["id"], items[3]["id"]


MUTATIONS: dict[str, tuple[Change, int]] = {
    # What is done to a legal replay, and how many of its three reasoning items fall: always the last ones.
    "the rules are changed": (edited(0, content="Keep no score."), 3),
    "the rules are dropped": (dropped(0, 1), 3),
    "an item is put before": (put(0, {"role": "user", "content": "psst"}), 3),
    "the question is changed": (edited(1, content="Get the score of Red."), 3),
    "the first two are swapped": (moved(1, 0), 3),
    "arguments are changed": (edited(3, arguments='{"team": "Red"}'), 2),
    "a result is changed": (edited(5, output="8"), 2),
    "results are swapped": (moved(6, 5), 2),
    "the first reasoning is dropped with its ids": (unpaired, 2),
    "the first answer is changed": (edited(8, content=[{"type": "output_text", "text": "No."}]), 1),
    "an event is put in between": (put(9, {"role": "developer", "content": "It rains."}), 1),
    "the second question is changed": (edited(9, content="Thanks."), 1),
    "the first exchange is dropped": (dropped(1, 9), 1),
    "the last answer is changed": (edited(11, content=[{"type": "output_text", "text": "No."}]), 0),
    "a tool is added": (asked(tools=[*TOOLS, OTHER]), 3),
    "the tools are dropped": (asked(tools=[]), 3),
    "a tool is described": (asked(tools=[{**TOOLS[0], "description": "d"}]), 3),
    "instructions are added": (asked(instructions="Be brief."), 3),
    "a format is asked for": (asked(text={"format": {"type": "json_object"}}), 3),
    "the effort is changed": (asked(reasoning={"effort": "high"}), 0),
    "a tool is demanded": (asked(tool_choice="required"), 0),
    "tools are forbidden": (asked(tool_choice="none"), 0),
    "it is stored": (asked(store=True), 0),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_stands_before_reasoning_binds_it(name: str) -> None:
    """A change removes the reasoning behind it, with id and reason, and no other; the request succeeds."""
    change, fallen = MUTATIONS[name]
    sim = SimServer()
    items, more = deepcopy(conversation(sim)), dict[str, Any]()
    kept = [item["id"] for item in items if item["type" if "type" in item else "role"] == "reasoning"]

    change(items, more)
    made = accepted(sim, *items, NEXT, **more)

    assert reasons(made) == [(id, "prefix_mismatch") for id in kept[len(kept) - fallen :]]


def test_another_model_sees_no_reasoning() -> None:
    """Reasoning is bound to its model."""
    sim = SimServer()
    items = conversation(sim)

    made = accepted(sim, *items, NEXT, model="gpt-6")

    assert reasons(made) == [(items[place]["id"], "model_mismatch") for place in PLACES]


def test_reasoning_of_another_server_is_not_seen() -> None:
    """Encrypted content that this server did not make belongs to another organisation."""
    foreign = {"type": "reasoning", "id": "rs_68c4", "summary": [], "encrypted_content": "gAAAAABo"}

    made = accepted(SimServer(), ASK, foreign, {"role": "assistant", "content": "a"}, NEXT)

    assert reasons(made) == [("rs_68c4", "organization_mismatch")]


def test_reasoning_of_earlier_turns_may_be_unwanted() -> None:
    """With the context current_turn only the open turn's reasoning is seen."""
    sim = SimServer()
    items = conversation(sim)
    ask = {"role": "user", "content": "Get the score of Red."}
    first = accepted(sim, *items, ask)
    wanted = {"effort": "low", "context": "current_turn"}

    made = accepted(sim, *items, ask, *first["output"], *outputs(first), reasoning=wanted)

    assert reasons(made) == [(items[place]["id"], "turn_boundary") for place in PLACES]


def test_a_stream_reports_too() -> None:
    """The events' responses name what was removed, from the first one on."""
    sim = SimServer()
    items = conversation(sim)
    body = json.dumps({**FRAME, "model": "gpt-6", "input": [*items, NEXT], "stream": True}).encode()

    rows = sim.respond("POST", "/v1/responses", {}, body).body.decode().splitlines()

    told = [json.loads(row[6:]) for row in rows if row.startswith("data: ")]
    for event in (told[0], told[-1]):
        assert [id for id, _ in reasons(event["response"])] == [items[place]["id"] for place in PLACES]


# ------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(("place", "follower"), [(2, 3), (7, 8), (10, 11)])
def test_reasoning_must_not_be_dropped_alone(place: int, follower: int) -> None:
    """A message or call whose reasoning is missing is refused; the error names both."""
    sim = SimServer()
    items = conversation(sim)
    gone, orphan = items[place], items[follower]

    error = refused(sim, *items[:place], *items[place + 1 :], NEXT)

    assert error["message"] == (
        f"Item '{orphan['id']}' of type '{orphan['type']}' was provided without its required 'reasoning' "
        f"item: '{gone['id']}'."
    )
    assert (error["param"], error["code"]) == ("input", None)


def test_reasoning_must_come_before_what_it_led_to() -> None:
    """It is of no use to send the reasoning after its item."""
    sim = SimServer()
    items = conversation(sim)
    swapped = [*items[:7], items[8], items[7], items[9], NEXT]

    assert "without its required 'reasoning' item" in refused(sim, *swapped)["message"]


@pytest.mark.parametrize("place", PLACES)
def test_reasoning_must_not_lose_what_follows(place: int) -> None:
    """A reasoning item without what it led to is refused."""
    sim = SimServer()
    items = conversation(sim)

    error = refused(sim, *items[: place + 1], NEXT)

    assert error["message"] == (
        f"Item '{items[place]['id']}' of type 'reasoning' was provided without its required following item."
    )


def test_reasoning_must_not_be_followed_by_another_replys_item() -> None:
    """What follows must be of the same reply."""
    sim = SimServer()
    items = conversation(sim)
    other = accepted(SimServer(), {"role": "user", "content": "Hello."}, reasoning=None)["output"]

    error = refused(sim, *items[:8], *other, NEXT)

    assert "without its required following item" in error["message"]


def test_without_ids_reasoning_may_be_dropped() -> None:
    """An item that is sent without its id needs no reasoning."""
    sim = SimServer()
    items = [
        {key: value for key, value in item.items() if key != "id"}
        for item in conversation(sim)
        if item.get("type") != "reasoning"
    ]

    made = accepted(sim, *items, NEXT)

    assert reasons(made) == []
    assert made["output"][1]["content"][0]["text"] == "[simulated] Your name is Ada."


def test_a_whole_exchange_may_be_dropped() -> None:
    """Reasoning and what it led to may go together."""
    sim = SimServer()
    items = conversation(sim)

    made = accepted(sim, *items[:2], *items[9:], NEXT)

    assert [reason for _, reason in reasons(made)] == ["prefix_mismatch"]


@pytest.mark.parametrize("at", [5, 20, -1])
def test_changed_content_is_refused(at: int) -> None:
    """Our own encrypted content, changed in any place, is not taken."""
    sim = SimServer()
    items = deepcopy(conversation(sim))
    content = items[2]["encrypted_content"]
    items[2]["encrypted_content"] = content[:at] + ("A" if content[at] != "A" else "B") + content[at:][1:]

    assert refused(sim, *items, NEXT)["code"] == "invalid_encrypted_content"


def test_ids_of_other_servers_are_nobodys() -> None:
    """An id that looks like ours, but has another check, says nothing about reasoning."""
    sim = SimServer()
    items = deepcopy(conversation(sim))
    answer = items[8]
    answer["id"] = answer["id"][:-1] + ("0" if answer["id"][-1] != "0" else "1")

    made = accepted(sim, ASK, answer, NEXT)

    assert reasons(made) == []
