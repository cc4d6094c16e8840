"""Many workers on kept conversations in one thread: 40,000 schedules in CI, a short form elsewhere.

``GOAITOOLS_SIMULATIONS=5000000`` is the long form: it runs so many schedules. ``=100000:200000`` runs the
200,000 from 100,000 on.
``-n auto`` spreads them over the cores. README.md says what a run is, and how to add to it.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from ._run import Run, run
from ._schedule import ACTS, FAULTS, draw
from ._shrink import report

IN_CI = 4_000
ELSEWHERE = 2_500
CHUNKS = 50


def schedules() -> range:
    """The seeds of this run."""
    few = IN_CI if os.environ.get("CI") else ELSEWHERE
    first, _, count = os.environ.get("GOAITOOLS_SIMULATIONS", f"0:{few}").rpartition(":")
    begin = int(first or 0)
    return range(begin, begin + int(count))


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """A run makes many small cycles that are worth no search each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    yield
    gc.set_threshold(700, 10, 10)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.usefixtures("_no_collector")
def test_no_schedule_breaks_a_promise(chunk: int) -> None:
    """Nothing acknowledged is lost, no effect comes twice, nothing is blocked, no history is refused."""
    for seed in schedules()[chunk::CHUNKS]:
        schedule = draw(seed)
        if run(schedule):
            pytest.fail(report(schedule), pytrace=False)


def test_a_run_is_the_same_each_time() -> None:
    """The same seed gives the same steps, to the last byte count."""
    for seed in range(40):
        first, second = (Run(draw(seed), traced=True) for _ in range(2))
        assert first.play() == second.play() == ""
        assert first.trace == second.trace


def test_every_act_and_every_fault_takes_place() -> None:
    """The schedules reach what they are made for."""
    seen: Counter[str] = Counter()
    for seed in range(600):
        played = Run(draw(seed), traced=True)
        assert played.play() == ""
        for line in played.trace or ():
            words = line.split()
            if "***" in words or "---" in words:
                seen[words[3]] += 1
            seen["saved"] += words[2] == "saved"

    assert [name for name in (*ACTS, *FAULTS) if seen[name] < 3] == []
    assert seen["saved"] > 2_000
