"""Calls of Anthropic's client toolsets wait for the caller, and each result names its toolset."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Compactor, Deny, Image, ProviderTool, ToolReturn, TurnLimit
from goaitools_py.compaction import ClearToolResults, DropMedia
from goaitools_py.sim import Reply
from goaitools_py.states import convert_state, read_history, state_from_messages, state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC, history_sent

pytestmark = pytest.mark.parametrize("wire", [ANTHROPIC])

COMPUTER = ProviderTool({"type": "computer_toolset_20260801"})
PICTURE = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2000))
CLICK = ("left_click", '{"coordinate":[1,2]}')
LOOK = ("screenshot", "{}")


def clicks(*calls: tuple[str, str], **more: Any) -> Reply:
    return Reply.calls(*(calls or (CLICK,)), toolset="computer", **more)


def results(messages: list[Any]) -> list[dict[str, Any]]:
    """All results of a history."""
    blocks = [block for one in messages if isinstance(one["content"], list) for block in one["content"]]
    return [block for block in blocks if block["type"] == "tool_result"]


def test_a_call_waits_and_its_answer_names_the_toolset(face: Any, sim: Any, run: Any) -> None:
    """Several in one reply; a tool of one's own with a member's name is not run."""
    ran: list[str] = []

    def screenshot() -> str:
        """Not the toolset's."""
        ran.append("own")
        return "no"

    chat = face.on(sim, tools=[screenshot, COMPUTER])
    sim.push(clicks(CLICK, LOOK), Reply.text("Done."), Reply.text("Welcome."))

    waiting = run(chat, user="Open the calendar.")
    first, second = waiting.pending
    answers = {first.id: ToolReturn("clicked"), second.id: ToolReturn(["the screen", PICTURE])}
    done = chat.resume(waiting.state, answers)
    run(chat, done.state, user="Thanks.")

    assert waiting.status == "awaiting_tools"
    assert [(call.name, call.raw["name"], call.reason) for call in (first, second)] == [
        ("computer", "left_click", "external"),
        ("computer", "screenshot", "external"),
    ]
    assert first.raw["input"] == {"coordinate": [1, 2]}
    assert ran == []
    sent = results(history_sent(sim.requests[-1]))
    assert [block["toolset_name"] for block in sent] == ["computer", "computer"]
    assert [part["type"] for part in sent[1]["content"]] == ["text", "image"]
    assert sim.problems == []


@pytest.mark.parametrize(
    "answer",
    [
        Deny("no"),
        ToolReturn("no such window", is_error=True),
        ToolReturn("", is_error=True),
        ToolReturn(["no such window", PICTURE], is_error=True),
        ToolReturn({"content": [{"type": "text", "text": "ok"}]}),
        ToolReturn(""),
    ],
    ids=["denied", "error", "empty error", "error with a picture", "members", "nothing"],
)
def test_every_answer_is_taken(face: Any, sim: Any, run: Any, answer: Any) -> None:
    """Now and later."""
    chat = face.on(sim, tools=[COMPUTER])
    sim.push(clicks(), Reply.text("Done."), Reply.text("Welcome."))
    waiting = run(chat, user="Open the calendar.")

    done = chat.resume(waiting.state, {waiting.pending[0].id: answer})
    run(chat, done.state, user="Thanks.")

    assert [block["toolset_name"] for block in results(history_sent(sim.requests[-1]))] == ["computer"]
    assert sim.problems == []


@pytest.mark.parametrize("value", [7, {"text": "x"}, {"content": [{1, 2}]}, [1], {"content": 7}], ids=repr)
def test_what_is_no_answer_is_refused_before_anything_is_sent(face: Any, sim: Any, value: Any) -> None:
    """The text says what is expected."""
    chat = face.on(sim, tools=[COMPUTER])
    sim.push(clicks())
    waiting = chat.chat(user="Open the calendar.")

    with pytest.raises(ValueError, match="the answer to a call of the toolset 'computer' is text, an Image"):
        chat.resume(waiting.state, {waiting.pending[0].id: ToolReturn(value)})

    assert len(sim.requests) == 1


def test_a_call_that_nobody_answers_is_closed_in_its_toolset(face: Any, sim: Any, run: Any) -> None:
    """The next message goes on; so do calls with the ids of earlier ones."""
    chat = face.on(sim, tools=[COMPUTER], on_pending="deny")
    sim.push(clicks(ids=("toolu_1",)), clicks(ids=("toolu_1",)), Reply.text("Done."), Reply.text("Welcome."))

    state = run(chat, user="Open the calendar.").state
    waiting = run(chat, state, user="Well?")
    (call,) = waiting.pending
    done = chat.resume(waiting.state, {call.id: ToolReturn("clicked")})
    run(chat, done.state, user="Thanks.")

    assert call.id == call.raw["id"] != "toolu_1"
    assert [block["toolset_name"] for block in results(history_sent(sim.requests[-1]))] == ["computer"] * 2
    assert sim.problems == []


@pytest.mark.parametrize("strategy", [ClearToolResults(keep=0), DropMedia(after_turns=1)], ids=repr)
def test_a_cleared_result_names_its_toolset(face: Any, sim: Any, strategy: Any) -> None:
    """What a compaction writes in its place, too; other provider APIs get the calls as functions."""
    chat = face.on(sim, tools=[COMPUTER])
    sim.push(clicks(), Reply.text("Done."), Reply.text("Hello."), Reply.text("Welcome."))
    waiting = chat.chat(user="Open the calendar.")
    state = chat.resume(waiting.state, {waiting.pending[0].id: ToolReturn(PICTURE)}).state
    state = chat.chat_with_state(state, user="Hello.").state

    cut = chat.compact_state(state, Compactor(TurnLimit(1), strategy)).state
    chat.chat_with_state(cut, user="Thanks.")

    assert [block["toolset_name"] for block in results(history_sent(sim.requests[-1]))] == ["computer"]
    assert not any(isinstance(part, Image) for one in read_history(cut).all_messages() for part in one.parts)
    assert sim.problems == []
    for to in ("openai", "openai-responses"):
        moved = convert_state(state, to)
        assert check_history(to, state_messages(moved.state)) == []
        assert any(loss.kind == "provider_call" for loss in moved.losses)


def test_an_imported_result_gets_its_toolset(face: Any, sim: Any) -> None:
    """A history without the name is refused, or mended."""
    use = {"type": "tool_use", "id": "c1", "name": "left_click", "input": {}, "toolset_name": "computer"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "ok"}]}
    messages = [
        {"role": "user", "content": "Click!"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "Done."},
    ]

    with pytest.raises(ValueError, match="needs the call's toolset_name"):
        state_from_messages(ANTHROPIC, messages)
    state = state_from_messages(ANTHROPIC, messages, repair=True)
    face.on(sim, tools=[COMPUTER]).chat_with_state(state, user="Thanks.")

    (sent,) = results(history_sent(sim.requests[-1]))
    assert sent == {**result, "toolset_name": "computer"}
    assert sim.problems == []
