"""Turns at a time through a server, against a bare application that passes the same stream on.

Owns: the load, and what is compared. Must never know: what either server does.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from contextlib import ExitStack
from typing import Any

from _loopback import loopback_model
from _report import Report, at_most, info
from _served import served

__all__ = ["run"]

_WORDS = 60
_DROPS = 30
_PATIENCE = 300.0
"""Seconds: a busy machine must not end a measurement with a timeout."""


def run(*, short: bool = False) -> Report:
    """Measure turns at a time beside idle listeners. `short`: fewer of both."""
    idle, at_a_time, rounds = (50, 20, 2) if short else (500, 100, 5)
    with ExitStack() as running:
        model = running.enter_context(
            loopback_model(_stream(), seconds=0.2, media_type="text/event-stream", drops=_DROPS)
        )
        slow = running.enter_context(loopback_model(b"", seconds=3600.0))
        ports = {kind: running.enter_context(served(kind, model, slow)) for kind in ("ours", "bare")}
        found = asyncio.run(_measured(ports, idle, at_a_time, rounds))
    ours, bare = found["ours"], found["bare"]
    return Report(
        title="A server: first word and CPU per turn",
        method=f"{at_a_time} turns at a time beside {idle} idle streams, {rounds} rounds of both in turns; "
        f"each server, and the model, in a process of its own; a new conversation for each turn; {_WORDS} "
        f"words in {_DROPS} writes, the first after 0.2 s, then one each 20 ms; the bare Starlette "
        "application passes the bytes on and stores nothing; CPU time of the server's process; medians of "
        "the rounds",
        figures=[
            at_most(2.0, "CPU per turn, times the bare one's", ours[1] / bare[1], "x",
                    note=f"{ours[1]:.2f} and {bare[1]:.2f} ms"),
            at_most(2.0, "first word p95, times the bare one's", ours[0] / bare[0], "x",
                    note=f"{ours[0]:.0f} and {bare[0]:.0f} ms"),
            info("CPU per turn", ours[1], "ms"),
        ],
    )  # fmt: skip


def _stream() -> bytes:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        told = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-mini"}
        return b"data: %s\n\n" % json.dumps({**told, "choices": [choice]}).encode()

    words = [chunk({"content": "word "}) for _ in range(_WORDS)]
    return b"".join(
        [chunk({"role": "assistant", "content": ""}), *words, chunk({}, "stop"), b"data: [DONE]\n\n"]
    )


async def _measured(
    ports: dict[str, int], idle: int, at_a_time: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """For each server the p95 of the first word and the CPU per turn, in milliseconds."""
    waiting = [
        await _opened(port, f"/slow/conversations/i{n}/turns", n)
        for port in ports.values()
        for n in range(idle)
    ]
    first: dict[str, list[float]] = {kind: [] for kind in ports}
    cpu: dict[str, list[float]] = {kind: [] for kind in ports}
    for number in range(rounds + 1):
        for kind, port in ports.items():
            before = await _cpu(port)
            async with asyncio.timeout(_PATIENCE):
                times = await asyncio.gather(*(_turn(port, f"r{number}t{at}") for at in range(at_a_time)))
            if number:  # the first round warms up
                first[kind].append(statistics.quantiles(times, n=20)[-1] * 1000)
                cpu[kind].append((await _cpu(port) - before) / at_a_time * 1000)
    for _, writer in waiting:
        writer.close()
    return {kind: (statistics.median(first[kind]), statistics.median(cpu[kind])) for kind in ports}


async def _opened(port: int, path: str, number: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"text": "Tell me more.", "turn_id": f"m{number}"}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\naccept: text/event-stream\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def _turn(port: int, name: str) -> float:
    """Seconds until the first word."""
    began = time.perf_counter()
    reader, writer = await _opened(port, f"/conversations/{name}/turns", name)
    found, at = b"", 0.0
    while piece := await reader.read(65536):
        found += piece
        if not at and b"word " in found:
            at = time.perf_counter() - began
    writer.close()
    assert found.count(b"word ") >= 1, found[:500]
    return at


async def _cpu(port: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /cpu HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return float(answer.rpartition(b"\r\n\r\n")[2])
