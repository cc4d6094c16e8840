"""Versions of the format: a worker that is too old touches nothing, and an upgrade changes the bytes only."""

from __future__ import annotations

import random
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit
from goaitools_py.seal import PLAIN, Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.state.blob_header import peek
from goaitools_py.state.state import dump_state
from goaitools_py.states import (
    FORMAT_VERSIONS,
    diff_states,
    inspect_state,
    read_history,
    state_messages,
    undo_cut,
    upgrade_state,
    verify_state,
)
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.errors import StateAuthError, StateCorruptError, StateVersionError

from ..compaction._histories import WIRES, Book, random_turn
from ..seal._golden import GOOD
from ._old_states import Uncompressed, become_old

OLD, NEW = Key(b"o" * 32), Key(b"n" * 32)
CODECS: dict[str, Any] = {
    "plain": {},
    "signed": {"codec": Signed(Keyring(OLD)), "binding": {"user": "1"}},
    "encrypted": {"codec": Encrypted(Keyring(OLD)), "binding": {"user": "1"}},
    "client": {"codec": Encrypted(Keyring(OLD), visible_to="client"), "binding": {"user": "1"}},
}


@pytest.fixture(params=sorted(CODECS))
def sealed(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the blobs are protected, as options."""
    return dict(CODECS[request.param])


def talk(blob: bytes | None = None, *said: str, **options: Any) -> bytes:
    with Chat(ScriptedBackend(*("Yes." for _ in said or "?")), **options) as chat:
        for text in said or ("Hello?",):
            blob = chat.chat_with_state(blob, user=text).state
    assert blob is not None
    return bytes(blob)


# ---------------------------------------------------------------------------------- workers of two releases


def test_a_worker_that_is_too_old_refuses(sealed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls no model, and names the version."""
    blob = talk(None, "One.", **sealed)
    with monkeypatch.context() as old:
        become_old(old)
        with pytest.raises(StateVersionError, match="found format version 1"):
            talk(blob, "Two.", **sealed)
    assert [turn.text for turn in _said(blob, **sealed)] == ["One.", "Yes."]


def _said(blob: bytes, **sealed: Any) -> list[Any]:
    return list(read_history(blob, **sealed).all_messages())


def test_an_old_worker_stores_nothing_over_a_newer_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises, and the row keeps its bytes: nothing is set aside, whatever `on_bad_state` says."""
    store = MemoryStore()
    with Chat(ScriptedBackend("Yes.", "Yes.", "Yes.")) as chat:
        conversation = chat.conversation(store, "ada")
        conversation.send("One.")
        before = store.load("ada")
        with monkeypatch.context() as old:
            become_old(old)
            with pytest.raises(StateVersionError):
                conversation.send("Two.", on_bad_state="fresh")
        assert store.load("ada") == before
        assert len(store.list("ada.unreadable.").keys) == 0
        conversation.send("Two.")
    assert len(_said(store.load("ada").blob)) == 4  # type: ignore[union-attr]


# ----------------------------------------------------------------------------------------- upgrade_state


def test_an_upgrade_changes_the_bytes_only() -> None:
    """Content, revision and times stay; a second upgrade gives the same bytes."""
    blob = talk(None, "One.", "Two.", codec=Uncompressed())

    new = upgrade_state(memoryview(blob))

    assert (peek(blob).compression, peek(new).compression) == (0, 2)
    assert upgrade_state(new) is new
    assert read_history(new) == read_history(blob)
    before, after = inspect_state(blob), inspect_state(new)
    assert (before.revision, before.updated_at) == (after.revision, after.updated_at)
    assert not diff_states(blob, new).facts


def test_an_upgrade_seals_with_the_newest_key() -> None:
    """A state of an old key is sealed with the first key of the ring."""
    for kind in (Signed, Encrypted):
        blob = talk(None, codec=kind(Keyring(OLD)), binding={"user": "1"})
        ring = kind(Keyring(NEW, OLD))

        new = upgrade_state(blob, codec=ring, binding={"user": "1"})

        assert peek(new).key_id == NEW.id
        assert upgrade_state(new, codec=ring, binding={"user": "1"}) is new
        read_history(new, codec=kind(Keyring(NEW)), binding={"user": "1"})
        with pytest.raises(StateAuthError):
            upgrade_state(new, codec=ring, binding={"user": "2"})
        with pytest.raises(StateAuthError):
            upgrade_state(new, codec=ring, binding={"user": "1"}, min_revision=9)


def test_a_rewrap_upgrades_too() -> None:
    """It writes what its codec writes."""
    blob = talk(None, codec=Uncompressed())
    assert peek(rewrap(blob, PLAIN)).compression == 2
    assert rewrap(blob, Uncompressed()) == blob


@pytest.mark.parametrize("vector", GOOD, ids=lambda vector: vector.name)
def test_golden_states_say_the_same_after_an_upgrade(vector: Any) -> None:
    """And are in the newest version."""
    sealed = vector.opening
    new = upgrade_state(vector.blob, **sealed)
    assert peek(new).version == 1
    assert read_history(new, **sealed) == read_history(vector.blob, **sealed)
    assert not diff_states(new, vector.blob, **sealed).facts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wire", WIRES)
def test_random_conversations_survive_an_upgrade(wire: str, seed: int) -> None:
    """With turns of all kinds, and with an archive: all is said as before, and the cut can be undone."""
    r, book = random.Random(f"{wire}/{seed}"), Book(wire)
    for _ in range(8):
        book.add(*random_turn(r, wire))
    owner = {"user": "1"}
    old, new = (Encrypted(Keyring(*keys)) for keys in ((OLD,), (NEW, OLD)))
    blob = dump_state(book.state, codec=old, binding=owner)
    with Chat(ScriptedBackend("Yes.", wire=wire), codec=old, binding=owner) as chat:
        compactor = Compactor(TurnLimit(1), KeepRecentTurns(r.randint(1, 3)), retain=True)
        cut = bytes(chat.compact_state(blob, compactor).state)

    up = upgrade_state(blob, codec=new, binding=owner)
    later = upgrade_state(cut, codec=new, binding=owner)

    fresh: dict[str, Any] = {"codec": Encrypted(Keyring(NEW)), "binding": owner}
    before = read_history(blob, codec=old, binding=owner)
    assert peek(up).key_id == NEW.id
    assert read_history(up, **fresh) == before
    verify_state(later, **fresh)
    assert read_history(later, **fresh, archived=True) == read_history(
        cut, codec=old, binding=owner, archived=True
    )
    assert state_messages(undo_cut(later, **fresh), **fresh) == state_messages(blob, codec=old, binding=owner)


def test_a_damaged_state_is_not_upgraded() -> None:
    """The seal is checked first."""
    blob = bytearray(talk(None))
    blob[-1] ^= 1
    with pytest.raises(StateCorruptError, match="digest"):
        upgrade_state(blob)


def test_there_is_one_version() -> None:
    """A version below it never existed."""
    blob = bytearray(talk(None))
    blob[4] = 0
    assert set(FORMAT_VERSIONS) == {1}
    with pytest.raises(StateCorruptError, match="version 0, which never existed"):
        upgrade_state(blob)
