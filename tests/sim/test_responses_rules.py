"""The simulator's own rules for Responses: what OpenAI refuses, and what it takes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import zstandard

from goaitools_py.sim import SimServer, check_openai_responses
from goaitools_py.sim.openai.responses_rules import responses_refusals

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SHELL = {"type": "custom", "name": "sh"}
SAID = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "status": "completed",
    "content": [{"type": "output_text", "text": "a", "annotations": []}],
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAA"}


def call(call_id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id: Any = "c1", output: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def custom(call_id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "sh", "input": "ls", **more}


def custom_output(call_id: Any = "c1") -> dict[str, Any]:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": "ok"}


def parts(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def request(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "input": list(items), **more}


def stateless(*items: Any, **more: Any) -> dict[str, Any]:
    return request(*items, store=False, **more)


def without(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k != key}


def strict(**schema: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", "strict": True, "parameters": schema}


def shaped(**more: Any) -> dict[str, Any]:
    return request(USER, text={"format": {"type": "json_schema", **more}})


def closed(**properties: Any) -> dict[str, Any]:
    """An object's schema as strict mode wants it."""
    shape = {"type": "object", "properties": properties, "required": list(properties)}
    return {**shape, "additionalProperties": False}


OPEN = {"type": "object", "properties": {}, "required": []}
NESTED = closed(inner=OPEN)

REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    # calls and outputs
    "output without a call": (
        request(USER, output()),
        "No tool call found for function call output with call_id c1.",
    ),
    "output before its call": (request(USER, output(), call()), "No tool call found for function call out"),
    "output of another call": (
        request(USER, call(), output(), output("c2")),
        "No tool call found for function call output with call_id c2.",
    ),
    "output of the other kind": (
        request(USER, call(), custom_output()),
        "No tool call found for custom tool call output with call_id c1.",
    ),
    "call unanswered at the end": (request(USER, call()), "No tool output found for function call c1."),
    "call unanswered before a user": (
        request(USER, call(), USER),
        "No tool output found for function call c1.",
    ),
    "one of two calls unanswered": (
        request(USER, call("c1"), call("c2"), output("c1"), USER),
        "No tool output found for function call c2.",
    ),
    "custom call unanswered": (request(USER, custom()), "No tool output found for custom tool call c1."),
    "call answered twice": (
        request(USER, call(), output(), output()),
        "Duplicate 'function_call_output' item found with call_id c1.",
    ),
    "two calls with one call id": (
        request(USER, call(), call(), output()),
        "Duplicate 'function_call' item found with call_id c1.",
    ),
    # ids
    "two items with one id": (
        request(USER, SAID, USER, SAID),
        "Duplicate item found with id msg_1. Remove duplicate items from your input and try again.",
    ),
    "the id of another kind": (
        request(USER, call(id="msg_1"), output()),
        "Invalid 'input[1].id': 'msg_1'. Expected an ID that begins with 'fc'.",
    ),
    "reasoning with a message's id": (
        request(USER, {**THOUGHT, "id": "msg_2"}, SAID),
        "Expected an ID that begins with 'rs'.",
    ),
    "message with an id of one's own": (
        request(USER, {**SAID, "id": "1"}),
        "Invalid 'input[1].id': '1'. Expected an ID that begins with 'msg'.",
    ),
    "custom call with a function call's id": (
        request(USER, custom(id="fc_1"), custom_output()),
        "Expected an ID that begins with 'ctc'.",
    ),
    "id not a string": (request(USER, call(id=1), output()), "Invalid type for 'input[1].id'"),
    "id too long": (request(USER, {**SAID, "id": "msg_" + "1" * 61}), "maximum length 64"),
    "a stored item": (request({"type": "item_reference", "id": "msg_1"}), "Item with id 'msg_1' not found."),
    # reasoning
    "reasoning at the end": (
        stateless(USER, THOUGHT),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning before a user": (stateless(USER, THOUGHT, USER), "without its required following item."),
    "reasoning before an output": (
        stateless(USER, call(), THOUGHT, output()),
        "without its required following item.",
    ),
    "reasoning before a developer": (
        stateless(USER, THOUGHT, {"role": "developer", "content": "d"}),
        "without its required following item.",
    ),
    "stored reasoning before a message without id": (
        request(USER, THOUGHT, {"role": "assistant", "content": "a"}),
        "without its required following item.",
    ),
    "reasoning that was not stored, without content": (
        stateless(USER, without("encrypted_content", THOUGHT), SAID),
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ),
    "reasoning of ours, changed": (
        stateless(USER, {**THOUGHT, "encrypted_content": "sim1.AAAA"}, SAID),
        "The encrypted content sim1...AAAA could not be verified.",
    ),
    "reasoning without summary": (stateless(USER, without("summary", THOUGHT), SAID), "'input[1].summary'"),
    "reasoning with an odd summary": (
        stateless(USER, {**THOUGHT, "summary": [{"type": "text", "text": "x"}]}, SAID),
        "'text'. Supported values are: 'summary_text'.",
    ),
    "reasoning with a text for a summary": (
        stateless(USER, {**THOUGHT, "summary": "x"}, SAID),
        "Invalid type for 'input[1].summary'",
    ),
    # items
    "no input": ({"model": "m"}, 'One of "input" or "previous_response_id"'),
    "empty input": (request(), 'One of "input" or "previous_response_id"'),
    "input an object": ({"model": "m", "input": {}}, "Invalid type for 'input'"),
    "item not an object": (request("hi"), "Invalid type for 'input[0]'"),
    "item of an unknown type": (request(USER, {"type": "magic"}), "Invalid value: 'magic'."),
    "message without role": (request({"content": "hi"}), "Missing required parameter: 'input[0].role'."),
    "message of a tool": (request({"role": "tool", "content": "hi"}), "Invalid value: 'tool'."),
    "message without content": (request({"role": "user"}), "'input[0].content'"),
    "content a number": (request({"role": "user", "content": 3}), "Invalid type for 'input[0].content'"),
    "part not an object": (request(parts("hi")), "Invalid type for 'input[0].content[0]'"),
    "part without type": (request(parts({"text": "hi"})), "'input[0].content[0].type'"),
    "a chat part": (request(parts({"type": "text", "text": "hi"})), "Invalid value: 'text'."),
    "a user's part from the model": (
        request(USER, parts({"type": "input_text", "text": "a"}, role="assistant")),
        "Invalid value: 'input_text'. Supported values are: 'output_text', and 'refusal'.",
    ),
    "a model's part from the user": (
        request(parts({"type": "output_text", "text": "a"})),
        "Invalid value: 'output_text'.",
    ),
    "text part without text": (request(parts({"type": "input_text"})), "'input[0].content[0].text'"),
    "text part with a number": (
        request(parts({"type": "input_text", "text": 1})),
        "Invalid type for 'input[0].content[0].text'",
    ),
    "image part without image": (request(parts({"type": "input_image"})), "content[0].image_url'"),
    "file part without file": (request(parts({"type": "input_file"})), "content[0].file_data'"),
    "call without call_id": (request(USER, without("call_id", call())), "'input[1].call_id'"),
    "call with an empty call_id": (request(USER, call("")), "'input[1].call_id': empty string"),
    "call with a number for call_id": (request(USER, call(1)), "Invalid type for 'input[1].call_id'"),
    "call_id too long": (request(USER, call("c" * 65), output("c" * 65)), "but got a string with length 65"),
    "call without name": (request(USER, call(name=None), output()), "'input[1].name'"),
    "call of an impossible name": (request(USER, call(name="a.b"), output()), "'input[1].name': string does"),
    "call without arguments": (request(USER, without("arguments", call()), output()), "'input[1].arguments'"),
    "arguments an object": (
        request(USER, call(arguments={}), output()),
        "Invalid type for 'input[1].arguments'",
    ),
    "custom call without input": (request(USER, without("input", custom())), "'input[1].input'"),
    "output without call_id": (request(USER, without("call_id", output())), "'input[1].call_id'"),
    "output without output": (request(USER, call(), without("output", output())), "'input[2].output'"),
    "output a number": (request(USER, call(), output(output=3)), "Invalid type for 'input[2].output'"),
    "output with a chat part": (
        request(USER, call(), output(output=[{"type": "text", "text": "x"}])),
        "Invalid value: 'text'.",
    ),
    "compaction without content": (request({"type": "compaction"}, USER), "'input[0].encrypted_content'"),
    "compaction trigger in the middle": (request({"type": "compaction_trigger"}, USER), "must be the final"),
    # tools
    "tools an object": (request(USER, tools={}), "Invalid type for 'tools'"),
    "too many tools": (
        request(USER, tools=[{**TOOL, "name": f"f{i}"} for i in range(129)]),
        "'tools': array too long",
    ),
    "tool not an object": (request(USER, tools=["f"]), "Invalid type for 'tools[0]'"),
    "tool without type": (request(USER, tools=[without("type", TOOL)]), "'tools[0].type'"),
    "tool of an unknown type": (request(USER, tools=[{"type": "magic"}]), "Invalid value: 'magic'."),
    "a chat tool": (
        request(USER, tools=[{"type": "function", "function": {"name": "f"}}]),
        "Missing required parameter: 'tools[0].name'.",
    ),
    "tool of an impossible name": (request(USER, tools=[{**TOOL, "name": "a b"}]), "'tools[0].name': string"),
    "tool name too long": (request(USER, tools=[{**TOOL, "name": "f" * 129}]), "maximum length 128"),
    "two tools of one name": (request(USER, tools=[TOOL, TOOL]), "duplicate tool name 'f'"),
    "parameters a list": (request(USER, tools=[{**TOOL, "parameters": []}]), "'tools[0].parameters'"),
    "parameters of another type": (
        request(USER, tools=[{**TOOL, "parameters": {"type": "string"}}]),
        "schema must be a JSON Schema of 'type: \"object\"'",
    ),
    "strict not a boolean": (request(USER, tools=[{**TOOL, "strict": "yes"}]), "'tools[0].strict'"),
    "strict and open": (
        request(USER, tools=[strict(type="object", properties={}, required=[])]),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    ),
    "strict with an optional property": (
        request(USER, tools=[strict(type="object", properties={"a": {}}, additionalProperties=False)]),
        "In context=(), 'required' is required to be supplied and to be an array including every key in "
        "properties. Missing 'a'.",
    ),
    "strict and open inside": (
        request(USER, tools=[strict(**NESTED)]),
        "In context=('properties', 'inner'), 'additionalProperties' is required",
    ),
    "strict and open in a list": (
        request(USER, tools=[strict(**closed(a={"type": "array", "items": OPEN}))]),
        "In context=('properties', 'a', 'items'), 'additionalProperties' is required",
    ),
    "strict and open in a choice": (
        request(USER, tools=[strict(**closed(a={"anyOf": [{"type": "null"}, OPEN]}))]),
        "In context=('properties', 'a', 'anyOf', '1'), 'additionalProperties' is required",
    ),
    "strict without parameters": (
        request(USER, tools=[{"type": "function", "name": "f", "strict": True}]),
        "'additionalProperties' is required",
    ),
    "an appended tool of an unknown type": (
        request(USER, {"type": "additional_tools", "role": "developer", "tools": [{"type": "magic"}]}),
        "Invalid value: 'magic'.",
    ),
    # tool choice
    "a tool required of none": (
        request(USER, tool_choice="required"),
        "Tool choice 'required' must be specified with 'tools' parameter.",
    ),
    "an unknown word of choice": (request(USER, tools=[TOOL], tool_choice="any"), "Invalid value: 'any'."),
    "a choice of a number": (request(USER, tools=[TOOL], tool_choice=1), "Invalid type for 'tool_choice'"),
    "a choice of a tool not there": (
        request(USER, tools=[TOOL], tool_choice={"type": "function", "name": "g"}),
        "Tool choice 'function' not found in 'tools' parameter",
    ),
    "a chat choice": (
        request(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}),
        "Missing required parameter: 'tool_choice.name'.",
    ),
    "a choice without type": (request(USER, tools=[TOOL], tool_choice={"name": "f"}), "'tool_choice.type'"),
    "a choice of an unknown type": (
        request(USER, tools=[TOOL], tool_choice={"type": "magic"}),
        "Invalid value: 'magic'.",
    ),
    "allowed tools without mode": (
        request(USER, tools=[TOOL], tool_choice={"type": "allowed_tools", "tools": [TOOL]}),
        "Supported values are: 'auto', and 'required'.",
    ),
    "allowed tools, but none": (
        request(USER, tools=[TOOL], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": []}),
        "'tool_choice.tools': empty array",
    ),
    "allowed tools without a list": (
        request(USER, tools=[TOOL], tool_choice={"type": "allowed_tools", "mode": "auto"}),
        "Invalid type for 'tool_choice.tools'",
    ),
    "allowed tools by name alone": (
        request(USER, tools=[TOOL], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": ["f"]}),
        "Invalid type for 'tool_choice.tools[0]'",
    ),
    "allowed tools that are not there": (
        request(USER, tools=[TOOL], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [SHELL]}),
        "Tool choice 'custom' not found in 'tools' parameter",
    ),
    # settings
    "no model": ({"input": "hi"}, "you must provide a model parameter"),
    "an unknown key": (request(USER, seed=1), "Unknown parameter: 'seed'."),
    "chat's messages": (
        {"model": "m", "input": "hi", "messages": [USER]},
        "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'.",
    ),
    "chat's response_format": (request(USER, response_format={}), "has moved to 'text.format'."),
    "chat's limit": (request(USER, max_tokens=100), "has moved to 'max_output_tokens'."),
    "an earlier response": (
        request(USER, previous_response_id="resp_1"),
        "Previous response with id 'resp_1' not found.",
    ),
    "a conversation": (request(USER, conversation="conv_1"), "Conversation with id 'conv_1' not found."),
    "a conversation as an object": (request(USER, conversation={"id": "conv_1"}), "'conv_1' not found."),
    "a stored prompt": (request(USER, prompt={"id": "pmpt_1"}), "Prompt with id 'pmpt_1' not found."),
    "stream not a boolean": (request(USER, stream="yes"), "Invalid type for 'stream'"),
    "stream options without a stream": (
        request(USER, stream_options={"include_obfuscation": False}),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    ),
    "chat's stream options": (
        request(USER, stream=True, stream_options={"include_usage": True}),
        "Unknown parameter: 'stream_options.include_usage'.",
    ),
    "store not a boolean": (request(USER, store="no"), "Invalid type for 'store'"),
    "parallel calls not a boolean": (request(USER, parallel_tool_calls=1), "for 'parallel_tool_calls'"),
    "instructions a list": (request(USER, instructions=[]), "Invalid type for 'instructions'"),
    "too small a limit": (
        request(USER, max_output_tokens=15),
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15",
    ),
    "half a token": (request(USER, max_output_tokens=16.5), "Invalid type for 'max_output_tokens'"),
    "no tool calls allowed": (request(USER, max_tool_calls=0), "Invalid 'max_tool_calls'"),
    "too cold": (request(USER, temperature=-1), "Invalid 'temperature': decimal below minimum value."),
    "too hot": (request(USER, temperature=2.1), "Invalid 'temperature': decimal above maximum value."),
    "top_p above one": (request(USER, top_p=1.5), "Invalid 'top_p'"),
    "too many logprobs": (request(USER, top_logprobs=21), "Invalid 'top_logprobs'"),
    "an unknown truncation": (request(USER, truncation="some"), "'some'. Supported values are: 'auto', and"),
    "include not a list": (request(USER, include="all"), "Invalid type for 'include'"),
    "an unknown include": (request(USER, include=["all"]), "Invalid value: 'all'."),
    "reasoning not an object": (request(USER, reasoning="high"), "Invalid type for 'reasoning'"),
    "an unknown effort": (request(USER, reasoning={"effort": "much"}), "Invalid value: 'much'."),
    "an unknown summary": (request(USER, reasoning={"summary": "short"}), "Invalid value: 'short'."),
    "an unknown reasoning context": (request(USER, reasoning={"context": "some"}), "Invalid value: 'some'."),
    "text not an object": (request(USER, text="json"), "Invalid type for 'text'"),
    "format not an object": (request(USER, text={"format": "json"}), "Invalid type for 'text.format'"),
    "format without type": (request(USER, text={"format": {}}), "'text.format.type'"),
    "an unknown format": (request(USER, text={"format": {"type": "xml"}}), "Invalid value: 'xml'."),
    "format without name": (shaped(schema=NESTED), "'text.format.name'"),
    "format without schema": (shaped(name="s"), "'text.format.schema'"),
    "format strict and open": (
        shaped(name="s", strict=True, schema={"type": "object", "properties": {}}),
        "Invalid schema for response_format 's': In context=(), 'additionalProperties' is required",
    ),
    "a chat format": (shaped(json_schema={"name": "s", "schema": {}}), "'text.format.name'"),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "a text": {"model": "m", "input": "hi"},
    "every role": request(
        {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, USER, SAID, USER
    ),
    "an assistant in brief": request(USER, {"role": "assistant", "content": "a"}, USER),
    "a refusal": request(USER, {**SAID, "content": [{"type": "refusal", "refusal": "no"}]}, USER),
    "media": request(
        parts(
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            {"type": "input_file", "file_id": "file_1"},
        )
    ),
    "a call, answered": request(USER, call(id="fc_1", status="completed"), output(), tools=[TOOL]),
    "a call, answered in parts": request(USER, call(), output(output=[{"type": "input_text", "text": "x"}])),
    "calls answered in another order": request(USER, call("a"), call("b"), output("b"), output("a")),
    "an event between a call and its output": request(
        USER, call(), {"role": "developer", "content": "e"}, output()
    ),
    "a custom call and a function call with one call id": request(
        USER, call(), custom(), output(), custom_output()
    ),
    "reasoning and its message": stateless(USER, THOUGHT, SAID, USER),
    "reasoning and its calls": stateless(
        USER, THOUGHT, call("a", id="fc_1"), call("b", id="fc_2"), output("a"), output("b")
    ),
    "reasoning that was not stored, and a call without id": stateless(USER, THOUGHT, call(), output()),
    "stored reasoning without content": request(USER, without("encrypted_content", THOUGHT), SAID, USER),
    "reasoning without id": stateless(USER, without("id", THOUGHT), call(), output()),
    "another server's reasoning": request(
        USER, {"type": "reasoning", "id": "84cf", "summary": [], "content": []}, call(), output()
    ),
    "reasoning, a search, reasoning, an answer": stateless(
        USER,
        THOUGHT,
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {**THOUGHT, "id": "rs_2"},
        SAID,
    ),
    "a compaction": request({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}, USER),
    "appended tools": request(
        USER,
        {"type": "additional_tools", "role": "developer", "tools": [TOOL]},
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
    ),
    "tools of every kind": request(USER, tools=[TOOL, SHELL, {"type": "web_search"}]),
    "no tools": request(USER, tools=[], tool_choice="auto", parallel_tool_calls=False),
    "strict tools": request(
        USER,
        tools=[strict(type="object", properties={"a": {}}, required=["a"], additionalProperties=False)],
    ),
    "strict left open": request(USER, tools=[{**TOOL, "strict": None}, {**TOOL, "name": "g"}]),
    "a forced tool": request(USER, tools=[TOOL], tool_choice={"type": "function", "name": "f"}),
    "allowed tools": request(
        USER,
        tools=[TOOL, SHELL],
        tool_choice={
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "sh"}],
        },
    ),
    "a hosted tool by choice": request(
        USER, tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}
    ),
    "a forbidden tool": request(USER, tools=[TOOL], tool_choice="none"),
    "streamed": request(USER, stream=True, stream_options={"include_obfuscation": False}),
    "every setting": stateless(
        USER,
        instructions="Be brief.",
        include=["reasoning.encrypted_content"],
        max_output_tokens=16,
        max_tool_calls=1,
        metadata={"a": "b"},
        prompt_cache_key="k",
        reasoning={"effort": "high", "summary": "auto", "context": "all_turns"},
        safety_identifier="u",
        service_tier="auto",
        temperature=0.5,
        text={"format": {"type": "json_object"}, "verbosity": "low"},
        top_logprobs=0,
        top_p=1,
        truncation="disabled",
        user="u",
    ),
    "a schema": shaped(name="s", schema=NESTED),
}


def recorded(data_dir: Path) -> Iterator[tuple[str, int, dict[str, Any], Any]]:
    """Record id, status, request body and response body of every recorded exchange of this endpoint."""
    path = data_dir / "recorded" / "openai-responses.jsonl.zst"
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as plain:
        for line in io.TextIOWrapper(plain, encoding="utf-8"):
            record = orjson.loads(line)
            for exchange in record["exchanges"]:
                asked, response = exchange["request"], exchange["response"]
                if asked["method"] == "POST" and asked["path"].partition("?")[0].endswith("/responses"):
                    yield record["id"], response["status"], asked["body"], response.get("body")


def names_stored(body: dict[str, Any]) -> bool:
    """Whether a request goes on from something that only its provider's store knows."""
    given = body.get("input")
    items = given if isinstance(given, list) else []
    return bool(
        body.get("previous_response_id")
        or body.get("conversation")
        or any(item.get("type") == "item_reference" for item in items)
    )


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    """A request that OpenAI refuses is refused, in words that name the fault."""
    body, words = REJECTED[name]

    problems = check_openai_responses(body)

    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    """A request that OpenAI takes passes."""
    assert check_openai_responses(ACCEPTED[name]) == []


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_requests_are_answered(name: str) -> None:
    """Whatever passes the rules gets an answer, unary or streamed."""
    sim = SimServer()

    for more in ({}, {"stream": True}):
        answer = sim.respond("POST", "/v1/responses", {}, orjson.dumps({**ACCEPTED[name], **more}))

        assert answer.status == 200


@pytest.mark.parametrize(
    ("name", "param", "code"),
    [
        ("output without a call", "input", None),
        ("call unanswered at the end", "input", None),
        ("two items with one id", "input", None),
        ("reasoning at the end", "input", None),
        ("reasoning of ours, changed", None, "invalid_encrypted_content"),
        ("the id of another kind", "input[1].id", "invalid_value"),
        ("an earlier response", "previous_response_id", "previous_response_not_found"),
        ("an unknown key", "seed", "unknown_parameter"),
        ("chat's messages", "messages", "unsupported_parameter"),
        ("strict and open", "tools[0].parameters", "invalid_function_parameters"),
        ("too small a limit", "max_output_tokens", "integer_below_min_value"),
    ],
)
def test_parameter_and_code(name: str, param: str | None, code: str | None) -> None:
    """A refusal points at its parameter and carries the provider's code."""
    refusal = responses_refusals(REJECTED[name][0])[0]

    assert (refusal.param, refusal.code) == (param, code)
    assert refusal.type == "invalid_request_error"


def test_recorded_accepted_requests_pass(data_dir: Path) -> None:
    """Every recorded request that its provider answered with 2xx breaks no rule; stored ids are counted."""
    checked = skipped = 0

    for record, status, body, _ in recorded(data_dir):
        if 200 <= status < 300:
            if names_stored(body):
                skipped += 1
                assert any("not found" in problem for problem in check_openai_responses(body)), record
            else:
                assert check_openai_responses(body) == [], record
                checked += 1

    assert (checked, skipped) == (434, 7)


def test_recorded_accepted_requests_are_answered(data_dir: Path) -> None:
    """The simulator finds an answer to every recorded request that a provider found one to."""
    sim = SimServer()

    for record, status, body, _ in recorded(data_dir):
        if 200 <= status < 300 and not names_stored(body):
            answer = sim.respond("POST", "/v1/responses", {}, orjson.dumps(body))
            assert answer.status == 200, record


def test_recorded_refusals_are_in_the_same_words(data_dir: Path) -> None:
    """Recorded 400s about a schema, a number, a reasoning item are found, the whole error word for word."""
    found = 0

    for record, status, body, answer in recorded(data_dir):
        refusals = responses_refusals(body)
        if status == 400 and refusals:
            first = refusals[0]
            told = {"message": first.message, "type": first.type, "param": first.param, "code": first.code}
            assert told == answer["error"], record
            found += 1

    assert found == 3


LEAVES: tuple[Any, ...] = (None, True, 3, 0.5, "", "user", "assistant", "c1", "f", "fc_1", "sim1.x", "custom")
TYPES = (
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "additional_tools",
    "item_reference",
    "function",
    "allowed_tools",
    "json_schema",
    "input_text",
    "output_text",
)
KEYS = (
    "role",
    "content",
    "call_id",
    "id",
    "name",
    "arguments",
    "input",
    "output",
    "text",
    "summary",
    "encrypted_content",
    "parameters",
    "strict",
    "required",
    "properties",
    "items",
    "anyOf",
    "$defs",
    "additionalProperties",
    "tools",
    "mode",
    "format",
    "schema",
    "effort",
    "image_url",
)


def some_json(random: Random, depth: int = 3) -> Any:
    shape = random.choice(("leaf", "list", "object", "object")) if depth else "leaf"
    if shape == "leaf":
        return random.choice(LEAVES)
    if shape == "list":
        return [some_json(random, depth - 1) for _ in range(random.randrange(4))]
    made = {key: some_json(random, depth - 1) for key in random.sample(KEYS, random.randrange(1, 7))}
    return made | {"type": random.choice((*TYPES, *LEAVES, ["user"], {}))}


def test_no_json_breaks_the_rules() -> None:
    """Whatever JSON comes, the rules answer with sentences and never raise."""
    random = Random(20261122)

    for _ in range(2_000):
        body = {key: some_json(random) for key in ("tool_choice", "include", "reasoning", "text", "prompt")}
        body |= {"model": "m", "tools": [some_json(random), strict(properties=some_json(random))]}
        body |= {"input": [some_json(random) for _ in range(4)], "stream_options": some_json(random)}

        assert all(isinstance(problem, str) for problem in check_openai_responses(body))


def test_whatever_passes_the_rules_is_answered() -> None:
    """Of random items, those that pass the rules never break the reading of a request."""
    random, sim, answered = Random(20261123), SimServer(), 0

    for _ in range(4_000):
        body = request(USER, some_json(random), store=False)
        if not check_openai_responses(body):
            answered += 1
            assert sim.respond("POST", "/v1/responses", {}, orjson.dumps(body)).status == 200

    assert answered > 10
