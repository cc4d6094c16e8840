"""Long results of a kept conversation: beside its row in the store, or in the row."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, StatePartMissingError, tool
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.state.media_rows import results_of
from goaitools_py.state.parts import ELSEWHERE, INLINE, RESULT
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import export_state, import_state, read_history
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from tests.conftest import Face

from ..stores._places import async_opened, opened, place_of
from .test_combined import Counted

WIRES = ("openai", "openai-responses", "anthropic")
BINDING = {"user": "ada"}
LONG = "".join(f"row {number} of the naïve almanac\n" for number in range(900))


@pytest.fixture(params=["memory", "sqlite", "postgres", "sqlalchemy-sqlite", "mariadb", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, face: Face) -> Iterator[Any]:
    """A store of each engine, in the colour of the face."""
    kind = request.param
    if kind == "memory":
        yield AsyncMemoryStore() if face.is_async else MemoryStore()
    elif face.is_async:
        kind = {"sqlalchemy-sqlite": "sqlalchemy-sqlite-async"}.get(kind, f"{kind}-async")
        with place_of(kind, tmp_path) as place:
            entered = async_opened(place)
            made = face.run(entered.__aenter__())
            yield made
            face.run(entered.__aexit__(None, None, None))
    else:
        with place_of(kind, tmp_path) as place, opened(place) as made:
            yield made


@tool
def page(number: int) -> str:
    """A page of the almanac."""
    return LONG.replace("row", f"page {number} row") if number else "It rains."


def asks(*numbers: int) -> Calls:
    return Calls([("page", {"number": number}) for number in numbers])


def reads(name: str, number: int = 1) -> Calls:
    return Calls([("recall", {"result": name, "page": number})])


class Kept:
    """A kept conversation of either colour, on a script."""

    def __init__(self, face: Face, store: Any, wire: str = "openai", **how: Any) -> None:
        self.script = ScriptedBackend(wire=wire)
        self.wait = face.run if face.is_async else lambda answer: answer
        self.store = store
        options = {"keep_results": "store", "max_tool_result_bytes": 1_000, "tools": [page]}
        self.chat = face.chat(self.script, **{**options, **how.pop("chat", {})})
        self.conversation = self.chat.inner.conversation(store, "ada", **how)

    def send(self, *steps: Any) -> Any:
        self.script.then(*steps)
        return self.wait(self.conversation.send("Look."))

    def reading(self) -> dict[str, Any]:
        return {"codec": self.chat.inner._codec, "binding": self.chat.inner._bound(None)}

    def head(self) -> bytes:
        return bytes(self.wait(self.store.load("ada")).blob)

    def listed(self) -> list[Any]:
        return results_of(parts_of(self.head(), **self.reading()))


def name_in(result: Any) -> str:
    (found,) = re.findall(r"call recall with result (\w{8})", result.tool_log[0].result)
    return str(found)


@pytest.mark.parametrize(
    ("parts", "save", "codec"),
    [
        ("inline", "checkpoint", "encrypted"),
        ("store", "turn", "encrypted"),
        ("store", "checkpoint", "plain"),
    ],
)
def test_a_result_is_beside_the_row_and_loaded_only_when_it_is_read(
    face: Face, store: Any, parts: Any, save: Any, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each store. Turns carry it unread, recall reads it, history, export and a fork have it, and an
    erasure takes it."""
    how: dict[str, Any] = {"parts": parts, "save": save}
    if codec == "encrypted":
        how["chat"] = {"codec": Encrypted(Keyring(Key.generate())), "binding": BINDING}
    kept = Kept(face, store, **how)
    asked: list[int] = []
    load_parts = store.load_parts

    def noting(key: str, names: Any) -> Any:
        asked.append(len(names))
        return load_parts(key, names)

    monkeypatch.setattr(store, "load_parts", noting)
    name = name_in(kept.send(asks(1), "So it is."))
    kept.send("Fine.")
    kept.send(asks(0), "It rains.")
    assert not asked
    assert [part.place for part in kept.listed()] == [ELSEWHERE if parts == "store" else INLINE]
    rows = kept.wait(store.load_head("ada")).parts
    assert [part.kind for part in rows] == ([RESULT] if parts == "store" else [])
    loaded = kept.wait(store.load_head("ada", kinds=(1, 65))).parts
    assert loaded == ()

    read = kept.send(reads(name, 2), "I see.")
    assert read.tool_log[0].result.startswith("[page 2 of ")
    assert len(asked) == (parts == "store")
    whole = kept.wait(kept.conversation.state())
    history = kept.wait(kept.conversation.history())
    wanted = LONG.replace("row", "page 1 row")
    for found in (history, read_history(whole, **kept.reading())):
        assert [call.whole for call in found.tool_calls("page")] == [wanted, None]
    exported = export_state(whole, **kept.reading())
    assert [call.whole for call in read_history(import_state(exported)).tool_calls("page")] == [wanted, None]
    kept.wait(kept.conversation.erase())
    assert kept.wait(store.load_head("ada")) is None


def test_a_result_that_is_gone_is_no_longer_kept(face: Face, wire_of: str) -> None:
    """A turn does not miss a lost part. Recall tells the model; what needs the whole raises."""
    store = AsyncMemoryStore() if face.is_async else MemoryStore()
    kept = Kept(face, store, wire_of, parts="store")
    name = name_in(kept.send(asks(1), "So it is."))
    (part,) = kept.wait(store.load_head("ada")).parts
    found = kept.wait(store.load("ada"))
    kept.wait(store.save_parts("ada", found.blob, (), (part.name,), expected=found.version))

    assert kept.send("Fine.").text == "Fine."
    gone = kept.send(reads(name), "A pity.")
    assert (gone.tool_log[0].flag, gone.text) == ("error", "A pity.")
    assert "no longer kept" in gone.tool_log[0].result
    with pytest.raises(StatePartMissingError):
        kept.wait(kept.conversation.state())


@pytest.fixture(params=WIRES)
def wire_of(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_store_that_fails_is_told_to_the_model(face: Face, wire_of: str) -> None:
    class Failing(AsyncMemoryStore if face.is_async else MemoryStore):  # type: ignore[misc]
        def load_parts(self, key: str, names: Any) -> Any:
            raise OSError("the server at 10.0.0.1 hangs")

    kept = Kept(face, Failing(), wire_of, parts="store")
    name = name_in(kept.send(asks(1), "So it is."))
    read = kept.send(reads(name), "Later.")
    assert read.tool_log[0].result == "The result cannot be read now (OSError). Try again later."
    assert read.text == "Later."


def test_rewind_redact_and_undo_reach_the_store(face: Face, wire_of: str) -> None:
    """The old part goes with the save that changes it."""
    store = AsyncMemoryStore() if face.is_async else MemoryStore()
    kept = Kept(face, store, wire_of, parts="store")
    kept.send(asks(1), "One.")
    kept.send(asks(2), "Two.")
    first, second = (part.digest for part in kept.listed())

    kept.wait(kept.conversation.redact("page 1 row 777 ", "[gone] "))
    new, same = (part.digest for part in kept.listed())
    assert (new != first, same) == (True, second)
    rows = {part.name: bytes(part.data) for part in kept.wait(store.load_head("ada")).parts}
    assert set(rows) == {new, same}
    calls = kept.wait(kept.conversation.history()).tool_calls()
    assert "[gone] of the" in (calls[0].whole or "")
    assert "page 1 row 777 " not in (calls[0].whole or "")

    kept.wait(kept.conversation.rewind())
    assert [part.digest for part in kept.listed()] == [new]
    assert {part.name for part in kept.wait(store.load_head("ada")).parts} == {new}


def test_a_row_changes_its_place_with_all_results(face: Face, wire_of: str) -> None:
    """Handles with "inline" and "store" by turns: nothing is lost."""
    store = AsyncMemoryStore() if face.is_async else MemoryStore()
    names = []
    for number, parts in enumerate(("inline", "store", "inline", "store"), 1):
        kept = Kept(face, store, wire_of, parts=parts)
        names.append(name_in(kept.send(asks(number), "So it is.")))
        assert [f"{part.entries:08x}" for part in kept.listed()] == names
        assert {part.place for part in kept.listed()} == {ELSEWHERE if parts == "store" else INLINE}
    calls = kept.wait(kept.conversation.history()).tool_calls()
    assert [call.whole for call in calls] == [LONG.replace("row", f"page {n} row") for n in range(1, 5)]


def test_a_store_keeps_more_than_a_blob(face: Face) -> None:
    """Results that do not fit into a row's share stay whole with parts="store", from the first turn on."""
    noise = random.Random(3).randbytes(100_000).hex()

    @tool
    def noisy() -> str:
        """Much."""
        return noise

    for parts in ("inline", "store"):
        store = AsyncMemoryStore() if face.is_async else MemoryStore()
        kept = Kept(face, store, parts=parts, chat={"tools": [noisy]})
        result = kept.send(Calls([("noisy", {})]), "So it is.")
        is_kept = kept.wait(kept.conversation.history()).tool_calls()[0].whole == noise
        assert (is_kept, [one.code for one in result.warnings]) == (
            (True, []) if parts == "store" else (False, ["result_left_out"])
        )


# --------------------------------------------------------------------------------------------- no cost


@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize("save", ["turn", "checkpoint"])
def test_the_option_makes_no_call_of_the_store_more(tmp_path: Path, parts: Any, save: Any) -> None:
    """With results that fit, and also with a long one: it goes with the save that has its record."""
    found = {}
    for keep in ("cut", "store"):
        for number in (0, 1):
            with Counted(tmp_path / f"{keep}{number}.db") as store:
                store.calls.clear()
                script = ScriptedBackend(*[asks(number), "So it is.", "Fine."] * 2)
                chat = Chat(script, tools=[page], keep_results=keep, max_tool_result_bytes=1_000)
                conversation = chat.conversation(store, "ada", parts=parts, save=save)
                for _ in range(4):
                    conversation.send("Look.")
                found[keep, number] = len(store.calls)
    assert found["store", 0] == found["cut", 0]
    assert found["store", 1] == found["cut", 1]
