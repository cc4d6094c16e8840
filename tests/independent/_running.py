"""A server in a process of its own.

Owns: starting it, waiting until it listens, and ending it. Must never know: which server it is.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)\s")
START_SECONDS = 60.0
"""A safety net only: a server that starts says so before."""


@contextlib.contextmanager
def running(*command: str | Path, log: Path) -> Iterator[int]:
    """The port on which a server listens, once it says so in its output; it ends with the block."""
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        until = time.monotonic() + START_SECONDS
        while not (listens := LISTENING.search(said := log.read_text("utf-8", "replace"))):
            assert server.poll() is None, f"the server ended with {server.returncode}: {said[-2000:]}"
            assert time.monotonic() < until, f"the server did not start: {said[-2000:]}"
            time.sleep(0.01)
        yield int(listens[1])
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
