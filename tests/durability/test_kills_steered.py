"""Workers of conversations that steer are killed at random moments, on each store that has leases.

The kills are real. They meet a worker whose turn has claimed messages of others, a sender that waits for
another worker's turn, an append, and a withdrawal. ``GOAITOOLS_KILLS=10000`` makes so many on each store
instead of 20, ``GOAITOOLS_KILLS_SEED`` draws others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import ScriptedBackend, check_history

from ..stores._places import Place, opened, place_of
from ._steered import DELIVERY, Steered, wire_of

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("GOAITOOLS_KILLS", "20"))
SEED = int(os.environ.get("GOAITOOLS_KILLS_SEED", "1"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for the kind that the test names as its parameter."""
    with place_of(request.param, tmp_path) as made:
        yield made


def run(place: Place, folder: Path, **how: Any) -> Steered:
    """Run a campaign to its end: no worker is blocked."""
    made = Steered(place.kind, place.url, str(folder), workers=4, kills=KILLS, seed=SEED, **how)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.durability._steered", json.dumps(made._asdict())],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120 + KILLS,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return made


def lines(folder: str, pattern: str) -> list[list[str]]:
    """The lines of all logs of a kind, in words."""
    paths = Path(folder).glob(pattern)
    return [line.split() for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def check(place: Place, folder: str) -> str:
    """Hold the store against the logs. Gives the numbers of the run."""
    said: dict[str, str] = {}
    ends: dict[str, str] = {}
    for what, key, id in lines(folder, "worker-*.log"):
        said[id] = key
        if what != "begin":
            ends[id] = what
    taking = {id for what, _, id in lines(folder, "worker-*.log") if what == "taking"}
    asked = {id for words in lines(folder, "asked-*.log") for id in words}
    stored: Counter[str] = Counter()
    taken_in = 0
    with opened(place) as store:
        for key in sorted(set(said.values())):
            wire = wire_of(key)
            conversation = Chat(ScriptedBackend("Last.", wire=wire)).conversation(store, key, gate="steer")
            assert conversation.send("The last one.", timeout=10).text == "Last.", "a conversation is blocked"
            blob = conversation.state()
            assert blob is not None
            assert check_history(wire, state_messages(blob)) == []
            history = read_history(blob)
            for turn in history.turns:
                texts = [message.text for message in turn.messages if message.role == "user"]
                ids = [id for text in texts for id in DELIVERY.findall(text)]
                stored.update(ids)
                taken_in += len(ids) - 1 if ids else 0
            assert not history.waiting

    gone = {id for id, end in ends.items() if end == "gone"}
    # A worker that was killed in a withdrawal appends the event again, and takes it back again.
    wanted = said.keys() - taking
    assert not (lost := wanted - stored.keys()), f"lost {len(lost)} of {len(wanted)}"
    assert not (doubled := [id for id, times in stored.items() if times > 1]), f"{len(doubled)} doubled"
    assert not stored.keys() - said.keys(), "something is stored that no worker delivered"
    assert not {id for id, end in ends.items() if end == "kept"} - stored.keys(), "a withdrawal lost an event"
    assert not gone & stored.keys(), "a withdrawn event is stored"
    assert not gone & asked, "a withdrawn event was sent"
    assert said.keys() == ends.keys() - {id for id, end in ends.items() if end == "taking"}, "not answered"
    assert taken_in, "no turn took a message in"
    return f"{len(said)} deliveries, {len(gone)} withdrawn, {taken_in} taken in, {KILLS} kills"


@pytest.mark.parametrize("place", ["sqlite", "postgres", "mariadb", "redis"], indirect=True)
def test_nothing_is_lost_or_doubled(place: Place, tmp_path: Path) -> None:
    """No message is lost or doubled, no withdrawn one is sent, and no conversation is blocked."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run(place, folder)
    print("seed", SEED, check(place, str(folder)))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_check_sees_a_doubled_message(place: Place, tmp_path: Path) -> None:
    """A worker that is started again delivers its messages without ids."""
    folder = tmp_path / "logs"
    folder.mkdir()
    run(place, folder, forgets=True)
    with pytest.raises(AssertionError, match="doubled"):
        check(place, str(folder))
