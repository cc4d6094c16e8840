"""The Responses API: requests in, responses and events out, in OpenAI's JSON.

Owns: the shapes of this endpoint. Must never know: a socket, the rules for sequences, or how the model finds
its reply. The shapes come from recorded responses of api.openai.com; times are fixed, so that equal
requests get equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..http_values import EVENT_STREAM, JSON, Body, Headers, Response, dump
from ..model.prompt import Call, Offer, Prompt, Said, opened, sealed
from ..model.token_counts import Tokens, estimate
from ..wire import SimExchange
from .common_rules import CREATED, OPENAI_NOT_JSON, Refusal, error_object, offer_of, sim_model
from .responses_output import Item, OutputItems, item_events
from .responses_reasoning import Removed, as_items, encrypted, read_from, removed
from .responses_rules import responses_refusals

__all__ = ["OpenAIResponses"]

_THOUGHT = "**Considering the request**\n\n[simulated] I look at what was said and what was asked."
"""The thinking of a reply without thinking, if the request asks for it."""
_STATUSES = {
    None: "completed",
    "stop": "completed",
    "tool_calls": "completed",
    "length": "incomplete",
    "max_tokens": "incomplete",
    "max_output_tokens": "incomplete",
    "content_filter": "incomplete",
}
_REASONS = {"length": "max_output_tokens", "max_tokens": "max_output_tokens"}
_FAILURE = {"code": "server_error", "message": "[simulated] The model failed to finish its answer."}
_TERMINAL = ("completed", "incomplete", "failed")
_MEDIA = ("input_image", "input_file", "input_audio")
_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Values that the response repeats: members of the request, and reasoning that the model did not get."""

    values: Mapping[str, Any] = field(repr=False)
    removed: tuple[Removed, ...]


@dataclass(frozen=True, slots=True)
class OpenAIResponses:
    """OpenAI Responses without a store. A request that names a stored response or item is refused."""

    name: str = "openai-responses"
    path: str = "/v1/responses"
    count_path: str = "/v1/responses/input_tokens"
    compact_path: str = "/v1/responses/compact"
    root: str = "/v1"
    request_id_header: str = "x-request-id"
    not_json: Refusal = OPENAI_NOT_JSON

    def not_found(self, method: str, path: str) -> Refusal:
        """OpenAI's error for a wrong path."""
        return Refusal(f"Invalid URL ({method} {path})")

    def refusals(self, body: Body) -> list[Refusal]:
        """The problems of a request."""
        return responses_refusals(body.values)

    def prompt(self, body: Body) -> Prompt:
        """The prompt of a valid request."""
        values = body.values
        offers, must_call = _offers(values)
        frame = (body.spans.get(key, b"") for key in ("tools", "text", "instructions"))
        items = as_items(values)
        start = read_from(items)
        given = body.spans["input"]
        if start is not None:
            given = dump([_read(item) for item in values["input"][start:]])
        return Prompt(
            model=values["model"],
            history=tuple(_history(values, items[start:])),
            # Without the closing bracket a longer history begins with the bytes of a shorter one.
            content=b"".join((*frame, given.rstrip(b"]"))),
            offers=offers,
            must_call=must_call,
            parallel=values.get("parallel_tool_calls") is not False,
            max_tokens=values.get("max_output_tokens"),
            stream=values.get("stream") is True,
            stream_usage=True,
            thinks=_thinks(values.get("reasoning")),
            compact_above=_threshold(values.get("context_management")),
            schema=((values.get("text") or {}).get("format") or {}).get("schema"),
            kept=_Asked(values, tuple(removed(values))),
        )

    def count_body(self, body: Body) -> Body:
        """Turn a request for a count into the counted request. It has members of a request only."""
        return body

    def count(self, tokens: int) -> Response:
        """OpenAI's answer to a request for a count."""
        counted = {"object": "response.input_tokens", "input_tokens": tokens}
        return Response(headers=JSON, pieces=(dump(counted),))

    def compacts(self, body: Body) -> bool:
        """True for the path of compactions."""
        return False

    def compaction(self, body: Body, summary: str, tokens: Tokens) -> Response:
        """All messages of the user, and one item that replaces everything else."""
        items = as_items(body.values)
        content = sealed(summary, items)
        said = [
            {
                "id": f"msg_sim_{at:06}",
                "status": "completed",
                **item,
                "type": "message",
                "content": _texts(item),
            }
            for at, item in enumerate(items)
            if item["type"] == "message" and item["role"] == "user"
        ]
        made = {"id": f"cmp_sim_{len(items):06}", "type": "compaction", "encrypted_content": content}
        usage = {
            "input_tokens": tokens.prompt,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.prompt + tokens.completion,
        }
        answer = {
            "id": "resp_sim_compaction",
            "created_at": CREATED,
            "object": "response.compaction",
            "output": [*said, made],
            "usage": usage,
        }
        return Response(headers=JSON, pieces=(dump(answer),))

    def answer(self, exchange: SimExchange) -> Response:
        """A response, or its events from ``response.created`` to the terminal one."""
        output = _output(exchange)
        if not exchange.prompt.stream:
            return Response(headers=JSON, pieces=(dump(_finished(exchange, output)),))
        return _streamed(_events(exchange, output))

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """A completed response without output."""
        envelope = _envelope(prompt, "resp_sim")
        hollow = {**envelope, "status": "completed", "output": None if null else []}
        if not prompt.stream:
            return Response(headers=JSON, pieces=(dump(hollow),))
        return _streamed(
            iter(
                (
                    {"type": "response.created", "response": envelope},
                    {"type": "response.completed", "response": hollow},
                )
            )
        )

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """OpenAI's error object."""
        return Response(status=status, headers=(*JSON, *headers), pieces=(dump(error_object(refusal)),))

    def error_event(self, refusal: Refusal) -> bytes:
        """The ``error`` event. Its sequence number is 0, because the number of earlier events is not known.

        It has no type, so its code is the type that an error response would have: "server_error", a code of
        failed responses (openai 3.54, types/responses/response_error.py).
        """
        code = refusal.code or (refusal.type if refusal.type == _FAILURE["code"] else None)
        told = {"code": code, "message": refusal.message, "param": refusal.param}
        return _event({"type": "error", **told}, 0)


def _asked(prompt: Prompt) -> _Asked:
    """The data that `OpenAIResponses.prompt` kept."""
    asked: _Asked = prompt.kept
    return asked


# ------------------------------------------------------------------------------------------- reading


def _thinks(reasoning: Any) -> bool:
    return isinstance(reasoning, dict) and reasoning.get("effort") != "none"


def _read(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item as its model reads it. Of a compaction that is the summary."""
    found = opened(item.get("encrypted_content")) if item.get("type") == "compaction" else None
    return item if found is None else {**item, "encrypted_content": found[0]}


def _threshold(entries: Any) -> int | None:
    """The number of tokens above which the provider compacts, as the request says."""
    counts = [entry["compact_threshold"] for entry in entries or () if entry.get("compact_threshold")]
    return min(counts, default=None)


def _history(values: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    """The conversation. A message and calls of one reply are one `Said`."""
    if values.get("instructions"):
        yield Said(role="system", text=values["instructions"])
    made: Said | None = None
    for item in items:
        said = _said(item)
        if said is None:
            continue
        if made is not None and said.role == "assistant":
            made = replace(made, text=made.text + said.text, calls=(*made.calls, *said.calls))
            continue
        if made is not None:
            yield made
        made = said if said.role == "assistant" else None
        if made is None:
            yield said
    if made is not None:
        yield made


def _said(item: Mapping[str, Any]) -> Said | None:
    kind = item["type"]
    if kind == "message":
        text, media = _spoken(item["content"])
        return Said(role=_ROLES[item["role"]], text=text, media=media)
    if kind in ("function_call", "custom_tool_call"):
        arguments = item["arguments" if kind == "function_call" else "input"]
        call = Call(id=item["call_id"], name=item["name"], arguments=arguments)
        return Said(role="assistant", calls=(call,))
    if kind in ("function_call_output", "custom_tool_call_output"):
        text, media = _spoken(item["output"])
        return Said(role="tool", text=text, media=media, call_id=item["call_id"])
    if kind == "compaction" and (found := opened(item["encrypted_content"])) is not None:
        return Said(role="assistant", text=found[0])
    return None


def _texts(item: Mapping[str, Any]) -> Any:
    content = item["content"]
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


def _spoken(content: Any) -> tuple[str, int]:
    """The text of a content, and the number of its other parts."""
    if isinstance(content, str):
        return content, 0
    texts = [part["text"] for part in content if part["type"] in ("input_text", "output_text")]
    return "".join(texts), sum(part["type"] in _MEDIA for part in content)


def _offers(values: Mapping[str, Any]) -> tuple[tuple[Offer, ...], bool]:
    """The function tools that may be called now, and whether one has to be called."""
    tools = [tool for tool in _tools(values) if tool.get("type") == "function"]
    offers = tuple(map(offer_of, tools))
    choice = values.get("tool_choice") or "auto"
    if isinstance(choice, str):
        return (() if choice == "none" else offers), choice == "required"
    allowed = choice["type"] == "allowed_tools"
    entries = choice["tools"] if allowed else [choice]
    names = {entry["name"] for entry in entries if entry["type"] == "function"}
    chosen = tuple(offer for offer in offers if offer.name in names)
    return chosen, not allowed or choice["mode"] == "required"


def _tools(values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The tools of the request, those appended to the input included."""
    appended = [item.get("tools") or () for item in as_items(values) if item["type"] == "additional_tools"]
    return [tool for tools in (values.get("tools") or (), *appended) for tool in tools]


# ------------------------------------------------------------------------------------------- writing


def _status(finish: str | None) -> str:
    return _STATUSES.get(finish, finish or "")


def _thinking(exchange: SimExchange) -> str | None:
    stock = _THOUGHT if exchange.prompt.thinks else None
    return exchange.reply.thinking or stock


def _output(exchange: SimExchange) -> OutputItems:
    values, reply = _asked(exchange.prompt).values, exchange.reply
    reasoning = values.get("reasoning") or {}
    shown = bool(reasoning.get("summary") or reasoning.get("generate_summary"))
    included = "reasoning.encrypted_content" in (values.get("include") or ())
    return OutputItems(
        key=exchange.key,
        text=reply.content,
        refused=reply.refused,
        calls=tuple(exchange.calls),
        thinking=_thinking(exchange),
        summarised=shown and not reply.redacted,
        encrypted=encrypted(values) if included else None,
        custom={tool["name"] for tool in _tools(values) if tool.get("type") == "custom"},
        ended=_status(reply.finish) not in ("incomplete", "failed"),
        summary=None if exchange.summary is None else exchange.summary.text,
        asked=as_items(values),
    )


def _envelope(prompt: Prompt, identifier: str) -> Item:
    """The response at the start, with the members that repeat the request."""
    asked = _asked(prompt)
    values = asked.values
    text, reasoning = values.get("text") or {}, values.get("reasoning") or {}
    envelope = {
        "id": identifier,
        "object": "response",
        "created_at": CREATED,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": values.get("instructions"),
        "max_output_tokens": values.get("max_output_tokens"),
        "max_tool_calls": values.get("max_tool_calls"),
        "model": sim_model(prompt.model),
        "output": [],
        "parallel_tool_calls": prompt.parallel,
        "previous_response_id": None,
        "prompt_cache_key": values.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": values.get("safety_identifier"),
        "service_tier": "default",
        "store": values.get("store") is not False,
        "temperature": 1.0 if values.get("temperature") is None else values["temperature"],
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": "medium"},
        "tool_choice": values.get("tool_choice") or "auto",
        "tools": values.get("tools") or [],
        "top_logprobs": values.get("top_logprobs") or 0,
        "top_p": 1.0 if values.get("top_p") is None else values["top_p"],
        "truncation": values.get("truncation") or "disabled",
        "usage": None,
        "user": values.get("user"),
        "metadata": values.get("metadata") or {},
    }
    if asked.removed:
        envelope["input_transformations"] = [
            {"type": "reasoning", "id": gone.id, "action": "removed", "reason": gone.reason}
            for gone in asked.removed
        ]
    return envelope


def _finished(exchange: SimExchange, output: OutputItems) -> Item:
    finish = exchange.reply.finish
    status = _status(finish)
    response = _envelope(exchange.prompt, f"resp_{exchange.key}")
    response |= {"status": status, "output": output.items()}
    if status == "completed":
        response["completed_at"] = CREATED + 1
    elif status == "incomplete":
        response["incomplete_details"] = {"reason": _REASONS.get(finish or "", finish)}
    elif status == "failed":
        response["error"] = _FAILURE
    if exchange.reply.usage:
        response["usage"] = _usage(exchange)
    return response


def _usage(exchange: SimExchange) -> Item:
    tokens = exchange.tokens
    thought = estimate((_thinking(exchange) or "").encode("utf-8", "replace"))
    # The added thinking is not part of the reply. The reply's tokens were counted without it.
    written = tokens.completion + (0 if exchange.reply.thinking else thought)
    if exchange.summary is not None:
        written += exchange.summary.tokens.completion  # recorded: a compaction is output like any other
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cache_write_tokens": tokens.written, "cached_tokens": tokens.cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": tokens.prompt + written,
    }


def _events(exchange: SimExchange, output: OutputItems) -> Iterator[Item]:
    values = _asked(exchange.prompt).values
    begun = _envelope(exchange.prompt, f"resp_{exchange.key}")
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    options = values.get("stream_options") or {}
    # Recorded: an item's last event and the terminal one encrypt the same reasoning differently.
    told = output if output.encrypted is None else replace(output, encrypted=encrypted(values, salt=1))
    for place, item in enumerate(told.items()):
        yield from item_events(item, place, obfuscated=options.get("include_obfuscation") is not False)
    finished = _finished(exchange, output)
    status = finished["status"]
    word = status if status in _TERMINAL else "completed"
    yield {"type": f"response.{word}", "response": finished}


def _streamed(events: Iterator[Item]) -> Response:
    pieces = tuple(_event(event, number) for number, event in enumerate(events))
    return Response(headers=EVENT_STREAM, pieces=pieces, streamed=True)


def _event(value: Item, number: int) -> bytes:
    kind = str(value["type"]).encode("ascii")
    return b"event: " + kind + b"\ndata: " + dump({**value, "sequence_number": number}) + b"\n\n"
