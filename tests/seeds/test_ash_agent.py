"""Programs that a user of AshAgent, the Elixir library, would write here: one for each feature."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from goaitools_py import Chat, Limits, ToolContext, user
from goaitools_py.states import export_state, inspect_state, read_history, state_to_text
from goaitools_py.testing import Calls, ScriptedBackend


def find(ctx: ToolContext[dict[str, str]], topic: str) -> str:
    """Find something in the library."""
    return f"{topic}: shelf {ctx.deps['shelf']}"


def a_state() -> bytes:
    """Two turns; the first one has two iterations."""
    script = (Calls([("find", {"topic": "Dragons"})]), "On shelf 7.", "You are welcome.")
    chat = Chat(ScriptedBackend(*script), tools=[find])
    shelf = {"shelf": "7"}
    first = chat.chat_with_state(None, user="Dragons?", deps=shelf, metadata={"channel": "web"})
    return chat.chat_with_state(first.state, user="Thanks.", deps=shelf).state


def test_turns_hold_iterations() -> None:
    """A turn is a list of iterations, and each one has what went in and what came back."""
    history = read_history(a_state())

    assert [[len(one.messages) for one in turn.iterations] for turn in history.turns] == [[2, 2], [2]]
    assert [turn.number for turn in history.turns] == [1, 2]


def test_an_iteration_is_found_by_its_number() -> None:
    """`get_iteration(context, n)` counts from 1."""
    history = read_history(a_state())

    assert [call.name for call in history.iteration(1).tool_calls] == ["find"]
    assert history.iteration(3).messages[-1].said == "You are welcome."
    with pytest.raises(IndexError):
        history.iteration(4)


def test_all_messages_in_order() -> None:
    """`to_messages(context)`."""
    roles = [message.role for message in read_history(a_state()).all_messages()]

    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_times_and_usage_are_recorded() -> None:
    """Each turn knows when it began and ended, and each iteration what it consumed."""
    history = read_history(a_state())
    now = datetime.now(UTC)

    for turn in history.turns:
        assert turn.completed_at is not None
        assert now - timedelta(minutes=5) < turn.started_at <= turn.completed_at <= now + timedelta(seconds=1)
    assert all(one.usage.requests == 1 for turn in history.turns for one in turn.iterations)


def test_metadata_of_a_turn() -> None:
    """`metadata` goes with the turn, and no model reads it."""
    assert dict(read_history(a_state()).turns[0].metadata) == {"channel": "web"}


def test_the_runtime_context_is_never_stored() -> None:
    """What tools get as `deps` is in no state, no export and no text."""
    chat = Chat(ScriptedBackend(Calls([("find", {"topic": "Maps"})]), "Found."), tools=[find])

    state = chat.chat(user="Maps?", deps={"shelf": "9", "secret": "hunter2"}).state

    assert "hunter2" not in str(export_state(state))
    assert "hunter2" not in state_to_text(state)


def test_a_turn_that_exceeds_its_iterations_says_so() -> None:
    """`exceeded_max_iterations?`: the turn ends with an answer and the status "limited"."""
    chat = Chat(ScriptedBackend(*[Calls([("find", {"topic": "x"})])] * 3, "Enough."), tools=[find])

    result = chat.chat(user="Find all.", deps={"shelf": "1"}, limits=Limits(max_iterations=2))

    assert result.status == "limited"
    assert read_history(result.state).turns[0].facts["status"] == "limited"


def test_several_people_speak() -> None:
    """Who said a message stands in the history."""
    state = (
        Chat(ScriptedBackend("Hello, both."))
        .chat(messages=[user("Hi.", speaker="Ada"), user("Hello.", speaker="Bob")])
        .state
    )

    assert [message.speaker for message in read_history(state).all_messages()] == ["Ada", "Bob", None]


def test_counts_of_a_state() -> None:
    """`count_iterations`, `count_tool_calls` and the like, without reading the history."""
    info = inspect_state(a_state())

    assert (info.turns, info.messages, info.total_usage.requests) == (2, 6, 3)
