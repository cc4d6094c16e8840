"""Several texts, one turn each: the progress of the series, also after an error.

Owns: which texts are left, and the attributes of an exception about them. Must never know: how a turn runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..types.errors import StateError, TurnError
from ..types.result import ChatResult
from ..types.turn_warnings import TurnWarning

if TYPE_CHECKING:
    from ..types.messages import Message

__all__ = ["Series"]


class _Running(Protocol):
    """A turn's handle."""

    @property
    def state(self) -> bytes: ...


class _Place(NamedTuple):
    state: bytes
    left: tuple[str, ...]
    turn: _Running | None


class Series:
    """The texts of one `run_turns`.

    Its place is one value that one assignment replaces. So an interrupt at any instant finds a state and
    texts that belong together.

    Args:
        state: The state for the first turn.
        texts: The messages of the user, in order.
        stops: True if a turn that waits for answers ends the series.
    """

    def __init__(self, state: bytes, texts: Sequence[str], *, stops: bool) -> None:
        self._place = _Place(state, tuple(texts), None)
        self._stops = stops
        self._discarded: StateError | None = None
        self._told: tuple[TurnWarning, ...] = ()

    @property
    def state(self) -> bytes:
        """The state for the next turn."""
        return self._place.state

    @property
    def text(self) -> str:
        """The user's message of the next turn."""
        return self._place.left[0]

    def begin(self, turn: _Running) -> None:
        """The next text's turn is made."""
        self._place = self._place._replace(turn=turn)

    def end(self, result: ChatResult) -> ChatResult | None:
        """That turn has a result. Gives the series' result if the series is over."""
        left = self._place.left[1:]
        if result.discarded is not None:  # by the first turn; its bytes are nowhere else
            self._discarded = result.discarded
            self._told = tuple(one for one in result.warnings if one.code == "state_discarded")
        self._place = _Place(result.state, left, None)
        if left and not (self._stops and result.status == "awaiting_tools"):
            return None
        if self._discarded is not None and result.discarded is None:
            warnings = (*self._told, *result.warnings)
            result = dataclasses.replace(result, discarded=self._discarded, warnings=warnings)
        return dataclasses.replace(result, turns_left=left) if left else result

    def tell(self, exc: BaseException) -> None:
        """Put the state so far on an exception, and the texts that are not in it or in `pending_input`."""
        given, left, turn = self._place
        state = given
        handed_back: tuple[Message, ...] = ()
        if isinstance(exc, TurnError):
            state, handed_back = exc.state, exc.pending_input
            exc.discarded = exc.discarded or self._discarded
        elif turn is not None:
            with suppress(StateError):  # the turn is too large to be written
                state = turn.state
        was_said = state != given or bool(handed_back)
        vars(exc).update(state=state, turns_left=left[1:] if was_said else left)
