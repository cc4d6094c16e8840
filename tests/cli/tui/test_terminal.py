"""The app in a real terminal: a process on a pseudo-terminal, and inside tmux where there is one.

Each test waits for what the screen shows; none waits for a time.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest

from goaitools_py.sim import Fault, Reply, SimServer
from goaitools_py.stores import SQLiteStore

ROOT = Path(__file__).resolve().parents[3]
NAME = "My name is Ada."
SECONDS = 60.0
"""How long a screen may take on a machine that is busy with other tests."""


class PseudoTerminal:
    """A process on a pseudo-terminal, whose screen pyte keeps."""

    def __init__(self, command: list[str], environment: dict[str, str], columns: int, lines: int) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._raw = b""
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environment)
        self._set_size(columns, lines)

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """Read until the screen is as wanted."""
        ends = time.monotonic() + SECONDS
        while not wanted(self.text):
            readable = select.select([self._file], [], [], max(0.0, ends - time.monotonic()))[0]
            assert readable, self.text
            try:
                read = os.read(self._file, 65536)
            except OSError:  # the process has ended
                assert wanted(self.text), self.text
                break
            self._raw += read
            self._stream.feed(read)
        return self.text

    @property
    def text(self) -> str:
        """The screen as text."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def colours(self) -> set[str]:
        """The colours of the text on the screen."""
        return {cell.fg for row in self._screen.buffer.values() for cell in row.values()} - {"default"}

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._file, text.encode())

    def press(self, key: str) -> None:
        """Press Enter, Escape, or a letter with Ctrl."""
        self.type({"enter": "\r", "escape": "\x1b"}.get(key) or chr(ord(key[-1]) & 31))

    def paste(self, text: str) -> None:
        """Paste a text, as a terminal does that knows bracketed paste."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def kill(self) -> None:
        """End the process with no warning."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> int:
        """Wait for the process; its exit code, or minus the signal that ended it."""
        self._drain()
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End what is still there."""
        if self.pid:
            self.kill()
            self.ended()

    def _drain(self) -> None:
        while True:  # a process whose output is not read does not end
            try:
                if not os.read(self._file, 65536):
                    return
            except OSError:
                return

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


class Tmux:
    """A process in a tmux server of its own. A pipe of tmux tells when the screen may have changed."""

    def __init__(self, command: list[str], environment: dict[str, str], columns: int, lines: int) -> None:
        self._folder = Path(environment["GOAITOOLS_TEST_FOLDER"])
        place = Path(tempfile.mkdtemp(dir=self._folder))
        self._socket, self._code, self._output = str(place / "tmux"), place / "code", place / "output"
        os.mkfifo(self._output)
        shell = f"{shlex.join(command)}; echo $? > {shlex.quote(str(self._code))}; exec cat"
        self._environment = environment
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "exec cat",
            ";", "set", "-g", "remain-on-exit", "on", ";", "set", "-g", "window-size", "manual",
        )  # fmt: skip
        self._file = os.open(self._output, os.O_RDONLY | os.O_NONBLOCK)
        self._tmux("pipe-pane", "-O", f"exec cat > {shlex.quote(str(self._output))}")
        self._tmux("respawn-pane", "-k", shell)
        self._tmux("pipe-pane", "-O", f"exec cat > {shlex.quote(str(self._output))}")

    def _tmux(self, *arguments: str) -> str:
        ran = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            env=self._environment, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """Read until the screen is as wanted."""
        ends = time.monotonic() + SECONDS
        while not wanted(text := self.text):
            assert time.monotonic() < ends, text
            if select.select([self._file], [], [], 0.2)[0]:
                os.read(self._file, 65536)
        return text

    @property
    def text(self) -> str:
        """The screen as text."""
        return "\n".join(line.rstrip() for line in self._tmux("capture-pane", "-p").split("\n"))

    def type(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        """Press Enter, Escape, or a letter with Ctrl."""
        self._tmux("send-keys", {"enter": "Enter", "escape": "Escape"}.get(key) or f"C-{key[-1]}")

    def paste(self, text: str) -> None:
        """Paste a text, as tmux does."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-r")

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def kill(self) -> None:
        """End the process with no warning."""
        shell = self._tmux("display", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text()
        os.kill(int(children), signal.SIGKILL)

    def ended(self) -> int:
        """Wait for the process; its exit code, or minus the signal that ended it."""
        self.wait_for(lambda _: self._code.exists() and bool(self._code.read_text()))
        code = int(self._code.read_text())
        self.close()
        return 128 - code if code > 128 else code

    def close(self) -> None:
        """End the server."""
        if self._file >= 0:
            self._tmux("kill-server")
            os.close(self._file)
            self._file = -1


KINDS = [PseudoTerminal, Tmux] if shutil.which("tmux") else [PseudoTerminal]


class Terminals:
    """Starts `goaitools chat` in terminals of one kind, on one database and one simulated provider."""

    def __init__(self, kind: Any, folder: Path, sim: SimServer) -> None:
        self._kind, self._folder, self.sim = kind, folder, sim
        self._started: list[Any] = []
        self.database = folder / "chat.db"

    def start(self, *options: str, columns: int = 80, lines: int = 24, **environment: str) -> Any:
        """A terminal in which the command runs."""
        known = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
        settings = {
            **known,
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "any",
            "OPENAI_BASE_URL": self.sim.base_url,
            "GOAITOOLS_TEST_FOLDER": str(self._folder),
            **environment,
        }
        command = [sys.executable, "-m", "goaitools_py", "chat", "--model", "openai:sim", *options]
        terminal = self._kind([*command, "--store", str(self.database)], settings, columns, lines)
        self._started.append(terminal)
        return terminal

    def close(self) -> None:
        """End all."""
        for terminal in self._started:
            terminal.close()


@pytest.fixture(params=KINDS, ids=[kind.__name__.lower() for kind in KINDS])
def terminals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminals]:
    """Terminals of one kind."""
    with SimServer() as sim:
        made = Terminals(request.param, tmp_path, sim)
        yield made
        made.close()


def _ready(text: str) -> bool:
    return "│ ready" in text or "\nready" in text.replace(" ", "")


def test_type_kill_and_start_again(terminals: Terminals) -> None:
    """What was said before a kill in mid-answer is there, and its answer can be had."""
    terminal = terminals.start()
    terminal.wait_for(_ready)
    terminal.type(NAME)
    terminal.press("enter")
    terminal.wait_for(lambda text: "your name is Ada" in text and _ready(text))
    gate = threading.Event()
    terminals.sim.push(Fault.hold(gate, after=4))
    terminal.type("What is my name?")
    terminal.press("enter")
    terminal.wait_for(lambda text: "answering" in text)
    terminal.kill()
    assert terminal.ended() == -signal.SIGKILL
    gate.set()

    terminal = terminals.start()
    text = terminal.wait_for(lambda text: "unfinished" in text and _ready(text))
    assert NAME in text
    assert "What is my name?" in text
    terminal.type("/resume")
    terminal.press("enter")
    terminal.wait_for(lambda text: "Your name is Ada" in text and _ready(text))
    terminal.press("ctrl+q")
    assert terminal.ended() == 0


def test_paste_unicode_and_forty_columns(terminals: Terminals) -> None:
    """Pasted lines are one message; wide letters stay whole; a narrow terminal shows all of the header."""
    terminals.sim.push(Reply.text("**日本語** שלום é"))
    terminal = terminals.start()
    terminal.wait_for(_ready)
    terminal.paste("one\ntwo 日本\nthree")
    terminal.wait_for(lambda text: "three" in text)
    terminal.press("enter")
    text = terminal.wait_for(lambda text: "日" in text.split("three")[-1] and _ready(text))
    assert "**" not in text

    terminal.resize(40, 24)
    text = terminal.wait_for(lambda text: "ready" in text.split("\n")[1])
    assert max(len(line) for line in text.split("\n")) <= 40
    assert "1 turn" in text
    terminal.press("ctrl+q")
    assert terminal.ended() == 0
    with SQLiteStore(terminals.database) as store:
        assert [found.facts.turns for found in store.list().keys if found.facts] == [1]
    assert [request.parsed["messages"][-1]["content"] for request in terminals.sim.requests] == [
        "one\ntwo 日本\nthree"
    ]


def test_without_colour(tmp_path: Path) -> None:
    """With NO_COLOR the terminal gets greys only; without it, colours."""
    with SimServer() as sim:
        terminals = Terminals(PseudoTerminal, tmp_path, sim)
        try:
            grey = terminals.start(NO_COLOR="1", COLORTERM="truecolor")
            grey.wait_for(_ready)
            coloured = terminals.start(COLORTERM="truecolor")
            coloured.wait_for(_ready)
        finally:
            terminals.close()

    def is_grey(colour: str) -> bool:
        return len({colour[0:2], colour[2:4], colour[4:6]}) == 1

    assert all(map(is_grey, grey.colours))
    assert not all(map(is_grey, coloured.colours))


def test_line_by_line_a_paste_is_one_message(terminals: Terminals) -> None:
    """The chat line by line on a terminal: a paste of several lines is sent once, with Enter."""
    terminal = terminals.start("--lines")
    terminal.wait_for(lambda text: "you>" in text)
    terminal.paste("one\ntwo")
    terminal.wait_for(lambda text: "two" in text)
    terminal.press("enter")
    terminal.wait_for(lambda text: "[simulated]" in text and text.count("you>") == 2)
    terminal.type("/quit")
    terminal.press("enter")
    assert terminal.ended() == 0
    assert [request.parsed["messages"][-1]["content"] for request in terminals.sim.requests] == ["one\ntwo"]
