"""Each example says what to install, and runs with that alone."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests._packages import ROOT, all_of, distributions, extras_of, plain

EXAMPLES = sorted([*(ROOT / "examples").glob("*.py"), ROOT / "examples" / "custom_backend" / "__main__.py"])
CHOSEN = ("GOAITOOLS_", "OPENAI_")
OWN = {"goaitools_py", "ollama_backend", "ollama_dialect"}

BARE = """
import importlib.metadata, re, runpy, sys
allowed, path = set(sys.argv[1].split(",")), sys.argv[2]
of = importlib.metadata.packages_distributions()

class Refusing:
    def find_spec(self, name, path=None, target=None):
        names = {re.sub(r"[-_.]+", "-", one).lower() for one in of.get(name.partition(".")[0], ())}
        if names and not names & allowed and name.partition(".")[0] not in ("_pytest", "goaitools_py"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
sys.argv = [path]
runpy.run_path(path, run_name="__main__")
"""


def command(example: Path) -> list[str]:
    """What the example says to install: the arguments of the one command in its docstring."""
    lines = re.findall(r"^Install: pip install (.+)$", ast.get_docstring(_tree(example)) or "", re.M)
    assert len(lines) == 1, example
    return shlex.split(lines[0])


def _tree(example: Path) -> ast.Module:
    return ast.parse(example.read_text(encoding="utf-8"))


def run(example: Path, installed: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example as if only these requirements were installed."""
    start = example.parent if example.stem == "__main__" else example
    program = [sys.executable, "-c", BARE, ",".join(all_of(installed)), str(start)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(CHOSEN)}
    env = clean | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(program, capture_output=True, text=True, timeout=60, cwd=folder, env=env)


def example_id(example: Path) -> str:
    """The name of the file or the folder."""
    return example.parent.name if example.stem == "__main__" else example.stem


def test_the_imports_are_those_of_the_command() -> None:
    """The package, with extras that it has, and what else the example imports."""
    for example in EXAMPLES:
        names = command(example)
        assert names[0].startswith("goaitools-py"), example
        assert set(re.findall(r"\w+", names[0].partition("[")[2])) <= set(extras_of()), example
        files = example.parent.glob("*.py") if example.stem == "__main__" else [example]
        imported = {name for file in files for name in distributions(file, OWN)}
        assert imported <= all_of(names), example


@pytest.mark.parametrize("example", EXAMPLES, ids=example_id)
def test_an_example_runs_with_what_it_says_to_install(example: Path, tmp_path: Path) -> None:
    """No module of another distribution is imported."""
    done = run(example, command(example), tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if re.search(r"\[(?!otel)", command(one)[0])], ids=example_id
)
def test_an_example_without_its_extra_ends(example: Path, tmp_path: Path) -> None:
    """The error names the missing package, and the docstring the command. OpenTelemetry is left
    out: its API comes with the base, and its distributions share a top-level module."""
    done = run(example, ["goaitools-py"], tmp_path)

    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    missing = re.search(r"No module named '([\w.]+)'|needs the package (\w+): pip install '(.+)'$", last)
    assert missing, last
    if missing[3]:
        assert missing[3] == command(example)[0]


def test_the_list_says_what_each_example_installs() -> None:
    """The examples with more than the package stand there with their extras and packages."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for example in EXAMPLES:
        names = command(example)
        rest = re.findall(r"\w+", names[0].partition("[")[2]) + [plain(name) for name in names[1:]]
        listed = re.search(rf"^\| \[{example_id(example)}\]\([^)]+\) \|.*\| (.*)\|$", text, re.M)
        assert listed, example
        assert re.findall(r"[\w-]+", listed[1]) == rest, example
