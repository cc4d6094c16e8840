"""Ctrl-C or a cancellation at every line of a kept turn: what is stored can be gone on with, and is whole.

The lines are those of the modules that know of stores; those of the turn itself have a test of their own.
Of the helpers in `base/` every fourth line is raised at; with ``GOAITOOLS_ALL_FAILURES=1`` it is every line.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import goaitools_py
from goaitools_py import Chat, event, tool
from goaitools_py.state import apart
from goaitools_py.state.parts import ELSEWHERE
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from .._threads import in_own_thread
from .conftest import LeasingStore, PartedStore, Threads, said

HOME = Path(goaitools_py.__file__).parent
FILES = frozenset(
    str(HOME / f"{name}.py")
    for name in (
        "base/late_calls",
        "base/process",
        "base/run_twice",
        "chat/kept/turn",
        "chat/kept/row",
        "chat/kept/row_calls",
        "chat/kept/row_lease",
        "chat/kept/row_parts",
        "chat/kept/parts",
        "state/apart",
        "chat/kept/kept_drivers",
        "chat/conversation",
    )
)
HELPERS = frozenset(path for path in FILES if Path(path).parent.name == "base")
assert all(Path(path).is_file() for path in FILES)  # else no line of a moved file would be traced

Line = tuple[str, int, int]
"""A file, a line, and which time it is. Each step of a turn calls helpers in `base/`, so an exit comes
there each time. Of other lines the first time counts."""


class Tracer:
    """Notes each line of the modules, or raises at the first time of one."""

    def __init__(self, at: Line | None = None, error: BaseException | None = None) -> None:
        self.at, self.error = at, error
        self.lines: dict[Line, None] = {}
        self.times: Counter[tuple[str, int]] = Counter()
        self.has_fired = False
        self.driver: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, what: str, arg: Any) -> Any:
        if self.has_fired or frame.f_code.co_filename not in FILES:
            return None
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_name == "__del__":  # what is raised there does not reach the turn
                return None
            above = above.f_back if above.f_code.co_filename in FILES else None
        return self._line

    def _line(self, frame: FrameType, what: str, arg: Any) -> Any:
        if what != "line" or self.has_fired or not self._is_the_turn():
            return self._line
        place = (frame.f_code.co_filename, frame.f_lineno)
        self.times[place] += place[0] in HELPERS
        line = (*place, self.times[place])
        self.lines.setdefault(line)
        if line == self.at:
            self.has_fired = True
            sys.settrace(None)
            assert self.error is not None
            raise self.error
        return self._line

    def _is_the_turn(self) -> bool:
        """Not the task that saves a cancelled turn: what is raised there does not reach the turn."""
        loop = asyncio._get_running_loop()
        if loop is None:
            return True
        task = asyncio.current_task(loop)
        self.driver = self.driver or task
        return task is self.driver


@contextmanager
def untraced() -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


class World:
    """A conversation of some turns, and another turn with a tool, during which something else happens."""

    def __init__(self, kept: Threads, save: str, parts: Any) -> None:
        self.store = LeasingStore() if parts == "inline" else PartedStore()
        if save == "checkpoint":  # each call is waited for in a thread, or in a task
            self.store.longest_wait = math.inf
        self.paid = 0

        @tool
        def pay() -> str:
            """Pay."""
            self.paid += 1
            with untraced():  # else an exit would come between the count and the event
                other = Chat("openai:MODEL").conversation(self.store.inner, "ada", parts=parts)
                other.append(event("E.", id=f"e-{self.paid}"))
            return "paid"

        self.reader = Chat("openai:MODEL").conversation(self.store.inner, "ada")
        before = 1 if parts == "inline" else 4
        self.backend = ScriptedBackend(*["Hi."] * before, Calls([("pay", {})]), "Paid.", "Paid.", "Paid.")
        self.conversation = kept(
            self.backend, self.store, chat={"tools": [pay]}, save=save, lease_ttl=0.2, parts=parts
        )
        for _ in range(before):
            self.conversation.send("Hi?")
        self.said_before = Counter(said(self.blob()))["Hi?"]

    def blob(self) -> bytes:
        """What is stored, with all of its parts. The names of the parts are those that the head lists."""
        if isinstance(self.store, PartedStore):
            found = self.store.inner.load_head("ada")
            assert found is not None
            listed = {part.digest for part in parts_of(found.blob) if part.place == ELSEWHERE}
            assert listed == {part.name for part in found.parts}
        return self.reader.state() or b""

    def turn(self) -> Any:
        return self.conversation.send("Pay.", turn_id="m-1")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # the exit came before its await
@in_own_thread
@pytest.mark.parametrize("parts", ["inline", "store"])
def test_an_exit_at_any_line_loses_and_doubles_nothing(
    kept: Threads, save: str, parts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes out unchanged; the redelivered turn ends, paid once, with all that was said, once."""
    monkeypatch.setattr(apart, "SMALL", 1)
    tracer = Tracer()
    world = World(kept, save, parts)
    with tracer():
        world.turn()
    kinds: list[type[BaseException]] = [KeyboardInterrupt, MemoryError]
    if kept.face.is_async:
        kinds.append(asyncio.CancelledError)
    problems: list[str] = []
    every = [line for line in tracer.lines if line[2] == 0]
    every += [line for line in tracer.lines if line[2]][
        :: 1 if os.environ.get("GOAITOOLS_ALL_FAILURES") else 4
    ]
    for number, line in enumerate(every):
        kind = kinds[number % len(kinds)]
        world = World(kept, save, parts)
        injected = Tracer(line, kind())
        try:
            with injected():
                world.turn()
        except BaseException as exc:
            if not injected.has_fired:
                raise
            if not isinstance(exc, kind) and kind is not MemoryError:
                problems.append(f"{line}: {kind.__name__} became {type(exc).__name__}")
        problems += [f"{Path(line[0]).name}:{line[1]} ({kind.__name__}): {what}" for what in after(world)]

    del world, injected
    gc.collect()  # here the warnings of coroutines are expected
    print(f"{len(every)} of {len(tracer.lines)} lines, seedless")
    assert len(every) > 100
    assert problems == [], "\n".join(problems)


def after(world: World) -> Iterator[str]:
    """What is wrong after an exit and a redelivery."""
    blob = world.blob()
    if check_history("openai", state_messages(blob)):
        yield "what is stored is no history"
    texts = Counter(said(blob))
    if texts["E."] != world.paid or texts["Hi?"] != world.said_before:
        yield f"what was said is not there: {dict(texts)}, paid {world.paid}"
    paid = world.paid
    world.turn()
    texts = Counter(said(world.blob()))
    if paid and world.paid != paid:
        yield f"paid {world.paid} times"
    if texts["Pay."] != 1 or texts["Paid."] != 1 or texts["E."] != world.paid:
        yield f"not said once: {dict(texts)}"
    if inspect_state(world.blob()).status != "complete":
        yield "not complete"
