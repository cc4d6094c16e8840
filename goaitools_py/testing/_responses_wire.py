"""Scripted replies in the shape of the Responses API.

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
    """A response. Reasoning is a summary and an invented `encrypted_content`. Token counts are a quarter of
    the bytes."""
    output = [_reasoning_item(reasoning, number)] if reasoning else []
    if text or not (calls or reasoning):
        output.append(_message_item(text, number))
    for position, (name, arguments) in enumerate(calls):
        output.append(
            {
                "id": f"fc_scripted_{number}_{position}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{number}_{position}",
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else rawjson.dumps(arguments).decode(),
            }
        )
    read, written = sent // 4, max(1, len(rawjson.dumps(output)) // 4)
    return {
        "id": f"resp_scripted_{number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": output,
        "store": False,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": len(reasoning) // 4},
            "total_tokens": read + written,
        },
    }


def _reasoning_item(reasoning: str, number: int) -> dict[str, Any]:
    return {
        "id": f"rs_scripted_{number}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": reasoning}],
        "encrypted_content": f"scripted-{number}",
    }


def _message_item(text: str, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_scripted_{number}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
    }


def as_events(body: Mapping[str, Any]) -> list[bytes]:
    """The same response as the chunks of an event stream, with the text word by word."""
    return [
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), rawjson.dumps({**event, "sequence_number": number}))
        for number, event in enumerate(_events(body))
    ]


def _events(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(body["output"]):
        yield from _item_events(item, {"item_id": item["id"], "output_index": index})
    yield {"type": "response.completed", "response": body}


def _item_events(item: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index = where["output_index"]
    if item["type"] == "reasoning":
        yield _added(index, {**item, "summary": [], "encrypted_content": ""})
        yield from _summary_events(item["summary"][0], {**where, "summary_index": 0})
    elif item["type"] == "message":
        yield _added(index, {**item, "status": "in_progress", "content": []})
        yield from _text_events(item["content"][0], {**where, "content_index": 0})
    else:
        kind = "response.function_call_arguments"
        yield _added(index, {**item, "status": "in_progress", "arguments": ""})
        yield {"type": f"{kind}.delta", **where, "delta": item["arguments"]}
        yield {"type": f"{kind}.done", **where, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _summary_events(part: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **where, "part": {**part, "text": ""}}
    for word in words(part["text"]):
        yield {"type": f"{kind}_text.delta", **where, "delta": word}
    yield {"type": f"{kind}_text.done", **where, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **where, "part": part}


def _text_events(part: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
    for word in words(part["text"]):
        yield {"type": "response.output_text.delta", **where, "delta": word, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}
