"""The comparison with other libraries: its own side runs, and its counts notice what goes wrong.

Owns: this package's app. Must never know: the other libraries, which a reader installs.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "behaviour.py"


def run(script: Path, *mishaps: str) -> dict[str, str]:
    """Each mishap that ran, and what was counted."""
    command = [sys.executable, str(script), "--apps", "ours.py", "--only", *mishaps]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^(.+?) +this package +(tools .+)$", done.stdout, re.M))


@pytest.mark.parametrize("mishaps", [("again", "killed_after", "pressed_twice"), ("twice", "tabs", "down")])
def test_nothing_is_lost_or_doubled(mishaps: tuple[str, ...]) -> None:
    """A kill is a SIGKILL of a process that runs a tool; two workers get the same message or click."""
    found = run(SCRIPT, *mishaps)

    assert len(found) == len(mishaps)
    for name, counted in found.items():
        tools = 0 if "tabs" in name else 1
        assert counted.startswith(f"tools {tools}, calls 2, lost 0, doubled 0"), name
        assert "next answered" in counted


def test_the_counts_notice_a_worse_app(tmp_path: Path) -> None:
    """Without `turn_id` a message that comes again is doubled, and its tool runs twice."""
    shutil.copytree(SCRIPT.parent, tmp_path / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "goaitools_py").symlink_to(ROOT / "goaitools_py")
    app = tmp_path / "benchmarks" / "behaviour_apps" / "ours.py"
    text = app.read_text(encoding="utf-8")
    assert "send(text, turn_id=id)" in text
    app.write_text(text.replace("send(text, turn_id=id)", "send(text)"), encoding="utf-8")

    (counted,) = run(tmp_path / "benchmarks" / "behaviour.py", "again").values()

    assert counted.startswith("tools 2, calls 4, lost 0, doubled 2")


def test_a_library_that_is_absent_is_named() -> None:
    """The table has only what ran."""
    command = [sys.executable, str(SCRIPT), "--apps", "langgraph_app.py", "ours.py", "--only", "plain"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    if not any("langgraph" in str(found.name) for found in distributions()):
        assert "not measured: LangGraph (pip install langgraph" in done.stdout
    assert "| lines of code |" in done.stdout


def loaded(name: str) -> ModuleType:
    """A script of docs/ that draws a picture."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_picture_of_a_turn_is_the_data() -> None:
    """`python docs/draw_turn.py` writes exactly what is committed."""
    script = loaded("draw_turn")

    assert script.drawn() == script.PICTURE.read_text(encoding="utf-8")


def test_the_picture_is_the_table() -> None:
    """`python docs/draw_comparison.py` writes exactly what is committed; each cell has one mark."""
    script = loaded("draw_comparison")
    libraries, mishaps = script.table()
    cells = [cell for row in mishaps.values() for cell in row]

    assert script.drawn() == script.PICTURE.read_text(encoding="utf-8")
    assert len(cells) == len(libraries) * len(mishaps) == 60
    page = script.PAGE.read_text(encoding="utf-8").partition("<!-- measured: begin -->")[2]
    assert [script.mark(cell) for cell in cells].count("stuck") == page.count("**stuck**")
    assert [script.mark(cell) for cell in cells].count("planned") == page.count("as planned")
