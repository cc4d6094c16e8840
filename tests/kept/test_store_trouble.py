"""The store is away, or does not answer: nothing is called for nothing, and no paid answer is lost."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from goaitools_py import (
    CheckpointError,
    ProviderUnavailableError,
    StateAuthError,
    StateConflictError,
    StoreCommitError,
    StoreUnavailableError,
    TextDelta,
    TurnConflictError,
    TurnError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.chat.kept import changes
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

from ..conftest import Face
from .conftest import AwaitedLeasing, FaultyStore, Kept, LeasingStore, Threads, blob_in, other, said


def test_a_store_that_is_away_costs_no_call(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """Each method raises the store's error; no model was asked."""
    backend = ScriptedBackend()
    conversation = kept(backend, leasing, save=save)
    leasing.is_down = True

    for act in (
        lambda: conversation.send("Hello?"),
        lambda: conversation.start("Hello?").result(),
        lambda: conversation.resume(),
        lambda: conversation.append(event("E.")),
        lambda: conversation.history(),
        lambda: conversation.info(),
        lambda: conversation.rewind(),
        lambda: conversation.undo_cut(),
        lambda: conversation.fork("bob"),
    ):
        with pytest.raises(StoreUnavailableError):
            act()
    assert backend.requests == []


def test_what_was_said_is_saved_before_it_is_sent(kept: Threads, store: FaultyStore) -> None:
    """With checkpoints: if that fails, nothing is sent."""
    backend = ScriptedBackend()
    store.faults = ["lost", "lost"]

    with pytest.raises(StoreUnavailableError):
        kept(backend, store, save="checkpoint").send("Hello?")

    assert backend.requests == []


def test_a_save_that_was_lost_is_sent_again(kept: Threads, store: FaultyStore, save: str) -> None:
    """One failure is not told of: what is stored is looked at, and the save is made once more."""
    store.faults = ["lost"]

    result = kept(ScriptedBackend("Hello."), store, save=save).send("Hello?")

    assert blob_in(store) == result.state


def test_a_save_that_nobody_answered_is_found(kept: Threads, store: FaultyStore, save: str) -> None:
    """It was made: it is not made again, and nothing is doubled."""
    conversation = kept(ScriptedBackend("Hi.", "Hello."), store, save=save)
    conversation.send("Hi?")
    made = len(store.saves)
    saves = 1 if save == "turn" else 2
    store.faults = ["unanswered"] * saves

    result = conversation.send("Hello?")

    assert said(blob_in(store)) == ["Hi?", "Hi.", "Hello?", "Hello."]
    assert blob_in(store) == result.state
    assert len(store.saves) - made == saves


def test_a_save_that_nobody_answered_is_found_under_others(kept: Threads, store: FaultyStore) -> None:
    """Somebody went on from it before it was looked for: their event, or their whole turn."""
    for theirs in (lambda: other(store).append(event("E.")), lambda: other(store, "Yes.").send("They?")):
        store.inner.delete("ada")
        went_on = False

        class Busy(FaultyStore):
            def load(self, key: str) -> Any:
                nonlocal went_on
                if self.saves and not went_on:
                    went_on = True
                    theirs()  # noqa: B023
                return super().load(key)

        busy = Busy()
        busy.inner = store.inner
        busy.faults = ["unanswered"]
        result = kept(ScriptedBackend("Hello."), busy).send("Hello?")

        assert went_on
        assert said(result.state)[:2] == ["Hello?", "Hello."]
        assert said(blob_in(store)).count("Hello.") == 1
        assert len(busy.saves) == 1


def test_a_paid_answer_is_in_the_error(kept: Threads, store: FaultyStore) -> None:
    """The store went away during the call: `commit` saves the turn later, and no model is asked again."""

    def answer(_: Any) -> str:
        store.is_down = True
        return "Hello."

    backend = ScriptedBackend("Hi.", answer)
    conversation = kept(backend, store)
    conversation.send("Hi?")
    with pytest.raises(StoreCommitError) as caught:
        conversation.send("Hello?")
    error = caught.value
    with pytest.raises(StoreUnavailableError):
        conversation.commit(error)
    store.is_down = False
    other(store).append(event("E."))
    stored = conversation.commit(error)

    assert (error.text, error.retryable, error.usage.requests) == ("Hello.", True, 1)
    assert said(error.state)[-1] == "Hello."
    assert isinstance(error.__cause__, StoreUnavailableError)
    assert said(stored) == ["Hi?", "Hi.", "Hello?", "Hello.", "E."]
    assert blob_in(store) == stored == conversation.commit(error)
    assert len(backend.requests) == 2


def test_a_store_may_fail_in_its_own_words(kept: Threads, store: FaultyStore) -> None:
    """Whatever a store of somebody else's raises at a save, the answer is in the error."""

    def fail() -> None:
        raise RuntimeError("a bug in a store")

    store.faults = [fail, fail]
    with pytest.raises(StoreCommitError) as caught:
        kept(ScriptedBackend("Hello."), store).send("Hello?")

    assert caught.value.text == "Hello."
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_failed_turn_says_that_it_is_not_stored(kept: Threads, store: FaultyStore) -> None:
    """The provider's error is the one that is raised; `unsaved` is the store's, and `commit` saves later."""

    def fail(_: Any) -> Any:
        store.is_down = True
        return BackendError("down")

    conversation = kept(ScriptedBackend(fail, "Hello."), store)
    with pytest.raises(ProviderUnavailableError) as caught:
        conversation.send("Hello?")
    store.is_down = False
    assert isinstance(caught.value.unsaved, StoreUnavailableError)
    conversation.commit(caught.value)

    assert said(blob_in(store)) == ["Hello?"]
    assert conversation.resume().text == "Hello."


def test_no_tool_runs_that_is_not_written_down(kept: Threads, store: FaultyStore) -> None:
    """With checkpoints: the store goes away after the reply, and its tools do not start."""
    ran: list[int] = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    def reply(_: Any) -> Calls:
        store.is_down = True
        return Calls([("pay", {})])

    conversation = kept(ScriptedBackend(reply, "Paid."), store, chat={"tools": [pay]}, save="checkpoint")
    with pytest.raises(CheckpointError) as caught:
        conversation.send("Pay.", turn_id="m-1")
    store.is_down = False
    assert (ran, said(blob_in(store))) == ([], ["Pay."])
    assert isinstance(caught.value.unsaved, StoreUnavailableError)
    conversation.commit(caught.value)
    result = conversation.send("Pay.", turn_id="m-1")

    assert (ran, result.text) == ([1], "Paid.")


def test_an_append_that_nobody_answered_is_found(kept: Threads, store: FaultyStore) -> None:
    """And one that is really lost is told."""
    conversation = kept(ScriptedBackend(), store)
    store.faults = ["unanswered"]
    conversation.append(event("E."))
    store.faults = ["lost", "lost"]
    with pytest.raises(StoreUnavailableError):
        conversation.append(event("F."))

    assert said(blob_in(store)) == ["E."]


def test_only_errors_of_turns_are_committed(kept: Threads, store: FaultyStore) -> None:
    """Anything else has no state that could be saved."""
    with pytest.raises(TypeError, match="takes the error"):
        kept(ScriptedBackend(), store).commit(ValueError())
    with pytest.raises(TypeError, match="takes the error"):
        kept(ScriptedBackend(), store).commit(TurnError("nothing"))


class Late(FaultyStore):
    """The first save gets no answer and takes place only when it is made again; then somebody has a turn."""

    def __init__(self) -> None:
        super().__init__()
        self._on_its_way: list[tuple[str, bytes, int | None]] = []
        self.has_begun = False

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        if not self.has_begun:
            self.has_begun = True
            self._on_its_way.append((key, blob, expected))
            raise StoreUnavailableError("no answer came")
        if self._on_its_way:
            key, late, before = self._on_its_way.pop()
            self.inner.save(key, late, expected=before)
            other(self, "Theirs.").send("They?")
        return super().save(key, blob, expected=expected)


@pytest.mark.parametrize("turn_id", [None, "m-1"])
def test_a_first_save_that_comes_late_says_the_message_once(kept: Threads, turn_id: str | None) -> None:
    """Somebody took the message along before its own turn had asked. It stands in the history once, and with
    an id its own turn has that answer."""
    store = Late()
    conversation = kept(ScriptedBackend("Mine."), store, save="checkpoint")
    if turn_id is None:
        with pytest.raises(StateConflictError):
            conversation.send("I?")
    else:
        result = conversation.send("I?", turn_id=turn_id)
        assert (result.text, result.duplicate) == ("Theirs.", True)

    assert said(blob_in(store)) == ["I?", "They?", "Theirs."]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_first_save_whose_answer_cannot_be_looked_for_is_taken_back(
    kept: Threads, store: FaultyStore, is_new: bool
) -> None:
    """The store saved what was to be said, did not answer, and was away for a moment: nothing was called, so
    nothing was said, and what is stored can be read."""
    conversation = kept(ScriptedBackend("Hi.", "Yes."), store, save="checkpoint")
    if not is_new:
        conversation.send("Hi?")
    before, load = said(blob_in(store)), store.load

    def away(key: str) -> Any:
        store.load = load  # type: ignore[method-assign]
        raise StoreUnavailableError("down")

    def lose() -> None:
        store.load = away  # type: ignore[method-assign]

    store.faults = [_unanswered(store, lose)]
    with pytest.raises(StoreUnavailableError):
        conversation.send("I?")

    assert said(blob_in(store)) == before
    assert conversation.history().turns == read_history(blob_in(store)).turns
    assert said(conversation.send("I?").state)[-2] == "I?"
    assert said(blob_in(store)).count("I?") == 1


def _unanswered(store: FaultyStore, then: Any) -> Any:
    """A fault of a save that takes place and is not answered; `then` is called after it."""
    save = store.inner.save

    def once(key: str, blob: bytes, *, expected: int | None) -> int:
        store.inner.save = save  # type: ignore[method-assign]
        save(key, blob, expected=expected)
        then()
        raise StoreUnavailableError("no answer came")

    def fault() -> None:
        store.inner.save = once  # type: ignore[method-assign]

    return fault


# ------------------------------------------------------------- a turn id that is sent again before `commit`


def _answer_without_store(store: FaultyStore, reply: Any) -> Any:
    """A reply of the model during which the store goes away."""

    def answer(_: Any) -> Any:
        store.is_down = True
        return reply

    return answer


def test_a_turn_id_sent_again_saves_the_paid_answer(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """No model is asked again, also while the store is away; what others appended stays."""
    backend = ScriptedBackend("Hi.", _answer_without_store(leasing, "Hello."), "Bye.")
    conversation = kept(backend, leasing, save=save)
    conversation.send("Hi?")
    with pytest.raises(StoreCommitError):
        conversation.send("Hello?", turn_id="m-1")
    with pytest.raises(StoreUnavailableError):
        conversation.send("Hello?", turn_id="m-1")
    leasing.is_down = False
    other(leasing).append(event("E."))
    result = conversation.send("Hello?", turn_id="m-1")

    assert (result.text, result.duplicate, result.usage.requests) == ("Hello.", True, 0)
    assert sorted(said(blob_in(leasing))) == sorted(["Hi?", "Hi.", "Hello?", "Hello.", "E."])
    assert conversation.send("Hello?", turn_id="m-1").text == "Hello."
    assert said(conversation.send("Bye?", turn_id="m-2").state)[-2:] == ["Bye?", "Bye."]
    assert len(backend.requests) == 3


def test_a_failed_turn_that_is_sent_again_runs_no_tool_again(kept: Threads, leasing: LeasingStore) -> None:
    """The tool ran, then provider and store were away: the same `turn_id` goes on behind the tool."""
    ran: list[int] = []

    @tool(idempotent=True)
    def look() -> str:
        """Look."""
        ran.append(1)
        return "dark"

    broken = _answer_without_store(leasing, BackendError("down"))
    backend = ScriptedBackend(Calls([("look", {})]), broken, "It is dark.")
    conversation = kept(backend, leasing, chat={"tools": [look]})
    with pytest.raises(ProviderUnavailableError) as caught:
        conversation.send("Look.", turn_id="m-1")
    assert isinstance(caught.value.unsaved, StoreUnavailableError)
    leasing.is_down = False

    assert conversation.send("Look.", turn_id="m-1").text == "It is dark."
    assert (ran, said(blob_in(leasing))) == ([1], ["Look.", "", "It is dark."])


def test_an_abandoned_turn_that_is_sent_again_runs_no_tool_again(
    kept: Threads, leasing: LeasingStore
) -> None:
    """The reader left while the store was away."""
    ran: list[int] = []

    @tool(idempotent=True)
    def look() -> str:
        """Look."""
        ran.append(1)
        return "dark"

    backend = ScriptedBackend(Calls([("look", {})]), _answer_without_store(leasing, "It"), "It is dark.")
    conversation = kept(backend, leasing, chat={"tools": [look]})
    turn = conversation.start("Look.", turn_id="m-1")
    for told in turn:
        if isinstance(told, TextDelta):
            break
    turn.cancel()
    assert said(blob_in(leasing)) == []
    leasing.is_down = False

    assert conversation.send("Look.", turn_id="m-1").text == "It is dark."
    assert (ran, said(blob_in(leasing)).count("Look.")) == ([1], 1)
    assert [message["role"] for message in backend.bodies()[-1]["messages"]][-1] == "tool"


def test_other_messages_under_the_turn_id_are_refused(kept: Threads, leasing: LeasingStore) -> None:
    """The paid turn is saved all the same."""
    conversation = kept(ScriptedBackend(_answer_without_store(leasing, "Hello.")), leasing)
    with pytest.raises(StoreCommitError):
        conversation.send("Hello?", turn_id="m-1")
    leasing.is_down = False
    with pytest.raises(TurnConflictError):
        conversation.send("Good evening?", turn_id="m-1")

    assert said(blob_in(leasing)) == ["Hello?", "Hello."]


def test_another_owner_does_not_get_the_turn(face: Face, leasing: LeasingStore) -> None:
    """Nor does the owner lose it."""
    backend = ScriptedBackend(_answer_without_store(leasing, "Hello."))
    chat = face.chat(backend, codec=Encrypted(Keyring(Key(b"k" * 32)))).inner
    store = AwaitedLeasing(leasing) if face.is_async else leasing
    mine, theirs = (
        Kept(chat.conversation(store, "ada", binding={"user": owner}, save_timeout=0.0), face.run)
        for owner in ("Ada", "Bob")
    )
    mine.append(event("E."))
    with pytest.raises(StoreCommitError):
        mine.send("Hello?", turn_id="m-1")
    leasing.is_down = False
    with pytest.raises(StateAuthError):
        theirs.send("Hello?", turn_id="m-1")

    assert mine.send("Hello?", turn_id="m-1").text == "Hello."


@pytest.mark.parametrize("drop", ["erase", "redact", "reset"])
@pytest.mark.parametrize("is_new", [False, True])
def test_what_was_erased_does_not_come_back(
    kept: Threads, leasing: LeasingStore, drop: str, is_new: bool
) -> None:
    """The chat holds no turn of a conversation that was erased or redacted."""
    first = [] if is_new else ["Hi."]
    backend = ScriptedBackend(*first, _answer_without_store(leasing, "It is hunter2."), "Hello.")
    conversation = kept(backend, leasing)
    if not is_new:
        conversation.send("Hi?")
    with pytest.raises(StoreCommitError):
        conversation.send("Hello?", turn_id="m-1")
    leasing.is_down = False
    getattr(conversation, drop)(*(["hunter2"] if drop == "redact" else []))

    assert conversation.send("Hello?", turn_id="m-1").text == "Hello."
    assert "It is hunter2." not in said(blob_in(leasing))


def test_a_chat_holds_few_turns(
    kept: Threads, leasing: LeasingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest go first: their messages are answered anew."""
    monkeypatch.setattr(changes, "MAX_HELD", 2)
    answers = [f"Answer {number}." for number in range(3)]
    backend = ScriptedBackend(*[_answer_without_store(leasing, text) for text in answers], "Anew.")
    conversation = kept(backend, leasing)
    for number in range(3):
        leasing.is_down = False
        with pytest.raises(StoreCommitError):
            conversation.send(f"{number}?", turn_id=f"m-{number}")
    leasing.is_down = False

    assert [conversation.send(f"{n}?", turn_id=f"m-{n}").text for n in (2, 1, 0)] == [
        "Answer 2.",
        "Answer 1.",
        "Anew.",
    ]


def test_the_held_turns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in bytes; and the newest are there."""
    monkeypatch.setattr(changes, "MAX_HELD", 5)
    monkeypatch.setattr(changes, "MAX_HELD_BYTES", 100)
    chance = Random(7)
    held: changes.Held = {}
    settings: Any = SimpleNamespace(store=object(), key="ada", binding=None)
    sizes: dict[int, int] = {}
    for _ in range(500):
        id, state, base = chance.randrange(10), chance.randrange(40), chance.randrange(40)
        changes.hold(held, settings, str(id), bytes(state), bytes(base))
        sizes.pop(id, None)
        sizes[id] = state + base
        while len(sizes) > 5 or sum(sizes.values()) > 100:
            del sizes[next(iter(sizes))]
        assert [at[2] for at in held] == [str(one) for one in sizes]
    changes.let_go(held, settings)
    assert held == {}
