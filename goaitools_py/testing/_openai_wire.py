"""Scripted replies in the shape of the Chat Completions API.

Owns: that shape. Must never know: which test asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """A chat completion. Reasoning is in the member that compatible servers use. Token counts are a quarter
    of the bytes."""
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{position}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments
                    if isinstance(arguments, str)
                    else rawjson.dumps(arguments).decode(),
                },
            }
            for position, (name, arguments) in enumerate(calls)
        ]
    prompt, completion = sent // 4, max(1, len(rawjson.dumps(message)) // 4)
    return {
        "id": f"chatcmpl-scripted-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
    }


def as_events(body: Mapping[str, Any]) -> list[bytes]:
    """The same reply as the chunks of an event stream, with the text word by word."""
    choice = body["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None if message["content"] is None else ""}
    ]
    deltas.extend({"reasoning_content": word} for word in words(message.get("reasoning_content", "")))
    deltas.extend({"content": word} for word in words(message["content"] or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    base = {"id": body["id"], "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    chunks.append({**base, "choices": [], "usage": body["usage"]})
    return [b"data: " + rawjson.dumps(chunk) + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]
