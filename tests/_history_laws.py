"""What holds for the history of any state, whatever happened in its conversation.

Owns: these laws. Must never know: how the state came to be. A law that is broken is an AssertionError.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from goaitools_py.base.values import replace
from goaitools_py.state.state import load_state
from goaitools_py.states import HISTORY_SCHEMA, History, inspect_state, pending_calls, read_history

__all__ = ["check", "texts_in"]

CHECK = jsonschema_rs.validator_for(dict(HISTORY_SCHEMA))
UNFINISHED = ("awaiting_tools", "in_progress", "failed")


def check(blob: bytes, **reading: Any) -> History:
    """Check all laws for a state; give its history."""
    history = read_history(blob, **reading)
    state = load_state(blob, **reading)
    _check_calls(history, blob, reading)
    _check_ends(history, state, inspect_state(blob, **reading))
    _check_json(history)
    return history


def _check_calls(history: History, blob: bytes, reading: dict[str, Any]) -> None:
    """A call stands in the iteration that made it, with the result that answers it, or says why it waits."""
    opened = load_state(blob, **reading).open
    unfinished = {call.id: call for call in opened.calls if call.state != "done"} if opened else {}
    waits = {call.id: call.reason for call in pending_calls(blob, **reading)}
    for turn in history.turns:
        is_open = opened is not None and turn is history.turns[-1]
        results = [message for message in turn.messages if message.role == "tool"]
        if not is_open:
            assert set(turn.facts.get("flags", {})) <= {call.id for call in turn.calls}, (
                "a flag is of no call"
            )
        for iteration in turn.iterations:
            assert [(c.id, c.name, c.arguments, c.kind) for c in iteration.calls] == [
                (c.id, c.name, c.arguments, c.kind) for c in iteration.tool_calls
            ]
        for call in turn.calls:
            if is_open and call.id in unfinished:
                assert (call.flag, call.parts, call.result) == (None, (), None)
                assert call.waits_for == waits.get(call.id, "")
            else:
                assert call.waits_for == ""
                assert call.flag == turn.facts.get("flags", {}).get(call.id, "ok")
                assert call.parts in [one.parts for one in results if one.tool_call_id == call.id]
    assert history.tool_calls() == tuple(call for turn in history.turns for call in turn.calls)


def _check_ends(history: History, state: Any, info: Any) -> None:
    """Numbers grow, ids name them; only the last turn may be unfinished, and has the status of its state."""
    numbers = [turn.number for turn in history.turns if turn.number]
    assert numbers == sorted(set(numbers))
    assert [turn.id for turn in history.turns if turn.number] == [f"{state.meta.id}-{n}" for n in numbers]
    is_open = state.open is not None and bool(state.open.entries)
    if is_open:
        assert history.turns[-1].number == state.meta.processed + 1
        assert history.turns[-1].status in UNFINISHED
        assert history.turns[-1].status == info.status
    for turn in history.turns[: len(history.turns) - is_open]:
        assert turn.status not in ("awaiting_tools", "in_progress")
        assert (turn.status == "failed") == (turn.failure is not None)
        assert turn.status != "complete" or turn.text or turn.calls or not turn.partial_text
    spent = sum(turn.usage.total_tokens for turn in history.turns)
    assert spent <= info.total_usage.total_tokens or not info.total_usage.total_tokens


def _check_json(history: History) -> None:
    """The JSON fits its schema, counts iterations as `iteration` does, and has each text once."""
    for media in (False, True):
        told = json.loads(json.dumps(history.to_dict(media=media), allow_nan=False))
        CHECK.validate(told)
    every = [one for turn in told["turns"] for one in turn["iterations"]]
    for at, iteration in enumerate(every, 1):
        assert iteration["number"] == at
        found = history.iteration(at)
        assert iteration["started_at"] == found.started_at.isoformat()
        assert history.iteration_messages(at) == found.messages
    wanted: list[str] = []
    for turn in history.turns:
        ids = {call.id for call in turn.calls}
        wanted += [m.said for m in turn.messages if m.role != "tool" or m.tool_call_id not in ids]
        shown = [replace(call, whole=None) for call in turn.calls]  # what the model reads of long results
        wanted += [call.result for call in shown if call.result is not None]
    wanted += [message.said for message in history.waiting]
    assert sorted(texts_in(told)) == sorted(wanted)
    assert [one["speaker"] for one in told["turns"]] == [turn.speaker for turn in history.turns]


def texts_in(told: dict[str, Any]) -> list[str]:
    """The texts of all messages and results of a history's JSON, without blocks."""
    messages = [m for turn in told["turns"] for one in turn["iterations"] for m in one["messages"]]
    messages += told["waiting"]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    holders = [*messages, *(call["result"] for call in calls if call.get("result") is not None)]
    return [
        "".join(part["text"] for part in one["parts"] if part["type"] == "text" and "block" not in part)
        for one in holders
    ]
