"""The SQLite store beyond the contract: one file, many processes, and what a disk can do to it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from goaitools_py import Chat, Image, StoreUnavailableError
from goaitools_py.stores import AsyncSQLiteStore, LeaseHeldError, SQLAlchemyStore, SQLiteStore
from goaitools_py.testing import ScriptedBackend

EVERY_BYTE = bytes(range(256)) * 3 + b"\x00"


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
        first = store.save("ada", b"1", expected=None)
        version = store.save("ada", b"2", expected=first)

    with SQLiteStore(tmp_path / "states.sqlite3") as store:
        stored = store.load("ada")

        assert stored is not None
        assert (stored.blob, stored.version) == (b"2", version)


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
        version = store.save("ada", EVERY_BYTE, expected=None)

    database = sqlite3.connect(path)
    rows = database.execute("SELECT key, version, blob FROM goaitools_state").fetchall()
    database.close()

    assert rows == [("ada", version, EVERY_BYTE)]


def test_a_closed_store_says_so() -> None:
    """After close, load and save raise the store's error, with SQLite's as its cause."""
    store = SQLiteStore(":memory:")
    store.close()

    with pytest.raises(StoreUnavailableError) as loading:
        store.load("ada")
    with pytest.raises(StoreUnavailableError):
        store.save("ada", b"blob", expected=None)

    assert isinstance(loading.value.sdk_error, sqlite3.Error)


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
        version = store.save("ada", b"blob", expected=None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailableError, match="locked"):
            store.save("ada", b"more", expected=version)

        other.close()
        assert store.save("ada", b"more", expected=version) == version + 1


# ---------------------------------------------------------------------------------- row ids, pages

WITHOUT_ROW_IDS = (
    "CREATE TABLE goaitools_state (key TEXT NOT NULL, version INTEGER NOT NULL, updated_at INTEGER NOT NULL,"
    " blob BLOB NOT NULL, title TEXT, status TEXT, turns INTEGER, total_tokens INTEGER,"
    " cost_nano_dollars INTEGER, stop_requested INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (key)) WITHOUT ROWID"
)


def _older_file(path: Path) -> None:
    """A file whose table of conversations was made without row ids."""
    older = sqlite3.connect(path, isolation_level=None)
    older.execute("PRAGMA journal_mode=WAL")
    older.execute(WITHOUT_ROW_IDS)
    older.close()


def _kept_in(store: Any) -> list[str]:
    """Everything that a conversation asks of its store, with a picture beside the head."""
    with Chat(ScriptedBackend("One.", "Two.", "Three.")) as chat:
        conversation = chat.conversation(store, "ada", parts="store", save="checkpoint")
        conversation.send(["Look.", Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(7_000))])
        conversation.send("Again.")
        conversation.update(title="Pictures")
        assert len(store.load_head("ada").parts) == 1
        chat.conversation(store, "ada").send("And whole.")
        assert store.load_head("ada").parts == ()
        assert [(row.key, row.title) for row in conversation.summaries("").rows] == [("ada", "Pictures")]
        conversation.fork("bob")
        assert [one.key for one in store.list().keys] == ["ada", "bob"]
        chat.conversation(store, "bob").reset()
        assert store.stop_requested("ada") is False
        return [message.text for message in conversation.history().all_messages()]


@pytest.mark.parametrize("over", ["sqlite3", "sqlalchemy"])
def test_a_file_without_row_ids_is_read_and_written(tmp_path: Path, over: str) -> None:
    """Its table stays as it is, and a conversation in it is the same as in a new file."""
    told = []
    for name in ("older", "newer"):
        path = tmp_path / f"{name}.db"
        if name == "older":
            _older_file(path)
        if over == "sqlite3":
            with SQLiteStore(path) as store:
                told.append(_kept_in(store))
        else:
            engine = sqlalchemy.create_engine(f"sqlite:///{path}")
            told.append(_kept_in(SQLAlchemyStore(engine)))
            engine.dispose()
        with closing(sqlite3.connect(path)) as database:
            made = database.execute("SELECT sql FROM sqlite_master WHERE name = 'goaitools_state'").fetchone()
        assert ("WITHOUT ROWID" in made[0]) is (name == "older")
    assert told[0] == told[1]
    assert told[0][1::2] == ["One.", "Two.", "Three."]


def test_a_head_of_a_page_costs_a_save_one_page(tmp_path: Path) -> None:
    """A save writes the page of its row. A head that almost fills a page needs no page of its own."""
    path = tmp_path / "states.sqlite3"
    pages: dict[int, int] = {}
    with SQLiteStore(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        for size in (300, 1_200, 3_800):
            key = f"head-{size}"
            version = store.save(key, bytes(size), expected=None)
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            store.save(key, b"\x01" * size, expected=version)
            (page,) = other.execute("PRAGMA page_size").fetchone()
            log = Path(f"{path}-wal").stat().st_size - 32  # its header; then frames of 24 bytes and a page
            pages[size] = log // (page + 24)

    assert pages == dict.fromkeys(pages, 1)


# ------------------------------------------------------------------------- settings, leases, async


def test_the_file_is_in_wal_mode_and_synced_at_each_save(tmp_path: Path) -> None:
    """WAL with synchronous=FULL: readers go on, and a save that was answered survives a power cut."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store:
        store.save("ada", b"blob", expected=None)

        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_lease_holds_between_stores_on_one_file(tmp_path: Path) -> None:
    """A lease is a row, so that it holds against other processes, and ends with its block."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store, SQLiteStore(path) as other:
        with store.lease("ada", 60.0), pytest.raises(LeaseHeldError), other.lease("ada", 60.0):
            raise AssertionError("two have it")
        with other.lease("ada", 60.0):
            pass

        rows = store._connection.execute("SELECT * FROM goaitools_state_lease").fetchall()

    assert rows == []


def test_a_lease_whose_store_was_closed_does_not_hide_the_result(tmp_path: Path) -> None:
    """Releasing fails quietly: the lease ends by itself, and what happened in its block matters more."""
    store = SQLiteStore(tmp_path / "states.sqlite3")

    with store.lease("ada", 60.0):
        store.close()


async def _in_use(path: Path) -> None:
    async with AsyncSQLiteStore(path) as store:
        version = await store.save("ada", b"blob", expected=None)
        loaded = await store.load("ada")
        assert loaded is not None
        assert loaded.version == version


def test_an_async_store_may_be_used_by_several_loops(tmp_path: Path) -> None:
    """It belongs to no event loop: its calls run on a thread of its own."""
    before = set(threading.enumerate())
    store = AsyncSQLiteStore(tmp_path / "states.sqlite3")

    version = asyncio.run(store.save("ada", b"blob", expected=None))
    assert asyncio.run(store.save("ada", b"more", expected=version)) == version + 1

    asyncio.run(store.aclose())
    for thread in set(threading.enumerate()) - before:  # it ends by itself, and nobody waits for that
        thread.join(60.0)
    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name.startswith("goaitools-sqlite")] == []


def test_an_async_store_opens_its_file_at_the_first_call(tmp_path: Path) -> None:
    """Making one does no I/O on the event loop; what is wrong with the file is told by the first call."""
    store = AsyncSQLiteStore(tmp_path / "missing" / "states.sqlite3")

    with pytest.raises(StoreUnavailableError):
        asyncio.run(store.load("ada"))

    asyncio.run(store.aclose())


def test_a_closed_async_store_says_so(tmp_path: Path) -> None:
    """After aclose, which may be called twice, every call raises the store's error."""

    async def close_and_load() -> None:
        store = AsyncSQLiteStore(tmp_path / "states.sqlite3")
        await store.load("ada")
        await store.aclose()
        await store.aclose()
        await store.load("ada")

    with pytest.raises(StoreUnavailableError, match="closed"):
        asyncio.run(close_and_load())


def test_an_async_store_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    """While a save waits for another writer, the event loop goes on."""
    path = tmp_path / "states.sqlite3"
    asyncio.run(_in_use(path))

    async def save_and_tick() -> int:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with AsyncSQLiteStore(path) as store:
            saving = asyncio.create_task(store.save("bob", b"blob", expected=None))
            ticks = 0
            while not saving.done() and ticks < 5:
                await asyncio.sleep(0.001)
                ticks += 1
            other.close()
            await saving
        return ticks

    assert asyncio.run(save_and_tick()) == 5
