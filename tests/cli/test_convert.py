"""`goaitools convert`: on files, pipes and stores."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from goaitools_py import UNBOUND, Chat
from goaitools_py.cli import main
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.states import convert_state, inspect_state, load_state, save_state, state_from_messages
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import ScriptedBackend

KEY = Key(b"k" * 32)
SECRET = "the-thinking"


@pytest.fixture
def blob() -> bytes:
    """A conversation with a thought."""
    return state_from_messages(
        "anthropic",
        [
            {"role": "user", "content": "Hello?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": SECRET, "signature": "s"},
                    {"type": "text", "text": "Hello."},
                ],
            },
        ],
    )


@pytest.fixture
def file(blob: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "ada.state"
    save_state(blob, path)
    return path


def test_a_file_becomes_one_of_the_other_provider_api(
    file: Path, blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new file is what the function gives; the old one stays; the losses are told without content."""
    out = tmp_path / "new.state"

    assert main(["convert", str(file), "--to", "openai", "--out", str(out), "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert load_state(out) == convert_state(blob, "openai").state
    assert load_state(file) == blob
    assert (told["provider_API_before"], told["provider_API"]) == ("anthropic", "openai")
    assert told["losses"] == [{"turn": 1, "kind": "thinking", "count": 1}]
    if os.name == "posix":
        assert stat.S_IMODE(os.stat(out).st_mode) == 0o600
    assert SECRET not in json.dumps(told)


def test_without_out_the_state_is_replaced(
    file: Path, blob: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second time there is nothing to do."""
    assert main(["convert", str(file), "--to", "openai-responses"]) == 0
    once = load_state(file)
    assert "thinking 1" in capsys.readouterr().out
    assert main(["convert", str(file), "--to", "openai-responses"]) == 0

    assert once == convert_state(blob, "openai-responses").state == load_state(file)
    assert "none" in capsys.readouterr().out


def test_a_sealed_row_of_a_store(
    blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays sealed under its key, and the conversation goes on with the other provider."""
    codec = Encrypted(Keyring(KEY))
    monkeypatch.setenv("THE_KEY", KEY.to_text())
    path = tmp_path / "chat.db"
    with SQLiteStore(path) as store:
        with Chat(ScriptedBackend("Yes."), codec=codec, binding=UNBOUND) as chat:
            chat.conversation(store, "ada").send("Hello.")

        code = main(
            ["convert", "--store", str(path), "--key", "ada", "--to", "anthropic", "--key-env", "THE_KEY"]
        )

        assert code == 0
        with Chat(ScriptedBackend("No.", wire="anthropic"), codec=codec, binding=UNBOUND) as chat:
            assert chat.conversation(store, "ada").send("And now?").text == "No."
        found = store.load("ada")
    assert found is not None
    assert inspect_state(found.blob, codec=codec, binding=UNBOUND).turns == 2
    assert "anthropic" in capsys.readouterr().out


def test_what_goes_wrong_is_one_line(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An API that is not there is wrong usage; a damaged file is a problem, and stays as it is."""
    assert main(["convert", str(file), "--to", "openai-chat"]) == 2
    assert "invalid choice" in capsys.readouterr().err
    broken = tmp_path / "broken.state"
    broken.write_bytes(file.read_bytes()[:50])

    assert main(["convert", str(broken), "--to", "openai"]) == 1

    err = capsys.readouterr().err
    assert err.startswith(f"goaitools: {broken}: ")
    assert err.count("\n") == 1
    assert broken.stat().st_size == 50


def test_no_label_touches_its_value(tmp_path: Path, blob: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """The longest label of a report has room."""
    path = tmp_path / "ada.state"
    path.write_bytes(blob)

    assert main(["convert", str(path), "--to", "openai", "--out", str(tmp_path / "new.state")]) == 0

    assert re.search(r"^  provider API before +anthropic$", capsys.readouterr().out, re.MULTILINE)
