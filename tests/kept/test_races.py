"""Sixteen processes on the same kept conversations, one delivery in ten twice: nothing lost, nothing doubled.

With the store's leases no turn is even asked for twice; without them compare-and-swap alone has to do.
The short form takes a few seconds for each store. `GOAITOOLS_RACE_TURNS=250` gives each worker 250 turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from goaitools_py import Chat
from goaitools_py.state.parts import ELSEWHERE
from goaitools_py.state.whole_blobs import parts_of

from ..stores._places import SHARED, Place, opened, place_of
from ._racer import KeptRace, is_event, texts_in

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 16
TURNS = int(os.environ.get("GOAITOOLS_RACE_TURNS", "5"))
SEED = int(os.environ.get("GOAITOOLS_RACE_SEED", "20261122"))


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for the kind that the test names as its parameter."""
    with place_of(request.param, tmp_path) as made:
        yield made


def run(
    place: Place,
    folder: Path,
    *,
    leased: bool,
    blind: bool = False,
    save: str = "turn",
    parts: str = "inline",
    gate: str = "queue",
) -> KeptRace:
    """Run the race to its end."""
    race = KeptRace(
        kind=place.kind,
        url=place.url,
        folder=str(folder),
        workers=WORKERS,
        turns=TURNS,
        keys=4 + TURNS // 8,
        seed=SEED,
        leased=leased,
        blind=blind,
        save=save,
        parts=parts,
        gate=gate,
    )
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kept._racer", json.dumps(race._asdict())],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120 + TURNS * 16,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return race


def lines(race: KeptRace, pattern: str) -> list[list[str]]:
    """The lines of all workers' logs of a kind, in words."""
    paths = Path(race.folder).glob(pattern)
    return [line.split() for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def check(place: Place, race: KeptRace) -> str:
    """Hold the store against the log. Gives the numbers of the run."""
    deliveries = [one for worker in range(race.workers) for one in race.deliveries(worker)]
    doubled = sum(is_doubled for _, _, is_doubled in deliveries)
    log, asked = lines(race, "worker-*.log"), Counter(id for (id,) in lines(race, "asked-*.log"))
    accepted = Counter((key, id) for outcome, key, id, _ in log if outcome == "accepted")
    stored: Counter[tuple[str, str]] = Counter()
    with opened(place) as store:
        for number in range(race.keys):
            key = f"chat-{number}"
            stored.update((key, id) for id in texts_in(Chat("openai:MODEL").conversation(store, key).state()))
            found = store.load_head(key) if race.parts != "inline" else None
            if found is not None:
                listed = {part.digest for part in parts_of(found.blob) if part.place == ELSEWHERE}
                assert listed == {part.name for part in found.parts}
    wanted = {(key, id) for key, id, _ in deliveries}
    turns = {(key, id) for key, id in wanted if not is_event(id)}
    assert len(log) == len(deliveries) + doubled, "not every delivery was made"
    assert not (lost := wanted - set(stored)), f"lost {len(lost)} of {len(wanted)}"
    assert max(stored.values()) == 1, "a delivery is stored twice"
    assert set(stored) == wanted, "something is stored that nobody delivered"
    if race.gate == "steer":
        # A turn answers the messages that it took in: each of their sends is told of a duplicate.
        assert max(accepted.values()) == 1, "a turn was accepted twice"
        assert len(accepted) < len(turns), "no turn took a message in"
        assert max(asked.values()) == 1, "a message was answered twice"
    elif race.leased:
        assert accepted == Counter(turns), "a turn was accepted twice, or a duplicate before its first"
    else:
        overtaken = {(key, id) for outcome, key, id, _ in log if outcome == "overtaken"}
        assert max(accepted.values()) == 1, "a turn was accepted twice"
        assert set(accepted) | overtaken == turns, "a duplicate was told before its first"
    if race.leased and race.gate != "steer":
        assert asked == Counter(id for _, id in turns), "a turn was asked for twice"
    conflicts = sum(int(line[3]) for line in log)
    return (
        f"{len(turns)} turns and {len(wanted) - len(turns)} events, {doubled} of them twice, "
        f"{asked.total()} model calls, {conflicts} conflicts, 0 lost, 0 doubled"
    )


@pytest.mark.parametrize("save", ["checkpoint", "turn"] if TURNS > 100 else ["checkpoint"])
@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_each_turn_is_had_once(place: Place, tmp_path: Path, save: str) -> None:
    """Each delivery is in its conversation exactly once, accepted exactly once, and asked for once."""
    numbers = check(place, run(place, tmp_path, leased=True, save=save))

    print(f"{place.kind}, {save}: {numbers} (seed {SEED})")


@pytest.mark.parametrize("parts", ["store", "mixed"] if TURNS > 100 else ["mixed"])
@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_each_turn_is_had_once_with_histories_in_parts(place: Place, tmp_path: Path, parts: str) -> None:
    """Also if half of the workers write whole rows. At the end a head names the parts that are there."""
    numbers = check(place, run(place, tmp_path, leased=True, parts=parts))

    print(f"{place.kind}, {parts}: {numbers} (seed {SEED})")


@pytest.mark.parametrize("save", ["checkpoint", "turn"] if TURNS > 100 else ["turn"])
@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_each_message_is_had_once_with_steering(place: Place, tmp_path: Path, save: str) -> None:
    """Messages and events go to the turn that runs. Each is in its conversation once, and answered once."""
    numbers = check(place, run(place, tmp_path, leased=True, save=save, gate="steer"))

    print(f"{place.kind}, {save}, steering: {numbers} (seed {SEED})")


@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_each_turn_is_stored_once_without_leases(place: Place, tmp_path: Path) -> None:
    """Workers may ask for the same turn at the same time; what is stored and accepted is one."""
    numbers = check(place, run(place, tmp_path, leased=False))

    print(f"{place.kind}, no leases: {numbers} (seed {SEED})")


@pytest.mark.parametrize("place", SHARED, indirect=True)
def test_the_race_notices_a_store_that_does_not_compare(place: Place, tmp_path: Path) -> None:
    """With the compare-and-swap taken out, the same race loses deliveries, and says so: leases do not do."""
    race = run(place, tmp_path, leased=True, blind=True)

    with pytest.raises(AssertionError, match=r"lost \d+ of"):
        check(place, race)
