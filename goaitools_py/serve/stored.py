"""Reads the newest turn of a stored conversation, for a run that tells it again or goes on with it.

Owns: these readings of a snapshot. Must never know: HTTP, or how a turn is driven.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..frontends import Called, Piece, Returned, Said, Step, Waits, pieces_of, pieces_since
from ..history.turns import HistoryTurn
from ..types.answers import PendingCall
from ..types.events import TurnCompleted, TurnStarted
from ..types.result import ChatResult
from .left import left_by
from .runs import Run

if TYPE_CHECKING:
    from ..chat.kept.facade import ConversationSnapshot

__all__ = [
    "SYNTHETIC",
    "behind_calls",
    "call_ids",
    "newest_ref",
    "not_in_doubt",
    "shown_pending",
    "tell_stopped",
    "tell_stored",
    "unfinished",
]

SYNTHETIC: Final = ("not_run", "unknown", "cancelled")
"""Flags of results that no tool has given."""


def newest_ref(snapshot: ConversationSnapshot) -> str:
    """Give the `turn_ref` of the newest turn; "" if there is no turn."""
    turns = snapshot.history.turns
    return f"{snapshot.info.state.conversation_id}-{turns[-1].number}" if turns else ""


def call_ids(pieces: Sequence[Piece]) -> set[str]:
    """Give the ids of the calls among pieces."""
    return {piece.call.id for piece in pieces if isinstance(piece, Called)}


def unfinished(snapshot: ConversationSnapshot, given: Collection[str]) -> tuple[Piece, ...]:
    """Give the pieces of an unfinished turn that stay when it goes on.

    Left out: text that broke off, because the model writes it anew, and placeholders for the results of the
    newest calls. The run tells the real results when they come.
    """
    if not snapshot.history.turns:
        return ()
    turn = snapshot.history.turns[-1]
    found = list(pieces_of(turn, snapshot.pending))
    if turn.facts.get("interrupted"):
        del found[-2:]
    while found and isinstance(found[-1], Step):
        found.pop()
    last = behind_calls(found)
    return tuple(
        piece
        for at, piece in enumerate(found)
        if not (isinstance(piece, Waits) and (piece.call_id in given or piece.reason == "in_doubt"))
        and not (at >= last and isinstance(piece, Returned) and piece.flag in SYNTHETIC)
    )


def shown_pending(snapshot: ConversationSnapshot) -> tuple[PendingCall, ...]:
    """Give the calls that a page shows as unfinished, without calls in doubt of a turn that was stopped."""
    return not_in_doubt(snapshot.pending) if left_by(snapshot) == "stopped" else snapshot.pending


def not_in_doubt(pending: Sequence[PendingCall]) -> tuple[PendingCall, ...]:
    """Leave out the calls with an outcome in doubt: no client can answer them."""
    return tuple(call for call in pending if call.reason != "in_doubt")


def behind_calls(pieces: Sequence[Piece]) -> int:
    """Where the results of the newest calls begin."""
    return 1 + max((at for at, piece in enumerate(pieces) if isinstance(piece, (Called, Said))), default=-1)


def tell_stored(
    run: Run,
    snapshot: ConversationSnapshot,
    turn: HistoryTurn,
    answered: Collection[str],
    result: ChatResult | None = None,
) -> None:
    """Fill a run with a stored turn: the turn of the run's `turn_ref`, else `turn`.

    Args:
        run: A run without events.
        snapshot: The stored conversation with the turn.
        turn: The turn.
        answered: The ids of the calls that the client has answered; it holds the pieces before them.
        result: The result of the turn, if it is known.
    """
    id = snapshot.info.state.conversation_id
    turn = next((one for one in snapshot.history.turns if f"{id}-{one.number}" == run.turn_ref), turn)
    pieces = pieces_of(turn, snapshot.pending)
    if result is None:
        text = "".join(piece.text for piece in pieces if isinstance(piece, Said))
        waits = snapshot.info.state.status == "awaiting_tools"
        status: Any = "awaiting_tools" if waits else "complete"
        result = ChatResult(
            text=text, state=b"", status=status, pending=snapshot.pending if waits else (), duplicate=True
        )
    run.before, run.since = pieces, pieces_since(pieces, answered) if answered else ()
    run.tell(TurnCompleted(result=result, conversation_id=id, turn_ref=f"{id}-{turn.number}"))


def tell_stopped(run: Run, snapshot: ConversationSnapshot) -> None:
    """Fill a run with the newest turn, up to the point of its stop. The run has no events yet."""
    run.was_stopped = True
    if snapshot.history.turns:
        run.before = pieces_of(snapshot.history.turns[-1], shown_pending(snapshot))
        id = snapshot.info.state.conversation_id
        run.tell(TurnStarted(conversation_id=id, turn_ref=newest_ref(snapshot)))
