"""A turn on a damaged history: it is mended, reported, and never asked for again, on a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from goaitools_py import (
    PLAIN,
    AuthenticationError,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ProviderRejectedError,
    event,
)
from goaitools_py.backends.anthropic import rules as anthropic_rules
from goaitools_py.backends.openai_chat import rules as chat_rules
from goaitools_py.backends.openai_responses import rules as responses_rules
from goaitools_py.backends.protocols import HistoryFrame
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.history.archive_reading import archive_of
from goaitools_py.history.rewrite.repair import repaired
from goaitools_py.sim import Fault, Reply
from goaitools_py.state.closed_turns import Iteration
from goaitools_py.state.records import RULES_VERSION, JournalCall, OpenTurn
from goaitools_py.state.state import closed_entries, dump_state, load_state
from goaitools_py.states import inspect_state, read_history, state_messages, verify_state
from goaitools_py.testing import check_history

from ..history._damage import Words, forged
from ._reading import results, texts, users

UNKNOWN = "The outcome of this tool call is unknown: it may or may not have taken effect."


def damage(wire: str) -> list[bytes]:
    """A turn whose call has lost its result, and one that begins with a result of nobody's."""
    words = Words(wire)
    return [
        *(words.user("My name is Ada.") + words.calls("c1") + words.says("Hello.")),
        *(words.user("And?") + words.results("c9") + words.says("Yes.")),
    ]


def broken(wire: str, *, rules: int) -> bytes:
    """A blob with that damage; `rules` says whether it poses as a state of today."""
    return forged(Words(wire), damage(wire), rules=rules)


def codes(result: Any) -> list[str]:
    """The codes of a result's or an error's warnings."""
    return [warning.code for warning in result.warnings]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each full check of a history had, in order."""
    made: list[int] = []

    def counted(original: Any, messages: Any, frame: HistoryFrame) -> Iterator[str]:
        made.append(len(messages))
        yield from original(messages, frame)

    for rules in (chat_rules, responses_rules, anthropic_rules):
        monkeypatch.setattr(rules, "problems", partial(counted, rules.problems))
    return made


# --------------------------------------------------------------------------------------- when loaded


def test_the_simulator_refuses_such_a_history(face: Any, sim: Any, wire: str, monkeypatch: Any) -> None:
    """Without a repair the conversation would be wedged, which is what makes the other tests tests."""
    monkeypatch.setattr("goaitools_py.turn.model_call.repaired", lambda state, *_, **how: (state, {}))

    with pytest.raises(ProviderRejectedError) as caught:
        face.on(sim).chat_with_state(broken(wire, rules=RULES_VERSION), user="What is my name?")

    assert caught.value.status_code == 400
    assert sim.problems


def test_an_unmarked_history_is_mended_before_it_is_sent(face: Any, sim: Any, run: Any, wire: str) -> None:
    """One request, which the provider takes; the result says what was done, by kind and without content."""
    chat = face.on(sim)

    result = run(chat, broken(wire, rules=0), user="What is my name?")

    assert "Your name is Ada." in result.text
    assert codes(result) == ["history_repaired"]
    assert "result_added: 1, stray_result: 1" in result.warnings[0].message
    assert "Ada" not in result.warnings[0].message
    assert (len(sim.requests), sim.problems) == (1, [])
    assert results(result.state) == [UNKNOWN]
    assert check_history(wire, state_messages(result.state)) == []


def test_a_mended_history_is_paid_for_once(
    face: Any, sim: Any, run: Any, wire: str, checks: list[int]
) -> None:
    """The next turn finds the mark: it checks nothing, warns of nothing, and repeats the same bytes."""
    chat = face.on(sim)
    first = run(chat, broken(wire, rules=0), user="What is my name?")
    del checks[:]

    second = run(chat, first.state, user="And my name?")

    assert checks == []
    assert codes(second) == []
    assert [row[1] for row in inspect_state(second.state).cuts] == ["repaired"]
    assert state_messages(second.state)[: len(state_messages(first.state))] == state_messages(first.state)
    assert sim.problems == []


def test_a_repair_before_an_append_is_in_the_archive(face: Any, sim: Any, wire: str) -> None:
    """With the chat's compactor that retains, what was mended can be read as it was, as after a turn."""
    keeping = face.on(sim, compactor=Compactor(MessageLimit(99), KeepRecentTurns(9), retain=True))
    blob = broken(wire, rules=0)

    grown = keeping.append_to_state(blob, event("It rains."))

    assert state_messages(grown) == state_messages(face.on(sim).append_to_state(blob, event("It rains.")))
    assert verify_state(grown) == ()
    (record,) = archive_of(load_state(grown), PLAIN)
    entries = [entry for turn in record.turns for entry in turn.entries]
    assert entries
    assert set(entries) <= set(closed_entries(load_state(blob)))


def test_a_turn_on_a_state_of_ours_checks_nothing(
    face: Any, sim: Any, run: Any, scores: Any, checks: list[int]
) -> None:
    """From the first turn on the writer says that the history is valid, tools included."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Reply.text("7."), Reply.text("Yes."))

    state = run(chat, user="The score of Red?").state
    run(chat, chat.append_to_state(state, event("It rains.")), user="Sure?")

    assert checks == []
    assert load_state(state).meta.rules == RULES_VERSION


def test_what_was_put_in_can_be_told_from_what_a_tool_said(
    face: Any, sim: Any, run: Any, wire: str, scores: Any
) -> None:
    """Flags are facts of the turn, in the repaired one as in those that the engine closed itself."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), ids=("real",)), Reply.text("7."))

    result = run(chat, broken(wire, rules=0), user="The score of Red?")

    facts = [turn.facts for turn in read_history(result.state).turns]
    assert [fact.get("flags") for fact in facts] == [{"c1": "unknown"}, None, None]
    assert [fact.get("repaired") for fact in facts] == [{"result_added": 1}, {"stray_result": 1}, None]
    assert results(result.state) == [UNKNOWN, "Red has 7 points"]


def test_appending_and_compacting_mend_too(face: Any, sim: Any, wire: str) -> None:
    """Neither asks a model, and neither hands on what a provider would refuse."""
    chat = face.on(sim)
    blob = broken(wire, rules=0)

    grown = chat.append_to_state(blob, event("It rains."))
    cut = chat.compact_state(blob, Compactor(MessageLimit(1), KeepRecentTurns(1))).state

    assert check_history(wire, state_messages(grown)) == []
    assert [load_state(state).meta.rules for state in (grown, cut)] == [RULES_VERSION] * 2
    assert [row[1] for row in inspect_state(grown).cuts] == ["repaired"]
    assert inspect_state(cut).cuts[0][1] == "repaired"
    assert users(cut) == ["And?"]
    assert chat.append_to_state(blob, event("It rains.")) == grown
    assert sim.requests == []
    for state in (grown, cut):
        assert codes(chat.chat_with_state(state, user="Well?")) == []
    assert sim.problems == []


def test_an_open_turn_is_mended_when_it_is_closed(face: Any, sim: Any, run: Any, wire: str) -> None:
    """A broken writer's unfinished turn is no history yet; it is checked when a new message makes it one."""
    words = Words(wire)
    bad = load_state(forged(words, words.user("My name is Ada.") + words.says("Hello."), rules=0))
    entries = [*words.user("And?"), *words.results("c9"), *words.says("Yes.")]
    iterations = (Iteration(roles="uta"),)
    opened = replace(bad, open=OpenTurn(at=0, entries=tuple(entries), iterations=iterations, messages=3))
    chat = face.on(sim)

    result = run(chat, dump_state(opened), user="What is my name?")

    assert codes(result) == ["history_repaired", "turn_closed"]
    assert (len(sim.requests), sim.problems) == (1, [])
    assert load_state(result.state).meta.rules == RULES_VERSION


def test_a_resumed_turn_has_its_history_mended(face: Any, sim: Any, wire: str, scores: Any) -> None:
    """The closed turns are mended and the open one goes on: its call runs, once."""
    words = Words(wire)
    bad = load_state(broken(wire, rules=0))
    entries = words.user("The score of Red?") + words.calls("c5", arguments='{"team":"Red"}')
    call = JournalCall(id="c5", name="get_score", arguments='{"team":"Red"}')
    iterations = (Iteration(roles="ua"),)
    opened = OpenTurn(at=0, entries=tuple(entries), iterations=iterations, messages=2, calls=(call,))
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.text("7."))

    result = chat.resume(dump_state(replace(bad, open=opened)))

    assert "history_repaired" in codes(result)
    assert scores.runs == ["Red"]
    assert results(result.state) == [UNKNOWN, "Red has 7 points"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_a_state_of_earlier_rules_is_looked_at_once(face: Any, sim: Any, run: Any, wire: str) -> None:
    """A failed result with a picture was valid by the first rules. It is mended before it is sent."""
    words = Words(wire)
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    parts = [{"type": "text", "text": "no"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "c1", "is_error": True, "content": parts}
    entries = [
        *(words.user("My name is Ada.") + words.calls("c1")),
        rawjson.dumps({"role": "user", "content": [result]}),
        *words.says("Hello."),
    ]
    chat = face.on(sim)

    first = run(chat, forged(words, entries, rules=1), user="What is my name?")
    second = run(chat, first.state, user="And my name?")

    assert (codes(first), codes(second)) == (["history_repaired"], [])
    assert (len(sim.requests), sim.problems) == (2, [])
    assert load_state(first.state).meta.rules == RULES_VERSION


# ----------------------------------------------------------------------------- when the provider refuses


def test_a_forged_mark_wedges_nothing(face: Any, sim: Any, run: Any, wire: str) -> None:
    """A refused request has its history checked; what is found is mended, and the request sent once more."""
    chat = face.on(sim)

    result = run(chat, broken(wire, rules=RULES_VERSION), user="What is my name?")
    after = run(chat, result.state, user="And my name?")

    assert "Your name is Ada." in result.text
    assert [code for code in codes(result) if code == "history_repaired"] == ["history_repaired"]
    assert users(result.state) == ["My name is Ada.", "And?", "What is my name?"]
    assert codes(after) == []
    assert len(sim.requests) == 3
    assert check_history(wire, state_messages(after.state)) == []


def test_a_refused_message_behind_a_valid_history_is_sent_once(
    face: Any, sim: Any, run: Any, checks: list[int]
) -> None:
    """The history is looked at, is not to blame, and the message comes back as ever."""
    chat = face.on(sim)
    before = run(chat, user="My name is Ada.").state
    sim.push(Fault.bad_request())

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, before, user="poison")

    assert (caught.value.state, codes(caught.value)) == (before, [])
    assert len(sim.requests) == 2
    assert checks == [len(state_messages(before))]


def test_a_second_refusal_is_the_messages_fault(face: Any, sim: Any, run: Any, wire: str) -> None:
    """At most two sends. No reply has shown the repair to be right, so the next turn makes it again."""
    chat, given = face.on(sim), broken(wire, rules=RULES_VERSION)
    sim.push(Fault.bad_request())  # the broken history is refused without it

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, given, user="poison")
    err = caught.value
    after = run(chat, err.state, user="What is my name?")

    assert [message.text for message in err.pending_input] == ["poison"]
    assert (err.state, codes(err)) == (given, [])
    assert (codes(after)[0], len(sim.requests)) == ("history_repaired", 4)
    assert "Your name is Ada." in after.text


def test_no_key_and_no_such_model_are_no_reason_to_look(
    face: Any, sim: Any, run: Any, checks: list[int]
) -> None:
    """Only refusals that blame the request's content have the history read."""
    chat = face.on(sim)
    before = run(chat, user="My name is Ada.").state
    sim.push(Fault.error(404, "not_found"), Fault.error(401, "no_key"))

    for error in (ProviderRejectedError, AuthenticationError):
        with pytest.raises(error):
            run(chat, before, user="Hello.")

    assert (checks, len(sim.requests)) == ([], 3)


def test_later_calls_of_a_turn_do_not_look_again(
    face: Any, sim: Any, run: Any, wire: str, scores: Any, monkeypatch: Any
) -> None:
    """Once in a turn is enough, also if another refusal comes after a tool has run."""
    looked: list[Any] = []
    monkeypatch.setattr(
        "goaitools_py.turn.model_call.repaired",
        lambda *given, **how: (looked.append(1), repaired(*given, **how))[1],
    )
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), ids=("real",)), Fault.bad_request())

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, broken(wire, rules=RULES_VERSION), user="The score of Red?")
    assert len(looked) == 2  # to see what is wrong, and when the reply has come
    after = run(chat, caught.value.state, user="What is my name?")

    assert scores.runs == ["Red"]
    assert "Your name is Ada." in after.text
    assert texts(after.state, "tool")[0] == UNKNOWN
