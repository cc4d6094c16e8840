"""A process that is killed at any moment, and another that goes on from its last checkpoint.

The kills are real: SIGKILL, to a process of its own, whose only memory is a row in a SQLite file. Some come
where the process says that it is, the others after a random time. ``GOAITOOLS_KILLS=10000`` makes so many
instead of 240, ``GOAITOOLS_KILLS_SEED`` draws others. ``pytest -rP`` shows where they met the process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ._campaign import AFTER_A_TOOL, DEFECTS, PLACES, Campaign, Child

KILLS = int(os.environ.get("GOAITOOLS_KILLS", "240"))
SEED = os.environ.get("GOAITOOLS_KILLS_SEED", "1")
WIRES = ("openai", "openai-responses", "anthropic")

pytestmark = pytest.mark.skipif(
    not (hasattr(os, "fork") and hasattr(os, "waitid")), reason="no fork, or no way to wait without burying"
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the files are: in memory if that can be, because a kill takes nothing that was written."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="kills-") as made:
        yield Path(made)


def shown(campaign: Campaign) -> str:
    """What happened, as a small table."""
    rows = [("wire", campaign.wire), ("colour", "async" if campaign.is_async else "sync"), ("seed", SEED)]
    rows += [("kills", str(campaign.kills.total()))]
    rows += [(f"  {place}", str(campaign.kills[place])) for place in PLACES]
    rows += [
        (name, str(campaign.counts[name])) for name in ("conversations", "in doubt", "answered", "unknown")
    ]
    rows += [(name, str(campaign.counts[name])) for name in DEFECTS]
    return "\n".join(f"{name:28}{value:>18}" for name, value in rows)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_nothing_is_lost_or_done_twice(folder: Path, wire: str, is_async: bool) -> None:
    """Wherever the kill comes, the next process finishes the turn, and every doubt is said to be one."""
    with Child(folder) as child:
        campaign = Campaign(folder, child, wire=wire, is_async=is_async, seed=f"{SEED}/{wire}/{is_async}")
        campaign.run(-(-KILLS // (2 * len(WIRES))))

    print(shown(campaign))
    assert campaign.problems == []
    assert campaign.missing() == []


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_kept_conversation_loses_nothing_either(
    folder: Path, wire: str, parts: str, is_async: bool
) -> None:
    """The same kills, and `chat.conversation(…, save="checkpoint")` instead of a loop of one's own."""
    seed = f"{SEED}/{wire}/{is_async}/{parts}/kept"
    with Child(folder) as child:
        campaign = Campaign(folder, child, wire=wire, is_async=is_async, seed=seed, kept=True, parts=parts)
        campaign.run(-(-KILLS // (8 * len(WIRES))))

    print(shown(campaign))
    assert campaign.problems == []
    assert campaign.missing() == []


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_without_checkpoints_effects_happen_twice(folder: Path, is_async: bool) -> None:
    """The same loop that only saves results repeats what it did: the kills would show it."""
    with Child(folder) as child:
        campaign = Campaign(folder, child, wire="openai", is_async=is_async, seed=SEED, checkpoints=False)
        campaign.run(20)

    print(shown(campaign))
    assert campaign.counts["duplicated effects"] > 0


def test_a_campaign_makes_up_for_what_it_lacks(folder: Path) -> None:
    """On a busy machine most kills miss the tools; the next ones are aimed at the place that lacks most."""
    with Child(folder) as child:
        campaign = Campaign(folder, child, wire="openai", is_async=False, seed=SEED)
    campaign.kills.update({"elsewhere": 20, "inside a tool": 5, "after a tool": 2})
    campaign.counts.update(["answered", "unknown"])

    moments = [campaign.moment() for _ in range(50)]

    assert campaign.missing() == ["inside a tool", "after a tool"]
    assert all(hold is not None and hold[0] in AFTER_A_TOOL for hold, _ in moments)
