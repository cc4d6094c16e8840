"""Bugs that are planted on purpose are found, each within 10,000 schedules, and told in few words.

The short form begins with the schedule that is known to find the bug. ``GOAITOOLS_SIMULATIONS``, set to
whatever, begins at seed 0 each time, and so shows again that the bug is found within 10,000.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from goaitools_py.turn import tool_calls as calling

from ._bugs import BUGS, Bug, planted
from ._promises import Promises
from ._run import run
from ._schedule import Schedule, draw
from ._shrink import report, shrunk

WITHIN = 10_000
IS_LONG = "GOAITOOLS_SIMULATIONS" in os.environ


def seeds(bug: Bug) -> Iterator[int]:
    """The schedules that are tried, in order."""
    if not IS_LONG:
        yield bug.seed
    yield from range(WITHIN)


def first_failure(bug: Bug) -> Schedule | None:
    """The first schedule that tells of the bug; None if none does."""
    return next((draw(seed) for seed in seeds(bug) if re.search(bug.told, run(draw(seed)))), None)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    """And without it the same schedule passes."""
    with planted(name):
        found = first_failure(BUGS[name])

    assert found is not None
    assert run(found) == ""


def checks() -> dict[tuple[str, int], str]:
    """Every place that tells of a broken promise, by file and line, and what it says. One that only passes
    a text on is none."""
    return {
        (path.name, node.lineno): ast.unparse(node.args[0])
        for path in Path(__file__).parent.glob("_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in ("broken", "_broken")
        and not isinstance(node.args[0], ast.Name)
    }


def test_every_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place that tells of a broken promise does so for one of the planted bugs."""
    known, told = checks(), set[str]()
    broken = Promises.broken

    def noting(self: Promises, what: str) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            place = Path(frame.f_code.co_filename).name, frame.f_lineno
            if place in known:
                told.add(known[place])
            frame = frame.f_back
        broken(self, what)

    monkeypatch.setattr(Promises, "broken", noting)
    for name, bug in BUGS.items():
        with planted(name):
            assert run(draw(bug.seed)) != ""

    assert len(known) >= 18
    assert set(known.values()) - told == set()


def test_a_failure_is_small_and_can_be_read() -> None:
    """Two deliveries and two faults at most are left, and the trace shows the effect that came twice."""
    start = calling._start
    with planted("no claim before a tool"):
        found = first_failure(BUGS["no claim before a tool"])
        assert found is not None
        small, told = shrunk(found), report(found)

    assert len(small.acts) <= 2
    assert sum(len(act.faults) for act in small.acts) <= 2
    assert f"seed {found.seed}: " in told
    assert "took place twice" in told
    assert told.count("run pay m") >= 2
    assert calling._start is start
