"""`compact(if_due=True)`: asks the trigger, and no turn waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import CompactionError, Compactor, KeepRecentTurns, MessageLimit, Summarize, event
from goaitools_py.backends import BackendError
from goaitools_py.compaction import CompactionReport
from goaitools_py.states import inspect_state
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.events import CheckpointReady

from .conftest import FaultyStore, LeasingStore, PartedStore, blob_in, other, said

WIRES = ("openai", "openai-responses", "anthropic")
SUMMING = Compactor(MessageLimit(5), Summarize(keep_turns=1))
STORES = {"plain": FaultyStore, "leases": LeasingStore, "parts": PartedStore}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> Any:
    """Each test that asks for it runs with a store without leases, with leases, and with parts."""
    return STORES[str(request.param)]()


def noted(number: int) -> str:
    """A note that is longer than a summary."""
    return f"Note {number} {'x' * 200}"


def names(told: list[Any]) -> list[str]:
    """The kinds of the events, without the checkpoints of a question to a model."""
    return [type(one).__name__ for one in told if not isinstance(one, CheckpointReady)]


def begun(kept: Any, place: Any, wire: str, *steps: Any, turns: int = 3, **chat: Any) -> tuple[Any, Any]:
    """A conversation with some turns, and its backend, which goes on with `steps`."""
    backend = ScriptedBackend(*["Noted."] * turns, *steps, wire=wire)
    how = {"parts": "store"} if isinstance(place, PartedStore) else {}
    conversation = kept(backend, place, chat=chat, **how)
    for number in range(turns):
        conversation.send(noted(number))
    return conversation, backend


def test_what_is_not_due_costs_nothing(kept: Any, wire: str, place: Any) -> None:
    """No model is asked, nothing is saved, no lease is taken, and nobody is told."""
    told: list[Any] = []
    conversation, backend = begun(kept, place, wire, turns=2)
    before, saves = blob_in(place), len(place.saves)
    if hasattr(place, "lease"):
        place.lease = lambda *_: pytest.fail("a lease was taken")

    report = conversation.compact(SUMMING, if_due=True, on_event=told.append)

    assert (report.outcome, report.reason) == ("no_change", "no compaction is due")
    assert report.state
    assert (len(backend.requests), len(place.saves), blob_in(place)) == (2, saves, before)
    assert told == []
    assert conversation.compact(SUMMING, if_due=True, dry_run=True).outcome == "no_change"


def test_what_is_due_is_done(kept: Any, wire: str, place: Any) -> None:
    """Once: a second call finds nothing. The report comes after the save, with what is stored."""
    told: list[Any] = []
    conversation, backend = begun(kept, place, wire, "They count.")

    report = conversation.compact(SUMMING, if_due=True, on_event=told.append)
    again = conversation.compact(SUMMING, if_due=True)

    assert (report.outcome, report.removed_turns) == ("compacted", 2)
    assert again.reason == "no compaction is due"
    assert len(backend.requests) == 4
    assert "They count." in said(report.state)[0]
    assert names(told) == ["StateSaved", "Compacted"]
    assert [one.said for one in conversation.history().all_messages()][1:] == [noted(2), "Noted."]


@pytest.mark.parametrize("saves", ["turn", "checkpoint"])
def test_a_turn_does_not_wait(kept: Any, wire: str, place: Any, saves: str) -> None:
    """While the model writes the summary, another worker's turn runs to its end; the summary is dropped."""
    seen: list[Any] = []
    told: list[Any] = []

    def summary(request: Any) -> str:
        seen.append(getattr(place, "is_held", lambda key: False)("ada"))
        seen.append(other(place, "Still here.", wire=wire, save=saves).send("Are you there?").text)
        return "They count."

    conversation, _ = begun(kept, place, wire, summary)

    report = conversation.compact(SUMMING, if_due=True, on_event=told.append)

    assert seen == [False, "Still here."]
    assert (report.outcome, report.removed_turns) == ("no_change", 0)
    assert report.reason == "a turn began meanwhile, and the compaction is dropped"
    assert report.usage.output_tokens > 0
    assert names(told) == ["Compacted"]
    assert told[-1].report.outcome == "no_change"
    texts = [one.said for one in conversation.history().all_messages()]
    assert texts[::2] == [noted(0), noted(1), noted(2), "Are you there?"]
    assert texts[-1] == "Still here."


def test_a_turn_that_runs_is_not_disturbed(kept: Any, wire: str, leasing: LeasingStore) -> None:
    """A turn that holds the lease when the summary is ready keeps it, and nothing is saved beside it."""
    leases: list[Any] = []

    def summary(request: Any) -> str:
        leases.append(leasing.inner.lease("ada", 60.0))
        leases[0].__enter__()
        return "They count."

    conversation, _ = begun(kept, leasing, wire, summary)
    before = blob_in(leasing)

    report = conversation.compact(SUMMING, if_due=True)

    assert report.reason == "a turn began meanwhile, and the compaction is dropped"
    assert blob_in(leasing) == before
    leases[0].__exit__(None, None, None)


def test_an_event_that_comes_meanwhile_stays(kept: Any, wire: str, place: Any) -> None:
    """It is no turn, so the summary is not in vain: the event waits behind it."""

    def summary(request: Any) -> str:
        other(place, wire=wire).append(event("It rains."))
        return "They count."

    conversation, _ = begun(kept, place, wire, summary)

    report = conversation.compact(SUMMING, if_due=True)

    assert report.outcome == "compacted"
    texts = [one.said for one in conversation.history().all_messages()]
    assert texts[1:] == [noted(2), "Noted.", "It rains."]


def test_an_erased_conversation_does_not_come_back(kept: Any, wire: str, place: Any) -> None:
    """A summary of it is dropped."""

    def summary(request: Any) -> str:
        place.inner.delete("ada")
        return "They count."

    conversation, _ = begun(kept, place, wire, summary)

    assert conversation.compact(SUMMING, if_due=True).outcome == "no_change"
    assert blob_in(place) == b""


@pytest.mark.parametrize("comes", [False, True], ids=["alone", "with a turn"])
def test_a_summary_that_fails_is_paid_once(kept: Any, wire: str, place: Any, comes: bool) -> None:
    """It raises, the history is whole, and the state remembers that the next question waits."""

    def failing(request: Any) -> Any:
        if comes:
            other(place, "Still here.", wire=wire).send("Are you there?")
        return BackendError("no", status=400)

    conversation, backend = begun(kept, place, wire, failing)

    with pytest.raises(CompactionError) as caught:
        conversation.compact(SUMMING, if_due=True)

    count = 8 if comes else 6
    assert len(conversation.history().all_messages()) == count
    assert inspect_state(caught.value.state).aside_usage == inspect_state(blob_in(place)).aside_usage
    if not comes:
        with pytest.raises(CompactionError, match="waits until the conversation has"):
            conversation.compact(SUMMING, if_due=True)
        assert len(backend.requests) == 4


def test_an_interrupt_changes_nothing(kept: Any, wire: str, place: Any) -> None:
    """Ctrl-C while the model writes: no save, and no lease is left."""

    def interrupted(request: Any) -> Any:
        raise KeyboardInterrupt

    conversation, _ = begun(kept, place, wire, interrupted)
    before = blob_in(place)

    with pytest.raises((KeyboardInterrupt, AssertionError)):
        conversation.compact(SUMMING, if_due=True)

    assert blob_in(place) == before


def test_a_cut_without_a_model(kept: Any, wire: str, place: Any) -> None:
    """The turns themselves may go without a compactor, and their history is cut behind them."""
    conversation, _ = begun(kept, place, wire, turns=4)

    report = conversation.compact(Compactor(MessageLimit(5), KeepRecentTurns(1)), if_due=True)

    assert isinstance(report, CompactionReport)
    assert [one.said for one in conversation.history().all_messages()] == [noted(3), "Noted."]
