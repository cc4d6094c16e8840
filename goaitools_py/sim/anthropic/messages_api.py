"""The Messages API: requests in, messages and events out, in Anthropic's JSON.

Owns: the shapes of this endpoint. Must never know: a socket, the rules for sequences, or how the model finds
its reply. The shapes come from recorded responses of api.anthropic.com.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..http_values import EVENT_STREAM, JSON, Body, Headers, Response, dump
from ..model.prompt import Call, Offer, Prompt, Said, sealed
from ..model.token_counts import Tokens
from ..openai.common_rules import Refusal
from ..wire import SimExchange
from .blocks import is_answer, is_hosted_call
from .edits import Edited, edited, messages_of, open_turn, read_block
from .error_texts import NO_THREADS, NOT_FOUND, NOT_JSON, broken_thinking, error_object, status_of
from .message_reply import (
    ReplyValues,
    container_of,
    event_bytes,
    message_end,
    message_events,
    message_head,
    reply_blocks,
    simulated_name,
)
from .prefix import Prefix, PrefixPiece, block_bytes, read_prefix
from .rules import BINDING_BETA, AnthropicRules
from .signing import Checked, check

__all__ = ["AnthropicMessages"]

_THINKING = re.compile(rb'thinking"')
_NO_LIMIT = 1_000_000


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
            kept=ReplyValues(
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
        blocks = list(reply_blocks(exchange))
        if exchange.prompt.stream:
            events = tuple(event_bytes(event) for event in message_events(exchange, blocks))
            return Response(headers=EVENT_STREAM, pieces=events, streamed=True)
        message = message_head(exchange)
        message["content"] = [block.value for block in blocks]
        message |= message_end(exchange)
        if exchange.reply.container:
            message["container"] = container_of(exchange.reply)
        return Response(headers=JSON, pieces=(dump(message),))

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """A message without content and without a stop reason."""
        message: dict[str, Any] = {
            "id": "msg_sim",
            "type": "message",
            "role": "assistant",
            "model": simulated_name(prompt.model),
            "content": None if null else [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if prompt.stream:
            start = event_bytes({"type": "message_start", "message": message})
            return Response(
                headers=EVENT_STREAM, pieces=(start, event_bytes({"type": "message_stop"})), streamed=True
            )
        return Response(headers=JSON, pieces=(dump(message),))

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """Anthropic's error object."""
        status = status_of(status, refusal)
        body = dump(error_object(status, refusal))
        return Response(status=status, headers=(*JSON, *headers), pieces=(body,))

    def error_event(self, refusal: Refusal) -> bytes:
        """The error object as an event, after the status 200 was sent."""
        return event_bytes(error_object(200, refusal))


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
