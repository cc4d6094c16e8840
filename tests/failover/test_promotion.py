"""The short form of the campaign: PostgreSQL's standby is promoted under load.

`.ci/long failover` runs all engines, faults and ways of saving; docs/durability.md has its tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .campaign import run
from .engines import Postgres


@pytest.fixture(scope="module")
def engine() -> Iterator[Postgres]:
    """A primary and its synchronous standby."""
    if not [*Path("/usr/lib/postgresql").glob("*/bin/pg_basebackup")]:
        pytest.skip("no PostgreSQL of Debian: apt-get install postgresql")
    with Postgres() as made:
        yield made


@pytest.mark.parametrize(("fault", "seed"), [("kill", 7), ("failover", 8)])
def test_no_acknowledged_turn_is_lost(engine: Postgres, fault: str, seed: int) -> None:
    """Each is in the store once, each conversation goes on, and no effect ran twice.

    With a `save_timeout` that is longer than the failover, no caller has to pay for a turn again.
    """
    found = run(
        engine, fault, "store", {}, before=40, workers=4, keys=8, pause=0.1, seed=seed,
        save_timeout=30.0, is_shared=False,
    )  # fmt: skip

    print(f"seed {seed}: {found.acknowledged} acknowledged, longest wait {found.silent:.1f} s, {found.more}")
    assert found.acknowledged > 40
    assert (found.lost, found.doubled, found.blocked) == ([], [], [])
    assert (found.asked_again, found.effects) == (0, {})
    assert {error.partition("(")[0] for error in found.errors} <= {"StoreUnavailableError"}
