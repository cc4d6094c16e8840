"""The JSON of scripted replies, in the shape of each provider API.

Owns: these shapes, and where a text is cut into the pieces of a stream. Must never know: which test asks for
a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..base import rawjson

__all__ = ["SHAPES", "ReplyShape"]


def _words(text: str) -> list[str]:
    """The words of the text, each with the space after it. Empty text has no words."""
    pieces = text.split(" ")
    return [piece + " " for piece in pieces[:-1]] + pieces[-1:] if text else []


# ------------------------------------------------------------------------------------ Chat Completions


def _chat_reply(
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


def _chat_chunks(body: Mapping[str, Any]) -> list[bytes]:
    """The same reply as the chunks of an event stream, with the text word by word."""
    choice = body["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None if message["content"] is None else ""}
    ]
    deltas.extend({"reasoning_content": word} for word in _words(message.get("reasoning_content", "")))
    deltas.extend({"content": word} for word in _words(message["content"] or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    base = {"id": body["id"], "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    chunks.append({**base, "choices": [], "usage": body["usage"]})
    return [b"data: " + rawjson.dumps(chunk) + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


# -------------------------------------------------------------------------------------------- Responses


def _responses_reply(
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
    output = [_responses_reasoning_item(reasoning, number)] if reasoning else []
    if text or not (calls or reasoning):
        output.append(_responses_message_item(text, number))
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


def _responses_reasoning_item(reasoning: str, number: int) -> dict[str, Any]:
    return {
        "id": f"rs_scripted_{number}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": reasoning}],
        "encrypted_content": f"scripted-{number}",
    }


def _responses_message_item(text: str, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_scripted_{number}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
    }


def _responses_chunks(body: Mapping[str, Any]) -> list[bytes]:
    """The same response as the chunks of an event stream, with the text word by word."""
    return [
        b"event: %b\ndata: %b\n\n"
        % (event["type"].encode(), rawjson.dumps({**event, "sequence_number": number}))
        for number, event in enumerate(_responses_events(body))
    ]


def _responses_events(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(body["output"]):
        yield from _responses_item_events(item, {"item_id": item["id"], "output_index": index})
    yield {"type": "response.completed", "response": body}


def _responses_item_events(item: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    index = where["output_index"]
    if item["type"] == "reasoning":
        yield _responses_added(index, {**item, "summary": [], "encrypted_content": ""})
        yield from _responses_summary_events(item["summary"][0], {**where, "summary_index": 0})
    elif item["type"] == "message":
        yield _responses_added(index, {**item, "status": "in_progress", "content": []})
        yield from _responses_text_events(item["content"][0], {**where, "content_index": 0})
    else:
        kind = "response.function_call_arguments"
        yield _responses_added(index, {**item, "status": "in_progress", "arguments": ""})
        yield {"type": f"{kind}.delta", **where, "delta": item["arguments"]}
        yield {"type": f"{kind}.done", **where, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _responses_added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _responses_summary_events(part: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **where, "part": {**part, "text": ""}}
    for word in _words(part["text"]):
        yield {"type": f"{kind}_text.delta", **where, "delta": word}
    yield {"type": f"{kind}_text.done", **where, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **where, "part": part}


def _responses_text_events(part: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
    for word in _words(part["text"]):
        yield {"type": "response.output_text.delta", **where, "delta": word, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


# -------------------------------------------------------------------------------------------- Anthropic


def _anthropic_reply(
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
        content.append({"type": "tool_use", "id": id, "name": name, "input": _anthropic_input(arguments)})
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


def _anthropic_input(arguments: Mapping[str, Any] | str) -> object:
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        parsed = rawjson.loads(arguments.encode())
    except rawjson.RawJSONError:
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _anthropic_chunks(body: Mapping[str, Any]) -> list[bytes]:
    """The same message as the chunks of an event stream, with the text word by word."""
    return [
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), rawjson.dumps(event))
        for event in _anthropic_events(body)
    ]


def _anthropic_events(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(body["content"]):
        empty, deltas = _anthropic_begun(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": body["usage"]}
    yield {"type": "message_stop"}


def _anthropic_begun(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The start of a block, and the deltas that complete it."""
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": word} for word in _words(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in _words(block["text"])]
    written = block["input"] if isinstance(block["input"], str) else rawjson.dumps(block["input"]).decode()
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]


# -------------------------------------------------------------------------------------------- the shapes


class ReplyShape(NamedTuple):
    """The two functions of one provider API; see `scripted.Shape`."""

    reply: Callable[..., dict[str, Any]]
    as_events: Callable[[Mapping[str, Any]], list[bytes]]


SHAPES: Final[Mapping[str, ReplyShape]] = {
    "openai": ReplyShape(_chat_reply, _chat_chunks),
    "openai-responses": ReplyShape(_responses_reply, _responses_chunks),
    "anthropic": ReplyShape(_anthropic_reply, _anthropic_chunks),
}
