"""The load script runs, and loses and doubles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_load_loses_and_doubles_nothing() -> None:
    """Its short form on SQLite, which needs no server; times are not looked at."""
    command = [sys.executable, str(ROOT / "benchmarks" / "load.py"), "--short", "--store", "sqlite", "--json"]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert ran.returncode == 0, ran.stderr
    figures = {figure["name"]: figure["value"] for figure in json.loads(ran.stdout)["sqlite"]["figures"]}
    assert figures["deliveries that are lost"] == figures["deliveries that are doubled"] == 0
    assert figures["turns and events a second"] > 0
