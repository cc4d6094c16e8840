"""The OpenAI Responses dialect: neutral values into request bytes, response bytes into replies.

Owns: what a request on this wire looks like. Must never know: a socket, an SDK, a turn.

The server keeps nothing: every request says ``store: false`` and asks for encrypted reasoning, and the
items of every reply go back as they came. The body's order is ``model, tools, input, settings``, which is
the order in which a cached prefix can grow. The preamble is the first item of ``input`` and never
``instructions``, which newer models read anew behind the history in every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from ... import rawjson
from ...context_management import ContextEdit
from ...messages import Audio, Document, Image, Message, Part, Text, ToolCall, ToolResult
from ...render import BlockText, event_block, plain, user_text
from ...values import Value, replace
from ..base import (
    Fault,
    ModelRequest,
    ProtocolFault,
    ProviderTool,
    Reply,
    RequestParts,
    StreamDecoder,
    ToolSpec,
)
from ..context_management import check_host, responses_edits, usable_on_responses
from ..counting import count_of, cut_down
from ..http.faults import http_fault
from ..nesting import read_again
from . import request as writing
from . import responses_client as client
from . import responses_reply as reading
from . import responses_units as units
from .answer import FIRST_PARTY
from .responses_item import CALLS, read_entries
from .responses_stream import ResponsesDecoder

__all__ = ["OpenAIResponsesDialect"]

_SETTINGS: Final = frozenset({"max_output_tokens", "temperature", "top_p", "prompt_cache_key"})
"""Settings whose value goes to the wire as it is, under the name that `ModelSettings` gives them."""

_SPEAKERS: Final = ("assistant", "user", "system", "developer")
"""Roles of the messages in a compacted history."""

_INCLUDE: Final = "reasoning.encrypted_content"

_COUNTED: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"}
)
"""What `input_tokens` takes (openai 3.54, types/responses/input_token_count_params.py)."""

_COMPACTED: Final = frozenset(
    {
        "model",
        "input",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
    }
)
"""What `compact` takes (openai 3.54, types/responses/response_compact_params.py)."""

_HARMLESS: Final[Mapping[str, tuple[Any, ...]]] = {
    "input": (),
    "stream": (),
    "store": (False,),
    "previous_response_id": (None,),
    "conversation": (None,),
    "prompt": (None,),
    "background": (None, False),
    "truncation": (None, "disabled"),
}
"""Members that an `extra_body` may give these values only."""

_WHY_NOT: Final = {
    "input": "the chat writes it itself",
    "stream": "the chat writes it itself",
    "store": "the conversation is in the state, and nowhere else",
    "previous_response_id": "the history is in the state; the server must not add another",
    "conversation": "the history is in the state; the server must not add another",
    "prompt": "it would stand before the history unseen; use system=",
    "background": "the answer must be in the response, not kept for later",
    "truncation": "the server must not rewrite the history; use a compactor",
}

_SIGNATURE_WORDS: Final = (
    b"was provided without its required",  # following item, or 'reasoning' item; recorded, code null
    b"Items are not persisted when `store` is set to false",  # vercel/ai#7543
)
"""How the server words, without a code, that reasoning of the history does not fit."""


class OpenAIResponsesDialect(Value, frozen=True):
    """``POST /responses`` without server state, as OpenAI, Azure and many compatible servers speak it.

    Args:
        family: "openai", "azure", or the host of a compatible server. The others get no cache key that was
            not asked for, no `include_obfuscation`, and ``system`` where the first two get ``developer``:
            Ollama drops items of that role without a word (ollama#18305), chat templates behind vLLM and
            llama.cpp refuse it.
    """

    wire: ClassVar[str] = "openai-responses"

    family: str = "openai"

    # ------------------------------------------------------------------------------------ writing

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one item each; calls of an assistant's message are items
        of their own after it.

        User text cannot imitate an event or context block (see `render`). A text of one part is a string,
        anything else a list of parts.

        Raises:
            ValueError: A part that this wire cannot carry: sound, or media in a message that is not the
                user's.
        """
        return [rawjson.dumps(item) for message in messages for item in self._items(message)]

    def _items(self, message: Message) -> list[dict[str, Any]]:
        if message.is_event:
            text = event_block(message.text, topic=message.topic, id=message.event_id)
            return [{"role": "user", "content": text}]
        if message.role == "user":
            return [{"role": "user", "content": _content(message.parts)}]
        if message.role == "tool":
            return [_output("function_call_output", message.tool_call_id or "", message.parts)]
        if not all(isinstance(part, Text) for part in message.parts):
            raise ValueError(
                f"a message of role {message.role!r} holds text only on the 'openai-responses' wire"
            )
        role = message.role if message.role == "assistant" else self._system
        text = plain(message.text)
        said = [{"role": role, "content": text}] if text or not message.tool_calls else []
        return [*said, *map(_call, message.tool_calls)]

    @property
    def _system(self) -> str:
        return "developer" if self.family in FIRST_PARTY else "system"

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode tool results, one item each, in call order. Sound becomes a line of text that says so."""
        return [rawjson.dumps(_result(result)) for result in results]

    def waits_for(self, call: ToolCall) -> Literal["approval", "external"]:
        """What a provider tool's call waits for; see `RunsProviderTools`."""
        return client.reason_of(call)

    def provider_output(self, call: ToolCall, value: Any, *, is_error: bool = False) -> str:
        """The item that answers a provider tool's call; see `RunsProviderTools`.

        Raises:
            ValueError: The value is no answer to a call of this type.
        """
        return rawjson.dumps(client.output_item(call, value, is_error=is_error)).decode()

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request; b"" for none."""
        return writing.joined(self.entries(messages))

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list; b"" for none. For its order see `tool_list`."""
        return writing.tool_list(tools, _function)

    def request(self, parts: RequestParts) -> ModelRequest:
        """Splice a request together; the history is joined, never parsed.

        Members of an `extra_body` replace ours, but for two that are merged: into ``reasoning`` goes the
        setting `reasoning_effort`, into ``include`` the wish for encrypted reasoning.

        Raises:
            ValueError: A setting that this wire does not have, a `prompt_cache_key` that is too long, or an
                `extra_body` by which the server would keep state, rewrite the history or answer otherwise.
        """
        settings = dict(parts.settings)
        headers = settings.pop("extra_headers", {})
        extra = dict(settings.pop("extra_body", {}))
        _check_extra(extra)
        values = self._settings(settings, parts)
        if parts.stream:
            values["stream"] = True
            if self.family == "openai":
                # Padding against an eavesdropper inside TLS; it doubles the bytes of a stream.
                values["stream_options"] = {"include_obfuscation": False}
        if "reasoning" in values and isinstance(extra.get("reasoning"), Mapping):
            extra["reasoning"] = values["reasoning"] | dict(extra["reasoning"])
        values |= {"store": False, "include": [_INCLUDE]}
        if wanted := extra.pop("include", None):
            values["include"] = [*wanted, *([] if _INCLUDE in wanted else [_INCLUDE])]
        members = {"model": rawjson.dumps(parts.model), "tools": parts.tools, "input": b""}
        members |= {key: rawjson.dumps(value) for key, value in (values | extra).items()}
        preamble = parts.preamble
        if preamble and writing.sets_breakpoint(parts, self.family):
            preamble = writing.with_breakpoint(preamble, "input_text")
        return ModelRequest(
            path="/responses",
            body=writing.body_of(members, (preamble, *parts.history), key="input"),
            headers=dict(headers),
            stream=parts.stream,
        )

    def _settings(self, settings: dict[str, Any], parts: RequestParts) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if parts.cache_key is not None and self.family in FIRST_PARTY:
            values["prompt_cache_key"] = writing.cache_key(parts.cache_key)
        for name, value in settings.items():
            if name == "reasoning_effort":
                values["reasoning"] = {"effort": value}
            elif name in ("tool_choice", "parallel_tool_calls"):
                if parts.tools:  # without tools OpenAI refuses both
                    values[name] = _tool_choice(value) if name == "tool_choice" else value
            elif name == "context_management":
                check_host(self.family, FIRST_PARTY)
                values[name] = responses_edits(value)
            elif name in _SETTINGS:
                if name == "prompt_cache_key":
                    writing.check_cache_key(value)
                values[name] = value
            elif name != "model":
                raise ValueError(
                    f"the 'openai-responses' wire has no setting {name!r}; send a server's own by extra_body"
                )
        if parts.forbid_tools and parts.tools:
            values["tool_choice"] = "none"
        return values

    def usable_edits(
        self, edits: Sequence[ContextEdit], settings: Mapping[str, Any]
    ) -> tuple[ContextEdit, ...]:
        """What of a compactor's wishes a request may hold; see `EditsContext`."""
        return usable_on_responses(edits) if self.family in FIRST_PARTY else ()

    def count_request(self, parts: RequestParts) -> ModelRequest:
        """Ask how many input tokens a request has; see `CountsTokens`."""
        return cut_down(self.request(parts), "/responses/input_tokens", _COUNTED)

    def counted(self, body: bytes) -> int:
        """The number in the answer. Raises `ProtocolFault`."""
        return count_of(body)

    def compaction_request(self, parts: RequestParts, instructions: str) -> ModelRequest:
        """Ask for a compaction of the history; see `CompactsHistory`.

        The endpoint's `instructions` replace a system prompt and do not say what to keep: none are sent.
        """
        request = self.request(replace(parts, stream=False, forbid_tools=False))
        return cut_down(request, "/responses/compact", _COMPACTED)

    def compacted(self, body: bytes) -> Reply:
        """The items that stand for the history from now on: the user's messages, and what the provider made
        of the rest. The preamble is not stored, if it is among them. Raises `ProtocolFault`."""
        reply = read_again(
            body,
            lambda body: reading.reply_of(reading.read_body(body), family=self.family, speakers=_SPEAKERS),
        )
        entries = tuple(entry for entry in reply.entries if read_entries([entry])[0].role != "system")
        if not entries or not self.is_boundary(entries[-1]):
            raise ProtocolFault("the answer holds no compaction of the history", usage=reply.usage)
        return replace(reply, entries=entries, signed=True)

    def is_boundary(self, entry: bytes) -> bool:
        """True for the item that the provider has made of all that stood before it."""
        if b'"compaction"' not in entry:
            return False
        item = rawjson.view(entry)
        return isinstance(item, dict) and item.get("type") == "compaction"

    # ------------------------------------------------------------------------------------ reading

    def reply(self, body: bytes) -> Reply:
        """Read a unary response.

        Raises:
            ProtocolFault: The body is not a finished response.
        """
        return read_again(body, lambda body: reading.reply_of(reading.read_body(body), family=self.family))

    def decoder(self) -> StreamDecoder:
        """A fresh decoder for one streamed response."""
        return ResponsesDecoder(self.family)

    def without_calls(self, reply: Reply) -> Reply:
        """The reply with its tool calls and their reasoning cut out; no entries if it said nothing else."""
        return reading.without_calls(reply)

    def with_call_ids(self, reply: Reply, ids: Sequence[str]) -> Reply:
        """The reply with its calls' ids replaced in order; ValueError unless there is one for each."""
        return reading.with_call_ids(reply, ids)

    def unsigned(self, entries: Sequence[bytes]) -> list[bytes]:
        """The entries without encrypted reasoning, and what followed it without the id that points to it.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return units.unsigned(entries)

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """The entries without calls of provider tools that the client should have run: nobody did.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return units.settled(reply)

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read stored entries as neutral messages: one for the items of a reply, one for any other entry.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return read_entries(entries)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """Say what an error answer means."""
        fault = http_fault(status, headers, body)
        if fault.kind == "rejected" and any(words in body for words in _SIGNATURE_WORDS):
            return replace(fault, kind="signature")
        return fault


# ------------------------------------------------------------------------------------------- items


_OUTPUTS: Final = {"function": "function_call_output", "custom": "custom_tool_call_output"}


def _call(call: ToolCall) -> dict[str, Any]:
    if call.kind == "provider":
        return {**call.parsed, client.id_key(call.name): call.id}
    item = next(item for item, (kind, _) in CALLS.items() if kind == call.kind)
    return {"type": item, "call_id": call.id, "name": call.name, CALLS[item][1]: call.arguments}


def _result(result: ToolResult) -> dict[str, Any]:
    if result.kind == "provider" and result.name in client.OUTPUTS:
        return client.result_item(result.name, result.call_id, result.parts)
    return _output(_OUTPUTS.get(result.kind, "function_call_output"), result.call_id, result.parts)


def _output(type: str, call_id: str, parts: Sequence[Part]) -> dict[str, Any]:
    content = [_result_part(part) for part in parts]
    is_text = not content or (len(content) == 1 and content[0]["type"] == "input_text")
    output = "".join(part["text"] for part in content) if is_text else content
    return {"type": type, "call_id": call_id, "output": output}


def _result_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": user_text(part.text)}
    if isinstance(part, Audio):
        return {"type": "input_text", "text": writing.placeholder(part, "this provider takes no sound")}
    return _media(part)


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    content = [_part(part) for part in parts]
    if len(content) == 1 and content[0]["type"] == "input_text":
        text: str = content[0]["text"]
        return text
    return content


def _part(part: Part) -> dict[str, Any]:
    match part:
        case BlockText():
            return {"type": "input_text", "text": part.text}
        case Text():
            return {"type": "input_text", "text": user_text(part.text)}
        case Audio():
            raise ValueError("the 'openai-responses' wire takes no sound; use the 'openai' wire")
        case _:
            return _media(part)


def _media(part: Image | Document) -> dict[str, Any]:
    url = plain(part.url) if part.data is None and part.url is not None else writing.inline_url(part)
    if isinstance(part, Image):
        return {"type": "input_image", "detail": part.detail or "auto", "image_url": url}
    if part.data is None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": writing.file_name(part), "file_data": url}


# ------------------------------------------------------------------------------------------- tools


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": plain(tool.description),
        "parameters": dict(tool.parameters),
        # Always said: without it the server makes schemas strict where it can, unlike the chat wire.
        "strict": tool.strict,
    }


def _tool_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in writing.TOOL_CHOICES else {"type": "function", "name": choice}


def _check_extra(extra: Mapping[str, Any]) -> None:
    for key, harmless in _HARMLESS.items():
        if key in extra and extra[key] not in harmless:
            raise ValueError(f"extra_body cannot set {key!r}: {_WHY_NOT[key]}")
