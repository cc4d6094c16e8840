"""Recorded conversations go on at every host of their provider API.

The conversations are those that real servers answered: with thinking, pictures, calls and odd members. The
hosts are simulated, see `test_hosts`. Each host gets a fixed sample, which is spread over the whole file; all
of them if GOAITOOLS_ALL_CONVERSATIONS is set.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import TurnError
from goaitools_py.sim import Reply
from goaitools_py.sim.hosts import HOSTS
from goaitools_py.states import state_from_messages

from ..conftest import Face
from ..history._recorded import recorded
from .test_hosts import MOST_REPAIRS, MOST_TURNS, Place, Story

SAMPLE = 6
"""So many conversations of a provider API at each host."""


@cache
def states(data_dir: Path, wire: str) -> tuple[bytes, ...]:
    """The recorded conversations of a provider API that a state can hold."""
    found: list[bytes] = []
    for name, history in recorded(data_dir):
        if name == wire and len(history) > 2:
            with suppress(ValueError):  # not a whole history, such as one that continues a stored response
                found.append(state_from_messages(wire, history, repair=True))
    return tuple(found)


CASES = [pytest.param(wire, host, id=f"{wire}-{host}") for wire, hosts in HOSTS.items() for host in hosts]


@pytest.mark.parametrize(("wire", "host"), CASES)
def test_recorded_conversations_go_on(data_dir: Path, clock: Any, wire: str, host: str) -> None:
    """A message is answered after three refusals at most. Soon no request is refused any more."""
    known = states(data_dir, wire)
    assert len(known) > 20
    step = 1 if os.environ.get("GOAITOOLS_ALL_CONVERSATIONS") else max(1, len(known) // SAMPLE)
    # Another host begins at another place, so that all hosts together see more of the file.
    first = list(HOSTS[wire]).index(host) % step
    face = Face(is_async=False)
    with Place(face, wire, host, vague=False) as place:
        for number, state in list(enumerate(known))[first::step]:
            story = Story(random.Random(number))
            story.state = state
            refused = []
            for _ in range(MOST_TURNS):
                outcome = story.turn(place, Reply.text("Noted."))
                refused.append(len(place.refused))
                if not isinstance(outcome, TurnError):
                    break
            told = f"conversation {number}: {story.told}"
            assert max(refused) <= MOST_REPAIRS + 1, told
            assert not isinstance(outcome, TurnError), told
            # Not all rules may be known yet: this turn's own reply may be the first of its kind.
            for _ in range(MOST_TURNS):
                outcome = story.turn(place, Reply.text("Noted again."))
                assert not isinstance(outcome, TurnError), story.told
                if not place.refused:
                    break
            assert (place.refused, len(place.sim.requests)) == ([], 1), story.told
            story.check()
    face.close()
