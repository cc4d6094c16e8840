"""The Chat Completions API: requests in, completions and chunks out, in OpenAI's JSON.

Owns: the shapes of this endpoint. Must never know: a socket, the rules for sequences, or how the model finds
its reply. The shapes come from recorded responses of api.openai.com; ``created`` is fixed, so that equal
requests get equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..http_values import EVENT_STREAM, JSON, Body, Headers, Response, dump
from ..model.prompt import Call, Offer, Prompt, Said
from ..model.token_counts import Tokens
from ..wire import SimExchange
from .chat_rules import openai_refusals
from .common_rules import CREATED, OPENAI_NOT_JSON, WORDS, Refusal, error_object, offer_of, pieces, sim_model

__all__ = ["OpenAIChat"]

_FINGERPRINT = "sim"
_DONE = b"data: [DONE]\n\n"
_ROLES: Mapping[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


@dataclass(frozen=True, slots=True)
class OpenAIChat:
    """OpenAI Chat Completions."""

    name: str = "openai"
    path: str = "/v1/chat/completions"
    count_path: str = ""
    compact_path: str = ""
    root: str = "/v1"
    request_id_header: str = "x-request-id"
    not_json: Refusal = OPENAI_NOT_JSON

    def not_found(self, method: str, path: str) -> Refusal:
        """OpenAI's error for a wrong path."""
        return Refusal(f"Invalid URL ({method} {path})")

    def refusals(self, body: Body) -> list[Refusal]:
        """The problems of a request."""
        return openai_refusals(body.values)

    def prompt(self, body: Body) -> Prompt:
        """The prompt of a valid request."""
        values = body.values
        offers, must_call = _offers(values)
        options = values.get("stream_options")
        said = body.spans["messages"]
        return Prompt(
            model=values["model"],
            history=tuple(_said(message) for message in values["messages"]),
            # Without the closing bracket a longer history begins with the bytes of a shorter one.
            content=b"".join(
                (*(body.spans.get(key, b"") for key in ("tools", "response_format")), said.rstrip(b"]"))
            ),
            offers=offers,
            must_call=must_call,
            parallel=values.get("parallel_tool_calls") is not False,
            max_tokens=values.get("max_completion_tokens") or values.get("max_tokens"),
            stream=values.get("stream") is True,
            stream_usage=isinstance(options, dict) and options.get("include_usage") is True,
            schema=_schema(values.get("response_format")),
        )

    def count_body(self, body: Body) -> Body:
        """Never called: this provider API does not count."""
        return body

    def count(self, tokens: int) -> Response:
        """Never called: this provider API does not count."""
        raise NotImplementedError("Chat Completions has no endpoint that counts")

    def compacts(self, body: Body) -> bool:
        """False: this provider API does not compact."""
        return False

    def compaction(self, body: Body, summary: str, tokens: Tokens) -> Response:
        """Never called: this provider API does not compact."""
        raise NotImplementedError("Chat Completions has no compaction")

    def answer(self, exchange: SimExchange) -> Response:
        """A completion, or its chunks as events, the usage chunk and ``[DONE]`` last."""
        if exchange.prompt.stream:
            events = tuple(_event(chunk) for chunk in _chunks(exchange))
            return Response(headers=EVENT_STREAM, pieces=(*events, _DONE), streamed=True)
        completion = _envelope(exchange, "chat.completion")
        completion["choices"] = [
            {
                "index": 0,
                "message": _message(exchange),
                "logprobs": None,
                "finish_reason": _finish_word(exchange),
            }
        ]
        if exchange.reply.usage:
            completion["usage"] = _usage(exchange)
        return Response(headers=JSON, pieces=(dump(completion),))

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """A completion without choices."""
        kind = "chat.completion.chunk" if prompt.stream else "chat.completion"
        hollow = {"id": "chatcmpl-sim", "object": kind, "created": CREATED, "model": sim_model(prompt.model)}
        value = {**hollow, "choices": None if null else []}
        if prompt.stream:
            return Response(headers=EVENT_STREAM, pieces=(_event(value), _DONE), streamed=True)
        return Response(headers=JSON, pieces=(dump(value),))

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """OpenAI's error object."""
        return Response(status=status, headers=(*JSON, *headers), pieces=(dump(error_object(refusal)),))

    def error_event(self, refusal: Refusal) -> bytes:
        """The error object as an event."""
        return _event(error_object(refusal))


# ------------------------------------------------------------------------------------------- reading


def _said(message: Mapping[str, Any]) -> Said:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    return Said(
        role=_ROLES[message["role"]],
        text="".join(text for text in texts if isinstance(text, str)),
        calls=tuple(_call(call) for call in message.get("tool_calls") or ()),
        call_id=str(message.get("tool_call_id", "")),
        media=sum(part.get("type") not in ("text", "refusal") for part in parts),
    )


def _schema(shape: Any) -> Mapping[str, Any] | None:
    found = shape.get("json_schema") if isinstance(shape, dict) else None
    return found.get("schema") if isinstance(found, dict) else None


def _call(call: Mapping[str, Any]) -> Call:
    kind = call.get("type", "function")
    inner = call[kind]
    return Call(
        id=call["id"], name=inner["name"], arguments=inner["arguments" if kind == "function" else "input"]
    )


def _offers(values: Mapping[str, Any]) -> tuple[tuple[Offer, ...], bool]:
    """The function tools that may be called now, and whether one has to be called."""
    tools = [tool["function"] for tool in values.get("tools") or () if tool.get("type") != "custom"]
    offers = tuple(map(offer_of, tools))
    choice = values.get("tool_choice") or "auto"
    if isinstance(choice, str):
        return (() if choice == "none" else offers), choice in ("required", "any")
    allowed = choice.get("allowed_tools")
    entries = allowed["tools"] if allowed else [choice]
    names = {entry["function"]["name"] for entry in entries if entry.get("type") == "function"}
    chosen = tuple(offer for offer in offers if offer.name in names)
    return chosen, not allowed or allowed.get("mode") == "required"


# ------------------------------------------------------------------------------------------- writing


def _envelope(exchange: SimExchange, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{exchange.key}",
        "object": kind,
        "created": CREATED,
        "model": sim_model(exchange.prompt.model),
        "service_tier": "default",
        "system_fingerprint": _FINGERPRINT,
    }


def _message(exchange: SimExchange) -> dict[str, Any]:
    reply = exchange.reply
    silent = bool(exchange.calls or reply.refused) and not reply.content
    message: dict[str, Any] = {"role": "assistant", "content": None if silent else reply.content}
    if exchange.calls:
        message["tool_calls"] = [_function(call, call.arguments) for call in exchange.calls]
    return {**message, "refusal": reply.refused or None, "annotations": []}


def _function(call: Call, arguments: str) -> dict[str, Any]:
    function = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
    return {"id": call.id, **function} if call.id else function


def _finish_word(exchange: SimExchange) -> str:
    if exchange.reply.finish is not None:
        return exchange.reply.finish
    return "tool_calls" if exchange.calls else "stop"


def _usage(exchange: SimExchange) -> dict[str, Any]:
    tokens = exchange.tokens
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _chunks(exchange: SimExchange) -> Iterator[dict[str, Any]]:
    envelope = _envelope(exchange, "chat.completion.chunk")
    reports_usage = exchange.prompt.stream_usage and exchange.reply.usage
    if reports_usage:
        envelope["usage"] = None
    for delta in _deltas(exchange):
        yield {**envelope, "choices": _choice(delta, None)}
    yield {**envelope, "choices": _choice({}, _finish_word(exchange))}
    if reports_usage:
        yield {**envelope, "choices": [], "usage": _usage(exchange)}


def _choice(delta: Mapping[str, Any], finish: str | None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]


def _deltas(exchange: SimExchange) -> Iterator[dict[str, Any]]:
    reply = exchange.reply
    yield {"role": "assistant", "content": None if exchange.calls else "", "refusal": None}
    for word in WORDS.findall(reply.content):
        yield {"content": word}
    for word in WORDS.findall(reply.refused):
        yield {"refusal": word}
    for index, call in enumerate(exchange.calls):
        yield {"tool_calls": [{"index": index, **_function(call, "")}]}
        for piece in pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + dump(value) + b"\n\n"
