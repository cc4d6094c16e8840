"""Requests for privacy of a kept conversation: a text taken out, everything given, everything erased."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    Compactor,
    KeepRecentTurns,
    StateConflictError,
    StateError,
    StoreUnavailableError,
    TurnInProgressError,
    TurnLimit,
    event,
)
from goaitools_py.chat.kept.full_row import load_row
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.state.parts import ELSEWHERE
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import import_state, read_history, redact_state
from goaitools_py.stores import AsyncMemoryStore, AsyncStore, MemoryStore
from goaitools_py.testing import ScriptedBackend

from ..history._planted import traces
from .conftest import FaultyStore, LeasingStore, Threads, blob_in, other, said
from .test_places import Kit, kit

__all__ = ["kit"]

SECRET = "hunter2-ZQ9"
CUT = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
DAMAGED = b"\xf5GAS\x01\x00\x01\x00 damaged hunter2-ZQ9"
SEALED: dict[str, Any] = {"codec": Encrypted(Keyring(Key(b"k" * 32))), "binding": {"user": "1"}}


def filled(conversation: Any) -> None:
    """A title, an archive, a history and a waiting event with the secret."""
    for text in (f"It is {SECRET}.", "Two.", f"Again {SECRET}."):
        conversation.send(text)
    conversation.compact(CUT)
    conversation.append(event(f"{SECRET} waits."))
    conversation.update(title=f"About {SECRET}")


def whole(conversation: Any, **sealed: Any) -> list[str]:
    """Every text of the transcript."""
    history = read_history(conversation.state(), archived=True, **sealed)
    return [one.said for one in history.all_messages()]


# -------------------------------------------------------------------------------------- every store


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_in_every_store(kit: Kit, parts: str) -> None:
    """Parts in the store and bytes set aside included: redacted, given, erased; another key stays."""
    if parts == "store" and not hasattr(kit.store, "save_parts"):
        parts = "inline"
    conversation = kit.conversation("A.", f"B {SECRET}.", "C.", parts=parts)
    bystander = kit.conversation("Hello.", key="ada2")
    bystander.send(f"Mine is {SECRET}, too.")
    filled(conversation)
    can_list = hasattr(kit.store, "list")
    if can_list:
        kit.face.save(f"ada.unreadable.{'0' * 24}", DAMAGED, expected=None)

    done = conversation.redact(SECRET)

    assert whole(conversation) == [
        "It is [redacted].",
        "A.",
        "Two.",
        "B [redacted].",
        "Again [redacted].",
        "C.",
        "[redacted] waits.",
    ]
    assert traces(conversation.state(), SECRET) == 0
    assert conversation.info().title == "About [redacted]"
    assert {place.where for place in done.places} == {"history", "archive", "inbox", "facts"}
    assert done.erased == (1 if can_list else None)
    again = conversation.redact(SECRET)
    # Without leases it leaves a mark, for turns that have loaded an older row.
    assert (again.count, again.state == done.state) == (0, hasattr(kit.store, "lease"))

    if can_list:
        kit.face.save(f"ada.unreadable.{'1' * 24}", DAMAGED, expected=None)
    given = conversation.export()
    assert json.loads(json.dumps(given)) == given
    texts = [one["text"] for turn in given["state"]["transcript"]["turns"] for one in turn["messages"]]
    assert texts[:2] == ["It is [redacted].", "A."]
    assert import_state(given["state"]) == conversation.state()
    assert [one["key"][:4] for one in given["set_aside"]] == ["ada."] * can_list

    if not (can_list and hasattr(kit.store, "delete")):
        with pytest.raises(TypeError, match="delete"):
            conversation.erase()
        return
    assert conversation.erase() == 2
    assert (conversation.state(), conversation.export(), conversation.erase()) == (None, None, 0)
    assert [one.key for one in kit.face.list("").keys] == ["ada2"]
    assert kit.face.list("ada.unreadable.").keys == ()
    assert said(bystander.state())[0] == f"Mine is {SECRET}, too."


def leave_parts(store: Any, conversation: Any) -> None:
    """Save a whole state without the secret over a head, as a program of a user does. `save` leaves parts."""
    filled(conversation)
    found = store.load_head("ada")
    assert found.parts
    store.save("ada", redact_state(conversation.state(), SECRET).state, expected=found.version)
    assert store.load_head("ada").parts == found.parts


def check_parts(store: Any) -> None:
    """Check that the store has the parts that the head lists, and no others."""
    found = store.load_head("ada")
    listed = {part.digest for part in parts_of(found.blob) if part.place == ELSEWHERE}
    assert {part.name for part in found.parts} == listed


@pytest.mark.parametrize("text", [SECRET, "Two."])
@pytest.mark.parametrize("parts", ["inline", "store"])
def test_parts_that_no_head_lists_go_with_a_redaction(kit: Kit, parts: str, text: str) -> None:
    """Nobody can search them. They go also if the text is nowhere else."""
    if not hasattr(kit.store, "save_parts"):
        return
    leave_parts(kit.face, kit.conversation("A.", "B.", "C.", parts="store"))
    conversation = kit.conversation(parts=parts)

    assert conversation.redact(text).count == (1 if text == "Two." else 0)

    check_parts(kit.face)
    version = kit.face.load_head("ada").version
    conversation.redact(SECRET)
    assert kit.face.load_head("ada").version == version  # nothing is left to do


@pytest.mark.parametrize("place", ["inline", "store", None])
def test_parts_that_no_head_lists_go_with_the_save_of_a_tool(place: Any) -> None:
    """Then the row is not as it should be, though its state is."""
    store = MemoryStore()
    leave_parts(store, Chat(ScriptedBackend("A.", "B.", "C.")).conversation(store, "ada", parts="store"))

    row = load_row(store, "ada", lambda blob: {})
    assert row is not None
    assert row.differs(row.blob, place=place)
    row.save(row.blob, place=place)

    check_parts(store)
    again = load_row(store, "ada", lambda blob: {})
    assert again is not None
    assert again.blob == row.blob
    assert not again.differs(again.blob, place=place)
    assert bool(store.load_head("ada").parts) is (place == "store")  # type: ignore[union-attr]


def test_nothing_is_left_in_the_tables_of_a_database(tmp_path: Any) -> None:
    """Head, parts and lease: no row of any table names the key any more."""
    import sqlite3

    from goaitools_py.stores import SQLiteStore

    file = tmp_path / "a.db"
    with SQLiteStore(str(file)) as store, Chat(ScriptedBackend("A.", "B.", "C.")) as chat:
        conversation = chat.conversation(store, "ada", parts="store")
        filled(conversation)
        conversation.erase()
    with sqlite3.connect(file) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        rows = [row for table in tables for row in connection.execute(f'SELECT * FROM "{table}"')]
    connection.close()

    assert len(tables) >= 3
    assert not [
        row for row in rows if "ada" in row or any(b"hunter2" in one for one in row if type(one) is bytes)
    ]


# ------------------------------------------------------------------------------------- one worker


def test_what_cannot_be_searched_asks_no_store(kept: Threads, store: FaultyStore) -> None:
    """The match is checked first."""
    conversation = kept(ScriptedBackend(), store)

    with pytest.raises(ValueError, match="with_"):
        conversation.redact("a", "bab")
    assert store.loads == 0


def test_nothing_is_stored(kept: Threads, store: FaultyStore) -> None:
    """Nothing is made of nothing."""
    conversation = kept(ScriptedBackend(), store)

    done = conversation.redact(SECRET)

    assert (done.state, done.count, done.erased) == (b"", 0, None)
    assert conversation.export() is None
    assert blob_in(store) == b""


def test_a_turn_that_has_loaded_the_text_does_not_bring_it_back(kept: Threads, store: FaultyStore) -> None:
    """Without leases it runs beside a redaction that finds nothing, because the text was taken back."""
    store.inner.save("ada", Chat(ScriptedBackend()).append_to_state(None, event(SECRET)), expected=None)

    def meanwhile(_: object) -> str:
        taken_back = Chat(ScriptedBackend()).append_to_state(None, event("It rains."))
        store.inner.save("ada", taken_back, expected=store.inner.load("ada").version)  # type: ignore[union-attr]
        assert other(store).redact(SECRET).count == 0
        return "Fine."

    with pytest.raises(StateConflictError):
        kept(ScriptedBackend(meanwhile), store).send("Hello.")

    assert said(blob_in(store)) == ["It rains."]


def test_a_save_by_another_worker_is_redacted_too(kept: Threads, store: FaultyStore) -> None:
    """An event that came in between is in the state, without the secret."""
    conversation = kept(ScriptedBackend("A."), store)
    conversation.send(f"It is {SECRET}.")
    store.faults.append(lambda: other(store).append(event(f"{SECRET} came.")))

    done = conversation.redact(SECRET)

    assert said(blob_in(store)) == ["It is [redacted].", "A.", "[redacted] came."]
    assert done.count == 2


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_a_save_that_fails_once(kept: Threads, store: FaultyStore, fault: str) -> None:
    """It is found, or done once more."""
    conversation = kept(ScriptedBackend("A."), store)
    conversation.send(f"It is {SECRET}.")
    store.faults.append(fault)

    conversation.redact(SECRET)

    assert said(blob_in(store)) == ["It is [redacted].", "A."]


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_turn_on_the_state_before_is_a_conflict(
    kept: Threads, store: FaultyStore, concurrent: bool
) -> None:
    """The secret does not come back with it, nor with a commit; sent again, the message is answered anew."""

    def meanwhile(_: Any) -> str:
        other(store).redact(SECRET)
        return f"It was {SECRET}."

    backend = ScriptedBackend("A.", meanwhile, "I do not know.")
    conversation = kept(backend, store, concurrent_turns=concurrent)
    conversation.send(f"It is {SECRET}.")

    with pytest.raises(StateConflictError) as caught:
        conversation.send("And now?", turn_id="m-1")
    with pytest.raises(StateConflictError, match="redacted"):
        conversation.commit(caught.value)
    assert said(blob_in(store)) == ["It is [redacted].", "A."]
    assert conversation.send("And now?", turn_id="m-1").text == "I do not know."


@pytest.mark.parametrize("act", ["redact", "erase"])
def test_a_running_turn_is_waited_for(kept: Threads, leasing: LeasingStore, act: str) -> None:
    """While another worker holds the lease nothing is done; afterwards it is, and the lease is free again."""
    conversation = kept(ScriptedBackend("A."), leasing, gate="reject")
    conversation.send(f"It is {SECRET}.")
    blob = blob_in(leasing)
    do = {"redact": lambda: conversation.redact(SECRET).count, "erase": conversation.erase}[act]

    with leasing.inner.lease("ada", 60.0), pytest.raises(TurnInProgressError):
        do()
    assert blob_in(leasing) == blob
    assert do() == 1
    assert traces(blob_in(leasing), SECRET) == 0 if act == "redact" else blob_in(leasing) == b""


def test_an_erasure_that_fails_gives_the_lease_back(kept: Threads, leasing: LeasingStore) -> None:
    """The error of the store is raised, and the next try erases the rest."""
    conversation = kept(ScriptedBackend("A."), leasing)
    conversation.send("Hi.")
    leasing.inner.save(f"ada.unreadable.{'0' * 24}", DAMAGED, expected=None)
    delete, calls = leasing.inner.delete, []

    def failing(key: str, *, expected: int | None = None) -> bool:
        calls.append(key)
        if len(calls) == 2:
            raise StoreUnavailableError("down")
        return delete(key, expected=expected)

    leasing.inner.delete = failing  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailableError):
        conversation.erase()

    assert conversation.erase() == 1
    assert leasing.inner.list("ada.unreadable.").keys == ()


def _kept(kept: Threads, inner: Any) -> Any:
    from .conftest import Kept

    return Kept(inner, kept.face.run)


def test_what_cannot_be_read_stays(kept: Threads, leasing: LeasingStore) -> None:
    """A damaged row cannot be redacted: it is an error. It is given as bytes, and erased as any row."""
    leasing.inner.save("ada", DAMAGED, expected=None)
    conversation = kept(ScriptedBackend(), leasing)

    with pytest.raises(StateError):
        conversation.redact(SECRET)
    given = conversation.export()
    assert given is not None
    assert (given["state"], given["base64"][:4]) == (None, "9UdB")
    assert blob_in(leasing) == DAMAGED
    assert conversation.erase() == 1


def test_what_can_be_read_again_is_redacted_aside(kept: Threads) -> None:
    """Bytes aside that a key opens now are redacted in place, and stay."""
    store: Any = AsyncMemoryStore() if kept.face.is_async else MemoryStore()
    chat: Any = (AsyncChat if kept.face.is_async else Chat)(ScriptedBackend("A."), **SEALED)
    conversation = _kept(kept, chat.conversation(store, "ada"))
    conversation.send(f"It is {SECRET}.")
    beside = f"ada.unreadable.{'a' * 24}"
    blob = conversation.state()
    _save(kept, store, beside, blob)

    done = conversation.redact(SECRET)

    assert (done.erased, done.places[-1].where, done.count) == (0, "set_aside", 2)
    stored = kept.face.run(store.load(beside)) if kept.face.is_async else store.load(beside)
    assert traces(stored.blob, SECRET, SEALED["codec"], SEALED["binding"]) == 0


def _save(kept: Threads, store: MemoryStore | AsyncStore, key: str, blob: bytes) -> None:
    found: Any = store.save(key, blob, expected=None)
    if kept.face.is_async:
        kept.face.run(found)
