"""One Responses request, one answer, without a socket: items, events, endings, usage and the prompt cache."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from openai.types.responses import Response as TypedResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from goaitools_py.sim import Fault, Prompt, Reply, Response, SimServer
from goaitools_py.sim.model.token_counts import BLOCK_TOKENS

PATH = "/v1/responses"
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
SHELL = {"type": "custom", "name": "shell"}
THINKING = {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def post(sim: SimServer, given: Any, **more: Any) -> Response:
    body = json.dumps({"model": "gpt-5", "input": given, "store": False, **more}).encode()
    return sim.respond("POST", PATH, {"content-type": "application/json"}, body)


def answer(sim: SimServer, given: Any, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(post(sim, given, **more).body)
    return made


def events(response: Response) -> list[dict[str, Any]]:
    told = []
    for block in response.body.decode().split("\n\n")[:-1]:
        name, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        told.append(event)
    return told


def rebuilt(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output items as a client puts them together from the deltas alone."""
    items: list[dict[str, Any]] = []
    for event in told:
        kind = event["type"]
        if kind == "response.output_item.added":
            items.append(json.loads(json.dumps(event["item"])))
        elif kind == "response.content_part.added":
            items[event["output_index"]]["content"].append(dict(event["part"]))
        elif kind == "response.reasoning_summary_part.added":
            items[event["output_index"]]["summary"].append(dict(event["part"]))
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            part = items[event["output_index"]]["content"][event["content_index"]]
            part["text" if kind == "response.output_text.delta" else "refusal"] += event["delta"]
        elif kind == "response.reasoning_summary_text.delta":
            items[event["output_index"]]["summary"][event["summary_index"]]["text"] += event["delta"]
        elif kind == "response.function_call_arguments.delta":
            items[event["output_index"]]["arguments"] += event["delta"]
        elif kind == "response.custom_tool_call_input.delta":
            items[event["output_index"]]["input"] += event["delta"]
    return items


def shown(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items without what a stream says differently on purpose."""
    return [{k: v for k, v in item.items() if k not in ("status", "encrypted_content")} for item in items]


# ------------------------------------------------------------------------------------------- answers


def test_an_answer_is_labelled_as_simulated() -> None:
    """Text and model name say that no real model answered; the response is complete and not stored."""
    made = answer(SimServer(), "Hello.")

    assert (made["object"], made["status"], made["store"]) == ("response", "completed", False)
    assert made["model"] == "sim-gpt-5"
    (message,) = made["output"]
    assert message["id"].startswith("msg_")
    assert (message["role"], message["status"]) == ("assistant", "completed")
    assert message["content"][0]["text"].startswith("[simulated]")
    assert made["usage"]["total_tokens"] == made["usage"]["input_tokens"] + made["usage"]["output_tokens"]


def test_calls_are_items_of_their_own() -> None:
    """Each tool call is a function_call item with its own id, its call id and text for arguments."""
    made = answer(SimServer(), "Get the score of Red and Blue.", tools=TOOLS)

    assert [item["type"] for item in made["output"]] == ["function_call", "function_call"]
    assert [json.loads(item["arguments"]) for item in made["output"]] == [{"team": "Red"}, {"team": "Blue"}]
    assert all(item["id"].startswith("fc_") for item in made["output"])
    assert len({item["id"] for item in made["output"]}) == len({i["call_id"] for i in made["output"]}) == 2


def test_outputs_are_read() -> None:
    """The game master reports what the tools returned, in words, after a loop."""
    sim = SimServer()
    first = answer(sim, [user("Get the score of Red.")], tools=TOOLS)
    (made,) = first["output"]
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "7"}

    second = answer(sim, [user("Get the score of Red."), made, result], tools=TOOLS)

    assert second["output"][0]["content"][0]["text"] == "[simulated] get_score: 7"
    assert sim.problems == []


def test_the_whole_history_is_seen() -> None:
    """Instructions, roles, parts, a reply's message and calls together, media: all reach the model."""
    prompts: list[Prompt] = []

    def model(prompt: Prompt) -> Reply:
        prompts.append(prompt)
        return Reply.text("ok")

    answer(
        SimServer(model=model),
        [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            {"type": "function_call", "call_id": "c", "name": "get_score", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "k", "name": "shell", "input": "ls"},
            {"type": "function_call_output", "call_id": "c", "output": "7"},
            {
                "type": "custom_tool_call_output",
                "call_id": "k",
                "output": [{"type": "input_image", "image_url": "data:,"}],
            },
        ],
        instructions="i",
        tools=[*TOOLS, SHELL],
        max_output_tokens=20,
        parallel_tool_calls=False,
    )

    (prompt,) = prompts
    assert [(said.role, said.text) for said in prompt.history] == [
        ("system", "i"),
        ("system", "d"),
        ("user", "u"),
        ("assistant", "a"),
        ("tool", "7"),
        ("tool", ""),
    ]
    assert [(c.id, c.name, c.arguments) for c in prompt.history[3].calls] == [
        ("c", "get_score", "{}"),
        ("k", "shell", "ls"),
    ]
    assert (prompt.history[4].call_id, prompt.history[5].media) == ("c", 1)
    assert [offer.name for offer in prompt.offers] == ["get_score"]
    assert (prompt.max_tokens, prompt.parallel, prompt.thinks) == (20, False, False)


@pytest.mark.parametrize(
    ("choice", "offered", "must_call"),
    [
        ("none", [], False),
        ("auto", ["get_score", "roll"], False),
        ("required", ["get_score", "roll"], True),
        ({"type": "function", "name": "roll"}, ["roll"], True),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "roll"}]},
            ["roll"],
            False,
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "roll"}]},
            ["roll"],
            True,
        ),
    ],
)
def test_tool_choice(choice: Any, offered: list[str], must_call: bool) -> None:
    """tool_choice decides what may be called, and whether something must; appended tools count."""
    prompts: list[Prompt] = []

    def model(prompt: Prompt) -> Reply:
        prompts.append(prompt)
        return Reply.text("ok")

    appended = {
        "type": "additional_tools",
        "role": "developer",
        "tools": [{"type": "function", "name": "roll"}],
    }

    answer(SimServer(model=model), [user("hi"), appended], tools=TOOLS, tool_choice=choice)

    assert [offer.name for offer in prompts[0].offers] == offered
    assert prompts[0].must_call is must_call


def test_custom_tools_are_called_in_their_own_way() -> None:
    """A scripted call of a custom tool is a custom_tool_call with free text."""
    sim = SimServer()
    sim.push(Reply.calls(("shell", "ls -l"), ids=("c1",)))

    (item,) = answer(sim, "hi", tools=[SHELL])["output"]

    assert item["id"].startswith("ctc_")
    assert (item["type"], item["call_id"], item["input"]) == ("custom_tool_call", "c1", "ls -l")


def test_text_beside_calls_is_commentary() -> None:
    """A message that comes with calls says so in its phase; a last word is the final answer."""
    sim = SimServer()
    sim.push(Reply.calls(("get_score", "{}"), text="Let me see."), Reply.text("Seven."))

    first, second = (answer(sim, "hi", tools=TOOLS)["output"] for _ in range(2))

    assert [item["type"] for item in first] == ["message", "function_call"]
    assert [first[0]["phase"], second[0]["phase"]] == ["commentary", "final_answer"]


def test_call_ids_as_ordered() -> None:
    """Equal call ids are sent as they are; an empty one is left out."""
    sim = SimServer()
    sim.push(Reply.calls(("f", "{}"), ("f", "{}"), ("f", "{}"), ids=("same", "same", "")))

    items = answer(sim, "hi")["output"]

    assert [item.get("call_id") for item in items] == ["same", "same", None]
    assert "call_id" not in items[2]
    assert len({item["id"] for item in items}) == 3


def test_a_refusal_is_a_part() -> None:
    """A refusal stands in the message, where the text would."""
    sim = SimServer()
    sim.push(Reply.refusal("I will not."))

    (message,) = answer(sim, "hi")["output"]

    assert message["content"] == [{"type": "refusal", "refusal": "I will not."}]


def test_the_request_is_echoed() -> None:
    """The response repeats what the request said, store and format included."""
    made = answer(
        SimServer(),
        "hi",
        store=True,
        instructions="i",
        tools=TOOLS,
        text={"format": {"type": "json_object"}},
        metadata={"a": "b"},
        temperature=0,
        **THINKING,
    )

    assert (made["store"], made["instructions"], made["tools"]) == (True, "i", TOOLS)
    assert (made["metadata"], made["temperature"]) == ({"a": "b"}, 0)
    assert made["text"]["format"] == {"type": "json_object"}
    assert made["reasoning"] == {"effort": "low", "summary": "auto"}


def test_equal_requests_get_equal_bytes() -> None:
    """Nothing depends on the clock or on chance."""
    first, second = SimServer(), SimServer()

    assert post(first, "hi", **THINKING).body == post(second, "hi", **THINKING).body


# ------------------------------------------------------------------------------------------- endings


@pytest.mark.parametrize(
    ("finish", "status", "reason", "event"),
    [
        (None, "completed", None, "response.completed"),
        ("stop", "completed", None, "response.completed"),
        ("length", "incomplete", "max_output_tokens", "response.incomplete"),
        ("max_output_tokens", "incomplete", "max_output_tokens", "response.incomplete"),
        ("content_filter", "incomplete", "content_filter", "response.incomplete"),
        ("failed", "failed", None, "response.failed"),
        ("cancelled", "cancelled", None, "response.completed"),
        ("", "", None, "response.completed"),
    ],
)
def test_finish_words(finish: str | None, status: str, reason: str | None, event: str) -> None:
    """A scripted finish word becomes the status, the reason and the terminal event that fit it."""
    sim = SimServer()
    sim.push(*[Reply.calls(("get_score", '{"te'), text="Well", finish=finish)] * 2)

    unary = answer(sim, "hi", tools=TOOLS)
    last = events(post(sim, "hi", tools=TOOLS, stream=True))[-1]

    assert unary["status"] == last["response"]["status"] == status
    assert unary["incomplete_details"] == ({"reason": reason} if reason else None)
    assert (unary["error"] is not None) is (status == "failed")
    assert last["type"] == event
    states = [item["status"] for item in unary["output"]]
    assert states == ["completed", "incomplete" if status in ("incomplete", "failed") else "completed"]
    assert unary["output"][1]["arguments"] == '{"te'


def test_an_output_limit_cuts_a_call_in_the_middle() -> None:
    """A call that does not fit into max_output_tokens breaks off, and the response says why."""
    arguments = json.dumps({"team": "Red" * 100})
    sim = SimServer(model=lambda _: Reply.calls(("get_score", arguments)))

    made = answer(sim, "hi", tools=TOOLS, max_output_tokens=16)

    assert (made["status"], made["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    (item,) = made["output"]
    assert (item["type"], item["status"]) == ("function_call", "incomplete")
    assert item["arguments"] == arguments[:64]


def test_an_output_limit_cuts_a_text() -> None:
    """A text that does not fit breaks off in an incomplete message."""
    sim = SimServer(model=lambda _: Reply.text("word " * 100))

    made = answer(sim, "hi", max_output_tokens=16)

    assert made["status"] == "incomplete"
    assert made["output"][0]["status"] == "incomplete"
    assert len(made["output"][0]["content"][0]["text"]) == 64


def test_a_reply_cut_while_it_was_thinking_is_only_reasoning() -> None:
    """An incomplete response may end with a reasoning item that nothing follows."""
    sim = SimServer()
    sim.push(Reply.text("", thinking="Hm", finish="length"))

    made = answer(sim, "hi", **THINKING)

    assert made["status"] == "incomplete"
    assert [item["type"] for item in made["output"]] == ["reasoning"]


def test_an_empty_reply_has_an_empty_message() -> None:
    """A complete reply without words is a message with an empty text."""
    sim = SimServer()
    sim.push(Reply.text(""))

    assert answer(sim, "hi")["output"][0]["content"][0]["text"] == ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("null", [False, True])
def test_no_output(stream: bool, null: bool) -> None:
    """The hollow answer is complete, but its output is empty or null."""
    sim = SimServer()
    sim.push(Fault.no_choices(null=null))

    response = post(sim, "hi", stream=stream)

    made = events(response)[-1]["response"] if stream else json.loads(response.body)
    assert (made["status"], made["output"]) == ("completed", None if null else [])


def test_an_error_in_mid_stream() -> None:
    """After some events comes an error event, and nothing more."""
    sim = SimServer()
    sim.push(Fault.error_event(after=3))

    told = events(post(sim, "hi", stream=True))

    assert [event["type"] for event in told[:3]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert (told[3]["type"], told[3]["message"]) == (
        "error",
        "The server is overloaded. Please try again later.",
    )
    assert len(told) == 4


def test_errors_have_openais_shape() -> None:
    """A refused request and a fault give status and error object."""
    sim = SimServer()
    sim.push(Fault.rate_limit())

    refused, limited = post(sim, []), post(sim, "hi")

    assert refused.status == 400
    assert set(json.loads(refused.body)["error"]) == {"message", "type", "param", "code"}
    assert (limited.status, json.loads(limited.body)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert len(sim.problems) == 1


# ------------------------------------------------------------------------------------------- streams

REPLIES = {
    "text": Reply.text("Well, well.\n\nAnd so on. "),
    "calls": Reply.calls(
        ("get_score", '{"team":"Red"}'), ("get_score", '{"team":"Blue"}'), text="Let me see."
    ),
    "thinking": Reply.text("Seven.", thinking="**Hm**\n\nIt may be seven."),
    "thinking and calls": Reply.calls(("get_score", "{}"), thinking="Hm"),
    "custom": Reply.calls(("shell", "ls -l /tmp"), thinking="Hm"),
    "refusal": Reply.refusal("I will not."),
    "empty": Reply.text(""),
    "cut": Reply.calls(("get_score", '{"te'), finish="length"),
    "filtered": Reply.text("Well", finish="content_filter"),
    "failed": Reply.text("Well", finish="failed"),
    "surrogates": Reply.text("odd \ud83d half"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_tells_the_same_as_a_response(name: str) -> None:
    """Deltas joined, the items' last events and the terminal event all hold the unary output."""
    sim = SimServer()
    sim.push(REPLIES[name], REPLIES[name])
    more = {"tools": [*TOOLS, SHELL], **THINKING}

    unary = answer(sim, "hi", **more)
    told = events(post(sim, "hi", stream=True, **more))

    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert shown(rebuilt(told)) == shown(done) == shown(unary["output"])
    # The second request finds the first one in the cache.
    assert {**told[-1]["response"], "usage": None} == {**unary, "usage": None}
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    assert told[0]["response"]["status"] == "in_progress"


@pytest.mark.parametrize("name", REPLIES)
def test_the_sdks_own_types_hold_every_event(name: str) -> None:
    """The response and each event validate against the openai SDK's types."""
    sim = SimServer()
    sim.push(REPLIES[name], REPLIES[name])
    more = {"tools": [*TOOLS, SHELL], **THINKING}
    event_type: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

    unary = answer(sim, "hi", **more)
    told = events(post(sim, "hi", stream=True, **more))

    assert TypedResponse.model_validate(unary).status == unary["status"]
    for event in told:
        assert event_type.validate_python(event).type == event["type"]


def test_events_have_the_recorded_keys(data_dir: Path) -> None:
    """Every kind of event that was recorded from api.openai.com has the same keys here."""
    path = data_dir / "recorded" / "openai-responses.jsonl.zst"
    seen: dict[str, set[frozenset[str]]] = {}
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as plain:
        for line in io.TextIOWrapper(plain, encoding="utf-8"):
            for exchange in orjson.loads(line)["exchanges"]:
                stream = exchange["response"].get("sse") or ""
                if exchange["request"]["host"] == "api.openai.com":
                    for data in (row[6:] for row in stream.splitlines() if row.startswith("data: {")):
                        event = orjson.loads(data)
                        seen.setdefault(event["type"], set()).add(frozenset(event))
    sim = SimServer()
    sim.push(*REPLIES.values())
    more = {"tools": [*TOOLS, SHELL], "stream": True, **THINKING}

    told = [event for _ in REPLIES for event in events(post(sim, "hi", **more))]

    compared = {event["type"] for event in told if event["type"] in seen}
    assert len(compared) >= 14
    for event in told:
        assert frozenset(event) in seen.get(event["type"], {frozenset(event)}), event["type"]


def test_deltas_are_obfuscated_unless_told_not_to() -> None:
    """Deltas carry filler that hides their length; include_obfuscation turns it off."""
    sim = SimServer()
    for more, padded in (({}, True), ({"stream_options": {"include_obfuscation": False}}, False)):
        told = events(post(sim, "Hello there.", stream=True, **more))
        deltas = [event for event in told if "delta" in event]

        assert deltas
        assert all(("obfuscation" in event) is padded for event in deltas)
        if padded:
            assert all(len(e["delta"] + e["obfuscation"]) % 16 == 0 for e in deltas)


def test_a_stream_breaks_off_where_ordered() -> None:
    """A cut stream ends without its terminal event."""
    sim = SimServer()
    sim.push(Fault.cut_stream(5))

    told = events(post(sim, "hi", stream=True))

    assert len(told) == 5
    assert not any(event["type"] == "response.completed" for event in told)


# --------------------------------------------------------------------------------------------- usage


def cached(made: Mapping[str, Any]) -> int:
    count: int = made["usage"]["input_tokens_details"]["cached_tokens"]
    return count


def test_a_growing_history_is_cached() -> None:
    """When items are only appended, all whole blocks of the earlier request are found again."""
    sim = SimServer()
    history: list[Any] = [user("a long story " * 40)]
    first = answer(sim, history, tools=TOOLS)

    second = answer(sim, [*history, *first["output"], user("Go on.")], tools=TOOLS)

    assert cached(first) == 0
    assert cached(second) == first["usage"]["input_tokens"] // BLOCK_TOKENS * BLOCK_TOKENS
    assert cached(second) < second["usage"]["input_tokens"]


@pytest.mark.parametrize("changed", ["tools", "instructions", "text", "first item", "model"])
def test_a_changed_prefix_is_not_cached(changed: str) -> None:
    """Tools, instructions, format, the first item and the model come first: a change costs the cache."""
    sim = SimServer()
    history = [user("a long story " * 40)]
    base: dict[str, Any] = {
        "tools": TOOLS,
        "instructions": "Be brief.",
        "text": {"format": {"type": "text"}},
    }
    answer(sim, history, **base)
    changes: dict[str, dict[str, Any]] = {
        "tools": {"tools": []},
        "instructions": {"instructions": "Be long."},
        "text": {"text": {"format": {"type": "json_object"}}},
        "first item": {"input": [user("A long story " * 40)]},
        "model": {"model": "gpt-6"},
    }
    change = changes[changed]

    same = answer(sim, history, **base)
    other = answer(sim, change.pop("input", history), **{**base, **change})

    assert cached(same) > 0
    assert cached(other) < cached(same) // 2


def test_reasoning_is_counted() -> None:
    """The thoughts are part of the output tokens, and counted apart."""
    sim = SimServer()
    sim.push(Reply.text("Seven.", thinking="x" * 40))

    scripted = answer(sim, "hi", **THINKING)["usage"]
    own = answer(sim, "hi", **THINKING)["usage"]

    assert scripted["output_tokens_details"] == {"reasoning_tokens": 10}
    assert scripted["output_tokens"] == 12  # 46 characters
    assert 0 < own["output_tokens_details"]["reasoning_tokens"] < own["output_tokens"]


def test_usage_can_be_left_out() -> None:
    """A reply ordered without usage has none."""
    sim = SimServer()
    sim.push(Reply.text("hi", usage=False))

    assert answer(sim, "hi")["usage"] is None
