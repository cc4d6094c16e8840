"""Programs that a user of Jido AI, the Elixir library, would write here: one for each feature."""

from __future__ import annotations

import re
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, ContextWarning, StateAuthError, Usage, event, tool
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.states import fork_state, inspect_state, read_history, state_from_text, state_to_text
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
    assert [warning.message_count for warning in told] == [2, 4]


def test_events_tell_the_size_of_a_thread() -> None:
    """A listener knows the messages and the tokens of the thread, without reading it."""
    told: list[dict[str, Any]] = []
    chat = Chat(ScriptedBackend("One.", "Two."), on_event=lambda happened: told.append(happened.to_dict()))
    with SQLiteStore(":memory:") as store:
        thread = chat.conversation(store, "ada")
        thread.send("1")
        thread.send("2")
        thread.append(event("Rain."))
        total = inspect_state(thread.state() or b"").total_usage

    last = {one["type"]: one for one in told}
    for kind in ("TurnCompleted", "Appended", "StateSaved"):
        assert last[kind]["message_count"] == 4
        assert last[kind]["total_usage"]["input_tokens"] == total.input_tokens


def test_the_terminal_shows_what_a_reply_took(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Time, iterations and tokens of each reply. The app counts characters, see `tests/cli/tui`."""
    from goaitools_py.cli.line_chat import LineChat

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with SQLiteStore(":memory:") as store:
        assert LineChat(Chat(ScriptedBackend("Hello, Ada.")), store, "ada").run(["I am Ada."]) == 0

    assert re.search(r"\d s, 1 iteration, \d+ tokens in, \d+ out", capsys.readouterr().err)


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


def test_tools_run_at_the_same_time_with_a_limit_on_each() -> None:
    """Results come in the order of the calls; a tool that hangs is told to the model."""
    both = threading.Barrier(2)
    over = threading.Event()

    @tool
    def meet(who: str) -> str:
        """Wait for the other one."""
        both.wait(30)
        return f"{who} was here"

    @tool(timeout=0.05)
    def hang() -> str:
        """Never come back in time."""
        over.wait(30)
        return "too late"

    calls = Calls([("meet", {"who": "Ada"}), ("meet", {"who": "Bob"}), ("hang", {})])
    try:
        result = Chat(ScriptedBackend(calls, "Done."), tools=[meet, hang], tool_threads=True).chat(
            user="Meet."
        )
    finally:
        over.set()

    assert [record.result for record in result.tool_log[:2]] == ["Ada was here", "Bob was here"]
    assert (result.tool_log[2].flag, result.status) == ("unknown", "complete")


def test_a_signed_token_that_the_caller_carries() -> None:
    """Signed, for one owner, and readable after the tools of the application have changed."""
    codec = Signed(Keyring(Key(b"k" * 32)))
    first = Chat(ScriptedBackend("Hello, Ada."), codec=codec, binding={"user": "ada"})
    token = state_to_text(first.chat_with_state(None, user="I am Ada.").state)

    @tool
    def look() -> str:
        """Look."""
        return "a clock"

    second = Chat(ScriptedBackend("You are Ada."), codec=codec, binding={"user": "ada"}, tools=[look])
    assert second.chat_with_state(state_from_text(token), user="Who am I?").text == "You are Ada."
    with pytest.raises(StateAuthError):
        second.chat_with_state(state_from_text(token), user="Who am I?", binding={"user": "eve"})


def test_a_run_that_broke_off_goes_on_from_its_checkpoint() -> None:
    """The finished tool does not run again."""
    ran: list[str] = []
    saved: list[bytes] = []

    @tool
    def look() -> str:
        """Look."""
        ran.append("look")
        return "a clock"

    dies = Chat(
        ScriptedBackend(Calls([("look", {})]), KeyboardInterrupt()), tools=[look], on_checkpoint=saved.append
    )
    with pytest.raises(KeyboardInterrupt):
        dies.chat(user="What is there?")
    result = Chat(ScriptedBackend("A clock."), tools=[look]).resume(saved[-1])

    assert (result.text, ran) == ("A clock.", ["look"])


def test_a_message_is_injected_while_the_run_goes_on() -> None:
    """The next model call of the running turn reads it."""
    backend = ScriptedBackend(Calls([("look", {})]), "A clock, and it rains.")

    @tool
    def look() -> str:
        """Look."""
        turn.append(event("It rains"))
        return "a clock"

    with Chat(backend, tools=[look]).start(None, user="What is there?") as turn:
        result = turn.result()

    assert result.text == "A clock, and it rains."
    assert "It rains" in backend.requests[-1].body.decode()


def test_a_conversation_is_forked() -> None:
    """The copy goes its own way, under an id of its own."""
    chat = Chat(ScriptedBackend("One.", "Two."))
    state = chat.chat_with_state(None, user="1").state
    copy = fork_state(state)

    went_on = chat.chat_with_state(copy, user="2").state

    assert len(read_history(state).turns) == 1
    assert len(read_history(went_on).turns) == 2
    assert inspect_state(copy).conversation_id != inspect_state(state).conversation_id
