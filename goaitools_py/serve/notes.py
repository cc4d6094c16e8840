"""The notes of a run for a relay, as bytes: the events that front ends write, and how it ended.

Owns: this form, which two processes with the same release of this package share. Must never know: who carries
the bytes, or a front end. Reading it runs no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from ..base.values import Value
from ..frontends import Called, Piece, Problem, Reasoned, Returned, Said, Step, Waits
from ..types.answers import PendingCall
from ..types.errors import GoAIToolsError
from ..types.events import (
    Compacted,
    ContextWarning,
    Event,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolPending,
    ToolProgress,
    TurnCompleted,
    TurnStarted,
)
from ..types.messages import Usage
from ..types.result import ChatResult, CompactionReport
from ..types.turn_warnings import TurnWarning
from ..types.usage import Bill

__all__ = ["Ended", "Found", "Note", "read_notes", "write_notes"]


class Found(Value, frozen=True):
    """The pieces of the turn from before this run; `since`: those behind the calls that a client answered."""

    before: tuple[Piece, ...] = ()
    since: tuple[Piece, ...] = ()


class Ended(Value, frozen=True):
    """The end of the run. `problem`: the error of the turn, for clients."""

    was_stopped: bool = False
    problem: Problem | None = None


Note = Event | Found | Ended

_PLAIN: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        TextDelta, TurnStarted, ModelRequested, ReasoningDelta, ModelReplied, ToolFinished, ToolPending,
        ToolProgress, ContextWarning,
    )
}  # fmt: skip
"""Events that are written field by field, without a change."""

_PIECES: Final[dict[str, type[Piece]]] = {
    kind.__name__: kind for kind in (Step, Said, Reasoned, Called, Returned, Waits)
}
_RESULT: Final = (
    "text", "status", "finish_reason", "duplicate", "model", "iterations", "context_used", "context_fraction",
    "request_ids",
)  # fmt: skip
_CUT: Final = ("outcome", "by", "reason", "removed_turns", "rewritten_turns", "removed_messages",
               "messages_before", "messages_after", "tokens_before", "tokens_after")  # fmt: skip


def write_notes(at: int, notes: Sequence[Note]) -> bytes:
    """Write notes. `at`: the place of the first one in its run, so that a reader sees a gap."""
    return msgspec.msgpack.encode([at, [_written(note) for note in notes]])


def read_notes(data: bytes) -> tuple[int, list[Note]]:
    """Read bytes of `write_notes`. Raises `GoAIToolsError` for anything else: another release wrote it."""
    try:
        at, rows = msgspec.msgpack.decode(data, type=tuple[int, list[tuple[str, Any]]])
        return at, [_read(name, fields) for name, fields in rows]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise GoAIToolsError(
            f"a relay gave notes that this release cannot read: {type(error).__name__}"
        ) from None


def _written(note: Note) -> tuple[str, Any]:
    name = type(note).__name__
    match note:
        case Found():
            return name, [_pieces(note.before), _pieces(note.since)]
        case TurnCompleted():
            return name, [note.conversation_id, note.turn_ref, _result(note.result)]
        case Compacted():
            report = {field: getattr(note.report, field) for field in _CUT}
            return name, [note.conversation_id, note.turn_ref, report]
    return name, msgspec.to_builtins(note)


def _read(name: str, fields: Any) -> Note:
    if name in _PLAIN:
        return msgspec.convert(fields, _PLAIN[name])  # type: ignore[no-any-return]
    if name == "Ended":
        return msgspec.convert(fields, Ended)
    if name == "Found":
        before, since = fields
        return Found(_pieces_in(before), _pieces_in(since))
    id, ref, told = fields
    if name == "TurnCompleted":
        return TurnCompleted(conversation_id=id, turn_ref=ref, result=_result_in(told))
    if name == "Compacted":
        return Compacted(conversation_id=id, turn_ref=ref, report=CompactionReport(**told))
    raise KeyError(name)


def _pieces(pieces: Sequence[Piece]) -> list[Any]:
    return [[type(piece).__name__, msgspec.to_builtins(piece)] for piece in pieces]


def _pieces_in(rows: Any) -> tuple[Piece, ...]:
    return tuple(msgspec.convert(fields, _PIECES[name]) for name, fields in rows)


def _result(result: ChatResult[Any]) -> dict[str, Any]:
    cost = result.total_cost_usd
    return {
        **{field: getattr(result, field) for field in _RESULT},
        "pending": msgspec.to_builtins(result.pending),
        "usage": msgspec.to_builtins(result.usage),
        "total_usage": msgspec.to_builtins(result.total_usage),
        "total_cost_usd": None if cost is None else str(cost),
        "warnings": [[warning.code, warning.message] for warning in result.warnings],
        "booked": [None if one is None else str(one) for one in result.bill.booked or (None,)],
    }


def _result_in(told: dict[str, Any]) -> ChatResult[Any]:
    cost = told["total_cost_usd"]
    return ChatResult(
        state=b"",
        **{field: told[field] for field in _RESULT if field != "request_ids"},
        request_ids=tuple(told["request_ids"]),
        pending=msgspec.convert(told["pending"], tuple[PendingCall, ...]),
        usage=msgspec.convert(told["usage"], Usage),
        total_usage=msgspec.convert(told["total_usage"], Usage),
        total_cost_usd=None if cost is None else Decimal(cost),
        warnings=tuple(TurnWarning(*row) for row in told["warnings"]),
        bill=Bill(booked=tuple(None if one is None else Decimal(one) for one in told["booked"])),
    )
