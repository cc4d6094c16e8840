"""`goaitools export`, `import`, `diff`, `rewind`, `fork` and `cost`: on files, pipes and stores."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import UNBOUND, Chat, Compactor, KeepRecentTurns, TurnLimit
from goaitools_py.cli import main
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.states import (
    diff_states,
    export_state,
    inspect_state,
    load_state,
    read_history,
    rewind_state,
    save_state,
    state_from_text,
    state_to_text,
    to_markdown,
    update_state,
    verify_state,
)
from goaitools_py.stores import SQLAlchemyStore, SQLiteStore
from goaitools_py.testing import ScriptedBackend

ROOT = Path(__file__).resolve().parents[2]
KEY = Key(b"k" * 32)
SECRET = "Harrogate-4711"


def talk(*said: str, **options: Any) -> bytes:
    with Chat(ScriptedBackend(*("Yes." for _ in said)), **options) as chat:
        return bytes(chat.run_turns(None, list(said)).state)


@pytest.fixture
def blob() -> bytes:
    """Three turns."""
    return talk("I am Ada.", f"My ticket is {SECRET}.", "And now?")


@pytest.fixture
def file(blob: bytes, tmp_path: Path) -> Path:
    """The state in a file."""
    save_state(blob, tmp_path / "ada.state")
    return tmp_path / "ada.state"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the conversations "ada" and "eve"."""
    path = tmp_path / "chat.db"
    with SQLiteStore(path) as store:
        for key in ("ada", "eve"):
            with Chat(ScriptedBackend("Yes.", "Yes.")) as chat:
                conversation = chat.conversation(store, key)
                conversation.send("Hello.")
                conversation.send(f"I am {key}.")
    monkeypatch.delenv("GOAITOOLS_STORE", raising=False)
    return path


def stored(path: Path, key: str) -> bytes:
    with SQLiteStore(path) as store:
        found = store.load(key)
    assert found is not None
    return found.blob


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# --------------------------------------------------------------------------------------- export, import


def test_an_export_comes_back_byte_for_byte(
    file: Path, blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through a file that only its owner may read; the report names both places and no content."""
    exported, new = tmp_path / "ada.json", tmp_path / "new.state"

    assert main(["export", str(file), "-o", str(exported), "--json"]) == 0
    assert facts(capsys) == {"exported": str(file), "to": str(exported), "bytes": exported.stat().st_size}
    assert main(["import", str(exported), "--out", str(new)]) == 0

    assert load_state(new) == blob
    assert json.loads(exported.read_text()) == export_state(blob)
    if os.name == "posix":
        assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    out = capsys.readouterr().out
    assert "an export" in out
    assert SECRET not in out


def test_an_export_goes_to_standard_output_and_comes_from_standard_input(
    blob: bytes, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets the JSON, or the state, and nothing else."""
    piped(monkeypatch, state_to_text(blob).encode() + b"\n")
    assert main(["export", "-"]) == 0
    out, err = capsysbinary.readouterr()
    assert (json.loads(out), err) == (export_state(blob), b"")

    piped(monkeypatch, out)
    assert main(["import", "-", "-o", "-"]) == 0
    out, err = capsysbinary.readouterr()
    assert out == blob
    assert b"standard output" in err


def test_an_export_can_be_a_document(file: Path, blob: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """--markdown writes what `to_markdown` gives."""
    assert main(["export", str(file), "--markdown"]) == 0
    assert capsys.readouterr().out == to_markdown(blob)
    assert main(["export", str(file), "--archived"]) == 2
    assert "--archived goes with --markdown" in capsys.readouterr().err


def test_an_export_of_a_store_has_the_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the store keeps it beside the blob, and an import puts it into the new row."""
    path = tmp_path / "parts.db"
    with SQLiteStore(path) as store, Chat(ScriptedBackend(*["Yes."] * 5)) as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        for text in ("One.", "Two.", "Three.", "Four."):
            conversation.send(text)
        conversation.compact(Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True))
        whole = conversation.state()
        assert whole is not None
        assert len(store.load("ada").blob) < len(whole)  # type: ignore[union-attr]

    assert main(["export", "--store", str(path), "--key", "ada", "-o", str(tmp_path / "a.json")]) == 0
    assert main(["import", str(tmp_path / "a.json"), "--store", str(path), "--key", "new"]) == 0

    said = [turn.messages[0].said for turn in read_history(stored(path, "new"), archived=True).turns]
    assert said == ["One.", "Two.", "Three.", "Four."]
    verify_state(stored(path, "new"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_states_of_the_go_library_are_imported(
    pack: Any, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gzipped or not; the new key in a store is the conversation's id."""
    go = {
        "version": 1,
        "provider": "openai",
        "processed_length": 2,
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Bye"},
        ],
    }
    path = tmp_path / "go.state"
    path.write_bytes(pack(json.dumps(go).encode()))

    assert main(["import", str(path), "--store", f"sqlite:///{database}", "--key", "go", "--json"]) == 0

    found = facts(capsys)
    assert (found["imported"], found["turns"]) == ("a state of the Go library", 1)
    info = inspect_state(stored(database, "go"))
    assert (info.conversation_id, info.waiting_messages) == ("go", 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "found other JSON, expected what `goaitools export` writes, or a state of the Go"),
        (b"nonsense", "found no JSON, expected what `goaitools export` writes"),
        (b'{"messages": 3}', "expected a JSON object with 'version' and 'messages'"),
        (b"\x1f\x8bnonsense", "the gzip data are damaged"),
        (b'{"format": "other"}', "its format is not 'goaitools-state'"),
        (b'{"format": "goaitools-state", "version": 9}', "use a newer release"),
        (b"gas1.AAAA", "this is a state already; an import takes the JSON of an export"),
        (b"[" * 100_000, "found no JSON"),
    ],
)
def test_what_cannot_be_imported_says_why(
    data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, with the file's name; no file is made."""
    path = tmp_path / "bad.json"
    path.write_bytes(data)

    assert main(["import", str(path), "-o", str(tmp_path / "new")]) == 1

    err = capsys.readouterr().err
    assert err.startswith(f"goaitools: {path}: ")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_an_import_replaces_nothing(
    file: Path, blob: bytes, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a file nor a conversation."""
    exported = tmp_path / "x.json"
    exported.write_text(json.dumps(export_state(blob)))
    before = stored(database, "ada")

    assert main(["import", str(exported), "-o", str(file)]) == 1
    assert "is there already; name a new file" in capsys.readouterr().err
    assert main(["import", str(exported), "--store", str(database), "--key", "ada"]) == 1
    assert "there is a conversation 'ada'" in capsys.readouterr().err

    assert stored(database, "ada") == before


@pytest.mark.parametrize("seal", ["signed", "encrypted", "client"])
def test_an_import_seals(
    seal: str, file: Path, blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--seal with the key of a variable; an export opens it again with the same options."""
    monkeypatch.setenv("STATE_KEY", KEY.to_text())
    exported, new = tmp_path / "x.json", tmp_path / "new"
    exported.write_text(json.dumps(export_state(blob)))
    key = ["--key-env", "STATE_KEY", "--binding", "user=ada"]

    assert main(["import", str(exported), "-o", str(new), "--seal", seal, *key]) == 0
    assert main(["export", str(new), "-o", str(tmp_path / "y.json"), *key]) == 0

    again = json.loads((tmp_path / "y.json").read_text())
    assert again == export_state(blob)
    ring = Keyring(KEY)
    codec: Any = Signed(ring) if seal == "signed" else Encrypted(ring)
    assert read_history(load_state(new), codec=codec, binding={"user": "ada"}) == read_history(blob)


# ----------------------------------------------------------------------------------------- diff


def test_a_diff_names_turns_and_facts(
    file: Path, blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report has the numbers of `diff_states`; content only with --show."""
    older = update_state(rewind_state(blob, 2), title=SECRET)
    save_state(older, tmp_path / "old")

    assert main(["diff", str(tmp_path / "old"), str(file)]) == 0
    out = capsys.readouterr().out
    assert "  added            turns 2-3\n" in out
    assert "  title            differs\n" in out
    assert SECRET not in out
    assert main(["diff", str(tmp_path / "old"), str(file), "--json", "--show", "--exit-code"]) == 1
    assert facts(capsys) == json.loads(json.dumps(diff_states(older, blob).to_dict()))
    assert main(["diff", str(tmp_path / "old"), str(file), "--json"]) == 0
    assert facts(capsys)["facts"]["title"] is None


def test_a_diff_of_equal_states_is_empty(
    file: Path, database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files against standard input, and keys of a store, one of which is no file."""
    piped(monkeypatch, file.read_bytes())
    assert main(["diff", str(file), "-", "--exit-code"]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["diff", "ada", "eve", "--store", str(database)]) == 0
    assert "first            turn 2 is the first that differs" in capsys.readouterr().out
    assert main(["diff", "ada", "nobody", "--store", str(database)]) == 1
    assert "there is no conversation 'nobody'" in capsys.readouterr().err
    assert main(["diff", "-", "-"]) == 2


def test_a_diff_of_sealed_states_of_two_owners(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """{key} in --binding is the key of each."""
    monkeypatch.setenv("STATE_KEY", KEY.to_text())
    with SQLiteStore(database) as store:
        for key, codec in (("a", Signed(Keyring(KEY))), ("b", Encrypted(Keyring(KEY)))):
            with Chat(ScriptedBackend("Yes."), codec=codec, binding={"user": key}) as chat:
                chat.conversation(store, key).send("Hello.")
    key = ["--key-env", "STATE_KEY", "--binding", "user={key}"]

    assert main(["diff", "a", "b", "--store", str(database), *key]) == 0
    assert "conversation id  a → b" in capsys.readouterr().out
    assert main(["diff", "a", "b", "--store", str(database), *key[:2], "--binding", "user=a"]) == 1
    assert "'b' in" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------- rewind, fork


def test_a_rewind_takes_turns_out(file: Path, blob: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """In place, in one step; --dry-run changes nothing."""
    assert main(["rewind", str(file), "--turns", "2", "--dry-run"]) == 0
    assert load_state(file) == blob
    assert "dry run" in capsys.readouterr().out

    assert main(["rewind", str(file), "--turns", "2", "--json"]) == 0

    found = facts(capsys)
    assert (found["turns_before"], found["turns"], found["to"]) == (3, 1, str(file))
    assert [turn.number for turn in read_history(load_state(file)).turns] == [1]


def test_a_rewind_keeps_the_form_of_its_file(blob: bytes, tmp_path: Path) -> None:
    """A text stays a text; --out leaves the old one alone."""
    path = tmp_path / "ada.txt"
    path.write_text(state_to_text(blob))

    assert main(["rewind", str(path), "-o", str(tmp_path / "new")]) == 0
    assert state_from_text(path.read_text()) == blob
    assert main(["rewind", str(path)]) == 0

    assert state_from_text(path.read_text().strip()) == load_state(tmp_path / "new")


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["--turns", "4"], 1, "there are 3 turns, and 4 cannot go"),
        (["--turns", "0"], 2, "it must be a positive whole number, not '0'"),
        (["--cut"], 1, "cut"),
        (["--cut", "--turns", "1"], 2, "not allowed with"),
    ],
)
def test_what_cannot_be_rewound_says_why(
    file: Path, blob: bytes, given: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file stays as it was."""
    assert main(["rewind", str(file), *given]) == code
    assert words in capsys.readouterr().err
    assert load_state(file) == blob


@pytest.mark.parametrize("command", ["inspect", "export", "rewind", "cost"])
def test_a_file_that_is_no_state_is_told_its_place(
    command: str, database: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store's file goes with --store, and an export with `goaitools import`."""
    export = tmp_path / "ada.json"
    assert main(["export", str(file), "-o", str(export)]) == 0
    capsys.readouterr()

    assert main([command, str(database)]) == 1
    assert capsys.readouterr().err == (
        f"goaitools: {database} is a database of SQLite, not a state; name it with --store {database}\n"
    )
    assert main([command, str(export)]) == 1
    assert capsys.readouterr().err == (
        f"goaitools: {export} is JSON, not a state; `goaitools import {export}` makes a state of an export\n"
    )


def test_a_cut_is_undone_in_a_store_of_parts(tmp_path: Path) -> None:
    """The archive comes out of the store, and leaves it with the cut."""
    path = tmp_path / "parts.db"
    with SQLiteStore(path) as store, Chat(ScriptedBackend(*["Yes."] * 5)) as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        for text in ("One.", "Two.", "Three."):
            conversation.send(text)
        conversation.compact(Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True))
        head = store.load_head("ada")
        assert head is not None
        assert len(head.parts) == 1

        assert main(["rewind", "--store", str(path), "--key", "ada", "--cut"]) == 0

        assert [turn.messages[0].said for turn in conversation.history().turns] == ["One.", "Two.", "Three."]
        head = store.load_head("ada")
        assert head is not None
        assert head.parts == ()
        conversation.send("Four.")


def test_a_conversation_with_a_running_turn_is_not_rewound(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The turn would lose its save."""
    before = stored(database, "ada")
    with SQLiteStore(database) as store, store.lease("ada", 30.0):
        assert main(["rewind", "--store", str(database), "--key", "ada"]) == 1
    assert "a turn runs on this conversation; try again" in capsys.readouterr().err
    assert stored(database, "ada") == before


def test_a_fork_has_an_id_of_its_own(
    file: Path, blob: bytes, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file a random one or the given one; in a store that of the new key, which goes on by itself."""
    assert main(["fork", str(file), "-o", str(tmp_path / "new"), "--id", "b"]) == 0
    assert inspect_state(load_state(tmp_path / "new")).conversation_id == "b"
    new = read_history(load_state(tmp_path / "new"))
    assert new.all_messages() == read_history(blob).all_messages()
    assert [turn.id for turn in new.turns][-1].startswith("b-")
    capsys.readouterr()
    assert main(["fork", "--store", str(database), "--key", "ada", "--to", "ada2", "--json"]) == 0
    assert facts(capsys)["conversation_id"] == "ada2"
    assert inspect_state(stored(database, "ada2")).conversation_id == "ada2"

    assert main(["fork", "--store", str(database), "--key", "ada", "--to", "eve"]) == 1
    assert "there is a conversation 'eve'" in capsys.readouterr().err
    assert main(["fork", str(file), "-o", str(file)]) == 1
    for wrong in (["fork", str(file)], ["fork", str(file), "--to", "x"]):
        assert main(wrong) == 2


def test_a_fork_belongs_to_its_new_key(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If --binding has {key}."""
    monkeypatch.setenv("STATE_KEY", KEY.to_text())
    codec = Encrypted(Keyring(KEY))
    with (
        SQLiteStore(database) as store,
        Chat(ScriptedBackend("Yes."), codec=codec, binding={"user": "a"}) as c,
    ):
        c.conversation(store, "a").send("Hello.")
    key = ["--key-env", "STATE_KEY", "--binding", "user={key}"]

    assert main(["fork", "--store", str(database), "--key", "a", "--to", "b", *key]) == 0

    inspect_state(stored(database, "b"), codec=codec, binding={"user": "b"})


# ------------------------------------------------------------------------------------------------- cost


def priced(*prices: str) -> dict[str, Any]:
    return {"prices": lambda charge: Decimal(prices[0]) if prices else None}


def test_cost_says_tokens_and_money(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The conversation's whole life, and what its history names by model."""
    blob = talk("One.", "Two.", **priced("0.25"))
    save_state(blob, tmp_path / "a")

    assert main(["cost", str(tmp_path / "a"), "--json"]) == 0
    found = facts(capsys)
    info = inspect_state(blob)
    assert found["cost_usd"] == "0.50"
    assert found["input_tokens"] == info.total_usage.input_tokens
    assert [row["model"] for row in found["models"]] == [info.model]
    assert found["models"][0]["requests"] == 2

    assert main(["cost", str(tmp_path / "a")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  cost usd         0.50" in lines
    assert max(map(len, lines)) <= 80
    assert lines[-1].split()[-1] == "unknown"  # no list has the price of the scripted model


def test_cost_of_a_store_reads_no_state(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each conversation from the plain columns, and the sum of what is known."""
    with SQLiteStore(database) as store, Chat(ScriptedBackend("Yes."), **priced("0.25")) as chat:
        chat.conversation(store, "rich" * 30).send("Hello.")
    assert main(["cost", "--all", "--store", str(database), "--json"]) == 0
    found = facts(capsys)
    assert (found["conversations"], found["cost_usd"], found["unknown_costs"]) == (3, "0.25", 2)
    assert {row["key"] for row in found["rows"]} == {"ada", "eve", "rich" * 30}
    assert found["turns"] == 5

    assert main(["cost", "--all", "--store", str(database), "--prefix", "r"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["all", "1", str(found["rows"][-1]["total_tokens"]), "0.25"]
    assert main(["cost", "--all", str(database)]) == 2
    assert main(["cost", "--all", "--store", str(database), "--prefix", "a", "--json"]) == 0
    assert facts(capsys)["cost_usd"] is None  # all are unknown, and that is not 0


# -------------------------------------------------------------------------------------------- all of them

COMMANDS: dict[str, list[str]] = {
    "export": ["-o", "{new}"],
    "rewind": [],
    "fork": ["-o", "{new}"],
    "cost": [],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"not a state", "this is not a state"),
        (b"\xf5GAS\x09" + bytes(11), "found format version 9"),
        (b"gas1.!", "this state's text is damaged"),
        (talk("Hi.", codec=Signed(Keyring(KEY)), binding=UNBOUND), "name the environment variable"),
    ],
    ids=["empty", "other", "newer", "text", "sealed"],
)
def test_a_state_that_cannot_be_read_is_one_line(
    name: str, data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, with the file's name, and no file is made or changed."""
    path = tmp_path / "a"
    path.write_bytes(data)
    given = [text.format(new=tmp_path / "new") for text in COMMANDS[name]]

    assert main([name, str(path), *given]) == 1

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"goaitools: {path}: ")
    assert words in err
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_errors_say_what_to_name(
    name: str, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 for no state, two states, a binding without a key, and a key that is none."""
    monkeypatch.delenv("GOAITOOLS_STORE", raising=False)
    monkeypatch.setenv("BAD_KEY", "nonsense")
    given = [text.format(new=file.parent / "new") for text in COMMANDS[name]]
    for wrong, words in (
        ([], "name a STATE"),
        ([str(file), "--store", "x.db"], "not both"),
        ([str(file), "--binding", "user=ada"], "--key-env NAME"),
        ([str(file), "--key-env", "NO_SUCH"], "there is no environment variable NO_SUCH"),
        ([str(file), "--key-env", "BAD_KEY"], "--key-env BAD_KEY"),
    ):
        assert main([name, *wrong, *given]) == 2
        assert words in capsys.readouterr().err
    assert main([name, "--store", str(file.parent / "no.db"), *given]) == 1
    assert "there is no store" in capsys.readouterr().err
    if given:
        assert main([name, str(file), given[0], str(file.parent / "none" / "x")]) == 1
        assert f"there is no folder {file.parent / 'none'}; make it first" in capsys.readouterr().err
    assert main([name, str(file.parent / "no.state"), *given]) == 1
    assert "No such file" in capsys.readouterr().err


def test_the_store_of_the_environment_is_taken(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GOAITOOLS_STORE, where no file is named; --thread is another name of --key."""
    monkeypatch.setenv("GOAITOOLS_STORE", str(database))
    assert main(["cost", "--thread", "eve", "--json"]) == 0
    assert facts(capsys)["conversation"] == "eve"
    assert main(["cost", "--key", "nobody"]) == 1
    assert "name one with --key: 'ada', 'eve'" in capsys.readouterr().err


def test_a_store_of_sqlalchemy_with_a_table_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--table names it; a password in a URL is not shown."""
    import sqlalchemy

    url = f"sqlite:///{tmp_path / 'own.db'}"
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with Chat(ScriptedBackend("Yes.")) as chat:
        chat.conversation(SQLAlchemyStore(engine, table="talk"), "ada").send("Hello.")

    assert main(["cost", "--store", url, "--table", "talk", "--key", "ada", "--json"]) == 0
    assert facts(capsys)["turns"] == 1
    secret = f"postgresql+psycopg://ada:{SECRET}@127.0.0.1:1/none"
    assert main(["cost", "--store", secret, "--key", "ada"]) == 1
    assert main(["cost", "--store", f"oracle://ada:{SECRET}@h/x", "--key", "ada"]) == 1
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert "oracle://h/x names no store" in err


def test_the_real_command_works_in_a_pipe(file: Path, blob: bytes, tmp_path: Path) -> None:
    """`goaitools export … | goaitools import - -o FILE`, as processes."""
    entry = [sys.executable, "-m", "goaitools_py"]
    exported = subprocess.run([*entry, "export", str(file)], cwd=ROOT, capture_output=True, timeout=60)
    assert (exported.returncode, exported.stderr) == (0, b"")
    imported = subprocess.run(
        [*entry, "import", "-", "-o", str(tmp_path / "new")],
        cwd=ROOT,
        input=exported.stdout,
        capture_output=True,
        timeout=60,
    )
    assert imported.returncode == 0, imported.stderr
    assert load_state(tmp_path / "new") == blob
