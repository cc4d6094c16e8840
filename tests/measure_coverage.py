"""Measures the branch coverage of the rooms that every turn goes through, and fails below `LEAST`.

    python tests/measure_coverage.py [options of pytest]     # runs the quick tests of these rooms

What fails is run once more by itself (`run_twice`), because under a tracer a race may end otherwise. Tests
that trace lines themselves, and those that measure time or memory, cannot run under a tracer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import run_twice  # the folder of this file is where Python looks first

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("turn", "history", "open_turn", "state", "chat/kept")
LEAST = 95
TESTS = ("turn", "history", "state", "kept", "compaction", "seal", "stores", "integrations", "output")
NOT_TRACED = ("kept/test_raise_anywhere.py", "durability/test_raise_anywhere.py", "seal/test_bombs.py")


def main(options: list[str]) -> int:
    """Run the tests under coverage, and tell the lines and branches that no test reached."""
    python = [sys.executable, "-m"]
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/data"
        measured = {
            "data_file": data,
            "branch": True,
            "source": [f"goaitools_py/{room}" for room in ROOMS],
        }
        path = os.pathsep.join(filter(None, (str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, "GOAITOOLS_COVERAGE": json.dumps(measured), "PYTHONPATH": path}
        tests = [f"tests/{name}" for name in TESTS] + [f"--ignore=tests/{name}" for name in NOT_TRACED]
        run = [*python, "pytest", "-q", "-p", "_traced", "-n", "2", "-m", "quick", *tests, *options]
        code = run_twice.run(run, env=env)
        subprocess.run([*python, "coverage", "combine", "-q", f"--data-file={data}", folder], cwd=ROOT)
        report = [*python, "coverage", "report", f"--data-file={data}", "-m", "--skip-covered"]
        told = subprocess.run([*report, f"--fail-under={LEAST}"], cwd=ROOT)
    return code or told.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
