"""A kept conversation goes on with another provider, whatever else happens to its row meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, StateConflictError, event
from goaitools_py.backends.base import BackendError
from goaitools_py.states import inspect_state, read_history
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.events import ModelRequested

from .conftest import Threads

CONVERTS = {"on_foreign_state": "convert"}


def stored(store: Any) -> bytes:
    found = store.load("ada")
    assert found is not None
    return bytes(found.blob)


@pytest.mark.parametrize("to", ["openai-responses", "anthropic"])
def test_it_goes_on_under_the_same_key(kept: Threads, save: str, to: str) -> None:
    """Nothing is moved aside, and the row is a state of the new provider API."""
    store = MemoryStore()
    kept(ScriptedBackend("Hello Ada."), store, save=save).send("I am Ada.", turn_id="t-1")
    conversation = kept(ScriptedBackend("You are Ada.", wire=to), store, save=save, chat=CONVERTS)

    before = conversation.history()
    result = conversation.send("Who am I?")
    again = conversation.send("I am Ada.", turn_id="t-1")

    assert [message.text for message in before.all_messages()] == ["I am Ada.", "Hello Ada."]
    assert "state_converted" in [warning.code for warning in result.warnings]
    assert inspect_state(stored(store)).wire == to
    assert (again.duplicate, again.text) == (True, "Hello Ada.")
    assert [one.key for one in store.list().keys] == ["ada"]


def test_what_another_worker_appended_meanwhile_is_kept(kept: Threads, save: str) -> None:
    """It still has the old provider, and appends after the turn of the new one has loaded the row."""
    store = MemoryStore()
    kept(ScriptedBackend("Hello Ada."), store, save=save).send("I am Ada.")
    other = Chat(ScriptedBackend()).conversation(store, "ada")
    told: list[str] = []

    def append_once(heard: Any) -> None:
        if isinstance(heard, ModelRequested) and not told:
            told.append("Rain began.")
            other.append(event("Rain began."))

    backend = ScriptedBackend("A clock.", "It rains.", wire="anthropic")
    conversation = kept(backend, store, save=save, chat=CONVERTS)

    conversation.send("Look around.", on_event=append_once)
    waiting = [message.text for message in read_history(stored(store)).waiting]
    conversation.send("What else?")

    texts = [message.text for message in read_history(stored(store)).all_messages()]
    assert inspect_state(stored(store)).wire == "anthropic"
    assert waiting in (["Rain began."], [])  # with checkpoints the turn begins anew, and sees it
    assert texts[:3] == ["I am Ada.", "Hello Ada.", "Look around."] or save == "checkpoint"
    assert sorted(texts) == sorted(
        ["I am Ada.", "Hello Ada.", "Look around.", "A clock.", "Rain began.", "What else?", "It rains."]
    )


@pytest.mark.parametrize("converts", [True, False], ids=["converts", "raises"])
def test_two_begin_it_with_different_providers(kept: Threads, converts: bool) -> None:
    """An event is appended by a chat of another provider while the first turn runs: both are in the row. A
    chat that converts nothing gets a conflict, and the row stays as it is."""
    store = MemoryStore()

    def append(_: Any) -> str:
        Chat(ScriptedBackend()).conversation(store, "ada").append(event("Rain began.", id="e-1"))
        return "A clock."

    backend = ScriptedBackend(append, "It rains.", wire="anthropic")
    conversation = kept(backend, store, chat=CONVERTS if converts else {})
    if not converts:
        with pytest.raises(StateConflictError):
            conversation.send("Look around.")
        assert inspect_state(stored(store)).wire == "openai"
        return
    conversation.send("Look around.")
    waiting = [message.text for message in read_history(stored(store)).waiting]
    conversation.send("What else?")

    assert inspect_state(stored(store)).wire == "anthropic"
    assert waiting == ["Rain began."]
    assert [message.text for message in read_history(stored(store)).all_messages()] == [
        "Look around.",
        "A clock.",
        "Rain began.",
        "What else?",
        "It rains.",
    ]


def test_a_chat_with_fallbacks_keeps_its_conversation(kept: Threads, save: str) -> None:
    """The first provider dies behind a tool. The next one ends the turn; the tool has run once."""
    store = MemoryStore()
    ran: list[str] = []

    def look(place: str) -> str:
        """Look."""
        ran.append(place)
        return "a clock"

    down = BackendError("down", status=503)
    own = ScriptedBackend(Calls([("look", {"place": "hall"})]), down)
    next_one = ScriptedBackend("A clock.", wire="anthropic")
    conversation = kept(own, store, save=save, chat={"fallbacks": [next_one], "tools": [look]})

    result = conversation.send("Look around.", turn_id="t-1")

    assert (ran, result.text, result.status) == (["hall"], "A clock.", "complete")
    assert [one.code for one in result.warnings if one.code in ("fell_back", "state_converted")] == [
        "fell_back",
        "state_converted",
    ]
    assert stored(store) == result.state
    assert conversation.send("Look around.", turn_id="t-1").duplicate
    assert ran == ["hall"]
