"""A request that the provider refuses for its content: the content comes back, and never wedges the state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goaitools_py import (
    NO_COMPACTION,
    ContextTooLongError,
    ProviderRejectedError,
    ProviderUnavailableError,
    ToolFinished,
    TurnError,
    event,
    user,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.state.records import RULES_VERSION
from goaitools_py.state.state import closed_entries, load_state
from goaitools_py.states import inspect_state, read_history, state_messages

from ..history._damage import Words, forged
from ._reading import ALL, ANTHROPIC, RESPONSES, on, roles
from .test_prefix import THINK
from .test_repair import broken
from .test_wire_pauses import SEARCH

INVALID = b'"error":{"message":"no","type":"invalid_request_error"}'

REFUSALS = [
    *on(ALL, Fault.bad_request(), 400, id="400"),
    *on(ALL, Fault.error(422, "unprocessable"), 422, id="422"),
    *on(ALL, Reply.raw(b"{%s}" % INVALID), None, id="400 inside a 200"),
    *on([ANTHROPIC], Reply.raw(b'{"type":"error",%s}' % INVALID), None, id="an error object inside a 200"),
    *on(
        [RESPONSES],
        Reply.raw(b'{"object":"response","status":"failed","error":{"code":"invalid_prompt"},"output":[]}'),
        None,
        id="a failed response",
    ),
]


def known_ada(chat: Any) -> bytes:
    """A state after one turn, in which the player gave a name."""
    return chat.chat_with_state(None, user="My name is Ada.").state


# ------------------------------------------------------------------------------------- the first call


@pytest.mark.parametrize(("wire", "refusal", "status"), REFUSALS)
def test_a_refused_message_comes_back(face: Any, sim: Any, run: Any, refusal: Any, status: Any) -> None:
    """The state is the very input, the message is in `pending_input`, and the next turn succeeds."""
    chat = face.on(sim)
    before = known_ada(chat)
    sim.push(refusal)

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, before, user="poison")
    err = caught.value
    after = run(chat, err.state, user="What is my name?")

    assert (err.status_code, err.retryable) == (status, False)
    assert err.state == before
    assert [m.text for m in err.pending_input] == ["poison"]
    assert "Your name is Ada." in after.text
    assert "poison" not in str(state_messages(after.state))
    assert after.warnings == ()
    assert len(sim.requests) == 3
    assert sim.problems == []


def test_a_refused_beginning_leaves_no_state(face: Any, sim: Any) -> None:
    """A first turn that is refused gives the empty state back, which starts anew."""
    chat = face.on(sim)
    sim.push(Fault.bad_request())

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat(user="poison")
    after = chat.chat_with_state(caught.value.state, user="Hello.")

    assert caught.value.state == b""
    assert len(state_messages(after.state)) == 2


def test_appended_messages_come_back_too(face: Any, sim: Any) -> None:
    """Whatever no model has accepted may be the poison: events that waited are handed back with it."""
    chat = face.on(sim)
    waiting = chat.append_to_state(known_ada(chat), event("Rain begins.", topic="weather", id="e-1"))
    sim.push(Fault.bad_request())

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat_with_state(waiting, user="poison")

    err = caught.value
    given_back, poison = err.pending_input
    assert (given_back.is_event, given_back.text) == (True, "Rain begins.")
    assert (given_back.topic, given_back.event_id) == ("weather", "e-1")
    assert poison.text == "poison"
    assert inspect_state(err.state).waiting_messages == 0


def test_a_message_given_back_can_be_sent_again(face: Any, sim: Any, texts_sent: Any) -> None:
    """An event id that no model has seen is not taken for seen, nor is a context."""
    chat = face.on(sim)
    waiting = chat.append_to_state(known_ada(chat), event("Rain begins.", id="e-1"))
    sim.push(Fault.bad_request())
    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat_with_state(waiting, user="Hello.", context="12:04")

    after = chat.chat_with_state(caught.value.state, messages=caught.value.pending_input[:1], context="12:04")

    assert sum("Rain begins." in text for text in texts_sent(sim)) == 1
    assert sum("12:04" in text for text in texts_sent(sim)) == 1
    assert len(read_history(after.state).all_messages()) == 5


def test_a_context_that_failed_and_was_refused_is_said_again(face: Any, sim: Any, texts_sent: Any) -> None:
    """A message that first met a 500 and then a 400 takes its context out of the state with it."""
    chat = face.on(sim)
    sim.push(Fault.server_error(), Fault.bad_request())
    with pytest.raises(ProviderUnavailableError) as unavailable:
        chat.chat(user="poison", context="12:04")
    with pytest.raises(ProviderRejectedError) as caught:
        chat.resume(unavailable.value.state)

    chat.chat_with_state(caught.value.state, user="Hello.", context="12:04")

    assert sum("12:04" in text for text in texts_sent(sim)) == 1
    assert "poison" not in texts_sent(sim)


def test_a_refused_turn_on_an_open_state_still_closes_it(face: Any, sim: Any, scores: Any) -> None:
    """What an earlier turn had completed stays, although this turn's message is refused."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.server_error(), Fault.bad_request())
    with pytest.raises(ProviderUnavailableError) as unavailable:
        chat.chat(user="The score of Red?")

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat_with_state(unavailable.value.state, user="poison")

    assert roles(caught.value.state) == ["user", "assistant", "tool"]
    assert [m.text for m in caught.value.pending_input] == ["poison"]
    assert chat.chat_with_state(caught.value.state, user="Hello.").status == "complete"
    assert sim.problems == []


# ------------------------------------------------------------------------------------------ later calls


@pytest.mark.parametrize(("wire", "refusal", "status"), REFUSALS)
def test_a_refused_result_becomes_an_error_result(
    face: Any, sim: Any, run: Any, scores: Any, texts_sent: Any, refusal: Any, status: Any
) -> None:
    """The exchange stays, its results are replaced, the real ones are in the log; no tool runs again."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), ("get_score", '{"team":"Blue"}')), refusal)

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, user="The scores?")
    err = caught.value
    resumed = chat.resume(err.state)

    assert [r.result for r in err.tool_log] == ["Red has 7 points", "Blue has 7 points"]
    assert [r.flag for r in err.tool_log] == ["ok", "ok"]
    assert err.status_code == status
    assert err.pending_input == ()
    assert texts_sent(sim).count("The result of this tool call could not be delivered.") == 2
    assert "Red has 7 points" not in texts_sent(sim)
    assert resumed.status == "complete"
    assert scores.runs == ["Red", "Blue"]
    assert set(read_history(resumed.state).turns[0].facts["flags"].values()) == {"error"}
    assert sim.problems == []


def test_messages_appended_in_the_turn_come_back(face: Any, sim: Any, scores: Any) -> None:
    """A message put into the running turn that no model accepted is in `pending_input`, not in the state."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.bad_request())
    turn = chat.start(None, user="The score of Red?")
    for happened in turn:
        if isinstance(happened, ToolFinished):
            break
    turn.append(event("Rain begins.", id="e-1"))

    with pytest.raises(ProviderRejectedError) as caught:
        turn.result()

    assert [m.text for m in caught.value.pending_input] == ["Rain begins."]
    again = chat.append_to_state(caught.value.state, *caught.value.pending_input)
    assert inspect_state(again).waiting_messages == 1


def test_a_resumed_turns_refused_results_are_in_the_log(face: Any, sim: Any, scores: Any) -> None:
    """Results of an earlier process that the provider refuses now are handed over, not thrown away."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.server_error(), Fault.bad_request())
    with pytest.raises(ProviderUnavailableError) as unavailable:
        chat.chat(user="The score of Red?")

    with pytest.raises(ProviderRejectedError) as caught:
        chat.resume(unavailable.value.state)

    assert [(r.result, r.flag) for r in caught.value.tool_log] == [("Red has 7 points", "ok")]


# ------------------------------------------------------------------------------------------- too long


def long_state(chat: Any, sim: Any) -> bytes:
    """A state of four turns of one size."""
    sim.push(*[Reply.text("Noted.")] * 4)
    return chat.run_turns(None, [f"Note {number}: {'x' * 200}" for number in range(4)]).state


@pytest.mark.parametrize(
    "refusal", [Fault.context_length(), Fault.too_large()], ids=["context length", "413"]
)
def test_a_history_that_is_too_long_is_cut_once(
    face: Any, sim: Any, run: Any, texts_sent: Any, refusal: Any
) -> None:
    """Without a compactor the older half goes, a warning and a report say so, and the turn succeeds."""
    chat = face.on(sim)
    before = long_state(chat, sim)
    sim.push(refusal)

    result = run(chat, before, user="Which note was last?")

    assert [w.code for w in result.warnings] == ["emergency_cut"]
    assert result.compaction.removed_turns == 2
    assert result.compaction.by == "emergency"
    assert len(sim.requests) == 6
    assert not any(text.startswith("Note 0") for text in texts_sent(sim))
    assert "Which note was last?" in texts_sent(sim)
    assert inspect_state(result.state).cuts[-1][1:] == ("emergency", 2, 4)
    assert sim.problems == []


def test_a_history_that_is_still_too_long_is_sent_twice_at_most(face: Any, sim: Any, run: Any) -> None:
    """After one cut the refusal is the caller's, with the message handed back and a state that works."""
    chat = face.on(sim, max_retries=2)
    before = long_state(chat, sim)
    sim.push(Fault.context_length(), Fault.context_length())

    with pytest.raises(ContextTooLongError) as caught:
        run(chat, before, user="Which note was last?")

    err = caught.value
    assert len(sim.requests) == 6
    assert not err.retryable
    assert [m.text for m in err.pending_input] == ["Which note was last?"]
    assert len(read_history(err.state).turns) == 2
    assert run(chat, err.state, user="Hello.").status == "complete"


def test_a_message_that_is_too_long_costs_no_history(face: Any, sim: Any, run: Any) -> None:
    """If what is new is larger than the history, the cut that did not help is undone."""
    chat = face.on(sim)
    before = long_state(chat, sim)
    sim.push(Fault.context_length(), Fault.context_length())

    with pytest.raises(ContextTooLongError) as caught:
        run(chat, before, user="y" * 5_000)

    assert len(sim.requests) == 6
    assert caught.value.state == before
    assert [len(m.text) for m in caught.value.pending_input] == [5_000]
    assert "emergency_cut" not in [warning.code for warning in caught.value.warnings]
    assert run(chat, caught.value.state, user="Hello.").status == "complete"


def test_nothing_is_cut_against_the_callers_word(face: Any, sim: Any, run: Any) -> None:
    """`NO_COMPACTION` forbids even the emergency cut: the history is as it was."""
    chat = face.on(sim, compactor=NO_COMPACTION)
    before = long_state(chat, sim)
    sim.push(Fault.context_length())

    with pytest.raises(ContextTooLongError) as caught:
        run(chat, before, user="Which note was last?")

    assert caught.value.state == before
    assert [m.text for m in caught.value.pending_input] == ["Which note was last?"]
    assert len(sim.requests) == 5


def test_a_message_too_long_for_an_empty_history_comes_back(face: Any, sim: Any) -> None:
    """With nothing to cut there is one request, and the message is the caller's again."""
    chat = face.on(sim)
    sim.push(Fault.context_length())

    with pytest.raises(ContextTooLongError) as caught:
        chat.chat(messages=[user("a long text")])

    assert [m.text for m in caught.value.pending_input] == ["a long text"]
    assert len(sim.requests) == 1


def test_results_that_do_not_fit_end_the_turn_without_wedging(face: Any, sim: Any, scores: Any) -> None:
    """Too long after a tool, and still so after the cut: the result leaves the state, the log keeps it."""
    chat = face.on(sim, tools=[scores.get_score])
    before = long_state(chat, sim)
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.context_length(), Fault.context_length())

    with pytest.raises(ContextTooLongError) as caught:
        chat.chat_with_state(before, user="The score of Red?")
    err = caught.value
    resumed = chat.resume(err.state)

    assert [r.result for r in err.tool_log] == ["Red has 7 points"]
    assert len(sim.requests) == 8
    assert resumed.status == "complete"
    assert scores.runs == ["Red"]
    assert sim.problems == []


# ------------------------------------------------------------------ what only a reply could have shown right

SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"
REFUSALS_OF_HISTORY: dict[str, Callable[[], Fault]] = {
    "vague": Fault.bad_request,
    "signature": lambda: Fault.bad_request(SIGNATURE),
    "context": Fault.context_length,
    "413": Fault.too_large,
}
LAST: dict[str, Callable[[], Any]] = {
    "503": lambda: Fault.server_error(503),
    "429": Fault.rate_limit,
    "401": Fault.unauthorized,
    "no answer": Fault.hang_up,
    "a page": Fault.html,
    "400": Fault.bad_request,
}


def histories(face: Any, sim: Any) -> Iterator[tuple[str, bytes]]:
    """Histories that a turn changes, or could change, after a refusal. Each comes with its name."""
    settings = THINK[sim.wire]
    chat = face.on(sim, settings=settings)
    yield "signed", chat.run_turns(None, ["My name is Ada.", "I like foxes.", "And owls."]).state
    yield "long", long_state(chat, sim)
    yield "broken", broken(sim.wire, rules=RULES_VERSION)
    before = chat.chat(user="My name is Ada.").state
    tools = face.on(sim, settings=settings, tools=[look_round])
    sim.push(Reply.calls(("look_round", "{}"), thinking="Hm."), Fault.server_error())
    with pytest.raises(ProviderUnavailableError) as caught:
        tools.chat_with_state(before, user="Look.")
    yield "open", caught.value.state
    if sim.wire == ANTHROPIC:
        sim.push(Reply.pause("Let me search. "), Fault.server_error())
        with pytest.raises(ProviderUnavailableError) as caught:
            face.on(sim, settings=settings, tools=[SEARCH]).chat_with_state(before, user="What is new?")
        yield "paused", caught.value.state


def look_round() -> str:
    """Look round."""
    return "dark"


def go_on(run: Any, chat: Any, state: bytes, said: dict[str, Any], *, resumes: bool) -> None:
    """A new turn, or the next part of the unfinished one."""
    if not resumes:
        run(chat, state, **said)
    elif run.is_streamed:
        chat.start_resume(state, **said).result()
    else:
        chat.resume(state, **said)


@pytest.mark.parametrize("last", LAST)
def test_a_change_that_no_reply_has_shown_right_is_not_kept(
    face: Any, sim: Any, run: Any, wire: str, last: str
) -> None:
    """Refused up to three times, and then failed otherwise: the stored history is as before.

    The requests had it in other forms, and the next turn is answered. A second refusal for the size keeps an
    emergency cut, or a history of four times the context would never fit.
    """
    seed = f"{wire}/{last}/{face.is_async}/{run.is_streamed}"
    print("seed", seed)
    draw, changed = random.Random(seed), 0
    for name, given in histories(face, sim):
        before = load_state(given)
        tools = {"paused": [SEARCH], "open": [look_round]}.get(name, [])
        chat = face.on(sim, settings=THINK[wire], tools=tools)
        for why, refusal in REFUSALS_OF_HISTORY.items():
            times = 1 if why == "context" else draw.choice((1, 2, 3))
            told = (name, why, times)
            resumes = name == "paused" or (name == "open" and draw.random() < 0.5)
            said = {} if name == "open" and resumes else {"user": "Who am I?"}
            sim.clear()
            sim.push(*[refusal() for _ in range(times)], *[LAST[last]() for _ in range(5)])

            with pytest.raises(TurnError) as caught:
                go_on(run, chat, given, said, resumes=resumes)
            after = load_state(caught.value.state)
            bodies = [request.body for request in sim.requests]
            changed += len(set(bodies)) > 1
            sim.clear()
            result = run(chat, caught.value.state, user="What is my name?", on_pending="deny")

            entries, now = closed_entries(before), closed_entries(after)
            assert now[: len(entries)] == entries, told
            held = list(before.open.entries) if before.open is not None else []
            left = list(after.open.entries) if after.open is not None else now[len(entries) :]
            assert left[: len(held)] == held, told
            assert result.status == "complete", told
    assert changed, "no request was sent in another form"


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        *on(ALL, "broken", id="broken"),
        *on((RESPONSES, ANTHROPIC), "signature", id="signature"),
        *on((RESPONSES, ANTHROPIC), "vague", id="vague"),
    ],
)
def test_a_change_that_a_cut_made_needless_is_not_told(
    face: Any, sim: Any, run: Any, wire: str, why: str
) -> None:
    """Refused for the history, and then for its size: the cut has taken out what the change was for."""
    chat = face.on(sim, settings=THINK[wire])
    if why == "broken":  # in the first turn; the simulator refuses it by itself
        words = Words(wire)
        entries = words.user("My name is Ada.") + words.calls("c1") + words.says("Hello.")
        for number in range(5):
            entries = entries + words.user(f"Note {number}: {'x' * 200}") + words.says("Noted.")
        given = forged(words, entries, rules=RULES_VERSION)
    else:
        given = chat.run_turns(None, [f"Note {number}: {'x' * 200}" for number in range(4)]).state
        sim.push(REFUSALS_OF_HISTORY[why]())
    sim.push(Fault.context_length())

    result = run(chat, given, user="Who am I?")
    told = [warning.code for warning in result.warnings]
    repairs = [turn for turn in read_history(result.state).turns if turn.facts.get("repaired")]

    assert "emergency_cut" in told
    assert len(told) == len(set(told)), told
    assert ("history_repaired" in told) == bool(repairs)
