"""`goaitools upgrade --parts`: the parts of conversations go beside their rows, and back into them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, Image, KeepRecentTurns, TurnLimit
from goaitools_py.cli import main
from goaitools_py.cli.upgrading import StoreRows
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.state.blob_header import peek
from goaitools_py.states import upgrade_state, verify_state
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend

from ..kept.conftest import check_listed
from ..stores._places import Place, opened, place_of

OLD, NEW = Key(b"o" * 32), Key(b"n" * 32)
KEYS = ["--key-env", "NEW_KEY", "--key-env", "OLD_KEY", "--binding", "user=1"]
SEALED: dict[str, Any] = {"codec": Encrypted(Keyring(NEW, OLD)), "binding": {"user": "1"}}
CUT = Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True)
WRITTEN = {"short": "inline", "whole": "inline", "apart": "store"}
"""The conversations of a store, and how each was written."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOAITOOLS_STORE", raising=False)
    monkeypatch.setenv("OLD_KEY", OLD.to_text())
    monkeypatch.setenv("NEW_KEY", NEW.to_text())


@pytest.fixture(params=["sqlite", "sqlalchemy-sqlite", "postgresql", "postgres", "mariadb", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A store of each engine, by its URL."""
    with place_of(request.param, tmp_path) as found:
        yield found


def picture(seed: int) -> Image:
    return Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(seed).randbytes(7_000))


def talk(store: Any, key: str, parts: Any, **sealed: Any) -> None:
    """One turn for "short"; else turns with a picture each, of which the first are in an archive."""
    with Chat(ScriptedBackend(*["Seen."] * 4), **sealed) as chat:
        conversation = chat.conversation(store, key, parts=parts)
        conversation.send("Hello.")
        if key != "short":
            for number in range(3):
                conversation.send([f"{number}.", picture(number)])
            conversation.compact(CUT)


def histories(store: Any, **sealed: Any) -> dict[str, Any]:
    """Everything that each conversation has, with its archive."""
    found: dict[str, Any] = {}
    with Chat(ScriptedBackend(), **sealed) as chat:
        for key in WRITTEN:
            exported = chat.conversation(store, key).export()
            assert exported is not None
            found[key] = exported["state"]["transcript"]
    return found


def in_parts(store: Any, **sealed: Any) -> dict[str, bool]:
    """Which conversations have parts beside their rows. The heads list these parts, and no others."""
    return {key: bool(check_listed(store.load_head(key), **sealed)) for key in WRITTEN}


def command(place: Place, *more: str) -> list[str]:
    url, _, prefix = place.url.partition("#")
    return ["upgrade", "--store", url, *(["--table", prefix] if prefix else []), *more, "--json"]


def counts(capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    found = json.loads(capsys.readouterr().out)
    return {name: value for name, value in found.items() if value and name not in ("dry_run", "names")}


@pytest.mark.parametrize("sealed", [{}, SEALED], ids=["plain", "encrypted"])
def test_all_rows_go_into_parts_and_back(
    place: Place, sealed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A short conversation has no parts, and stays. Nothing that is said or listed changes."""
    more = KEYS if sealed else []
    with opened(place) as store:
        for key, parts in WRITTEN.items():
            talk(store, key, parts, **sealed)
        before, listed = histories(store, **sealed), [one.facts for one in store.list().keys]
        assert in_parts(store, **sealed) == {"short": False, "whole": False, "apart": True}

        for dry in (True, False):
            given = command(place, "--parts", "store", *more, *(["--dry-run"] if dry else []))
            assert main(given) == 0
            assert counts(capsys) == {"upgraded": 1, "current": 2}
            assert in_parts(store, **sealed)["whole"] is not dry
        assert in_parts(store, **sealed) == {"short": False, "whole": True, "apart": True}
        assert histories(store, **sealed) == before

        for given in (["--parts", "store"], []):  # without --parts each row stays where it is
            assert main(command(place, *given, *more)) == 0
            assert counts(capsys) == {"current": 3}

        assert main(command(place, "--parts", "inline", *more)) == 0
        assert counts(capsys) == {"upgraded": 2, "current": 1}
        assert not any(in_parts(store, **sealed).values())
        assert all(verify_state(store.load(key).blob, **sealed) == () for key in WRITTEN)
        assert histories(store, **sealed) == before
        assert [one.facts for one in store.list().keys] == listed
        assert main(command(place, "--parts", "inline", *more)) == 0
        assert counts(capsys) == {"current": 3}


@pytest.mark.parametrize("parts", ["store", "inline"])
def test_a_new_key_comes_with_it(parts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run writes heads and parts with the newest key, in their new places."""
    older = {"codec": Encrypted(Keyring(OLD)), "binding": {"user": "1"}}
    newer = {"codec": Encrypted(Keyring(NEW)), "binding": {"user": "1"}}
    with place_of("sqlite", tmp_path) as place, opened(place) as store:
        for key, written in WRITTEN.items():
            talk(store, key, written, **older)
        before = histories(store, **older)

        assert main(command(place, "--parts", parts, *KEYS)) == 0
        assert counts(capsys) == {"upgraded": 3}
        assert {peek(store.load(key).blob).key_id for key in WRITTEN} == {NEW.id}
        assert histories(store, **newer) == before
        assert in_parts(store, **newer)["whole"] is in_parts(store, **newer)["apart"] is (parts == "store")
        assert main(command(place, "--parts", parts, *KEYS)) == 0
        assert counts(capsys) == {"current": 3}


def test_a_row_in_use_is_left_out(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """The report names it, and the next run moves it."""
    with opened(place) as store:
        talk(store, "whole", "inline")
        with store.lease("whole", 30.0):
            assert main(command(place, "--parts", "store")) == 1
            assert counts(capsys) == {"busy": 1}
            assert check_listed(store.load_head("whole")) == frozenset()
        assert main(command(place, "--parts", "store")) == 0
        assert counts(capsys) == {"upgraded": 1}
        assert check_listed(store.load_head("whole"))


@pytest.mark.parametrize("parts", ["store", "inline"])
def test_a_turn_between_load_and_save_stays(parts: Any) -> None:
    """The row is read anew, and its newest parts are moved."""
    store = MemoryStore()
    written = "inline" if parts == "store" else "store"
    with Chat(ScriptedBackend("Seen.", "Seen.", "Seen.")) as chat:
        conversation = chat.conversation(store, "ada", parts=written)  # type: ignore[arg-type]
        conversation.send(["One.", picture(1)])
        tries = []

        def new_of(blob: bytes, name: str) -> bytes:
            if not tries:
                conversation.send(["Two.", picture(2)])
            tries.append(name)
            return upgrade_state(blob)

        rows = StoreRows(store, lambda blob, key: {}, "", parts)
        assert rows.upgrade("ada", new_of, dry=False) == "upgraded"

        assert tries == ["ada", "ada"]
        assert len(check_listed(store.load_head("ada"))) == (2 if parts == "store" else 0)
        shown = [part for m in conversation.history().all_messages() for part in m.parts]
        assert [part for part in shown if isinstance(part, Image)] == [picture(1), picture(2)]
        conversation.send("Three.")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a", "--parts", "store"], "--parts goes with --store"),
        (["--store", "b", "--table", "t", "--column", "c", "--key-column", "k", "--parts", "inline"],
         "--parts goes with --store, without --column"),
        (["--store", "b", "--parts", "beside"], "invalid choice"),
    ],
)  # fmt: skip
def test_wrong_options_say_what_to_name(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    assert main(["upgrade", *given]) == 2
    assert words in capsys.readouterr().err
