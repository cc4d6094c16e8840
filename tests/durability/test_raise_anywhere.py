"""Ctrl-C, a cancellation or a lack of memory at every line that a turn executes: the turn can be finished.

A few lines, spread over all of them, are raised at each time; with ``GOAITOOLS_ALL_FAILURES=1`` it is every
line. Looked at are the modules of a turn that do something; an exception inside a pure one is one at the
line that called it.
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

from .._threads import in_own_thread
from ._fail import STEPS, WIRES, Broken, World, hooked, own

FEW = 30
"""Raises on each wire in each colour."""

REACH = 3
"""Steps of the conversation from the raise on; after every tenth raise it goes on to its end."""

HOME = Path(goaitools_py.__file__).parent
FILES = {
    str(path): path.stem
    for path in (
        HOME / "base" / "run_twice.py",
        HOME / "chat" / "sync_turn.py",
        HOME / "chat" / "async_turn.py",
        *sorted((HOME / "turn").glob("*.py")),
        *sorted((HOME / "turn" / "edges").glob("*.py")),
    )
}
assert all(Path(path).is_file() for path in FILES)  # else no line of a moved file would be traced
OF_HANDLES = ("sync_turn", "async_turn")
METHODS = (
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__iter__",
    "__aiter__",
    "result",
    "cancel",
)
HANDLES = frozenset(f"{handle}.{method}" for handle in ("Turn", "AsyncTurn") for method in METHODS)
"""Of the facade, what runs while a turn does."""

BEFORE = frozenset({"Outages.__init__"})
"""Of the turn's modules, what runs when a chat is made: no turn is there yet that could be finished."""

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
        code = frame.f_code
        name = FILES.get(code.co_filename)
        if name is None or self.world.fired or code.co_qualname in BEFORE:
            return None
        return self._line if name not in OF_HANDLES or code.co_qualname in HANDLES else None

    def _is_the_turn(self) -> bool:
        """Not a tool's own task, nor a callback of the loop: what is raised there does not reach the turn."""
        loop = asyncio._get_running_loop()
        return loop is None or asyncio.current_task(loop) is self.world.driver

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.world.fired:
            return None
        if event == "line" and not own.is_looking and self._is_the_turn():
            line = (_place(frame), frame.f_lineno)
            if self.at is None:
                self.lines.setdefault(line, f"{line[0]}.{frame.f_code.co_qualname}")
            elif line == self.at and not self.world.fired:
                self.world.fired, self.world.injected = True, self.error
                assert self.error is not None
                sys.settrace(None)
                raise self.error
        return self._line


def _place(frame: FrameType) -> str:
    """The module; a helper that many steps share is another place for each of its callers."""
    name, caller = FILES[frame.f_code.co_filename], frame.f_back
    return f"{name} for {caller.f_code.co_qualname}" if name == "run_twice" and caller is not None else name


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


_REPLY, _RESULT = frozenset({"reply"}), frozenset({"result"})
ARRIVING = {
    **dict.fromkeys(
        ("driver.Driver._run", "async_driver.AsyncDriver._run", "flow.Steps._resume"), _REPLY | _RESULT
    ),
    **dict.fromkeys(("sync_edge.BlockingEdge.perform", "async_edge.AwaitingEdge._perform"), _REPLY | _RESULT),
    **dict.fromkeys(("sync_edge.BlockingEdge._read_chunk", "sync_edge.BlockingEdge._read_until"), _REPLY),
    "async_edge.AwaitingEdge._read_chunk": _REPLY,
    "wait.Wait.over": _REPLY | _RESULT,
    **dict.fromkeys(
        ("model_call._attempt", "model_call._attempt.<locals>.book", "ledger.Ledger.entered"), _REPLY
    ),
    **dict.fromkeys(("sync_edge._Started.run", "sync_edge._Started.done"), _RESULT),
    **dict.fromkeys(("async_edge._tool_done", "async_edge.AwaitingEdge._await_tool"), _RESULT),
    "sync_edge.BlockingEdge._await_tool": _RESULT,
    "tool_calls.run_calls": _RESULT,
    "run_twice for Ledger.entered.run_twice": _REPLY,
    "run_twice for run_calls.run_twice": _RESULT,
}
"""Between the last byte of a reply, or a tool's return, and the first line of what enters it into the books
it is nowhere else; a reply is asked for again then, and a result is unknown."""


def raised(world: World, line: Line, name: str, error: BaseException, *, reach: int) -> None:
    """Go on from a world with one error on the way."""
    world.may_lose = ARRIVING.get(name, frozenset())
    with Tracer(world, line, error)():
        world.run(range(world.step, min(world.step + reach, len(STEPS))))
    if not world.fired:
        raise Broken("it did not come to the line")


@pytest.mark.parametrize("wire", WIRES)
@in_own_thread
def test_an_exception_at_any_line_leaves_a_turn_that_can_be_finished(wire: str, face: Any) -> None:
    """It reaches the caller unchanged, nothing keeps running, and `turn.state` goes on to the end."""
    kinds: list[type[BaseException]] = [KeyboardInterrupt, MemoryError]
    if face.is_async:
        kinds.append(asyncio.CancelledError)
    broken: list[str] = []
    with hooked() as hooks:
        reference(wire, face, hooks)  # what is computed once in a process is computed before lines are noted
        worlds, lines = reference(wire, face, hooks)
        every = [(step, line, name, kind) for step, line, name in lines for kind in kinds]
        stride = 1 if os.environ.get("GOAITOOLS_ALL_FAILURES") else len(every) // FEW
        # Each wire in each colour has its own share.
        cases = every[(2 * WIRES.index(wire) + face.is_async) * 7 % stride :: stride]
        for number, (step, line, name, kind) in enumerate(cases):
            world = hooks.world = worlds[step].copied()
            error = kind()
            try:
                raised(world, line, name, error, reach=REACH if number % 10 else len(STEPS))
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt) and exc is not error:
                    raise  # somebody pressed Ctrl-C; our own one would end the worker that runs the tests
                where = f"{line[0]}.py:{line[1]} in {name}, step {step}, {kind.__name__}"
                broken.append(f"{where}: {type(exc).__name__} {exc}"[:300])

    print(f"\n{len(cases)} of {len(every)} raises at {len(lines)} lines on {wire}")
    assert not broken, f"{len(broken)} of {len(cases)}:\n" + "\n".join(broken[:40])
