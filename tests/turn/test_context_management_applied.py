"""A conversation whose provider clears and compacts by itself: the simulator does what it is asked to.

What stays whole, what is dropped later, and that nothing said is lost on the way.
"""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Compactor, ModelSettings, Summarize, TurnLimit
from goaitools_py.compaction import (
    ProviderCompaction,
    ServerCompaction,
    ServerThinkingClearing,
    ServerToolClearing,
)
from goaitools_py.sim import Reply
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import check_history

from ._reading import HISTORY

NEVER = TurnLimit(10_000)
LONG = "The harbour is grey, and its water is still. " * 40
THINKING = {
    "openai-responses": ModelSettings(reasoning_effort="low"),
    "anthropic": ModelSettings(thinking_budget_tokens=1024),
}
LEAST = {"openai-responses": 1_000, "anthropic": 50_000}
"""From so many tokens on each provider compacts."""
NATIVE = ("openai-responses", "anthropic")


def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: {LONG}"


def looking(sim: Any, run: Any, chat: Any) -> tuple[bytes, list[int]]:
    """Three turns with a tool, its results long; the state, and the input tokens of each turn."""
    state, counts = None, []
    for n in range(3):
        sim.push(Reply.calls(("look", f'{{"place":"{n}"}}'), ids=(f"call_{n}",)), Reply.text("I see."))
        result = run(chat, state, user=f"Look at {n}.")
        state = result.state
        counts.append(result.usage.input_tokens)
    return state or b"", counts


@pytest.mark.parametrize("wire", ["anthropic"])
def test_clearing_leaves_the_state_whole(own: Any, sim: Any, run: Any, wire: str) -> None:
    """The model does not see old results and they are not paid for; every request and the state have them,
    so that one that goes without the compactor finds them again."""
    clear = ProviderCompaction(context_management=[ServerToolClearing(above_tokens=1, keep=1)])
    whole, dear = looking(sim, run, own(tools=[look]))
    asked = len(sim.requests)

    state, cheap = looking(sim, run, own(tools=[look], compactor=Compactor(NEVER, clear)))

    assert state_messages(state) == state_messages(whole)
    assert [sum(LONG in said.text for said in turn.messages) for turn in read_history(state).turns] == [1] * 3
    assert cheap[0] == dear[0]
    assert cheap[2] < dear[2] - 400
    pairs = zip(sim.requests[asked:], sim.requests[asked + 1 :], strict=False)
    for earlier, later in pairs:
        before = earlier.parsed["messages"]
        assert later.parsed["messages"][: len(before)] == before
        assert later.parsed["context_management"] == earlier.parsed["context_management"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_thinking_goes_by_the_provider_and_stays_good(own: Any, sim: Any, run: Any, wire: str) -> None:
    """What the provider leaves out by itself breaks no signature, and the state keeps it."""
    clear = ProviderCompaction(context_management=[ServerThinkingClearing(keep=1)])
    chat = own(settings=THINKING[wire], compactor=Compactor(NEVER, clear))
    state = None
    for n in range(4):
        sim.push(Reply.text("Yes.", thinking=LONG))
        result = run(chat, state, user=f"Note {n}.")
        state = result.state

    assert sim.requests[-1].body.count(b'"type":"thinking"') == 3
    assert result.usage.input_tokens < 900
    assert result.warnings == ()
    assert sim.problems == []


@pytest.mark.parametrize("wire", NATIVE)
def test_a_compaction_inside_a_reply_is_where_the_history_is_cut(
    own: Any, sim: Any, run: Any, wire: str
) -> None:
    """The provider compacts by its own count; once the trigger fires, whole turns before that are dropped
    without a question, what was said in them is still known, and what was thought since stays good."""
    edit = ServerCompaction(above_tokens=LEAST[wire])
    by_itself = ProviderCompaction(keep_turns=1, context_management=[edit])
    chat = own(settings=THINKING[wire], compactor=Compactor(TurnLimit(3), by_itself))
    very_long = LONG * (LEAST[wire] // 400)

    first = chat.run_turns(None, ["My name is Ada.", "My town is Leeds."])
    second = run(chat, first.state, user=very_long)
    third = run(chat, second.state, user="What is my name?")
    asked = len(sim.requests)
    fourth = run(chat, third.state, user="What is my town?")
    bare = own(settings=THINKING[wire])
    fifth = run(bare, fourth.state, user="And my name?")

    assert b'"compaction"' in sim.requests[-1].body
    assert second.compaction is None
    assert len(state_messages(second.state)) > len(state_messages(first.state))
    assert third.usage.input_tokens < second.usage.input_tokens
    report = third.compaction or fourth.compaction
    assert report is not None
    assert (report.by, report.outcome, report.removed_turns) == ("ProviderCompaction", "compacted", 2)
    assert report.usage.requests == 0
    assert len(sim.requests) == asked + 2
    assert ("Ada" in third.text, "Leeds" in fourth.text, "Ada" in fifth.text) == (True, True, True)
    said = [message.text for turn in read_history(fifth.state).turns for message in turn.messages]
    assert (very_long in said, "My town is Leeds." in said) == (True, False)
    assert [warning.code for warning in (*third.warnings, *fourth.warnings, *fifth.warnings)] == []
    assert check_history(wire, state_messages(fifth.state)) == []
    assert sim.problems == []


@pytest.mark.parametrize("wire", NATIVE)
def test_the_history_stays_whole_until_the_trigger_fires(own: Any, sim: Any, run: Any, wire: str) -> None:
    """The requests go on to hold everything, in the same bytes; the provider reads from its compaction on."""
    edit = ServerCompaction(above_tokens=LEAST[wire])
    chat = own(compactor=Compactor(NEVER, ProviderCompaction(context_management=[edit])))
    state = chat.run_turns(None, ["My name is Ada.", LONG * (LEAST[wire] // 400)]).state

    later = run(chat, state, user="What is my name?")

    sent = [request.parsed[HISTORY[wire]] for request in sim.requests]
    assert sent[2][: len(sent[1])] == sent[1]
    assert len(read_history(later.state).turns) == 3
    assert "Ada" in later.text
    assert later.usage.input_tokens < 1_000
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_what_a_compaction_inside_a_summary_took_is_booked(own: Any, sim: Any, wire: str) -> None:
    """The provider may compact before it answers the strategy's question too, and counts that apart."""
    state = own().run_turns(None, ["My name is Ada.", LONG * (LEAST[wire] // 400), "Go on."]).state
    wish = ModelSettings(context_management=[ServerCompaction(above_tokens=LEAST[wire])])

    report = own(settings=wish).compact_state(state, Compactor(NEVER, Summarize(keep_turns=1)))

    assert report.outcome == "compacted"
    assert report.usage.input_tokens > LEAST[wire]
    assert report.usage.requests == 1
    assert sim.problems == []
