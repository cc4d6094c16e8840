"""Programs that a user of goaitools, the Go library, would write here: one for each of its features."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    StateProviderError,
    TokenLimit,
    Tool,
    ToolContext,
    ToolError,
    any_of,
    event,
    first_of,
    system,
    tool,
    user,
)
from goaitools_py.states import import_goaitools_state, inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend

SMALL = Compactor(MessageLimit(4), DropOldest(target_messages=2))


def test_stateless_chat() -> None:
    """`chat.Chat(ctx, WithUserMessage(…))`: one exchange."""
    assert Chat(ScriptedBackend("Hello, Ada.")).chat(user="I am Ada.").text == "Hello, Ada."


def test_chat_with_state_threads_one_opaque_value() -> None:
    """`text, state, err = chat.ChatWithState(ctx, state, …)`, with the bytes in a column."""
    column: dict[str, bytes] = {}
    chat = Chat(ScriptedBackend("Hello, Ada.", "You are Ada."), system="You are a guide.")

    text, column["ada"] = chat.chat_with_state(None, user="I am Ada.")
    text, column["ada"] = chat.chat_with_state(column["ada"], user="Who am I?")

    assert text == "You are Ada."
    assert [entry["role"] for entry in state_messages(column["ada"])] == ["user", "assistant"] * 2


def test_append_to_state_tells_of_events_without_a_model() -> None:
    """`chat.AppendToState(ctx, state, …)`: the model reads at its next turn what happened."""
    backend = ScriptedBackend("Hello.", "Run!")
    chat = Chat(backend)
    state = chat.chat_with_state(None, user="Hello.").state

    state = chat.append_to_state(state, event("A troll enters the room."))
    assert (len(backend.requests), inspect_state(state).waiting_messages) == (1, 1)
    reply = chat.chat_with_state(state, user="What now?")

    assert reply.text == "Run!"
    assert b"A troll enters the room." in backend.requests[1].body


def test_the_system_message_is_not_in_the_state() -> None:
    """The leading system message goes along with each request; a later one is a part of the history."""
    backend = ScriptedBackend("One.", "Two.")
    state = Chat(backend, system="Secret rules A.").chat_with_state(None, user="1").state
    result = Chat(backend, system="Secret rules B.").chat_with_state(
        state, messages=[user("2"), system("It is night.")]
    )

    assert b"Secret rules B." in backend.requests[1].body
    assert b"Secret rules A." not in backend.requests[1].body
    texts = [message.text for message in read_history(result.state).all_messages()]
    assert "It is night." in texts
    assert not any("Secret" in text for text in texts)


def test_a_tool_set_with_context_errors_and_logged_actions() -> None:
    """`ToolExecuteContext`, `NewErrorResult` and `ctx.Logger.Log`: a tool reads, fails in words, and logs."""

    @tool
    def take(ctx: ToolContext[dict[str, int]], item: str) -> str:
        """Take an item from the room."""
        if not ctx.deps.get(item):
            raise ToolError(f"there is no {item} here")
        ctx.deps[item] -= 1
        ctx.log_action(f"took {item}")
        return f"You have the {item}."

    room = {"lamp": 1}
    backend = ScriptedBackend(Calls([("take", {"item": "lamp"}), ("take", {"item": "sword"})]), "You got it.")

    result = Chat(backend, tools=[take]).chat(user="Take all.", deps=room)

    assert (result.text, [one.text for one in result.actions], room) == (
        "You got it.",
        ["took lamp"],
        {"lamp": 0},
    )
    assert [record.flag for record in result.tool_log] == ["ok", "error"]
    assert b"there is no sword here" in backend.requests[1].body


def test_a_schema_that_depends_on_the_game() -> None:
    """The dynamic tool schema, `Parameters()`: each turn offers the fields of its own game."""

    def fields(game: list[str]) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {} for name in game}, "additionalProperties": False}

    change: Tool = Tool("change", "Change the game.", fields, lambda **values: f"changed {', '.join(values)}")
    script = (Calls([("change", {"bases": 4})]), "Done.", Calls([("change", {"bases": 5})]), "It has none.")
    backend = ScriptedBackend(*script)
    chat = Chat(backend, tools=[change])

    first = chat.chat_with_state(None, user="Four bases.", deps=["start", "bases"])
    second = chat.chat_with_state(first.state, user="Five bases.", deps=["start"])

    offered = [json.loads(one.body)["tools"][0]["function"]["parameters"] for one in backend.requests]
    assert [sorted(one["properties"]) for one in offered] == [["bases", "start"]] * 2 + [["start"]] * 2
    assert [record.flag for record in (*first.tool_log, *second.tool_log)] == ["ok", "error"]


def test_max_tool_iterations() -> None:
    """`WithMaxToolIterations(n)` ends a loop of tools."""

    def look() -> str:
        """Look around."""
        return "Nothing."

    backend = ScriptedBackend(Calls([("look", {})]), Calls([("look", {})]), "I give up.")

    result = Chat(backend, tools=[look]).chat(user="Look.", limits=Limits(max_iterations=2))

    assert (result.text, result.status) == ("I give up.", "limited")


def test_a_state_is_locked_to_its_provider() -> None:
    """A state that Anthropic wrote is not sent to OpenAI, and the error says both names."""
    state = Chat(ScriptedBackend("Hi.", wire="anthropic")).chat(user="Hello.").state

    with pytest.raises(StateProviderError, match="anthropic"):
        Chat(ScriptedBackend("Hi.")).chat_with_state(state, user="Hello?")


def test_a_damaged_state_begins_afresh_and_says_so() -> None:
    """Graceful degradation: a damaged column does not end the service."""
    result = Chat(ScriptedBackend("Hello.")).chat_with_state(b"\x00\x01damaged", user="Hello?")

    assert result.text == "Hello."
    assert [warning.code for warning in result.warnings] == ["state_discarded"]


def test_a_message_limit_compactor() -> None:
    """`MessageLimitCompactor{MaxMessages: n}`."""
    chat = Chat(ScriptedBackend("1", "2", "3"), compactor=SMALL)

    result = chat.run_turns(None, ["a", "b", "c"])

    assert result.compaction is not None
    assert result.compaction.outcome == "compacted"
    assert len(state_messages(result.state)) <= 4


def test_system_messages_survive_compaction() -> None:
    """Every compactor keeps the system messages of the history; `event(…, pinned=True)` keeps another one."""
    chat = Chat(ScriptedBackend(*"123456"), compactor=SMALL)

    state = chat.chat(messages=[user("a"), system("It is dark.")]).state
    state = chat.append_to_state(state, event("The door is locked.", pinned=True))
    state = chat.run_turns(state, ["b", "c", "d"]).state

    said = [message.said for message in read_history(state).all_messages()]
    assert said == ["It is dark.", "The door is locked.", "d", "4"]


def test_keep_last_n_notes_the_pruned_tool_calls() -> None:
    """`KeepLastN`: the last turns, and a short note of the tools that the others called."""

    @tool
    def look(at: str) -> str:
        """Look at something."""
        return f"A {at}, " * 40

    keep = Compactor(MessageLimit(4), KeepRecentTurns(1, notes_tools=True))
    chat = Chat(ScriptedBackend(Calls([("look", {"at": "wall"})]), "1", "2"), tools=[look], compactor=keep)

    state = chat.run_turns(None, ["Look.", "Go on."]).state

    note, *rest = [message.text for message in read_history(state).all_messages()]
    assert "look (1)" in note
    assert rest == ["Go on.", "2"]


def test_a_token_limit_compactor_counts_what_the_provider_reported() -> None:
    """`TokenLimitCompactor{MaxTokens: n, TargetTokens: m}`."""
    chat = Chat("sim", compactor=Compactor(TokenLimit(250), DropOldest(target_tokens=120)))

    result = chat.run_turns(None, [f"Tell me about stone number {n}. " * 8 for n in range(8)])

    assert result.context_used <= 250
    assert inspect_state(result.state).cuts
    chat.close()


def test_composite_compactors_and_triggers() -> None:
    """`CompositeCompactor` and `CompositeCompactionTrigger`: the first that has something to do."""
    compactor = first_of(
        Compactor(any_of(MessageLimit(100), TokenLimit(100_000)), DropOldest(target_messages=50)), SMALL
    )

    result = Chat(ScriptedBackend("1", "2", "3"), compactor=compactor).run_turns(None, ["a", "b", "c"])

    assert len(state_messages(result.state)) <= 4


def test_a_completion_observer() -> None:
    """`SystemLogger` and the completion observer: each model call and tool call is told."""
    told: list[str] = []

    def look() -> str:
        """Look around."""
        return "A lamp."

    Chat(ScriptedBackend(Calls([("look", {})]), "I see."), tools=[look]).chat(
        user="Look.", on_event=lambda happened: told.append(type(happened).__name__)
    )

    assert [name for name in told if name in ("ModelReplied", "ToolStarted", "ToolFinished")] == [
        "ModelReplied",
        "ToolStarted",
        "ToolFinished",
        "ModelReplied",
    ]


@pytest.mark.parametrize("shape", ["flat", "metadata"])
def test_states_of_the_go_library_go_on(shape: str) -> None:
    """A column full of the Go library's JSON is read, and the conversation goes on here."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "Hello, Ada."},
    ]
    old: dict[str, Any] = {"version": 1, "provider": "openai", "processed_length": 2, "messages": messages}
    if shape == "metadata":
        old = {"version": 1, "messages": messages, "metadata": {"provider": "openai"}}

    state = import_goaitools_state(json.dumps(old).encode())
    result = Chat(ScriptedBackend("You are Ada.")).chat_with_state(state, user="Who am I?")

    assert state_messages(result.state)[:2] == messages
    assert result.text == "You are Ada."
