"""OpenAI's Responses for the replay: where things stand, and what may differ in a replayed answer.

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

from goaitools_py import Document, Image, Message, ModelSettings, ProviderTool, Text, Tool
from goaitools_py.base import rawjson

from ._recorded import Exchange
from ._rules import differences
from ._wire import JSON, Move, Part, Result, Said, Spoken, Wire, comparable, joined, placeholder, sse_events

__all__ = ["RESPONSES"]

_RESPONSE_ONLY = {"compaction": {"created_by"}}
_CLIENTS = ("user", "system", "developer")
_WORDLESS = ("additional_tools", "tool_search_output")
"""What only a client of its own kind says: words of the system and of the user stand for it."""

_SERVER_STATE = ("previous_response_id", "conversation", "background", "prompt")
_NOT_AN_ANSWER = ("failed", "in_progress", "queued", "cancelled")
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
    "prompt_cache_key": "prompt_cache_key",
    "max_output_tokens": "max_output_tokens",
}
_CHATS_OWN = frozenset({"model", "input", "instructions", "tools", "stream", "stream_options", "store"})


class _Responses(Wire):
    name = "openai-responses"
    recording = "openai-responses.jsonl.zst"
    path = "/responses"
    key = "input"
    first_party = ("api.openai.com", ".openai.azure.com")
    retired: frozenset[str] = frozenset()
    runs_together = True

    # requests

    def why_not(self, exchange: Exchange) -> str:
        request = exchange.request
        if request["method"] != "POST" or not request["path"].partition("?")[0].endswith(self.path):
            return f"{request['method']} {request['path'].partition('?')[0]} is no model call"
        if kept := [key for key in _SERVER_STATE if exchange.body.get(key)]:
            return f"it builds on state that the server keeps ({', '.join(kept)})"
        return ""

    def schema(self, exchange: Exchange | None) -> str:
        return "sdk-openai-responses.schema.json"

    def history(self, body: JSON) -> list[JSON]:
        said = body.get("input") or []
        return [{"role": "user", "content": said}] if isinstance(said, str) else list(said)

    def lead(self, history: Sequence[JSON]) -> int:
        return len(list(takewhile(lambda item: item.get("role") in ("system", "developer"), history)))

    def preamble(self, body: JSON) -> tuple[Message, ...]:
        words = body.get("instructions")
        return (Message(role="system", parts=(Text(words),)),) if words else ()

    def is_spoken(self, element: JSON) -> bool:
        is_result = element.get("type") == "function_call_output" or _is_wordless(element)
        return element.get("role") not in _CLIENTS and not is_result

    def moves(self, element: JSON) -> Iterator[Move]:
        if self.is_spoken(element):
            yield Spoken(element)
        elif _is_wordless(element):
            role: Any = "system" if element["type"] == "additional_tools" else "user"
            yield Said(Message(role=role, parts=(Text(placeholder(element)),)))
        elif element.get("type") == "function_call_output":
            output = element.get("output")
            parts = [_part(part) for part in output] if isinstance(output, list) else output or ""
            yield Result(element["call_id"], parts)
        else:
            role = "system" if element["role"] == "developer" else element["role"]
            content = element.get("content")
            said = [_part(part) for part in content] if isinstance(content, list) else [Text(content or "")]
            yield Said(Message(role=role, parts=joined(said)))

    def client_words(self, history: Sequence[JSON]) -> list[Any]:
        words = []
        for item in history:
            if self.is_spoken(item) or (item.get("type") == "tool_search_output" and not item["tools"]):
                continue  # an empty answer is what closes a search that the client did not answer
            if _is_wordless(item):
                item = {
                    "role": "system" if item["type"] == "additional_tools" else "user",
                    "content": placeholder(item),
                }
            role = {"developer": "system", None: "tool"}.get(item.get("role"), item.get("role"))
            content = item.get("content", item.get("output"))
            words.append(comparable({"role": role, "content": _wordless(content)}))
        return words

    def tools(self, body: JSON, run: Callable[..., Any]) -> Iterator[Tool[..., Any] | ProviderTool]:
        later = [tool for item in self.history(body) if _is_wordless(item) for tool in item["tools"]]
        offered = body.get("tools") or []
        names = {tool.get("name") for tool in offered}
        for tool in (*offered, *(tool for tool in later if tool.get("name") not in names)):
            if tool.get("type") != "function":
                yield ProviderTool(tool)
                continue
            parameters = tool.get("parameters") or {"type": "object", "properties": {}}
            description = tool.get("description") or ""
            yield Tool(tool["name"], description, parameters, run, strict=bool(tool.get("strict")))

    def settings(self, body: JSON) -> ModelSettings:
        given = {key: value for key, value in body.items() if value is not None and key not in _CHATS_OWN}
        named: dict[str, Any] = {_SETTINGS[key]: given.pop(key) for key in tuple(given) if key in _SETTINGS}
        match given.get("tool_choice"):
            case "auto" | "none" | "required":
                named["tool_choice"] = given.pop("tool_choice")
            case {"type": "function", "name": str(name)}:
                named["tool_choice"] = name
                del given["tool_choice"]
        if set(given.get("reasoning", ())) == {"effort"}:
            named["reasoning_effort"] = given.pop("reasoning")["effort"]
        if given:
            named["extra_body"] = given
        return ModelSettings(**named)

    # answers

    def answer(self, exchange: Exchange) -> list[JSON] | None:
        response = _response(exchange)
        output = response.get("output") if response else None
        return list(output) if isinstance(output, list) else None

    def is_whole(self, exchange: Exchange) -> bool:
        if exchange.was_streamed:
            kinds = [event.get("type") for event in sse_events(exchange.response["sse"])]
            return bool({"response.completed", "response.incomplete"} & set(kinds))
        return (_response(exchange) or {}).get("status") not in _NOT_AN_ANSWER

    def is_paused(self, exchange: Exchange) -> bool:
        return False

    def places(self, history: Sequence[JSON], exchange: Exchange) -> tuple[int, ...]:
        """What the assistant says next; and its later calls, where a client put results in between."""
        begin = len(exchange.history)
        run = len(list(takewhile(self.is_spoken, history[begin:])))
        places = list(range(begin, begin + run))
        missing = set(self.calls(exchange.answer or [])) - set(self.calls(history[begin : begin + run]))
        for at in range(begin + run, len(history)) if run else ():
            if missing & set(self.calls([history[at]])):
                places.append(at)
                missing -= set(self.calls([history[at]]))
        return tuple(places)

    def completion(self, spoken: Sequence[JSON], number: int = 0) -> bytes:
        return json.dumps(
            {
                "id": f"resp_stand_in_{number}",
                "object": "response",
                "created_at": 0,
                "model": "stand-in",
                "status": "completed",
                "output": [_whole_item(item, f"{number}_{at}") for at, item in enumerate(spoken)],
                "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
            }
        ).encode()

    def calls(self, spoken: Sequence[JSON]) -> list[str]:
        return [item["call_id"] for item in spoken if item.get("type") == "function_call"]

    def call_names(self, spoken: Sequence[JSON]) -> list[str]:
        return [item["name"] for item in spoken if item.get("type") == "function_call"]

    def text(self, spoken: Sequence[JSON]) -> str:
        contents = [item.get("content") for item in spoken if item.get("role") == "assistant"]
        return "".join(map(_text, contents))

    def results(self, elements: Sequence[JSON]) -> dict[str, str]:
        return {
            item["call_id"]: _text(item["output"])
            for item in elements
            if item.get("type") == "function_call_output"
        }

    def with_ids(self, spoken: Sequence[bytes], ids: Mapping[str, str]) -> list[bytes]:
        return [
            rawjson.replaced(item, {"call_id": rawjson.dumps(ids[found])})
            if (found := json.loads(item).get("call_id")) in ids
            else item
            for item in spoken
        ]

    # the rules

    def against_answer(self, ours: Sequence[bytes], exchange: Exchange) -> list[str]:
        if exchange.answer is None:
            return ["the recording has no answer"]
        if len(ours) != len(exchange.answer):
            return [f"{len(ours)} items, not {len(exchange.answer)}"]
        problems: list[str] = []
        if exchange.was_streamed:
            forms = [*_done_items(exchange), *exchange.answer]
            for at, (item, answer) in enumerate(zip(map(json.loads, ours), exchange.answer, strict=True)):
                same = [form for form in forms if form.get("id") == answer.get("id")]
                if item not in map(_request_form, same):
                    problems += differences(item, _request_form(answer), f"{at}.")
            return problems
        theirs = rawjson.items(rawjson.members(rawjson.one_line(exchange.raw_body))["output"])
        for at, (mine, own) in enumerate(zip(ours, theirs, strict=True)):
            wanted = _request_form(json.loads(own))
            found = list(differences(json.loads(mine), wanted, f"{at}."))
            if not found and mine != own and wanted == json.loads(own):
                found = [f"{at}: the bytes changed"]
            problems += found
        return problems

    def same_value(self, exchange: Exchange) -> Mapping[str, str]:
        if not exchange.was_streamed:
            return {}
        items = [*_done_items(exchange), *(exchange.answer or [])]
        return {item["encrypted_content"]: item["id"] for item in items if item.get("encrypted_content")}

    # conversations

    def told(self, messages: Sequence[JSON]) -> list[JSON]:
        items: list[JSON] = []
        for message in messages:
            content = message.get("content") or ""
            if message["role"] == "tool":
                items.append(
                    {
                        "type": "function_call_output",
                        "call_id": message.get("tool_call_id") or "",
                        "output": content,
                    }
                )
            elif message["role"] != "assistant":
                items.append({"role": message["role"], "content": content})
            else:
                if content:
                    items.append({"role": "assistant", "content": content})
                items += map(_told_call, message.get("tool_calls") or ())
        return items

    def told_tools(self, tools: Sequence[JSON]) -> list[JSON]:
        return [{"type": "function", **tool["function"]} for tool in tools]

    # connections

    def backend(self, *, is_async: bool) -> Callable[..., Any]:
        from goaitools_py.backends.openai.backends import AsyncOpenAIResponsesBackend, OpenAIResponsesBackend

        return AsyncOpenAIResponsesBackend if is_async else OpenAIResponsesBackend


RESPONSES = _Responses()


def _text(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    return "".join(part.get("text") or "" for part in content)


def _is_wordless(item: JSON) -> bool:
    """Whether a client says something that the package has no word for. A provider's own search is none."""
    return item.get("type") in _WORDLESS and item.get("execution") != "server"


def _response(exchange: Exchange) -> Mapping[str, Any] | None:
    """The response object; of a stream the one of its last event."""
    if not exchange.was_streamed:
        body = exchange.response.get("body")
        return body if isinstance(body, Mapping) else None
    ends = ("response.completed", "response.incomplete", "response.failed")
    found: Mapping[str, Any] | None = None
    for event in sse_events(exchange.response["sse"]):
        if event.get("type") in ends:
            found = event["response"]
    return found


def _done_items(exchange: Exchange) -> list[JSON]:
    events = sse_events(exchange.response["sse"])
    return [event["item"] for event in events if event.get("type") == "response.output_item.done"]


def _request_form(item: JSON) -> JSON:
    left_out = _RESPONSE_ONLY.get(str(item.get("type")), set())
    return {key: value for key, value in item.items() if key not in left_out}


def _whole_item(item: JSON, name: str) -> JSON:
    """An assistant's item as a provider sends it, where a client wrote it short."""
    if item.get("type") == "function_call":
        return {"id": f"fc_{name}", "status": "completed", **item}
    if item.get("type") not in (None, "message"):
        return item
    content = item.get("content") or ""
    parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    whole = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed"}
    return {**whole, **item, "content": [{"annotations": [], **part} for part in parts]}


def _told_call(call: JSON) -> JSON:
    function = call["function"]
    return {
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


# ------------------------------------------------------------------------- recorded words, neutrally


def _part(part: Any) -> Part:
    try:
        match part:
            case {"type": "input_text" | "output_text", "text": str(text)}:
                return Text(text)
            case {"type": "input_image", "image_url": str(url)}:
                data, media_type = _data(url)
                detail = part.get("detail")
                if data is None:
                    return Image.from_url(url, detail=detail)
                return Image.from_bytes(data, media_type, detail=detail)
            case {"type": "input_file", "file_data": str(url)}:
                data, media_type = _data(url)
                if data is not None:
                    return Document.from_bytes(data, media_type, name=part.get("filename"))
            case {"type": "input_file", "file_url": str(url)}:
                return Document.from_url(url, name=part.get("filename"))
    except (ValueError, binascii.Error):
        pass
    return Text(placeholder(part))


def _wordless(content: Any) -> Any:
    """A recorded content with the placeholders that stand for parts without a word."""
    if not isinstance(content, list):
        return content
    return [
        {"type": "input_text", "text": words}
        if _part(part) == Text(words := placeholder(part))
        else {key: value for key, value in part.items() if (key, value) != ("detail", "auto")}
        for part in content
    ]


def _data(url: str) -> tuple[bytes | None, str]:
    head, comma, encoded = url.partition(",")
    if not comma or not head.startswith("data:"):
        return None, ""
    return base64.b64decode(encoded), head[5:].partition(";")[0]
