"""Writes a turn as plain server-sent events.

Owns: the names of the events. Must never know: HTTP, or who listens.

``started {turn}``, then ``text {text}``, ``reasoning {text}``, ``tool_call {id, name, arguments}``,
``progress {id, progress, total, message}``, ``tool_result {id, flag, output}`` and ``pending {id, reason}``
in any number, and at the end one of ``done`` (the result, as in JSON), ``stopped`` and ``error`` (a problem
document of RFC 9457).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...types.events import Event, ToolProgress, TurnCompleted, TurnStarted
from ..base import FrontStream
from ..pieces import Piece, pieces_of_event
from ..problems import problem_of
from ..progress import progress_of
from ..sse import frame
from ..states import state_of
from .showing import piece_of, result_of

__all__ = ["PlainStream"]


class PlainStream(FrontStream):
    """The events of one turn. `before`: its pieces so far. `carries`: the client keeps the state."""

    def __init__(self, before: Sequence[Piece] = (), *, carries: bool = False) -> None:
        self._before = tuple(before)
        self._carries = carries
        self._has_begun = False

    def feed(self, event: Event) -> list[bytes]:
        """Write an event."""
        if isinstance(event, TurnCompleted):
            told = {**result_of(event.result, event.turn_ref), **self._carried(event.result)}
            return [*self._begin(event.turn_ref), frame(told, event="done")]
        if isinstance(event, ToolProgress):
            told = {"id": event.call_id, **progress_of(event)}
            return [*self._begin(event.turn_ref), frame(told, event="progress")]
        pieces = pieces_of_event(event)
        if not pieces and not isinstance(event, TurnStarted):
            return []
        return [*self._begin(event.turn_ref), *_written(pieces)]

    def fail(self, error: BaseException) -> list[bytes]:
        """End with ``error``."""
        return [frame({**problem_of(error).to_dict(), **self._carried(error)}, event="error")]

    def stop(self) -> list[bytes]:
        """End with ``stopped``."""
        return [frame({}, event="stopped")]

    def _carried(self, of: object) -> dict[str, str]:
        return state_of(of) if self._carries else {}

    def _begin(self, turn_ref: str) -> list[bytes]:
        if self._has_begun:
            return []
        self._has_begun = True
        return [frame({"turn": turn_ref}, event="started"), *_written(self._before)]


def _written(pieces: Iterable[Piece]) -> list[bytes]:
    found = (piece_of(piece) for piece in pieces)
    return [frame(one[1], event=one[0]) for one in found if one is not None]
