"""`goaitools redact`: on files, pipes and stores, without a word of the content."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat
from goaitools_py.cli import main
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.states import (
    load_state,
    read_history,
    save_state,
    state_from_text,
    state_to_text,
    update_state,
)
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import ScriptedBackend

from ..history._planted import traces

SECRET = "hunter2-ZQ9"
KEY = Key(b"k" * 32)


def talk(**options: Any) -> bytes:
    with Chat(ScriptedBackend("Yes.", f"It is {SECRET}."), **options) as chat:
        return chat.run_turns(None, [f"I am {SECRET}.", "And now?"]).state


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ada.state"
    save_state(update_state(talk(), title=SECRET), path)
    return path


def texts(blob: bytes, **opened: Any) -> list[str]:
    return [one.text for one in read_history(blob, **opened).all_messages()]


def test_a_file_is_redacted_in_place(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report says where and how often, and quotes nothing."""
    assert main(["redact", str(file), SECRET]) == 0

    assert texts(load_state(file)) == ["I am [redacted].", "Yes.", "And now?", "It is [redacted]."]
    assert traces(load_state(file), SECRET) == 0
    printed = capsys.readouterr().out
    assert "history turn 1 (1), history turn 2 (1), facts (1)" in printed
    assert SECRET not in printed
    before = file.read_bytes()
    assert main(["redact", str(file), SECRET]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert file.read_bytes() == before


def test_options(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A regular expression, a replacement, a new file, JSON; the old file stays."""
    out, old = tmp_path / "new.state", file.read_bytes()

    code = main(
        ["redact", str(file), r"hunter\d-\w+", "--regex", "--with", "(gone)", "--out", str(out), "--json"]
    )

    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (report["to"], report["count"], report["kept"]) == (str(out), 3, 0)
    assert report["places"][0] == {"where": "history", "turn": 1, "count": 1}
    assert texts(load_state(out))[0] == "I am (gone)."
    assert file.read_bytes() == old


@pytest.mark.parametrize(
    "order",
    [
        ["{file}", "--regex", r"hunter\d-\w+"],
        ["--regex", "{file}", "--dry-run", "--with", "(gone)", r"hunter\d-\w+", "--json"],
        ["{file}", r"hunter\d-\w+", "--regex", "--with", "(gone)"],
    ],
)
def test_options_may_stand_anywhere(order: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, between and behind STATE and MATCH."""
    assert main(["redact", *(word.replace("{file}", str(file)) for word in order)]) == 0
    assert "3" in capsys.readouterr().out


def test_one_word_is_the_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a store the state has no name of its own; a third word is wrong usage."""
    with SQLiteStore(tmp_path / "chat.db") as store:
        store.save("default", talk(), expected=None)

    assert main(["redact", "--store", str(tmp_path / "chat.db"), SECRET, "--dry-run"]) == 0
    assert main(["redact", "a", "b", "c"]) == 2
    assert main(["redact", "--regex"]) == 2


def test_the_text_can_come_from_a_file(file: Path, tmp_path: Path) -> None:
    """So that no list of processes shows it. A dry run changes nothing."""
    (tmp_path / "match").write_text(f"{SECRET}\n")
    old = file.read_bytes()

    assert main(["redact", str(file), str(tmp_path / "match"), "--match-file", "--dry-run"]) == 0
    assert file.read_bytes() == old
    assert main(["redact", str(file), str(tmp_path / "match"), "--match-file"]) == 0
    assert traces(load_state(file), SECRET) == 0


def test_a_pipe(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The text form goes in and comes out; the report is on standard error."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(state_to_text(talk()).encode())))

    assert main(["redact", "-", SECRET]) == 0

    out, err = capfdbinary.readouterr()
    assert traces(state_from_text(out.decode().strip()), SECRET) == 0
    assert b"count" in err


def test_a_sealed_row_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is saved with its key. Rows of unreadable bytes are counted: they are not redacted."""
    codec, owner = Encrypted(Keyring(KEY)), {"user": "ada"}
    with SQLiteStore(str(tmp_path / "a.db")) as store:
        store.save("ada", talk(codec=codec, binding=owner), expected=None)
        store.save(f"ada.unreadable.{'0' * 24}", b"damaged", expected=None)
        monkeypatch.setenv("STATE_KEY", KEY.to_text())
        sealed = ["--key-env", "STATE_KEY", "--binding", "user=ada"]

        code = main(["redact", "--store", str(tmp_path / "a.db"), "--key", "ada", *sealed, "--json", SECRET])

        found = store.load("ada")
    assert code == 0
    assert json.loads(capsys.readouterr().out)["set_aside"] == 1
    assert found is not None
    assert texts(found.blob, codec=codec, binding=owner)[0] == "I am [redacted]."
    assert traces(found.blob, SECRET, codec, owner) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["(hunter2", "--regex"], "not a regular expression"),
        (["a", "--with", "bab"], "--with"),
        (["a", "--with", " "], "--with"),
        ([""], "must not be empty"),
    ],
)
def test_wrong_usage_quotes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    """The exit code is 2, and the state is as it was."""
    old = file.read_bytes()

    assert main(["redact", str(file), *given]) == 2

    printed = capsys.readouterr().err
    assert said in printed
    assert "hunter2" not in printed.splitlines()[-1]
    assert file.read_bytes() == old
