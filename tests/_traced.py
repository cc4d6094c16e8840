"""Measures coverage in the process that runs tests: a plugin of pytest, for each worker of xdist too.

`measure_coverage.py` loads it, and says in the environment what is measured. Must never know: which tests
run, or how much is enough.
"""

from __future__ import annotations

import json
import os

import coverage

OPTIONS = "GOAITOOLS_COVERAGE"
"""The environment variable with the arguments of `coverage.Coverage` as JSON."""

_measured = coverage.Coverage(**json.loads(os.environ[OPTIONS]), data_suffix=True)
_measured.start()  # now: pytest imports this before the first module of the package


def pytest_unconfigure() -> None:
    """Save what was measured, when all tests have run."""
    _measured.stop()
    _measured.save()
