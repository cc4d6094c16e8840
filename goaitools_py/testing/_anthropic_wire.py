"""Scripted replies in the shape of Anthropic's Messages API.

Owns: that shape. Must never know: which test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base import rawjson
from ._words import words

__all__ = ["as_events", "reply"]


def reply(
    text: str,
    calls: Sequence[tuple[str, Mapping[str, Any] | str]],
    *,
    reasoning: str,
    model: str,
    number: int,
    sent: int,
) -> dict[str, Any]:
    """A message. Reasoning is a thinking block with an invented signature. Token counts are a quarter of the
    bytes. Arguments that are no JSON object stay text, which no real server would send in one body."""
    content: list[dict[str, Any]] = []
    if reasoning:
        content.append({"type": "thinking", "thinking": reasoning, "signature": f"scripted-{number}"})
    if text:
        content.append({"type": "text", "text": text})
    for position, (name, arguments) in enumerate(calls):
        id = f"toolu_{number}_{position}"
        content.append({"type": "tool_use", "id": id, "name": name, "input": _input(arguments)})
    return {
        "id": f"msg_scripted_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": sent // 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": max(1, len(rawjson.dumps(content)) // 4),
        },
    }


def _input(arguments: Mapping[str, Any] | str) -> object:
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        parsed = rawjson.loads(arguments.encode())
    except rawjson.RawJSONError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def as_events(body: Mapping[str, Any]) -> list[bytes]:
    """The same message as the chunks of an event stream, with the text word by word."""
    return [
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), rawjson.dumps(event)) for event in _events(body)
    ]


def _events(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(body["content"]):
        empty, deltas = _begun(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": body["usage"]}
    yield {"type": "message_stop"}


def _begun(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The start of a block, and the deltas that complete it."""
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": word} for word in words(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in words(block["text"])]
    written = block["input"] if isinstance(block["input"], str) else rawjson.dumps(block["input"]).decode()
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]
