"""`goaitools demo`: the package's main job, offline, across a real restart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from goaitools_py.cli import demo_game, main
from goaitools_py.cli.text_output import WIDTH
from goaitools_py.sim import Prompt, Reply, SimServer
from goaitools_py.states import inspect_state
from goaitools_py.stores import SQLiteStore


def test_the_demo_passes_and_shows_what_happened(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two processes, eight turns, an event, tools, a cut, and a verdict, within 80 columns."""
    kept = tmp_path / "kept.sqlite3"

    code = main(["demo", "--keep", str(kept)])

    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    assert len(set(re.findall(r"-- process (\d+), (?:before|after)", out))) == 2
    assert len(re.findall(r"= turn \d", out)) == 8
    assert all(f"\n  {label} " in out for label in ("context", "event", "tool", "action", "compacted"))
    assert "simulated" in out.split("-- process")[0]
    assert "\nPASSED" in out
    assert max(map(len, out.replace(str(kept), "").splitlines())) <= WIDTH
    with SQLiteStore(kept) as store:
        stored = store.load(demo_game.KEY)
    assert stored is not None
    assert inspect_state(stored.blob).turns_processed == 8


def test_the_verdict_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard output is one object; the story of both processes goes to standard error."""
    kept = tmp_path / "kept.sqlite3"

    assert main(["demo", "--json", "--keep", str(kept)]) == 0

    out, err = capfd.readouterr()
    verdict = json.loads(out)
    assert verdict.pop("seconds") > 0
    assert verdict.pop("requests") >= 8
    assert verdict == {"passed": True, "problem": None, "database": str(kept)}
    assert len(re.findall(r"= turn \d", err)) == 8
    assert "PASSED" in err


def test_the_demo_keeps_no_file_that_exists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--keep never writes into a file that is already there."""
    kept = tmp_path / "kept.sqlite3"
    kept.write_bytes(b"")

    assert main(["demo", "--keep", str(kept)]) == 2
    assert "name a new file" in capsys.readouterr().err


def test_the_demo_sees_a_model_that_forgot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reply without the player's name after the restart is exit code 1: the check can fail."""

    def forgetful(prompt: Prompt) -> Reply:
        return Reply.text("[simulated] Who are you? The score is 70 points.")

    with SimServer(model=forgetful) as sim:
        code = demo_game.play("after", sim.base_url, tmp_path / "demo.sqlite3")

    assert code == 1
    assert "lost" in capsys.readouterr().out


def test_the_second_half_without_the_first_one_s_database_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulator remembers nothing: what the second half knows comes out of the database."""
    with SimServer() as sim:
        demo_game.play("before", sim.base_url, tmp_path / "demo.sqlite3")

        assert demo_game.play("after", sim.base_url, tmp_path / "another.sqlite3") == 1
        assert demo_game.play("after", sim.base_url, tmp_path / "demo.sqlite3") == 0
        assert sim.problems == []
    assert "I do not know your name" in capsys.readouterr().out
