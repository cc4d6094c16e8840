"""A run in two processes: its worker writes notes for a relay, and another worker builds the run from them.

Owns: both ways, and the form of the notes as bytes, which two processes with the same release of this package
share. Must never know: which relay carries them, HTTP, a front end, or how a turn is driven. Reading notes
runs no code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from ..base.values import Value, replace
from ..frontends import (
    Called,
    Piece,
    Problem,
    ProblemError,
    Reasoned,
    Returned,
    Said,
    Step,
    Waits,
    problem_of,
)
from ..frontends.plain import actions_of
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
from .relay import Opened, Relay, RelayLostError
from .runs import Run, TookIn

__all__ = [
    "ANNOUNCE_SECONDS",
    "Ended",
    "Found",
    "LostNotesError",
    "Note",
    "RunAnnouncer",
    "read_notes",
    "rebuild_run",
    "write_notes",
]


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
        ToolProgress, ContextWarning, TookIn,
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
            told = {**_result(note.result), "message_count": note.message_count}
            return name, [note.conversation_id, note.turn_ref, told]
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
        count = told["message_count"]
        return TurnCompleted(conversation_id=id, turn_ref=ref, result=_result_in(told), message_count=count)
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
        "actions": actions_of(result),
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
        actions=tuple(SimpleNamespace(**row) for row in told["actions"]),
        warnings=tuple(TurnWarning(*row) for row in told["warnings"]),
        bill=Bill(booked=tuple(None if one is None else Decimal(one) for one in told["booked"])),
    )


ANNOUNCE_SECONDS: Final = 2.0
"""How long a turn waits for the relay to take its announcement, and its end."""

_AGAIN: Final = 1.0
"""Seconds until the next try after a relay has failed; `keep_every` of the relay, if that is shorter."""

_log = logging.getLogger("goaitools_py")


class RunAnnouncer:
    """Tells a relay of a run, to its end.

    A relay that fails is logged, and asked again: the run is opened once more, and all its notes are put. The
    turn and its listeners here do not wait for that.
    """

    def __init__(self, run: Run, worker: str, relay: Relay) -> None:
        self._run = run
        self._worker = worker
        self._relay = relay
        self._opened: Opened | None = None
        self._is_open = False
        self._opening = asyncio.Lock()
        """Keeps the two that open the run apart: the relay would end with the older one of them."""
        self._is_told = asyncio.Event()
        self._kept = 0.0

    async def announce(self) -> None:
        """Let other workers find the run. No worker has heard of it before."""
        run = self._run
        self._opened = Opened(
            id=run.id,
            worker=self._worker,
            turn_id=run.turn_id,
            said=run.said_digest,
            answered=tuple(sorted(run.answered)),
        )
        try:
            async with self._opening, asyncio.timeout(ANNOUNCE_SECONDS):
                await self._open(self._opened)
        except Exception as error:
            _warn(error)

    async def tell_all(self) -> None:
        """Put the run's events as they come, and its end. A run that was not announced sends nothing."""
        run = self._run
        while not run.has_news:  # a message that steers may wait long for a turn of its own
            await run.news_within(None)
        if self._opened is None:
            return
        now = asyncio.get_running_loop().time
        ended_at = None
        while True:
            try:
                async with self._opening:
                    if not self._is_open:
                        self._opened = replace(self._opened, again=self._opened.again + 1)
                        await self._open(self._opened)
                        self._is_told.clear()
                await self._put_all(self._opened)
                await self._relay.end(run.key, self._opened, "good" if run.is_good else "bad")
                break
            except Exception as error:
                if self._is_open:
                    _warn(error)
                self._is_open = False
                self._is_told.set()  # the turn does not wait for the relay
            if run.is_ending:
                ended_at = ended_at or now()
                if now() - ended_at > 3 * self._relay.keep_every:
                    break
            await asyncio.sleep(_pause(self._relay))
        self._is_told.set()

    async def last_words(self) -> None:
        """Wait until the relay knows how the run ended. Then another worker that the client asks next does
        not show this run as running."""
        self._run.finish()
        if self._opened is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_SECONDS):
                    await self._is_told.wait()

    async def _open(self, opened: Opened) -> None:
        await self._relay.open(self._run.key, opened)
        self._is_open, self._kept = True, asyncio.get_running_loop().time()

    async def _put_all(self, opened: Opened) -> None:
        run = self._run
        notes: list[Note] = [Found(run.before, run.since)]
        at = sent = 0
        while True:
            is_over = run.is_ending
            notes += run.events[sent:]
            sent = len(run.events)
            if is_over:
                problem = None if run.error is None else problem_of(run.error)
                notes.append(Ended(run.was_stopped, problem))
            if notes:
                await self._relay.put(opened, write_notes(at, notes))
                at += len(notes)
                notes = []
            if is_over:
                return
            left = self._kept + self._relay.keep_every - asyncio.get_running_loop().time()
            if left > 0 and (sent < len(run.events) or run.is_ending or await run.news_within(left)):
                continue
            await self._relay.keep(run.key, opened)
            self._kept = asyncio.get_running_loop().time()


def _pause(relay: Relay) -> float:
    return min(_AGAIN, relay.keep_every)


def _warn(error: Exception) -> None:
    _log.warning("a relay failed with %s: other workers do not see a turn", type(error).__name__)


class LostNotesError(RelayLostError):
    """The relay has dropped the beginning of a run, which is longer than the relay keeps."""


async def rebuild_run(run: Run, opened: Opened, relay: Relay) -> None:
    """Build a run from the notes of a relay.

    A relay that fails is asked again, for as long as a worker may be silent. A run that cannot be followed to
    its end ends as lost.
    """
    now = asyncio.get_running_loop().time
    at, failed_at = 0, None
    while not run.is_over:
        try:
            async for entries in relay.follow(run.key, opened):
                failed_at = None
                for entry in entries:
                    begin, notes = read_notes(entry)
                    if begin > at:
                        raise LostNotesError("the relay has dropped the beginning of the run")
                    for note in notes[at - begin :]:  # notes that were put again are known
                        _tell(run, note)
                    at = max(at, begin + len(notes))
            if not run.is_over:
                raise RelayLostError("the run has no end")
        except GoAIToolsError as error:
            if not isinstance(error, RelayLostError):
                _warn_of_view(error)
            run.lose(error)
        except Exception as error:
            if failed_at is None:
                _warn_of_view(error)
                failed_at = now()
            elif now() - failed_at > 3 * relay.keep_every:
                run.lose(error)
                return
            await asyncio.sleep(_pause(relay))


def _warn_of_view(error: Exception) -> None:
    _log.warning("a relay failed with %s; a turn cannot be followed", type(error).__name__)


def _tell(run: Run, note: Note) -> None:
    match note:
        case Found():
            run.before, run.since = note.before, note.since
        case Ended():
            run.was_stopped = note.was_stopped
            run.error = None if note.problem is None else ProblemError(note.problem)
            run.end()
        case _:
            run.tell(note)
