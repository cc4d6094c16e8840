"""Compaction inside a turn and outside of it: whole turns, never nothing, and never at the turn's expense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from goaitools_py import (
    NO_COMPACTION,
    Compacted,
    CompactionError,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    TokenLimit,
    all_of,
    any_of,
    event,
    first_of,
)
from goaitools_py.base.values import replace
from goaitools_py.compaction import CompactionRequest, TurnView
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.turn import shrink

from ._reading import roles, users


def ALWAYS(request: CompactionRequest) -> bool:
    """After every turn, and not before its request."""
    return not request.pending_count


def never(request: CompactionRequest) -> bool:
    return False


def turns(chat: Any, count: int, **fields: Any) -> Any:
    """The result of so many turns of a note each."""
    return chat.run_turns(None, [f"Note {number}" for number in range(count)], **fields)


# --------------------------------------------------------------------------------- triggers and strategies


@pytest.mark.parametrize(
    ("trigger", "fires"),
    [
        (MessageLimit(5), True),
        (MessageLimit(6), False),
        (TokenLimit(45), True),
        (TokenLimit(50_000), False),
        (any_of(MessageLimit(100), TokenLimit(45)), True),
        (any_of(MessageLimit(100), TokenLimit(50_000)), False),
        (all_of(MessageLimit(5), TokenLimit(50_000)), False),
        (all_of(MessageLimit(5), TokenLimit(5)), True),
        (lambda request: request.turn_count == 3, True),
        (lambda request: request.turn_count == 4, False),
    ],
)
def test_a_trigger_says_when(face: Any, trigger: Any, fires: bool) -> None:
    """Three turns are six messages; a trigger that fires leaves one turn, another leaves all."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 3))
    before = turns(chat, 2).state

    result = chat.chat_with_state(before, user="Note 2", compactor=Compactor(trigger, KeepRecentTurns(1)))

    assert users(result.state) == (["Note 2"] if fires else ["Note 0", "Note 1", "Note 2"])
    assert (result.compaction is not None) == fires


@pytest.mark.parametrize(
    ("strategy", "kept"),
    [
        (KeepRecentTurns(2), ["Note 2", "Note 3"]),
        (DropOldest(target_messages=5), ["Note 2", "Note 3"]),
        (DropOldest(target_messages=1), ["Note 3"]),
        (DropOldest(target_messages=1, min_recent_turns=3), ["Note 1", "Note 2", "Note 3"]),
        (DropOldest(target_tokens=1), ["Note 3"]),
        (lambda request: (request.turns[0], request.turns[-1]), ["Note 0", "Note 3"]),
    ],
)
def test_a_strategy_says_what_stays(face: Any, strategy: Any, kept: list[str]) -> None:
    """Whole turns stay or go; the report counts what went, the state remembers that it was cut."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 5))
    before = turns(chat, 3).state

    result = chat.chat_with_state(before, user="Note 3", compactor=Compactor(ALWAYS, strategy))

    report = result.compaction
    assert users(result.state) == kept
    assert (report.outcome, report.removed_turns) == ("compacted", 4 - len(kept))
    assert (report.messages_before, report.messages_after) == (8, 2 * len(kept))
    assert report.bytes_after < report.bytes_before
    info = inspect_state(result.state)
    assert (info.turns, info.turns_processed, info.messages) == (len(kept), 4, 2 * len(kept))
    assert info.cuts[-1][2:] == (4 - len(kept), 8 - 2 * len(kept))
    assert chat.chat_with_state(result.state, user="Note 4").status == "complete"


def test_a_tool_exchange_goes_as_a_whole(face: Any, sim: Any, scores: Any) -> None:
    """After a cut no call is without its result, and no result without its call."""
    chat = face.on(sim, tools=[scores.get_score], compactor=Compactor(MessageLimit(5), KeepRecentTurns(1)))
    first = chat.chat(user="Get the score of Red.")

    second = chat.chat_with_state(first.state, user="Get the score of Blue.")
    third = chat.chat_with_state(second.state, user="Thanks.")

    assert roles(second.state) == ["user", "assistant", "tool", "assistant"]
    assert third.status == "complete"
    assert sim.problems == []


def test_the_first_compactor_whose_trigger_fires_runs(face: Any) -> None:
    """`first_of` asks in order and runs one only."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 3))
    chosen = first_of(
        Compactor(never, KeepRecentTurns(1)),
        Compactor(ALWAYS, KeepRecentTurns(2)),
        Compactor(ALWAYS, KeepRecentTurns(1)),
    )

    result = chat.chat_with_state(turns(chat, 2).state, user="Note 2", compactor=chosen)

    assert users(result.state) == ["Note 1", "Note 2"]


def test_lost_history_shows_in_the_answers(face: Any, sim: Any, run: Any) -> None:
    """The simulated model answers from the request, so it forgets what was cut, and only that."""
    chat = face.on(sim, compactor=Compactor(MessageLimit(4), KeepRecentTurns(2)))
    state = run(chat, user="My name is Ada.").state
    state = run(chat, state, user="My colour is green.").state
    state = run(chat, state, user="My pet is a cat.").state

    result = run(chat, state, user="What is my name and what is my pet?")

    assert "I do not know your name." in result.text
    assert "Your pet is a cat." in result.text
    assert sim.problems == []


def test_a_listener_is_told(face: Any, sim: Any) -> None:
    """A compaction is an event with the same report as the result's."""
    chat = face.on(sim, compactor=Compactor(ALWAYS, KeepRecentTurns(1)))
    before = chat.chat(user="Note 0").state

    events = list(chat.start(before, user="Note 1"))

    (told,) = [e for e in events if isinstance(e, Compacted)]
    assert told.report == events[-1].result.compaction


def test_totals_survive_a_cut(face: Any) -> None:
    """What a conversation has consumed does not shrink with its history."""
    chat = face.chat(
        ScriptedBackend(*["Noted."] * 4), compactor=Compactor(MessageLimit(2), KeepRecentTurns(1))
    )

    result = turns(chat, 4)

    assert result.total_usage.requests == 4
    assert inspect_state(result.state).total_usage.requests == 4
    assert len(inspect_state(result.state).cuts) == 3


def test_a_context_outlives_its_turn(face: Any) -> None:
    """The turn that carried the context is gone; the next one that stays has it, once, in every request."""
    backend = ScriptedBackend(*["Noted."] * 3)
    chat = face.chat(
        backend, context="At the station.", compactor=Compactor(MessageLimit(2), KeepRecentTurns(1))
    )

    turns(chat, 3)

    assert [str(body["messages"]).count("At the station.") for body in backend.bodies()] == [1, 1, 1]
    assert [len(body["messages"]) for body in backend.bodies()] == [1, 3, 4]


# ------------------------------------------------------------------------------------ compactors that fail


def raising(request: CompactionRequest) -> Sequence[TurnView]:
    raise RuntimeError("a secret")


def nothing(request: CompactionRequest) -> Sequence[TurnView]:
    return ()


def backwards(request: CompactionRequest) -> Sequence[TurnView]:
    return request.turns[::-1]


def twice(request: CompactionRequest) -> Sequence[TurnView]:
    return (request.turns[-1], request.turns[-1])


def foreign(request: CompactionRequest) -> Sequence[TurnView]:
    return (replace(request.turns[-1], position=0),)


def no_turns(request: CompactionRequest) -> Any:
    return 7


FAILING = [raising, nothing, backwards, twice, foreign, no_turns]


@pytest.mark.parametrize("strategy", FAILING)
def test_a_failing_compactor_never_fails_the_turn(face: Any, run: Any, strategy: Any) -> None:
    """The reply is there, the history as it was, and a warning names the reason without content."""
    chat = face.chat(ScriptedBackend("Noted.", "Noted.", "Hello."))
    before = chat.chat(user="Note 0").state

    result = run(chat, before, user="Note 1", compactor=Compactor(ALWAYS, strategy))

    assert result.text == "Noted."
    assert users(result.state) == ["Note 0", "Note 1"]
    assert [w.code for w in result.warnings] == ["compaction_failed"]
    assert "secret" not in result.warnings[0].message
    assert result.compaction.outcome == ("failed" if strategy in (raising, no_turns) else "invalid")
    assert result.compaction.by == strategy.__name__
    assert run(chat, result.state, user="Hello.").text == "Hello."


def test_a_failing_trigger_never_fails_the_turn(face: Any) -> None:
    """A trigger that raises is a warning too, and it is the one that is named, also inside of `first_of`."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 2))
    compactor = Compactor(raising, KeepRecentTurns(1))

    for one in (compactor, first_of(Compactor(lambda _: False, KeepRecentTurns(1)), compactor)):
        result = chat.chat(user="Note 0", compactor=one)

        assert [w.code for w in result.warnings] == ["compaction_failed"]
        assert "raising raised" in result.warnings[0].message
        assert (result.compaction.outcome, result.compaction.by) == ("failed", "raising")


def test_compact_state_does_not_ask_the_trigger(face: Any) -> None:
    """Outside a turn the trigger is not asked, so it cannot fail."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 2))

    report = chat.compact_state(turns(chat, 2).state, Compactor(raising, KeepRecentTurns(1)))

    assert report.outcome == "compacted"


def test_a_cut_that_the_provider_would_refuse_is_undone(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewritten history is always checked; what would not be taken is as if it had not been."""
    monkeypatch.setattr(shrink, "check_rewritten", lambda ledger: ["message 0 is an orphan"])
    chat = face.chat(ScriptedBackend(*["Noted."] * 2))
    before = turns(chat, 1).state

    result = chat.chat_with_state(before, user="Note 1", compactor=Compactor(ALWAYS, KeepRecentTurns(1)))

    assert users(result.state) == ["Note 0", "Note 1"]
    assert result.compaction.outcome == "invalid"
    assert [w.code for w in result.warnings] == ["compaction_failed"]
    assert inspect_state(result.state).cuts == ()


def test_a_strategy_that_keeps_everything_is_no_cut(face: Any) -> None:
    """Nothing to report, nothing to warn of."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 2), compactor=Compactor(ALWAYS, KeepRecentTurns(5)))

    result = turns(chat, 2)

    assert result.compaction is None
    assert result.warnings == ()
    assert inspect_state(result.state).cuts == ()


def test_a_compactor_runs_when_the_provider_refuses_the_history(face: Any, sim: Any, run: Any) -> None:
    """Whatever its trigger says: the caller's own strategy comes before the emergency cut."""
    chat = face.on(sim)
    before = turns(chat, 4).state
    sim.push(Fault.context_length())

    result = run(chat, before, user="Note 4", compactor=Compactor(never, KeepRecentTurns(3)))

    assert users(result.state) == ["Note 1", "Note 2", "Note 3", "Note 4"]
    assert result.warnings == ()
    assert result.compaction.by == "KeepRecentTurns"
    assert len(sim.requests) == 6
    assert sim.problems == []


def test_a_failing_compactor_leaves_the_emergency_cut(face: Any, sim: Any) -> None:
    """If the caller's strategy fails when the provider refuses, the turn still finds a way."""
    chat = face.on(sim)
    before = turns(chat, 4).state
    sim.push(Fault.context_length())

    result = chat.chat_with_state(before, user="Note 4", compactor=Compactor(never, raising))

    assert [w.code for w in result.warnings] == ["compaction_failed", "emergency_cut"]
    assert result.status == "complete"


# ------------------------------------------------------------------------------------ outside of a turn


def test_compact_state_cuts_now(face: Any) -> None:
    """Whatever the trigger says, without a model call; the given blob is untouched."""
    backend = ScriptedBackend(*["Noted."] * 4)
    chat = face.chat(backend)
    before = turns(chat, 3).state
    copy = bytes(bytearray(before))

    report = chat.compact_state(before, Compactor(never, KeepRecentTurns(1)))

    assert (report.outcome, report.removed_turns, report.by) == ("compacted", 2, "KeepRecentTurns")
    assert users(report.state) == ["Note 2"]
    assert before == copy
    assert len(backend.requests) == 3
    assert inspect_state(report.state).total_usage == inspect_state(before).total_usage
    assert inspect_state(report.state).revision == inspect_state(before).revision + 1
    assert chat.chat_with_state(report.state, user="Note 3").status == "complete"


def test_a_dry_run_changes_nothing(face: Any) -> None:
    """The report says what would go; its state is the given one."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 3), compactor=Compactor(ALWAYS, KeepRecentTurns(1)))
    before = turns(chat, 3, compactor=None).state

    report = chat.compact_state(before, dry_run=True)

    assert (report.removed_turns, report.messages_before, report.messages_after) == (2, 6, 2)
    assert report.state == before


def test_nothing_to_compact_is_said(face: Any) -> None:
    """A strategy that keeps everything reports no change and gives the blob back."""
    chat = face.chat(ScriptedBackend("Noted."))
    before = turns(chat, 1).state

    report = chat.compact_state(before, Compactor(ALWAYS, KeepRecentTurns(9)))

    assert (report.outcome, report.removed_turns) == ("no_change", 0)
    assert report.state == before
    assert chat.compact_state(before, NO_COMPACTION).outcome == "no_change"


@pytest.mark.parametrize("strategy", FAILING)
def test_compact_state_raises_when_its_compactor_fails(face: Any, strategy: Any) -> None:
    """Outside of a turn there is no reply to protect: the failure is an error, without content."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 2))
    before = turns(chat, 2).state

    with pytest.raises(CompactionError) as caught:
        chat.compact_state(before, Compactor(ALWAYS, strategy))

    assert "secret" not in str(caught.value)


def test_compact_state_needs_a_compactor(face: Any) -> None:
    """Without one anywhere, the text says where to give it."""
    chat = face.chat(ScriptedBackend("Noted."))
    before = turns(chat, 1).state

    with pytest.raises(ValueError, match="compactor="):
        chat.compact_state(before)


def test_what_waits_is_never_cut(face: Any, sim: Any) -> None:
    """Appended messages and open exchanges are no closed turns: a compaction leaves them alone."""
    chat = face.on(sim)
    before = turns(chat, 3).state
    waiting = chat.append_to_state(before, event("Rain begins."))

    report = chat.compact_state(waiting, Compactor(ALWAYS, KeepRecentTurns(1)))

    assert inspect_state(report.state).waiting_messages == 1
    assert "Noted: Rain begins.." in chat.chat_with_state(report.state).text
    assert sim.problems == []


def test_a_cut_in_the_middle_of_a_turn_leaves_its_exchange(face: Any, sim: Any, scores: Any) -> None:
    """A history that turns out too long after a tool ran loses closed turns only."""
    chat = face.on(sim, tools=[scores.get_score])
    before = turns(chat, 4).state
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.context_length())

    result = chat.chat_with_state(before, user="The score?")

    assert result.tool_log[0].result == "Red has 7 points"
    assert scores.runs == ["Red"]
    assert [turn.messages[0].text for turn in read_history(result.state).turns] == [
        "Note 2",
        "Note 3",
        "The score?",
    ]
    assert sim.problems == []


def test_what_a_strategy_sees(face: Any) -> None:
    """Turns with their messages, counts and sizes, parsed when asked for."""
    seen: list[CompactionRequest] = []

    def look(request: CompactionRequest) -> Sequence[TurnView]:
        seen.append(request)
        return request.turns

    chat = face.chat(ScriptedBackend(Calls([("echo", {})]), "Hello."), compactor=Compactor(ALWAYS, look))

    chat.chat(user="Hi.")

    (request,) = seen
    (turn,) = request.turns
    assert (request.message_count, request.turn_count) == (4, 1)
    assert [m.role for m in turn.messages] == ["user", "assistant", "tool", "assistant"]
    assert (turn.message_count, turn.position) == (4, 0)
    assert turn.entry_bytes == sum(len(entry) for entry in turn.entries) > 0
    assert request.usage.requests == 1
