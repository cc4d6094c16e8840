"""The recipes of CONTRIBUTING.md work, and touch the files that the page names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ._recipes import RECIPES, Recipe

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("goaitools_py", "tests", "docs", "benchmarks", "examples", ".ci", "README.md", "pyproject.toml")


def recipe_text(heading: str) -> str:
    """The part of the page under a recipe's heading."""
    _, found, rest = PAGE.partition(f"\n### {heading}\n")
    assert found, heading
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project with its bytecode, but not with files that another worker is writing."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "CONTRIBUTING.md", tmp_path)
    return tmp_path


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.heading)
def test_a_recipe_works(copy: Path, recipe: Recipe) -> None:
    """After its edits the new part does what it should, and the guards of the project are content."""
    for edit in recipe.edits:
        edit.apply(copy)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *recipe.tests],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "CI": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stdout[-3_000:] + ran.stderr[-1_000:]
    assert " passed" in ran.stdout


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.heading)
def test_the_page_names_the_files(recipe: Recipe) -> None:
    """The list of files in the page is the list of files that the recipe touches."""
    listed = re.findall(r"^- `([^`]+)`", recipe_text(recipe.heading), re.MULTILINE)

    assert sorted(listed) == recipe.files


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.heading)
def test_the_page_names_the_tests(recipe: Recipe) -> None:
    """The page says how the recipe is proved."""
    assert " ".join(recipe.tests) in recipe_text(recipe.heading)
