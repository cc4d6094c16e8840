"""A turn over a store that takes a lease and loads in one call, and saves and releases in one call."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    MessageLimit,
    StoreUnavailableError,
    TurnError,
)
from goaitools_py.stores import SQLiteStore, Stored
from goaitools_py.stores.layout import combines
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.errors import StateConflictError


class Counted(SQLiteStore):
    """Counts the calls, of the combined steps and of the single ones."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.calls: list[str] = []
        self.is_away = False

    def load(self, key: str) -> Stored | None:
        self.calls.append("load")
        return super().load(key)

    def save(self, key: str, blob: bytes, **rest: Any) -> int:
        self.calls.append("save")
        return super().save(key, blob, **rest)

    def lease(self, key: str, ttl: float) -> Any:
        self.calls.append("lease")
        return super().lease(key, ttl)

    def lease_and_load(self, key: str, ttl: float) -> Any:
        self.calls.append("lease_and_load")
        return super().lease_and_load(key, ttl)

    def save_and_release(self, lease: Any, key: str, blob: bytes, **rest: Any) -> int:
        self.calls.append("save_and_release")
        return self._answer(super().save_and_release(lease, key, blob, **rest))

    def load_head(self, key: str, **rest: Any) -> Any:
        self.calls.append("load_head")
        return super().load_head(key, **rest)

    def save_parts(self, key: str, *rest: Any, **more: Any) -> int:
        self.calls.append("save_parts")
        return super().save_parts(key, *rest, **more)

    def lease_and_load_head(self, key: str, ttl: float, **rest: Any) -> Any:
        self.calls.append("lease_and_load_head")
        return super().lease_and_load_head(key, ttl, **rest)

    def save_parts_and_release(self, lease: Any, key: str, *rest: Any, **more: Any) -> int:
        self.calls.append("save_parts_and_release")
        return self._answer(super().save_parts_and_release(lease, key, *rest, **more))

    def _answer(self, version: int) -> int:
        if self.is_away:
            self.is_away = False
            raise StoreUnavailableError("no answer came")
        return version


class SavesOnly(SQLiteStore):
    """A `save` of its own, and the combined steps of its base."""

    saves = 0

    def save(self, key: str, blob: bytes, **rest: Any) -> int:
        self.saves += 1
        return super().save(key, blob, **rest)


CALLS = {
    "inline": ["lease_and_load", "save_and_release"],
    "store": ["lease_and_load_head", "save_parts_and_release"],
}

LOOK = ["Hello?", Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(7_000))]
"""A message with a part: a conversation without parts is saved as with ``parts="inline"``."""

Parts = Literal["inline", "store"]
beside = pytest.mark.parametrize("parts", CALLS)


class SavesPartsOnly(SQLiteStore):
    """A `save_parts` of its own, and the combined steps of its base."""

    saves = 0

    def save_parts(self, *save: Any, **rest: Any) -> int:
        self.saves += 1
        return super().save_parts(*save, **rest)


class LoadsHeadOnly(SQLiteStore):
    """A `load_head` of its own, and the combined steps of its base."""

    loads = 0

    def load_head(self, key: str, **rest: Any) -> Any:
        self.loads += 1
        return super().load_head(key, **rest)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "states.sqlite3") as made:
        yield made


@beside
def test_a_turn_is_two_calls(store: Counted, parts: Parts) -> None:
    """With ``save="turn"`` and no tools nothing else is asked of the store."""
    chat = Chat(ScriptedBackend("One.", "Two."))

    assert chat.conversation(store, "ada", parts=parts).send(LOOK).text == "One."
    assert chat.conversation(store, "ada", parts=parts).send("Again?").text == "Two."

    assert store.calls == CALLS[parts] * 2
    with store.lease("ada", 10.0):  # it was given back
        pass


@beside
def test_checkpoints_keep_the_lease(store: Counted, parts: Parts) -> None:
    """Only the last save of a turn gives the lease back."""
    chat = Chat(ScriptedBackend("One."))
    chat.conversation(store, "ada", save="checkpoint", parts=parts).send(LOOK)

    assert [store.calls[0], store.calls[-1]] == CALLS[parts]
    assert set(store.calls[1:-1]) == {"save" if parts == "inline" else "save_parts"}


@beside
def test_a_failed_turn_gives_the_lease_back(store: Counted, parts: Parts) -> None:
    """However the turn ends, the next one does not wait."""
    chat = Chat(ScriptedBackend(RuntimeError("down"), "Two."))
    with pytest.raises((TurnError, RuntimeError, AssertionError)):
        chat.conversation(store, "ada", parts=parts).send("Hello?")

    kept = chat.conversation(store, "ada", gate="reject", parts=parts)
    assert kept.send("Again?").text == "Two."


@beside
def test_an_answer_that_is_lost(store: Counted, parts: Parts) -> None:
    """The save was done, and its answer did not come: the row looks, and the turn is not saved twice."""
    store.is_away = True

    result = Chat(ScriptedBackend("One.")).conversation(store, "ada", parts=parts).send("Hello?")

    stored = store.load("ada")
    assert stored is not None
    assert stored.blob == result.state
    with store.lease("ada", 10.0):
        pass


@beside
def test_another_worker_saved_meanwhile(store: Counted, parts: Parts) -> None:
    """A refused save keeps the lease until the turn is over; then it is given back."""

    def meddle(_: Any) -> str:
        kept = store.load("ada")
        assert kept is not None
        Chat(ScriptedBackend("Theirs.")).conversation(_Bare(store), "ada").send("Other")
        return "Mine."

    Chat(ScriptedBackend("First.")).conversation(store, "ada").send("Hello?")
    with pytest.raises(StateConflictError):
        Chat(ScriptedBackend(meddle)).conversation(store, "ada", parts=parts).send("Mine?")

    with store.lease("ada", 10.0):
        pass


class _Bare:
    """The same rows for a worker that asks for no lease."""

    def __init__(self, store: SQLiteStore) -> None:
        self.load, self.save = store.load, store.save


def test_a_save_of_ones_own_is_not_passed_by(tmp_path: Path) -> None:
    """A subclass that changes one of the single steps gets the single steps."""
    with SavesOnly(tmp_path / "states.sqlite3") as store:
        Chat(ScriptedBackend("One.")).conversation(store, "ada").send("Hello?")

        assert store.saves == 1


@pytest.mark.parametrize(("kind", "counted"), [(SavesPartsOnly, "saves"), (LoadsHeadOnly, "loads")])
def test_a_step_of_ones_own_is_not_passed_by_with_parts(
    tmp_path: Path, kind: type[SQLiteStore], counted: str
) -> None:
    """The same for a conversation with parts. One without goes on with the combined steps."""
    with kind(tmp_path / "states.sqlite3") as store:
        Chat(ScriptedBackend("One.")).conversation(store, "ada", parts="store").send(LOOK)

        assert getattr(store, counted) == 1
        assert not combines(store, in_parts=True)
        assert combines(store)


def test_a_plain_save_of_ones_own_counts_for_parts(tmp_path: Path) -> None:
    """A `save` that was changed may stand for what all saves of this class do."""
    with SavesOnly(tmp_path / "states.sqlite3") as store, SQLiteStore(tmp_path / "other") as usual:
        assert not combines(store, in_parts=True)
        assert combines(usual, in_parts=True)


def test_a_redaction_loads_all_parts_with_the_lease(store: Counted) -> None:
    """It takes the lease and loads in one call, and all parts come, not only those that a turn needs."""
    chat = Chat(
        ScriptedBackend("One.", "Two."), compactor=Compactor(MessageLimit(1), KeepRecentTurns(1), retain=True)
    )
    conversation = chat.conversation(store, "ada", parts="store")
    conversation.send("My secret.")
    conversation.send("Hello?")
    assert len(store.load_head("ada").parts) == 1
    store.calls.clear()

    found = conversation.redact("secret")

    assert found.count >= 1
    assert [call for call in store.calls if "load" in call] == ["lease_and_load_head"]
