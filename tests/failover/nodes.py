"""Server processes that a failover test kills, pauses and starts again, and the wait until something is so.

Owns: processes, ports and folders. Must never know: an engine's roles.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic

from ..stores._private import free_port

__all__ = ["POSTGRES_USER", "Node", "program", "until", "workplace"]

_NEVER = Event()
POSTGRES_USER = "postgres" if os.getuid() == 0 else None
"""PostgreSQL and PgBouncer refuse to run as root."""


def until(is_so: Callable[[], object], what: str, seconds: float = 60.0, pause: float = 0.05) -> None:
    """Ask again and again until it is so. An error counts as no."""
    end = monotonic() + seconds
    while monotonic() < end:
        with suppress(Exception):
            if is_so():
                return
        _NEVER.wait(pause)
    raise AssertionError(f"after {seconds:.0f} seconds still not: {what}")


def program(name: str, *folders: Path) -> str:
    """The path of a program. `FileNotFoundError` if it is not installed."""
    found = shutil.which(name) or next((str(f / name) for f in folders if (f / name).exists()), None)
    if found is None:
        raise FileNotFoundError(f"no {name}: install it, or put it on the PATH")
    return found


@contextmanager
def workplace(user: str | None = None) -> Iterator[Path]:
    """A folder for the files of servers, removed at the end."""
    folder = tempfile.mkdtemp(prefix="goaitools-failover-", dir="/tmp")
    try:
        if user is not None:
            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Node:
    """One server: a process, and the processes that it starts itself."""

    def __init__(self, folder: Path, command: Callable[[int], list[str]], *, user: str | None = None) -> None:
        self.port = free_port()
        self.folder = folder
        self.user = user
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. It may not answer yet."""
        with self.folder.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self.port),
                stdout=log,
                stderr=log,
                user=self.user,
                extra_groups=[] if self.user else None,
            )

    def kill(self) -> None:
        """Kill all its processes with SIGKILL. The first process goes first, so that it starts no others."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, and wait until it has ended."""
        if self._process is not None:
            self._process.send_signal(how)
            self._wait()

    def pause(self) -> None:
        """Let no process of it run, as if the machine had stopped for a while."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a pause."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it in any state."""
        with suppress(ProcessLookupError):
            self.kill()

    def run(self, *command: str) -> str:
        """Run a program as the server's user, and give its output."""
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            user=self.user,
            extra_groups=[] if self.user else None,
            cwd=self.folder.parent,
        )
        return done.stdout

    def _signal(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        first = self._process.pid
        os.kill(first, how)
        for child in _children(first):
            with suppress(ProcessLookupError):
                os.kill(child, how)

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(60.0)
            self._process = None


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(entry.name))
    return found
