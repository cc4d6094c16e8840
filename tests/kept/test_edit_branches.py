"""Branches that edits leave, beside other workers: each edit has a copy of its own, of what it replaces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from random import Random
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    ProviderRejectedError,
    ProviderUnavailableError,
    StateConflictError,
    StateSizeError,
    StoreUnavailableError,
    TurnStarted,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.stores import TurnStoppedError
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from .conftest import Bare, FaultyStore, LeasingStore, Threads, blob_in, said

WIRES = ("openai", "openai-responses", "anthropic")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


class Hooked(LeasingStore):
    """A store in which another worker acts once, behind the save of a branch."""

    act: Callable[[], Any] | None = None

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        version = super().save(key, blob, expected=expected)
        act = self.act
        if ".branch." in key and act is not None:
            self.act = None
            act()
        return version


class Leaseless(FaultyStore):
    """A store without leases that can list and delete."""

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        return self.inner.delete(key, expected=expected)

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> Any:
        return self.inner.list(prefix, cursor=cursor, limit=limit)


def rows(store: Any) -> dict[str, list[str]]:
    """What each row of the store says."""
    return {row.key: said(blob_in(store, row.key)) for row in store.inner.list().keys}


@pytest.mark.parametrize("came", ["a message", "an event", "a withdrawal", "a turn", "the same edit"])
def test_an_edit_that_begins_anew_copies_anew(kept: Threads, save: str, wire: str, came: str) -> None:
    """Another worker saves between the copy and the first save of the edit."""
    store = Hooked()
    edits = kept(
        ScriptedBackend("Old.", "New.", wire=wire), store, save=save, gate="steer", keep_branches=True
    )
    edits.send("One.", turn_id="m-1")
    there = Chat(ScriptedBackend("Theirs.", wire=wire)).conversation(
        store.inner, "ada", gate="steer", keep_branches=True
    )
    (rain,) = there.append(event("It rains."))

    def turn(text: str, **fields: Any) -> None:
        store.inner._leases.clear()  # the lease of the edit has run out
        there.send(text, **fields)

    acts: dict[str, Callable[[], Any]] = {
        "a message": lambda: there.append(user("Please also Y.")),
        "an event": lambda: there.append(event("It snows.")),
        "a withdrawal": lambda: there.withdraw(rain),
        "a turn": lambda: turn("Hello.", turn_id="m-9"),
        "the same edit": lambda: turn("Two.", turn_id="m-2", edit="m-1"),
    }
    store.act = acts[came]

    if came == "a turn":
        with pytest.raises(StateConflictError, match="edit it again"):
            edits.send("Two.", edit="m-1", turn_id="m-2")
        assert rows(store) == {"ada": ["One.", "Old.", "It rains.", "Hello.", "Theirs."]}
        return
    result = edits.send("Two.", edit="m-1", turn_id="m-2")

    more = {"a message": ["Please also Y."], "an event": ["It snows."]}.get(came, [])
    rain_ = [] if came == "a withdrawal" else ["It rains."]
    reply = "Theirs." if came == "the same edit" else "New."
    (branch,) = [texts for key, texts in rows(store).items() if key != "ada"]
    assert (result.text, result.duplicate) == (reply, came == "the same edit")
    assert branch == ["One.", "Old.", *rain_, *more]
    assert rows(store)["ada"] == [*rain_, *(more if came == "an event" else []), "Two.", reply]


@pytest.mark.parametrize("kind", [Leaseless, LeasingStore])
def test_a_refused_edit_deletes_its_own_copy_only(save: str, wire: str, kind: Any) -> None:
    """Another edit of the same conversation was faster."""
    store = kind()

    def faster(_: ModelRequest) -> BackendError:
        if kind is LeasingStore:
            store.inner._leases.clear()  # the lease of the first edit has run out
        there = Chat(ScriptedBackend("New.", wire=wire)).conversation(store, "ada", keep_branches=True)
        there.send("Faster.", edit="m-1", turn_id="m-3")
        return REFUSED

    backend = ScriptedBackend("Old.", faster, wire=wire)
    edits = Chat(backend).conversation(store, "ada", save=save, keep_branches=True)
    edits.send("One.", turn_id="m-1")

    with pytest.raises((ProviderRejectedError, StateConflictError)):
        edits.send("Slower.", edit="m-1", turn_id="m-2")

    assert list(rows(store).values()) == [["Faster.", "New."], ["One.", "Old."]]


DOWN = BackendError("down", status=503)
UNREACHABLE = BackendError("away")


@pytest.mark.parametrize("second", ["down", "refused"])
@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_branch_stays_if_every_provider_is_down(
    kept: Threads, save: str, wire: str, there: str, second: str, is_late: bool
) -> None:
    """The edit stands, so the branch has what it replaced. Also if the turn of later messages fails so."""
    store = LeasingStore()
    worker = Chat(ScriptedBackend(wire=wire)).conversation(store.inner, "ada", gate="steer")

    def last(_: ModelRequest) -> str:
        worker.append(event("Late."))
        return "New."

    def look() -> str:
        """Look."""
        return "seen"

    new = (last, Calls([("look", {})]), DOWN) if is_late else (DOWN,)
    backend = ScriptedBackend("Old.", *new, wire=wire, max_retries=0)
    other = ScriptedBackend(DOWN if second == "down" else REFUSED, wire=there, max_retries=0)
    chat = {"fallbacks": [other], "tools": [tool(look)]}
    conversation = kept(backend, store, chat=chat, save=save, keep_branches=True, gate="steer")
    conversation.send("One.", turn_id="m-1")

    with pytest.raises(ProviderUnavailableError) as found:
        conversation.send("Uno.", edit="m-1", turn_id="m-2")

    assert rows(store)["ada"][:1] == ["Uno."]
    assert rows(store)["ada.branch.1"] == ["One.", "Old."]
    assert "branch_kept" in [one.code for one in found.value.warnings]


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("turn_id", ["m-9", None])
@pytest.mark.parametrize("keeps", [False, True])
def test_an_edit_that_the_last_provider_refuses_changes_nothing(
    kept: Threads, save: str, wire: str, there: str, turn_id: str | None, keeps: bool
) -> None:
    """The chat's own provider rests, the fallback is down, and then the own one refuses the message."""
    store = LeasingStore()
    backend = ScriptedBackend("Old.", UNREACHABLE, REFUSED, wire=wire, max_retries=0)
    other = ScriptedBackend("Two.", DOWN, wire=there, max_retries=0)
    chat = {"fallbacks": [other]}
    conversation = kept(backend, store, chat=chat, save=save, keep_branches=keeps, gate="steer")
    conversation.send("One.", turn_id="m-1")
    conversation.send("Next.", turn_id="m-2")
    before = rows(store)

    with pytest.raises(ProviderRejectedError) as found:
        conversation.send("Uno.", edit="m-1", turn_id=turn_id)

    assert len(backend.requests) == 3
    assert rows(store) == before
    assert [one.text for one in found.value.pending_input] == ["Uno."]
    assert check_history(read_wire(store), state_messages(blob_in(store))) == []


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("turn_id", ["m-9", None])
def test_an_edit_of_a_state_that_the_last_provider_refuses_gives_the_message_back(
    wire: str, there: str, turn_id: str | None
) -> None:
    """As in a kept conversation: the error has the old state, and the message."""
    backend = ScriptedBackend("Old.", UNREACHABLE, REFUSED, wire=wire, max_retries=0)
    other = ScriptedBackend("Two.", DOWN, wire=there, max_retries=0)
    with Chat(backend, fallbacks=[other]) as chat:
        first = chat.chat_with_state(b"", user="One.", turn_id="m-1")
        second = chat.chat_with_state(first.state, user="Next.", turn_id="m-2")
        second_state = chat.append_to_state(second.state, event("It rains."))

        with pytest.raises(ProviderRejectedError) as found:
            chat.chat_with_state(second_state, user="Uno.", edit="m-1", turn_id=turn_id)

    assert said(found.value.state) == ["One.", "Old.", "Next.", "Two.", "It rains."]
    assert [one.text for one in found.value.pending_input] == ["Uno."]


def read_wire(store: Any) -> str:
    """The provider API of the stored conversation."""
    return inspect_state(blob_in(store)).wire


@pytest.mark.parametrize("keeps", [True, False])
def test_an_edit_of_a_message_that_waits_has_a_branch(
    kept: Threads, save: str, wire: str, keeps: bool
) -> None:
    """A call waits for an approval, so both messages wait, and no model is asked."""

    @tool(requires_approval=True)
    def buy() -> str:
        """Buy."""
        return "bought"

    store = LeasingStore()
    backend = ScriptedBackend(Calls([("buy", {})]), wire=wire)
    options: dict[str, Any] = {"chat": {"tools": [buy]}, "save": save, "keep_branches": keeps}
    conversation = kept(backend, store, gate="steer", **options)
    conversation.send("One.", turn_id="m-1")
    conversation.send("Two.", turn_id="m-2", on_pending="queue")

    conversation.send("Zwei.", edit="m-2", turn_id="m-3", on_pending="queue")

    found = rows(store)
    assert found.pop("ada")[-1] == "Zwei."
    assert [texts[-1] for texts in found.values()] == ["Two."] * keeps


@tool(requires_approval=True)
def buy() -> str:
    """Buy."""
    return "bought"


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("edit", ["m-1", "m-2"])
@pytest.mark.parametrize("pending", ["queue", "deny"])
def test_an_edit_that_is_too_large_changes_nothing(
    kept: Threads, save: str, wire: str, keeps: bool, edit: str, pending: str
) -> None:
    """Also of a message that waits."""
    store = LeasingStore()
    codec = Plain(limits=BlobLimits(max_blob_bytes=10_000))
    chat = {"tools": [buy], "codec": codec}
    backend = ScriptedBackend(Calls([("buy", {})]), wire=wire)
    conversation = kept(backend, store, chat=chat, save=save, keep_branches=keeps, gate="steer")
    conversation.send("One.", turn_id="m-1")
    conversation.send("Two.", turn_id="m-2", on_pending="queue")
    before = rows(store)
    large = "".join(map(chr, Random(1).choices(range(33, 127), k=12_000)))

    with pytest.raises(StateSizeError) as found:
        conversation.send(large, edit=edit, turn_id="m-3", on_pending=pending)

    assert rows(store) == before
    assert [one.text for one in found.value.pending_input] == [large]


class Away(LeasingStore):
    """A store that takes no branch for a while."""

    is_away = False

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        if ".branch." in key and self.is_away:
            raise StoreUnavailableError("away")
        return super().save(key, blob, expected=expected)


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_the_branch_of_an_edit_that_ends_before_its_request_is_not_left_out(
    kept: Threads, save: str, wire: str, how: str
) -> None:
    """The store is away then: nothing is saved, and the edit can be sent again."""
    store = Away()
    backend = ScriptedBackend("Old.", "New.", wire=wire)
    conversation = kept(backend, store, keep_branches=True, save=save, save_timeout=0.0, stop_every=1e-9)
    conversation.send("One.", turn_id="m-1")
    store.is_away = True

    turn = conversation.start("Uno.", edit="m-1", turn_id="m-2")
    with nullcontext() if how == "cancel" else pytest.raises(StoreUnavailableError) as found:
        for one in turn:
            if type(one) is TurnStarted and how == "cancel":
                turn.cancel()
            elif type(one) is TurnStarted:
                conversation.stop()
    store.is_away = False

    assert how == "cancel" or type(found.value.__cause__) is TurnStoppedError
    assert (rows(store), len(backend.requests)) == ({"ada": ["One.", "Old."]}, 1)
    assert conversation.send("Uno.", edit="m-1", turn_id="m-2").text == "New."
    assert rows(store) == {"ada": ["Uno.", "New."], "ada.branch.1": ["One.", "Old."]}


def test_an_edit_that_could_not_begin_leaves_no_branch(kept: Threads, save: str, wire: str) -> None:
    """The claim of an event that waits could not be saved, before any call. The copy goes again."""
    store = LeasingStore()
    backend = ScriptedBackend("Old.", "New.", wire=wire)
    conversation = kept(backend, store, keep_branches=True, gate="steer", save=save, save_timeout=0.0)
    conversation.send("One.", turn_id="m-1")
    conversation.append(event("Rain."))
    before = rows(store)
    store.faults = [None, "lost", "lost"]

    with pytest.raises(StoreUnavailableError):
        conversation.send("Uno.", edit="m-1", turn_id="m-2")

    assert (rows(store), len(backend.requests)) == (before, 1)
    conversation.send("Uno.", edit="m-1", turn_id="m-2")
    assert len(rows(store)) == 2


@pytest.mark.parametrize("at", ["before", "behind"])
def test_an_edit_that_is_interrupted_in_the_copy_has_a_branch(save: Any, wire: str, at: str) -> None:
    """Before or behind the save of the copy. Behind it, the end of the turn makes another one."""

    class Interrupted(LeasingStore):
        is_hit = False

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            hits, self.is_hit = ".branch." in key and not self.is_hit, self.is_hit or ".branch." in key
            if hits and at == "before":
                raise KeyboardInterrupt
            version = super().save(key, blob, expected=expected)
            if hits:
                raise KeyboardInterrupt
            return version

    store = Interrupted()
    with Chat(ScriptedBackend("Old.", "New.", wire=wire)) as chat:
        conversation = chat.conversation(store, "ada", keep_branches=True, save=save)
        conversation.send("One.", turn_id="m-1")
        with pytest.raises(KeyboardInterrupt):
            conversation.send("Uno.", edit="m-1", turn_id="m-2")
        keys = ["ada.branch.1", *["ada.branch.1-2"] * (at == "behind")]
        branches = {key: ["One.", "Old."] for key in keys}
        assert rows(store) == {"ada": ["Uno."], **branches}
        assert conversation.send("Uno.", edit="m-1", turn_id="m-2").text == "New."
    assert rows(store) == {"ada": ["Uno.", "New."], **branches}


@pytest.mark.parametrize("again", [True, False])
def test_the_branch_of_a_queued_edit_is_not_left_out(
    kept: Threads, save: str, wire: str, again: bool
) -> None:
    """The store was away when the branch was copied: nothing is saved, and the edit can be sent again."""
    store = Away()
    backend = ScriptedBackend(Calls([("buy", {})]), wire=wire)
    options: dict[str, Any] = {"chat": {"tools": [buy]}, "save": save, "save_timeout": 0.0}
    conversation = kept(backend, store, keep_branches=True, gate="steer", **options)
    conversation.send("One.", turn_id="m-1")
    conversation.send("Two.", turn_id="m-2", on_pending="queue")
    store.is_away = True
    edit: dict[str, Any] = {"edit": "m-2", "turn_id": "m-3", "on_pending": "queue"}

    with pytest.raises(StoreUnavailableError):
        conversation.send("Zwei.", **edit)
    assert rows(store)["ada"][-1] == "Two."
    store.is_away = False
    if again:
        conversation.send("Zwei.", **edit)

    found = rows(store)
    assert found.pop("ada")[-1] == ("Zwei." if again else "Two.")
    assert [texts[-1] for texts in found.values()] == ["Two."] * again


@pytest.mark.parametrize("does", ["turn", "message", "event", "same"])
@pytest.mark.parametrize("turn_id", ["m-3", "m-2"])
def test_a_queued_edit_beside_another_worker(
    kept: Threads, save: str, wire: str, does: str, turn_id: str
) -> None:
    """The lease has ended. Behind another turn there is no edit; the messages of others wait on."""
    store = Hooked()
    call = Calls([("buy", {})])
    backend = ScriptedBackend(call, wire=wire)
    options: dict[str, Any] = {"chat": {"tools": [buy]}, "save": save, "keep_branches": True}
    conversation = kept(backend, store, gate="steer", **options)
    conversation.send("One.", turn_id="m-1")
    conversation.send("Two.", turn_id="m-2", on_pending="queue")
    beside = Chat(ScriptedBackend("Three.", wire=wire), tools=[buy]).conversation(Bare(store.inner), "ada")
    edit: dict[str, Any] = {"edit": "m-2", "turn_id": turn_id, "on_pending": "queue"}
    acts = {
        "turn": lambda: beside.send("No.", on_pending="deny"),
        "message": lambda: beside.send("Also.", turn_id="m-4", on_pending="queue"),
        "event": lambda: beside.append(event("Rain.")),
        "same": lambda: beside.send("Zwei.", **edit),
    }
    store.act = acts[does]

    is_refused = does == "turn" or (does, turn_id) == ("same", "m-2")
    with pytest.raises(StateConflictError, match="edit it again") if is_refused else nullcontext():
        conversation.send("Zwei.", **edit)

    found = rows(store)
    left = {"turn": ["Two.", "No.", "Three."], "message": ["Also.", "Zwei."], "event": ["Rain.", "Zwei."]}
    assert found.pop("ada")[2:] == left.get(does, ["Zwei."])
    assert [texts[-1] for texts in found.values()] == ["Two."] * (not is_refused)
    if does == "same":
        conversation.send("Zwei.", **edit)
        assert rows(store)["ada"].count("Zwei.") == 1


def test_a_queued_edit_whose_save_is_interrupted_beside_another_worker(
    kept: Threads, save: str, wire: str
) -> None:
    """The save that is done behind an exit does not put the edit behind the other turn, either."""

    class Interrupted(LeasingStore):
        act: Callable[[], Any] | None = None

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            if key == "ada" and self.act is not None:
                act, self.act = self.act, None
                act()
                raise KeyboardInterrupt
            return super().save(key, blob, expected=expected)

    store = Interrupted()
    backend = ScriptedBackend(Calls([("buy", {})]), wire=wire)
    options: dict[str, Any] = {"chat": {"tools": [buy]}, "save": save, "keep_branches": True}
    conversation = kept(backend, store, gate="steer", **options)
    conversation.send("One.", turn_id="m-1")
    conversation.send("Two.", turn_id="m-2", on_pending="queue")
    with Chat(ScriptedBackend("Three.", wire=wire), tools=[buy]) as chat:
        beside = chat.conversation(Bare(store.inner), "ada")
        store.act = lambda: beside.send("No.", on_pending="deny")

        with pytest.raises(KeyboardInterrupt):
            conversation.send("Zwei.", edit="m-2", turn_id="m-3", on_pending="queue")

    assert {key: texts[2:] for key, texts in rows(store).items()} == {"ada": ["Two.", "No.", "Three."]}


@pytest.mark.parametrize("then", ["an edit and turns", "a rewind", "an edit of the first"])
@pytest.mark.parametrize("turn_id", ["m-3", None])
def test_a_branch_stays_if_the_edit_may_be_stored(
    kept: Threads, save: str, wire: str, then: str, turn_id: str | None
) -> None:
    """The save of a queued edit is done and gets no answer, and another worker goes on from it."""

    class Unanswered(LeasingStore):
        act: Callable[[], Any] | None = None

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            version = super().save(key, blob, expected=expected)
            if key == "ada" and self.act is not None:
                act, self.act = self.act, None
                act()
                raise StoreUnavailableError("no answer")
            return version

    store = Unanswered()
    backend = ScriptedBackend(Calls([("buy", {})]), wire=wire)
    options: dict[str, Any] = {"chat": {"tools": [buy]}, "save": save, "save_timeout": 0.0}
    conversation = kept(backend, store, keep_branches=True, gate="steer", **options)
    conversation.send("One.", turn_id="m-1")
    conversation.send("Two.", turn_id="m-2", on_pending="queue")
    with Chat(ScriptedBackend(*["Well."] * 3, wire=wire), tools=[buy]) as chat:
        beside = chat.conversation(Bare(store.inner), "ada", keep_branches=True)

        def act() -> None:
            if then == "an edit and turns" and turn_id is not None:
                beside.send("Drei.", edit=turn_id, turn_id="m-4", on_pending="queue")
            beside.send("Go.", on_pending="deny")
            if then == "a rewind":
                beside.rewind(2)
            elif then == "an edit of the first":
                beside.send("Anew.", edit=1)
            else:
                beside.send("And on.")

        store.act = act
        with suppress(StateConflictError):
            conversation.send("Zwei.", edit="m-2", turn_id=turn_id, on_pending="queue")

    assert any("Two." in texts for texts in rows(store).values())


@pytest.mark.parametrize("gate", ["steer", "reject"])
def test_a_refused_edit_hands_back_its_own_message_alone(
    kept: Threads, save: str, wire: str, gate: str
) -> None:
    """An event of others waits on."""
    store = LeasingStore()
    backend = ScriptedBackend("Old.", REFUSED, REFUSED, wire=wire)
    conversation = kept(backend, store, save=save, gate=gate)
    conversation.send("One.", turn_id="m-1")
    conversation.append(event("Rain."))

    with pytest.raises(ProviderRejectedError) as found:
        conversation.send("Uno.", edit="m-1", turn_id="m-2")

    assert [one.text for one in found.value.pending_input] == ["Uno."]
    assert rows(store) == {"ada": ["One.", "Old.", "Rain."]}
