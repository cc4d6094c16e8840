"""Programs that a user of Jido AI, the Elixir library, would write here: one for each feature."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, ContextWarning, Usage, tool
from goaitools_py.stores import AsyncMemoryStore, SQLiteStore
from goaitools_py.testing import Calls, ScriptedBackend


def test_a_thread_is_kept_under_a_key(tmp_path: Path) -> None:
    """A thread lives in a store; another process goes on with it."""
    with SQLiteStore(tmp_path / "chat.db") as store:
        Chat(ScriptedBackend("Hello, Ada.")).conversation(store, "ada").send("I am Ada.")
    with SQLiteStore(tmp_path / "chat.db") as store:
        thread = Chat(ScriptedBackend("You are Ada.")).conversation(store, "ada")
        assert thread.send("Who am I?").text == "You are Ada."
        assert [message.said for message in thread.history().all_messages()] == [
            "I am Ada.",
            "Hello, Ada.",
            "Who am I?",
            "You are Ada.",
        ]


def test_threads_are_listed_switched_and_reset(tmp_path: Path) -> None:
    """`/threads`, `/new`, `/reset` of the terminal, as calls."""
    chat = Chat(ScriptedBackend("One.", "Two."))
    with SQLiteStore(tmp_path / "chat.db") as store:
        ada, bob = chat.conversation(store, "ada"), chat.conversation(store, "bob")
        ada.send("1")
        ada.update(title="About one")
        bob.send("2")
        listed = {row.key: row.facts for row in store.list().keys}
        assert [(key, facts.title, facts.turns) for key, facts in sorted(listed.items()) if facts] == [
            ("ada", "About one", 1),
            ("bob", "", 1),
        ]
        ada.reset()
        assert [row.key for row in store.list().keys] == ["bob"]


def test_usage_adds_up_over_a_session() -> None:
    """Tokens in and out, and the cost with a price."""
    chat = Chat(ScriptedBackend("One.", "Two."), prices=lambda _: Decimal("0.01"))

    first = chat.chat_with_state(None, user="1")
    second = chat.chat_with_state(first.state, user="2")

    assert second.total_usage == first.usage + second.usage
    assert isinstance(second.total_usage, Usage)
    assert second.total_cost_usd == Decimal("0.02")


def test_a_warning_before_the_context_is_full() -> None:
    """The context meter tells at marks, once each."""
    told: list[ContextWarning] = []

    def listen(happened: Any) -> None:
        if isinstance(happened, ContextWarning):
            told.append(happened)

    backend = ScriptedBackend("One.", "Two.", "Three.", context_window=1_000)
    chat = Chat(backend, context_marks=(0.5, 0.9), on_event=listen)
    chat.run_turns(None, ["stone " * 300, "stone " * 300, "more"])

    assert [warning.level for warning in told] == ["approaching", "at_limit"]
    assert all(warning.used >= 500 and warning.limit == 1_000 for warning in told)


def test_streaming_answers_are_read_in_pieces() -> None:
    """A stream of deltas, and a result at its end."""
    turn = Chat(ScriptedBackend("Once upon a time.")).start(None, user="A story.")

    assert "".join(turn.text_deltas()) == "Once upon a time."
    assert turn.result().status == "complete"


def test_an_action_is_approved_by_a_person() -> None:
    """An action that a person has to approve waits in the state."""
    done: list[str] = []

    @tool(requires_approval=True)
    def open_door(name: str) -> str:
        """Open a door."""
        done.append(name)
        return "open"

    from goaitools_py import Approve

    chat = Chat(ScriptedBackend(Calls([("open_door", {"name": "north"})]), "It is open."), tools=[open_door])
    waits = chat.chat(user="Open the north door.")
    assert (waits.status, done) == ("awaiting_tools", [])

    result = chat.resume(waits.state, {waits.pending[0].id: Approve()})

    assert (result.text, done) == ("It is open.", ["north"])


def test_many_conversations_in_one_process() -> None:
    """One chat serves any number of conversations at a time."""
    import asyncio

    async def play() -> list[str]:
        chat, store = AsyncChat(ScriptedBackend(*["Hello."] * 40)), AsyncMemoryStore()
        results = await asyncio.gather(*(chat.conversation(store, f"npc-{n}").send("Hi.") for n in range(40)))
        return [result.text for result in results]

    assert asyncio.run(play()) == ["Hello."] * 40


@pytest.mark.parametrize("command", [["chat", "--help"], ["inspect", "--help"], ["demo", "--help"]])
def test_the_terminal_has_commands(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command line comes with the package."""
    from goaitools_py.cli import main

    assert main(command) == 0
    assert f"goaitools {command[0]}" in capsys.readouterr().out
