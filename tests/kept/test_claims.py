"""A tool that is not idempotent starts once, also where two workers have the same conversation at a time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from goaitools_py import (
    AbortTurn,
    Approve,
    Chat,
    CheckpointError,
    StateConflictError,
    StoreCommitError,
    ToolFailedError,
    event,
    tool,
)
from goaitools_py.states import pending_calls, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from .conftest import Bare, FaultyStore, Threads, blob_in, other, said

WIRES = pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
UNKNOWN = "The outcome of this tool call is unknown: it may or may not have taken effect."


class Bank:
    """Tools that pay, and what they did. `meanwhile` runs in the tool, before it pays."""

    def __init__(self, *, idempotent: bool = False, requires_approval: bool = False) -> None:
        self.paid: list[int] = []
        self.meanwhile: list[Any] = []

        @tool(idempotent=idempotent, requires_approval=requires_approval)
        def pay(amount: int) -> str:
            """Pay."""
            if self.meanwhile:
                self.meanwhile.pop(0)()
            self.paid.append(amount)
            return f"paid {amount}"

        self.tools = [pay]

    def worker(self, store: Any, backend: ScriptedBackend, save: Any) -> Any:
        """Somebody else with the same tools and no lease."""
        chat = Chat(backend, tools=self.tools)
        return chat.conversation(Bare(store.inner), "ada", save=save)


def pay(*amounts: int) -> Calls:
    return Calls([("pay", {"amount": amount}) for amount in amounts])


def results(backend: ScriptedBackend) -> bytes:
    """The last request that a worker sent."""
    return backend.requests[-1].body


@WIRES
def test_a_second_worker_starts_no_tool_that_the_first_has_claimed(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """The same message is delivered again while the first call runs: both calls of the reply are in doubt in
    `save="turn"`, and in `save="checkpoint"` the second is the second worker's. Each runs once."""
    bank, theirs = Bank(), ScriptedBackend("Theirs.", wire=wire)
    bank.meanwhile.append(lambda: bank.worker(store, theirs, save).send("Pay.", turn_id="m-1"))
    backend = ScriptedBackend(pay(1, 2), "Mine.", wire=wire)
    conversation = kept(backend, store, chat={"tools": bank.tools, "tool_concurrency": 1}, save=save)
    try:
        result = conversation.send("Pay.", turn_id="m-1")
    except StateConflictError:
        assert save == "checkpoint"
    else:
        assert (result.text, result.duplicate) == ("Theirs.", True)

    assert sorted(bank.paid) == [1, 2]
    assert results(theirs).count(UNKNOWN.encode()) == (2 if save == "turn" else 1)
    assert said(blob_in(store)) == ["Pay.", "", "Theirs."]
    assert check_history(wire, state_messages(blob_in(store))) == []


@WIRES
def test_a_worker_that_was_overtaken_starts_no_tool(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """Somebody else had a turn while the model answered: the error has the state, and nothing ran."""
    bank = Bank()

    def answer(_: Any) -> Calls:
        bank.worker(store, ScriptedBackend("Theirs.", wire=wire), save).send("They?")
        return pay(1)

    conversation = kept(ScriptedBackend(answer, wire=wire), store, chat={"tools": bank.tools}, save=save)
    with pytest.raises(StateConflictError) as caught:
        conversation.send("Pay.")

    assert bank.paid == []
    assert said(blob_in(store))[-2:] == ["They?", "Theirs."]
    assert "Pay." in said(caught.value.state)


def test_a_later_reply_is_claimed_too(kept: Threads, store: FaultyStore, save: str) -> None:
    """The second worker goes on behind the first call; the first one's next tool does not start."""
    bank = Bank()
    theirs = ScriptedBackend(pay(2), "Theirs.")

    def answer(_: Any) -> Calls:
        result = bank.worker(store, theirs, save).send("Pay.", turn_id="m-1")
        assert result.text == "Theirs."
        return pay(2)

    backend = ScriptedBackend(pay(1), answer)
    result = kept(backend, store, chat={"tools": bank.tools}, save=save).send("Pay.", turn_id="m-1")

    assert bank.paid == [1, 2]
    assert (result.text, result.duplicate) == ("Theirs.", True)


def test_an_approval_that_comes_twice_pays_once(kept: Threads, store: FaultyStore, save: str) -> None:
    """Two workers have the same answer at the same time, without a lease."""
    bank = Bank(requires_approval=True)
    backend = ScriptedBackend(pay(1), "Paid.")
    conversation = kept(backend, store, chat={"tools": bank.tools}, save=save)
    (call,) = conversation.send("Pay.").pending
    late: list[str] = []

    def again() -> None:
        second = bank.worker(Stale(store, before), ScriptedBackend(), save)
        with pytest.raises(StateConflictError) as caught:
            second.resume({call.id: Approve()})
        late.append(type(caught.value).__name__)

    before = store.inner.load("ada")
    bank.meanwhile.append(again)
    result = conversation.resume({call.id: Approve()})

    assert (bank.paid, late) == ([1], ["StateConflictError"])
    assert result.text == "Paid."


class Stale:
    """What a worker sees that has loaded the row a while ago."""

    def __init__(self, store: FaultyStore, before: Any) -> None:
        self.inner = self
        self._store = store
        self._before = [before]

    def load(self, key: str) -> Any:
        return self._before.pop() if self._before else self._store.inner.load(key)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return self._store.inner.save(key, blob, expected=expected)


@pytest.mark.parametrize(
    ("idempotent", "script", "saves"),
    [
        (False, ("Hello.",), 1),
        (True, (pay(1, 2), pay(3), "Done."), 1),
        (False, (pay(1), "Done."), 2),
        (False, (pay(1, 2, 3), "Done."), 2),
        (False, (pay(1, 2), pay(3), "Done."), 3),
    ],
)
def test_what_a_claim_costs(
    kept: Threads, store: FaultyStore, idempotent: bool, script: Any, saves: int
) -> None:
    """With `save="turn"`: one save, and one more for each reply with calls that must not run twice."""
    bank = Bank(idempotent=idempotent)
    result = kept(ScriptedBackend(*script), store, chat={"tools": bank.tools}, save="turn").send("Pay.")

    assert len(store.saves) == saves
    assert blob_in(store) == result.state
    assert len(bank.paid) == sum(len(step.calls) for step in script if isinstance(step, Calls))


def test_a_killed_worker_leaves_its_calls_in_doubt(store: FaultyStore) -> None:
    """With `save="turn"`: each claimed call is in doubt, an idempotent one beside them is not."""
    bank = Bank()

    @tool(idempotent=True)
    def look() -> str:
        """Look."""
        return "quiet"

    seen: list[list[str]] = []
    bank.meanwhile.append(lambda: seen.append([call.id for call in pending_calls(blob_in(store))]))
    calls = Calls([("pay", {"amount": 1}), ("look", {}), ("pay", {"amount": 3})])
    chat = Chat(ScriptedBackend(calls, "Done."), tools=[*bank.tools, look])
    result = chat.conversation(store, "ada").send("Pay.")

    assert seen == [[record.call.id for record in result.tool_log if record.call.name == "pay"]]
    assert bank.paid == [1, 3]
    assert pending_calls(result.state) == ()


def test_an_event_does_not_keep_a_tool_from_starting(kept: Threads, store: FaultyStore) -> None:
    """Somebody appended while the model answered: the claim takes it along."""
    bank = Bank()

    def answer(_: Any) -> Calls:
        other(store).append(event("E."))
        return pay(1)

    conversation = kept(ScriptedBackend("Hi.", answer, "Paid."), store, chat={"tools": bank.tools})
    conversation.send("Hi?")
    result = conversation.send("Pay.")

    assert bank.paid == [1]
    assert said(result.state)[-1] == "E."


@pytest.mark.parametrize("fault", [None, "unanswered", "down"])
def test_two_may_begin_a_conversation_at_once(kept: Threads, store: FaultyStore, fault: str | None) -> None:
    """An event begins the conversation some time after a turn did: the claim, and what is saved after it,
    stand behind it and keep its time. So does what is committed later."""
    bank = Bank()

    def answer(_: Any) -> Calls:
        time.sleep(0.003)  # states keep milliseconds
        other(store).append(event("E."))
        if fault == "unanswered":
            store.faults = [fault]
        return pay(1)

    def done(_: Any) -> str:
        other(store).append(event("F."))
        store.is_down = fault == "down"
        return "Paid."

    conversation = kept(ScriptedBackend(answer, done, "Bye."), store, chat={"tools": bank.tools})
    try:
        stored = conversation.send("Pay.").state
    except StoreCommitError as exc:
        store.is_down = False
        stored = conversation.commit(exc)

    assert bank.paid == [1]
    assert said(stored) == ["Pay.", "", "Paid.", "E.", "F."]
    assert blob_in(store) == stored
    assert said(conversation.send("Bye?").state)[-2:] == ["Bye?", "Bye."]


def test_nothing_starts_that_could_not_be_claimed(kept: Threads, store: FaultyStore) -> None:
    """The store is away: the tool did not start, and the redelivery starts it."""
    bank = Bank()

    def answer(_: Any) -> Calls:
        store.is_down = True
        return pay(1)

    conversation = kept(ScriptedBackend(answer, "Paid."), store, chat={"tools": bank.tools})
    with pytest.raises(CheckpointError, match="could not be claimed") as caught:
        conversation.send("Pay.", turn_id="m-1")
    assert (bank.paid, caught.value.retryable) == ([], True)
    assert caught.value.unsaved is not None

    store.is_down = False
    conversation.commit(caught.value)
    assert conversation.send("Pay.", turn_id="m-1").text == "Paid."
    assert bank.paid == [1]


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_a_claim_that_nobody_answered_is_looked_for(kept: Threads, store: FaultyStore, fault: str) -> None:
    """It is saved once, and the tool runs once."""
    bank = Bank()
    store.faults = [fault]
    result = kept(ScriptedBackend(pay(1), "Paid."), store, chat={"tools": bank.tools}).send("Pay.")

    assert (bank.paid, result.text) == ([1], "Paid.")
    assert len(store.saves) == 2


def test_a_tool_that_did_not_start_after_its_claim_is_not_in_doubt(kept: Threads, store: FaultyStore) -> None:
    """The first tool ended the turn: the calls behind it are `not_run` in what is stored."""

    @tool
    def stop() -> str:
        """Stop."""
        raise AbortTurn("stop")

    bank = Bank()
    calls = Calls([("stop", {}), ("pay", {"amount": 1})])
    tools = [stop, *bank.tools]
    conversation = kept(ScriptedBackend(calls), store, chat={"tools": tools, "tool_concurrency": 1})
    with pytest.raises(ToolFailedError):
        conversation.send("Pay.")

    assert bank.paid == []
    assert pending_calls(blob_in(store)) == ()
    resumed = kept(ScriptedBackend("Stopped."), store, chat={"tools": tools}).resume()
    assert [record.flag for record in resumed.tool_log] == ["error", "not_run"]


@WIRES
def test_a_turn_that_somebody_closed_is_not_put_behind_itself(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """With `concurrent_turns=True`: while a tool runs, somebody else closes its turn and has one. The history
    has the first turn once, and the error the other version of it."""
    bank = Bank()
    theirs = ScriptedBackend("Theirs.", wire=wire)
    bank.meanwhile.append(lambda: bank.worker(store, theirs, save).send("They?"))
    backend = ScriptedBackend(pay(1), "Mine.", wire=wire)
    conversation = kept(backend, store, chat={"tools": bank.tools}, save=save, concurrent_turns=True)
    with pytest.raises(StateConflictError):
        conversation.send("Pay.")

    assert bank.paid == [1]
    assert said(blob_in(store)) == ["Pay.", "", "They?", "Theirs."]
    assert check_history(wire, state_messages(blob_in(store))) == []
