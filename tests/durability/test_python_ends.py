"""A program that ends in the middle of a turn ends: no lock is waited for that a stopped thread holds.

Each case is a process with a deadline. Where the turn stood between two events it is saved, and its lease is
given back; where a daemon thread runs it, the lease ends by itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from goaitools_py.states import inspect_state

from ..stores._places import Place, opened, place_of
from ._exiting import HOWS, WHATS

SECONDS = 60.0
"""After which a process counts as one that hangs; it needs one."""

CODES = {"exit": 3, "raise": 1, "ctrl-c": 130, "end": 0, "thread": 0}
STORES = ("sqlalchemy-sqlite", "postgresql", "mariadb", "postgres", "redis")


def end_of(what: str, how: str, place: Place) -> str:
    """Run the program to its end; gives what it wrote to its standard error."""
    command = [sys.executable, "-m", "tests.durability._exiting", what, how, place.kind, place.url]
    root = Path(__file__).parents[2]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{what}, {how}, {place.kind}: the process does not end") from late
    assert done.returncode in (CODES[how], -2 if how == "ctrl-c" else CODES[how]), done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    assert "Fatal" not in done.stderr, done.stderr
    return done.stderr


def is_sound(place: Place, what: str) -> None:
    """The turn is stored as far as it came, and the conversation is free."""
    with opened(place) as store:
        assert not store.is_held("ada")
        found = store.load("ada")
        assert found is not None
        assert inspect_state(found.blob).status == "in_progress", what


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", WHATS)
def test_a_program_ends(what: str, how: str, tmp_path: Path) -> None:
    """Whatever it has begun, over SQLite, whose connection has a lock."""
    with place_of("sqlite", tmp_path) as place:
        end_of(what, how, place)
        if what != "plain" and how != "thread":
            is_sound(place, what)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", STORES)
def test_a_program_with_another_store_ends(kind: str, how: str, tmp_path: Path) -> None:
    """Pools have locks and threads of their own."""
    with place_of(kind, tmp_path) as place:
        end_of("kept", how, place)
        if how != "thread":
            is_sound(place, kind)


@pytest.mark.parametrize("how", HOWS[:-1])
@pytest.mark.parametrize("what", ["async", "async-sqlite", "async-open", "mcp"])
def test_a_program_with_an_event_loop_ends(what: str, how: str, tmp_path: Path) -> None:
    """The loop is over by then, or nobody runs it any more: the lease ends by itself."""
    end_of(what, how, Place("memory", str(tmp_path / "states.sqlite3")))


def test_a_program_in_memory_ends(tmp_path: Path) -> None:
    """The lock of the leases may be held by a thread that was stopped."""
    for how in HOWS:
        end_of("kept", how, Place("memory", ""))
