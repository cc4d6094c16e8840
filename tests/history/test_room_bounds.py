"""The sizes that are computed before a state is written are never below those that it then has."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, Limits, TurnError, event, tool, user
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base.values import replace
from goaitools_py.open_turn.room import size_of, written_size
from goaitools_py.open_turn.steps import close_turn
from goaitools_py.state.codec import LIMITS, PLAIN
from goaitools_py.state.row_codec import iteration_facts
from goaitools_py.state.segments import meta_bytes, values_of_lines
from goaitools_py.state.state import ConversationState, load_state, written
from goaitools_py.testing import Calls, ScriptedBackend

WIRES = ("openai", "openai-responses", "anthropic")
MANY = 120


@tool
def look(place: str) -> str:
    """Look."""
    return "seen " + place


def fresh(wire: str) -> ConversationState:
    """A conversation of one turn."""
    return load_state(Chat(ScriptedBackend("Hi.", wire=wire)).chat(user="Hello.").state)


def broken_off(wire: str, *script: Any, **fields: Any) -> ConversationState:
    """A turn that the provider's outage has left open, behind a closed one."""
    chat = Chat(ScriptedBackend("Hi.", *script, BackendError("down", status=503), wire=wire), tools=[look])
    state = chat.chat(user="Hello.").state
    with pytest.raises(TurnError) as caught:
        chat.chat_with_state(state, user="Look.", limits=Limits(max_iterations=2 * MANY), **fields)
    return load_state(caught.value.state)


def waiting(wire: str) -> ConversationState:
    """Many short messages, each with the name of its speaker."""
    chat = Chat(ScriptedBackend(wire=wire))
    said = [user("?", speaker=f"speaker {number} " + "s" * 100) for number in range(MANY)]
    return load_state(chat.append_to_state(None, *said))


def told(wire: str) -> ConversationState:
    """Many short events."""
    chat = Chat(ScriptedBackend(wire=wire))
    happened = [event("!", topic=f"topic {number}", id=f"e-{number}") for number in range(MANY)]
    return load_state(chat.append_to_state(None, *happened))


def long_turn(wire: str) -> ConversationState:
    """Many rounds of tools, each with facts of its own."""
    state = broken_off(wire, *[Calls([("look", {"place": "here"})])] * MANY)
    assert state.open is not None
    more = iteration_facts(3, [[number, "Ada " + "a" * 60] for number in range(20)], "request-1")
    iterations = tuple([replace(one, more=more) for one in state.open.iterations])
    return replace(state, open=replace(state.open, iterations=iterations))


def many_calls(wire: str) -> ConversationState:
    """One reply with many calls, which wait for their results."""
    calls = [("look", {"place": f"place {number}"}) for number in range(MANY)]
    state = broken_off(wire, Calls(calls))
    assert state.open is not None
    assert state.open.calls
    return state


def partial(wire: str) -> ConversationState:
    """The text of a reply that broke off."""
    state = broken_off(wire, Calls([("look", {"place": "here"})]))
    assert state.open is not None
    return replace(state, open=replace(state.open, calls=(), partial='"\n' * 4_000))


def metadata(wire: str) -> ConversationState:
    """Facts of the turn."""
    calls = Calls([("look", {"place": "here"})])
    return broken_off(wire, calls, metadata={f"name {number}": "m" * 100 for number in range(MANY)})


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "make", [fresh, waiting, told, long_turn, many_calls, partial, metadata], ids=lambda make: make.__name__
)
def test_no_size_is_below_the_one_that_is_written(wire: str, make: Any) -> None:
    """Neither now nor when the open turn closes."""
    state = make(wire)

    most = LIMITS.max_values
    bound = size_of(state, PLAIN, meta=meta_bytes(state.meta), most_values=most)

    for one in (state, close_turn(state, dialect_of(wire))):
        size = written_size(one, PLAIN, most_values=most)
        values = sum(values_of_lines(segment.raw(), most) for segment in written(one, LIMITS)[0])
        assert bound.values >= values > 0
        assert bound.decoded >= size.decoded
        assert bound.entries >= size.entries
        assert bound.segments >= size.segments
        assert bound.blob >= size.blob - 512  # which counts the most that any codec adds
