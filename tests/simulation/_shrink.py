"""A failure made small and told: which acts and faults matter, and what happened step by step.

Owns: leaving things out while a schedule still fails, and the report. Must never know: what a promise is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ._run import Run, run
from ._schedule import Act, Schedule

__all__ = ["report", "shrunk"]

MAX_RUNS: Final = 600


def _kind(problem: str) -> str:
    """The problem without its numbers, so that a smaller schedule has to fail in the same way."""
    return re.sub(r"\d+", "N", problem)[:60]


def shrunk(schedule: Schedule) -> Schedule:
    """The smallest schedule that was found which still fails in the same way."""
    problem, left = _kind(run(schedule)), MAX_RUNS
    has_shrunk = True
    while has_shrunk and left > 0:
        has_shrunk = False
        for candidate in _smaller(schedule):
            left -= 1
            if _kind(run(candidate)) == problem:
                schedule, has_shrunk = candidate, True
                break
            if left <= 0:
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with less in it, one thing at a time."""
    acts = schedule.acts
    for at, act in enumerate(acts):
        if left := tuple(other for n, other in enumerate(acts) if n != at and other.target != act.id):
            yield schedule._replace(acts=left)
    for at, act in enumerate(acts):
        for smaller in _simpler(act):
            yield schedule._replace(acts=(*acts[:at], smaller, *acts[at + 1 :]))
    if schedule.crowd > 1:
        yield schedule._replace(crowd=schedule.crowd - 1)
    for name in ("is_tight", "behind", "stops", "recalls", "parts", "combines", "leases"):
        if getattr(schedule, name):
            yield schedule._replace(**{name: False})
    if schedule.fallback:
        yield schedule._replace(fallback="")
    if schedule.converts and not schedule.fallback and not any(act.wire for act in acts):
        yield schedule._replace(converts=False)


def _simpler(act: Act) -> Iterator[Act]:
    for at in range(len(act.faults)):
        yield act._replace(faults=(*act.faults[:at], *act.faults[at + 1 :]))
    for at, calls in enumerate(act.rounds):
        yield act._replace(rounds=(*act.rounds[:at], *act.rounds[at + 1 :]))
        for one in range(len(calls) if len(calls) > 1 else 0):
            fewer = (*calls[:one], *calls[one + 1 :])
            yield act._replace(rounds=(*act.rounds[:at], fewer, *act.rounds[at + 1 :]))


def report(schedule: Schedule) -> str:
    """What a person reads about a schedule that failed: its seed, what is left of it, and each step."""
    small = shrunk(schedule)
    played = Run(small, traced=True)
    problem = played.play()
    how = small._replace(acts=())
    acts = "\n".join(f"  {act}" for act in small.acts)
    steps = "\n".join(played.trace or ())
    return (
        f"seed {schedule.seed}: {problem}\n\n{how}\n{acts}\n\n"
        f"seconds   worker\n{steps}\n\nAgain: tests.simulation._shrink.report(draw({schedule.seed}))"
    )
