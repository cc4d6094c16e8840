"""A chat and a store are used while an application is loaded; then gunicorn and Celery fork their workers."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.stores import SQLiteStore

from .conftest import CALLS, ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

USERS = 6
TURNS = max(3, CALLS // 6)


@pytest.fixture
def env(server: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Where the application finds its model, its store and its broker."""
    own = {
        "GOAITOOLS_TEST_STORE": str(tmp_path / "states.sqlite3"),
        "GOAITOOLS_TEST_FOLDER": str(tmp_path),
        "PYTHONWARNINGS": "ignore",
    }
    return os.environ | server | own


def needs(module: str) -> None:
    """Skip a test whose server is not installed; in CI it has to be."""
    if os.environ.get("CI") == "true":
        importlib.import_module(module)
    else:
        pytest.importorskip(module)


@contextmanager
def running(command: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is told to end afterwards."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def stored_turns(path: str) -> int:
    """The turns that are stored."""
    from goaitools_py.states import read_history

    with SQLiteStore(path) as store:
        blobs = [store.load(key.key) for key in store.list("user-").keys]
    return sum(len(read_history(stored.blob).turns) for stored in blobs if stored is not None)


def test_gunicorn_with_preload(env: dict[str, str], tmp_path: Path) -> None:
    """Each request gets its own reply, whichever worker answers it, and each turn is stored."""
    needs("gunicorn")
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = "127.0.0.1:%d" % free.getsockname()[1]  # noqa: UP031
    command = ["gunicorn", "--preload", "-w", "4", "--threads", "2", "-b", place, "tests.forks._service"]

    def ask(key: str, text: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{place}/{key}/{text}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        assert found["reply"] == f"[simulated] {text}"
        assert found["pid"] != found["parent"]
        return found

    def user(number: int) -> set[int]:
        return {ask(f"user-{number}", f"text-{number}-{turn}")["pid"] for turn in range(TURNS)}

    log = tmp_path / "gunicorn.log"
    with running(command, env, log) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            assert process.poll() is None, log.read_text()[-3_000:]
            try:
                ask("before", "ready")
                break
            except OSError:
                time.sleep(0.1)
        with ThreadPoolExecutor(USERS) as pool:
            pids = set().union(*pool.map(user, range(USERS)))

    assert len(pids) > 1, "one worker answered everything"
    assert stored_turns(env["GOAITOOLS_TEST_STORE"]) == USERS * TURNS


def test_celery_with_its_prefork_pool(env: dict[str, str], tmp_path: Path) -> None:
    """Each task gets its own reply, whichever child runs it, and each turn is stored."""
    needs("celery")
    command = ["celery", "-A", "tests.forks._tasks", "worker", "--pool=prefork", "-c", "3"]
    quiet = ["--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    log = tmp_path / "celery.log"
    with running([*command, *quiet], env, log):
        asked = [sys.executable, "-m", "tests.forks._tasks", str(USERS), str(TURNS)]
        asking = env | {"GOAITOOLS_TEST_STORE": str(tmp_path / "asking.sqlite3")}
        done = subprocess.run(
            asked, cwd=ROOT, env=asking, capture_output=True, text=True, timeout=150, check=False
        )

    assert done.returncode == 0, done.stderr[-3_000:] + log.read_text()[-3_000:]
    assert stored_turns(env["GOAITOOLS_TEST_STORE"]) == USERS * TURNS
