"""How the replies of a host differ from the replies of the company that made the provider API.

Owns: ids of calls and items, the member with reasoning, signatures, and the place of the usage. Must never
know: a rule for requests, or which host has which manner.

The company's own reply is made first, and then rewritten. A host that binds encrypted reasoning to itself
writes its own mark into it, so that another host can tell that it cannot read it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from ..http_values import Body, Response, dump
from ..model.prompt import Call
from ..openai.common_rules import WORDS
from ..wire import SimExchange, Wire

__all__ = ["CallId", "Manner", "ReasoningItem", "dressed", "seal_of", "unsealed"]

CallId: TypeAlias = Callable[[str, str, int], str]
"""Makes the id of a call from 32 hex digits, the tool's name, and the number of calls before it."""

ReasoningItem: TypeAlias = Literal["", "content", "plain"]
"""Where a reasoning item of Responses has the thinking: sealed, in its `content`, or as encrypted content."""

_THOUGHT = "[simulated] A moment of thought."
_SEALED, _MARK = b'"encrypted_content":"', "sim1"
_ITEM_ID = re.compile(rb'"([a-z]+)_([0-9a-f]{32})([0-9a-f]{3})[01][0-9a-f]{12}"')
_SIGNATURE = re.compile(rb'"signature":"([^"]+)"')
_DATA, _DONE = b"data: ", b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a host replies. The defaults are the company's manner.

    Attributes:
        call_id: Makes the ids of calls.
        reasoning: Chat Completions: the member with the reasoning; "content" for parts of the content, as
            Mistral has it; "details" for OpenRouter's list beside the text.
        thinks: Says of a request whether the model thinks although nothing asks for it.
        signs: Chat Completions: the first call of a reply has Google's thought signature.
        plain: Chat Completions: without OpenAI's own members `refusal` and `annotations`.
        usage_in_choice: Chat Completions: a stream has its usage within the last choice.
        item: Responses: where a reasoning item has its thinking.
        item_id: Responses: writes the ids of items, from the kind and 15 hex digits.
        seal: Responses: the host's mark in encrypted content; "" for OpenAI's own host.
        signature: Messages: the beginning of this host's own signatures of thinking.
    """

    call_id: CallId | None = None
    reasoning: str = ""
    thinks: Callable[[Mapping[str, Any]], bool] | None = None
    signs: bool = False
    plain: bool = False
    usage_in_choice: bool = False
    item: ReasoningItem = ""
    item_id: Callable[[str, str], str] | None = None
    seal: str = ""
    signature: str = ""

    def always_thinks(self, values: Mapping[str, Any]) -> bool:
        """True if the model thinks although the request does not ask for it."""
        return self.thinks is not None and self.thinks(values)


def dressed(wire: Wire, exchange: SimExchange, manner: Manner) -> Response:
    """The reply to an exchange in a host's manner."""
    if manner.call_id is not None:
        exchange = replace(exchange, calls=_named(exchange, manner.call_id))
    response = wire.answer(exchange)
    if wire.name == "openai":
        return _chat(response, exchange, manner)
    edit = _responses if wire.name == "openai-responses" else _messages
    return replace(response, pieces=tuple(edit(piece, exchange, manner) for piece in response.pieces))


def _named(exchange: SimExchange, make: CallId) -> Sequence[Call]:
    """The calls with ids of this host. A scripted id stays."""
    before = sum(len(said.calls) for said in exchange.prompt.history)
    return [
        call
        if asked.id is not None
        else replace(call, id=make(_hex(exchange.key, at), call.name, before + at))
        for at, (call, asked) in enumerate(zip(exchange.calls, exchange.reply.tool_calls, strict=True))
    ]


def _hex(key: str, at: int) -> str:
    return hashlib.blake2b(f"{key}:{at}".encode(), digest_size=16).hexdigest()


# -------------------------------------------------------------------------------- Chat Completions


def _chat(response: Response, exchange: SimExchange, manner: Manner) -> Response:
    if response.streamed:
        return replace(response, pieces=tuple(_chunks(response.pieces, exchange, manner)))
    completion = json.loads(response.body)
    message = completion["choices"][0]["message"]
    _tidy(message, manner)
    _sign(message.get("tool_calls"), exchange, manner)
    if (thought := _thought(exchange)) and manner.reasoning:
        _think(message, thought, manner)
    return replace(response, pieces=(dump(completion),))


def _thought(exchange: SimExchange) -> str:
    return exchange.reply.thinking or (_THOUGHT if exchange.prompt.thinks else "")


def _tidy(message: dict[str, Any], manner: Manner) -> None:
    for key in ("refusal", "annotations"):
        if manner.plain and not message.get(key):
            message.pop(key, None)


def _sign(calls: Any, exchange: SimExchange, manner: Manner) -> None:
    if manner.signs and calls:
        signed = hashlib.blake2b(exchange.key.encode(), digest_size=24).hexdigest()
        calls[0]["extra_content"] = {"google": {"thought_signature": f"sim-{signed}"}}


def _think(message: dict[str, Any], thought: str, manner: Manner) -> None:
    if manner.reasoning == "content":
        parts: list[Any] = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
        if message.get("content"):
            parts.append({"type": "text", "text": message["content"]})
        message["content"] = parts
    elif manner.reasoning == "details":
        message["reasoning"] = thought
        message["reasoning_details"] = [{"type": "reasoning.text", "text": thought, "index": 0}]
    else:
        message[manner.reasoning] = thought


def _chunks(pieces: Sequence[bytes], exchange: SimExchange, manner: Manner) -> Iterator[bytes]:
    """The events, with the reasoning after the first one, as servers with reasoning models send it."""
    chunks = [json.loads(piece.removeprefix(_DATA)) for piece in pieces if _DONE not in piece]
    usage = chunks[-1].get("usage") if manner.usage_in_choice else None
    if usage is not None:
        del chunks[-1]
        chunks[-1]["choices"][0]["usage"] = usage
    for at, chunk in enumerate(chunks):
        for choice in chunk["choices"]:
            _tidy(choice["delta"], manner)
            calls = choice["delta"].get("tool_calls")
            if calls and calls[0]["index"] == 0 and "name" in calls[0]["function"]:
                _sign(calls, exchange, manner)
        yield _event(chunk)
        if at == 0 and manner.reasoning:
            for word in WORDS.findall(_thought(exchange)):
                delta: dict[str, Any] = {}
                _think(delta, word, manner)
                yield _event({**chunk, "choices": [{**chunk["choices"][0], "delta": delta}]})
    yield pieces[-1]


def _event(value: Mapping[str, Any]) -> bytes:
    return _DATA + dump(value) + b"\n\n"


# --------------------------------------------------------------------------------------- Responses


def seal_of(manner: Manner) -> str:
    """The beginning of the encrypted content that a host makes."""
    return f"{_MARK}{manner.seal}."


def unsealed(body: Body, manner: Manner) -> Body:
    """The request with the encrypted content that this host has made as the company would have made it."""
    if not manner.seal or "input" not in body.spans:
        return body
    ours, plain = (_SEALED + mark.encode() for mark in (seal_of(manner), f"{_MARK}."))
    read = body.spans["input"].replace(ours, plain)
    return replace(
        body, values={**body.values, "input": json.loads(read)}, spans={**body.spans, "input": read}
    )


def _responses(piece: bytes, exchange: SimExchange, manner: Manner) -> bytes:
    if manner.item:
        head, _, data = piece.rpartition(_DATA)
        value = json.loads(data)
        _rewrite(value, _thought(exchange), manner.item)
        piece = dump(value) if not head else head + _event(value)
    if manner.seal:
        plain, ours = (_SEALED + mark.encode() for mark in (f"{_MARK}.", seal_of(manner)))
        piece = piece.replace(plain, ours)
    make = manner.item_id
    if make is None:
        return piece

    def written(found: re.Match[bytes]) -> bytes:
        kind, reply, place = (part.decode() for part in found.groups())
        return f'"{make(kind, reply[:12] + place)}"'.encode()

    return _ITEM_ID.sub(written, piece)


def _rewrite(value: Any, thought: str, item: ReasoningItem) -> None:
    """Write the thinking into every reasoning item of an event."""
    if isinstance(value, list):
        for inner in value:
            _rewrite(inner, thought, item)
    elif isinstance(value, dict):
        if value.get("type") == "reasoning" and "summary" in value:
            value.pop("encrypted_content", None)
            if item == "plain":
                value["encrypted_content"] = thought
            else:
                value["content"] = [{"type": "reasoning_text", "text": thought}]
            return
        for inner in value.values():
            _rewrite(inner, thought, item)


# ---------------------------------------------------------------------------------------- Messages


def _messages(piece: bytes, exchange: SimExchange, manner: Manner) -> bytes:
    if not manner.signature:
        return piece

    def signed(found: re.Match[bytes]) -> bytes:
        digest = hashlib.blake2b(found[1], digest_size=12).hexdigest()
        return f'"signature":"{manner.signature}{digest}"'.encode()

    return _SIGNATURE.sub(signed, piece)
