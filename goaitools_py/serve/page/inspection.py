"""A state as the page shows it: facts, turns with their model calls, cuts, raw entries, differences.

Owns: these shapes as JSON-able values. Must never know: HTTP, a store, or how a fact is drawn.
All functions take a plain blob.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from msgspec.structs import asdict

from ...history.branch import rewind_state
from ...history.diff import diff_states
from ...history.info import StateInfo, inspect_state
from ...history.transcript import HistoryIteration, HistoryTurn
from ...history.turns import read_history
from ...state.closed_turns import numbers_of
from ...state.state import closed_turns, load_state, newest_number
from ...types.errors import StateError
from ...types.messages import Usage

__all__ = ["diff_of", "facts_of", "numbers_of_turns", "raw_of", "removed_of"]

_SHOWN: Final = (
    "wire", "endpoint", "model", "conversation_id", "revision", "status", "turns", "turns_processed",
    "messages", "waiting_messages", "tokens", "context_window", "warning_level", "blob_bytes",
    "history_bytes", "format_version", "suite", "archive_bytes", "archive_records", "media", "media_bytes",
    "results", "result_bytes", "title",
)  # fmt: skip
_OF_A_REWIND: Final = ("revision", "context", "turns_ever")
"""Facts that differ because the earlier state is made by a rewind."""


def facts_of(blob: bytes) -> dict[str, Any]:
    """Give the facts of a state, and its turns, the newest first."""
    info = inspect_state(blob)
    turns = read_history(blob).turns
    return {
        "state": _state(info),
        "usage": _usage(info.total_usage),
        "aside": _usage(info.aside_usage),
        "cost_usd": None if info.total_cost_usd is None else float(info.total_cost_usd),
        "cuts": [
            {"at": at.isoformat(), "by": by, "turns": turns_gone, "messages": messages}
            for at, by, turns_gone, messages in reversed(info.cuts)
        ],
        "turns": [_turn(turn) for turn in reversed(turns) if turn.number],
        "numbers": numbers_of_turns(blob),
    }


def numbers_of_turns(blob: bytes) -> list[int]:
    """Give the numbers of all turns that a rewind counts. It also brings back turns that a cut removed."""
    try:
        turns = read_history(blob, archived=True).turns
    except StateError:  # a part of the archive is damaged, or elsewhere
        turns = read_history(blob).turns
    return [turn.number for turn in turns if turn.number]


def _state(info: StateInfo) -> dict[str, Any]:
    return {
        **{name: getattr(info, name) for name in _SHOWN},
        "created_at": info.created_at.isoformat(),
        "updated_at": info.updated_at.isoformat(),
        "roles": dict(info.roles),
        "filled": dict(info.filled),
        "topics": list(info.topics),
        "metadata": dict(info.metadata),
    }


def _usage(usage: Usage) -> dict[str, int]:
    return {name: value for name, value in asdict(usage).items() if isinstance(value, int)}


def _turn(turn: HistoryTurn) -> dict[str, Any]:
    cost = turn.cost()
    return {
        "number": turn.number,
        "status": turn.status,
        "failure": None if turn.failure is None else turn.failure[0],
        "started_at": turn.started_at.isoformat(),
        "seconds": _seconds(turn.started_at, turn.completed_at),
        "cost_usd": None if cost is None else float(cost),
        "said": _said(turn),
        "usage": _usage(turn.usage),
        "iterations": [_iteration(one) for one in turn.iterations],
    }


def _iteration(one: HistoryIteration) -> dict[str, Any]:
    return {
        "model": one.model,
        "finish_reason": one.finish_reason,
        "seconds": _seconds(one.started_at, one.completed_at),
        "usage": _usage(one.usage),
        "calls": [
            {"name": call.name, "flag": call.flag or call.waits_for, "seconds": call.seconds}
            for call in one.calls
        ],
    }


def _seconds(start: datetime, end: datetime | None) -> float | None:
    return None if end is None else (end - start).total_seconds()


def _said(turn: HistoryTurn) -> str:
    """The beginning of the user's text, or else of the reply."""
    said = (one.said for one in turn.messages if one.role == "user" and not one.is_event and one.said)
    return (next(said, "") or turn.text)[:200]


def removed_of(blob: bytes) -> list[dict[str, Any]]:
    """Give the turns that cuts removed and the archive still has, with their texts."""
    live = {turn.number for turn in read_history(blob).turns}
    try:
        whole = read_history(blob, archived=True).turns
    except StateError:  # a part of the archive is damaged, or elsewhere
        return []
    return [
        {"number": turn.number, "said": _said(turn), "reply": turn.text[:2000]}
        for turn in whole
        if turn.number and turn.number not in live
    ]


def raw_of(blob: bytes, number: int) -> list[list[str]] | None:
    """Give the stored entries of a turn as text, by iteration; None if the turn does not exist."""
    state = load_state(blob)
    closed = closed_turns(state)
    for found, turn in zip(numbers_of([turn.record for turn in closed]), closed, strict=True):
        if found == number:
            return [_texts(entries) for _, entries in turn.by_iteration()]
    if state.open is not None and number == newest_number(state):
        return [_texts(state.open.entries)]
    return None


def _texts(entries: Iterable[bytes]) -> list[str]:
    return [bytes(entry).decode("utf-8", "replace") for entry in entries]


def diff_of(blob: bytes, number: int, since: int | None = None) -> dict[str, Any] | None:
    """Compare the state after a turn with the state after an earlier one; None if one of them is not there.

    `since`: the earlier turn; 0 is the beginning of the conversation. By default it is the turn before.

    Raises ValueError if a cut that cannot be undone has changed the state after one of them.
    """
    numbers = numbers_of_turns(blob)
    if since is None:
        since = max((one for one in numbers if one < number), default=0)
    if number not in numbers or since not in (0, *numbers):
        return None
    before, after = (_state_after(blob, turn, numbers) for turn in (since, number))
    found = diff_states(before, after).to_dict()
    for name in _OF_A_REWIND:
        found["facts"].pop(name, None)
    was, now = inspect_state(before), inspect_state(after)
    return {
        "since": since,
        "added": found["added"],
        "changed": found["changed"],
        "removed": found["removed"],
        "notes_added": found["notes_added"],
        "unfinished": found["unfinished"],
        "waiting": found["waiting"],
        "facts": {
            name: pair
            for name, pair in found["facts"].items()
            if all(isinstance(value, (str, int, float)) for value in pair)
        },
        "bytes": [was.blob_bytes, now.blob_bytes],
        "history_bytes": [was.history_bytes, now.history_bytes],
    }


def _state_after(blob: bytes, number: int, numbers: Iterable[int]) -> bytes:
    newer = sum(one > number for one in numbers)
    return rewind_state(blob, newer) if newer else blob
