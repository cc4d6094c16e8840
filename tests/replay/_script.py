"""A conversation in the provider's own JSON, taken apart into what a chat is told and what it is answered.

Owns: the steps of a rebuilt conversation and the neutral forms of recorded messages, tools and settings.
Must never know: where the conversation was recorded, or how the steps are carried out.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from goaitools_py import Audio, Document, Image, Message, ModelSettings, ProviderTool, Text, Tool

__all__ = [
    "Answer",
    "Ask",
    "Calls",
    "Endpoint",
    "Script",
    "completion",
    "script",
    "settings_of",
    "tools_of",
    "wordless",
]

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the provider answers: the very bytes. `of` names the exchange, None for a stand-in."""

    body: bytes = field(repr=False)
    status: int = 200
    content_type: str = "application/json"
    of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything of a request that belongs to the client rather than to the conversation."""

    url: str = ""
    is_streamed: bool = False
    body: JSON = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One model call.

    Attributes:
        results: Results of the calls that the last answer made: call id and content, in order.
        messages: What the client says beside them.
    """

    results: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)
    answer: Answer
    endpoint: Endpoint = Endpoint()

    def goes_on(self, before: Ask) -> bool:
        """True if a tool loop that made the call `before` comes to this one by itself."""
        ours, theirs = self.endpoint, before.endpoint
        is_same = (ours.url, ours.is_streamed) == (theirs.url, theirs.is_streamed) and all(
            ours.body.get(key) == theirs.body.get(key) for key in ("model", "tools")
        )
        return bool(self.results) and not self.messages and is_same


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Asks that one call of a chat makes. `resumes`: it finishes a turn whose tools have run."""

    asks: tuple[Ask, ...]

    @property
    def resumes(self) -> bool:
        return bool(self.asks[0].results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A conversation taken apart.

    Attributes:
        preamble: What the system says before everything else.
        calls: The calls of a chat that make the conversation.
        results, messages: At the end, what nothing answers.
    """

    preamble: tuple[Message, ...] = field(repr=False)
    calls: tuple[Calls, ...]
    results: tuple[tuple[str, Any], ...] = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)


def script(
    messages: Sequence[JSON],
    *,
    answers: Mapping[int, Answer] = MappingProxyType({}),
    last: Answer | None = None,
    endpoints: Mapping[int | None, Endpoint] = MappingProxyType({}),
) -> Script:
    """Take a conversation apart.

    What the assistant says at the positions in `answers` comes from there. What it says elsewhere is made
    up as a provider would have sent it, if there is something that it answers; else the client put the
    words into its mouth.

    Args:
        last: What the provider answers to the whole of `messages`.
        endpoints: By `Answer.of`, where and how the client asked.
    """
    lead = 0
    while lead < len(messages) and messages[lead]["role"] in ("system", "developer"):
        lead += 1
    preamble = tuple(map(_message_of, messages[:lead]))
    asks: list[Ask] = []
    results: list[tuple[str, Any]] = []
    said: list[Message] = []

    def ask(answer: Answer) -> None:
        nearby = asks[-1].endpoint if asks else next(iter(endpoints.values()), Endpoint())
        endpoint = endpoints.get(answer.of) or replace(nearby, is_streamed=False)
        asks.append(Ask(results=tuple(results), messages=tuple(said), answer=answer, endpoint=endpoint))
        results.clear()
        said.clear()

    for at, message in enumerate(messages[lead:], lead):
        if at in answers:
            ask(answers[at])
        elif message["role"] == "tool":
            results.append((message.get("tool_call_id") or "", _result_of(message.get("content"))))
        elif message["role"] != "assistant":
            said.append(_message_of(message))
        elif message.get("tool_calls") or (message.get("content") and (results or said)):
            ask(Answer(body=completion(message)))
        elif message.get("content"):
            said.append(_message_of(message))
    if last is not None:
        ask(last)
    return Script(preamble=preamble, calls=_grouped(asks), results=tuple(results), messages=tuple(said))


def _grouped(asks: Sequence[Ask]) -> tuple[Calls, ...]:
    groups: list[list[Ask]] = []
    for at, ask in enumerate(asks):
        if at and ask.goes_on(asks[at - 1]):
            groups[-1].append(ask)
        else:
            groups.append([ask])
    return tuple(Calls(asks=tuple(group)) for group in groups)


def completion(message: JSON) -> bytes:
    """A chat completion around an assistant's message."""
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return json.dumps(
        {
            "id": "chatcmpl-stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": "stand-in",
            "choices": [{"index": 0, "message": dict(message), "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    ).encode()


# ------------------------------------------------------------------------- recorded words, neutrally


def _message_of(message: JSON) -> Message:
    """A recorded message as a client of this package would write it."""
    role = "system" if message["role"] == "developer" else message["role"]
    content = message.get("content")
    parts = [_part(part) for part in content] if isinstance(content, list) else [Text(content or "")]
    return Message(role=role, parts=tuple(parts))


def _part(part: Any) -> Text | Image | Document | Audio:
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
    return Text(_placeholder(part))


def _placeholder(part: Any) -> str:
    return f"[a part that this package has no word for: {json.dumps(part)[:200]}]"


def wordless(content: Any) -> Any:
    """A recorded content with the placeholders that stand for such parts."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": words} if _part(part) == Text(words := _placeholder(part)) else part
        for part in content
    ]


def _data(url: str) -> tuple[bytes | None, str]:
    head, comma, encoded = url.partition(",")
    if not comma or not head.startswith("data:"):
        return None, ""
    return base64.b64decode(encoded), head[5:].partition(";")[0]


def _result_of(content: Any) -> Any:
    """A recorded tool result as a tool would return it."""
    if isinstance(content, list):
        return [_part(part) for part in content]
    return content or ""


def tools_of(tools: Sequence[JSON], run: Callable[..., Any]) -> Iterator[Tool[..., Any] | ProviderTool]:
    """Recorded tool definitions as tools that all run the same function."""
    for tool in tools:
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


def settings_of(body: JSON) -> ModelSettings:
    """The settings of a recorded request; what has no name here goes into the body as it is."""
    given = {key: value for key, value in body.items() if value is not None and key not in _CHATS_OWN}
    named = {_SETTINGS[key]: given.pop(key) for key in tuple(given) if key in _SETTINGS}
    match given.get("tool_choice"):
        case "auto" | "none" | "required":
            named["tool_choice"] = given.pop("tool_choice")
        case {"type": "function", "function": {"name": str(name)}}:
            named["tool_choice"] = name
            del given["tool_choice"]
    return ModelSettings(
        model=body.get("model") or "unnamed", **named, **({"extra_body": given} if given else {})
    )
