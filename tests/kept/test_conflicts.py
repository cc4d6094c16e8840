"""Somebody else saves while a turn runs: nothing is lost, nothing is doubled, no model is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    Approve,
    CompactionError,
    Compactor,
    StateConflictError,
    Summarize,
    TextDelta,
    TurnError,
    TurnStarted,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction import AskModel, CompactionRequest
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, other, said


def check(blob: bytes) -> None:
    assert check_history("openai", state_messages(blob)) == []


def test_an_event_that_comes_meanwhile_is_kept(kept: Threads, store: FaultyStore, save: str) -> None:
    """It is rebased behind the turn, and the result's state has it too."""

    def answer(_: Any) -> str:
        other(store).append(event("Ada won."))
        return "Hello."

    conversation = kept(ScriptedBackend("Hi.", answer, "Well done."), store, save=save)
    conversation.send("Hi?")
    result = conversation.send("Hello?")

    assert said(result.state) == ["Hi?", "Hi.", "Hello?", "Hello.", "Ada won."]
    assert blob_in(store) == result.state
    assert said(conversation.send("And now?").state)[-3:] == ["Ada won.", "And now?", "Well done."]
    check(blob_in(store))


def test_events_between_checkpoints_are_kept(kept: Threads, store: FaultyStore) -> None:
    """One after each save: every later checkpoint has all that came before it, once."""

    @tool
    def roll() -> int:
        """Roll a die."""
        other(store).append(event(f"Roll {len(rolls)}."))
        rolls.append(4)
        return 4

    rolls: list[int] = []
    one_roll = Calls([("roll", {})])  # two in one reply might run at the same time
    backend = ScriptedBackend(one_roll, one_roll, one_roll, "Done.")
    conversation = kept(backend, store, chat={"tools": [roll]}, save="checkpoint")
    result = conversation.send("Roll.")

    assert said(result.state)[-4:] == ["Done.", "Roll 0.", "Roll 1.", "Roll 2."]
    assert blob_in(store) == result.state
    assert len(rolls) == 3
    assert result.total_usage == inspect_state(result.state).total_usage


def test_a_concurrent_turn_is_a_conflict(kept: Threads, store: FaultyStore) -> None:
    """Theirs stays. Mine is in the error, reply and all, and was paid for once."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("They?")
        return "Mine."

    backend = ScriptedBackend("Hi.", answer)
    conversation = kept(backend, store)
    conversation.send("Hi?")
    with pytest.raises(StateConflictError, match="both states have new turns") as caught:
        conversation.send("I?")

    assert said(blob_in(store))[-2:] == ["They?", "Theirs."]
    assert said(caught.value.state) == ["Hi?", "Hi.", "I?", "Mine."]
    assert caught.value.text == "Mine."
    assert len(backend.requests) == 2


def test_a_concurrent_turn_is_put_behind_if_asked(kept: Threads, store: FaultyStore) -> None:
    """`concurrent_turns=True`: both turns are there, mine behind theirs."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("They?")
        return "Mine."

    conversation = kept(ScriptedBackend("Hi.", answer), store, concurrent_turns=True)
    conversation.send("Hi?")
    result = conversation.send("I?")

    assert said(result.state) == ["Hi?", "Hi.", "They?", "Theirs.", "I?", "Mine."]
    assert blob_in(store) == result.state
    check(result.state)


def test_a_conflict_can_be_committed_behind(kept: Threads, store: FaultyStore) -> None:
    """What a conflict carries is saved by whoever asks for it."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("They?")
        return "Mine."

    with pytest.raises(StateConflictError) as caught:
        kept(ScriptedBackend(answer), store).send("I?")
    stored = kept(ScriptedBackend(), store).commit(caught.value)

    assert said(stored) == ["They?", "Theirs.", "I?", "Mine."]
    assert blob_in(store) == stored


@pytest.mark.parametrize("number", [1, 2])
def test_an_edit_is_not_committed_behind(kept: Threads, store: FaultyStore, number: int) -> None:
    """It would stand behind the message that it replaces. Sent again, it replaces what came meanwhile too."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("They?")
        return "Mine."

    backend = ScriptedBackend("1", "2", answer, "Anew.")
    conversation = kept(backend, store)
    conversation.send("a")
    conversation.send("b")
    with pytest.raises(StateConflictError) as caught:
        conversation.send("I?", edit=number, turn_id="m-1")
    with pytest.raises(StateConflictError, match="replaces an earlier one"):
        conversation.commit(caught.value)
    assert said(blob_in(store)) == ["a", "1", "b", "2", "They?", "Theirs."]

    conversation.send("I?", edit=number, turn_id="m-1")
    assert conversation.inner._ports.unsaved == {}
    assert said(blob_in(store)) == [*["a", "1"][: 2 * number - 2], "I?", "Anew."]
    check(blob_in(store))


@pytest.mark.parametrize("leaves", ["in its own reply", "in the repeated reply"])
def test_a_message_appended_to_a_turn_that_was_done_elsewhere_is_kept(
    kept: Threads, store: FaultyStore, save: str, leaves: str
) -> None:
    """The reader leaves. Another worker has finished the same turn, and the message waits behind it."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("Pay.", turn_id="m-1")
        return "Mine, and many more words than theirs."

    turn = kept(ScriptedBackend(answer), store, save=save).start("Pay.", turn_id="m-1")
    has_appended = False
    for event_ in turn:
        if not isinstance(event_, TextDelta):
            continue
        if not has_appended:
            turn.append(event("The bell rings."))
            has_appended = True
        if leaves == "in its own reply" or "Theirs" in event_.text:
            break
    turn.cancel()

    assert said(blob_in(store)) == ["Pay.", "Theirs.", "The bell rings."]
    assert turn.state == blob_in(store)


def test_a_message_that_a_checkpoint_has_stored_is_not_appended_again(
    kept: Threads, store: FaultyStore
) -> None:
    """Another worker goes on from the checkpoint and finishes the turn. The message is there once."""
    bell = event("The bell rings.")

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("Pay.", turn_id="m-1")
        return "Mine."

    backend = ScriptedBackend(Calls([("look", {})]), answer)

    @tool
    def look() -> str:
        """Look."""
        turn.append(bell)
        return "dark"

    turn = kept(backend, store, save="checkpoint", chat={"tools": [look]}).start("Pay.", turn_id="m-1")
    result = turn.result()

    assert (result.text, result.duplicate) == ("Theirs.", True)
    assert said(blob_in(store)).count("The bell rings.") == 1


def test_the_same_turn_elsewhere_is_one_turn(kept: Threads, store: FaultyStore, save: str) -> None:
    """Both ran it, without a lease: one reply is stored, and both callers get that one."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("Pay.", turn_id="m-1")
        return "Mine."

    for concurrent in (False, True):
        store.inner.delete("ada")
        conversation = kept(ScriptedBackend(answer), store, save=save, concurrent_turns=concurrent)
        result = conversation.send("Pay.", turn_id="m-1")

        assert (result.text, result.duplicate) == ("Theirs.", True)
        assert said(blob_in(store)) == ["Pay.", "Theirs."]


def test_the_same_turn_that_failed_elsewhere_is_said_once(kept: Threads, store: FaultyStore) -> None:
    """Theirs failed and left the message waiting; mine answers it, and it does not come a second time."""

    def answer(_: Any) -> str:
        with pytest.raises(TurnError):
            other(store, BackendError("down")).send("Pay.", turn_id="m-1")
        return "Paid."

    conversation = kept(ScriptedBackend("Hi.", answer, "Bye."), store)
    conversation.send("Hi?")
    result = conversation.send("Pay.", turn_id="m-1")

    assert said(result.state) == ["Hi?", "Hi.", "Pay.", "Paid."]
    assert conversation.send("Pay.", turn_id="m-1").duplicate
    assert said(conversation.send("Bye?").state)[-2:] == ["Bye?", "Bye."]


def test_the_same_turn_that_failed_on_both_sides_is_said_once(kept: Threads, store: FaultyStore) -> None:
    """The message waits once, and its redelivery answers it once."""

    def fail(_: Any) -> Any:
        with pytest.raises(TurnError):
            other(store, BackendError("down")).send("Pay.", turn_id="m-1")
        return BackendError("down")

    conversation = kept(ScriptedBackend(fail, "Paid."), store)
    with pytest.raises(TurnError) as caught:
        conversation.send("Pay.", turn_id="m-1")

    assert caught.value.unsaved is None
    assert said(blob_in(store)) == ["Pay."]
    assert said(conversation.send("Pay.", turn_id="m-1").state) == ["Pay.", "Paid."]


def test_a_turn_that_failed_here_and_ended_there_has_ended(kept: Threads, store: FaultyStore) -> None:
    """The reply that somebody else got is the result."""

    def fail(_: Any) -> Any:
        other(store, "Paid.").send("Pay.", turn_id="m-1")
        return BackendError("down")

    result = kept(ScriptedBackend(fail), store).send("Pay.", turn_id="m-1")

    assert (result.text, result.duplicate) == ("Paid.", True)
    assert said(blob_in(store)) == ["Pay.", "Paid."]


def test_a_deleted_conversation_is_not_brought_back(kept: Threads, leasing: LeasingStore) -> None:
    """Somebody reset it while a turn ran: that turn is a conflict, and in the error."""

    def answer(_: Any) -> str:
        leasing.inner.delete("ada")
        return "Mine."

    conversation = kept(ScriptedBackend("Hi.", answer), leasing)
    conversation.send("Hi?")
    with pytest.raises(StateConflictError, match="deleted") as caught:
        conversation.send("I?")

    assert blob_in(leasing) == b""
    assert caught.value.text == "Mine."


@pytest.mark.parametrize("moves", [5, 6])
def test_five_times_is_enough(kept: Threads, store: FaultyStore, moves: int) -> None:
    """A turn is rebased at most five times; the sixth conflict is one."""
    conversation = kept(ScriptedBackend("Hello."), store)
    for number in range(moves):
        store.faults.append(lambda number=number: other(store).append(event(f"Event {number}.")))

    if moves == 5:
        assert len(said(conversation.send("Hello?").state)) == 2 + moves
    else:
        with pytest.raises(StateConflictError) as caught:
            conversation.send("Hello?")
        assert caught.value.text == "Hello."


def test_an_append_gets_through(kept: Threads, store: FaultyStore) -> None:
    """It fits onto everything, however often somebody is faster."""
    for number in range(20):
        store.faults.append(lambda number=number: other(store, "Yes.").send(f"Turn {number}?"))
    kept(ScriptedBackend(), store).append(event("Mine."))

    assert said(blob_in(store))[-1] == "Mine."
    assert len(said(blob_in(store))) == 41


def test_a_rewind_keeps_what_is_appended_meanwhile(kept: Threads, store: FaultyStore) -> None:
    """An event that came in between stays; a turn that did is a conflict."""
    conversation = kept(ScriptedBackend("1", "2"), store)
    conversation.send("a")
    conversation.send("b")
    store.faults.append(lambda: other(store).append(event("E.")))
    conversation.rewind()
    assert said(blob_in(store)) == ["a", "1", "E."]

    store.faults.append(lambda: other(store, "3").send("c"))
    with pytest.raises(StateConflictError):
        conversation.rewind()
    assert said(blob_in(store)) == ["a", "1", "E.", "c", "3"]


def test_a_message_that_is_refused_is_taken_back(kept: Threads, store: FaultyStore) -> None:
    """With checkpoints it had been saved before the request: it goes, and what others said stays."""

    def refuse(_: Any) -> Any:
        other(store).append(event("E.", id="e-1"))
        return BackendError("no", status=400, body=b"{}")

    for first in (True, False):
        store.inner.delete("ada")
        conversation = kept(ScriptedBackend(*([] if first else ["1"]), refuse, "2"), store, save="checkpoint")
        if not first:
            conversation.send("a")
        with pytest.raises(TurnError) as caught:
            conversation.send("Poison.", turn_id="m-1")

        assert [message.text for message in caught.value.pending_input] == ["Poison."]
        assert said(blob_in(store)) == [*([] if first else ["a", "1"]), "E."]
        assert caught.value.state == blob_in(store)
        assert said(conversation.send("b").state)[-3:] == ["E.", "b", "2"]


def test_a_refused_message_leaves_nothing_behind(kept: Threads, store: FaultyStore, save: str) -> None:
    """The next turn is as if it had never been said; revisions only go up."""
    refuse = BackendError("no", status=400, body=b"{}")
    conversation = kept(ScriptedBackend("1", refuse, "2"), store, save=save)
    conversation.send("a")
    before = inspect_state(blob_in(store)).revision
    with pytest.raises(TurnError):
        conversation.send("Poison.")

    assert said(blob_in(store)) == ["a", "1"]
    assert inspect_state(blob_in(store)).revision >= before
    assert said(conversation.send("b").state) == ["a", "1", "b", "2"]


def test_a_turn_begins_anew_if_it_was_overtaken(kept: Threads, store: FaultyStore) -> None:
    """With checkpoints, a turn whose first save comes too late knows what was said meanwhile."""
    backend = ScriptedBackend("Mine.")
    store.faults.append(lambda: other(store, "Theirs.").send("They?"))
    result = kept(backend, store, save="checkpoint").send("I?")

    assert said(result.state) == ["They?", "Theirs.", "I?", "Mine."]
    assert len(backend.bodies()[0]["messages"]) == 3


def test_a_tool_that_has_run_is_not_begun_anew(kept: Threads, store: FaultyStore) -> None:
    """Something is appended between an approved tool's result and the next request: the resume goes on."""

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    def after_the_result(_: bytes) -> None:
        if paid and not goals:
            goals.append(1)
            other(store).append(event("Goal!"))

    paid: list[int] = []
    goals: list[int] = []
    conversation = kept(
        ScriptedBackend(Calls([("pay", {})]), "Done."), store, chat={"tools": [pay]}, save="checkpoint"
    )
    waiting = conversation.send("Pay.")
    answers = {waiting.pending[0].id: Approve()}
    result = conversation.resume(answers, on_checkpoint=after_the_result)

    assert (result.text, paid, goals) == ("Done.", [1], [1])
    assert said(result.state) == ["Pay.", "", "Done.", "Goal!"]
    check(result.state)


def test_a_compaction_before_the_request_begins_anew_too(kept: Threads, store: FaultyStore) -> None:
    """Its checkpoint is the turn's first save: whoever was faster is heard."""
    conversation = kept(ScriptedBackend(*["Noted. " * 30] * 3, "Short.", "Mine."), store, save="checkpoint")
    for number in range(3):
        conversation.send(f"Note {number}")
    store.faults.append(lambda: other(store, "Theirs.").send("They?"))
    compactor = Compactor(lambda request: request.pending_count > 0, Summarize(keep_turns=1))
    result = conversation.send("I?", compactor=compactor)

    assert said(result.state)[-4:] == ["They?", "Theirs.", "I?", "Mine."]
    assert blob_in(store) == result.state


def test_a_cut_that_comes_too_late_is_no_lost_turn(kept: Threads, store: FaultyStore) -> None:
    """A checkpoint had the whole turn; only the cut behind it meets somebody else's turn, and is left out."""

    def summary(_: Any) -> str:
        other(store, "Theirs.").send("They?")
        return "Short."

    conversation = kept(ScriptedBackend(*["Noted. " * 30] * 3, "Mine.", summary), store, save="checkpoint")
    for number in range(3):
        conversation.send(f"Note {number}")
    compactor = Compactor(lambda request: not request.pending_count, Summarize(keep_turns=1))
    result = conversation.send("I?", compactor=compactor)

    assert result.text == "Mine."
    assert said(result.state)[-4:] == ["I?", "Mine.", "They?", "Theirs."]
    assert blob_in(store) == result.state
    assert result.compaction.outcome == "failed"
    assert [warning.code for warning in result.warnings] == ["compaction_failed"]


def test_a_compaction_beside_a_concurrent_turn_is_a_conflict(kept: Threads, store: FaultyStore) -> None:
    """Theirs stays. What was compacted, and paid for, is in the error; to compact again is the caller's."""

    def answer(_: Any) -> str:
        other(store, "Theirs.").send("They?")
        return "Notes."

    conversation = kept(ScriptedBackend("a " * 99, "b", answer, "Notes."), store)
    conversation.send("1")
    before = conversation.send("2").state
    compactor = Compactor(lambda _: True, Summarize(keep_turns=1))
    with pytest.raises(StateConflictError, match=r"err\.state") as caught:
        conversation.compact(compactor)
    err = caught.value

    assert said(blob_in(store))[-2:] == ["They?", "Theirs."]
    assert (len(read_history(err.state).turns), err.base) == (2, before)
    assert inspect_state(err.state).total_usage.requests == 3
    assert conversation.compact(compactor).outcome == "compacted"


def test_a_compaction_that_fails_is_paid_for(kept: Threads, store: FaultyStore) -> None:
    """What its questions consumed is stored, and nothing else."""

    def fails(request: CompactionRequest) -> Any:
        yield AskModel(turns=request.turns[:1], instruction="Say it.")
        raise RuntimeError

    conversation = kept(ScriptedBackend("a", "b", "It."), store)
    conversation.send("1")
    conversation.send("2")
    with pytest.raises(CompactionError):
        conversation.compact(Compactor(lambda _: True, fails))

    assert said(blob_in(store)) == ["1", "a", "2", "b"]
    assert inspect_state(blob_in(store)).total_usage.requests == 3


def test_nothing_stored_is_nothing_to_compact(kept: Threads, store: FaultyStore) -> None:
    """And nothing is stored then."""
    report = kept(ScriptedBackend(), store).compact(Compactor(lambda _: True, Summarize()))

    assert (report.outcome, blob_in(store), store.saves) == ("no_change", b"", [])


# ------------------------------------------------------------------------ what is said to the turn


def test_what_is_said_to_a_turn_that_begins_anew_is_kept(kept: Threads, store: FaultyStore) -> None:
    """Somebody saved before its first call: it begins on that, with all that was said to it by then."""
    backend = ScriptedBackend("Hi.", "A door.")
    conversation = kept(backend, store, save="checkpoint")
    conversation.send("Hi?")
    turn = conversation.start("What now?")

    for found in turn:
        if isinstance(found, TurnStarted):
            other(store).append(event("Ada won."))
            turn.append(event("A door opens."))
            break
    result = turn.result()

    assert said(result.state)[2:] == ["Ada won.", "What now?", "A door opens.", "A door."]
    assert blob_in(store) == result.state
    check(blob_in(store))


def test_what_is_said_while_a_failure_is_saved_is_refused(kept: Threads, store: FaultyStore) -> None:
    """It would be in no state: whoever says it is told."""
    down = BackendError("down", kind="unavailable")
    conversation = kept(ScriptedBackend(down), store)
    turn = conversation.start("Hello?")
    refused: list[str] = []

    def late() -> None:
        with pytest.raises(RuntimeError, match="the turn is over") as caught:
            turn.append(event("Too late."))
        refused.append(str(caught.value))

    store.faults.append(late)
    with pytest.raises(TurnError):
        turn.result()

    assert len(refused) == 1
    assert said(blob_in(store)) == ["Hello?"]


def test_a_turn_that_was_taken_back_beside_an_event_can_be_had_again(
    kept: Threads, store: FaultyStore
) -> None:
    """An unfinished turn is rewound while somebody appends: its id may be used again, with its message."""
    with pytest.raises(TurnError):
        kept(ScriptedBackend(Calls([("no", {})]), BackendError("down")), store).send("Pay.", turn_id="m-1")
    store.faults = [lambda: other(store).append(event("E."))]
    kept(ScriptedBackend(), store).rewind()
    assert said(blob_in(store)) == ["E."]

    result = kept(ScriptedBackend("Paid."), store).send("Pay.", turn_id="m-1")

    assert said(result.state) == ["E.", "Pay.", "Paid."]


@pytest.mark.parametrize("restarts", [0, 1, 3])
@pytest.mark.parametrize("by", ["save", "load"])
def test_a_turn_that_begins_anew_has_the_time_that_is_left(
    kept: Threads, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, restarts: int, by: str
) -> None:
    """Its `timeout` bounds the whole turn: the loads and the beginnings that were overtaken count."""
    clock = _later_clock(monkeypatch)
    load = store.load

    def slow_load(key: str) -> Any:
        clock.append(20.0 if by == "load" else 0.0)
        return load(key)

    def overtaken() -> None:
        clock.append(20.0 if by == "save" else 0.0)
        other(store, "Theirs.").send("They?")

    def answer(request: Any) -> str:
        asked.append((request.timeout, sum(clock)))
        return "Mine."

    asked: list[tuple[Any, float]] = []
    conversation = kept(ScriptedBackend(answer), store, save="checkpoint")
    monkeypatch.setattr(store, "load", slow_load)
    store.faults += [overtaken] * restarts

    conversation.send("I?", timeout=200.0)

    ((left, spent),) = asked
    assert spent >= 20.0 * (restarts if by == "save" else restarts + 1)
    assert left == pytest.approx(200.0 - spent, abs=5.0)


def _later_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of both edges, later by the sum of what a test adds to the list."""
    import time as real

    from goaitools_py.turn.edges import async_edge, sync_edge

    ahead: list[float] = []

    class Later:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def monotonic(self) -> float:
            return real.monotonic() + sum(ahead)

    for edge in (sync_edge, async_edge):
        monkeypatch.setattr(edge, "time", Later())
    return ahead
