"""Sixteen processes on the same conversations, one delivery in ten twice: nothing is lost, nothing doubled.

The short form takes a few seconds for each store. `GOAITOOLS_RACE_TURNS=250` gives each worker 250 turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ._places import SHARED, Place, opened
from ._racer import Race, ids_in

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 16
TURNS = int(os.environ.get("GOAITOOLS_RACE_TURNS", "6"))
SEED = int(os.environ.get("GOAITOOLS_RACE_SEED", "20261121"))


def run(place: Place, folder: Path, *, blind: bool = False) -> Race:
    """Run the race to its end."""
    race = Race(
        kind=place.kind,
        url=place.url,
        folder=str(folder),
        workers=WORKERS,
        turns=TURNS,
        keys=4 + TURNS // 8,
        seed=SEED,
        blind=blind,
    )
    ran = subprocess.run(
        [sys.executable, "-m", "tests.stores._racer", json.dumps(race._asdict())],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60 + TURNS * 8,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return race


def check(place: Place, race: Race) -> str:
    """Hold the store against the log. Gives the numbers of the run."""
    deliveries = [one for worker in range(race.workers) for one in race.deliveries(worker)]
    doubled = sum(is_doubled for _, _, is_doubled in deliveries)
    log = [
        line.split()
        for path in Path(race.folder).glob("worker-*.log")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    accepted = Counter((key, id) for outcome, key, id, _ in log if outcome == "accepted")
    stored: Counter[tuple[str, str]] = Counter()
    with opened(place) as store:
        for number in range(race.keys):
            found = store.load(f"chat-{number}")
            stored.update((f"chat-{number}", id) for id in ids_in(found.blob if found else None))
    wanted = {(key, id) for key, id, _ in deliveries}
    assert len(log) == len(deliveries) + doubled, "not every delivery was made"
    assert not (lost := wanted - set(stored)), f"lost {len(lost)} of {len(wanted)}"
    assert max(stored.values()) == 1, "a delivery is stored twice"
    assert set(stored) == wanted, "something is stored that nobody delivered"
    assert accepted == Counter(wanted), "a delivery was accepted twice, or a duplicate before its first"
    conflicts = sum(int(line[3]) for line in log)
    return f"{len(wanted)} deliveries, {doubled} of them twice, {conflicts} conflicts, 0 lost, 0 doubled"


@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_nothing_is_lost_and_nothing_doubled(place: Place, tmp_path: Path) -> None:
    """Each delivery is in its conversation exactly once, and was accepted exactly once."""
    numbers = check(place, run(place, tmp_path))

    print(f"{place.kind}: {numbers} (seed {SEED})")


@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_the_race_notices_a_store_that_does_not_compare(place: Place, tmp_path: Path) -> None:
    """With the compare-and-swap taken out of the store, the same race loses deliveries, and says so."""
    race = run(place, tmp_path, blind=True)

    with pytest.raises(AssertionError, match=r"lost \d+ of"):
        check(place, race)
