"""How soon a streamed word reaches the caller, and what each one costs on its way.

Owns: the turns that are measured and the plain socket beside them. Must never know: how the model answers.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from _conversations import corpus
from _dripping import DIGITS, dripping_model
from _report import Figure, Report, at_most, info
from _timing import interleaved
from _wires import WIRES, BenchedWire

from goaitools_py import AsyncChat, Chat, TextDelta, backends
from goaitools_py.backends.base import ModelRequest, ResponseHead
from goaitools_py.backends.dialects import dialect_of

__all__ = ["run"]

_KEY = "sk-none"
_QUESTION = "And is my second bag still on the reservation?"
_BACKENDS = {
    "openai": "OpenAIChatBackend",
    "openai-responses": "OpenAIResponsesBackend",
    "anthropic": "AnthropicBackend",
}
_STAMP = re.compile(rb"\d{%d}" % DIGITS)
_WARM_UP = 5

Turn = Callable[[], int]
"""One turn; the nanoseconds from the server's write of the first word until the caller had it."""


def run(*, short: bool = False) -> Report:
    """Measure each wire in both colours."""
    turns, words = (20, 200) if short else (300, 1000)
    figures: list[Figure] = []
    for wire in WIRES.values():
        figures += _arrivals(wire, turns)
    for wire in WIRES.values():
        figures += _costs(wire, words, short=short)
    return Report(
        title="Streaming: when the first word is there, and what a word costs",
        method=f"first word: {turns} turns over a loopback socket and the SDK's connection, from before the "
        "server's write, in another process, until `TextDelta` is in the caller's hands; wall clock; the "
        "plain socket reads the same bytes in the same rounds, and the figure is how much later 95 % of the "
        "words are there than on it. Cost: CPU time of one thread for a whole turn "
        f"over a stream in memory, {words} words in as many reads, less that of a turn with one word; blocks "
        "interleaved; minima. The aim was set on another machine; it is held against the cost as measured "
        "here. Beside that, the cost over how many times as long a turn of the plain SDK with 200 messages "
        "takes here "
        f"(the minimum of the same rounds, against a median of {THERE_US / 1000:.1f} ms there)",
        figures=figures,
    )


# ------------------------------------------------------------------------------------- the first word


def _arrivals(wire: BenchedWire, turns: int) -> list[Figure]:
    lead, first, rest = _cut(wire)
    sides: dict[str, list[float]] = {"Chat": [], "AsyncChat": [], "plain socket": []}
    with dripping_model(lead, first, rest) as port, _asked(wire, port) as asking:
        for number in range(_WARM_UP + turns):
            for name, took in sides.items():
                nanoseconds = asking[name]()
                if number >= _WARM_UP:
                    took.append(nanoseconds / 1e6)
    figures = []
    late = {name: statistics.quantiles(took, n=20)[-1] for name, took in sides.items()}
    for name, took in sides.items():
        figure = f"{wire.name}: first word, {name}"
        note = f"median {statistics.median(took):.2f}, 95 % within {late[name]:.2f}"
        if name == "plain socket":
            figures.append(info(figure, statistics.median(took), "ms", note=note))
        else:
            later = max(0.01, late[name] - late["plain socket"])
            figures.append(at_most(5.0, figure, later, "ms", note=note))
    return figures


def _cut(wire: BenchedWire) -> tuple[bytes, bytes, list[bytes]]:
    """A stream of three words at the first one, which becomes a mark."""
    events = list(wire.events(3))
    decoder = dialect_of(wire.name).decoder()
    at = next(number for number, event in enumerate(events) if decoder.feed(event))
    marked = events[at].replace(b'"Your"', b'"%s"' % (b"#" * DIGITS))
    assert b"#" * DIGITS in marked
    return b"".join(events[:at]), marked, events[at + 1 :]


@contextmanager
def _asked(wire: BenchedWire, port: int) -> Iterator[dict[str, Turn]]:
    url = f"http://127.0.0.1:{port}" + ("" if wire.name == "anthropic" else "/v1")
    name = _BACKENDS[wire.name]
    chat = Chat(getattr(backends, name)(wire.model, base_url=url, api_key=_KEY))
    other = AsyncChat(getattr(backends, "Async" + name)(wire.model, base_url=url, api_key=_KEY))
    with chat, asyncio.Runner() as runner, socket.create_connection(("127.0.0.1", port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            yield {
                "Chat": lambda: _wait(chat),
                "AsyncChat": lambda: runner.run(_await(other)),
                "plain socket": lambda: _receive(plain),
            }
        finally:
            runner.run(other.aclose())


def _wait(chat: Chat) -> int:
    found = 0
    with chat.start(None, user=_QUESTION) as turn:
        for event in turn:
            if not found and isinstance(event, TextDelta):
                found = time.monotonic_ns() - int(event.text)
    return found


async def _await(chat: AsyncChat) -> int:
    found = 0
    async with chat.start(None, user=_QUESTION) as turn:
        async for event in turn:
            if not found and isinstance(event, TextDelta):
                found = time.monotonic_ns() - int(event.text)
    return found


def _receive(plain: socket.socket) -> int:
    plain.sendall(b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n\r\n{}")
    received, found = b"", 0
    while not received.endswith(b"\r\n0\r\n\r\n"):
        received += plain.recv(65536)
        if not found and (stamp := _STAMP.search(received)):
            found = time.monotonic_ns() - int(stamp.group())
    return found


# ---------------------------------------------------------------------------------- what a word costs


class _Exchange:
    head = ResponseHead(status=200, headers={"content-type": "text/event-stream"})

    def __init__(self, events: list[bytes]) -> None:
        self._events = iter(events)

    def read(self) -> bytes:
        return next(self._events, b"")

    def interrupt(self) -> None:
        """There is nothing to wait for; but as with a socket, somebody watches the time."""

    def close(self) -> None:
        pass


class _AsyncExchange:
    head = _Exchange.head

    def __init__(self, events: list[bytes]) -> None:
        self._events = iter(events)

    async def read(self) -> bytes:
        return next(self._events, b"")

    async def aclose(self) -> None:
        pass


class _Memory:
    """A backend that has each answer ready, one event for each read."""

    max_retries = 0
    context_window = None

    def __init__(self, wire: BenchedWire, words: int) -> None:
        self.dialect = dialect_of(wire.name)
        self.model = wire.model
        self._events = list(wire.events(words))

    def decode(self) -> object:
        """What the reply's decoder does, alone."""
        decoder = self.dialect.decoder()
        for event in self._events:
            decoder.feed(event)
        return decoder.finish()

    def send(self, _: ModelRequest) -> _Exchange:
        return _Exchange(self._events)

    async def asend(self, _: ModelRequest) -> _AsyncExchange:
        return _AsyncExchange(self._events)

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def _costs(wire: BenchedWire, words: int, *, short: bool) -> list[Figure]:
    long, brief = _Memory(wire, words), _Memory(wire, 1)
    with asyncio.Runner() as runner:
        sides: dict[str, Callable[[], object]] = {"decoder": long.decode, "yardstick": yardstick()}
        for name, memory in (("long", long), ("brief", brief)):
            sides[f"Chat {name}"] = _reading(Chat(memory))
            sides[f"AsyncChat {name}"] = _areading(AsyncChat(memory), runner)
        found = interleaved(sides, short=short)
    slower = found["yardstick"].minimum / THERE_US
    figures = []
    for colour in ("Chat", "AsyncChat"):
        least, usual = (
            [getattr(found[f"{colour} {name}"], kind) for name in ("long", "brief")]
            for kind in ("minimum", "median")
        )
        figure, cost = f"{wire.name}: a word, {colour}", max(0.01, (least[0] - least[1]) / (words - 1))
        note = f"of medians {(usual[0] - usual[1]) / (words - 1):.1f}; "
        note += f"{found['decoder'].minimum / words:.1f} of it in the decoder"
        figures.append(at_most(5.0, figure, cost, "µs", note=note))
        scaled = f"this machine takes {slower:.2f} times as long as that one"
        figures.append(info(f"{figure}, scaled to where the aim was set", cost / slower, "µs", note=scaled))
    return figures


def _reading(chat: Chat) -> Callable[[], object]:
    def turn() -> int:
        with chat.start(None, user=_QUESTION) as turn:
            return sum(1 for event in turn if isinstance(event, TextDelta))

    return turn


def _areading(chat: AsyncChat, runner: asyncio.Runner) -> Callable[[], object]:
    async def turn() -> int:
        count = 0
        async with chat.start(None, user=_QUESTION) as turn:
            async for event in turn:
                count += isinstance(event, TextDelta)
        return count

    def run_turn() -> Any:
        return runner.run(turn())

    return run_turn


THERE_US = 30_200.0
"""Microseconds of CPU time that the turn took there (AMD Zen 5, Python 3.11.7, openai 3.52), the median."""

_MESSAGES = 200


def yardstick() -> Callable[[], Any]:
    """A turn without this library: 200 messages out of JSON, `chat.completions.create()`, JSON again."""
    wire = WIRES["openai"]
    client = wire.client(wire.instant())
    history = wire.translated(corpus().of_length(_MESSAGES))
    blob = json.dumps(history)
    return lambda: wire.plain(client, blob, _QUESTION)
