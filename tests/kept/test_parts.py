"""A conversation whose archive and media are kept beside its blob, in the store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from goaitools_py import Chat, Image, StateConflictError, event
from goaitools_py.base.values import replace
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state.parts import ARCHIVE, ELSEWHERE, INLINE, MEDIA, new_part
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.state.whole_blobs import parts_of, verify_state
from goaitools_py.stores import CallableStore, MemoryStore, Parted, Stored

from ..stores._places import opened, place_of

BINDING = {"user": "ada"}


@pytest.fixture(params=["memory", "sqlite", "sqlalchemy-sqlite", "postgresql", "mariadb", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store of each engine."""
    if request.param == "memory":
        yield MemoryStore()
        return
    with place_of(request.param, tmp_path) as place, opened(place) as made:
        yield made


@pytest.fixture(params=["plain", "signed", "encrypted"])
def chat(request: pytest.FixtureRequest) -> Iterator[Chat]:
    """A chat with and without a key."""
    if request.param == "plain":
        with Chat("sim") as made:
            yield made
        return
    codec = (Signed if request.param == "signed" else Encrypted)(Keyring(Key.generate()))
    with Chat("sim", codec=codec, binding=BINDING) as made:
        yield made


def reading(chat: Chat) -> dict[str, Any]:
    return {"codec": chat._codec, "binding": chat._bound(None)}


def with_parts(chat: Chat, blob: bytes, *raws: bytes, kind: int = ARCHIVE) -> bytes:
    """The state with more parts in it, one revision later."""
    state = load_state(blob, **reading(chat))
    more = tuple(new_part(kind, raw, 1) for raw in raws)
    parts = tuple(sorted((*state.parts, *more), key=lambda part: part.kind))
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1)
    return dump_state(replace(state, parts=parts, meta=meta), **reading(chat))


def put_parts(chat: Chat, store: Any, *raws: bytes, kind: int = ARCHIVE, key: str = "ada") -> None:
    """Save parts as a cut would: by way of the kept row."""
    from goaitools_py.chat.kept.row import Row

    conversation = chat.conversation(store, key, parts="store")
    row = Row(conversation._settings)

    def flow() -> Any:
        yield from row.load()
        yield from row.commit(with_parts(chat, row.stored, *raws, kind=kind))

    conversation._run(flow())


def raws_of(chat: Chat, blob: bytes | None) -> set[bytes]:
    assert blob is not None
    return {part.raw(**reading(chat)) for part in parts_of(blob, **reading(chat))}


def test_turns_leave_the_archive_where_it_is(chat: Chat, store: Any) -> None:
    """The head stays small; the archive is in the table of parts, and whole again in `state`."""
    conversation = chat.conversation(store, "ada", parts="store")
    conversation.send("My name is Ada.")
    large = bytes(range(256)) * 500
    put_parts(chat, store, b"first", large)

    result = conversation.send("What is my name?")
    conversation.append(event("A door opens."))
    conversation.send("What happened?")

    assert "Ada" in result.text
    head = store.load("ada")
    assert {part.place for part in parts_of(head.blob, **reading(chat))} == {ELSEWHERE}
    assert len(store.load_head("ada").parts) == 2
    whole = conversation.state()
    assert raws_of(chat, whole) == {b"first", large}
    assert whole is not None
    assert verify_state(whole, **reading(chat)) == ()
    assert len(conversation.history().turns) == 3


def test_media_are_loaded_with_the_head(chat: Chat, store: Any) -> None:
    """A turn finds media in its state, and the row does not hold them."""
    conversation = chat.conversation(store, "ada", parts="store")
    conversation.send(
        ["What is this?", Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(7_000))]
    )

    result = conversation.send("Again.")

    (part,) = parts_of(result.state, **reading(chat))
    assert (part.kind, part.place) == (MEDIA, INLINE)
    assert len(store.load("ada").blob) < 7_000
    assert len(store.load_head("ada").parts) == 1


def test_a_picture_is_saved_once(chat: Chat, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of its turn, and all later saves, name the same part; it goes with the turn that has it."""
    saved: list[tuple[set[bytes], set[bytes]]] = []
    save_parts = store.save_parts

    def noting(key: str, head: bytes, new: Any, gone: Any, **given: Any) -> Any:
        saved.append(({part.name for part in new}, set(gone)))
        return save_parts(key, head, new, gone, **given)

    monkeypatch.setattr(store, "save_parts", noting)
    conversation = chat.conversation(store, "ada", parts="store", save="checkpoint")
    picture = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(50_000))

    conversation.send(["Add points to Red: 5.", picture])
    conversation.send(["The same again?", picture])
    conversation.send("What is my score?")

    assert len(saved) > 3
    assert [len(new) for new, _ in saved if new] == [1]
    assert not any(gone for _, gone in saved)
    assert len(store.load("ada").blob) < 12_000
    assert len(store.load_head("ada").parts) == 1
    whole = conversation.state()
    assert whole is not None
    assert verify_state(whole, **reading(chat)) == ()
    assert sum(picture in message.parts for message in conversation.history().all_messages()) == 2
    conversation.rewind(3)
    assert store.load_head("ada").parts == ()


def test_parts_that_the_head_does_not_list_are_dropped(chat: Chat, store: Any) -> None:
    """With the save that takes them out of the list."""
    from goaitools_py.chat.kept.row import Row

    conversation = chat.conversation(store, "ada", parts="store")
    conversation.send("Hello.")
    put_parts(chat, store, b"old", b"new")
    row = Row(conversation._settings)

    def flow() -> Any:
        yield from row.load()
        state = load_state(row.stored, **reading(chat))
        meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1)
        yield from row.commit(dump_state(replace(state, parts=state.parts[1:], meta=meta), **reading(chat)))

    conversation._run(flow())

    assert len(store.load_head("ada").parts) == 1
    assert raws_of(chat, conversation.state()) == {b"new"}


def test_an_append_meanwhile_is_kept_with_the_new_part(chat: Chat, store: Any) -> None:
    """After a conflict the parts are computed against the newer head."""
    from goaitools_py.chat.kept.row import Row

    conversation = chat.conversation(store, "ada", parts="store")
    conversation.send("Hello.")
    put_parts(chat, store, b"one")
    row = Row(conversation._settings)

    def flow() -> Any:
        yield from row.load()
        new = with_parts(chat, row.stored, b"two")
        conversation.append(event("A door opens."))
        yield from row.commit(new)

    conversation._run(flow())

    info = conversation.info()
    assert info is not None
    assert info.state.waiting_messages == 1
    assert len(store.load_head("ada").parts) == len(raws_of(chat, conversation.state()))
    assert b"one" in raws_of(chat, conversation.state())


def test_a_fork_copies_the_parts(chat: Chat, store: Any) -> None:
    """The copy has its own rows: deleting one conversation leaves the other whole."""
    conversation = chat.conversation(store, "ada", parts="store")
    conversation.send("Hello.")
    put_parts(chat, store, b"archive")

    copy = conversation.fork("bea")
    conversation.reset()

    assert store.load_head("ada") is None
    assert store.load_parts("ada", [part.name for part in store.load_head("bea").parts]) == ()
    assert raws_of(chat, copy.state()) == {b"archive"}
    assert copy.send("Again.").status == "complete"


def test_what_cannot_be_read_is_moved_with_its_parts(store: Any) -> None:
    """Under the key for unreadable bytes the head has its parts too, and the fresh conversation has none."""
    with Chat("sim") as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        conversation.send("Hello.")
        put_parts(chat, store, b"archive")
        found = store.load_head("ada")
        broken = found.blob[:40] + bytes([found.blob[40] ^ 1]) + found.blob[41:]
        store.save("ada", broken, expected=found.version)

        result = conversation.send("Again.")

    assert "state_moved" in [warning.code for warning in result.warnings]
    (aside,) = [entry.key for entry in store.list("ada.unreadable.").keys]
    assert store.load_head(aside).blob == broken
    assert {part.name for part in store.load_head(aside).parts} == {part.name for part in found.parts}
    assert store.load_head("ada").parts == ()


def test_another_store_refuses_parts() -> None:
    """A store that cannot change head and parts in one step is named, with those that can."""
    kept: dict[str, Stored] = {}
    store = CallableStore(kept.get, lambda key, blob, expected: 1)

    with Chat("sim") as chat:
        with pytest.raises(TypeError, match=r"MemoryStore.*CallableStore has no save_parts"):
            chat.conversation(store, "ada", parts="store")
        with pytest.raises(ValueError, match="'inline' or 'store'"):
            chat.conversation(MemoryStore(), "ada", parts="elsewhere")  # type: ignore[arg-type]

    assert not isinstance(store, Parted)


def test_a_part_that_another_worker_dropped_is_a_conflict() -> None:
    """A state that still lists it cannot be saved: its head would name what is not there."""
    from goaitools_py.chat.kept.row import Row

    store = MemoryStore()
    with Chat("sim") as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        conversation.send("Hello.")
        put_parts(chat, store, b"archive")
        old = store.load("ada")
        assert old is not None
        row = Row(conversation._settings)

        def flow() -> Any:
            yield from row.load()
            row._kept_parts = frozenset()
            yield from row.commit(with_parts(chat, row.stored))

        with pytest.raises(StateConflictError, match="dropped a part"):
            conversation._run(flow())
