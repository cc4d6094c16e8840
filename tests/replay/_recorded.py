"""Recorded exchanges with real providers, and the threads that they form.

Owns: reading the records, and which request goes on from which answer. Must never know: this package's
chats, or how a thread is driven.

A record is a list of exchanges in the order in which they were recorded. A *link* says that a later
request holds an earlier answer. The links make a forest: a *thread* is one path in it, from a request that
goes on from nothing to one that nothing goes on from, so every exchange is in at least one thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import zstandard

from goaitools_py import rawjson

__all__ = [
    "Exchange",
    "Link",
    "Record",
    "Thread",
    "comparable",
    "place_of_answer",
    "read_lines",
    "read_records",
    "threads",
]

JSON = Mapping[str, Any]


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a zstd-compressed JSON-lines file."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        yield from filter(None, reader.read().split(b"\n"))


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and its answer. `raw_body` is the answer's JSON as the recording has it, byte for byte."""

    at: int
    request: JSON = field(repr=False)
    response: JSON = field(repr=False)
    assembled: JSON | None = field(repr=False)
    raw_body: bytes = field(repr=False)

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = self.request["body"]
        return found

    @property
    def messages(self) -> Sequence[JSON]:
        found: list[JSON] = self.body["messages"]
        return found

    @property
    def status(self) -> int:
        found: int = self.response["status"]
        return found

    @property
    def is_streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def answer_bytes(self) -> bytes:
        """The body that the provider sent."""
        for key in ("sse", "text"):
            if key in self.response:
                return str(self.response[key]).encode()
        return self.raw_body

    @cached_property
    def answer(self) -> dict[str, Any] | None:
        """The message of choice 0; of a stream, as the recording's own reader assembled it."""
        completion = self.assembled if "sse" in self.response else self.response.get("body")
        choices = completion.get("choices") if isinstance(completion, Mapping) else None
        return choices[0].get("message") if choices else None

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its end."""
        if self.status != 200 or self.answer is None:
            return False
        choice = self.assembled["choices"][0] if self.assembled else {}
        return "sse" not in self.response or choice.get("finish_reason") is not None

    @cached_property
    def raw_answer(self) -> bytes | None:
        """The same message as the bytes that the provider sent; None for a stream."""
        if "sse" in self.response or self.answer is None:
            return None
        choice = rawjson.items(rawjson.members(self.raw_body)["choices"])[0]
        return rawjson.members(choice)["message"]

    @cached_property
    def delta_keys(self) -> frozenset[str]:
        """Every key that a piece of a streamed answer had."""
        keys: set[str] = set()
        for line in str(self.response.get("sse", "")).splitlines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            for choice in (json.loads(data).get("choices") or [])[:1] if data.startswith("{") else []:
                keys.update(choice.get("delta") or ())
        return frozenset(keys)


@dataclass(frozen=True, slots=True)
class Link:
    """The request of exchange `target` holds the answer of exchange `source`; `kind` says how equal."""

    source: int
    target: int
    kind: str
    position: int
    """Where the answer stands, by the recording's own account; a thread knows better."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One recording. Everything is in the order of the file."""

    id: str
    exchanges: tuple[Exchange, ...] = field(repr=False)
    links: tuple[Link, ...] = field(repr=False)


def read_records(path: Path) -> list[Record]:
    """All records of a file."""
    return [_record(line) for line in read_lines(path)]


def _record(line: bytes) -> Record:
    parsed = json.loads(line)
    raw = rawjson.items(rawjson.members(line)["exchanges"])
    exchanges = tuple(
        Exchange(
            at=at,
            request=exchange["request"],
            response=exchange["response"],
            assembled=exchange.get("assembled"),
            raw_body=rawjson.members(rawjson.members(raw[at])["response"]).get("body", b""),
        )
        for at, exchange in enumerate(parsed["exchanges"])
    )
    links = tuple(
        Link(link["from"], link["to"], link["kind"], link["message_index"]) for link in parsed["replay_links"]
    )
    return Record(id=parsed["id"], exchanges=exchanges, links=links)


# ------------------------------------------------------------------------------------------- threads


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A conversation: each exchange but the first goes on from the answer of the one before it."""

    record: Record
    exchanges: tuple[Exchange, ...] = field(repr=False)

    @property
    def places(self) -> tuple[int, ...]:
        """Where its exchanges stand in the record."""
        return tuple(exchange.at for exchange in self.exchanges)

    @property
    def messages(self) -> Sequence[JSON]:
        """The last request's messages: the whole conversation but for the last answer."""
        return self.exchanges[-1].messages

    @property
    def answers(self) -> dict[int, Exchange]:
        """Every exchange but the last, by where in `messages` its answer stands."""
        earlier = self.exchanges[:-1]
        return {place_of_answer(self.messages, exchange): exchange for exchange in earlier}


def threads(record: Record) -> Iterator[Thread]:
    """Every thread of a record, in the order of their last exchanges."""
    parents = _parents(record)
    for leaf in sorted(set(range(len(record.exchanges))) - set(parents.values())):
        path = [leaf]
        while path[0] in parents:
            path.insert(0, parents[path[0]])
        yield Thread(record=record, exchanges=tuple(record.exchanges[at] for at in path))


def _parents(record: Record) -> dict[int, int]:
    """For each exchange the one whose answer is the latest that its request holds.

    A request in which the client edited what came before goes on from nothing.
    """
    parents: dict[int, int] = {}
    for link in record.links:
        source, target = record.exchanges[link.source], record.exchanges[link.target]
        if _goes_on(target.messages, source):
            known = parents.get(link.target)
            if known is None or len(source.messages) > len(record.exchanges[known].messages):
                parents[link.target] = link.source
    return parents


def _goes_on(messages: Sequence[JSON], exchange: Exchange) -> bool:
    before = messages[: len(exchange.messages)]
    return comparable(before) == comparable(exchange.messages) and (
        place_of_answer(messages, exchange) < len(messages)
    )


def place_of_answer(messages: Sequence[JSON], exchange: Exchange) -> int:
    """Where in later messages the answer of an exchange stands; their length if it does not.

    It is what the assistant says next; some clients put an empty message of its before that.
    """
    for at in range(len(exchange.messages), len(messages)):
        message = messages[at]
        if message["role"] == "assistant" and (message.get("content") or message.get("tool_calls")):
            return at
    return len(messages)


def comparable(value: Any) -> Any:
    """The value without what says nothing: null, empty, cache marks; a lone text part is its string."""
    if isinstance(value, Mapping):
        kept = {key: comparable(item) for key, item in value.items() if key != "cache_control"}
        kept = {key: item for key, item in kept.items() if item not in (None, "", [], {})}
        return kept["text"] if set(kept) == {"type", "text"} and kept["type"] == "text" else kept
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        return items[0] if len(items) == 1 and isinstance(items[0], str) else items
    return value
