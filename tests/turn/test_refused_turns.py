"""A refused turn that blocks a conversation: it stays for readers, and no later request has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import PLAIN, Compactor, KeepRecentTurns, event, user
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.compaction import Summarize
from goaitools_py.history.recall_archive import passages_of
from goaitools_py.state.state import load_state
from goaitools_py.states import (
    convert_state,
    diff_states,
    export_state,
    import_state,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_messages,
)
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history

from ..kept.conftest import Threads
from ._reading import ALL, ANTHROPIC, CHAT, HISTORY, RESPONSES, roles
from .test_empty_replies import IN, chat, claude, responses

SAID = "I cannot help with that."
ITEM = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "incomplete",
    "content": [{"type": "output_text", "text": SAID, "annotations": []}],
}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}


def guarded(request: ModelRequest) -> Raw:
    """Bedrock's answer of a guardrail."""
    answer = claude({"type": "text", "text": SAID})(request)
    mark = b'"amazon-bedrock-guardrailAction":"INTERVENED",'
    return Raw([chunk.replace(b'"type"', mark + b'"type"', 1) for chunk in answer.chunks])


REFUSED = {
    "chat": (CHAT, chat("content_filter", content=SAID, out=5)),
    "chat-empty": (CHAT, chat("content_filter", content=None)),
    "chat-anthropic": (CHAT, chat("refusal", content="")),
    "chat-bedrock": (CHAT, chat("guardrail_intervened", content=SAID, out=5)),
    "responses": (RESPONSES, responses(**FILTERED)),
    "anthropic": (ANTHROPIC, claude({"type": "text", "text": SAID}, out=5, stop="refusal")),
    "anthropic-empty": (ANTHROPIC, claude(stop="refusal")),
    "bedrock": (ANTHROPIC, guarded),
}
NOT_BLOCKING = {
    "chat-refusal": (CHAT, chat("stop", content=None, refusal=SAID, out=5)),
    "chat-recitation": (CHAT, chat("RECITATION", content=SAID, out=5)),
    "responses-cut": (RESPONSES, responses(ITEM, out=5, **FILTERED)),
    "responses-refusal": (
        RESPONSES,
        responses({**ITEM, "content": [{"type": "refusal", "refusal": SAID}]}, out=5),
    ),
}
ONE = {CHAT: "chat", RESPONSES: "responses", ANTHROPIC: "anthropic"}


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


def sent(backend: ScriptedBackend, wire: str, at: int = -1) -> str:
    return json.dumps(backend.bodies()[at][HISTORY[wire]])


def refused(face: Any, run: Any, wire: str, *later: Any) -> tuple[ScriptedBackend, Any, bytes]:
    """A conversation of two turns, the second refused; the script goes on with `later`."""
    backend = ScriptedBackend("Hello.", REFUSED[ONE[wire]][1], *later, wire=wire)
    made = face.chat(backend)
    first = run(made, user="My name is Ada.")
    return backend, made, run(made, first.state, user="poison", context="12:04").state


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_turn_is_left_out(face: Any, run: Any, case: str) -> None:
    """One warning; three later turns go as if it had not been, and readers still have it."""
    wire, reply = REFUSED[case]
    backend = ScriptedBackend("Hello.", reply, "One.", "Two.", "Three.", wire=wire)
    made = face.chat(backend)
    first = run(made, user="My name is Ada.")

    result = run(made, first.state, user="poison", context="12:04")
    state = result.state
    for said in ("one?", "two?", "three?"):
        after = run(made, state, user=said, context="12:04")
        state = after.state
        assert (after.status, codes(after)) == ("complete", [])

    assert (result.status, codes(result)) == ("refused", ["turn_not_sent"])
    assert all("poison" not in sent(backend, wire, at) for at in (2, 3, 4))
    assert all(SAID not in sent(backend, wire, at) for at in (2, 3, 4))
    assert sent(backend, wire, 2).count("12:04") == sent(backend, wire).count("12:04") == 1
    assert backend.bodies()[2][HISTORY[wire]][:2] == backend.bodies()[1][HISTORY[wire]][:2]
    turns = read_history(state).turns
    assert [turn.is_sent for turn in turns] == [True, False, True, True, True]
    assert turns[1].status == "refused"
    assert "poison" in str(state_messages(state))
    assert check_history(wire, state_messages(state)) == []
    assert result.context_used < IN


@pytest.mark.parametrize("case", NOT_BLOCKING)
def test_a_models_own_refusal_is_sent(face: Any, run: Any, case: str) -> None:
    """The conversation goes on with it, as it always did."""
    wire, reply = NOT_BLOCKING[case]
    backend = ScriptedBackend(reply, "Here.", wire=wire)
    made = face.chat(backend)

    result = run(made, user="poison")
    run(made, result.state, user="Hello?")

    assert (result.status, codes(result)) == ("refused", [])
    assert "poison" in sent(backend, wire)
    assert SAID in sent(backend, wire)


@pytest.mark.parametrize("wire", ALL)
def test_a_first_turn_that_is_refused(face: Any, run: Any, wire: str) -> None:
    """Nothing is left to send, and the next turn is like a first one."""
    backend = ScriptedBackend(REFUSED[ONE[wire]][1], "Here.", wire=wire)
    made = face.chat(backend)

    result = run(made, user="poison")
    after = run(made, result.state, user="Hello?")

    assert [one["role"] for one in backend.bodies()[1][HISTORY[wire]]] == ["user"]
    assert roles(after.state)[-2:] == ["user", "assistant"]


@pytest.mark.parametrize("wire", ALL)
def test_a_refusal_behind_results(face: Any, run: Any, scores: Any, wire: str) -> None:
    """The whole turn is left out; the tool does not run again, and its result stays for readers."""
    asked = Calls([("get_score", {"team": "Red"})])
    backend = ScriptedBackend(asked, REFUSED[ONE[wire]][1], "Here.", wire=wire)
    made = face.chat(backend, tools=[scores.get_score])

    result = run(made, user="The score?", turn_id="t-1")
    again = run(made, result.state, user="The score?", turn_id="t-1")
    after = run(made, result.state, user="Hello?")

    assert (again.duplicate, again.status, scores.runs) == (True, "refused", ["Red"])
    assert [one["role"] for one in backend.bodies()[-1][HISTORY[wire]]] == ["user"]
    assert "tool" in roles(after.state)


# ------------------------------------------------------------------------------------------ readers


@pytest.mark.parametrize("wire", ALL)
def test_it_stays_left_out_whatever_is_done_to_the_state(face: Any, run: Any, wire: str) -> None:
    """Export, redact, append, rebase and convert keep what they know of it."""
    backend, made, state = refused(face, run, wire, *["Here."] * 5)
    base = state
    appended = made.append_to_state(base, event("Rain.", id="e-1"))
    beside = run(made, base, user="beside").state
    forms = {
        "exported": import_state(export_state(base)),
        "redacted": redact_state(base, "Ada").state,
        "appended": appended,
        "rebased": rebase_state(beside, base=base, theirs=appended),
    }

    for name, form in forms.items():
        run(made, form, user=f"after {name}")
        assert "poison" not in sent(backend, wire), name
        assert "poison" in str(state_messages(form)), name
        backend.then("Here.")


@pytest.mark.parametrize("wire", ALL)
def test_another_provider_api_does_not_get_it_either(face: Any, run: Any, wire: str) -> None:
    other = RESPONSES if wire == CHAT else CHAT
    _, _, state = refused(face, run, wire)
    converted = convert_state(state, other).state
    backend = ScriptedBackend("Here.", wire=other)

    run(face.chat(backend), converted, user="Hello?")

    assert "poison" not in sent(backend, other)
    assert [turn.is_sent for turn in read_history(converted).turns] == [True, False]


@pytest.mark.parametrize("wire", ALL)
def test_a_rewind_takes_it_away(face: Any, run: Any, wire: str) -> None:
    _, _, state = refused(face, run, wire)

    rewound = rewind_state(state, turns=1)

    assert [turn.is_sent for turn in read_history(rewound).turns] == [True]
    assert diff_states(rewound, state).added == (2,)


@pytest.mark.parametrize("wire", ALL)
def test_a_summary_does_not_read_it(face: Any, run: Any, wire: str) -> None:
    """It would be refused as well. What stays of the history keeps the fact."""
    backend, made, state = refused(face, run, wire, "One.", "SUMMARY")
    state = run(made, state, user="one?").state

    report = made.compact_state(state, Compactor(lambda request: True, Summarize(keep_turns=1)))

    assert report.outcome == "compacted"
    assert "poison" not in sent(backend, wire)
    assert "Ada" in sent(backend, wire)


@pytest.mark.parametrize("wire", ALL)
def test_a_cut_keeps_it_left_out(face: Any, run: Any, wire: str) -> None:
    backend, made, state = refused(face, run, wire, "One.", "Two.")
    state = run(made, state, user="one?").state

    report = made.compact_state(state, Compactor(lambda request: True, KeepRecentTurns(2), retain=True))
    run(made, report.state, user="two?")

    assert [turn.is_sent for turn in read_history(report.state).turns] == [False, True]
    assert "poison" not in sent(backend, wire)


@pytest.mark.parametrize("wire", ALL)
def test_a_long_history_with_refused_turns(face: Any, wire: str) -> None:
    """In sealed segments, too: each request has exactly the turns that were not refused."""
    steps: list[Any] = []
    for number in range(12):
        steps.append(REFUSED[ONE[wire]][1] if number % 3 == 1 else f"{number}: " + "x" * 9_000)
    backend = ScriptedBackend(*steps, "Here.", wire=wire)
    made, state = face.chat(backend), None
    for number in range(12):
        state = made.chat_with_state(state, user=f"turn {number}.").state

    made.chat_with_state(state, user="last.")

    said = sent(backend, wire)
    assert [number for number in range(12) if f"turn {number}." in said] == [
        number for number in range(12) if number % 3 != 1
    ]
    assert len(read_history(state or b"").turns) == 12


@pytest.mark.parametrize("wire", ALL)
def test_a_kept_conversation_goes_on(face: Any, wire: str) -> None:
    backend = ScriptedBackend("Hello.", REFUSED[ONE[wire]][1], "Here.", wire=wire)
    kept = Threads(face)(backend, MemoryStore(), save="checkpoint")
    kept.send("My name is Ada.")

    result = kept.send("poison")
    after = kept.send(messages=[user("Hello?")])

    assert (result.status, codes(result), after.text) == ("refused", ["turn_not_sent"], "Here.")
    assert "poison" not in sent(backend, wire)


@pytest.mark.parametrize("wire", ALL)
def test_a_search_does_not_find_it(face: Any, run: Any, wire: str) -> None:
    """The model would read it in a result, and that request would be refused."""
    _, made, state = refused(face, run, wire, "One.")
    state = run(made, state, user="one?").state
    cut = made.compact_state(state, Compactor(lambda request: True, KeepRecentTurns(1), retain=True)).state

    found = passages_of(load_state(cut), dialect_of(wire), codec=PLAIN)

    assert [passage.number for passage in found] == [1]
    assert "poison" in read_history(cut, archived=True).turns[1].messages[0].text
