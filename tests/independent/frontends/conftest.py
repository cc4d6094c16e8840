"""Clients of front ends that this project did not write.

Owns: where they are found, and how a test gives them streams to read. Must never know: what a test expects.

The folders beside this file pin the clients. `.ci/run` installs them into `build/frontends`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ._node import answer_of

ROOT = Path(__file__).resolve().parent.parent.parent.parent

Read = Callable[..., dict[str, Any]]


def installed(name: str, package: str) -> Path:
    """Where a client is installed; the test is skipped if it is not."""
    folder = Path(os.environ.get("GOAITOOLS_FRONTENDS") or ROOT / "build" / "frontends") / name
    if shutil.which("node") is None or not (folder / "node_modules" / package).is_dir():
        pytest.skip("no npm clients: `.ci/run` installs them; or say in GOAITOOLS_FRONTENDS where they are")
    return folder


def browser() -> str:
    """Where Chromium is: Debian's, or `GOAITOOLS_CHROMIUM`. The test is skipped without it."""
    found = os.environ.get("GOAITOOLS_CHROMIUM") or shutil.which("chromium")
    if found is None:
        pytest.skip("no browser: `.ci/run` installs chromium")
    return found


@pytest.fixture(scope="session", params=["ai6", "ai7"])
def client_folder(request: pytest.FixtureRequest) -> Path:
    """Where a version of the AI SDK is installed."""
    return installed(str(request.param), "ai")


@pytest.fixture(scope="session")
def agui_folder() -> Path:
    """Where the client of AG-UI is installed."""
    return installed("agui", "@ag-ui/client")


@pytest.fixture(scope="session")
def read(client_folder: Path) -> Read:
    """The reader of the AI SDK: conversations and histories in, what it made of them out."""

    def run(**given: Any) -> dict[str, Any]:
        return answer_of("read.mjs", client_folder, given)  # type: ignore[no-any-return]

    return run
