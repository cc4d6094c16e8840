"""All threads of a wire's recordings, driven, and what the rules say of each link.

Owns: from records to requests that were sent, and the measures of them. Must never know: how good a
measure has to be, or a particular wire.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Literal

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson

from ._drive import Colour, Driven, Failed, NotDrivable, drive, served
from ._recorded import Exchange, Link, Record, Thread, threads
from ._rules import against_accepted
from ._script import Answer, Endpoint, script
from ._wire import JSON, Wire

__all__ = ["Measured", "Replay", "Replays", "measure", "replay_all", "sent_back", "table"]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One thread, driven. `crash` is anything but a result or an error that a turn may end in."""

    thread: Thread
    driven: Driven | None = field(repr=False)
    crash: Exception | None = None

    @property
    def where(self) -> str:
        return f"{self.thread.record.id}{self.thread.places}"

    @property
    def wire(self) -> Wire:
        return self.thread.record.wire

    @property
    def last_asked(self) -> Exchange | None:
        """The recorded exchange of the last request."""
        return [exchange for exchange, _ in self.sent][-1] if self.driven and self.driven.sent else None

    @cached_property
    def sent(self) -> list[tuple[Exchange, bytes]]:
        """The requests that stand for a recorded one."""
        if self.driven is None:
            return []
        by_place = {exchange.at: exchange for exchange in self.thread.exchanges}
        return [
            (by_place[ask.answer.of], body)
            for ask, body in zip(self.driven.asks, self.driven.sent, strict=True)
            if ask.answer.of is not None
        ]

    @cached_property
    def requests(self) -> list[tuple[str, bytes]]:
        """Every request, and where it belongs."""
        again = self.driven.again if self.driven else ()
        named = [(f"{self.where}, exchange {exchange.at}", body) for exchange, body in self.sent]
        return [*named, *((f"{self.where}, sent again", body) for body in again)]

    def elements(self, body: bytes) -> list[bytes]:
        """The history in a request of ours."""
        return rawjson.items(rawjson.members(body)[self.wire.key])


def answer_of(exchange: Exchange) -> Answer:
    kind = exchange.response["headers"].get("content-type", "application/json")
    return Answer(
        body=exchange.answer_bytes,
        status=exchange.status,
        content_type=kind,
        of=exchange.at,
        is_paused=exchange.wire.is_paused(exchange),
    )


def endpoint_of(exchange: Exchange) -> Endpoint:
    return Endpoint(
        url="https://{host}{path}".format_map(exchange.request),
        is_streamed=exchange.is_streamed,
        body=exchange.body,
        preamble=exchange.wire.preamble(exchange.body),
    )


def replay(colour: Colour, thread: Thread) -> Replay:
    """Drive one thread. Raises `NotDrivable`."""
    story = script(
        thread.record.wire,
        thread.history,
        answers={places: answer_of(exchange) for places, exchange in thread.answers.items()},
        last=answer_of(thread.exchanges[-1]),
        endpoints={exchange.at: endpoint_of(exchange) for exchange in thread.exchanges},
    )
    try:
        return Replay(thread=thread, driven=drive(colour, story, connect=served))
    except NotDrivable:
        raise
    except Exception as crash:
        return Replay(thread=thread, driven=None, crash=crash)


@dataclass(frozen=True, kw_only=True)
class Replays:
    """All threads of all records, driven; `undrivable` are the exchanges that were not, and why."""

    wire: Wire
    records: Sequence[Record] = field(repr=False)
    all: tuple[Replay, ...] = field(repr=False)
    undrivable: tuple[str, ...]

    @property
    def failures(self) -> list[tuple[Replay, Failed]]:
        return [(one, one.driven.failed) for one in self.all if one.driven and one.driven.failed]


def replay_all(wire: Wire, colour: Colour, records: Sequence[Record]) -> Replays:
    """Drive every thread of the records."""
    driven: list[Replay] = []
    undrivable: list[str] = []
    for record in records:
        undrivable += [f"{record.id}({at}): {reason}" for at, reason in record.undrivable.items()]
        for thread in threads(record):
            try:
                driven.append(replay(colour, thread))
            except NotDrivable as reason:
                undrivable.append(f"{record.id}{thread.places}: {reason}")
    return Replays(wire=wire, records=records, all=tuple(driven), undrivable=tuple(undrivable))


# ------------------------------------------------------------------------------------------- links


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the rules say of one link; `accepted` is None where the provider refused the request.

    `of`: whether it was a chat's request that was measured, or what the dialect alone would store.
    """

    record: str
    link: Link
    of: Literal["chat", "dialect"]
    verbatim: list[str]
    accepted: list[str] | None


def measure(replays: Replays, *, of_dialect: Collection[str] = ()) -> list[Measured]:
    """Hold every link that was driven against both rules.

    Args:
        of_dialect: Records in which a chat has to send less than the whole answer, where it does.
    """
    measured: dict[tuple[str, Link], Measured] = {}
    for one in replays.all:
        record = one.thread.record
        sent = {exchange.at: body for exchange, body in one.sent}
        by_place = {exchange.at: exchange for exchange in one.thread.exchanges}
        for link in record.links:
            if link.source in sent and link.target in sent and (record.id, link) not in measured:
                source, target = by_place[link.source], by_place[link.target]
                earlier, later = one.elements(sent[link.source]), one.elements(sent[link.target])
                place = _after_lead(one.wire, earlier) + _lead(one.wire, later)
                ours = with_given_ids(spoken_from(one.wire, later, place), source, earlier=earlier)
                verbatim = one.wire.against_answer(ours, source) if ours else ["it is missing"]
                of: Literal["chat", "dialect"] = "chat"
                if verbatim and record.id in of_dialect:
                    of, ours = "dialect", stored(source)
                    verbatim = one.wire.against_answer(ours, source)
                measured[record.id, link] = Measured(
                    record=record.id,
                    link=link,
                    of=of,
                    verbatim=verbatim,
                    accepted=_accepted_problems(ours, source, target) if target.status == 200 else None,
                )
    return list(measured.values())


def stored(exchange: Exchange) -> list[bytes]:
    """What the package's dialect alone makes of an answer."""
    dialect = dialect_of(exchange.wire.name)
    if not exchange.was_streamed:
        return list(dialect.reply(exchange.answer_bytes).entries)
    decoder = dialect.decoder()
    decoder.feed(exchange.answer_bytes)
    return list(decoder.finish().entries)


def _lead(wire: Wire, elements: Sequence[bytes]) -> int:
    return wire.lead([json.loads(element) for element in elements])


def _after_lead(wire: Wire, elements: Sequence[bytes]) -> int:
    return len(elements) - _lead(wire, elements)


def spoken_from(wire: Wire, elements: Sequence[bytes], place: int) -> list[bytes]:
    """The answer that begins at a place of a history of ours: it comes right after what it answers."""
    run = list(takewhile(lambda element: wire.is_spoken(json.loads(element)), elements[place:]))
    return run if wire.runs_together else run[:1]


def with_given_ids(ours: Sequence[bytes], source: Exchange, *, earlier: Sequence[bytes]) -> list[bytes]:
    """The replay with the ids that the server gave, where it gave none or one that it had given before."""
    wire = source.wire
    taken = set(wire.calls([element for element in map(json.loads, earlier) if wire.is_spoken(element)]))
    given = wire.calls(source.answer or [])
    found = wire.calls([json.loads(element) for element in ours])
    renamed = {
        id: known
        for at, (id, known) in enumerate(zip(found, given, strict=False))
        if id != known and (not known or known in taken or known in given[:at])
    }
    return wire.with_ids(ours, renamed) if renamed else list(ours)


def _accepted_problems(ours: Sequence[bytes], source: Exchange, target: Exchange) -> list[str]:
    wire = source.wire
    accepted: list[JSON] = [target.history[at] for at in wire.places(target.history, source)]
    mine = [json.loads(element) for element in ours]
    return against_accepted(mine, source.answer or [], accepted, wire.same_value(source))


def sent_back(replays: Replays, measured: Sequence[Measured]) -> list[Exchange]:
    """The exchanges whose answers a chat sent back verbatim."""
    exchanges = {(record.id, each.at): each for record in replays.records for each in record.exchanges}
    places = {(one.record, one.link.source) for one in measured if one.of == "chat" and not one.verbatim}
    return [exchanges[place] for place in sorted(places)]


def table(replays: Replays, measured: Sequence[Measured]) -> str:
    """The measures by kind of link, to read."""
    every = Counter(link.kind for record in replays.records for link in record.links)
    verbatim = Counter(one.link.kind for one in measured if not one.verbatim)
    judged = Counter(one.link.kind for one in measured if one.accepted is not None)
    accepted = Counter(one.link.kind for one in measured if one.accepted == [])
    driven = Counter(one.link.kind for one in measured)
    lines = [f"\n{'link':24} recorded  driven  A: verbatim  B: accepted"]
    for kind, count in every.most_common():
        took = f"{accepted[kind]} of {judged[kind]}"
        lines.append(f"{kind:24} {count:8}  {driven[kind]:6}  {verbatim[kind]:11}  {took:>11}")
    return "\n".join(lines)
