"""A lease holds while its holder lives and ends soon after it died, whatever is done to the clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from goaitools_py.stores import SQLAlchemyStore, SQLiteStore, sql_statements
from goaitools_py.types.errors import LeaseHeldError

from ._places import place_of

HOUR = 3600.0
TTL = 10.0


class Clocks:
    """The machine's clocks: `since_start` as the store sees it, and the time of day, which may be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.since_start = 100_000.0
        self.set_by = 0.0
        clock = sql_statements.time
        monkeypatch.setattr(clock, "monotonic_ns", lambda: round(self.since_start * 1e9))
        monkeypatch.setattr(clock, "time_ns", lambda: round((self.since_start + self.set_by) * 1e9))
        monkeypatch.setattr(time, "time", lambda: self.since_start + self.set_by)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.fixture(params=["sqlite", "sqlalchemy"])
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Makes a lease of one key for `TTL` seconds, in a SQLite file; entered, it is taken."""
    path = tmp_path / "states.sqlite3"
    if request.param == "sqlite":
        with SQLiteStore(path) as store:
            yield lambda: store.lease("ada", TTL)
        return
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    other = SQLAlchemyStore(engine)
    yield lambda: other.lease("ada", TTL)
    engine.dispose()


@pytest.fixture
def dead() -> Iterator[ExitStack]:
    """Leases that are entered here are not given back before the test ends. After it they are, because
    Python would do so whenever it collects them, which is in any later test."""
    with ExitStack() as stack:
        yield stack


def is_held(lease: Any) -> bool:
    """Whether somebody else is kept out."""
    try:
        with lease:
            return False
    except LeaseHeldError:
        return True


@pytest.mark.parametrize("set_by", [-HOUR, HOUR, -0.5, 0.5])
def test_a_clock_that_was_set_changes_nothing(
    leases: Callable[[], Any], clocks: Clocks, set_by: float
) -> None:
    """Who holds a lease keeps it, and can renew it; who died loses it after its length, not an hour later."""
    with leases() as holder:
        clocks.set_by = set_by
        clocks.since_start += TTL * 0.9
        assert is_held(leases())
        assert holder.renew()
        clocks.since_start += TTL * 0.9
        assert is_held(leases())
        clocks.since_start += TTL * 0.2
        assert not holder.renew()
        assert not is_held(leases())


def test_a_clock_that_was_set_forward_and_back(
    leases: Callable[[], Any], clocks: Clocks, dead: ExitStack
) -> None:
    """A lease that was taken under a wrong time of day is not immortal under the right one."""
    clocks.set_by = 24 * HOUR
    dead.enter_context(leases())
    clocks.set_by = 0.0
    assert is_held(leases())
    clocks.since_start += TTL + 0.01
    assert not is_held(leases())


@pytest.mark.parametrize("uptime", [1.0, 99_970.0])
def test_a_machine_that_was_restarted(
    leases: Callable[[], Any], clocks: Clocks, dead: ExitStack, uptime: float
) -> None:
    """What was leased before has no holder: it is over, whatever the clock that began anew says."""
    dead.enter_context(leases())
    clocks.since_start = uptime

    assert not is_held(leases())


def test_a_restart_into_the_same_moment(leases: Callable[[], Any], clocks: Clocks, dead: ExitStack) -> None:
    """At worst a lease from before a restart holds for its length once more."""
    dead.enter_context(leases())
    clocks.since_start -= TTL
    assert is_held(leases())
    clocks.since_start += 2 * TTL + 0.01
    assert not is_held(leases())


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_server_whose_clock_was_set_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: ExitStack
) -> None:
    """A dead holder's lease ends after twice its length at most, not when the old time comes again."""
    with place_of(kind, tmp_path) as place, dead:
        engine = sqlalchemy.create_engine(place.url, poolclass=sqlalchemy.NullPool)
        store = SQLAlchemyStore(engine)

        def server_at(seconds: float) -> SQLAlchemyStore:
            """The same table, asked at another time of the server's clock."""
            monkeypatch.setitem(sql_statements._NOW, store._dialect, str(round(seconds * 1000)))
            return SQLAlchemyStore(engine)

        for key in ("ada", "bob"):
            dead.enter_context(server_at(2 * HOUR).lease(key, TTL))
        assert not is_held(server_at(HOUR).lease("ada", TTL))
        assert is_held(server_at(2 * HOUR - TTL * 0.9).lease("bob", TTL))
        assert is_held(server_at(2 * HOUR + TTL * 0.9).lease("bob", TTL))
        assert not is_held(server_at(2 * HOUR + TTL).lease("bob", TTL))
