"""The Anthropic Messages dialect: neutral values into request bytes, response bytes into replies.

Owns: the requests of this provider API. Must never know: a socket, an SDK, a turn.

The order of the body is ``model, max_tokens, tools, system, messages, settings``. The provider's prompt is
tools, system, messages, so the bytes stand in the order in which a cached prefix grows.

Cache marks are set in the sent copy, never in the stored one. There are at most four: one on the last tool,
one on the last block of the preamble, and one at the end of the history. Where the server finds that end
itself, the last one is the request's member ``cache_control`` ("automatic" caching). Elsewhere it is a mark
on the last block of the last message. ``extra_body={"cache_control": {…}}`` changes all marks (for a longer
`ttl`), and ``extra_body={"cache_control": None}`` removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from ...base import rawjson
from ...base.values import Value, replace
from ...types.messages import Message, ToolCall, ToolResult
from ...types.render import valid_text
from ...types.request_parts import ContextEdit, ProviderTool, ToolSpec
from ...types.tokens import Frames
from ..base import Fault, ModelRequest, Reply, RequestParts, StreamDecoder
from ..capabilities import capabilities
from ..http.faults import http_fault
from ..known_hosts import known_rules
from ..protocols import EntryView, Fitted, HistoryFrame, HostRules
from ..wire.envelope import read_again
from ..wire.fitting import Fitting
from ..wire.request import (
    WRITTEN_HERE,
    body_of,
    check_context_edits,
    count_of,
    cut_down,
    encoded,
    tool_list,
    with_extra,
)
from ..wire.schema_refusals import refuse_at_anthropic
from ..wire.strict_schema import anthropic_strict
from ..wire.tolerance import parsed
from . import history_edits, writing
from . import reply as reading
from .call_results import failed_calls, join_results, output_block, result_block, split_results
from .fit import FRAMES, fit, is_claude, take_max_tokens, thinking_member, thinks_manually, unbound_thinking
from .history_edits import COMPACTION_BETA, anthropic_edits, usable_at_anthropic
from .history_needs import add_beta, betas_of, header_of, named_betas, sent_without_tools
from .message import read_entry
from .reply import ANTHROPIC_FAMILIES
from .sent_history import began_unthinking, marked, marked_last, opened, placed
from .stream import AnthropicDecoder

if TYPE_CHECKING:
    from ..wire.reply_pieces import LossKind, Piece

__all__ = ["AnthropicDialect"]

_AUTOMATIC: Final = frozenset({"anthropic", "foundry"})
"""Families that accept the request's own ``cache_control``. The others get marked messages."""

_VERSION: Final = "anthropic-version"
_OLD: Final = "2023-06-01"
"""The version that compatible servers know. It is the last in which Anthropic took sampling settings."""

_BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"

_COUNTED: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"}
)
"""Members that `count_tokens` takes (anthropic 2.12, types/message_count_tokens_params.py)."""

_REFUSED: Final = {"messages": WRITTEN_HERE, "stream": WRITTEN_HERE}

_NOT_COMPACTED: Final = frozenset({"stop", "tool_choice", "context_management"})
"""Settings that a request for a compaction does not take."""

_EPHEMERAL: Final = {"type": "ephemeral"}
_MAX_MARKS: Final = 4

_NO_SAMPLING: Final = (
    "Anthropic's API takes no {name!r} any more: its version 2026-10-21 answers 400 to sampling settings. "
    "For an older model put it into extra_body and pin extra_headers={{'anthropic-version': '2023-06-01'}}"
)


class AnthropicDialect(Value, frozen=True):
    """``POST /v1/messages``, as Anthropic, its clouds and compatible servers speak it.

    Args:
        family: "anthropic", "aws", "foundry" or "claude.googleapis.com", or the host of a compatible
            server. The first four check a request against the published type. The others get
            `anthropic-version: 2023-06-01`, sampling settings, and cache marks on the last message.
        model: The backend's model, "" without one. It decides whether a system message in the middle of
            the history is stored as one. The sent form depends on the request's own model.
        host: The server's host and port; "" for the company's own.
    """

    wire: ClassVar[str] = "anthropic"
    frames: ClassVar[Frames] = FRAMES
    longest_tool_name: ClassVar[int] = 128
    losses: ClassVar[frozenset[LossKind]] = frozenset({"custom_call", "image_detail"})

    family: str = "anthropic"
    model: str = ""
    host: str = ""

    # ------------------------------------------------------------------------------------ writing

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one entry each.

        User text cannot imitate an event, context or system block (see `render`). A system message stays one
        if the model takes system messages; else it becomes a user message with a block. An image's `detail`
        is left out, because this provider API does not have it.

        Raises:
            ValueError: A part that this provider API does not take: sound, a document that is neither PDF
                nor text, media in a message that is not the user's. Or a message of white space only.
        """
        knows_system = self.family in ANTHROPIC_FAMILIES and capabilities(self.model).takes_system_messages
        return [rawjson.dumps(writing.message(one, knows_system=knows_system)) for one in messages]

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode tool results as one user message, in call order.

        The tool has run, so a part that this provider API does not take becomes a line of text that says so.
        """
        if not results:
            return []
        content = [
            result_block(one)
            if one.kind == "provider"
            else writing.tool_result(one.call_id, one.parts, is_error=one.flag != "ok")
            for one in results
        ]
        return [rawjson.dumps({"role": "user", "content": content})]

    def waits_for(self, call: ToolCall) -> Literal["approval", "external"]:
        """A call of a client toolset waits for its result; see `RunsProviderTools`."""
        return "external"

    def provider_output(self, call: ToolCall, value: Any, *, is_error: bool = False) -> str:
        """The block that answers a call of a client toolset; see `RunsProviderTools`.

        Raises:
            ValueError: The value cannot answer the call.
        """
        return rawjson.dumps(output_block(call, value, is_error=is_error)).decode()

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request as text blocks; b"" without text."""
        texts = [valid_text(message.text) for message in messages]
        blocks = [writing.text(text) for text in texts if text.strip()]
        return rawjson.dumps(blocks) if blocks else b""

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list; b"" without tools. Functions come first, by name; provider tools follow."""
        return tool_list(tools, writing.function)

    def output(self, name: str, schema: Mapping[str, Any], *, strict: bool) -> bytes:
        """Encode ``output_config.format`` for answers in JSON; see `WritesOutput`. It has no name, and is
        always strict.

        Raises:
            ValueError: Anthropic would refuse the schema, or its form of the schema would lose a part.
        """
        refuse_at_anthropic(schema, name)
        return rawjson.dumps({"type": "json_schema", "schema": anthropic_strict(schema)})

    def request(self, parts: RequestParts) -> ModelRequest:
        """Splice a request together; the history is joined, never parsed.

        There are two exceptions, both in the sent copy only. If the model takes no system messages, one
        becomes a user message with a block. And if an assistant's message would be the first, a user's
        message is sent before it.

        A thinking budget is left out of the requests of a tool loop that began without thinking, on
        Anthropic's hosts and for its models: "When `thinking` is enabled, a final `assistant` message must
        start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). […]
        To avoid this requirement, disable `thinking`" (400, publicly reported). By its documentation the
        server now takes the request, and does not think either. That happens where a turn is resumed
        with other settings, by another model, after a conversion, or after the provider has refused the
        thinking. The "adaptive" kind does not have this rule.

        `drop_signed` becomes ``thinking.block_binding``, on Anthropic's hosts and for its models. It is added
        to the request's thinking configuration if the type has that member ("enabled" and "adaptive" have
        it, "disabled" and "between_tools" do not). Without a configuration it is "adaptive", the default of
        models that check thinking. For models that are known to check nothing it is left out.

        Raises:
            ValueError: A setting that this provider API does not have, an output limit that is not above the
                thinking budget, or an `extra_body` with a member that it may not set.
        """
        settings = dict(parts.settings)
        headers = dict(settings.pop("extra_headers", {}))
        extra = settings.pop("extra_body", {})
        known = capabilities(parts.model)
        is_own = self.family in ANTHROPIC_FAMILIES
        edits, betas = self._edits(settings.pop("context_management", None))
        values = self._settings(settings, parts, samples=self._samples(headers))
        if parts.output:
            values["output_config"] = {
                **values.get("output_config", {}),
                "format": rawjson.loads(parts.output),
            }
        values = with_extra(values | edits, extra, refused=_REFUSED)
        if thinks_manually(values) and is_claude(is_own, known) and began_unthinking(parts.history):
            values["thinking"] = {"type": "disabled"}
        checks = is_own or known.binds_thinking  # also through a gateway with another host name
        if parts.drop_signed and checks and (thinking := unbound_thinking(values.get("thinking"), known)):
            values["thinking"] = thinking
            add_beta(headers, _BINDING_BETA)
        if not is_own and header_of(headers, _VERSION) is None:
            headers[_VERSION] = _OLD
        members = {
            "model": rawjson.dumps(parts.model),
            "max_tokens": rawjson.dumps(take_max_tokens(values, known)),
            "tools": parts.tools,
            "system": parts.preamble,
            "messages": b"",
        }
        mark = values.pop("cache_control", _EPHEMERAL if parts.cache_marks else None)
        members |= encoded(values)
        history = parts.history
        if parts.has_system:
            history = placed(history, natively=is_own and known.takes_system_messages)
        for beta in betas:
            add_beta(headers, beta)
        if parts.carried:
            for beta in betas_of(parts.carried, named_betas(headers)):
                add_beta(headers, beta)
            history = sent_without_tools(history, parts.carried, members["tools"])
        if history_edits.begins_compacted(history):
            add_beta(headers, COMPACTION_BETA)
        else:
            history = opened(history)
        if mark is not None:
            history = self._mark(members, history, rawjson.dumps(mark))
        return ModelRequest(
            path="/v1/messages",
            body=body_of(members, history, key="messages"),
            headers=headers,
            stream=parts.stream,
        )

    def _settings(self, settings: dict[str, Any], parts: RequestParts, *, samples: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in settings.items():
            if name == "max_output_tokens":
                values["max_tokens"] = value
            elif name in ("temperature", "top_p"):
                if not samples:
                    raise ValueError(_NO_SAMPLING.format(name=name))
                values[name] = value
            elif name == "reasoning_effort":
                values["output_config"] = {"effort": value}
            elif name == "thinking_budget_tokens":
                values["thinking"] = thinking_member(value)
            elif name == "stop":
                values["stop_sequences"] = [value] if isinstance(value, str) else list(value)
            elif name not in ("model", "tool_choice", "parallel_tool_calls"):
                raise ValueError(
                    f"the provider API 'anthropic' has no setting {name!r}; send a server's own by extra_body"
                )
        if parts.tools:
            if (choice := writing.written_choice(settings, forbid=parts.forbid_tools)) is not None:
                values["tool_choice"] = choice
            if "container" in parts.carried:  # without tools there is nothing to run in it
                values["container"] = parts.carried["container"]
        if parts.stream:
            values["stream"] = True
        return values

    def _edits(self, wanted: Sequence[ContextEdit] | None) -> tuple[dict[str, Any], list[str]]:
        """The member that asks the provider for context edits, and the betas that it needs."""
        if not wanted:
            return {}, []
        check_context_edits(self.family, ANTHROPIC_FAMILIES)
        edits, betas = anthropic_edits(wanted)
        return {"context_management": edits}, betas

    def usable_edits(
        self, edits: Sequence[ContextEdit], settings: Mapping[str, Any]
    ) -> tuple[ContextEdit, ...]:
        """The compactor's edits that a request may hold; see `EditsContext`."""
        if self.family not in ANTHROPIC_FAMILIES:
            return ()
        thinking = settings.get("extra_body", {}).get("thinking")
        if thinking is None and "thinking_budget_tokens" in settings:
            thinking = thinking_member(settings["thinking_budget_tokens"])
        thinks = isinstance(thinking, Mapping) and thinking.get("type") in ("adaptive", "enabled")
        return usable_at_anthropic(edits, thinks=thinks)

    def fitted(
        self, given: Mapping[str, Any], kept: Mapping[str, Any], *, model: str, has_tools: bool
    ) -> Fitted:
        """Settings that were not written for this model, fitted to it; see `FitsSettings`."""
        known = capabilities(model)
        fitting = Fitting(given, kept, model=model, known=known, has_tools=has_tools)
        fit(fitting, samples=self._samples(fitting.settings.get("extra_headers", {})))
        return fitting.fitted

    def _samples(self, headers: Mapping[str, str]) -> bool:
        """True if the host takes sampling settings: one of Anthropic's does so in an old version."""
        return self.family not in ANTHROPIC_FAMILIES or header_of(headers, _VERSION) == _OLD

    def _mark(self, members: dict[str, bytes], history: Sequence[bytes], mark: bytes) -> Sequence[bytes]:
        """Set the cache marks of a request; return the history to send. Marks on the caller's own tools count
        towards the limit."""
        left = _MAX_MARKS - members["tools"].count(b'"cache_control"')
        if left > 0:
            if self.family in _AUTOMATIC:
                members["cache_control"] = mark
            else:
                history = marked(history, mark)
        for name in ("system", "tools")[: max(left - 1, 0)]:
            if name == "system" or b'"defer_loading":true' not in members[name]:  # the API refuses both
                members[name] = marked_last(members[name], mark)
        return history

    def count_request(self, parts: RequestParts) -> ModelRequest:
        """Ask how many input tokens a request has; see `CountsTokens`."""
        return cut_down(self.request(parts), "/v1/messages/count_tokens", _COUNTED)

    def counted(self, body: bytes) -> int:
        """The number in the answer. Raises `ProtocolFault`."""
        return count_of(body)

    def compaction_request(self, parts: RequestParts, instructions: str) -> ModelRequest:
        """Ask for a compaction of the history; see `CompactsHistory`.

        The request takes no stop sequences, no forced tool and no other context edits. A compatible server
        that does not know the member refuses it, or answers as usual; `compacted` finds that out.
        """
        settings = {key: v for key, v in parts.settings.items() if key not in _NOT_COMPACTED}
        wish = {"type": "summarize"} | ({"instructions": instructions} if instructions else {})
        extra = {**settings.get("extra_body", {}), "compaction": wish, "context_management": None}
        headers = dict(settings.get("extra_headers", {}))
        add_beta(headers, COMPACTION_BETA)
        settings |= {"extra_body": extra, "extra_headers": headers}
        return self.request(replace(parts, settings=settings, stream=False, forbid_tools=False))

    def compacted(self, body: bytes) -> Reply:
        """The message that replaces the history from now on. Raises `ProtocolFault`."""
        return read_again(body, history_edits.compacted)

    def is_boundary(self, entry: bytes) -> bool:
        """True if the entry is a message with a block that replaces everything before it."""
        return history_edits.is_boundary(entry)

    # ------------------------------------------------------------------------------------ reading

    def reply(self, body: bytes) -> Reply:
        """Read a unary response.

        Raises:
            ProtocolFault: The body is not a message.
        """
        return read_again(body, lambda body: reading.reply_of(reading.read_body(body)))

    def decoder(self) -> StreamDecoder:
        """A fresh decoder for one streamed response."""
        return AnthropicDecoder()

    def without_calls(self, reply: Reply) -> Reply:
        """The reply with its tool calls cut out; without any entry if only thinking remains."""
        return reading.without_calls(reply)

    def with_call_ids(self, reply: Reply, ids: Sequence[str]) -> Reply:
        """The reply with its calls' ids replaced in order; ValueError unless there is one for each."""
        return reading.with_call_ids(reply, ids)

    def unsigned(self, entries: Sequence[bytes]) -> list[bytes]:
        """The entries without thinking, signed or redacted; b"" if an entry held only thinking."""
        return reading.unsigned(entries)

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """A reply's entries without the calls of hosted tools that have no result in it."""
        return reading.settled(reply)

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read stored entries as neutral messages: one for each entry, and one for each tool result.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return tuple(message for entry in entries for message in read_entry(entry))

    def marks(self, entries: Sequence[bytes]) -> Mapping[str, tuple[str, int]]:
        """The marks of the blocks in a history; see `MarksHistory`."""
        return reading.marks(entries)

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
        """The rules that this host is known to have for a model; see `ViewsHistory`."""
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

    def split_results(self, entry: bytes) -> list[bytes]:
        """One entry for each result of an entry; see `SplitsResults`."""
        return split_results(entry)

    def join_results(self, results: Sequence[bytes]) -> list[bytes]:
        """One entry for all results of an exchange; see `SplitsResults`."""
        return join_results(results)

    def failed_calls(self, entry: bytes) -> frozenset[str]:
        """The ids of the calls that the entry marks as failed; see `SplitsResults`."""
        return failed_calls(entry)
