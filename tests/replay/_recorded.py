"""Recorded exchanges with real providers, and the threads that they form.

Owns: reading the records, and which request goes on from which answer. Must never know: this package's
chats, or how a thread is driven.

A record is a list of exchanges in the order in which they were recorded. A *link* says that a later
request holds an earlier answer. The links make a forest: a *thread* is one path in it, from a request that
goes on from nothing to one that nothing goes on from, so every exchange that a stateless client could have
made is in at least one thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import zstandard

from goaitools_py.base import rawjson

from ._wire import JSON, Wire, comparable

__all__ = ["Exchange", "Link", "Record", "Thread", "is_plain", "read_lines", "read_records", "threads"]


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a zstd-compressed JSON-lines file."""
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        yield from filter(None, reader.read().split(b"\n"))


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and its answer. `raw_body` is the answer's JSON as the recording has it, byte for byte."""

    wire: Wire = field(repr=False)
    at: int
    request: JSON = field(repr=False)
    response: JSON = field(repr=False)
    assembled: JSON | None = field(repr=False)
    raw_body: bytes = field(repr=False)

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = self.request["body"] or {}
        return found

    @property
    def host(self) -> str:
        return str(self.request["host"])

    @property
    def is_first_party(self) -> bool:
        return self.host.endswith(self.wire.first_party)

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

    @property
    def was_streamed(self) -> bool:
        """Whether the answer came as an event stream."""
        return "sse" in self.response

    @cached_property
    def history(self) -> list[JSON]:
        """What the request says."""
        return self.wire.history(self.body)

    @cached_property
    def answer(self) -> list[JSON] | None:
        """The answer as elements of a history; of a stream, assembled."""
        return self.wire.answer(self)

    @property
    def is_whole(self) -> bool:
        """Whether the answer came to its end."""
        return self.status == 200 and self.answer is not None and self.wire.is_whole(self)


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
    wire: Wire = field(repr=False)
    exchanges: tuple[Exchange, ...] = field(repr=False)
    links: tuple[Link, ...] = field(repr=False)

    @cached_property
    def undrivable(self) -> dict[int, str]:
        """The exchanges that no stateless client could have made, and why."""
        reasons = {exchange.at: self.wire.why_not(exchange) for exchange in self.exchanges}
        return {at: reason for at, reason in reasons.items() if reason}


def read_records(path: Path, wire: Wire) -> list[Record]:
    """All records of a file."""
    return [_record(line, wire) for line in read_lines(path)]


def _record(line: bytes, wire: Wire) -> Record:
    parsed = json.loads(line)
    raw = rawjson.items(rawjson.members(line)["exchanges"])
    exchanges = tuple(
        Exchange(
            wire=wire,
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
    return Record(id=parsed["id"], wire=wire, exchanges=exchanges, links=links)


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
    def history(self) -> Sequence[JSON]:
        """What the last request says: the whole conversation but for the last answer."""
        return self.exchanges[-1].history

    @property
    def answers(self) -> dict[tuple[int, ...], Exchange]:
        """Every exchange but the last, by where in `history` its answer stands."""
        wire = self.record.wire
        return {wire.places(self.history, exchange): exchange for exchange in self.exchanges[:-1]}


def threads(record: Record) -> Iterator[Thread]:
    """Every thread of a record, in the order of their last exchanges."""
    parents = _parents(record)
    drivable = set(range(len(record.exchanges))) - set(record.undrivable)
    for leaf in sorted(drivable - set(parents.values())):
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
        if record.undrivable.keys() & {link.source, link.target}:
            continue
        source, target = record.exchanges[link.source], record.exchanges[link.target]
        if _goes_on(target.history, source):
            known = parents.get(link.target)
            if known is None or len(source.history) > len(record.exchanges[known].history):
                parents[link.target] = link.source
    return parents


def _goes_on(history: Sequence[JSON], exchange: Exchange) -> bool:
    before = list(history[: len(exchange.history)])
    return comparable(before) == comparable(list(exchange.history)) and bool(
        exchange.wire.places(history, exchange)
    )


def is_plain(thread: Thread) -> bool:
    """Whether the first request holds only what a client may say, and each later one adds only the
    answer before it and more of the same."""
    answered = {place for places in thread.answers for place in places}
    wire = thread.record.wire
    return not any(
        wire.is_spoken(element) and (wire.calls([element]) or wire.text([element]))
        for at, element in enumerate(thread.history)
        if at not in answered
    )
