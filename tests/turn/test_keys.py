"""Idempotency keys: two conversations never share one, however they began."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import event
from goaitools_py.base.values import replace
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import fork_state, inspect_state, rewind_state, state_from_messages, state_messages
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend

from ._desk import Desk, pay

FROZEN = 1_750_000_000_000
"""Milliseconds since 1970. Every conversation here begins in the same one."""


class Ways:
    """Every way to begin a conversation. Each makes a new one whenever it is called, from the same input."""

    def __init__(self, face: Any, wire: str) -> None:
        self.face = face
        self.wire = wire
        self.chat = face.chat(ScriptedBackend(*["Hello."] * 20, wire=wire))
        self.first = self.chat.chat_with_state(None, user="Hi.").state
        self.messages = state_messages(self.first)
        self._rows = itertools.count()
        self.store = (AsyncMemoryStore if face.is_async else MemoryStore)()

    def all(self) -> dict[str, Callable[[], bytes]]:
        found = {name[4:]: getattr(self, name) for name in dir(self) if name.startswith("way_")}
        assert len(found) > 10
        return found

    def way_turn_on_none(self) -> bytes:
        return bytes(self.chat.chat_with_state(None, user="Hi.").state)

    def way_turn_on_empty(self) -> bytes:
        return bytes(self.chat.chat_with_state(b"", user="Hi.").state)

    def way_stateless(self) -> bytes:
        return bytes(self.chat.chat(user="Hi.").state)

    def way_run_turns(self) -> bytes:
        return bytes(self.chat.run_turns(None, ["Hi."]).state)

    def way_damaged(self) -> bytes:
        return bytes(self.chat.chat_with_state(b"damaged", user="Hi.").state)

    def way_append_to_none(self) -> bytes:
        return bytes(self.chat.append_to_state(None, event("Ada won.")))

    def way_append_to_empty(self) -> bytes:
        return bytes(self.chat.append_to_state(b"", event("Ada won.")))

    def way_import(self) -> bytes:
        return state_from_messages(self.wire, self.messages)

    def way_import_of_nothing(self) -> bytes:
        return state_from_messages(self.wire, [])

    def way_repaired_import(self) -> bytes:
        return state_from_messages(self.wire, self.messages, repair=True)

    def way_fork(self) -> bytes:
        return fork_state(self.first)

    def way_fork_of_a_rewind(self) -> bytes:
        return fork_state(rewind_state(self.first))

    def way_old_import(self) -> bytes:
        """What another writer left: no id, and no time."""
        state = load_state(self.first)
        return dump_state(replace(state, meta=replace(state.meta, id="", created=0)))

    def _kept(self, *, then: Callable[[Any], Any]) -> bytes:
        conversation = self.chat.inner.conversation(self.store, f"user-{next(self._rows)}")
        self._run(then(conversation))
        stored = self._run(self.store.load(conversation.key))
        return bytes(stored.blob)

    def _run(self, answer: Any) -> Any:
        return self.face.run(answer) if self.face.is_async else answer

    def way_kept(self) -> bytes:
        return self._kept(then=lambda conversation: conversation.send("Hi."))

    def way_kept_append(self) -> bytes:
        return self._kept(then=lambda conversation: conversation.append(event("Ada won.")))

    def way_kept_fork(self) -> bytes:
        key = f"fork-{next(self._rows)}"
        self._kept(then=lambda conversation: conversation.send("Hi."))
        conversation = self.chat.inner.conversation(self.store, f"user-{next(self._rows) - 1}")
        self._run(conversation.fork(key))
        return bytes(self._run(self.store.load(key)).blob)


@pytest.fixture
def _one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """All happens in the same millisecond."""
    monkeypatch.setattr("time.time_ns", lambda: FROZEN * 1_000_000)
    monkeypatch.setattr("time.time", lambda: FROZEN / 1000)


@pytest.mark.parametrize("turn_id", ["m1", None])
@pytest.mark.usefixtures("_one_instant")
def test_no_two_conversations_share_a_key(face: Any, wire: str, turn_id: str | None) -> None:
    """The same call of the same turn has another key in each conversation, whatever began it."""
    ways = Ways(face, wire)
    desk = Desk(face, wire, requires_approval=False)
    made = 0
    for begin in ways.all().values():
        for _ in range(2):
            desk.script([pay(5)], "Paid.")
            desk.chat().chat_with_state(begin(), user="Pay.", turn_id=turn_id)
            made += 1

    assert desk.effects == ["pay 5"] * made
    assert len(set(desk.keys)) == made


def test_an_import_begins_now(wire: str) -> None:
    """Without a time the conversation is as old as the import, not as old as 1970."""
    info = inspect_state(state_from_messages(wire, []))

    assert info.created_at.year > 2000
    assert len(info.conversation_id) == 16


def test_an_import_can_be_repeated(face: Any, wire: str) -> None:
    """With an id and a time of the caller's, the same messages give the same bytes."""
    messages = state_messages(face.chat(ScriptedBackend("Hello.", wire=wire)).chat(user="Hi.").state)

    one, two = (
        state_from_messages(wire, messages, conversation_id="ada", created_ms=FROZEN) for _ in range(2)
    )

    assert one == two
    assert inspect_state(one).conversation_id == "ada"
