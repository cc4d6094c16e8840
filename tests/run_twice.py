"""Runs tests, and what has failed once more, by itself; `report` tells which tests passed only then.

    python tests/run_twice.py run COMMAND…      # a command that runs pytest in the project's folder
    python tests/run_twice.py report            # the table; 1 if more than `MOST` tests needed a second run

On a busy machine a test that waits for something may not get it in time. A test that fails twice is broken.
A test that passes only the second time is counted over all runs: a few may be the machine's fault, many are
a fault of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

__all__ = ["MOST", "main", "run"]

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
NOTED = ROOT / "build" / "passed_only_the_second_time.txt"
MOST = 3
TESTS_FAILED = 1
"""The exit code of pytest if tests ran and some failed; a run that broke off has another one."""


def run(command: list[str], *, env: dict[str, str] | None = None) -> int:
    """Run a command that runs pytest, and what fails once more. The exit code: 0 if each test passed."""
    code = subprocess.run(command, cwd=ROOT, env=env).returncode
    if code != TESTS_FAILED or not FAILED.exists():
        return code
    failed = sorted(json.loads(FAILED.read_bytes()))
    print("\n== what has failed, once more and by itself", flush=True)
    python = ROOT / ".venv" / "bin" / "python"
    again = ["-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures", "none"]
    code = subprocess.run([python if python.exists() else sys.executable, *again], cwd=ROOT).returncode
    if code in (0, TESTS_FAILED):
        still = json.loads(FAILED.read_bytes()) if code else ()
        NOTED.parent.mkdir(exist_ok=True)
        with NOTED.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in failed if name not in still)
    return code


def report() -> int:
    """Print the tests that passed only the second time, and forget them. 1 if they are more than `MOST`."""
    names = NOTED.read_text(encoding="utf-8").splitlines() if NOTED.exists() else []
    NOTED.unlink(missing_ok=True)
    print(f"\n{len(names)} tests passed only the second time (at most {MOST} may)")
    for name in names:
        print(f"  {name}")
    return int(len(names) > MOST)


def main(arguments: list[str]) -> int:
    """Do what the command line says."""
    match arguments:
        case ["run", _, *_]:
            return run(arguments[1:])
        case ["report"]:
            return report()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
