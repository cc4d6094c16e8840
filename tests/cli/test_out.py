"""What `--out` and `--html` write into: a new file, an old one, a link, a pipe, a device."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from goaitools_py import Chat
from goaitools_py.cli import main
from goaitools_py.states import export_state, save_state
from goaitools_py.testing import ScriptedBackend

EACH: dict[str, list[str]] = {
    "export": ["export", "STATE", "--out"],
    "markdown": ["export", "STATE", "--markdown", "--out"],
    "html": ["inspect", "STATE", "--html"],
    "rewind": ["rewind", "STATE", "--turns", "1", "--out"],
    "redact": ["redact", "STATE", "Ada", "--out"],
    "convert": ["convert", "STATE", "--to", "anthropic", "--out"],
    "fork": ["fork", "STATE", "--out"],
    "import": ["import", "EXPORT", "--out"],
}
REPLACES = {name for name in EACH if name not in ("fork", "import")}


@pytest.fixture(params=EACH)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], int]:
    """Runs a command that writes to the given path."""
    chat = Chat(ScriptedBackend("Hello.", "Bye."))
    state = chat.chat_with_state(chat.chat(user="I am Ada.").state, user="And now?").state
    (tmp_path / "in").mkdir()
    (tmp_path / "in/state").write_bytes(state)
    (tmp_path / "in/export").write_text(json.dumps(export_state(state)))
    names = {"STATE": str(tmp_path / "in/state"), "EXPORT": str(tmp_path / "in/export")}
    command = [names.get(word, word) for word in EACH[request.param]]
    return lambda path: main([*command, path])


@pytest.fixture
def command(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["write"])


def read_all(number: int) -> bytes:
    found = b""
    with suppress(OSError):  # a pseudo-terminal whose other end is closed
        while chunk := os.read(number, 65536):
            found += chunk
    return found


def in_thread(function: Callable[[], bytes]) -> tuple[threading.Thread, list[bytes]]:
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    return thread, found


def test_a_pipe_is_written_into(write: Callable[[str], int], tmp_path: Path) -> None:
    """It gets what a file would get, and stays a pipe; so does the link to it."""
    for name in ("pipe", "link"):
        if name == "pipe":
            os.mkfifo(tmp_path / "pipe")
        else:
            (tmp_path / "link").symlink_to(tmp_path / "pipe")

        def read() -> bytes:
            with open(tmp_path / "pipe", "rb") as file:
                return file.read()

        thread, found = in_thread(read)
        assert write(str(tmp_path / name)) == 0
        thread.join(30)

        assert len(found[0]) > 50
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "link", "pipe"]


def test_a_device_is_written_into(write: Callable[[str], int]) -> None:
    """A terminal here: root could replace the entry of another device."""
    pty, tty = pytest.importorskip("pty"), pytest.importorskip("tty")
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    path = os.ttyname(theirs)
    thread, found = in_thread(lambda: read_all(ours))
    try:
        assert write(path) == 0
    finally:
        os.close(theirs)
        thread.join(30)
        os.close(ours)

    assert len(found[0]) > 50
    assert not os.path.exists(path) or stat.S_ISCHR(os.stat(path).st_mode)


def test_an_open_file_is_written_into(write: Callable[[str], int], command: str, tmp_path: Path) -> None:
    """``/dev/stdout`` is one: whoever opened the file reads that file, and no other in its place."""
    ours, theirs = os.pipe()
    assert write(f"/dev/fd/{theirs}") == 0
    os.close(theirs)
    assert len(read_all(ours)) > 50
    os.close(ours)
    if command not in REPLACES:
        return
    with open(tmp_path / "out", "w+b") as file:
        assert write(f"/dev/fd/{file.fileno()}") == 0
        assert os.fstat(file.fileno()).st_nlink == 1
        assert len((tmp_path / "out").read_bytes()) > 50


def test_an_old_file_keeps_its_permissions(write: Callable[[str], int], command: str, tmp_path: Path) -> None:
    """A link stays a link; a new file is for its owner only."""
    out, link = tmp_path / "out", tmp_path / "link"
    assert write(str(out)) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    data = out.read_bytes()
    if command not in REPLACES:
        assert write(str(out)) == 1  # and nothing is replaced
        assert out.read_bytes() == data
        return
    out.write_bytes(b"old")
    out.chmod(0o640)
    link.symlink_to("out")

    assert write(str(link)) == 0

    assert link.is_symlink()
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert len(out.read_bytes()) > 50
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "link", "out"]


def test_a_state_in_place_keeps_its_permissions(tmp_path: Path) -> None:
    """Commands that change a state, and `save_state`, replace the file and not who may read it."""
    path = tmp_path / "state"
    chat = Chat(ScriptedBackend("Hello.", "Bye."))
    save_state(chat.chat_with_state(chat.chat(user="I am Ada.").state, user="Bye.").state, path)
    before = path.read_bytes()
    path.chmod(0o664)

    assert main(["rewind", str(path), "--turns", "1"]) == 0

    assert path.read_bytes() != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
