"""Schedules in which a promise did not hold, as data: they stay the same when seeds draw others."""

from __future__ import annotations

import pytest

from ._run import run
from ._schedule import Act, Fault, Schedule


def schedule(seed: int, *acts: Act, leases: bool = False, crowd: int = 1, combines: bool = False) -> Schedule:
    """A schedule on Chat Completions. `seed` decides whose step comes next."""
    return Schedule(
        seed=seed,
        wire="openai",
        leases=leases,
        combines=combines,
        behind=False,
        crowd=crowd,
        is_tight=False,
        acts=acts,
    )


FOUND = {
    "an event was handed to a worker that died": schedule(
        7087671,
        Act("append", 3),
        Act(
            "send",
            4,
            choice=0.299406211431995,
            faults=(Fault(1, "fail", 1.5), Fault(3, "unanswered", 3.0), Fault(6, "kill_after", 3.0)),
        ),
    ),
    "a queued message was handed to a worker that died": schedule(
        7290753,
        Act("send", 1, rounds=(("ask", "look"),), choice=0.5756307965570955),
        Act("send", 2, choice=0.6948905726465789),
        Act(
            "send",
            3,
            save="checkpoint",
            choice=0.6339436104097467,
            faults=(Fault(9, "fail", 0.2), Fault(10, "fail", 1.5), Fault(18, "kill_after", 0.7)),
        ),
        leases=True,
        crowd=2,
    ),
    "a turn id was taken back although its message had a reply": schedule(
        7113063,
        Act("send", 1, rounds=(("pay",),), choice=0.08350378538062808),
        Act("send", 2, save="checkpoint", choice=0.789542123458721, faults=(Fault(6, "fail", 1.5),)),
        Act("again", 3, save="checkpoint", has_id=False, target=1, choice=0.11159027817722855),
        Act("send", 4, save="checkpoint", choice=0.9550309745793157, faults=(Fault(3, "cancel", 3.0),)),
        Act("resume", 5, save="checkpoint", choice=0.4551798789290519),
        crowd=4,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_schedule_that_once_failed_passes(name: str) -> None:
    """Each failed before the promise was kept there too."""
    assert run(FOUND[name]) == ""
