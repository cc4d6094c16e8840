"""States that are narrowed: closed turns, the open turn, its journal, and what is noted of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.history.rewrite.narrow import narrowed
from goaitools_py.open_turn.journal import check_journal
from goaitools_py.state.closed_turns import Iteration
from goaitools_py.state.records import JournalCall, OpenTurn
from goaitools_py.state.state import ConversationState, closed_turns, dump_state, load_state, new_state
from goaitools_py.states import state_from_messages
from goaitools_py.testing import check_history

from ._damage import Words
from ._lenient import HABITS, base_history, lenient

WIRES = ("openai", "openai-responses", "anthropic")


def state_of(wire: str, *habits: str) -> ConversationState:
    """Two closed turns with these habits."""
    history = base_history(Words(wire))
    for habit in habits:
        HABITS[wire][habit](history)
    return load_state(state_from_messages(wire, history, conversation_id="c", created_ms=0))


def opened(wire: str, entries: list[bytes], *roles: str, **fields: Any) -> OpenTurn:
    """An open turn of these entries; `roles` has the letters of each iteration."""
    return OpenTurn(
        at=0,
        entries=tuple(entries),
        iterations=tuple([Iteration(roles=own) for own in roles]),
        messages=len(dialect_of(wire).view(entries)),
        **fields,
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_state_that_conforms_is_the_very_object(wire: str) -> None:
    """Open turn included."""
    words = Words(wire)
    turn = opened(wire, [*words.user("q"), *words.calls("c9")], "ua", calls=(_call("c9"),))
    state = replace(state_of(wire), open=turn)

    assert narrowed(state, dialect_of(wire)) == (state, {})
    assert narrowed(state, dialect_of(wire))[0] is state


@pytest.mark.parametrize("wire", WIRES)
def test_the_same_state_gives_the_same_bytes_once(wire: str) -> None:
    """100 random states: deterministic, idempotent, valid, and as many turns as before."""
    for seed in range(100):
        history, names = lenient(wire, random.Random(seed), times=3)
        state = load_state(state_from_messages(wire, history, conversation_id="c", created_ms=0))

        (once, log), (again, _) = (narrowed(state, dialect_of(wire)) for _ in range(2))

        assert dump_state(once) == dump_state(again), (seed, names)
        assert bool(log) == (once is not state), (seed, names)
        assert narrowed(once, dialect_of(wire)) == (once, {}), (seed, names)
        entries = [entry for turn in closed_turns(once) for entry in turn.entries]
        assert check_history(wire, entries, unique_ids=False) == [], (seed, names)
        assert once.meta.messages == sum(turn.record.messages for turn in closed_turns(once)), (seed, names)


def _call(id: str, **fields: Any) -> JournalCall:
    return JournalCall(id=id, name="look", arguments="{}", **fields)


@pytest.mark.parametrize("wire", WIRES)
def test_the_journal_goes_along(wire: str) -> None:
    """Calls, results so far, and the flags of earlier results in the same turn have the new ids."""
    words, odd = Words(wire), "t.1:" + "x" * 70
    entries = [*words.user("q"), *words.calls(odd), *words.results(odd), *words.calls("y" + odd, "c3")]
    roles = "ua", "t" + "a" * (len(words.calls("a", "b")))
    calls = (_call("y" + odd, state="done"), _call("c3", state="done", flag="error"))
    turn = opened(wire, entries, *roles, calls=calls, facts={"flags": {odd: "unknown"}})
    state = replace(state_of(wire), open=turn)

    made, log = narrowed(state, dialect_of(wire))

    assert log == {"call_renamed": 3}
    assert made.open is not None
    check_journal(made, dialect_of(wire))
    first, second, third = _ids(made.open, wire)
    assert [call.id for call in made.open.calls] == [second, third] == [second, "c3"]
    assert made.open.facts["flags"] == {first: "unknown"}
    assert made.open.roles == turn.roles
    assert closed_turns(made) == closed_turns(state)
    assert made.meta.cuts == state.meta.cuts


def _ids(turn: OpenTurn, wire: str) -> list[str]:
    return [call.id for message in dialect_of(wire).view(turn.entries) for call in message.tool_calls]


def test_a_reply_of_the_open_turn_may_lose_an_item() -> None:
    """Reasoning without its encrypted form goes, and the iteration has one letter less."""
    words = Words("openai-responses")
    thought = rawjson.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "content": []})
    entries = [*words.user("q"), thought, *words.calls("c9")]
    turn = opened("openai-responses", entries, "uaa", calls=(_call("c9"),))
    state = replace(state_of("openai-responses"), open=turn)

    made, log = narrowed(state, words.dialect)

    assert log == {"thinking": 1}
    assert made.open is not None
    assert made.open.roles == "ua"
    assert made.open.entries[0] is entries[0]
    check_journal(made, words.dialect)


def test_what_nobody_answered_yet_is_never_taken_out() -> None:
    """A message of the user that is refused as a whole stays in an open turn: it may be the only copy."""
    words = Words("anthropic")
    thought = b'{"role":"user","content":[{"type":"thinking","thinking":"x","signature":"s"}]}'
    turn = replace(opened("anthropic", [thought]), letters="u")
    state = replace(new_state("anthropic", id="c", created=0), open=turn)

    made, _ = narrowed(state, words.dialect)

    assert made.open is not None
    assert made.open.entries == (thought,)


@pytest.mark.parametrize("is_signed", [False, True])
def test_signed_thinking_behind_a_change_in_the_open_turn_is_unbound(is_signed: bool) -> None:
    """It stays, and the next request says that the server may drop it. Closed turns keep theirs."""
    words = Words("anthropic")
    block = b'{"type":"thinking","thinking":"x","signature":"c2ln"},' if is_signed else b""
    said = b'{"role":"assistant","content":[%s{"type":"text","text":"a"}]}' % block
    entries = [*words.user("q"), *words.calls("t.1"), *words.results("t.1"), said, *words.user("q")]
    turn = replace(opened("anthropic", entries, "ua", "ta"), letters="u")
    state = replace(state_of("anthropic"), open=turn)
    state = replace(state, meta=replace(state.meta, signed=True))

    made, _ = narrowed(state, words.dialect)

    assert made.meta.unbound is is_signed
    assert made.meta.signed
    assert made.open is not None
    assert made.open.entries[3] is said
    assert made.segments == state.segments
