"""Answers of a provider in its own JSON, unary or as a stream, whichever was asked for.

Owns: the envelope around a message, items or blocks that a test writes.
Must never know: the package's readers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from goaitools_py.backends.base import ModelRequest
from goaitools_py.testing.scripted import Raw

__all__ = ["anthropic_answer", "chat_answer", "responses_answer"]

_USAGE = {"input_tokens": 9, "output_tokens": 3}

Answer = Callable[[ModelRequest], Raw]


def _raw(request: ModelRequest, body: Any, events: Sequence[Any]) -> Raw:
    if not request.stream:
        return Raw.body(json.dumps(body).encode())
    chunks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return Raw([*chunks, b"data: [DONE]\n\n"] if "choices" in body else chunks)


def chat_answer(message: dict[str, Any], *, finish: str = "stop") -> Answer:
    """A chat completion. Streamed, each member of the message is a delta."""
    said = {"role": "assistant", **message}
    whole = {"id": "c", "object": "chat.completion", "model": "m", "usage": {"prompt_tokens": 9}}
    deltas: list[dict[str, Any]] = [{key: value} for key, value in said.items()]
    for delta in deltas:
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    chunks = [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    body = {**whole, "choices": [{"index": 0, "message": said, "finish_reason": finish}]}
    return lambda request: _raw(request, body, [*chunks, end])


def responses_answer(*items: dict[str, Any], status: str = "completed") -> Answer:
    """A response of these items."""
    body = {"id": "r", "object": "response", "model": "m", "status": status, "usage": _USAGE}
    body["output"] = list(items)
    done = [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(items)
    ]
    return lambda request: _raw(request, body, [*done, {"type": f"response.{status}", "response": body}])


def anthropic_answer(*blocks: dict[str, Any], stop: str = "end_turn") -> Answer:
    """A message of these blocks."""
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": _USAGE}
    body = {**head, "content": list(blocks), "stop_reason": stop}
    events: list[Any] = [{"type": "message_start", "message": {**head, "content": [], "stop_reason": None}}]
    for at, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": _USAGE})
    return lambda request: _raw(request, body, [*events, {"type": "message_stop"}])
