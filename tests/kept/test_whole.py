"""A row of a store as a whole state: read with its parts, and replaced only as it was read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    KeepRecentTurns,
    StateConflictError,
    TurnInProgressError,
    TurnLimit,
    event,
)
from goaitools_py.chat.kept.full_row import FullRow, held, load_row, save_new
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.states import inspect_state, rewind_state, state_from_messages, undo_cut, verify_state
from goaitools_py.stores import CallableStore, MemoryStore, Stored
from goaitools_py.testing import ScriptedBackend

CUT = Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True)
OLD, NEW = Keyring(Key(b"o" * 32)), Keyring(Key(b"n" * 32), Key(b"o" * 32))


def row_of(store: Any, **opened: Any) -> FullRow:
    row = load_row(store, "ada", lambda blob: opened)
    assert row is not None
    return row


def kept(store: Any, *, parts: Any = "inline", **options: Any) -> Any:
    chat = Chat(ScriptedBackend(*["Yes."] * 9), **options)
    conversation = chat.conversation(store, "ada", parts=parts)
    for text in ("One.", "Two.", "Three."):
        conversation.send(text)
    conversation.compact(CUT)
    return conversation


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_a_row_is_whole_and_stays_where_it_was(parts: str) -> None:
    """Parts of an inline state stay in it; those of the store stay, and go, there."""
    store = MemoryStore()
    conversation = kept(store, parts=parts)
    beside = len(store.load_head("ada").parts)  # type: ignore[union-attr]
    assert beside == (parts == "store")
    conversation.send("Four.")

    row = row_of(store)
    assert verify_state(row.blob) == ()
    assert not row.differs(row.blob)
    row.save(rewind_state(row.blob))

    assert len(store.load_head("ada").parts) == beside  # type: ignore[union-attr]
    assert [turn.messages[0].said for turn in conversation.history().turns] == ["Two.", "Three."]
    row = row_of(store)
    row.save(undo_cut(row.blob))
    assert store.load_head("ada").parts == ()  # type: ignore[union-attr]
    assert [turn.messages[0].said for turn in conversation.history().turns] == ["One.", "Two.", "Three."]


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_a_save_of_another_worker_is_a_conflict(parts: str) -> None:
    """The row is as that worker left it."""
    store = MemoryStore()
    conversation = kept(store, parts=parts)
    row = row_of(store)
    conversation.append(event("A door opens."))
    now = store.load_head("ada")

    with pytest.raises(StateConflictError):
        row.save(rewind_state(row.blob))

    assert store.load_head("ada") == now


def test_the_facts_of_a_row_are_those_of_its_state() -> None:
    """A title stands in plain if the blob is plain, or if it stood there."""
    store = MemoryStore()
    kept(store).update(title="A game")
    row = row_of(store)
    row.save(rewind_state(row.blob))
    facts = store.list().keys[0].facts
    assert facts is not None
    assert (facts.title, facts.turns) == ("A game", inspect_state(row_of(store).blob).turns_processed)

    save_new(store, "eve", state_from_messages("openai", [{"role": "user", "content": "Hi."}]))
    with pytest.raises(StateConflictError):
        save_new(store, "eve", row.blob)


@pytest.mark.parametrize("codec", [Signed, Encrypted])
def test_reading_under_a_newer_key_is_a_difference(codec: Any) -> None:
    """A state with parts in the store is sealed anew as it is read; the row has the old key until a save."""
    store, owner = MemoryStore(), {"user": "1"}
    kept(store, parts="store", codec=codec(OLD), binding=owner)
    new = codec(NEW)
    row = row_of(store, codec=new, binding=owner)
    assert row.differs(row.blob)
    row.save(row.blob)
    row = row_of(store, codec=new, binding=owner)
    assert not row.differs(row.blob)
    fresh = codec(Keyring(Key(b"n" * 32)))
    verify_state(row_of(store, codec=fresh, binding=owner).blob, codec=fresh, binding=owner)


def test_a_lease_is_held_where_there_is_one() -> None:
    """A worker's turn keeps the change out, and the other way round."""
    store = MemoryStore()
    with held(store, "ada"):
        with pytest.raises(TurnInProgressError, match="try again when it is over"), held(store, "ada"):
            pass
        with Chat(ScriptedBackend("Yes.")) as chat, pytest.raises(TurnInProgressError):
            chat.conversation(store, "ada", gate="reject").send("Hello.")
    with pytest.raises(KeyError), held(store, "ada"):
        raise KeyError
    with held(store, "ada"):
        pass


def test_two_functions_are_enough() -> None:
    """A store without facts, parts, leases or a list."""
    rows: dict[str, Stored] = {}

    def save(key: str, blob: bytes, expected: int | None) -> int | None:
        if (rows[key].version if key in rows else None) != expected:
            return None
        rows[key] = Stored(blob=blob, version=(expected or 0) + 1, updated_at=datetime.now(UTC))
        return rows[key].version

    store = CallableStore(rows.get, save)
    blob = state_from_messages("openai", [{"role": "user", "content": "Hi."}])
    save_new(store, "ada", blob)
    with held(store, "ada"):
        row = row_of(store)
        row.save(blob)
    with pytest.raises(StateConflictError):
        row.save(blob)
    assert load_row(store, "eve", lambda blob: {}) is None
