"""Reads states and requests in words that all wires share, so that one test can speak of each of them.

Owns: roles, texts, calls and results of a state, and what the simulator was asked. Requests are read by the
simulator's own eyes, which know nothing of the package's dialects.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from goaitools_py import Message
from goaitools_py.backends.base import ModelRequest
from goaitools_py.sim import Prompt, Recorded, Said
from goaitools_py.sim.anthropic.messages_api import AnthropicMessages
from goaitools_py.sim.http_values import read_body
from goaitools_py.sim.openai.chat_api import OpenAIChat
from goaitools_py.sim.openai.responses_api import OpenAIResponses
from goaitools_py.states import read_history, state_messages

WIRES = (OpenAIChat(), OpenAIResponses(), AnthropicMessages())

CHAT, RESPONSES, ANTHROPIC = "openai", "openai-responses", "anthropic"
OPENAI = (CHAT, RESPONSES)
ALL = (*OPENAI, ANTHROPIC)

HISTORY = {CHAT: "messages", RESPONSES: "input", ANTHROPIC: "messages"}
"""Where a request has its history."""

LEAD = {CHAT: 1, RESPONSES: 4, ANTHROPIC: 3}
"""So many events of a stream come before the first word of a text."""

MARK = b',"cache_control":{"type":"ephemeral"}'
"""The mark for the prompt cache that requests to Anthropic's wire carry on their last block."""


def on(wires: Sequence[str], *values: Any, id: str) -> list[Any]:
    """A case of a test that parametrises ``wire`` first, for each of some wires."""
    return [pytest.param(wire, *values, id=f"{id}-{wire}") for wire in wires]


# ---------------------------------------------------------------------------------------- states


def messages(state: bytes) -> tuple[Message, ...]:
    """Every message of a state in neutral words, the waiting ones last."""
    return read_history(state).all_messages()


def roles(state: bytes) -> list[str]:
    """Who speaks, message by message; each tool result is a message of its own."""
    return [message.role for message in messages(state)]


def texts(state: bytes, role: str) -> list[str]:
    """The texts of all messages of one role, in order."""
    return [message.text for message in messages(state) if message.role == role]


def users(state: bytes) -> list[str]:
    """What the user said, in order."""
    return texts(state, "user")


def results(state: bytes) -> list[str]:
    """The texts of a state's tool results, in order."""
    return texts(state, "tool")


def call_ids(state: bytes) -> list[str]:
    """The ids of a state's calls, in order."""
    return [call.id for message in messages(state) for call in message.tool_calls]


def result_ids(state: bytes) -> list[str]:
    """The call ids that a state's results answer, in order."""
    return [message.tool_call_id or "" for message in messages(state) if message.role == "tool"]


def has_calls(state: bytes) -> bool:
    """Whether the provider's own JSON of a state has a call in it, hosted ones left aside."""
    return any(_has_call(entry) for entry in state_messages(state))


def _has_call(value: Any) -> bool:
    if isinstance(value, Mapping):
        if value.get("tool_calls") or value.get("type") in ("function_call", "custom_tool_call", "tool_use"):
            return True
        return any(map(_has_call, value.values()))
    return isinstance(value, list) and any(map(_has_call, value))


def parts_of(value: Any, kind: str) -> list[Mapping[str, Any]]:
    """All JSON objects of a type, at any depth, in order."""
    if isinstance(value, Mapping):
        own = [value] if value.get("type") == kind else []
        return own + [part for inner in value.values() for part in parts_of(inner, kind)]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [part for inner in value for part in parts_of(inner, kind)]
    return []


# -------------------------------------------------------------------------------------- requests


def wire_of(request: Recorded | ModelRequest) -> Any:
    """The simulator's idea of the wire that a request is of. A backend's paths may lack their beginning."""
    path = request.path.partition("?")[0]
    (wire,) = (wire for wire in WIRES if wire.path.endswith(path))
    return wire


def parsed(request: Recorded | ModelRequest) -> dict[str, Any]:
    """A request's JSON."""
    return read_body(request.body).values


def prompt(request: Recorded | ModelRequest) -> Prompt:
    """A request as the simulated model sees it."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    seen: Prompt = wire_of(request).prompt(read_body(request.body, headers))
    return seen


def said(request: Recorded | ModelRequest) -> list[Said]:
    """The history of a request behind its preamble: the system messages that lead it."""
    history = list(prompt(request).history)
    while history and history[0].role == "system":
        history.pop(0)
    return history


def roles_sent(request: Recorded | ModelRequest) -> list[str]:
    """Who speaks in a request behind its preamble; each tool result is a message of its own."""
    return [one.role for one in said(request)]


def preamble(request: Recorded | ModelRequest) -> list[str]:
    """The texts of the system messages that lead a request."""
    values = parsed(request)
    if wire_of(request).name == ANTHROPIC:
        return [block["text"] for block in values.get("system", [])]
    history = history_sent(request)
    return [one["content"] for one in itertools.takewhile(_is_system, history)]


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def history_sent(request: Recorded | ModelRequest) -> list[Any]:
    """The provider's own JSON of a request's history, without marks for the prompt cache."""
    found: list[Any] = without_marks(parsed(request)[HISTORY[wire_of(request).name]])
    return found


def unmarked_history(request: Recorded | ModelRequest) -> bytes:
    """The very bytes of a request's history, without marks for the prompt cache."""
    return read_body(request.body).spans[HISTORY[wire_of(request).name]].replace(MARK, b"")


def without_marks(value: Any) -> Any:
    """JSON without marks for the prompt cache, which move with the end of a request."""
    if isinstance(value, Mapping):
        return {key: without_marks(inner) for key, inner in value.items() if key != "cache_control"}
    return [without_marks(inner) for inner in value] if isinstance(value, list) else value


def head(request: Recorded | ModelRequest) -> bytes:
    """The bytes of a request before its history."""
    return request.body.split(f',"{HISTORY[wire_of(request).name]}":'.encode())[0]


def tool_choice(request: Recorded | ModelRequest) -> str | None:
    """What a request says of calling tools: None, "auto", "none", "required", or the name of one."""
    choice = parsed(request).get("tool_choice")
    if choice is None or isinstance(choice, str):
        return choice
    if choice["type"] in ("function", "tool"):
        return str(choice.get("name") or choice["function"]["name"])
    return {"any": "required"}.get(choice["type"], choice["type"])
