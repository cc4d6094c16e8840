"""The OpenAI Chat Completions dialect: neutral values into request bytes, response bytes into replies.

Owns: the requests of this provider API. Must never know: a socket, an SDK, a turn.

The order of the body is ``model, tools, messages, settings``. Servers cache the prompt with the tools before
the messages, so the bytes stand in the order in which a cached prefix grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...base import rawjson
from ...base.values import Value
from ...types.messages import Audio, Document, Image, Message, Part, Text, ToolCall, ToolResult
from ...types.render import BlockText, event_block, user_text, valid_text
from ...types.request_parts import ProviderTool, ToolSpec
from ...types.tokens import Frames
from ..base import Fault, ModelRequest, Reply, RequestParts, StreamDecoder
from ..capabilities import capabilities
from ..http.faults import http_fault
from ..known_hosts import known_rules
from ..openai.fit import fit
from ..protocols import EntryView, Fitted, HistoryFrame, HostRules
from ..wire import request as writing
from ..wire.answer import OPENAI_FAMILIES
from ..wire.envelope import read_again
from ..wire.fitting import Fitting
from ..wire.request import WRITTEN_HERE, encoded, with_extra
from ..wire.schema_refusals import refuse_at_openai
from ..wire.strict_schema import openai_strict
from ..wire.tolerance import parsed
from . import reply as reading
from . import sound
from .message import read_entry
from .stream import ChatDecoder

if TYPE_CHECKING:
    from ..wire.reply_pieces import LossKind, Piece

__all__ = ["OpenAIChatDialect"]

_SETTINGS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "reasoning_effort": "reasoning_effort",
    "stop": "stop",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "prompt_cache_key": "prompt_cache_key",
}
"""Settings that are sent with an unchanged value, by field of `ModelSettings`."""

_REFUSED: Final = {"messages": WRITTEN_HERE, "stream": WRITTEN_HERE}

_NO_RULES: Final = HostRules()

_TEXT_ONLY: Final = "this provider's tool results hold text only"

_AUDIO_FORMATS: Final = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


_WITHOUT_FORMAT: Final = frozenset({"api.deepseek.com"})
"""Hosts without a format for a schema: "This response_format type is unavailable now" (inspect_ai#4916,
2026-08; presenton#676, 2026-06)."""


class OpenAIChatDialect(Value, frozen=True):
    """``POST /chat/completions``, as OpenAI, Azure and many compatible servers speak it.

    Args:
        family: "openai", "azure", or the host of a compatible server. The first two check a request against
            the published type. The others get `max_tokens` instead of `max_completion_tokens`, no
            `include_obfuscation`, and a cache key only if a setting gives one.
        host: The server's host and port; "" for the company's own.
    """

    wire: ClassVar[str] = "openai"
    frames: ClassVar[Frames] = Frames()
    longest_tool_name: ClassVar[int] = 64
    losses: ClassVar[frozenset[LossKind]] = frozenset()

    family: str = "openai"
    host: str = ""

    # ------------------------------------------------------------------------------------ writing

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one entry each.

        User text cannot imitate an event or context block (see `render`). A single text is a string,
        anything else a list of parts. A system message keeps the role ``system``: OpenAI turns it into
        ``developer`` where a model needs that, and compatible servers know no other name.

        Raises:
            ValueError: A part that this provider API does not take: a document or sound by URL, media in a
                message that is not the user's, an `Image` that is not a picture.
        """
        for message in messages:
            for part in message.parts:
                if type(part) is Image and message.role == "user":
                    writing.check_image(part, self.wire, is_strict=self.family in OPENAI_FAMILIES)
        return [rawjson.dumps(_message(message)) for message in messages]

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode tool results, one message each, in call order.

        Tool messages hold text only here. Media in a result become a line of text that says so.
        """
        return [rawjson.dumps(_tool_message(result.call_id, result.parts)) for result in results]

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request; b"" without messages."""
        return writing.joined(self.entries(messages))

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list; b"" without tools.

        Functions come first, by name; provider tools follow, by digest of their sorted JSON. The order
        of a schema's own keys is its author's and is kept: it is the order in which a model reads them.
        """
        return writing.tool_list(tools, _function)

    def output(self, name: str, schema: Mapping[str, Any], *, strict: bool) -> bytes:
        """Encode ``response_format`` for answers in JSON; see `WritesOutput`.

        Raises:
            ValueError: OpenAI would refuse the schema. Compatible servers are not asked.
        """
        if self.family in _WITHOUT_FORMAT:
            return b""
        written = openai_strict(schema) if strict else dict(schema)
        if strict and self.family in OPENAI_FAMILIES:
            refuse_at_openai(written, name)
        made = {"name": name, "schema": written, "strict": strict}
        return rawjson.dumps({"type": "json_schema", "json_schema": made})

    def request(self, parts: RequestParts) -> ModelRequest:
        """Splice a request together; the history is joined, never parsed.

        Raises:
            ValueError: A setting that this provider API does not have, a `prompt_cache_key` that is too
                long, or an `extra_body` with a member that it may not set.
        """
        settings = dict(parts.settings)
        headers = settings.pop("extra_headers", {})
        extra = settings.pop("extra_body", {})
        values = self._settings(settings, parts)
        if parts.stream:
            values["stream"] = True
            values["stream_options"] = self._stream_options()
        if parts.output:
            values["response_format"] = rawjson.loads(parts.output)
        members = {"model": rawjson.dumps(parts.model), "tools": parts.tools, "messages": b""}
        members |= encoded(with_extra(values, extra, refused=_REFUSED))
        preamble = parts.preamble
        if preamble and writing.sets_breakpoint(parts, self.family):
            preamble = writing.with_breakpoint(preamble, "text")
        history = sound.sent(parts.history, parts.carried) if parts.carried else parts.history
        return ModelRequest(
            path="/chat/completions",
            body=writing.body_of(members, (preamble, *history), key="messages"),
            headers=dict(headers),
            stream=parts.stream,
        )

    def _settings(self, settings: dict[str, Any], parts: RequestParts) -> dict[str, Any]:
        values: dict[str, Any] = {}
        is_first_party = self.family in OPENAI_FAMILIES
        if parts.cache_key is not None and is_first_party:
            values["prompt_cache_key"] = writing.cache_key(parts.cache_key)
        for name, value in settings.items():
            if name == "max_output_tokens":
                values["max_completion_tokens" if is_first_party else "max_tokens"] = value
            elif name in ("tool_choice", "parallel_tool_calls"):
                if parts.tools:  # without tools OpenAI refuses both
                    values[name] = _tool_choice(value) if name == "tool_choice" else value
            elif name in _SETTINGS:
                if name == "prompt_cache_key":
                    writing.check_cache_key(value)
                values[_SETTINGS[name]] = value
            elif name == "context_management":
                raise ValueError(
                    "the provider API 'openai' has no context_management; use 'openai-responses', or a "
                    "compactor"
                )
            elif name != "model":
                raise ValueError(
                    f"the provider API 'openai' has no setting {name!r}; send a server's own by extra_body"
                )
        if parts.forbid_tools and parts.tools:
            values["tool_choice"] = "none"
        return values

    def fitted(
        self, given: Mapping[str, Any], kept: Mapping[str, Any], *, model: str, has_tools: bool
    ) -> Fitted:
        """Settings that were not written for this model, fitted to it; see `FitsSettings`."""
        known = capabilities(model)
        fitting = Fitting(given, kept, model=model, known=known, has_tools=has_tools)
        fit(fitting, tools_reason=False)
        return fitting.fitted

    def _stream_options(self) -> dict[str, bool]:
        options = {"include_usage": True}
        if self.family == "openai":
            options["include_obfuscation"] = False  # padding that hides lengths inside TLS; it costs bytes
        return options

    # ------------------------------------------------------------------------------------ reading

    def reply(self, body: bytes) -> Reply:
        """Read a unary response. Of several choices the first one counts.

        Raises:
            ProtocolFault: The body is not a chat completion.
        """
        return read_again(body, lambda body: reading.reply_of(reading.read_body(body), family=self.family))

    def decoder(self) -> StreamDecoder:
        """A fresh decoder for one streamed response."""
        return ChatDecoder(self.family)

    def without_calls(self, reply: Reply) -> Reply:
        """The reply without its tool calls. It has no entry if nothing else was in it."""
        return reading.without_calls(reply)

    def with_call_ids(self, reply: Reply, ids: Sequence[str]) -> Reply:
        """The reply with its calls' ids replaced in order; ValueError unless there is one for each."""
        return reading.with_call_ids(reply, ids)

    def unsigned(self, entries: Sequence[bytes]) -> list[bytes]:
        """The same entries: this provider API seals nothing."""
        return list(entries)

    def marks(self, entries: Sequence[bytes]) -> Mapping[str, tuple[str, int]]:
        """The mark of an imported history with sounds; see `MarksHistory`. Their ids are not known to be
        valid."""
        return {sound.MARK: ("", 0)} if any(b'"audio"' in entry for entry in entries) else {}

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """The same entries: this provider API does not pause replies."""
        return list(reply)

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read stored entries as neutral messages, one for each.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return tuple(map(read_entry, entries))

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """Classify an error response."""
        return http_fault(status, headers, body)

    # ---------------------------------------------------------------------------- optional protocols

    def history_problems(
        self, entries: Sequence[Mapping[str, Any] | bytes], frame: HistoryFrame
    ) -> Iterable[str]:
        """The known rules that a history breaks; see `ChecksHistory`."""
        from .rules import problems

        return problems(entries, frame)

    def entry_problems(self, entry: Mapping[str, Any] | bytes) -> Iterable[str]:
        """The known rules that one entry breaks at any position; see `ChecksHistory`."""
        from .rules import entry_problems

        return entry_problems(parsed(entry))

    def history_forms(self, entries: Sequence[bytes]) -> Iterable[EntryView]:
        """The entries in the forms that every server takes; see `ViewsHistory`."""
        from .forms import forms

        return forms(entries)

    def known_rules(self, model: str) -> HostRules:
        """The rules of this host for a model; see `ViewsHistory`."""
        if self.family in OPENAI_FAMILIES:
            return _NO_RULES
        return known_rules(self.wire, self.family, self.host, model)

    def request_view(self, parts: RequestParts, rules: HostRules) -> RequestParts:
        """The request as a host with these rules takes it; see `ViewsHistory`."""
        from .view import request_view

        return request_view(parts, rules)

    def unique_calls(self, entries: Sequence[bytes]) -> Sequence[EntryView]:
        """The entries with unique ids for answered calls; see `ViewsHistory`."""
        from .forms import unique_calls

        return unique_calls(entries)

    def reply_pieces(self, entries: Sequence[bytes]) -> Iterable[Piece]:
        """The pieces of one reply, in order; see `TranslatesReplies`."""
        from .translate import reply_pieces

        return reply_pieces(entries)

    def write_reply(self, text: str, calls: Sequence[ToolCall]) -> tuple[list[bytes], int]:
        """A reply as entries, and its odd arguments; see `TranslatesReplies`."""
        from .translate import write_reply

        return write_reply(text, calls)

    def call_id(self, id: str, *, taken: bool = False) -> str:
        """The id of a call on this provider API; see `TranslatesReplies`."""
        from .translate import call_id

        return call_id(id, taken=taken)


# ---------------------------------------------------------------------------------------- messages


def _message(message: Message) -> dict[str, Any]:
    if message.is_event:
        text = event_block(message.text, topic=message.topic, id=message.event_id)
        return {"role": "user", "content": text}
    if message.role == "user":
        return {"role": "user", "content": _user_content(message.parts)}
    if message.role == "tool":
        return _tool_message(message.tool_call_id or "", message.parts)
    return _spoken(message)


def _spoken(message: Message) -> dict[str, Any]:
    """A system or assistant message: text, and for the assistant tool calls."""
    if not all(isinstance(part, Text) for part in message.parts):
        raise ValueError(f"a message of role {message.role!r} holds text only on the provider API 'openai'")
    content = valid_text(message.text)
    if not message.tool_calls:
        return {"role": message.role, "content": content}
    calls = [_tool_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": content or None, "tool_calls": calls}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    kind = "custom" if call.kind == "custom" else "function"
    written = "input" if kind == "custom" else "arguments"
    return {"id": call.id, "type": kind, kind: {"name": call.name, written: call.arguments}}


def _tool_message(call_id: str, parts: Sequence[Part]) -> dict[str, Any]:
    texts = [
        user_text(part.text) if isinstance(part, Text) else writing.placeholder(part, _TEXT_ONLY)
        for part in parts
    ]
    content = [{"type": "text", "text": text} for text in texts] if len(texts) > 1 else "".join(texts)
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _user_content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    content = [_part(part) for part in parts]
    if len(content) == 1 and content[0]["type"] == "text":
        text: str = content[0]["text"]
        return text
    return content


def _part(part: Part) -> dict[str, Any]:
    match part:
        case BlockText():
            return {"type": "text", "text": part.text}
        case Text():
            return {"type": "text", "text": user_text(part.text)}
        case Image():
            image = {"url": valid_text(part.url) if part.url is not None else _inline_url(part)}
            detail = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": image | detail}
        case Document():
            return {
                "type": "file",
                "file": {"filename": writing.file_name(part), "file_data": _inline_url(part)},
            }
        case Audio():
            if (audio_format := _AUDIO_FORMATS.get(part.media_type)) is None:
                raise ValueError(f"the provider API 'openai' takes WAV and MP3 sound, not {part.media_type}")
            _check_data(part)
            return {"type": "input_audio", "input_audio": {"data": part.base64(), "format": audio_format}}


def _inline_url(part: Image | Document) -> str:
    _check_data(part)
    return writing.inline_url(part)


def _check_data(part: Image | Document | Audio) -> None:
    if part.data is None:
        kind = type(part).__name__
        raise ValueError(
            f"the provider API 'openai' takes no {kind} by URL; read it and use {kind}.from_bytes(...)"
        )


# --------------------------------------------------------------------------------------------- tools


def _function(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": valid_text(tool.description),
        "parameters": dict(tool.parameters),
    }
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in writing.TOOL_CHOICES else {"type": "function", "function": {"name": choice}}
