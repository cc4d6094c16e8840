"""A fork has an id of its own; a rewind goes back to what was, and no further than the newest cut."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, MessageLimit, ToolContext, tool, user
from goaitools_py.states import fork_state, inspect_state, read_history, rewind_state, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

WIRES = ("openai", "openai-responses", "anthropic")


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each wire."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves on by 5 ms whenever it is read: in a test a turn may take less than one."""
    ticks = itertools.count(time.time_ns(), 5_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks))


def said(blob: bytes) -> list[str]:
    return [message.text for message in read_history(blob).all_messages()]


def noted(wire: str, count: int, **fields: Any) -> bytes:
    """A conversation of so many turns."""
    chat = Chat(ScriptedBackend(*[f"Noted {n}." for n in range(count)], wire=wire), **fields)
    return chat.run_turns(None, [f"Note {n}" for n in range(count)]).state


def test_a_fork_says_the_same_under_another_id(wire: str) -> None:
    """Its history is the same bytes; its id is new, random or the caller's."""
    state = noted(wire, 2)

    fork, again, named = fork_state(state), fork_state(state), fork_state(state, conversation_id="b")

    ids = {inspect_state(blob).conversation_id for blob in (state, fork, again, named)}
    assert len(ids) == 4
    assert inspect_state(named).conversation_id == "b"
    assert state_messages(fork) == state_messages(state)


def test_tools_of_a_fork_have_keys_of_their_own() -> None:
    """An unfinished turn that goes on in both does its work in both."""
    keys: list[str] = []

    @tool(requires_approval=True)
    def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return "paid"

    chat = Chat(ScriptedBackend(Calls([("pay", "{}")]), "Done.", "Done."), tools=[pay])
    waiting = chat.chat(user="Pay.")
    from goaitools_py import Approve

    for state in (waiting.state, fork_state(waiting.state)):
        chat.resume(state, {waiting.pending[0].id: Approve()})

    assert len(set(keys)) == 2


def test_a_rewind_takes_the_newest_turns_away(wire: str) -> None:
    """What is left is a history that the provider takes; what was spent stays spent."""
    state = noted(wire, 4)

    back = rewind_state(state, 2)
    after = Chat(ScriptedBackend("Again.", wire=wire)).chat_with_state(back, user="Note 2, again")

    assert said(back) == ["Note 0", "Noted 0.", "Note 1", "Noted 1."]
    assert inspect_state(back).total_usage == inspect_state(state).total_usage
    assert inspect_state(back).turns == 2
    assert 0 < inspect_state(back).tokens < inspect_state(state).tokens
    assert check_history(wire, state_messages(after.state)) == []
    assert said(rewind_state(state, 4)) == []


def test_a_rewind_is_the_bytes_that_were(wire: str) -> None:
    """The turns that stay are not touched."""
    state = noted(wire, 3)

    assert state_messages(rewind_state(state)) == state_messages(state)[: len(state_messages(noted(wire, 2)))]


def test_an_unfinished_turn_goes_first(wire: str) -> None:
    """It counts as one; what waits in the inbox stays."""
    kept: list[bytes] = []

    @tool
    def count() -> str:
        """Count."""
        return "counted"

    chat = Chat(ScriptedBackend("Noted.", Calls([("count", "{}")]), "One.", wire=wire), tools=[count])
    first = chat.chat(user="Note 0").state
    chat.chat_with_state(first, user="Count.", on_checkpoint=kept.append)

    back = rewind_state(chat.append_to_state(kept[0], user("Hello?")))

    assert said(back) == ["Note 0", "Noted.", "Hello?"]
    assert inspect_state(back).status == "complete"


def test_a_used_turn_id_stays_used(wire: str) -> None:
    """A message that is delivered again after a rewind is not answered anew."""
    chat = Chat(ScriptedBackend("First.", "Second.", wire=wire))
    state = chat.chat_with_state(chat.chat(user="One", turn_id="1").state, user="Two", turn_id="2").state

    again = chat.chat_with_state(rewind_state(state), user="Two", turn_id="2")

    assert (again.duplicate, again.text) == (True, "Second.")


def test_a_rewind_ends_at_the_newest_cut(wire: str) -> None:
    """What stood before the turns of before a cut is not there any more."""
    compactor = Compactor(MessageLimit(6), KeepRecentTurns(2))
    chat = Chat(ScriptedBackend(*["Noted."] * 9, wire=wire), compactor=compactor)
    state = chat.run_turns(None, [f"Note {n}" for n in range(4)]).state
    cut = inspect_state(state)
    assert cut.cuts
    later = chat.run_turns(state, ["Note 4"]).state

    with pytest.raises(ValueError, match="since the newest cut"):
        rewind_state(later, 4)


def test_many_rewinds_do_not_hide_the_cut(wire: str) -> None:
    """The journal of cuts is bounded; the newest cut that took turns away stays in it all the same."""
    compactor = Compactor(MessageLimit(6), KeepRecentTurns(2))
    chat = Chat(ScriptedBackend(*["Noted."] * 24, wire=wire))
    state = chat.compact_state(noted(wire, 4), compactor).state
    for _ in range(20):
        state = rewind_state(chat.chat_with_state(state, user="Note 4").state)

    with pytest.raises(ValueError, match="since the newest cut"):
        rewind_state(state)


def test_a_queued_message_is_still_known_by_its_id(wire: str) -> None:
    """The turn that waited goes, a message that was queued behind it stays; delivered again, it stays one."""

    @tool(external=True)
    def ask() -> str:
        """Ask somebody."""
        raise AssertionError

    backend = ScriptedBackend("Noted.", Calls([("ask", "{}")]), "Hello.", wire=wire)
    chat = Chat(backend, tools=[ask])
    state = chat.run_turns(None, ["Note 0", "Ask."]).state
    state = chat.chat_with_state(state, user="Hello?", turn_id="q", on_pending="queue").state

    result = chat.chat_with_state(rewind_state(state), user="Hello?", turn_id="q")

    assert said(result.state) == ["Note 0", "Noted.", "Hello?", "Hello."]
    assert chat.chat_with_state(result.state, user="Hello?", turn_id="q").duplicate


@pytest.mark.parametrize("turns", [0, -1, 1.5, "1"])
def test_a_rewind_needs_a_number_of_turns(turns: Any) -> None:
    """Anything else is the caller's mistake."""
    with pytest.raises(ValueError, match="positive whole number"):
        rewind_state(noted("openai", 1), turns)
