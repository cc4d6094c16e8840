"""Runs families (`_families`) in processes of their own.

``GOAITOOLS_FORK_CALLS=500`` makes 500 calls in each of 8 children instead of a few calls in three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.sim import Prompt, Reply, SimServer

FEW = 12
CALLS = int(os.environ.get("GOAITOOLS_FORK_CALLS", FEW))
CHILDREN = 8 if CALLS > FEW else 3
ROOT = Path(__file__).parents[2]


def family(name: str, *, env: dict[str, str] | None = None, **fields: Any) -> None:
    """Run a family; all its children have to end well."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.forks._families", name, json.dumps(fields)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=60 + 2 * CALLS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


def echo(prompt: Prompt) -> Reply:
    """The model says what the user said last, after a moment in which others ask."""
    time.sleep(0.02)
    return Reply.text(f"[simulated] {prompt.history[-1].text}")


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """A server that keeps connections and echoes what is said, as environment variables of a family."""
    with SimServer(model=echo, max_recorded=1) as sim:
        yield {
            "OPENAI_BASE_URL": sim.base_url,
            "OPENAI_API_KEY": "any",
            "ANTHROPIC_BASE_URL": sim.base_url_for("anthropic"),
            "ANTHROPIC_API_KEY": "any",
        }
