"""Programs that a user of AshAgent, the Elixir library, would write here: one for each feature.

Its hooks, such as `prepare_tool_results`, have no counterpart: docs/tools.md says what is nearest.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from goaitools_py import Chat, Limits, ToolContext, user
from goaitools_py.states import (
    export_state,
    inspect_state,
    read_history,
    state_from_messages,
    state_messages,
    state_to_text,
)
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


def test_iterations_have_numbers_and_metadata() -> None:
    """`iteration.number` and `iteration.metadata`: of a turn that is not finished, too."""
    chat = Chat(ScriptedBackend(Calls([("find", {"topic": "Maps"})]), KeyboardInterrupt()), tools=[find])
    saved: list[bytes] = []
    with pytest.raises(KeyboardInterrupt):
        chat.chat_with_state(
            a_state(),
            user="Maps?",
            deps={"shelf": "9"},
            metadata={"channel": "app"},
            on_checkpoint=saved.append,
        )

    history = read_history(saved[-1])

    assert [[one.number for one in turn.iterations] for turn in history.turns] == [[1, 2], [3], [4]]
    assert [dict(history.iteration(number).metadata) for number in (1, 2, 3, 4)] == [
        {"channel": "web"},
        {"channel": "web"},
        {},
        {"channel": "app"},
    ]
    assert history.turns[-1].status == "in_progress"


def test_a_conversation_is_built_step_by_step() -> None:
    """`new`, `add_assistant_message`, `add_tool_results`: functions from a state to a state."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"topic":"Maps"}'}}

    def added(state: bytes, *messages: dict[str, Any]) -> bytes:
        return state_from_messages("openai", [*state_messages(state), *messages])

    state = added(state_from_messages("openai", []), {"role": "user", "content": "Maps?"})
    state = added(
        state,  # a call and its result come together
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Maps: shelf 9"},
    )
    state = added(state, {"role": "assistant", "content": "On shelf 9."})

    history = read_history(state)
    assert [len(one.messages) for one in history.turns[0].iterations] == [2, 2]
    assert [(one.name, one.result) for one in history.tool_calls()] == [("find", "Maps: shelf 9")]
    reply = Chat(ScriptedBackend("You are welcome."), tools=[find]).chat_with_state(
        state, user="Thanks.", deps={}
    )
    assert reply.text == "You are welcome."


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
