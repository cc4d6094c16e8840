"""Recorded traffic with real providers, as chains of requests with the usage of each.

Owns: which recorded request goes on from which reply, and what it added. Must never know: what is measured
with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import zstandard
from _conversations import JSON, compact, data

from goaitools_py.backends.base import Dialect, Reply
from goaitools_py.backends.dialects import dialect_of

__all__ = ["FILES", "Kind", "Step", "steps"]

FILES = {
    "openai": "recorded/openai-chat.jsonl.zst",
    "openai-responses": "recorded/openai-responses.jsonl.zst",
    "anthropic": "recorded/anthropic-messages.jsonl.zst",
}

Kind: TypeAlias = Literal["words and tools", "media", "hosted tools", "prefix changed"]
"""What a step adds: text, calls and results; pictures, documents or sound too; what a tool of the provider's
own read on the way; anything behind another model, preamble, tool list or way of thinking."""

_HOSTED = re.compile(
    rb'"(?:server_tool_use|mcp_tool_use|mcp_call|mcp_list_tools|web_search_call|file_search_call|'
    rb"code_interpreter_call|image_generation_call|computer_call|shell_call|tool_search_call|"
    rb'tool_search_output|tool_reference|additional_tools|compaction)"'
)
_MEDIA = re.compile(rb'"(?:image_url|input_image|image|file|input_file|document|document_url|input_audio)"')
_VARIABLE = frozenset(
    {
        "cache_control",
        "include",
        "input",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "prompt_cache_key",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "top_p",
        "user",
    }
)
"""Members of a request that are no part of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request of a chain, and its reply.

    Attributes:
        where: Record and place, to look it up.
        source: The repository that recorded it.
        before: Place of the step it goes on from, None for the first of a chain.
        sent: The entries that it adds to what was said and replied before.
        kind: What is in these; "words and tools" for the first of a chain.
    """

    where: tuple[str, int]
    source: str
    before: tuple[str, int] | None
    host: str
    model: str
    sent: tuple[bytes, ...]
    reply: Reply
    kind: Kind


@cache
def steps(wire: str) -> tuple[Step, ...]:
    """Every recorded exchange of a wire that a stateless client could have made; () without data."""
    path = data() / FILES[wire]
    if not path.is_file():
        return ()
    dialect = dialect_of(wire)
    found: list[Step] = []
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        for line in reader.read().splitlines():
            found += _of_record(json.loads(line), dialect)
    return tuple(found)


def _of_record(record: JSON, dialect: Dialect) -> Iterator[Step]:
    exchanges = record["exchanges"]
    replies = {at: reply for at, each in enumerate(exchanges) if (reply := _reply(each, dialect))}
    histories = [_history(each["request"]["body"] or {}) for each in exchanges]
    parents: dict[int, int] = {}
    for link in record["replay_links"]:
        source, target = link["from"], link["to"]
        if {source, target} <= replies.keys() and _goes_on(histories[source], histories[target]):
            known = parents.get(target)
            if known is None or len(histories[known]) < len(histories[source]):
                parents[target] = source
    for at, reply in replies.items():
        source = parents.get(at)
        new = [compact(each) for each in histories[at][len(histories[source]) if source is not None else 0 :]]
        sent = _after_reply(new, dialect) if source is not None else new
        body, kind = exchanges[at]["request"]["body"], "words and tools"
        if source is not None:
            both = b"".join((*new, *reply.entries, *replies[source].entries))
            if _frame(body) != _frame(exchanges[source]["request"]["body"]):
                kind = "prefix changed"
            elif _HOSTED.search(both):
                kind = "hosted tools"
            elif _MEDIA.search(b"".join(sent)):
                kind = "media"
        yield Step(
            where=(record["id"], at),
            source=record["source_repo"],
            before=None if source is None else (record["id"], source),
            host=exchanges[at]["request"]["host"],
            model=str(body.get("model") or ""),
            sent=tuple(sent),
            reply=reply,
            kind=kind,  # type: ignore[arg-type]
        )


def _reply(exchange: JSON, dialect: Dialect) -> Reply | None:
    request, response = exchange["request"], exchange["response"]
    body = request["body"] or {}
    keeps_state = body.get("previous_response_id") or body.get("conversation")
    if response["status"] != 200 or keeps_state or not _history(body):
        return None
    try:
        if "sse" in response:
            decoder = dialect.decoder()
            decoder.feed(response["sse"].encode())
            return decoder.finish()
        return dialect.reply(compact(response["body"]))
    except Exception:  # an answer that is none
        return None


def _history(body: JSON) -> list[Any]:
    said = body.get("input") if "input" in body else body.get("messages")
    return [{"role": "user", "content": said}] if isinstance(said, str) else list(said or ())


def _frame(body: JSON) -> JSON:
    return {key: value for key, value in body.items() if key not in _VARIABLE}


def _goes_on(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return len(after) > len(before) and _bare(after[: len(before)]) == _bare(before)


def _bare(value: Any) -> Any:
    """The value without what says nothing: cache marks, null, empty; a lone text part is its string."""
    if isinstance(value, Mapping):
        members = ((key, _bare(each)) for key, each in value.items() if key != "cache_control")
        return {key: each for key, each in members if each not in (None, "", [], {})}
    if isinstance(value, list):
        parts = [_bare(each) for each in value]
        if len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}:
            return parts[0]["text"]
        return parts
    return value


def _after_reply(new: Sequence[bytes], dialect: Dialect) -> list[bytes]:
    """What stands behind the reply that a request begins to add."""
    for at, entry in enumerate(new):
        if any(message.role != "assistant" for message in dialect.view([entry])):
            return list(new[at:])
    return []
