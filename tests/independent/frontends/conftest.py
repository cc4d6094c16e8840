"""Clients of front ends that this project did not write.

Owns: where they are found, and how a test gives them streams to read. Must never know: what a test expects.

The folders beside this file pin the clients. `.ci/run` installs them into `build/frontends`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent

Read = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session", params=["ai6", "ai7"])
def client_folder(request: pytest.FixtureRequest) -> Path:
    """Where a version of the AI SDK is installed."""
    folder = Path(os.environ.get("GOAITOOLS_FRONTENDS") or ROOT / "build" / "frontends") / str(request.param)
    if shutil.which("node") is None or not (folder / "node_modules" / "ai").is_dir():
        pytest.skip("no npm clients: `.ci/run` installs them; or say in GOAITOOLS_FRONTENDS where they are")
    return folder


@pytest.fixture(scope="session")
def read(client_folder: Path) -> Read:
    """The reader of the AI SDK: conversations and histories in, what it made of them out."""

    def run(**given: Any) -> dict[str, Any]:
        found = subprocess.run(
            ["node", HERE / "read.mjs", client_folder],
            input=json.dumps(given).encode(),
            capture_output=True,
            timeout=120,
        )
        assert found.returncode == 0, found.stderr.decode()
        return json.loads(found.stdout)  # type: ignore[no-any-return]

    return run
