"""The Messages API: requests in, messages and events out, in Anthropic's JSON.

Owns: the shapes of this endpoint. Must never know: a socket, the rules for sequences, or how the model finds
its reply. The shapes come from recorded responses of api.anthropic.com.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..http_values import EVENT_STREAM, JSON, Body, Headers, Response, dump
from ..model.prompt import Call, Offer, Prompt, Reply, Said, sealed
from ..model.token_counts import Tokens, estimate
from ..openai.common_rules import Refusal
from ..wire import SimExchange
from .blocks import is_answer, is_hosted_call
from .edits import Edited, edited, messages_of, open_turn, read_block
from .error_texts import NO_THREADS, NOT_FOUND, NOT_JSON, broken_thinking, error_object, status_of
from .prefix import Prefix, PrefixPiece, block_bytes, read_prefix
from .rules import BINDING_BETA, AnthropicRules
from .signing import Checked, Dropped, Seal, check

__all__ = ["AnthropicMessages"]

_WORDS = re.compile(r"\s*\S+|\s+$")
_THINKING = re.compile(rb'thinking"')
_ARGUMENT_PIECE = 7
_NO_LIMIT = 1_000_000
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
class _ReplyValues:
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


@dataclass(frozen=True, slots=True)
class AnthropicMessages:
    """Anthropic Messages, with preserved thinking on every model."""

    name: str = "anthropic"
    path: str = "/v1/messages"
    count_path: str = "/v1/messages/count_tokens"
    root: str = ""
    request_id_header: str = "request-id"
    not_json: Refusal = NOT_JSON

    def not_found(self, method: str, path: str) -> Refusal:
        """Anthropic's error for a wrong path. It does not name the path."""
        return NOT_FOUND

    def refusals(self, body: Body) -> list[Refusal]:
        """The problems of a request. Thinking is checked only if the rest is valid."""
        version = body.headers.get("anthropic-version")
        if version is None:
            return [Refusal("anthropic-version: header is required")]
        if found := AnthropicRules(version=version, betas=_betas(body)).refusals(body.values):
            return found
        if body.values.get("thread") is not None:
            return [NO_THREADS]
        if not _THINKING.search(body.spans["messages"]):
            return []
        return [broken_thinking(broken) for broken in _checked(body, read_prefix(body)).broken]

    def prompt(self, body: Body) -> Prompt:
        """The prompt of a valid request, without the thinking that the model may not read."""
        values = body.values
        prefix = read_prefix(body)
        checked = _checked(body, prefix)
        unread = {(dropped.message, dropped.block) for dropped in checked.dropped}
        read = tuple(piece for piece in prefix.pieces if (piece.message, piece.block) not in unread)
        seen = edited(replace(prefix, pieces=read), values)
        content, cacheable = seen.prefix.cacheable()
        offers, must_call = _offers(values)
        thinking = values.get("thinking") or {}
        prompt = Prompt(
            model=values["model"],
            history=tuple(_history(values, seen.prefix.pieces)),
            content=content,
            cacheable=cacheable,
            offers=offers,
            must_call=must_call,
            parallel=not (values.get("tool_choice") or {}).get("disable_parallel_tool_use"),
            max_tokens=values["max_tokens"],
            stream=values.get("stream") is True,
            stream_usage=True,
            thinks=thinking.get("type") in ("enabled", "adaptive"),
            schema=((values.get("output_config") or {}).get("format") or {}).get("schema"),
            kept=_ReplyValues(
                seal=checked.seal,
                shows_thinking=thinking.get("display") != "omitted",
                reports=BINDING_BETA in _betas(body),
                dropped=checked.dropped,
                unfinished=tuple(_unfinished(values["messages"])),
                applied=seen.applied if values.get("context_management") is not None else None,
            ),
        )
        return replace(prompt, shortened=_shortened(prompt, seen, values)) if seen.compacts else prompt

    def count_body(self, body: Body) -> Body:
        """Turn a request for a count into the counted request. A request for a count has no output limit."""
        values = {"max_tokens": _NO_LIMIT, **body.values}
        if "max_tokens" in body.values:
            values["max_tokens"] = "not permitted"
        return Body(values, body.spans, body.headers)

    def count(self, tokens: int) -> Response:
        """Anthropic's answer to a request for a count."""
        return Response(headers=JSON, pieces=(dump({"input_tokens": tokens}),))

    compact_path: str = ""

    def compacts(self, body: Body) -> bool:
        """True if the request has the member that asks for a compaction."""
        return body.values.get("compaction") is not None

    def compaction(self, body: Body, summary: str, tokens: Tokens) -> Response:
        """A message with one block. Its usage is listed in the iterations only."""
        opaque = sealed(summary, body.values["messages"])
        block = {"type": "compaction", "content": summary, "encrypted_content": opaque}
        spent = {
            "type": "compaction",
            "input_tokens": tokens.prompt - tokens.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.completion,
        }
        answer = {
            "id": "msg_sim_compaction",
            "type": "message",
            "role": "assistant",
            "model": body.values["model"],
            "content": [block],
            "stop_reason": "compaction",
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [spent]},
        }
        return Response(headers=JSON, pieces=(dump(answer),))

    def answer(self, exchange: SimExchange) -> Response:
        """A message, or its events, ``message_stop`` last."""
        blocks = list(_blocks(exchange))
        if exchange.prompt.stream:
            events = tuple(_event(event) for event in _events(exchange, blocks))
            return Response(headers=EVENT_STREAM, pieces=events, streamed=True)
        message = _message(exchange)
        message["content"] = [block.value for block in blocks]
        message |= _ending(exchange)
        if exchange.reply.container:
            message["container"] = _container(exchange.reply)
        return Response(headers=JSON, pieces=(dump(message),))

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """A message without content and without a stop reason."""
        message: dict[str, Any] = {
            "id": "msg_sim",
            "type": "message",
            "role": "assistant",
            "model": _sim(prompt.model),
            "content": None if null else [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if prompt.stream:
            start = _event({"type": "message_start", "message": message})
            return Response(
                headers=EVENT_STREAM, pieces=(start, _event({"type": "message_stop"})), streamed=True
            )
        return Response(headers=JSON, pieces=(dump(message),))

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """Anthropic's error object."""
        status = status_of(status, refusal)
        body = dump(error_object(status, refusal))
        return Response(status=status, headers=(*JSON, *headers), pieces=(body,))

    def error_event(self, refusal: Refusal) -> bytes:
        """The error object as an event, after the status 200 was sent."""
        return _event(error_object(200, refusal))


# ------------------------------------------------------------------------------------------- reading


def _betas(body: Body) -> frozenset[str]:
    header = body.headers.get("anthropic-beta", "")
    return frozenset(name.strip() for name in header.split(",") if name.strip())


def _checked(body: Body, prefix: Prefix) -> Checked:
    binding = (body.values.get("thinking") or {}).get("block_binding") or {}
    drop = binding.get("prefix_mismatch_behavior") == "drop_block"
    return check(body.values["model"], prefix, drop=drop)


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _text(content: Any) -> str:
    return "".join(part["text"] for part in _parts(content) if part.get("type") == "text")


def _shortened(prompt: Prompt, seen: Edited, values: Mapping[str, Any]) -> Callable[[str], Prompt]:
    """The prompt after a compaction, as recorded: only the compaction block counts. The model also reads the
    question, which a real summary would contain."""

    def shortened(summary: str) -> Prompt:
        opaque = sealed(summary, values["messages"])
        block = {"type": "compaction", "content": summary, "encrypted_content": opaque}
        piece = PrefixPiece(message=0, block=0, content=block_bytes("assistant", block), value=block)
        content, cacheable = replace(seen.prefix, pieces=(read_block(piece),)).cacheable()
        history = _history(values, open_turn(seen.prefix.pieces), summary)
        kept = replace(prompt.kept, compaction=block)
        return replace(
            prompt, history=tuple(history), content=content, cacheable=cacheable, kept=kept, shortened=None
        )

    return shortened


def _history(values: Mapping[str, Any], pieces: Sequence[PrefixPiece], summary: str = "") -> Iterator[Said]:
    if system := _text(values.get("system")):
        yield Said(role="system", text=system)
    if summary:
        yield Said(role="assistant", text=summary)
    messages = messages_of(pieces, values["messages"])
    for index, message in enumerate(messages):
        role, parts = message["role"], _parts(message.get("content"))
        if role == "system":
            yield Said(role="system", text=_text(parts))
        elif role == "user":
            yield from _asked(parts)
        elif index < len(messages) - 1:  # else it is a paused reply, and the question is still open
            calls = [part for part in parts if part["type"] == "tool_use"]
            summary = "".join(str(part["content"]) for part in parts if part["type"] == "compaction")
            text = summary + _text(parts)
            yield Said(role="assistant", text=text, calls=tuple(_call(call) for call in calls))


def _asked(parts: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    """Read a user's message. Tool results come first, each as a message of its own."""
    for part in parts:
        if part["type"] == "tool_result":
            yield Said(role="tool", text=_text(part.get("content")), call_id=part["tool_use_id"])
    others = [part for part in parts if part["type"] != "tool_result"]
    if others:
        media = sum(part["type"] != "text" for part in others)
        yield Said(role="user", text=_text(others), media=media)


def _call(block: Mapping[str, Any]) -> Call:
    return Call(id=block["id"], name=block["name"], arguments=dump(block["input"]).decode("utf-8"))


def _unfinished(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The calls that a paused reply at the end left open. Earlier calls have results, or were refused."""
    last = messages[-1]
    if last["role"] == "assistant":
        parts = _parts(last.get("content"))
        answered = {part.get("tool_use_id") for part in parts if is_answer(part)}
        yield from (part for part in parts if is_hosted_call(part) and part["id"] not in answered)


def _offers(values: Mapping[str, Any]) -> tuple[tuple[Offer, ...], bool]:
    """The client's tools that may be called now, and whether one has to be called."""
    tools = [tool for tool in values.get("tools") or () if tool.get("type") in (None, "custom")]
    choice = values.get("tool_choice") or {"type": "auto"}
    kind = choice["type"]
    chosen = [tool for tool in tools if kind != "tool" or tool["name"] == choice["name"]]
    offers = tuple(
        Offer(
            name=tool["name"],
            parameters=tool["input_schema"],
            description=tool.get("description") or "",
        )
        for tool in chosen
    )
    return (() if kind == "none" else offers), kind in ("any", "tool")


# ------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True, kw_only=True)
class _SimBlock:
    """A content block: whole, as its start in a stream, and as the deltas that follow."""

    value: Mapping[str, Any]
    start: Mapping[str, Any]
    deltas: tuple[Mapping[str, Any], ...] = ()


def _sim(model: str) -> str:
    return model if model.startswith("sim") else f"sim-{model}"


def _blocks(exchange: SimExchange) -> Iterator[_SimBlock]:
    kept: _ReplyValues = exchange.prompt.kept
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


def _message(exchange: SimExchange) -> dict[str, Any]:
    """The message at the start of the stream."""
    message: dict[str, Any] = {
        "model": _sim(exchange.prompt.model),
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
    kept: _ReplyValues = exchange.prompt.kept
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


def _ending(exchange: SimExchange) -> dict[str, Any]:
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
    kept: _ReplyValues = exchange.prompt.kept
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


def _container(reply: Reply) -> dict[str, Any]:
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


def _events(exchange: SimExchange, blocks: Sequence[_SimBlock]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message(exchange)}
    for index, block in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block.start}
        if index == 0:
            yield {"type": "ping"}
        for delta in block.deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = _ending(exchange)
    usage = delta.pop("usage", None)
    if exchange.reply.container:
        delta["container"] = _container(exchange.reply)
    ending = {"type": "message_delta", "delta": delta}
    if "context_management" in delta:
        ending["context_management"] = delta.pop("context_management")
    if usage is not None:
        known = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ending["usage"] = {key: usage[key] for key in known} | _output_usage(exchange) | _iterations(exchange)
    yield ending
    yield {"type": "message_stop"}


def _event(value: Mapping[str, Any]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + dump(value) + b"\n\n"
