"""What is stored cannot be read: it is never overwritten; where a turn begins anew, it is moved aside."""

from __future__ import annotations

import pytest

from goaitools_py import (
    NO_COMPACTION,
    Chat,
    StateConflictError,
    StateError,
    StateFormatError,
    StateProviderError,
    StateVersionError,
    StoreUnavailableError,
    TurnError,
    event,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.testing import ScriptedBackend

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, other, said

DAMAGED = b"what somebody else wrote"


def put(store: FaultyStore, blob: bytes, key: str = "ada") -> None:
    """Store bytes as they are."""
    found = store.inner.load(key)
    store.inner.save(key, blob, expected=found.version if found else None)


def aside(store: FaultyStore) -> dict[str, bytes]:
    """What stands under other keys."""
    listed = [found.key for found in store.inner.list().keys]
    assert listed in ([], ["ada"])  # what was set aside is no conversation
    keys = [found.key for found in store.inner.list("ada.unreadable.").keys]
    return {key: blob_in(store, key) for key in keys}


def test_damage_is_moved_aside(kept: Threads, store: FaultyStore, save: str) -> None:
    """A fresh conversation begins, the original bytes are kept, and the result says where."""
    put(store, DAMAGED)
    conversation = kept(ScriptedBackend("Hello.", "Again."), store, save=save)
    result = conversation.send("Hello?")

    ((key, blob),) = aside(store).items()
    assert key.startswith("ada.unreadable.")
    assert blob == DAMAGED
    assert said(blob_in(store)) == ["Hello?", "Hello."]
    assert isinstance(result.discarded, StateFormatError)
    warnings = {warning.code: warning.message for warning in result.warnings}
    assert set(warnings) == {"state_discarded", "state_moved"}
    assert key.removeprefix("ada") in warnings["state_moved"]
    assert "ada." not in warnings["state_moved"]
    assert said(conversation.send("And?").state)[-1] == "Again."


@pytest.mark.parametrize("on_bad_state", ["fresh", None, "raise"])
def test_a_state_of_another_provider_api_stays(
    kept: Threads, store: FaultyStore, save: str, on_bad_state: str | None
) -> None:
    """The chat is configured for another API: nothing is overwritten, moved, saved or asked."""
    foreign = Chat(ScriptedBackend("Hello.", wire="anthropic")).chat(user="Hello?").state
    put(store, foreign)
    backend = ScriptedBackend()
    conversation = kept(backend, store, save=save, chat={"on_bad_state": on_bad_state})

    for act in (
        lambda: conversation.send("Hi?"),
        lambda: conversation.send("Hi?", turn_id="m-1"),
        lambda: conversation.start("Hi?").result(),
        lambda: conversation.resume(),
        lambda: conversation.append(event("E.")),
        lambda: conversation.compact(NO_COMPACTION),
        lambda: conversation.history(),
        lambda: conversation.rewind(),
        lambda: conversation.undo_cut(),
    ):
        with pytest.raises(StateProviderError, match="'anthropic'"):
            act()

    assert (blob_in(store), aside(store), store.saves, backend.requests) == (foreign, {}, [], [])


def test_a_foreign_state_is_moved_aside_when_told_to(kept: Threads, store: FaultyStore, save: str) -> None:
    """It is whole, and can be gone on with by a chat on its own API."""
    foreign = Chat(ScriptedBackend("Hello.", wire="anthropic")).chat(user="Hello?").state
    put(store, foreign)

    result = kept(ScriptedBackend("Hi."), store, save=save).send("Hi?", on_foreign_state="fresh")

    assert isinstance(result.discarded, StateProviderError)
    assert list(aside(store).values()) == [foreign]
    assert said(blob_in(store)) == ["Hi?", "Hi."]


def test_the_same_damage_is_kept_once(kept: Threads, store: FaultyStore) -> None:
    """A failed turn moves it aside, and its redelivery finds it there."""
    put(store, DAMAGED)
    with pytest.raises(TurnError) as caught:
        kept(ScriptedBackend(BackendError("down")), store).send("Hello?", turn_id="m-1")
    assert [warning.code for warning in caught.value.warnings][-1] == "state_moved"
    assert said(blob_in(store)) == ["Hello?"]

    put(store, DAMAGED)
    kept(ScriptedBackend("Hello."), store).send("Hello?", turn_id="m-1")

    assert list(aside(store).values()) == [DAMAGED]


def test_the_turn_of_another_worker_stays_if_this_one_is_refused(kept: Threads, store: FaultyStore) -> None:
    """Both workers moved the damage aside, and the other one saved first. Its turn is not taken back."""
    put(store, DAMAGED)
    first = Chat(ScriptedBackend("You are the first.")).chat(user="Hello?").state
    store.faults = [None, lambda: put(store, first)]  # the copy, then the first checkpoint
    conversation = kept(ScriptedBackend(BackendError("no", status=400)), store, save="checkpoint")

    with pytest.raises(TurnError) as caught:
        conversation.send("Poison.")

    assert said(blob_in(store)) == ["Hello?", "You are the first."]
    assert "state_moved" not in [warning.code for warning in caught.value.warnings]
    assert list(aside(store).values()) == [DAMAGED]


def test_what_another_worker_saved_is_moved_aside_too(kept: Threads, store: FaultyStore) -> None:
    """If it cannot be read either: each of both has its copy."""
    put(store, DAMAGED)
    store.faults = [None, lambda: put(store, DAMAGED + b" later")]
    conversation = kept(ScriptedBackend("Hello."), store, save="checkpoint")

    conversation.send("Hello?")

    assert sorted(aside(store).values()) == [DAMAGED, DAMAGED + b" later"]
    assert said(blob_in(store)) == ["Hello?", "Hello."]


def test_a_refused_first_message_moves_nothing_over_the_damage(kept: Threads, store: FaultyStore) -> None:
    """The damage is aside; whatever stands in its place can be read."""
    put(store, DAMAGED)
    refuse = BackendError("no", status=400, body=b"{}")
    for save in ("turn", "checkpoint"):
        conversation = kept(ScriptedBackend(refuse, "Hello."), store, save=save)
        with pytest.raises(TurnError):
            conversation.send("Poison.")
        assert list(aside(store).values()) == [DAMAGED]
        assert said(conversation.send("Hello?").state) == ["Hello?", "Hello."]
        put(store, DAMAGED)


@pytest.mark.parametrize("policy", ["raise", "fresh", None])
def test_what_must_not_be_discarded_stays(kept: Threads, store: FaultyStore, policy: str | None) -> None:
    """With `on_bad_state="raise"` all of it, and a newer release's state in any case."""
    newer = bytearray(Chat(ScriptedBackend("Hello.")).chat(user="Hello?").state)
    newer[4] = 200
    blob = DAMAGED if policy == "raise" else bytes(newer)
    put(store, blob)
    backend = ScriptedBackend()
    conversation = kept(backend, store, chat={"on_bad_state": policy})

    with pytest.raises(StateFormatError if policy == "raise" else StateVersionError) as caught:
        conversation.send("Hello?")

    assert caught.value.blob == blob == blob_in(store)
    assert (aside(store), backend.requests, store.saves) == ({}, [], [])


def test_other_methods_raise(kept: Threads, leasing: LeasingStore) -> None:
    """They never overwrite what they cannot read; `reset` is the explicit act that does."""
    put(leasing, DAMAGED)
    conversation = kept(ScriptedBackend(), leasing)

    for act in (
        lambda: conversation.append(event("E.")),
        lambda: conversation.resume(),
        lambda: conversation.history(),
        lambda: conversation.info(),
        lambda: conversation.pending(),
        lambda: conversation.rewind(),
        lambda: conversation.fork("bob"),
    ):
        with pytest.raises(StateError):
            act()
    assert blob_in(leasing) == DAMAGED
    conversation.reset()
    assert blob_in(leasing) == b""


def test_a_reset_without_delete_keeps_the_damage(kept: Threads, store: FaultyStore) -> None:
    """Where nothing can be deleted, the bytes go aside."""
    put(store, DAMAGED)

    kept(ScriptedBackend(), store).reset()

    assert said(blob_in(store)) == []
    assert list(aside(store).values()) == [DAMAGED]


def test_nothing_is_asked_if_it_cannot_be_moved(kept: Threads, store: FaultyStore) -> None:
    """The store does not take the copy: the damage stays, and no model is called."""
    put(store, DAMAGED)
    backend = ScriptedBackend()
    store.faults = ["lost"]

    with pytest.raises(StoreUnavailableError):
        kept(backend, store).send("Hello?")

    assert backend.requests == []
    assert blob_in(store) == DAMAGED


def test_a_long_key_has_room_for_the_copy(kept: Threads, store: FaultyStore) -> None:
    """The copy's key is a key, too."""
    key = "ä" * 256
    put(store, DAMAGED, key)

    kept(ScriptedBackend("Hello."), store, key=key).send("Hello?")

    (copy,) = [found.key for found in store.inner.list("ä" * 238 + ".unreadable.").keys]
    assert len(copy.encode()) <= 512
    assert blob_in(store, copy) == DAMAGED


def test_others_who_began_anew_are_a_conflict(kept: Threads, store: FaultyStore) -> None:
    """Two workers meet the damage: one begins anew, the other is in conflict with it, and nothing is lost."""
    put(store, DAMAGED)

    def answer(_: object) -> str:
        other(store, "Theirs.").send("They?")
        return "Mine."

    conversation = kept(ScriptedBackend(answer), store, concurrent_turns=True)
    result = conversation.send("I?")

    assert said(result.state) == ["They?", "Theirs.", "I?", "Mine."]
    assert list(aside(store).values()) == [DAMAGED]


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "not answered"])
def test_bytes_that_come_during_a_turn_are_not_overwritten(
    kept: Threads, store: FaultyStore, save: str, is_answered: bool
) -> None:
    """Somebody else saves what cannot be read here: a conflict that has the turn, whether the store said so
    or did not answer, and their bytes stay. A turn with an id looks for itself in them first."""

    def damage() -> None:
        put(store, DAMAGED)
        if not is_answered:
            raise StoreUnavailableError("no answer came")

    def answer(_: object) -> str:
        store.faults = [damage]
        return "Hello."

    for turn_id in (None, "m-1"):
        store.inner.delete("ada")
        conversation = kept(ScriptedBackend("Hi.", answer), store, save=save)
        conversation.send("Hi?")
        with pytest.raises(StateConflictError) as caught:
            conversation.send("Hello?", turn_id=turn_id)

        assert said(caught.value.state) == ["Hi?", "Hi.", "Hello?", "Hello."]
        assert blob_in(store) == DAMAGED
        assert aside(store) == {}
