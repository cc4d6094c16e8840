"""The same conversation in every store that there is: turns, conflicts, leases, copies, forks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    ProviderUnavailableError,
    StateConflictError,
    TurnInProgressError,
    event,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Face as StoreFace
from goaitools_py.testing._store_case import Loop
from goaitools_py.testing._store_case import opened as entered

from ..stores._places import KINDS, Place, maker, place_of
from .conftest import said


class Kit:
    """A store of one kind, and conversations in it of the store's colour."""

    def __init__(self, place: Place, store: Any, loop: Loop) -> None:
        self.place, self.is_async = place, "async" in place.kind
        self.store = store
        self.face = StoreFace(store, loop)
        self.run = loop.run

    def conversation(self, *script: Any, key: str = "ada", **fields: Any) -> Any:
        """A conversation whose methods are called in plain code."""
        chat: Any = (AsyncChat if self.is_async else Chat)(ScriptedBackend(*script))
        made = chat.conversation(self.store, key, **fields)
        return Plain(made, self.run) if self.is_async else made


class Plain:
    """An `AsyncConversation` whose methods are awaited here."""

    def __init__(self, inner: Any, run: Any) -> None:
        self._inner, self._run = inner, run

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **fields: self._run(getattr(self._inner, name)(*args, **fields))


@pytest.fixture(params=KINDS)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    """An empty store of each kind."""
    with ExitStack() as stack:
        place = stack.enter_context(place_of(request.param, tmp_path))
        loop = stack.enter_context(closing(Loop()))
        yield Kit(place, stack.enter_context(entered(maker(place), loop)), loop)


def test_a_conversation_lives_in_every_store(kit: Kit) -> None:
    """Turns, a redelivery, an event, a failure, a rewind, a fork and a reset."""
    script = ("Hello.", BackendError("down"), "You won.")
    conversation = kit.conversation(*script, save="checkpoint")

    assert conversation.send("Hello?", turn_id="m-1").text == "Hello."
    assert conversation.send("Hello?", turn_id="m-1").duplicate
    conversation.append(event("Ada won."))
    with pytest.raises(ProviderUnavailableError):
        conversation.send("And now?", turn_id="m-2")
    assert conversation.send("And now?", turn_id="m-2").text == "You won."
    conversation.fork("bob")
    conversation.rewind()
    assert conversation.info().state.turns == 1
    assert said(kit.face.load("bob").blob)[-3:] == ["Ada won.", "And now?", "You won."]
    conversation.reset()
    found = kit.face.load("ada")
    assert found is None or said(found.blob) == []


def test_a_conflict_is_met_in_every_store(kit: Kit) -> None:
    """An event is rebased, a turn is a conflict; leases are not used here."""
    stored: dict[str, Any] = {}

    def meanwhile(act: str) -> Any:
        def answer(_: Any) -> str:
            chat = Chat(ScriptedBackend("Theirs."))
            grown = stored["now"]
            if act == "event":
                new = chat.append_to_state(grown.blob, event("E."))
            else:
                new = chat.chat_with_state(grown.blob, user="They?").state
            stored["do"] = (new, grown.version)
            return "Mine."

        return answer

    class Between:
        """The store; somebody else saves first when there is something to do."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

    kit.conversation("Hello.").send("Hello?")
    for act in ("event", "turn"):
        stored["now"] = kit.face.load("ada")
        between: Any = Between(kit.store)
        if kit.is_async:

            async def load(key: str) -> Any:
                return await kit.store.load(key)

            async def save(key: str, blob: bytes, *, expected: int | None) -> Any:
                if todo := stored.pop("do", None):
                    await kit.store.save(key, todo[0], expected=todo[1])
                return await kit.store.save(key, blob, expected=expected)
        else:

            def load(key: str) -> Any:  # type: ignore[misc]
                return kit.store.load(key)

            def save(key: str, blob: bytes, *, expected: int | None) -> Any:  # type: ignore[misc]
                if todo := stored.pop("do", None):
                    kit.store.save(key, todo[0], expected=todo[1])
                return kit.store.save(key, blob, expected=expected)

        between.load, between.save = load, save
        kept, kit.store = kit.store, between
        try:
            conversation = kit.conversation(meanwhile(act))
            kit.store = kept
            if act == "event":
                assert said(conversation.send("I?").state)[-3:] == ["I?", "Mine.", "E."]
            else:
                with pytest.raises(StateConflictError) as caught:
                    conversation.send("I again?")
                assert caught.value.text == "Mine."
        finally:
            kit.store = kept
    assert said(kit.face.load("ada").blob)[-2:] == ["They?", "Theirs."]


def test_a_lease_is_met_in_every_store_that_has_them(kit: Kit) -> None:
    """Nothing is called while somebody else has it; a store without leases has only compare-and-swap."""
    conversation = kit.conversation("Hello.", gate="reject")

    if hasattr(kit.store, "lease"):
        with kit.face.lease("ada", 60.0), pytest.raises(TurnInProgressError):
            conversation.send("Hello?")
    assert conversation.send("Hello?").text == "Hello."
