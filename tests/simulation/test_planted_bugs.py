"""Bugs that are planted on purpose are found, each within 10,000 schedules, and told in few words."""

from __future__ import annotations

import pytest

from goaitools_py.turn import tool_calls as calling

from ._bugs import BUGS, planted
from ._run import run
from ._schedule import Schedule, draw
from ._shrink import report, shrunk

WITHIN = 10_000


def first_failure() -> Schedule | None:
    """The first schedule that breaks a promise; None if none does."""
    return next((draw(seed) for seed in range(WITHIN) if run(draw(seed))), None)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    """And without it the same schedule passes."""
    with planted(bug):
        found = first_failure()

    assert found is not None
    assert run(found) == ""


def test_a_failure_is_small_and_can_be_read() -> None:
    """Two deliveries and two faults at most are left, and the trace shows the effect that came twice."""
    start = calling._start
    with planted("no claim before a tool"):
        found = first_failure()
        assert found is not None
        small, told = shrunk(found), report(found)

    assert len(small.acts) <= 2
    assert sum(len(act.faults) for act in small.acts) <= 2
    assert f"seed {found.seed}: " in told
    assert "took place twice" in told
    assert told.count("run pay m") >= 2
    assert calling._start is start
