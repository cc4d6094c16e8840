"""A kept conversation with its closed history in parts: what is written, what leaves it, and what is lost."""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    RateLimitError,
    StateConflictError,
    StoreCommitError,
    StoreUnavailableError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.chat.kept import row_parts
from goaitools_py.chat.kept.full_row import load_row
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state import apart
from goaitools_py.state.parts import ELSEWHERE, MEDIA, SEALED_HISTORY
from goaitools_py.state.whole_blobs import parts_of, rewrap, verify_state
from goaitools_py.states import read_history
from goaitools_py.stores import MemoryStore, StoredHead
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.events import CheckpointReady, StateSaved

from ..stores._places import KINDS, maker, place_of
from .test_places import Kit, Loop, entered

PARTED = [kind for kind in KINDS if not kind.startswith("callable")]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SMALL", 150)


@pytest.fixture(params=PARTED)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    """An empty store of each kind that keeps parts."""
    with ExitStack() as stack:
        place = stack.enter_context(place_of(request.param, tmp_path))
        loop = stack.enter_context(closing(Loop()))
        yield Kit(place, stack.enter_context(entered(maker(place), loop)), loop)


@pytest.fixture(params=["plain", "signed", "encrypted"])
def opened(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of a chat with and without a key."""
    if request.param == "plain":
        return {}
    codec = (Signed if request.param == "signed" else Encrypted)(Keyring(Key.generate()))
    return {"codec": codec, "binding": {"user": "ada"}}


def words(seed: int, size: int = 120) -> str:
    dice = random.Random(seed)
    return " ".join(str(dice.random()) for _ in range(size // 18))


def picture(seed: int) -> Image:
    return Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(seed).randbytes(7_000))


def scripted(count: int = 60) -> ScriptedBackend:
    return ScriptedBackend(*[f"Reply {number} {words(-number)}" for number in range(count)])


def head(store: Any, key: str = "ada") -> StoredHead:
    found = store.load_head(key)
    assert isinstance(found, StoredHead)
    return found


def agrees(store: Any, key: str = "ada", **opened: Any) -> int:
    """Check that the names listed are the names stored. Gives the number of parts with history."""
    found = head(store, key)
    listed = [part for part in parts_of(found.blob, **opened) if part.place == ELSEWHERE]
    assert {part.digest for part in listed} == {part.name for part in found.parts}
    return len([part for part in listed if part.kind == SEALED_HISTORY])


def check_left(blob: Any, **opened: Any) -> None:
    """Check a state that has left the conversation."""
    assert type(blob) is bytes
    assert SEALED_HISTORY not in {part.kind for part in parts_of(blob, **opened)}


def said(history: Any) -> list[str]:
    return [message.text for message in history.all_messages() if message.role == "user"]


# ------------------------------------------------------------------------------------ what is written


def test_a_save_writes_what_is_new(kit: Kit) -> None:
    """The head, the newest part, and now and then a join; never what is there already."""
    saves: list[tuple[int, int]] = []

    def note(told: Any) -> None:
        if isinstance(told, StateSaved):
            saves.append((told.blob_bytes, told.written_bytes))

    chat = kit.conversation(*[words(-number, 400) for number in range(30)], parts="store")
    turns = [words(number, 400) for number in range(30)]
    for text in turns:
        chat.send(text, on_event=note)
        agrees(kit.face)
    chat.append(event("A door opens."))

    assert agrees(kit.face) > 1
    sizes, written = zip(*saves, strict=True)
    print(sizes[-1], written)
    assert sorted(written)[20] < sizes[-1] / 4
    assert sum(written) < sum(sizes) / 3
    info = chat.info().state
    assert info.blob_bytes > sizes[-1]
    assert said(chat.history())[:30] == turns
    for parts in ("inline", "store"):
        other = kit.conversation("Yes.", parts=parts)
        assert said(other.history())[:30] == turns
        check_left(other.state())


def test_a_short_conversation_needs_no_table_of_parts() -> None:
    """Its saves are those of ``parts="inline"``, to the last byte."""
    asked: list[str] = []

    class Noting(MemoryStore):
        def save_parts(self, *of: Any, **how: Any) -> int:
            asked.append("save_parts")
            return super().save_parts(*of, **how)

    blobs = []
    for parts in ("inline", "store"):
        store = Noting()
        chat = Chat(ScriptedBackend("Hi."))
        chat.conversation(store, "ada", parts=parts).send("Hello.")  # type: ignore[arg-type]
        blobs.append(head(store).blob)
        assert head(store).parts == ()
    assert asked == []
    assert [len(parts_of(blob)) for blob in blobs] == [0, 0]


def test_a_carried_part_is_not_sent_again(opened: dict[str, Any]) -> None:
    """Also of encrypted conversations: the same bytes keep their name."""
    sent: list[set[bytes]] = []

    class Noting(MemoryStore):
        def save_parts(self, key: str, head: bytes, new: Any, gone: Any, **how: Any) -> int:
            sent.append({part.name for part in new})
            return super().save_parts(key, head, new, gone, **how)

    store = Noting()
    chat = Chat(scripted(), **opened)
    conversation = chat.conversation(store, "ada", parts="store", save="checkpoint")
    for number in range(30):
        conversation.send([words(number), picture(1)] if number == 3 else words(number))
        agrees(store, **opened)

    names = [name for new in sent for name in new]
    assert len(names) == len(set(names))
    assert all(len(new) <= 1 for new in sent[10:])


# -------------------------------------------------------------------------------- what leaves is whole


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_what_leaves_is_whole(parts: Any, opened: dict[str, Any]) -> None:
    """Results, states, checkpoints, handles, errors, reports: each can be read without the store."""
    store, left = MemoryStore(), list[bytes]()
    script: list[Any] = [words(-number) for number in range(8)]
    script += [Calls([("roll", {})]), "Done.", BackendError("slow", status=429), *["More."] * 9]

    @tool
    def roll() -> int:
        """Roll a die."""
        return 4

    chat = Chat(ScriptedBackend(*script), tools=[roll], **opened)
    conversation = chat.conversation(store, "ada", parts=parts, save="checkpoint", save_timeout=0.0)
    for number in range(8):
        result = conversation.send([words(number), picture(number)] if number % 3 else words(number))
    unread = [copy.copy(result) for _ in range(7)]  # each was not asked for its state yet
    text, state = result
    assert state is result.state is result[1] is tuple(result)[1]
    assert (unread[0] == (text, state), unread[1] != (text, state), state in unread[2]) == (True, False, True)
    assert unread[3] + () == 1 * unread[4] == (text, state)
    assert (unread[5].index(state), unread[6].count(state)) == (1, 1)
    assert hash(result) == hash((text, state))
    left += [state, conversation.state()]

    told: list[Any] = []
    conversation.send("Roll.", on_checkpoint=left.append, on_event=told.append)
    left += [event.blob for event in told if isinstance(event, CheckpointReady)]
    assert len(left) > 7
    with pytest.raises(RateLimitError) as caught:
        conversation.send("Slow.")
    left.append(caught.value.state)
    with conversation.start("Now?") as turn:
        next(iter(turn))
        left.append(turn.state)
        left.append(turn.result().state)
        left.append(turn.state)
    report = conversation.compact(Compactor(lambda request: True, KeepRecentTurns(6), retain=True))
    left.append(report.state)
    left.append(conversation.redact("Slow.").state)

    expected = said(conversation.history())
    for blob in left:
        check_left(blob, **opened)
        assert verify_state(blob, **opened) == () or parts == "store"
        assert read_history(blob, **opened).turns
    assert said(read_history(left[-1], **opened)) == expected
    # And it goes on from each of them, here or in another place.
    assert chat.chat_with_state(left[0], user="Again?").text


@pytest.mark.parametrize("meanwhile", ["inline", "store"])
@pytest.mark.parametrize("mine", ["inline", "store"])
def test_what_an_unsaved_turn_leaves_is_whole(mine: Any, meanwhile: Any, opened: dict[str, Any]) -> None:
    """Its error has the state and the base; the conversation, or another one, commits it."""

    class Failing(MemoryStore):
        fails = False

        def save(self, *of: Any, **how: Any) -> int:
            if self.fails:
                raise StoreUnavailableError("down")
            return super().save(*of, **how)

        def save_parts(self, *of: Any, **how: Any) -> int:
            if self.fails:
                raise StoreUnavailableError("down")
            return super().save_parts(*of, **how)

    store = Failing()
    chat = Chat(scripted(), **opened)
    conversation = chat.conversation(store, "ada", parts="store", save_timeout=0.0)
    for number in range(6):
        conversation.send([words(number), picture(number)] if number == 2 else words(number))
    conversation.compact(Compactor(lambda request: True, KeepRecentTurns(4), retain=True))
    store.fails = True
    with pytest.raises(StoreCommitError) as caught:
        conversation.send("Unsaved.")
    store.fails = False
    check_left(caught.value.state, **opened)
    check_left(caught.value.base, **opened)

    chat.conversation(store, "ada", parts=meanwhile).append(event("A door opens."))
    check_left(chat.conversation(store, "ada", parts=mine).commit(caught.value), **opened)

    assert bool(agrees(store, **opened)) == (mine == "store")
    assert said(conversation.history())[:5] == [*[words(number) for number in range(2, 6)], "Unsaved."]
    info = conversation.info()
    assert info is not None
    assert info.state.waiting_messages == 1
    conversation.undo_cut()
    assert len(conversation.history().turns) == 7
    assert conversation.send("And?").text
    assert agrees(store, **opened)


# --------------------------------------------------------------------------------------- other writers


@pytest.mark.parametrize("theirs", ["inline", "store"])
@pytest.mark.parametrize("mine", ["inline", "store"])
def test_an_event_meanwhile_is_kept(mine: Any, theirs: Any, opened: dict[str, Any]) -> None:
    """Both sets of parts are computed against the newer head, in whatever form it is."""
    store = MemoryStore()

    def meanwhile(_: Any) -> str:
        Chat(ScriptedBackend(), **opened).conversation(store, "ada", parts=theirs).append(
            event("A door opens.")
        )
        return "Mine."

    script = [*[words(-number) for number in range(9)], meanwhile, "Next."]
    conversation = Chat(ScriptedBackend(*script), **opened).conversation(store, "ada", parts=mine)
    for number in range(9):
        conversation.send(words(number))
    result = conversation.send("Who?")

    agrees(store, **opened)
    check_left(result.state, **opened)
    assert "A door opens." in " ".join(said(read_history(result.state, **opened)))
    assert conversation.send("And?").text == "Next."
    agrees(store, **opened)
    assert len(conversation.history().turns) == 11


def test_a_turn_meanwhile_is_a_conflict_and_both_can_be_joined() -> None:
    """With ``concurrent_turns`` mine is put behind theirs; the parts before both stay."""
    store = MemoryStore()

    def meanwhile(_: Any) -> str:
        Chat(scripted()).conversation(Bare(store), "ada", parts="store").send("Theirs.")
        return "Mine."

    class Bare:
        def __init__(self, inner: MemoryStore) -> None:
            self.load, self.save = inner.load, inner.save
            self.load_head, self.save_parts, self.load_parts = (
                inner.load_head,
                inner.save_parts,
                inner.load_parts,
            )

    script = [*[words(-number) for number in range(9)], meanwhile, meanwhile]
    chat = Chat(ScriptedBackend(*script))
    conversation = chat.conversation(Bare(store), "ada", parts="store")
    for number in range(9):
        conversation.send(words(number))
    with pytest.raises(StateConflictError) as caught:
        conversation.send("Who?")
    check_left(caught.value.state)
    check_left(caught.value.base)
    before = {part.name for part in head(store).parts}

    joining = chat.conversation(Bare(store), "ada", parts="store", concurrent_turns=True)
    joining.send("Who?")

    agrees(store)
    assert said(joining.history())[-3:] == ["Theirs.", "Theirs.", "Who?"]
    assert before & {part.name for part in head(store).parts}


@pytest.mark.parametrize("way", ["rewind", "undo", "redact", "compact", "fork", "erase", "reset", "update"])
def test_every_change_keeps_names_and_parts_together(kit: Kit, way: str) -> None:
    """Names listed = names stored, and nothing of a removed text is left in a part."""
    handle = kit.conversation(*[words(-number) for number in range(20)], parts="store")
    cut = Compactor(lambda request: True, KeepRecentTurns(4), retain=True)
    for number in range(12):
        handle.send([words(number), picture(1)] if number == 5 else f"secret{number} {words(number)}")
    before = {part.name for part in head(kit.face).parts}
    turns = said(handle.history())

    match way:
        case "rewind":
            handle.rewind(2)
            assert said(handle.history()) == turns[:-2]
            assert len({part.name for part in head(kit.face).parts} - before) <= 4
        case "undo":
            handle.compact(cut)
            agrees(kit.face)
            handle.undo_cut()
            assert said(handle.history()) == turns
        case "redact":
            assert handle.redact("secret7").count == 1
            assert "secret7" not in " ".join(said(handle.history()))
        case "compact":
            handle.compact(cut)
            assert said(handle.history()) == turns[-4:]
        case "fork":
            handle.fork("bea")
            agrees(kit.face, "bea")
            copy = kit.conversation("Yes.", key="bea", parts="store")
            handle.reset()
            assert said(copy.history()) == turns
            copy.send("Still there?")
            agrees(kit.face, "bea")
            return
        case "erase" | "reset":
            getattr(handle, way)()
            assert kit.face.load_head("ada") is None
            assert kit.face.load_parts("ada", list(before)) == ()
            return
        case "update":
            handle.update(title="Doors")
            assert before == {part.name for part in head(kit.face).parts}
    agrees(kit.face)
    handle.send("And now?")
    agrees(kit.face)
    inline = kit.conversation("Yes.")
    inline.send("Whole.")
    assert head(kit.face).parts == ()
    assert said(inline.history())[-2:] == ["And now?", "Whole."]


def test_a_fork_for_another_owner(opened: dict[str, Any]) -> None:
    """All parts are sealed for the new owner."""
    store = MemoryStore()
    chat = Chat(scripted(), **opened)
    conversation = chat.conversation(store, "ada", parts="store")
    for number in range(9):
        conversation.send([words(number), picture(1)] if number == 5 else words(number))
    if not opened:
        copy = conversation.fork("bea")
    else:
        copy = conversation.fork("bea", binding={"user": "bea"})
        opened = {**opened, "binding": {"user": "bea"}}

    assert agrees(store, "bea", **opened)
    assert said(copy.history()) == said(conversation.history())
    copy.send("Mine now.")
    assert agrees(store, "bea", **opened)


def test_a_new_key_needs_one_save() -> None:
    """After it the old key opens nothing of history and media, and the next saves are small again."""
    old, new = Key.generate(), Key.generate()
    binding = {"user": "ada"}
    store, written = MemoryStore(), list[int]()

    def conversation(*keys: Key) -> Any:
        chat = Chat(scripted(), codec=Encrypted(Keyring(*keys)), binding=binding)
        return chat.conversation(store, "ada", parts="store")

    def note(told: Any) -> None:
        if isinstance(told, StateSaved):
            written.append(told.written_bytes)

    first = conversation(old)
    for number in range(20):
        first.send([words(number), picture(1)] if number == 5 else words(number))
    both = conversation(new, old)
    for _ in range(3):
        both.send("Hm.", on_event=note)

    assert written[0] > 4 * written[-1]
    assert agrees(store, codec=Encrypted(Keyring(new)), binding=binding)
    assert len(conversation(new).history().turns) == 23


def test_tools_see_whole_rows(opened: dict[str, Any]) -> None:
    """`load_row` gives one blob. A save of the same state changes no part; of a new seal, all."""
    store = MemoryStore()
    chat = Chat(scripted(), **opened)
    conversation = chat.conversation(store, "ada", parts="store")
    for number in range(9):
        conversation.send([words(number), picture(1)] if number == 5 else words(number))
    before = head(store)

    row = load_row(store, "ada", lambda blob: opened)
    assert row is not None
    check_left(row.blob, **opened)
    assert verify_state(row.blob, **opened) == ()
    assert not row.differs(
        rewrap(row.blob, opened["codec"], binding=opened["binding"]) if opened else row.blob
    )
    row.save(row.blob)

    assert {part.name for part in head(store).parts} == {part.name for part in before.parts}
    agrees(store, **opened)
    assert len(conversation.history().turns) == 9


# ------------------------------------------------------------------------------- what cannot be saved


@pytest.mark.parametrize("error", [StoreUnavailableError("permission denied"), RuntimeError("no")])
def test_a_store_that_refuses_parts_keeps_the_conversation_whole(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a right to the table of parts no turn fails: one warning, and whole blobs in this process."""

    class Refusing(MemoryStore):
        refused = 0

        def save_parts(self, *of: Any, **how: Any) -> int:
            self.refused += 1
            raise error

    store = Refusing()
    chat = Chat(scripted())
    with caplog.at_level(logging.WARNING, "goaitools_py.state"):
        for number in range(9):
            conversation = chat.conversation(store, "ada", parts="store")
            assert conversation.send(words(number)).text
    chat.conversation(store, "bea", parts="store").send(["Look.", picture(1)])

    assert store.refused == 2
    assert [record.event for record in caplog.records] == ["state.parts_refused"]  # type: ignore[attr-defined]
    assert (head(store).parts, head(store, "bea").parts) == ((), ())
    assert len(conversation.history().turns) == 9
    assert MEDIA in {part.kind for part in parts_of(head(store, "bea").blob)}


def test_a_store_that_has_kept_parts_is_asked_again() -> None:
    """Two failures in a row save one turn whole; the next one is in parts again."""

    class Flaky(MemoryStore):
        failures = 0

        def save_parts(self, *of: Any, **how: Any) -> int:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailableError("down")
            return super().save_parts(*of, **how)

    store = Flaky()
    conversation = Chat(scripted()).conversation(store, "ada", parts="store")
    for number in range(9):
        store.failures = 2 if number == 6 else 0
        conversation.send(words(number))

    assert store not in row_parts._refuses_parts
    assert agrees(store) > 1
    assert len(conversation.history().turns) == 9
