"""Observers see a turn and cannot hurt it: what they raise is logged by class, never by content."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from goaitools_py import (
    Compacted,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ModelReplied,
    ModelRequested,
    StateDiscarded,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnCompleted,
    TurnStarted,
)
from goaitools_py.sim import Reply


def test_a_failing_observer_is_logged_by_class(
    face: Any, sim: Any, scores: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn goes on as without it; the log names the exception's class and the event's, nothing else."""

    def observe(event: Any) -> None:
        raise LookupError("a secret")

    chat = face.on(sim, tools=[scores.get_score], on_event=observe)
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')))

    with caplog.at_level(logging.DEBUG, logger="goaitools_py"):
        result = chat.chat(user="The score of Red?")

    own = [record.getMessage() for record in caplog.records if record.name.startswith("goaitools_py")]
    assert "on_event raised LookupError for TurnStarted" in own
    assert "on_event raised LookupError for TurnCompleted" in own
    assert not any("secret" in message for message in own)
    assert all(record.exc_info is None for record in caplog.records if record.name.startswith("goaitools_py"))
    assert result.status == "complete"
    assert scores.runs == ["Red"]


def test_the_events_of_a_turn_in_order(face: Any, sim: Any, scores: Any) -> None:
    """Started, then request and reply around each exchange's tools, text in pieces, completed last."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Reply.text("Red has 7."))

    events = list(chat.start(None, user="The score of Red?"))

    wanted = (TurnStarted, ModelRequested, TextDelta, ModelReplied, ToolStarted, ToolFinished, TurnCompleted)
    assert [type(e).__name__ for e in events if isinstance(e, wanted)] == [
        "TurnStarted",
        "ModelRequested",
        "ModelReplied",
        "ToolStarted",
        "ToolFinished",
        "ModelRequested",
        "TextDelta",
        "TextDelta",
        "TextDelta",
        "ModelReplied",
        "TurnCompleted",
    ]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Red has 7."
    assert [e.message_count for e in events if isinstance(e, ModelReplied)] == [2, 4]


def test_an_observer_sees_what_an_iterator_sees(face: Any, sim: Any) -> None:
    """`on_event` gets each event once, and `text_deltas` are the pieces of the text."""
    told: list[Any] = []
    chat = face.on(sim)
    sim.push(Reply.text("Once upon a time."))

    events = list(chat.start(None, user="A story.", on_event=told.append))

    assert told == events


def test_events_as_dictionaries_are_json_without_a_state(face: Any, sim: Any, scores: Any) -> None:
    """`to_dict` is fit for a log or a socket: JSON, named by type, and no blob in it."""
    chat = face.on(sim, tools=[scores.get_score])
    before = chat.run_turns(None, ["Hello.", "Hello again."]).state
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')))
    events = list(chat.start(before[:-1], user="The score of Red?"))
    events += chat.start(before, user="Bye.", compactor=Compactor(MessageLimit(1), KeepRecentTurns(1)))
    assert {StateDiscarded, Compacted} <= {type(event) for event in events}

    for event in events:
        as_dict = json.loads(json.dumps(event.to_dict()))
        assert as_dict["type"] == type(event).__name__
        assert not {"state", "blob", "result"} & set(as_dict)
