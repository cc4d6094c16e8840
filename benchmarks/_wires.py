"""Each provider API for the benchmarks: histories in its JSON, an instant answer, the plain SDK's turn.

Owns: the translation of the corpus and what the SDKs do for the same turn.
Must never know: how time is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2
from _conversations import ANSWER_TEXT, JSON, MODEL, Turn, answer, compact

__all__ = ["WIRES", "BenchedWire", "History"]

History: TypeAlias = list[dict[str, Any]]
_KEY = "sk-none"
_CLAUDE = "claude-sonnet-5"
_ID = "0123456789abcdef0123456789abcdef"
_WORDS = ("Your", " flight", " to", " Lisbon", " leaves", " at", " 14", ":", "15", ".", " Shall", " I", "?\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchedWire:
    """One wire. `plain` makes a turn as an application without this library would: JSON in, `create()`,
    JSON out; `sdk_stream` reads a whole event stream with the SDK's own typed stream. Backend and client are
    as they come, with the HTTP clients that they make themselves, but for the transport. `over_client` makes
    a backend of a client of one's own."""

    name: str
    create: str
    model: str
    path: str
    answer: Callable[[int], bytes]
    translated: Callable[[Iterable[Turn]], History]
    backend: Callable[[httpx2.BaseTransport], Any]
    over_client: Callable[[Any], Any]
    client: Callable[[httpx2.BaseTransport], Any]
    plain: Callable[[Any, str, str], str]
    body: Callable[[History], bytes]
    events: Callable[[int], Iterator[bytes]]
    sdk_stream: Callable[[bytes], object]

    def instant(self, input_tokens: int = 1200) -> httpx2.BaseTransport:
        """What an HTTP client sends over: no socket, always the same answer, whose usage has so many tokens.

        Give about as many as the history has. After far fewer, a turn checks whether the server cut the
        prompt, and reads the whole history for that.
        """
        return _Instant(self.answer(input_tokens))


class _Instant(httpx2.BaseTransport):
    """A model in this process. Like a transport over sockets, it hands out a body that was not read yet."""

    def __init__(self, answer: bytes) -> None:
        size = str(len(answer)).encode()
        kind = (b"Content-Type", b"application/json")
        self._headers = [kind, (b"X-Request-Id", b"req_0123456789"), (b"Content-Length", size)]
        self._answer = answer

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=self._headers, stream=httpx2.ByteStream(self._answer))


def _own_client(model: httpx2.BaseTransport) -> httpx2.Client:
    """An HTTP client as a backend makes it by itself. With another one, each post would run in a thread."""
    from goaitools_py.backends.http.deadlines import DeadlineClient

    return DeadlineClient(transport=model)


def _sse(event: Mapping[str, Any], *, named: bool = False) -> bytes:
    name = f"event: {event['type']}\n".encode() if named else b""
    return name + b"data: " + compact(event) + b"\n\n"


def _response(whole: bytes, url: str) -> httpx2.Response:
    return httpx2.Response(200, content=whole, request=httpx2.Request("POST", url))


# --------------------------------------------------------------------------------- Chat Completions


def _chat_history(turns: Iterable[Turn]) -> History:
    return [dict(message) for turn in turns for message in turn]


def _chat_backend(model: httpx2.BaseTransport) -> Any:

    from goaitools_py.backends.openai.backends import OpenAIChatBackend

    return OpenAIChatBackend(MODEL, http_client=_own_client(model), api_key=_KEY)


def _chat_over(client: Any) -> Any:
    from goaitools_py.backends.openai.backends import OpenAIChatBackend

    return OpenAIChatBackend(MODEL, client=client)


def _openai_client(model: httpx2.BaseTransport) -> Any:
    import openai

    return openai.OpenAI(api_key=_KEY, http_client=openai.DefaultHttpxClient(transport=model))


def _chat_plain(client: Any, json_blob: str, question: str) -> str:
    messages = json.loads(json_blob)
    messages.append({"role": "user", "content": question})
    completion = client.chat.completions.create(model=MODEL, messages=messages)
    messages.append({"role": "assistant", "content": completion.choices[0].message.content})
    return json.dumps(messages)


def _chat_events(words: int) -> Iterator[bytes]:
    base = {
        "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }

    def event(delta: object, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _sse({**base, "choices": [choice], "usage": None})

    yield event({"role": "assistant", "content": "", "refusal": None})
    for number in range(words):
        yield event({"content": _WORDS[number % len(_WORDS)]})
    yield event({}, "stop")
    usage = {"prompt_tokens": 1200, "completion_tokens": words, "total_tokens": 1200 + words}
    yield _sse({**base, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chat_stream(whole: bytes) -> object:
    import openai
    from openai.types.chat import ChatCompletionChunk

    stream = openai.Stream(
        cast_to=ChatCompletionChunk,
        response=_response(whole, "https://api.openai.com/v1/chat/completions"),
        client=openai.OpenAI(api_key=_KEY),
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


# ----------------------------------------------------------------------------------------- Responses


def _output_message(text: str, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04x}{_ID}",
        "type": "message",
        "status": "completed",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
        "role": "assistant",
    }


def _items(turns: Iterable[Turn]) -> History:
    items: History = []
    for message in (message for turn in turns for message in turn):
        if message["role"] == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message["tool_call_id"],
                    "output": message["content"],
                }
            )
            continue
        if message["role"] == "user":
            items.append({"role": "user", "content": message["content"]})
            continue
        if message.get("content"):
            items.append(_output_message(message["content"], len(items)))
        for call in message.get("tool_calls") or ():
            items.append(
                {
                    "id": f"fc_{len(items):04x}{_ID}",
                    "type": "function_call",
                    "status": "completed",
                    "call_id": call["id"],
                    **call["function"],
                }
            )
    return items


def _chat_answer(input_tokens: int) -> bytes:
    return answer({"role": "assistant", "content": ANSWER_TEXT}, prompt_tokens=input_tokens)


def _responses_answer(input_tokens: int = 1200) -> dict[str, Any]:
    return {
        "id": f"resp_{_ID}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "gpt-5-2026-01-01",
        "output": [_output_message(ANSWER_TEXT, 0xFFFF)],
        "parallel_tool_calls": True,
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + 20,
        },
    }


def _responses_backend(model: httpx2.BaseTransport) -> Any:

    from goaitools_py.backends.openai.backends import OpenAIResponsesBackend

    return OpenAIResponsesBackend(MODEL, http_client=_own_client(model), api_key=_KEY)


def _responses_over(client: Any) -> Any:
    from goaitools_py.backends.openai.backends import OpenAIResponsesBackend

    return OpenAIResponsesBackend(MODEL, client=client)


def _responses_plain(client: Any, json_blob: str, question: str) -> str:
    items = json.loads(json_blob)
    items.append({"role": "user", "content": question})
    response = client.responses.create(
        model=MODEL, input=items, store=False, include=["reasoning.encrypted_content"]
    )
    items.extend(item.to_dict() for item in response.output)
    return json.dumps(items)


def _responses_events(words: int) -> Iterator[bytes]:
    number = 0

    def event(kind: str, **members: Any) -> bytes:
        nonlocal number
        number += 1
        return _sse({"type": kind, "sequence_number": number, **members}, named=True)

    whole = _responses_answer()
    item = _output_message("".join(_WORDS[n % len(_WORDS)] for n in range(words)), 0)
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    started = {**item, "status": "in_progress", "content": []}
    yield event("response.created", response={**whole, "status": "in_progress", "output": []})
    yield event("response.output_item.added", output_index=0, item=started)
    yield event("response.content_part.added", **place, part={"type": "output_text", "text": ""})
    for n in range(words):
        yield event("response.output_text.delta", **place, delta=_WORDS[n % len(_WORDS)], logprobs=[])
    yield event("response.output_text.done", **place, text=item["content"][0]["text"], logprobs=[])
    yield event("response.content_part.done", **place, part=item["content"][0])
    yield event("response.output_item.done", output_index=0, item=item)
    yield event("response.completed", response={**whole, "output": [item]})


def _responses_stream(whole: bytes) -> object:
    import openai
    from openai.types.responses import ResponseStreamEvent

    stream: Any = openai.Stream(
        cast_to=ResponseStreamEvent,  # type: ignore[type-var]
        response=_response(whole, "https://api.openai.com/v1/responses"),
        client=openai.OpenAI(api_key=_KEY),
    )
    return "".join(event.delta for event in stream if event.type == "response.output_text.delta")


# ---------------------------------------------------------------------------------------- Anthropic


def _claude_history(turns: Iterable[Turn]) -> History:
    messages: History = []
    for turn in turns:
        results: list[dict[str, Any]] = []
        for message in turn:
            if message["role"] == "tool":
                results.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": message["tool_call_id"],
                        "content": message["content"] or "none",
                    }
                )
                continue
            if results:
                messages.append({"role": "user", "content": results})
                results = []
            if message["role"] == "user":
                messages.append({"role": "user", "content": [_text(message["content"])]})
                continue
            content = [_text(message["content"])] if message.get("content") else []
            content += [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": json.loads(call["function"]["arguments"]),
                }
                for call in message.get("tool_calls") or ()
            ]
            messages.append({"role": "assistant", "content": content})
        if results:
            messages.append({"role": "user", "content": results})
    return messages


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _claude_answer(input_tokens: int = 1200) -> dict[str, Any]:
    return {
        "id": "msg_0123456789abcdefghijkl",
        "type": "message",
        "role": "assistant",
        "model": _CLAUDE,
        "content": [_text(ANSWER_TEXT)],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 40,
            "cache_read_input_tokens": input_tokens - 52,
            "output_tokens": 20,
            "service_tier": "standard",
        },
    }


def _claude_backend(model: httpx2.BaseTransport) -> Any:

    from goaitools_py.backends.anthropic.backends import AnthropicBackend

    return AnthropicBackend(_CLAUDE, http_client=_own_client(model), api_key=_KEY)


def _claude_over(client: Any) -> Any:
    from goaitools_py.backends.anthropic.backends import AnthropicBackend

    return AnthropicBackend(_CLAUDE, client=client)


def _claude_client(model: httpx2.BaseTransport) -> Any:
    import anthropic

    return anthropic.Anthropic(api_key=_KEY, http_client=anthropic.DefaultHttpxClient(transport=model))


def _claude_plain(client: Any, json_blob: str, question: str) -> str:
    messages = json.loads(json_blob)
    messages.append({"role": "user", "content": [_text(question)]})
    message = client.messages.create(model=_CLAUDE, max_tokens=8192, messages=messages)
    messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
    return json.dumps(messages)


def _claude_events(words: int) -> Iterator[bytes]:
    def event(kind: str, **members: Any) -> bytes:
        return _sse({"type": kind, **members}, named=True)

    empty = {**_claude_answer(), "content": [], "stop_reason": None}
    yield event("message_start", message=empty)
    yield event("content_block_start", index=0, content_block=_text(""))
    for number in range(words):
        delta = {"type": "text_delta", "text": _WORDS[number % len(_WORDS)]}
        yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": words})
    yield event("message_stop")


def _claude_stream(whole: bytes) -> object:
    import anthropic
    from anthropic.types import RawMessageStreamEvent

    stream: Any = anthropic.Stream(
        cast_to=RawMessageStreamEvent,  # type: ignore[type-var]
        response=_response(whole, "https://api.anthropic.com/v1/messages"),
        client=anthropic.Anthropic(api_key=_KEY),
    )
    return "".join(
        event.delta.text
        for event in stream
        if event.type == "content_block_delta" and event.delta.type == "text_delta"
    )


# --------------------------------------------------------------------------------------------- table


def _bodies(key: str, **members: Any) -> Callable[[Sequence[JSON]], bytes]:
    return lambda history: compact({**members, key: history})


WIRES = {
    wire.name: wire
    for wire in (
        BenchedWire(
            name="openai",
            create="chat.completions.create()",
            model=MODEL,
            path="/chat/completions",
            answer=_chat_answer,
            translated=_chat_history,
            backend=_chat_backend,
            over_client=_chat_over,
            client=_openai_client,
            plain=_chat_plain,
            body=_bodies("messages", model=MODEL),
            events=_chat_events,
            sdk_stream=_chat_stream,
        ),
        BenchedWire(
            name="openai-responses",
            create="responses.create()",
            model=MODEL,
            path="/responses",
            answer=lambda tokens: compact(_responses_answer(tokens)),
            translated=_items,
            backend=_responses_backend,
            over_client=_responses_over,
            client=_openai_client,
            plain=_responses_plain,
            body=_bodies("input", model=MODEL, store=False),
            events=_responses_events,
            sdk_stream=_responses_stream,
        ),
        BenchedWire(
            name="anthropic",
            create="messages.create()",
            model=_CLAUDE,
            path="/v1/messages",
            answer=lambda tokens: compact(_claude_answer(tokens)),
            translated=_claude_history,
            backend=_claude_backend,
            over_client=_claude_over,
            client=_claude_client,
            plain=_claude_plain,
            body=_bodies("messages", model=_CLAUDE, max_tokens=8192),
            events=_claude_events,
            sdk_stream=_claude_stream,
        ),
    )
}
