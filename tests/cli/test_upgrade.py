"""`goaitools upgrade`: files, folders, stores and columns, in the newest format and with the newest key."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit
from goaitools_py.cli import main
from goaitools_py.cli.text_output import Progress
from goaitools_py.cli.upgrading import StateFiles, StoreRows
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state.blob_header import peek
from goaitools_py.states import (
    load_state,
    read_history,
    save_state,
    state_from_text,
    state_to_text,
    verify_state,
)
from goaitools_py.stores import MemoryStore, SQLiteStore
from goaitools_py.testing import ScriptedBackend

from ..state._old_states import Uncompressed
from ..stores._places import opened, place_of

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = Key(b"o" * 32), Key(b"n" * 32)
KEYS = ["--key-env", "NEW_KEY", "--key-env", "OLD_KEY"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOAITOOLS_STORE", raising=False)
    monkeypatch.setenv("OLD_KEY", OLD.to_text())
    monkeypatch.setenv("NEW_KEY", NEW.to_text())


def talk(*said: str, **options: Any) -> bytes:
    said = said or ("Hello.",)
    with Chat(ScriptedBackend(*("Yes." for _ in said)), **options) as chat:
        return bytes(chat.run_turns(None, list(said)).state)


def old(**options: Any) -> bytes:
    return talk(codec=Uncompressed(), **options)


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {name: value for name, value in found.items() if value}


# ------------------------------------------------------------------------------------------- files


def test_a_folder_is_upgraded_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """States in bytes and as text, in folders below; what is no state stays, and so does what is new."""
    (tmp_path / "below").mkdir()
    for name in ("a", "below/b"):
        save_state(old(), tmp_path / name)
    (tmp_path / "c.txt").write_text(state_to_text(old()) + "\n")
    (tmp_path / "notes").write_text("hello")
    save_state(new := talk(), tmp_path / "d")

    assert main(["upgrade", str(tmp_path), "--dry-run", "--json"]) == 0
    assert report(capsys) == {"upgraded": 3, "current": 1, "no_state": 1, "dry_run": True}
    assert peek(load_state(tmp_path / "a")).compression == 0
    assert main(["upgrade", str(tmp_path), "--json"]) == 0
    assert report(capsys) == {"upgraded": 3, "current": 1, "no_state": 1}
    assert main(["upgrade", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "  0 states      written anew",
        "  4 states      new already",
        "  1 file        not a state, left alone",
    ]

    assert {peek(load_state(tmp_path / name)).compression for name in ("a", "below/b")} == {2}
    assert peek(state_from_text((tmp_path / "c.txt").read_text().strip())).compression == 2
    assert (tmp_path / "notes").read_text() == "hello"
    assert load_state(tmp_path / "d") == new
    assert sorted(os.listdir(tmp_path)) == ["a", "below", "c.txt", "d", "notes"]


def test_states_are_sealed_with_the_newest_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--key-env twice: the first seals, all open. A state of a third key is named, and left as it is."""
    third = talk(codec=Signed(Keyring(Key.generate())), binding={"user": "1"})
    for name, codec in (("a", Signed(Keyring(OLD))), ("b", Encrypted(Keyring(OLD), visible_to="client"))):
        save_state(talk(codec=codec, binding={"user": "1"}), tmp_path / name)
    save_state(third, tmp_path / "c")

    assert main(["upgrade", str(tmp_path), *KEYS, "--binding", "user=1", "--json"]) == 1

    found = report(capsys)
    assert found == {"upgraded": 2, "refused": 1, "names": {"refused": [str(tmp_path / "c")]}}
    ring = Keyring(NEW)
    read_history(load_state(tmp_path / "a"), codec=Signed(ring), binding={"user": "1"})
    b = load_state(tmp_path / "b")
    read_history(b, codec=Encrypted(ring, visible_to="client"), binding={"user": "1"})
    assert peek(b).compression == 0
    assert load_state(tmp_path / "c") == third


def test_states_that_cannot_be_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damaged, newer, not readable: each in its line, and the others are upgraded."""
    damaged = bytearray(old())
    damaged[-1] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    (tmp_path / "newer").write_bytes(b"\xf5GAS\x09" + bytes(11))
    save_state(old(), tmp_path / "old")

    assert main(["upgrade", str(tmp_path), "--json"]) == 1

    found = report(capsys)
    assert (found["upgraded"], found["unreadable"], found["newer"]) == (1, 1, 1)
    assert found["names"]["newer"] == [str(tmp_path / "newer")]
    assert (tmp_path / "damaged").read_bytes() == damaged


def test_a_file_that_changes_meanwhile_is_left(tmp_path: Path) -> None:
    """The program that writes it has a newer state."""
    save_state(old(), tmp_path / "a")
    newer = old(system="Later.")

    def new_of(blob: bytes, name: str) -> bytes:
        save_state(newer, name)
        return talk()

    assert StateFiles(str(tmp_path)).upgrade(str(tmp_path / "a"), new_of, dry=False) == "busy"
    assert load_state(tmp_path / "a") == newer


# ------------------------------------------------------------------------------------------- stores


@pytest.fixture(params=["sqlite", "sqlalchemy-sqlite", "postgresql", "mariadb", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store of each engine, by its URL."""
    with place_of(request.param, tmp_path) as found:
        yield found


def test_a_store_is_upgraded_while_it_is_used(place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Archives beside the blobs get the new key too; facts and conversations stay; a held row is left out."""
    binding = {"user": "ada"}
    chat = Chat(ScriptedBackend(*["Yes."] * 9), codec=Encrypted(Keyring(OLD)), binding=binding)
    with opened(place) as store:
        conversation = chat.conversation(store, "ada", parts="store")
        for text in ("One.", "Two.", "Three."):
            conversation.send(text)
        conversation.compact(Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True))
        before, listed = conversation.history(), [one.facts for one in store.list().keys]
        url = [*_url(place), *KEYS, "--binding", "user=ada", "--json"]

        with store.lease("ada", 30.0):
            assert main(["upgrade", *url]) == 1
            assert report(capsys) == {"busy": 1, "names": {"busy": ["ada"]}}
        assert main(["upgrade", *url]) == 0
        assert report(capsys) == {"upgraded": 1}
        assert main(["upgrade", *url]) == 0
        assert report(capsys) == {"current": 1}

        assert [one.facts for one in store.list().keys] == listed
        with Chat(ScriptedBackend("Yes."), codec=Encrypted(Keyring(NEW)), binding=binding) as newer:
            again = newer.conversation(store, "ada", parts="store")
            assert again.history() == before
            assert verify_state(again.state() or b"", codec=newer._codec, binding=binding) == ()
            again.undo_cut()
            assert [turn.messages[0].said for turn in again.history().turns] == ["One.", "Two.", "Three."]
            again.send("Four.")
    chat.close()


def _url(place: Any) -> list[str]:
    url, _, prefix = place.url.partition("#")
    return ["--store", url, *(["--table", prefix] if prefix else [])]


def test_many_conversations_with_owners_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """{key} in --binding; --prefix chooses; a run that was stopped goes on with the rest."""
    path = tmp_path / "many.db"
    codec = Encrypted(Keyring(OLD))
    with SQLiteStore(path) as store, Chat(ScriptedBackend(*["Yes."] * 30), codec=codec) as chat:
        for number in range(25):
            key = f"{'ab'[number % 2]}{number}"
            chat.conversation(store, key, binding={"user": key}).send("Hello.")
    given = ["upgrade", "--store", str(path), *KEYS, "--binding", "user={key}", "--json"]
    assert main([*given, "--prefix", "b"]) == 0
    assert report(capsys) == {"upgraded": 12}

    real, done = StoreRows.upgrade, []

    def stops(self: Any, name: str, *args: Any, **how: Any) -> Any:
        done.append(name)
        if len(done) == 10:
            raise KeyboardInterrupt
        return real(self, name, *args, **how)

    with monkeypatch.context() as stopped:
        stopped.setattr(StoreRows, "upgrade", stops)
        assert main(given) == 130
    found = report(capsys)
    assert found["stopped"] is True
    assert found["upgraded"] + found.get("current", 0) == 9
    assert main(given) == 0
    assert report(capsys) == {"upgraded": 13 - found["upgraded"], "current": 12 + found["upgraded"]}


def test_a_save_of_another_worker_is_never_lost() -> None:
    """It comes between load and save: the row is read anew, and upgraded with what the worker saved."""
    store = MemoryStore()
    with Chat(ScriptedBackend("Yes.", "Yes.", "Yes."), codec=Uncompressed()) as chat:
        conversation = chat.conversation(store, "ada")
        conversation.send("One.")
        times = []

        def new_of(blob: bytes, name: str) -> bytes:
            if not times:
                conversation.send("Two.")
            times.append(name)
            return upgrade_of(blob)

        assert StoreRows(store, lambda blob, key: {}, "").upgrade("ada", new_of, dry=False) == "upgraded"

    found = store.load("ada")
    assert found is not None
    assert (len(times), peek(found.blob).compression) == (2, 2)
    assert [turn.messages[0].said for turn in read_history(found.blob).turns] == ["One.", "Two."]


def upgrade_of(blob: bytes) -> bytes:
    from goaitools_py.states import upgrade_state

    return upgrade_state(blob)


class _NoLease:
    """A store of one's own with load, save and list only."""

    def __init__(self, inner: Any) -> None:
        self.load, self.save, self.list = inner.load, inner.save, inner.list


def test_a_running_turn_goes_on_over_an_upgrade() -> None:
    """Where there is no lease: its save finds the upgraded row, and is put behind it."""
    store = _NoLease(MemoryStore())
    rows = StoreRows(store, lambda blob, key: {}, "")

    def upgrades(*_: Any) -> str:
        assert rows.upgrade("ada", lambda blob, key: upgrade_of(blob), dry=False) == "upgraded"
        return "Yes."

    with Chat(ScriptedBackend("Yes.", upgrades), codec=Uncompressed()) as chat:
        conversation = chat.conversation(store, "ada")  # type: ignore[arg-type]
        conversation.send("One.")
        result = conversation.send("Two.")
        assert result.text == "Yes."
        assert [turn.messages[0].said for turn in conversation.history().turns] == ["One.", "Two."]


def test_the_title_of_a_sealed_state_stays_in_its_column(tmp_path: Path) -> None:
    """If the application wrote it there; and stays out if it did not."""
    codec = Signed(Keyring(OLD))
    path = tmp_path / "titles.db"
    with SQLiteStore(path) as store, Chat(ScriptedBackend(), codec=codec, binding={"user": "1"}) as chat:
        chat.conversation(store, "shown", plain_title=True).update(title="A game")
        chat.conversation(store, "hidden").update(title="A secret")
        assert main(["upgrade", "--store", str(path), *KEYS, "--binding", "user=1"]) == 0
        titles = {one.key: one.facts.title for one in store.list().keys if one.facts}
    assert titles == {"shown": "A game", "hidden": ""}


# ------------------------------------------------------------------------------------------- columns


def test_a_column_of_a_table_is_upgraded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a state, and with something else, stay; a newer save stays."""
    import sqlite3
    from contextlib import closing

    path = tmp_path / "app.db"
    blobs = {number: old() for number in range(3)}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE "player" (id INTEGER PRIMARY KEY, name TEXT, "chat state" BLOB)')
        text = state_to_text(old())
        rows = [*blobs.items(), (5, text), (6, "words"), (7, None), (8, b"other"), (9, talk())]
        connection.executemany('INSERT INTO player (id, "chat state") VALUES (?, ?)', rows)
    given = [
        "upgrade",
        "--store",
        str(path),
        "--table",
        "player",
        "--column",
        "chat state",
        "--key-column",
        "id",
    ]

    assert main([*given, "--json"]) == 0
    assert report(capsys) == {"upgraded": 4, "current": 1, "no_state": 2}
    assert main([*given, "--json"]) == 0
    assert report(capsys) == {"current": 5, "no_state": 2}

    with closing(sqlite3.connect(path)) as connection:
        found = dict(connection.execute('SELECT id, "chat state" FROM player'))
    assert found[7] is None
    assert found[8] == b"other"
    assert peek(state_from_text(found[5])).compression == 2
    assert {peek(found[number]).compression for number in range(3)} == {2}
    assert read_history(found[0]) == read_history(blobs[0])


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlalchemy-sqlite"])
def test_a_newer_save_in_a_column_stays(kind: str, tmp_path: Path) -> None:
    """The update names the old bytes."""
    import sqlalchemy

    from goaitools_py.cli.upgrading import TableColumn

    with place_of(kind, tmp_path) as found:
        engine = sqlalchemy.create_engine(found.url, poolclass=sqlalchemy.NullPool)
        table = sqlalchemy.Table(
            "player",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("id", sqlalchemy.String(20), primary_key=True),
            sqlalchemy.Column("state", sqlalchemy.LargeBinary(2**20)),
        )
        table.create(engine)
        first, newer = old(), old(system="Later.")
        with engine.begin() as connection:
            connection.execute(table.insert(), [{"id": "ada", "state": first}, {"id": "eve", "state": first}])
        column = TableColumn(found.url, "player", "state", "id")
        seen: list[bytes] = []

        def new_of(blob: bytes, name: str) -> bytes:
            seen.append(blob)
            if blob == first:
                with engine.begin() as connection:
                    connection.execute(table.update().where(table.c.id == name).values(state=newer))
            return upgrade_of(blob)

        assert (column.count(), list(column.names())) == (2, ["ada", "eve"])
        assert column.upgrade("ada", new_of, dry=False) == "upgraded"
        column.close()
        with engine.connect() as connection:
            stored = dict(connection.execute(sqlalchemy.select(table)).all())  # type: ignore[arg-type]
        table.drop(engine)
    assert seen == [first, newer]
    assert bytes(stored["ada"]) == upgrade_of(newer)
    assert bytes(stored["eve"]) == first


# ------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "name what to upgrade"),
        (["a", "--store", "b"], "not both"),
        (["--store", "b", "--column", "c"], "--column needs more"),
        (["--store", "b", "--key-column", "c"], "--key-column goes with --column"),
        (["a", "--key-env", "NO_SUCH"], "NO_SUCH"),
    ],
)
def test_wrong_options_say_what_to_name(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    assert main(["upgrade", *given]) == 2
    assert words in capsys.readouterr().err


def test_a_place_that_is_not_there_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path, a store, a table."""
    assert main(["upgrade", str(tmp_path / "none"), "--json"]) == 1
    assert report(capsys)["failed"] == 1
    assert main(["upgrade", "--store", str(tmp_path / "none.db")]) == 1
    assert "there is no store" in capsys.readouterr().err
    (tmp_path / "empty.db").write_bytes(b"")
    given = ["--store", str(tmp_path / "empty.db"), "--table", "t", "--column", "c", "--key-column", "k"]
    assert main(["upgrade", *given]) == 1
    assert "the database refused: OperationalError" in capsys.readouterr().err


def test_a_database_that_is_named_as_a_file_is_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that nothing was left to do, and exit code 0, while each state in it stayed as it was."""
    path = tmp_path / "chat.db"
    with SQLiteStore(path) as store, Chat(ScriptedBackend("Yes.")) as chat:
        chat.conversation(store, "ada").send("Hello.")

    assert main(["upgrade", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"goaitools: {path} is a database of SQLite, not a state; name it with --store {path}\n"
    )


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_is_for_terminals() -> None:
    """It fits 80 columns, ends full, and leaves nothing behind; a pipe gets none of it."""
    terminal, pipe = _Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with Progress(3, stream) as progress:
            for _ in range(3):
                progress.step("x" * 100)
    drawn = terminal.getvalue().split("\r")
    assert all(len(line) <= 79 for line in drawn)
    assert any("100%  3 of 3" in line for line in drawn)
    assert drawn[-2].strip() == ""
    assert pipe.getvalue() == ""


def test_the_real_command(tmp_path: Path) -> None:
    """As a process, with the key from the environment; standard error of a pipe is empty."""
    save_state(talk(codec=Signed(Keyring(OLD)), binding={"user": "1"}), tmp_path / "a")
    ran = subprocess.run(
        [sys.executable, "-m", "goaitools_py", "upgrade", str(tmp_path), *KEYS, "--binding", "user=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("  1 state       written anew")
    assert peek(load_state(tmp_path / "a")).key_id == NEW.id
