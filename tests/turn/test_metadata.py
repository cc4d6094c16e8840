"""What a caller stores with a turn: it outlives a failure before the first reply, and a compaction."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Compactor, KeepRecentTurns, MessageLimit, ProviderRejectedError, TurnError, event
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction.turn_views import TurnView
from goaitools_py.state.state import load_state
from goaitools_py.states import read_history
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend

from ._desk import Desk

DOWN = BackendError("down", kind="unavailable")
POISON = BackendError("no", status=400, headers={"content-type": "application/json"}, body=b'{"error":{}}')
CUT = Compactor(MessageLimit(2), KeepRecentTurns(1))


def kept_with(state: bytes) -> list[dict[str, str]]:
    return [dict(turn.metadata) for turn in read_history(state).turns]


def test_it_waits_with_a_message_that_nobody_took(face: Any, wire: str, run: Any) -> None:
    """Whoever resumes, or says something more, need not give it again; what he gives is added."""
    desk = Desk(face, wire)
    desk.script(DOWN, "Hello.", "Hello.", "Hello.")
    with pytest.raises(TurnError) as caught:
        run(desk.chat(), user="Hi.", metadata={"shop": "7", "by": "mail"})
    state = caught.value.state

    resumed = desk.chat().resume(state).state
    added = desk.chat().resume(state, metadata={"by": "chat"}).state
    more = run(desk.chat(), state, user="Hello?").state

    assert kept_with(resumed) == [{"shop": "7", "by": "mail"}]
    assert kept_with(added) == [{"shop": "7", "by": "chat"}]
    assert kept_with(more) == [{"shop": "7", "by": "mail"}]
    assert load_state(resumed).meta.said == {}


def test_it_goes_with_a_refused_message(face: Any, wire: str) -> None:
    """The message is handed back, and the next turn has nothing of it."""
    desk = Desk(face, wire)
    desk.script("One.", POISON, "Two.")
    state = desk.chat().chat(user="Hi.").state
    with pytest.raises(ProviderRejectedError) as caught:
        desk.chat().chat_with_state(state, user="Poison.", metadata={"shop": "7"})

    later = desk.chat().chat_with_state(caught.value.state, user="Hello?").state

    assert kept_with(later) == [{}, {}]


def test_a_conversation_keeps_it_beyond_cuts(face: Any, wire: str) -> None:
    """`info().metadata` is that of all turns, the newest value of each name; 4 KiB of those that went."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 6, wire=wire), compactor=CUT)
    store: Any = (AsyncMemoryStore if face.is_async else MemoryStore)()
    conversation = chat.inner.conversation(store, "ada")

    def do(answer: Any) -> Any:
        return face.run(answer) if face.is_async else answer

    for number in range(4):
        do(conversation.send(f"Note {number}", metadata={"by": str(number), f"n{number}": "x"}))
    info = do(conversation.info())

    assert info.state.turns == 1
    assert info.metadata == {"by": "3", "n0": "x", "n1": "x", "n2": "x", "n3": "x"}
    do(conversation.send("Long.", metadata={"long": "y" * 5000}))
    do(conversation.send("Short."))
    assert do(conversation.info()).metadata == info.metadata
    assert "'n0'" not in repr(load_state(do(store.load("ada")).blob).meta)


class Frozen:
    """A compactor that keeps what it sees and cuts nothing."""

    def __init__(self) -> None:
        self.seen: list[TurnView] = []

    def __call__(self, request: Any) -> Any:
        self.seen = list(request.turns)
        return request.turns


def test_equal_turns_of_one_millisecond_have_ids_of_their_own(
    face: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an id stays, whatever comes before or behind its turn."""
    from goaitools_py.states import state_from_messages, state_messages

    monkeypatch.setattr("time.time_ns", lambda: 1_750_000_000_000_000_000)
    monkeypatch.setattr("time.time", lambda: 1_750_000_000.0)
    chat = face.chat(ScriptedBackend(*["Yes."] * 9, wire=wire))
    look = Frozen()
    state = chat.append_to_state(None, event("Ada won."))
    state = chat.run_turns(state, ["Hello?"] * 4).state
    chat.compact_state(state, Compactor(MessageLimit(1), look))
    ids = [view.id for view in look.seen]
    cut = chat.compact_state(state, Compactor(MessageLimit(1), KeepRecentTurns(2))).state
    chat.compact_state(chat.chat_with_state(cut, user="Hello?").state, Compactor(MessageLimit(1), look))

    assert len(set(ids)) == 4
    assert [view.id for view in look.seen][:2] == ids[2:]
    assert len({view.id for view in look.seen} | set(ids)) == 5
    chat.compact_state(state_from_messages(wire, state_messages(state)), Compactor(MessageLimit(1), look))
    assert len({view.id for view in look.seen}) == len(look.seen) == 4
