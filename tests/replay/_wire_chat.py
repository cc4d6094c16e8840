"""OpenAI's Chat Completions for the replay: where things stand, and what may differ in a replayed answer.

Owns: this wire's half of the replay, written down a second time and on purpose apart from the package.
Must never know: how a thread is driven, or another wire.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from goaitools_py import Audio, Document, Image, Message, ModelSettings, ProviderTool, Text, Tool
from goaitools_py.backends import AsyncOpenAIChatBackend, OpenAIChatBackend
from goaitools_py.base import rawjson

from ._recorded import Exchange
from ._rules import differences, known_part
from ._wire import JSON, Move, Part, Result, Said, Spoken, Wire, comparable, joined, placeholder, sse_events

__all__ = ["CHAT"]

_RESPONSE_ONLY = frozenset({"annotations"})
_LEFT_OUT_WHEN_HOLLOW = frozenset({"refusal", "audio", "function_call", "tool_calls"})
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "parallel_tool_calls": "parallel_tool_calls",
    "reasoning_effort": "reasoning_effort",
    "prompt_cache_key": "prompt_cache_key",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
}
_CHATS_OWN = frozenset({"model", "messages", "tools", "stream", "stream_options"})


class _Chat(Wire):
    name = "openai"
    recording = "openai-chat.jsonl.zst"
    path = "/chat/completions"
    key = "messages"
    first_party = ("api.openai.com", ".openai.azure.com")
    retired: frozenset[str] = frozenset()
    runs_together = False

    # requests

    def why_not(self, exchange: Exchange) -> str:
        return ""

    def schema(self, exchange: Exchange | None) -> str:
        return "sdk-openai-chat.schema.json"

    def history(self, body: JSON) -> list[JSON]:
        return list(body["messages"])

    def lead(self, history: Sequence[JSON]) -> int:
        return len(list(takewhile(lambda message: message["role"] in ("system", "developer"), history)))

    def preamble(self, body: JSON) -> tuple[Message, ...]:
        return ()

    def is_spoken(self, element: JSON) -> bool:
        return bool(element["role"] == "assistant")

    def moves(self, element: JSON) -> Iterator[Move]:
        content = element.get("content")
        if element["role"] == "assistant":
            yield Spoken(element)
        elif element["role"] == "tool":
            parts = [_part(part) for part in content] if isinstance(content, list) else content or ""
            yield Result(element.get("tool_call_id") or "", parts)
        else:
            role: Any = "system" if element["role"] == "developer" else element["role"]
            said = [_part(part) for part in content] if isinstance(content, list) else [Text(content or "")]
            yield Said(Message(role=role, parts=joined(said)))

    def client_words(self, history: Sequence[JSON]) -> list[Any]:
        return [
            comparable(
                {
                    "role": "system" if message["role"] == "developer" else message["role"],
                    "content": _wordless(message.get("content")),
                }
            )
            for message in history
            if message["role"] != "assistant"
        ]

    def tools(self, body: JSON, run: Callable[..., Any]) -> Iterator[Tool[..., Any] | ProviderTool]:
        for tool in body.get("tools") or ():
            function = tool.get("function")
            if not isinstance(function, Mapping):
                yield ProviderTool(tool)
                continue
            parameters = function.get("parameters") or {"type": "object", "properties": {}}
            yield Tool(
                function["name"],
                function.get("description") or "",
                parameters,
                run,
                strict=bool(function.get("strict")),
            )

    def settings(self, body: JSON) -> ModelSettings:
        given = {key: value for key, value in body.items() if value is not None and key not in _CHATS_OWN}
        named: dict[str, Any] = {_SETTINGS[key]: given.pop(key) for key in tuple(given) if key in _SETTINGS}
        match given.get("tool_choice"):
            case "auto" | "none" | "required":
                named["tool_choice"] = given.pop("tool_choice")
            case {"type": "function", "function": {"name": str(name)}}:
                named["tool_choice"] = name
                del given["tool_choice"]
        if given:
            named["extra_body"] = given
        return ModelSettings(**named)

    # answers

    def answer(self, exchange: Exchange) -> list[JSON] | None:
        choice = _choice(exchange)
        message = choice and choice.get("message")
        return [message] if message else None

    def is_whole(self, exchange: Exchange) -> bool:
        choice = _choice(exchange) or {}
        is_ended = choice.get("finish_reason") is not None or "data: [DONE]" in exchange.response.get(
            "sse", ""
        )
        return not exchange.was_streamed or is_ended

    def is_paused(self, exchange: Exchange) -> bool:
        return False

    def places(self, history: Sequence[JSON], exchange: Exchange) -> tuple[int, ...]:
        """It is what the assistant says next; some clients put an empty message of its before that."""
        for at in range(len(exchange.history), len(history)):
            message = history[at]
            if message["role"] == "assistant" and (message.get("content") or message.get("tool_calls")):
                return (at,)
        return ()

    def completion(self, spoken: Sequence[JSON], number: int = 0) -> bytes:
        (message,) = spoken
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        return json.dumps(
            {
                "id": f"chatcmpl-stand-in-{number}",
                "object": "chat.completion",
                "created": 0,
                "model": "stand-in",
                "choices": [{"index": 0, "message": dict(message), "finish_reason": reason}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()

    def calls(self, spoken: Sequence[JSON]) -> list[str]:
        return [call.get("id") or "" for message in spoken for call in message.get("tool_calls") or ()]

    def call_names(self, spoken: Sequence[JSON]) -> list[str]:
        calls = [call for message in spoken for call in message.get("tool_calls") or ()]
        return [(call.get("function") or call["custom"])["name"] for call in calls]

    def text(self, spoken: Sequence[JSON]) -> str:
        contents = [message.get("content") for message in spoken]
        return "".join(
            content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
            for content in contents
            if content
        )

    def results(self, elements: Sequence[JSON]) -> dict[str, str]:
        return {
            message["tool_call_id"]: self.text([message]) for message in elements if message["role"] == "tool"
        }

    def with_ids(self, spoken: Sequence[bytes], ids: Mapping[str, str]) -> list[bytes]:
        (message,) = spoken
        spans = rawjson.items(rawjson.members(message).get("tool_calls", b"[]"))
        renamed = [
            rawjson.replaced(span, {"id": rawjson.dumps(ids[found])})
            if (found := json.loads(span).get("id")) in ids
            else span
            for span in spans
        ]
        if renamed == spans:
            return [message]
        return [rawjson.replaced(message, {"tool_calls": b"[" + b",".join(renamed) + b"]"})]

    # the rules

    def against_answer(self, ours: Sequence[bytes], exchange: Exchange) -> list[str]:
        if exchange.answer is None:
            return ["the recording has no answer"]
        (message,) = ours
        (answer,) = exchange.answer
        found = json.loads(message)
        wanted = _request_form(answer, is_first_party=exchange.is_first_party)
        if not exchange.was_streamed:
            problems = list(differences(found, wanted))
            return problems or list(_changed_bytes(message, _raw_answer(exchange)))
        # The recording's reader leaves out keys it does not know; every one must have been in a piece.
        unknown = set(found) - set(wanted) - _delta_keys(exchange)
        known = known_part(found, wanted)
        return [*(f"{key} was made up" for key in sorted(unknown)), *differences(known, wanted)]

    def same_value(self, exchange: Exchange) -> Mapping[str, str]:
        return {}

    # conversations

    def told(self, messages: Sequence[JSON]) -> list[JSON]:
        return list(messages)

    def told_tools(self, tools: Sequence[JSON]) -> list[JSON]:
        return list(tools)

    # connections

    def backend(self, *, is_async: bool) -> Callable[..., Any]:
        return AsyncOpenAIChatBackend if is_async else OpenAIChatBackend


CHAT = _Chat()


def _choice(exchange: Exchange) -> Mapping[str, Any] | None:
    completion = exchange.assembled if exchange.was_streamed else exchange.response.get("body")
    choices = completion.get("choices") if isinstance(completion, Mapping) else None
    return choices[0] if choices else None


def _raw_answer(exchange: Exchange) -> bytes:
    """The message as the bytes that the provider sent."""
    choice = rawjson.items(rawjson.members(exchange.raw_body)["choices"])[0]
    return rawjson.members(choice)["message"]


def _delta_keys(exchange: Exchange) -> frozenset[str]:
    """Every key that a piece of a streamed answer had."""
    choices = (
        choice
        for piece in sse_events(exchange.response["sse"])
        for choice in (piece.get("choices") or [])[:1]
    )
    return frozenset(key for choice in choices for key in choice.get("delta") or ())


def _request_form(answer: JSON, *, is_first_party: bool) -> dict[str, Any]:
    form = {
        key: value
        for key, value in answer.items()
        if key not in _RESPONSE_ONLY and not (key in _LEFT_OUT_WHEN_HOLLOW and _is_hollow(value))
    }
    if "tool_calls" in form:
        form["tool_calls"] = [_call_form(call, is_first_party) for call in form["tool_calls"]]
    elif form.get("content") is None:
        form["content"] = ""  # null is fine beside calls only
    if "audio" in form:
        form["audio"] = {"id": form["audio"]["id"]}
    return form


def _call_form(call: JSON, is_first_party: bool) -> dict[str, Any]:
    other = "function" if _is_hollow(call.get("function")) else "custom"
    left_out = {other} | ({"index"} if is_first_party else set())
    return {key: value for key, value in call.items() if key not in left_out}


def _is_hollow(value: Any) -> bool:
    return all(map(_is_hollow, value.values())) if isinstance(value, Mapping) else not value


def _changed_bytes(ours: bytes, answer: bytes) -> Iterator[str]:
    """Members whose bytes are not the provider's, of those that nothing had to be cut from."""
    theirs = rawjson.members(rawjson.one_line(answer))
    for key, span in rawjson.members(ours).items():
        if key == "tool_calls":
            if list(_argument_spans(span)) != list(_argument_spans(theirs[key])):
                yield "the bytes of arguments changed"
        elif key == "content" and theirs.get(key) == b'""':
            if not rawjson.is_null(span):  # beside calls it is stored as null
                yield "an empty content became another one"
        elif key in theirs and not rawjson.is_null(theirs[key]) and key != "audio" and span != theirs[key]:
            yield f"the bytes of {key} changed"


def _argument_spans(calls: bytes) -> Iterator[bytes]:
    for call in rawjson.items(calls):
        function = rawjson.members(call).get("function", b"null")
        if function.startswith(b"{"):
            yield rawjson.members(function).get("arguments", b"")


# ------------------------------------------------------------------------- recorded words, neutrally


def _part(part: Any) -> Part:
    try:
        match part:
            case str():
                return Text(part)
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image_url", "image_url": {"url": str(url)} as image}:
                data, media_type = _data(url)
                detail = image.get("detail")
                if data is None:
                    return Image.from_url(url, detail=detail)
                return Image.from_bytes(data, media_type, detail=detail)
            case {"type": "file", "file": {"file_data": str(url)} as file}:
                data, media_type = _data(url)
                return Document.from_bytes(data or b"", media_type, name=file.get("filename"))
            case {"type": "input_audio", "input_audio": {"data": str(text), "format": str(kind)}}:
                sound = "audio/mpeg" if kind == "mp3" else "audio/wav"
                return Audio.from_bytes(base64.b64decode(text), sound)
    except (ValueError, binascii.Error):
        pass
    return Text(placeholder(part))


def _wordless(content: Any) -> Any:
    """A recorded content with the placeholders that stand for parts without a word."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": words} if _part(part) == Text(words := placeholder(part)) else part
        for part in content
    ]


def _data(url: str) -> tuple[bytes | None, str]:
    head, comma, encoded = url.partition(",")
    if not comma or not head.startswith("data:"):
        return None, ""
    return base64.b64decode(encoded), head[5:].partition(";")[0]
