"""The numbers of a turn's model calls, and the name of a turn, as tools, events and results give them."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Approve, ModelReplied, ModelRequested, ToolContext, ToolFinished, ToolStarted, tool
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

from ._desk import Desk, look, pay


def numbers(events: list[Any], kind: type) -> list[int]:
    """The iterations that events of one class name."""
    return [event.iteration for event in events if isinstance(event, kind)]


def test_model_calls_are_counted_from_1(face: Any, wire: str, run: Any) -> None:
    """Events, tools, the log and the history give the same number to the same model call."""
    desk, events = Desk(face, wire), []
    desk.script([look("a")], [look("b")], "Done.")

    result = run(desk.chat(on_event=events.append), user="Look twice.")

    assert numbers(events, ModelRequested) == numbers(events, ModelReplied) == [1, 2, 3]
    assert numbers(events, ToolStarted) == numbers(events, ToolFinished) == [1, 2]
    assert [record.iteration for record in result.tool_log] == [1, 2]
    assert result.iterations == 3
    history = read_history(result.state)
    for record in result.tool_log:
        assert record.call in history.iteration(record.iteration).tool_calls
    for number in (0, -1, 4):
        with pytest.raises(IndexError, match="counted from 1"):
            history.iteration(number)


def test_the_numbers_go_on_after_a_resume(face: Any, wire: str) -> None:
    """A call that waited has the number of the reply that made it; the next model call has the next one."""
    desk, events = Desk(face, wire), []
    desk.script([look("a")], [pay(5), look("b")], "Done.")
    first = desk.chat().chat(user="Go on.")

    result = desk.chat(on_event=events.append).resume(
        first.state, {call.id: Approve() for call in first.pending}
    )

    assert [record.iteration for record in first.tool_log] == [1, 2]
    assert numbers(events, ToolStarted) == numbers(events, ToolFinished) == [2]
    assert numbers(events, ModelRequested) == numbers(events, ModelReplied) == [3]
    assert [record.iteration for record in result.tool_log] == [2, 2]
    assert (first.iterations, result.iterations) == (2, 1)


def test_an_unfinished_turn_has_an_iteration_for_each_model_call(face: Any, wire: str) -> None:
    """Each knows its number and the turn's metadata; unread results belong to the last one."""
    desk = Desk(face, wire)
    desk.script("Hello.", [look("a"), pay(5)])
    chat = desk.chat()
    first = chat.chat_with_state(None, user="Hello.", metadata={"channel": "web"})
    waits = chat.chat_with_state(first.state, user="Pay.", metadata={"channel": "app"})

    history = read_history(waits.state)

    assert [[one.number for one in turn.iterations] for turn in history.turns] == [[1], [2]]
    assert [dict(history.iteration(number).metadata) for number in (1, 2)] == [
        {"channel": "web"},
        {"channel": "app"},
    ]
    unfinished = history.turns[-1].iterations[0]
    assert [message.role for message in unfinished.messages if message.role != "system"][:2] == [
        "user",
        "assistant",
    ]
    assert [call.flag for call in unfinished.calls] == ["ok", None]
    assert unfinished.usage.requests == 1
    assert [found["number"] for turn in history.to_dict()["turns"] for found in turn["iterations"]] == [1, 2]


def test_a_reply_that_comes_again_has_a_number(face: Any, wire: str) -> None:
    """The stored reply of a `turn_id` is told with a delta that has a number, too."""
    desk, events = Desk(face, wire), []
    desk.script("Done.")
    first = desk.chat().chat(user="Go on.", turn_id="m1")

    again = desk.chat(on_event=events.append).chat_with_state(first.state, user="Go on.", turn_id="m1")

    assert again.duplicate
    assert [event.iteration for event in events if hasattr(event, "iteration")] == [1]


@pytest.mark.parametrize("turn_id", ["webhook-17", None])
def test_a_tool_knows_its_turn_by_the_callers_id(face: Any, turn_id: str | None) -> None:
    """`ctx.turn_id` is the option `turn_id`; without one it is what events call `turn_ref`."""
    seen: list[str] = []
    refs: set[str] = set()

    @tool
    def note(ctx: ToolContext[Any]) -> str:
        """Note the turn."""
        seen.append(ctx.turn_id)
        return "noted"

    backend = ScriptedBackend(Calls([("note", {})]), "Done.")
    chat = face.chat(backend, tools=[note], on_event=lambda event: refs.add(event.turn_ref))

    chat.chat(user="Go.", turn_id=turn_id)

    assert seen == ([turn_id] if turn_id else sorted(refs))
    assert len(refs) == 1
