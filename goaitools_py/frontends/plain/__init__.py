"""Plain JSON and plain server-sent events, for programs in any language.

Owns: the front end `PLAIN_JSON`. Must never know: HTTP, or a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...history.turns import History
from ...types.answers import PendingCall
from ..base import Ask, CarryingFrontEnd, FrontEnd, FrontStream
from ..pieces import Piece
from ..sse import HEADERS
from .asking import read
from .showing import messages_of
from .streaming import PlainStream

__all__ = ["PLAIN_JSON"]


class _PlainJSON(CarryingFrontEnd):
    """Plain JSON, and server-sent events with names."""

    name: str = "plain"
    headers: Mapping[str, str] = HEADERS

    def __init__(self, *, carries: bool = False) -> None:
        self._carries = carries

    def carrying(self) -> FrontEnd:
        return _PlainJSON(carries=True)

    def read(self, body: bytes) -> Ask:
        return read(body, carries=self._carries)

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return PlainStream(before, carries=self._carries)

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        return messages_of(history, conversation_id=conversation_id, pending=pending)


PLAIN_JSON: Final[CarryingFrontEnd] = _PlainJSON()
