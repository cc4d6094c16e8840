"""An edit replaces a message of the user, and everything after it, in one step: ``send(…, edit=…)``.

The law: the request of an edit is the request that the same message would have made in place of the old one.
Whatever happens, the store holds the old conversation or the new one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    MessageLimit,
    ProviderRejectedError,
    StateConflictError,
    Text,
    ToolFinished,
    TurnError,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction import Summarize
from goaitools_py.states import EditError, inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from tests import _history_laws

from ..conftest import Face
from .conftest import FaultyStore, LeasingStore, PartedStore, Threads, blob_in, other

WIRES = ("openai", "openai-responses", "anthropic")
DOWN = BackendError("down", status=503)
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
PIXEL = b"\x89PNG\r\n\x1a\n" + b"x" * 4_000
PLACES = ("bare", "turn", "checkpoint", "parts")


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is dark."


class Talk:
    """One conversation at one place: a state that the caller holds, or a row of a store."""

    def __init__(self, face: Face, kept: Threads, place: str, backend: Any, **chat: Any) -> None:
        self.place, self.backend, self.chat = place, backend, {"tools": [look], **chat}
        self._state = b""
        self._store = PartedStore()
        if place == "bare":
            self._face = face.chat(backend, **self.chat)
        else:
            how = {"save": "turn" if place == "turn" else "checkpoint"}
            how |= {"parts": "store"} if place == "parts" else {}
            self._kept = kept(backend, self._store, chat=self.chat, **how)

    @property
    def blob(self) -> bytes:
        """The whole conversation as it is stored."""
        return self._state if self.place == "bare" else (self._kept.state() or b"")

    def send(self, text: str, **fields: Any) -> Any:
        if self.place != "bare":
            return self._kept.send(text, **fields)
        try:
            result = self._face.chat_with_state(self._state, user=text, **fields)
        except TurnError as error:
            self._state = error.state
            raise
        self._state = result.state
        return result

    def append(self, message: Any) -> None:
        if self.place == "bare":
            self._state = self._face.append_to_state(self._state, message)
        else:
            self._kept.append(message)


def texts(blob: bytes) -> list[str]:
    """What the user said, oldest first."""
    return [m.text for m in read_history(blob).all_messages() if m.role == "user" and not m.is_event]


def numbers(blob: bytes) -> list[int]:
    return [turn.number for turn in read_history(blob).turns]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", range(6))
def test_an_edit_asks_as_if_the_old_message_had_not_been(
    face: Face, kept: Threads, wire: str, place: str, seed: int
) -> None:
    """On random conversations: byte for byte the same request, numbers that grow, and usage that never falls.

    A second delivery is answered once; a refusal leaves the bytes as they were.
    """
    chance = random.Random(f"{wire}-{place}-{seed}")
    backend = ScriptedBackend(wire=wire)
    talk = Talk(face, kept, place, backend)
    before: dict[int, bytes] = {}
    ids: dict[int, str] = {}
    edits = 0
    for step in range(14):
        newest = inspect_state(talk.blob).turns_processed if talk.blob else 0
        known = [n for n in before if talk.blob and n in numbers(talk.blob)]
        act = chance.random()
        fields: dict[str, Any] = {"turn_id": f"m-{step}"} if chance.random() < 0.6 else {}
        text = f"Message {step}."
        if act < 0.15:
            talk.append(event(f"Event {step}."))
            continue
        if act < 0.55 or not known:
            before[newest + 1], ids[newest + 1] = talk.blob, fields.get("turn_id", "")
            script = [Calls([("look", {"place": "Hall"})])] if chance.random() < 0.4 else []
            backend.then(*script, f"Reply {step}.")
            talk.send(text, **fields)
            continue
        number = chance.choice(known)
        old, used = talk.blob, inspect_state(talk.blob).total_usage.total_tokens
        names = [number, read_history(old).turns[numbers(old).index(number)].id, f"{ids[number]}"]
        edit: Any = chance.choice(names if ids[number] else names[:2])
        if chance.random() < 0.3:
            backend.then(REFUSED, REFUSED, REFUSED)
            with pytest.raises(ProviderRejectedError) as caught:
                talk.send(text, edit=edit, **fields)
            assert talk.blob == old
            assert [one.text for one in caught.value.pending_input] == [text]
            backend._steps.clear()
        backend.then(f"Reply {step}.")
        talk.send(text, edit=edit, **fields)
        edits += 1
        as_then = ScriptedBackend("Reply.", wire=wire)
        waiting = [m for m in read_history(old).waiting if m.is_event]
        lead = before[number]
        if waiting:
            lead = Chat(as_then).append_to_state(lead, *waiting)
        known_id = read_history(old).turns[0].id.rpartition("-")[0]
        Chat(as_then, tools=[look]).chat_with_state(lead, user=text, conversation_id=known_id)
        assert backend.requests[-1].body == as_then.requests[-1].body
        assert numbers(talk.blob)[-1] == newest + 1
        assert inspect_state(talk.blob).total_usage.total_tokens > used
        before[newest + 1], ids[newest + 1] = lead, fields.get("turn_id", "")
        if fields:
            count, blob = len(backend.requests), talk.blob
            assert talk.send(text, edit=edit, **fields).duplicate
            assert (len(backend.requests), talk.blob) == (count, blob)
        _history_laws.check(talk.blob)
        assert check_history(wire, state_messages(talk.blob)) == []
    assert edits
    backend.assert_finished()


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_the_store_has_the_old_conversation_or_the_new_one(
    kept: Threads, save: str, wire: str, parts: str
) -> None:
    """Each save of an edit is looked at: a kill leaves one of them."""
    seen: list[bytes] = []

    class Watched(PartedStore):
        def save_parts(self, key: str, head: bytes, *args: Any, **fields: Any) -> int:
            version = super().save_parts(key, head, *args, **fields)
            seen.append(head)
            return version

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            version = super().save(key, blob, expected=expected)
            seen.append(blob)
            return version

    called = Calls([("look", {"place": "Hall"})])
    backend = ScriptedBackend("One.", "Two.", called, "New.", wire=wire)
    store = Watched()
    conversation = kept(backend, store, save=save, parts=parts, chat={"tools": [look]})
    conversation.send("first")
    conversation.send("second")
    seen.clear()
    looked: list[list[str]] = []

    def on_event(_: Any) -> None:
        looked.append(texts(conversation.inner and _whole(store)))

    conversation.send("changed", edit=1, turn_id="e-1", on_event=on_event)

    assert all(said in (["first", "second"], ["changed"]) for said in looked)
    assert ["first", "second"] in looked
    assert seen
    assert texts(_whole(store)) == ["changed"]


def test_a_cut_before_the_request_stores_nothing(kept: Threads, save: str, wire: str) -> None:
    """While the model writes a summary, and while it answers, the store has the old conversation."""
    store = PartedStore()
    looked: list[list[str]] = []

    def looking(text: str) -> Callable[[Any], str]:
        def reply(_: Any) -> str:
            looked.append(texts(_whole(store)))
            return text

        return reply

    script = ["One.", "Two.", "Three.", "Four.", looking("A summary."), looking("New.")]
    backend = ScriptedBackend(*script, wire=wire)
    conversation = kept(backend, store, save=save, parts="store")
    said = ["first", "second", "third", "fourth"]
    for text in said:
        conversation.send(text)
    compactor = Compactor(MessageLimit(4), Summarize(keep_turns=1))
    result = conversation.send("changed", edit=4, compactor=compactor)

    assert result.text == "New."
    assert looked == [said, said]
    assert texts(_whole(store))[-1] == "changed"


def _whole(store: Any) -> bytes:
    reader = Chat(ScriptedBackend(wire="openai")).conversation(store.inner, "ada", parts="store")
    return reader.state() or b""


@pytest.mark.parametrize("place", PLACES)
def test_a_provider_that_is_down_leaves_the_new_message_waiting(
    face: Face, kept: Threads, wire: str, place: str
) -> None:
    """As for any turn: the same delivery, or `resume`, goes on with it. No message is lost on the way."""
    backend = ScriptedBackend("One.", "Two.", DOWN, "New.", wire=wire)
    talk = Talk(face, kept, place, backend)
    talk.send("first", turn_id="m-1")
    talk.send("second", turn_id="m-2")

    with pytest.raises(TurnError):
        talk.send("changed", edit="m-2", turn_id="e-1")
    assert texts(talk.blob) == ["first", "changed"]

    result = talk.send("changed", edit="m-2", turn_id="e-1")
    assert (result.text, texts(talk.blob)) == ("New.", ["first", "changed"])
    _history_laws.check(talk.blob)


@pytest.mark.parametrize("place", PLACES)
def test_a_message_that_waits_is_edited(face: Face, kept: Threads, wire: str, place: str) -> None:
    """The turn before it failed: its message goes, what was said before it stays, and so do events."""
    backend = ScriptedBackend("One.", DOWN, DOWN, "New.", wire=wire)
    talk = Talk(face, kept, place, backend)
    talk.send("first", turn_id="m-1")
    for id in ("m-2", "m-3"):
        with pytest.raises(TurnError):
            talk.send(f"said {id}", turn_id=id)
    talk.append(event("Ada won."))
    talk.send("changed", edit="m-3", turn_id="e-1")

    assert texts(talk.blob) == ["first", "said m-2", "changed"]
    assert "Ada won." in str(backend.bodies()[-1])
    assert "said m-3" not in str(backend.bodies()[-1])


@pytest.mark.parametrize("place", PLACES)
def test_the_second_message_of_a_turn_is_edited(face: Face, kept: Threads, wire: str, place: str) -> None:
    """Two messages were answered together. The one in front of the edited one stays, with its id."""
    backend = ScriptedBackend(DOWN, "Both.", "New.", "Newest.", wire=wire)
    talk = Talk(face, kept, place, backend)
    with pytest.raises(TurnError):
        talk.send("first", turn_id="m-1")
    talk.send("second", turn_id="m-2")
    turn = read_history(talk.blob).turns[0]
    edit = f"{turn.id}u2" if place == "turn" else "m-2"
    talk.send("changed", edit=edit, turn_id="e-1")

    assert texts(talk.blob) == ["first", "changed"]
    assert talk.send("first", turn_id="m-1").duplicate
    talk.send("all new", edit=read_history(talk.blob).turns[0].number)
    assert texts(talk.blob) == ["all new"]


def test_a_message_in_the_middle_of_a_turn_is_not_edited(face: Face) -> None:
    """The model had replied before it came. The error says what to do."""
    backend = ScriptedBackend(Calls([("look", {"place": "Hall"})]), "Done.")
    made = face.chat(backend, tools=[look])
    turn = made.start(b"", user="first", conversation_id="ada")
    has_said = False
    for told in turn:
        if not has_said and isinstance(told, ToolFinished):
            turn.append(user("and quickly"))
            has_said = True
    state = turn.result().state
    assert texts(state) == ["first", "and quickly"]
    with pytest.raises(EditError, match="edit the first message"):
        made.chat_with_state(state, user="changed", edit="ada-1u2")
    with pytest.raises(EditError, match="no message of this conversation"):
        made.chat_with_state(state, user="changed", edit="ada-1u3")
    assert len(backend.requests) == 2


@pytest.mark.parametrize("place", PLACES)
def test_an_unfinished_turn_is_edited(face: Face, kept: Threads, wire: str, place: str) -> None:
    """A turn that waits for an approval goes with its call; nothing of it can be answered any more."""

    @tool(requires_approval=True)
    def buy(thing: str) -> str:
        """Buy a thing."""
        return "bought"

    backend = ScriptedBackend("One.", Calls([("buy", {"thing": "hat"})]), "New.", wire=wire)
    talk = Talk(face, kept, place, backend, tools=[buy])
    talk.send("first")
    assert talk.send("buy a hat").status == "awaiting_tools"
    talk.send("do not", edit=2)
    assert texts(talk.blob) == ["first", "do not"]
    assert "hat" not in str(backend.bodies()[-1])


@pytest.mark.parametrize("place", PLACES)
def test_no_edit_past_a_cut(face: Face, kept: Threads, place: str) -> None:
    """Without a record of the cut the error says so, and nothing is called. With one the cut is undone."""
    for retain in (False, True):
        backend = ScriptedBackend(*["Reply."] * 5)
        compactor = Compactor(MessageLimit(4), KeepRecentTurns(1), retain=retain)
        talk = Talk(face, kept, place, backend, compactor=compactor)
        for number in range(1, 4):
            talk.send(f"message {number}")
        assert inspect_state(talk.blob).cuts
        old = talk.blob
        if retain:
            talk.send("changed", edit=1, compactor=None)
            assert texts(talk.blob) == ["changed"]
            continue
        with pytest.raises(EditError, match="since the newest cut"):
            talk.send("changed", edit=1)
        assert (talk.blob, len(backend.requests)) == (old, 3)


@pytest.mark.parametrize("edit", [0, 7, -1, "nothing", "ada-7u", "ada-waiting-1"])
def test_an_unknown_message(kept: Threads, store: FaultyStore, edit: Any) -> None:
    """Nothing is called, and nothing changes."""
    backend = ScriptedBackend("One.")
    conversation = kept(backend, store)
    conversation.send("first")
    old = blob_in(store)
    with pytest.raises(EditError, match="no message of this conversation"):
        conversation.send("changed", edit=edit)
    assert (blob_in(store), len(backend.requests)) == (old, 1)


def test_an_edit_has_a_message(kept: Threads, store: FaultyStore) -> None:
    conversation = kept(ScriptedBackend("One."), store)
    conversation.send("first")
    with pytest.raises(ValueError, match="edit= needs the new message"):
        conversation.send(edit=1)
    with pytest.raises(TypeError, match="edit must be an int or str"):
        conversation.send("changed", edit=1.5)


def test_the_branch_that_was_left_is_kept(kept: Threads, save: str, wire: str) -> None:
    """Whole, with its files, under the derived key; only once for an edit that comes twice."""
    backend = ScriptedBackend("One.", "Two.", DOWN, "New.", "Again.", wire=wire)
    store = PartedStore()
    conversation = kept(backend, store, save=save, parts="store", keep_branches=True)
    conversation.send([Text("first"), Image.from_bytes(PIXEL, "image/png")], turn_id="m-1")
    conversation.send("second", turn_id="m-2")
    revision = conversation.info().state.revision
    with pytest.raises(TurnError):
        conversation.send("changed", edit="m-1", turn_id="e-1")
    result = conversation.send("changed", edit="m-1", turn_id="e-1")

    assert texts(conversation.state()) == ["changed"]
    assert result.text == "New."
    keys = [row.key for row in store.inner.list().keys]
    assert keys == ["ada", f"ada.branch.{revision}"]
    branch = kept(ScriptedBackend("More.", wire=wire), store, key=keys[1], parts="store")
    found = branch.history().all_messages()
    assert [m.text for m in found if m.role == "user"] == ["first", "second"]
    assert found[0].parts[-1].data == PIXEL
    assert branch.send("third").text == "More."


def test_a_branch_of_another_conversation_keeps_its_key(kept: Threads, save: str, wire: str) -> None:
    """A deleted conversation has left it, or a key that is so long that both are cut to the same one."""
    store = PartedStore()
    long = "k" * 511
    for keys in (("ada", "ada"), (f"{long}1", f"{long}2")):
        for at, key in enumerate(keys):
            backend = ScriptedBackend("One.", "Two.", "New.", wire=wire)
            conversation = kept(backend, store, key=key, save=save, parts="store", keep_branches=True)
            conversation.send(f"first {at}")
            conversation.send(f"second {at}")
            result = conversation.send("changed", edit=2)
            (warning,) = [one for one in result.warnings if one.code == "branch_kept"]
            assert ("-2'" in warning.message) is (at == 1)
            if keys[0] == keys[1]:
                conversation.reset()
    found = [row.key for row in store.inner.list(limit=100).keys if ".branch." in row.key]
    assert len(found) == 4
    for key in found:
        at = int(key.endswith("-2"))
        branch = kept(ScriptedBackend(wire=wire), store, key=key, parts="store")
        assert texts(branch.state()) == [f"first {at}", f"second {at}"]


def test_a_refused_edit_leaves_no_branch(kept: Threads, save: str, wire: str) -> None:
    """Its files are still there, and no copy is."""
    backend = ScriptedBackend("One.", REFUSED, "Two.", wire=wire)
    store = PartedStore()
    conversation = kept(backend, store, save=save, parts="store", keep_branches=True)
    conversation.send([Text("first"), Image.from_bytes(PIXEL, "image/png")])
    old = conversation.state()
    with pytest.raises(ProviderRejectedError):
        conversation.send("changed", edit=1)
    assert conversation.state() == old
    assert [row.key for row in store.inner.list().keys] == ["ada"]
    assert conversation.send("second").warnings == ()


def test_without_the_option_nothing_is_copied(kept: Threads, leasing: LeasingStore, save: str) -> None:
    conversation = kept(ScriptedBackend("One.", "New."), leasing, save=save)
    conversation.send("first")
    assert conversation.send("changed", edit=1).warnings == ()
    assert [row.key for row in leasing.list().keys] == ["ada"]


def test_an_event_that_comes_meanwhile_is_kept(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """Behind the edited turn, as behind any."""
    adds = Chat(ScriptedBackend(wire=wire)).conversation(store.inner, "ada")

    def reply(_: Any) -> str:
        adds.append(event("Ada won."))
        return "New."

    conversation = kept(ScriptedBackend("One.", "Two.", reply, wire=wire), store, save=save)
    conversation.send("first")
    conversation.send("second")
    conversation.send("changed", edit=2)
    assert texts(blob_in(store)) == ["first", "changed"]
    assert [m.text for m in read_history(blob_in(store)).waiting] == ["Ada won."]


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_turn_that_comes_meanwhile_is_a_conflict(
    kept: Threads, store: FaultyStore, save: str, concurrent: bool
) -> None:
    """Also with `concurrent_turns`: behind the other turn the new message would stand after the old one."""
    beside: Callable[..., Any] = lambda _: other(store, "Other.").send("meanwhile").text and "New."  # noqa: E731
    backend = ScriptedBackend("One.", beside)
    conversation = kept(backend, store, save=save, concurrent_turns=concurrent)
    conversation.send("first")
    with pytest.raises(StateConflictError) as caught:
        conversation.send("changed", edit=1)
    assert texts(blob_in(store)) == ["first", "meanwhile"]
    assert texts(caught.value.state) == ["changed"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("context", [None, "It is dark."])
def test_a_turn_id_names_its_own_message(
    face: Face, kept: Threads, wire: str, place: str, context: str | None
) -> None:
    """Beside a message without an id, in a turn and while it waits. The id of the message that leaves keeps
    its own reply, or none."""
    for is_down in (False, True):
        backend = ScriptedBackend(*([DOWN, DOWN, DOWN] if is_down else ["One."]), wire=wire)
        talk = Talk(face, kept, place, backend)
        talk.append(user("early"))
        if is_down:
            with pytest.raises(TurnError):
                talk.send("late", turn_id="m-1", context=context)
            backend._steps.clear()
        else:
            talk.send("late", turn_id="m-1", context=context)
        backend.then("New.", "Again.")
        talk.send("changed", edit="m-1", turn_id="m-2", context=context)
        assert [text[-7:] for text in texts(talk.blob)] == ["early", "changed"]
        again = talk.send("late", turn_id="m-1", context=context)
        assert (again.text, again.duplicate) == (("Again.", False) if is_down else ("One.", True))
        _history_laws.check(talk.blob)
