"""A state in a file: whole or not at all, and for its owner only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from goaitools_py import Chat
from goaitools_py.history import stored_states
from goaitools_py.states import load_state, save_state
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.errors import StateFormatError, StateTooLargeError


def blob_of(text: str) -> bytes:
    with Chat(ScriptedBackend(text)) as chat:
        return chat.chat(user="Hello?").state


def test_a_file_holds_the_state(tmp_path: Path) -> None:
    """It is read as it was written; a new one takes its place; only the owner may read it."""
    path = tmp_path / "ada.state"
    for text in ("One.", "Two."):
        blob = blob_of(text)
        save_state(memoryview(blob), path)
        assert load_state(str(path)) == load_state(path) == blob

    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["ada.state"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """No half of a new one, and no file beside it."""
    old = blob_of("Old.")
    save_state(old, tmp_path / "a")

    def fails(*args: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(stored_states.os, broken, fails)
    with pytest.raises(OSError, match="full"):
        save_state(blob_of("New."), tmp_path / "a")
    monkeypatch.undo()

    assert load_state(tmp_path / "a") == old
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The file that it names is replaced, and the link stays."""
    (tmp_path / "real").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    blob = blob_of("Hello.")

    save_state(blob, tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert load_state(tmp_path / "real") == blob


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no state is neither written nor read; a huge file is not read into memory."""
    (tmp_path / "a").write_text("hello")
    with pytest.raises(StateFormatError):
        load_state(tmp_path / "a")
    with pytest.raises(StateFormatError):
        save_state(b"hello", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    monkeypatch.setattr(stored_states, "_MOST_BYTES", 100)
    (tmp_path / "a").write_bytes(blob_of("Hello."))
    with pytest.raises(StateTooLargeError):
        load_state(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        load_state(tmp_path / "missing")


def test_a_folder_that_is_not_there_is_told_by_the_name_that_was_given(tmp_path: Path) -> None:
    """The error of the operating system named a temporary file, which nobody knows."""
    path = tmp_path / "saves" / "ada.state"

    with pytest.raises(FileNotFoundError) as caught:
        save_state(blob_of("Hello."), path)

    assert (caught.value.filename, caught.value.strerror) == (
        str(path),
        "There is no folder for the file; make it first",
    )
