"""Conversations in files: compare-and-swap, names, listings."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from goaitools_py.cli.chat_stores import FolderStore
from goaitools_py.states import read_history, state_from_messages
from goaitools_py.types.errors import StateConflictError, StoreUnavailableError


def _state(*said: str) -> bytes:
    return state_from_messages("openai", [{"role": "user", "content": text} for text in said])


def test_a_save_replaces_what_was_loaded(tmp_path: Path) -> None:
    """What is stored is the file; only its owner may read it."""
    store = FolderStore(tmp_path, ".goai")
    first = store.save("ada", _state("one"), expected=None)
    second = store.save("ada", _state("two"), expected=first)

    stored = store.load("ada")
    assert stored is not None
    assert (stored.blob, stored.version) == ((tmp_path / "ada.goai").read_bytes(), second)
    if os.name == "posix":
        assert (tmp_path / "ada.goai").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["ada.goai"]


@pytest.mark.parametrize("there", [False, True])
def test_a_save_over_another_one_is_refused(there: bool, tmp_path: Path) -> None:
    """A file that came or changed meanwhile stays as it is."""
    store, other = FolderStore(tmp_path, ".goai"), FolderStore(tmp_path, ".goai")
    known = store.save("ada", _state("one"), expected=None) if there else None
    other.save("ada", _state("theirs"), expected=known)

    with pytest.raises(StateConflictError):
        store.save("ada", _state("mine"), expected=known)
    stored = store.load("ada")
    assert stored is not None
    assert stored.blob == other.load("ada").blob  # type: ignore[union-attr]


def test_the_same_bytes_are_another_version(tmp_path: Path) -> None:
    """Who loaded before a save and after another one of the same bytes is told."""
    store, blob = FolderStore(tmp_path, ".goai"), _state("one")
    first = store.save("ada", blob, expected=None)
    second = store.save("ada", blob, expected=first)

    assert first != second


def test_of_many_savers_one_wins_each_time(tmp_path: Path) -> None:
    """No save is lost: the file counts the saves that were not refused."""

    def save(number: int) -> int:
        store = FolderStore(tmp_path, ".goai")
        won = 0
        for _ in range(10):
            stored = store.load("ada")
            said = [m.said for m in read_history(stored.blob).all_messages()] if stored else []
            try:
                store.save("ada", _state(*said, str(number)), expected=stored.version if stored else None)
                won += 1
            except StateConflictError:
                pass
        return won

    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(save, range(4)))
    stored = FolderStore(tmp_path, ".goai").load("ada")
    assert stored is not None
    assert len(read_history(stored.blob).all_messages()) == won > 0


def test_a_list_has_states_only(tmp_path: Path) -> None:
    """Files with another ending, other content or a hidden name are no conversations."""
    store = FolderStore(tmp_path, ".goai")
    for name in ("ada", "bob", "cy"):
        store.save(name, _state(name), expected=None)
    (tmp_path / "notes.goai").write_text("not a state")
    (tmp_path / "cy.txt").write_bytes(_state("x"))
    (tmp_path / ".hidden.goai").write_bytes(_state("x"))
    (tmp_path / "folder.goai").mkdir()

    assert [stored.key for stored in store.list().keys] == ["ada", "bob", "cy"]
    assert [stored.key for stored in store.list("b").keys] == ["bob"]
    page = store.list(limit=1)
    assert [stored.key for stored in store.list(cursor=page.cursor).keys] != ["ada"]


@pytest.mark.parametrize("key", ["../ada", "a/b", "", ".ada", "a\nb"])
def test_a_key_names_a_file_of_this_folder(key: str, tmp_path: Path) -> None:
    """Nothing outside the folder is read or written."""
    (tmp_path / "in").mkdir()
    store = FolderStore(tmp_path / "in", ".goai")

    with pytest.raises(ValueError, match="cannot be the name of a file"):
        store.save(key, _state("x"), expected=None)
    assert list(tmp_path.rglob("*.goai")) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A store that cannot write raises the error of stores."""
    store = FolderStore(tmp_path / "gone", ".goai")

    with pytest.raises(StoreUnavailableError, match="No such file"):
        store.save("ada", _state("x"), expected=None)
