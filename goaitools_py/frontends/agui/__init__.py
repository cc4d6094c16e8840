"""AG-UI, protocol 1.0 (npm ``@ag-ui/client``, CopilotKit and others): agents talk to a conversation.

Owns: the front end `AGUI`. Must never know: HTTP, or a store. It writes JSON itself and needs no package.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...history.turns import History
from ...types.answers import PendingCall
from ..base import Ask, FrontEnd, FrontStream, Shown, SnapshotFrontEnd
from ..pieces import Piece
from ..sse import HEADERS
from .asking import AGUIAsk, read
from .showing import agui_messages
from .streaming import AGUIStream

__all__ = ["AGUI"]


_numbers = itertools.count(1)


class _AGUI(SnapshotFrontEnd):
    """The events of AG-UI 1.0. Clients of an older version get no newer members."""

    name: str = "agui"
    headers: Mapping[str, str] = HEADERS

    def read(self, body: bytes) -> Ask:
        return read(body)

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return AGUIStream(before, goes_on=goes_on)

    def answering(self, ask: Ask, shown: Shown | None) -> FrontEnd:
        return _Answer(ask if isinstance(ask, AGUIAsk) else AGUIAsk(conversation=ask.conversation), shown)

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        return agui_messages(history, conversation_id=conversation_id, pending=pending)


class _Answer(_AGUI):
    """The answer to one request: it names the client's thread and run."""

    def __init__(self, ask: AGUIAsk, shown: Shown | None) -> None:
        self.name = f"{_AGUI.name} {next(_numbers)}"  # no other answer is the same
        self._ask = ask
        self._shown = shown

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return AGUIStream(before, goes_on=goes_on, ask=self._ask, shown=self._shown)


AGUI: Final[SnapshotFrontEnd] = _AGUI()
