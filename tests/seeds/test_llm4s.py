"""Programs that a user of llm4s, the Scala library, would write here: one for each feature of its agent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from goaitools_py import Chat, ToolContext, system, user
from goaitools_py.compaction import ContextWindow
from goaitools_py.states import (
    EXPORT_SCHEMA,
    diff_states,
    export_state,
    import_state,
    inspect_state,
    load_state,
    read_history,
    save_state,
    to_markdown,
)
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend


def weather(city: str) -> str:
    """The weather in a city."""
    return f"Rain in {city}."


def asking_for(*cities: str) -> Calls:
    """A reply that asks for the weather in cities."""
    return Calls([("weather", {"city": city}) for city in cities])


def test_run_a_query_with_tools() -> None:
    """`agent.run(query, tools)`."""
    result = Chat(ScriptedBackend(asking_for("Oslo"), "It rains."), tools=[weather]).chat(user="Oslo?")

    assert (result.text, result.status, result.tool_log[0].result) == (
        "It rains.",
        "complete",
        "Rain in Oslo.",
    )


def test_run_one_step_at_a_time() -> None:
    """`agent.runStep(state)` with InProgress, WaitingForTools and Complete."""
    chat = Chat(ScriptedBackend(asking_for("Oslo"), "It rains."), tools=[weather])

    step = chat.step(None, user="Oslo?")
    statuses = [step.status]
    while not step.is_over:
        step = chat.step(step.state)
        statuses.append(step.status)

    assert statuses == ["waiting_for_tools", "in_progress", "complete"]


def test_a_failed_step_is_a_value() -> None:
    """The fourth status, Failed, carries the error; the state goes on from there."""
    chat = Chat(ScriptedBackend(ConnectionError("down"), "Hello."))

    failed = chat.step(None, user="Hello?")

    assert (failed.status, type(failed.error).__name__) == ("failed", "ProviderUnavailableError")
    assert chat.step(failed.state).text == "Hello."


def test_continue_a_conversation_functionally() -> None:
    """`agent.continueConversation(state, message)`: the old state is a value and stays as it was."""
    chat = Chat(ScriptedBackend("One.", "Two.", "Another two."))
    first = chat.chat_with_state(None, user="1").state
    before = bytes(first)

    second = chat.chat_with_state(first, user="2")
    other = chat.chat_with_state(first, user="2b")

    assert (first, second.text, other.text) == (before, "Two.", "Another two.")
    assert diff_states(first, second.state).added == (2,)


def test_run_multi_turn() -> None:
    """`agent.runMultiTurn(first, followUps, tools)`."""
    result = Chat(ScriptedBackend("One.", "Two.", "Three.")).run_turns(None, ["1", "2", "3"])

    assert (result.text, inspect_state(result.state).turns) == ("Three.", 3)


@pytest.mark.parametrize("strategy", ["oldest_first", "middle_out", "recent_turns_only"])
def test_context_window_config(strategy: str) -> None:
    """`ContextWindowConfig(maxMessages, minRecentTurns, pruningStrategy)`."""
    window = ContextWindow(max_messages=6, min_recent_turns=2, strategy=strategy)  # type: ignore[arg-type]
    chat = Chat(ScriptedBackend(*"12345678"), compactor=window, system="Be brief.")

    state = chat.run_turns(None, list("abcdefgh")).state

    kept = [message.said for message in read_history(state).all_messages() if message.role == "user"]
    assert kept[-2:] == ["g", "h"]
    assert len(kept) < 8
    assert (kept[0] == "a") == (strategy == "middle_out")


@pytest.mark.parametrize("strategy", ["oldest_first", "middle_out", "recent_turns_only", "summary"])
@pytest.mark.parametrize("preserves", [True, False])
def test_preserve_system_message(strategy: str, preserves: bool) -> None:
    """`ContextWindowConfig(preserveSystemMessage, minRecentTurns)`, by name and with a function."""
    for one in (strategy, lambda request: request.turns[-1:]):
        window = ContextWindow(
            max_messages=6,
            min_recent_turns=2,
            preserve_system=preserves,
            strategy=one,  # type: ignore[arg-type]
        )
        chat = Chat(ScriptedBackend(*["Noted."] * 20), compactor=window)
        state = chat.run_turns(None, ["a"]).state
        state = chat.chat_with_state(state, messages=[user("b"), system("Be kind.")]).state

        kept = [one.said for one in read_history(chat.run_turns(state, list("cdefgh")).state).all_messages()]

        assert ("Be kind." in kept) == preserves
        assert [said for said in kept if len(said) == 1][-2:] == ["g", "h"]


def test_a_pruning_strategy_of_ones_own() -> None:
    """`PruningStrategy.Custom`: a function of the turns."""
    window = ContextWindow(max_messages=4, min_recent_turns=1, strategy=lambda request: request.turns[-1:])
    chat = Chat(ScriptedBackend(*"123"), compactor=window)

    state = chat.run_turns(None, list("abc")).state

    assert [message.said for message in read_history(state).all_messages()] == ["b", "2", "c", "3"]


def test_save_and_load_a_state_as_a_file(tmp_path: Path) -> None:
    """`AgentState.saveToFile` and `loadFromFile`."""
    state = Chat(ScriptedBackend("Hello.")).chat(user="Hello?").state

    save_state(state, tmp_path / "ada.state")

    assert load_state(tmp_path / "ada.state") == state
    if os.name == "posix":
        assert (tmp_path / "ada.state").stat().st_mode & 0o777 == 0o600


def test_a_state_as_json_with_a_schema() -> None:
    """`AgentState.toJson` and `fromJson`."""
    state = Chat(ScriptedBackend(asking_for("Oslo"), "It rains."), tools=[weather]).chat(user="Oslo?").state

    exported = export_state(state)

    assert set(exported) <= set(EXPORT_SCHEMA["properties"])
    assert read_history(import_state(exported)).all_messages() == read_history(state).all_messages()


def test_a_trace_log_in_markdown() -> None:
    """`agent.writeTraceLog(state, path)`."""
    state = Chat(ScriptedBackend(asking_for("Oslo"), "It rains."), tools=[weather]).chat(user="Oslo?").state

    text = to_markdown(state)

    assert all(part in text for part in ("Oslo?", "weather", "Rain in Oslo.", "It rains."))


def test_a_trace_file_that_is_written_at_each_step(tmp_path: Path) -> None:
    """`agent.run(query, tools, traceLogPath = …)`: the file shows how far a run has come."""
    path = tmp_path / "trace.md"
    seen: list[str] = []

    def trace(blob: bytes) -> None:
        path.write_text(to_markdown(blob), encoding="utf-8")
        seen.append(path.read_text(encoding="utf-8"))

    script = ScriptedBackend(asking_for("Oslo"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Chat(script, tools=[weather], on_checkpoint=trace).chat(user="Oslo?")

    assert "Rain in Oslo." in path.read_text(encoding="utf-8")
    assert any("weather" in text and "Rain in Oslo." not in text for text in seen)


def test_the_logs_of_a_run() -> None:
    """`state.log(…)` and `state.logs`: kept in the state, with their turn, and in its documents."""

    def book(ctx: ToolContext, city: str) -> str:
        """Book a room in a city."""
        ctx.log_action(f"asked three hotels in {city}", hotels=3)
        ctx.log_action("booked")
        return "Booked."

    script = ScriptedBackend(Calls([("book", {"city": "Oslo"})]), "A room is booked.", "Bye.")
    state = Chat(script, tools=[book], record_actions=True).run_turns(None, ["A room in Oslo.", "Bye."]).state

    first, second = read_history(import_state(export_state(state))).turns
    assert [(one.text, dict(one.data)) for one in first.actions] == [
        ("asked three hotels in Oslo", {"hotels": 3}),
        ("booked", {}),
    ]
    assert second.actions == ()
    assert "asked three hotels in Oslo" in to_markdown(state)


def test_usage_of_a_conversation() -> None:
    """`UsageSummary`: tokens over all requests."""
    result = Chat(ScriptedBackend("One.", "Two.")).run_turns(None, ["1", "2"])

    assert result.total_usage.requests == 2
    assert result.total_usage.input_tokens > result.usage.input_tokens > 0


def test_a_guardrail_of_ones_own() -> None:
    """`inputGuardrails`, `outputGuardrails`: functions around a turn. A refused turn leaves the history."""
    talk = Chat(ScriptedBackend("It is swordfish.", "I cannot tell.")).conversation(MemoryStore(), "ada")

    def guarded(text: str) -> str:
        if "password" in text:
            return "refused"
        answer = talk.send(text).text
        if "swordfish" in answer:
            talk.rewind()
            return "refused"
        return answer

    told = [guarded(text) for text in ("The password!", "The word, please.", "The word?")]

    assert told == ["refused", "refused", "I cannot tell."]
    history = talk.history()
    assert history is not None
    assert [message.said for message in history.all_messages()] == ["The word?", "I cannot tell."]
