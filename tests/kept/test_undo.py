"""A kept conversation goes back: across cuts, with its archive in the blob or beside it in the store."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from goaitools_py import (
    PLAIN,
    AsyncChat,
    Chat,
    Compactor,
    KeepRecentTurns,
    StateConflictError,
    StoreUnavailableError,
    TurnLimit,
    event,
)
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.state.parts import ARCHIVE
from goaitools_py.state.state import load_state
from goaitools_py.states import inspect_state, read_history, verify_state
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.stores.layout import StoredPart
from goaitools_py.testing import ScriptedBackend

from .conftest import FaultyStore, Threads, blob_in, other, said

WIRES = ("openai", "openai-responses", "anthropic")
DROP = Compactor(TurnLimit(3), KeepRecentTurns(1), retain=True)
SEALED: dict[str, Any] = {"codec": Encrypted(Keyring(Key(b"k" * 32))), "binding": {"user": "1"}}


def numbers(blob: bytes | None, *, archived: bool = False, **sealed: Any) -> list[int]:
    assert blob is not None
    return [turn.number for turn in read_history(blob, archived=archived, **sealed).turns]


def test_a_cut_is_undone(kept: Threads, store: FaultyStore) -> None:
    """It is saved; what waits and what came since stays; nothing to undo is a ValueError."""
    conversation = kept(ScriptedBackend(*"1234"), store)
    with pytest.raises(ValueError, match="nothing to undo"):
        conversation.undo_cut()
    for text in "abc":
        conversation.send(text)
    with pytest.raises(ValueError, match="no cut to undo"):
        conversation.undo_cut()
    conversation.compact(Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True))
    conversation.send("d")
    conversation.append(event("E."))
    assert said(blob_in(store)) == ["c", "3", "d", "4", "E."]

    conversation.undo_cut()

    assert said(blob_in(store)) == ["a", "1", "b", "2", "c", "3", "d", "4", "E."]


def test_what_is_appended_meanwhile_stays(kept: Threads, store: FaultyStore) -> None:
    """An event that came in between stays; a turn that did is a conflict, and nothing is undone."""
    conversation = kept(ScriptedBackend(*"123"), store)
    for text in "ab":
        conversation.send(text)
    cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
    conversation.compact(cut)
    store.faults.append(lambda: other(store).append(event("E.")))
    conversation.undo_cut()
    assert said(blob_in(store)) == ["a", "1", "b", "2", "E."]

    conversation.compact(cut)
    store.faults.append(lambda: other(store, "3").send("c"))
    with pytest.raises(StateConflictError):
        conversation.undo_cut()
    assert said(blob_in(store)) == ["b", "2", "E.", "c", "3"]


@pytest.mark.parametrize("sealed", [{}, SEALED], ids=["plain", "encrypted"])
@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_rewind_goes_back_across_all_cuts(wire: str, parts: Any, sealed: Any) -> None:
    """By any number of turns: what is left is what was said until then, and it can be gone on with."""
    store = MemoryStore()
    with Chat(ScriptedBackend(*["Noted."] * 30, wire=wire), codec=sealed.get("codec", PLAIN)) as chat:

        def talk(key: str = "ada") -> Any:
            return chat.conversation(store, key, parts=parts, binding=sealed.get("binding"))

        for number in range(1, 12):
            talk().send(f"Note {number}", compactor=DROP)
        whole = talk().state()
        cuts = [row for row in load_state(whole, **sealed).meta.cuts if row.by != "rewound"]
        assert len(cuts) == 3
        assert numbers(whole, archived=True, **sealed) == list(range(1, 12))
        for turns in (1, 2, 4, 7, 10):
            there = talk().fork(f"back {turns}")
            there.rewind(turns)
            back = there.state()
            assert numbers(back, archived=True, **sealed) == list(range(1, 12 - turns))
            assert verify_state(back, **sealed) == ()
            there.send("And now?", compactor=DROP)
            assert numbers(there.state(), archived=True, **sealed) == [*range(1, 12 - turns), 12]
        with pytest.raises(ValueError, match="11 turns"):
            talk().rewind(12)


@pytest.mark.parametrize("wire", WIRES)
def test_cuts_are_undone_in_a_store_of_parts(wire: str) -> None:
    """Turns and cuts in any order, then all cuts undone: each turn is there once, no part is left."""
    r, store = random.Random(wire), MemoryStore()
    with Chat(ScriptedBackend(*["Noted."] * 40, wire=wire)) as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        for number in range(1, 20):
            conversation.send(f"Note {number}", compactor=DROP if r.random() < 0.5 else None)
        cuts = len(inspect_state(conversation.state()).cuts)
        for left in range(cuts, 0, -1):
            conversation.undo_cut()
            state = conversation.state()
            assert numbers(state, archived=True) == list(range(1, 20))
            assert verify_state(state) == ()
            assert len(inspect_state(state).cuts) == left - 1
            records = sum(part.entries for part in load_state(state).parts if part.kind == ARCHIVE)
            assert records == left - 1
        assert cuts > 2
        found = store.load_head("ada")
        assert found is not None
        assert ARCHIVE not in {part.kind for part in found.parts}
        assert conversation.send("And now?").text == "Noted."


class NoParts(MemoryStore):
    """A store that saves, and cannot give single parts."""

    def load_parts(self, key: str, names: Any) -> Any:
        raise StoreUnavailableError("not now")


@pytest.mark.parametrize("sealed", [{}, SEALED], ids=["plain", "encrypted"])
@pytest.mark.parametrize("save", ["turn", "checkpoint"])
def test_records_share_a_part_in_a_store(save: Any, sealed: Any) -> None:
    """Each cut puts its record into the newest part, so that the head lists one; nothing is left over. If the
    part cannot be loaded, the record begins a new one, and the turn is saved all the same."""
    for store in (MemoryStore(), NoParts()):
        with Chat(ScriptedBackend(*["Noted."] * 30), codec=sealed.get("codec", PLAIN)) as chat:
            binding = sealed.get("binding")
            conversation = chat.conversation(store, "ada", parts="store", save=save, binding=binding)
            for number in range(1, 16):
                conversation.send(f"Note {number}", compactor=DROP)
            whole = conversation.state()
            counts = [part.entries for part in load_state(whole, **sealed).parts]
            cuts = len(inspect_state(whole, **sealed).cuts)
            assert cuts > 3
            assert counts == ([cuts] if type(store) is MemoryStore else [1] * cuts)
            kept = store.load_head("ada")
            assert kept is not None
            assert len(kept.parts) == len(counts)
            assert verify_state(whole, **sealed) == ()
            assert numbers(whole, archived=True, **sealed) == list(range(1, 16))
            conversation.undo_cut()
            assert verify_state(conversation.state(), **sealed) == ()
            assert numbers(conversation.state(), archived=True, **sealed) == list(range(1, 16))


def test_a_damaged_part_is_not_joined() -> None:
    """It stays as it is, for a repair by hand, and the new record has a part of its own."""
    store = MemoryStore()
    with Chat(ScriptedBackend(*["Noted."] * 30)) as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        for number in range(1, 5):
            conversation.send(f"Note {number}", compactor=DROP)
        found = store.load_head("ada")
        assert found is not None
        (part,) = found.parts
        damaged = StoredPart(name=part.name, kind=part.kind, data=bytes(len(part.data)))
        store.save_parts("ada", found.blob, [damaged], [part.name], expected=found.version)
        for number in range(5, 9):
            conversation.send(f"Note {number}", compactor=DROP)

    listed = store.load_head("ada")
    assert listed is not None
    assert part.name in {one.name for one in listed.parts}
    assert len(listed.parts) > 1


def test_an_async_conversation_shares_parts_and_goes_back() -> None:
    """The same flow, with an async store."""

    async def run() -> None:
        store = AsyncMemoryStore()
        async with AsyncChat(ScriptedBackend(*["Noted."] * 30)) as chat:
            conversation = chat.conversation(store, "ada", parts="store")
            for number in range(1, 10):
                await conversation.send(f"Note {number}", compactor=DROP)
            whole = await conversation.state()
            assert whole is not None
            (part,) = load_state(whole).parts
            assert part.entries == len(inspect_state(whole).cuts) > 1
            await conversation.undo_cut()
            await conversation.rewind(4)
            assert numbers(await conversation.state(), archived=True) == list(range(1, 6))

    asyncio.run(run())
