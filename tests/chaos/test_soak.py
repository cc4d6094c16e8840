"""Conversations that go on and on while a fifth of all turns meets a fault: none is wedged, nothing leaks.

``GOAITOOLS_SOAK_TURNS=10000`` runs so many turns instead of a few hundred, for at most
``GOAITOOLS_SOAK_SECONDS`` (900 if not given), from the seed ``GOAITOOLS_SOAK_SEED`` on.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import ChatResult, Compactor, KeepRecentTurns, MessageLimit, TurnError
from goaitools_py.base.watch import Watch
from goaitools_py.sim import Reply

from ..turn._reading import ALL, users
from ..turn.conftest import SkippingClock
from ._house import House, Meeting, require
from ._table import cells, row

FEW = 250
ENOUGH = 5_000
"""Turns from which on the slope of memory says something; below, what is allocated once outweighs it."""
FAULTY = 0.2
WARM_UP = 0.2
"""Of a run, after which memory is measured."""
MIB = 2**20
MOST_PER_10_000 = 5 * MIB
MOST_IN_A_SHORT_RUN = 24 * MIB
COMPACTOR = Compactor(MessageLimit(40), KeepRecentTurns(6))
SURE = 3
"""So many of the last messages no cut of `COMPACTOR` takes."""
HEALTHY = row("nothing", Reply.text("Fine."), "complete")


@dataclass
class Conversation:
    """Where one conversation stands, and what its state has to hold."""

    wire: str
    colour: str
    state: bytes | None = None
    said: list[str] = field(default_factory=list)
    failed: Meeting | None = None
    may_resume: bool = False


class Soak:
    """A run: draws what happens next, and counts it."""

    def __init__(self, house: House, clock: SkippingClock, seed: int) -> None:
        self.house, self.clock, self.random = house, clock, random.Random(seed)
        self.talks = [Conversation(wire, colour) for wire in ALL for colour in ("sync", "async")]
        self.tally: Counter[str] = Counter()
        self.cells = {wire: [(line, mode) for line, on, mode in cells() if on == wire] for wire in ALL}

    def turn(self, number: int) -> None:
        """One turn of one conversation, or another attempt at its last one."""
        draw = self.random
        at = draw.randrange(len(self.talks))
        talk = self.talks[at]
        if draw.random() < 0.02:
            talk = self.talks[at] = Conversation(talk.wire, talk.colour)
        meeting = self._meeting(talk, number)
        self.clock.naps.clear()

        end = meeting.run()

        self.tally["turns"] += 1
        self.tally["faults"] += meeting.row is not HEALTHY
        self.tally[type(end).__name__ if isinstance(end, TurnError) else f"result {end.status}"] += 1
        try:
            meeting.check_end(end)
            meeting.check_state(end)
            self._check_past(talk, meeting, end)
        except AssertionError as exc:
            exc.add_note(f"turn {number}: {meeting.row.name!r} on {talk.wire}, {talk.colour}, {meeting.mode}")
            raise
        require(self.house.sim.problems == [], "a request was refused", found=self.house.sim.problems)

    def _meeting(self, talk: Conversation, number: int) -> Meeting:
        draw = self.random
        line, mode = HEALTHY, draw.choice(("unary", "streamed"))
        is_resume = talk.may_resume and draw.random() < 0.5
        if talk.state is not None and draw.random() < FAULTY:
            line, mode = draw.choice(
                [cell for cell in self.cells[talk.wire] if not is_resume or cell[1] == "unary"]
            )
        asked = f"Message {number}."
        is_begun = talk.failed is not None and (is_resume or draw.random() < 0.3)
        if talk.failed is not None and is_begun:
            asked = talk.failed.asked  # the same turn again, by its id or resumed
        self.tally["resumed"] += is_resume
        return Meeting(
            house=self.house,
            clock=self.clock,
            row=line,
            wire=talk.wire,
            colour=talk.colour,
            mode="unary" if is_resume else mode,  # type: ignore[arg-type]
            after_tool=draw.random() < 0.4,
            before=talk.state,
            asked=asked,
            resumes=is_resume,
            is_begun=is_begun,
            options={"compactor": COMPACTOR},
        )

    def _check_past(self, talk: Conversation, meeting: Meeting, end: ChatResult | TurnError) -> None:
        """What was said before is there still; then the conversation goes on from here."""
        held = users(end.state)
        pending = [message.text for message in end.pending_input] if isinstance(end, TurnError) else []
        lost = [text for text in talk.said if text not in held and text not in pending]
        require(not lost or meeting.row.name == "context too long", "an earlier message is gone", found=lost)
        talk.state = end.state
        said = [*talk.said, *([] if meeting.asked in talk.said else [meeting.asked])]
        talk.said = [text for text in said if text in held][-SURE:]
        is_error = isinstance(end, TurnError)
        talk.failed = meeting if is_error else None
        talk.may_resume = isinstance(end, TurnError) and not end.pending_input

    def finish(self) -> None:
        """One last healthy turn on every conversation."""
        for number, talk in enumerate(self.talks):
            if talk.state is not None:
                meeting = Meeting(
                    house=self.house,
                    clock=self.clock,
                    row=HEALTHY,
                    wire=talk.wire,
                    colour=talk.colour,
                    mode="unary",
                    after_tool=False,
                    before=talk.state,
                    asked=f"Farewell {number}.",
                )
                meeting.check_end(meeting.run())


# ------------------------------------------------------------------------------------- what is measured


def rss_bytes() -> int:
    """What the process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """How many file descriptors are open."""
    return len(os.listdir("/proc/self/fd"))


def ends(thread: threading.Thread) -> bool:
    """Whether a thread, of a server that was stopped, comes to its end."""
    thread.join(60)
    return not thread.is_alive()


def slope(samples: list[tuple[int, int]]) -> float:
    """The least-squares slope of y over x."""
    middle = [sum(values) / len(samples) for values in zip(*samples, strict=True)]
    spread = sum((x - middle[0]) ** 2 for x, _ in samples)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in samples) / spread


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux's /proc")
def test_a_long_run_with_faults_wedges_nothing_and_leaks_nothing(clock: Any, capsys: Any) -> None:
    """Every fault ends as its line says, every healthy turn succeeds, and the process stays as it was."""
    turns = int(os.environ.get("GOAITOOLS_SOAK_TURNS", FEW))
    seconds = float(os.environ.get("GOAITOOLS_SOAK_SECONDS", 900))
    seed = int(os.environ.get("GOAITOOLS_SOAK_SEED", 1))
    with House() as house:  # once before anything is counted: first times leave something behind
        Soak(house, clock, seed).turn(0)
    watch = Watch(lambda: None)  # the one thread of a process that watches what lasts too long, and stays
    watch.set(60)
    watch.close()
    gc.collect()
    gc.freeze()  # what the tests' own modules hold is not looked through a hundred times
    threads, files = set(threading.enumerate()), open_files()
    samples: list[tuple[int, int]] = []
    began = time.monotonic()
    with House() as house:
        soak = Soak(house, clock, seed)
        for number in range(turns):
            if time.monotonic() - began > seconds:
                break
            soak.turn(number)
            if number >= turns * WARM_UP and number % max(1, turns // 100) == 0:
                gc.collect()
                samples.append((number, rss_bytes()))
        soak.finish()
        busiest = threading.active_count(), open_files()
    gc.collect()
    left = [thread for thread in threading.enumerate() if thread not in threads and not ends(thread)]
    done, took = soak.tally["turns"], time.monotonic() - began
    is_long = done >= ENOUGH
    grown, per_10_000 = samples[-1][1] - samples[0][1], slope(samples) * 10_000
    with capsys.disabled():
        print(f"\nsoak, seed {seed}: {done} turns in {took:.0f} s, 0 wedged")
        print("  " + ", ".join(f"{name} {count}" for name, count in sorted(soak.tally.items())))
        print(
            f"  memory: {samples[-1][1] / MIB:.1f} MiB at the end, {grown / MIB:+.2f} MiB since the warm-up"
        )
        if is_long:
            print(f"  slope: {per_10_000 / MIB:+.2f} MiB per 10,000 turns")
        print(f"  threads: {len(threads)} before, {busiest[0]} during, {threading.active_count()} after")
        print(f"  files: {files} before, {busiest[1]} during, {open_files()} after")

    assert done == turns or turns > FEW
    assert soak.tally["faults"] > done * FAULTY / 2
    assert left == []
    assert open_files() <= files
    if is_long:
        assert per_10_000 <= MOST_PER_10_000
    else:
        assert grown <= MOST_IN_A_SHORT_RUN
