"""Ctrl-C, a cancellation or a lack of memory at every line that a turn executes: the turn can be finished.

Not collected by itself, because it still finds things: an interrupt in the driver's own closing may leave a
response open. Run it with ``pytest tests/durability/raise_anywhere.py``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import goaitools_py

from ._fail import STEPS, WIRES, Broken, World, hooked, own

HOME = Path(goaitools_py.__file__).parent
FILES = {
    str(HOME / f"{name}.py"): name
    for name in (
        *("engine", "asking", "calling", "ledger", "journal", "inbox"),
        *("shrink", "unsign", "turn_ids", "flow", "edge", "async_edge"),
    )
}
Line = tuple[str, int]
STREAMED = next(number for number, step in enumerate(STEPS) if step.is_streamed)
"""From here on every line is raised at once more: streams, and tools that may run again, begin here."""


class Tracer:
    """Notes each line of the turn's modules that this thread executes, or raises at the first time of one."""

    def __init__(self, world: World, at: Line | None = None, error: BaseException | None = None) -> None:
        self.world, self.at, self.error = world, at, error
        self.lines: dict[Line, str] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename in FILES else None

    def _is_the_turn(self) -> bool:
        """Not a tool's own task, nor a callback of the loop: what is raised there does not reach the turn."""
        loop = asyncio._get_running_loop()
        return loop is None or asyncio.current_task(loop) is self.world.driver

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not own.is_looking and self._is_the_turn():
            line = (FILES[frame.f_code.co_filename], frame.f_lineno)
            if self.at is None:
                self.lines.setdefault(line, frame.f_code.co_name)
            elif line == self.at and not self.world.fired:
                self.world.fired, self.world.injected = True, self.error
                assert self.error is not None
                raise self.error
        return self._line


def reference(wire: str, face: Any, hooks: Any) -> tuple[list[World], list[tuple[int, Line, str]]]:
    """The world before each step of a run in which nothing fails; each line with the step it is first in."""
    world = World(wire, face)
    world.uses_handles = True
    hooks.world = world
    worlds: list[World] = []
    seen: set[Line] = set()
    lines: list[tuple[int, Line, str]] = []
    for number in range(len(STEPS)):
        world.step = number
        worlds.append(world.copied())
        if number == STREAMED:
            seen.clear()
        tracer = Tracer(world)
        with tracer():
            world.run(range(number, number + 1))
        lines += [(number, line, name) for line, name in tracer.lines.items() if line not in seen]
        seen.update(tracer.lines)
    return worlds, lines


ARRIVING = {
    "_attempt": "reply",
    "_read_body": "reply",
    "book": "reply",
    "_book": "reply",
    "run_calls": "result",
}
"""Between the last byte of a reply, or a tool's return, and the first line of what enters it into the books
it is nowhere else; a reply is asked for again then, and a result is unknown."""

CLOSING = {"_close_exchange", "close", "aclose"}
"""Who interrupts the closing of a response leaves it to the garbage collector."""


def raised(world: World, line: Line, name: str, error: BaseException) -> None:
    """Go on from a world to the end of the conversation, with one error on the way."""
    is_edge = line[0] in ("flow", "edge", "async_edge")
    lost = {"reply", "result"} if is_edge else {ARRIVING.get(name, "")}
    world.may_lose = frozenset(lost | ({"exchange"} if name in CLOSING else set()))
    with Tracer(world, line, error)():
        world.run()
    if not world.fired:
        raise Broken("it did not come to the line")


@pytest.mark.parametrize("wire", WIRES)
def test_an_exception_at_any_line_leaves_a_turn_that_can_be_finished(wire: str, face: Any) -> None:
    """It reaches the caller unchanged, nothing keeps running, and `turn.state` goes on to the end."""
    stride = 1 if os.environ.get("GOAITOOLS_ALL_FAILURES") else 61
    kinds: list[type[BaseException]] = [KeyboardInterrupt, MemoryError]
    if face.is_async:
        kinds.append(asyncio.CancelledError)
    broken: list[str] = []
    count = 0
    with hooked() as hooks:
        worlds, lines = reference(wire, face, hooks)
        cases = [(step, line, name, kind) for step, line, name in lines for kind in kinds]
        for step, line, name, kind in cases[::stride]:
            world = hooks.world = worlds[step].copied()
            count += 1
            try:
                raised(world, line, name, kind())
            except Exception as exc:
                where = f"{line[0]}.py:{line[1]} in {name}, step {step}, {kind.__name__}"
                broken.append(f"{where}: {type(exc).__name__} {exc}"[:300])

    print(f"\n{count} of {len(cases)} raises at {len(lines)} lines on {wire}")
    assert not broken, f"{len(broken)} of {count}:\n" + "\n".join(broken[:40])
