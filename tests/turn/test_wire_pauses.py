"""Replies that the provider pauses in the midst of its own tool: sent again as they are, until they end."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ModelReplied, ModelSettings, ProviderTool, ProviderUnavailableError
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC, history_sent, parts_of, roles, unmarked_history, users

pytestmark = pytest.mark.parametrize("wire", [ANTHROPIC])

SEARCH = ProviderTool({"type": "web_search_20250305", "name": "web_search"})
PAUSE = Reply.pause("Let me search. ")
FOUND = Reply.text("Nothing was found.")
MAX_PAUSES = 8


def searching(face: Any, sim: Any, **fields: Any) -> Any:
    """A chat with a tool that the provider runs."""
    return face.on(sim, **{"tools": [SEARCH], **fields})


def paused_state(face: Any, sim: Any, before: bytes | None = None) -> bytes:
    """The state of a turn that was given up right behind its first, paused reply."""
    sim.push(PAUSE)
    turn = searching(face, sim).start(before, user="What is the score?")
    for event in turn:
        if isinstance(event, ModelReplied):
            break
    turn.cancel()
    state: bytes = turn.state
    return state


def test_a_paused_reply_goes_on(face: Any, sim: Any, run: Any) -> None:
    """It is sent again unchanged, and what both replies say is one answer."""
    chat = searching(face, sim)
    sim.push(PAUSE, FOUND, Reply.text("Welcome."))

    result = run(chat, user="What is the score?")
    after = run(chat, result.state, user="Thanks.")

    assert (result.text, result.status) == ("Let me search. Nothing was found.", "complete")
    assert (result.iterations, result.usage.requests, result.warnings) == (2, 2, ())
    first, second, third = (unmarked_history(request) for request in sim.requests)
    assert second.startswith(first[:-1])
    assert third.startswith(second[:-1])
    resent = history_sent(sim.requests[1])[-1]
    assert resent == state_messages(result.state)[1]
    assert [block["type"] for block in resent["content"]] == ["text", "server_tool_use"]
    assert roles(result.state) == ["user", "assistant", "assistant"]
    assert check_history(ANTHROPIC, state_messages(result.state)) == []
    assert after.text == "Welcome."
    assert sim.problems == []


def test_a_paused_reply_keeps_its_thinking(face: Any, sim: Any, run: Any) -> None:
    """Signed thinking before the pause is a part of what is sent again, byte for byte."""
    settings = ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096)
    chat = searching(face, sim, settings=settings)
    sim.push(Reply.pause("Let me search. ", thinking="Where would it be?"), FOUND)

    result = run(chat, user="What is the score?")
    run(chat, result.state, user="Thanks.")

    (thought, _) = parts_of(state_messages(result.state), "thinking")
    assert thought["thinking"] == "Where would it be?"
    assert parts_of(history_sent(sim.requests[1]), "thinking") == [thought]
    assert result.text == "Let me search. Nothing was found."
    assert sim.problems == []


def test_a_pause_may_end_in_a_call(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """The continuation of a paused reply calls a tool of ours: it runs once, and the turn goes on."""
    chat = searching(face, sim, tools=[SEARCH, scores.get_score])
    sim.push(PAUSE, Reply.calls(("get_score", '{"team":"Red"}'), text="Not there. "), Reply.text("7."))

    result = run(chat, user="What is the score?")

    assert scores.runs == ["Red"]
    assert (result.text, result.status) == ("7.", "complete")
    assert roles(result.state) == ["user", "assistant", "assistant", "tool", "assistant"]
    assert sim.problems == []


def test_pauses_end(face: Any, sim: Any, run: Any) -> None:
    """After eight pauses the turn is over: limited, with a warning, and the conversation goes on."""
    chat = searching(face, sim)
    sim.push(*[Reply.pause(f"{number} ") for number in range(MAX_PAUSES + 1)])

    result = run(chat, user="What is the score?")
    after = run(chat, result.state, user="Never mind.")

    assert len(sim.requests) == 1 + MAX_PAUSES + 1
    assert (result.status, result.text) == ("limited", "0 1 2 3 4 5 6 7 8 ")
    assert [warning.code for warning in result.warnings] == ["limit_reached"]
    assert check_history(ANTHROPIC, state_messages(result.state)) == []
    assert after.status == "complete"
    assert sim.problems == []


def test_eight_pauses_are_allowed(face: Any, sim: Any, run: Any) -> None:
    """A reply that is whole after its eighth pause is complete."""
    sim.push(*[PAUSE] * MAX_PAUSES, FOUND)

    result = run(searching(face, sim), user="What is the score?")

    assert (result.status, result.warnings) == ("complete", ())
    assert result.text == "Let me search. " * MAX_PAUSES + "Nothing was found."
    assert sim.problems == []


def test_a_turn_that_died_in_a_pause_is_resumed(face: Any, sim: Any) -> None:
    """The state behind the pause goes on: the same blocks are sent, and the text is whole."""
    state = paused_state(face, sim)
    sim.push(FOUND)

    result = searching(face, sim).resume(state)

    assert inspect_state(state).status == "in_progress"
    assert (result.text, result.status) == ("Let me search. Nothing was found.", "complete")
    assert users(result.state) == ["What is the score?"]
    assert parts_of(history_sent(sim.requests[1]), "server_tool_use")
    assert sim.problems == []


def test_a_checkpoint_stands_behind_each_pause(face: Any, sim: Any) -> None:
    """Another process can go on from the blob that was kept behind the pause."""
    kept: list[bytes] = []
    sim.push(PAUSE, FOUND, FOUND)
    searching(face, sim).chat(user="What is the score?", on_checkpoint=kept.append)

    result = searching(face, sim).resume(kept[0])

    assert len(kept) == 2
    assert result.text == "Let me search. Nothing was found."
    assert sim.problems == []


def test_a_failure_behind_a_pause_is_resumed(face: Any, sim: Any, run: Any) -> None:
    """A paused reply is paid for: the error's state has it, and only its continuation is asked again."""
    chat = searching(face, sim)
    sim.push(PAUSE, Fault.server_error(), FOUND)

    with pytest.raises(ProviderUnavailableError) as caught:
        run(chat, user="What is the score?")
    result = chat.resume(caught.value.state)

    assert caught.value.usage.requests == 1
    assert result.text == "Let me search. Nothing was found."
    assert unmarked_history(sim.requests[2]) == unmarked_history(sim.requests[1])
    assert sim.problems == []


@pytest.mark.parametrize("before", [False, True], ids=["first turn", "second turn"])
def test_another_message_cuts_the_open_search(face: Any, sim: Any, run: Any, before: bool) -> None:
    """Nobody will answer the hosted call any more: it leaves the history, what was said stays."""
    earlier = face.on(sim).chat(user="My name is Ada.").state if before else None
    state = paused_state(face, sim, earlier)

    result = run(searching(face, sim), state, user="Never mind. What is my name?")

    assert [warning.code for warning in result.warnings if warning.code == "turn_closed"] == ["turn_closed"]
    assert parts_of(state_messages(result.state), "server_tool_use") == []
    assert "Let me search. " in [block["text"] for block in parts_of(history_sent(sim.requests[-1]), "text")]
    assert ("Your name is Ada." in result.text) == before
    assert sim.problems == []


def test_a_pause_that_said_nothing_leaves_nothing(face: Any, sim: Any, run: Any) -> None:
    """A reply of one open hosted call only is gone with it; the next turn is taken all the same."""
    sim.push(Reply.pause())
    turn = searching(face, sim).start(None, user="What is the score?")
    for event in turn:
        if isinstance(event, ModelReplied):
            break
    turn.cancel()

    result = run(searching(face, sim), turn.state, user="Never mind.")

    assert roles(result.state) == ["user", "user", "assistant"]
    assert sim.problems == []
