"""The provider's own compaction: opaque, first in the history, and what it has signed behind it stays good.

The simulator compacts as the providers' documents say (OpenAI's ``/responses/compact``, Anthropic's beta
``compact-2026-09-04``), over a real socket; what the recorded exchanges show is in the tests of the dialects.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from goaitools_py import CompactionError, Compactor, KeepRecentTurns, MessageLimit, ModelSettings, Summarize
from goaitools_py.base.values import replace
from goaitools_py.compaction import CompactionRequest, ProviderCompaction
from goaitools_py.sim import Fault
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import check_history

THINKING = {
    "openai": ModelSettings(),
    "openai-responses": ModelSettings(reasoning_effort="low"),
    "anthropic": ModelSettings(thinking_budget_tokens=1024),
}
NATIVE = ("openai-responses", "anthropic")
TALK = " It was a long day, and there was much to see on the way from the station to the harbour." * 6
NOTES = tuple(
    said + TALK
    for said in ("My name is Ada.", "My favourite town is Leeds.", "Note 2.", "Note 3.", "Note 4.")
)


def talking(face: Any, sim: Any, **fields: Any) -> Any:
    """A chat whose model thinks, where the wire has that."""
    return face.on(sim, system="You are a game guide.", settings=THINKING[sim.wire], **fields)


def noted(chat: Any) -> bytes:
    """A conversation of five turns."""
    blob: bytes = chat.run_turns(None, list(NOTES)).state
    return blob


def signed(sim: Any) -> int:
    """How many blocks of thinking or reasoning the newest request held."""
    body = sim.requests[-1].body
    return int(body.count(b'"type":"thinking"') + body.count(b'"type":"reasoning"'))


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.mark.parametrize("wire", NATIVE)
def test_the_provider_compacts_and_its_thinking_stays(face: Any, sim: Any, wire: str) -> None:
    """Turns that stay keep their bytes and their thinking; the provider takes the next request."""
    chat = talking(face, sim)
    state = noted(chat)
    before = state_messages(state)

    report = chat.compact_state(state, Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2)))
    after = chat.chat_with_state(report.state, user="What is my name, and what is my favourite town?")

    assert (report.outcome, report.by, report.removed_turns) == ("compacted", "ProviderCompaction", 3)
    assert report.usage.requests == 1
    assert state_messages(report.state)[-4:] == before[-4:]
    assert "Ada" in after.text
    assert "Leeds" in after.text
    assert signed(sim) == 2
    assert codes(after) == []
    assert sim.problems == []
    assert check_history(sim.wire, state_messages(after.state)) == []
    assert inspect_state(after.state).total_usage.requests == 7


@pytest.mark.parametrize("wire", NATIVE)
def test_another_cut_takes_the_thinking_out(face: Any, sim: Any, wire: str) -> None:
    """What makes the provider's own compaction special: behind any other, thinking is gone."""
    chat = talking(face, sim)

    report = chat.compact_state(noted(chat), Compactor(MessageLimit(1), KeepRecentTurns(2)))
    chat.chat_with_state(report.state, user="Note 5")

    assert signed(sim) == 0


@pytest.mark.parametrize("wire", NATIVE)
def test_within_a_turn(face: Any, sim: Any, run: Any, wire: str) -> None:
    """The trigger asks before a request; the turn goes on behind the compacted history."""
    chat = talking(face, sim)
    compactor = Compactor(MessageLimit(10), ProviderCompaction(keep_turns=1))

    result = run(chat, noted(chat), user="What is my name?", compactor=compactor)

    assert result.compaction.outcome == "compacted"
    assert "Ada" in result.text
    assert result.usage.requests == 2
    assert [turn.facts.get("note") for turn in read_history(result.state).turns] == ["compacted", None, None]
    assert sim.problems == []


@pytest.mark.parametrize("wire", NATIVE)
def test_compacted_again(face: Any, sim: Any, wire: str) -> None:
    """The second compaction is made of the first one and what came since."""
    chat = talking(face, sim)
    compactor = Compactor(MessageLimit(1), ProviderCompaction(keep_turns=1))

    first = chat.compact_state(noted(chat), compactor)
    later = chat.run_turns(first.state, [f"Note {n}" + TALK for n in range(5, 10)]).state
    second = chat.compact_state(later, compactor)
    after = chat.chat_with_state(second.state, user="What is my name?")

    assert second.outcome == "compacted"
    assert "Ada" in after.text
    assert codes(after) == []
    assert sim.problems == []
    assert len([t for t in read_history(after.state).turns if t.facts.get("note")]) == 1


@pytest.mark.parametrize("wire", ["openai"])
def test_a_wire_without_compaction_summarises(face: Any, sim: Any, wire: str) -> None:
    """The fallback is the turn's own model; without one nothing happens, and the report says why."""
    chat = talking(face, sim)
    state = noted(chat)

    report = chat.compact_state(state, Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2)))
    bare = Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2, fallback=None))
    nothing = chat.compact_state(state, bare)

    assert report.outcome == "compacted"
    assert read_history(report.state).turns[0].facts["note"] == "summary"
    assert (nothing.outcome, nothing.state) == ("no_change", state)
    assert "no compaction" in nothing.reason


@pytest.mark.parametrize("wire", NATIVE)
def test_a_provider_that_refuses(face: Any, sim: Any, wire: str) -> None:
    """A server that does not know the request is as one that has none; without a fallback it is an error
    outside a turn, and a warning inside."""
    chat = talking(face, sim)
    state = noted(chat)
    only = Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2, fallback=None))

    sim.push(Fault.bad_request("unknown parameter"))
    report = chat.compact_state(state, Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2)))
    sim.push(Fault.bad_request("unknown parameter"))
    with pytest.raises(CompactionError, match="no answer"):
        chat.compact_state(state, only)
    sim.push(Fault.bad_request("unknown parameter"))
    result = chat.chat_with_state(state, user="Note 5", compactor=only)

    assert read_history(report.state).turns[0].facts["note"] == "summary"
    assert codes(result) == ["compaction_failed"]
    assert result.compaction.outcome == "failed"
    assert sim.problems == []


@pytest.mark.parametrize("wire", NATIVE)
def test_a_compaction_outlives_another_cut(face: Any, sim: Any, wire: str) -> None:
    """It is no turn of its own: a strategy that drops turns, or a changed preamble, leaves a history that
    the provider takes."""
    chat = talking(face, sim)
    compactor = Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2))
    state = chat.compact_state(noted(chat), compactor).state

    changed = chat.chat_with_state(state, user="Note 5", system="You are a librarian.")
    cut = chat.compact_state(changed.state, Compactor(MessageLimit(1), KeepRecentTurns(1)))
    after = chat.chat_with_state(cut.state, user="Note 6", system="You are a librarian.")

    assert check_history(sim.wire, state_messages(after.state)) == []
    assert sim.problems == []


@pytest.mark.parametrize("wire", NATIVE)
def test_a_note_of_that_name_is_none(face: Any, sim: Any, wire: str) -> None:
    """Thinking stays only behind what the provider has made, not behind anybody's note of that kind."""
    chat = talking(face, sim)

    def pretend(request: CompactionRequest) -> Any:
        return (request.note("Much was said.", kind="compacted"), *request.turns[-2:])

    report = chat.compact_state(noted(chat), Compactor(MessageLimit(1), pretend))
    chat.chat_with_state(report.state, user="Note 5")

    assert signed(sim) == 0
    assert sim.problems == []


@pytest.mark.parametrize(
    "strategy", [Summarize(keep_turns=2), ProviderCompaction(keep_turns=2, fallback=None)]
)
@pytest.mark.parametrize("wire", ["anthropic"])
def test_outside_a_turn_the_preamble_may_be_another(face: Any, sim: Any, strategy: Any, wire: str) -> None:
    """A chat that does not know the turns' preamble asks all the same: thinking that was signed over it is
    not checked for that one request."""
    model = ModelSettings(model="claude-opus-5-5", thinking_budget_tokens=1024)
    chat = face.on(sim, settings=model)
    state = None
    for note in NOTES:
        state = chat.chat_with_state(state, user=note, system="You are a game guide.").state

    report = chat.compact_state(state, Compactor(MessageLimit(1), strategy))
    after = chat.chat_with_state(report.state, user="Note 5", system="You are a game guide.")

    assert report.outcome == "compacted"
    assert codes(after) == []
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_the_beta_goes_along(face: Any, sim: Any, wire: str) -> None:
    """Every request with a compacted history names the beta, and the block stands first."""
    chat = talking(face, sim)
    compactor = Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2, instructions="Keep names."))
    state = chat.compact_state(noted(chat), compactor).state
    asked = sim.requests[-1]
    chat.chat_with_state(state, user="Note 5", settings=ModelSettings(extra_headers={"anthropic-beta": "x"}))

    assert asked.parsed["compaction"] == {"type": "summarize", "instructions": "Keep names."}
    assert "compact-2026-09-04" in asked.headers["anthropic-beta"]
    assert sim.requests[-1].headers["anthropic-beta"].split(",") == ["x", "compact-2026-09-04"]
    assert sim.requests[-1].parsed["messages"][0]["content"][0]["type"] == "compaction"


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_the_request_is_the_endpoints_own(face: Any, sim: Any, wire: str) -> None:
    """The same model and input as the conversation's next request, and no member that it does not take."""
    chat = talking(face, sim)
    chat.compact_state(noted(chat), Compactor(MessageLimit(1), ProviderCompaction(keep_turns=2)))

    asked = sim.requests[-1]
    assert asked.path == "/v1/responses/compact"
    assert set(asked.parsed) <= {"model", "input", "prompt_cache_key"}
    assert asked.parsed["input"][0]["role"] in ("developer", "system")
    assert asked.parsed["input"][1]["content"] == NOTES[0]


@pytest.mark.parametrize("wire", NATIVE)
def test_it_is_not_asked_again_for_every_turn(face: Any, sim: Any, wire: str) -> None:
    """OpenAI's compaction keeps what the user said: without a wait it would be made anew each turn."""
    chat = talking(face, sim)
    compactor = Compactor(MessageLimit(1), ProviderCompaction(keep_turns=1))
    state = chat.compact_state(noted(chat), compactor).state
    later = chat.run_turns(state, ["Note 5", "Note 6"]).state

    waits = chat.compact_state(later, compactor)
    at_once = chat.compact_state(
        later, Compactor(MessageLimit(1), ProviderCompaction(keep_turns=1, at_least=1))
    )

    assert (waits.outcome, waits.usage.requests) == ("no_change", 0)
    assert "waits for 4" in waits.reason
    assert at_once.outcome == "compacted"


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize(("cold_after", "marked"), [(None, True), (86_400.0, True), (3600.0, False)])
def test_a_cold_conversation_sets_no_marks(
    face: Any, sim: Any, wire: str, cold_after: float | None, marked: bool
) -> None:
    """After a silence that no cache outlives, the first request of a turn pays for none."""
    chat = talking(face, sim)
    state = load_state(chat.chat(user="My name is Ada.").state)
    two_hours_ago = msgspec.structs.replace(state.meta, created=state.meta.created - 7_200_000)

    chat.chat_with_state(
        dump_state(replace(state, meta=two_hours_ago)), user="What is my name?", cold_after=cold_after
    )

    assert (b"cache_control" in sim.requests[-1].body) == marked
