"""The store contract, held against the SQLite store: compare-and-swap, and nothing lost between writers."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.stores import SQLiteStore, Store

ROOT = Path(__file__).resolve().parent.parent
EVERY_BYTE = bytes(range(256)) * 3 + b"\x00"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SQLiteStore]:
    """A store in a file, and one in memory."""
    with SQLiteStore(tmp_path / "states.sqlite3" if request.param == "file" else ":memory:") as made:
        yield made


# ------------------------------------------------------------------------------------- load and save


def test_a_missing_key_loads_as_none(store: Store) -> None:
    """What was never saved is None, before the first save and after it."""
    assert store.load("ada") is None

    store.save("ada", b"blob", expected=None)

    assert store.load("bob") is None


def test_bytes_come_back_as_they_were(store: Store) -> None:
    """A blob is bytes, zero bytes included, and comes back as exactly these."""
    store.save("ada", EVERY_BYTE, expected=None)

    stored = store.load("ada")

    assert stored is not None
    assert stored.blob == EVERY_BYTE
    assert type(stored.blob) is bytes


def test_an_empty_blob_is_not_a_missing_one(store: Store) -> None:
    """Saving b"" stores something."""
    store.save("ada", b"", expected=None)

    stored = store.load("ada")

    assert stored is not None
    assert stored.blob == b""


@pytest.mark.parametrize("key", ["", "a b/c:d", "Ä☃😀", "'; DROP TABLE goaitools_state; --"])
def test_any_text_is_a_key(store: Store, key: str) -> None:
    """A key is data, never part of a statement."""
    store.save(key, b"mine", expected=None)
    store.save("other", b"theirs", expected=None)

    stored = store.load(key)

    assert stored is not None
    assert stored.blob == b"mine"


def test_every_save_raises_the_version_by_one(store: Store) -> None:
    """A save returns the version that the next save has to name, and load agrees."""
    versions = [store.save("ada", b"0", expected=None)]
    for _ in range(3):
        versions.append(store.save("ada", b"n", expected=versions[-1]))

    stored = store.load("ada")

    assert versions == [1, 2, 3, 4]
    assert stored is not None
    assert stored.version == 4


def test_versions_of_two_keys_are_apart(store: Store) -> None:
    """Saving one conversation does not change another's version."""
    store.save("ada", b"a", expected=None)
    store.save("ada", b"b", expected=1)

    assert store.save("bob", b"c", expected=None) == 1


def test_updated_at_is_the_time_of_the_save(store: Store) -> None:
    """`updated_at` is aware, in UTC, and now."""
    store.save("ada", b"blob", expected=None)

    stored = store.load("ada")

    assert stored is not None
    assert stored.updated_at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - stored.updated_at) < timedelta(minutes=5)


# ---------------------------------------------------------------------------------------- conflicts


def test_a_first_save_refuses_to_replace(store: Store) -> None:
    """`expected=None` means that nothing is there yet; what is there stays."""
    store.save("ada", b"theirs", expected=None)

    with pytest.raises(StateConflictError, match="no stored state"):
        store.save("ada", b"mine", expected=None)

    stored = store.load("ada")
    assert stored is not None
    assert (stored.blob, stored.version) == (b"theirs", 1)


@pytest.mark.parametrize("expected", [1, 3, 0, -1])
def test_a_save_that_names_another_version_is_refused(store: Store, expected: int) -> None:
    """Only the stored version may be replaced, neither an older nor a newer one."""
    store.save("ada", b"first", expected=None)
    store.save("ada", b"theirs", expected=1)

    with pytest.raises(StateConflictError, match=f"version {expected}"):
        store.save("ada", b"mine", expected=expected)

    stored = store.load("ada")
    assert stored is not None
    assert (stored.blob, stored.version) == (b"theirs", 2)


def test_a_save_over_nothing_is_refused(store: Store) -> None:
    """A version of a conversation that was deleted meanwhile does not bring it back."""
    with pytest.raises(StateConflictError):
        store.save("ada", b"mine", expected=1)

    assert store.load("ada") is None


def test_a_conflict_names_neither_key_nor_blob(store: Store) -> None:
    """A key may be a person's name: error texts do not repeat it."""
    store.save("ada@example.org", b"theirs", expected=None)

    with pytest.raises(StateConflictError) as caught:
        store.save("ada@example.org", b"mine", expected=None)

    assert "ada" not in str(caught.value)
    assert "mine" not in str(caught.value)


# ------------------------------------------------------------------------------------ many writers


def _append(store: Store, word: bytes) -> None:
    """Add a word to the stored blob, again and again until nobody else was first."""
    while True:
        stored = store.load("shared")
        try:
            store.save(
                "shared",
                (stored.blob if stored else b"") + word + b"\n",
                expected=stored.version if stored else None,
            )
        except StateConflictError:
            continue
        return


_WRITER = """
import sys
from goaitools_py.errors import StateConflictError
from goaitools_py.stores import SQLiteStore

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.stdin.readline()  # all begin at the same time
with SQLiteStore(path) as store:
    for number in range(count):
        while True:
            stored = store.load("shared")
            blob = stored.blob if stored else b""
            try:
                store.save("shared", blob + f"{name}-{number}\\n".encode(),
                           expected=stored.version if stored else None)
                break
            except StateConflictError:
                pass
"""


def _written(writers: int, count: int) -> set[bytes]:
    return {f"w{writer}-{number}".encode() for writer in range(writers) for number in range(count)}


def test_threads_on_one_store_lose_nothing(store: Store) -> None:
    """Four threads that share a store each append 25 words: all 100 are there, once."""

    def write(writer: int) -> None:
        for number in range(25):
            _append(store, f"w{writer}-{number}".encode())

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    stored = store.load("shared")
    assert stored is not None
    words = stored.blob.split()
    assert len(words) == 100
    assert set(words) == _written(4, 25)
    assert stored.version == 100


def test_processes_on_one_file_lose_nothing(tmp_path: Path) -> None:
    """Four processes that begin with no file at all each append 25 words: all 100 are there, once."""
    path = tmp_path / "states.sqlite3"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), f"w{writer}", "25"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()

    complaints = [writer.communicate(timeout=120)[1] for writer in writers]

    assert complaints == ["", "", "", ""]
    with SQLiteStore(path) as store:
        stored = store.load("shared")
    assert stored is not None
    assert set(stored.blob.split()) == _written(4, 25)
    assert stored.version == 100


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    """While another connection holds the write lock, the last saved blob can be loaded."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path, busy_timeout=0.0) as store:
        store.save("ada", b"blob", expected=None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")

        stored = store.load("ada")

        other.close()
    assert stored is not None
    assert stored.blob == b"blob"


# ------------------------------------------------------------------------------- a file on a disk


def test_a_new_store_finds_what_an_old_one_saved(tmp_path: Path) -> None:
    """Blob and version survive closing and opening."""
    with SQLiteStore(tmp_path / "states.sqlite3") as store:
        store.save("ada", b"1", expected=None)
        store.save("ada", b"2", expected=1)

    with SQLiteStore(tmp_path / "states.sqlite3") as store:
        stored = store.load("ada")

        assert stored is not None
        assert (stored.blob, stored.version) == (b"2", 2)


def test_a_store_that_was_open_first_sees_what_another_saves(tmp_path: Path) -> None:
    """Opened on a missing file, a store finds what somebody else put there later."""
    with SQLiteStore(tmp_path / "states.sqlite3") as early, SQLiteStore(tmp_path / "states.sqlite3") as other:
        assert early.load("ada") is None

        other.save("ada", b"blob", expected=None)

        stored = early.load("ada")
        assert stored is not None
        assert stored.blob == b"blob"


def test_looking_changes_nothing(tmp_path: Path) -> None:
    """Somebody else's database stays byte for byte the same until something is saved."""
    path = tmp_path / "theirs.sqlite3"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE customers (name TEXT)")
    theirs.close()
    before = path.read_bytes()

    with SQLiteStore(path) as store:
        assert store.load("ada") is None

    assert path.read_bytes() == before


def test_a_saved_blob_is_a_row_that_sql_can_find(tmp_path: Path) -> None:
    """The table is plain SQL: key, version, time, blob."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store:
        store.save("ada", EVERY_BYTE, expected=None)

    database = sqlite3.connect(path)
    rows = database.execute("SELECT key, version, blob FROM goaitools_state").fetchall()
    database.close()

    assert rows == [("ada", 1, EVERY_BYTE)]


def test_a_closed_store_says_so() -> None:
    """After close, load and save raise the store's error, with SQLite's as its cause."""
    store = SQLiteStore(":memory:")
    store.close()

    with pytest.raises(StoreUnavailableError) as loading:
        store.load("ada")
    with pytest.raises(StoreUnavailableError):
        store.save("ada", b"blob", expected=None)

    assert isinstance(loading.value.__cause__, sqlite3.Error)


def test_closing_twice_is_fine() -> None:
    """A second close does nothing."""
    store = SQLiteStore(":memory:")
    store.close()

    store.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """Opening anything else than a database raises the store's error, and leaves the file alone."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"no database\n" * 100)

    with pytest.raises(StoreUnavailableError, match="not a database"):
        SQLiteStore(path)

    assert path.read_bytes() == b"no database\n" * 100


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    """A page that was overwritten raises the store's error instead of giving other bytes."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store:
        store.save("ada", b"blob" * 5_000, expected=None)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * 4096 + content[8192:])

    with pytest.raises(StoreUnavailableError), SQLiteStore(path) as store:
        store.load("ada")


def test_a_folder_that_is_missing_is_reported(tmp_path: Path) -> None:
    """A path that cannot be opened raises the store's error."""
    with pytest.raises(StoreUnavailableError):
        SQLiteStore(tmp_path / "missing" / "states.sqlite3")


def test_a_lock_that_does_not_end_is_reported(tmp_path: Path) -> None:
    """A writer that never finishes costs `busy_timeout` seconds, then the store's error."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path, busy_timeout=0.0) as store:
        store.save("ada", b"blob", expected=None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailableError, match="locked"):
            store.save("ada", b"more", expected=1)

        other.close()
        assert store.save("ada", b"more", expected=1) == 2
