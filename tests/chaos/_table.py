"""Every fault of a provider, wire by wire, and how a turn that meets it has to end: one line for each.

Owns: the table. Must never know: how a turn is run, or what is checked beside its end.
"""

from __future__ import annotations

import itertools
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from goaitools_py import (
    AuthenticationError,
    ContextTooLongError,
    DeadlineExceededError,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    StreamInterruptedError,
    TurnError,
)
from goaitools_py.sim import Fault, Reply, SimServer
from goaitools_py.sim.http_values import Hold
from goaitools_py.sim.provider_faults import Scripted

from ..turn._reading import ALL, ANTHROPIC, CHAT, LEAD, RESPONSES

__all__ = ["MODES", "ROWS", "Absent", "Gates", "Mode", "Order", "Row", "cells", "meetings", "row"]

Mode: TypeAlias = Literal["unary", "streamed"]
MODES: tuple[Mode, ...] = ("unary", "streamed")


@dataclass(frozen=True)
class Gates:
    """What a server may wait for: that the turn is over, or that the listener was shown the partial text."""

    over: threading.Event
    shown: threading.Event


Order: TypeAlias = Scripted | Callable[[Gates], Scripted]
"""What is pushed; a function gets the gates of its turn."""


@dataclass(frozen=True)
class Absent:
    """The fault does not exist on a wire."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault. What differs from wire to wire is a mapping.

    Attributes:
        ends: The exact class of the error, or the status of the result.
        retryable: What the error says of it.
        sends: Requests from the fault on: the fault itself, and its retries, which meet it too.
        status: The error's status code.
        is_poison: It blames the content: messages that no model has accepted leave the state.
        partial: The text that came before the fault.
        patience: "turn" has a short deadline over all, "socket" waits shortly for each byte.
        is_met_once: The fault is not repeated; requests after it are healthy.
        is_unsent: The turn is refused, and later requests leave it out.
    """

    name: str
    order: Mapping[str, Order | Absent]
    ends: Mapping[str, type[TurnError] | str]
    retryable: Mapping[str, bool]
    sends: Mapping[str, int]
    status: Mapping[str, int | None]
    modes: tuple[Mode, ...]
    is_poison: Mapping[str, bool]
    partial: str
    patience: Literal["plenty", "turn", "socket"]
    is_met_once: bool
    is_unsent: Mapping[str, bool]


def _by_wire(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else dict.fromkeys(ALL, value)


def row(
    name: str,
    order: Any,
    ends: Any,
    *,
    retryable: Any = False,
    sends: Any = 1,
    status: Any = None,
    modes: tuple[Mode, ...] = MODES,
    is_poison: Any = False,
    partial: str = "",
    patience: Literal["plenty", "turn", "socket"] = "plenty",
    is_met_once: bool = False,
    is_unsent: Any = False,
) -> Row:
    """A line of the table."""
    return Row(
        name=name,
        order=_by_wire(order),
        ends=_by_wire(ends),
        retryable=_by_wire(retryable),
        sends=_by_wire(sends),
        status=_by_wire(status),
        modes=modes,
        is_poison=_by_wire(is_poison),
        partial=partial,
        patience=patience,
        is_met_once=is_met_once,
        is_unsent=_by_wire(is_unsent),
    )


# --------------------------------------------------------------------------- streams, event by event

UNARY: tuple[Mode, ...] = ("unary",)
STREAMED: tuple[Mode, ...] = ("streamed",)

STORY = Reply.text("Once upon a time there was a fox.")
BLUE = ("get_score", '{"team":"Blue"}')
CALL = Reply.calls(BLUE, text="Let me see.")
TORN = ("get_score", '{"team":"Bl')
SAID = {wire: LEAD[wire] + 3 for wire in ALL}
"""So many events of `STORY` hold "Once upon a"."""

WORDLESS: Mapping[str, Any] = {
    CHAT: Absent("without a choice there is no answer, and a choice has a message"),
    RESPONSES: Fault.no_choices(),
    ANTHROPIC: Reply.text("", finish="end_turn"),
}

_ASK: Mapping[str, tuple[str, bytes]] = {
    CHAT: ("/v1/chat/completions", b'"messages":[{"role":"user","content":"?"}]'),
    RESPONSES: ("/v1/responses", b'"input":[{"role":"user","content":"?"}]'),
    ANTHROPIC: ("/v1/messages", b'"max_tokens":99,"messages":[{"role":"user","content":"?"}]'),
}


def _events(wire: str, reply: Reply) -> tuple[bytes, ...]:
    """The events with which the simulator streams a reply."""
    sim = SimServer()
    sim.push(reply)
    path, history = _ASK[wire]
    headers = {"anthropic-version": "2023-06-01"} if wire == ANTHROPIC else {}
    response = sim.respond("POST", path, headers, b'{"model":"sim-model","stream":true,%s}' % history)
    assert response.status == 200, sim.problems
    return response.pieces


def _where(events: tuple[bytes, ...], words: bytes) -> int:
    return next(number for number, event in enumerate(events) if words in event)


def _each(make: Callable[[str], Order | Absent]) -> dict[str, Order | Absent]:
    return {wire: make(wire) for wire in ALL}


def _said_then(more: bytes, *, at_once: bool = False) -> dict[str, Order | Absent]:
    """A stream of "Once upon a" and these bytes, event by event or at once, with a clean end."""

    def make(wire: str) -> Order:
        pieces = (*_events(wire, STORY)[: SAID[wire]], more)
        return replace(Reply.sse(b""), pieces=(b"".join(pieces),) if at_once else pieces)

    return _each(make)


def _half_an_event(wire: str) -> Order:
    events = _events(wire, STORY)
    return Reply.sse(b"".join(events[: SAID[wire]]) + events[SAID[wire]][:-9])


def _only_missing_its_end(wire: str) -> Order:
    """All but the events that say that the reply is whole."""
    words = {CHAT: b'"finish_reason":"stop"', RESPONSES: b"response.completed", ANTHROPIC: b"message_stop"}
    return Fault.cut_stream(_where(_events(wire, STORY), words[wire]), reply=STORY)


def _call_cut_by_the_end(wire: str) -> Order:
    return Fault.cut_stream(_where(_events(wire, CALL), b'{\\"tea') + 1, reply=CALL)


def _torn_call(wire: str) -> Order:
    return Reply.sse(b"".join(_events(wire, Reply.calls(TORN))))


def _reset_after(wire: str) -> Order:
    """A reset throws away what is still on its way, so it waits until the words have come."""
    pieces = (*_events(wire, STORY)[: SAID[wire]], b"")

    def make(gates: Gates) -> Scripted:
        hold = Hold(after=len(pieces) - 1, gate=gates.shown)
        return replace(Reply.sse(b""), pieces=pieces, ending="reset", hold=hold)

    return make


def _silent_after(wire: str) -> Order:
    return lambda gates: Fault.hold(gates.over, after=SAID[wire], reply=STORY)


# -------------------------------------------------------------------------------------- the table

DOWN = {"retryable": True, "sends": 3}
ODD = {"retryable": True, "sends": 1}
SPOKEN = {"retryable": True, "sends": 1, "modes": STREAMED, "partial": "Once upon a"}
POISON = {"is_poison": True}
NAMELESS = b'{"error":{"message":"?"}}'
FOREIGN = b"data: " + NAMELESS + b"\n\n"
TORN_EVENT = b'data: {"type":"\n\n'
INVALID = b'"error":{"message":"no","type":"invalid_request_error"}'
GZIP = {"content-type": "application/json", "content-encoding": "gzip"}
LIE = Reply.raw(b"{}", headers=GZIP)
RESPONSE = b'{"object":"response","id":"r","model":"m",%s}'

ROWS: tuple[Row, ...] = (
    # the connection
    row("RST before the headers", Fault.reset(), ProviderUnavailableError, **DOWN),
    row("EOF before the headers", Fault.hang_up(), ProviderUnavailableError, **DOWN),
    row(
        "stall before the headers",
        lambda gates: Fault.hold(gates.over),
        ProviderUnavailableError,
        retryable=True,
        sends=2,
        patience="socket",
    ),
    row(
        "stall before the headers, beyond the deadline",
        lambda gates: Fault.hold(gates.over),
        DeadlineExceededError,
        retryable=True,
        patience="turn",
    ),
    row("short body", Fault.short_body(), ProviderUnavailableError, **DOWN, modes=UNARY),
    row("RST in the body", Fault.reset(after=3), ProviderUnavailableError, **DOWN, modes=UNARY),
    row("EOF in the body", Fault.hang_up(after=3), ProviderUnavailableError, **DOWN, modes=UNARY),
    row(
        "stall in the body",
        lambda gates: Fault.hold(gates.over, after=3),
        ProviderUnavailableError,
        retryable=True,
        sends=2,
        modes=UNARY,
        patience="socket",
    ),
    row(
        "blanks for ever",
        Fault.pings(after=3),
        DeadlineExceededError,
        retryable=True,
        modes=UNARY,
        patience="turn",
    ),
    # error statuses
    row("400", Fault.bad_request(), ProviderRejectedError, status=400, **POISON),
    row("401", Fault.unauthorized(), AuthenticationError, status=401),
    row("403", Fault.error(403, "forbidden"), AuthenticationError, status=403),
    row("404", Fault.not_found(), ProviderRejectedError, status=404),
    row("408", Fault.error(408, "timeout"), ProviderUnavailableError, status=408, **DOWN),
    row("409", Fault.error(409, "conflict"), ProviderUnavailableError, status=409, **DOWN),
    row("413", Fault.too_large(), ProviderRejectedError, status=413, sends=2, **POISON),
    row("422", Fault.error(422, "unprocessable"), ProviderRejectedError, status=422, **POISON),
    row("429", Fault.rate_limit(), RateLimitError, status=429, **DOWN),
    row(
        "no money left",
        Fault.quota(),
        {CHAT: RateLimitError, RESPONSES: RateLimitError, ANTHROPIC: AuthenticationError},
        status={CHAT: 429, RESPONSES: 429, ANTHROPIC: 402},
    ),
    row("500", Fault.server_error(500), ProviderUnavailableError, status=500, **DOWN),
    row("502", Fault.server_error(502), ProviderUnavailableError, status=502, **DOWN),
    row("503", Fault.server_error(503), ProviderUnavailableError, status=503, **DOWN),
    row("504", Fault.server_error(504), ProviderUnavailableError, status=504, **DOWN),
    row("529", Fault.overloaded(), ProviderUnavailableError, status=529, **DOWN),
    row("502 with a page", Fault.html(502), ProviderUnavailableError, status=502, **DOWN),
    row("context too long", Fault.context_length(), ContextTooLongError, status=400, sends=2, **POISON),
    # 200, but no reply
    row("200 with a page", Fault.html(), ProviderProtocolError, **ODD),
    row("200 with cut JSON", Fault.broken_json(), ProviderProtocolError, **ODD),
    row("200 with nothing", Reply.raw(b""), ProviderProtocolError, **ODD),
    row("200 with null", Fault.null(), ProviderProtocolError, **ODD),
    row("200 with a list", Reply.raw(b"[]"), ProviderProtocolError, **ODD),
    row("200 that is not the gzip it says", LIE, ProviderUnavailableError, **DOWN, modes=UNARY),
    row("stream: not the gzip it says", LIE, StreamInterruptedError, **DOWN, modes=STREAMED),
    row("200 with an error", Fault.error_body(), ProviderUnavailableError, **DOWN),
    row("200 with an error without a name", Reply.raw(NAMELESS), ProviderProtocolError, **ODD),
    row("200 with a refusal of the request", Reply.raw(b"{%s}" % INVALID), ProviderRejectedError, **POISON),
    row(
        "200 with a response that failed",
        {
            CHAT: Absent("a completion has no status"),
            RESPONSES: Reply.raw(
                RESPONSE % b'"status":"failed","error":{"code":"server_error"},"output":[]',
            ),
            ANTHROPIC: Absent("a message has no status"),
        },
        ProviderUnavailableError,
        **DOWN,
    ),
    row(
        "200 with a cancelled response",
        {
            CHAT: Absent("a completion has no status"),
            RESPONSES: Reply.raw(RESPONSE % b'"status":"cancelled","output":[]'),
            ANTHROPIC: Absent("a message has no status"),
        },
        ProviderProtocolError,
        **ODD,
    ),
    row(
        "answers: []",
        {
            CHAT: Fault.no_choices(),
            RESPONSES: Absent("a completed response without output is an answer without a word"),
            ANTHROPIC: Fault.no_choices(),
        },
        ProviderProtocolError,
        **ODD,
        modes=UNARY,
    ),
    row("answers: null", Fault.no_choices(null=True), ProviderProtocolError, **ODD, modes=UNARY),
    row(
        "stream: an end, and no answer before it",
        {
            CHAT: Fault.no_choices(),
            RESPONSES: Fault.no_choices(null=True),
            ANTHROPIC: Fault.no_choices(),
        },
        {CHAT: StreamInterruptedError, RESPONSES: ProviderProtocolError, ANTHROPIC: ProviderProtocolError},
        retryable=True,
        sends={CHAT: 3, RESPONSES: 1, ANTHROPIC: 1},
        modes=STREAMED,
    ),
    row(
        "an answer without a word",
        WORDLESS,
        "complete",
        sends=2,  # no token is billed for it
        modes=UNARY,
    ),
    row(
        "stream: an answer without a word",
        WORDLESS,
        "complete",
        sends={RESPONSES: 2, ANTHROPIC: 1},  # a message begins with one token on its bill
        modes=STREAMED,
    ),
    # streams
    row("stream: RST", _each(_reset_after), StreamInterruptedError, **SPOKEN),
    row(
        "stream: EOF without a terminator",
        _each(lambda wire: Fault.hang_up(after=SAID[wire], reply=STORY)),
        StreamInterruptedError,
        **SPOKEN,
    ),
    row(
        "stream: clean EOF",
        _each(lambda wire: Fault.cut_stream(SAID[wire], reply=STORY)),
        StreamInterruptedError,
        **SPOKEN,
    ),
    row("stream: half an event", _each(_half_an_event), StreamInterruptedError, **SPOKEN),
    row("stream: bad JSON in an event", _said_then(TORN_EVENT), StreamInterruptedError, **SPOKEN),
    row(
        "stream: bad JSON in one packet with the words, which nobody was shown",
        _said_then(TORN_EVENT, at_once=True),
        StreamInterruptedError,
        **{**SPOKEN, "sends": 3},
    ),
    row(
        "stream: an error event",
        _each(lambda wire: Fault.error_event(after=SAID[wire], reply=STORY)),
        StreamInterruptedError,
        **SPOKEN,
    ),
    row("stream: a foreign error", _said_then(FOREIGN), StreamInterruptedError, **SPOKEN),
    row(
        "stream: stall",
        _each(_silent_after),
        StreamInterruptedError,
        **SPOKEN,
        patience="socket",
    ),
    row(
        "stream: pings for ever",
        _each(lambda wire: Fault.pings(after=SAID[wire], reply=STORY)),
        DeadlineExceededError,
        **SPOKEN,
        patience="turn",
    ),
    row(
        "stream: everything but its end",
        _each(_only_missing_its_end) | {ANTHROPIC: Absent("every block was closed, so the reply is whole")},
        StreamInterruptedError,
        **{**SPOKEN, "partial": STORY.content},
    ),
    # streams that break before a word was shown
    row(
        "stream: EOF without a terminator before a word",
        Fault.hang_up(after=0, reply=STORY),
        StreamInterruptedError,
        **DOWN,
        modes=STREAMED,
    ),
    row(
        "stream: clean EOF before a word",
        Fault.cut_stream(0, reply=STORY),
        StreamInterruptedError,
        **DOWN,
        modes=STREAMED,
    ),
    row(
        "stream: an error event before a word",
        Fault.error_event(after=0, reply=STORY),
        ProviderUnavailableError,
        **DOWN,
        modes=STREAMED,
    ),
    row(
        "stream: bad JSON before a word",
        Reply.sse(TORN_EVENT),
        ProviderProtocolError,
        **ODD,
        modes=STREAMED,
    ),
    row(
        "stream: a foreign error before a word",
        Reply.sse(FOREIGN),
        ProviderProtocolError,
        **ODD,
        modes=STREAMED,
    ),
    row(
        "stream: EOF without a terminator after the whole reply",
        Fault.hang_up(after=1_000, reply=STORY),
        "complete",
        modes=STREAMED,
    ),
    # calls that are not whole, and answers that ended early
    row("calls cut by the token limit", Reply.calls(BLUE, TORN, finish="length"), "truncated"),
    row(
        "stream: calls cut by EOF",
        _each(_call_cut_by_the_end),
        StreamInterruptedError,
        **{**SPOKEN, "partial": "Let me see."},
    ),
    row(
        "a whole call with invalid JSON",
        {
            CHAT: Reply.calls(TORN),
            RESPONSES: Reply.calls(TORN),
            ANTHROPIC: Absent("unary input is an object, never a text"),
        },
        "complete",
        sends=2,
        modes=UNARY,
        is_met_once=True,
    ),
    row(
        "stream: a whole call with invalid JSON",
        _each(_torn_call),
        "complete",
        sends=2,
        modes=STREAMED,
        is_met_once=True,
    ),
    row("text cut by the token limit", Reply.text("Once upon a", finish="length"), "truncated"),
    row(
        "content filter",
        Reply.text("I must", finish="content_filter"),
        "refused",
        is_unsent={CHAT: True, RESPONSES: False, ANTHROPIC: True},  # Responses: the reply, not the turn
    ),
    row(
        "refusal",
        Reply.refusal("I will not."),
        "refused",
        is_unsent={CHAT: False, RESPONSES: False, ANTHROPIC: True},
    ),
)


def cells() -> Iterator[tuple[Row, str, Mode]]:
    """Every fault on every wire that has it, in every mode that has it."""
    for line in ROWS:
        for wire in ALL:
            if not isinstance(line.order[wire], Absent):
                for mode in line.modes:
                    yield line, wire, mode


def meetings() -> Iterator[tuple[str, Row, str, Mode, str, bool]]:
    """Each fault with a name, in both colours, one at the first call and one after a tool. Its name decides
    which. ``GOAITOOLS_FAULTS=all`` gives all four."""
    is_long = os.environ.get("GOAITOOLS_FAULTS") == "all"
    for line, wire, mode in cells():
        cell = f"{line.name}-{wire}-{mode}"
        for colour, after_tool in itertools.product(("sync", "async"), (False, True)):
            if is_long or (zlib.crc32(cell.encode()) + (colour == "async") + after_tool) % 2 == 0:
                moment = "after a tool" if after_tool else "first call"
                yield f"{cell}-{colour}-{moment}", line, wire, mode, colour, after_tool
