"""The OpenAI Responses dialect: neutral values into request bytes, response bytes into replies.

Owns: the requests of this provider API. Must never know: a socket, an SDK, a turn.

The server keeps nothing: every request says ``store: false`` and asks for encrypted reasoning, and the items
of every reply are sent back unchanged. The order of the body is ``model, tools, input, settings``, the order
in which a cached prefix grows. The preamble is the first item of ``input``. It is not ``instructions``,
because newer models put that after the history in every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ...base import rawjson
from ...base.values import Value, replace
from ...types.messages import Image, Message, Text, ToolCall, ToolResult
from ...types.render import event_block, valid_text
from ...types.request_parts import ContextEdit, ProviderTool, ToolSpec
from ...types.tokens import Frames
from ..base import Fault, ModelRequest, ProtocolFault, Reply, RequestParts, StreamDecoder
from ..capabilities import capabilities
from ..http.faults import http_fault
from ..known_hosts import known_rules
from ..openai.fit import LEAST_ON_RESPONSES, fit
from ..protocols import EntryView, Fitted, HistoryFrame, HostRules
from ..wire import request as writing
from ..wire.answer import OPENAI_FAMILIES
from ..wire.envelope import read_again
from ..wire.fitting import Fitting
from ..wire.request import WRITTEN_HERE, Refused, check_context_edits, count_of, cut_down, encoded, with_extra
from ..wire.schema_refusals import refuse_at_openai
from ..wire.strict_schema import openai_strict
from ..wire.tolerance import parsed
from . import client_calls as client
from . import item_units as units
from . import reply as reading
from .items import read_entries
from .stream import ResponsesDecoder
from .writing import (
    call_item,
    function_tool,
    message_content,
    output_item,
    responses_edits,
    result_item,
    usable_on_responses,
    written_choice,
)

if TYPE_CHECKING:
    from ..wire.reply_pieces import LossKind, Piece

__all__ = ["OpenAIResponsesDialect"]

_SETTINGS: Final = frozenset({"max_output_tokens", "temperature", "top_p", "prompt_cache_key"})
"""Settings that are sent with an unchanged value, under the same name as in `ModelSettings`."""

_SPEAKERS: Final = ("assistant", "user", "system", "developer")
"""Roles of the messages in a compacted history."""

_NEEDED: Final = {"include": ("reasoning.encrypted_content",)}
"""Without it the next turn would lose the reasoning."""

_COUNTED: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"}
)
"""Members that `input_tokens` takes (openai 3.54, types/responses/input_token_count_params.py)."""

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
"""Members that `compact` takes (openai 3.54, types/responses/response_compact_params.py)."""

_REFUSED: Final = {
    "input": WRITTEN_HERE,
    "stream": WRITTEN_HERE,
    "store": Refused("the conversation is kept in the state only", (False,)),
    "previous_response_id": Refused("the history is in the state; the server must not add another", (None,)),
    "conversation": Refused("the history is in the state; the server must not add another", (None,)),
    "prompt": Refused("it would stand before the history unseen; use system=", (None,)),
    "background": Refused("the answer must be in the response, not kept for later", (None, False)),
    "truncation": Refused("the server must not rewrite the history; use a compactor", (None, "disabled")),
}
"""Members that `extra_body` may not set, and the harmless values of some of them."""

_SIGNATURE_WORDS: Final = (
    b"was provided without its required",  # following item, or 'reasoning' item; recorded, code null
    b"Items are not persisted when `store` is set to false",  # vercel/ai#7543
)
"""The server's texts, sent without a code, for reasoning that does not fit the history."""


class OpenAIResponsesDialect(Value, frozen=True):
    """``POST /responses`` without server state, as OpenAI, Azure and many compatible servers speak it.

    Args:
        family: "openai", "azure", or the host of a compatible server. The others get a cache key only if a
            setting gives one, no `include_obfuscation`, and the role ``system`` where the first two get
            ``developer``: Ollama silently drops items of that role (ollama#18305), and chat templates of
            vLLM and llama.cpp refuse it.
        host: The server's host and port; "" for the company's own.
    """

    wire: ClassVar[str] = "openai-responses"
    frames: ClassVar[Frames] = Frames(result=11.0, call=6.0, parallel=17.0, keeps_reasoning=True)
    longest_tool_name: ClassVar[int] = 128
    losses: ClassVar[frozenset[LossKind]] = frozenset()

    family: str = "openai"
    host: str = ""

    # ------------------------------------------------------------------------------------ writing

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one item each. The calls of an assistant's message are items
        of their own after it.

        User text cannot imitate an event or context block (see `render`). A single text is a string, anything
        else a list of parts.

        Raises:
            ValueError: A part that this provider API does not take: sound, an `Image` that is not a picture,
                or media in a message that is not the user's.
        """
        for message in messages:
            for part in message.parts:
                if type(part) is Image and message.role == "user":
                    writing.check_image(part, self.wire, is_strict=self.family in OPENAI_FAMILIES)
        return [rawjson.dumps(item) for message in messages for item in self._items(message)]

    def _items(self, message: Message) -> list[dict[str, Any]]:
        if message.is_event:
            text = event_block(message.text, topic=message.topic, id=message.event_id)
            return [{"role": "user", "content": text}]
        if message.role == "user":
            return [{"role": "user", "content": message_content(message.parts)}]
        if message.role == "tool":
            return [
                output_item(
                    "function_call_output",
                    message.tool_call_id or "",
                    message.parts,
                    self.family in OPENAI_FAMILIES,
                )
            ]
        if not all(isinstance(part, Text) for part in message.parts):
            raise ValueError(
                f"a message of role {message.role!r} holds text only on the provider API 'openai-responses'"
            )
        role = message.role if message.role == "assistant" else self._system
        text = valid_text(message.text)
        said = [{"role": role, "content": text}] if text or not message.tool_calls else []
        return [*said, *map(call_item, message.tool_calls)]

    @property
    def _system(self) -> str:
        return "developer" if self.family in OPENAI_FAMILIES else "system"

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode tool results, one item each, in call order.

        Sound, and a picture that the provider does not take, becomes a line of text that says so.
        """
        return [rawjson.dumps(result_item(result, self.family in OPENAI_FAMILIES)) for result in results]

    def waits_for(self, call: ToolCall) -> Literal["approval", "external"]:
        """Whether a provider tool's call waits for "approval" or "external"; see `RunsProviderTools`."""
        return client.reason_of(call)

    def provider_output(self, call: ToolCall, value: Any, *, is_error: bool = False) -> str:
        """The item that answers a provider tool's call; see `RunsProviderTools`.

        Raises:
            ValueError: The value cannot answer a call of this type.
        """
        return rawjson.dumps(client.output_item(call, value, is_error=is_error)).decode()

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request; b"" without messages."""
        return writing.joined(self.entries(messages))

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list; b"" without tools. For its order see `tool_list`."""
        return writing.tool_list(tools, function_tool)

    def output(self, name: str, schema: Mapping[str, Any], *, strict: bool) -> bytes:
        """Encode ``text.format`` for answers in JSON; see `WritesOutput`.

        Raises:
            ValueError: OpenAI would refuse the schema. Compatible servers are not asked.
        """
        written = openai_strict(schema) if strict else dict(schema)
        if strict and self.family in OPENAI_FAMILIES:
            refuse_at_openai(written, name)
        return rawjson.dumps({"type": "json_schema", "name": name, "schema": written, "strict": strict})

    def request(self, parts: RequestParts) -> ModelRequest:
        """Splice a request together; the history is joined, never parsed.

        How `extra_body` is merged: see `wire.extra_body`. Encrypted reasoning stays in ``include``.

        Raises:
            ValueError: A setting that this provider API does not have, a `prompt_cache_key` that is too
                long, or an `extra_body` that makes the server keep state, rewrite the history or answer in
                another way.
        """
        settings = dict(parts.settings)
        headers = settings.pop("extra_headers", {})
        extra = settings.pop("extra_body", {})
        values = self._settings(settings, parts)
        if parts.stream:
            values["stream"] = True
            if self.family == "openai":
                # Padding that hides lengths inside TLS; it doubles the bytes of a stream.
                values["stream_options"] = {"include_obfuscation": False}
        if parts.output:
            values["text"] = {"format": rawjson.loads(parts.output)}
        values |= {"store": False, "include": ()}
        members = {"model": rawjson.dumps(parts.model), "tools": parts.tools, "input": b""}
        members |= encoded(with_extra(values, extra, refused=_REFUSED, needed=_NEEDED))
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
        if parts.cache_key is not None and self.family in OPENAI_FAMILIES:
            values["prompt_cache_key"] = writing.cache_key(parts.cache_key)
        for name, value in settings.items():
            if name == "reasoning_effort":
                values["reasoning"] = {"effort": value}
            elif name in ("tool_choice", "parallel_tool_calls"):
                if parts.tools:  # without tools OpenAI refuses both
                    values[name] = written_choice(value) if name == "tool_choice" else value
            elif name == "context_management":
                check_context_edits(self.family, OPENAI_FAMILIES)
                values[name] = responses_edits(value)
            elif name in _SETTINGS:
                if name == "prompt_cache_key":
                    writing.check_cache_key(value)
                values[name] = value
            elif name != "model":
                raise ValueError(
                    f"the provider API 'openai-responses' has no setting {name!r}; send a server's own by "
                    "extra_body"
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
        fit(fitting, least=LEAST_ON_RESPONSES if self.family in OPENAI_FAMILIES else 1)
        return fitting.fitted

    def usable_edits(
        self, edits: Sequence[ContextEdit], settings: Mapping[str, Any]
    ) -> tuple[ContextEdit, ...]:
        """The compactor's edits that a request may hold; see `EditsContext`."""
        return usable_on_responses(edits) if self.family in OPENAI_FAMILIES else ()

    def count_request(self, parts: RequestParts) -> ModelRequest:
        """Ask how many input tokens a request has; see `CountsTokens`."""
        return cut_down(self.request(parts), "/responses/input_tokens", _COUNTED)

    def counted(self, body: bytes) -> int:
        """The number in the answer. Raises `ProtocolFault`."""
        return count_of(body)

    def compaction_request(self, parts: RequestParts, instructions: str) -> ModelRequest:
        """Ask for a compaction of the history; see `CompactsHistory`.

        No instructions are sent: the endpoint's member of that name is a system prompt, and cannot name the
        content to keep.
        """
        request = self.request(replace(parts, stream=False, forbid_tools=False))
        return cut_down(request, "/responses/compact", _COMPACTED)

    def compacted(self, body: bytes) -> Reply:
        """The items that replace the history from now on: the user's messages, and the provider's compaction
        of the rest. A preamble among them is not stored. Raises `ProtocolFault`."""
        reply = read_again(
            body,
            lambda body: reading.reply_of(reading.read_body(body), family=self.family, speakers=_SPEAKERS),
        )
        entries = tuple(entry for entry in reply.entries if read_entries([entry])[0].role != "system")
        if not entries or not self.is_boundary(entries[-1]):
            raise ProtocolFault("the answer holds no compaction of the history", usage=reply.usage)
        return replace(reply, entries=entries, signed=True)

    def is_boundary(self, entry: bytes) -> bool:
        """True for a compaction item, which replaces everything before it."""
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
        """The reply without its tool calls and their reasoning. No entries if nothing else was in it."""
        return reading.without_calls(reply)

    def with_call_ids(self, reply: Reply, ids: Sequence[str]) -> Reply:
        """The reply with its calls' ids replaced in order; ValueError unless there is one for each."""
        return reading.with_call_ids(reply, ids)

    def unsigned(self, entries: Sequence[bytes]) -> list[bytes]:
        """The entries without encrypted reasoning. The items after it lose the id that refers to it.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return units.unsigned(entries)

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """The entries without unanswered calls of provider tools that the client runs.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return units.settled(reply)

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read stored entries as neutral messages: one for the items of a reply, one for every other entry.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return read_entries(entries)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """Classify an error response."""
        fault = http_fault(status, headers, body)
        if fault.kind == "rejected" and any(words in body for words in _SIGNATURE_WORDS):
            return replace(fault, kind="signature")
        return fault

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
        """The rules that this host is known to have for a model; see `ViewsHistory`."""
        return known_rules(self.wire, self.family, self.host, model)

    def request_view(self, parts: RequestParts, rules: HostRules) -> RequestParts:
        """The request as a host with these rules takes it; see `ViewsHistory`."""
        from .view import request_view

        return request_view(parts, rules, is_own=self.family in OPENAI_FAMILIES)

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
