"""The AI SDK (npm ``ai``, versions 6 and 7): ``useChat`` and its like talk to a conversation.

Owns: the front end `AISDK`. Must never know: HTTP, or a store.
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
from .showing import ui_messages
from .streaming import UIMessageStream

__all__ = ["AISDK"]


class _AISDK(CarryingFrontEnd):
    """The UI message stream of the AI SDK, versions 6 and 7."""

    name: str = "aisdk"
    headers: Mapping[str, str] = {**HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def __init__(self, *, carries: bool = False) -> None:
        self._carries = carries

    def carrying(self) -> FrontEnd:
        return _AISDK(carries=True)

    def read(self, body: bytes) -> Ask:
        return read(body, carries=self._carries)

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return UIMessageStream(before, goes_on=goes_on, carries=self._carries)

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        return ui_messages(history, conversation_id=conversation_id, pending=pending)


AISDK: Final[CarryingFrontEnd] = _AISDK()
