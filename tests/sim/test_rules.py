"""The simulator's own rules for Chat Completions: what OpenAI refuses, and what it takes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import zstandard

from goaitools_py.sim import SimServer, check_openai

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def call(id: Any = "c1", name: Any = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made), **more}


def result(id: Any = "c1", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def request(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": list(messages), **more}


def without(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k != key}


def strict(**schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "strict": True, "parameters": schema}}


REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    # pairing
    "result without a call": (request(USER, result()), "must be a response to a preceeding message"),
    "result first": (request(result()), "must be a response to a preceeding message"),
    "result of another call": (request(USER, calls(call()), result("c2")), "must be a response to"),
    "result after a user message": (request(USER, calls(call()), USER, result()), "must be a response to"),
    "result after the answer": (
        request(USER, calls(call()), result(), {"role": "assistant", "content": "a"}, result()),
        "must be a response to",
    ),
    "call unanswered at the end": (request(USER, calls(call())), "did not have response messages: c1"),
    "call unanswered before a user": (
        request(USER, calls(call()), USER),
        "did not have response messages: c1",
    ),
    "call unanswered before an assistant": (
        request(USER, calls(call()), {"role": "assistant", "content": "a"}),
        "did not have response messages: c1",
    ),
    "call unanswered before a system message": (
        request(USER, calls(call()), {"role": "system", "content": "s"}, result()),
        "did not have response messages: c1",
    ),
    "one of two calls unanswered": (
        request(USER, calls(call("c1"), call("c2")), result("c1"), USER),
        "did not have response messages: c2",
    ),
    "call answered twice": (
        request(USER, calls(call()), result(), result()),
        "Duplicate value for 'tool_call_id'",
    ),
    "two calls with one id": (
        request(USER, calls(call(), call()), result()),
        "Duplicate value for 'id' of 'c1'",
    ),
    "calls by a user": (request({**USER, "tool_calls": [call()]}), "only allowed with role 'assistant'"),
    # calls
    "no calls": (request(USER, calls()), "'messages[1].tool_calls': empty array"),
    "calls not a list": (request(USER, {**calls(), "tool_calls": {}}), "expected an array of objects"),
    "call not an object": (request(USER, calls("c1")), "'messages[1].tool_calls[0]': expected an object"),
    "call without id": (request(USER, calls(without("id", call()))), "'messages[1].tool_calls[0].id'"),
    "call with an empty id": (request(USER, calls(call(""))), "'messages[1].tool_calls[0].id'"),
    "call id too long": (request(USER, calls(call("c" * 41)), result("c" * 41)), "maximum length 40"),
    "call of an unknown type": (
        request(USER, calls({**call(), "type": "magic"}), result()),
        "Invalid value: 'magic'",
    ),
    "call without function": (
        request(USER, calls(without("function", call())), result()),
        "tool_calls[0].function'",
    ),
    "call without name": (request(USER, calls(call(name=None)), result()), "tool_calls[0].function.name'"),
    "call with a bad name": (request(USER, calls(call(name="a b")), result()), "does not match pattern"),
    "call without arguments": (request(USER, calls(call(arguments=None)), result()), "function.arguments'"),
    "arguments as object": (
        request(USER, calls(call(arguments={})), result()),
        "expected a string, but got an object",
    ),
    "custom call without input": (
        request(USER, calls({"id": "c1", "type": "custom", "custom": {"name": "f"}}), result()),
        "tool_calls[0].custom.input'",
    ),
    # messages
    "no model": (without("model", request(USER)), "you must provide a model parameter"),
    "no messages": (without("messages", request()), "Missing required parameter: 'messages'"),
    "empty messages": (request(), "'messages': empty array"),
    "messages as text": (
        request(USER) | {"messages": "hi"},
        "expected an array of objects, but got a string",
    ),
    "message as text": (request("hi"), "'messages[0]': expected an object"),
    "no role": (request({"content": "hi"}), "'messages[0].role'"),
    "unknown role": (
        request({"role": "bot", "content": "hi"}),
        "Invalid value: 'bot'. Supported values are: 'system'",
    ),
    "user says nothing": (request({"role": "user", "content": None}), "expected a string, got null"),
    "system says nothing": (request({"role": "system"}, USER), "expected a string, got null"),
    "assistant says nothing": (
        request(USER, {"role": "assistant", "content": None}),
        "expected a string, got null",
    ),
    "tool says nothing": (request(USER, calls(call()), result(content=None)), "expected a string, got null"),
    "result without call id": (
        request(USER, calls(call()), without("tool_call_id", result())),
        "[2].tool_call_id'",
    ),
    "content as object": (
        request({"role": "user", "content": {"text": "hi"}}),
        "a string or array of objects",
    ),
    "content as number": (request({"role": "user", "content": 5}), "but got an integer instead"),
    "empty parts": (request({"role": "user", "content": []}), "'messages[0].content': empty array"),
    "part without type": (
        request({"role": "user", "content": [{"text": "hi"}]}),
        "'messages[0].content[0].type'",
    ),
    "part of unknown type": (
        request({"role": "user", "content": [{"type": "smell"}]}),
        "Invalid value: 'smell'",
    ),
    "part as text": (
        request({"role": "user", "content": ["hi"]}),
        "'messages[0].content[0]': expected an object",
    ),
    "text part without text": (request({"role": "user", "content": [{"type": "text"}]}), "content[0].text'"),
    "image without url": (
        request({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
        "content[0].image_url.url'",
    ),
    "image by the assistant": (
        request(USER, {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        "Invalid value: 'image_url'",
    ),
    "image in a result": (
        request(USER, calls(call()), result(content=[{"type": "image_url", "image_url": {"url": "x"}}])),
        "Invalid value: 'image_url'",
    ),
    "name with a space": (request({**USER, "name": "Ada L"}), "'messages[0].name': string does not match"),
    # tools
    "empty tools": (request(USER, tools=[]), "'tools': empty array"),
    "tools as object": (request(USER, tools={}), "'tools': expected an array of objects"),
    "tool as text": (request(USER, tools=["f"]), "'tools[0]': expected an object"),
    "tool of unknown type": (request(USER, tools=[{"type": "magic"}]), "Invalid value: 'magic'"),
    "tool without function": (request(USER, tools=[{"type": "function"}]), "'tools[0].function'"),
    "tool without name": (
        request(USER, tools=[{"type": "function", "function": {}}]),
        "'tools[0].function.name'",
    ),
    "tool with a dotted name": (
        request(USER, tools=[{"type": "function", "function": {"name": "a.b"}}]),
        "does not match pattern",
    ),
    "tool name too long": (
        request(USER, tools=[{"type": "function", "function": {"name": "a" * 65}}]),
        "does not match pattern",
    ),
    "two tools of one name": (request(USER, tools=[TOOL, TOOL]), "duplicate tool name 'f'"),
    "too many tools": (
        request(USER, tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]),
        "maximum length 128",
    ),
    "parameters no object schema": (
        request(
            USER, tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]
        ),
        "Invalid schema for function 'f'",
    ),
    "strict but open": (
        request(USER, tools=[strict(type="object", properties={})]),
        "'additionalProperties' is",
    ),
    "strict but optional": (
        request(USER, tools=[strict(type="object", properties={"a": {}}, additionalProperties=False)]),
        "Missing 'a'",
    ),
    "choice without tools": (request(USER, tool_choice="auto"), "only allowed when 'tools' are specified"),
    "choice of no such word": (request(USER, tools=[TOOL], tool_choice="maybe"), "Invalid value: 'maybe'"),
    "choice of an unknown tool": (
        request(USER, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}),
        "tool 'g' not found in 'tools'",
    ),
    "unknown tool among the allowed": (
        request(
            USER,
            tools=[TOOL],
            tool_choice={
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]},
            },
        ),
        "tool 'g' not found in 'tools'",
    ),
    "parallel without tools": (
        request(USER, parallel_tool_calls=True),
        "'parallel_tool_calls' is only allowed",
    ),
    # settings
    "stream options, no stream": (
        request(USER, stream_options={"include_usage": True}),
        "only allowed when 'stream'",
    ),
    "stream as text": (request(USER, stream="yes"), "'stream': expected a boolean"),
    "two output limits": (request(USER, max_tokens=5, max_completion_tokens=5), "at the same time"),
    "no output": (request(USER, max_completion_tokens=0), "Expected a value >= 1, but got 0"),
    "too hot": (request(USER, temperature=3), "Expected a value <= 2, but got 3"),
    "negative temperature": (request(USER, temperature=-1), "decimal below minimum value"),
    "too many stops": (request(USER, stop=list("abcde")), "maximum length 4"),
}

ACCEPTED: dict[str, dict[str, Any]] = {
    "one question": request(USER),
    "only a system message": request({"role": "system", "content": "s"}),
    "two users in a row": request(USER, USER),
    "system in the middle": request(
        USER, {"role": "assistant", "content": "a"}, {"role": "system", "content": "s"}
    ),
    "developer": request({"role": "developer", "content": "d"}, USER),
    "assistant at the end": request(USER, {"role": "assistant", "content": "a"}),
    "empty answer": request(USER, {"role": "assistant", "content": ""}, USER),
    "a refusal": request(USER, {"role": "assistant", "content": None, "refusal": "no"}, USER),
    "results in another order": request(
        USER, calls(call("c1"), call("c2")), result("c2"), result("c1"), tools=[TOOL]
    ),
    "the same id in another exchange": request(USER, calls(call()), result(), calls(call()), result()),
    "calls, but no tools any more": request(USER, calls(call()), result()),
    "broken arguments": request(USER, calls(call(arguments='{"a":')), result()),
    "unknown keys": request(USER, calls(call(), reasoning_content="hm"), result(), seed=1, unheard_of={}),
    "a custom call": request(
        USER, calls({"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}), result()
    ),
    "parts": request({"role": "user", "content": [{"type": "text", "text": "a"}]}),
    "a forced tool": request(
        USER,
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
    ),
    "a forbidden tool": request(USER, tools=[TOOL], tool_choice="none"),
    "streamed": request(USER, stream=True, stream_options={"include_usage": True}),
}


def recorded(data_dir: Path) -> Iterator[tuple[str, int, dict[str, Any], Any]]:
    """Record id, status, request body and response body of every recorded exchange."""
    path = data_dir / "recorded" / "openai-chat.jsonl.zst"
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as plain:
        for line in io.TextIOWrapper(plain, encoding="utf-8"):
            record = orjson.loads(line)
            for exchange in record["exchanges"]:
                body = exchange["request"]["body"]
                if "/deployments/" in exchange["request"]["path"]:
                    body = {"model": "named-by-the-path", **body}  # Azure's way to name the model
                response = exchange["response"]
                yield record["id"], response["status"], body, response.get("body")


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    """A request that OpenAI refuses is refused, in words that name the fault."""
    body, words = REJECTED[name]

    problems = check_openai(body)

    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    """A request that OpenAI takes passes."""
    assert check_openai(ACCEPTED[name]) == []


def test_recorded_accepted_requests_pass(data_dir: Path) -> None:
    """Every recorded request that its provider answered with 2xx breaks no rule."""
    checked = 0

    for record, status, body, _ in recorded(data_dir):
        if 200 <= status < 300:
            assert check_openai(body) == [], record
            checked += 1

    assert checked > 0


def test_recorded_accepted_requests_are_answered(data_dir: Path) -> None:
    """The simulator finds an answer to every recorded request that a provider found one to."""
    sim = SimServer()

    for record, status, body, _ in recorded(data_dir):
        if 200 <= status < 300:
            answer = sim.respond("POST", "/v1/chat/completions", {}, orjson.dumps(body))
            assert answer.status == 200, record


def test_recorded_shape_errors_are_flagged_in_the_same_words(data_dir: Path) -> None:
    """Recorded 400s about a missing part type or a tool's schema are found, word for word."""
    kinds = ("missing_required_parameter", "invalid_function_parameters")

    for record, status, body, answer in recorded(data_dir):
        if status == 400 and answer["error"].get("code") in kinds:
            assert check_openai(body)[0] == answer["error"]["message"], record


LEAVES: tuple[Any, ...] = (
    None,
    True,
    3,
    0.5,
    "",
    "user",
    "tool",
    "assistant",
    "c1",
    "f",
    "function",
    "custom",
)
KEYS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "id",
    "type",
    "function",
    "custom",
    "name",
    "arguments",
    "input",
    "text",
    "image_url",
    "url",
    "parameters",
    "strict",
    "required",
    "properties",
    "allowed_tools",
    "tools",
)


def some_json(random: Random, depth: int = 3) -> Any:
    shape = random.choice(("leaf", "list", "object", "object")) if depth else "leaf"
    if shape == "leaf":
        return random.choice(LEAVES)
    if shape == "list":
        return [some_json(random, depth - 1) for _ in range(random.randrange(4))]
    made = {key: some_json(random, depth - 1) for key in random.sample(KEYS, random.randrange(1, 6))}
    return made | {"role": random.choice(("tool", "assistant", "user"))}


def test_no_json_breaks_the_rules() -> None:
    """Whatever JSON comes, the rules answer with sentences and never raise."""
    random = Random(20261121)

    for _ in range(1_500):
        messages = [some_json(random) for _ in range(3)]
        tools = [some_json(random) for _ in range(2)]
        body = request(*messages, tools=tools, tool_choice=some_json(random), stop=some_json(random))

        assert all(isinstance(problem, str) for problem in check_openai(body))
