"""Shortens answers from outside to the room that the state has.

Owns: the check of each answer as it enters the journal, and the warning of media that are left out.
Must never know: who answers, or the provider API's form of an answer.

An answer may be refused: the caller still has it, and its call waits. A tool's result must not be refused,
because it would be lost.
"""

from __future__ import annotations

from ..open_turn import journal
from ..open_turn.admission import admitted
from ..open_turn.room import CALL_BYTES
from ..state.records import JournalCall
from ..state.state import ConversationState
from .ledger import Ledger

__all__ = ["Fitting", "tell_left_out"]


class Fitting:
    """The room for the answers of one `resume`.

    Attributes:
        problem: The answer that is too large, and the limit; "" if all answers fit.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.problem = ""

    def __call__(self, state: ConversationState, index: int, call: JournalCall) -> JournalCall:
        """Shorten the answered call to the room of the state: a text replaces media that do not fit."""
        ledger = self._ledger
        found = admitted(ledger.room, state, index, call)
        if found.left_out:
            tell_left_out(ledger, call.name, *found.left_out[0])
        if found.problem:
            grown = journal.put_call(state, index, found.logged)
            more = journal.unfinished(grown) * CALL_BYTES
            # A cut can remove the turns before this one. So only a turn that is too large alone is a problem.
            if ledger.room.problem_alone(grown, more=more) is not None:
                self.problem = self.problem or found.problem
        return found.logged


def tell_left_out(ledger: Ledger, tool: str, media_type: str, size: int) -> None:
    """Warn, once in a turn, that media of a result are not in the state."""
    if any(one.code == "result_left_out" for one in ledger.telling.warnings):
        return
    ledger.warn(
        "result_left_out",
        f"the state has no room for what tool {tool!r} returned ({media_type}, {size:,} bytes), and perhaps "
        "for more of this turn; the model reads type and size instead",
    )
