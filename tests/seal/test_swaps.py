"""Through a chat: whose blob it is, how old it is and who sealed it decide whether a turn begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    PLAIN,
    UNBOUND,
    Approve,
    Chat,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    StateAuthError,
    StateCorruptError,
    StateError,
    TurnError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.seal import Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.state.blob import decode
from goaitools_py.state.blob_header import peek
from goaitools_py.states import (
    inspect_state,
    pending_calls,
    read_history,
    state_from_messages,
    state_from_text,
    state_messages,
    state_to_text,
)
from goaitools_py.testing import Calls, ScriptedBackend

ADA, EVE = {"tenant": "acme", "user": "ada"}, {"tenant": "acme", "user": "eve"}
OURS, THEIRS = Key.generate(), Key.generate()
MAKERS: dict[str, Callable[..., Any]] = {
    "signed": Signed,
    "encrypted": Encrypted,
    "encrypted-client": lambda ring, **fields: Encrypted(ring, visible_to="client", **fields),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a sealed codec of a ring; each test that asks for it runs with every kind."""
    return MAKERS[request.param]


@pytest.fixture
def codec(make: Any) -> Any:
    """A codec with our key."""
    return make(Keyring(OURS))


@pytest.fixture
def state(codec: Any) -> bytes:
    """Ada's conversation, one turn long."""
    return Chat(ScriptedBackend("Welcome."), codec=codec).chat(user="I am Ada.", binding=ADA).state


def refused(face: Any, run: Any, codec: Any, blob: bytes, **fields: Any) -> StateAuthError:
    """The error of a turn, an append, a resume and a compaction of a blob; none may send anything."""
    backend = ScriptedBackend()
    chat = face.chat(backend, codec=codec, compactor=Compactor(MessageLimit(1), KeepRecentTurns(1)))
    with pytest.raises(StateAuthError) as caught:
        run(chat, blob, user="Who am I?", **fields)
    for act, more in (("append_to_state", (event("It rains."),)), ("resume", ()), ("compact_state", ())):
        with pytest.raises(StateAuthError):
            getattr(chat, act)(blob, *more, **fields)
    for read in (inspect_state, pending_calls, read_history, state_messages):
        with pytest.raises(StateAuthError):
            read(blob, codec=codec, **fields)

    assert backend.requests == []
    assert caught.value.blob == blob
    return caught.value


# ---------------------------------------------------------------------------------------------- swaps


def test_another_users_blob_is_refused(face: Any, run: Any, codec: Any, state: bytes) -> None:
    """Eve cannot go on with what was bound to Ada, nor can nobody in particular."""
    refused(face, run, codec, state, binding=EVE)
    refused(face, run, codec, state, binding=UNBOUND)
    refused(face, run, codec, state, binding={"user": "ada"})


def test_another_apps_blob_is_refused(face: Any, run: Any, make: Any, state: bytes) -> None:
    """An app with a key of its own takes nothing from ours, though the binding is the same."""
    refused(face, run, make(Keyring(THEIRS)), state, binding=ADA)


def test_a_retired_keys_blob_is_refused(face: Any, run: Any, make: Any, state: bytes) -> None:
    """A key that left the ring opens nothing any more; while it is a fallback, it does."""
    assert inspect_state(state, codec=make(Keyring(THEIRS, OURS)), binding=ADA).revision == 1

    refused(face, run, make(Keyring(THEIRS)), state, binding=ADA)


def test_an_older_blob_is_refused(face: Any, run: Any, codec: Any, state: bytes) -> None:
    """With `min_revision` of what was saved last, yesterday's blob does not come back, nor none at all, nor a
    damaged one: each of these would let a client begin anew, with limits that nothing was spent of."""
    backend = ScriptedBackend("Noted.", "Again.")
    chat = face.chat(backend, codec=codec, binding=ADA)
    newer = run(chat, state, user="I like foxes.").state
    saved = inspect_state(newer, codec=codec, binding=ADA).revision

    refused(face, run, codec, state, binding=ADA, min_revision=saved)
    for nothing in (None, b""):
        with pytest.raises(StateAuthError):
            run(chat, nothing, user="Hello.", min_revision=saved)
        with pytest.raises(StateAuthError):
            chat.append_to_state(nothing, event("It rains."), min_revision=saved)
    for damaged in (b"gone", newer[:9], newer[:-1], newer + b"0"):
        with pytest.raises(StateError) as caught:
            run(chat, damaged, user="Hello.", min_revision=saved)
        assert caught.value.blob == damaged

    assert run(chat, newer, user="And?", min_revision=saved).text == "Again."
    assert len(backend.requests) == 2


def test_an_expired_blob_is_refused(face: Any, run: Any, make: Any) -> None:
    """`max_age` counts from the last turn: an old conversation is refused, a turn makes it young again."""
    ring = Keyring(OURS)
    past = int((time.time() - 3600) * 1000)
    old = state_from_messages("openai", [], created_ms=past, codec=make(ring), binding=ADA)
    backend = ScriptedBackend("Hello.", "Again.")

    refused(face, run, make(ring, max_age=600), old, binding=ADA)
    young = run(face.chat(backend, codec=make(ring)), old, user="Hello.", binding=ADA).state

    strict = face.chat(backend, codec=make(ring, max_age=600), binding=ADA)
    assert run(strict, young, user="Again?").text == "Again."


def test_a_plain_blob_is_refused(face: Any, run: Any, codec: Any) -> None:
    """Whoever can write bytes can write a plain blob: a sealed chat takes none, whatever else it allows."""
    plain = Chat(ScriptedBackend("Welcome.")).chat(user="I am Ada.").state

    error = refused(face, run, codec, plain, binding=ADA)

    assert "state is plain" in str(error)


def test_a_sealed_blob_is_not_taken_for_a_plain_one(face: Any, run: Any, state: bytes) -> None:
    """A plain chat says that there is a codec to pass, and starts no fresh conversation over it."""
    backend = ScriptedBackend()

    with pytest.raises(StateAuthError, match="pass the codec that it was written with"):
        run(face.chat(backend), state, user="Who am I?")

    assert backend.requests == []


def test_a_changed_blob_is_refused(face: Any, run: Any, codec: Any, state: bytes) -> None:
    """One bit of the body, the seal or the key's id: refused and not replaced."""
    for at in (13, 20, 40, len(state) - 1):
        refused(face, run, codec, state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :], binding=ADA)


def test_a_fresh_start_must_be_asked_for(face: Any, run: Any, codec: Any, state: bytes) -> None:
    """Only `on_bad_state="fresh"` goes on without what was refused, and then the result hands it back."""
    backend = ScriptedBackend("Who are you?")
    chat = face.chat(backend, codec=codec, binding=EVE)

    result = run(chat, state, user="Who am I?", on_bad_state="fresh")

    assert type(result.discarded) is StateAuthError
    assert result.discarded.blob == state
    assert [warning.code for warning in result.warnings] == ["state_discarded"]
    assert "ada" not in str(result.warnings)
    assert len(state_messages(result.state, codec=codec, binding=EVE)) == 2


def test_a_blob_cut_within_its_header_is_damaged(face: Any, run: Any, codec: Any, state: bytes) -> None:
    """What is no whole header cannot be authentic or not: it is damaged, as in every suite."""
    with pytest.raises(StateCorruptError):
        run(
            face.chat(ScriptedBackend(), codec=codec),
            state[:9],
            user="Hi.",
            binding=ADA,
            on_bad_state="raise",
        )


# -------------------------------------------------------------------------------------------- binding


def test_a_sealed_chat_must_be_told_the_binding(face: Any, run: Any, codec: Any, state: bytes) -> None:
    """Without one nothing is sent, on a new conversation neither; appending and compacting say so too."""
    backend = ScriptedBackend()
    chat = face.chat(backend, codec=codec, compactor=Compactor(MessageLimit(1), KeepRecentTurns(1)))

    for given in (None, state):
        with pytest.raises(ValueError, match="needs a binding, and none was given"):
            run(chat, given, user="Hello.")
        with pytest.raises(ValueError, match="needs a binding"):
            chat.append_to_state(given, event("It rains."))
    with pytest.raises(ValueError, match="needs a binding"):
        chat.resume(state)
    with pytest.raises(ValueError, match="needs a binding"):
        chat.compact_state(state)
    with pytest.raises(TypeError, match="dict of texts"):
        run(chat, state, user="Hello.", binding="ada")

    assert backend.requests == []


def test_a_chat_may_have_a_binding_by_default(face: Any, run: Any, codec: Any) -> None:
    """A default holds for every method; one given to a call holds for that call."""
    chat = face.chat(
        ScriptedBackend("One.", "Two."),
        codec=codec,
        binding=UNBOUND,
        compactor=Compactor(MessageLimit(1), KeepRecentTurns(1)),
    )

    state = run(chat, None, user="Hello.").state
    state = chat.append_to_state(state, event("It rains."))
    state = run(chat, state, user="Hello.").state
    state = chat.compact_state(state).state
    bound = chat.append_to_state(None, event("It rains."), binding=ADA)

    assert inspect_state(state, codec=codec, binding=UNBOUND).turns == 1
    assert inspect_state(bound, codec=codec, binding=ADA).waiting_messages == 1


def test_a_minimum_belongs_to_one_turn(face: Any, codec: Any) -> None:
    """As a chat's default it would refuse the next conversation."""
    with pytest.raises(TypeError, match="'min_revision' belongs to one turn"):
        face.chat(ScriptedBackend(), codec=codec, min_revision=3)


# ------------------------------------------------------------------------------ everything a turn writes


@tool
def look(place: str) -> str:
    """What there is at a place."""
    return f"A theatre in {place}."


@tool(requires_approval=True)
def pay(pounds: int) -> str:
    """Pay for the tea."""
    return f"Paid {pounds}."


def test_every_blob_of_a_turn_is_sealed(face: Any, wire: str, codec: Any) -> None:
    """Checkpoints, the handle's state, results, errors, appended and compacted blobs: all of them open with
    key and binding only."""
    fault = BackendError("unavailable")
    backend = ScriptedBackend(
        Calls([("look", {"place": "Leeds"}), ("pay", {"pounds": 5})]), "Paid.", fault, "Back.", wire=wire
    )
    seen: list[bytes] = []
    chat = face.chat(
        backend, codec=codec, binding=ADA, tools=[look, pay], on_checkpoint=lambda blob: seen.append(blob)
    )

    turn = chat.start(None, user="Pay for the tea.")
    for _ in turn:
        seen.append(turn.state)
    waiting = turn.result().state
    calls = pending_calls(waiting, codec=codec, binding=ADA)
    paid = chat.resume(waiting, {call.id: Approve() for call in calls}).state
    with pytest.raises(TurnError) as caught:
        chat.chat_with_state(paid, user="Thank you.")
    back = chat.resume(caught.value.state).state
    rained = chat.append_to_state(back, event("It rains."))
    cut = chat.compact_state(rained, Compactor(MessageLimit(1), KeepRecentTurns(1))).state
    seen += [waiting, paid, caught.value.state, back, rained, cut]

    assert [call.name for call in calls] == ["pay"]
    assert len(seen) > 10
    for blob in filter(None, seen):
        assert peek(blob).suite == codec.suite
        assert peek(blob).key_id == OURS.id
        decode(blob, codec=codec, binding=ADA)
        with pytest.raises(StateAuthError):
            decode(blob, codec=codec, binding=EVE)
    history = read_history(cut, codec=codec, binding=ADA)
    assert [turn.messages[0].text for turn in history.turns] == ["Thank you."]
    info = inspect_state(cut, codec=codec, binding=ADA, min_revision=6)
    assert (info.turns_processed, info.waiting_messages) == (2, 1)


def test_equal_conversations_through_every_codec(face: Any, run: Any, wire: str) -> None:
    """Sealing changes nothing of what is sent, said or stored."""
    bodies, histories = [], []
    for codec, binding in [(PLAIN, None), *((make(Keyring(OURS)), ADA) for make in MAKERS.values())]:
        backend = ScriptedBackend("Hello.", "Yes.", Calls([("look", {"place": "Leeds"})]), "Fine.", wire=wire)
        chat = face.chat(backend, codec=codec, binding=binding, tools=[look])
        state = None
        for said in ("I am Ada.", "Am I?", "What is in Leeds?"):
            state = run(chat, state, user=said, conversation_id="room-7").state
            state = chat.append_to_state(state, event(f"She said {said}"))
        bodies.append([request.body for request in backend.requests])
        histories.append(state_messages(state, codec=codec, binding=binding))

    assert all(each == bodies[0] for each in bodies)
    assert all(each == histories[0] for each in histories)


def test_a_client_carries_its_state_as_text(face: Any, run: Any) -> None:
    """The cookie way: encrypted, of rounded length, as text, and back on the next request."""
    codec = Encrypted(Keyring(OURS), visible_to="client", max_age=3600)
    chat = face.chat(ScriptedBackend("Hello, Ada.", "You are Ada."), codec=codec)

    cookie = state_to_text(run(chat, None, user="I am Ada.", binding=ADA).state)
    result = run(chat, state_from_text(cookie), user="Who am I?", binding=ADA)

    assert cookie.isascii()
    assert b"I am Ada." not in state_from_text(cookie)
    assert b"Hello, Ada." not in state_from_text(cookie)
    assert result.text == "You are Ada."


# ------------------------------------------------------------------------------------------- rotation


class Deployment:
    """A row of workers over one table of blobs, each with the ring of its release."""

    def __init__(self, face: Any, make: Any, *rings: Keyring) -> None:
        self.table: dict[str, bytes] = {}
        self.said: dict[str, list[str]] = {}
        self._face, self._make = face, make
        self.workers = [self._worker(ring) for ring in rings]

    def _worker(self, ring: Keyring) -> Any:
        def echo(request: Any) -> str:
            return f"Reply {request.body.count(b'Message ')}."

        codec = self._make(ring)
        return self._face.chat(ScriptedBackend(*[echo] * 200), codec=codec), codec

    def release(self, number: int, ring: Keyring) -> None:
        """Put another ring into one worker."""
        self.workers[number] = self._worker(ring)

    def traffic(self) -> None:
        """A turn of every user on every worker, each continuing what another worker wrote."""
        for chat, codec in self.workers:
            for user in ("ada", "bob", "cleo"):
                said = self.said.setdefault(user, [])
                said.append(f"Message {len(said)} of {user}")
                binding = {"user": user}
                result = chat.chat_with_state(self.table.get(user), user=said[-1], binding=binding)
                assert result.text == f"Reply {len(said)}."
                self.table[user] = result.state
                history = read_history(result.state, codec=codec, binding=binding).all_messages()
                assert [message.text for message in history if message.role == "user"] == said

    def key_ids(self) -> set[int]:
        """Which keys the table's blobs are sealed with."""
        return {peek(blob).key_id for blob in self.table.values()}


def test_keys_rotate_without_a_refused_turn(face: Any, make: Any) -> None:
    """Three rolling deployments, worker by worker, with traffic in between: no turn is refused, no word is
    lost, and in the end the old key opens nothing."""
    old, new = OURS, THEIRS
    house = Deployment(face, make, *[Keyring(old)] * 3)
    house.traffic()
    house.table["dora"] = make_state(make(Keyring(old)), "dora")  # somebody who does not come back
    backup = dict(house.table)

    for ring in (Keyring(old, new), Keyring(new, old)):
        for number in range(3):
            house.release(number, ring)
            house.traffic()
    moved = 0
    for user, blob in house.table.items():
        house.table[user] = rewrap(blob, house.workers[0][1], binding={"user": user})
        moved += house.table[user] != blob
    for number in range(3):
        house.release(number, Keyring(new))
        house.traffic()

    assert house.key_ids() == {new.id}
    assert moved == 1
    assert len(house.said["ada"]) == 30
    assert inspect_state(house.table["dora"], codec=house.workers[0][1], binding={"user": "dora"}).turns == 1
    with pytest.raises(StateAuthError):
        house.workers[0][0].chat_with_state(backup["ada"], user="Hello.", binding={"user": "ada"})


def test_rotating_in_one_step_refuses_turns(face: Any, make: Any) -> None:
    """Why there are two: a worker that writes with a key that another cannot read yet."""
    house = Deployment(face, make, *[Keyring(OURS)] * 3)
    house.traffic()

    house.release(0, Keyring(THEIRS, OURS))

    with pytest.raises(StateAuthError):
        house.traffic()


def make_state(codec: Any, user: str) -> bytes:
    """A conversation of one turn."""
    chat = Chat(ScriptedBackend("Hello."), codec=codec)
    return chat.chat(user="Hello.", binding={"user": user}).state
