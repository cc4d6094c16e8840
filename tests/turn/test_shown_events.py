"""Events for a page that shows a conversation: tool calls, their results, and calls that wait."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Approve, ModelReplied, TextDelta, ToolFinished, ToolPending, ToolStarted, tool
from goaitools_py.testing import Calls, ScriptedBackend


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"dark in {place}"


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each provider API."""
    return str(request.param)


def waiting(face: Any, wire: str) -> tuple[Any, list[Any], Any]:
    """A chat, the events of a turn that waits for an approval, and that turn."""
    backend = ScriptedBackend(
        Calls([("look", {"place": "the cave"}), ("pay", {"amount": 5})]), "All paid.", wire=wire
    )
    chat = face.chat(backend, tools=[look, pay])
    turn = chat.start(None, user="Look, then pay.")
    return chat, list(turn), turn


def test_events_have_what_a_page_shows(face: Any, wire: str) -> None:
    """The calls of a reply, what a tool gets, what the model reads of its result, and what waits."""
    _, events, turn = waiting(face, wire)

    (replied,) = (one for one in events if isinstance(one, ModelReplied))
    assert [(call.name, call.parsed) for call in replied.tool_calls] == [
        ("look", {"place": "the cave"}),
        ("pay", {"amount": 5}),
    ]
    (started,) = (one for one in events if isinstance(one, ToolStarted))
    assert json.loads(started.arguments) == {"place": "the cave"}
    (finished,) = (one for one in events if isinstance(one, ToolFinished))
    assert finished.output == "dark in the cave"
    (pending,) = (one for one in events if isinstance(one, ToolPending))
    (call,) = turn.result().pending
    assert (pending.call_id, pending.name, pending.reason) == (call.id, "pay", "approval")
    assert (pending.arguments, pending.kind) == (call.arguments, "function")


def test_content_is_in_a_dictionary_only_if_asked_for(face: Any, wire: str) -> None:
    """By default `to_dict` and the repr are for logs."""
    chat, events, turn = waiting(face, wire)
    (call,) = turn.result().pending
    events += chat.start_resume(turn.state, {call.id: Approve()})
    secrets = ("the cave", "amount", "All paid")

    quiet = [one for one in events if not isinstance(one, TextDelta)]
    assert not any(secret in json.dumps(one.to_dict()) + repr(one) for one in quiet for secret in secrets)
    shown = json.dumps([one.to_dict(content=True) for one in quiet])
    assert all(secret in shown for secret in secrets)


def test_a_resume_streams(face: Any, wire: str) -> None:
    """`start_resume` runs the approved call and streams the reply; it ends as `resume` does."""
    chat, _, turn = waiting(face, wire)
    (call,) = turn.result().pending

    resumed = chat.start_resume(turn.state, {call.id: Approve(arguments={"amount": 3})})
    events = list(resumed)

    (started,) = (one for one in events if isinstance(one, ToolStarted))
    assert json.loads(started.arguments) == {"amount": 3}
    assert "".join(one.text for one in events if isinstance(one, TextDelta)) == "All paid."
    assert resumed.result().status == "complete"
    assert resumed.state == resumed.result().state


def test_what_still_waits_is_told_again(face: Any, wire: str) -> None:
    """A resume without an answer ends at once, and says what waits."""
    chat, events, turn = waiting(face, wire)

    again = list(chat.start_resume(turn.state))

    told = [one for one in events if isinstance(one, ToolPending)]
    assert [one for one in again if isinstance(one, ToolPending)] == told != []
