"""A store that was used before a fork goes on in parent and children; nothing that it accepted is lost."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ..stores._places import Place, opened, place_of
from .conftest import CALLS, CHILDREN, family

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for the kind that the test names as its parameter."""
    with place_of(request.param, tmp_path) as made:
        yield made


def accepted(folder: Path) -> Counter[str]:
    """What the logs of all processes hold."""
    return Counter(line for log in folder.glob("*.log") for line in log.read_text().splitlines())


@pytest.mark.parametrize("place", ["sqlite", "postgresql", "mariadb", "redis"], indirect=True)
def test_what_a_store_accepted_is_there(place: Place, tmp_path: Path) -> None:
    """Several children and their parent save at the same time; the parent closes first."""
    family("saves", kind=place.kind, url=place.url, children=CHILDREN, calls=CALLS, folder=str(tmp_path))

    noted = accepted(tmp_path)
    with opened(place) as store:
        shared = store.load("shared")
        missing = [key for key in noted if key != "shared" and store.load(key) is None]
    assert len(noted) - 1 == CHILDREN * CALLS + CALLS + CALLS // 4
    assert missing == []
    assert int(shared.blob) == noted["shared"]


@pytest.mark.parametrize("place", ["sqlite", "postgresql", "mariadb", "redis"], indirect=True)
def test_a_lease_holds_against_children(place: Place, tmp_path: Path) -> None:
    """A child takes leases of its own, does not get its parent's, and does not end it."""
    family("leases", kind=place.kind, url=place.url, children=3, calls=5, folder=str(tmp_path))


def test_a_sqlite_file_is_sound_after_forks(tmp_path: Path) -> None:
    """SQLite itself finds nothing wrong with the file."""
    path = tmp_path / "states.sqlite3"
    family("saves", kind="sqlite", url=str(path), children=4, calls=CALLS, folder=str(tmp_path))

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_async_store_goes_on_in_each_child(tmp_path: Path) -> None:
    """Its thread is not inherited: each child has one of its own."""
    path = tmp_path / "states.sqlite3"
    family("async", url=str(path), children=4, calls=CALLS, folder=str(tmp_path))

    noted = accepted(tmp_path)
    with opened(Place("sqlite", str(path))) as store:
        missing = [key for key in noted if store.load(key) is None]
    assert len(noted) == 6 * CALLS
    assert missing == []


@pytest.mark.parametrize("null_pool", [False, True], ids=["pool", "null_pool"])
def test_an_engine_over_a_sqlite_file(tmp_path: Path, null_pool: bool) -> None:
    """SQLAlchemy keeps the file open over a fork: refused in the child, unless nothing was kept open."""
    path = tmp_path / "states.sqlite3"
    family("pooled", url=f"sqlite:///{path}", null_pool=null_pool)

    with opened(Place("sqlite", str(path))) as store:
        keys = [key.key for key in store.list().keys]
    assert keys == ["before", *(["child"] if null_pool else []), "parent", "unused"]


@pytest.mark.parametrize(
    "place",
    ["postgresql-async", "postgresql-asyncpg", "mariadb-async", "sqlalchemy-sqlite-async"],
    indirect=True,
)
def test_an_async_engine(place: Place) -> None:
    """Its pool begins anew in a child; one over a SQLite file is refused."""
    family("async_engine", url=place.url, is_refused="sqlite" in place.kind)


@pytest.mark.parametrize("place", ["redis-async"], indirect=True)
def test_an_async_redis_client(place: Place) -> None:
    """It is refused in a child if it was used before."""
    family("async_redis", url=place.url)


@pytest.mark.skipif(sys.platform != "linux", reason="calls fork of the C library")
def test_a_fork_that_python_was_not_told_of(tmp_path: Path) -> None:
    """As uWSGI does by default: a store that was only made works, one that had the file open says why not."""
    path = tmp_path / "states.sqlite3"
    family("untold", url=str(path), children=1, calls=1, folder=str(tmp_path))

    with opened(Place("sqlite", str(path))) as store:
        assert [store.load(key) is None for key in ("before", "child/0", "parent/0")] == [False] * 3


def test_locks_of_other_threads_do_not_stop_a_child() -> None:
    """Another thread holds the lock of a `MemoryStore` while the process is forked."""
    family("memory", children=2, calls=20)
