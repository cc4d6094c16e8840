"""Several versions of the format: read all, write the one that was asked for, lose nothing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit, event
from goaitools_py.seal import PLAIN, Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.state.blob import peek
from goaitools_py.state.codec import BlobLimits, Plain
from goaitools_py.state.formats import writing
from goaitools_py.state.state import dump_state
from goaitools_py.states import (
    FORMAT_VERSIONS,
    diff_states,
    fork_state,
    inspect_state,
    pending_calls,
    read_history,
    rewind_state,
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
from ._version_zero import become_old, register

OLD, NEW = Key(b"o" * 32), Key(b"n" * 32)
CODECS: dict[str, Any] = {
    "plain": {},
    "signed": {"codec": Signed(Keyring(OLD)), "binding": {"user": "1"}},
    "encrypted": {"codec": Encrypted(Keyring(OLD)), "binding": {"user": "1"}},
    "client": {"codec": Encrypted(Keyring(OLD), visible_to="client"), "binding": {"user": "1"}},
}


@pytest.fixture(autouse=True)
def _version_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)


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


# ------------------------------------------------------------------------------------------ write_format


def test_workers_of_two_releases_share_a_conversation(
    sealed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `write_format`, a new worker writes what an old one reads; without it, the old one refuses it."""
    blob = talk(None, "One.", write_format=0, **sealed)
    assert peek(blob).version == 0
    with monkeypatch.context() as old:
        become_old(old)
        assert [turn.text for turn in _said(blob, **sealed)] == ["One.", "Yes."]

    newest = talk(blob, "Two.", **sealed)
    assert peek(newest).version == peek(talk(blob, "Two.", write_format=1, **sealed)).version == 1
    with monkeypatch.context() as old:
        become_old(old)
        with pytest.raises(StateVersionError, match="found format version 1"):
            talk(newest, "Three.", **sealed)

    again = talk(newest, "Three.", write_format=0, **sealed)
    assert peek(again).version == 0
    assert [turn.text for turn in _said(again, **sealed)] == [
        "One.",
        "Yes.",
        "Two.",
        "Yes.",
        "Three.",
        "Yes.",
    ]


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


def test_kept_conversations_write_the_asked_version() -> None:
    """Every way to a save: a turn, an append, an update, a fork, a rewind, a compaction."""
    store = MemoryStore()
    with Chat(ScriptedBackend(*["Yes."] * 6), write_format=0) as chat:
        conversation = chat.conversation(store, "ada", save="checkpoint")
        steps: tuple[Callable[[], object], ...] = (
            lambda: conversation.send("One."),
            lambda: conversation.send("Two."),
            lambda: conversation.append(event("A door opens.")),
            lambda: conversation.update(title="A game"),
            lambda: conversation.rewind(1),
            lambda: conversation.send("Three."),
            lambda: conversation.compact(Compactor(TurnLimit(1), KeepRecentTurns(1))),
            lambda: conversation.fork("eve"),
        )
        for step in steps:
            step()
            assert peek(store.load("ada").blob).version == 0  # type: ignore[union-attr]
    assert peek(store.load("eve").blob).version == 0  # type: ignore[union-attr]


def test_what_an_old_version_cannot_hold_is_not_dropped(sealed: dict[str, Any]) -> None:
    """A state with an archive stays in the version that has a place for it, and nothing is lost."""
    options = {**sealed, "write_format": 0}
    blob = talk(None, *"abcd", **options)
    retaining = Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True)
    with Chat(ScriptedBackend("Yes."), **options) as chat:
        cut = bytes(chat.compact_state(blob, retaining).state)

    assert (peek(blob).version, peek(cut).version) == (0, 1)
    verify_state(cut, **sealed)
    with pytest.raises(ValueError, match="has no place for"):
        upgrade_state(cut, to=0, **sealed)
    assert upgrade_state(cut, **sealed) == cut


def test_functions_on_states_read_all_versions() -> None:
    """They write the newest one."""
    blob = talk(None, "One.", "Two.", write_format=0)

    assert inspect_state(blob).format_version == 0
    assert pending_calls(blob) == ()
    assert peek(fork_state(blob)).version == 1
    assert peek(rewind_state(blob)).version == 1
    assert not diff_states(blob, upgrade_state(blob)).facts


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (2, ValueError, "write_format=2 is not a version that this release writes; it has 0, 1"),
        ("1", TypeError, "must be an int or None, not str"),
        (True, TypeError, "not bool"),
    ],
)
def test_a_version_that_cannot_be_written_is_refused(given: Any, error: Any, words: str) -> None:
    """The chat is not made."""
    with pytest.raises(error, match=words):
        Chat("sim", write_format=given)


def test_write_format_belongs_to_the_chat() -> None:
    """A turn says where it belongs."""
    with Chat("sim") as chat, pytest.raises(TypeError, match="Chat\\(MODEL, write_format=…\\)"):
        chat.chat_with_state(None, user="Hello.", write_format=1)  # type: ignore[call-arg]


def test_a_codec_of_an_older_version_is_the_same_codec() -> None:
    """Limits, age, owner and repr are those of the codec; no key shows."""
    small = writing(Plain(limits=BlobLimits(max_blob_bytes=5000)), 0)
    assert small.limits.max_blob_bytes == 5000  # type: ignore[attr-defined]
    assert repr(small) == f"writing(Plain(limits={small.limits!r}), 0)"  # type: ignore[attr-defined]
    assert writing(PLAIN, None) is PLAIN
    aged = Encrypted(Keyring(OLD), max_age=10)
    with pytest.raises(StateAuthError):
        writing(aged, 0).check_age(0)
    with pytest.raises(ValueError, match="needs a binding"):
        Chat("sim", codec=aged, write_format=0).chat_with_state(None, user="Hello.")
    assert "oooo" not in repr(writing(aged, 0))


# ----------------------------------------------------------------------------------------- upgrade_state


def test_an_upgrade_changes_the_bytes_only(sealed: dict[str, Any]) -> None:
    """Content, revision and times stay; a second upgrade gives the same bytes."""
    blob = talk(None, "One.", "Two.", write_format=0, **sealed)

    new = upgrade_state(memoryview(blob), **sealed)

    assert (peek(blob).version, peek(new).version) == (0, 1)
    assert upgrade_state(new, **sealed) is new
    assert read_history(new, **sealed) == read_history(blob, **sealed)
    before, after = inspect_state(blob, **sealed), inspect_state(new, **sealed)
    assert (before.revision, before.updated_at) == (after.revision, after.updated_at)
    back = upgrade_state(new, to=0, **sealed)
    assert peek(back).version == 0
    assert read_history(back, **sealed) == read_history(blob, **sealed)


@pytest.mark.parametrize("version", [None, 0])
def test_an_upgrade_seals_with_the_newest_key(version: int | None) -> None:
    """A state of an old key is sealed with the first key of the ring, whichever version it has."""
    for kind in (Signed, Encrypted):
        blob = talk(None, write_format=version, codec=kind(Keyring(OLD)), binding={"user": "1"})
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
    blob = talk(None, write_format=0)
    assert peek(rewrap(blob, PLAIN)).version == 1
    assert rewrap(blob, writing(PLAIN, 0)) == blob


@pytest.mark.parametrize("vector", GOOD, ids=lambda vector: vector.name)
def test_golden_states_go_down_and_up_again(vector: Any) -> None:
    """Each says the same afterwards, and is in version 0 meanwhile unless it has parts."""
    sealed = vector.opening
    old = upgrade_state(vector.blob, **sealed)
    with contextlib.suppress(ValueError):
        old = upgrade_state(vector.blob, to=0, **sealed)
    new = upgrade_state(old, **sealed)
    assert (peek(old).version, peek(new).version) == (peek(old).flags, 1)
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

    down = upgrade_state(blob, codec=new, binding=owner, to=0)
    up = upgrade_state(down, codec=new, binding=owner)
    later = upgrade_state(cut, codec=new, binding=owner)

    fresh: dict[str, Any] = {"codec": Encrypted(Keyring(NEW)), "binding": owner}
    before = read_history(blob, codec=old, binding=owner)
    assert peek(down).version == 0
    assert read_history(down, **fresh) == read_history(up, **fresh) == before
    verify_state(later, **fresh)
    assert read_history(later, **fresh, archived=True) == read_history(
        cut, codec=old, binding=owner, archived=True
    )
    assert state_messages(undo_cut(later, **fresh), **fresh) == state_messages(blob, codec=old, binding=owner)


def test_a_damaged_old_state_is_damaged() -> None:
    """The steps between versions come after the seal; without them version 0 is no version."""
    blob = bytearray(talk(None, write_format=0))
    blob[-1] ^= 1
    with pytest.raises(StateCorruptError, match="digest"):
        upgrade_state(blob)


def test_without_the_toy_there_is_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships."""
    blob = talk(None, write_format=0)
    monkeypatch.undo()
    assert set(FORMAT_VERSIONS) == {1}
    with pytest.raises(StateCorruptError, match="version 0, which never existed"):
        upgrade_state(blob)
