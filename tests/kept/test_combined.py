"""A turn over a store that takes a lease and loads in one call, and saves and releases in one call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, StoreUnavailableError, TurnError
from goaitools_py.errors import StateConflictError
from goaitools_py.stores import SQLiteStore, Stored
from goaitools_py.testing import ScriptedBackend


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
        lease = self.make_lease(key, ttl)
        lease.take()
        return lease, super().load(key)

    def save_and_release(self, lease: Any, key: str, blob: bytes, **rest: Any) -> int:
        self.calls.append("save_and_release")
        version = super().save_and_release(lease, key, blob, **rest)
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Counted]:
    with Counted(tmp_path / "states.sqlite3") as made:
        yield made


def test_a_turn_is_two_calls(store: Counted) -> None:
    """With ``save="turn"`` and no tools nothing else is asked of the store."""
    chat = Chat(ScriptedBackend("One.", "Two."))

    assert chat.conversation(store, "ada").send("Hello?").text == "One."
    assert chat.conversation(store, "ada").send("Again?").text == "Two."

    assert store.calls == ["lease_and_load", "save_and_release"] * 2
    with store.lease("ada", 10.0):  # it was given back
        pass


def test_checkpoints_keep_the_lease(store: Counted) -> None:
    """Only the last save of a turn gives the lease back."""
    Chat(ScriptedBackend("One.")).conversation(store, "ada", save="checkpoint").send("Hello?")

    assert store.calls[0] == "lease_and_load"
    assert store.calls[-1] == "save_and_release"
    assert set(store.calls[1:-1]) == {"save"}


def test_a_failed_turn_gives_the_lease_back(store: Counted) -> None:
    """However the turn ends, the next one does not wait."""
    chat = Chat(ScriptedBackend(RuntimeError("down"), "Two."))
    with pytest.raises((TurnError, RuntimeError, AssertionError)):
        chat.conversation(store, "ada").send("Hello?")

    assert chat.conversation(store, "ada", gate="reject").send("Again?").text == "Two."


def test_an_answer_that_is_lost(store: Counted) -> None:
    """The save was done, and its answer did not come: the row looks, and the turn is not saved twice."""
    store.is_away = True

    result = Chat(ScriptedBackend("One.")).conversation(store, "ada").send("Hello?")

    stored = store.load("ada")
    assert stored is not None
    assert stored.blob == result.state
    with store.lease("ada", 10.0):
        pass


def test_another_worker_saved_meanwhile(store: Counted) -> None:
    """A refused save keeps the lease until the turn is over; then it is given back."""

    def meddle(_: Any) -> str:
        kept = store.load("ada")
        assert kept is not None
        Chat(ScriptedBackend("Theirs.")).conversation(_Bare(store), "ada").send("Other")
        return "Mine."

    Chat(ScriptedBackend("First.")).conversation(store, "ada").send("Hello?")
    with pytest.raises(StateConflictError):
        Chat(ScriptedBackend(meddle)).conversation(store, "ada").send("Mine?")

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
