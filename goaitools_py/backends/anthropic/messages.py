"""The Anthropic Messages dialect: neutral values into request bytes, response bytes into replies.

Owns: what a request on this wire looks like. Must never know: a socket, an SDK, a turn.

The body's order is ``model, max_tokens, tools, system, messages, settings``: a provider's prompt grows from
tools over system to messages, so the order of the bytes is the order in which a cached prefix can grow.

Marks for the prompt cache are put on what is sent and never on what is stored, at most four in all: one on
the last tool, one on the last block of the preamble, and one that moves with the end of the history. Where
the server finds that end itself, this is the member ``cache_control`` of the request ("automatic" caching);
elsewhere it is a mark on the last block of the last message. ``extra_body={"cache_control": {…}}`` says
what all marks are (a longer `ttl`, say), and ``extra_body={"cache_control": None}`` leaves all out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ... import rawjson
from ...context_management import ContextEdit
from ...messages import Message, ToolResult
from ...render import plain
from ...values import Value, replace
from ..base import Fault, ModelRequest, ProviderTool, Reply, RequestParts, StreamDecoder, ToolSpec
from ..capabilities import Capabilities, capabilities
from ..context_management import IN_REPLY_BETA, anthropic_edits, check_host, usable_at_anthropic
from ..counting import count_of, cut_down
from ..http.faults import http_fault
from ..nesting import read_again
from ..openai.request import body_of, tool_list
from . import compaction
from . import reply as reading
from . import written as writing
from .compaction import COMPACTION_BETA
from .message import read_entry
from .reply import FIRST_PARTY
from .sent import marked, marked_last, opened, placed
from .stream import AnthropicDecoder

__all__ = ["AnthropicDialect"]

_AUTOMATIC: Final = frozenset({"anthropic", "foundry"})
"""Families that take the request's own ``cache_control``; to the others, marked messages are safe."""

_VERSION: Final = "anthropic-version"
_OLD: Final = "2023-06-01"
"""The version that servers of others know, and the last in which Anthropic took sampling settings."""

_BETAS: Final = "anthropic-beta"
_BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"

_COUNTED: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"}
)
"""What `count_tokens` takes (anthropic 2.12, types/message_count_tokens_params.py)."""

_MERGED: Final = frozenset({"thinking", "output_config"})
"""Members of which `extra_body` and settings may each give a part."""

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
            server. The first hold a request to the published type; the others get `anthropic-version:
            2023-06-01`, sampling settings, and marks for the prompt cache on the last message.
        model: The backend's model, "" if it has none. It says whether a system message in the middle of
            the history is written as one; what is sent depends on the request's own model.
    """

    wire: ClassVar[str] = "anthropic"

    family: str = "anthropic"
    model: str = ""

    # ------------------------------------------------------------------------------------ writing

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one entry each.

        User text cannot imitate an event, context or system block (see `render`). A system message is one
        where the model knows such; else it is a user message with a block. An image's `detail` has no
        place on this wire and is left out.

        Raises:
            ValueError: A part that this wire cannot carry: sound, a document that is neither PDF nor text,
                media in a message that is not the user's. Or a message of white space only.
        """
        knows_system = self.family in FIRST_PARTY and capabilities(self.model).takes_system_messages
        return [rawjson.dumps(writing.message(one, knows_system=knows_system)) for one in messages]

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode tool results as one user message, in call order.

        A part that this wire cannot carry becomes a line of text that says so: the tool has run.
        """
        if not results:
            return []
        content = [writing.tool_result(one.call_id, one.parts, is_error=one.flag != "ok") for one in results]
        return [rawjson.dumps({"role": "user", "content": content})]

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request as text blocks; b"" for none."""
        texts = [plain(message.text) for message in messages]
        blocks = [writing.text(text) for text in texts if text.strip()]
        return rawjson.dumps(blocks) if blocks else b""

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list; b"" for none. Functions come first, by name; provider tools follow."""
        return tool_list(tools, writing.function)

    def request(self, parts: RequestParts) -> ModelRequest:
        """Splice a request together; the history is joined, never parsed.

        Two exceptions, both in the sent copy: a system message where the model takes none becomes a user
        message with a block, and before an assistant's message that would be the first stands a user's.

        `drop_signed` becomes ``thinking.block_binding``, on Anthropic's hosts and for its models: with the
        configuration that the request has, if its type is one that has such a member ("enabled" and
        "adaptive" do, "disabled" and "between_tools" do not); with "adaptive" if it has none, since models
        that check thinking do think so by default. Models known to check nothing are not told.

        Raises:
            ValueError: A setting that this wire does not have, an output limit that leaves nothing beside
                the thinking budget, or an `extra_body` that would replace the history or the way of
                answering.
        """
        settings = dict(parts.settings)
        headers = dict(settings.pop("extra_headers", {}))
        extra = dict(settings.pop("extra_body", {}))
        for key in ("messages", "stream"):
            if key in extra:
                raise ValueError(f"extra_body cannot replace {key!r}: the chat writes it itself")
        known = capabilities(parts.model)
        is_own = self.family in FIRST_PARTY
        edits, betas = self._edits(settings.pop("context_management", None))
        values = self._settings(settings, parts, samples=not is_own or _header(headers, _VERSION) == _OLD)
        values |= edits
        for key in _MERGED & values.keys() & extra.keys():
            if isinstance(extra[key], Mapping):
                extra[key] = {**values[key], **extra[key]}
        values |= extra
        checks = is_own or known.binds_thinking  # also behind a gateway of another name
        if parts.drop_signed and checks and (thinking := _unbound(values.get("thinking"), known)):
            values["thinking"] = thinking
            _add_beta(headers, _BINDING_BETA)
        if not is_own and _header(headers, _VERSION) is None:
            headers[_VERSION] = _OLD
        members = {
            "model": rawjson.dumps(parts.model),
            "max_tokens": rawjson.dumps(_max_tokens(values, known)),
            "tools": parts.tools,
            "system": parts.preamble,
            "messages": b"",
        }
        mark = values.pop("cache_control", _EPHEMERAL if parts.cache_marks else None)
        members |= {key: b"" if value is None else rawjson.dumps(value) for key, value in values.items()}
        history = parts.history
        if parts.has_system:
            history = placed(history, natively=is_own and known.takes_system_messages)
        for beta in betas if compaction.CARRIED not in parts.carried else {*betas, IN_REPLY_BETA}:
            _add_beta(headers, beta)
        if compaction.begins_compacted(history):
            _add_beta(headers, COMPACTION_BETA)
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
                values["thinking"] = _thinking(value)
            elif name == "stop":
                values["stop_sequences"] = [value] if isinstance(value, str) else list(value)
            elif name not in ("model", "tool_choice", "parallel_tool_calls"):
                raise ValueError(
                    f"the 'anthropic' wire has no setting {name!r}; send a server's own by extra_body"
                )
        if parts.tools:
            if (choice := _tool_choice(settings, forbid=parts.forbid_tools)) is not None:
                values["tool_choice"] = choice
            if "container" in parts.carried:  # without tools there is nothing to run in it
                values["container"] = parts.carried["container"]
        if parts.stream:
            values["stream"] = True
        return values

    def _edits(self, wanted: Sequence[ContextEdit] | None) -> tuple[dict[str, Any], list[str]]:
        """The member for what the provider is to do with the context, and the betas that go along."""
        if not wanted:
            return {}, []
        check_host(self.family, FIRST_PARTY)
        edits, betas = anthropic_edits(wanted)
        return {"context_management": edits}, betas

    def usable_edits(
        self, edits: Sequence[ContextEdit], settings: Mapping[str, Any]
    ) -> tuple[ContextEdit, ...]:
        """What of a compactor's wishes a request may hold; see `EditsContext`."""
        if self.family not in FIRST_PARTY:
            return ()
        thinking = settings.get("extra_body", {}).get("thinking")
        if thinking is None and "thinking_budget_tokens" in settings:
            thinking = _thinking(settings["thinking_budget_tokens"])
        thinks = isinstance(thinking, Mapping) and thinking.get("type") in ("adaptive", "enabled")
        return usable_at_anthropic(edits, thinks=thinks)

    def _mark(self, members: dict[str, bytes], history: Sequence[bytes], mark: bytes) -> Sequence[bytes]:
        """Put marks on a request; the history as it is sent. Marks of a caller's own tools count."""
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

        It takes neither stop sequences nor a forced tool, and no other editing of the context. A compatible
        server that does not know the member refuses it, or answers as ever: `compacted` tells.
        """
        settings = {key: v for key, v in parts.settings.items() if key not in _NOT_COMPACTED}
        wish = {"type": "summarize"} | ({"instructions": instructions} if instructions else {})
        extra = {**settings.get("extra_body", {}), "compaction": wish, "context_management": None}
        headers = dict(settings.get("extra_headers", {}))
        _add_beta(headers, COMPACTION_BETA)
        settings |= {"extra_body": extra, "extra_headers": headers}
        return self.request(replace(parts, settings=settings, stream=False, forbid_tools=False))

    def compacted(self, body: bytes) -> Reply:
        """The message that stands for the history from now on. Raises `ProtocolFault`."""
        return read_again(body, compaction.compacted)

    def is_boundary(self, entry: bytes) -> bool:
        """True if the entry is a message with a block that stands for all before it."""
        return compaction.is_boundary(entry)

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
        """The entries without thinking, signed or redacted; b"" for one in which there was nothing else."""
        return reading.unsigned(entries)

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """A reply's entries without calls of hosted tools that have no result in it."""
        return reading.settled(reply)

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read stored entries as neutral messages: one for each, but one for each tool result.

        Raises:
            RawJSONError: An entry is not a JSON object.
        """
        return tuple(message for entry in entries for message in read_entry(entry))

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """Say what an error answer means."""
        return http_fault(status, headers, body)


# ------------------------------------------------------------------------------------------ settings


def _thinking(budget: int) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget} if budget else {"type": "disabled"}


def _unbound(thinking: object, known: Capabilities) -> dict[str, Any] | None:
    """A thinking configuration that lets the server drop blocks; None where there is no word for that."""
    if known.binds_thinking is False:
        return None
    given = {"type": "adaptive"} if thinking is None else thinking
    if not isinstance(given, Mapping) or given.get("type") not in ("adaptive", "enabled"):
        return None
    own = given.get("block_binding")
    binding = {**(own if isinstance(own, Mapping) else {}), "prefix_mismatch_behavior": "drop_block"}
    return {**given, "block_binding": binding}


def _max_tokens(values: dict[str, Any], known: Capabilities) -> int:
    """Take the output limit out of the values; the model's own, above a thinking budget, if there is none."""
    given: int | None = values.pop("max_tokens", None)
    thinking = values.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if not isinstance(budget, int):
        budget = 0
    if given is None:
        default = known.default_output_tokens
        return default if default > budget else budget + default
    if budget and given <= budget:
        raise ValueError(
            f"max_output_tokens={given} leaves nothing beside the thinking budget of {budget} tokens, "
            "which counts towards it"
        )
    return given


def _tool_choice(settings: Mapping[str, Any], *, forbid: bool) -> dict[str, Any] | None:
    choice = "none" if forbid else settings.get("tool_choice")
    if choice == "none":
        return {"type": "none"}
    one_at_most = settings.get("parallel_tool_calls") is False
    if choice is None and not one_at_most:
        return None
    kind = {None: "auto", "auto": "auto", "required": "any"}.get(choice)
    written = {"type": kind} if kind else {"type": "tool", "name": choice}
    return written | ({"disable_parallel_tool_use": True} if one_at_most else {})


# ------------------------------------------------------------------------------------------- headers


def _header(headers: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in headers.items() if key.lower() == name), None)


def _add_beta(headers: dict[str, str], beta: str) -> None:
    """Add a name to a caller's own ones."""
    key = next((key for key in headers if key.lower() == _BETAS), _BETAS)
    known = [name.strip() for name in headers.get(key, "").split(",") if name.strip()]
    headers[key] = ",".join(known if beta in known else [*known, beta])
