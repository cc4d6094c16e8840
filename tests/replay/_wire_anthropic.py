"""Anthropic's Messages for the replay: where things stand, and what may differ in a replayed answer.

Owns: this wire's half of the replay, written down a second time and on purpose apart from the package.
Must never know: how a thread is driven, or another wire.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from goaitools_py import Document, Image, Message, ModelSettings, ProviderTool, Text, Tool
from goaitools_py.base import rawjson
from goaitools_py.types.answers import ToolReturn

from ._recorded import Exchange
from ._rules import differences
from ._wire import JSON, Move, Part, Result, Said, Spoken, Wire, comparable, joined, placeholder, sse_events

__all__ = ["ANTHROPIC"]

_CLIENT_RUN = ("memory_", "bash_", "text_editor_", "computer_")
"""Tools with a published type that the client runs: to a chat they are functions like any other."""

_SETTINGS = {"stop_sequences": "stop", "max_tokens": "max_output_tokens"}
_OLD_VERSION = {"anthropic-version": "2023-06-01"}
"""What has been retired since can be asked for, but is no setting of the package on this wire."""

_CHATS_OWN = frozenset({"model", "messages", "system", "tools", "stream", "cache_control", "container"})
_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}


class _Anthropic(Wire):
    name = "anthropic"
    recording = "anthropic-messages.jsonl.zst"
    path = "/v1/messages"
    key = "messages"
    first_party = ("api.anthropic.com",)
    retired = frozenset({"temperature", "top_p", "top_k"})
    runs_together = False

    # requests

    def why_not(self, exchange: Exchange) -> str:
        request = exchange.request
        if request["method"] != "POST" or not request["path"].partition("?")[0].endswith(self.path):
            return f"{request['method']} {request['path'].partition('?')[0]} is no model call"
        return ""

    def schema(self, exchange: Exchange | None) -> str:
        is_beta = exchange is not None and "beta=true" in exchange.request["path"]
        return f"sdk-anthropic-messages{'-beta' if is_beta else ''}.schema.json"

    def history(self, body: JSON) -> list[JSON]:
        return list(body["messages"])

    def lead(self, history: Sequence[JSON]) -> int:
        return 0

    def preamble(self, body: JSON) -> tuple[Message, ...]:
        words = body.get("system") or []
        blocks = [words] if isinstance(words, str) else [block["text"] for block in words]
        return tuple(Message(role="system", parts=(Text(block),)) for block in blocks)

    def is_spoken(self, element: JSON) -> bool:
        return bool(element["role"] == "assistant")

    def moves(self, element: JSON) -> Iterator[Move]:
        if self.is_spoken(element):
            yield Spoken(element)
            return
        said: list[Part] = []
        blocks = _blocks(element)
        for block in blocks:
            if block["type"] == "tool_result":
                yield Result(block["tool_use_id"], _result(block))
            else:
                said.append(_part(block))
        if said or not blocks:
            yield Said(Message(role=element["role"], parts=joined(said)))

    def client_words(self, history: Sequence[JSON]) -> list[Any]:
        words: list[Any] = []
        for message in history:
            for block in _blocks(message) if message["role"] != "assistant" else ():
                if block["type"] == "tool_result":
                    result = {
                        "content": _wordless(block.get("content")),
                        "is_error": block.get("is_error") or None,
                    }
                    words.append(("tool", comparable(result)))
                else:
                    words.append((message["role"], comparable(_wordless([block]))))
        return words

    def tools(self, body: JSON, run: Callable[..., Any]) -> Iterator[Tool[..., Any] | ProviderTool]:
        for tool in body.get("tools") or ():
            kind = tool.get("type") or "custom"
            if kind != "custom" and not kind.startswith(_CLIENT_RUN):
                yield ProviderTool(tool)
                continue
            schema = tool.get("input_schema") or {"type": "object"}
            yield Tool(
                tool["name"], tool.get("description") or "", schema, run, strict=bool(tool.get("strict"))
            )

    def settings(self, body: JSON) -> ModelSettings:
        given = {key: value for key, value in body.items() if value is not None and key not in _CHATS_OWN}
        named: dict[str, Any] = {_SETTINGS[key]: given.pop(key) for key in tuple(given) if key in _SETTINGS}
        choice = given.get("tool_choice") or {}
        names = {"auto": "auto", "any": "required", "none": "none", "tool": choice.get("name")}
        if choice.get("type") in names and set(choice) <= {"type", "name", "disable_parallel_tool_use"}:
            named["tool_choice"] = names[choice["type"]]
            if choice.get("disable_parallel_tool_use") is not None:
                named["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]
            del given["tool_choice"]
        match given.get("thinking"):
            case {"type": "enabled", "budget_tokens": int(budget), **rest} if not rest:
                named["thinking_budget_tokens"] = budget
                del given["thinking"]
        if self.retired & given.keys():
            named["extra_headers"] = _OLD_VERSION
        if "output_format" in given:  # as it was called while it was a beta
            given["output_config"] = {"format": given.pop("output_format"), **given.get("output_config", {})}
        if given:
            named["extra_body"] = given
        return ModelSettings(**named)

    # answers

    def answer(self, exchange: Exchange) -> list[JSON] | None:
        found = _assembled(exchange)
        return [{"role": "assistant", "content": found["content"]}] if found else None

    def is_whole(self, exchange: Exchange) -> bool:
        found = _assembled(exchange)
        return found is not None and found["stop_reason"] is not None

    def is_paused(self, exchange: Exchange) -> bool:
        return (_assembled(exchange) or {}).get("stop_reason") == "pause_turn"

    def places(self, history: Sequence[JSON], exchange: Exchange) -> tuple[int, ...]:
        """It is what the assistant says next."""
        for at in range(len(exchange.history), len(history)):
            if self.is_spoken(history[at]) and history[at]["content"]:
                return (at,)
        return ()

    def completion(self, spoken: Sequence[JSON], number: int = 0) -> bytes:
        (message,) = spoken
        return json.dumps(
            {
                "id": f"msg_stand_in_{number}",
                "type": "message",
                "role": "assistant",
                "model": "stand-in",
                "content": _blocks(message),
                "stop_reason": "tool_use" if self.calls(spoken) else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        ).encode()

    def calls(self, spoken: Sequence[JSON]) -> list[str]:
        blocks = [block for message in spoken for block in _blocks(message)]
        return [block["id"] for block in blocks if block["type"] == "tool_use"]

    def call_names(self, spoken: Sequence[JSON]) -> list[str]:
        blocks = [block for message in spoken for block in _blocks(message)]
        return [block["name"] for block in blocks if block["type"] == "tool_use"]

    def text(self, spoken: Sequence[JSON]) -> str:
        blocks = [block for message in spoken for block in _blocks(message)]
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    def results(self, elements: Sequence[JSON]) -> dict[str, str]:
        return {
            block["tool_use_id"]: self.text([block])
            for message in elements
            for block in _blocks(message)
            if block["type"] == "tool_result"
        }

    def with_ids(self, spoken: Sequence[bytes], ids: Mapping[str, str]) -> list[bytes]:
        (message,) = spoken
        blocks = rawjson.items(rawjson.members(message)["content"])
        renamed = [
            rawjson.replaced(block, {"id": rawjson.dumps(ids[found])})
            if (found := json.loads(block).get("id")) in ids
            else block
            for block in blocks
        ]
        if renamed == blocks:
            return [message]
        return [rawjson.replaced(message, {"content": b"[" + b",".join(renamed) + b"]"})]

    # the rules

    def against_answer(self, ours: Sequence[bytes], exchange: Exchange) -> list[str]:
        found = _assembled(exchange)
        if found is None:
            return ["the recording has no answer"]
        (message,) = ours
        members = rawjson.members(message)
        problems = list(differences(json.loads(message), {"role": "assistant", "content": found["content"]}))
        if problems:
            return problems
        if not exchange.was_streamed:
            theirs = rawjson.members(rawjson.one_line(exchange.raw_body))["content"]
            return [] if members["content"] == theirs else ["the bytes of content changed"]
        return [
            f"{at}: the bytes of input changed"
            for at, block in enumerate(rawjson.items(members["content"]))
            if found["inputs"].get(at) and rawjson.members(block)["input"] != found["inputs"][at].encode()
        ]

    def same_value(self, exchange: Exchange) -> Mapping[str, str]:
        return {}

    # conversations

    def told(self, messages: Sequence[JSON]) -> list[JSON]:
        told: list[JSON] = []
        for message in messages:
            content = message.get("content") or ""
            if message["role"] == "tool":
                block = {
                    "type": "tool_result",
                    "tool_use_id": message.get("tool_call_id") or "",
                    "content": content,
                }
                if told and told[-1]["role"] == "user" and _is_all_results(told[-1]):
                    told[-1]["content"].append(block)  # the results of one answer are one message
                else:
                    told.append({"role": "user", "content": [block]})
            elif message["role"] != "assistant":
                told.append({"role": message["role"], "content": content})
            else:
                text = [{"type": "text", "text": content}] if content else []
                told.append(
                    {
                        "role": "assistant",
                        "content": [*text, *map(_told_call, message.get("tool_calls") or ())],
                    }
                )
        return told

    def told_tools(self, tools: Sequence[JSON]) -> list[JSON]:
        return [
            {
                "name": tool["function"]["name"],
                "description": tool["function"].get("description") or "",
                "input_schema": tool["function"].get("parameters") or {"type": "object"},
            }
            for tool in tools
        ]

    # connections

    def backend(self, *, is_async: bool) -> Callable[..., Any]:
        from goaitools_py.backends.anthropic.backends import AnthropicBackend, AsyncAnthropicBackend

        return AsyncAnthropicBackend if is_async else AnthropicBackend


ANTHROPIC = _Anthropic()


def _blocks(message: JSON) -> list[JSON]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _is_all_results(message: JSON) -> bool:
    return all(block["type"] == "tool_result" for block in _blocks(message))


def _told_call(call: JSON) -> JSON:
    arguments = json.loads(call["function"]["arguments"] or "{}")
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments}


def _assembled(exchange: Exchange) -> dict[str, Any] | None:
    """The answer's content and why it stopped; of a stream also the JSON texts of inputs, by block."""
    if not exchange.was_streamed:
        body = exchange.response.get("body")
        if not isinstance(body, Mapping) or "content" not in body:
            return None
        return {"content": body["content"], "stop_reason": body.get("stop_reason"), "inputs": {}}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    stop_reason: str | None = None
    is_ended = False
    for event in sse_events(exchange.response["sse"]):
        match event:
            case {"type": "content_block_start", "index": int(at), "content_block": dict(block)}:
                blocks[at] = dict(block)
            case {
                "type": "content_block_delta",
                "index": int(at),
                "delta": {"type": "input_json_delta"} as delta,
            }:
                inputs[at] = inputs.get(at, "") + delta["partial_json"]
            case {
                "type": "content_block_delta",
                "index": int(at),
                "delta": {"type": "citations_delta"} as delta,
            }:
                blocks[at]["citations"] = [*(blocks[at].get("citations") or ()), delta["citation"]]
            case {"type": "content_block_delta", "index": int(at), "delta": dict(delta)}:
                key = _PIECES[delta["type"]]
                blocks[at][key] = (blocks[at].get(key) or "") + (delta[key] or "")
            case {"type": "message_delta", "delta": dict(delta)}:
                stop_reason = delta.get("stop_reason")
            case {"type": "message_stop"}:
                is_ended = True
    for at, text in inputs.items():
        if text:
            blocks[at]["input"] = json.loads(text)
    if not blocks and not is_ended:
        return None
    content = [block for _, block in sorted(blocks.items())]
    return {"content": content, "stop_reason": stop_reason if is_ended else None, "inputs": inputs}


# ------------------------------------------------------------------------- recorded words, neutrally


def _part(part: Any) -> Part:
    try:
        match part:
            case {"type": "text", "text": str(text)}:
                return Text(text)
            case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                return Image.from_bytes(base64.b64decode(data), kind)
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                return Image.from_url(url)
            case {
                "type": "document",
                "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
            }:
                return Document.from_bytes(base64.b64decode(data), kind)
            case {"type": "document", "source": {"type": "url", "url": str(url)}}:
                return Document.from_url(url)
    except (ValueError, binascii.Error):
        pass
    return Text(placeholder(part))


def _result(block: JSON) -> Any:
    content = block.get("content")
    parts = [_part(part) for part in content] if isinstance(content, list) else content or ""
    return ToolReturn(parts, is_error=True) if block.get("is_error") else parts


def _wordless(content: Any) -> Any:
    """A recorded content with the placeholders that stand for parts without a word."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": words} if _part(part) == Text(words := placeholder(part)) else part
        for part in content
    ]
