"""A stranger's walk: the pages work in an empty directory, with what their own install lines bring.

The short form blocks the import of every other distribution, in an interpreter of its own. The long form
(GOAITOOLS_WALK=SEED, the part `walk` of `.ci/long`) clones the project, runs the README's two lines, and
pastes the pages into an environment that pip has made. The seed chooses the three how-to pages.

Owns: the way of a newcomer. Must never know: what a page says.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ._packages import ROOT, all_of
from .test_examples_install import BARE, CHOSEN
from .test_readme import OWN_PROCESS, page_id, printed_lines, python_blocks, section

SEED = os.environ.get("GOAITOOLS_WALK") or "1"
BETWEEN = "-- the next block --"

START = sorted((ROOT / "docs" / "start").glob("*.md"))
TASKS = [page for page in sorted((ROOT / "docs" / "how_to").glob("*.md")) if page_id(page) not in OWN_PROCESS]


def chosen() -> list[Path]:
    """The tutorial, and three pages with programs that the seed chooses."""
    with_programs = [page for page in TASKS if python_blocks(page.read_text(encoding="utf-8"))]
    return START + random.Random(SEED).sample(with_programs, 3)


def requirements(page: Path) -> list[str]:
    """What the `pip install` lines of a page name, or the package alone."""
    lines = re.findall(r"pip install ([^`\n]+)", page.read_text(encoding="utf-8"))
    return list(dict.fromkeys(name for line in lines for name in shlex.split(line))) or ["goaitools-py"]


def pasted(page: Path, folder: Path) -> list[list[str]]:
    """Write the blocks of a page into one file, and give the lines that each one must print."""
    blocks = python_blocks(page.read_text(encoding="utf-8"))
    program = f"\nprint({BETWEEN!r})\n".join([*blocks, ""])
    (folder / "page.py").write_text(program, encoding="utf-8")
    return [printed_lines(code) for code in blocks]


def newcomer() -> dict[str, str]:
    """The environment of somebody who has set nothing: with the seed, the README's tests would walk again."""
    return {name: value for name, value in os.environ.items() if not name.startswith((*CHOSEN, "PYTEST_"))}


def printed(command: list[str], folder: Path, **variables: str) -> list[list[str]]:
    """What the blocks print, each by itself."""
    done = subprocess.run(
        command, cwd=folder, env=newcomer() | variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [block.strip().splitlines() for block in done.stdout.split(BETWEEN)[:-1]]


@pytest.mark.parametrize("page", chosen(), ids=page_id)
def test_a_page_runs_with_what_it_says_to_install(page: Path, tmp_path: Path) -> None:
    """In an empty directory. No module of another distribution is imported."""
    wanted = pasted(page, tmp_path)
    allowed = ",".join(all_of(requirements(page)))

    assert printed([sys.executable, "-c", BARE, allowed, "page.py"], tmp_path, PYTHONPATH=str(ROOT)) == wanted


def test_a_page_that_says_too_little_fails(tmp_path: Path) -> None:
    """A page that imports a package of an extra, and names no extra, does not run."""
    (page := tmp_path / "page.md").write_text("```python\nimport starlette\n```\n", encoding="utf-8")
    pasted(page, tmp_path)

    with pytest.raises(AssertionError, match="No module named 'starlette'"):
        printed([sys.executable, "-c", BARE, ",".join(all_of(requirements(page))), "page.py"], tmp_path)


def test_the_readmes_tests_do_not_walk_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their environment has no seed."""
    monkeypatch.setenv("GOAITOOLS_WALK", "1")

    found = newcomer()

    assert "GOAITOOLS_WALK" not in found
    assert "PATH" in found


def readme_line(heading: str, clone: Path) -> None:
    """Run the one line of a section of the README."""
    line = re.findall(r"^```sh\n(.*)\n```$", section(heading), re.M)[0]
    print(f"$ {line}", flush=True)
    subprocess.run(["bash", "-c", line], cwd=clone, env=newcomer(), check=True, timeout=1800)


def test_the_whole_walk(tmp_path: Path) -> None:
    """Clone, the README's run line, the tutorial, three how-to pages, and the README's test line."""
    if not os.environ.get("GOAITOOLS_WALK"):
        pytest.skip("the whole walk takes minutes: GOAITOOLS_WALK=SEED")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    readme_line("Run", clone)

    print(f"GOAITOOLS_WALK={SEED}")
    for page in chosen():
        folder = tmp_path / page.stem
        folder.mkdir()
        names = [re.sub(r"^goaitools-py(.*)", rf"{clone}\1", name) for name in requirements(page)]
        print(f"{page_id(page)}: pip install {shlex.join(names)}")
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = str(folder / "venv" / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *names], check=True, timeout=1800)
        wanted = pasted(page, folder)
        assert printed([python, "page.py"], folder) == wanted, page_id(page)

    readme_line("Test", clone)
