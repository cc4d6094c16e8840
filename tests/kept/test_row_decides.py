"""The row decides how it is read, and `parts=` only how it is written: on every store, in both colours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace as replace_part
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    StateConflictError,
    StateCorruptError,
    StatePartMissingError,
    StoreCommitError,
    event,
)
from goaitools_py.base.values import replace as replace_value
from goaitools_py.chat.kept.changes import reset_flow
from goaitools_py.chat.kept.full_row import load_row
from goaitools_py.chat.kept.row import Row
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.state.parts import ARCHIVE, MEDIA
from goaitools_py.state.whole_blobs import parts_of, verify_state
from goaitools_py.stores import MemoryStore, StoredHead
from goaitools_py.testing import ScriptedBackend

from ..stores._places import KINDS, maker, place_of
from .test_places import Kit, Loop, entered

CUT = Compactor(lambda request: request.turn_count > 2, KeepRecentTurns(2), retain=True)


def picture(seed: int) -> Image:
    return Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(seed).randbytes(7_000))


@pytest.fixture(params=[kind for kind in KINDS if not kind.startswith("callable")])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    """An empty store of each kind that keeps parts."""
    with ExitStack() as stack:
        place = stack.enter_context(place_of(request.param, tmp_path))
        loop = stack.enter_context(closing(Loop()))
        yield Kit(place, stack.enter_context(entered(maker(place), loop)), loop)


def in_parts(kit: Kit, **fields: Any) -> None:
    """A conversation with an archive and a picture, written with ``parts="store"``: three parts or more."""
    writer = kit.conversation(*["Seen."] * 4, parts="store", **fields)
    writer.send("My name is Ada.", compactor=CUT)
    writer.send(["One.", picture(1)], compactor=CUT)
    writer.send(["Two.", picture(2)], compactor=CUT)
    assert {part.kind for part in head(kit).parts} == {ARCHIVE, MEDIA}


def head(kit: Kit, key: str = "ada") -> StoredHead:
    found = kit.face.load_head(key)
    assert isinstance(found, StoredHead)
    return found


def is_whole(kit: Kit) -> bool:
    """The row is one blob, without a part beside it."""
    found = head(kit)
    return found.parts == () and verify_state(found.blob) == ()


def told(conversation: Any) -> list[str]:
    return [message.text for message in conversation.history().all_messages() if message.role == "user"]


# --------------------------------------------------------------------------------------------- readers


def test_a_handle_with_inline_reads_a_row_in_parts(kit: Kit) -> None:
    """Nothing that only reads changes the row, and all of them see all of it."""
    in_parts(kit)
    before = head(kit)
    reader = kit.conversation()

    whole = reader.state()
    assert verify_state(whole) == ()
    assert {part.kind for part in parts_of(whole)} == {ARCHIVE, MEDIA}
    pictures = [p for m in reader.history().all_messages() for p in m.parts if isinstance(p, Image)]
    assert pictures == [picture(1), picture(2)]
    assert reader.info().state.turns == 2
    assert reader.pending() == ()
    assert reader.snapshot().history.turns
    assert "set_aside" in reader.export()
    assert (head(kit).version, head(kit).blob) == (before.version, before.blob)


@pytest.mark.parametrize(
    "way", ["turn", "checkpoint", "append", "update", "compact", "rewind", "undo", "redact"]
)
def test_a_handle_with_inline_writes_the_whole_blob(kit: Kit, way: str) -> None:
    """The save drops all parts in the same step, and the next save of either kind goes on from there."""
    in_parts(kit)
    handle = kit.conversation("Again.", "More.", save="checkpoint" if way == "checkpoint" else "turn")

    match way:
        case "turn" | "checkpoint":
            assert handle.send("What did you see?").text == "Again."
        case "append":
            handle.append(event("A door opens."))
        case "update":
            handle.update(title="Doors")
        case "compact":
            handle.compact(Compactor(lambda request: True, KeepRecentTurns(1), retain=True))
        case "rewind":
            handle.rewind(1)
        case "undo":
            handle.undo_cut()
        case "redact":
            assert handle.redact("Ada").count

    assert is_whole(kit)
    kinds = {part.kind for part in parts_of(head(kit).blob)}
    assert MEDIA in kinds
    assert way in ("rewind", "undo") or ARCHIVE in kinds
    handle.send("And now?")
    assert is_whole(kit)
    writer = kit.conversation("Back.", parts="store")
    writer.send("Into parts again.")
    assert head(kit).parts
    assert told(kit.conversation()) == told(writer)


def test_two_writers_take_turns(kit: Kit) -> None:
    """An inline turn that meets a save in parts is rebased on it, and loses nothing."""
    in_parts(kit)
    inline = kit.conversation()

    def meanwhile(request: Any) -> str:
        kit.conversation(parts="store").append(event("A door opens."))
        return "Mine."

    script = kit.conversation(meanwhile, "Next.")
    if kit.is_async:  # a blocking script cannot await a store of the same loop
        inline.append(event("A door opens."))
        script = kit.conversation("Mine.", "Next.")
    result = script.send("Who?")

    assert result.text == "Mine."
    assert is_whole(kit)
    assert kit.conversation().info().state.waiting_messages in (0, 1)
    assert script.send("And?").text == "Next."
    assert "A door opens." in " ".join(told(kit.conversation()))


@pytest.mark.parametrize("is_whole_before", [False, True])
@pytest.mark.parametrize("parts", ["inline", "store"])
def test_an_error_in_parts_is_committed_by_any_handle(parts: Any, is_whole_before: bool) -> None:
    """The state of the error lists parts that only the row has: beside its head, or in its blob."""
    store = MemoryStore()
    chat = Chat(ScriptedBackend(*["Seen."] * 5))
    writer = chat.conversation(store, "ada", parts="store", save_timeout=0.0)
    for text in ("My name is Ada.", ["One.", picture(1)], ["Two.", picture(2)]):
        writer.send(text, compactor=CUT)
    names = {part.name for part in store.load_head("ada").parts}  # type: ignore[union-attr]
    save, store.save_parts = store.save_parts, _fails  # type: ignore[method-assign]
    with pytest.raises(StoreCommitError) as caught:
        writer.send("Three.")
    store.save_parts = save  # type: ignore[method-assign]
    if is_whole_before:  # another handle saved the row whole, and dropped the parts
        chat.conversation(store, "ada").append(event("A door opens."))
        assert store.load_head("ada").parts == ()  # type: ignore[union-attr]

    chat.conversation(store, "ada", parts=parts).commit(caught.value)

    found = store.load_head("ada")
    assert found is not None
    assert {part.digest for part in parts_of(found.blob)} == names
    if parts == "inline":
        assert (found.parts, verify_state(found.blob)) == ((), ())
    else:
        assert {part.name for part in found.parts} == names
    assert told(chat.conversation(store, "ada"))[:3] == ["One.", "Two.", "Three."]


def _fails(*args: Any, **fields: Any) -> Any:
    raise RuntimeError("no")


# ------------------------------------------------------------------------------ what is missing, or bad


def lose(kit: Kit, kind: int) -> bytes:
    """Drop a part of this kind that the head still lists."""
    found = head(kit)
    name = next(part.name for part in found.parts if part.kind == kind)
    kit.face.save_parts("ada", found.blob, (), {name}, expected=found.version)
    return name


@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize("answer", [None, "fresh", "raise"])
def test_a_missing_part_is_no_damage(kit: Kit, parts: Any, answer: Any) -> None:
    """It is looked for once more, and then raised whatever `on_bad_state` says: nothing is saved or moved."""
    in_parts(kit)
    name = lose(kit, MEDIA)
    before = head(kit)
    handle = kit.conversation("Never.", parts=parts)

    for act in (lambda: handle.send("Hm.", on_bad_state=answer), handle.state, handle.history):
        with pytest.raises(StatePartMissingError, match=r"conversation\.state\(\)") as caught:
            act()
        assert caught.value.digest == name.hex()
    with pytest.raises(StatePartMissingError):
        handle.append(event("A door opens."))

    assert head(kit) == before
    assert kit.face.list("ada").keys == kit.face.list("").keys
    assert len(kit.face.list("ada").keys) == 1


def test_a_turn_in_parts_needs_no_archive(kit: Kit) -> None:
    """Only what reads the archive says that a part of it is missing."""
    in_parts(kit)
    lose(kit, ARCHIVE)
    handle = kit.conversation("Yes.", parts="store")

    assert handle.send("Are you there?").text == "Yes."
    with pytest.raises(StatePartMissingError):
        handle.state()


def spoil(kit: Kit) -> None:
    """Change the bytes of a picture's part, under the same name."""
    found = head(kit)
    part = next(part for part in found.parts if part.kind == MEDIA)
    spoilt = replace_part(part, data=part.data[:-1] + bytes([part.data[-1] ^ 1]))
    kit.face.save_parts("ada", found.blob, (), {part.name}, expected=found.version)
    kit.face.save_parts("ada", found.blob, (spoilt,), (), expected=found.version + 1)


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_spoilt_bytes_are_damage(kit: Kit, parts: Any) -> None:
    """`on_bad_state` answers it: head and all parts of the key stand aside, and a fresh one begins."""
    in_parts(kit)
    spoil(kit)
    before = head(kit)
    handle = kit.conversation("Fresh.", parts=parts)
    for act in (lambda: handle.send("Hm.", on_bad_state="raise"), handle.state, handle.history):
        with pytest.raises(StateCorruptError) as caught:
            act()
        assert type(caught.value.blob) is bytes
    assert head(kit) == before

    result = handle.send("Hello.")

    assert result.discarded is not None
    assert type(result.discarded.blob) is bytes
    assert [warning.code for warning in result.warnings] == ["state_discarded", "state_moved"]
    (aside,) = [entry.key for entry in kit.face.list("ada.unreadable.").keys]
    moved = head(kit, aside)
    assert moved.blob == before.blob
    assert {(part.name, part.data) for part in moved.parts} == {(p.name, p.data) for p in before.parts}
    assert head(kit).parts == ()
    assert told(handle) == ["Hello."]
    assert handle.export()["set_aside"][0]["parts"]


def test_two_copies_of_one_head_are_kept_aside() -> None:
    """A backup came back with other damage: each part that is good in one of the copies can be found."""
    store = MemoryStore()
    chat = Chat(ScriptedBackend(*["Seen."] * 6))
    handle = chat.conversation(store, "ada", parts="store")
    handle.send(["One.", picture(1)])
    handle.send(["Two.", picture(2)])
    backup = store.load_head("ada")
    assert backup is not None
    for spoilt in (*backup.parts, backup.parts[0]):  # the last damage is the first one again
        parts = [replace_part(p, data=p.data[:-1] + b"?") if p is spoilt else p for p in backup.parts]
        store.delete("ada")
        store.save_parts("ada", backup.blob, parts, (), expected=None)
        handle.send("Hello.")

    keys = [entry.key for entry in store.list("ada.unreadable.").keys]
    assert len(keys) == len(backup.parts) == 2
    found = {part for key in keys for part in store.load_head(key).parts}  # type: ignore[union-attr]
    assert found >= {*backup.parts}


def test_an_unreadable_head_takes_its_parts_along(kit: Kit) -> None:
    """Whatever `parts=` says, for the bytes cannot say whether they list any."""
    in_parts(kit)
    found = head(kit)
    broken = found.blob[:40] + bytes([found.blob[40] ^ 1]) + found.blob[41:]
    kit.face.save("ada", broken, expected=found.version)

    kit.conversation("Fresh.").send("Hello.")

    (aside,) = [entry.key for entry in kit.face.list("ada.unreadable.").keys]
    assert {part.name for part in head(kit, aside).parts} == {part.name for part in found.parts}
    assert is_whole(kit)


def test_a_part_of_another_moment_is_looked_for_once_more() -> None:
    """A replica may give a newer head than its parts; the next load has both."""
    chat = Chat(ScriptedBackend(*["Seen."] * 9))

    class Replica(MemoryStore):
        late = 0

        def load_head(self, key: str, **fields: Any) -> StoredHead | None:
            found = super().load_head(key, **fields)
            if self.late and found is not None:
                self.late -= 1
                return StoredHead(blob=found.blob, version=found.version, updated_at=found.updated_at)
            return found

    store = Replica()
    chat.conversation(store, "ada", parts="store").send(["One.", picture(1)])
    for parts in ("store", "inline"):
        handle = chat.conversation(store, "ada", parts=parts)  # type: ignore[arg-type]
        store.late = 1
        assert handle.history().turns
        store.late = 2
        with pytest.raises(StatePartMissingError):
            handle.state()
        store.late = 1
        assert load_row(store, "ada", lambda blob: {}) is not None
        store.late = 1
        assert handle.send("Hm.").text == "Seen."


def test_a_part_that_is_nowhere_is_not_saved() -> None:
    """A row without a state is worth more than one with a state that nobody can read."""
    other, store = MemoryStore(), MemoryStore()
    chat = Chat(ScriptedBackend(*["Seen."] * 5))
    chat.conversation(other, "ada", parts="store").send(["One.", picture(1)])
    head_alone = other.load("ada").blob  # type: ignore[union-attr]
    conversation = chat.conversation(store, "ada")

    with pytest.raises(StateConflictError, match="still lists"):
        conversation._run(Row(conversation._settings).commit(head_alone))

    assert store.load("ada") is None


def test_a_store_that_reads_parts_and_saves_none() -> None:
    """The handle could not save the turn. So a row with parts ends it before a model is asked."""

    class Reader:
        def __init__(self, store: MemoryStore) -> None:
            self.load, self.save, self.load_head = store.load, store.save, store.load_head

    store, backend = MemoryStore(), ScriptedBackend("Seen.", "Fine.")
    chat = Chat(backend)
    chat.conversation(store, "ada", parts="store").send(["One.", picture(1)])

    with pytest.raises(StatePartMissingError):
        chat.conversation(Reader(store), "ada").send("Two.")  # type: ignore[arg-type]

    assert len(backend.requests) == 1
    assert chat.conversation(Reader(store), "bob").send("Three.").text == "Fine."  # type: ignore[arg-type]


class Undeletable:
    """A store that cannot delete, so that an empty conversation takes the place of a deleted one."""

    def __init__(self, store: MemoryStore) -> None:
        self.load, self.save = store.load, store.save
        self.load_head, self.save_parts = store.load_head, store.save_parts


@pytest.mark.parametrize("act", ["send", "reset"])
def test_another_worker_saves_while_bytes_are_set_aside(act: str) -> None:
    """Nothing was called yet: the turn, or the deletion, begins anew with what is stored now."""

    class Meanwhile(MemoryStore):
        writes = 0

        def load_head(self, key: str, **fields: Any) -> StoredHead | None:
            if key == "ada" and self.writes:
                self.writes -= 1
                found = self.load(key)
                self.save(key, b"other bytes", expected=None if found is None else found.version)
            return super().load_head(key, **fields)

    store = Meanwhile()
    store.save("ada", b"some bytes", expected=None)
    conversation = Chat(ScriptedBackend("Seen.")).conversation(store, "ada")
    store.writes = 1

    if act == "send":
        assert conversation.send("One.").text == "Seen."
    else:
        conversation._run(reset_flow(replace_value(conversation._settings, store=Undeletable(store))))
        assert not conversation.history().turns
    aside = [entry.key for entry in store.list("ada.unreadable.").keys]
    assert [store.load(key).blob for key in aside] == [b"other bytes"]  # type: ignore[union-attr]


def test_a_head_alone_ends_where_it_is_read() -> None:
    """A blob from `store.load`, or from a column, lacks the picture that the next request has to hold."""
    store = MemoryStore()
    chat = Chat(ScriptedBackend("Seen.", "Never."))
    chat.conversation(store, "ada", parts="store").send(["One.", picture(1)])
    blob = store.load("ada").blob  # type: ignore[union-attr]

    for answer in ("fresh", "raise"):
        with pytest.raises(StatePartMissingError):
            chat.chat_with_state(blob, user="Hm.", on_bad_state=answer)  # type: ignore[arg-type]


def test_encrypted_rows_go_both_ways() -> None:
    """The parts are sealed for their owner; whole or apart, the conversation is the same."""
    chat = Chat(
        ScriptedBackend(*["Seen."] * 9), codec=Encrypted(Keyring(Key.generate())), binding={"user": "ada"}
    )
    store = MemoryStore()
    for number, parts in enumerate(("store", "inline", "store", "inline", "inline")):
        handle = chat.conversation(store, "ada", parts=parts)  # type: ignore[arg-type]
        handle.send([f"{number}.", picture(number)])
        kept = store.load_head("ada").parts  # type: ignore[union-attr]
        assert len(kept) == (number + 1 if parts == "store" else 0)
    assert len(handle.history().turns) == 5


# ------------------------------------------------------------------------------------------- and costs


def test_an_inline_row_costs_no_load_more() -> None:
    """A row without parts, and one with parts in its blob, are loaded and saved as before."""
    asked: list[str] = []

    class Counting(MemoryStore):
        def load_head(self, *args: Any, **fields: Any) -> Any:
            asked.append("load_head")
            return super().load_head(*args, **fields)

        def save_parts(self, *args: Any, **fields: Any) -> Any:
            asked.append("save_parts")
            return super().save_parts(*args, **fields)

    store = Counting()
    chat = Chat(ScriptedBackend(*["Seen."] * 9))
    handle = chat.conversation(store, "ada")
    handle.send("Hello.")
    handle.send(["One.", picture(1)])  # a part in the blob
    handle.send("Two.")
    handle.history()
    assert asked == []

    chat.conversation(store, "ada", parts="store").send("Three.")
    asked.clear()
    handle.send("Four.")
    handle.send("Five.")
    assert asked == ["load_head", "save_parts"]
