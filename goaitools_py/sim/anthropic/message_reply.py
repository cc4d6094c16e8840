"""A reply of the Messages API: its content blocks, its usage, and the events of a stream for them.

Owns: the JSON of a reply, whole and in events. Must never know: a socket, or how a request is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..http_values import dump
from ..model.prompt import Call, Reply
from ..model.token_counts import estimate
from ..wire import SimExchange
from .signing import Dropped, Seal

__all__ = [
    "ReplyValues",
    "container_of",
    "event_bytes",
    "message_end",
    "message_events",
    "message_head",
    "reply_blocks",
    "simulated_name",
]

_WORDS = re.compile(r"\s*\S+|\s+$")
_ARGUMENT_PIECE = 7
_THOUGHT = "[simulated] A moment of thought."
"""The thinking of a reply without thinking, if the request asks for it."""
_CONTAINER_EXPIRES = "2099-12-31T23:59:59.000000Z"
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyValues:
    """Values of the request that the reply needs.

    Attributes:
        shows_thinking: False if the request wants signatures without the text of the thinking.
        reports: True if the request asks for a report of ignored blocks.
        unfinished: The blocks of hosted calls that a paused reply left open.
        applied: The context edits that the provider made; None if the request did not ask for edits.
        compaction: The block that replaces the whole request, if the provider made one.
    """

    seal: Seal = field(repr=False)
    shows_thinking: bool = True
    reports: bool = False
    dropped: tuple[Dropped, ...] = ()
    unfinished: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    applied: tuple[Mapping[str, Any], ...] | None = None
    compaction: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SimBlock:
    """A content block: whole, as its start in a stream, and as the deltas that follow."""

    value: Mapping[str, Any]
    start: Mapping[str, Any]
    deltas: tuple[Mapping[str, Any], ...] = ()


def simulated_name(model: str) -> str:
    return model if model.startswith("sim") else f"sim-{model}"


def reply_blocks(exchange: SimExchange) -> Iterator[_SimBlock]:
    kept: ReplyValues = exchange.prompt.kept
    seal = kept.seal.copy()
    if kept.compaction is not None:
        delta = {**kept.compaction, "type": "compaction_delta"}
        start = {"type": "compaction", "content": None}
        yield _SimBlock(value=kept.compaction, start=start, deltas=(delta,))
    for unfinished in kept.unfinished:
        result = _result(unfinished)
        seal.passed(result)
        yield _SimBlock(value=result, start=result)
    if thought := _thought(exchange):
        yield _thinking(seal, thought, exchange)
    text = exchange.reply.content or exchange.reply.refused
    if text:
        yield _SimBlock(
            value={"type": "text", "text": text},
            start={"type": "text", "text": ""},
            deltas=tuple({"type": "text_delta", "text": word} for word in _WORDS.findall(text)),
        )
    for call, asked in zip(exchange.calls, exchange.reply.tool_calls, strict=True):
        named = f"toolu_sim_{str(call.id).removeprefix('call_')}" if asked.id is None else call.id
        toolset = {"toolset_name": exchange.reply.toolset} if exchange.reply.toolset else {}
        yield _use("tool_use", call, named, {"caller": {"type": "direct"}, **toolset})
    for index, call in enumerate(_hosted(exchange.reply)):
        named = f"srvtoolu_sim_{exchange.key}_{index}" if call.id is None else call.id
        yield _use("server_tool_use", call, named, {})


def _thought(exchange: SimExchange) -> str:
    reply = exchange.reply
    return reply.thinking or (_THOUGHT if exchange.prompt.thinks or reply.redacted else "")


def _thinking(seal: Seal, thought: str, exchange: SimExchange) -> _SimBlock:
    if exchange.reply.redacted:
        redacted = {"type": "redacted_thinking", "data": seal.sign(None)}
        return _SimBlock(value=redacted, start=redacted)
    shown = thought if exchange.prompt.kept.shows_thinking else ""
    signature = seal.sign(shown)
    return _SimBlock(
        value={"type": "thinking", "thinking": shown, "signature": signature},
        start={"type": "thinking", "thinking": "", "signature": ""},
        deltas=(
            *({"type": "thinking_delta", "thinking": word} for word in _WORDS.findall(shown)),
            {"type": "signature_delta", "signature": signature},
        ),
    )


def _use(kind: str, call: Call, named: str | None, more: Mapping[str, Any]) -> _SimBlock:
    start = {"type": kind, "id": named, "name": call.name, "input": {}, **more}
    if not named:
        del start["id"]
    pieces = ["", *_pieces(call.arguments)]
    return _SimBlock(
        value={**start, "input": _object(call.arguments)},
        start=start,
        deltas=tuple({"type": "input_json_delta", "partial_json": piece} for piece in pieces),
    )


def _object(arguments: str) -> dict[str, Any]:
    """The arguments in a unary response. Invalid JSON becomes {}, because the member is an object."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _pieces(arguments: str) -> Sequence[str]:
    return [arguments[at : at + _ARGUMENT_PIECE] for at in range(0, len(arguments), _ARGUMENT_PIECE)]


def _hosted(reply: Reply) -> tuple[Call, ...]:
    """The hosted calls. Only a reply with hosted calls is paused, so a paused reply gets one."""
    if _stop_reason(reply) == "pause_turn" and not reply.hosted:
        return (Call(name="web_search", arguments='{"query":"the score"}'),)
    return reply.hosted


def _result(call: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a hosted call: nothing found, or an unknown tool."""
    name = "mcp" if call["type"] == "mcp_tool_use" else call["name"]
    result = {"type": f"{name}_tool_result", "tool_use_id": call["id"]}
    if name in ("web_search", "mcp"):
        return {**result, "content": []}
    return {**result, "content": {"type": f"{name}_tool_result_error", "error_code": "unavailable"}}


def message_head(exchange: SimExchange) -> dict[str, Any]:
    """The message at the start of the stream."""
    message: dict[str, Any] = {
        "model": simulated_name(exchange.prompt.model),
        "id": f"msg_sim_{exchange.key}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    }
    if exchange.reply.usage:
        message["usage"] = _input_usage(exchange) | {"output_tokens": 1, "service_tier": "standard"}
    kept: ReplyValues = exchange.prompt.kept
    if kept.reports:
        message["input_transformations"] = [
            {
                "type": "thinking_dropped",
                "path": f"messages.{dropped.message}.content.{dropped.block}",
                "reason": dropped.reason,
            }
            for dropped in kept.dropped
        ]
    return message


def message_end(exchange: SimExchange) -> dict[str, Any]:
    """The last members of the message: stop reason and usage."""
    reply = exchange.reply
    reason = _stop_reason(reply)
    details = {"type": "refusal", "category": None, "explanation": reply.refused or None}
    ending: dict[str, Any] = {
        "stop_reason": reason,
        "stop_sequence": None,
        "stop_details": details if reason == "refusal" else None,
    }
    if reply.usage:
        ending["usage"] = _input_usage(exchange) | _output_usage(exchange) | {"service_tier": "standard"}
        ending["usage"] |= _iterations(exchange)
    kept: ReplyValues = exchange.prompt.kept
    if kept.applied is not None:
        ending["context_management"] = {"applied_edits": list(kept.applied)}
    return ending


def _stop_reason(reply: Reply) -> str:
    if reply.finish is not None:
        return _STOP_REASONS.get(reply.finish, reply.finish)
    if reply.refused:
        return "refusal"
    if reply.tool_calls:
        return "tool_use"
    return "pause_turn" if reply.hosted else "end_turn"


def container_of(reply: Reply) -> dict[str, Any]:
    return {"id": reply.container, "expires_at": _CONTAINER_EXPIRES}


def _input_usage(exchange: SimExchange) -> dict[str, Any]:
    tokens = exchange.tokens
    return {
        "input_tokens": tokens.prompt - tokens.cached - tokens.written,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": tokens.written,
            "ephemeral_1h_input_tokens": 0,
        },
    }


def _output_usage(exchange: SimExchange) -> dict[str, Any]:
    thought = _thought(exchange)
    # The reply's count includes its own thinking, but not the thinking that was added here.
    unsaid = estimate(thought.encode("utf-8", "replace")) if not exchange.reply.thinking else 0
    return {
        "output_tokens": exchange.tokens.completion + unsaid,
        "output_tokens_details": {"thinking_tokens": estimate(thought.encode("utf-8", "replace"))},
    }


def _iterations(exchange: SimExchange) -> dict[str, Any]:
    """The usage of a compaction, which only this list reports, as recorded."""
    if exchange.summary is None:
        return {}
    tokens = exchange.summary.tokens
    compaction = {
        "type": "compaction",
        "input_tokens": tokens.prompt - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.completion,
    }
    return {
        "iterations": [compaction, {"type": "message", **_input_usage(exchange), **_output_usage(exchange)}]
    }


def message_events(exchange: SimExchange, blocks: Sequence[_SimBlock]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": message_head(exchange)}
    for index, block in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block.start}
        if index == 0:
            yield {"type": "ping"}
        for delta in block.deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = message_end(exchange)
    usage = delta.pop("usage", None)
    if exchange.reply.container:
        delta["container"] = container_of(exchange.reply)
    ending = {"type": "message_delta", "delta": delta}
    if "context_management" in delta:
        ending["context_management"] = delta.pop("context_management")
    if usage is not None:
        known = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ending["usage"] = {key: usage[key] for key in known} | _output_usage(exchange) | _iterations(exchange)
    yield ending
    yield {"type": "message_stop"}


def event_bytes(value: Mapping[str, Any]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + dump(value) + b"\n\n"
