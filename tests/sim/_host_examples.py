"""For each rule of a host, a request that breaks it and the nearest one that does not.

Owns: the requests, by provider API and name of the rule. Must never know: the words of a refusal.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from goaitools_py.sim import SimServer

__all__ = ["EXAMPLES", "Example", "ask"]

JSON = Mapping[str, Any]
HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
PATHS = {"openai": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}


def ask(sim: SimServer, wire: str, body: Mapping[str, Any]) -> tuple[int, Any]:
    """Status and JSON of the answer."""
    response = sim.respond("POST", PATHS[wire], HEADERS, json.dumps(body).encode())
    if response.streamed:
        return response.status, response.body.decode()
    return response.status, json.loads(response.body)


class Example(NamedTuple):
    """A request that breaks a rule, and one that does not."""

    bad: JSON
    good: JSON


USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "Hello."}
SYSTEM = {"role": "system", "content": "Be kind."}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def chat(*messages: Any, **more: Any) -> JSON:
    """A request of Chat Completions. The model's name is no model's that some host treats in its own way."""
    return {"model": "some-model", "messages": [*messages], **more}


def call(**more: Any) -> JSON:
    """A reply with one call. Its id suits every host."""
    function = {"name": "f", "arguments": more.pop("arguments", "{}")}
    made = {
        "id": more.pop("id", "abcdefgh1"),
        "type": "function",
        "function": function,
        **more.pop("inner", {}),
    }
    return {"role": "assistant", "content": None, "tool_calls": [made], **more}


def result(**more: Any) -> JSON:
    """The result of `call`."""
    return {"role": "tool", "tool_call_id": "abcdefgh1", "content": "ok", **more}


def without(message: JSON, *keys: str) -> JSON:
    """The message without these members."""
    return {key: value for key, value in message.items() if key not in keys}


def picture(url: str) -> JSON:
    """A part with a picture."""
    return {"type": "image_url", "image_url": {"url": url}}


def parts(*given: JSON, role: str = "user", **more: Any) -> JSON:
    """A message with a text and other parts."""
    return {"role": role, "content": [{"type": "text", "text": "See."}, *given], **more}


def tool(schema: JSON | None = None, **more: Any) -> JSON:
    """A tool with one property of this schema."""
    properties = {} if schema is None else {"p": schema}
    return {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": properties}, **more},
    }


def offering(*tools: JSON, **more: Any) -> JSON:
    """A request with tools."""
    return chat(USER, tools=[*tools], **more)


THOUGHT = call(reasoning_content="Hm.")
NAMED = {"type": "function", "function": {"name": "f"}}
SIGNED = call(inner={"extra_content": {"google": {"thought_signature": "abc"}}})
CHAT: dict[str, Example] = {
    "no developer": Example(chat({"role": "developer", "content": "Hm."}, USER), chat(SYSTEM, USER)),
    "no pictures": Example(chat(parts(picture("data:image/png;base64,AA=="))), chat(parts())),
    "reasoning beside calls": Example(
        chat(USER, call(), result(), USER, tools=[TOOL]), chat(USER, THOUGHT, result(), USER, tools=[TOOL])
    ),
    "no forced choice while thinking": Example(
        offering(TOOL, tool_choice="required"), offering(TOOL, tool_choice="auto")
    ),
    "no JSON Schema": Example(
        chat(USER, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}),
        chat(USER, response_format={"type": "json_object"}),
    ),
    "no mute assistant": Example(chat(USER, {**SAID, "content": ""}, USER), chat(USER, SAID, USER)),
    "temperature of 1": Example(chat(USER, temperature=0.5), chat(USER, temperature=1)),
    "names begin with a letter": Example(offering(tool(name="21st")), offering(tool(name="m_21st"))),
    "no type beside anyOf": Example(
        offering(tool({"type": "string", "anyOf": [{"type": "string"}]})),
        offering(tool({"anyOf": [{"type": "string"}]})),
    ),
    "nothing beside $ref": Example(
        offering(tool({"$ref": "#/$defs/A", "description": "a", "default": 1})),
        offering(tool({"$ref": "#/$defs/A"})),
    ),
    "properties have types": Example(
        offering(tool({"description": "anything"})), offering(tool({"type": "string"}))
    ),
    "only known members": Example(
        chat(USER, {**SAID, "reasoning_content": "Hm."}, USER), chat(USER, SAID, USER)
    ),
    "ids of nine": Example(
        chat(USER, call(id="call_1"), result(tool_call_id="call_1")), chat(USER, call(), result())
    ),
    "no user after a result": Example(
        chat(USER, call(), result(), USER), chat(USER, call(), result(), SAID, USER)
    ),
    "ends open": Example(chat(USER, SAID), chat(USER, {**SAID, "prefix": True})),
    "no reasoning_content of an assistant": Example(
        chat(USER, {**SAID, "reasoning_content": "Hm."}, USER), chat(USER, {**SAID, "reasoning": "Hm."}, USER)
    ),
    "no name of a user": Example(chat({**USER, "name": "Ada"}), chat(USER)),
    "no reasoning of other models": Example(
        chat(USER, {**SAID, "reasoning": "Hm."}, USER) | {"model": "llama-3.3-70b-versatile"},
        chat(USER, SAID, USER) | {"model": "llama-3.3-70b-versatile"},
    ),
    "one choice": Example(chat(USER, n=2), chat(USER, n=1)),
    "calls are signed": Example(
        chat(USER, call(), result(), tools=[TOOL]), chat(USER, SIGNED, result(), tools=[TOOL])
    ),
    "calls after a user": Example(
        chat(USER, SAID, SIGNED, result(), tools=[TOOL]), chat(USER, SIGNED, result(), tools=[TOOL])
    ),
    "no empty content": Example(
        chat(USER, {**SAID, "content": ""}, USER), chat(USER, call(content=""), result(content=""), USER)
    ),
    "no strict tools": Example(offering(tool(strict=False)), offering(TOOL)),
    "no picture in a result": Example(
        chat(
            USER, call(), parts(picture("data:image/png;base64,AA=="), role="tool", tool_call_id="abcdefgh1")
        ),
        chat(USER, call(), parts(role="tool", tool_call_id="abcdefgh1")),
    ),
    "no empty schema": Example(
        offering(tool({"anyOf": [{"required": ["a"]}]})), offering(tool({"anyOf": [{"type": "string"}]}))
    ),
    "no empty list of tools": Example(chat(USER, tools=[]), offering(TOOL)),
    "no choice without tools": Example(chat(USER, tool_choice="auto"), offering(TOOL, tool_choice="auto")),
    "stream options with a stream": Example(
        chat(USER, stream_options={"include_usage": True}),
        chat(USER, stream_options={"include_usage": True}, stream=True),
    ),
    "arguments are objects": Example(
        chat(USER, call(arguments='{"a":'), result()), chat(USER, call(arguments='{"a":1}'), result())
    ),
    "roles alternate": Example(chat(SYSTEM, USER, USER), chat(SYSTEM, USER, SAID, USER)),
    "system first": Example(chat(SYSTEM, USER, SAID, SYSTEM, USER), chat(SYSTEM, USER, SAID, USER)),
    "some user": Example(chat(SYSTEM), chat(SYSTEM, USER)),
    "not content, reasoning and calls": Example(
        chat(USER, call(content="Well.", reasoning_content="Hm."), result()),
        chat(USER, call(reasoning_content="Hm."), result()),
    ),
    "no prefill while thinking": Example(chat(USER, SAID), chat(USER, SAID, USER)),
    "known parts": Example(
        chat(parts({"type": "file", "file": {"file_data": "AA=="}})),
        chat(parts(picture("data:image/png;base64,AA=="))),
    ),
    "no null without calls": Example(
        chat(USER, {**SAID, "content": None, "refusal": "No."}, USER), chat(USER, call(), result())
    ),
    "pictures in the request": Example(
        chat(parts(picture("https://a.example/a.png"))), chat(parts(picture("data:image/png;base64,AA==")))
    ),
    "one system message": Example(chat(SYSTEM, SYSTEM, USER), chat(SYSTEM, USER)),
    "results answer calls": Example(
        chat(USER, call(), result(tool_call_id="abcdefgh2")), chat(USER, call(), result())
    ),
    "content is text": Example(chat(USER, call(), result()), chat(USER, call(content=""), result())),
    "tools beside calls": Example(
        chat(USER, call(), result(), SAID, USER), chat(USER, call(), result(), SAID, USER, tools=[TOOL])
    ),
    "no tools for Sonar": Example(
        offering(TOOL) | {"model": "sonar-pro"}, chat(USER) | {"model": "sonar-pro"}
    ),
    "no settings of others": Example(
        chat(USER, logprobs=True, reasoning={"effort": "low"}, presence_penalty=0),
        chat(USER, temperature=0.5),
    ),
}


def asked(*items: Any, **more: Any) -> JSON:
    """A request of the Responses API, which is not stored."""
    return {"model": "grok-4", "input": [*items], "store": False, **more}


FLAT = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}
CALLED = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
ANSWERED = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
REASONED = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
ANSWER = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
FILE = {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}
RESPONSES: dict[str, Example] = {
    "reasoning sealed here": Example(
        asked(USER, {**REASONED, "encrypted_content": "sim1-elsewhere.AAAA"}, ANSWER, USER),
        asked(USER, ANSWER, USER),
    ),
    "at most 128 tools": Example(
        asked(USER, tools=[{**FLAT, "name": f"f{at}"} for at in range(129)]), asked(USER, tools=[FLAT])
    ),
    "no effort of other models": Example(asked(USER, reasoning={"effort": "low"}), asked(USER)),
    "not in the background": Example(asked(USER, background=True), asked(USER)),
    "arguments are objects": Example(
        asked(USER, {**CALLED, "arguments": "[1"}, ANSWERED), asked(USER, CALLED, ANSWERED)
    ),
    "reasoning has an id": Example(
        asked(USER, without(REASONED, "id"), ANSWER, USER), asked(USER, REASONED, ANSWER, USER)
    ),
    "replies have a status": Example(
        asked(USER, without(ANSWER, "status"), USER),
        asked(USER, {"role": "assistant", "content": "Hello."}, USER),
    ),
    "known items": Example(
        asked(USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, ANSWER, USER),
        asked(USER, ANSWER, USER),
    ),
    "no files": Example(asked(FILE), asked(USER)),
    "nothing stored": Example(asked(USER, previous_response_id="resp_1"), asked(USER)),
    "reasoning has content": Example(
        asked(USER, {**REASONED, "content": []}, ANSWER, USER), asked(USER, REASONED, ANSWER, USER)
    ),
    "replies have a type": Example(asked(USER, without(ANSWER, "type"), USER), asked(USER, ANSWER, USER)),
    "results are text": Example(
        asked(
            USER,
            CALLED,
            {**ANSWERED, "output": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        ),
        asked(USER, CALLED, {**ANSWERED, "output": [{"type": "input_text", "text": "ok"}]}),
    ),
    "no developer": Example(asked({"role": "developer", "content": "Hm."}, USER), asked(SYSTEM, USER)),
    "calls are answered": Example(asked(USER, CALLED), asked(USER, CALLED, ANSWERED)),
}


def told(*messages: Any, **more: Any) -> JSON:
    """A request of the Messages API."""
    return {"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": [*messages], **more}


def png(width: int) -> JSON:
    """A block with a picture of this width. Only its header is there."""
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, 10)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(header).decode()}
    return {"type": "image", "source": source}


USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
USED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]}
OFFER = {"name": "f", "input_schema": {"type": "object"}}
EMPTY = {"type": "thinking", "thinking": "", "signature": "x"}
MESSAGES: dict[str, Example] = {
    "small pictures among many": Example(
        told({"role": "user", "content": [png(2001), *[png(10)] * 20]}),
        told({"role": "user", "content": [png(2001), *[png(10)] * 19]}),
    ),
    "no mark of the whole request": Example(told(USER, cache_control={"type": "ephemeral"}), told(USER)),
    "no system messages": Example(told(USER, SYSTEM, USER), told(USER, system="Be kind.")),
    "tools beside calls": Example(
        told(USER, {"role": "assistant", "content": [USE]}, USED),
        told(USER, {"role": "assistant", "content": [USE]}, USED, tools=[OFFER]),
    ),
    "thinking beside calls": Example(
        told(USER, {"role": "assistant", "content": [USE]}, USED, tools=[OFFER]),
        told(USER, {"role": "assistant", "content": [EMPTY, USE]}, USED, tools=[OFFER]),
    ),
}
EXAMPLES = {"openai": CHAT, "openai-responses": RESPONSES, "anthropic": MESSAGES}
"""By provider API and name of the rule."""
